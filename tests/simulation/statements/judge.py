"""What must hold of every history of statements.

The version that a statement makes is the statement done to the version before, whoever committed meanwhile; each start of
a task does its statement once, whatever crashes; and whoever says what it did is right. The judge replays the log's raw
JSON, and shares no code with what it judges.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any
from urllib.parse import unquote

import attrs

from airflow_provider_onelake.exceptions import (
    BufferDoesNotFitError,
    BufferIncompleteError,
    BufferLostError,
    BufferSetAsideError,
    CommitContentionError,
    ConflictError,
    RerunRefusedError,
    SparkJobError,
    StatementRefusedError,
    StoreUnavailableError,
    TerminalError,
    ZombieWriterError,
)
from airflow_provider_onelake.history.reruns import Skip
from airflow_provider_onelake.statements.delete import Deleted
from airflow_provider_onelake.statements.engine import Changed
from airflow_provider_onelake.statements.merge import Merged
from airflow_provider_onelake.statements.statement import StatementStatus
from tests.simulation.format import FormatJudge
from tests.simulation.statements.records import Effect, Placed, Record
from tests.simulation.statements.scenario import LoadPlan, MergePlan, RowsPlan, TaskPlan, WriterPlan
from tests.simulation.statements.tasks import Statements, Told
from tests.simulation.store import parsed
from tests.simulation.table import hidden_rows, load_rows, spelling_of, vector_id
from tests.simulation.versions import fail

Rows = Counter[Placed]
# A file, and the deletion vector that it is live with.
Key = tuple[str, str | None]
# How a task may end where others are at work, and the store does not always answer.
_MAY_BE = (
    BufferDoesNotFitError,
    BufferIncompleteError,
    BufferLostError,
    BufferSetAsideError,
    CommitContentionError,
    ConflictError,
    RerunRefusedError,
    SparkJobError,
    StatementRefusedError,
    StoreUnavailableError,
    ZombieWriterError,
)


@attrs.define
class _Version:
    """A version of the table.

    :param of: the task that made it, and the number of that task's start; ``None`` for others.
    :param standing: the starts whose statements are in the table: a RESTORE takes some of them back.
    :param touched: the partitions in which it changed rows.
    :param definition: the table's id, its first columns and its constraints.
    """

    info: dict[str, Any]
    actor: str
    live: dict[Key, dict[str, Any]]
    rows: Rows
    of: tuple[TaskPlan, int] | None
    standing: frozenset[tuple[str, int]]
    touched: frozenset[int]
    definition: frozenset[str]

    @property
    def is_nothing(self) -> bool:
        """Whether a start of ours says in it that there was nothing to do."""
        return bool(((self.info.get("staged") or {}).get("change") or {}).get("nothing"))


class Judge:
    """Judges one history."""

    def __init__(self, site: Statements) -> None:
        self._site, self._counters = site, site.world.counters
        self._versions: list[_Version] = []
        self._ever: set[str] = set()
        self._format = FormatJudge(self._counters)
        self._contents: dict[Key, list[Placed]] = {}
        self._judged = 0

    # -- versions ------------------------------------------------------------------------------------------------------

    def judge_log(self) -> None:
        """Judge every version that is new since the last time."""
        numbers = sorted(self._site.store.entries)
        if numbers != list(range(len(numbers))):
            fail(f"the versions of the log are {numbers}")
        for number in numbers[len(self._versions) :]:
            self._judge(number)

    def _judge(self, number: int) -> None:
        entry = self._site.store.entries[number]
        actions = parsed(entry.data)
        self._format.check(number, actions, self._ever)
        before = self._versions[-1] if self._versions else None
        version = self._read(number, entry.creator, actions, before)
        self._versions.append(version)
        if before is None:
            return
        adds = [action["add"] for action in actions if "add" in action]
        removes = [action["remove"] for action in actions if "remove" in action]
        compaction = "compaction" in (version.info.get("staged") or {})
        if version.of is not None or compaction:
            self._check_files(number, adds, removes, before)
        if compaction and version.rows != before.rows:
            fail(f"version {number} compacts {_text(before.rows)} to {_text(version.rows)}")
        if version.of is not None:
            self._judge_task(number, version, before)
        self._ever.update(add["path"] for add in adds)

    def _read(self, number: int, actor: str, actions: Iterable[dict[str, Any]], before: _Version | None) -> _Version:
        live = dict(before.live) if before is not None else {}
        standing = before.standing if before is not None else frozenset()
        touched: set[int] = set()
        info: dict[str, Any] = {}
        txns: dict[str, int] = {}
        definition = before.definition if before is not None else frozenset()
        removes = []
        for action in actions:
            if "remove" in action:
                removes.append(action["remove"])
                gone = live.pop((action["remove"]["path"], vector_id(action["remove"])), None)
                if gone is not None and action["remove"].get("dataChange", True):
                    touched.add(self._site.column.read(spelling_of(gone)))
        for action in actions:
            if "add" in action:
                add = action["add"]
                key = add["path"], vector_id(add)
                live[key] = add
                if add.get("dataChange", True):
                    touched.add(self._site.column.read(spelling_of(add)))
            elif "commitInfo" in action:
                info = action["commitInfo"]
            elif "metaData" in action:
                definition = _definition(action["metaData"])
            elif "txn" in action:
                txns[action["txn"]["appId"]] = action["txn"]["version"]
        of = self._task_of(number, txns)
        if of is not None:
            standing |= {(of[0].name, of[1])}
        if info.get("operation") == "RESTORE":
            standing = self._versions[int(info["operationParameters"]["version"])].standing
        rows: Rows = Counter(row for key, add in live.items() for row in self._rows(key, add))
        return _Version(info, actor, live, rows, of, standing, frozenset(touched), definition)

    def _task_of(self, number: int, txns: dict[str, int]) -> tuple[TaskPlan, int] | None:
        found = [self._site.task_starts[txn] for txn in txns.items() if txn in self._site.task_starts]
        if found:
            return found[0]
        if any(app_id.startswith("onelake") for app_id in txns):
            fail(f"version {number} does not say whose it is: {sorted(txns)}")
        return None

    def _rows(self, key: Key, add: dict[str, Any]) -> list[Placed]:
        if key not in self._contents:
            try:
                hidden = hidden_rows(self._site.store, add)
            except KeyError:
                fail(f"the deletion vector of {add['path']} is gone")
            partition = self._site.column.read(spelling_of(add))
            found = load_rows(self._site.store.contents[unquote(add["path"])], hidden)
            self._contents[key] = [(partition, Record.parse(name)) for name, _ in found]
        return self._contents[key]

    def _check_files(
        self, number: int, adds: list[dict[str, Any]], removes: list[dict[str, Any]], before: _Version
    ) -> None:
        for remove in removes:
            found = before.live.get((remove["path"], vector_id(remove)))
            if found is None:
                fail(f"version {number} removes {remove['path']}, which is not live")
            copied = ("partitionValues", "size", "stats", "tags", "deletionVector", "baseRowId")
            if any(found.get(name) != remove.get(name) for name in copied):
                fail(f"version {number} removes {remove['path']} otherwise than it was added")
        keys = [(add["path"], vector_id(add)) for add in adds]
        removed = {remove["path"] for remove in removes}
        if len({path for path, _ in keys}) != len(keys) or len(removed) != len(removes):
            fail(f"version {number} names a file twice")
        for path, vector in keys:
            if path in self._ever and (path not in removed or vector is None):
                fail(f"version {number} adds {path}, which was in the table before")

    # -- what tasks of ours did to rows ----------------------------------------------------------------------------------

    def _judge_task(self, number: int, version: _Version, before: _Version) -> None:
        assert version.of is not None
        plan, task_start = version.of
        if (plan.name, task_start) in before.standing:
            fail(f"version {number} does again what start {task_start} of {plan.name} has done already")
        read = ((version.info.get("staged") or {}).get("change") or {}).get("readVersion")
        self._check_no_zombie(number, plan, task_start)
        if version.is_nothing:
            self._counters["commits of nothing"] += 1
            if version.live != before.live:
                fail(f"version {number} says that there was nothing to do, and it changes files")
        if isinstance(plan, LoadPlan):
            self._judge_load(number, plan, task_start, version, before)
            return
        # Rows that were written under a constraint which is dropped since are right all the same.
        if read is not None and not before.definition <= self._versions[read].definition:
            fail(f"version {number} was made under the definition of version {read}, and the table has another")
        kind = "MERGE" if isinstance(plan, MergePlan) else version.info["operation"]
        self._counters[f"{kind} judged"] += 1
        effect = plan.effect(task_start)
        if version.rows == _done(effect, before.rows):
            return
        expected = _done(effect, before.rows)
        fail(
            f"version {number} is not {plan.name} done to version {number - 1}: it lacks "
            f"{_text(expected - version.rows)} and has too much {_text(version.rows - expected)}"
        )

    def _check_no_zombie(self, number: int, plan: TaskPlan, task_start: int) -> None:
        """A start does nothing after a newer one of its task."""
        for other in self._versions[:number]:
            if other.of is not None and other.of[0] is plan and other.of[1] > task_start:
                fail(
                    f"version {number} is of start {task_start} of {plan.name}, and start {other.of[1]} has done it since"
                )

    def _judge_load(self, number: int, plan: LoadPlan, task_start: int, version: _Version, before: _Version) -> None:
        put: Rows = Counter(plan.rows(task_start).values())
        if plan.overwrites:
            filled = {partition for partition, _ in put}
            if {row for row in version.rows if row[0] not in filled} != {r for r in before.rows if r[0] not in filled}:
                fail(f"version {number} changes rows outside of the partitions of {plan.name}")
            if extra := version.rows - before.rows - put:
                fail(f"version {number} of {plan.name} has too much {_text(extra)}")
        elif plan.again:
            # A rerun of an append takes back what the one before has added, if it is as it was.
            if version.rows - before.rows - put or put - version.rows:
                fail(f"version {number} is not {plan.name} appended")
        elif version.rows != before.rows + put:
            fail(f"version {number} is not {plan.name} appended")
        self._counters["writers published"] += 1

    # -- what tasks said -------------------------------------------------------------------------------------------------

    def judge_told(self) -> None:
        """Judge what tries said since the last time."""
        for told in self._site.told[self._judged :]:
            self._judge_told(told)
        self._judged = len(self._site.told)
        for told in self._site.told:
            if isinstance(told.said, (Changed, Deleted)) and told.said.status is StatementStatus.NOTHING_TO_DO:
                self._check_ended(told)

    def _judge_told(self, told: Told) -> None:
        if told.error is not None:
            self._counters[f"told: {type(told.error).__name__}"] += 1
            if not isinstance(told.error, _MAY_BE):
                fail(f"{told.actor} fails with {type(told.error).__name__}: {told.error}")
            if isinstance(told.error, BufferSetAsideError) and not self._has_later_try(told):
                fail(f"{told.actor} says that its rows were set aside, and no later try may have done it: {told.error}")
            mine = [number for number, version in enumerate(self._versions) if version.actor == told.actor]
            if mine and isinstance(told.error, (TerminalError, CommitContentionError)):
                fail(
                    f"{told.actor} fails with {type(told.error).__name__}, and has made version {mine[0]}: {told.error}"
                )
            return
        said = told.said
        if isinstance(said, Skip):
            self._counters["told: skipped"] += 1
            of_plan = (v for v in self._versions if v.of is not None and v.of[0] is told.plan)
            if not any(not v.is_nothing or v.of == (told.plan, told.task_start) for v in of_plan):
                fail(f"{told.actor} is skipped, and {told.plan.name} was never done")
        elif isinstance(said, (Changed, Deleted)):
            self._counters[f"told: {said.status}"] += 1
            if said.status is StatementStatus.NOTHING_TO_DO:
                self._check_nothing_to_do(told)
            elif said.status is StatementStatus.DONE:
                assert said.version is not None
                self._check_done(told, said, said.version)
            elif said.version is not None:
                self._check_already(told, said.version)

    def _has_later_try(self, told: Told) -> bool:
        number = self._site.number_of(told.actor, told.task_start)
        tries = self._site.tries.items()
        return any(o.plan is told.plan and self._site.number_of(name, o.task_start) > number for name, o in tries)

    def _check_done(self, told: Told, said: Changed | Deleted, number: int) -> None:
        version = self._versions[number] if number <= told.newest else None
        if version is None or version.of != (told.plan, told.task_start):
            fail(f"{told.actor} says that it is done in version {number}, which is not of it")
            return
        before, after = self._versions[number - 1].rows, version.rows
        effect = told.plan.effect(told.task_start)
        inserted = len(effect.inserted(list(before.elements())))
        gone = before.total() + inserted - after.total()
        counted: list[tuple[str, int | None, int]] = []
        if isinstance(said, Merged):
            counted = [("inserted", said.rows_inserted, inserted), ("deleted", said.rows_deleted, gone)]
        elif isinstance(said, Deleted):
            counted = [("deleted", said.rows_deleted, gone)]
        elif isinstance(told.plan, RowsPlan):
            # Of equal rows, each counts: a row may become what another one was.
            changed = sum(count for row, count in before.items() if effect.reaches(row))
            counted = [("changed", said.rows, changed if told.plan.updates else gone)]
        for what, count, real in counted:
            if count not in (None, real):
                fail(f"{told.actor} says that {count} rows were {what} in version {number}, and it was {real}")
        if isinstance(said, Changed) and said.rounds > 1:
            self._counters["more rounds than one"] += 1

    def _check_already(self, told: Told, number: int) -> None:
        of = self._versions[number].of
        if of is None or of[0] is not told.plan or (of[1] != told.task_start and told.plan.again):
            fail(f"{told.actor} says that it was done already in version {number}, which is of {of}")
            return
        if of[1] != told.task_start and self._versions[number].is_nothing:
            fail(f"{told.actor} says that it was done already in version {number}, which did nothing")
        window = range(max(number, told.oldest), told.newest + 1)
        if not isinstance(told.plan, WriterPlan) and not any(
            (told.plan.name, of[1]) in self._versions[at].standing for at in window
        ):
            fail(f"{told.actor} says that it was done already in version {number}, and that was taken back")
        if isinstance(told.plan, RowsPlan) and of[1] != told.task_start:
            covers = told.plan.covers
            for version in self._versions[number + 1 : max(number, told.oldest) + 1]:
                if version.touched if covers is None else version.touched & {*covers}:
                    fail(f"{told.actor} is not done again after version {number}, and rows were changed since")
            self._counters["starts skipped"] += 1

    def _check_ended(self, told: Told) -> None:
        """An older start or try does nothing after one that has said that there is nothing to do."""
        for number, version in enumerate(self._versions[told.newest + 1 :], told.newest + 1):
            if version.of is None or version.of[0] is not told.plan:
                continue
            made = self._site.number_of(version.actor, version.of[1])
            if made < self._site.number_of(told.actor, told.task_start):
                fail(
                    f"version {number} is of {version.actor}, and {told.actor} has said since that nothing is to be done"
                )

    def _check_nothing_to_do(self, told: Told) -> None:
        before = self._versions[: told.newest + 1]
        if any(version.is_nothing and version.of == (told.plan, told.task_start) for version in before):
            return  # Another try of the start has found it, and the version was judged.
        effect = told.plan.effect(told.task_start)
        for at in range(told.oldest, told.newest + 1):
            rows = self._versions[at].rows
            if rows == _done(effect, rows):
                return
        fail(f"{told.actor} says that there is nothing to do, and there always was")

    # -- the end ---------------------------------------------------------------------------------------------------------

    def judge_settled(self, told: Told) -> None:
        """Judge the last try of a task, with nobody else at work."""
        if told.error is not None:
            self._counters[f"settled: {type(told.error).__name__}"] += 1
        elif (
            isinstance(told.said, (Changed, Deleted))
            and not isinstance(told.plan, WriterPlan)
            and told.said.version is not None
            and not any(name == told.plan.name for name, _ in self._versions[-1].standing)
        ):
            fail(f"{told.actor} says {told.said}, and the table does not have it")

    def judge_end(self) -> None:
        """Judge the table as it stands."""
        store, newest = self._site.store, self._versions[-1]
        for path, _ in newest.live:
            if store.peek(unquote(path)) is None:
                fail(f"the live file {path} is gone")
        for add in newest.live.values():
            try:
                hidden_rows(store, add)
            except KeyError:
                fail(f"the deletion vector of {add['path']} is gone")


def _done(effect: Effect, rows: Rows) -> Rows:
    return Counter(effect.on_all(list(rows.elements())))


def _definition(metadata: dict[str, Any]) -> frozenset[str]:
    names = [field["name"] for field in json.loads(metadata["schemaString"])["fields"]][:3]
    checks = [name for name in metadata["configuration"] if name.startswith("delta.constraints.")]
    return frozenset([metadata["id"], *names, *checks])


def _text(rows: Rows) -> str:
    return json.dumps(sorted(f"{partition}: {record.name}" for partition, record in rows.elements()))
