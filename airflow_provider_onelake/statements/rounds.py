"""What the rounds of a statement have read and done, as far as it holds for the files that are live now.

Others may replace a file, or give it another deletion vector, after a round has read it. What the round did to a file
that was replaced is dropped, and what is left of the files of the same piece is unseen again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from datetime import datetime

from airflow_provider_onelake.exceptions import ObjectExistsError, OneLakeError
from airflow_provider_onelake.log.actions import Add, FileKey, file_key
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.statements.round_tables import ROW_IDS, Piece, Ran
from airflow_provider_onelake.statements.statement import DELETE

logger = logging.getLogger(__name__)


class Rounds:
    """The rounds of one statement.

    :param operation: as Delta calls it.
    """

    def __init__(self, log: DeltaLog, operation: str) -> None:
        self.count = 0
        """How many rounds there were."""
        self.ran: list[tuple[Ran, list[Piece]]] = []
        """What each round said, and those of its pieces that still hold."""
        self.files_read: set[FileKey] = set()
        """The files that rounds have read, each under the deletion vector that it had then."""
        self._log, self._operation = log, operation
        # Copies of vectors at the table's root that no commit names yet.
        self._brought: set[str] = set()

    def take(self, files: Iterable[Add], ran: Ran) -> None:
        """Take in what a round did.

        :param files: that it has read.
        """
        self.count += 1
        self.ran.append((ran, list(ran.pieces)))
        self.files_read.update(map(file_key, files))

    def forget(self) -> None:
        """Forget what all rounds have read and done."""
        self.ran.clear()
        self.files_read.clear()

    @property
    def pieces(self) -> list[Piece]:
        """What still holds of what the rounds did, in order."""
        return [piece for _, pieces in self.ran for piece in pieces]

    @property
    def vectors_given(self) -> int:
        """How many files of the table have another deletion vector now."""
        return sum(len(piece.again) for piece in self.pieces)

    @property
    def oldest(self) -> datetime | None:
        """When the oldest file was written that is still wanted; ``None`` if there is none."""
        return min((ran.oldest for ran, pieces in self.ran if pieces and ran.oldest is not None), default=None)

    def unseen(self, present: Mapping[FileKey, Add]) -> list[Add]:
        """Return the files that no round has read.

        :param present: the live files that the statement looks at.
        """
        return [file for key, file in present.items() if key not in self.files_read]

    def hold(self, present: Mapping[FileKey, Add]) -> bool:
        """Say whether all files that the rounds have changed are as they were.

        :param present: the live files that the statement looks at.
        """
        return all(_is_as_it_was(file, present) for piece in self.pieces for file in piece.removed)

    def drop_lost(self, present: Mapping[FileKey, Add]) -> None:
        """Drop what was done to files that others have changed since. What is left of these files is unseen again.

        :param present: the live files that the statement looks at.
        """
        for _, pieces in self.ran:
            for piece in list(pieces):
                if not all(_is_as_it_was(file, present) for file in piece.removed):
                    self._drop(pieces, piece)
        self._drop_other_feeds()

    def _drop_other_feeds(self) -> None:
        """Let all pieces of a DELETE tell the change feed in one way, that of the newest round that changed something.

        Spark writes rows for the feed where it rewrites files, and none where it gives out deletion vectors: readers
        of the feed find out themselves which rows these hide. But they look at nothing else in a commit that has rows
        for the feed. Both are in one commit only if vectors were switched between two rounds.
        """
        if self._operation != DELETE:
            return
        told = [bool(piece.cdc) for piece in self.pieces]
        for _, pieces in self.ran:
            for piece in [each for each in pieces if bool(each.cdc) != told[-1]]:
                self._drop(pieces, piece)

    def _drop(self, pieces: list[Piece], piece: Piece) -> None:
        pieces.remove(piece)
        for file in piece.removed:
            self.files_read.discard(file_key(file))

    # -- deletion vectors at the table's root -------------------------------------------------------------------------

    def bring_vectors_home(self) -> None:
        """Copy the files of deletion vectors to the table's root, under their own names, which are unique."""
        store = self._log.store
        for piece in self.pieces:
            for home, source in piece.vectors.items():
                if home in self._brought:
                    continue
                try:
                    store.create(home, store.get(source))
                except ObjectExistsError:
                    logger.debug("%s is there already", home)
                self._brought.add(home)

    def keep_vectors(self) -> None:
        """Let the copies of vectors be, as a commit names them."""
        self._brought.clear()

    def forget_vectors(self, *keep: str) -> None:
        """Delete copies of deletion vectors that no commit of ours names, and none will.

        :param keep: the copies that are still wanted.
        """
        for path in sorted(self._brought.difference(keep)):
            try:
                self._log.store.delete(path)
            except OneLakeError as error:
                logger.warning("%s: %s is left for a VACUUM: %s", self._log.table, path, error)
            self._brought.discard(path)

    def forget_unwanted_vectors(self) -> None:
        """Delete copies of deletion vectors that belong to what was dropped."""
        self.forget_vectors(*(home for piece in self.pieces for home in piece.vectors))


def _is_as_it_was(file: Add, present: Mapping[FileKey, Add]) -> bool:
    """Say whether a file is live that a round has read, and has the row ids that it had then.

    An engine that begins to track rows gives row ids to files that are there, and takes none of them.

    :param present: the live files that the statement looks at.
    """
    now = present.get(file_key(file))
    return now is not None and all(now.get(name) == file.get(name) for name in ROW_IDS)
