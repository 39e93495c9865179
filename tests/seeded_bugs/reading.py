"""Bugs of reading a table: its log, its statistics, its files."""

from __future__ import annotations

from airflow_provider_onelake.buffers import statistics
from airflow_provider_onelake.log import actions, bounds, checkpoints, replay
from airflow_provider_onelake.rows import arrow, calendars, data_file
from tests.seeded_bugs.bug import seeded


@seeded(
    "A file that has got another deletion vector is another file, so rows that were deleted do not come back.",
    in_=actions.file_key,
    fails=("tests/unit/maintenance/test_compact.py::test_rows_deleted_in_between_do_not_come_back",),
)
def a_file_is_the_same_whatever_its_deletion_vector(original, file):
    return file["path"], None


@seeded(
    "A log in which a version is missing is refused, and not taken for one that ends there.",
    in_=replay.LogFiles.check_contiguous,
    fails=("tests/unit/log/test_delta_log.py::test_a_missing_version_with_a_later_one_is_a_log_gap_not_a_wait",),
)
def a_gap_in_the_log_is_taken_for_its_end(original, self, after, table, exists):
    return None


@seeded(
    "A checkpoint is read with all of its files.",
    in_=replay.read_checkpoint,
    fails=(
        "tests/unit/log/test_replay.py::test_a_file_read_from_a_checkpoint_of_the_v2_kind_is_the_add_of_the_log_verbatim",
    ),
)
def a_checkpoint_is_read_without_the_files_beside_it(original, store, checkpoint, kinds, adds=None):
    read = original(store, checkpoint, [*kinds, "sidecar"], adds)
    return (action for action in read if "sidecar" not in action)


@seeded(
    "The log of a version that somebody keeps is not cleaned up.",
    in_=checkpoints.clean_up_log,
    fails=("tests/unit/log/test_checkpoints.py::test_a_version_that_somebody_asked_to_keep_stays_readable",),
)
def the_log_of_a_kept_version_is_cleaned_up(original, store, snapshot, now, keep_from):
    return original(store, snapshot, now, lambda: None)


@seeded(
    "A clean-up of the log leaves what a checkpoint needs.",
    in_=checkpoints._sidecars,
    fails=("tests/unit/log/test_checkpoints.py::test_sidecars_go_with_their_checkpoints_and_only_when_they_are_old",),
)
def files_that_a_checkpoint_needs_are_deleted(original, store, checkpoint):
    return set()


@seeded(
    "Rows that a deletion vector hides are not returned, and all others are.",
    in_=data_file.ParquetFile.kept_of,
    fails=("tests/unit/rows/test_read.py::test_a_deletion_vector_counts_rows_over_row_groups",),
)
def a_deletion_vector_counts_from_the_first_row_of_each_row_group(original, self, group):
    return None if self.visible is None else self.visible.slice(0, self.rows_of(group))


@seeded(
    "Under column mapping, a column shows its own values, whatever it is called in a file.",
    in_=arrow.place_of,
    fails=("tests/unit/rows/test_read.py::test_columns_are_found_by_what_identifies_them_in_files",),
)
def columns_are_found_by_their_names(original, file_fields, field, mapping):
    return original(file_fields, field, "none")


@seeded(
    "Dates that Spark would move from the calendar of old are refused, not returned as other days.",
    in_=calendars.OldCalendar.moves,
    fails=("tests/unit/rows/test_calendars.py::test_dates_before_the_gregorian_calendar_are_refused",),
)
def dates_of_the_old_calendar_are_returned_as_other_days(original, self, column, name, footer):
    return False


@seeded(
    "No file is skipped that has a row that is asked for, whatever an engine has cut from its statistics.",
    in_=bounds._high,
    fails=("tests/unit/rows/test_where.py::test_no_row_is_lost_to_what_statistics_leave_out",),
)
def an_upper_bound_is_taken_as_it_is_written(original, said, kind):
    return bounds._typed(said, kind)


@seeded(
    "The upper bound of a long text, in the statistics of staged files, is above the text.",
    in_=statistics._text_above,
    fails=("tests/unit/buffers/test_statistics.py::test_bounds",),
)
def the_upper_bound_of_a_long_text_is_its_beginning(original, value):
    return statistics._text_below(value)
