"""Bugs of the room triggers."""

from __future__ import annotations

from tests.seeded_bugs.bug import Bug

BUGS = [
    Bug(
        "a writer that another run has retired counts as published",
        "following.watch",
        "if stored == RETIRED != wanted and",
        "if stored == RETIRED == wanted and",
        ("following/test_watch.py::test_nobody_waits_for_a_writer_whose_files_another_run_has_taken_over",),
    ),
    Bug(
        "a sensor notes a version without its digest",
        "sensors.delta_log",
        "            kept.set(_SEEN, seen)\n",
        """            kept.set(_SEEN, {**seen, "digest": self._seen.get("digest")})
            kept.set(_SEEN, seen)
""",
        ("sensors/test_delta_log.py::test_a_process_that_dies_at_its_notes_leaves_none_that_contradict_each_other",),
    ),
    Bug(
        "an older generation of a writer ends the wait for a newer one",
        "following.watch",
        "            if wanted <= stored:\n",
        "            if stored:\n",
        ("following/test_watch.py::test_an_older_generation_of_a_writer_does_not_count",),
    ),
    Bug(
        "one writer of several ends the wait",
        "following.watch",
        "            return not self.pending\n",
        "            return len(self.pending) < len(awaited.writers)\n",
        ("following/test_watch.py::test_all_the_writers_are_waited_for",),
    ),
    Bug(
        "a compaction adds rows to a partition",
        "following.watch",
        'adds = [add for add in commit.adds if add.get("dataChange", True)]',
        "adds = commit.adds",
        ("following/test_watch.py::test_compaction_adds_no_rows_to_a_partition",),
    ),
    Bug(
        "a sensor waits for ever at a gap in the log",
        "following.watch",
        "if self._idle >= LIST_EVERY:",
        "if self._idle < 0:",
        ("following/test_watch.py::test_a_gap_in_the_log_is_an_error_not_a_wait",),
    ),
    Bug(
        "a version that is there already is waited for",
        "following.watch",
        "(version is not None and snapshot.version >= version)",
        "(version is not None and snapshot.version > version)",
        ("following/test_watch.py::test_a_version_that_is_there_already_counts",),
    ),
    Bug(
        "a description does not say that it leaves partitions out",
        "following.watch",
        "max(len(commit.added_partitions), len(commit.removed_partitions)) <= _MOST_PARTITIONS",
        "True",
        ("following/test_watch.py::test_a_description_has_the_columns_names_and_says_where_it_leaves_partitions_out",),
    ),
    Bug(
        "files that do not say how many rows they have count as none",
        "following.watch",
        "        if silent:\n",
        "        if silent < 0:\n",
        ("following/test_watch.py::test_files_without_statistics_are_said_unless_the_others_have_enough",),
    ),
    Bug(
        "a compaction makes a table fresher",
        "following.watch",
        "            elif commit.data_change:\n",
        "            elif commit.adds:\n",
        ("following/test_watch.py::test_a_table_is_as_fresh_as_its_newest_change_of_rows",),
    ),
    Bug(
        "a commit of an engine whose clock is behind hides the fresh rows below it",
        "following.watch",
        "commit.in_commit_timestamp is not None or commit.landed is None or commit.landed < oldest",
        "True",
        ("following/test_watch.py::test_fresh_rows_are_found_below_a_commit_of_an_engine_whose_clock_is_behind",),
    ),
    Bug(
        "a sensor takes a table that was made again for the one that was",
        "following.watch",
        "            return found != self.digest\n",
        "            return False\n",
        (
            "following/test_watch.py::test_a_table_that_was_made_again_is_followed_from_its_first_version",
            "following/test_watch.py::test_what_was_made_again_between_two_processes_is_known_by_its_digest",
        ),
    ),
    Bug(
        "a sensor follows a table anew that was away for a while",
        "following.watch",
        "        return 0 <= log.newest_listed() < self.cursor\n",
        "        return log.newest_listed() < self.cursor\n",
        ("following/test_watch.py::test_a_table_that_is_away_for_a_while_is_followed_on",),
    ),
    Bug(
        "what was fresh once stays fresh",
        "following.watch",
        "if self._newest is None or self._newest[0] < oldest:",
        "if self._newest is None:",
        ("following/test_watch.py::test_what_was_fresh_grows_old",),
    ),
    Bug(
        "a filter is content with one of its conditions",
        "following.filters",
        "if self.data_change_only and not commit.data_change:",
        "if not self.operations and self.data_change_only and not commit.data_change:",
        ("following/test_filters.py::test_a_filter_takes_what_it_says",),
    ),
    Bug(
        "a commit from before the table was partitioned as it is now is not told of",
        "following.filters",
        '        if any(file["partitionValues"].keys() != known_as for file in files):\n            return True\n',
        '        if any(file["partitionValues"].keys() != known_as for file in files):\n            return False\n',
        ("following/test_filters.py::test_a_commit_from_before_the_table_was_partitioned_as_it_is_now_is_taken",),
    ),
    Bug(
        "a watcher keeps how far it came by a poll that it failed in",
        "triggers.feed",
        "            if item.outcome.failed == 0:\n",
        "            if True:\n",
        ("triggers/test_delta_log.py::test_a_poll_that_a_watcher_failed_in_lets_nobody_keep_how_far_it_came",),
    ),
    Bug(
        "what was cleaned up before it was seen is passed over in silence",
        "triggers.feed",
        "attrs.evolve(found, missed=(version, found.commit.version - 1))",
        "found",
        ("triggers/test_delta_log.py::test_what_was_cleaned_up_before_it_was_seen_is_named_and_the_rest_follows",),
    ),
    Bug(
        "a table that was made again is taken for the one that was",
        "triggers.feed",
        "        return digest == self._anchor.digest\n",
        "        return True\n",
        (
            "triggers/test_delta_log.py::test_a_table_that_is_made_again_is_followed_with_its_new_commits",
            "triggers/test_delta_log.py::test_a_table_that_is_made_again_with_as_many_versions_is_followed_from_its_first",
        ),
    ),
    Bug(
        "a connection that was corrected is not read again",
        "triggers.feed",
        "                self._log = None\n                raise\n",
        "                raise\n",
        ("triggers/test_delta_log.py::test_a_connection_that_was_corrected_is_read_again",),
    ),
    Bug(
        "a watcher begins where it was, though the table was made again meanwhile",
        "triggers.delta_log",
        "return position.digest is not None and digest != position.digest",
        "return False",
        (
            "triggers/test_delta_log.py::test_a_table_that_is_made_again_with_as_many_versions_is_followed_from_its_first",
        ),
    ),
    Bug(
        "a watcher hands over more events than Airflow has taken",
        "triggers.delta_log",
        "            most = min(most, self._confirmed + IN_FLIGHT)\n",
        "            pass\n",
        ("triggers/test_delta_log.py::test_a_long_backlog_is_delivered_a_part_at_a_time",),
    ),
    Bug(
        "a filter that was changed goes on at the other filter's version",
        "triggers.delta_log",
        'names = ("onelake_conn_id", "table", "operation", "partition", "writer", "data_change_only")',
        'names = ("onelake_conn_id", "table", "operation", "partition", "writer")',
        ("triggers/test_delta_log.py::test_another_filter_or_table_is_another_watermark_and_another_pause_is_not",),
    ),
    Bug(
        "a note of another table, or of another beginning, is taken for the sensor's own",
        "sensors.delta_log",
        'isinstance(noted, Mapping) and noted.get("asked") == self._asked(log)',
        "isinstance(noted, Mapping)",
        (
            "sensors/test_delta_log.py::test_a_retry_whose_table_was_corrected_waits_for_a_commit_that_is_still_to_come",
            "sensors/test_delta_log.py::test_a_retry_goes_on_from_another_version_where_that_is_asked_for_behind_a_gap",
        ),
    ),
    Bug(
        "a writer that was there is not waited for again in a table that was made again",
        "sensors.delta_log",
        "                    **attrs.asdict(watch.awaited),\n",
        "                    **attrs.asdict(attrs.evolve(watch.awaited, writers=watch.pending or None)),\n",
        (
            "sensors/test_delta_log.py::test_a_writer_that_was_there_is_waited_for_again_where_the_table_is_made_again_meanwhile",
        ),
    ),
    Bug(
        "a version that is yet to come says that the table was made again",
        "following.watch",
        "        if self.digest is None:\n            # Nobody has seen",
        "        if False:\n            # Nobody has seen",
        ("following/test_watch.py::test_no_commit_counts_up_to_a_version_that_is_yet_to_come",),
    ),
    Bug(
        "a commit from before another partitioning adds rows to a partition of now",
        "following.watch",
        "split.named_by(add) and predicate.judge",
        "predicate.judge",
        ("following/test_watch.py::test_a_commit_from_before_another_partitioning_adds_no_rows_to_a_partition_of_now",),
    ),
]
