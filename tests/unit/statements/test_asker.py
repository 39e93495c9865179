"""Who runs a statement, and what tables say that an earlier release of this package has written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_provider_onelake.buffers.identity import Load
from airflow_provider_onelake.choices import OnStatementRerun
from airflow_provider_onelake.commit.loop import Transactions
from airflow_provider_onelake.exceptions import RerunRefusedError, ZombieWriterError
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.statements.asker import Asker, TaskIdentity
from airflow_provider_onelake.statements.delete import delete
from airflow_provider_onelake.statements.statement import DELETE, Statement, StatementStatus
from tests.support.changes import ChangeByHand, change_of, start_of, three_files
from tests.support.merges import MergeByHand, merged, source_of
from tests.support.tables import foreign_append, foreign_commit, newest, table_ids

OWNER = "test/dag/delete/run"


@pytest.fixture
def log(tmp_path: Path) -> DeltaLog:
    return three_files(tmp_path / "t")


def asker(start: str = "first", statement: str = "delete/where=ab", **more: Any) -> Asker:
    return Asker(identity=TaskIdentity(OWNER), statement=statement, start=start, by="me", **more)


def of_an_earlier_release(log: DeltaLog, *ids: str, **record: Any) -> None:
    """A commit of a statement as an earlier release made it: it says who did what by its ids."""
    info = {"timestamp": 1, "operation": "DELETE", "staged": {"format": 2, "change": record}}
    txns = [{"txn": {"appId": app_id, "version": 1, "lastUpdated": 1}} for app_id in ids]
    foreign_commit(log, [{"commitInfo": info}, *txns])


def test_each_start_of_a_task_claims_a_generation_and_its_retries_have_it(log: DeltaLog) -> None:
    def begun(start: str, number: int) -> Asker:
        return Asker.of_task(log, OWNER, start_of("delete", start), number, "delete/all", "me", None)

    first, again, second = begun("first", 1), begun("first", 2), begun("second", 2)
    assert [(each.generation, each.retried) for each in (first, again, second)] == [(1, False), (1, True), (2, False)]
    with pytest.raises(ZombieWriterError, match="has been rerun since"):
        begun("first", 3)


def test_a_retry_knows_what_a_try_of_an_earlier_release_did(log: DeltaLog) -> None:
    of_an_earlier_release(log, f"onelake-delete/{OWNER}/where=ab", f"onelake-delete/{OWNER}/first/where=ab")
    foreign_append(log, {"x": [30]})
    done = delete(Transactions(log), "month = 'x'", asker())
    assert (done.status, done.version, 30 in table_ids(log)) == (StatementStatus.ALREADY, 3, True)
    # Another start deletes again.
    assert delete(Transactions(log), "month = 'x'", asker("second", generation=2)).status is StatementStatus.DONE


def test_a_clear_that_skips_knows_what_an_earlier_release_did(log: DeltaLog) -> None:
    assignments, skip = {"id": "id + 1000"}, OnStatementRerun.SKIP
    terms: dict[str, Any] = {"operation": "UPDATE", "assignments": assignments, "on_rerun": skip}
    digest = Statement(operation="UPDATE", where="id % 3 = 0", assignments=assignments).digest
    of_an_earlier_release(log, f"onelake-update/test/dag/change/run/where={digest}")
    engine = ChangeByHand()
    assert change_of(log, engine, **terms).carry_out().status is StatementStatus.ALREADY
    foreign_append(log, {"x": [30]})
    with pytest.raises(RerunRefusedError, match="changed rows that it may concern"):
        change_of(log, engine, **terms).carry_out()
    assert (engine.jobs, Statement(operation=DELETE, where="true").digest != digest) == ([], True)


def test_a_merge_that_had_nothing_to_do_in_an_earlier_release_ends_its_generation(log: DeltaLog) -> None:
    writer = Load("test", "taxi", "load", "2019-01-01T00:00:00+00:00").writer("w")
    ended = writer.app_id.replace("onelake/", "onelake-ended/")
    source = source_of(log, {"2019-01": [40]}, fingerprint="same")
    of_an_earlier_release(log, ended, nothing=True, fingerprint="same")
    assert newest(log).txns == {writer.app_id: 1}
    assert merged(log, MergeByHand(), source).status is StatementStatus.NOTHING_TO_DO
    with pytest.raises(RerunRefusedError, match="from another source"):
        source_of(log, {"2019-01": [41]}, fingerprint="another")
    second = source_of(log, {"2019-01": [42]}, fingerprint="another", generation=2)
    assert merged(log, MergeByHand(), second).status is StatementStatus.DONE
    assert table_ids(log)[-1] == 42
