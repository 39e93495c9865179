"""What the stress has shown: the rows, the log, Airflow. Whatever is wrong is a sentence."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import TYPE_CHECKING, Any

import attrs

from airflow_provider_onelake.log.commits import COMPACTION
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.storage.addresses import TableAddress
from airflow_provider_onelake.storage.stores import open_store
from include.local.api import ApiError
from tests.live.stress.rivals import Contest, Told, judge_rivals, rows_at
from tests.live.stress.shape import ALL_DAGS, COLUMNS, OPTIMIZE, RIVAL_DAGS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_provider_onelake.log.commits import Commit
    from tests.live.stress.driver import Stress
    from tests.live.stress.shape import Load

_OURS = "airflow-provider-onelake/"


@attrs.define
class Evidence:
    """What was found.

    :param problems: what is wrong, a sentence each; none is what should be.
    :param compactions: what each task of a compaction told.
    """

    problems: list[str] = attrs.field(factory=list)
    runs: Counter[str] = attrs.field(factory=Counter)
    commits: list[Commit] = attrs.field(factory=list)
    compactions: list[dict[str, Any]] = attrs.field(factory=list)
    contest: Contest = attrs.field(factory=Contest)


def judge(stress: Stress) -> Evidence:
    """Every version is one write, done whole to the version before, and every load was told what became of it."""
    commits = DeltaLog(open_store(TableAddress.parse(str(stress.table))), str(stress.table)).commits_since(-1)
    seen = Evidence(commits=commits, compactions=stress.results(OPTIMIZE, "optimize"))
    if stress.meddler.error is not None:
        seen.problems.append(f"{stress.meddler.name} failed: {stress.meddler.error!r}")
    for dag_id in ALL_DAGS:
        seen.runs.update(str(run["state"]) for run in stress.stack.api.runs(dag_id))
    not_well = [task for task in stress.tasks(OPTIMIZE) if task["state"] not in ("success", "skipped")]
    seen.problems += [_failure(stress, OPTIMIZE, task) for task in not_well]
    check_log(seen)
    told = list(_told(stress, seen))
    seen.contest = judge_rivals(stress.table, stress.loads, stress.meddler.statements, told)
    seen.problems += seen.contest.problems
    if _rows_by_spark(stress) != rows_at(stress.table):
        seen.problems.append("Spark and deltalake read different rows")
    return seen


def check_log(seen: Evidence) -> None:
    """No path comes twice, nor a buffer, nor a writer's ``txn``, and each compaction is where its task says it is."""
    known: dict[str, int] = {}
    for commit in seen.commits:
        removed = {remove["path"] for remove in commit.removes}
        # A foreign DELETE adds a file again, with a deletion vector, as it removes it without.
        adds = [add["path"] for add in commit.adds if add["path"] not in removed or add.get("deletionVector") is None]
        for name in (*adds, *(w.buffer for w in commit.writers), *(w.app_id for w in commit.writers)):
            if name in known:
                seen.problems.append(f"{name} is in versions {known[name]} and {commit.version}")
            known[name] = commit.version
    versions = [commit.version for commit in seen.commits]
    if versions != list(range(len(versions))):
        seen.problems.append(f"The log has gaps: {versions}")
    told = {found["version"] for found in seen.compactions if found["status"] == "published"}
    there = {commit.version for commit in seen.commits if is_compaction(commit)}
    if told != there:
        # A foreign commit may have overwritten one without noticing (protocol: no Spark commit to the shared log).
        seen.problems.append(f"Compactions are told of in versions {sorted(told)}, and the log has {sorted(there)}")


def is_compaction(commit: Commit) -> bool:
    """Whether a version is a compaction of ours."""
    return COMPACTION in (commit.info.get("staged") or {})


def is_ours(commit: Commit) -> bool:
    """Whether a version is of this package."""
    return str(commit.info.get("engineInfo", "")).startswith(_OURS)


def _rows_by_spark(stress: Stress) -> Counter[Any]:
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.remote(stress.stack.connect_server.remote).create()
    try:
        return Counter(map(tuple, spark.read.format("delta").load(str(stress.table)).select(*COLUMNS).collect()))
    finally:
        spark.stop()


# -- what Airflow was told ---------------------------------------------------------------------------------------------


def _failure(stress: Stress, dag_id: str, task: dict[str, Any]) -> str:
    return (
        f"{dag_id} {task['dag_run_id']} {task['task_id']} is {task['state']}: {_last_words(stress, dag_id, task)[:600]}"
    )


def _last_words(stress: Stress, dag_id: str, task: dict[str, Any]) -> str:
    """Return the last error that a task has logged."""
    if not task["pid"]:
        return "it never ran"
    lines = stress.stack.api.log(dag_id, task["dag_run_id"], task["task_id"]).splitlines()
    return ([line for line in lines if " error " in line] or lines)[-1]


def _told(stress: Stress, seen: Evidence) -> Iterator[Told]:
    """Yield what became of each writer, and note the runs that are red for no reason."""
    loads = {load.run_id: load for load in stress.loads}
    for dag_id in RIVAL_DAGS:
        for task in stress.tasks(dag_id):
            load, name = loads[task["dag_run_id"]], task["task_id"]
            failed = task["state"] == "failed"
            if name == "lone":
                yield _told_by_lone(stress, load, task)
            elif name != "load.reconcile":
                # It settles at once. What it was told of a conflict, its reconciliation tells once more.
                right = task["state"] == "success" or _is_conflict(_last_words(stress, dag_id, task))
                seen.problems += [] if right else [_failure(stress, dag_id, task)]
            else:
                told = _told_by_reconcile(stress, load, task)
                yield from told
                refused = any(one.status == "refused" for one in told)
                if not told or refused != failed or (not failed and task["state"] != "success"):
                    seen.problems.append(f"{_failure(stress, dag_id, task)}, and its report is {told}")


def _told_by_reconcile(stress: Stress, load: Load, task: dict[str, Any]) -> list[Told]:
    try:
        report = stress.stack.api.xcom(load.dag_id, load.run_id, "load.reconcile", "return_value")
    except ApiError:
        return []
    asked = datetime.fromisoformat(task["start_date"]).timestamp()
    return [
        Told(
            load,
            said["writer"],
            said["status"],
            said["version"],
            said["rows_published"],
            said["error"] or "",
            tuple(said["aftermath"]),
            asked,
        )
        for said in report["writers"]
    ]


def _told_by_lone(stress: Stress, load: Load, task: dict[str, Any]) -> Told:
    if task["state"] == "success":
        said = stress.stack.api.xcom(load.dag_id, load.run_id, task["task_id"])
        return Told(load, "lone", said["status"], said["version"], said.get("rows_published"))
    words = _last_words(stress, load.dag_id, task)
    return Told(load, "lone", "refused" if _is_conflict(words) else str(task["state"]), error=words)


def _is_conflict(words: str) -> bool:
    return "ConflictError" in words or "OutOfDateError" in words
