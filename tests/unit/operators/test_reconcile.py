"""Who is on the roll of a load, and what the operator refuses."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.sdk import DAG, BaseOperator, TriggerRule

from airflow_provider_onelake.exceptions import InvalidWriteError
from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.operators._roles import is_writer
from airflow_provider_onelake.operators._writers_of_run import WritersOfRun, take_roll
from airflow_provider_onelake.operators.reconcile import OneLakeReconcileOperator
from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.sources import FileSource
from tests.support.contexts import connect, context_of

IDS = ["load.write", "load.write_2"]


def said(task: str, writer: str) -> dict[str, Any]:
    return {"task": task, "writer": writer, "deed": f"{task} first"}


def roll(states: dict[str, str | None], writers: list[Any], results: list[Any] | None = None) -> WritersOfRun:
    task = OneLakeReconcileOperator(task_id="reconcile", table="/t")
    context = context_of(task, states=states, pulled={"writer": writers, "return_value": results or []})
    return take_roll(context, IDS)


def test_every_writer_said_who_it_is() -> None:
    found = roll(
        {"load.write_0": "success", "load.write_1": "failed", "load.write_2": "success"},
        [said("load.write[0]", "a"), said("load.write[1]", "b"), said("load.write_2", "c")],
    )
    assert found == WritersOfRun(named=("a", "b", "c"))
    assert found.task_starts == {"a": "load.write[0] first", "b": "load.write[1] first", "c": "load.write_2 first"}


A, B = said("load.write[0]", "a"), said("load.write[1]", "b")
SKIPPED: dict[str, Any] = {"writer": "a", "status": "skipped"}


@pytest.mark.parametrize(
    ("states", "writers", "results", "expected"),
    [
        pytest.param(
            ["success", "upstream_failed"], [A, None], [], WritersOfRun(("a",), unnamed=("load.write[1] (upstream_failed)",)), id="never began"
        ),
        pytest.param(["skipped", "removed"], [A, B], [], WritersOfRun(), id="not expected"),
        pytest.param(["success"], [A], [SKIPPED, None, "x"], WritersOfRun(("a",), skipped=("a",)), id="there before"),
        pytest.param(["success"], [A], [{**SKIPPED, "left_out": ["superseded"]}], WritersOfRun(("a",)), id="left out before"),
        pytest.param(
            ["success", "failed"], [A, {**B, "writer": "a"}], [],
            WritersOfRun(("a",), unnamed=("load.write[1] (failed: its key 'a' is another writer's)",)), id="the loser of a key",
        ),
    ],
)  # fmt: skip
def test_who_is_on_the_roll(states: list[str], writers: list[Any], results: list[Any], expected: WritersOfRun) -> None:
    assert roll({f"load.write_{number}": state for number, state in enumerate(states)}, writers, results) == expected


def test_a_mapped_task_that_was_never_expanded_counts_as_one() -> None:
    assert roll({"load.write": "upstream_failed"}, []) == WritersOfRun(unnamed=("load.write (upstream_failed)",))


@pytest.mark.parametrize(("chose", "expected"), [("a", False), ("b", True)])
def test_who_was_left_out_is_expected_unless_a_branch_skipped_it(chose: str, expected: bool) -> None:
    """What it said before it was cleared is in XCom still, if a branch then skips it."""
    with DAG("taxi", schedule=None):
        branch = BaseOperator(task_id="branch")
        writer = OneLakeWriteOperator(task_id="b", source=FileSource("/x"), table="/t")
        reconcile = OneLakeReconcileOperator(task_id="reconcile", table="/t")
        branch >> writer >> reconcile
    pulled = {"writer": [{**said("b", "b"), "left_out": True}], "skipmixin_key": [{"followed": [chose]}]}
    found = take_roll(context_of(reconcile, states={"b": "skipped"}, pulled=pulled), ["b"])
    assert found.named == (("b",) if expected else ())
    assert not found.unnamed


def test_what_ended_a_writer_is_known_and_a_rerun_that_was_refused_counts_as_missing() -> None:
    entries = [
        {**said("load.write[0]", "a"), "error": "CommitContentionError"},
        {**said("load.write[1]", "b"), "error": "RerunRefusedError"},
        said("load.write_2", "c"),
    ]
    found = roll({f"load.write_{number}": "failed" for number in range(3)}, entries)
    assert (found.named, found.unnamed) == (("a", "b", "c"), ("b",))
    assert found.ended == {"a": "CommitContentionError", "b": "RerunRefusedError", "c": ""}


def test_it_runs_when_a_writer_has_failed() -> None:
    assert OneLakeReconcileOperator(task_id="reconcile", table="/t").trigger_rule == TriggerRule.ALL_DONE


@pytest.mark.parametrize(
    "arguments",
    [{"on_conflict": "coin"}, {"on_missing_writer": "wait"}, {"publish": "never"}, {"on_set_aside": "fail\n"}],
    ids=str,
)
def test_a_wrong_value_is_refused_when_the_dag_is_parsed(arguments: dict[str, str]) -> None:
    with pytest.raises(InvalidWriteError, match="is unknown"):
        OneLakeReconcileOperator(task_id="reconcile", table="/t", **arguments)


@pytest.mark.parametrize("policy", ["last_writer_wins", "first_writer_wins"])
def test_a_policy_that_is_gone_is_refused_with_what_to_take(policy: str) -> None:
    told = f"^on_conflict='{policy}_per_partition' is gone.* Take '{policy}', and one writer for each partition"
    with pytest.raises(InvalidWriteError, match=told):
        OneLakeReconcileOperator(task_id="reconcile", table="/t", on_conflict=f"{policy}_per_partition")


def test_a_message_that_is_too_long_is_refused_when_the_dag_is_parsed() -> None:
    with pytest.raises(InvalidWriteError, match="1001 characters"):
        OneLakeReconcileOperator(task_id="reconcile", table="/t", commit_message="x" * 1001)


def test_mapped_and_plain_writers_are_writers() -> None:
    with DAG("taxi", schedule=None):
        plain = OneLakeWriteOperator(task_id="plain", source=FileSource("/x"), table="/t")
        partial = OneLakeWriteOperator.partial(task_id="mapped", source=FileSource("/x"), table="/t")
        mapped = partial.expand(where=["a", "b"])
        other = OneLakeReconcileOperator(task_id="other", table="/t")
    assert [is_writer(task) for task in (plain, mapped, other)] == [True, True, False]


def test_without_writers_upstream_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    connect(monkeypatch, OneLakeHook)
    with DAG("taxi", schedule=None):
        task = OneLakeReconcileOperator(task_id="reconcile", table="/t")
    with pytest.raises(AirflowFailException, match="has no writers"):
        task.execute(context_of(task))


def test_writers_of_two_groups_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    connect(monkeypatch, OneLakeHook)
    with DAG("taxi", schedule=None):
        task = OneLakeReconcileOperator(task_id="reconcile", table="/t")
        for name in ("a", "b"):
            OneLakeWriteOperator(task_id=name, source=FileSource("/x"), table="/t") >> task
    with pytest.raises(AirflowFailException, match="put them into one OneLakeWriteTaskGroup"):
        task.execute(context_of(task, states={"a": "success"}, pulled={"writer": [said("a", "w")]}))


def test_where_nothing_was_to_run_there_is_nothing_to_reconcile() -> None:
    with DAG("taxi", schedule=None):
        task = OneLakeReconcileOperator(task_id="reconcile", table="/t")
        OneLakeWriteOperator(task_id="a", source=FileSource("/x"), table="/t") >> task
    assert task.execute(context_of(task, states={"a": "skipped"}))["writers"] == []
