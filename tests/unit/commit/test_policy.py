"""What a true conflict means, policy by policy."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_onelake.commit.batch import Batch, place
from airflow_provider_onelake.commit.conflicts import Conflict
from airflow_provider_onelake.commit.policy import Policy, Settled, settle
from airflow_provider_onelake.exceptions import ConflictError
from airflow_provider_onelake.log.commits import Commit
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.log.partitions import Partitioning
from airflow_provider_onelake.staging.spec import Mode
from airflow_provider_onelake.storage.clock import milliseconds
from tests.support.tables import finished_at, make_table, stage, writer_spec

MINE = datetime(2026, 1, 1, 12, tzinfo=UTC)
EARLIER, LATER = MINE - timedelta(hours=1), MINE + timedelta(hours=1)
HERE = ("2019-01",)
MONTHLY = Partitioning({"month": "string"})


@pytest.fixture
def log(tmp_path: Path) -> DeltaLog:
    return make_table(tmp_path / "t")


@pytest.fixture
def batch(log: DeltaLog) -> Batch:
    snapshot = log.snapshot()
    assert snapshot is not None
    buffer = stage(log, writer_spec("mine", mode=Mode.OVERWRITE_PARTITIONS), {"2019-01": [1]})
    return place([finished_at(log, buffer, MINE)], snapshot)


def conflict(at: datetime | None, appended: tuple[str, ...] | None = None, partition: Any = HERE) -> Conflict:
    info = {"operation": "WRITE", **({"timestamp": milliseconds(at)} if at else {})}
    return Conflict(partition, Commit(7, [{"commitInfo": info}]), appended)


def ours(at: datetime, app_id: str) -> Conflict:
    record = {"app_id": app_id, "writer": "theirs", "generation": 1, "buffer": "b", "rows": 1, "fingerprint": ""}
    staged = {"writers": [{**record, "finished": at.isoformat()}]}
    return Conflict(HERE, Commit(7, [{"commitInfo": {"timestamp": 1, "staged": staged}}]), None)


def settled(batch: Batch, policy: Policy, *conflicts: Conflict, live: tuple[str, ...] = ("a",)) -> Settled:
    return settle(batch, conflicts, policy, [{"path": path} for path in live], MONTHLY, "trips")


def outcomes(found: Settled) -> list[str]:
    return [settlement.outcome for settlement in found.settlements]


@pytest.mark.parametrize("policy", list(Policy))
def test_without_conflicts_there_is_nothing_to_settle(batch: Batch, policy: Policy) -> None:
    assert settled(batch, policy) == Settled()


@pytest.mark.parametrize(
    ("policy", "at", "appended", "outcome"),
    [
        pytest.param(Policy.LAST_WRITER_WINS, EARLIER, None, "replaced", id="last: an earlier finisher"),
        pytest.param(Policy.LAST_WRITER_WINS, EARLIER, ("a",), "replaced", id="last: an earlier append"),
        pytest.param(Policy.LAST_WRITER_WINS, LATER, None, "set_aside", id="last: a later finisher"),
        pytest.param(Policy.LAST_WRITER_WINS, LATER, ("a",), "kept", id="last: a later append"),
        pytest.param(Policy.LAST_WRITER_WINS, LATER, ("a", "gone"), "set_aside", id="last: a later append, compacted"),
        pytest.param(Policy.LAST_WRITER_WINS, None, None, "set_aside", id="last: nobody knows when"),
        pytest.param(Policy.FIRST_WRITER_WINS, EARLIER, None, "set_aside", id="first: an earlier finisher"),
        pytest.param(Policy.FIRST_WRITER_WINS, LATER, None, "set_aside", id="first: a later finisher"),
        pytest.param(Policy.FIRST_WRITER_WINS, EARLIER, ("a",), "set_aside", id="first: an append"),
    ],
)
def test_a_policy_settles(
    batch: Batch, policy: Policy, at: datetime | None, appended: tuple[str, ...] | None, outcome: str
) -> None:
    found = settled(batch, policy, conflict(at, appended))
    assert outcomes(found) == [outcome]
    assert found.yielded == ({HERE} if outcome == "set_aside" else set())
    assert found.kept == (set(appended or ()) if outcome == "kept" else set())


def test_rule_20_a_tie_has_one_order_for_everybody(batch: Batch) -> None:
    mine = batch.finished[1]
    assert outcomes(settled(batch, Policy.LAST_WRITER_WINS, ours(MINE, mine + "x"))) == ["set_aside"]
    assert outcomes(settled(batch, Policy.LAST_WRITER_WINS, ours(MINE, "a" + mine))) == ["replaced"]


def test_each_conflict_is_settled_and_one_later_finisher_is_enough_to_be_set_aside(batch: Batch) -> None:
    found = settled(batch, Policy.LAST_WRITER_WINS, conflict(EARLIER), conflict(LATER))
    assert outcomes(found) == ["replaced", "set_aside"]
    assert found.yielded == {HERE}


def test_what_is_kept_or_yielded_is_not_removed(batch: Batch) -> None:
    files = [{"path": path, "partitionValues": {"month": month}} for path, month in (("a", HERE[0]), ("b", "2019-02"))]
    assert Settled().still_removed(files, MONTHLY) == files
    assert Settled(kept={"b"}).still_removed(files, MONTHLY) == files[:1]
    assert Settled(yielded={HERE}).still_removed(files, MONTHLY) == files[1:]


def test_fail_names_table_winner_partition_writer_and_the_ways_out(batch: Batch) -> None:
    with pytest.raises(ConflictError) as error:
        settled(batch, Policy.FAIL, conflict(EARLIER))
    for part in ("In trips", "version 7 (WRITE) changed month=2019-01", "'mine'", "version 0", "last_writer_wins"):
        assert part in str(error.value)


@pytest.mark.parametrize("policy", list(Policy))
def test_a_winner_that_does_not_say_where_it_removed_rows_is_settled_by_no_policy(batch: Batch, policy: Policy) -> None:
    with pytest.raises(ConflictError, match="a partition that it does not name"):
        settled(batch, policy, conflict(EARLIER, partition=None))


@pytest.mark.parametrize(
    ("at", "appended", "sentence"),
    [
        (EARLIER, None, "month=2019-01: version 7 (WRITE) is replaced: it finished earlier"),
        (LATER, ("a",), "month=2019-01: version 7 (WRITE) is kept: it appended later"),
        (LATER, None, "month=2019-01: version 7 (WRITE) stays, and this writer's rows there are set aside"),
    ],
)
def test_a_settlement_is_a_sentence_and_a_value(batch: Batch, at: Any, appended: Any, sentence: str) -> None:
    (settlement,) = settled(batch, Policy.LAST_WRITER_WINS, conflict(at, appended)).settlements
    assert str(settlement) == sentence
    assert settlement.to_json()["winner_version"] == 7
