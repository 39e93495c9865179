"""Addresses of tables: turns every spelling into one normal form, and that into what Spark, obstore and deltalake use.

Two addresses of one table compare equal, however they were written. Nothing here uses the network; only
:func:`resolve_table` looks at the local disk, to find symbolic links that lead out of the lakehouse.
"""

from __future__ import annotations

import os
import re
import uuid
from typing import Literal, NoReturn
from urllib.parse import quote, unquote

import attrs

from airflow_provider_onelake.exceptions import AddressError
from airflow_provider_onelake.storage.shown import shown, shown_name

Kind = Literal["local", "onelake", "adls", "s3", "gcs"]

STAGED_DIRECTORY = "staged"
"""The directory inside a table that holds its buffers. Therefore no table may have this name."""

_FORMS = (
    "Known forms: /a/local/path, file:///path, onelake://workspace/item.Lakehouse/Tables/name, "
    "abfss://container@host/path, https://onelake.dfs.fabric.microsoft.com/…, https://account.dfs.core.windows.net/…, "
    "s3://bucket/path, gs://bucket/path."
)
_SCHEME = re.compile(r"^([a-zA-Z][a-zA-Z0-9+.-]*):")
_GLOBAL = "onelake"
# OneLake's hosts: the global one, one for each region, and one for each workspace with a private link of its own.
_FABRIC_HOST = re.compile(
    r"^(?:(?P<shared>(?:[a-z0-9]+-)?onelake)\.(?:dfs|blob)"
    r"|(?P<private>(?P<guid>[0-9a-f]{32})\.z(?P<zone>[0-9a-f]{2}))\.(?:dfs|blob|onelake))\.fabric\.microsoft\.com$"
)
_ADLS_HOST = re.compile(
    r"^(?P<account>[a-z0-9]{3,24})\.(?:dfs|blob)\.core\.(?P<cloud>windows\.net|usgovcloudapi\.net|chinacloudapi\.cn)$"
)
_CONTAINER = re.compile(r"^[a-z0-9](?:-?[a-z0-9]){2,62}$")
_BUCKET = re.compile(r"^[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]$")
# Spark, Hadoop globs, URLs and the stores spell these characters differently inside a path.
_UNSAFE = re.compile(r'[\x00-\x1f\x7f\\*?#%\[\]{}<>|"]')
# By Microsoft's page on OneLake's addresses, ABFS takes no special characters in the name of a workspace.
_WORKSPACE = re.compile(r"[A-Za-z0-9._~-]+")
_LAKEHOUSE_SUFFIX = ".lakehouse"
_HINTS = {
    "wasb": "Hadoop has no wasb any more: use abfss://container@account.dfs.core.windows.net/path.",
    "wasbs": "Hadoop has no wasb any more: use abfss://container@account.dfs.core.windows.net/path.",
    "adl": "Data Lake Storage Gen1 was retired: use abfss://container@account.dfs.core.windows.net/path.",
    "az": "Use abfss://container@account.dfs.core.windows.net/path.",
    "azure": "Use abfss://container@account.dfs.core.windows.net/path.",
    "s3n": "Use s3://bucket/path.",
    "gcs": "Use gs://bucket/path.",
    "http": "Tables are reached by https only.",
    "dbfs": "Use the address of the store behind it.",
    "hdfs": "HDFS has no create-only put that obstore speaks.",
}


@attrs.frozen
class TableAddress:
    """Where a table is, in one normal form.

    Make one with :meth:`parse` or :func:`resolve_table`, not by hand.

    :param kind: the kind of store.
    :param path: the path below the authority; absolute for a local table, without a leading slash for all others.
    :param authority: OneLake's workspace, ``container@account.cloud``, the bucket, or an empty text for a local table.
    :param host: OneLake's host up to ``.dfs``, where the address names another host than the global one: a region's,
        such as ``westeurope-onelake``, or that of a workspace's private link. It does not count when addresses are
        compared, because all hosts serve the same data.
    """

    kind: Kind
    path: str
    authority: str = ""
    host: str | None = attrs.field(default=None, eq=False)

    @classmethod
    def parse(cls, text: str) -> TableAddress:
        """Parse the address of a table.

        :param text: the address in any of the known forms; a trailing slash is dropped.
        :raises AddressError: the address is malformed or ambiguous, or a table cannot lie there.
        """
        address = _parse(text)
        parts = address.path.strip("/").split("/")
        # On a local disk, check only the last name: the directories above are the machine's and may have any name.
        _check_names(text, parts[-1:] if address.kind == "local" else parts)
        if address.kind == "onelake":
            _check_onelake_table(text, parts)
        return address

    @classmethod
    def parse_root(cls, text: str) -> TableAddress:
        """Parse the address of a lakehouse: a directory that holds ``Tables/``.

        :param text: the address in any of the known forms. An address in OneLake ends with the item.
        :raises AddressError: the address is malformed or ambiguous.
        """
        address = _parse(text, root=True)
        if address.kind == "onelake" and "/" in address.path:
            _refuse(text, "a lakehouse's address ends with the item", "leave out what follows it")
        return address

    @property
    def name(self) -> str:
        """The last segment of the path."""
        return self.path.rsplit("/", 1)[-1]

    @property
    def spark_uri(self) -> str:
        """The address as Spark takes it. Hadoop paths are not percent-encoded.

        :raises AddressError: Spark cannot reach the table by this address.
        """
        match self.kind:
            case "local":
                return f"file://{self.path}"
            case "s3":
                return f"s3a://{self.authority}/{self.path}".rstrip("/")
            case "gcs":
                return f"gs://{self.authority}/{self.path}".rstrip("/")
            case _:
                if self.kind == "onelake" and not _WORKSPACE.fullmatch(self.authority):
                    _refuse(
                        str(self),
                        "Spark cannot reach it, as ABFS takes no other characters than letters, digits and . _ ~ - in "
                        "the name of a workspace",
                        "write onelake://<workspace GUID>/<item GUID>/…; both stand in the portal's address of the "
                        "lakehouse",
                    )
                return f"abfss://{self._azure_authority(self.host)}/{self.path}"

    @property
    def deltalake_uri(self) -> str:
        """The address as the deltalake library takes it."""
        match self.kind:
            case "local":
                return self.path
            case "s3":
                return f"s3://{self.authority}/{quote(self.path)}".rstrip("/")
            case "gcs":
                return f"gs://{self.authority}/{quote(self.path)}".rstrip("/")
            case _:
                # deltalake 1.6 does not know the hosts of private links, so its storage options name the endpoint.
                return f"abfss://{self._azure_authority(None if self.is_private else self.host)}/{quote(self.path)}"

    @property
    def is_private(self) -> bool:
        """Whether the address names the host of a workspace's private link."""
        return self.host is not None and "." in self.host

    @property
    def blob_endpoint(self) -> str:
        """The endpoint of the Blob API of OneLake or of the storage account."""
        if self.kind == "onelake":
            return f"https://{self.host or _GLOBAL}.blob.fabric.microsoft.com"
        account, _, cloud = self.authority.partition("@")[2].partition(".")
        return f"https://{account}.blob.core.{cloud}"

    @property
    def store_url(self) -> str:
        """The address as obstore takes it: a percent-encoded URL."""
        return f"file://{quote(self.path)}" if self.kind == "local" else self.deltalake_uri

    def _azure_authority(self, host: str | None) -> str:
        if self.kind == "onelake":
            return f"{quote(self.authority)}@{host or _GLOBAL}.dfs.fabric.microsoft.com"
        container, _, rest = self.authority.partition("@")
        account, _, cloud = rest.partition(".")
        return f"{container}@{account}.dfs.core.{cloud}"

    def child(self, *parts: str) -> TableAddress:
        """Return the address of a directory below this one.

        :param parts: segments of the path below; each may hold slashes.
        :raises AddressError: a segment is empty, leads upwards, or is unsafe.
        """
        below = "/".join(parts)
        _check_segments(below, below.split("/"))
        return attrs.evolve(self, path=f"{self.path}/{below}" if self.path.strip("/") else f"{self.path}{below}")

    def relative_to(self, root: TableAddress) -> str | None:
        """Return the path of this address relative to a directory.

        :param root: the directory that may hold this address.
        :returns: the relative path; ``None`` if this address does not lie below the directory.
        """
        if (self.kind, self.authority) != (root.kind, root.authority):
            return None
        base = f"{root.path.rstrip('/')}/" if root.path else ""
        return self.path[len(base) :] if self.path.startswith(base) and len(self.path) > len(base) else None

    def __str__(self) -> str:
        """Return the shortest spelling that :meth:`parse` takes back."""
        if self.kind == "onelake" and self.host is None:
            return f"onelake://{quote(self.authority)}/{quote(self.path)}"
        if self.is_private:
            return f"abfss://{self._azure_authority(self.host)}/{quote(self.path)}"
        return self.deltalake_uri


def one_host(host: str) -> str:
    """Return one name for all hosts of OneLake: the global host. Any other host is returned as it is.

    :param host: the host of an Azure address.
    """
    return f"{_GLOBAL}.dfs.fabric.microsoft.com" if _FABRIC_HOST.match(host.lower()) else host


def parse_alias(alias: str, root: TableAddress) -> TableAddress:
    """Parse a lakehouse's other spelling.

    :param alias: the address with GUIDs if ``root`` has names, or with names if ``root`` has GUIDs.
    :param root: the lakehouse.
    :raises AddressError: the alias is malformed, or is no other spelling of the lakehouse.
    """
    other = TableAddress.parse_root(alias)
    if not other.kind == root.kind == "onelake" or _is_guid(other.authority) == _is_guid(root.authority):
        _refuse(
            alias,
            f"it is no other spelling of the lakehouse {root}",
            "write it by GUIDs where the lakehouse has names, by names where that has GUIDs, or leave it out",
        )
    return other


def other_spelling(address: TableAddress, lakehouse: str | None, alias: str | None) -> TableAddress | None:
    """Return the other address of a table in a lakehouse that is spelled in two ways.

    :param address: the table's address, spelled as ``lakehouse`` is.
    :param lakehouse: the connection's lakehouse.
    :param alias: the lakehouse's other spelling.
    :returns: the other address; ``None`` if lakehouse or alias is not known, or the table lies outside the lakehouse.
    :raises AddressError: ``alias`` is no other spelling of ``lakehouse``.
    """
    if lakehouse is None or alias is None:
        return None
    root = TableAddress.parse_root(lakehouse)
    inside = address.relative_to(root)
    return None if inside is None else parse_alias(alias, root).child(inside)


def resolve_table(table: str, lakehouse: str | None, alias: str | None = None) -> TableAddress:
    """Return the address of the table that a DAG author names; it must lie inside the connection's lakehouse.

    :param table: an address, or a path such as ``Tables/trips`` inside the lakehouse.
    :param lakehouse: the connection's lakehouse; without one, every absolute address is accepted.
    :param alias: the lakehouse's other spelling, with GUIDs or with names. Default: none is known.
    :returns: the table's address; an address spelled as the alias is changed to the lakehouse's spelling.
    :raises AddressError: the address is malformed, relative without a lakehouse, or outside the lakehouse.
    """
    if not table or not table.strip():
        _refuse(table, "it is empty", "name a table, such as Tables/trips")
    absolute = _is_absolute(table)
    if lakehouse is None:
        if not absolute:
            _refuse(
                table,
                "it is relative, and the connection has no lakehouse",
                "set the lakehouse of the connection, or write a whole address",
            )
        return TableAddress.parse(table)

    root = TableAddress.parse_root(lakehouse)
    if absolute:
        address = TableAddress.parse(table)
        inside = address.relative_to(root)
        if inside is None and alias is not None and (inside := address.relative_to(parse_alias(alias, root))):
            address = root.child(inside)
    else:
        inside = table.removesuffix("/")
        address = TableAddress.parse(str(root.child(inside)))
    if inside is None:
        reason = f"a path outside the lakehouse {root}"
        if address.kind == root.kind == "onelake" and _is_guid(address.authority) != _is_guid(root.authority):
            reason += ", or at least one cannot tell: one is spelled with names, the other with GUIDs"
            if alias is None:
                reason += ", and the connection has no lakehouse_alias"
        _refuse(table, reason, "use a connection of that lakehouse, or a path inside this one, such as Tables/trips")
    _check_names(table, inside.split("/"))
    if address.kind == "local":
        _check_links(table, address, root)
    return address


def _is_absolute(text: str) -> bool:
    return text.startswith("/") or _SCHEME.match(text) is not None


def _is_guid(text: str) -> bool:
    try:
        return str(uuid.UUID(text)) == text.lower()
    except ValueError:
        return False


def _refuse(text: str, reason: str, hint: str) -> NoReturn:
    raise AddressError(f"The address {shown(text)!r} is refused: {reason}; {hint}.")


def _parse(text: str, *, root: bool = False) -> TableAddress:
    if text != text.strip():
        _refuse(text, "it has blanks around it", "remove them")
    if text.startswith("/"):
        return TableAddress("local", f"/{_clean(text, text[1:])}")
    found = _SCHEME.match(text)
    if found is None:
        hint = "start it with a slash or a scheme" if not text.startswith("~") else "write the home directory out"
        raise AddressError(f"The address {shown(text)!r} is refused: it is relative; {hint}. {_FORMS}")
    scheme = found.group(1).lower()
    rest = text[found.end() :]
    if scheme != "file" and not rest.startswith("//"):
        raise AddressError(f"The address {shown(text)!r} is refused: {scheme}: is not followed by //. {_FORMS}")
    for mark, what in (("?", "a query string"), ("#", "a fragment")):
        if mark in rest:
            _refuse(text, f"it has {what}", "access is the connection's business; leave it out")
    if scheme == "file":
        return _parse_file(text, rest)
    authority, _, path = rest[2:].partition("/")
    match scheme:
        case "onelake":
            return _onelake(text, authority, path, None, root=root)
        case "abfss" | "abfs":
            return _parse_abfss(text, authority, path, root=root)
        case "https":
            return _parse_https(text, authority, path, root=root)
        case "s3" | "s3a" | "gs":
            return _bucket(text, "gcs" if scheme == "gs" else "s3", authority, path, root=root)
        case _:
            raise AddressError(
                f"The address {shown(text)!r} is refused: {scheme}:// is not supported. {_HINTS.get(scheme, _FORMS)}"
            )


def _parse_file(text: str, rest: str) -> TableAddress:
    host, slash, path = rest[2:].partition("/") if rest.startswith("//") else ("", rest[:1], rest[1:])
    if host not in ("", "localhost"):
        _refuse(text, f"it names the host {shown_name(host)}", "a local path is written file:///path")
    if slash != "/":
        _refuse(text, "it is relative", "a local path is written file:///path")
    return TableAddress("local", f"/{_clean(text, unquote(path))}")


def _parse_abfss(text: str, authority: str, path: str, *, root: bool) -> TableAddress:
    container, at, host = authority.rpartition("@")
    if not at or not container:
        _refuse(text, "the container before the @ is missing", "write abfss://container@host/path")
    return _azure(text, container, host.lower(), path, root=root)


def _parse_https(text: str, host: str, path: str, *, root: bool) -> TableAddress:
    container, _, below = path.partition("/")
    if ".s3." in host or host.startswith("s3."):
        _refuse(text, "a bucket is not addressed by its web address here", "write s3://bucket/path")
    return _azure(text, container, host.lower(), below, root=root)


def _azure(text: str, container: str, host: str, path: str, *, root: bool) -> TableAddress:
    if found := _FABRIC_HOST.match(host):
        return _onelake(text, container, path, found, root=root)
    if found := _ADLS_HOST.match(host):
        if not _CONTAINER.match(container):
            _refuse(
                text,
                f"{shown_name(container)!r} is no name of a container",
                "containers are 3 to 63 small letters, digits and single hyphens",
            )
        cleaned = _clean(text, unquote(path), empty_allowed=root)
        return TableAddress("adls", cleaned, f"{container}@{found['account']}.{found['cloud']}")
    _refuse(
        text,
        f"the host {shown_name(host)!r} is neither OneLake's nor a storage account's",
        "expected [<region>-]onelake.dfs.fabric.microsoft.com, <workspace GUID without dashes>.z<its first two "
        "characters>.dfs.fabric.microsoft.com or <account>.dfs.core.windows.net",
    )


def _onelake(text: str, workspace: str, path: str, host: re.Match[str] | None, *, root: bool) -> TableAddress:
    workspace = unquote(workspace)
    if not workspace:
        _refuse(text, "the workspace is missing", "write onelake://workspace/item.Lakehouse/Tables/name")
    if "@" in workspace or _UNSAFE.search(workspace) or workspace != workspace.strip():
        _refuse(text, f"{shown_name(workspace)!r} is no name of a workspace", "use its name or its GUID")
    item, *below = _clean(text, unquote(path), empty_allowed=True).split("/")
    if not item:
        _refuse(text, "the item is missing", "write onelake://workspace/item.Lakehouse/Tables/name")
    if _is_guid(item.rpartition(".")[0]):
        _refuse(text, "an item's GUID takes no type", f"write {item.rpartition('.')[0].lower()}")
    named = not _is_guid(item)
    if named and _is_guid(workspace):
        _refuse(text, "the workspace is a GUID, but the item is named", "use names for both, or GUIDs for both")
    if not named and not _is_guid(workspace):
        _refuse(text, "the item is a GUID, but the workspace is named", "use names for both, or GUIDs for both")
    if named:
        item = _lakehouse_item(text, item)
    else:
        workspace, item = workspace.lower(), item.lower()
    named_host = None if host is None else host["shared"] or _private_host(text, workspace, host)
    return TableAddress("onelake", "/".join([item, *below]), workspace, None if named_host == _GLOBAL else named_host)


def _private_host(text: str, workspace: str, host: re.Match[str]) -> str:
    if not host["guid"].startswith(host["zone"]):
        _refuse(
            text,
            f"no workspace has the private link {host['private']}",
            f"after .z come the first two characters of the workspace's GUID: {host['guid']}.z{host['guid'][:2]}",
        )
    if _is_guid(workspace) and workspace.replace("-", "") != host["guid"]:
        _refuse(
            text,
            "the host is the private link of another workspace",
            "write the host of this workspace's own, or onelake.dfs.fabric.microsoft.com",
        )
    return host["private"]


def _lakehouse_item(text: str, item: str) -> str:
    name, dot, suffix = item.rpartition(".")
    if not dot or not name:
        _refuse(text, f"the item {item!r} has no type", f"write {item.strip('.')}.Lakehouse")
    if f".{suffix.lower()}" != _LAKEHOUSE_SUFFIX:
        _refuse(text, f"items of type {suffix} are not written from outside Fabric", "use a lakehouse: item.Lakehouse")
    return f"{name}.Lakehouse"


def _check_onelake_table(text: str, parts: list[str]) -> None:
    # A table is Tables/name, or Tables/schema/name if the lakehouse has schemas. Below Files, a table is an ordinary
    # Delta table too, but Fabric does not list it. OneLake refuses to make any other top directory.
    if len(parts) < 2 or parts[1] not in ("Tables", "Files"):
        _refuse(text, "a table lies in Tables (or, unlisted by Fabric, in Files)", f"write …/{parts[0]}/Tables/name")
    if len(parts) == 2:
        _refuse(text, "the table's name is missing", f"write …/{parts[0]}/{parts[1]}/name")
    if parts[1] == "Tables" and len(parts) > 4:
        _refuse(text, "it is too deep for a table", "write …/Tables/name or …/Tables/schema/name")


def _bucket(text: str, kind: Kind, bucket: str, path: str, *, root: bool) -> TableAddress:
    if not _BUCKET.match(bucket) or ".." in bucket:
        _refuse(
            text,
            f"{shown_name(bucket)!r} is no name of a bucket",
            "buckets are 3 to 63 small letters, digits, dots and hyphens",
        )
    return TableAddress(kind, _clean(text, unquote(path), empty_allowed=root), bucket)


def _clean(text: str, path: str, *, empty_allowed: bool = False) -> str:
    path = path.removesuffix("/")
    if not path:
        if empty_allowed:
            return ""
        _refuse(text, "it names no directory", "a table is a directory of its own")
    _check_segments(text, path.split("/"))
    return path


def _check_segments(text: str, segments: list[str]) -> None:
    for segment in segments:
        if not segment:
            _refuse(text, "it has an empty segment", "write one slash between two names")
        if segment in (".", ".."):
            _refuse(text, f"it has the segment {shown(segment)!r}", "write the path out")
        if found := _UNSAFE.search(segment):
            _refuse(
                text,
                f"the segment {shown(segment)!r} holds {found.group()!r}, which engines spell differently",
                "rename it",
            )
        if segment != segment.strip():
            _refuse(text, f"the segment {shown(segment)!r} has blanks around it", "rename it")


def _check_names(text: str, segments: list[str]) -> None:
    for segment in segments:
        if segment.startswith(("_", ".")):
            _refuse(
                text,
                f"the segment {shown(segment)!r} begins with {segment[0]!r}",
                "Spark and VACUUM pass over such directories; rename it",
            )
        if segment == STAGED_DIRECTORY:
            _refuse(text, f"{STAGED_DIRECTORY!r} is where a table keeps its buffers", "choose another name")


def _check_links(text: str, address: TableAddress, root: TableAddress) -> None:
    real, base = os.path.realpath(address.path), os.path.realpath(root.path)
    if os.path.commonpath([real, base]) != base or real == base:
        _refuse(text, f"a symbolic link leads to {real}, a path outside the lakehouse {base}", "remove the link")
