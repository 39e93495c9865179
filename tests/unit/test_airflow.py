"""What only Airflow 3.3 has is refused by name on an older one, and one module knows what differs."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import airflow_provider_onelake
from airflow_provider_onelake import _airflow
from airflow_provider_onelake.assets.commits import commits
from airflow_provider_onelake.assets.tables import table_asset, watched_table_asset
from airflow_provider_onelake.exceptions import InvalidWriteError
from airflow_provider_onelake.hooks.context import run_name
from airflow_provider_onelake.retry_policies.onelake import OneLakeRetryPolicy
from tests.support.contexts import context_of
from tests.support.versions import is_below

PACKAGE = Path(airflow_provider_onelake.__file__).parent


def looks_for_names(module: Path) -> bool:
    """Say whether a module tries what it can import of Airflow's, or asks for its version."""
    tree = ast.parse(module.read_text())
    tries = [node for node in ast.walk(tree) if isinstance(node, ast.Try)]
    tried = [node for each in tries for part in each.body for node in ast.walk(part)]
    found = [node.module or "" for node in tried if isinstance(node, ast.ImportFrom)]
    found += [alias.name for node in tried if isinstance(node, ast.Import) for alias in node.names]
    asked = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module == "airflow"]
    # A provider may not be there at all, whatever Airflow's version.
    known = [name for name in found if not name.startswith("airflow.providers.openlineage")]
    return bool(asked) or any(name.split(".")[0] == "airflow" for name in known)


def test_one_module_knows_what_differs() -> None:
    assert [path for path in PACKAGE.rglob("*.py") if looks_for_names(path)] == [Path(_airflow.__file__)]
    assert len(Path(_airflow.__file__).read_text().splitlines()) <= 120


def test_it_knows_which_airflow_this_is() -> None:
    assert is_below("3.3") == (_airflow.RELEASE < (3, 3))
    assert bool(_airflow.NO_RETRY_POLICY) == (_airflow.RELEASE >= (3, 3))


def in_a_partition() -> Any:
    class CronPartitionTimetable:
        """Airflow 3.2 has one, and no date of a run's partition."""

    dag: Any = type("Dag", (), {"timetable": CronPartitionTimetable()})
    task: Any = type("Task", (), {"task_id": "write", "get_dag": lambda self: dag})()
    context = context_of(task, None)
    del context["dag_run"].partition_date
    context["dag_run"].partition_key = "2019-01"
    return run_name(context)


@pytest.mark.parametrize(
    ("use", "named"),
    [
        pytest.param(OneLakeRetryPolicy, "OneLakeRetryPolicy", id="a retry policy"),
        pytest.param(
            lambda: table_asset("Tables/t", partitioned_by="month"), "partitioned_by='month'", id="partitions"
        ),
        pytest.param(lambda: watched_table_asset("Tables/t", "t"), "A watcher of Tables/t", id="watchers"),
        pytest.param(lambda: commits([]), r"commits\(\)", id="commits"),
        pytest.param(in_a_partition, "The name of a load in the partition '2019-01'", id="a run of a partition"),
    ],
)
def test_what_only_a_newer_airflow_has_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, use: Callable[[], Any], named: str
) -> None:
    monkeypatch.setattr(_airflow, "RELEASE", (3, 2))
    monkeypatch.setattr(_airflow, "__version__", "3.2.1")
    with pytest.raises(InvalidWriteError, match=rf"^{named}.* needs Airflow 3\.3, and this is Airflow 3\.2\.1\. \w+"):
        use()
