from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from airflow_provider_onelake.exceptions import InvalidWriteError
from airflow_provider_onelake.spark.base import ANALYSING, AuditJob, ChangeJob, OptimizeJob, StageJob, in_words
from airflow_provider_onelake.spark.connect import ConnectEngine

SOURCE = {"kind": "sql", "query": "SELECT 1", "view": "trips"}


def job(**fields: Any) -> StageJob:
    return StageJob(**{"source": SOURCE, "table_uri": "/lake/t", "attempt": "a", **fields})


def test_a_job_survives_json_with_its_steps_in_order() -> None:
    whole = job(
        buffer_uri="/lake/t/staged/w/a",
        metadata={"schemaString": "{}", "partitionColumns": []},
        where="id = 1",
        steps={"z": "SELECT 1", "a": "SELECT 2"},
        generated={"month": "date_format(at, 'yyyy-MM')"},
        schema="id BIGINT",
        evolves=True,
        target_file_size=1,
        label="load.write[3]",
    )
    again = StageJob(**json.loads(json.dumps(whole.as_dict())))
    assert again == whole
    assert list(again.steps) == ["z", "a"]


def test_messages_say_in_a_phrase_what_a_job_does() -> None:
    whose, own = {"table_uri": "Tables/t", "attempt": "a"}, job(label="writer eu of task load.write")
    change = ChangeJob(**whose, label="DELETE of task d", shadow_uri="s", where="id = 1")
    audit = AuditJob(**whose, label="2 writers in task load.checked", buffer_uri="b", metadata={}, checks={})
    assert in_words(change.doing, change) == "running DELETE of task d"
    assert in_words(own.doing, own) == "staging the rows of writer eu of task load.write"
    assert in_words(ANALYSING, job()) == "analysing the rows of a job"
    assert in_words(audit.doing, audit) == "checking the rows of 2 writers in task load.checked"


@pytest.mark.parametrize("remote", ["127.0.0.1:15002", "http://127.0.0.1:15002", "sc://"])
def test_an_address_that_is_none_of_spark_connect(remote: str) -> None:
    with pytest.raises(InvalidWriteError, match="sc://host:port"):
        ConnectEngine(remote)


def test_importing_the_engines_imports_neither_pyspark_nor_grpc() -> None:
    """A DAG is parsed in a process that is forked for every task; gRPC does not survive that."""
    code = (
        "import sys, airflow_provider_onelake.spark.connect\n"
        "sys.exit(', '.join({'pyspark', 'grpc'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def compaction(**fields: Any) -> OptimizeJob:
    return OptimizeJob(
        **{"table_uri": "/lake/t", "attempt": "a", "shadow_uri": "/lake/t/staged/c/a", "target_file_size": 1, **fields}
    )


def test_a_compaction_is_plain_json() -> None:
    whole = compaction(zorder_by=("a", "b"), label="optimize")
    assert json.loads(json.dumps(whole.as_dict())) == {**whole.as_dict(), "zorder_by": ["a", "b"]}
