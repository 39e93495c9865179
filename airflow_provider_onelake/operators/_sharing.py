"""Which writers of a group share a scan, by the DAG; and which scan a writer may take its rows from, by its run."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import XComArg

from airflow_provider_onelake.hooks.task_run import life_of
from airflow_provider_onelake.operators._roll import default_key, is_a, pulled
from airflow_provider_onelake.operators._terms import is_final
from airflow_provider_onelake.operators.plan import OneLakePlanOperator
from airflow_provider_onelake.operators.scan import OneLakeScanOperator
from airflow_provider_onelake.sources import FileSource, SqlSource
from airflow_provider_onelake.staging.modes import Merge
from airflow_provider_onelake.work.terms import DEFAULTS

if TYPE_CHECKING:
    from airflow.sdk import Context

logger = logging.getLogger(__name__)

_OF_ITEM = ("writer", "where", "expected_partitions", "replace_where")
_OF_WRITER = (*_OF_ITEM, "mode")
# Parameters that a mapped writer may give besides, as they do not decide which rows it reads.
_BESIDE = ("commit_message",)
# A writer with one of these reads other rows than the others, or must not be one of several.
_ALONE = ("files", "max_bytes", "reads")
# A step with one of these does not treat every row by itself. Spark decides; this only spares a scan that must fail.
_NOT_ROW_BY_ROW = re.compile(
    r"\b(?:GROUP\s+BY|JOIN|OVER|DISTINCT|UNION|INTERSECT|LIMIT|OFFSET|HAVING|PIVOT|TABLESAMPLE)\b", re.IGNORECASE
)
_EQUAL = (
    *("steps", "partition_by", "generated_columns", "table_properties", "schema", "target_file_size", "v_order"),
    *("schema_evolution", "preflight", "checks", "on_failed_check", "spark_conn_id", "spark_timeout", "deferrable"),
)


def sharing(writers: Sequence[Any], defaults: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the tasks whose writers may share a scan, as ``OneLakeScanOperator`` takes them; empty where none do.

    It pays from two writers on: the source is read and decoded once, and the writers need no Spark.

    :param writers: the tasks of a group, mapped or not.
    :param defaults: the group's, by parameter.
    """
    found: list[tuple[Any, dict[str, Any]]] = []
    for task in writers:
        given = _given(task)
        share = _of_mapped(task, defaults) if given is not None and _is_mapped(task) else _of_one(task, given)
        if share is not None and given is not None and _may_share(task, given, defaults):
            found.append((task, {**share, "source": given["source"]}))
    if not found:
        return []
    first, terms = found[0][0], found[0][1]
    same = [
        share
        for task, share in found
        if share["source"] == terms["source"]
        and task.upstream_task_ids == first.upstream_task_ids
        and all(_value(task, name, defaults) == _value(first, name, defaults) for name in _EQUAL)
    ]
    one_only = sum(len(share["items"]) if isinstance(share["items"], list) else 2 for share in same) < 2
    return [] if one_only else same


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


def _is_mapped(task: Any) -> bool:
    return hasattr(task, "partial_kwargs")


def _given(task: Any) -> Mapping[str, Any] | None:
    """Return the parameters of a task; ``None`` for a function, whose rows are made in its own task."""
    if hasattr(task, "op_kwargs_expand_input") or hasattr(task, "python_callable"):
        return None
    given: Mapping[str, Any] = task.partial_kwargs if _is_mapped(task) else vars(task)
    return given


def _value(task: Any, name: str, defaults: Mapping[str, Any]) -> Any:
    own = (_given(task) or {}).get(name)
    # No checks are what a writer may want in a group that has some.
    nothing: tuple[object, ...] = (None, "") if name == "checks" else (None, "", {})
    return own if own not in nothing else defaults.get(name, DEFAULTS.get(name))


def _may_share(task: Any, given: Mapping[str, Any], defaults: Mapping[str, Any]) -> bool:
    return (
        isinstance(given.get("source"), FileSource | SqlSource)
        and not any(given.get(name) for name in _ALONE)
        and _may_be_row_by_row(given.get("steps") or {})
        and _value(task, "schema_evolution", defaults) == DEFAULTS["schema_evolution"]
        # The source of a merge is a table of its own, which Spark reads in each round.
        and _value(task, "mode", defaults) != Merge.name
        and task.trigger_rule == "all_success"
        # The scan would not wait for the writers of the run before.
        and not task.depends_on_past
        # Its templates may use params that the scan does not have, or has with other values.
        and task.params == task.get_dag().params
        and not _is_in_mapped_group(task)
        # A branch that chooses some of the writers would skip the scan, and with it the writers that it has chosen.
        and not any(before.inherits_from_skipmixin for before in task.upstream_list)
    )


def _may_be_row_by_row(steps: Any) -> bool:
    """Say whether steps may treat every row by itself and keep all columns, as far as their texts tell."""
    return isinstance(steps, Mapping) and all(
        isinstance(step, str) and "*" in step and not _NOT_ROW_BY_ROW.search(step) for step in steps.values()
    )


def _is_in_mapped_group(task: Any) -> bool:
    """Say whether Airflow makes a task once for each item of a mapped task group, each with a result of its own."""
    group = task.task_group
    while group is not None:
        # Compare the name, because Airflow's SDK does not export the class. A parent is a weak proxy of another type().
        if group.__class__.__name__ == "MappedTaskGroup":
            return True
        group = group.parent_group
    return False


def _of_one(task: Any, given: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if given is None or not given.get("where"):
        return None
    item = {name: given[name] for name in _OF_WRITER if given.get(name)}
    return {"task_id": task.task_id, "equal": {}, "items": [{"writer": default_key(task), **item}]}


def _of_mapped(task: Any, defaults: Mapping[str, Any]) -> dict[str, Any] | None:
    equal = {name: own for name in _OF_WRITER if (own := _value(task, name, defaults))}
    value = task.expand_input.value
    if "writer" in equal or isinstance(value, Mapping):
        return None  # One key for all, or the product of several lists.
    if isinstance(value, XComArg):
        # A plan of files gives each writer its own.
        planned = isinstance(operator := getattr(value, "operator", None), OneLakePlanOperator)
        by_files = planned and getattr(operator, "sizes", None) is None
        return None if by_files else {"task_id": task.task_id, "equal": equal, "items": value}
    if not all(isinstance(item, Mapping) for item in value):
        return None  # Another task makes some of the items, so what they hold is known only at run time.
    items = [{name: given for name, given in item.items() if name not in _BESIDE} for item in value]
    odd = any(item.keys() - set(_OF_ITEM) or not is_final(list(item.values())) for item in items)
    incomplete = any(not {**equal, **item}.get("where") or not item.get("writer") for item in items)
    return None if odd or incomplete else {"task_id": task.task_id, "equal": equal, "items": items}
