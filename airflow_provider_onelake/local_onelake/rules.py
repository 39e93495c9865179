"""OneLake's rules on paths: how a place is named, and what nobody may do there by the storage API."""

from __future__ import annotations

import re

import attrs

from airflow_provider_onelake.local_onelake.lake import Lake
from airflow_provider_onelake.local_onelake.names import FOLDERS, Item, Workspace, friendly_names_off, is_by_guid
from airflow_provider_onelake.local_onelake.refusals import forbidden, wrong
from airflow_provider_onelake.local_onelake.tree import Entry

IGNORED = (
    "x-ms-owner",
    "x-ms-group",
    "x-ms-permissions",
    "x-ms-acl",
    "x-ms-acls",
    "x-ms-access-tier",
    "x-ms-encryption-key",
    "x-ms-encryption-key-sha256",
    "x-ms-encryption-algorithm",
    "x-ms-encryption-scope",
)
"""Headers that OneLake ignores, and names in ``x-ms-rejected-headers``."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f\\]")
_LONGEST = 255
"""Bytes of one name in a path: what file systems take."""


@attrs.frozen
class Place:
    """What the path of a request names.

    :param workspace: of it.
    :param item: in the workspace; ``None`` for the workspace itself.
    :param inside: the path in the item; empty for the item itself.
    :param by_guid: whether workspace and item are named by GUID.
    """

    workspace: Workspace
    item: Item | None
    inside: str
    by_guid: bool

    @property
    def key(self) -> str:
        """Its path in the path table."""
        item = () if self.item is None else (self.item.directory,)
        return "/".join((self.workspace.name, *item, *filter(None, (self.inside,))))

    def spell(self, entry: Entry) -> str:
        """Return a path of the same workspace without the workspace, as the client spells items."""
        _, _, below = entry.path.partition("/")
        directory, slash, inside = below.partition("/")
        return f"{self.spell_item(self.workspace.items[directory])}{slash}{inside}"

    def spell_item(self, item: Item) -> str:
        """Return an item of the same workspace as the client spells items."""
        return item.guid if self.by_guid else item.directory


def place_of(lake: Lake, path: str) -> Place:
    """Return what a path names: ``workspace[/item[/path]]``.

    :param lake: that knows workspaces and items.
    :param path: percent-decoded, without the slash at its beginning.
    :raises RefusalError: there is no such workspace or item, or it must not be spelled so.
    """
    workspace, _, rest = path.partition("/")
    by_guid = is_by_guid(workspace)
    if not by_guid and lake.faults.strikes("names_off", path):
        raise friendly_names_off("The tenant allows GUIDs only.")
    if not rest:
        return Place(lake.names.workspace(workspace), None, "", by_guid)
    spelled, _, inside = rest.rstrip("/").partition("/")
    found, item = lake.names.item(workspace, spelled)
    for name in inside.split("/") if inside else ():
        if name in ("", ".", "..") or _CONTROL.search(name) or len(name.encode()) > _LONGEST:
            raise wrong(f"{inside!r} is no path: {name!r} is no name in it.", "InvalidUri")
    return Place(found, item, inside, by_guid)


def changeable(place: Place) -> str:
    """Return the key of a place that may be made, changed, renamed and deleted.

    :raises RefusalError: it is a workspace, an item, or of an item's first level.
    """
    folder, slash, _ = place.inside.partition("/")
    if not slash or folder not in FOLDERS:
        raise forbidden(
            f"{place.key} is not to be made, renamed or deleted by the storage API: workspaces, items and what lies "
            f"directly in an item are Fabric's. Write below {' or '.join(FOLDERS)}."
        )
    return place.key


def rows_below(lake: Lake, place: Place, beginning: str = "", *, recursive: bool) -> list[tuple[str, Entry]]:
    """Return what lies below a place, sorted by path, each with the path as the client spells it.

    :param lake: that holds it.
    :param place: a workspace, or a directory in an item.
    :param beginning: what the names of the place's own children begin with.
    :param recursive: whether to look into directories.
    """
    found: list[Entry] = []
    if place.item is not None:
        if recursive:
            found += lake.tree.walk(place.key, beginning)
        else:
            children = lake.tree.children(place.key)
            found += [child for child in children if child.path.rpartition("/")[2].startswith(beginning)]
    else:
        for item in list(place.workspace.items.values()):
            entry = lake.tree.stat(f"{place.key}/{item.directory}")
            if entry is not None and place.spell_item(item).startswith(beginning):
                found += [entry, *(lake.tree.walk(entry.path) if recursive else ())]
    return sorted((place.spell(entry), entry) for entry in found)
