"""Bugs of the room maintenance."""

from __future__ import annotations

from tests.seeded_bugs.bug import Bug

BUGS = [
    # -- health --------------------------------------------------------------------------------------------------------
    Bug(
        "a file that a listing lacks is called lost, though the store has it",
        "maintenance.health",
        " if not _is_there(log, path)]",
        "]",
        ("maintenance/test_health.py::test_a_file_that_the_listing_lacks_but_the_store_has_is_not_lost",),
    ),
    Bug(
        "a table whose files are gone is called well",
        "maintenance.health",
        "        return any(finding.severity is Severity.ERROR for finding in self.findings)",
        "        return False",
        ("cli/test_tables.py::test_a_lost_file_is_an_error_with_a_status_of_its_own",),
    ),
    # -- vacuum --------------------------------------------------------------------------------------------------------
    Bug(
        "vacuum lists the directory after it has read the snapshot",
        "maintenance.vacuum",
        '    listing = list(log.store.list(""))\n    now = log.clock.now()\n    snapshot = log.snapshot()\n',
        '    now = log.clock.now()\n    snapshot = log.snapshot()\n    listing = list(log.store.list(""))\n',
        ("maintenance/test_vacuum.py::test_a_buffer_published_while_the_vacuum_looks_is_the_tables",),
    ),
    Bug(
        "vacuum takes files that are younger than the limit",
        "maintenance.vacuum",
        "if info.modified >= horizon.before or",
        "if info.modified > now or",
        (
            "maintenance/test_vacuum.py::test_a_young_file_stays_though_no_commit_names_it",
            "maintenance/test_vacuum.py::test_a_longer_property_is_honoured",
        ),
    ),
    Bug(
        "vacuum holds to the latest of its limits, not to the earliest",
        "maintenance.vacuum",
        "horizon = min(horizons,",
        "horizon = max(horizons,",
        ("maintenance/test_vacuum.py::test_keep_days_spares_for_longer_than_the_property_and_never_for_shorter",),
    ),
    Bug(
        "a lite vacuum takes what no commit ever named",
        "maintenance.vacuum",
        "removed = in_log.ever_removed() if terms.lite else None",
        "removed = None",
        ("maintenance/test_vacuum.py::test_an_old_file_that_no_commit_names_goes_unless_lite",),
    ),
    Bug(
        "vacuum takes what a strange table below staged holds",
        "maintenance.vacuum",
        "if staged.state in (State.IN_FLIGHT, State.STRANGE)]",
        "if staged.state is State.IN_FLIGHT]",
        ("maintenance/test_vacuum.py::test_a_table_of_somebody_else_below_staged_is_spared_and_reported",),
    ),
    Bug(
        "a version asked to be released is kept all the same",
        "maintenance.vacuum",
        "if version not in terms.release_versions]",
        "]",
        ("maintenance/test_vacuum.py::test_a_dry_run_can_keep_and_release_without_a_record",),
    ),
    Bug(
        "a retention below seven days is vacuumed without being asked for",
        "maintenance.vacuum",
        "if days < SAFE_DAYS and not",
        "if days <= 0 and not",
        ("maintenance/test_vacuum.py::test_less_than_seven_days_are_refused_unless_asked_for_in_so_many_words",),
    ),
    Bug(
        "a buffer counts as abandoned though it may still be published",
        "maintenance.vacuum",
        "usual = max(timedelta(days=SAFE_DAYS),",
        "usual = min(timedelta(days=SAFE_DAYS),",
        ("maintenance/test_vacuum.py::test_a_buffer_that_may_still_be_published_is_not_abandoned",),
    ),
    Bug(
        "writers that are known to take long are abandoned while they work",
        "maintenance.vacuum",
        "if longest <= silence:",
        "if longest >= silence:",
        ("maintenance/test_vacuum.py::test_writers_that_take_long_are_not_taken_for_abandoned",),
    ),
    Bug(
        "what a writer in flight reads is taken",
        "maintenance.vacuum",
        "if staged.state is State.IN_FLIGHT and staged.began is not None",
        "if staged.state is State.ABANDONED and staged.began is not None",
        ("maintenance/test_vacuum.py::test_what_was_in_the_table_when_the_oldest_buffer_in_flight_began_stays",),
    ),
    Bug(
        "the inventory stays where Spark fails",
        "maintenance.vacuum",
        "    try:\n        spark_vacuum(path)\n    finally:\n        store.delete(path)\n",
        "    spark_vacuum(path)\n    store.delete(path)\n",
        ("maintenance/test_vacuum.py::test_the_inventory_goes_when_spark_fails_and_old_ones_with_it",),
        error="RuntimeError",
    ),
    Bug(
        "an inventory that another vacuum is at work with is deleted",
        "maintenance.vacuum",
        "if left.modified < todo.now - _INVENTORY_AGE:",
        "if left.modified < todo.now:",
        ("maintenance/test_vacuum.py::test_the_inventory_goes_when_spark_fails_and_old_ones_with_it",),
    ),
    # -- what the log names --------------------------------------------------------------------------------------------
    Bug(
        "tombstones are looked for without a margin for clocks that differ",
        "maintenance.referenced",
        "since = before - _CLOCKS_DIFFER",
        "since = before",
        ("maintenance/test_vacuum.py::test_a_removal_counts_by_its_own_time_though_its_entry_is_a_little_older",),
    ),
    Bug(
        "what was removed since the limit is not alive",
        "maintenance.referenced",
        "alive.update(referenced(late))",
        "referenced(late)",
        (
            "maintenance/test_vacuum.py::test_what_was_removed_before_the_retention_goes_and_what_was_removed_since_stays",
        ),
    ),
    Bug(
        "commits between the listing and the snapshot are not seen",
        "maintenance.referenced",
        "        yield from self._log.commits_between(self._files.latest, self._snapshot.version)\n",
        "",
        ("maintenance/test_vacuum.py::test_a_commit_between_the_listing_and_the_snapshot_is_seen",),
    ),
    Bug(
        "a log that does not reach as far as keep_days is taken for one that does",
        "maintenance.referenced",
        "if horizon.before >= by_property or oldest == 0",
        "if horizon.before <= by_property or oldest == 0",
        ("maintenance/test_vacuum.py::test_keep_days_beyond_the_log_is_refused",),
    ),
    # -- pinned versions ----------------------------------------------------------------------------------------------
    Bug(
        "a kept version's deletion vectors are not kept",
        "maintenance.referenced",
        '            yield deletion_vector_path(vector["pathOrInlineDv"])\n        elif',
        "            pass\n        elif",
        ("maintenance/test_referenced.py::test_a_file_is_referenced_with_its_deletion_vector",),
    ),
    Bug(
        "a version that the table does not have is kept",
        "maintenance.pinned_versions",
        "not 0 <= version <= snapshot.version:",
        "not 0 <= version:",
        ("maintenance/test_pinned_versions.py::test_a_version_that_the_table_does_not_have_is_refused",),
    ),
    # -- writers in flight ---------------------------------------------------------------------------------------------
    Bug(
        "a writer is thought to need what came with the very version that it read",
        "maintenance.in_flight",
        "if came > write.read_version and",
        "if came >= write.read_version and",
        ("maintenance/test_in_flight.py::test_a_replacing_writer_does_not_need_what_came_with_the_version_it_read",),
    ),
    Bug(
        "a writer needs what came since only where it may not replace",
        "maintenance.in_flight",
        "self.where.judge(partition) is not False",
        "self.where.judge(partition) is False",
        ("maintenance/test_in_flight.py::test_a_replacing_writer_needs_only_what_it_may_replace",),
    ),
    Bug(
        "a rerun that has only claimed counts as settled by its older buffer",
        "maintenance.in_flight",
        "if of == generation:",
        "if of:",
        (
            "maintenance/test_in_flight.py::test_a_rerun_that_has_only_claimed_is_in_flight_though_its_older_buffer_is_closed",
        ),
    ),
    Bug(
        "a writer whose older generation is in the table counts as settled",
        "maintenance.in_flight",
        "if writer is None or snapshot.txns.get(writer.app_id, 0) >= generation:",
        "if writer is None or snapshot.txns.get(writer.app_id, 0) >= 1:",
        (
            "maintenance/test_in_flight.py::test_a_rerun_that_has_only_claimed_is_in_flight_though_its_older_buffer_is_closed",
        ),
    ),
    Bug(
        "where the log is gone nothing is needed",
        "maintenance.in_flight",
        "        except LogGapError:\n            return None\n",
        "        except LogGapError:\n            return {}\n",
        ("maintenance/test_in_flight.py::test_where_the_log_is_gone_everything_is_needed",),
    ),
    Bug(
        "a writer is in flight for ever",
        "maintenance.in_flight",
        "if now - directory.newest >= age or",
        "if",
        ("maintenance/test_in_flight.py::test_a_writer_is_forgotten_when_its_buffer_is_too_old_to_be_published",),
    ),
    # -- compaction ----------------------------------------------------------------------------------------------------
    Bug(
        "a rewrite whose rows nobody counted passes",
        "maintenance.shadow",
        "if before is None or before != after:",
        "if before != after:",
        ("maintenance/test_shadow.py::test_rows_that_nobody_counted_before_or_after_are_refused",),
    ),
    Bug(
        "a rewrite that lost rows passes",
        "maintenance.shadow",
        "if before is None or before != after:",
        "if before is None or after is None:",
        ("maintenance/test_shadow.py::test_whatever_is_more_than_moving_rows_is_refused",),
    ),
    Bug(
        "a shadow that is closed is opened again",
        "maintenance.shadow",
        "if read_marker(log.store, path) is not None or _definition(there) != _definition(now):",
        "if _definition(there) != _definition(now):",
        ("maintenance/test_shadow.py::test_a_shadow_that_is_closed_or_gone_is_not_reopened",),
    ),
    Bug(
        "a compaction removes a file that got a deletion vector since",
        "maintenance.compact",
        "                if file_key(file) not in present:\n",
        '                if file["path"] not in {path for path, _ in present}:\n',
        ("maintenance/test_compact.py::test_rows_deleted_in_between_do_not_come_back",),
    ),
    Bug(
        "a compaction does not spare writers that began meanwhile",
        "maintenance.compact",
        "reason = needed.why_needed(file)",
        "reason = None",
        ("maintenance/test_compact.py::test_a_writer_that_begins_meanwhile_keeps_what_came_after_it_read",),
    ),
    Bug(
        "a compaction says that it changes data",
        "maintenance.compact",
        '"dataChange": False}\n        if',
        '"dataChange": True}\n        if',
        ("maintenance/test_compact.py::test_the_entry_is_delta_s_own_kind_of_optimize",),
    ),
    Bug(
        "a compaction publishes files that a vacuum may be about to take",
        "maintenance.compact",
        ">= lifetime(days):",
        ">= timedelta(days=days):",
        ("maintenance/test_compact.py::test_old_files_are_not_published",),
    ),
    Bug(
        "files without a row count are rewritten",
        "maintenance.compaction",
        "if row_count(file) is None:",
        "if False:",
        ("maintenance/test_compaction.py::test_uncounted_rows_and_absolute_paths_stay_and_it_is_said",),
    ),
    Bug(
        "a large file is written again with every few small ones",
        "maintenance.compaction",
        'while small and 3 * int(small[-1]["size"]) > 2 * total:',
        'while small and int(small[-1]["size"]) > 2 * total:',
        (
            "maintenance/test_compaction.py::test_a_file_twice_as_large_as_the_others_together_waits",
            "maintenance/test_compaction.py::test_a_byte_is_rewritten_a_few_times_only",
        ),
    ),
]
