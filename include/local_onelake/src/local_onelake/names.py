"""Workspaces and their items: made by configuration or by Fabric's REST, each known by its name and by its GUID.

A workspace is a directory with its name; an item is a directory in it, called ``name.Type``. Their GUIDs are kept in a
file beside them. A directory that is new to the server when it starts gets a GUID then.
"""

from __future__ import annotations

import json
import re
import threading
import uuid
from pathlib import Path

import attrs

from local_onelake.refusals import RefusalError, wrong

FOLDERS = ("Tables", "Files")
"""The first level of an item."""

_GUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NAME = re.compile(r"[^./\\\x00-\x1f\x7f][^/\\\x00-\x1f\x7f]{0,255}")
# What an address without a host of OneLake's may begin with in place of a workspace.
_RESERVED = re.compile(
    r"_admin|v1\.0|onelake|.*onelake\.(dfs|blob)(\..*)?|login\.microsoftonline\.com|api\.fabric\.microsoft\.com",
    re.IGNORECASE,
)


class NameTakenError(ValueError):
    """A workspace or an item cannot be called so; the message says why."""


@attrs.frozen
class Item:
    """An item of a workspace.

    :param name: without its type.
    :param type: such as ``Lakehouse``.
    :param guid: in small letters.
    """

    name: str
    type: str
    guid: str

    @property
    def directory(self) -> str:
        """Its name with its type, as in addresses."""
        return f"{self.name}.{self.type}"


@attrs.frozen
class Workspace:
    """A workspace.

    :param name: which is its directory's.
    :param guid: in small letters.
    :param items: by ``name.Type``.
    """

    name: str
    guid: str
    items: dict[str, Item] = attrs.field(factory=dict)


class Names:
    """Every workspace and item.

    :param root: the directory that holds the workspaces.
    :param file: that keeps the GUIDs.
    """

    def __init__(self, root: Path, file: Path) -> None:
        self._root = root
        self._file = file
        self._turn = threading.RLock()
        self._workspaces: dict[str, Workspace] = {}
        for name, known in (json.loads(file.read_text()) if file.exists() else {}).items():
            if not _is_directory(root / name):
                continue
            workspace = self._workspaces[name] = Workspace(name, known["guid"])
            for directory, guid in known["items"].items():
                if _is_directory(root / name / directory):
                    item, _, kind = directory.rpartition(".")
                    workspace.items[directory] = Item(item, kind, guid)
        for place in sorted(root.iterdir()):
            if _is_directory(place) and not place.name.startswith("."):
                self.add_workspace(place.name)
                for below in sorted(place.iterdir()):
                    if _is_directory(below):
                        self.add_item(place.name, below.name)

    def all(self) -> list[Workspace]:
        """Return the workspaces, sorted by name."""
        with self._turn:
            return sorted(self._workspaces.values(), key=lambda workspace: workspace.name)

    def add_workspace(self, name: str, guid: str | None = None) -> Workspace:
        """Make a workspace; one that is there stays as it is.

        :param name: of the workspace.
        :param guid: of a new one. Default: a random one.
        :raises NameTakenError: it cannot be called so.
        """
        with self._turn:
            known = self._workspaces.get(name)
            if known is not None:
                return known
            if not _NAME.fullmatch(name) or _RESERVED.fullmatch(name) or _is_guid(name):
                raise NameTakenError(f"A workspace cannot be called {name!r}.")
            _check_link(self._root / name)
            (self._root / name).mkdir(exist_ok=True)
            made = self._workspaces[name] = Workspace(name, _guid(guid))
            self._save()
            return made

    def add_item(self, workspace: str, directory: str, guid: str | None = None) -> Item:
        """Make an item with its first level; one that is there stays as it is.

        :param workspace: its name.
        :param directory: ``name.Type``.
        :param guid: of a new one. Default: a random one.
        :raises NameTakenError: it cannot be called so.
        """
        with self._turn:
            items = self._workspaces[workspace].items
            return items[directory] if directory in items else self._add(workspace, directory, guid)

    def new_item(self, workspace: str, directory: str) -> Item:
        """Make an item with its first level.

        :param workspace: its name.
        :param directory: ``name.Type``.
        :raises FileExistsError: there is one.
        :raises NameTakenError: it cannot be called so.
        """
        with self._turn:
            if directory in self._workspaces[workspace].items:
                raise FileExistsError(directory)
            return self._add(workspace, directory, None)

    def remove_item(self, workspace: str, directory: str) -> None:
        """Forget an item, so that no address names it any more. Its files stay.

        :param workspace: its name.
        :param directory: ``name.Type``.
        """
        with self._turn:
            self._workspaces[workspace].items.pop(directory, None)
            self._save()

    def _add(self, workspace: str, directory: str, guid: str | None) -> Item:
        name, _, kind = directory.rpartition(".")
        if not _NAME.fullmatch(name) or _is_guid(name) or not kind.isalnum():
            raise NameTakenError(f"An item cannot be called {directory!r}: write name.Lakehouse.")
        _check_link(self._root / workspace / directory)
        for folder in FOLDERS:
            (self._root / workspace / directory / folder).mkdir(parents=True, exist_ok=True)
        made = self._workspaces[workspace].items[directory] = Item(name, kind, _guid(guid))
        self._save()
        return made

    def workspace(self, spelled: str) -> Workspace:
        """Return the workspace that an address names.

        :raises RefusalError: there is none.
        """
        with self._turn:
            for workspace in self._workspaces.values():
                if spelled.lower() == workspace.guid if _is_guid(spelled) else spelled == workspace.name:
                    return workspace
        raise RefusalError(404, "WorkspaceNotFound", f"There is no workspace {spelled!r}.")

    def item(self, workspace_spelled: str, spelled: str) -> tuple[Workspace, Item]:
        """Return the workspace and the item that an address names: names for both, or GUIDs for both.

        :raises RefusalError: there is none, or the two are not spelled alike.
        """
        by_guid = _is_guid(workspace_spelled)
        name, dot, _ = spelled.rpartition(".")
        if _is_guid(name):
            raise friendly_names_off("The item is a GUID, and has a type behind it.")
        if by_guid and dot and not _is_guid(spelled):
            raise friendly_names_off("The workspace is a GUID, and the item is a name.")
        if by_guid != _is_guid(spelled):
            raise wrong("Name the workspace and the item alike: both by name.Type, or both by GUID.", "BadRequest")
        workspace = self.workspace(workspace_spelled)
        with self._turn:
            for item in workspace.items.values():
                if spelled.lower() == item.guid if by_guid else spelled == item.directory:
                    return workspace, item
        raise RefusalError(404, "ItemNotFound", f"There is no item {spelled!r} in the workspace {workspace.name!r}.")

    def _save(self) -> None:
        said = {
            workspace.name: {
                "guid": workspace.guid,
                "items": {directory: item.guid for directory, item in workspace.items.items()},
            }
            for workspace in self._workspaces.values()
        }
        new = self._file.with_suffix(".new")
        new.write_text(json.dumps(said, indent=2))
        new.replace(self._file)


def is_by_guid(workspace_spelled: str) -> bool:
    """Say whether an address names its workspace by GUID, and so its item too."""
    return _is_guid(workspace_spelled)


def friendly_names_off(why: str) -> RefusalError:
    """Return OneLake's refusal of names."""
    return wrong(f"The request used friendly names, and support is disabled. {why}", "FriendlyNameSupportDisabled")


def _is_directory(place: Path) -> bool:
    """Say whether there is a directory, and no link to one: nothing is served through links."""
    return place.is_dir() and not place.is_symlink()


def _check_link(place: Path) -> None:
    if place.is_symlink():
        raise NameTakenError(f"Nothing can be called {place.name!r}: a symbolic link has this name.")


def _is_guid(text: str) -> bool:
    return _GUID.fullmatch(text.lower()) is not None


def _guid(given: str | None) -> str:
    if given is not None and not _is_guid(given):
        raise NameTakenError(f"{given!r} is no GUID.")
    return given.lower() if given else str(uuid.uuid4())
