"""ALTER TABLE: Spark alters a private table of the same definition, and one commit gives the result to the table.

A commit of Spark's own is not safe beside other writers on every store, and several statements would be several
versions. So Spark runs the statements in *rounds*. Each is a shadow (:mod:`~airflow_provider_onelake.buffers.shadow`)
without files; or, where a CHECK is added, with the live files that no round has looked at::

    the newest snapshot ─► another definition than in the last round, or files that no round has looked at?
                           ├─ yes: a round, and again from the top
                           └─ no:  put what Spark has made of the definition, at the next version

So version N + 1 is the ALTER done to version N, and every row of version N satisfies the constraint. What is written
later is checked by its writer (protocol: checked rows). By hand are done only properties that would start work in a
shadow, and the text of a CHECK, which Spark spells in its own way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs

from airflow_provider_onelake.buffers.buffer import NOT_TWINNED
from airflow_provider_onelake.buffers.shadow import MOST_FILES
from airflow_provider_onelake.commit.entry import Entry, check_paths_relative
from airflow_provider_onelake.commit.loop import Put, Tally, Transactions, View
from airflow_provider_onelake.commit.words import of_task
from airflow_provider_onelake.exceptions import RoundsUsedUpError, StatementRefusedError
from airflow_provider_onelake.log.actions import Action, Add, FileKey, Metadata, encode, file_key
from airflow_provider_onelake.log.commits import ALTER, STAGED
from airflow_provider_onelake.log.features import all_features_of, check_supported
from airflow_provider_onelake.log.properties import MANIFESTS
from airflow_provider_onelake.log.schema import CONSTRAINT, column_mapping, flag
from airflow_provider_onelake.log.snapshot import Snapshot
from airflow_provider_onelake.statements.alteration import Alteration, Left
from airflow_provider_onelake.statements.asker import Asker, Earlier
from airflow_provider_onelake.statements.proposal import StatementProposal
from airflow_provider_onelake.statements.round_tables import TableDefinition
from airflow_provider_onelake.statements.statement import StatementStatus

_OPERATION = "ALTER TABLE"

RunStatements = Callable[[int, Snapshot, Sequence[Add], Sequence[str]], TableDefinition]
"""Runs statements in a shadow. It gets the number of the round, from 1, the snapshot, the shadow's files, and the
statements, and returns what they have made of the definition."""


@attrs.frozen(kw_only=True)
class Altered:
    """How an ALTER ended.

    :param status: ``done``, ``already_done`` by an earlier try, or ``nothing_to_do`` as the table is so.
    :param version: of the table in which the ALTER stands; ``None`` where nothing changed, or the log no longer says.
    :param changes: what was done; ``None`` where the log no longer says.
    :param features: the features that the protocol got.
    :param rounds: how many times Spark was asked.
    :param lost_races: how many puts met another's commit.
    """

    status: StatementStatus
    version: int | None = None
    changes: tuple[str, ...] | None = ()
    features: tuple[str, ...] = ()
    rounds: int = 0
    lost_races: int = 0


@attrs.frozen
class _AlterRound:
    snapshot: Snapshot
    files: tuple[Add, ...]
    statements: tuple[str, ...]


def alter(
    transactions: Transactions, asked: Alteration, asker: Asker, run: RunStatements, *, most_rounds: int = 5
) -> Altered:
    """Change the definition of a table.

    :param run: runs statements in a shadow.
    :param most_rounds: after how many rounds it gives up.
    :raises TableNotFoundError: there is no table.
    :raises StatementRefusedError: the table is not one to which this can be done, or was made again meanwhile.
    :raises ZombieWriterError: a newer start of the task is in the table.
    :raises RerunRefusedError: an earlier try of the start did it, and a RESTORE has taken that back.
    :raises RoundsUsedUpError: others came first in every round; nothing was changed.
    :raises UnsupportedFeatureError: the table has a feature outside the allow-list, or would get one.
    :raises CommitContentionError: others were faster in every attempt; nothing was changed.
    :raises StoreUnavailableError: the store did not answer until the budget was used up. A retry settles it.
    """
    proposal = _Alter(transactions, asked, asker)
    while True:
        ended = transactions.commit(proposal)
        if isinstance(ended, Altered):
            return ended
        if proposal.rounds >= most_rounds:
            raise RoundsUsedUpError(
                f"{proposal.table}: Spark ran {asked} {proposal.rounds} times, and each time others had changed the "
                "definition, or added files that a new CHECK must be asked of, before the result could be put. Nothing "
                "was changed. Clear the task when fewer writers are at work, or allow more rounds (max_rounds)."
            )
        proposal.take(ended, run(proposal.rounds + 1, ended.snapshot, ended.files, ended.statements))


class _Alter(StatementProposal["Altered | _AlterRound"]):
    """One call of :func:`alter`."""

    def __init__(self, transactions: Transactions, asked: Alteration, asker: Asker) -> None:
        super().__init__(transactions, asker, _OPERATION, str(asked))
        self.table = self._log.table
        self.rounds = 0
        self._alteration = asked
        self._before: tuple[Any, ...] | None = None
        self._made: TableDefinition | None = None
        self._files_read: set[FileKey] = set()
        self._put = Altered(status=StatementStatus.NOTHING_TO_DO)

    def take(self, ran: _AlterRound, made: TableDefinition) -> None:
        """Take in what Spark has made of the definition, in a round in which no row has violated a new CHECK."""
        self.rounds += 1
        self._made = made
        self._files_read.update(map(file_key, ran.files))

    def decide(self, view: View) -> Put | Altered | _AlterRound:
        """Put the new definition, or ask for a round."""
        snapshot = view.snapshot
        if (earlier := self.done_before(snapshot)) is not None:
            return _already(earlier)
        self.check_table(snapshot)
        if self.read_version is None:
            # Also what commits while Spark is at work, between two transactions, is a winner.
            self.read_version = snapshot.version
        # Under another definition a statement may do something else, and an expression may mean another column.
        before = snapshot.metadata, snapshot.protocol, snapshot.clustering_columns
        if before != self._before:
            self._before, self._made = before, None
            self._files_read.clear()
        left = self._alteration.left(snapshot)
        if not left.statements and not left.by_hand:
            self._put = Altered(status=StatementStatus.NOTHING_TO_DO, rounds=self.rounds)
            return self.nothing(self.entry({}, parameters={"changes": "[]"}), snapshot) or self._put
        files = self._unseen(view) if left.checks else ()
        if left.statements and (self._made is None or files):
            self.count_lost(view)
            return _AlterRound(snapshot, files, left.statements)
        return Put(self._entry(left, snapshot), snapshot)

    def committed(self, version: int, tally: Tally) -> Altered:
        """Return what was done.

        :param version: in which the ALTER stands.
        """
        found = self._put.status is StatementStatus.DONE
        return attrs.evolve(self._put, version=version if found else None, lost_races=self.lost_races(tally))

    def _unseen(self, view: View) -> tuple[Add, ...]:
        """Return the files in which no round has looked for rows that violate the new constraints."""
        files = tuple(file for file in self.files(view) if file_key(file) not in self._files_read)
        check_paths_relative(files, self.table)
        if len(files) > MOST_FILES:
            raise StatementRefusedError(
                f"{self.name} would have to look at {len(files):,} files of {self.table}, and at most {MOST_FILES:,} "
                "are taken. Nothing was changed: compact the table first."
            )
        return files

    def _entry(self, left: Left, snapshot: Snapshot) -> Entry:
        made = self._made if left.statements else None
        protocol = snapshot.protocol if made is None else made.protocol
        metadata = _merged(snapshot, snapshot.metadata if made is None else made.metadata, left)
        stale = snapshot.iceberg_may_be_stale
        check_supported(protocol, metadata, f"{self.table} as it would be", iceberg_may_be_stale=stale)
        unknown_there = flag(metadata, "delta.enableDeletionVectors") or column_mapping(metadata) != "none"
        if flag(metadata, MANIFESTS) and unknown_there:
            raise StatementRefusedError(
                f"{self.table} is not altered: symlink manifests ({MANIFESTS}) know neither deletion vectors nor "
                "column mapping. Nothing was changed."
            )
        by_hand = (f"{name} is {'unset' if value is None else value}" for name, value in left.by_hand.items())
        words = (*(" ".join(statement.split()) for statement in left.statements), *by_hand)
        features = tuple(sorted(all_features_of(protocol) - all_features_of(snapshot.protocol)))
        self._put = Altered(status=StatementStatus.DONE, changes=words, features=features, rounds=self.rounds)
        single = made if len(words) == 1 else None
        definition: list[Action] = [{"protocol": protocol}] if protocol != snapshot.protocol else []
        definition += [{"metaData": metadata}] if metadata != snapshot.metadata else []
        record = {"changes": list(words), "features": list(features), "rounds": self.rounds}
        return self.entry(
            {},
            {ALTER: record},
            operation=(single and single.operation) or _OPERATION,
            parameters={"changes": encode(words)} if single is None else single.parameters,
            message=of_task(self.asker.by, "; ".join(words), self.asker.message),
            blind=not left.checks,
            definition=definition,
        )


def _already(earlier: Earlier) -> Altered:
    if earlier.nothing:
        return Altered(status=StatementStatus.NOTHING_TO_DO)
    if (commit := earlier.commit) is None:
        return Altered(status=StatementStatus.ALREADY, changes=None)
    record: Any = (commit.info.get(STAGED) or {}).get(ALTER) or {}
    changes, features = (tuple(map(str, record.get(name) or ())) for name in ("changes", "features"))
    return Altered(status=StatementStatus.ALREADY, version=commit.version, changes=changes, features=features)


def _merged(snapshot: Snapshot, made: Metadata, left: Left) -> Metadata:
    """Return the definition of a table from that of its shadow, and from what is done by hand."""
    kept = {name: snapshot.configuration.get(name) for name in NOT_TWINNED}
    # As the author wrote them, so that the next look at the table finds what was asked for: Spark changes blanks.
    texts = {f"{CONSTRAINT}{name}": text for name, text in left.checks.items()}
    merged = {**(made.get("configuration") or {}), **texts, **kept, **left.by_hand}
    configuration = {name: value for name, value in merged.items() if value is not None}
    return {**made, "id": snapshot.table_id, "configuration": configuration}
