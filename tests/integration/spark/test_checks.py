"""Checks by a real Spark: what they mean, what is refused by name before the source is read, and one query for all."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import attrs
import pytest

from airflow_provider_onelake.buffers.verdict import Verdict
from airflow_provider_onelake.exceptions import InvalidWriteError, SparkQueryError
from airflow_provider_onelake.spark.base import AuditJob
from airflow_provider_onelake.spark.connect import ConnectEngine
from tests.support.schemas import field
from tests.support.shadows import write_checksum
from tests.support.spark import Server, Target, generated, sql_job
from tests.support.tables import local_log

MakeTarget = Callable[..., Target]

FIELDS = [field("id", "long"), field("fare", "double"), generated("tens", "long", "id DIV 10")]
ROWS = "SELECT id, IF(id = 7, NULL, id - 3D) AS fare FROM range(20)"
CHECKS = {
    "fares of rows": "fare >= 0",
    "fares of all": "count_if(fare < 0) = 0 -- as people write it",
    "unique": "count(*) = count(DISTINCT id)",
    "some": "count(*) > 0",
    "generated": "tens IN (0, 1)",
    "of no rows": "max(fare) FILTER (WHERE id > 99) < 1",
    "a constant": "1 = 1",
    "`quoted` \"name'": "avg(fare) BETWEEN 0 AND 100",
}


def passed(found: dict[str, Any], checks: dict[str, str] = CHECKS) -> dict[str, Any]:
    verdict = Verdict.of(checks, found)
    assert verdict is not None
    return {check.name: check.failed if check.each_row else check.met for check in verdict.results}


def test_checks_are_evaluated_over_the_staged_rows_by_one_query(
    engine: ConnectEngine, new_target: MakeTarget, connect_server: Server
) -> None:
    target = new_target(FIELDS, ["tens"])
    write_checksum(local_log(target.path).store, str(target.buffer.relative_to(target.path)))
    job = sql_job(target, ROWS, checks=CHECKS)
    staged = engine.stage(job).checks[""]
    assert staged["rows"] == 20
    # NULL is not true, so that row 7 fails beside the three with a negative fare.
    assert passed(dict(staged)) == {
        "fares of rows": 4,
        "fares of all": False,
        "unique": True,
        "some": True,
        "generated": 0,
        "of no rows": None,
        "a constant": 0,
        "`quoted` \"name'": True,
    }
    # A zombie's later version is not read, and nothing is read of the source: the rows are evaluated again elsewhere.
    engine.stage(attrs.evolve(sql_job(target, "SELECT -1L AS id, -1D AS fare"), attempt=job.attempt))
    again = engine.audit(
        AuditJob(
            table_uri=job.table_uri,
            buffer_uri=str(target.buffer),
            metadata=job.metadata or {},
            checks=CHECKS,
            attempt="again-" + str(uuid.uuid4()),
        )
    )
    assert again.checks == {"": staged}
    # Checks of the number of rows need no more than that number.
    counted = AuditJob(
        table_uri=job.table_uri,
        buffer_uri=str(target.buffer),
        metadata=job.metadata or {},
        checks={},
        attempt="count-" + str(uuid.uuid4()),
    )
    assert engine.audit(counted).checks == {"": {"rows": 20, "results": {}}}


def test_of_no_rows_each_row_passes_and_an_aggregate_is_what_spark_says(
    engine: ConnectEngine, new_target: MakeTarget
) -> None:
    checks = {"each": "id > 5", "some": "count(*) > 0", "max": "max(id) > 0"}
    found = engine.stage(sql_job(new_target([field("id", "long")]), "SELECT id FROM range(0)", checks=checks)).checks
    assert passed(dict(found[""]), checks) == {"each": 0, "some": False, "max": None}


def test_a_shared_scan_is_checked_writer_by_writer(engine: ConnectEngine, new_target: MakeTarget) -> None:
    target = new_target([field("id", "long"), field("onelake_writer", "string")], ["onelake_writer"])
    metadata = {**target.actions("metaData", 0)[0]}
    plain = new_target([field("id", "long")]).actions("metaData", 0)[0]["schemaString"]
    checks = {"even": "id % 2 = 0", "some": "count(*) > 2", "max": "max(id) > 3"}
    routes = {"a-1": "id % 2 = 0", "b-2": "id = 3", "c-3": "id = 99"}
    job = sql_job(target, "SELECT id FROM range(7)", where="id % 2 = 0 OR id = 3 OR id = 99", checks=checks)
    found = engine.stage(attrs.evolve(job, routes=routes, metadata={**metadata, "schemaString": plain})).checks
    assert {writer: (entry["rows"], passed(dict(entry), checks)) for writer, entry in found.items()} == {
        "a-1": (4, {"even": 0, "some": True, "max": True}),
        "b-2": (1, {"even": 1, "some": False, "max": False}),
        "": (0, {"even": 0, "some": False, "max": None}),
    }


@pytest.mark.parametrize(
    ("check", "says"),
    [
        pytest.param("fare >", r"PARSE_SYNTAX_ERROR", id="syntax"),
        pytest.param("fair >= 0", r"UNRESOLVED_COLUMN.*`fair`", id="column"),
        pytest.param("fare", r"of type \"DOUBLE\" is not a boolean", id="no-condition"),
        pytest.param(
            "count(*)", r"DATATYPE_MISMATCH|of the type bigint: it must be a condition", id="no-condition-of-all"
        ),
        pytest.param("max(fare) > fare", r"MISSING_GROUP_BY", id="a-row-beside-all"),
        pytest.param("row_number() OVER (ORDER BY id) = 1", r"WINDOW_FUNCTION", id="window"),
        pytest.param("fare >= 0) OR (1 = 1", r"PARSE_SYNTAX_ERROR", id="closes-a-bracket"),
        pytest.param("fare >= 0 AS met", r"PARSE_SYNTAX_ERROR", id="alias"),
    ],
)
def test_a_check_that_spark_does_not_take_is_refused_by_name_before_anything_is_read(
    engine: ConnectEngine, new_target: MakeTarget, check: str, says: str
) -> None:
    target = new_target(FIELDS, ["tens"])
    with pytest.raises(InvalidWriteError, match=rf"(?s)the check 'odd one', .*{says}") as error:
        engine.stage(
            sql_job(target, "SELECT * FROM there_is_no_such_table", checks={"fine": "id > 0", "odd one": check})
        )
    assert "JVM" not in str(error.value)
    assert target.versions == [0]


def test_a_check_that_cannot_be_computed_is_no_verdict(engine: ConnectEngine, new_target: MakeTarget) -> None:
    target = new_target([field("id", "long")])
    with pytest.raises(SparkQueryError, match="DIVIDE_BY_ZERO"):
        engine.stage(sql_job(target, "SELECT id FROM range(3)", checks={"odd": "sum(id) / (count(*) - 3) > 1"}))
    # The rows are staged, but without a verdict nobody publishes them.
    assert target.versions == [0, 1]
