"""What a report says: here, to which partitions a load wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_provider_onelake.choices import PublishMode
from airflow_provider_onelake.commit.publish import Committer
from airflow_provider_onelake.commit.reconcile import reconcile
from airflow_provider_onelake.log.delta_log import DeltaLog
from tests.support.tables import LOAD, foreign_append, make_table, stage, writer_spec


@pytest.mark.parametrize("publish", list(PublishMode))
def test_each_partition_that_got_files_is_named_once_and_others_are_not(log: DeltaLog, publish: PublishMode) -> None:
    foreign_append(log, {"2019-09": [9]})
    stage(log, writer_spec("a"), {"2019-01": [1], None: [2]})
    stage(log, writer_spec("b"), {"2019-01": [3]})
    report = reconcile(Committer(log), LOAD, ["a", "b"], publish=publish)
    expected: list[Any] = [{"month": "2019-01"}, {"month": None}]
    assert report.touched_partitions(log) == expected
    # A second reconciliation of the same load says the same.
    assert reconcile(Committer(log), LOAD, ["a", "b"], publish=publish).touched_partitions(log) == expected


def test_a_load_without_rows_touched_nothing(log: DeltaLog) -> None:
    stage(log, writer_spec("a"), {})
    assert reconcile(Committer(log), LOAD, ["a"]).touched_partitions(log) == []


def test_a_table_without_partitions_is_one(tmp_path: Path) -> None:
    log = make_table(tmp_path / "t", partition_by=())
    stage(log, writer_spec("a"), {None: [1]})
    assert reconcile(Committer(log), LOAD, ["a"]).touched_partitions(log) == [{}]


def test_too_many_stand_for_all(log: DeltaLog) -> None:
    stage(log, writer_spec("a"), {f"2019-{month:02}": [month] for month in range(1, 5)})
    report = reconcile(Committer(log), LOAD, ["a"])
    assert report.touched_partitions(log, most=3) is None
    assert len(report.touched_partitions(log, most=4) or ()) == 4
