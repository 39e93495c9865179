"""The DAGs of ``tests/airflow/failing_dags``: each file says where the DAG fails, and with what."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

FILES = sorted((Path(__file__).parents[1] / "airflow" / "failing_dags").glob("*.py"))
PARSE = "parse"
"""Where a DAG fails that Airflow refuses as soon as it reads its file."""
HALF_A_KEY: dict[str, Any] = {
    "conn_type": "onelake",
    "login": "AKIA",
    "extra": json.dumps({"lakehouse": "s3://bucket/lake"}),
}
"""The connection of the DAG of this name: a bucket, and a key without its secret."""
_SAID = re.compile(r"^at: (?P<at>.+)\nerror: (?P<error>\w+: ?.*)$", re.MULTILINE)


def said(file: Path) -> tuple[str, str]:
    """Return the task at which a DAG fails, or ``parse``, and how its error begins, with the class in front."""
    found = _SAID.search(file.read_text())
    assert found, f"{file} does not say where it fails, and with what"
    return found["at"], found["error"]
