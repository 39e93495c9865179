"""Bugs of plans of new files, in whatever room."""

from __future__ import annotations

from tests.seeded_bugs.bug import Bug

BUGS = [
    Bug(
        "a filter compares a FLOAT with a fraction as a DOUBLE",
        "planning.filters",
        '        single = f"CAST({_quoted(text)} AS FLOAT)" if rounded else f"{text}D"\n',
        '        single = f"{text}D" if not rounded else None\n',
        ("planning/test_filters.py::test_a_fraction_is_a_float_in_a_column_of_floats",),
    ),
    Bug(
        "a filter compares with the text of a time",
        "planning.filters",
        """return _Spelled(_quoted(text), f"TIMESTAMP '{text}'")""",
        "return _Spelled(_quoted(str(value)), _quoted(str(value)))",
        (
            "planning/test_filters.py::test_a_value_is_text_in_a_column_of_text_and_else_a_literal_of_its_type",
            "planning/test_filters.py::test_a_shared_scan_takes_the_filters_of_a_plan",
        ),
    ),
    Bug(
        "two values that may be one are planned for two writers",
        "operators.plan",
        "        check_distinct(value for value, _ in given)\n",
        "",
        ("operators/test_plan.py::test_what_cannot_be_planned_is_not_retried",),
    ),
    Bug(
        "a shared scan does not take the filters of a plan",
        "work.disjoint",
        'yield from _of_alternatives([part.args["true"], part.args["false"]])',
        "yield from ()",
        ("planning/test_filters.py::test_a_shared_scan_takes_the_filters_of_a_plan",),
    ),
    Bug(
        "of two plans at the same time, both give a file to a writer",
        "planning.ledger",
        "store.create(self._path(self.entries), _packed([entry]))",
        "store.put(self._path(self.entries), _packed([entry]))",
        ("planning/test_new_files.py::test_of_two_plans_at_the_same_time_one_gets_each_file",),
    ),
    Bug(
        "a checkpoint forgets what the entries before it say",
        "planning.ledger",
        "        for writer in self.writers:\n            load, files",
        "        for writer in self.writers[-1:]:\n            load, files",
        ("planning/test_ledger.py::test_a_plan_reads_a_checkpoint_and_few_entries_which_say_what_all_entries_say",),
    ),
    Bug(
        "a file of a local lakehouse that is spelled in another way is a new one",
        "planning.ledger",
        "return name_of(plain, without_local_prefix(root))",
        "return plain",
        (
            "planning/test_ledger.py::test_a_file_of_a_local_lakehouse_is_one_file_however_it_is_spelled",
            "planning/test_new_files.py::test_a_local_source_that_is_spelled_in_another_way_has_the_same_files",
        ),
    ),
    Bug(
        "rows of a retired writer that a RESTORE brought back are loaded again",
        "planning.new_files",
        "return _State.LOADED if app_id in ledger.back else _State.RETIRED",
        "return _State.RETIRED",
        (
            "planning/test_new_files.py::test_rows_of_a_run_that_was_taken_over_are_loaded_once_a_restore_brings_them_back",
        ),
    ),
    Bug(
        "a writer that was given their files loads rows again that a RESTORE brought back meanwhile",
        "planning.new_files",
        "if taken or outdated or twice:",
        "if taken or outdated:",
        (
            "planning/test_new_files.py::test_a_writer_that_waits_with_files_whose_rows_a_restore_brings_back_never_publishes",
        ),
    ),
    Bug(
        "rows of an older generation that a RESTORE brought back are loaded again",
        "planning.restores",
        "why_not is not None and still_there(log, identity, snapshot, kept) is None",
        "why_not is not None",
        ("planning/test_new_files.py::test_rows_of_an_older_generation_are_loaded_once_a_restore_brings_them_back",),
    ),
    Bug(
        "reconcile calls a writer published whose files another run has taken over",
        "commit.reconcile",
        "        if stored == RETIRED:\n",
        "        if False:\n",
        ("planning/test_new_files.py::test_a_run_that_is_taken_over_never_publishes",),
    ),
    Bug(
        "a file that waits for its writer is new",
        "planning.new_files",
        "elif writer is not None and state is _State.RETIRED:",
        "elif writer is not None and state is not _State.LOADED:",
        (
            "planning/test_new_files.py::test_a_file_of_a_run_that_has_not_published_is_left_to_it",
            "planning/test_new_files.py::test_over_ten_runs_with_kills_each_file_is_loaded_once",
        ),
    ),
    Bug(
        "a version of a file that was loaded before another one is loaded again",
        "planning.new_files",
        "elif (key, file.size, file.modified) in loaded:",
        "elif state is _State.LOADED and (key, file.size, file.modified) in loaded:",
        ("planning/test_new_files.py::test_a_file_that_is_as_it_was_loaded_before_is_not_loaded_again",),
    ),
    Bug(
        "a run whose writers are all planned anew gets the files of the next run",
        "planning.new_files",
        "self._choose(found, again, planned_before)",
        "self._choose(found, again, own)",
        ("planning/test_new_files.py::test_a_run_whose_only_writer_is_planned_anew_gets_no_other_files",),
    ),
    Bug(
        "a file that has changed counts as loaded",
        "planning.new_files",
        "(one.size, one.modified) == (other.size, other.modified)",
        "one.size == other.size",
        ("planning/test_new_files.py::test_a_file_that_changed_is_named_before_anything_is_planned",),
    ),
    Bug(
        "rows that a RESTORE took back count as loaded",
        "planning.new_files",
        "return _State.GONE if generation == stored else _State.LOADED",
        "return _State.LOADED",
        ("planning/test_new_files.py::test_rows_that_a_restore_took_back_are_left_until_somebody_says_so",),
    ),
    Bug(
        "rows of which the log says no more count as taken back after any RESTORE",
        "planning.restores",
        "        if rows.there:\n            return None\n",
        "",
        (
            "planning/test_new_files.py::test_a_restore_that_left_rows_alone_after_the_log_was_cleaned_up_took_none_back",
            "planning/test_new_files.py::test_compacted_rows_of_a_retired_writer_count_as_loaded_after_the_log_was_cleaned_up",
        ),
    ),
    Bug(
        "a file whose change is ignored has no writer whose rows a RESTORE takes back",
        "planning.new_files",
        "                known = ignored[key][0]\n",
        "                known, writer = ignored[key][0], None\n",
        (
            "planning/test_new_files.py::test_a_file_whose_change_is_ignored_is_loaded_once_a_restore_took_its_rows_back",
        ),
    ),
    Bug(
        "a file that a RESTORE removed is taken for one without rows of the writer",
        "planning.restores",
        "                known.update(map(object_path, commit.adds))\n",
        "                known.update(map(object_path, commit.adds))\n"
        "            known.update(map(object_path, commit.removes))\n",
        ("planning/test_new_files.py::test_a_restore_to_a_time_may_bring_back_what_another_took",),
    ),
    Bug(
        "rows that a RESTORE may have taken are called loaded in silence",
        "planning.restores",
        "self.there and not takes and not unknown",
        "self.there and not takes",
        ("planning/test_new_files.py::test_where_nobody_knows_whether_a_restore_took_rows_the_log_says_so",),
    ),
    Bug(
        "a writer that was retired since a plan looked had no rows then",
        "planning.restores",
        "        if any(app_id in commit.txns for commit in self._since):\n",
        "        if stored != RETIRED and any(app_id in commit.txns for commit in self._since):\n",
        ("planning/test_new_files.py::test_a_writer_retired_since_a_plan_looked_had_its_rows_then",),
    ),
    Bug(
        "a writer without markers has no rows",
        "planning.restores",
        "if identity.directory in self._live or still_there(",
        "if still_there(",
        (
            "planning/test_new_files.py::test_a_writer_that_died_before_it_marked_its_buffer_has_its_rows_back_after_it_was_retired",
        ),
    ),
    Bug(
        "a checkpoint of a ledger has the changes that are ignored behind all writers",
        "planning.ledger",
        '"ignored": _plain(ignored[writer.identity]),',
        '"ignored": [],',
        (
            "planning/test_new_files.py::test_rows_that_stand_for_a_file_whose_change_is_ignored_do_so_again_when_a_restore_brings_them_back",
        ),
    ),
    Bug(
        "a ledger that was deleted is begun anew",
        "planning.new_files",
        "if snapshot.txns.get(ledger_id(ledger.name), 0) > ledger.entries:",
        "if ledger.entries and snapshot.txns.get(ledger_id(ledger.name), 0) > ledger.entries:",
        ("planning/test_new_files.py::test_the_log_says_what_was_loaded_and_misses_a_ledger_that_is_deleted",),
    ),
    Bug(
        "the log counts fewer entries of a ledger than before",
        "commit.entry",
        "if entry > snapshot.txns.get(app_id, 0):",
        "if entry != snapshot.txns.get(app_id, 0):",
        ("planning/test_new_files.py::test_the_log_counts_the_entries_though_their_writers_publish_in_another_order",),
    ),
    Bug(
        "a writer is retired though it has published",
        "commit.retire",
        "if app_id not in before and txns.get(app_id) == seen]",
        "if app_id not in before]",
        (
            "planning/test_new_files.py::test_a_writer_that_publishes_first_keeps_its_files",
            "commit/test_retire.py::test_a_writer_that_has_published_meanwhile_is_left_as_it_is",
        ),
    ),
    Bug(
        "a retired writer begins a generation of its own",
        "staging.claims",
        "    check_not_retired(identity, stored, log.table)\n",
        "",
        ("planning/test_new_files.py::test_a_run_that_is_taken_over_never_publishes",),
    ),
    Bug(
        "a retired writer puts its bad rows into the quarantine",
        "staging.claims",
        "    check_not_retired(spec.identity, log.snapshot().txns.get(spec.identity.app_id), log.table)\n",
        "",
        ("work/test_quarantine.py::test_a_writer_whose_files_were_taken_over_puts_nothing_into_quarantine",),
    ),
    Bug(
        "a retired writer is taken for one of another name",
        "staging.orphans",
        "if identity.load.run == load.run and snapshot.txns[identity.app_id] != RETIRED",
        "if identity.load.run == load.run",
        ("planning/test_new_files.py::test_a_file_that_changed_before_it_was_loaded_is_planned_anew_by_a_clear",),
    ),
    Bug(
        "a file that changes while Spark reads it is loaded",
        "work.write",
        "        self._check_unchanged(buffer.path)\n        buffer = self._audited(buffer, told)",
        "        buffer = self._audited(buffer, told)",
        ("operators/test_plan_new.py::test_a_file_that_changes_while_spark_reads_it_is_not_published_by_anybody",),
    ),
    Bug(
        "what was read of a file that changed is left for reconcile to publish",
        "work.write",
        "            set_aside(self._log.store, path, str(error))\n            raise",
        "            raise",
        ("operators/test_plan_new.py::test_a_file_that_changes_while_spark_reads_it_is_not_published_by_anybody",),
    ),
    Bug(
        "a file that changed after it was loaded makes other work of its writer",
        "work.terms",
        "            files = ()\n        return fingerprint(",
        "            pass\n        return fingerprint(",
        ("operators/test_plan_new.py::test_a_clear_after_a_file_was_moved_away_or_changed_is_skipped",),
    ),
]
