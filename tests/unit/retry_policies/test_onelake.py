"""What the shipped retry policy makes of failures, of every way in which Delta's conflicts arrive."""

from __future__ import annotations

from datetime import timedelta

import delta.exceptions
import pytest
from airflow.sdk import DAG, RetryAction
from hypothesis import given
from hypothesis import strategies as st
from pyspark.errors import AnalysisException
from pyspark.errors.exceptions.connect import SparkConnectGrpcException

from airflow_provider_onelake import exceptions
from airflow_provider_onelake.operators.optimize import OneLakeOptimizeOperator
from airflow_provider_onelake.retry_policies.onelake import Failure, OneLakeRetryPolicy, failure_of

CONFLICTS = [getattr(delta.exceptions, name) for name in delta.exceptions.__all__]
CONDITIONS = [
    "DELTA_CONCURRENT_APPEND.WITHOUT_HINT",
    "DELTA_CONCURRENT_DELETE_DELETE.WITHOUT_HINT",
    "DELTA_CONCURRENT_DELETE_READ.WITHOUT_HINT",
    "DELTA_CONCURRENT_TRANSACTION",
    "DELTA_CONCURRENT_WRITE",
    "DELTA_METADATA_CHANGED",
    "DELTA_PROTOCOL_CHANGED",
]


def caused(error: BaseException, cause: BaseException | None) -> BaseException:
    """An error as ``raise … from …`` leaves it."""
    error.__cause__ = cause
    return error


def test_delta_has_eight_conflicts() -> None:
    assert len(CONFLICTS) == 8


@pytest.mark.parametrize("kind", CONFLICTS, ids=lambda kind: kind.__name__)
def test_deltas_conflicts_are_retried_at_once(kind: type[Exception]) -> None:
    for error in (kind("lost"), caused(RuntimeError("load failed"), kind("lost"))):
        decision = OneLakeRetryPolicy().evaluate(error, 1, 3)
        assert (decision.action, decision.retry_delay) == (RetryAction.RETRY, timedelta())


@pytest.mark.parametrize("condition", CONDITIONS)
def test_over_spark_connect_the_condition_says_it(condition: str) -> None:
    named = SparkConnectGrpcException("lost", errorClass=condition, sql_state="2D521")
    spelled = SparkConnectGrpcException(f"(io.grpc) [{condition}] lost", errorClass=None)
    assert failure_of(named) is Failure.CONFLICT
    assert failure_of(spelled) is Failure.CONFLICT


@pytest.mark.parametrize("package", ["io.delta.exceptions", "org.apache.spark.sql.delta"])
def test_a_conflict_in_the_text_of_a_wrapper_is_one(package: str) -> None:
    text = f"Job aborted.\nCaused by: {package}.ConcurrentAppendException: Files were added by a concurrent update."
    assert failure_of(RuntimeError(text)) is Failure.CONFLICT


def test_a_condition_that_only_begins_like_a_conflict_is_none() -> None:
    assert failure_of(RuntimeError("[DELTA_METADATA_CHANGED_TOO_OFTEN] no such condition")) is None


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (exceptions.SchemaMismatchError("columns"), Failure.TERMINAL),
        (exceptions.AccessDeniedError("rights"), Failure.TERMINAL),
        (exceptions.TableNotFoundError("no table"), Failure.TERMINAL),
        (AnalysisException("[TABLE_OR_VIEW_NOT_FOUND] no such view SQLSTATE: 42P01"), Failure.TERMINAL),
        (exceptions.CommitContentionError("busy"), Failure.CONFLICT),
        (exceptions.StoreUnavailableError("away"), Failure.TRANSIENT),
        (exceptions.SparkUnavailableError("away"), Failure.TRANSIENT),
        (SparkConnectGrpcException("an executor was lost", errorClass=None), Failure.TRANSIENT),
        (ZeroDivisionError(), None),
        (exceptions.ObjectExistsError("part of an interface"), None),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_failures_by_what_the_next_try_could_do(error: BaseException, failure: Failure | None) -> None:
    assert failure_of(error) is failure


def test_the_outermost_word_counts() -> None:
    refused = caused(exceptions.ConflictError("nobody may win"), CONFLICTS[0]("lost"))
    assert failure_of(refused) is Failure.TERMINAL


def test_a_suppressed_context_is_not_looked_at() -> None:
    error = caused(ZeroDivisionError(), None)
    error.__context__ = CONFLICTS[0]("lost, and settled")
    assert failure_of(error) is None


def test_of_a_group_the_gravest_counts() -> None:
    lost, away, schema = CONFLICTS[0]("lost"), exceptions.StoreUnavailableError("away"), exceptions.PlanError("plan")
    assert failure_of(ExceptionGroup("two", [lost, away])) is Failure.TRANSIENT
    assert failure_of(ExceptionGroup("three", [lost, away, ExceptionGroup("inner", [schema])])) is Failure.TERMINAL


def test_an_error_that_causes_itself_ends() -> None:
    error = RuntimeError("round")
    assert failure_of(caused(error, caused(ValueError("and"), error))) is None


@given(tries=st.integers(1, 500), first=st.integers(0, 3600), more=st.integers(0, 3600))
def test_pauses_grow_up_to_the_longest(tries: int, first: int, more: int) -> None:
    policy = OneLakeRetryPolicy(first, first + more)
    decision = policy.evaluate(exceptions.StoreUnavailableError("away"), tries, 500)
    assert decision.retry_delay is not None
    whole = min(first * 2 ** min(tries - 1, 30), first + more)
    # timedelta counts in microseconds.
    assert whole / 2 - 1e-6 <= decision.retry_delay.total_seconds() <= whole + 1e-6


@pytest.mark.parametrize(("first", "longest"), [(-1, 600), (60, 30)])
def test_delays_that_contradict_are_refused(first: float, longest: float) -> None:
    with pytest.raises(ValueError, match="neither may be negative"):
        OneLakeRetryPolicy(first, longest)


def test_it_survives_serialization() -> None:
    policy = OneLakeRetryPolicy(timedelta(seconds=5), 60)
    assert vars(OneLakeRetryPolicy.deserialize(policy.serialize())) == vars(policy)


def test_operators_take_it_from_default_args() -> None:
    policy = OneLakeRetryPolicy()
    with DAG("upkeep", default_args={"retry_policy": policy}):
        assert OneLakeOptimizeOperator(task_id="optimize", table="Tables/trips").retry_policy is policy
