"""Upkeep of tables: compact what pays, then delete what nobody needs any more."""

from __future__ import annotations

from typing import Any

import pendulum
from airflow.sdk import DAG, Param, task, task_group

from airflow_provider_onelake.operators.health import OneLakeHealthOperator
from airflow_provider_onelake.operators.optimize import OneLakeOptimizeOperator
from airflow_provider_onelake.operators.vacuum import OneLakeVacuumOperator

DOC = """
### Upkeep

Every Sunday night each of `tables` is compacted, then vacuumed; `health` is red where files of the table are lost. A
table that is refused does not stop the others. Loads may run all the while: compaction never makes a writer in flight
wait or fail, and a vacuum spares what writers have staged.

**Parameters**

| parameter | meaning |
|---|---|
| `tables` | the tables, in the lakehouse of the connection `onelake_default` |
| `where` | a condition on partition columns: only these partitions are compacted; empty for all |
| `zorder_by` | columns, with commas between, to sort the files along (Z-order); empty for none |
| `keep_versions` | versions, with commas between, that stay readable for time travel from now on; with one table only |

**How far back time travel reaches** is the table's own property `delta.deletedFileRetentionDuration`, without it 7
days. A shorter one is refused here. `what_would_go` is the dry run: its log and XCom say what `vacuum` is about to
delete.
"""

with DAG(
    "onelake_upkeep",
    schedule="0 3 * * 0",
    start_date=pendulum.datetime(2019, 1, 1, tz="UTC"),
    catchup=False,
    max_active_runs=1,
    params={
        "tables": Param(["Tables/trips"], type="array", items={"type": "string"}, title="Tables"),
        "where": Param("", type="string", title="Partitions to compact"),
        "zorder_by": Param("", type="string", title="Columns to sort along"),
        "keep_versions": Param("", type="string", title="Versions to keep"),
    },
    doc_md=DOC,
    tags=["onelake"],
):

    @task
    def tables(params: Any = None) -> list[str]:
        """List the tables of this run."""
        if params["keep_versions"] and len(params["tables"]) != 1:
            raise ValueError("keep_versions is about one table's versions, so name one table in `tables`.")
        return [table.strip() for table in params["tables"]]

    # [START howto_upkeep]
    @task_group
    def upkeep(table: str) -> None:
        """Keep one table up; one that is refused does not stop the others."""
        optimize = OneLakeOptimizeOperator(
            task_id="optimize",
            table=table,
            where="{{ params.where }}",
            zorder_by="{{ params.zorder_by }}",
            max_active_tis_per_dagrun=1,
        )
        keep_versions = "{{ params.keep_versions }}"
        what_would_go = OneLakeVacuumOperator(
            task_id="what_would_go", table=table, keep_versions=keep_versions, dry_run=True
        )
        vacuum = OneLakeVacuumOperator(
            task_id="vacuum", table=table, keep_versions=keep_versions, max_active_tis_per_dagrun=1
        )
        health = OneLakeHealthOperator(task_id="health", table=table)
        optimize >> what_would_go >> vacuum >> health

    upkeep.expand(table=tables())
    # [END howto_upkeep]
