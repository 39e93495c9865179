"""What the demo does behind the load: compact the table along a column, and say what a vacuum would take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.table import Table

if TYPE_CHECKING:
    from rich.console import Console

    from .api import AirflowApi

DAG = "onelake_upkeep"
_TIMEOUT = 900


def run(api: AirflowApi, console: Console, table: str, zorder_by: str) -> bool:
    """Run the upkeep DAG on one table, print what it did, and say whether it succeeded.

    :param api: of the live Airflow.
    :param console: to print on.
    :param table: in the lakehouse.
    :param zorder_by: the column to sort files along.
    """
    api.unpause(DAG)
    with console.status("Compacting …"):
        run_id = api.trigger(DAG, conf={"tables": [table], "zorder_by": zorder_by})
        ended = api.wait_for_run(DAG, run_id, timeout=_TIMEOUT)
    if ended["state"] != "success":
        console.print(f"[red]The upkeep ended as {ended['state']}.[/]")
        return False
    console.print(_compaction(api.xcom(DAG, run_id, "upkeep.optimize", map_index=0)))
    vacuumed = api.xcom(DAG, run_id, "upkeep.vacuum", map_index=0)
    console.print(
        f"A vacuum has {vacuumed['files']} files to delete: nothing goes that was part of the table since "
        f"{str(vacuumed['before'])[:10]}."
    )
    return True


def _compaction(told: dict[str, Any]) -> Table:
    shown = Table("partition", "files before", "after", "bytes before", "after", "why", title="Compaction")
    for row in told["partitions"]:
        counts = (row["files_before"], row["files_after"], row["bytes_before"], row["bytes_after"])
        shown.add_row(row["partition"], *map(str, counts), row["reason"])
    for row in (*told["left_out"], *told["dropped"]):
        shown.add_row(row["partition"], str(row.get("files", "")), "", "", "", f"left alone: {row['reason']}")
    shown.caption = told["summary"]
    return shown
