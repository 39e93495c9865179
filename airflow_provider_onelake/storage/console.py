"""Links to pages on which a person can look at a table, in the consoles of the stores.

A link is computed from the table's address without any request, so it costs nothing and holds no secret. There is no
link where the address is not enough: on ADLS Gen2, whose portal needs the subscription; for a OneLake item given by
name, whose portal needs GUIDs; and on a local disk. A template can give a link there too.
"""

from __future__ import annotations

import re
import string
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from airflow_provider_onelake.exceptions import InvalidWriteError

if TYPE_CHECKING:
    from collections.abc import Mapping

# Names of query parameters that hold a secret: those of signed addresses, and common names for secrets.
_SECRET = re.compile(
    r"(?i)[?&#;](?:[^=&#;]*(?:secret|token|passw|signature|credential|api[-_]?key|access[-_]?key)[^=&#;]*|sig)="
)


def filled(template: str, names: Mapping[str, str | None]) -> str | None:
    """Put values into the address of a page.

    :param template: the address of a page with names in braces.
    :param names: the value for each name; values are percent-encoded.
    :returns: the address; ``None`` if a value that the template needs is not known.
    :raises InvalidWriteError: the template is no web address, has an unknown name in braces, or holds a secret.
    """
    try:
        url = urlsplit(template)
        parts = string.Formatter().parse(template)
        asked = [(name, bool(spec or conversion)) for _, name, spec, conversion in parts if name is not None]
    except ValueError as error:
        raise InvalidWriteError(f"The address of a page is malformed: {error}.") from error
    if url.scheme not in ("http", "https") or not url.netloc:
        raise InvalidWriteError("The address of a page begins with https:// or http:// and a host.")
    if "@" in url.netloc or _SECRET.search(template):
        # Do not show the template in the message: it may hold a secret.
        raise InvalidWriteError("The address of a page holds what looks like a secret, and whoever sees the task may.")
    if unknown := sorted({name for name, formatted in asked if name not in names or formatted}):
        raise InvalidWriteError(
            f"The address of a page has {{{unknown[0]}}}; known are {', '.join(f'{{{name}}}' for name in names)}."
        )
    values = {name: names[name] for name, _ in asked}
    if any(value is None for value in values.values()):
        return None
    return template.format(**{name: quote(str(value), safe="/") for name, value in values.items()})
