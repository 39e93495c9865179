"""Nothing is done when a DAG is parsed: no Spark, no store, no connection, no file is looked at."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEAVY = (
    "pyspark",
    "deltalake",
    "obstore",
    "pyarrow",
    "grpc",
    "pandas",
    "numpy",
    "sqlglot",
    "delta",
    "azure",
    "boto3",
    "botocore",
)

_PARSE = """
import json, sys, time
import airflow.sdk
from airflow.sdk import DAG, BaseOperator, BaseSensorOperator, TaskGroup, BaseHook, XComArg, PokeReturnValue
import airflow.triggers.base
before = set(sys.modules)
exec(compile(open(sys.argv[1]).read(), sys.argv[1], "exec"), {"__file__": sys.argv[1], "__name__": "dag"})
print(json.dumps(sorted({name.partition(".")[0] for name in set(sys.modules) - before})))
"""


def imported(code: Path) -> set[str]:
    found = subprocess.run(
        [sys.executable, "-c", _PARSE, str(code)], capture_output=True, text=True, check=True, cwd=ROOT
    )
    return set(json.loads(found.stdout.splitlines()[-1]))


@pytest.mark.parametrize("dag", sorted((ROOT / "dags").glob("*.py")), ids=lambda path: path.stem)
def test_parsing_a_dag_imports_nothing_heavy(dag: Path) -> None:
    assert not imported(dag) & set(HEAVY)


def test_importing_airflows_side_imports_nothing_heavy(tmp_path: Path) -> None:
    modules = [
        "get_provider_info",
        "sources",
        "hooks.onelake",
        "hooks.sign_in",
        "hooks.spark",
        "operators.write",
        "operators.plan",
        "operators.reconcile",
        "sensors.delta_log",
        "triggers.delta_log",
        "triggers.wait",
        "assets.commits",
        "assets.tables",
        "assets.uris",
        "task_groups.write",
        "decorators.write",
    ]
    code = tmp_path / "imports.py"
    code.write_text("\n".join(f"import airflow_provider_onelake.{module}" for module in modules))
    assert not imported(code) & set(HEAVY)
