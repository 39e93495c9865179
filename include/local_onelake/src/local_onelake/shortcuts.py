"""Shortcuts: folders of an item that are another item's folder, or one of another store.

In the path table a shortcut is an empty directory, so that lists show a folder. What lies below is looked for at the
shortcut's target. Nothing is copied, and no file of the target belongs to the shortcut.
"""

from __future__ import annotations

from typing import Any

import attrs

from local_onelake.kept import Kept
from local_onelake.names import Item, Names, Workspace
from local_onelake.refusals import RefusalError, wrong
from local_onelake.tree import CREATE_ONLY, ExistsError, MismatchError, Tree, TreeError

MARK = {"x-ms-onelake-shortcut-path": "true"}
"""The header by which OneLake says that a folder is a shortcut."""

SHORTCUTS = "shortcuts"
MOST_LINKS = 5
"""Shortcuts to shortcuts, one after the other."""
MOST_IN_A_PATH = 10
_MOST_IN_AN_ITEM = 10_000


@attrs.frozen
class Spot:
    """A path in an item.

    :param workspace: of the item.
    :param item: in it.
    :param inside: the path in the item, without a slash at its beginning.
    """

    workspace: Workspace
    item: Item
    inside: str

    @property
    def key(self) -> str:
        """Its path in the path table."""
        return "/".join(filter(None, (self.workspace.name, self.item.directory, self.inside)))

    def __str__(self) -> str:
        return self.key


class Shortcuts:
    """The shortcuts of every item.

    :param kept: that has them.
    :param names: that knows the items of their targets.
    :param tree: that has a directory for each.
    """

    def __init__(self, kept: Kept, names: Names, tree: Tree) -> None:
        self._kept = kept
        self._names = names
        self._tree = tree

    def of(self, item: Item) -> dict[str, dict[str, Any]]:
        """Return the targets of an item's shortcuts, as REST has them, by the path of the shortcut in the item."""
        found: dict[str, dict[str, Any]] = self._kept.read(SHORTCUTS, item.guid) or {}
        return found

    def at(self, item: Item, inside: str) -> dict[str, Any] | None:
        """Return the target of the shortcut at a path; ``None`` if there is none at exactly this path."""
        return self.of(item).get(inside)

    def first_on(self, spot: Spot) -> tuple[str, dict[str, Any]] | None:
        """Return the first shortcut on the way to a path, or at it, and its target."""
        shortcuts = self.of(spot.item)
        names = spot.inside.split("/")
        for length in range(1, len(names) + 1):
            above = "/".join(names[:length])
            if above in shortcuts:
                return above, shortcuts[above]
        return None

    def below(self, key: str) -> list[tuple[Item, str]]:
        """Return the shortcuts at and below a path of the path table."""
        found = []
        for workspace in self._names.all():
            for item in list(workspace.items.values()):
                for inside in self.of(item):
                    where = Spot(workspace, item, inside).key
                    if where == key or where.startswith(f"{key}/"):
                        found.append((item, inside))
        return found

    def resolve(self, spot: Spot) -> list[Spot]:
        """Follow the shortcuts on the way to a path.

        :param spot: the path.
        :returns: the path, and where each shortcut on the way leads; the last one has no shortcut on its way.
        :raises RefusalError: a shortcut leads out of OneLake, nowhere, round in a circle, or is one too many.
        """
        way = [spot]
        while (found := self.first_on(way[-1])) is not None:
            above, target = found
            link = attrs.evolve(way[-1], inside=above)
            root = self.target_of(link, target)
            reached = attrs.evolve(root, inside="/".join(filter(None, (root.inside, spot_below(way[-1], above)))))
            if reached in way:
                raise wrong(f"The shortcut {link} leads back to itself.", "ShortcutCycle")
            way.append(reached)
            if len(way) > MOST_IN_A_PATH + 1:
                raise wrong(f"There are more than {MOST_IN_A_PATH} shortcuts on the way to {spot}.", "TooManyShortcuts")
            # Look at the target itself, and not at what is asked for below it, which need not be there.
            if self.first_on(root) is None:
                there = self._tree.stat(root.key)
                if there is None or not there.is_directory:
                    raise _broken(link, f"there is no folder {root}")
        return way

    def target_of(self, link: Spot, target: dict[str, Any]) -> Spot:
        """Return where a shortcut leads, without following the shortcuts on that way.

        :param link: the shortcut.
        :param target: as REST has it.
        :raises RefusalError: its target is not in OneLake, or its item is gone.
        """
        if target["type"] != "OneLake":
            raise RefusalError(
                400,
                "ExternalShortcutNotServed",
                f"The shortcut {link} leads to {target['type']}. This server keeps such shortcuts, and neither reads "
                "nor writes through them.",
                headers=MARK,
            )
        said = target["oneLake"]
        try:
            workspace, item = self._names.item(said["workspaceId"], said["itemId"])
        except RefusalError as error:
            raise _broken(link, error.message) from error
        return Spot(workspace, item, said["path"])

    def create(self, link: Spot, target: dict[str, Any], *, overwrite: bool = False) -> bool:
        """Make a shortcut.

        :param link: where.
        :param target: as REST has it; its item is known.
        :param overwrite: whether it takes the place of a shortcut that is there. Default: no.
        :returns: whether it took the place of another.
        :raises RefusalError: it would lead round in a circle, is one too many, or its target is not there.
        :raises ExistsError: there is something at its path.
        :raises MismatchError: its path leads through another shortcut, or through a file.
        """
        above = link.inside.rpartition("/")[0]
        with self._kept.changing() as document:
            # Both reads below see the document as it was, which nobody else changes meanwhile.
            of_item = document.setdefault(SHORTCUTS, {}).setdefault(link.item.guid, {})
            there = link.inside in of_item
            if there and not overwrite:
                raise ExistsError(link.key)
            if self.first_on(attrs.evolve(link, inside=above)) is not None:
                raise MismatchError(f"{above} is, or lies in, a shortcut")
            if not there and len(of_item) >= _MOST_IN_AN_ITEM:
                raise wrong(f"An item has at most {_MOST_IN_AN_ITEM} shortcuts.", "TooManyShortcuts")
            if target["type"] == "OneLake":
                self._check_target(link, target)
            if not there:
                self._tree.make_directory(link.key, CREATE_ONLY)
            of_item[link.inside] = target
        return there

    def delete(self, link: Spot) -> bool:
        """Delete a shortcut, and nothing of its target.

        :param link: where it is.
        :returns: whether there was one.
        """
        with self._kept.changing() as document:
            if document.get(SHORTCUTS, {}).get(link.item.guid, {}).pop(link.inside, None) is None:
                return False
            # The directory is empty, or is gone because one above it was deleted.
            try:
                self._tree.delete(link.key)
            except TreeError:
                return self._tree.stat(link.key) is None
        return True

    def forget(self, found: list[tuple[Item, str]]) -> None:
        """Drop shortcuts whose directories were deleted with one above them."""
        with self._kept.changing() as document:
            for item, inside in found:
                document.get(SHORTCUTS, {}).get(item.guid, {}).pop(inside, None)

    def _check_target(self, link: Spot, target: dict[str, Any]) -> None:
        root = self.target_of(link, target)
        way = self.resolve(root)
        if len(way) > MOST_LINKS:
            raise wrong(f"More than {MOST_LINKS} shortcuts would lead to shortcuts.", "TooManyShortcuts")
        there = self._tree.stat(way[-1].key)
        if there is None or not there.is_directory:
            raise RefusalError(404, "ShortcutTargetNotFound", f"There is no folder {root}.")
        # A list that enters shortcuts would never end if the shortcut could be reached from its own target.
        seen, regions = set[str](), [*way]
        while regions:
            region = regions.pop()
            if region.key in seen:
                continue
            seen.add(region.key)
            if _is_in(link.key, region.key) or _is_in(region.key, link.key):
                raise wrong(f"{link} would lead to itself by {region}.", "ShortcutCycle")
            for inside, other in self.of(region.item).items():
                if _is_in(inside, region.inside) and other["type"] == "OneLake":
                    below = attrs.evolve(region, inside=inside)
                    try:
                        regions += self.resolve(self.target_of(below, other))
                    except RefusalError:
                        # What is broken leads nowhere.
                        continue


def spot_below(spot: Spot, above: str) -> str:
    """Return what of a path lies below one of the directories on its way."""
    return spot.inside[len(above) :].lstrip("/")


def _is_in(path: str, directory: str) -> bool:
    return path == directory or path.startswith(f"{directory}/") or not directory


def _broken(link: Spot, why: str) -> RefusalError:
    # Not 404: a client would take a table that it cannot reach for one that is not there yet.
    return wrong(f"The target of the shortcut {link} is gone: {why}", "ShortcutTargetNotFound")
