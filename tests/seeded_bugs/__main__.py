"""``python -m tests.seeded_bugs``: every seeded bug is caught by the tests that are named for it, or this fails."""

from __future__ import annotations

import argparse
import sys

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tests.seeded_bugs.bug import Bug, StaleBugError
from tests.seeded_bugs.catalogue import BUGS
from tests.seeded_bugs.page import PAGE, page
from tests.seeded_bugs.runner import run_all

console = Console(highlight=False)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.seeded_bugs", description=__doc__)
    parser.add_argument("--only", default="", help="those whose name or module contains this text")
    parser.add_argument("--workers", type=int, default=2, help="how many at once (default: 2)")
    parser.add_argument("--write-page", action="store_true", help=f"write {PAGE.name} and run nothing")
    asked = parser.parse_args()
    if asked.write_page:
        PAGE.write_text(page())
        return 0
    bugs = [bug for bug in BUGS if asked.only in bug.name or asked.only in bug.module]
    if not bugs:
        console.print(f"No seeded bug is named like {asked.only!r}.")
        return 2
    stale = _stale(bugs)
    for said in stale:
        console.print(f"[red]stale[/] {escape(said)}")
    return 1 if stale or not _passes_clean(bugs, asked.workers) else _run(bugs, asked.workers)


def _stale(bugs: list[Bug]) -> list[str]:
    found = []
    for bug in bugs:
        try:
            bug.changed()
        except StaleBugError as error:
            found.append(str(error))
    return found


def _passes_clean(bugs: list[Bug], workers: int) -> bool:
    nodes = list(dict.fromkeys(node for bug in bugs for node in bug.nodes))
    shares = [share for share in (nodes[at::workers] for at in range(workers)) if share]
    fine = True
    for place, run in run_all([(None, share) for share in shares], workers):
        # A parametrised test is named as a whole.
        passed = {node.partition("[")[0] for node in run.passed} | set(run.passed)
        missing = [node for node in shares[place] if node not in passed]
        for failure in run.failures:
            console.print(f"[red]fails on clean code[/] {escape(failure.test)}: {failure.error}")
        if run.broken is not None or missing:
            console.print(f"[red]did not run on clean code[/] {escape(run.broken or ', '.join(missing))}")
        fine &= not run.failures and run.broken is None and not missing
    console.print(f"{len(nodes)} tests {'pass' if fine else 'do not all pass'} on clean code.")
    return fine


def _run(bugs: list[Bug], workers: int) -> int:
    table = Table("module", "bug", "verdict", "by", "s", title="Seeded bugs")
    alive = 0
    rows: dict[int, tuple[str, ...]] = {}
    for place, run in run_all([(bug, bug.nodes) for bug in bugs], workers):
        bug = bugs[place]
        why = run.verdict(bug)
        alive += why is not None
        by = ", ".join(failure.test.rpartition("::")[2] for failure in run.failures)
        verdict = "[green]caught[/]" if why is None else f"[red]{escape(why)}[/]"
        rows[place] = (bug.module, escape(bug.name), verdict, escape(by), f"{run.seconds:.1f}")
        if why is not None:
            console.print(f"[red]{escape(bug.module)}: {escape(bug.name)}:[/] {escape(why)}", soft_wrap=True)
    for place in sorted(rows):
        table.add_row(*rows[place])
    console.print(table)
    console.print(f"{len(bugs) - alive} of {len(bugs)} seeded bugs are caught.")
    return 1 if alive else 0


if __name__ == "__main__":
    sys.exit(main())
