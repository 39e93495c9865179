"""ALTER TABLE: one commit makes of the newest snapshot what was asked for, whoever commits meanwhile.

Each attempt decides on the newest snapshot, so version N + 1 is the ALTER done to version N. Only a new CHECK looks at
rows: Spark counts the rows that violate it in *rounds*, each over the live files that no round has looked at::

    the newest snapshot ─► live files that no round has looked at? ─► a round over these alone, and again from the top
                           │
                           └─ none: put the new definition, at the next version

So every row of version N satisfies the constraint, and what is written after version N + 1 is checked by its writer
(protocol: checked rows).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from airflow_provider_onelake.commit.alteration import Alteration
from airflow_provider_onelake.commit.altered import Target, apply, holds
from airflow_provider_onelake.commit.checks import check_paths_relative
from airflow_provider_onelake.commit.earlier import Asker, Earlier, Starts, find_earlier
from airflow_provider_onelake.commit.entry import commit_info, entry_of_nothing, stamp, txns_of
from airflow_provider_onelake.commit.statement import Status
from airflow_provider_onelake.commit.statement_proposal import StatementProposal
from airflow_provider_onelake.commit.transaction import Put, Tally, Transactions, View
from airflow_provider_onelake.commit.words import NOTHING, of_task, rows_in_words
from airflow_provider_onelake.exceptions import (
    ConflictError,
    ConstraintViolatedError,
    StatementRefusedError,
)
from airflow_provider_onelake.log.actions import Action, Add, FileKey, encode, file_key
from airflow_provider_onelake.log.commits import ALTER, FORMAT, STAGED
from airflow_provider_onelake.log.schema import CONSTRAINT
from airflow_provider_onelake.log.snapshot import Snapshot
from airflow_provider_onelake.staging.shadow import MOST_FILES

logger = logging.getLogger(__name__)

_OPERATION = "ALTER TABLE"

RunChecks = Callable[[int, Snapshot, Sequence[Add], Mapping[str, str]], Mapping[str, int]]
"""Counts the rows that violate CHECK constraints in some files alone, by the name of the constraint. It gets the number
of the round, from 1, the snapshot as the ALTER leaves it, its files, and the expressions by name."""


@attrs.frozen(kw_only=True)
class Altered:
    """How an ALTER ended.

    :param status: ``done``, ``already_done`` by an earlier try or start, or ``nothing_to_do`` as the table is so.
    :param version: of the table in which the ALTER stands; ``None`` where nothing changed, or the log no longer says.
    :param changes: what was done, one sentence each; ``None`` where the log no longer says.
    :param features: the features that the protocol got.
    :param rounds: how many times Spark looked at rows.
    :param lost_races: how many puts met another's commit.
    """

    status: Status
    version: int | None = None
    changes: tuple[str, ...] | None = ()
    features: tuple[str, ...] = ()
    rounds: int = 0
    lost_races: int = 0


@attrs.frozen
class _Unseen:
    """Files in which no round has looked for rows that violate the new constraints."""

    snapshot: Snapshot
    files: tuple[Add, ...]
    checks: Mapping[str, str]


def alter(
    transactions: Transactions, asked: Alteration, asker: Asker, run_checks: RunChecks, *, most_rounds: int = 5
) -> Altered:
    """Change the definition of a table.

    :param run_checks: counts the rows that violate new CHECK constraints.
    :param most_rounds: after how many rounds it gives up.
    :raises TableNotFoundError: there is no table.
    :raises StatementRefusedError: the table is not one to which this can be done, or was made again meanwhile.
    :raises ConstraintViolatedError: rows of the table violate a new CHECK.
    :raises ZombieWriterError: a newer start of the task has done it.
    :raises ConflictError: others added files in every round; nothing was changed.
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
            raise ConflictError(
                f"{proposal.table}: Spark looked {proposal.rounds} times for rows that violate "
                f"{', '.join(ended.checks)}, and each time others had added {len(ended.files)} files or more before "
                "the constraint could be added. Nothing was changed. Clear the task when fewer writers are at work, or "
                "allow more rounds (max_rounds)."
            )
        violations = run_checks(proposal.rounds + 1, ended.snapshot, ended.files, ended.checks)
        _refuse_violations(proposal.table, ended, violations)
        proposal.take(ended)


def _refuse_violations(table: str, unseen: _Unseen, violations: Mapping[str, int]) -> None:
    found = {name: violations.get(name, 0) for name in unseen.checks}
    if any(found.values()):
        told = "; ".join(
            f"{rows_in_words(count)} violate{'s' if count == 1 else ''} {name} ({unseen.checks[name]})"
            for name, count in found.items()
            if count
        )
        raise ConstraintViolatedError(
            f"{table} at version {unseen.snapshot.version} has rows that a CHECK to be added forbids: {told}. A row "
            "for which it is NULL violates it too. Nothing was changed: correct or delete these rows, and clear the "
            "task."
        )


class _Alter(StatementProposal["Altered | _Unseen"]):
    """One call of :func:`alter`."""

    def __init__(self, transactions: Transactions, asked: Alteration, asker: Asker) -> None:
        super().__init__(transactions, _OPERATION, str(asked), None)
        self.table = self._log.table
        self.rounds = 0
        self._asked = asked
        self._asker = asker
        self._seen: set[FileKey] = set()
        self._seen_under: tuple[Any, ...] | None = None
        self._starts = Starts(self._log, self.name, asker)
        self._put: Altered | None = None

    def take(self, unseen: _Unseen) -> None:
        """Take in that a round found no row that violates a constraint.

        :param unseen: the files that it looked at.
        """
        self.rounds += 1
        self._seen.update(map(file_key, unseen.files))

    def decide(self, view: View) -> Put | Altered | _Unseen:
        """Put the new definition, or ask for a round."""
        snapshot = view.snapshot
        if (done := self._done_before(snapshot)) is not None:
            return done
        self.check_table(snapshot)
        if self.read_version is None:
            # Also what commits while Spark looks at rows, between two transactions, is a winner.
            self.read_version = snapshot.version
        target = apply(self._asked, snapshot, self.table)
        if not target.steps:
            self._put = Altered(status=Status.NOTHING_TO_DO, rounds=self.rounds)
            return Put(self._entry_of_nothing(snapshot, view.txn_id)) if self._starts.follows else self._put
        if target.checks and (unseen := self._unseen(view, target)) is not None:
            self.count_lost(view)
            return unseen
        return Put(self._entry(target, snapshot, view.txn_id))

    def committed(self, version: int, tally: Tally) -> Altered:
        """Return what was done.

        :param version: in which the ALTER stands.
        """
        assert self._put is not None
        found = self._put.status is not Status.NOTHING_TO_DO
        return attrs.evolve(self._put, version=version if found else None, lost_races=self.lost_races(tally))

    def _done_before(self, snapshot: Snapshot) -> Altered | None:
        earlier = find_earlier(self._log, self._asker.id, snapshot)
        if earlier is not None and not earlier.is_undone:
            return _already(earlier)
        self._starts.check(snapshot)
        if self.read_version is None:
            earlier = find_earlier(self._log, self._asker.task_id, snapshot)
            left = earlier.commit.metadata if earlier is not None and earlier.commit is not None else None
            if earlier is not None and holds(self._asked, snapshot, left):
                return _already(earlier)
        return None

    def _unseen(self, view: View, target: Target) -> _Unseen | None:
        """Return the files in which a round has to look for rows that violate the new constraints."""
        snapshot = view.snapshot
        # Under another definition an expression may mean another column, so what was seen counts no more.
        under = target.metadata["schemaString"], target.metadata.get("partitionColumns"), target.checks
        if under != self._seen_under:
            self._seen_under = under
            self._seen.clear()
        files = [file for file in self.files(view) if file_key(file) not in self._seen]
        if not files and self.rounds:
            return None
        check_paths_relative(files, self.table)
        if len(files) > MOST_FILES:
            raise StatementRefusedError(
                f"{self.name} would have to look at {len(files):,} files of {self.table}, and at most {MOST_FILES:,} "
                "are taken. Nothing was changed: compact the table first."
            )
        # A table without a file is looked at too, so that Spark says what is wrong with an expression.
        to_be = attrs.evolve(snapshot, protocol=target.protocol, metadata=_without(target.metadata, target.checks))
        return _Unseen(to_be, tuple(files), target.checks)

    def _entry(self, target: Target, snapshot: Snapshot, txn_id: str) -> list[Action]:
        now = self._log.clock.now()
        words = tuple(step.words for step in target.steps)
        self._put = Altered(status=Status.DONE, changes=words, features=target.raised, rounds=self.rounds)
        single = target.steps[0] if len(target.steps) == 1 else None
        info = commit_info(
            _OPERATION if single is None else single.operation,
            {"changes": encode(words)} if single is None else single.parameters,
            snapshot,
            txn_id,
            now,
            blind=not target.checks,
            told=of_task(self._asker.by, "; ".join(words), self._asker.message),
        )
        info[STAGED] = {
            "format": FORMAT,
            ALTER: {
                "changes": list(words),
                "features": list(target.raised),
                "rounds": self.rounds,
                **self._starts.record,
            },
        }
        stamped = stamp(info, [], snapshot, now)
        entry: list[Action] = [{"commitInfo": info}]
        entry += [*txns_of(self._starts.turns(snapshot), now), *stamped]
        if target.protocol != snapshot.protocol:
            entry.append({"protocol": target.protocol})
        if target.metadata != snapshot.metadata:
            entry.append({"metaData": target.metadata})
        return entry

    def _entry_of_nothing(self, snapshot: Snapshot, txn_id: str) -> list[Action]:
        now = self._log.clock.now()
        told = f"{of_task(self._asker.by, self.name, self._asker.message)}. {NOTHING}"
        info = commit_info(_OPERATION, {"changes": "[]"}, snapshot, txn_id, now, blind=False, told=told)
        return entry_of_nothing(info, self._starts.record, self._starts.turns(snapshot, done=False), snapshot, now)


def _without(metadata: Any, checks: Mapping[str, str]) -> Any:
    """Return the definition in which the rows are looked at: without the constraints that are to be checked."""
    new = {f"{CONSTRAINT}{name.lower()}" for name in checks}
    configuration = {name: value for name, value in metadata["configuration"].items() if name not in new}
    return {**metadata, "configuration": configuration}


def _already(earlier: Earlier) -> Altered:
    if earlier.commit is None:
        return Altered(status=Status.ALREADY, changes=None)
    record: Any = (earlier.commit.info.get(STAGED) or {}).get(ALTER) or {}
    return Altered(
        status=Status.ALREADY,
        version=earlier.commit.version,
        changes=tuple(map(str, record.get("changes") or ())),
        features=tuple(map(str, record.get("features") or ())),
        rounds=int(record.get("rounds") or 0),
    )
