"""Nothing is done when a DAG is parsed: no Spark, no store, no connection, no file is looked at."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from airflow_provider_onelake.get_provider_info import get_provider_info

ROOT = Path(__file__).resolve().parents[2]
HEAVY = (
    "pyspark",
    "deltalake",
    "obstore",
    "pyarrow",
    "pyroaring",
    "grpc",
    "pandas",
    "numpy",
    "sqlglot",
    "delta",
    "azure",
    "boto3",
    "botocore",
    "openlineage",
)

_PARSE = """
import json, sys
import airflow.sdk
from airflow.sdk import DAG, BaseOperator, BaseSensorOperator, TaskGroup, BaseHook, XComArg, PokeReturnValue
import airflow.triggers.base
for path in sys.argv[1:]:
    before = set(sys.modules)
    exec(compile(open(path).read(), path, "exec"), {"__file__": path, "__name__": "dag"})
    print(json.dumps([path, sorted({name.partition(".")[0] for name in set(sys.modules) - before})]))
"""
DAGS = sorted((ROOT / "dags").glob("*.py"))


def imported(*files: Path) -> dict[str, set[str]]:
    """Return what each file imports that those before it have not, in a process that begins with nothing but Airflow."""
    found = subprocess.run(
        [sys.executable, "-c", _PARSE, *map(str, files)], capture_output=True, text=True, check=True, cwd=ROOT
    )
    said = [json.loads(line) for line in found.stdout.splitlines() if line.startswith("[")]
    assert [path for path, _ in said] == list(map(str, files))
    return {Path(path).name: set(modules) for path, modules in said}


# What only a running task, or Spark, imports.
INSIDE = (
    "buffers",
    "commit",
    "history",
    "log",
    "maintenance",
    "planning",
    "spark",
    "statements",
    "steps",
    "storage",
    "writes",
)


def public_modules() -> list[str]:
    """Every module that a DAG file may import, or that Airflow does to know the provider."""
    root = ROOT / "airflow_provider_onelake"
    files = [file.relative_to(root) for file in root.rglob("*.py") if file.relative_to(root).parts[0] not in INSIDE]
    names = [".".join(file.with_suffix("").parts).removesuffix("__init__").strip(".") for file in files]
    return sorted(f"airflow_provider_onelake.{name}".strip(".") for name in names)


def test_neither_a_dag_nor_airflows_side_imports_anything_heavy(tmp_path: Path) -> None:
    modules = public_modules()
    assert {"operators.write", "assets.tables", "links.onelake", "observability.metrics", "preload"} <= {
        name.removeprefix("airflow_provider_onelake.") for name in modules
    }
    code = tmp_path / "all_of_airflows_side.py"
    code.write_text("\n".join(f"import {module}" for module in modules))
    found = imported(*DAGS, code)
    assert "airflow_provider_onelake" in found[DAGS[0].name]
    assert {name: heavy for name, imports in found.items() if (heavy := imports & set(HEAVY))} == {}


def test_the_provider_info_names_public_modules_only() -> None:
    info = get_provider_info()
    named = {
        module
        for kind in ("hooks", "operators", "sensors", "triggers")
        for each in info[kind]
        for module in each["python-modules"]
    }
    named |= {name.rpartition(".")[0] for name in info["extra-links"]}
    assert named <= set(public_modules())
