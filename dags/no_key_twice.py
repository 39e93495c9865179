"""Keeps keys unique: by a MERGE against the table, and by an audit of all the rows that a load has staged."""

# [START howto_keys]
from typing import Any

import pendulum
from airflow.sdk import DAG, Param, task

from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.modes import Merge
from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.options import NewTable
from airflow_provider_onelake.sources import FileSource
from airflow_provider_onelake.task_groups.write import OneLakeWriteTaskGroup

COLUMNS = "id BIGINT, name STRING, shop STRING"
MEMBERS = FileSource("{{ params.members }}", format="json", schema=COLUMNS)
SHOPS = [{"writer": shop, "where": f"shop = '{shop}'"} for shop in ("north", "south")]

with DAG(
    "no_key_twice",
    schedule=None,
    start_date=pendulum.datetime(2021, 1, 1, tz="UTC"),
    params={"members": Param("/data/members/*.json", type="string")},
):
    with OneLakeWriteTaskGroup(group_id="insert", table="Tables/members"):
        OneLakeWriteOperator.partial(
            task_id="write",
            source=MEMBERS,
            mode=Merge(keys=["id"], when=["NOT MATCHED THEN INSERT *"]),
            new_table=NewTable(schema=COLUMNS),
        ).expand_kwargs(SHOPS)

    with OneLakeWriteTaskGroup(group_id="append", table="Tables/new_members", publish="together") as append:
        OneLakeWriteOperator.partial(task_id="write", source=MEMBERS).expand_kwargs(SHOPS)

        @task
        def each_key_once(staged: list[dict[str, Any]]) -> None:
            table, ids = OneLakeHook().table("Tables/new_members"), []
            for rows_of in staged:
                with table.staged(rows_of["buffer"]).read(["id"]) as rows:
                    ids += [key for batch in rows for key in batch.column("id").to_pylist()]
            if len(ids) != len(set(ids)):
                raise ValueError(f"{len(ids)} rows are staged, with {len(set(ids))} different keys")

        each_key_once(append.staged())
# [END howto_keys]
