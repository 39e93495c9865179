"""A script for a directory that has mutmut's settings: tries mutants by chance until the time is over."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections import Counter
from pathlib import Path
from random import Random

sys.path.remove(str(Path(__file__).parent))
seed, seconds, workers = map(int, sys.argv[1:])

from mutmut import __main__ as mutmut  # noqa: E402 - it reads its settings when it is imported
from mutmut.mutation.diff_apply import get_diff_for_mutant  # noqa: E402
from mutmut.stats import status_by_exit_code  # noqa: E402
from mutmut.workers import isolation  # noqa: E402

collect = mutmut.collect_source_file_mutation_data


def shuffled(**given):
    mutants, data = collect(**given)
    Random(seed).shuffle(mutants)
    return mutants, data


mutmut.collect_source_file_mutation_data = shuffled
# mutmut begins with those that are quick to try. Sorting does not change the order of what is equal.
mutmut.estimated_worst_case_time = lambda mutant: 0
# The tests have run once to see which function they call, and had to pass.
isolation.ForkServerRunner.run_clean_tests = lambda self, tests: 0


def over(*_):
    raise KeyboardInterrupt


# mutmut's processes speak to an output that pytest has closed.
logging.raiseExceptions = False
signal.signal(signal.SIGALRM, over)
signal.alarm(seconds)
# What mutmut says on its way is no use afterwards, but where it fails.
shown, log = os.dup(1), Path("mutmut.log")
os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT), 1)
try:
    mutmut._run([], workers)
except BaseException:
    os.dup2(shown, 1)
    print(log.read_text().rpartition("\r")[2])
    print("No mutant was tried: the tests do not pass, or the time is too short for them.")
    raise
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
