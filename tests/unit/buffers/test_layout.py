"""What one listing shows: how far a writer has come, by the marks of its generations."""

from __future__ import annotations

from pathlib import Path

from airflow_provider_onelake.buffers.layout import WriterDirectory, compaction_path
from airflow_provider_onelake.history.reruns import Skip
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.writes.publish import Committer
from tests.support.tables import LOAD, claim, make_table, prepare, stage, writer_spec


def test_a_generation_is_not_skipped_because_an_older_one_was(tmp_path: Path) -> None:
    log = make_table(tmp_path / "t")
    Committer(log).publish([stage(log, writer_spec(), {"2019-01": [1]})])
    assert isinstance(prepare(log, writer_spec(generation=2)), Skip)
    assert _generation(log) == (2, True)
    claim(log, writer_spec(generation=3))
    assert _generation(log) == (3, False)


def _generation(log: DeltaLog) -> tuple[int, bool]:
    """The newest generation, and whether it counts as published beside the txn of the one before."""
    writer = WriterDirectory.read(log.store, LOAD.writer("w").directory)
    return writer.generation, writer.is_published(writer.generation - 1)


def test_every_task_has_a_directory_of_its_own_for_compactions_and_every_attempt_one_in_it() -> None:
    assert compaction_path("a", "1").startswith("staged/compaction-")
    assert compaction_path("a", "1").rpartition("/")[0] == compaction_path("a", "2").rpartition("/")[0]
    assert compaction_path("a", "1") != compaction_path("b", "1")
