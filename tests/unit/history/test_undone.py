"""Whether a statement stands, by the versions to which RESTOREs went back."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from airflow_provider_onelake.exceptions import StatementRefusedError
from airflow_provider_onelake.history.undone import is_undone, targets
from airflow_provider_onelake.log.commits import Commit
from tests.support.tables import local_log

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


def made(number: int, operation: str = "WRITE", hour: float = 0, **parameters: Any) -> Commit:
    """A commit of the third version's statement, or after it, that was made some hours after noon."""
    info: Any = {"operation": operation, "operationParameters": parameters}
    return Commit(number, [{"commitInfo": info}], modified=NOON + timedelta(hours=hour))


OURS = made(3, "UPDATE")


def restored(number: int, **parameters: Any) -> Commit:
    return made(number, "RESTORE", 100, **parameters)


@pytest.mark.parametrize(
    ("later", "undone"),
    [
        pytest.param([], False, id="nothing"),
        pytest.param([made(4, "DELETE")], False, id="another statement"),
        pytest.param([restored(4, version="2")], True, id="to before"),
        pytest.param([restored(4, version=3)], False, id="to it"),
        pytest.param([made(4), restored(5, version=4)], False, id="to after"),
        pytest.param([restored(4, version=0), made(5), restored(6, version=5)], True, id="to a version without it"),
        pytest.param([restored(4, version=0), restored(5, version=3)], False, id="back again"),
        pytest.param([made(4, "CLONE"), restored(5, version=3)], False, id="replaced, and back again"),
        pytest.param([restored(4, timestamp="2026-01-31T11:59:59Z")], True, id="to a time before"),
        pytest.param([restored(4, timestamp="2026-01-31T12:00:00Z")], False, id="to its time"),
        pytest.param([made(4, hour=2), restored(5, timestamp="2026-01-31T14:30:00+01:00")], False, id="in a zone"),
        pytest.param([restored(4, timestamp="2026-01-30 20:00:00.0")], True, id="to a time before in all zones"),
        pytest.param([restored(4, timestamp="2026-02-01 04:00:00.0")], False, id="to a time after in all zones"),
        pytest.param([restored(4, datetime=str(int(NOON.timestamp() * 1000) - 1))], True, id="as deltalake says it"),
    ],
)
def test_the_version_tells_that_a_restore_went_back_to(later: list[Commit], undone: bool) -> None:
    assert is_undone(OURS, later) is undone


@pytest.mark.parametrize(
    "last",
    [
        pytest.param(restored(4), id="neither version nor time"),
        pytest.param(restored(4, timestamp="noon"), id="no time"),
        pytest.param(restored(4, timestamp="2026-01-31 22:00:00.0"), id="a time that is before it in some zones"),
        pytest.param(made(4, "CREATE OR REPLACE TABLE AS SELECT"), id="replaced, perhaps by its own rows"),
        pytest.param(made(4, "CLONE"), id="cloned"),
    ],
)
def test_where_nobody_can_tell_it_is_refused(last: Commit) -> None:
    with pytest.raises(StatementRefusedError, match=rf"Version 3 did this already, and {last.operation} in version 4"):
        is_undone(OURS, [last, made(5)])
    assert is_undone(OURS, [last, restored(5, version=2)])


def test_of_a_copied_table_the_times_of_the_store_tell_nothing() -> None:
    copied = NOON + timedelta(days=300)
    commits = [Commit(version, OURS.actions, modified=copied) for version in (3, 4)]
    back = restored(5, timestamp="2026-01-31T12:00:00Z")
    assert targets(back, commits) == range(2, 5)
    stamped: Any = {"commitInfo": {"operation": "WRITE", "inCommitTimestamp": int(NOON.timestamp() * 1000)}}
    assert targets(back, [Commit(3, [stamped], modified=copied)]) == range(3, 4)


def test_of_two_versions_in_one_millisecond_the_first_one_counts() -> None:
    assert targets(restored(6, timestamp="2026-01-31T12:00:00Z"), [made(3), made(4), made(5)]) == range(3, 4)


def test_a_commit_that_tells_no_time_may_be_of_any() -> None:
    assert targets(restored(5, timestamp="2026-01-31T12:00:00Z"), [Commit(3, []), made(4)]) == range(2, 5)


def test_deltalake_goes_back_to_the_version_that_we_find(tmp_path: Path) -> None:
    instants = []
    for number in range(3):
        write_deltalake(tmp_path, pa.table({"id": [number]}), mode="append")
        time.sleep(0.01)
        instants.append(datetime.now(UTC))
        time.sleep(0.01)
    log = local_log(tmp_path)
    for version, instant in enumerate(instants):
        table = DeltaTable(tmp_path)
        before = table.version()
        table.restore(instant)
        commit = log.commit(before + 1)
        assert commit is not None
        assert commit.restored_to is None
        assert targets(commit, log.commits_between(-1, before)) == range(version, version + 1)
        assert table.to_pyarrow_table().num_rows == version + 1
