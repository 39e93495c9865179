"""A script for a directory that has mutmut's settings: tries mutants by chance until the time is over."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

LOG = Path("mutmut.log")


def main(seed: int, seconds: int, workers: int) -> None:
    # mutmut reads its settings when it is imported.
    from mutmut import __main__ as mutmut
    from mutmut.mutation.diff_apply import get_diff_for_mutant
    from mutmut.stats import status_by_exit_code
    from mutmut.workers.isolation import ForkServerRunner

    collect = mutmut.collect_source_file_mutation_data

    def shuffled(**given: Any) -> Any:
        mutants, data = collect(**given)
        Random(seed).shuffle(mutants)
        return mutants, data

    mutmut.collect_source_file_mutation_data = shuffled
    # mutmut begins with those that are quick to try. Sorting does not change the order of what is equal.
    mutmut.estimated_worst_case_time = lambda mutant: 0
    # The tests have run once to see which function they call, and had to pass.
    ForkServerRunner.run_clean_tests = lambda self, tests: 0
    # mutmut's processes speak to an output that pytest has closed.
    logging.raiseExceptions = False
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.alarm(seconds)
    # What mutmut says on its way is of use only where it fails.
    shown = os.dup(1)
    os.dup2(os.open(LOG, os.O_WRONLY | os.O_CREAT), 1)
    try:
        mutmut._run([], workers)
    except BaseException:
        os.dup2(shown, 1)
        print(*(line.rpartition("\r")[2] for line in LOG.read_text().split("\n")[-60:]), sep="\n")
        sys.exit("No mutant was tried: the tests do not pass, or the time is too short for them.")
    os.dup2(shown, 1)
    _, by_path = collect(mutant_names=())
    ((path, data),) = by_path.items()
    ends = {name: status_by_exit_code[code] for name, code in data.exit_code_by_key.items() if code is not None}
    for name, end in ends.items():
        if end in ("survived", "no tests"):
            print(f"\n{name}: {end}")
            print(get_diff_for_mutant(name, path=data.path))
    told = ", ".join(f"{count} {end}" for end, count in Counter(ends.values()).most_common())
    print(f"\n{path}, seed {seed}: {len(ends)} of {len(data.exit_code_by_key)} mutants were tried: {told}.")


# Tests that start processes of Python by `spawn` import this file in each of them.
if __name__ == "__main__":
    sys.path.remove(str(Path(__file__).parent))
    main(*map(int, sys.argv[1:]))
