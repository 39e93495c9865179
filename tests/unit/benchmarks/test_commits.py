"""Every row of every commit is looked for, whoever commits."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks import commits, together
from tests.support.object_stores import Lake


class AtOnce:
    """Calls the functions one after another, in this process."""

    def together(self, do, work):  # type: ignore[no-untyped-def]
        return [do(*args) for args in work]


@pytest.fixture(autouse=True)
def _no_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits, "begin_together", lambda processes: None)


@pytest.mark.parametrize("way", [commits.BARE, commits.OURS, commits.DELTALAKE])
def test_every_commit_is_made_and_timed(tmp_path: Path, way: str) -> None:
    seen = commits._one(AtOnce(), commits.LOCAL, Lake("local", str(tmp_path)), way, 2, 3)  # type: ignore[arg-type]
    assert seen.faults == []
    assert (seen.commits, len(seen.latencies)) == (6, 6)


def test_a_commit_that_fails_and_rows_that_are_missing_are_faults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose_one(lake: Lake, table: str, processes: int, paths: list[str]) -> object:
        return commits._publish(lake, table, processes, paths[1:])

    monkeypatch.setitem(commits._WAYS, commits.OURS, (commits._buffers, lose_one))
    seen = commits._one(AtOnce(), commits.LOCAL, Lake("local", str(tmp_path)), commits.OURS, 1, 3)  # type: ignore[arg-type]
    assert seen.faults == ["4 rows, 4 of them different"]


def test_processes_begin_together_and_one_that_fails_stops_the_others() -> None:
    """A barrier that is waited for by too few would hold the bench for minutes."""
    barrier = _Barrier()
    together._barriers = {2: barrier}  # type: ignore[dict-item]
    with pytest.raises(ZeroDivisionError):
        together._run(lambda: 1 / 0, 2, ())
    assert barrier.aborted


class _Barrier:
    aborted = False

    def abort(self) -> None:
        self.aborted = True
