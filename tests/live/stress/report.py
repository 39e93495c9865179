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
    results = {"writers": seen.writes, "reconcile": seen.outcomes, "compactions": seen.compactions}
    contest, races = seen.contest, {who: sum(told.get("lost_races") or 0 for told in results[who]) for who in results}
    done: dict[str, Mapping[str, int]] = {
        "runs in Airflow": seen.runs,
        "versions": Counter(kinds),
        **{who: Counter(str(told["status"]) for told in results[who]) for who in results},
        "races lost and rebased": races,
        "rows expected": {"all": seen.expected.total()},
        "rows found": seen.found,
        "partitions compacted": {"all": sum(told["partitions_compacted"] for told in seen.compactions)},
        "vacuum dry runs": {"all": len(seen.vacuums)},
        "foreign statements": stress.foreign.done + stress.meddler.done,
        "foreign conflicts": stress.foreign.conflicts + stress.meddler.conflicts,
        "ours overwritten": {"all": len(seen.overwritten)},
        "looks of the reader": Counter("error" if "error" in answer else "answer" for answer in stress.answers),
        "contested table": contest.kinds,
        "its writers": Counter({f"{policy} {status}": n for (policy, status), n in contest.outcomes.items()}),
        "their partitions at the end": contest.fates,
        "time travel": seen.travelled,
    }
    table = Table("what", "how much", title=f"Stress of {stress.seconds / 60:.1f} minutes", show_lines=True)
    for what, counts in done.items():
        table.add_row(what, escape(", ".join(f"{name} {count}" for name, count in sorted(counts.items())) or "none"))
    console.print(table)
    for problem in seen.problems:
        console.print(f"[red]{escape(problem)}[/]")
    if not seen.problems:
        console.print("[green]Every row is there once, and every version is what whole writes leave.[/]")
