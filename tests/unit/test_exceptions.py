"""What led to an error, and where the docs say more of it: every part of the package asks the same way."""

from __future__ import annotations

import re

import pytest

from airflow_provider_onelake import exceptions
from airflow_provider_onelake.exceptions import (
    ConflictError,
    OneLakeError,
    TerminalError,
    TransientError,
    causes_of,
    with_page,
)

KINDS = [kind for kind in vars(exceptions).values() if isinstance(kind, type) and issubclass(kind, OneLakeError)]
POINTER = re.compile(r"it happened\. More: (?P<page>\S+)#(?P<anchor>\w+)")


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


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_error_leads_to_its_section_which_says_what_happened_and_more(kind: type[OneLakeError]) -> None:
    found = POINTER.fullmatch(with_page(kind("it happened.")))
    assert found is not None
    assert found.groupdict() == {"page": "docs/reference/errors.md", "anchor": kind.__name__.lower()}
    # The section is the docstring, behind what the class itself says of retries.
    assert len(re.findall(r"\.(?=\s|$)", kind.__doc__ or "")) > 1


def test_every_error_of_a_task_says_by_its_class_whether_it_is_retried() -> None:
    unsaid = {kind.__name__ for kind in KINDS if not issubclass(kind, (TerminalError, TransientError))}
    assert unsaid == {"OneLakeError", "ObjectNotFoundError", "ObjectExistsError"}


def test_an_error_derived_elsewhere_leads_to_its_nearest_class_here() -> None:
    class OfAnotherModuleError(ConflictError):
        """An error of another module."""

    assert with_page(OfAnotherModuleError("it happened.")).endswith(" More: docs/reference/errors.md#conflicterror")


def test_a_message_has_its_pointer_once() -> None:
    error = ConflictError("it happened.")
    assert with_page(ConflictError(with_page(error))) == with_page(error)


def test_behind_lines_of_sql_the_pointer_has_a_line_of_its_own() -> None:
    assert with_page(ConflictError("SELECT 1 FRM t\n---------^^^")).splitlines()[1:] == [
        "---------^^^",
        "More: docs/reference/errors.md#conflicterror",
    ]


def test_a_message_says_at_its_end_where_its_tables_are() -> None:
    where = {"Tables/trips": "onelake://ws/lake/Tables/trips", "Tables/zones": "onelake://ws/lake/Tables/zones"}
    said = with_page(ConflictError("Version 2 of Tables/trips won over 'Tables/zones' and Tables/zones_old."), where)
    assert said == (
        "Version 2 of Tables/trips won over 'Tables/zones' and Tables/zones_old. "
        "Tables/trips is onelake://ws/lake/Tables/trips. More: docs/reference/errors.md#conflicterror"
    )
    assert with_page(ConflictError(said), where) == said
    store = ConflictError("There is no 1.json in onelake://ws/lake/Tables/trips.")
    assert with_page(store, where) == f"{store} More: docs/reference/errors.md#conflicterror"
