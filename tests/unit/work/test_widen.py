"""Columns get the wider types that rows bring, by a commit of its own: where the table allows it, once, or not at all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_onelake.commit.publish import Committer
from airflow_provider_onelake.commit.transaction import Transactions
from airflow_provider_onelake.exceptions import SchemaMismatchError
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.log.snapshot import Snapshot
from airflow_provider_onelake.spark_jobs.columns import fit
from airflow_provider_onelake.work.widen import check_widening, widen
from tests.support.stores import Counted, LoserHeld, through
from tests.support.tables import change_metadata, foreign_commit, local_log, make_table, stage, writer_spec

ALLOWED = {"delta.enableTypeWidening": "true"}
BY = ("month",)


def struct(**columns: str) -> str:
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in columns.items()]
    return json.dumps({"type": "struct", "fields": fields})


NARROW = struct(id="integer", month="string", f="float", d="decimal(10,2)")


@pytest.fixture
def log(tmp_path: Path) -> DeltaLog:
    return make_table(tmp_path / "t", NARROW, BY, **ALLOWED)


def rows(**columns: str) -> str:
    return struct(**({"id": "integer", "month": "string", "f": "float", "d": "decimal(10,2)"} | columns))


def widened(transactions: Transactions, rows_schema_json: str) -> Snapshot:
    """Widen as a writer does, which asks what Spark casts."""
    name = transactions.log.table
    return widen(
        transactions,
        rows_schema_json,
        lambda rows, table, by: fit(rows, table, name, missing_as_null=True, partition_columns=by),
        told="of the load",
    )


def types(snapshot: Snapshot) -> dict[str, Any]:
    return {field["name"]: field["type"] for field in json.loads(snapshot.metadata["schemaString"])["fields"]}


def test_numbers_get_the_wider_type_of_the_rows_in_one_commit(log: DeltaLog) -> None:
    snapshot = widened(Transactions(log), rows(id="long", f="double", d="decimal(14,4)"))
    assert snapshot.version == 1
    assert types(snapshot) == {"id": "long", "month": "string", "f": "double", "d": "decimal(14,4)"}
    # As Delta's own ALTER TABLE records it, so that readers know of which type older files are.
    (field, *_) = json.loads(snapshot.metadata["schemaString"])["fields"]
    assert field["metadata"] == {"delta.typeChanges": [{"toType": "long", "fromType": "integer"}]}
    (commit,) = log.commits_since(0)
    assert (commit.operation, commit.info["userMetadata"]) == ("CHANGE COLUMNS", "of the load")


def test_where_no_type_is_wider_nothing_is_committed(log: DeltaLog) -> None:
    assert widened(Transactions(log), rows()).version == 0
    assert widened(Transactions(log), rows(id="short", d="decimal(8,2)", more="long")).version == 0


def test_names_are_compared_as_spark_does(tmp_path: Path) -> None:
    log = make_table(tmp_path / "t", struct(ID="integer", **{"a.b": "byte"}, m="string"), ("m",), **ALLOWED)
    snapshot = widened(Transactions(log), struct(id="long", **{"A.B": "short"}, m="string"))
    assert types(snapshot) == {"ID": "long", "a.b": "short", "m": "string"}


@pytest.mark.parametrize("kind", ["double", "decimal(12,2)", "string", "timestamp"])
def test_a_column_does_not_become_another_kind_of_number_by_itself(log: DeltaLog, kind: str) -> None:
    # An inferred schema has DOUBLE where a single file holds 1.0.
    assert widened(Transactions(log), rows(id=kind)).version == 0


def test_a_table_without_type_widening_is_not_changed_and_named(tmp_path: Path) -> None:
    log = make_table(tmp_path / "t", NARROW, BY)
    needs = r"does not allow that types are widened, and the rows need it: id from INT to BIGINT.*OneLakeAlterOperator"
    with pytest.raises(SchemaMismatchError, match=needs):
        check_widening(rows(id="long"), log.snapshot(), log.table)
    with pytest.raises(SchemaMismatchError, match=needs):
        widened(Transactions(log), rows(id="long"))
    # Rows that do not need it are taken.
    assert widened(Transactions(log), rows()).version == 0


@pytest.mark.parametrize(
    ("by", "more", "message"),
    [
        pytest.param(("id",), {}, "id is a partition column", id="partition column"),
        pytest.param(BY, {"delta.constraints.some": "id > 0"}, r"CHECK some \(id > 0\) names it", id="CHECK"),
        pytest.param(BY, {"delta.enableIcebergCompatV2": "true"}, "compatible with Iceberg", id="Iceberg"),
    ],
)
def test_what_an_alter_refuses(tmp_path: Path, by: tuple[str, ...], more: dict[str, str], message: str) -> None:
    log = make_table(tmp_path / "t", NARROW, by)
    # Some properties are set up by Spark alone when a table is made.
    change_metadata(log, configuration=ALLOWED | more)
    with pytest.raises(SchemaMismatchError, match=rf"id from INT to BIGINT.*{message}.*cast the columns in a step"):
        widened(Transactions(log), rows(id="long"))
    assert log.snapshot().version == 1


def test_rows_that_do_not_fit_otherwise_widen_nothing(log: DeltaLog) -> None:
    with pytest.raises(SchemaMismatchError, match=r"column f is STRING in the rows.*No type was widened"):
        widened(Transactions(log), rows(id="long", f="string"))
    assert log.snapshot().version == 0


def _other_commit(log: DeltaLog) -> None:
    foreign_commit(local_log(Path(log.table)), [{"commitInfo": {"timestamp": 1, "operation": "OTHER"}}])


def test_two_writers_that_widen_one_column_make_one_commit(log: DeltaLog) -> None:
    held = LoserHeld(log.store, lambda: widened(Transactions(through(log.store, log)), rows(id="long")))
    snapshot = widened(Transactions(through(held, log)), rows(id="long"))
    assert (snapshot.version, types(snapshot)["id"]) == (1, "long")


def test_two_writers_that_widen_two_columns_are_both_done(log: DeltaLog) -> None:
    held = LoserHeld(log.store, lambda: widened(Transactions(through(log.store, log)), rows(f="double")))
    snapshot = widened(Transactions(through(held, log)), rows(id="long"))
    assert (snapshot.version, types(snapshot)["id"], types(snapshot)["f"]) == (2, "long", "double")


def test_a_type_that_somebody_narrows_right_after_the_put_is_widened_again(log: DeltaLog) -> None:
    before = log.snapshot().metadata["schemaString"]
    narrowed: list[int] = []

    def narrow(_: Snapshot, version: int) -> None:
        if not narrowed:
            narrowed.append(version)
            change_metadata(log, schemaString=before)

    snapshot = widened(Transactions(log, after_commit=narrow), rows(id="long"))
    assert (narrowed, snapshot.version, types(snapshot)["id"]) == ([1], 3, "long")


def test_a_buffer_that_was_staged_before_is_published_after(log: DeltaLog) -> None:
    buffer = stage(log, writer_spec(), {"2019-01": [1, 2]})
    widened(Transactions(log), rows(id="long"))
    assert Committer(log).publish([buffer]).version == 2


def test_a_writer_that_finds_the_type_puts_nothing(log: DeltaLog) -> None:
    widened(Transactions(log), rows(id="long"))
    counted = Counted(log.store)
    assert widened(Transactions(through(counted, log)), rows(id="long")).version == 1
    assert counted.puts == []
