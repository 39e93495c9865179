"""DAGs that are wrong, and fail as said: each file says where, and with what."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_onelake.hooks.spark import engine_for
from tests.support.airflow_dags import load_dag, run_dag, states
from tests.support.engines import FakeEngine
from tests.support.failing_dags import FILES, HALF_A_KEY, PARSE, said
from tests.support.messages import has_its_point_in_sight
from tests.support.spark import Server
from tests.support.versions import dag_bag

WITH_SPARK = ("missing_column",)


def fails(file: Path, capfd: pytest.CaptureFixture[str]) -> dict[str, str]:
    """Run a DAG, and hold it to what its file says."""
    at, error = said(file)
    run = run_dag(load_dag(file, file.stem))
    assert str(run.state) == "failed"
    assert states(run)[at] == "failed"
    printed = re.sub(r"\s+", " ", capfd.readouterr().out)
    assert error in printed
    found = re.search(rf"{re.escape(error.partition(':')[0])}: .*? More: docs/reference/errors\.md#\w+", printed)
    assert found
    assert has_its_point_in_sight(found[0]), found[0][:100]
    return states(run)


@pytest.mark.parametrize("file", [f for f in FILES if said(f)[0] == PARSE], ids=lambda file: file.stem)
def test_a_dag_that_airflow_refuses_when_it_is_parsed(file: Path, airflow_home: Path) -> None:
    bag = dag_bag().DagBag(dag_folder=file, bundle_path=file.parent)
    assert not bag.dags
    ((_, trace),) = bag.import_errors.items()
    # Of what the whole DAG shows to be wrong, Airflow leaves out where the error's class is.
    message = trace.strip().splitlines()[-1].removeprefix("airflow_provider_onelake.exceptions.")
    assert message == said(file)[1]
    assert has_its_point_in_sight(message), message[:100]


@pytest.mark.parametrize(
    "file", [f for f in FILES if said(f)[0] != PARSE and f.stem not in WITH_SPARK], ids=lambda file: file.stem
)
def test_a_dag_whose_task_fails_before_spark_is_asked(
    file: Path, lakehouse: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    fake = FakeEngine({})
    monkeypatch.setenv("AIRFLOW_CONN_HALF_A_KEY", json.dumps(HALF_A_KEY))

    def engine(conn_id: str, *given: Any) -> Any:
        return fake if conn_id == "spark_connect_default" else engine_for(conn_id, *given)

    monkeypatch.setattr("airflow_provider_onelake.operators._spark_task.engine_for", engine)
    fails(file, capfd)
    assert not fake.analyzed
    assert not fake.staged
    assert not (lakehouse / "Tables" / "t" / "_delta_log").exists()


def test_a_dag_whose_rows_spark_refuses(spark_connection: Server, capfd: pytest.CaptureFixture[str]) -> None:
    (file,) = [f for f in FILES if f.stem in WITH_SPARK]
    assert fails(file, capfd) == {"first": "success", "second": "failed"}
