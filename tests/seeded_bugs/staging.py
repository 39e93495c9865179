"""Bugs of the room staging."""

from __future__ import annotations

from tests.seeded_bugs.bug import Bug

BUGS = [
    # -- claims --------------------------------------------------------------------------------------------------------
    Bug(
        "a generation counts as skipped because an older one was",
        "staging.layout",
        "(stored >= self.generation or self.generation in self.skipped)",
        "(stored >= self.generation or bool(self.skipped))",
        ("staging/test_layout.py::test_a_generation_is_not_skipped_because_an_older_one_was",),
    ),
    Bug(
        "a generation is given twice where claims were lost",
        "staging.claims",
        "generation = max(newest.generation if newest is not None else 0, stored) + 1",
        "generation = (newest.generation if newest is not None else 0) + 1",
        ("staging/test_claims.py::test_where_claims_were_lost_the_table_s_word_counts",),
    ),
    Bug(
        "a retry of a deed is a generation of its own",
        "staging.claims",
        "if newest.deed is not None and newest.deed.id == deed.id:",
        "if newest.deed is not None and newest.deed is deed:",
        ("staging/test_claims.py::test_every_try_of_a_deed_has_its_generation_and_the_next_deed_the_next",),
    ),
    Bug(
        "a zombie that never got as far as its claim claims now",
        "staging.claims",
        "if followed or (last is not None and deed.precedes(last)):",
        "if followed:",
        ("staging/test_claims.py::test_so_is_one_that_never_got_as_far_as_its_claim",),
    ),
    Bug(
        "two tasks of one run share a key",
        "staging.claims",
        "if last is not None and last.run_id == deed.run_id and last.task != deed.task and is_rival(last):",
        "if last is not None and last.run_id != deed.run_id and last.task != deed.task and is_rival(last):",
        ("staging/test_claims.py::test_the_second_task_with_a_key_is_refused_unless_the_first_has_lost_it",),
    ),
    # -- preparing -----------------------------------------------------------------------------------------------------
    Bug(
        "a clear is skipped though the source is another",
        "staging.prepare",
        "(spec.fingerprint and found.record.fingerprint == spec.fingerprint)):",
        "(spec.fingerprint or found.record.fingerprint == spec.fingerprint)):",
        (
            "staging/test_prepare.py::test_skip_with_another_source_is_an_error_that_offers_the_ways_out",
            "staging/test_prepare.py::test_a_retry_of_what_was_published_from_another_source_is_an_error",
        ),
    ),
    Bug(
        "a buffer of other work is used again",
        "staging.prepare",
        "    if not same_work(buffer.spec, spec):\n        return _OTHER_WORK\n",
        "",
        ("staging/test_prepare.py::test_a_buffer_of_other_work_is_not_reused",),
    ),
    Bug(
        "an attempt of other work that is still at work is not fenced off",
        "staging.prepare",
        "        _fence_off(log, path, spec)\n",
        "",
        ("staging/test_prepare.py::test_an_attempt_of_other_code_that_is_still_at_work_is_fenced_off",),
    ),
    Bug(
        "an attempt that comes back begins anew",
        "staging.prepare",
        "        return Stage(mine.path, mine.read_version, mine.metadata)\n",
        "        return None\n",
        ("staging/test_prepare.py::test_an_attempt_that_comes_back_does_not_evolve_the_table_again",),
    ),
    Bug(
        "a run older than the table remembers is appended",
        "staging.prepare",
        "if log.clock.now() - run > timedelta(days=interval_days(text, 0)):",
        "if log.clock.now() - run < timedelta(days=interval_days(text, 0)):",
        ("staging/test_prepare.py::test_where_txns_expire_an_older_run_is_refused_and_never_appended",),
    ),
    # -- buffers -------------------------------------------------------------------------------------------------------
    Bug(
        "a buffer is complete though one of its files has another size",
        "staging.buffers",
        'if info is None or info.size != int(add["size"]):',
        "if info is None:",
        ("staging/test_buffers.py::test_a_file_of_another_size_is_named",),
    ),
    Bug(
        "the age of a buffer is that of its youngest file",
        "staging.buffers",
        "return min(times, default=None)",
        "return max(times, default=None)",
        ("staging/test_buffers.py::test_the_oldest_file_counts_by_the_stores_time",),
    ),
    Bug(
        "a buffer may be published until the whole of the retention has passed",
        "staging.buffers",
        "now - self.oldest >= lifetime(retention_days):",
        "now - self.oldest >= timedelta(days=retention_days):",
        ("staging/test_buffers.py::test_a_buffer_as_old_as_half_of_the_retention_is_refused",),
    ),
    Bug(
        "a version 1 of another attempt counts as the buffer's",
        "staging.buffers",
        "if attempt != buffer.spec.attempt:",
        "if attempt is None:",
        ("staging/test_buffers.py::test_version_1_names_the_attempt",),
    ),
    Bug(
        "a file with a deletion vector is published",
        "staging.buffers",
        'if any(add.get("deletionVector") for add in commit.adds):',
        "if False:",
        ("staging/test_buffers.py::test_every_file_is_a_change_of_data_without_a_deletion_vector",),
    ),
    Bug(
        "the twin compacts by itself",
        "staging.buffers",
        '    "delta.autoOptimize.autoCompact",\n',
        "",
        ("staging/test_buffers.py::test_properties_that_start_work_of_their_own_are_left_out_of_the_twin",),
    ),
    Bug(
        "a buffer that was published is set aside afterwards",
        "staging.buffers",
        '        store.create(marker_path(path), json.dumps({"reason"',
        '        store.put(marker_path(path), json.dumps({"reason"',
        ("staging/test_buffers.py::test_a_closed_buffer_says_what_became_of_it",),
    ),
    # -- what was published --------------------------------------------------------------------------------------------
    Bug(
        "a rerun takes back a part of what it appended, where the log is gone",
        "staging.published",
        "elif found.record.rows is None or total_rows(live) != found.record.rows:",
        "elif found.record.rows is None:",
        ("staging/test_published.py::test_where_the_log_is_gone_and_rows_are_missing_nothing_is_taken_back",),
    ),
    Bug(
        "a rerun takes back a file of which rows were deleted",
        "staging.published",
        'changed = next((file["path"] for file in live if file.get("deletionVector")), None)',
        "changed = None",
        ("staging/test_published.py::test_a_file_of_which_rows_were_deleted_is_not_taken_back",),
    ),
    Bug(
        "a rerun takes back what is left where a file is gone",
        "staging.published",
        "        if missing:\n",
        "        if missing and not live:\n",
        ("staging/test_published.py::test_where_a_file_is_gone_nothing_is_taken_back",),
    ),
    Bug(
        "what another generation published is taken for this one's",
        "staging.published",
        "if (record.app_id, record.generation) != (identity.app_id, generation):",
        "if record.app_id != identity.app_id:",
        ("staging/test_prepare.py::test_nobody_says_it_of_another_generation_or_of_a_buffer_set_aside",),
    ),
    Bug(
        "a RESTORE takes nothing back",
        "staging.published",
        'UNDOING = ("RESTORE", *REPLACING_TABLE)',
        "UNDOING = REPLACING_TABLE",
        ("staging/test_prepare.py::test_skip_is_refused_where_the_commit_was_undone",),
    ),
    # -- cleaning up ---------------------------------------------------------------------------------------------------
    Bug(
        "a buffer of an older generation than the table's is taken for one at work",
        "staging.clean_up",
        "settled = snapshot.txns.get(spec.identity.app_id, 0) >= spec.generation",
        "settled = snapshot.txns.get(spec.identity.app_id, 0) == spec.generation",
        ("staging/test_clean_up.py::test_a_buffer_that_an_older_generation_left_open_is_settled_by_a_newer_one",),
    ),
    Bug(
        "a buffer that still gets files is abandoned",
        "staging.clean_up",
        "age = now - attempt.newest",
        "age = now - min(info.modified for info in attempt.objects.values())",
        (
            "staging/test_clean_up.py::test_an_open_buffer_that_still_gets_files_is_not_touched",
            "staging/test_clean_up.py::test_a_marker_younger_than_the_age_keeps_the_log_however_old_the_rest_is",
        ),
    ),
    Bug(
        "cleaning up deletes version 0 first",
        "staging.clean_up",
        "for entry in sorted(staged.directory.log, reverse=True):",
        "for entry in sorted(staged.directory.log):",
        ("staging/test_clean_up.py::test_an_interrupted_clean_up_is_carried_on_by_the_next",),
    ),
    Bug(
        "a lost marker is not made up before the log goes",
        "staging.clean_up",
        "if found is not None and found.record.buffer == path:",
        "if found is None and path:",
        ("staging/test_clean_up.py::test_a_marker_that_was_lost_is_made_up_before_the_log_goes",),
        error="AttributeError",
    ),
    Bug(
        "a marker is made up for a buffer whose writer another one settled",
        "staging.clean_up",
        "if found is not None and found.record.buffer == path:",
        "if found is not None:",
        ("staging/test_clean_up.py::test_a_buffer_whose_writer_is_settled_by_another_gets_no_marker",),
    ),
    Bug(
        "a published compaction whose marker was lost is abandoned",
        "staging.clean_up",
        "    if not compactions:\n",
        "    if compactions:\n",
        ("staging/test_clean_up.py::test_a_published_compaction_whose_marker_was_lost_is_not_reported_as_abandoned",),
    ),
    # -- identity ------------------------------------------------------------------------------------------------------
    Bug(
        "two keys that look alike have one directory",
        "staging.identity",
        '        return f"{STAGED_DIRECTORY}/{slug}-{digest}" if slug else',
        '        return f"{STAGED_DIRECTORY}/{slug}" if slug else',
        ("staging/test_identity.py::test_keys_that_look_alike_have_directories_of_their_own",),
    ),
    # -- rows of colleagues that are mixed with others ---------------------------------------------------------------
    Bug(
        "a colleague of which one file is left is thought to be whole, where the log is gone",
        "staging.published",
        "len(claims) > 1 or total_rows(live) != found.record.rows",
        "not len(live)",
        (
            "commit/test_corner_cases.py::test_together_a_colleague_of_which_a_file_went_where_the_log_is_gone_makes_the_late_one_refused",
        ),
    ),
    Bug(
        "what a colleague published before its last rerun is forgotten",
        "staging.published",
        "since = found.version if len(claims) < 2 else _before(log, min(claims))",
        "since = found.version",
        (
            "commit/test_reconcile.py::test_together_the_rows_of_a_colleagues_older_generation_stay_where_its_rerun_was_set_aside",
        ),
    ),
    Bug(
        "a merged file that a RESTORE brings back is taken for a new one",
        "staging.published",
        "back = ever & {",
        "back = set() & {",
        (
            "commit/test_reconcile.py::test_together_merged_rows_of_a_colleague_that_a_restore_brought_back_are_in_the_way_again",
        ),
    ),
    Bug(
        "a colleague's older rows count as apart where the log does not reach back to them",
        "staging.published",
        "if since is None or snapshot",
        "if since is not None and snapshot",
        (
            "commit/test_reconcile.py::test_together_where_nobody_knows_what_became_of_a_colleagues_older_rows_the_late_one_is_refused",
        ),
    ),
]
