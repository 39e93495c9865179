"""Addresses as messages quote them: without parts that may be secret."""

from __future__ import annotations

import re

# A query or a fragment, which may hold a secret such as the signature of a SAS. %3F and %23 are encoded ? and #.
_BEHIND = re.compile(r"(\?|#|%3f|%23).+", re.IGNORECASE | re.DOTALL)
# A user and a password, which may contain slashes. The container before the @ of abfss has no colon, so it stays.
_USER = re.compile(r"//[^/@]*:[^@]*@")
_TOKEN = re.compile(r"^(?!(?:abfss?|wasbs?):)([A-Za-z0-9+.-]+:)//[^/@]+@", re.IGNORECASE)


def shown(address: str) -> str:
    """Return an address without the query, the fragment and the user's name and password.

    :param address: the address as a user wrote it; it may be malformed.
    """
    return _TOKEN.sub(r"\1//…@", _USER.sub("//…@", _BEHIND.sub(r"\1…", address)))


def shown_name(authority: str) -> str:
    """Return the host, the bucket, the container or the workspace of an address without a user's name and password.

    :param authority: the text between ``//`` and the next slash, or a part of it.
    """
    name = authority.rpartition("@")[2]
    return shown(name if ":" not in name else f"{name.partition(':')[0]}:…")
