"""Airflow is upgraded in the middle of a load: what a task of the old one began, a task of the new one ends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import airflow
import pytest

from include.local import processes
from include.local.settings import REPOSITORY, from_environment
from tests.live.harness import make_settings, start, stop
from tests.live.held_load import ROWS, WRITERS, HeldLoad
from tests.matrix.__main__ import environment
from tests.matrix.cells import cells_named

DAGS = Path(__file__).parent / "dags"
PUBLISHED, STAGED = "vendor-1.after-commit", "vendor-2.before-commit"


def begin(directory: Path, owner: int) -> None:
    """Play the load's first half, on the Airflow of this process: one writer has published, one has staged its rows."""
    settings = make_settings(directory, DAGS)
    running = start(settings, owner)
    load = HeldLoad(running, directory, "upgraded")
    load.hold(PUBLISHED, STAGED)
    load.start()
    load.wait_until_at(PUBLISHED)
    load.wait_until_at(STAGED)
    (directory / "run_id").write_text(load.run_id)
    (directory / "airflow").write_text(airflow.__version__)
    processes.shut_down(settings.state)


@pytest.mark.nightly
@pytest.mark.costs("Two live Airflows start, each of another version, and the first is installed")
def test_what_airflow_3_2_began_3_3_ends(tmp_path: Path) -> None:
    (cell,) = cells_named("airflow-3.2")
    python = environment(cell, from_environment().state.absolute() / "matrix")
    settings = make_settings(tmp_path, DAGS)
    first_half = [str(python), "-m", __name__, str(tmp_path), str(os.getpid())]
    env = {**os.environ, "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}"}
    try:
        subprocess.run(first_half, env=env, cwd=REPOSITORY, check=True)
        assert (tmp_path / "airflow").read_text().startswith("3.2.")
        running = start(settings)
        load = HeldLoad(running, tmp_path, "upgraded")
        load.run_id = (tmp_path / "run_id").read_text()
        buffers = {writer: load.buffers(writer) for writer in WRITERS}
        assert list(load.rows()) == ["vendor-1"]
        load.let_go()

        assert load.end() == "success"

        assert load.rows() == ROWS
        # Nothing was done twice: the new Airflow's tasks know the tries before them as their own.
        assert {writer: load.buffers(writer) for writer in WRITERS} == buffers
        assert {writer: len(found) for writer, found in buffers.items()} == dict.fromkeys(WRITERS, 1)
        published, staged = (load.result(writer) for writer in WRITERS)
        assert published["status"] == "skipped"
        assert "an earlier attempt published it" in published["reason"]
        assert (staged["status"], staged["reused"]) == ("published", True)
    finally:
        stop(settings)


if __name__ == "__main__":
    begin(Path(sys.argv[1]), int(sys.argv[2]))
