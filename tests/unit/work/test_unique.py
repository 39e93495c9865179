"""A writer whose keys must be unique: what it compares, when it compares again, and what is refused early."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_onelake.checks import unique
from airflow_provider_onelake.commit.publish import Committer
from airflow_provider_onelake.commit.reconcile import reconcile
from airflow_provider_onelake.commit.report import Report
from airflow_provider_onelake.engines.base import AuditJob
from airflow_provider_onelake.exceptions import CommitContentionError, InvalidWriteError
from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.sources import SqlSource
from airflow_provider_onelake.staging.buffers import read_marker, read_open_buffer
from tests.support.contexts import before_reconcile, connect, context_of
from tests.support.engines import FakeEngine, use_engine
from tests.support.stores import KilledError, killed
from tests.support.tables import foreign_append, ids, local_log, make_table

ONCE = {"each id once": unique("id")}
BEFORE = [1, 5, 100]


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeEngine:
    connect(monkeypatch, OneLakeHook, lakehouse=str(tmp_path), namespace="test")
    return use_engine(monkeypatch, FakeEngine({None: {"2019-01": [2, 3]}}))


@pytest.fixture
def log(tmp_path: Path) -> DeltaLog:
    log = make_table(tmp_path / "Tables" / "trips")
    foreign_append(log, {"2019-01": [1, 5], "2019-02": [100]})
    return log


def write(**arguments: Any) -> OneLakeWriteOperator:
    given = {"task_id": "write", "table": "Tables/trips", "source": SqlSource("SELECT 1"), "checks": ONCE, **arguments}
    return OneLakeWriteOperator(**given)


def run(*, of_load: bool = False, context: dict[str, Any] | None = None, **arguments: Any) -> dict[str, Any]:
    task = before_reconcile(lambda: write(**arguments)) if of_load else write(**arguments)
    return task.execute(context_of(task, **(context or {})))


def refused(context: dict[str, Any] | None = None, **arguments: Any) -> tuple[str, dict[str, Any]]:
    """What a writer whose keys are not unique says, and its result in XCom."""
    task = write(**arguments)
    its = context_of(task, **(context or {}))
    with pytest.raises(AirflowFailException) as error:
        task.execute(its)
    return str(error.value), its["ti"].pushed["return_value"]


def others(log: DeltaLog, *rows: int, month: str = "2019-01") -> int:
    return foreign_append(local_log(Path(log.table)), {month: list(rows)})


def meanwhile(engine: FakeEngine, *done: Callable[[], object]) -> None:
    """Let others in, each after one comparison."""
    left = list(done)
    engine.compared = lambda job: left.pop(0)() if left else None


def beside(job: AuditJob) -> list[str]:
    """The months of the files with whose rows a job compares."""
    if job.beside_uri is None:
        return []
    entry = Path(job.beside_uri.removeprefix("file://")) / "_delta_log" / f"{0:020}.json"
    adds = [json.loads(line).get("add") for line in entry.read_text().splitlines()]
    return sorted(add["partitionValues"]["month"] for add in adds if add)


def settled(log: DeltaLog) -> Report:
    """What the reconciliation of the load that is staged says, in another process."""
    path = next(Path(log.table).glob("staged/*/*/_delta_log")).parent
    load = read_open_buffer(log.store, str(path.relative_to(log.table))).spec.identity.load
    return reconcile(Committer(local_log(Path(log.table))), load, ["write"])


# -- the first comparison ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        pytest.param(
            {"2019-01": [2, 2, 3]},
            "2 rows have a key that another row has as well: 2 share it with another row of the writer",
            id="staged",
        ),
        pytest.param(
            {"2019-01": [5, 7]},
            "1 row has a key that another row has as well: 1 shares it with a row of the table, in 1 file of version 1",
            id="beside",
        ),
        pytest.param(
            {"2019-03": [1, 2, 2, 5, 5, 100]},
            "6 rows have a key that another row has as well: 4 share it with another row of the writer and 4 share it "
            "with a row of the table, in 2 files of version 1",
            id="both",
        ),
    ],
)
def test_a_key_that_is_there_twice_refuses_the_writer(engine: FakeEngine, log: DeltaLog, rows: Any, said: str) -> None:
    engine.rows = {None: rows}
    message, result = refused()
    assert f"fail 1 of 1 checks: 'each id once' (unique('id')): {said}. Nothing of the writer was published." in message
    assert (result["status"], result["checks"][0]["failed"]) == ("refused", int(said.partition(" ")[0]))
    assert ids(Path(log.table)) == BEFORE
    # A retry is refused by the verdict of before, though the key may be gone.
    assert refused({"try_number": 2})[0] == message
    assert (len(engine.staged), len(engine.checked)) == (1, 1)


def test_a_column_that_is_not_there_is_refused_before_the_source_is_read(engine: FakeEngine, log: DeltaLog) -> None:
    with pytest.raises(AirflowFailException, match=r"the check 'it' takes 'idd' for a key, which is not there"):
        run(checks={"it": unique("idd")})
    assert engine.staged == []


# -- what others bring meanwhile -----------------------------------------------------------------------------------


def test_of_two_tasks_that_append_the_same_new_key_one_is_published(engine: FakeEngine, log: DeltaLog) -> None:
    """The loser has compared its keys, and is held until the winner has committed."""
    meanwhile(engine, lambda: run(writer="winner"))
    said, result = refused(writer="loser")
    shared = "2 share it with a row of the table, in 1 file of version 2 that came after version 1"
    assert f"2 rows have a key that another row has as well: {shared}" in said
    assert (result["status"], ids(Path(log.table))) == ("refused", sorted([*BEFORE, 2, 3]))
    assert (len(engine.staged), [beside(job) for job in engine.checked]) == (2, [["2019-01"]] * 3)
    marker = read_marker(log.store, result["buffer"])
    assert marker is not None
    assert "1 of 1 check failed: each id once" in marker["reason"]
    assert refused({"try_number": 2}, writer="loser")[0] == said


@pytest.mark.parametrize(("max_rounds", "made"), [(None, 10), (1, 1), (3, 3)])
def test_it_gives_up_after_max_rounds_and_a_retry_goes_on(
    engine: FakeEngine, log: DeltaLog, max_rounds: int | None, made: int
) -> None:
    meanwhile(engine, *[lambda: others(log, 1, 4)] * 20)
    words = rf"^Writer 'write' must have unique keys, and others brought rows to .* after each of {made} comparisons\. "
    with pytest.raises(CommitContentionError, match=words + ".*raise max_rounds"):
        run(max_rounds=max_rounds)
    assert len(engine.checked) == made
    meanwhile(engine)
    result = run(max_rounds=max_rounds, context={"try_number": 2})
    assert (result["status"], result["reused"]) == ("published", True)
    assert (len(engine.staged), len(engine.checked)) == (1, made + 1)
    # The last comparison of the first try was kept, so the retry looked only at the file that came after it.
    assert len(beside(engine.checked[-1])) == 1


@pytest.mark.parametrize("row", [9, 2])
def test_a_try_that_died_after_its_comparison_is_not_asked_to_compare_again_without_need(
    engine: FakeEngine, log: DeltaLog, monkeypatch: pytest.MonkeyPatch, row: int
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Committer, "publish", killed)
        with pytest.raises(KilledError):
            run(of_load=True)
    others(log, row)
    if row == 9:
        assert run(of_load=True, context={"try_number": 2})["status"] == "published"
        assert len(engine.checked) == 1
        return
    report = settled(log)
    assert report.outcomes[0].status == "refused"
    assert "version 2 (WRITE) brought rows" in str(report.outcomes[0].error)
    with pytest.raises(AirflowFailException, match="1 row has a key that another row has as well"):
        run(of_load=True, context={"try_number": 2})
    assert settled(log).outcomes[0].status == "refused"
    assert ids(Path(log.table)) == sorted([*BEFORE, 2])


# -- refused early -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("terms", "words"),
    [
        ({"publish": "together"}, r"not for publish='together'.*Use publish='each'"),
        ({"on_failed_check": "quarantine"}, r"takes no on_failed_check='quarantine'.*'refuse' or 'warn'"),
        ({"mode": "merge", "keys": ["id"]}, "not for mode='merge'.*Leave the check out"),
        ({"checks": {"it": "unique(id)"}}, "'unique\\(id\\)' is no check of unique keys"),
        ({"max_rounds": 0}, "at least 1"),
        ({"isolation": "serializable"}, "mode='merge' and of writers with `reads`"),
        ({"checks": {"some": "id > 0"}, "max_rounds": 2}, r"max_rounds also of those with a check unique"),
    ],
)
def test_what_is_refused_when_the_dag_is_parsed(terms: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidWriteError, match=words):
        write(**terms)
