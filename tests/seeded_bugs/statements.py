"""Bugs of statements: DELETE, UPDATE, MERGE and ALTER TABLE."""

from __future__ import annotations

from airflow_provider_onelake.log import bounds
from airflow_provider_onelake.statements import alter
from airflow_provider_onelake.statements.proposal import StatementProposal, _SameTable
from airflow_provider_onelake.steps import keys
from tests.seeded_bugs.bug import seeded


@seeded(
    "No statement changes rows of a table that is append-only.",
    in_=StatementProposal.check_not_append_only,
    fails=("tests/unit/statements/test_delete.py::test_an_append_only_table_is_refused_unless_nothing_matches",),
)
def rows_of_an_append_only_table_are_deleted(original, self, snapshot):
    return None


@seeded(
    "A statement does not go on in a table that was dropped and made again.",
    in_=_SameTable.check,
    fails=(
        "tests/unit/statements/test_delete.py::test_a_table_that_is_made_again_meanwhile_is_left_alone",
        "tests/unit/statements/test_alter.py::test_a_table_that_is_made_again_meanwhile_is_left_alone",
    ),
)
def a_statement_goes_on_in_another_table(original, self, snapshot):
    return None


@seeded(
    "A read and a MERGE find a row in whichever file it lies, also where statistics have cut its text.",
    in_=bounds._uncut,
    fails=(
        "tests/unit/statements/test_key_range.py::test_a_text_that_was_cut_rules_nothing_out",
        "tests/unit/rows/test_where.py::test_no_text_is_lost_where_an_engine_cuts_the_greatest_without_raising_it",
    ),
)
def a_text_that_was_cut_rules_a_file_out(original, text):
    return text


@seeded(
    "A CHECK is not added while rows of the table violate it.",
    in_=alter._Alter._unseen,
    fails=("tests/unit/statements/test_alter.py::test_a_row_that_violates_it_and_comes_meanwhile_is_found",),
)
def files_that_come_meanwhile_are_not_asked_of_a_check(original, self, view):
    return () if self._files_read else original(self, view)


@seeded(
    "A MERGE whose source has a key twice, or NULL in one, is refused.",
    in_=keys.check_keys,
    fails=("tests/unit/steps/test_keys.py::test_a_key_that_is_there_twice_or_null_is_named",),
)
def a_key_that_is_there_twice_is_merged(original, store, source, plain, names):
    return True
