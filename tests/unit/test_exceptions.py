"""What led to an error: every part of the package walks it the same way."""

from __future__ import annotations

from airflow_provider_onelake.exceptions import causes_of


def raised(*, hides: bool) -> Exception:
    try:
        try:
            raise KeyError("first")
        except KeyError:
            if hides:
                raise ValueError("second") from None
            raise ValueError("second")  # noqa: B904 - as code leaves it that does not name its cause
    except ValueError as error:
        return error


def test_an_error_that_was_being_handled_led_to_the_next_unless_it_is_hidden() -> None:
    assert [type(error) for error in causes_of(raised(hides=False))] == [ValueError, KeyError]
    assert [type(error) for error in causes_of(raised(hides=True))] == [ValueError]
    assert [type(error) for error in causes_of(raised(hides=True), hidden=True)] == [ValueError, KeyError]


def test_a_named_cause_counts_before_what_was_being_handled_and_a_circle_ends() -> None:
    error, cause = raised(hides=False), OSError("named")
    error.__cause__, cause.__cause__ = cause, error
    assert list(causes_of(error)) == [error, cause]
