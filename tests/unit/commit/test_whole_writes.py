"""A write is one thing: whatever else was committed, the table equals an order of whole writes that the policy allows.

The winners are deltalake's own commits, other writers, and log entries as Spark writes them, on real tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import attrs
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from airflow_provider_onelake.choices import OnRerun, Policy
from airflow_provider_onelake.commit.entry import remove_of
from airflow_provider_onelake.commit.publish import Status
from airflow_provider_onelake.commit.reconcile import reconcile
from airflow_provider_onelake.commit.report import Report
from airflow_provider_onelake.exceptions import (
    ConflictError,
    RerunRefusedError,
    RowsRestoredAwayError,
    StoreUnavailableError,
)
from airflow_provider_onelake.log.actions import dump_actions, version_path
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.staging.buffers import Buffer
from airflow_provider_onelake.staging.layout import marker_path
from airflow_provider_onelake.staging.modes import Overwrite, OverwritePartitions, ReplaceWhere
from airflow_provider_onelake.staging.orphans import orphans
from airflow_provider_onelake.staging.prepare import Skip, prepare
from airflow_provider_onelake.storage.stores import ObjectInfo, Store
from tests.support.commits import committer, statuses
from tests.support.shadows import compact
from tests.support.stores import PassingOn, through
from tests.support.tables import (
    LOAD,
    append_files,
    begun,
    cleaned_up,
    commit_of,
    complete,
    finished_at,
    foreign_append,
    foreign_commit,
    landed_at,
    make_table,
    newest,
    of_attempt,
    stage,
    table_ids,
    writer_spec,
)

PARTITIONS = {"mode": OverwritePartitions()}
TABLE = {"mode": Overwrite()}
WHERE = {"mode": ReplaceWhere("month >= 'p1'")}
OTHER = attrs.evolve(LOAD, dag="another")
Winner = Callable[[DeltaLog], object]


@pytest.fixture
def log(tmp_path: Path) -> DeltaLog:
    """A table with 1 and 2 in p1, and 3 in p2."""
    log = make_table(tmp_path / "t")
    foreign_append(log, {"p1": [1, 2], "p2": [3]})
    return log


def settle(log: DeltaLog, *writers: str, policy: Policy = Policy.LAST_WRITER_WINS) -> Report:
    return reconcile(committer(log), LOAD, list(writers), on_conflict=policy)


def deltalake_appends(log: DeltaLog) -> None:
    write_deltalake(log.table, pa.table({"id": [20], "month": ["p1"]}), mode="append")


def deltalake_deletes(log: DeltaLog) -> None:
    DeltaTable(log.table).delete("id = 1")


def deltalake_updates(log: DeltaLog) -> None:
    DeltaTable(log.table).update({"id": "id + 100"}, predicate="month = 'p1'")


def writer_takes_back(log: DeltaLog) -> None:
    """Another load's rerun with on_rerun="replace": it removes what it appended, and appends again."""
    again = {"generation": 2, "on_rerun": OnRerun.REPLACE}
    committer(log).publish([stage(log, writer_spec("x", OTHER, **again), {"p1": [6]})])


# -- with last_writer_wins, after a later winner that neither appended nor replaced the partition -------------------


@pytest.mark.parametrize("terms", [PARTITIONS, TABLE, WHERE], ids=["partitions", "table", "where"])
@pytest.mark.parametrize("rows", [{"p1": [10]}, {"p1": [10], "p2": [11]}, {"p2": [11]}], ids=["p1", "p1+p2", "p2"])
@pytest.mark.parametrize("winner", [deltalake_deletes, deltalake_updates, writer_takes_back])
def test_nothing_of_a_write_is_published_where_a_later_winner_changed_its_range(
    log: DeltaLog, terms: Any, rows: dict[str | None, list[int]], winner: Winner
) -> None:
    committer(log).publish([stage(log, writer_spec("x", OTHER), {"p1": [5]})])
    buffer = stage(log, writer_spec(**terms), rows)
    winner(log)
    left = table_ids(log)
    if terms is PARTITIONS and "p1" not in rows:
        assert committer(log).publish([buffer]).status is Status.PUBLISHED
        return
    assert committer(log).publish([buffer]).status is Status.CONFLICTED
    report = settle(log, "w")
    assert statuses(report) == {"w": "refused"}
    assert table_ids(log) == left
    with pytest.raises(ConflictError, match="Nothing was published and the buffers are kept: clear the writers"):
        report.raise_for_failures()


@pytest.mark.parametrize(
    ("terms", "rows", "expected"),
    [
        pytest.param(PARTITIONS, {"p1": [10]}, [3, 10, 20], id="partitions"),
        pytest.param(TABLE, {"p1": [10]}, [10, 20], id="table"),
        pytest.param(TABLE, {"p2": [10]}, [10, 20], id="table, rows elsewhere"),
        pytest.param(WHERE, {"p2": [10]}, [10, 20], id="where"),
    ],
)
def test_a_later_append_of_deltalake_stays_beside_the_whole_write(
    log: DeltaLog, terms: Any, rows: Any, expected: list[int]
) -> None:
    stage(log, writer_spec(**terms), rows)
    deltalake_appends(log)
    report = settle(log, "w")
    assert statuses(report) == {"w": "published"}
    assert table_ids(log) == expected


def test_a_later_overwrite_of_one_partition_comes_second_and_the_rest_is_published(log: DeltaLog) -> None:
    first = stage(log, writer_spec(**TABLE), {"p1": [10], "p2": [11]})
    second = stage(log, writer_spec("x", OTHER, **PARTITIONS), {"p2": [20]})
    finished_at(log, second, first.finished + timedelta(seconds=1))
    assert committer(log).publish([second]).status is Status.PUBLISHED
    (outcome,) = settle(log, "w").outcomes
    assert (outcome.status, outcome.rows_staged, outcome.rows_published) == ("published", 2, 1)
    assert table_ids(log) == [10, 20]


def foreign_overwrite(log: DeltaLog, month: str, number: int, survivor: bool = False, **parameters: Any) -> None:
    """As Spark writes one, or as deltalake did where an append that came between survives it."""
    snapshot = log.snapshot()
    there = list(log.live_files(lambda add: add["partitionValues"]["month"] == month, snapshot.version))
    info = {"operationParameters": {"mode": "Overwrite", **parameters}, "isBlindAppend": False}
    gone = [{"remove": {**add, "dataChange": True, "deletionTimestamp": 1}} for add in there[1 if survivor else 0 :]]
    foreign_commit(log, [*append_files(log.store, "", {month: [number]}, **info), *gone])


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        pytest.param({"isDynamicPartitionOverwrite": "true"}, [11, 20], id="dynamic"),
        pytest.param({"predicate": "month = 'p1'"}, [11, 20], id="replaceWhere"),
        pytest.param({"predicate": "id > 1"}, None, id="replaceWhere over other columns"),
        pytest.param({}, None, id="perhaps of the whole table"),
    ],
)
def test_a_later_foreign_overwrite_of_a_partition_comes_second(
    log: DeltaLog, parameters: dict[str, Any], expected: list[int] | None
) -> None:
    stage(log, writer_spec(**TABLE), {"p1": [10], "p2": [11]})
    foreign_overwrite(log, "p1", 20, **parameters)
    left = table_ids(log)
    assert statuses(settle(log, "w")) == {"w": "published" if expected else "refused"}
    assert table_ids(log) == (expected or left)


@pytest.mark.parametrize(
    ("predicate", "status"),
    [
        ("month LIKE 'p%'", "refused"),
        ("CAST(month AS STRING) IN ('p1', 'p2')", "refused"),
        ("not SQL ?", "refused"),
        ("id > 1 AND month LIKE 'p%'", "published"),
    ],
)
def test_a_foreign_overwrite_by_a_predicate_that_nobody_can_read_may_have_replaced_every_partition(
    log: DeltaLog, predicate: str, status: str
) -> None:
    stage(log, writer_spec(**PARTITIONS), {"p2": [11]})
    foreign_overwrite(log, "p1", 20, predicate=predicate)
    assert statuses(settle(log, "w")) == {"w": status}


def test_a_foreign_overwrite_that_left_older_rows_replaced_nothing_whole(log: DeltaLog) -> None:
    foreign_append(log, {"p1": [4]})
    stage(log, writer_spec(**TABLE), {"p1": [10], "p2": [11]})
    foreign_overwrite(log, "p1", 20, survivor=True, isDynamicPartitionOverwrite="true")
    left = table_ids(log)
    assert statuses(settle(log, "w")) == {"w": "refused"}
    assert table_ids(log) == left


@pytest.mark.parametrize("later", ["a load", "TRUNCATE"])
def test_a_write_that_was_superseded_everywhere_is_in_nobodys_way(log: DeltaLog, later: str) -> None:
    """Also not in a partition in which neither it nor the write after it has rows."""
    now = datetime.now(UTC)
    early = finished_at(log, stage(log, writer_spec("early", OTHER, **TABLE), {"p1": [5]}), now - timedelta(hours=1))
    if later == "a load":
        committer(log).publish([finished_at(log, stage(log, writer_spec("late", **TABLE), {"p1": [6]}), now)])
    else:
        gone = [remove_of(file, 1, data_change=True) for file in log.live_files(lambda _: True, newest(log).version)]
        info = {"commitInfo": {"timestamp": 1, "operation": "TRUNCATE"}}
        foreign_commit(log, [info, *({"remove": remove} for remove in gone)])
    mine = stage(log, writer_spec("mine", **PARTITIONS), {"p3": [7]})
    superseded = committer(log).publish([early], policy=Policy.LAST_WRITER_WINS)
    assert superseded.status is Status.SET_ASIDE
    published = committer(log).publish([mine], policy=Policy.FIRST_WRITER_WINS)
    assert published.status is Status.PUBLISHED
    assert 7 in table_ids(log)


def test_a_later_foreign_overwrite_by_a_data_column_is_in_the_way_only_where_it_changed_rows(log: DeltaLog) -> None:
    """Its predicate is on no partition column, so it says of no partition that all of it was replaced."""
    buffer = stage(log, writer_spec(mode=ReplaceWhere("month = 'p1'")), {"p1": [10]})
    buffer = finished_at(log, buffer, datetime.now(UTC) - timedelta(hours=1))
    deltalake_appends(log)
    replaced = {"mode": "Overwrite", "predicate": "id > 2"}
    gone = [f for f in log.live_files(lambda _: True, newest(log).version) if f["partitionValues"]["month"] == "p2"]
    info = {"commitInfo": {"timestamp": 1, "operation": "WRITE", "operationParameters": replaced}}
    foreign_commit(log, [info, *({"remove": remove_of(file, 1, data_change=True)} for file in gone)])
    assert committer(log).publish([buffer], Policy.LAST_WRITER_WINS).status is Status.PUBLISHED
    assert table_ids(log) == [10, 20]


def test_where_the_first_writer_wins_the_other_write_is_set_aside_in_all_its_partitions(log: DeltaLog) -> None:
    committer_of_first = stage(log, writer_spec("x", OTHER, **PARTITIONS), {"p1": [20]})
    stage(log, writer_spec(**PARTITIONS), {"p1": [10], "p2": [11]})
    committer(log).publish([committer_of_first])
    for _ in range(2):
        (outcome,) = settle(log, "w", policy=Policy.FIRST_WRITER_WINS).outcomes
        assert (outcome.status, outcome.rows_published) == ("set_aside", 0)
    assert table_ids(log) == [3, 20]


# -- what a winner says, and does not ------------------------------------------------------------------------------


@pytest.mark.parametrize("values", [{"partitionValues": {}}, {"partitionValues": None}, {}], ids=["{}", "null", "none"])
def test_a_remove_that_does_not_name_its_partition_may_be_of_any(log: DeltaLog, values: dict[str, Any]) -> None:
    stage(log, writer_spec(**PARTITIONS), {"p1": [10]})
    snapshot = log.snapshot()
    (there,) = log.live_files(lambda add: add["partitionValues"]["month"] == "p1", snapshot.version)
    gone = {"path": there["path"], "dataChange": True, "deletionTimestamp": 1, **values}
    foreign_commit(log, [{"commitInfo": {"operation": "DELETE"}}, {"remove": gone}])
    assert statuses(settle(log, "w", policy=Policy.FAIL)) == {"w": "refused"}
    assert statuses(settle(log, "w", policy=Policy.FIRST_WRITER_WINS)) == {"w": "set_aside"}
    assert table_ids(log) == [3]


def test_a_foreign_commit_and_a_buffer_are_ordered_by_the_stores_clock_alone(log: DeltaLog) -> None:
    """Whole seconds, as S3 has them: the engine's own time is later than the buffer's, the store's is not."""
    buffer = stage(log, writer_spec(**PARTITIONS), {"p1": [10]})
    second = buffer.finished.replace(microsecond=0)
    finished_at(log, buffer, second)
    said = round(second.timestamp() * 1000) + 400
    landed_at(log, foreign_append(log, {"p1": [20]}, timestamp=said), second)
    (outcome,) = settle(log, "w").outcomes
    assert outcome.decisions == ("month=p1: version 2 (WRITE) is replaced: it counts earlier",)
    assert table_ids(log) == [3, 10]


# -- the writers of one load, one after another --------------------------------------------------------------------


def one_after_another(log: DeltaLog, rows: dict[str | None, list[int]], **terms: Any) -> list[Buffer]:
    """Two writers with one slot: the second stages when the first has tried to publish."""
    buffers = []
    for number, key in enumerate("ab"):
        buffer = stage(
            log, writer_spec(key, **terms), {month: [n + number for n in found] for month, found in rows.items()}
        )
        buffers.append(finished_at(log, buffer, buffer.finished + timedelta(seconds=number)))
        committer(log).publish([buffers[-1]])
    return buffers


@pytest.mark.parametrize("terms", [PARTITIONS, TABLE, WHERE], ids=["partitions", "table", "where"])
@pytest.mark.parametrize(
    ("policy", "seen", "told"),
    [
        (Policy.LAST_WRITER_WINS, 11, {"a": "superseded", "b": "published"}),
        (Policy.FIRST_WRITER_WINS, 10, {"a": "already_published", "b": "set_aside"}),
        (Policy.FAIL, 10, {"a": "already_published", "b": "refused"}),
    ],
)
def test_what_a_policy_does_does_not_depend_on_how_many_writers_ran_at_once(
    log: DeltaLog, terms: Any, policy: Policy, seen: int, told: dict[str, str]
) -> None:
    one_after_another(log, {"p1": [10]}, **terms)
    report = settle(log, "a", "b", policy=policy)
    assert statuses(report) == told
    assert table_ids(log) == ([3, seen] if terms is PARTITIONS else [seen])
    if policy is Policy.FAIL:
        with pytest.raises(ConflictError, match=r"version 2 \(a\) changed month=p1, which writers 'b' replace"):
            report.raise_for_failures()


def by_our_compaction(log: DeltaLog) -> None:
    compact(through(log.store, log))


def by_an_update(log: DeltaLog) -> None:
    DeltaTable(log.table).update({"id": "id + 100"}, predicate="id = 12 or id = 10")


@pytest.mark.parametrize(
    "move", [lambda log: DeltaTable(log.table).optimize.compact(), by_our_compaction, by_an_update]
)
@pytest.mark.parametrize(
    ("policy", "told"),
    [
        (Policy.LAST_WRITER_WINS, {"a": "superseded", "b": "published"}),
        (Policy.FIRST_WRITER_WINS, {"a": "already_published", "b": "set_aside"}),
        (Policy.FAIL, {"a": "already_published", "b": "refused"}),
    ],
)
def test_a_writer_of_the_load_is_a_rival_also_where_its_rows_were_moved_before_the_other_began(
    log: DeltaLog, move: Winner, policy: Policy, told: dict[str, str]
) -> None:
    committer(log).publish([stage(log, writer_spec("a", **PARTITIONS), {"p1": [10, 11]})])
    foreign_append(log, {"p1": [12]})
    move(log)
    before = table_ids(log)
    late = stage(through(log.store, log), writer_spec("b", **PARTITIONS), {"p1": [20]})
    late = finished_at(log, late, late.finished + timedelta(seconds=2))
    assert committer(log).publish([late]).status is Status.CONFLICTED
    report = settle(log, "a", "b", policy=policy)
    if move is by_an_update:
        told = {key: "deleted" if status == "already_published" else status for key, status in told.items()}
    assert statuses(report) == told
    assert table_ids(log) == ([3, 20] if policy is Policy.LAST_WRITER_WINS else before)
    if policy is Policy.LAST_WRITER_WINS:
        (_, second) = report.outcomes
        assert second.decisions == ("month=p1: version 2 (a) is replaced: it counts earlier",)


def test_rows_that_an_update_brought_into_another_partition_are_followed(log: DeltaLog) -> None:
    before = foreign_append(log, {"p3": [7]})
    committer(log).publish([stage(log, writer_spec(), {"p1": [10]})])
    DeltaTable(log.table).update({"month": "'p2'"}, predicate="id = 10")
    (outcome,) = settle(log, "w").outcomes
    assert (outcome.status, outcome.aftermath) == (
        "deleted",
        ("some of its rows were changed or deleted by UPDATE in version 4",),
    )
    DeltaTable(log.table).restore(before)
    with pytest.raises(RowsRestoredAwayError):
        settle(log, "w").raise_for_failures()


def test_the_last_writer_of_a_load_says_whom_it_replaced_and_the_replaced_one_by_whom(log: DeltaLog) -> None:
    one_after_another(log, {"p1": [10]}, **PARTITIONS)
    first, second = settle(log, "a", "b").outcomes
    assert second.decisions == ("month=p1: version 2 (a) is replaced: it counts earlier",)
    assert first.aftermath == ("its rows were replaced by b in version 3",)
    again, _ = settle(log, "a", "b").outcomes
    assert (again.status, again.aftermath) == ("superseded", first.aftermath)


@pytest.mark.parametrize("marker", ["written", "lost in a crash"])
def test_a_writer_of_the_load_is_a_rival_also_where_the_log_of_its_commit_was_cleaned_up(
    log: DeltaLog, marker: str
) -> None:
    first = stage(log, writer_spec("a", **PARTITIONS), {"p1": [10]})
    committer(log).publish([first])
    if marker != "written":
        log.store.delete(marker_path(first.path))
    cleaned_up(log, *range(3))
    b = stage(through(log.store, log), writer_spec("b", **PARTITIONS), {"p1": [11]})
    version = "version 2" if marker == "written" else "a version that the log has no more"
    left = committer(log).publish([b])
    assert (left.status, left.conflicts) == (Status.CONFLICTED, (f"{version} (a) changed month=p1",))
    assert statuses(settle(log, "a", "b", policy=Policy.FIRST_WRITER_WINS))["b"] == "set_aside"
    assert table_ids(log) == [3, 10]


@pytest.mark.parametrize("compacted", [False, True])
@pytest.mark.parametrize("begins", ["before the rerun", "after it"])
@pytest.mark.parametrize("rerun", ["set aside", "elsewhere"])
def test_rows_that_a_rerun_of_a_colleague_left_are_a_rivals(
    log: DeltaLog, rerun: str, begins: str, compacted: bool
) -> None:
    """Whatever `b` was formed on: a policy does not depend on how many writers had a slot."""
    committer(log).publish([stage(log, writer_spec("a", **PARTITIONS), {"p1": [10]})])
    terms = {"generation": 2, "fingerprint": "mended", **PARTITIONS}
    again = stage(through(log.store, log), writer_spec("a", **terms), {"p1" if rerun == "set aside" else "p2": [11]})
    foreign_append(log, {"p1": [20]})
    if begins == "before the rerun":
        b = stage(through(log.store, log), writer_spec("b", **PARTITIONS), {"p1": [12]})
    policy = Policy.FIRST_WRITER_WINS
    ended = committer(log).publish([again], policy=policy)
    assert ended.status is (Status.SET_ASIDE if rerun == "set aside" else Status.PUBLISHED)
    if compacted:
        compact(log)
    if begins == "after it":
        b = stage(through(log.store, log), writer_spec("b", **PARTITIONS), {"p1": [12]})
    left = table_ids(log)
    assert 10 in left
    assert committer(log).publish([b]).status is Status.CONFLICTED
    assert statuses(settle(log, "b", policy=Policy.FAIL)) == {"b": "refused"}
    assert statuses(settle(log, "b", policy=policy)) == {"b": "set_aside"}
    assert table_ids(log) == left


def compacted_by_another_engine(log: DeltaLog, *months: str) -> None:
    """So are rows of nobody in `p1`; and the log of all that is cleaned up."""
    foreign_append(log, {"p1": [20]})
    foreign_append(log, {month: [21] for month in ("p1", *months)})
    DeltaTable(log.table).optimize.compact()
    cleaned_up(log, *range(newest(log).version))


@pytest.mark.parametrize(("generations", "marker"), [(1, "written"), (1, "lost in a crash"), (2, "written")])
@pytest.mark.parametrize(
    ("compacted", "policy", "status"),
    [
        ("p1", None, Status.CONFLICTED),
        ("p1", Policy.FIRST_WRITER_WINS, Status.SET_ASIDE),
        ("p1", Policy.LAST_WRITER_WINS, Status.PUBLISHED),
        ("p2", None, Status.PUBLISHED),
    ],
)
def test_where_the_log_was_cleaned_up_rows_of_the_load_are_looked_for_in_the_partitions_of_their_buffer(
    log: DeltaLog, compacted: str, policy: Policy | None, status: Status, generations: int, marker: str
) -> None:
    """Another engine compacts `a`, and the log of both is gone when `b` replaces the partition `p1`."""
    # The second generation has no rows, so it replaces none of the first.
    for generation in range(1, generations + 1):
        rows = {compacted: [10]} if generation == 1 else {}
        buffer = stage(log, writer_spec("a", generation=generation, **PARTITIONS), rows)
        committer(log).publish([buffer])
    if marker != "written":
        log.store.delete(marker_path(buffer.path))
    compacted_by_another_engine(log, compacted)
    b = stage(through(log.store, log), writer_spec("b", **PARTITIONS), {"p1": [11]})
    assert committer(log).publish([b], policy=policy).status is status


class SilentOnce(PassingOn):
    """Does not answer one of its requests."""

    def __init__(self, inner: Store, request: int) -> None:
        super().__init__(inner)
        self.left = request

    def _ask(self) -> None:
        self.left -= 1
        if self.left == -1:
            raise StoreUnavailableError("no answer")

    def get(self, path: str) -> bytes:
        self._ask()
        return super().get(path)

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        self._ask()
        return super().list(prefix, start_after)


def test_a_store_that_does_not_answer_makes_nobody_forget_where_the_rows_of_a_load_are(log: DeltaLog) -> None:
    committer(log).publish([stage(log, writer_spec("a", **PARTITIONS), {"p1": [10]})])
    compacted_by_another_engine(log)
    b = stage(through(log.store, log), writer_spec("b", **PARTITIONS), {"p1": [11]})
    for request in count():
        silent = SilentOnce(log.store, request)
        left = committer(through(silent, log)).publish([b])
        assert (left.status, left.conflicts) == (Status.CONFLICTED, ("version 2 (a) changed month=p1",)), request
        if silent.left >= 0:
            break


def test_writers_of_a_load_that_share_no_partition_publish_for_themselves(log: DeltaLog) -> None:
    a = stage(log, writer_spec("a", **PARTITIONS), {"p1": [10]})
    assert committer(log).publish([a]).status is Status.PUBLISHED
    b = stage(log, writer_spec("b", **PARTITIONS), {"p2": [11]})
    assert committer(log).publish([b]).status is Status.PUBLISHED


def test_what_a_writer_that_is_being_rerun_published_before_is_no_rival(log: DeltaLog) -> None:
    """The load is cleared after its writers were mended: `a` writes elsewhere now, and `b` takes its old place."""
    committer(log).publish([stage(log, writer_spec("a", **PARTITIONS), {"p1": [10]})])
    a = stage(log, writer_spec("a", generation=2, **PARTITIONS), {"p2": [10]})
    b = stage(log, writer_spec("b", generation=2, **PARTITIONS), {"p1": [11]})
    assert committer(log).publish([b]).status is Status.PUBLISHED
    assert committer(log).publish([a]).status is Status.PUBLISHED


@pytest.mark.parametrize(
    ("policy", "told"),
    [
        (Policy.LAST_WRITER_WINS, {"a": "superseded", "b": "published"}),
        (Policy.FIRST_WRITER_WINS, {"a": "already_published", "b": "set_aside"}),
        (Policy.FAIL, {"a": "already_published", "b": "refused"}),
    ],
)
def test_a_writer_that_was_cleared_and_skipped_is_a_rival_as_before(
    log: DeltaLog, policy: Policy, told: dict[str, str]
) -> None:
    a = stage(log, writer_spec("a"), {"p1": [10]})
    committer(log).publish([a])
    assert isinstance(prepare(through(log.store, log), writer_spec("a", generation=2)), Skip)
    b = stage(through(log.store, log), writer_spec("b", **PARTITIONS), {"p1": [20]})
    b = finished_at(log, b, a.finished + timedelta(seconds=2))
    assert committer(log).publish([b]).status is Status.CONFLICTED
    assert statuses(settle(log, "a", "b", policy=policy)) == told
    assert table_ids(log) == ([3, 20] if policy is Policy.LAST_WRITER_WINS else [1, 2, 3, 10])


def test_the_files_of_a_later_winner_are_known_again_after_they_were_compacted_by_themselves(log: DeltaLog) -> None:
    stage(log, writer_spec(**PARTITIONS), {"p1": [10]})
    for number in (20, 21):
        foreign_append(log, {"p1": [number]})
    log.snapshot()
    appended = [commit.adds[0] for version in (2, 3) if (commit := log.commit(version))]
    info, add = append_files(log.store, "", {"p1": [20, 21]}, operation="OPTIMIZE")
    add["add"]["dataChange"] = False
    moved = [{"remove": {**file, "dataChange": False, "deletionTimestamp": 1}} for file in appended]
    foreign_commit(log, [info, *moved, add])
    assert statuses(settle(log, "w")) == {"w": "published"}
    assert table_ids(log) == [3, 10, 20, 21]


def test_a_writer_formed_on_top_of_another_one_of_its_load_is_later_whatever_coarse_clocks_say(log: DeltaLog) -> None:
    z = stage(log, writer_spec("z", **PARTITIONS), {"p1": [10]})
    committer(log).publish([z])
    finished_at(log, stage(log, writer_spec("a", **PARTITIONS), {"p1": [11]}), z.finished)
    assert statuses(settle(log, "z", "a")) == {"z": "superseded", "a": "published"}
    assert table_ids(log) == [3, 11]


# -- what became of published rows ---------------------------------------------------------------------------------


def test_rows_that_a_restore_took_back_are_not_called_published(log: DeltaLog) -> None:
    committer(log).publish([stage(log, writer_spec(), {"p1": [10]})])
    DeltaTable(log.table).restore(1)
    report = settle(log, "w")
    assert statuses(report) == {"w": "restored_away"}
    with pytest.raises(
        RowsRestoredAwayError, match=r"'w' .* published in version 2 .* taken back by RESTORE in version 3"
    ):
        report.raise_for_failures()
    DeltaTable(log.table).restore(2)
    assert statuses(settle(log, "w")) == {"w": "already_published"}


@pytest.mark.parametrize(
    ("statement", "status", "story"),
    [
        pytest.param(
            lambda table: table.delete("id = 10"), "deleted", "its rows were changed or deleted by DELETE", id="delete"
        ),
        pytest.param(
            lambda table: table.update({"id": "99"}, predicate="id = 10"),
            "deleted",
            "some of its rows were changed or deleted by UPDATE",
            id="update",
        ),
        pytest.param(lambda table: table.optimize.compact(), "already_published", None, id="compaction"),
        pytest.param(
            lambda table: write_deltalake(table, pa.table({"id": [7], "month": ["p1"]}), mode="overwrite"),
            "superseded",
            "its rows were replaced by WRITE",
            id="foreign overwrite",
        ),
        pytest.param(
            lambda table: overwrite(table, "month = 'p1'"),
            "superseded",
            "its rows were replaced by WRITE",
            id="foreign overwrite by a partition column",
        ),
    ],
)
def test_reconcile_tells_what_became_of_rows_since(
    log: DeltaLog, statement: Callable[[DeltaTable], object], status: str, story: str | None
) -> None:
    committer(log).publish([stage(log, writer_spec(), {"p1": [10]})])
    statement(DeltaTable(log.table))
    report = settle(log, "w")
    report.raise_for_failures()
    (outcome,) = report.outcomes
    assert outcome.status == status
    assert outcome.aftermath == (() if story is None else (f"{story} in version 3",))


def overwrite(table: DeltaTable, predicate: str) -> None:
    write_deltalake(table, pa.table({"id": [12], "month": ["p1"]}), mode="overwrite", predicate=predicate)


def test_reconcile_does_not_advise_to_add_rows_that_an_older_generation_has_in_the_table(log: DeltaLog) -> None:
    """Somebody appended twice by mistake, and a RESTORE repaired it."""
    before = newest(log).version
    for generation in (1, 2):
        terms = {"generation": generation, "on_rerun": OnRerun.APPEND}
        committer(log).publish([stage(through(log.store, log), writer_spec(**terms), {"p1": [10]})])
    DeltaTable(log.table).restore(before + 1)
    with pytest.raises(
        RowsRestoredAwayError, match=rf"published in version {before + 1} is in the table, and on_rerun="
    ):
        settle(log, "w").raise_for_failures()
    DeltaTable(log.table).restore(before)
    with pytest.raises(RowsRestoredAwayError, match="clear the writer with on_rerun='append'"):
        settle(log, "w").raise_for_failures()
    DeltaTable(log.table).restore(before + 1)
    with pytest.raises(RerunRefusedError, match=rf"what it published in version {before + 1} is in the table"):
        prepare(through(log.store, log), writer_spec(generation=3))


def test_a_remove_that_spells_a_path_otherwise_takes_no_rows(log: DeltaLog) -> None:
    """Spark leaves letters beyond ASCII as they are, and deltalake does not: the file stays live for every engine."""
    spec = writer_spec()
    task = begun(log, spec)
    actions: Any = append_files(log.store, task.path, {"\u00e9": [10]}, **of_attempt(spec.attempt))
    for action in actions:
        if "add" in action:
            action["add"]["path"] = unquote(action["add"]["path"])
    log.store.create(f"{task.path}/{version_path(1)}", dump_actions(actions))
    committer(log).publish([complete(log, task.path)])
    DeltaTable(log.table).delete("id = 10")
    assert 10 in table_ids(log)
    report = settle(log, "w")
    report.raise_for_failures()
    assert statuses(report) == {"w": "already_published"}
    assert isinstance(prepare(through(log.store, log), writer_spec(generation=2)), Skip)
    assert [orphan.writer for orphan in orphans(log, LOAD, set(), {"load"}, newest(log))] == ["w"]


def test_an_overwrite_by_a_data_column_may_have_left_rows_alone_in_new_files(log: DeltaLog) -> None:
    committer(log).publish([stage(log, writer_spec(), {"p1": [10, 12]})])
    overwrite(DeltaTable(log.table), "id = 12")
    (outcome,) = settle(log, "w").outcomes
    assert (outcome.status, outcome.aftermath) == (
        "deleted",
        ("some or all of its rows were replaced by WRITE in version 3",),
    )


def test_a_compaction_is_followed_however_it_spells_the_partition(log: DeltaLog) -> None:
    committer(log).publish([stage(log, writer_spec(), {None: [10]})])
    published = commit_of(log, 2)
    info, add = append_files(log.store, "", {"": [10]}, operation="OPTIMIZE")
    add["add"]["dataChange"] = False
    moved = {**published.adds[0], "dataChange": False, "deletionTimestamp": 1}
    foreign_commit(log, [info, {"remove": moved}, add])
    foreign_commit(log, [{"commitInfo": {"operation": "DELETE"}}, {"remove": {**add["add"], "dataChange": True}}])
    (outcome,) = settle(log, "w").outcomes
    assert (outcome.status, outcome.aftermath) == (
        "deleted",
        ("its rows were changed or deleted by DELETE in version 4",),
    )


def test_where_the_log_was_cleaned_up_rows_that_are_not_where_they_were_are_told(log: DeltaLog) -> None:
    committer(log).publish([stage(log, writer_spec(), {"p1": [10, 11], "p2": [12]})])
    DeltaTable(log.table).delete("id = 12")
    cleaned_up(log, *range(3))
    (outcome,) = settle(log, "w").outcomes
    assert outcome.status == "already_published"
    assert outcome.aftermath == ("2 of its 3 rows are where they were; where the others are, nobody knows",)


def test_rows_that_are_replaced_after_a_compaction_moved_them_are_followed(log: DeltaLog) -> None:
    committer(log).publish([stage(log, writer_spec(), {"p1": [10]})])
    DeltaTable(log.table).optimize.compact()
    committer(log).publish([stage(log, writer_spec("x", OTHER, **PARTITIONS), {"p1": [20]})])
    (outcome,) = settle(log, "w").outcomes
    assert (outcome.status, outcome.aftermath) == ("superseded", ("its rows were replaced by x in version 4",))
