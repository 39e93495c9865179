from __future__ import annotations

import json
import shutil
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest

from airflow_provider_onelake.buffers.markers import read_marker
from airflow_provider_onelake.commit.loop import Backoff
from airflow_provider_onelake.exceptions import LogGapError, ObjectExistsError, StoreUnavailableError
from airflow_provider_onelake.log.actions import LOG_DIRECTORY, of_kind
from airflow_provider_onelake.log.commits import Commit
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.maintenance.compact import POLITE, CompactionResult, CompactionStatus
from airflow_provider_onelake.modes import ReplaceWhere
from airflow_provider_onelake.writes.publish import Committer
from tests.support.clocks import HeldClock
from tests.support.commits import NO_WAITS
from tests.support.shadows import compact, planned, publish, rewritten
from tests.support.stores import AnswerLost, Counted, LoserHeld, through
from tests.support.tables import (
    LOAD,
    change_metadata,
    cleaned_up,
    commit_of,
    foreign_append,
    foreign_commit,
    ids,
    local_log,
    make_table,
    prepare,
    stage,
    writer_spec,
)
from tests.support.vectors import delete_rows, ids_without_deleted

ROWS = [0, 1, 5, 10, 11, 15, 20, 21, 25]


@pytest.fixture
def log(tmp_path: Path) -> DeltaLog:
    log = make_table(tmp_path / "t")
    for start in (0, 10, 20):
        foreign_append(log, {"2019-01": [start, start + 1], "2019 02": [start + 5]})
    return log


def table(log: DeltaLog) -> Path:
    return Path(log.table)


def live(log: DeltaLog, month: str | None = None) -> list[dict[str, Any]]:
    snapshot = log.snapshot()
    return list(log.live_files(lambda add: month is None or add["partitionValues"]["month"] == month, snapshot.version))


def last(log: DeltaLog, publication: CompactionResult) -> Commit:
    assert publication.version is not None
    return commit_of(log, publication.version)


def remove(log: DeltaLog, file: dict[str, Any]) -> int:
    gone = {key: file[key] for key in ("path", "partitionValues", "size")}
    info = {"timestamp": 2, "operation": "DELETE", "isBlindAppend": False}
    return foreign_commit(log, [{"commitInfo": info}, {"remove": {**gone, "deletionTimestamp": 2, "dataChange": True}}])


def test_files_become_fewer_and_rows_stay(log: DeltaLog) -> None:
    publication = compact(log)
    assert (publication.status, publication.version, publication.dropped) == (CompactionStatus.PUBLISHED, 4, ())
    assert len(live(log)) == 2
    assert ids(table(log)) == ROWS
    # Time travel to every version, before and after, gives the same rows.
    assert [len(ids(table(log), version)) for version in range(5)] == [0, 3, 6, 9, 9]


def test_the_entry_is_delta_s_own_kind_of_optimize(log: DeltaLog) -> None:
    before = {file["path"]: file for file in live(log)}
    shadow = rewritten(log)
    commit = last(log, publish(log, shadow))
    info = commit.info
    assert next(iter(commit.actions[0])) == "commitInfo"
    assert (info["operation"], info["isBlindAppend"], info["readVersion"]) == ("OPTIMIZE", False, 3)
    assert info["operationParameters"] == {"predicate": "[]", "zOrderBy": "[]", "auto": "false"}
    assert all(isinstance(value, str) for value in info["operationMetrics"].values())
    assert info["operationMetrics"]["numRemovedFiles"] == "6"
    assert info["operationMetrics"]["numAddedFiles"] == "2"
    assert int(info["operationMetrics"]["numRemovedBytes"]) == sum(file["size"] for file in before.values())
    assert info["engineInfo"].startswith("airflow-provider-onelake/")
    assert not commit.data_change
    assert (commit.writers, commit.staged) == ((), {})
    for gone in commit.removes:
        assert {key: gone[key] for key in ("path", "partitionValues", "size", "stats")} == {
            key: before[gone["path"]][key] for key in ("path", "partitionValues", "size", "stats")
        }
    assert all(add["path"].startswith(f"{shadow.path}/month=2019") for add in commit.adds)


def test_a_published_shadow_is_closed_and_says_where_it_went(log: DeltaLog) -> None:
    shadow = rewritten(log)
    publish(log, shadow)
    marker = read_marker(log.store, shadow.path)
    assert marker is not None
    assert marker["version"] == 4


def test_a_compacted_table_is_compacted_again(log: DeltaLog) -> None:
    compact(log)
    foreign_append(log, {"2019-01": [30]})
    foreign_append(log, {"2019-01": [31]})
    assert compact(log, where="month = '2019-01'").version == 7
    assert ids(table(log)) == [*ROWS, 30, 31]
    assert len(live(log)) == 2


# -- others come in between ------------------------------------------------------------------------------------------


def test_an_append_in_between_costs_one_more_put(log: DeltaLog) -> None:
    shadow = rewritten(log)
    store = LoserHeld(
        log.store, lambda: foreign_append(log, {"2019-01": [30]}), lambda: foreign_append(log, {"x": [31]})
    )
    publication = publish(through(store, log), shadow, backoff=Backoff(first=0.0, longest=0.0))
    assert (publication.status, publication.version, publication.tally.lost_races) == (CompactionStatus.PUBLISHED, 6, 2)
    assert ids(table(log)) == [*ROWS, 30, 31]
    assert len(live(log)) == 4


def test_a_partition_whose_input_went_is_dropped_and_the_others_are_published(log: DeltaLog) -> None:
    shadow = rewritten(log)
    version = remove(log, live(log, "2019-01")[0])
    publication = publish(log, shadow)
    assert (publication.status, publication.version) == (CompactionStatus.PUBLISHED, 5)
    [dropped] = publication.dropped
    assert dropped.partition == "month=2019-01"
    assert f"version {version} (DELETE) removed it" in dropped.reason
    assert ids(table(log)) == [5, 10, 11, 15, 20, 21, 25]
    assert len(live(log, "2019 02")) == 1


def test_an_input_that_goes_while_the_put_is_held_is_noticed(log: DeltaLog) -> None:
    shadow = rewritten(log, where="month = '2019-01'")
    store = LoserHeld(log.store, lambda: remove(log, live(log, "2019-01")[0]))
    publication = publish(through(store, log), shadow, backoff=Backoff(first=0.0, longest=0.0))
    assert (publication.status, publication.version, publication.groups) == (CompactionStatus.DROPPED, None, ())
    assert ids(table(log)) == [5, 10, 11, 15, 20, 21, 25]
    marker = read_marker(log.store, shadow.path)
    assert marker is not None
    assert "removed it" in marker["reason"]


def test_rows_deleted_in_between_do_not_come_back(log: DeltaLog) -> None:
    shadow = rewritten(log, where="month = '2019-01'")
    delete_rows(log, live(log, "2019-01")[0], [0])
    publication = publish(log, shadow)
    assert publication.status is CompactionStatus.DROPPED
    assert "gave it another deletion vector" in publication.dropped[0].reason
    assert ids_without_deleted(table(log)) == ROWS[1:]


def test_deleted_rows_are_gone_for_good_and_the_vector_stands_in_the_remove(log: DeltaLog) -> None:
    file = delete_rows(log, live(log, "2019-01")[0], [0])
    commit = last(log, compact(log))
    assert file["deletionVector"] in [gone.get("deletionVector") for gone in commit.removes]
    assert ids(table(log)) == ROWS[1:]


def test_of_two_compactions_at_once_each_file_is_replaced_once(log: DeltaLog) -> None:
    first, second = rewritten(log), rewritten(log)
    assert publish(log, first).status is CompactionStatus.PUBLISHED
    late = publish(local_log(table(log)), second)
    assert late.status is CompactionStatus.DROPPED
    assert all("version 4 (OPTIMIZE) removed it" in dropped.reason for dropped in late.dropped)
    assert ids(table(log)) == ROWS


def test_of_two_that_overlap_only_the_part_that_is_left_is_published(log: DeltaLog) -> None:
    whole, part = rewritten(log), rewritten(log, where="month = '2019-01'")
    publish(log, part)
    publication = publish(log, whole)
    assert [group.name for group in publication.groups] == ["month=2019 02"]
    assert ids(table(log)) == ROWS


def test_many_at_once_in_any_order_lose_and_double_nothing(log: DeltaLog) -> None:
    random = Random(7)
    expected = list(ROWS)
    shadows = []
    for step in range(60):
        match random.choice(["append", "begin", "publish", "publish", "delete"]):
            case "append":
                month = random.choice(["2019-01", "2019 02"])
                foreign_append(log, {month: [100 + step]})
                expected.append(100 + step)
            case "begin" if planned(log).groups:
                shadows.append(rewritten(log))
            case "publish" if shadows:
                publish(local_log(table(log)), shadows.pop(random.randrange(len(shadows))))
            case "delete":
                file = random.choice(live(log))
                if file["path"].startswith("month="):  # one that was not compacted yet: its rows are known
                    rows = json.loads(file["stats"])
                    gone = {rows["minValues"]["id"], rows["maxValues"]["id"]}
                    expected = [row for row in expected if row not in gone]
                    remove(log, file)
        assert ids(table(log)) == sorted(expected), step
    assert any(commit.operation == "OPTIMIZE" for commit in log.commits_since(-1))


# -- the table changes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"id": "another"}, "replaced by another"),
        ({"configuration": {"delta.constraints.positive": "id > 0"}}, "CHECK positive"),
    ],
)
def test_under_another_definition_the_rewrite_is_dropped(log: DeltaLog, change: dict[str, Any], said: str) -> None:
    shadow = rewritten(log)
    change_metadata(log, **change)
    publication = publish(log, shadow)
    assert publication.status is CompactionStatus.DROPPED
    assert all(said in dropped.reason for dropped in publication.dropped)


def test_nothing_is_rewritten_in_a_table_that_was_made_again_while_spark_worked(log: DeltaLog) -> None:
    shadow = rewritten(log)
    shutil.rmtree(table(log) / LOG_DIRECTORY)
    new = make_table(table(log))
    for _ in range(5):
        foreign_commit(new, [{"commitInfo": {"timestamp": 1}}])
    publication = publish(log, shadow)
    assert publication.status is CompactionStatus.DROPPED
    assert ids(table(log)) == []


def test_row_tracking_switched_on_drops_the_rewrite_which_kept_no_ids(log: DeltaLog) -> None:
    features = ["appendOnly", "invariants", "domainMetadata", "rowTracking"]
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": features}
    foreign_commit(log, [{"commitInfo": {"timestamp": 3, "operation": "UPGRADE"}}, {"protocol": protocol}])
    shadow = rewritten(log)
    change_metadata(log, configuration={"delta.enableRowTracking": "true"})
    assert "row tracking was switched" in publish(log, shadow).dropped[0].reason


def test_another_protocol_drops_the_rewrite(log: DeltaLog) -> None:
    shadow = rewritten(log)
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["appendOnly", "invariants"]}
    foreign_commit(log, [{"commitInfo": {"timestamp": 3, "operation": "UPGRADE"}}, {"protocol": protocol}])
    assert "protocol" in publish(log, shadow).dropped[0].reason


def test_a_property_that_concerns_no_row_drops_nothing(log: DeltaLog) -> None:
    shadow = rewritten(log)
    change_metadata(log, configuration={"delta.logRetentionDuration": "interval 1 day"})
    assert publish(log, shadow).status is CompactionStatus.PUBLISHED


def test_a_log_that_was_cleaned_up_drops_the_rewrite(log: DeltaLog) -> None:

    shadow = rewritten(log)
    foreign_append(log, {"x": [31]})
    foreign_append(log, {"x": [32]})
    cleaned_up(log, *range(5))
    assert "cleaned up" in publish(local_log(table(log)), shadow).dropped[0].reason


def test_a_log_that_is_cleaned_up_while_files_are_looked_at_drops_the_rewrite(
    log: DeltaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    shadow = rewritten(log)

    def gone(*_: Any) -> None:
        raise LogGapError("version 3 is gone")

    monkeypatch.setattr(DeltaLog, "live_files", gone)
    assert "while it was read: version 3 is gone" in publish(log, shadow).dropped[0].reason


def test_old_files_are_not_published(log: DeltaLog) -> None:
    """A VACUUM lists first and deletes later; from half of the retention on it may have listed them."""
    shadow = rewritten(log)
    clock = HeldClock()
    clock.forward(days=3.6)
    publication = publish(through(log.store, log, clock), shadow)
    assert publication.status is CompactionStatus.DROPPED
    assert "half of the table's retention" in publication.dropped[0].reason


# -- answers and budgets ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("effect", [True, False])
def test_a_lost_answer_is_settled_by_reading(log: DeltaLog, effect: bool) -> None:
    shadow = rewritten(log)
    store = Counted(AnswerLost(log.store, 1, effect=effect))
    publication = publish(through(store, log), shadow, backoff=Backoff(first=0.0, longest=0.0))
    assert (publication.status, publication.version) == (CompactionStatus.PUBLISHED, 4)
    assert len(store.puts) == (1 if effect else 2)
    assert ids(table(log)) == ROWS
    assert log.commit(5) is None


def test_a_store_that_never_answers_is_the_callers_to_know(log: DeltaLog) -> None:
    clock = HeldClock()
    with pytest.raises(StoreUnavailableError):
        publish(through(AnswerLost(log.store, 99, effect=False), log, clock), rewritten(log), backoff=NO_WAITS)
    assert POLITE.budget <= sum(clock.sleeps) <= POLITE.budget + POLITE.silent
    assert ids(table(log)) == ROWS


def test_it_gives_up_politely(log: DeltaLog) -> None:
    shadow = rewritten(log)
    busy = LoserHeld(log.store, *(lambda at=at: foreign_append(log, {"x": [100 + at]}) for at in range(99)))  # type: ignore[misc]
    clock = HeldClock()
    publication = publish(through(busy, log, clock), shadow)
    assert publication.status is CompactionStatus.DROPPED
    assert "does not insist" in publication.dropped[0].reason
    assert sum(clock.sleeps) <= POLITE.budget + POLITE.longest
    assert set(ROWS) <= set(ids(table(log)))


def test_a_marker_that_cannot_be_written_changes_nothing(log: DeltaLog) -> None:
    class NoMarkers(Counted):
        def put(self, path: str, data: bytes) -> None:
            raise StoreUnavailableError("no answer")

    assert publish(through(NoMarkers(log.store), log), rewritten(log)).status is CompactionStatus.PUBLISHED


# -- writers -----------------------------------------------------------------------------------------------------------


def replacing(writer: str, **terms: Any) -> Any:
    return writer_spec(writer, mode=ReplaceWhere("month = '2019-01'"), **terms)


@pytest.mark.parametrize(
    ("terms", "months"),
    [({}, {"month=2019 02"}), ({"abandoned_after": timedelta(0)}, {"month=2019-01", "month=2019 02"})],
    ids=["", "forgotten"],
)
def test_a_writer_that_begins_meanwhile_keeps_the_files_of_its_load(
    log: DeltaLog, terms: dict[str, Any], months: set[str]
) -> None:
    """The rewrite was begun before the writer, so which files it needs is looked at again."""
    Committer(local_log(table(log))).publish([stage(log, writer_spec("a"), {"2019-01": [30]})])
    shadow = rewritten(log)
    prepare(through(log.store, log), replacing("w"))
    publication = publish(log, shadow, **terms)
    assert {group.name for group in publication.groups} == months
    assert [f"load {LOAD.id} has a writer in flight" in dropped.reason for dropped in publication.dropped] == [True] * (
        2 - len(months)
    )


def test_a_put_without_an_answer_that_may_still_land_is_put_again(tmp_path: Path) -> None:
    log = make_table(tmp_path / "t")
    for number in range(3):
        Committer(local_log(table(log))).publish([stage(log, writer_spec(f"w{number}"), {"2019-01": [number]})])
    shadow = rewritten(log)

    class Late(AnswerLost):
        late: tuple[str, bytes] | None = None

        def create(self, path: str, data: bytes) -> None:
            if self.times and path.startswith(LOG_DIRECTORY):
                self.late = path, data
            super().create(path, data)

    class Busy(HeldClock):
        def sleep(self, seconds: float) -> None:
            if not self.sleeps:
                # A writer of their load begins, so that the files must stay as they are.
                prepare(local_log(table(log)), replacing("w"))
            super().sleep(seconds)

    store = Late(log.store, 1, effect=False)
    publication = publish(through(store, log, Busy()), shadow)
    assert store.late is not None
    with suppress(ObjectExistsError):
        log.store.create(*store.late)
    landed = log.commit(4)
    assert (publication.status, publication.version) == (CompactionStatus.PUBLISHED, 4)
    assert landed is not None
    assert landed.operation == "OPTIMIZE"
    assert log.commit(5) is None
    assert ids(table(log)) == [0, 1, 2]


def test_a_writer_publishes_over_a_compaction_of_what_it_replaces(log: DeltaLog) -> None:
    buffer = stage(log, replacing("w"), {"2019-01": [50]})
    assert compact(log).status is CompactionStatus.PUBLISHED
    Committer(local_log(table(log))).publish([buffer])
    assert ids(table(log)) == [5, 15, 25, 50]


def test_an_append_publishes_whatever_was_compacted(log: DeltaLog) -> None:
    buffer = stage(log, writer_spec("w"), {"2019-01": [50]})
    foreign_append(log, {"2019-01": [30]})
    assert compact(log).groups[0].name == "month=2019-01"
    Committer(local_log(table(log))).publish([buffer])
    assert ids(table(log)) == [*ROWS, 30, 50]


def test_row_ids_and_timestamps_are_given_anew_at_each_attempt(tmp_path: Path) -> None:
    log = make_table(tmp_path / "rt")
    snapshot = log.snapshot()
    features = ["appendOnly", "invariants", "domainMetadata", "inCommitTimestamp", "rowTracking"]
    configuration = {
        "delta.enableRowTracking": "true",
        "delta.enableInCommitTimestamps": "true",
        "delta.rowTracking.materializedRowIdColumnName": "_row-id-col-1",
        "delta.rowTracking.materializedRowCommitVersionColumnName": "_row-commit-version-col-1",
    }
    stamp = 4_000_000_000_000  # far ahead: the next must still be later
    foreign_commit(
        log,
        [
            {"commitInfo": {"inCommitTimestamp": stamp - 9, "timestamp": 3, "operation": "SET"}},
            {"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": features}},
            {"metaData": {**snapshot.metadata, "configuration": configuration}},
        ],
    )

    def append(rows: list[int], base: int, at: int) -> None:
        from tests.support.tables import append_files

        info, add = append_files(log.store, "", {"2019-01": rows}, inCommitTimestamp=at)
        add["add"] |= {"baseRowId": base, "defaultRowCommitVersion": 1}
        mark = json.dumps({"rowIdHighWaterMark": base + len(rows) - 1})
        domain = {"domainMetadata": {"domain": "delta.rowTracking", "configuration": mark, "removed": False}}
        foreign_commit(log, [info, domain, add])

    append([1, 2], 0, stamp - 2)
    append([3, 4], 2, stamp - 1)
    shadow = rewritten(log)
    store = LoserHeld(log.store, lambda: append([5], 4, stamp))
    publication = publish(through(store, log), shadow, backoff=Backoff(first=0.0, longest=0.0))
    commit = last(log, publication)
    assert commit.info["inCommitTimestamp"] == stamp + 1
    [add] = commit.adds
    assert (add["baseRowId"], add["defaultRowCommitVersion"]) == (5, publication.version)
    [domain] = of_kind(commit.actions, "domainMetadata")
    assert json.loads(domain["configuration"]) == {"rowIdHighWaterMark": 8}
    assert {gone["baseRowId"] for gone in commit.removes} == {0, 2}
