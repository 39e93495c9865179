"""Bugs of maintenance: compaction, vacuum, kept versions, RESTORE."""

from __future__ import annotations

from airflow_provider_onelake.buffers import shadow
from airflow_provider_onelake.maintenance import inventory, referenced, restore, vacuum
from airflow_provider_onelake.maintenance.in_flight import WritersInFlight
from airflow_provider_onelake.maintenance.leases import Lease
from tests.seeded_bugs.bug import seeded

_VACUUM = "tests/unit/maintenance/test_vacuum.py"


@seeded(
    "A compaction leaves alone the files that a writer in flight needs.",
    in_=WritersInFlight.why_needed,
    fails=("tests/unit/maintenance/test_compact.py::test_a_writer_that_begins_meanwhile_keeps_the_files_of_its_load",),
)
def a_compaction_takes_what_a_writer_in_flight_needs(original, self, file):
    return None


@seeded(
    "What Spark left in a shadow is published only if it is about the files of the shadow.",
    in_=shadow._check_about_its_files,
    fails=(
        "tests/unit/maintenance/test_shadow.py::test_whatever_is_more_than_moving_rows_is_refused",
        "tests/unit/statements/test_round_tables.py::test_what_no_delete_or_update_leaves_is_refused[twice]",
    ),
)
def whatever_spark_left_in_a_shadow_is_published(original, found, commit, written, kinds):
    return None


@seeded(
    "A vacuum takes no deletion vector of a file that is needed.",
    in_=referenced.referenced,
    fails=("tests/unit/maintenance/test_referenced.py::test_a_file_is_referenced_with_its_deletion_vector",),
)
def deletion_vectors_are_needed_by_nobody(original, files):
    return original({**file, "deletionVector": None} for file in files)


@seeded(
    "A vacuum takes nothing that was in the table within the retention.",
    in_=referenced.ReferencedFiles.alive,
    fails=(f"{_VACUUM}::test_what_was_removed_before_the_retention_goes_and_what_was_removed_since_stays",),
)
def a_vacuum_takes_what_was_removed_a_moment_ago(original, self, before):
    return original(self, self._log.clock.now())


@seeded(
    "A retention below seven days is vacuumed only where somebody says so.",
    in_=vacuum._retention,
    fails=(
        "tests/unit/maintenance/test_vacuum.py::test_less_than_seven_days_are_refused_unless_asked_for_in_so_many_words",
    ),
)
def a_short_retention_is_vacuumed_unasked(original, snapshot, terms, table):
    return snapshot.retention_days


@seeded(
    "A version is not kept while a vacuum is deleting its files.",
    in_=inventory.inventories,
    fails=("tests/unit/maintenance/test_vacuum.py::test_a_version_that_a_vacuum_is_deleting_cannot_be_pinned",),
)
def a_version_is_kept_whose_files_a_vacuum_is_deleting(original, store, listing):
    return iter(())


@seeded(
    "A reader's version stays readable for as long as it is read.",
    in_=Lease.check,
    fails=("tests/unit/maintenance/test_leases.py::test_it_is_renewed_when_a_third_of_its_time_is_over",),
)
def a_lease_is_not_renewed(original, self):
    return None


@seeded(
    "A RESTORE undoes only commits that were there when it was decided on.",
    in_=restore._Restore._check_nothing_newer,
    fails=("tests/unit/maintenance/test_restore.py::test_a_commit_that_nobody_looked_at_is_not_undone",),
)
def a_restore_undoes_what_came_since(original, self, view):
    return None
