"""The report of a stress, for people."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tests.live.stress.judge import is_compaction, is_ours

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.live.stress.driver import Stress
    from tests.live.stress.judge import Evidence

console = Console(highlight=False)


def show(stress: Stress, seen: Evidence) -> None:
    """Print what a stress did and what was found."""
    kinds = ("compactions" if is_compaction(c) else "ours" if is_ours(c) else c.operation for c in seen.commits)
    contest = seen.contest
    done: dict[str, Mapping[str, int]] = {
        "runs in Airflow": seen.runs,
        "versions": Counter(kinds),
        "compactions": Counter(str(told["status"]) for told in seen.compactions),
        "foreign statements": stress.meddler.done,
        "foreign conflicts": stress.meddler.conflicts,
        "writes": contest.kinds,
        "writers": Counter({f"{policy} {status}": n for (policy, status), n in contest.outcomes.items()}),
        "their partitions at the end": contest.fates,
    }
    table = Table("what", "how much", title=f"Stress of {stress.seconds / 60:.1f} minutes", show_lines=True)
    for what, counts in done.items():
        table.add_row(what, escape(", ".join(f"{name} {count}" for name, count in sorted(counts.items())) or "none"))
    console.print(table)
    for problem in seen.problems:
        console.print(f"[red]{escape(problem)}[/]")
    if not seen.problems:
        console.print("[green]Every row is there once, and every version is what whole writes leave.[/]")
