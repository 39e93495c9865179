"""Which winners concern a batch: one rule a function."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import attrs
import pytest

from airflow_provider_onelake.commit.batch import Batch, place
from airflow_provider_onelake.commit.conflicts import (
    Conflict,
    Effect,
    KnownConflicts,
    origins,
    replaced_all,
    serial_order,
)
from airflow_provider_onelake.exceptions import InvalidWriteError
from airflow_provider_onelake.log.commits import FORMAT, Commit
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.log.snapshot import Snapshot
from airflow_provider_onelake.log.values import Partition
from airflow_provider_onelake.staging.modes import OverwritePartitions, ReplaceWhere
from tests.support.tables import OVERWRITE, SCHEMA, make_table, newest, stage, writer_spec
from tests.support.winners import file, winner

INSTANTS = '"name": "month", "type": "timestamp"'
WHERE = {"mode": ReplaceWhere("month = '2019-01'")}
FINISHED = datetime(2019, 1, 1, tzinfo=UTC)


def batch(log: DeltaLog, **terms: Any) -> Batch:
    return place([stage(log, writer_spec(**{"fingerprint": "", **terms}), {"2019-01": [1]})], newest(log))


def found(log: DeltaLog, loser: Batch, *winners: Commit) -> list[Conflict]:
    return KnownConflicts().find(loser, winners, newest(log))


def where(conflicts: Iterable[Conflict]) -> list[Any]:
    return [conflict.partition for conflict in conflicts]


def test_what_was_found_for_one_batch_does_not_count_for_another(log: DeltaLog) -> None:
    first = batch(log, **OVERWRITE)
    second = place([stage(log, writer_spec("w2", **OVERWRITE), {"2019-02": [1]})], newest(log))
    known, added = KnownConflicts(), [winner({"add": file("2019-01")})]
    assert where(known.find(first, added, newest(log))) == [("2019-01",)]
    assert where(known.find(second, added, newest(log))) == []
    assert where(known.find(first, added, newest(log))) == [("2019-01",)]


def test_who_counts_before_an_older_version_counts_after_those_that_landed_before_it_and_do_so_too() -> None:
    placed = {2: 1, 3: 2, 4: 1, 5: None}
    winners = [
        Commit(version, [{"commitInfo": {"staged": {"format": FORMAT, "writers": [], "before": before}}}])
        for version, before in placed.items()
    ]
    assert [commit.version for commit in serial_order(winners)] == [3, 2, 4, 5]


# -- what winners did ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("actions", [[{"add": file("2019-01")}], [{"remove": file("2019-01")}]])
def test_an_append_has_no_conflicts(log: DeltaLog, actions: list[dict[str, Any]]) -> None:
    assert found(log, batch(log), winner(*actions)) == []


@pytest.mark.parametrize("terms", [OVERWRITE, WHERE])
@pytest.mark.parametrize(
    ("actions", "partitions"),
    [
        pytest.param([{"add": file("2019-01")}], [("2019-01",)], id="added here"),
        pytest.param([{"remove": file("2019-01")}], [("2019-01",)], id="removed here"),
        pytest.param([{"remove": file("2019-01")}, {"add": file("2019-01")}], [("2019-01",)], id="replaced here"),
        pytest.param([{"add": file("2019-02")}, {"remove": file(None)}], [], id="elsewhere"),
        pytest.param([{"add": file("2019-02")}, {"add": file("2019-01")}], [("2019-01",)], id="here and elsewhere"),
        pytest.param([{"add": file("2019-01", dataChange=False)}], [], id="compacted here"),
        pytest.param([{"remove": file("2019-01", dataChange=False)}], [], id="compacted away here"),
        pytest.param(
            [
                {"remove": file("2019-01", dataChange=False)},
                {"add": file("2019-01", dataChange=False)},
                {"add": file("2019-02")},
            ],
            [],
            id="compacted here, added elsewhere",
        ),
        pytest.param([], [], id="nothing"),
    ],
)
def test_a_winner_conflicts_where_it_changed_rows_that_the_batch_replaces(
    log: DeltaLog, terms: Any, actions: list[dict[str, Any]], partitions: list[Any]
) -> None:
    assert where(found(log, batch(log, **terms), winner(*actions))) == partitions


def test_every_winner_is_judged(log: DeltaLog) -> None:
    conflicts = found(log, batch(log, **OVERWRITE), winner({"add": file("2019-01")}), winner({"add": file("2019-01")}))
    assert len(conflicts) == 2


def test_a_winner_that_does_not_say_where_it_removed_may_have_done_so_anywhere(log: DeltaLog) -> None:
    removed = {"remove": {"path": "a", "dataChange": True, "deletionTimestamp": 1}}
    (conflict,) = found(log, batch(log, **OVERWRITE), winner(removed))
    assert conflict.partition is None
    assert "a partition that it does not name" in conflict.describe(newest(log).partitioning)
    half = [removed, {"remove": file("2019-02", "b")}]
    for actions in (half, half[::-1]):
        assert where(found(log, batch(log, **OVERWRITE), winner(*actions))) == [None]
    compacted = {"remove": {"path": "a", "dataChange": False, "deletionTimestamp": 1}}
    assert found(log, batch(log, **OVERWRITE), winner(compacted)) == []
    assert found(log, batch(log), winner(removed)) == []


@pytest.mark.parametrize(
    ("actions", "blind", "appended"),
    [
        pytest.param([{"add": file("2019-01", "a")}, {"add": file("2019-01", "b")}], True, ("a", "b"), id="append"),
        pytest.param([{"add": file("2019-01")}], False, (), id="not blind"),
        pytest.param([{"add": file("2019-01")}, {"remove": file("2019-01", "b")}], True, (), id="removes too"),
    ],
)
def test_only_a_blind_append_can_be_kept_beside_an_overwrite(
    log: DeltaLog, actions: list[dict[str, Any]], blind: bool, appended: tuple[str, ...]
) -> None:
    (conflict,) = found(log, batch(log, **OVERWRITE), winner(*actions, isBlindAppend=blind))
    assert (conflict.effect is Effect.APPENDED, conflict.appended) == (bool(appended), appended)


def test_a_replace_where_of_ours_that_found_no_file_conflicts_with_what_lies_in_its_range(log: DeltaLog) -> None:
    staged = {"format": FORMAT, "writers": [], "replaces": ["month >= '2019-01' AND month < '2019-03'"]}
    assert where(found(log, batch(log, **OVERWRITE), winner(staged=staged))) == [("2019-01",)]
    elsewhere = {"format": FORMAT, "writers": [], "replaces": ["month = '2019-02'"]}
    assert found(log, batch(log, **OVERWRITE), winner(staged=elsewhere)) == []


def with_month_renamed(snapshot: Snapshot) -> Snapshot:
    schema = json.loads(snapshot.metadata["schemaString"])
    schema["fields"][1] |= {"name": "period", "metadata": {"delta.columnMapping.physicalName": "month"}}
    changed: Any = {
        "schemaString": json.dumps(schema),
        "partitionColumns": ["period"],
        "configuration": {"delta.columnMapping.mode": "name"},
    }
    return attrs.evolve(snapshot, metadata={**snapshot.metadata, **changed})


def test_a_winners_range_is_read_by_the_names_that_columns_had_then(log: DeltaLog) -> None:
    loser, snapshot = batch(log, **OVERWRITE), newest(log)
    renamed = with_month_renamed(snapshot)
    staged = {"format": FORMAT, "writers": [], "replaces": ["month = '2019-01'"]}
    before = winner(staged=staged, operationParameters={"partitionBy": '["month"]'})
    assert where(KnownConflicts().find(loser, [before], renamed)) == [("2019-01",)]


# What Delta says of an overwrite by a predicate, and of its own recipe for a compaction.
FOREIGN = {"mode": "Overwrite", "partitionBy": '["month"]'}


@pytest.mark.parametrize("terms", [OVERWRITE, WHERE, {"mode": OverwritePartitions()}])
def test_an_overwrite_that_changes_no_rows_has_replaced_nothing(log: DeltaLog, terms: Any) -> None:
    moved = [{"remove": file("2019-02", "a", dataChange=False)}, {"add": file("2019-02", "b", dataChange=False)}]
    # An overwrite that says that it was not dynamic would have replaced all.
    for parameters in (FOREIGN, {**FOREIGN, "isDynamicPartitionOverwrite": "false"}):
        compacted = winner(*moved, operationParameters=parameters)
        assert found(log, batch(log, **terms), compacted) == []
        assert not replaced_all(compacted, ["month = '2019-01'"], newest(log).partitioning)
    # One that has no files may have replaced nothing by nothing.
    assert where(found(log, batch(log, **terms), winner(operationParameters=FOREIGN))) == [("2019-01",)]


@pytest.mark.parametrize(
    ("predicate", "effect"),
    [
        ("month >= '2019-01-03'", None),
        ("month >= '2018-12-30'", Effect.REPLACED),
        # Midnight of New York is 05:00, and of Berlin 23:00 the day before, by UTC.
        ("month >= '2019-01-01'", Effect.CHANGED),
        ("month >= DATE '2019-01-02'", None),
        ("month = TIMESTAMP '2019-01-01 02:00:00'", Effect.CHANGED),
        ("month IS NOT NULL", Effect.REPLACED),
    ],
)
def test_a_foreign_predicate_on_instants_may_be_of_any_time_zone(
    tmp_path: Path, predicate: str, effect: Effect | None
) -> None:
    log = make_table(tmp_path / "instants", SCHEMA.replace('"name": "month", "type": "string"', INSTANTS))
    buffer = stage(log, writer_spec(mode=OverwritePartitions()), {"2019-01-01T02:00:00.000000Z": [1]})
    replaced = winner(operationParameters={**FOREIGN, "predicate": predicate})
    conflicts = found(log, place([buffer], newest(log)), replaced)
    assert [conflict.effect for conflict in conflicts] == ([] if effect is None else [effect])


def test_nobody_knows_what_a_foreign_predicate_names_where_columns_may_have_been_renamed_since(log: DeltaLog) -> None:
    loser, snapshot = batch(log, mode=OverwritePartitions()), newest(log)
    renamed = with_month_renamed(snapshot)
    replaced = winner(operationParameters={**FOREIGN, "predicate": "month IN ('2019-01', '2019-02')"})
    alter = Commit(8, [{"metaData": renamed.metadata}])
    conflicts = KnownConflicts().find(loser, [replaced, alter], renamed)
    assert [conflict.effect for conflict in conflicts] == [Effect.CHANGED]
    conflicts = KnownConflicts().find(loser, [replaced], snapshot)
    assert [conflict.effect for conflict in conflicts] == [Effect.REPLACED]


@pytest.mark.parametrize(
    "said",
    [
        pytest.param({"operation": "DELETE", "operationParameters": {"predicate": "month = '2019-02'"}}, id="DELETE"),
        pytest.param(
            {"operationParameters": {**FOREIGN, "predicate": "id = 2", "isDynamicPartitionOverwrite": "true"}},
            id="dynamic",
        ),
    ],
)
def test_what_replaces_no_more_than_it_touches_does_so_under_any_names_of_columns(log: DeltaLog, said: Any) -> None:
    loser, snapshot = batch(log, mode=OverwritePartitions()), newest(log)
    elsewhere = winner({"remove": file("2019-02", "a")}, **said)
    renamed = with_month_renamed(snapshot)
    assert KnownConflicts().find(loser, [elsewhere, Commit(8, [{"metaData": renamed.metadata}])], renamed) == []


@pytest.mark.parametrize("operation", ["TRUNCATE", "CREATE OR REPLACE TABLE", "REPLACE TABLE AS SELECT", "CLONE"])
def test_a_winner_that_left_nothing_of_the_table_replaced_every_partition(log: DeltaLog, operation: str) -> None:
    """After a CREATE OR REPLACE, a RESTORE may have brought back the definition that the buffers were staged for."""
    (conflict,) = found(log, batch(log, **OVERWRITE), winner(operation=operation))
    assert (conflict.partition, conflict.effect) == (("2019-01",), Effect.REPLACED)


def test_winners_are_compared_by_typed_value(log: DeltaLog) -> None:
    nowhere = place([stage(log, writer_spec(**OVERWRITE), {None: [1]})], newest(log))
    assert where(found(log, nowhere, winner({"add": file("")}))) == [(None,)]


def test_a_winner_with_an_ambiguous_spelling_is_refused(log: DeltaLog) -> None:
    loser = batch(log, **OVERWRITE)
    snapshot = newest(log)
    schema = snapshot.metadata["schemaString"].replace(
        '"name":"month","type":"string"', '"name":"month","type":"timestamp"'
    )
    changed = attrs.evolve(snapshot, metadata={**snapshot.metadata, "schemaString": schema})
    assert changed.partitioning.types == {"month": "timestamp"}
    with pytest.raises(InvalidWriteError, match="without a time zone"):
        KnownConflicts().find(loser, [winner({"add": file("2019-01-01 00:00:00")})], changed)


# -- when a winner's work was done ---------------------------------------------------------------------------------


def test_a_winner_of_ours_counts_when_its_last_buffer_finished(log: DeltaLog) -> None:
    record = {"writer": "w", "generation": 1, "buffer": "b", "rows": 1, "fingerprint": ""}
    times = {"x": FINISHED, "y": FINISHED.replace(hour=1)}
    writers = [{**record, "app_id": app_id, "finished": at.isoformat()} for app_id, at in times.items()]
    ours = winner({"add": file("2019-01")}, staged={"format": FORMAT, "writers": writers}, timestamp=1_600_000_000_000)
    (conflict,) = found(log, batch(log, **OVERWRITE), ours)
    assert conflict.finished == (FINISHED.replace(hour=1), "y")
    assert conflict.winner.author == "w, w"


def test_a_foreign_winner_counts_at_its_commit(log: DeltaLog) -> None:
    (conflict,) = found(log, batch(log, **OVERWRITE), winner({"add": file("2019-01")}, timestamp=1_546_300_800_000))
    assert conflict.finished == (FINISHED, "")
    assert conflict.winner.author == "WRITE"
    assert conflict.describe(newest(log).partitioning) == "version 7 (WRITE) changed month=2019-01"


def test_a_winner_that_says_nothing_finished_nobody_knows_when(log: DeltaLog) -> None:
    (conflict,) = found(log, batch(log, **OVERWRITE), Commit(7, [{"add": file("2019-01")}]))
    assert conflict.finished is None
    assert conflict.winner.author == "an unknown writer"


# -- whose rows a file holds ---------------------------------------------------------------------------------------


def test_files_are_told_apart_by_looking_at_each_action_once() -> None:
    looked_at: list[str | None] = []

    def read(values: Mapping[str, str | None]) -> Partition:
        looked_at.append(values["month"])
        return (values["month"],)

    files = 200
    later = winner(*({"add": file("2019-01", f"new {n}")} for n in range(files)))
    moves = [{"remove": file("2019-01", f"new {n}", dataChange=False)} for n in range(files)]
    moves += [{"add": file("2019-01", f"moved {n}", dataChange=False)} for n in range(files)]
    new, mixed = origins({7}, set(), [later, Commit(8, moves)], read)
    assert (len(new), mixed) == (2 * files, set())
    assert len(looked_at) == 3 * files
