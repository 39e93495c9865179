"""Which writers of a group share a scan, by the DAG; and which scan a writer may take its rows from, by its run."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs
from airflow.sdk import XComArg

from airflow_provider_onelake.choices import SchemaEvolution
from airflow_provider_onelake.hooks.context import life_of
from airflow_provider_onelake.operators._roles import is_a
from airflow_provider_onelake.operators._writers_of_run import default_key, pulled
from airflow_provider_onelake.operators.plan import OneLakePlanOperator
from airflow_provider_onelake.operators.scan import OneLakeScanOperator
from airflow_provider_onelake.sources import FileSource, SqlSource
from airflow_provider_onelake.steps.write_terms import Query
from airflow_provider_onelake.templates import is_final

if TYPE_CHECKING:
    from airflow.sdk import Context

logger = logging.getLogger(__name__)

_OF_ITEM = ("writer", "where", "expected_partitions", "mode")
# Parameters that a mapped writer may give besides, as they do not decide which rows it reads.
_BESIDE = ("commit_message",)
# A step with one of these does not treat every row by itself. Spark decides; this only spares a scan that must fail.
_NOT_ROW_BY_ROW = re.compile(
    r"\b(?:GROUP\s+BY|JOIN|OVER|DISTINCT|UNION|INTERSECT|LIMIT|OFFSET|HAVING|PIVOT|TABLESAMPLE)\b", re.IGNORECASE
)
OF_SCAN = (
    *("source", "steps", "partition_by", "new_table", "tuning", "checks", "on_failed_check"),
    *("spark_conn_id", "deferrable"),
)
"""What writers of one scan have in common, by parameter."""
# A writer with anything else of a query reads other rows than the others.
_ALONE = attrs.fields_dict(Query).keys() - {"source", "steps", "where"}


def sharable_tasks(writers: Sequence[Any], defaults: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the tasks whose writers may share a scan, as ``OneLakeScanOperator`` takes them; empty where none do.

    They have the same source, steps and terms, and stand behind the same tasks; each has a ``where``. It pays from two
    writers on: the source is read and decoded once, and the writers need no Spark.

    :param writers: the tasks of a group, mapped or not.
    :param defaults: the group's, by parameter.
    """
    found = [(task, share) for task in writers if (share := _share(task, defaults)) is not None]
    equal = (*OF_SCAN, "spark_timeout")
    same = [
        share
        for task, share in found
        if task.upstream_task_ids == found[0][0].upstream_task_ids
        and all(value_of(task, name, defaults) == value_of(found[0][0], name, defaults) for name in equal)
    ]
    count = sum(len(share["items"]) if isinstance(share["items"], list) else 2 for share in same)
    return same if count > 1 else []


def offered(context: Context) -> str | None:
    """Return the directory of the shared scan whose rows a running writer may take; ``None`` where it scans for itself.

    Only the result that the scan task of this run has in XCom offers a scan. Airflow deletes that result when the task
    starts again, or when the run is deleted. Between a clear and the new start, the old result is still there: a person
    may mark the scan as successful then. And a scan that goes on after its run was deleted leaves its result in a run
    of the same id. So the run must be the one that the scan saw, and not cleared since, not even in part. Airflow does
    not count a clear by its REST API with ``reset_dag_runs=false``, so it is not seen here.

    :param context: of the writer.
    """
    task, dag = context["task"], context["task"].get_dag()
    if dag is None or not dag.has_task(task.task_id):
        return None
    before = dag.get_task(task.task_id).upstream_task_ids
    scans = [name for name in sorted(before) if is_a(dag.get_task(name), OneLakeScanOperator)]
    results = pulled(context["ti"], scans) if scans else []
    if len(results) != 1 or results[0].get("status") != "shared":
        return None
    path, run = results[0].get("scan"), results[0].get("run")
    if run != life_of(context):
        logger.info("The shared scan %s is not used, as its run was cleared or made again since", path)
        return None
    return path if isinstance(path, str) else None


def is_branch(task: Any) -> bool:
    """Say whether a task, mapped or not, chooses among those behind it; a short circuit skips all of them, or none."""
    # Compare the name of Airflow's method, because a branch may be of any class that has it.
    return hasattr(getattr(task, "operator_class", type(task)), "do_branch")


def _arguments(task: Any) -> Mapping[str, Any]:
    given: Mapping[str, Any] = getattr(task, "partial_kwargs", vars(task))
    return given


def value_of(task: Any, name: str, defaults: Mapping[str, Any]) -> Any:
    """Return the value of a writer's parameter: its own, or its group's where the writer gives none.

    :param task: the writer, mapped or not.
    :param name: of the parameter.
    :param defaults: the group's, by parameter.
    """
    own = _arguments(task).get(name)
    return own if own not in (None, "") else defaults.get(name)


def _share(task: Any, defaults: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what the scan is to know of a task's writers; ``None`` where they scan for themselves."""
    given, steps = _arguments(task), _arguments(task).get("steps") or {}
    may_share = (
        # A function makes its rows in its own task, and has no source here.
        isinstance(given.get("source"), FileSource | SqlSource)
        and all(given.get(name) in (None, "") for name in _ALONE)
        and isinstance(steps, Mapping)
        and all(isinstance(step, str) and "*" in step and not _NOT_ROW_BY_ROW.search(step) for step in steps.values())
        and value_of(task, "schema_evolution", defaults) in (None, SchemaEvolution.NONE)
        # The source of a merge is a table of its own, which Spark reads in each round.
        and not getattr(value_of(task, "mode", defaults), "in_rounds", False)
        and task.trigger_rule == "all_success"
        # The scan would not wait for the writers of the run before.
        and not task.depends_on_past
        # Its templates may use params that the scan does not have, or has with other values.
        and task.params == task.get_dag().params
        # Airflow makes such a task once for each item of its group, each with a result of its own.
        and task.get_closest_mapped_task_group() is None
        # A branch that chooses some of the writers would skip the scan, and with it the writers that it has chosen.
        and not any(before.inherits_from_skipmixin for before in task.upstream_list)
    )
    equal = {name: own for name in _OF_ITEM if (own := value_of(task, name, defaults))}
    items = _items(task, equal) if may_share else None
    return None if items is None else {"task_id": task.task_id, "equal": equal, "items": items}


def _items(task: Any, equal: Mapping[str, Any]) -> Any:
    """Return what each writer of a task has besides, or the task's output that says it; ``None`` where it reads others.

    :param equal: what all writers of the task have.
    """
    if not hasattr(task, "partial_kwargs"):
        return [{"writer": default_key(task), **equal}] if equal.get("where") else None
    value = task.expand_input.value
    if "writer" in equal or isinstance(value, Mapping):
        return None  # One key for all, or the product of several lists.
    if isinstance(value, XComArg):
        # A plan of files gives each writer its own.
        planned = getattr(value, "operator", None)
        return None if isinstance(planned, OneLakePlanOperator) and getattr(planned, "sizes", None) is None else value
    if not all(isinstance(item, Mapping) and is_final(list(item.values())) for item in value):
        return None  # Another task makes some of the items, so what they hold is known only at run time.
    items = [{name: item[name] for name in item if name not in _BESIDE} for item in value]
    known = all(item.keys() <= set(_OF_ITEM) and "writer" in item for item in items)
    return items if known and all({**equal, **item}.get("where") for item in items) else None
