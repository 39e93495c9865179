"""Bugs of the room log."""

from __future__ import annotations

from tests.seeded_bugs.bug import Bug

BUGS = [
    # -- reading forward -----------------------------------------------------------------------------------------------
    Bug(
        "a checkpoint's hint is followed though it is newer than what is asked for",
        "log.delta_log",
        "starts = [hint, 0] if hint is not None and (until is None or hint <= until) else [0]",
        "starts = [hint, 0] if hint is not None else [0]",
        ("log/test_delta_log.py::test_a_hint_that_is_newer_than_the_version_asked_for_costs_no_listing",),
    ),
    Bug(
        "the first load of a log does not look for gaps",
        "log.delta_log",
        "        files.check_contiguous(version, self.table, self._exists)\n        snapshot = start",
        "        snapshot = start",
        ("log/test_delta_log.py::test_a_gap_met_at_the_first_load_says_that_a_later_version_exists",),
    ),
    Bug(
        "a missing version behind a checkpoint is a wait",
        "log.delta_log",
        "        self._files_from(newest).check_contiguous(newest, self.table, self._exists)\n",
        "",
        (
            "log/test_delta_log.py::test_a_missing_version_behind_a_checkpoint_is_a_log_gap_not_a_wait",
            "log/test_delta_log.py::test_a_missing_version_with_a_later_one_is_a_log_gap_not_a_wait",
        ),
    ),
    Bug(
        "a table made again is taken for the one that was read",
        "log.delta_log",
        "        return self._read_digest(version) == digest\n",
        "        return True\n",
        ("log/test_delta_log.py::test_a_table_made_again_up_to_the_old_version_is_not_taken_for_the_old_one",),
    ),
    Bug(
        "the entry that was asked for during the check is followed in a table made again",
        "log.delta_log",
        "                self._forget()\n            known = self._known\n",
        "                self._forget()\n",
        ("log/test_delta_log.py::test_a_table_made_again_up_to_the_old_version_is_not_taken_for_the_old_one",),
    ),
    Bug(
        "one of many winners is passed over between two rounds of requests",
        "log.delta_log",
        "range(versions.stop, versions.stop + 2 * len(versions))",
        "range(versions.stop + 1, versions.stop + 2 * len(versions))",
        ("commit/test_requests.py::test_many_winners_are_read_in_a_few_rounds",),
    ),
    Bug(
        "entries of the table that was there before are remembered",
        "log.delta_log",
        "        self._commits.clear()\n",
        "",
        (
            "log/test_delta_log.py::test_a_table_dropped_and_made_again_is_not_taken_for_the_old_one",
            "log/test_delta_log.py::test_a_table_made_again_up_to_the_old_version_is_not_taken_for_the_old_one",
        ),
    ),
    Bug(
        "an empty list from an offset is believed",
        "log.delta_log",
        "            if version in files.versions:\n                return files\n",
        "            return files\n",
        (
            "log/test_delta_log.py::test_a_hint_at_a_checkpoint_that_is_gone_falls_back_to_an_earlier_one",
            "log/test_delta_log.py::test_the_newest_version_is_listed_from_the_last_checkpoint_on_unless_its_hint_leads_nowhere",
        ),
    ),
    # -- replay --------------------------------------------------------------------------------------------------------
    Bug(
        "a checkpoint in parts counts with some of its parts",
        "log.replay",
        "            if len(sizes) == count\n",
        "            if sizes\n",
        ("log/test_replay.py::test_a_checkpoint_in_parts_counts_only_with_all_of_its_parts",),
    ),
    Bug(
        "the oldest checkpoint is taken first",
        "log.replay",
        "key=lambda checkpoint: (-checkpoint.version, checkpoint.paths)",
        "key=lambda checkpoint: (checkpoint.version, checkpoint.paths)",
        ("log/test_replay.py::test_checkpoints_are_listed_newest_first_and_two_of_one_version_are_two",),
    ),
    Bug(
        "a NULL in a map of a checkpoint is taken for an absence",
        "log.replay",
        "if isinstance(value, Mapping) and key not in _MAPS:",
        "if isinstance(value, Mapping):",
        ("log/test_replay.py::test_null_is_kept_in_maps_and_a_count_stands_in_for_statistics_kept_in_columns",),
    ),
    Bug(
        "files of a checkpoint are a change of data",
        "log.replay",
        'entry["dataChange"] = False',
        'entry["dataChange"] = True',
        ("log/test_replay.py::test_a_file_read_from_a_classic_checkpoint_is_the_add_of_the_log_verbatim",),
    ),
    Bug(
        "a checkpoint of the v2 kind is read without the files beside it",
        "log.replay",
        "        yield from _read(store, path, _size_of(store, path, sidecar), beside, known, adds)\n",
        "        yield from ()\n",
        ("log/test_replay.py::test_a_file_read_from_a_checkpoint_of_the_v2_kind_is_the_add_of_the_log_verbatim",),
    ),
    # -- commits and snapshots -----------------------------------------------------------------------------------------
    Bug(
        "a commit that removes rows is a blind append where it says so",
        "log.commits",
        '        if any(file.get("dataChange", True) for file in self.removes) or self.metadata or self.protocol:\n            return False\n',
        "",
        ("log/test_commits.py::test_a_blind_append_only_adds",),
    ),
    Bug(
        "a commit without removes that does not say so is a blind append",
        "log.commits",
        'parameters.get("mode") == "Append"',
        'parameters.get("mode") != "Overwrite"',
        ("log/test_commits.py::test_a_write_of_the_mode_append_that_does_not_say_whether_it_is_blind_is",),
    ),
    Bug(
        "a commit landed when its writer says",
        "log.commits",
        "return self._stored or self.time",
        "return self.time or self._stored",
        ("log/test_commits.py::test_a_commit_landed_when_the_store_says_and_only_without_it_when_its_writer_says",),
    ),
    Bug(
        "compaction changes rows",
        "log.commits",
        'return any(file.get("dataChange", True) for file in (*self.adds, *self.removes))',
        "return bool(self.adds or self.removes)",
        ("log/test_commits.py::test_data_change_is_of_rows_not_of_files",),
    ),
    Bug(
        "a metadata domain that was removed lives on",
        "log.snapshot",
        ' if not body.get("removed", False)}\n',
        "}\n",
        ("log/test_snapshot.py::test_the_last_word_on_a_domain_counts_and_a_removed_one_drops_out",),
    ),
    Bug(
        "the stamp of a table that no longer wants stamps is kept",
        "log.snapshot",
        "            elif not flag(metadata, IN_COMMIT_TIMESTAMPS):\n                stamp = None\n",
        "",
        ("log/test_snapshot.py::test_a_table_that_no_longer_wants_stamps_has_none",),
    ),
    # -- what fits -----------------------------------------------------------------------------------------------------
    Bug(
        "a CHECK that was added since does not matter",
        "log.compatibility",
        "        if constraints(staged).get(name) != expression:\n",
        "        if constraints(staged).get(name, expression) != expression:\n",
        ("log/test_compatibility.py::test_does_not_fit",),
    ),
    Bug(
        "a column that became NOT NULL since takes what was staged before",
        "log.compatibility",
        "    if staged.nullable and not current.nullable:\n",
        "    if not staged.nullable and current.nullable:\n",
        ("log/test_compatibility.py::test_does_not_fit",),
    ),
    Bug(
        "a column dropped and added again is the same",
        "log.compatibility",
        "elif None not in (column.field_id, found.field_id) and column.field_id != found.field_id:",
        "elif column.type != found.type and column.field_id != found.field_id:",
        ("log/test_compatibility.py::test_the_same_name_for_something_else_does_not_fit",),
    ),
    Bug(
        "a wider type fits though the table does not record it",
        "log.compatibility",
        "    return bool(kind == current.type)\n",
        "    return bool(kind == current.type) or is_wider(staged, current.type)\n",
        ("log/test_compatibility.py::test_another_type_does_not_fit_whatever_the_record_says",),
        error="ValueError",
    ),
    # -- partitions ----------------------------------------------------------------------------------------------------
    Bug(
        "the empty string is another partition than NULL",
        "log.values",
        '    if spelling is None or spelling == "":\n        return None\n',
        "    if spelling is None:\n        return None\n",
        ("log/test_partitions.py::test_null_and_the_empty_string_are_both_null",),
    ),
    Bug(
        "a remove with empty partition values is of the NULL partition",
        "log.partitions",
        "return values is not None and all(self.physical.get(name, name) in values for name in self.types)",
        "return values is not None",
        ("commit/test_whole_writes.py::test_a_remove_that_does_not_name_its_partition_may_be_of_any",),
    ),
    Bug(
        "a remove that has one of two partition columns names its partition",
        "log.partitions",
        "values is not None and all(self.physical",
        "values is not None and any(self.physical",
        ("log/test_partitions.py::test_a_file_whose_action_lacks_a_partition_column_may_be_in_any_partition",),
    ),
    Bug(
        "an instant spelled in two zones is two partitions",
        "log.values",
        "    counted = wall - (offset or 0)\n",
        "    counted = wall\n",
        ("log/test_partitions.py::test_one_instant_is_one_partition_however_it_is_spelled",),
    ),
    # -- cleaning up the log -------------------------------------------------------------------------------------------
    Bug(
        "the log is cleaned up within a day",
        "log.checkpoints",
        "max(timedelta(days=snapshot.log_retention_days), _LEAST_AGE)",
        "timedelta(days=snapshot.log_retention_days)",
        ("log/test_checkpoints.py::test_a_log_is_never_cleaned_up_within_a_day_so_that_no_version_is_put_twice",),
    ),
    Bug(
        "a version that somebody asked to keep is cleaned up",
        "log.checkpoints",
        "if kept is not None and kept < first.version:",
        "if kept is not None and kept > first.version:",
        ("log/test_checkpoints.py::test_a_version_that_somebody_asked_to_keep_stays_readable",),
    ),
    Bug(
        "a clean-up of the log leaves no note before it asks which versions are kept",
        "log.checkpoints",
        '    store.put(path, b"{}")\n',
        "",
        (
            "log/test_checkpoints.py::test_of_a_clean_up_and_somebody_who_asks_to_keep_a_version_one_sees_the_other",
            "log/test_checkpoints.py::test_the_note_of_a_clean_up_that_was_killed_counts_for_a_day",
        ),
    ),
    Bug(
        "a version is kept whose log has gone since it was read",
        "maintenance.pinned_versions",
        "        log.anew().snapshot_at(version)\n",
        "        pass\n",
        ("log/test_checkpoints.py::test_a_version_whose_log_goes_while_it_is_recorded_is_not_kept",),
    ),
    Bug(
        "entries of the version of the checkpoint that stays go as well",
        "log.checkpoints",
        "if found and int(found[1]) < first.version:",
        "if found and int(found[1]) <= first.version:",
        (
            "log/test_checkpoints.py::test_what_only_expired_versions_need_goes_and_the_checkpoint_that_retained_ones_need_stays",
        ),
    ),
    Bug(
        "sidecars that a checkpoint needs are deleted",
        "log.checkpoints",
        "return [info.path for info in lying if info.path not in needed]",
        "return [info.path for info in lying]",
        ("log/test_checkpoints.py::test_sidecars_go_with_their_checkpoints_and_only_when_they_are_old",),
    ),
    # -- difference ----------------------------------------------------------------------------------------------------
    Bug(
        "files that only got another deletion vector do not differ",
        "log.difference",
        "old = {file_key(file): file for file in log.live_files(wanted, before.version)}",
        "old = {(file['path'], None): file for file in log.live_files(wanted, before.version)}",
        ("log/test_difference.py::test_rows_that_deletion_vectors_hide_and_show",),
    ),
    Bug(
        "a compaction of files that came since hides their rows",
        "log.difference",
        "removed <= gone.keys() and added <= come.keys()",
        "added <= come.keys()",
        ("log/test_difference.py::test_a_compaction_leaves_the_rows_as_they_are",),
    ),
    Bug(
        "a column of the same name counts as the same under column mapping",
        "log.difference",
        'column_mapping(after.metadata) != "none":',
        "False:",
        ("log/test_difference.py::test_columns_are_told_by_their_physical_names",),
    ),
    # -- deletion vectors ----------------------------------------------------------------------------------------------
    Bug(
        "a file of vectors that we write has a name that Trino refuses",
        "log.vectors",
        "        self._text = to_z85(name.bytes)\n",
        '        self._text = "staged/" + to_z85(name.bytes)\n',
        ("log/test_vectors.py::test_a_file_has_several_vectors_under_a_name_without_a_prefix",),
    ),
    Bug(
        "all vectors in a file that we write begin where the first one does",
        "log.vectors",
        '"offset": len(self.content),',
        '"offset": 1,',
        ("log/test_vectors.py::test_a_file_has_several_vectors_under_a_name_without_a_prefix",),
    ),
    Bug(
        "a damaged vector is read",
        "log.vectors",
        '    if zlib.crc32(data) != struct.unpack(">I", part[-4:])[0]:\n',
        "    if False:\n",
        ("rows/test_vectors.py::test_a_damaged_file_of_vectors_is_refused",),
    ),
]
