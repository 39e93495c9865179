"""How an error of ours ends a task: whether Airflow retries it, and what a person reads."""

from __future__ import annotations

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_provider_onelake.exceptions import ConflictError, ObjectNotFoundError, StoreUnavailableError
from airflow_provider_onelake.operators._parameters import terminal_errors_fail


def test_an_error_that_a_person_has_to_act_on_is_not_retried_and_says_where_to_read_more() -> None:
    with pytest.raises(AirflowFailException) as caught, terminal_errors_fail():
        raise ConflictError("Both replaced month=2019-01.")
    assert (
        str(caught.value) == "ConflictError: Both replaced month=2019-01. More: docs/reference/errors.md#conflicterror"
    )
    assert caught.value.__cause__ is None
    # Each frame is lines in the task's log, below a message that says all.
    assert [frame.name for frame in caught.traceback][1:] == ["__exit__"]


@pytest.mark.parametrize("kind", [StoreUnavailableError, ObjectNotFoundError])
def test_any_other_error_of_ours_goes_on_with_its_causes_and_says_where_to_read_more(kind: type[Exception]) -> None:
    error, cause = kind("No answer."), OSError("reset")
    with pytest.raises(kind) as caught, terminal_errors_fail(), terminal_errors_fail():
        raise error from cause
    assert caught.value is error
    assert error.__cause__ is cause
    assert str(error) == f"No answer. More: docs/reference/errors.md#{kind.__name__.lower()}"


@pytest.mark.parametrize("kind", [ConflictError, StoreUnavailableError])
def test_a_message_is_said_once_in_short_lines(kind: type[Exception], caplog: pytest.LogCaptureFixture) -> None:
    name, sql = kind.__name__, f"SELECT {'x, ' * 40}y\n       ^"
    with pytest.raises((AirflowFailException, kind)), terminal_errors_fail(), terminal_errors_fail():
        raise kind(f"Both replaced month=2019-01. {'Choose one of them. ' * 10}\n{sql}")
    (said,) = [record.message for record in caplog.records if record.levelname == "ERROR"]
    first, *others = said.splitlines()
    assert first.startswith(f"{name}: Both replaced month=2019-01. Choose")
    # As in the picture of the page: number, time and level stand before the first line.
    assert len(first) <= 63
    assert max(map(len, others)) <= 93
    assert "       ^" in others
    assert others[-1] == f"More: docs/reference/errors.md#{name.lower()}"


def test_errors_of_others_are_left_as_they_are() -> None:
    with pytest.raises(KeyError) as caught, terminal_errors_fail():
        raise KeyError("eu")
    assert caught.value.args == ("eu",)
