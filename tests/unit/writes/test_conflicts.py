"""Which commits of others a batch is in conflict with, and whether they replaced what was there."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import attrs
import pytest

from airflow_provider_onelake.exceptions import InvalidWriteError
from airflow_provider_onelake.log.commits import FORMAT, Commit
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.log.snapshot import Snapshot
from airflow_provider_onelake.modes import Overwrite, ReplaceWhere
from airflow_provider_onelake.writes.batch import Batch, place
from airflow_provider_onelake.writes.conflicts import Conflict, conflicts_of
from tests.support.tables import OVERWRITE, SCHEMA, make_table, newest, stage, writer_spec
from tests.support.winners import file, winner

INSTANTS = '"name": "month", "type": "timestamp"'
WHERE = {"mode": ReplaceWhere("month = '2019-01'")}
JANUARY = ("2019-01",)
# What an overwrite of another engine says. Many engines do not say whether it was dynamic.
FOREIGN = {"mode": "Overwrite", "partitionBy": '["month"]'}
ADDED, REMOVED = {"add": file("2019-01", "new")}, {"remove": file("2019-01")}
ELSEWHERE = {"add": file("2019-02")}


def batch(log: DeltaLog, month: str | None = "2019-01", **terms: Any) -> Batch:
    return place([stage(log, writer_spec(**{"fingerprint": "", **terms}), {month: [1]})], newest(log))


def found(log: DeltaLog, loser: Batch, *winners: Commit) -> list[Conflict]:
    return conflicts_of(loser, winners, newest(log).partitioning)


def where(conflicts: Iterable[Conflict]) -> list[Any]:
    return [conflict.partition for conflict in conflicts]


def replaced_there(conflict: Conflict) -> bool:
    return conflict.partition is not None and conflict.range(conflict.partition) is True


def ours(*actions: dict[str, Any], mode: str = "replace_where", **staged: Any) -> Commit:
    return winner(*actions, staged={"format": FORMAT, "writers": [], "mode": mode, **staged})


@pytest.mark.parametrize("terms", [OVERWRITE, WHERE, {"mode": Overwrite()}])
@pytest.mark.parametrize(
    ("actions", "partitions"),
    [
        pytest.param([ADDED], [JANUARY], id="added here"),
        pytest.param([REMOVED], [JANUARY], id="removed here"),
        pytest.param([REMOVED, ADDED], [JANUARY], id="replaced here"),
        pytest.param([ELSEWHERE, {"remove": file(None)}], [], id="elsewhere"),
        pytest.param([ELSEWHERE, ADDED], [JANUARY], id="here and elsewhere"),
        pytest.param([{"add": file("2019-01", dataChange=False)}], [], id="compacted here"),
        pytest.param([{"remove": file("2019-01", dataChange=False)}, ELSEWHERE], [], id="moved here, added elsewhere"),
        pytest.param([], [], id="nothing"),
    ],
)
def test_what_conflicts(log: DeltaLog, terms: Any, actions: list[dict[str, Any]], partitions: list[Any]) -> None:
    conflicts = found(log, batch(log, **terms), winner(*actions))
    if terms == {"mode": Overwrite()}:
        # It replaces every partition.
        assert bool(conflicts) == any(file.get("dataChange") for action in actions for file in action.values())
        return
    assert where(conflicts) == partitions
    assert not any(replaced_there(conflict) for conflict in conflicts)
    assert found(log, batch(log, fingerprint="append"), winner(*actions)) == []


def test_every_winner_is_judged_and_says_what_it_did(log: DeltaLog) -> None:
    added = winner({"add": file("2019-01", stats='{"numRecords": 3}')})
    rewritten = winner({"add": file("2019-01", stats='{"numRecords": 3}')}, operation="UPDATE")
    conflicts = found(log, batch(log, **OVERWRITE), added, Commit(8, [REMOVED]), rewritten)
    assert [conflict.describe(newest(log).partitioning) for conflict in conflicts] == [
        "version 7 (WRITE) put 3 rows into month=2019-01",
        "version 8 (an unknown writer) changed rows in month=2019-01",
        "version 7 (UPDATE) changed rows in month=2019-01",
    ]


def test_a_winner_that_does_not_say_where_it_removed_may_have_done_so_anywhere(log: DeltaLog) -> None:
    removed = {"remove": {"path": "a", "dataChange": True, "deletionTimestamp": 1}}
    half = [removed, {"remove": file("2019-02", "b")}]
    for actions in ([removed], half, half[::-1]):
        (conflict,) = found(log, batch(log, **OVERWRITE), winner(*actions))
        assert (conflict.partition, replaced_there(conflict)) == (None, False)
    assert "a partition that it does not name" in conflict.describe(newest(log).partitioning)
    moved = {"remove": {"path": "a", "dataChange": False, "deletionTimestamp": 1}}
    assert found(log, batch(log, **OVERWRITE), winner(moved)) == []
    assert found(log, batch(log), winner(removed)) == []


@pytest.mark.parametrize(
    ("theirs", "replaced"),
    [
        pytest.param(winner(ELSEWHERE), "no conflict", id="append elsewhere"),
        pytest.param(winner(ADDED, isBlindAppend=False), False, id="insert"),
        pytest.param(winner(REMOVED, operation="DELETE"), False, id="delete"),
        pytest.param(winner(ELSEWHERE, operationParameters=FOREIGN), None, id="does not say"),
        pytest.param(winner(ADDED, operationParameters=FOREIGN), True, id="does not say, with files here"),
        pytest.param(winner(REMOVED, ELSEWHERE, operationParameters=FOREIGN), None, id="does not say, removed here"),
        *(
            pytest.param(winner(*actions, operationParameters={**FOREIGN, **said}), replaced, id=f"{said} {replaced}")
            for said, actions, replaced in (
                ({"isDynamicPartitionOverwrite": "false"}, [ELSEWHERE], True),
                ({"isDynamicPartitionOverwrite": "true"}, [ADDED], True),
                ({"isDynamicPartitionOverwrite": "true"}, [ELSEWHERE], "no conflict"),
                ({"predicate": "month >= '2019-01'"}, [ELSEWHERE], True),
                ({"predicate": "month = '2019-02'"}, [ELSEWHERE], "no conflict"),
                ({"predicate": "month LIKE '2019%'"}, [ELSEWHERE], None),
                ({"predicate": "not SQL ?"}, [ELSEWHERE], None),
                # It keeps the rows outside of its predicate in each partition.
                ({"predicate": "id > 1"}, [ELSEWHERE], "no conflict"),
                ({"predicate": "id > 1"}, [REMOVED, ADDED], False),
            )
        ),
        *(
            pytest.param(winner(ELSEWHERE, operation=operation), True, id=operation)
            for operation in ("TRUNCATE", "CREATE OR REPLACE TABLE", "REPLACE TABLE AS SELECT", "CLONE")
        ),
        pytest.param(ours(ADDED, mode="overwrite_partitions"), True, id="ours, its partitions"),
        pytest.param(ours(ELSEWHERE, mode="overwrite", replaces=["true"]), True, id="ours, the table"),
        pytest.param(ours(ELSEWHERE, replaces=["month < '2019-03'"]), True, id="ours, by predicate"),
        pytest.param(ours(ELSEWHERE, replaces=["month = '2019-02'"]), "no conflict", id="ours, another predicate"),
        pytest.param(ours(REMOVED, ADDED, mode="append"), False, id="ours, took back what it had appended"),
        pytest.param(ours(ELSEWHERE, mode="of a later release", replaces=["true"]), True, id="a later release"),
        # Odd records are no errors.
        pytest.param(ours(ELSEWHERE, replaces=["day = '01'"]), "no conflict", id="other columns"),
        pytest.param(ours(ADDED, replaces=["day = '01'"]), False, id="other columns, here"),
        pytest.param(ours(ELSEWHERE, replaces="month"), "no conflict", id="no list"),
        # Whatever they say that they replaced, they changed no rows.
        pytest.param(winner(operationParameters=FOREIGN), "no conflict", id="without files"),
        pytest.param(
            winner({"add": file("2019-01", dataChange=False)}, operation="TRUNCATE"), "no conflict", id="only moves"
        ),
        pytest.param(ours(replaces=["true"]), "no conflict", id="ours, without files"),
    ],
)
def test_a_winner_replaced_what_it_says_and_where_it_does_not_say_it_may_have_changed_rows(
    log: DeltaLog, theirs: Commit, replaced: bool | str | None
) -> None:
    """Here the batch has rows, and the winner need not have any. What is not known counts as changed, not replaced."""
    for terms in (OVERWRITE, WHERE):
        conflicts = [c for c in found(log, batch(log, **terms), theirs) if c.partition == JANUARY]
        assert [replaced_there(c) for c in conflicts] == ([] if replaced == "no conflict" else [replaced is True])


def test_an_overwrite_of_a_table_without_partitions_replaced_all(tmp_path: Path) -> None:
    log = make_table(tmp_path / "flat", partition_by=())
    loser = place([stage(log, writer_spec(mode=Overwrite()), {None: [1]})], newest(log))
    theirs = winner({"add": {**file(None), "partitionValues": {}}}, operationParameters={"mode": "Overwrite"})
    assert [replaced_there(c) for c in found(log, loser, theirs)] == [True]


@pytest.mark.parametrize("predicate", ["month >= '2018-12-30'", "month >= '2019-01-03'", "month IS NOT NULL"])
def test_of_which_time_zone_a_foreign_predicate_is_nobody_knows(tmp_path: Path, predicate: str) -> None:
    log = make_table(tmp_path / "instants", SCHEMA.replace('"name": "month", "type": "string"', INSTANTS))
    theirs = winner({"add": file("2000-01-01T00:00:00Z")}, operationParameters={**FOREIGN, "predicate": predicate})
    conflicts = found(log, batch(log, "2019-01-01T02:00:00.000000Z", **OVERWRITE), theirs)
    assert [replaced_there(conflict) for conflict in conflicts] == [False]


def with_month_renamed(snapshot: Snapshot) -> Snapshot:
    schema = json.loads(snapshot.metadata["schemaString"])
    schema["fields"][1] |= {"name": "period", "metadata": {"delta.columnMapping.physicalName": "month"}}
    changed: Any = {"schemaString": json.dumps(schema), "partitionColumns": ["period"]}
    changed["configuration"] = {"delta.columnMapping.mode": "name"}
    return attrs.evolve(snapshot, metadata={**snapshot.metadata, **changed})


BOTH = "month IN ('2019-01', '2019-02')"


@pytest.mark.parametrize(
    ("theirs", "replaced"),
    [
        (ours(ELSEWHERE, replaces=[BOTH]), [True]),
        (winner(ELSEWHERE, operationParameters={**FOREIGN, "predicate": BOTH}), [False]),
        (winner(ELSEWHERE, operation="DELETE", operationParameters={"predicate": "month = '2019-02'"}), []),
        (winner(ELSEWHERE, operationParameters={**FOREIGN, "isDynamicPartitionOverwrite": "true"}), []),
    ],
    ids=["ours has the names of then", "of another engine nobody knows", "touched", "dynamic"],
)
def test_over_renamed_columns_our_own_predicates_are_known(log: DeltaLog, theirs: Commit, replaced: list[bool]) -> None:
    loser, renamed = batch(log, **OVERWRITE), with_month_renamed(newest(log))
    theirs.info.setdefault("operationParameters", FOREIGN)
    conflicts = conflicts_of(loser, [theirs, Commit(8, [{"metaData": renamed.metadata}])], renamed.partitioning)
    assert [replaced_there(conflict) for conflict in conflicts] == replaced


def test_winners_are_compared_by_typed_value(log: DeltaLog) -> None:
    assert where(found(log, batch(log, None, **OVERWRITE), winner({"add": file("")}))) == [(None,)]


def test_a_winner_with_an_ambiguous_spelling_is_refused(tmp_path: Path) -> None:
    log = make_table(tmp_path / "instants", SCHEMA.replace('"name": "month", "type": "string"', INSTANTS))
    loser = batch(log, "2019-01-01T02:00:00.000000Z", **OVERWRITE)
    with pytest.raises(InvalidWriteError, match="without a time zone"):
        found(log, loser, winner({"add": file("2019-01-01 00:00:00")}))


def test_a_winner_of_ours_finished_when_its_last_buffer_did_and_any_other_when_it_landed(log: DeltaLog) -> None:
    loser, noon = batch(log, **OVERWRITE), datetime(2019, 1, 1, 12, tzinfo=UTC)
    loser = Batch((attrs.evolve(loser.placed[0], buffer=attrs.evolve(loser.buffers[0], finished=noon)),))

    def is_earlier(landed: int | None, *finished: int) -> bool:
        record = {"app_id": "x", "writer": "w", "generation": 1, "buffer": "b", "rows": 1, "fingerprint": ""}
        writers = [{**record, "finished": noon.replace(hour=hour).isoformat()} for hour in finished]
        # What an engine says of the time does not count where the store knows better.
        info = {"timestamp": 1, "staged": {"format": FORMAT, "writers": writers}} if landed else {}
        modified = noon.replace(hour=landed) if landed else None
        winner = Commit(7, [{"commitInfo": info}], modified=modified)
        return Conflict(JANUARY, winner, lambda _: False).finished_before(loser)

    assert [is_earlier(15, 10, 11), is_earlier(15, 10, 13), is_earlier(11, 13)] == [True, False, False]
    assert [is_earlier(11), is_earlier(13), is_earlier(None)] == [True, False, False]
