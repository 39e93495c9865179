"""Files that others gave another deletion vector while a statement was at work: what it has read and done still holds.

A vector only hides rows. So all rows that such a file still has are rows that a round has read, and the statement maps
each of them by itself (protocol: union of vectors). Say d0 is the vector under which a round has read the file, d1 the
one that the round gave it, and d2 the one that others gave it meanwhile. Then ``d1 - d0`` are our rows, ``d2 - d0`` are
theirs, and ``d1 | d2`` is what the statement makes of what they left. A row that is both ours and theirs does not
matter to a DELETE that has only hidden rows. Any other statement has written such a row to a new file, or for the
change feed, as one of its own.

Rows that others have written to new files are no part of this: a round has to read them.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Any

import attrs

from airflow_provider_onelake.exceptions import CorruptLogError, ObjectNotFoundError, ReadRefusedError
from airflow_provider_onelake.log.actions import Add, DeletionVector, FileKey, file_key, row_count
from airflow_provider_onelake.log.vectors import VectorFile, hidden_rows, vector_home
from airflow_provider_onelake.statements.round_tables import ROW_IDS, Piece
from airflow_provider_onelake.storage.concurrent import map_concurrently

if TYPE_CHECKING:
    from pyroaring import BitMap64

    from airflow_provider_onelake.storage.stores import Store

logger = logging.getLogger(__name__)


Seen = Mapping[FileKey, DeletionVector | None]
"""The files that rounds have read, each with the vector that it had then."""


@attrs.frozen
class CarriedOver:
    """What rounds have read and done, on the files as they are now.

    :param pieces: what each piece is now: the very same where it does not hold any more, or where nothing happened to
        its files; ``None`` where others have hidden all rows that it hides.
    :param files_read: the files that rounds have read, also those that are read under another vector now.
    :param overtaken: how many files have another vector now than the one under which they were read.
    :param still_valid: of how many of these nothing has to be read again.
    :param file: of the united vectors; it must be at the table's root before a commit names it.
    """

    pieces: Sequence[Piece | None]
    files_read: dict[FileKey, DeletionVector | None]
    overtaken: int
    still_valid: int
    file: VectorFile


def carry_over(
    pieces: Sequence[Piece], seen: Seen, present: Mapping[FileKey, Add], store: Store, random: Random, *, deletes: bool
) -> CarriedOver | None:
    """Carry over what rounds have read and done to files that others have given another vector since.

    :param pieces: what rounds have done.
    :param seen: what they have read.
    :param present: the live files that the statement looks at.
    :param store: of the table.
    :param random: names the file of the united vectors.
    :param deletes: whether the statement is a DELETE.
    :returns: ``None`` where there is no such file.
    :raises StoreUnavailableError: the store did not answer.
    """
    # Of a file that was read under several vectors, this is the one that it had last.
    last = {path: vector for (path, _), vector in seen.items()}
    overtaken = {
        file["path"]: file
        for key, file in present.items()
        if key not in seen and file["path"] in last and file.get("deletionVector")
    }
    if not overtaken:
        return None
    lost = [piece for piece in pieces if _is_lost(piece, present)]
    touched = {file["path"] for piece in lost for file in piece.removed}
    alone = {path: last[path] for path in overtaken if path not in touched}
    name = uuid.UUID(int=random.getrandbits(128), version=4)
    union = _Union(lost, alone, present, overtaken, store, VectorFile(name), deletes=deletes)
    read = {path for path in alone if union.leaves_what_was_read(path)}
    carried: list[Piece | None] = []
    now_seen = dict(seen)
    for piece in pieces:
        after = union.carried(piece) if _is_lost(piece, present) else piece
        if after is None:
            carried.append(piece)
            continue
        carried.append(after if after.removed or after.added else None)
        for file in piece.removed:
            if file_key(file) not in present:
                # As it was then, it counts as not read: a RESTORE may bring it back so.
                del now_seen[file_key(file)]
                read.add(file["path"])
    now_seen.update((file_key(overtaken[path]), overtaken[path].get("deletionVector")) for path in read)
    return CarriedOver(carried, now_seen, len(overtaken), len(read), union.file)


def _is_lost(piece: Piece, present: Mapping[FileKey, Add]) -> bool:
    return not all(file_key(file) in present for file in piece.removed)


class _Union:
    """The vectors of files that were overtaken.

    :param lost: the pieces that have to do with some of them.
    :param alone: the vectors under which the others were read, by path.
    :param present: the live files that the statement looks at.
    :param overtaken: those of them that were read under another vector, by path.
    :param file: for united vectors.
    """

    def __init__(
        self,
        lost: Iterable[Piece],
        alone: Mapping[str, DeletionVector | None],
        present: Mapping[FileKey, Add],
        overtaken: Mapping[str, Add],
        store: Store,
        file: VectorFile,
        *,
        deletes: bool,
    ) -> None:
        self.file = file
        self._alone, self._present, self._overtaken = alone, present, overtaken
        self._store, self._deletes = store, deletes
        self._lies_at = {home: source for piece in lost for home, source in piece.vectors.items()}
        files = [file for piece in lost for file in (*piece.removed, *piece.again) if file["path"] in overtaken]
        vectors = [file.get("deletionVector") for file in (*files, *overtaken.values())]
        # Engines put the vectors of many files into one file, so each is read once, and as a whole. They are read in
        # the order of the files, and not of a set, so that a simulated history is the same in every process.
        homes = tuple(dict.fromkeys(vector_home(vector) for vector in (*vectors, *alone.values()) if vector))
        self._contents = dict(zip(homes, map_concurrently(store, self._get, homes), strict=True))

    def leaves_what_was_read(self, path: str) -> bool:
        """Say whether a file that no piece has changed has only rows left that a round has read."""
        before, now = self._hidden(self._alone[path], path), self._hidden_in(self._overtaken[path])
        return before is not None and now is not None and before <= now

    def carried(self, piece: Piece) -> Piece | None:
        """Return what a piece is on the files as they are now; ``None`` if it does not hold there.

        A file of which others have hidden all rows that are ours is not in it any more.
        """
        removed: list[Add] = []
        again = {file["path"]: file for file in piece.again}
        united = set(piece.united)
        for before in piece.removed:
            path = before["path"]
            if file_key(before) in self._present:
                removed.append(before)
                continue
            ours, now = again.pop(path, None), self._overtaken.get(path)
            found = None if now is None else self._united(piece, before, ours, now)
            if now is None or found is None:
                return None
            hidden, taken = found
            if not taken:
                continue
            removed.append(now)
            united.add(path)
            # As Delta does, leave a file without rows out of the table.
            if ours is not None and taken != row_count(now):
                # Spark has marked the bounds of ours as those of more rows than there are.
                statistics: Any = {"stats": ours["stats"]} if "stats" in ours else {}
                again[path] = {**now, **statistics, "deletionVector": self.file.add(hidden)}
        homes = {**piece.vectors, self.file.path: self.file.path}
        named = {vector_home(file["deletionVector"]) for file in again.values()}
        return attrs.evolve(
            piece,
            removed=tuple(removed),
            again=tuple(again.values()),
            vectors={home: source for home, source in homes.items() if home in named},
            united=frozenset(united),
        )

    def _united(self, piece: Piece, before: Add, ours: Add | None, now: Add) -> tuple[BitMap64, int] | None:
        """Return which rows of a file are hidden then, and how many of them are hidden by us alone.

        :param ours: the ``add`` by which the piece gave the file another vector; ``None`` if it took all of its rows.
        """
        only_hides = self._deletes and not piece.added and not piece.cdc
        if any(now.get(name) != before.get(name) for name in ROW_IDS) or (ours is None and not only_hides):
            return None
        read, theirs = self._hidden_in(before), self._hidden_in(now)
        after = self._all_rows(before) if ours is None else self._hidden_in(ours)
        # A RESTORE may have shown rows again that no round has read.
        if read is None or theirs is None or after is None or not read <= theirs:
            return None
        if not only_hides and not (after - read).isdisjoint(theirs):
            return None
        return after | theirs, len(after - theirs)

    def _all_rows(self, file: Add) -> BitMap64 | None:
        from pyroaring import BitMap64

        live, hidden = row_count(file), self._hidden_in(file)
        return None if live is None or hidden is None else BitMap64(range(live + len(hidden)))

    def _hidden_in(self, file: Add) -> BitMap64 | None:
        return self._hidden(file.get("deletionVector"), file["path"])

    def _hidden(self, vector: DeletionVector | None, path: str) -> BitMap64 | None:
        """Return which rows a vector hides; ``None`` if that cannot be read, and Spark is to say why."""
        from pyroaring import BitMap64

        if vector is None:
            return BitMap64()
        try:
            return hidden_rows(vector, self._part, path)
        except (CorruptLogError, ReadRefusedError) as error:
            logger.info("%s: a round has to read it again: %s", path, error)
            return None

    def _get(self, home: str | None) -> bytes:
        try:
            return b"" if home is None else self._store.get(self._lies_at.get(home, home))
        except ObjectNotFoundError:
            return b""

    def _part(self, home: str, start: int, end: int) -> bytes:
        return self._contents[home][start:end]
