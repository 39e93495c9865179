"""OneLake's rules on paths: how a place is named, and what nobody may do there by the storage API."""

from __future__ import annotations

import re
from collections.abc import Callable

import attrs

from local_onelake.lake import Lake
from local_onelake.names import FOLDERS, Item, Workspace, friendly_names_off, is_by_guid
from local_onelake.refusals import forbidden, wrong
from local_onelake.shortcuts import Spot
from local_onelake.tree import ALWAYS, Condition, Entry

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
    :param way: the path itself, and where each shortcut on its way leads. Default: it is not in an item.
    """

    workspace: Workspace
    item: Item | None
    inside: str
    by_guid: bool
    way: tuple[Spot, ...] = ()

    @property
    def key(self) -> str:
        """Its path in the path table, behind all shortcuts."""
        return self.way[-1].key if self.way else self.own_key

    @property
    def own_key(self) -> str:
        """Its path in the path table, as it is named."""
        item = () if self.item is None else (self.item.directory,)
        return "/".join((self.workspace.name, *item, *filter(None, (self.inside,))))

    def spell(self, entry: Entry) -> str:
        """Return a path at or below this one without the workspace, as the client spells it."""
        _, _, below = f"{self.own_key}{entry.path.removeprefix(self.key)}".partition("/")
        directory, slash, inside = below.partition("/")
        return f"{self.spell_item(self.workspace.items[directory])}{slash}{inside}"

    def spell_item(self, item: Item) -> str:
        """Return an item of the same workspace as the client spells items."""
        return item.guid if self.by_guid else item.directory


def place_of(lake: Lake, path: str, identity: str) -> Place:
    """Return what a path names: ``workspace[/item[/path]]``, to be read or looked at.

    :param lake: that knows workspaces and items.
    :param path: percent-decoded, without the slash at its beginning.
    :param identity: who asks.
    :raises RefusalError: there is no such workspace or item, it must not be spelled so, the identity may not look
        there, or a shortcut on the way leads nowhere.
    """
    place = _named(lake, path)
    if place.item is None:
        if not lake.access.has(identity, place.workspace, "Viewer"):
            raise forbidden(f"{identity} has no role in the workspace {place.workspace.name!r}.")
        return place
    way = lake.shortcuts.resolve(Spot(place.workspace, place.item, place.inside))
    for spot in way:
        if not lake.access.may_pass(identity, spot.workspace, spot.item, spot.inside):
            raise forbidden(f"{identity} may not read {spot}.")
    return attrs.evolve(place, way=tuple(way))


def check_readable(lake: Lake, place: Place, identity: str) -> None:
    """Refuse to give bytes to an identity that may only look through the directories above them.

    :param lake: that knows who may what.
    :param place: of the file.
    :param identity: who asks.
    :raises RefusalError: it may not read there.
    """
    _check_may(lake, place.way, identity, write=False)


def _check_may(lake: Lake, way: tuple[Spot, ...], identity: str, *, write: bool) -> None:
    for spot in way:
        if not lake.access.may(identity, spot.workspace, spot.item, spot.inside, write=write):
            raise forbidden(f"{identity} may not {'write' if write else 'read'} {spot}.")


def _named(lake: Lake, path: str) -> Place:
    """Return what a path names, whoever may look there, and without following shortcuts."""
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


def changeable(lake: Lake, place: Place, identity: str) -> str:
    """Return the key of a place that may be made, changed, renamed and deleted.

    :param lake: that knows who may what.
    :param place: that is to be changed.
    :param identity: who asks.
    :raises RefusalError: it is a workspace, an item, or of an item's first level; or the identity may not write there.
    """
    _check_level(place)
    _check_may(lake, place.way, identity, write=True)
    return place.key


def delete_at(lake: Lake, path: str, identity: str, condition: Condition = ALWAYS, *, recursive: bool = False) -> None:
    """Delete what a path names. Of a shortcut, only the link is deleted, and nothing of its target.

    :param lake: that holds it.
    :param path: see :func:`place_of`.
    :param identity: who asks.
    :param condition: on what is there. A shortcut has no ETag of its own, so none is met there but the empty one.
    :param recursive: whether a directory is deleted with all that is in it.
    :raises RefusalError: it is not to be deleted, or not by this identity.
    :raises TreeError: it cannot be deleted as things are.
    """
    named = _named(lake, path)
    # Look for the shortcut itself before it is followed, because it may be broken.
    if named.item is not None and lake.shortcuts.at(named.item, named.inside) is not None:
        link = Spot(named.workspace, named.item, named.inside)
        _check_level(named)
        _check_may(lake, (link,), identity, write=True)
        if condition != ALWAYS:
            raise wrong("A shortcut is deleted without a condition here.", "UnsupportedHeader")
        lake.shortcuts.delete(link)
        return
    place = place_of(lake, path, identity)
    lake.delete(changeable(lake, place, identity), condition, recursive=recursive)


def check_no_shortcut(lake: Lake, place: Place) -> None:
    """Refuse to rename a shortcut, and a directory that has one.

    :param lake: that knows the shortcuts.
    :param place: that is to be renamed.
    :raises RefusalError: it is a shortcut, or has one below it.
    """
    if lake.shortcuts.below(place.own_key) or lake.shortcuts.below(place.key):
        raise wrong("A shortcut, and a directory that has one, are not renamed here.", "InvalidRenameSourcePath")


def _check_level(place: Place) -> None:
    folder, slash, _ = place.inside.partition("/")
    if not slash or folder not in FOLDERS:
        raise forbidden(
            f"{place.own_key} is not to be made, renamed or deleted by the storage API: workspaces, items and what "
            f"lies directly in an item are Fabric's. Write below {' or '.join(FOLDERS)}."
        )


def rows_below(
    lake: Lake, place: Place, identity: str, beginning: str = "", *, recursive: bool
) -> list[tuple[str, Entry]]:
    """Return what lies below a place, sorted by path, each with the path as the client spells it.

    A shortcut below the place is a directory, and is not looked into. What the identity may not look at is left out.

    :param lake: that holds it.
    :param place: a workspace, or a directory in an item.
    :param identity: who asks.
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
    rows = sorted((place.spell(entry), entry) for entry in found)
    if place.item is not None:
        shown = _shown(lake, place, identity)
        return [row for row in rows if shown(row[1])]
    return [row for row in rows if _may_look(lake, row[1], identity)]


def _shown(lake: Lake, place: Place, identity: str) -> Callable[[Entry], bool]:
    """Return what says whether an identity may look at an entry below a place, by each way that leads there."""
    if all(lake.access.is_unlimited(identity, spot.workspace, spot.item) for spot in place.way):
        return lambda entry: True

    def shown(entry: Entry) -> bool:
        below = entry.path.removeprefix(place.key).lstrip("/")
        spots = [attrs.evolve(spot, inside="/".join(filter(None, (spot.inside, below)))) for spot in place.way]
        # A list does not ask for the rights on the target of a shortcut, and shows the link in every directory that it
        # lists. Of what lies behind it, it shows nothing.
        if lake.shortcuts.at(spots[-1].item, spots[-1].inside) is not None:
            spots = [attrs.evolve(spot, inside=spot.inside.rpartition("/")[0]) for spot in spots]
        return all(lake.access.may_pass(identity, spot.workspace, spot.item, spot.inside) for spot in spots)

    return shown


def _may_look(lake: Lake, entry: Entry, identity: str) -> bool:
    workspace_name, directory, *below = entry.path.split("/")
    workspace = lake.names.workspace(workspace_name)
    item = workspace.items.get(directory)
    return item is not None and lake.access.may_pass(identity, workspace, item, "/".join(below))
