"""An address as messages quote it: without what may be a secret."""

from __future__ import annotations

import re

# What follows is a query or a fragment, such as the signature of a SAS; %3F and %23 are the same, quoted once more.
_BEHIND = re.compile(r"(\?|#|%3f|%23).+", re.IGNORECASE | re.DOTALL)
# A key may hold slashes itself. The container before abfss's @ is a name, and has no colon.
_USER = re.compile(r"//[^/@]*:[^@]*@")
_TOKEN = re.compile(r"^(?!(?:abfss?|wasbs?):)([A-Za-z0-9+.-]+:)//[^/@]+@", re.IGNORECASE)


def shown(address: str) -> str:
    """Return an address without the query, the fragment and the user's name and password.

    :param address: as somebody wrote it, well formed or not.
    """
    return _TOKEN.sub(r"\1//…@", _USER.sub("//…@", _BEHIND.sub(r"\1…", address)))


def shown_name(authority: str) -> str:
    """Return the host, the bucket, the container or the workspace of an address without a user's name and password.

    :param authority: what stands between ``//`` and the next slash, or a part of it.
    """
    name = authority.rpartition("@")[2]
    return shown(name if ":" not in name else f"{name.partition(':')[0]}:…")
