"""Writes three rows by the connections ``spark_default`` and ``onelake_default``, as a task's worker does.

A script of its own, since it runs as in a container of docker-compose.yaml: with nothing but that one's environment.
"""

from __future__ import annotations

import json
import uuid

from airflow_provider_onelake.definition.create import create_table
from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.hooks.spark import engine_for
from airflow_provider_onelake.spark.base import StageJob

BUFFER = "Tables/submitted"
SCHEMA = {"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]}


def main() -> None:
    hook = OneLakeHook("onelake_default")
    create_table(hook.table(BUFFER).log, json.dumps(SCHEMA))
    job = StageJob(
        source={"kind": "sql", "query": "SELECT id FROM range(3)"},
        table_uri=hook.table("Tables/any").address.spark_uri,
        buffer_uri=hook.table(BUFFER).address.spark_uri,
        metadata=hook.table(BUFFER).log.snapshot().metadata,
        attempt=str(uuid.uuid4()),
    )
    engine_for("spark_default", timeout=480, access=hook.table(BUFFER).spark_access).stage(job)


if __name__ == "__main__":
    main()
