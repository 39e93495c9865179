"""The report of a stress, for people."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tests.live.stress.judge import is_compaction, is_ours

if TYPE_CHECKING:
    from tests.live.stress.driver import Stress
    from tests.live.stress.judge import Evidence

console = Console(highlight=False)


def show(stress: Stress, seen: Evidence) -> None:
    """Print what a stress did and what was found.

    :param stress: that has ended.
    :param seen: what was found.
    """
    table = Table("what", "how much", title=f"Stress of {stress.seconds / 60:.1f} minutes", show_lines=True)
    for row in _rows(stress, seen):
        table.add_row(row[0], escape(row[1]))
    console.print(table)
    for problem in seen.problems:
        console.print(f"[red]{escape(problem)}[/]")
    if not seen.problems:
        console.print(
            "[green]Every row is there once, and every version is what whole writes leave; no writer failed but by its policy.[/]"
        )


def _rows(stress: Stress, seen: Evidence) -> list[tuple[str, str]]:
    commits = seen.commits
    compactions = [commit for commit in commits if is_compaction(commit)]
    writes = [commit for commit in commits if is_ours(commit) and not is_compaction(commit)]
    foreign = Counter(commit.operation for commit in commits if not is_ours(commit))
    looks = [answer["version"] for answer in stress.answers if "error" not in answer]
    dropped = Counter(_kind(drop["reason"]) for told in seen.compactions for drop in told["dropped"])
    left = Counter(_kind(left["reason"]) for told in seen.compactions for left in told["left_out"])
    settled = sum(len(outcome["decisions"]) for outcome in seen.outcomes)
    files = [sum(told[key] for told in seen.compactions) for key in ("files_before", "files_after")]
    return [
        (
            "runs in Airflow",
            f"{_counts(seen.runs)}; of them {_backfilled(stress)} of {len(stress.backfills)} backfills",
        ),
        (
            "versions",
            f"{len(commits)}: {len(writes)} ours with rows, {len(compactions)} compactions, {_counts(foreign)}",
        ),
        ("writers", _counts(Counter(told["status"] for told in seen.writes))),
        ("reconcile", f"{_counts(Counter(o['status'] for o in seen.outcomes))}; {settled} conflicts settled"),
        ("rows", f"{seen.expected.total()} expected; found {_counts(seen.found)}"),
        (
            "races lost and rebased",
            f"writers {_lost(seen.writes)}, reconcile {_lost(seen.outcomes)}, compactions {_lost(seen.compactions)}",
        ),
        (
            "compaction runs",
            f"{_counts(Counter(c['status'] for c in seen.compactions))}; files {files[0]} → {files[1]}",
        ),
        ("partitions compacted", str(sum(told["partitions_compacted"] for told in seen.compactions))),
        ("partitions dropped", f"{sum(told['partitions_dropped'] for told in seen.compactions)} {_counts(dropped)}"),
        ("partitions left out", _counts(left)),
        (
            "vacuum dry runs",
            f"{len(seen.vacuums)}, {sum(told['files'] for told in seen.vacuums)} files would have gone",
        ),
        ("foreign statements", _counts(stress.foreign.done)),
        ("foreign conflicts", f"{stress.foreign.conflicts.total()} {_counts(stress.foreign.conflicts)}"),
        ("ours overwritten", str(len(seen.overwritten))),
        (
            "reader",
            f"{len(stress.answers)} looks at {len(set(looks))} versions, {len(stress.answers) - len(looks)} errors",
        ),
        *_of_rivals(stress, seen),
        ("time travel", f"compactions before and after: {_counts(seen.travelled)}"),
    ]


def _of_rivals(stress: Stress, seen: Evidence) -> list[tuple[str, str]]:
    contest = seen.contest
    policies = sorted({policy for policy, _ in contest.outcomes})
    told = {
        policy: _counts({status: n for (whose, status), n in contest.outcomes.items() if whose == policy})
        for policy in policies
    }
    history = contest.history
    return [
        ("contested table", f"{len(history.states)} versions: {_counts(contest.kinds)}"),
        *((f"its writers, {policy}", told[policy]) for policy in policies),
        ("their partitions at the end", _counts(contest.fates)),
        ("writes placed before others", str(history.before_others)),
        ("statements there", f"{_counts(stress.meddler.done)}; conflicts {_counts(stress.meddler.conflicts)}"),
    ]


def _backfilled(stress: Stress) -> int:
    started = {run_id for runs in stress.runs.values() for run_id in runs}
    return sum(load.run_id not in started for load in stress.loads)


def _lost(results: list[dict[str, int]]) -> int:
    return sum(told.get("lost_races") or 0 for told in results)


def _counts(counts: Counter[str] | dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items())) or "none"


def _kind(reason: str) -> str:
    """A reason without the names in it."""
    for mark in (
        "removed it",
        "another deletion vector",
        "writer in flight was formed on",
        "has a writer in flight",
        "small files",
    ):
        if mark in reason:
            return mark
    return reason
