"""What the tries of a task tell each other of the refresh that they want."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from airflow_provider_onelake.fabric.operations import Note
from airflow_provider_onelake.log.delta_log import DeltaLog
from tests.support.contexts import Kept
from tests.support.tables import foreign_append, local_log, make_table, newest


def note_of(kept: Kept, log: DeltaLog, task_start: str) -> Note:
    return Note.open(kept, task_start, {"table": log.table}, lambda: newest(log).version, log.digest)


@pytest.mark.parametrize("made_again", [False, True])
def test_a_clear_repeats_it_only_of_a_table_made_again(tmp_path: Path, made_again: bool) -> None:
    path, kept = tmp_path / "t", Kept()
    foreign_append(make_table(path), {"2019-01": [1]})
    note_of(kept, local_log(path), "first").keep(done={"table": "t", "status": "Success"})
    if made_again:
        shutil.rmtree(path)
        foreign_append(make_table(path), {"2019-02": [2]})
    cleared = note_of(kept, local_log(path), "second")
    assert cleared.version == 1
    assert (cleared.get("done") is None) is made_again
