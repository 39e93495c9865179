"""Bugs of the room rows."""

from __future__ import annotations

from tests.seeded_bugs.bug import Bug

BUGS = [
    Bug(
        "a floating point column is taken to have no NaN above its largest value",
        "rows.bounds",
        "    if isinstance(value, float):\n        return None\n",
        "    if isinstance(value, float):\n        return value\n",
        ("rows/test_where.py::test_no_row_is_lost_to_what_statistics_leave_out",),
    ),
    Bug(
        "an upper bound of a time is taken to the millisecond that an engine cut it to",
        "rows.bounds",
        "micros_in(value) + _MILLISECOND, zone",
        "micros_in(value), zone",
        ("rows/test_where.py::test_no_row_is_lost_to_what_statistics_leave_out",),
    ),
    Bug(
        "a decimal that an engine wrote as a double is taken for exact",
        "rows.bounds",
        "sized[0] <= _DIGITS_OF_A_DOUBLE:",
        "sized[0] <= 38:",
        ("rows/test_where.py::test_no_row_is_lost_to_what_statistics_leave_out",),
    ),
    Bug(
        "a decimal beyond a BIGINT is taken to be within the bounds that deltalake writes of it",
        "rows.bounds",
        "    if value == _ENDS_OF_BIGINT[sign]:\n        return None\n",
        "",
        ("rows/test_read.py::test_decimals_that_are_larger_than_the_statistics_of_deltalake_are_found",),
    ),
    Bug(
        "an upper bound of a text that an earlier Delta cut is taken to be greater than the text",
        "rows.bounds",
        "        return _uncut(value)\n",
        "        return value\n",
        ("rows/test_where.py::test_no_text_is_lost_to_the_upper_bounds_of_earlier_deltas",),
    ),
    Bug(
        "a nested column that was dropped is returned as one of the same name",
        "rows.arrow",
        '    if found.type == wanted and (mapping == "none" or not isinstance(kind, Mapping)):\n',
        "    if found.type == wanted:\n",
        ("rows/test_read.py::test_a_nested_column_that_was_dropped_is_not_one_of_its_name",),
    ),
    Bug(
        "row groups are read ahead whatever they weigh",
        "storage.at_once",
        "            while waiting and sum(each for _, each in waiting) + heavy > heaviest:\n",
        "            while waiting and heavy > heaviest:\n",
        ("storage/test_at_once.py::test_what_is_heavy_is_not_asked_for_ahead",),
    ),
    Bug(
        "a file with a NULL is skipped where all its other values fail",
        "rows.where",
        "        bits = at_null if bounds.nulls else 0\n",
        "        bits = 0\n",
        ("rows/test_where.py::test_what_bounds_leave_possible",),
    ),
    Bug(
        "a file is ruled out for a statement unless each of its rows matches",
        "rows.choice",
        "self.by_partition(partition) & TRUE and self.by_statistics(add, partition) & TRUE)",
        "self.by_partition(partition) == TRUE or self.by_statistics(add, partition) == TRUE)",
        (
            "rows/test_concerned.py::test_partitions_and_statistics_together",
            "commit/test_change.py::test_what_others_add_without_statistics_or_with_a_row_that_may_match_is_read",
        ),
    ),
    Bug(
        "files are ruled out by a predicate that means something else in some sessions",
        "rows.concerned",
        "    if _BY_SETTINGS.search(where):\n        return None\n",
        "",
        ("rows/test_concerned.py::test_what_is_not_read_or_depends_on_the_session_rules_nothing_out",),
    ),
    Bug(
        "a deletion vector counts the rows of each row group from its first",
        "rows.data_file",
        "self.kept.slice(sum(self.rows_of(before) for before in range(group)), self.rows_of(group))",
        "self.kept.slice(0, self.rows_of(group))",
        ("rows/test_read.py::test_a_deletion_vector_counts_rows_over_row_groups",),
    ),
    Bug(
        "columns are found by their names in files, although the table numbers them",
        "rows.arrow",
        'if mapping == "id" and MAPPING_ID in told:',
        "if False:",
        ("rows/test_read.py::test_columns_are_found_by_what_identifies_them_in_files",),
    ),
    Bug(
        "a frame keeps columns of a table that was made again",
        "rows.frame",
        "paths = {path for path, _ in self._files} if same_table else set()",
        "paths = {path for path, _ in [*self._files, *self._columns]}",
        ("rows/test_frame.py::test_a_table_that_was_made_again_keeps_nothing",),
    ),
    Bug(
        "a frame that is reframed returns rows of the version before",
        "rows.frame",
        "self._open is None or self._snapshot is not snapshot:",
        "self._open is None:",
        ("rows/test_frame.py::test_rows_that_are_taken_after_it_moved_on_are_refused",),
    ),
    # -- compare -------------------------------------------------------------------------------------------------------
    Bug(
        "duplicates count once",
        "rows.compare",
        "for _ in range(count)]",
        "if count > 0]",
        ("rows/test_compare.py::test_duplicates_are_counted",),
    ),
    Bug(
        "rows that a deletion vector hides count",
        "rows.compare",
        "parts.append(part if kept is None else part.filter(kept))",
        "parts.append(part)",
        ("rows/test_compare.py::test_rows_that_a_deletion_vector_hides_were_removed",),
    ),
    Bug(
        "the files of then are read by the names of now",
        "rows.compare",
        "sides = (_layout_of_before(compared, layout), layout)",
        "sides = (layout, layout)",
        ("rows/test_compare.py::test_a_table_that_is_partitioned_otherwise_now",),
    ),
    Bug(
        "zeros differ by their sign",
        "rows.compare",
        "plain = pc.add(column, pa.scalar(0.0, kind))",
        "plain = column",
        ("rows/test_compare.py::test_zeros_are_equal_and_years_may_be_any",),
    ),
    Bug(
        "files of partitions of other columns are compared partition by partition",
        "rows.compare",
        "        yield list(files[0]), list(files[1])\n        return\n",
        "        pass\n",
        ("rows/test_compare.py::test_a_table_that_is_partitioned_otherwise_now",),
    ),
    Bug(
        "more rows of a key are changed than were removed",
        "rows.compare",
        "return (gone & come).total()",
        "return sum(count for value, count in come.items() if value in gone)",
        ("rows/test_compare.py::test_a_row_of_a_key_is_changed_once",),
    ),
    Bug(
        "dates in the calendar of Spark 2 are returned as other days",
        "rows.data_file",
        "        if calendar is None:\n",
        "        if True:\n",
        (
            "rows/test_calendars.py::test_dates_before_the_gregorian_calendar_are_refused",
            "rows/test_calendars.py::test_times_are_refused_where_spark_moves_them",
        ),
    ),
    Bug(
        "old dates inside nested columns are not looked at",
        "rows.calendars",
        "            yield from _leaves(part)\n    elif pa.types.is_map",
        "            yield part\n    elif pa.types.is_map",
        ("rows/test_calendars.py::test_dates_inside_nested_columns_are_looked_at",),
    ),
]
