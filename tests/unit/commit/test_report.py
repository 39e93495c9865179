"""What a report says: here, to which partitions a load wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_onelake.choices import Policy, PublishMode
from airflow_provider_onelake.commit.losses import check_load
from airflow_provider_onelake.commit.policy import Outcome, Settlement
from airflow_provider_onelake.commit.publish import Committer
from airflow_provider_onelake.commit.reconcile import reconcile
from airflow_provider_onelake.exceptions import RowsSetAsideError
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.staging.modes import OverwritePartitions
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


def test_it_is_plain_json_for_xcom(log: DeltaLog) -> None:
    """Airflow wraps a tuple, and who reads the XCom would find the wrapping."""
    stage(log, writer_spec("late", mode=OverwritePartitions()), {"2019-01": [1]})
    foreign_append(log, {"2019-01": [9]})
    report = reconcile(Committer(log), LOAD, ["late"], on_conflict=Policy.FIRST_WRITER_WINS)
    assert report.outcomes[0].decisions
    assert json.loads(json.dumps(report.to_json())) == report.to_json()
    settlement = Settlement("month=2019-01", 1, "WRITE", Outcome.SET_ASIDE)
    assert json.loads(json.dumps(settlement.to_json())) == settlement.to_json()


def test_it_is_a_table_in_a_log(log: DeltaLog) -> None:
    stage(log, writer_spec("eu", mode=OverwritePartitions()), {"2019-01": [1, 2]})
    stage(log, writer_spec("germany", mode=OverwritePartitions()), {"2019-02": [3]})
    report = reconcile(Committer(log), LOAD, ["eu", "germany", "us"])
    assert report.table_lines() == [
        "writer   status     version  rows  lost races",
        "eu       published        1     2           0",
        "germany  published        2     1           0",
        "us       missing          -     -           0",
    ]


def rivals(log: DeltaLog) -> None:
    """Two writers of one load, both of which replace the same partition."""
    for key, row in (("a", 1), ("b", 2)):
        stage(log, writer_spec(key, mode=OverwritePartitions()), {"2019-01": [row], f"2019-1{row}": [row]})


@pytest.mark.parametrize(
    ("policy", "loser"),
    [(Policy.LAST_WRITER_WINS, "a"), (Policy.FIRST_WRITER_WINS, "b")],
)
def test_writers_whose_rows_are_not_in_the_table_are_named(log: DeltaLog, policy: Policy, loser: str) -> None:
    rivals(log)
    # A second reconciliation, such as the retry after a worker died, knows the same.
    for _ in range(2):
        report = reconcile(Committer(log), LOAD, ["a", "b"], on_conflict=policy)
        with pytest.raises(RowsSetAsideError, match=rf"not in the table {log.table}\. {loser}: ") as caught:
            check_load(log, report)
        assert f" {'ab'.replace(loser, '')}: " not in str(caught.value)


def test_a_load_whose_rows_are_all_there_is_fine(log: DeltaLog) -> None:
    stage(log, writer_spec("a", mode=OverwritePartitions()), {"2019-01": [1]})
    stage(log, writer_spec("b", mode=OverwritePartitions()), {"2019-02": [2]})
    check_load(log, reconcile(Committer(log), LOAD, ["a", "b"]))


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
