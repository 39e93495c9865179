"""Somebody else's VACUUM with a retention of zero, in the middle of staging.

It takes what was staged. That is noticed before anything is published, said in clear words, and healed by running just
that writer again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_provider_onelake.choices import PublishMode
from airflow_provider_onelake.exceptions import BufferLostError, MissingWritersError
from airflow_provider_onelake.log.actions import dump_actions, version_path
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.writes.publish import Committer
from airflow_provider_onelake.writes.reconcile import reconcile
from tests.support.tables import LOAD, append_files, begun, complete, ids, make_table, of_attempt, stage, writer_spec


@pytest.fixture
def log(tmp_path: Path) -> DeltaLog:
    return make_table(tmp_path / "t")


def foreign_vacuum(spark: Any, log: DeltaLog) -> None:
    spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    spark.sql(f"VACUUM delta.`{log.table}` RETAIN 0 HOURS").collect()


def test_a_writer_whose_first_files_go_while_it_writes_the_rest_is_told_so(spark: Any, log: DeltaLog) -> None:
    spec = writer_spec("vendor-1")
    task = begun(log, spec)
    actions = append_files(log.store, task.path, {"2019-01": [1]}, **of_attempt(spec.attempt))
    foreign_vacuum(spark, log)
    actions += append_files(log.store, task.path, {"2019-02": [2]})[1:]
    log.store.create(f"{task.path}/{version_path(1)}", dump_actions(actions))
    with pytest.raises(
        BufferLostError, match=r"VACUUM or a person removed it.*'vendor-1' again by clearing load.write"
    ):
        complete(log, task.path)
    again = stage(log, writer_spec("vendor-1"), {"2019-01": [1], "2019-02": [2]})
    Committer(log).publish([again])
    assert ids(Path(log.table)) == [1, 2]


@pytest.mark.parametrize("publish", list(PublishMode))
def test_a_complete_buffer_that_went_is_missed_at_the_commit_and_only_its_writer_runs_again(
    spark: Any, log: DeltaLog, publish: PublishMode
) -> None:
    stage(log, writer_spec("vendor-1", publish=publish), {"2019-01": [1]})
    foreign_vacuum(spark, log)
    kept = stage(log, writer_spec("vendor-2", publish=publish), {"2019-01": [2]})
    before = log.snapshot()
    report = reconcile(Committer(log), LOAD, ["vendor-1", "vendor-2"], publish=publish)
    assert report.missing == ("vendor-1",)
    lost = next(outcome for outcome in report.outcomes if outcome.writer == "vendor-1")
    assert "is gone: a VACUUM or a person removed it" in (lost.error or "")
    assert "clearing load.write[vendor-1]" in (lost.error or "")
    with pytest.raises(MissingWritersError, match="vendor-1"):
        report.raise_for_failures()
    assert before is not None
    assert ids(Path(log.table)) == [2]

    stage(log, writer_spec("vendor-1", publish=publish), {"2019-01": [1]})
    healed = reconcile(Committer(log), LOAD, ["vendor-1", "vendor-2"], publish=publish)
    healed.raise_for_failures()
    assert ids(Path(log.table)) == [1, 2]
    other = next(outcome for outcome in healed.outcomes if outcome.writer == "vendor-2")
    assert (other.status, other.buffer) == ("already_published", kept.path)


def test_published_rows_survive_it(spark: Any, log: DeltaLog) -> None:
    Committer(log).publish([stage(log, writer_spec(), {"2019-01": [1], "a b": [2]})])
    foreign_vacuum(spark, log)
    assert ids(Path(log.table)) == [1, 2]
