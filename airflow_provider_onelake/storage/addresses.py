"""Addresses of tables: turns every spelling into one normal form, and that into what Spark, obstore and deltalake use.

Two addresses of one table compare equal, however they were written. Nothing here uses the network; only
:func:`resolve_table` looks at the local disk, to find symbolic links that lead out of the lakehouse. What holds for one
kind of store only is said by its :class:`~airflow_provider_onelake.storage.kinds.StoreKind`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NoReturn
from urllib.parse import unquote

import attrs

from airflow_provider_onelake.exceptions import AddressError
from airflow_provider_onelake.storage.kinds import StoreKind, kinds

STAGED_DIRECTORY = "staged"
"""The directory inside a table that holds its buffers. Therefore no table may have this name."""

_SCHEME = re.compile(r"^([a-zA-Z][a-zA-Z0-9+.-]*):")
# Spark, Hadoop globs, URLs and the stores spell these characters differently inside a path.
# Half of a pair of UTF-16 cannot be in UTF-8.
UNSAFE = re.compile(r'[\x00-\x1f\x7f\\*?#%\[\]{}<>|"\ud800-\udfff]')
"""Characters that no name in an address has."""
_HINTS = {
    "http": "Tables are reached by https only.",
    "dbfs": "Use the address of the store behind it.",
    "hdfs": "HDFS has no create-only put that obstore speaks.",
}
# A query or a fragment, which may hold a secret such as the signature of a SAS. %3F and %23 are encoded ? and #.
_BEHIND = re.compile(r"(\?|#|%3f|%23).+", re.IGNORECASE | re.DOTALL)
# A user and a password, which may contain slashes. The container before the @ of abfss has no colon, so it stays.
_USER = re.compile(r"//[^/@]*:[^@]*@")
# The field of a connection whose value is parsed now. The value may be a secret that was pasted into the wrong field,
# such as a connection string, so no message repeats any of it.
_FIELD: ContextVar[str | None] = ContextVar("field", default=None)
_TOKEN = re.compile(r"^(?!(?:abfss?|wasbs?):)([A-Za-z0-9+.-]+:)//[^/@]+@", re.IGNORECASE)


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

    kind: StoreKind = attrs.field(eq=lambda kind: kind.name, repr=lambda kind: kind.name)
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
        names = address.path.split("/")
        _check_names(text, names[-1:] if address.kind.any_parent else names)
        address.kind.check_table(text, address)
        return address

    @classmethod
    def parse_root(cls, text: str, field: str | None = "lakehouse") -> TableAddress:
        """Parse the address of a lakehouse: a directory that holds ``Tables/``.

        :param text: the address in any of the known forms. An address in OneLake ends with the item.
        :param field: the field of a connection that has the address: messages name it, and do not repeat its value, as
            that may be a secret. ``None`` for an address that a person has typed. Default: ``lakehouse``.
        :raises AddressError: the address is malformed or ambiguous.
        """
        with _value_of(field):
            address = _parse(text, root=True)
            address.kind.check_root(text, address)
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
        return self.kind.spark_uri(self)

    @property
    def manifest_uri(self) -> str:
        """The address as symlink manifests have it. It is not percent-encoded.

        :raises AddressError: no engine that reads manifests can reach the table by this address.
        """
        return self.kind.manifest_uri(self)

    @property
    def deltalake_uri(self) -> str:
        """The address as the deltalake library takes it."""
        return self.kind.deltalake_uri(self)

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
        if (self.kind.name, self.authority) != (root.kind.name, root.authority):
            return None
        base = f"{root.path.rstrip('/')}/" if root.path else ""
        return self.path[len(base) :] if self.path.startswith(base) and len(self.path) > len(base) else None

    def __str__(self) -> str:
        """Return the shortest spelling that :meth:`parse` takes back."""
        return self.kind.text(self)


@attrs.frozen
class Spelling:
    """An address as somebody wrote it, in its parts.

    :param text: all of it.
    :param scheme: in small letters; empty for a path with a slash first.
    :param authority: the part between ``//`` and the next slash.
    :param path: what follows, not decoded; it begins with a slash, if the address has one.
    :param root: whether it is the address of a lakehouse, which may have no path.
    """

    text: str
    scheme: str
    authority: str
    path: str
    root: bool

    def directory(self, *, empty_allowed: bool | None = None) -> str:
        """Return the path, decoded and without the slash in front.

        :param empty_allowed: whether it may be empty. Default: if it is the path of a lakehouse.
        :raises AddressError: the path leads to no directory, or is unsafe.
        """
        path = unquote(self.path.removeprefix("/"))
        return clean(self.text, path, empty_allowed=self.root if empty_allowed is None else empty_allowed)


def kind_of(text: str) -> StoreKind | None:
    """Return the kind of store that an address leads to; ``None`` if it is no address.

    :param text: the address of a table or a lakehouse.
    """
    try:
        return _parse(text, root=True).kind
    except AddressError:
        return None


def parse_alias(alias: str, root: TableAddress) -> TableAddress:
    """Parse a lakehouse's other spelling.

    :param alias: the address with GUIDs if ``root`` has names, or with names if ``root`` has GUIDs.
    :param root: the lakehouse.
    :raises AddressError: the alias is malformed, or is no other spelling of the lakehouse.
    """
    other = TableAddress.parse_root(alias, "lakehouse_alias")
    with _value_of("lakehouse_alias"):
        if not root.kind.is_other_spelling(root, other):
            refuse(
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


def resolve_table(
    table: str, lakehouse: str | None, alias: str | None = None, connection: str = "the connection"
) -> TableAddress:
    """Return the address of the table that a DAG author names; it must lie inside the connection's lakehouse.

    :param table: an address, or a path such as ``Tables/trips`` inside the lakehouse.
    :param lakehouse: the connection's lakehouse; without one, every absolute address is accepted.
    :param alias: the lakehouse's other spelling, with GUIDs or with names. Default: none is known.
    :param connection: what messages call the connection.
    :returns: the table's address; an address spelled as the alias is changed to the lakehouse's spelling.
    :raises AddressError: the address is malformed, relative without a lakehouse, or outside the lakehouse.
    """
    if not isinstance(table, str):
        refuse(repr(table), "it is no text", "name a table, such as Tables/trips")
    if not table.strip():
        refuse(table, "it is empty", "name a table, such as Tables/trips")
    absolute = _is_absolute(table)
    if lakehouse is None:
        if not absolute:
            refuse(
                table,
                f"it is relative, and {connection} has no lakehouse",
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
        if root.kind.is_other_spelling(root, address):
            reason += ", or at least one cannot tell: one is spelled with names, the other with GUIDs"
            if alias is None:
                reason += ", and the connection has no lakehouse_alias"
        refuse(table, reason, "use a connection of that lakehouse, or a path inside this one, such as Tables/trips")
    _check_names(table, inside.split("/"))
    address.kind.check_inside(table, address, root)
    return address


def _is_absolute(text: str) -> bool:
    return text.startswith("/") or _SCHEME.match(text) is not None


def refuse(text: str, reason: str, hint: str) -> NoReturn:
    """Raise the error of an address that is not taken."""
    raise _refused(text, f"{reason}; {hint}.")


def _refused(text: str, why: str) -> AddressError:
    field = _FIELD.get()
    what = f"address {shown(text)!r}" if field is None else f"connection's `{field}`, of {len(text)} characters,"
    return AddressError(f"The {what} is refused: {why}")


@contextmanager
def _value_of(field: str | None) -> Iterator[None]:
    token = _FIELD.set(field)
    try:
        yield
    finally:
        _FIELD.reset(token)


def _parse(text: str, *, root: bool = False) -> TableAddress:
    if text != text.strip():
        refuse(text, "it has blanks around it", "remove them")
    scheme, authority, path = _split(text)
    for kind in kinds():
        if scheme in kind.schemes and (address := kind.parse(Spelling(text, scheme, authority, path, root))):
            return address
    hints = {known: hint for kind in kinds() for known, hint in kind.hints.items()} | _HINTS
    raise _refused(text, f"{shown(scheme)}:// is not supported. {hints.get(scheme) or _forms()}")


def _split(text: str) -> tuple[str, str, str]:
    if text.startswith("/"):
        return "", "", text
    found = _SCHEME.match(text)
    if found is None:
        hint = "start it with a slash or a scheme" if not text.startswith("~") else "write the home directory out"
        raise _refused(text, f"it is relative; {hint}. {_forms()}")
    scheme, rest = found.group(1).lower(), text[found.end() :]
    # Hadoop writes file:/ with one slash.
    if scheme != "file" and not rest.startswith("//"):
        raise _refused(text, f"{shown(scheme)}: is not followed by //. {_forms()}")
    for mark, what in (("?", "a query string"), ("#", "a fragment")):
        if mark in rest:
            refuse(text, f"it has {what}", "access is the connection's business; leave it out")
    if not rest.startswith("//"):
        return scheme, "", rest
    authority, slash, path = rest[2:].partition("/")
    return scheme, authority, f"{slash}{path}"


def _forms() -> str:
    return f"Known forms: {', '.join(form for kind in kinds() for form in kind.forms)}."


def clean(text: str, path: str, *, empty_allowed: bool = False) -> str:
    """Return the path of a directory without a slash at its end.

    :param text: the address as it was written.
    :param path: decoded.
    :param empty_allowed: whether the path may be empty. Default: no.
    :raises AddressError: the path leads to no directory, or is unsafe.
    """
    path = path.removesuffix("/")
    if not path:
        if empty_allowed:
            return ""
        refuse(text, "it names no directory", "a table is a directory of its own")
    _check_segments(text, path.split("/"))
    return path


def _check_segments(text: str, segments: list[str]) -> None:
    for segment in segments:
        if not segment:
            refuse(text, "it has an empty segment", "write one slash between two names")
        if segment in (".", ".."):
            refuse(text, f"it has the segment {shown(segment)!r}", "write the path out")
        if found := UNSAFE.search(segment):
            refuse(
                text,
                f"the segment {shown(segment)!r} holds {found.group()!r}, which engines spell differently",
                "rename it",
            )
        if segment != segment.strip():
            refuse(text, f"the segment {shown(segment)!r} has blanks around it", "rename it")


def _check_names(text: str, segments: list[str]) -> None:
    for segment in segments:
        if segment.startswith(("_", ".")):
            refuse(
                text,
                f"the segment {shown(segment)!r} begins with {segment[0]!r}",
                "Spark and VACUUM pass over such directories; rename it",
            )
        if segment == STAGED_DIRECTORY:
            refuse(text, f"{STAGED_DIRECTORY!r} is where a table keeps its buffers", "choose another name")


def shown(address: str) -> str:
    """Return an address, or a part of one, without the query, the fragment and the user's name and password.

    Nothing is left of what a connection's field has.

    :param address: the address as a user wrote it; it may be malformed.
    """
    if _FIELD.get() is not None:
        return "…"
    return _TOKEN.sub(r"\1//…@", _USER.sub("//…@", _BEHIND.sub(r"\1…", address)))


def shown_name(authority: str) -> str:
    """Return the host, the bucket, the container or the workspace of an address without a user's name and password.

    :param authority: the text between ``//`` and the next slash, or a part of it.
    """
    name = authority.rpartition("@")[2]
    return shown(name if ":" not in name else f"{name.partition(':')[0]}:…")
