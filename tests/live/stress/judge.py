"""What the stress has shown: the rows, the log, Airflow, the reader, time travel. Whatever is wrong is a sentence."""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import datetime
from typing import TYPE_CHECKING, Any

import attrs

from airflow_provider_onelake.exceptions import ConflictError
from airflow_provider_onelake.log.commits import COMPACTION
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.storage.addresses import TableAddress
from airflow_provider_onelake.storage.stores import open_store
from include.local.api import ApiError
from tests.live.stress.rivals import Contest, Told, judge_rivals, rows_at
from tests.live.stress.shape import (
    ALL_DAGS,
    COLUMNS,
    DAGS,
    EACH,
    OPTIMIZE,
    RIVAL_DAGS,
    RIVALS_OPTIMIZE,
    TOGETHER,
    VACUUM,
    WRITERS,
    WRITERS_OF,
    Row,
    is_overwriter,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from airflow_provider_onelake.log.commits import Commit
    from tests.live.stress.driver import Stress
    from tests.live.stress.shape import Load

_OURS = "airflow-provider-onelake/"
_SAMPLE = 12
_SPARK_SAMPLE = 3
_MOST = 10


@attrs.define
class Evidence:
    """What was found.

    :param problems: what is wrong, a sentence each; none is what should be.
    :param contest: what was found in the table whose loads replace the same partitions.
    """

    problems: list[str] = attrs.field(factory=list)
    runs: Counter[str] = attrs.field(factory=Counter)
    commits: list[Commit] = attrs.field(factory=list)
    writes: list[dict[str, Any]] = attrs.field(factory=list)
    outcomes: list[dict[str, Any]] = attrs.field(factory=list)
    compactions: list[dict[str, Any]] = attrs.field(factory=list)
    vacuums: list[dict[str, Any]] = attrs.field(factory=list)
    expected: Counter[Row] = attrs.field(factory=Counter)
    found: dict[str, int] = attrs.field(factory=dict)
    overwritten: list[str] = attrs.field(factory=list)
    travelled: dict[str, int] = attrs.field(factory=dict)
    contest: Contest = attrs.field(factory=Contest)


def judge(stress: Stress) -> Evidence:
    """Look at everything that a stress has left."""
    seen = Evidence(commits=_commits(stress.table))
    _ask_airflow(stress, seen)
    check_log(seen)
    check_versions(seen)
    seen.expected = expected_rows(stress.appends, stress.foreign.rows, seen.writes)
    _check_rows(stress, seen)
    check_reader(stress, seen)
    _check_time_travel(stress, seen)
    _check_rivals(stress, seen)
    return seen


def _commits(table: Path) -> list[Commit]:
    return DeltaLog(open_store(TableAddress.parse(str(table))), str(table)).commits_since(-1)


# -- Airflow -----------------------------------------------------------------------------------------------------------


def _ask_airflow(stress: Stress, seen: Evidence) -> None:
    for other in (stress.foreign, stress.meddler):
        if other.error is not None:
            seen.problems.append(f"{other.name} failed: {other.error!r}")
    for dag_id in ALL_DAGS:
        seen.runs.update(str(run["state"]) for run in stress.stack.api.runs(dag_id))
    for dag_id in (*DAGS, RIVALS_OPTIMIZE):
        seen.problems += [_failure(stress, dag_id, task) for task in _not_well(stress, dag_id)]
    for dag_id in (EACH, TOGETHER):
        writers = WRITERS_OF[dag_id]
        seen.writes += stress.results(dag_id, *(f"load.{writer}" for writer in writers))
        for report in stress.results(dag_id, "load.reconcile", key="return_value"):
            seen.outcomes += [{**outcome, "run_id": report["run_id"]} for outcome in report["writers"]]
            seen.problems += [f"{report['run_id']}: reconcile misses {writer}" for writer in report["missing"]]
    seen.compactions = stress.results(OPTIMIZE, "optimize")
    seen.vacuums = stress.results(VACUUM, "vacuum")
    for outcome in seen.outcomes:
        check_outcome(outcome, seen)


def check_outcome(outcome: dict[str, Any], seen: Evidence) -> None:
    """An append is published; what replaces a slot may yield to a later one, or be replaced by it."""
    of_a_slot = {"set_aside", "superseded"} if is_overwriter(outcome["writer"]) else set()
    if outcome["status"] not in {"published", "already_published"} | of_a_slot:
        seen.problems.append(f"{outcome['run_id']}: {outcome['writer']} is {outcome['status']}: {outcome['error']}")


def _not_well(stress: Stress, dag_id: str) -> list[dict[str, Any]]:
    return [task for task in stress.tasks(dag_id) if task["state"] not in ("success", "skipped")]


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


# -- the log -----------------------------------------------------------------------------------------------------------


def check_log(seen: Evidence) -> None:
    """No path comes twice, nor a buffer, nor a writer's ``txn`` (protocol: generation, no path twice)."""
    added: dict[str, int] = {}
    buffers: dict[str, int] = {}
    txns: dict[str, int] = {}
    for commit in seen.commits:
        removed = {remove["path"] for remove in commit.removes}
        for add in commit.adds:
            # A foreign DELETE adds a file again, with a deletion vector, as it removes it without.
            again = add["path"] in removed and add.get("deletionVector") is not None
            if add["path"] in added and not again:
                seen.problems.append(f"{add['path']} came with version {added[add['path']]} and {commit.version}")
            added[add["path"]] = commit.version
        names = ((buffers, [w.buffer for w in commit.writers]), (txns, [w.app_id for w in commit.writers]))
        for known, new in names:
            seen.problems += [
                f"{name} is in versions {known[name]} and {commit.version}" for name in new if name in known
            ]
            known.update(dict.fromkeys(new, commit.version))
    versions = [commit.version for commit in seen.commits]
    if versions != list(range(len(versions))):
        seen.problems.append(f"The log has gaps: {versions}")


def check_versions(seen: Evidence) -> None:
    """Every version that a task of ours was told is its own in the log.

    A foreign commit may have overwritten it without noticing (protocol: no Spark commit to the shared log).
    """
    by_version = {commit.version: commit for commit in seen.commits}
    for told in (*seen.writes, *seen.outcomes):
        if told["status"] not in ("published", "already_published"):
            continue
        commit = by_version.get(told["version"])
        if commit is None or told["buffer"] not in {writer.buffer for writer in commit.writers}:
            _overwritten(seen, f"{told['run_id']}: {told['writer']}", told["version"], commit)
    for told in seen.compactions:
        if told["status"] == "published":
            commit = by_version.get(told["version"])
            if commit is None or not is_compaction(commit):
                _overwritten(seen, f"{told['run_id']}: the compaction", told["version"], commit)
    published = {told["version"] for told in seen.compactions if told["status"] == "published"}
    unknown = [commit.version for commit in seen.commits if is_compaction(commit) and commit.version not in published]
    seen.problems += [f"Version {version} is a compaction that no task tells of" for version in unknown]


def _overwritten(seen: Evidence, who: str, version: int, commit: Commit | None) -> None:
    now = f"{commit.operation} of {commit.info.get('engineInfo')}" if commit is not None else "missing"
    sentence = f"{who} was published in version {version}, which is {now} in the log: it was overwritten"
    if sentence not in seen.overwritten:
        seen.overwritten.append(sentence)
        seen.problems.append(sentence)


def is_compaction(commit: Commit) -> bool:
    """Whether a version is a compaction of ours."""
    return COMPACTION in (commit.info.get("staged") or {})


def is_ours(commit: Commit) -> bool:
    """Whether a version is of this package."""
    return str(commit.info.get("engineInfo", "")).startswith(_OURS)


# -- the rows ----------------------------------------------------------------------------------------------------------


def expected_rows(loads: Iterable[Load], foreign: Iterable[Row], writes: Iterable[dict[str, Any]]) -> Counter[Row]:
    """Every append's rows, of those that replaced a slot the last to finish, and the foreign writer's."""
    finished = {(w["run_id"], w["writer"]): datetime.fromisoformat(w["finished"]) for w in writes if "finished" in w}
    rows = list(foreign)
    last: dict[str, tuple[datetime, list[Row]]] = {}
    for load in loads:
        for writer in load.writers:
            mine = load.rows(writer)
            if not is_overwriter(writer):
                rows += mine
                continue
            moment = finished.get((load.run_id, writer))
            if moment is not None and (load.slot not in last or moment > last[load.slot][0]):
                last[load.slot] = (moment, mine)
    return Counter(rows + [row for _, mine in last.values() for row in mine])


def _check_rows(stress: Stress, seen: Evidence) -> None:
    by_spark, ids = _rows_by_spark(stress)
    for reader, found in (("deltalake", rows_at(stress.table)), ("Spark", by_spark)):
        seen.found[reader] = found.total()
        missing, extra = seen.expected - found, found - seen.expected
        if missing:
            seen.problems.append(f"{reader} misses {missing.total()} rows: {_by_load(missing)}")
        if extra:
            seen.problems.append(f"{reader} has {extra.total()} rows too many: {_by_load(extra)}")
    twice = [row_id for row_id, count in Counter(ids).items() if count > 1 or row_id is None]
    if twice:
        seen.problems.append(f"{len(twice)} row ids are missing or given twice, such as {twice[:_MOST]}")


def _by_load(rows: Counter[Row]) -> str:
    counts = Counter(f"{load}/{writer} in {part}" for part, load, writer, *_ in rows.elements())
    return ", ".join(f"{name}: {count}" for name, count in counts.most_common(_MOST))


def _rows_by_spark(stress: Stress, version: int | None = None) -> tuple[Counter[Row], list[int | None]]:
    """The table's rows and their row ids, as Spark reads them."""
    rows = _read_by_spark(stress, stress.table, version, *COLUMNS, "_metadata.row_id AS row_id")
    return Counter(row[:-1] for row in rows), [row[-1] for row in rows]


def _read_by_spark(stress: Stress, table: Path, version: int | None, *columns: str) -> list[Any]:
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.remote(stress.stack.connect_server.remote).create()
    try:
        reader = spark.read.format("delta")
        if version is not None:
            reader = reader.option("versionAsOf", version)
        return [tuple(row) for row in reader.load(str(table)).selectExpr(*columns).collect()]
    finally:
        spark.stop()


# -- the reader --------------------------------------------------------------------------------------------------------


def check_reader(stress: Stress, seen: Evidence) -> None:
    """It met no error, never a part of a writer's rows, never half a load that comes together; what was there stays."""
    answers = [answer for answer in stress.answers if "error" not in answer]
    errors = Counter(answer["error"] for answer in stress.answers if "error" in answer)
    seen.problems += [f"The reader met, {count} times: {error[:600]}" for error, count in errors.items()]
    slots = defaultdict(list)
    for load in stress.appends:
        if load.dag_id == EACH:
            slots[load.slot].append(f"{load.name}/slot")
    together = [tuple(f"{load.name}/{w}" for w in load.writers) for load in stress.appends if load.dag_id == TOGETHER]
    appended = [f"{ld.name}/{w}" for ld in stress.appends for w in ld.writers if not is_overwriter(w)]
    before: dict[str, int] = {}
    version = -1
    wrong: list[str] = []
    for answer in answers:
        rows, at = answer["rows"], f"version {answer['version']}"
        if answer["version"] < version:
            wrong.append(f"{at} after version {version}")
        version = answer["version"]
        for name, count in rows.items():
            writer = name.rpartition("/")[2]
            if writer in WRITERS and count != WRITERS[writer]["rows"]:
                wrong.append(f"{count} rows of {name} in {at}")
        wrong += [f"half of {pair[0]} in {at}" for pair in together if len({name in rows for name in pair}) > 1]
        wrong += [f"no {name} any more in {at}" for name in appended if name in before and name not in rows]
        for names in slots.values():
            there = [name for name in names if name in rows]
            if len(there) > 1 or (not there and any(name in before for name in names)):
                wrong.append(f"{there or 'nothing'} in a slot in {at}")
        before = rows
    seen.problems += [f"The reader saw {what}" for what in wrong[:_MOST]]


# -- time travel -------------------------------------------------------------------------------------------------------


def _check_time_travel(stress: Stress, seen: Evidence) -> None:
    """Before and after a compaction the rows are the same, and so are their ids."""
    compacted = [commit.version for commit in seen.commits if is_compaction(commit)]
    for version in _spread(compacted, _SAMPLE):
        if rows_at(stress.table, version - 1) != rows_at(stress.table, version):
            seen.problems.append(f"Compaction {version} changed rows, as deltalake reads them")
    for version in _spread(compacted, _SPARK_SAMPLE):
        (rows, ids), (rows_after, ids_after) = (_rows_by_spark(stress, v) for v in (version - 1, version))
        if rows != rows_after:
            seen.problems.append(f"Compaction {version} changed rows, as Spark reads them")
        if Counter(ids) != Counter(ids_after):
            seen.problems.append(f"Compaction {version} changed row ids")
    seen.travelled = {
        "deltalake": len(_spread(compacted, _SAMPLE)),
        "Spark, with row ids": len(_spread(compacted, _SPARK_SAMPLE)),
    }


def _spread(values: list[int], most: int) -> list[int]:
    """Some of the values, over their whole range."""
    if len(values) <= most:
        return values
    return [values[n * (len(values) - 1) // (most - 1)] for n in range(most)]


# -- loads that replace the same partitions ----------------------------------------------------------------------------


def _check_rivals(stress: Stress, seen: Evidence) -> None:
    """Every version is one write, done whole to the version before, and every load was told what became of it."""
    table = stress.contested_table
    log = Evidence(commits=_commits(table), compactions=stress.results(RIVALS_OPTIMIZE, "optimize"))
    check_log(log)
    check_versions(log)
    told = list(_told(stress, seen))
    seen.contest = judge_rivals(table, stress.rivals, stress.meddler.statements, told)
    if Counter(_read_by_spark(stress, table, None, *COLUMNS)) != rows_at(table):
        seen.problems.append("Spark and deltalake read different rows of the contested table")
    seen.problems += [f"Contested table: {problem}" for problem in (*log.problems, *seen.contest.problems)]


def _told(stress: Stress, seen: Evidence) -> Iterator[Told]:
    """Yield what became of each writer of the contested table, and note the runs that are red for no reason."""
    loads = {load.run_id: load for load in stress.rivals}
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
    return any(kind.__name__ in words for kind in (ConflictError, *ConflictError.__subclasses__()))
