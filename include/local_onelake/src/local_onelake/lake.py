"""The one truth behind every face: workspaces and items, the path table, what is uploaded, who may ask, what fails."""

from __future__ import annotations

import fcntl
import os
import uuid
from collections.abc import Sequence
from pathlib import Path

import attrs

from local_onelake.access import Access
from local_onelake.batches import Batches
from local_onelake.faults import Faults
from local_onelake.identities import Identities
from local_onelake.kept import Kept
from local_onelake.names import Item, Names, Workspace
from local_onelake.parts import GapError, Part, Parts
from local_onelake.shortcuts import Shortcuts, Spot
from local_onelake.tree import ALWAYS, Condition, Entry, Tree


class InUseError(RuntimeError):
    """Another server has the directory open."""


@attrs.define
class Lake:
    """A OneLake in a directory. What the server keeps for itself is in ``.onelake``.

    :param names: workspaces and items.
    :param tree: files and directories.
    :param parts: what no reader sees yet.
    :param identities: who may ask.
    :param kept: what Fabric knows beside names and files.
    :param access: who may do what.
    :param shortcuts: folders that are elsewhere.
    :param faults: what fails on purpose.
    :param page: rows of a list at most.
    :param started: a name for this run of the server, which no other run has.

    ``batches`` are what Livy runs; ``None`` where the server has no Spark.
    """

    names: Names
    tree: Tree
    parts: Parts
    identities: Identities
    kept: Kept
    access: Access
    shortcuts: Shortcuts
    faults: Faults
    page: int
    _lock: int
    started: str = attrs.field(factory=lambda: uuid.uuid4().hex, init=False)
    batches: Batches | None = attrs.field(default=None, init=False)
    _of_blocks: dict[str, tuple[tuple[str, ...], str]] = attrs.field(factory=dict, init=False)

    @classmethod
    def open(cls, directory: Path, identities: Identities, faults: Faults | None = None, page: int = 5000) -> Lake:
        """Open a directory, which is made if it is not there.

        :raises InUseError: another server has it open.
        :raises NameTakenError: a directory in it has a name that no workspace or item may have.
        """
        own = directory / ".onelake"
        scratch = own / "parts"
        scratch.mkdir(parents=True, exist_ok=True)
        lock = os.open(own / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(lock)
            raise InUseError(f"Another server has {directory} open. Stop it, or serve another directory.") from error
        parts = Parts(scratch)
        parts.wipe()
        names = Names(directory, own / "names.json")
        tree, kept = Tree(directory, scratch), Kept(own / "fabric.json")
        access, shortcuts = Access(kept, identities), Shortcuts(kept, names, tree)
        return cls(names, tree, parts, identities, kept, access, shortcuts, faults or Faults(), page, lock)

    def close(self) -> None:
        """Let another server open the directory."""
        os.close(self._lock)

    def put(self, path: str, part: Part, condition: Condition) -> Entry:
        """Make a file of what was uploaded: see :meth:`Tree.put`."""
        try:
            made = self.tree.put(path, part.file, condition)
        finally:
            self.parts.discard([part.file])
        self.parts.forget(path)
        return made

    def put_blocks(self, path: str, names: Sequence[str], condition: Condition) -> Entry:
        """Make a file of blocks: see :meth:`Tree.put`. A list that is repeated finds the file that it made.

        :raises GapError: a block was not uploaded.
        """
        try:
            blocks = self.parts.blocks(path, names)
        except GapError:
            there = self.tree.stat(path)
            if there is None or self._of_blocks.get(path) != (tuple(names), there.etag):
                raise
            condition.check(there)
            return there
        joined = self.parts.join(block.file for block in blocks)
        made = self.put(path, Part(joined, joined.stat().st_size), condition)
        self._of_blocks[path] = (tuple(names), made.etag)
        return made

    def append(self, path: str, position: int, part: Part) -> None:
        """Keep bytes for the next flush of a file.

        :raises MissingError: there is no such file.
        :raises MismatchError: it is a directory.
        """

        def remember(there: Entry, at: Path) -> None:
            self.parts.append(path, position, part)

        self.tree.rewrite(path, remember)

    def flush(self, path: str, position: int, condition: Condition, *, retain: bool = False) -> Entry:
        """Show readers what was appended to a file.

        :param path: of the file.
        :param position: its size then.
        :param condition: on the file before.
        :param retain: whether what lies beyond the position is kept for a later flush.
        :raises GapError: what was appended has a gap, or ends elsewhere.
        :raises MissingError: there is no such file.
        :raises ChangedError: the condition is not met.
        :raises MismatchError: it is a directory.
        """

        def make(there: Entry, at: Path) -> Path | None:
            appended = self.parts.appended(path, there.size, position)
            made: Path | None = None
            if len(appended) == 1 and not there.size and not retain:
                made = appended[0].file
            elif appended:
                made = self.parts.join([at, *(part.file for part in appended)])
            if not retain:
                self.parts.forget(path, but=made)
            return made

        return self.tree.rewrite(path, make, condition)

    def make_directory(self, path: str, condition: Condition) -> Entry:
        """Make a directory: see :meth:`Tree.make_directory`."""
        return self.tree.make_directory(path, condition)

    def rename(self, source: str, target: str, condition: Condition, source_condition: Condition) -> Entry:
        """Rename a file or a directory: see :meth:`Tree.rename`."""
        renamed = self.tree.rename(source, target, condition, source_condition)
        self.parts.forget(source)
        self.parts.forget(target)
        return renamed

    def delete(self, path: str, condition: Condition = ALWAYS, *, recursive: bool = False) -> None:
        """Delete a file or a directory: see :meth:`Tree.delete`."""
        self.tree.delete(path, condition, recursive=recursive)
        self.parts.forget(path)
        if gone := self.shortcuts.below(path):
            self.shortcuts.forget(gone)

    def delete_item(self, workspace: Workspace, item: Item) -> None:
        """Delete an item with all that is in it and all that is known of it, but nothing that its shortcuts lead to."""
        self.names.remove_item(workspace.name, item.directory)
        self.kept.forget(item.guid)
        key = Spot(workspace, item, "").key
        self.tree.delete(key, recursive=True)
        self.parts.forget(key)
