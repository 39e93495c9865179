"""Where a person looks at a table or a commit: pages of the stores' consoles, as far as an address alone leads there.

An address is formed, never asked for, so a link costs nothing and holds no secret. Where the table's address alone
leads to no page (ADLS Gen2, whose portal goes by subscription; a OneLake item by its name, whose portal goes by GUIDs;
a local disk), there is none, unless somebody says how it is formed.
"""

from __future__ import annotations

import re
import string
import uuid
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from airflow_provider_onelake.exceptions import InvalidWriteError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_provider_onelake.storage.addresses import TableAddress

_AWS_CONSOLES = {"cn-": "console.amazonaws.cn", "us-gov-": "console.amazonaws-us-gov.com"}
# Of a signed address, and what people call a secret in one of their own.
_SECRET = re.compile(
    r"(?i)[?&#;](?:[^=&#;]*(?:secret|token|passw|signature|credential|api[-_]?key|access[-_]?key)[^=&#;]*|sig)="
)


def table_page(address: TableAddress, template: str | None = None, region: str | None = None) -> str | None:
    """Return the page of a table in its store's console.

    :param address: of the table.
    :param template: an address of a page with names in braces: ``{table}`` (the address), ``{authority}`` (workspace,
        container with account, or bucket), ``{path}`` below that, and ``{name}``, its last part. Default: what is known
        of the kind of store.
    :param region: of a bucket of AWS. Default: none is said.
    :returns: the page; ``None`` where none is known.
    :raises InvalidWriteError: the template is none, or would put a secret into a link.
    """
    if template:
        return filled(template, _names(address))
    if address.kind == "onelake":
        item = address.path.partition("/")[0]
        if _is_guid(address.authority) and _is_guid(item):
            return f"https://app.fabric.microsoft.com/groups/{address.authority}/lakehouses/{item}"
    if address.kind == "s3":
        return f"{_console(region)}/s3/buckets/{address.authority}?{_in_region(region)}prefix={quote(address.path)}/"
    return None


def commit_page(
    address: TableAddress, version: int, entry: str, template: str | None = None, region: str | None = None
) -> str | None:
    """Return the page of a commit in its store's console.

    :param address: of the table.
    :param version: of the table.
    :param entry: the commit's entry in the log, relative to the table.
    :param template: as for a table, with ``{version}`` and ``{entry}`` besides. Default: what is known of the kind of
        store.
    :param region: of a bucket of AWS. Default: none is said.
    :returns: the page; ``None`` where none is known.
    :raises InvalidWriteError: the template is none, or would put a secret into a link.
    """
    if template:
        return filled(template, {**_names(address), "version": str(version), "entry": entry})
    if address.kind == "s3":
        key = quote(f"{address.path}/{entry}")
        return f"{_console(region)}/s3/object/{address.authority}?{_in_region(region)}prefix={key}"
    return None


def filled(template: str, names: Mapping[str, str | None]) -> str | None:
    """Put values into the address of a page.

    :param template: with names in braces.
    :param names: what each stands for; values are percent-encoded.
    :returns: the address; ``None`` where a value that it needs is not known.
    :raises InvalidWriteError: it is no web address, has another name in braces, or holds a secret.
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
        # Not shown: it may be one.
        raise InvalidWriteError("The address of a page holds what looks like a secret, and whoever sees the task may.")
    if unknown := sorted({name for name, formatted in asked if name not in names or formatted}):
        raise InvalidWriteError(
            f"The address of a page has {{{unknown[0]}}}; known are {', '.join(f'{{{name}}}' for name in names)}."
        )
    values = {name: names[name] for name, _ in asked}
    if any(value is None for value in values.values()):
        return None
    return template.format(**{name: quote(str(value), safe="/") for name, value in values.items()})


def _names(address: TableAddress) -> dict[str, str | None]:
    return {
        "table": str(address),
        "authority": address.authority,
        "path": address.path.lstrip("/"),
        "name": address.name,
    }


def _console(region: str | None) -> str:
    for prefix, host in _AWS_CONSOLES.items():
        if region and region.startswith(prefix):
            return f"https://{host}"
    return "https://console.aws.amazon.com"


def _in_region(region: str | None) -> str:
    return f"region={quote(region)}&" if region else ""


def _is_guid(text: str) -> bool:
    try:
        return str(uuid.UUID(text)) == text
    except ValueError:
        return False
