"""A mode is one class: this one is known to no other module, and the whole road takes it."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from pathlib import Path

import attrs
import pytest

from airflow_provider_onelake.buffers.buffer import Buffer, read_buffer
from airflow_provider_onelake.choices import OnRerun
from airflow_provider_onelake.exceptions import InvalidWriteError
from airflow_provider_onelake.history.reruns import Skip
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.modes import MODES, Mode, OverwritePartitions, mode_of
from airflow_provider_onelake.writes.publish import PublishStatus
from tests.support.commits import committer
from tests.support.stores import LoserHeld, through
from tests.support.tables import LOAD, finished_at, foreign_append, make_table, prepare, stage, table_ids, writer_spec


@attrs.frozen
class ReplaceSince(Mode):
    """Replaces a month and all that come after it.

    :param since: the month.
    """

    name = "replace_since"
    by_partition = True

    since: str

    @property
    def bounds(self) -> str:
        return f"month >= '{self.since}'"


SINCE = ReplaceSince("2019-02")
EARLIER_LOAD = attrs.evolve(LOAD, run="earlier")


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MODES, ReplaceSince.name, ReplaceSince)


@pytest.fixture
def log(tmp_path: Path) -> DeltaLog:
    log = make_table(tmp_path / "t")
    foreign_append(log, {"2019-01": [1], "2019-02": [2], "2019-03": [3]})
    return log


def test_it_is_staged_read_back_and_published(log: DeltaLog) -> None:
    buffer = stage(log, writer_spec(mode=SINCE), {"2019-02": [20]})
    assert read_buffer(log.store, buffer.path).spec.mode == SINCE
    assert isinstance(prepare(log, writer_spec(mode=SINCE, attempt="again")), Buffer)
    assert committer(log).publish([buffer]).status is PublishStatus.PUBLISHED
    assert table_ids(log) == [1, 20]
    (commit,) = log.commits_since(1)
    assert (commit.staged["mode"], commit.staged["replaces"]) == ("replace_since", ["month >= '2019-02'"])
    assert commit.parameters == {"mode": "Overwrite", "partitionBy": '["month"]'}
    assert commit.info["isBlindAppend"] is False
    assert isinstance(prepare(log, writer_spec(mode=SINCE, attempt="again")), Skip)


def test_a_winner_elsewhere_costs_it_a_rebase_and_one_in_its_range_is_replaced(log: DeltaLog) -> None:
    buffer = stage(log, writer_spec(mode=SINCE), {"2019-02": [20]})
    winner = stage(log, writer_spec("winner", EARLIER_LOAD, mode=OverwritePartitions()), {"2019-04": [40]})
    winner = finished_at(log, winner, buffer.finished - timedelta(minutes=1))
    appends = partial(foreign_append, through(log.store, log), {"2019-01": [10]})
    held = LoserHeld(log.store, appends, lambda: committer(log).publish([winner]))
    publication = committer(log, held).publish([buffer])
    assert (publication.status, publication.tally.lost_races) == (PublishStatus.PUBLISHED, 2)
    assert [one.partition for one in publication.settlements] == ["month=2019-04"]
    assert table_ids(log) == [1, 10, 20]


def test_as_a_winner_it_replaced_its_whole_range(log: DeltaLog) -> None:
    late = stage(log, writer_spec("late", EARLIER_LOAD, mode=OverwritePartitions()), {"2019-04": [40]})
    winner = stage(log, writer_spec("winner", mode=SINCE), {"2019-02": [20]})
    winner = finished_at(log, winner, late.finished + timedelta(minutes=1))
    held = LoserHeld(log.store, lambda: committer(log).publish([winner]))
    assert committer(log, held).publish([late]).status is PublishStatus.SUPERSEDED
    assert table_ids(log) == [1, 20]


def test_terms_and_reruns_follow_from_what_the_class_says(log: DeltaLog, tmp_path: Path) -> None:
    spec = writer_spec(mode=SINCE)
    assert spec.on_rerun is OnRerun.REPLACE
    assert mode_of({"mode": "replace_since", "since": "2019-02"}) == SINCE
    for terms in ({"mode": "replace_since"}, {"mode": "append", "since": "2019-02"}):
        with pytest.raises(InvalidWriteError, match="since"):
            mode_of(terms)
    with pytest.raises(InvalidWriteError, match="'month' is no partition column"):
        prepare(make_table(tmp_path / "flat", partition_by=()), spec)
