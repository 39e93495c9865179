"""Bugs of publishing, which unit tests show."""

from __future__ import annotations

from airflow_provider_onelake.definition import create as definition
from airflow_provider_onelake.history.published import Aftermath
from airflow_provider_onelake.log.commits import Commit
from airflow_provider_onelake.log.snapshot import Snapshot
from airflow_provider_onelake.storage import preflight
from airflow_provider_onelake.writes import audits as audit
from airflow_provider_onelake.writes import commit_checks, orphans
from tests.seeded_bugs.bug import seeded

_PUBLISH = "tests/unit/writes/test_publish.py"


@seeded(
    "A file is published once: one that was ever in the table is not added again.",
    in_=commit_checks.check_no_path_twice,
    fails=("tests/unit/writes/test_publish.py::test_a_path_that_was_ever_in_the_table_is_not_added_again",),
)
def a_file_that_was_in_the_table_before_is_added_again(original, buffers, winners, table):
    return None


@seeded(
    "An overwrite is not published where the log no longer says what others did since it was formed.",
    in_=commit_checks.check_winners_known,
    fails=(f"{_PUBLISH}::test_where_the_log_since_is_gone_an_overwrite_fails",),
)
def an_overwrite_passes_where_the_log_is_gone(original, batch, view, table):
    return None


@seeded(
    "The rows of a MERGE are merged, and never appended by reconcile.",
    in_=commit_checks.check_is_rows,
    fails=("tests/unit/statements/test_merge.py::test_a_source_is_never_appended_as_it_is",),
)
def the_source_of_a_merge_is_appended(original, buffer, table):
    return None


@seeded(
    "Rows that a RESTORE has taken back are not called published.",
    in_=Aftermath.undone,
    fails=(f"{_PUBLISH}::test_rows_of_an_older_try_that_a_restore_took_back_are_not_called_published",),
)
def rows_that_a_restore_took_back_are_called_published(original, self):
    return None


@seeded(
    "Rows that fail a check of their writer are not published.",
    in_=commit_checks.check_audited,
    fails=("tests/unit/steps/test_checks.py::test_rows_without_a_verdict_are_published_by_nobody",),
)
def rows_are_published_whatever_their_checks_say(original, buffers, table):
    return None


@seeded(
    "A load is not published before its audits have succeeded.",
    in_=audit.Audit.refusal,
    fails=("tests/unit/writes/test_audits.py::test_an_audit_that_has_not_succeeded_holds_back_the_load",),
)
def an_audit_that_has_not_succeeded_holds_nothing_back(original, self, load, table, staged):
    return None


@seeded(
    "A compaction changes no rows, so it is in conflict with nobody.",
    in_=Commit.data_change,
    fails=(
        "tests/unit/log/test_commits.py::test_data_change_is_of_rows_not_of_files",
        "tests/unit/steps/test_write.py::test_a_commit_that_changes_no_row_is_no_reason",
    ),
)
def a_compaction_counts_as_a_change_of_rows(original, self):
    return True


@seeded(
    "A column that is added never shows the values of one that was dropped.",
    in_=definition._map_columns,
    fails=("tests/unit/definition/test_evolve.py::test_the_id_of_a_column_that_was_dropped_is_not_given_again",),
)
def the_id_of_a_column_that_was_dropped_is_given_again(original, fields, newest, random=None):
    return original(fields, 0, random)


@seeded(
    "A writer that was renamed does not append its rows a second time.",
    in_=orphans.check_no_orphans,
    fails=("tests/unit/operators/test_reruns.py::test_a_writer_that_was_renamed_is_refused_before_spark",),
)
def a_renamed_writer_appends_beside_its_old_rows(original, log, spec, keys, groups, *, complete):
    return None


@seeded(
    "A table with a feature that this package does not know is refused and not changed.",
    in_=Snapshot.check_supported,
    fails=("tests/unit/writes/test_commit_checks.py::test_a_feature_off_the_list_added_since_is_refused",),
)
def a_table_with_an_unknown_feature_is_written(original, self, table):
    return None


@seeded(
    "A store in which two writers could overwrite each other's commits is refused before Spark starts.",
    in_=preflight.prove_create_only,
    fails=("tests/unit/steps/test_write.py::test_a_store_that_is_unsafe_is_found_before_spark_looks_at_the_source",),
)
def a_store_that_overwrites_is_taken_for_a_safe_one(original, store, path, data, name):
    return None
