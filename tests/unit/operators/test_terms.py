"""How an error of ours ends a task: whether Airflow retries it, and what a person reads."""

from __future__ import annotations

import pytest
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_onelake.exceptions import ConflictError, ObjectNotFoundError, StoreUnavailableError
from airflow_provider_onelake.operators._terms import terminal_errors_fail


def test_an_error_that_a_person_has_to_act_on_is_not_retried_and_says_where_to_read_more() -> None:
    with pytest.raises(AirflowFailException) as caught, terminal_errors_fail():
        raise ConflictError("Both replaced month=2019-01.")
    assert str(caught.value) == "ConflictError: Both replaced month=2019-01. More: docs/errors.md#conflicterror"
    assert caught.value.__cause__ is None
    # Each frame is lines in the task's log, below a message that says all.
    assert [frame.name for frame in caught.traceback][1:] == ["__exit__"]


@pytest.mark.parametrize("kind", [StoreUnavailableError, ObjectNotFoundError])
def test_any_other_error_of_ours_goes_on_with_its_causes_and_says_where_to_read_more(
    kind: type[Exception],
) -> None:
    error, cause = kind("No answer."), OSError("reset")
    with pytest.raises(kind) as caught, terminal_errors_fail(), terminal_errors_fail():
        raise error from cause
    assert caught.value is error
    assert error.__cause__ is cause
    assert str(error) == f"No answer. More: docs/errors.md#{kind.__name__.lower()}"


def test_errors_of_others_are_left_as_they_are() -> None:
    with pytest.raises(KeyError) as caught, terminal_errors_fail():
        raise KeyError("eu")
    assert caught.value.args == ("eu",)
