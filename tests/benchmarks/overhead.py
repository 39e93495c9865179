"""A writer task with a tiny source, and a preloaded one, beside an empty task: each in a new process, in turns."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from tests.benchmarks import ours
from tests.benchmarks.one_task import EMPTY, PRELOADED, ROWS, TABLE, WRITER
from tests.benchmarks.results import Task

if TYPE_CHECKING:
    from tests.support.spark import Server

_ROOT = Path(__file__).resolve().parents[2]
_MINUTES = 10


def measure(times: int, server: Server, lakehouse: Path, say: Callable[[str], None]) -> list[Task]:
    """Run the kinds of task in turns."""
    from deltalake import DeltaTable

    table = lakehouse / TABLE
    shutil.rmtree(table, ignore_errors=True)
    ours.connect(lakehouse, server.remote)
    # The first writer makes the table, which the others find; it is a warm-up, as the first empty task is.
    for kind in (EMPTY, WRITER):
        _run(kind, server)
    found = []
    for _ in range(times):
        for kind in (EMPTY, WRITER, PRELOADED):
            task = _run(kind, server)
            say(f"One {kind} task took {task.seconds:.1f} s, {task.cpu:.1f} CPU s {' '.join(task.faults)}")
            found.append(task)
    rows = DeltaTable(str(table)).to_pyarrow_table().num_rows
    wanted = ROWS * (2 * times + 1)
    if rows != wanted:
        found[-1].faults.append(f"{rows} rows are in the table instead of {wanted}")
    shutil.rmtree(table)
    return found


def _run(kind: str, server: Server) -> Task:
    ended = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.one_task", kind, str(server.pid)],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        timeout=60 * _MINUTES,
        check=False,
    )
    if ended.returncode:
        raise RuntimeError(f"The {kind} task ended with status {ended.returncode}:\n{ended.stderr[-4000:]}")
    return Task(**json.loads(ended.stdout.splitlines()[-1]))
