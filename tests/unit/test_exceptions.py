"""What led to an error, and where the docs say more of it: every part of the package asks the same way."""

from __future__ import annotations

import re
from pathlib import Path

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

ROOT = Path(__file__).parents[2]
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


def section(kind: type[OneLakeError]) -> str:
    """What the docs say behind the heading to which the pointer of an error leads."""
    found = POINTER.fullmatch(with_page(kind("it happened.")))
    assert found is not None
    sections = re.split(r"^#+ (.+)$", (ROOT / found["page"]).read_text(), flags=re.MULTILINE)
    # A heading's anchor on the page: https://docs.github.com/en/get-started/writing-on-github
    by_anchor = {heading.lower(): text for heading, text in zip(sections[1::2], sections[2::2], strict=True)}
    assert found["anchor"] in by_anchor, f"{found['page']} has no heading {kind.__name__}"
    return by_anchor[found["anchor"]].strip()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_error_leads_to_a_section_that_says_whether_it_is_retried(kind: type[OneLakeError]) -> None:
    said = section(kind)
    assert said
    if kind not in (TerminalError, TransientError):
        assert said.startswith("*Retried.*") is issubclass(kind, TransientError)
        assert said.startswith("*Not retried.*") is issubclass(kind, TerminalError)


def test_sections_by_name_are_in_order() -> None:
    names = re.findall(r"^### (\w+Error)$", (ROOT / "docs" / "operate" / "errors.md").read_text(), flags=re.MULTILINE)
    assert names == sorted(kind.__name__ for kind in KINDS)


def test_an_error_derived_elsewhere_leads_to_its_nearest_class_here() -> None:
    class OfAnotherModuleError(ConflictError):
        """An error of another module."""

    assert with_page(OfAnotherModuleError("it happened.")).endswith(" More: docs/operate/errors.md#conflicterror")


def test_a_message_has_its_pointer_once() -> None:
    error = ConflictError("it happened.")
    assert with_page(ConflictError(with_page(error))) == with_page(error)


def test_behind_lines_of_sql_the_pointer_has_a_line_of_its_own() -> None:
    assert with_page(ConflictError("SELECT 1 FRM t\n---------^^^")).splitlines()[1:] == [
        "---------^^^",
        "More: docs/operate/errors.md#conflicterror",
    ]


def test_a_message_says_at_its_end_where_its_tables_are() -> None:
    where = {"Tables/trips": "onelake://ws/lake/Tables/trips", "Tables/zones": "onelake://ws/lake/Tables/zones"}
    said = with_page(ConflictError("Version 2 of Tables/trips won over 'Tables/zones' and Tables/zones_old."), where)
    assert said == (
        "Version 2 of Tables/trips won over 'Tables/zones' and Tables/zones_old. "
        "Tables/trips is onelake://ws/lake/Tables/trips. More: docs/operate/errors.md#conflicterror"
    )
    assert with_page(ConflictError(said), where) == said
    store = ConflictError("There is no 1.json in onelake://ws/lake/Tables/trips.")
    assert with_page(store, where) == f"{store} More: docs/operate/errors.md#conflicterror"
