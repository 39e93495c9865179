"""``make stress``: the mixed stress on a stack of its own, for as long as one likes."""

from __future__ import annotations

import argparse
import shutil
import sys

from include.local.settings import REPOSITORY, from_environment
from tests.live.harness import make_settings, start, stop
from tests.live.stress.driver import Stress
from tests.live.stress.judge import judge
from tests.live.stress.report import console, show


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(prog="make stress", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10, help="for how long new work is started")
    minutes = parser.parse_args().minutes
    directory = from_environment().state / "stress"
    shutil.rmtree(directory, ignore_errors=True)
    settings = make_settings(directory, REPOSITORY / "tests" / "live" / "dags")
    try:
        with console.status("Starting Airflow, PostgreSQL and Spark Connect …"):
            stack = start(settings)
        console.print(f"Airflow is up: {stack.api.url}; logs and the tables stay in {directory}")
        stress = Stress(stack, minutes, directory)
        with console.status(
            f"Writers, backfills, compactions and other engines at two tables for {minutes:g} minutes …"
        ):
            stress.run()
        with console.status("Looking at what is there …"):
            seen = judge(stress)
    finally:
        stop(settings)
    show(stress, seen)
    return bool(seen.problems)


if __name__ == "__main__":
    sys.exit(main())
