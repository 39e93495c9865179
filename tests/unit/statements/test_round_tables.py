"""Rounds of a statement: what stands in a shadow, what is read from it, and what is refused."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from airflow_provider_onelake.buffers.shadow import Shadow
from airflow_provider_onelake.exceptions import BufferInvalidError, BufferLostError
from airflow_provider_onelake.log.actions import dump_actions, of_kind, parse_actions, version_path
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.spark.base import ChangeJob
from airflow_provider_onelake.statements.round_tables import (
    Ran,
    files_of_round,
    may_move_rows,
    open_round,
    read_round,
)
from tests.support.changes import ChangeByHand, three_files
from tests.support.tables import SCHEMA, change_metadata, make_table, newest

SETS = {"id": "id + 1000"}


@pytest.fixture
def log(tmp_path: Path) -> DeltaLog:
    return three_files(tmp_path / "a lake" / "t")


def opened(log: DeltaLog) -> Shadow:
    snapshot = newest(log)
    files = log.live_files(lambda add: True, snapshot.version)
    attempt = str(uuid.uuid4())
    return open_round(log, snapshot, files, f"file://{log.table}", "staged/change-x", attempt, {"name": "me"})


def test_the_checksum_of_a_shadow_counts_its_files(log: DeltaLog) -> None:
    """Delta believes it; beside Delta's own: tests/integration/spark/test_stage.py."""
    one = opened(log)
    said = json.loads(Path(log.table, one.path, version_path(0)).with_suffix(".crc").read_text())
    inputs = list(one.inputs.values())
    assert (said["numFiles"], said["tableSizeBytes"]) == (len(inputs), sum(int(add["size"]) for add in inputs))
    assert said["metadata"]["id"] == one.attempt
    assert len(inputs) > 1
    assert "allFiles" not in said


def ran(log: DeltaLog, *, vectors: bool = False, update: bool = True, moves: bool = False, **change: Any) -> Ran:
    """What is read from a round that was done by hand; ``spoil`` changes its version 1 first."""
    one = opened(log)
    uri = f"file://{log.table}/{one.path}"
    job = ChangeJob(table_uri=log.table, attempt="a", shadow_uri=uri, where="x", assignments=SETS if update else {})
    ChangeByHand(vectors).change(job)
    if spoil := change.get("spoil"):
        entry = Path(log.table, one.path, version_path(1))
        entry.write_bytes(dump_actions(spoil(parse_actions(entry.read_bytes(), "round"))))
    return read_round(log.store, one, keeps_rows=update, moves_rows=moves)


def test_a_round_names_the_tables_files_by_addresses_that_delta_matches(log: DeltaLog) -> None:
    one = opened(log)
    actions = parse_actions(log.store.get(f"{one.path}/{version_path(0)}"), "round")
    # With three slashes, a statement that writes deletion vectors fails in Spark.
    assert all(add["path"].startswith(f"file:{quote(log.table)}/") for add in of_kind(actions, "add"))
    live = {file["path"] for file in log.live_files(lambda add: True, newest(log).version)}
    assert files_of_round(log.store, one.path) == live
    assert files_of_round(log.store, "staged/change-x/none") == set()


def test_what_spark_wrote_falls_into_partitions_and_vectors_alone_into_files(log: DeltaLog) -> None:
    assert [len(piece.removed) for piece in ran(log).pieces] == [2, 1]
    assert [len(piece.removed) for piece in ran(log, moves=True).pieces] == [3]
    deleted = ran(log, vectors=True, update=False).pieces
    assert [(len(piece.removed), len(piece.again), piece.rows_gone) for piece in deleted] == [(1, 1, 1)] * 3
    (home,) = {home for piece in deleted for home in piece.vectors}
    assert "/" not in home
    updated = ran(log, vectors=True).pieces
    assert [(len(piece.removed), len(piece.again), len(piece.added)) for piece in updated] == [(2, 2, 1), (1, 1, 1)]


@pytest.mark.parametrize(
    "folds", [{"__CHAR_VARCHAR_TYPE_STRING": "char(9)"}, {"__COLLATIONS": {"month": "icu.UNICODE_CI"}}]
)
def test_a_round_is_one_piece_where_spark_may_spell_a_partition_in_another_way(log: DeltaLog, folds: Any) -> None:
    definition = json.loads(newest(log).metadata["schemaString"])
    definition["fields"][1]["metadata"] |= folds
    change_metadata(log, schemaString=json.dumps(definition))
    assert [len(piece.removed) for piece in ran(log).pieces] == [3]


def _each(actions: list[Any], kind: str, **fields: Any) -> list[Any]:
    return [{kind: {**action[kind], **fields}} if kind in action else action for action in actions]


def _one_gone(actions: list[Any]) -> list[Any]:
    return [*actions[:-1], {"add": {**actions[-1]["add"], "path": "part-0.parquet"}}]


def _new(**fields: Any) -> Callable[[list[Any]], list[Any]]:
    return lambda actions: [
        {"add": {**action["add"], **fields}}
        if not action.get("add", {"path": "file:"})["path"].startswith("file:")
        else action
        for action in actions
    ]


@pytest.mark.parametrize(
    ("spoil", "why", "terms"),
    [
        pytest.param(lambda a: [*a, {"metaData": {"id": "x", "schemaString": "{}"}}], "metaData", {}, id="metadata"),
        pytest.param(lambda a: _each(a, "remove", path="file:/else"), "none of its files", {}, id="other file"),
        pytest.param(lambda a: [*a, a[-1]], "twice", {}, id="twice"),
        pytest.param(lambda a: [x for x in a if "remove" not in x], "beside itself", {"vectors": True}, id="no remove"),
        pytest.param(_new(path="file:/else/where"), "outside", {}, id="outside"),
        pytest.param(_new(stats='{"numRecords":1}'), "rows became", {}, id="rows lost"),
        pytest.param(_new(stats='{"numRecords":9}'), "rows became", {"update": False}, id="rows more"),
        pytest.param(
            lambda a: _each(a, "add", deletionVector={"storageType": "p", "pathOrInlineDv": "x", "cardinality": 1}),
            "deletion vector",
            {"vectors": True},
            id="vector elsewhere",
        ),
        pytest.param(lambda a: _each(a, "add", baseRowId=7), "other row ids", {"vectors": True, "update": False}, id="ids"),
        pytest.param(lambda a: [{"commitInfo": 3, "x": 1}], "", {}, id="damaged"),
    ],
)  # fmt: skip
def test_what_no_delete_or_update_leaves_is_refused(
    log: DeltaLog, spoil: Callable[[Any], Any], why: str, terms: dict[str, Any]
) -> None:
    with pytest.raises(BufferInvalidError, match=f"{why}.*Nothing was published"):
        ran(log, spoil=spoil, **terms)


def test_a_file_that_is_gone_is_noticed(log: DeltaLog) -> None:
    with pytest.raises(BufferLostError, match="is gone"):
        ran(log, spoil=_one_gone)


def test_rows_may_move_where_the_partition_column_has_a_backtick_in_its_name(tmp_path: Path) -> None:
    schema = SCHEMA.replace('"month"', '"mo`nth"')
    log = make_table(tmp_path, schema, ("mo`nth",))
    assert may_move_rows(newest(log), ["`mo``nth`"])
    assert not may_move_rows(newest(log), ["id"])


def test_rows_may_move_where_a_partition_column_is_set_or_generated(log: DeltaLog) -> None:
    assert may_move_rows(newest(log), ["id", "`Month`"])
    assert not may_move_rows(newest(log), ["id"])
    # Nobody knows of what is no column.
    assert may_move_rows(newest(log), ["id", "nope"])
    assert may_move_rows(newest(log), ["`"])
    definition = json.loads(newest(log).metadata["schemaString"])
    definition["fields"][1]["metadata"]["delta.generationExpression"] = "string(id)"
    change_metadata(log, schemaString=json.dumps(definition))
    assert may_move_rows(newest(log), ["id"])
