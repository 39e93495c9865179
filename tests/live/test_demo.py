"""``make demo``, run as people run it: in a process of its own, with a stack of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable

from include.local import postgres
from include.local.demo import ALL_AGREES, BAD_INPUT, SAMPLE, SET_UP_FAILED
from include.local.expected import KEY, expected_append, month_files, read_trips
from include.local.processes import leftovers
from include.local.settings import REPOSITORY

COMMAND = (sys.executable, "-m", "include.local", "demo")
# With a gap between them: what is not there is left out.
MONTHS = ("2019-01", "2019-03")
# Beside other tests on two slow cores, one demo has taken 400 s.
pytestmark = pytest.mark.timeout(1800)


class Demo:
    """Two months, a lakehouse and a state of the test's own."""

    def __init__(self, directory: Path) -> None:
        self.state = directory / "state"
        self.lakehouse = directory / "lakehouse"
        self.input = directory / "input"
        self.input.mkdir()
        for month in MONTHS:
            (self.input / month_files(SAMPLE)[month].name).symlink_to(month_files(SAMPLE)[month])

    def run(self, *, input_: Path | None = None, **environment: str) -> tuple[int, str]:
        """Run it; returns the exit status and what it said, in one line."""
        done = subprocess.run(
            [*COMMAND, "--input", str(input_ or self.input), "--lakehouse", str(self.lakehouse)],
            env={**os.environ, "LOCAL_STATE": str(self.state), "COLUMNS": "200", **environment},
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, " ".join((done.stdout + done.stderr).split())


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Demo]:
    made = Demo(tmp_path)
    yield made
    state = made.state / "demo"
    left = leftovers(state)
    postgres.remove(state)
    assert left == []


@pytest.mark.costs("It is make demo, in a stack of its own")
@pytest.mark.parametrize(
    "compactions",
    [
        pytest.param(("Compaction",), id="once"),
        pytest.param(("Compaction", "nothing to compact"), id="and again", marks=pytest.mark.nightly),
    ],
)
def test_the_demo_loads(demo: Demo, compactions: tuple[str, ...]) -> None:
    expected = expected_append(read_trips(month_files(demo.input)))
    for compacted in compactions:
        status, said = demo.run()
        assert status == ALL_AGREES, said
        assert compacted in said
        assert "There are no files for 2019-02: these months are left out." in said
        assert "Every row is there once." in said
        assert "Stopped what was started." in said
        logs = list((demo.state / "demo").rglob("attempt=*.log"))
        assert len(logs) >= len(MONTHS) * 4
        # Where all is well, nobody reads of errors: neither ours, nor those of the libraries below.
        assert [line for log in logs for line in log.read_text().splitlines() if '"level":"error"' in line] == []

        table = DeltaTable(str(demo.lakehouse / "Tables" / "trips")).to_pyarrow_table(columns=list(KEY))
        assert Counter(zip(*(table.column(name).to_pylist() for name in KEY), strict=True)) == expected


def test_input_that_is_not_there_is_told_apart(demo: Demo, tmp_path: Path) -> None:
    status, said = demo.run(input_=tmp_path / "nowhere")
    assert status == BAD_INPUT
    assert "Invalid value for '--input'" in said
    assert "nowhere' does not exist" in said

    (tmp_path / "empty").mkdir()
    status, said = demo.run(input_=tmp_path / "empty")
    assert status == BAD_INPUT
    assert "holds no file named yellow_tripdata_YYYY-MM.json.gz" in said


def test_a_broken_set_up_is_told_apart(demo: Demo, tmp_path: Path) -> None:
    status, said = demo.run(JAVA_HOME=str(tmp_path / "no-java"))
    assert status == SET_UP_FAILED
    assert "Set-up failed" in said
    assert "no 'java' in JAVA_HOME" in said
    assert "nothing is wrong with the load" in said
