"""Bugs of staging: claims, buffers, reruns, shared scans."""

from __future__ import annotations

import attrs

from airflow_provider_onelake.buffers import buffer as buffers
from airflow_provider_onelake.buffers import claims, reuse
from airflow_provider_onelake.buffers.identity import WriterIdentity
from airflow_provider_onelake.buffers.layout import Directory
from airflow_provider_onelake.history.writers import WriterHistory
from airflow_provider_onelake.log.actions import object_path
from airflow_provider_onelake.steps import disjoint
from airflow_provider_onelake.steps import write_terms as terms
from airflow_provider_onelake.writes import conflicts
from tests.seeded_bugs.bug import seeded

_HISTORIES = "tests/unit/writes/test_histories.py::test_a_history"
_SCAN = "tests/unit/buffers/test_scan.py"
_PLAN_NEW = "tests/unit/operators/test_plan_new.py"


@seeded(
    "A buffer of which a file is gone, or has another size, is not published.",
    in_=buffers.check_files,
    fails=("tests/unit/buffers/test_buffer.py::test_a_file_of_another_size_is_named",),
)
def a_file_of_another_size_is_published(original, present, path, adds, what, advice):
    found = (present.get(f"{path}/{object_path(add)}") for add in adds)
    return min((info.modified for info in found if info is not None), default=None)


@seeded(
    "A retry does not publish what an earlier try has staged from another source or by other code.",
    in_=reuse.same_work,
    fails=("tests/unit/writes/test_prepare.py::test_a_buffer_of_other_work_is_not_reused",),
)
def a_buffer_of_other_work_is_used_again(original, earlier, now):
    return True


@seeded(
    "A rerun that replaces what it has appended before does not double it.",
    in_=WriterHistory.files_to_take_back,
    fails=("tests/unit/history/test_writers.py::test_what_a_generation_appended_is_taken_back_file_by_file",),
)
def a_rerun_leaves_what_it_has_appended_before(original, self):
    return []


@seeded(
    "Two tasks of a run do not write as one writer, and neither does a task that was rerun since.",
    in_=claims._check_turn,
    fails=(
        "tests/unit/buffers/test_claims.py::test_the_second_task_with_a_key_is_refused_unless_the_first_has_lost_it",
        "tests/unit/buffers/test_claims.py::test_a_zombie_of_an_older_deed_is_refused",
    ),
)
def two_tasks_of_a_run_share_a_key(original, identity, task_start, newest, found, is_rival):
    return None


@seeded(
    "What a writer is at work on is not cleaned up.",
    in_=Directory.newest,
    fails=("tests/unit/maintenance/test_clean_up.py::test_an_open_buffer_that_still_gets_files_is_not_touched",),
)
def a_buffer_is_as_old_as_its_first_file(original, self):
    return min(info.modified for info in self.objects.values())


@seeded(
    "Two writers never stage into one directory, however alike their keys are.",
    in_=WriterIdentity.directory,
    fails=("tests/unit/buffers/test_identity.py::test_keys_that_look_alike_have_directories_of_their_own",),
)
def writers_whose_keys_look_alike_share_a_directory(original, self):
    # The last part is a digest of the key.
    return original(self).rpartition("-")[0]


@seeded(
    "Rows of a shared scan do not replace what another load wrote while their writer waited.",
    in_=conflicts.overtaken_by,
    fails=(f"{_SCAN}::test_rows_of_a_scan_are_overtaken_by_a_commit_that_is_in_conflict_with_them", _HISTORIES),
)
def rows_of_a_shared_scan_replace_newer_ones(original, log, buffer, snapshot):
    return None


@seeded(
    "Rows of a shared scan are as old as the scan, whenever their writer takes them.",
    in_=buffers.read_open_buffer,
    fails=(f"{_SCAN}::test_a_write_is_as_old_as_the_scan_whose_rows_it_adopts",),
)
def rows_of_a_shared_scan_finish_when_they_are_adopted(original, *args, **kwargs):
    return attrs.evolve(original(*args, **kwargs), scanned=None)


@seeded(
    "Writers share a scan only if no row is of two of them.",
    in_=disjoint.why_not_disjoint,
    fails=("tests/unit/steps/test_disjoint.py::test_not_proven",),
)
def writers_whose_filters_overlap_share_a_scan(original, filters):
    return None


@seeded(
    "A clear is skipped only if the files of its source are as they were.",
    in_=terms.fingerprint,
    fails=("tests/unit/operators/test_write.py::test_the_fingerprint_follows_the_source_the_steps_and_the_files",),
)
def a_source_with_other_files_is_the_same_work(original, source, files, **work):
    return original(source, (), **work)


@seeded(
    "A file that changes while Spark reads it is not published as the file that was planned.",
    in_=terms.Query.check_planned,
    fails=(f"{_PLAN_NEW}::test_a_file_that_changes_while_spark_reads_it_is_not_published_by_anybody",),
)
def a_file_that_changed_since_it_was_planned_is_published(original, self, files, task_id):
    return None
