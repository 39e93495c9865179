"""Bugs of refreshes after a commit."""

from __future__ import annotations

from tests.seeded_bugs.bug import Bug

_KILLED = "operators/test_refresh.py::test_killed_at_each_step_of_a_models_refresh_each_version_has_one"

BUGS = [
    Bug(
        "a try does not know from where on refreshes counted for the try before",
        "work.refresh",
        '        if note.get("mark") is None:\n',
        "        if True:\n",
        (f"{_KILLED}[fair]",),
    ),
    Bug(
        "a refresh that began before the version was there counts for it",
        "storage.refreshes",
        "        return refresh.id not in self.seen and (refresh.began is None or refresh.began >= self.at)\n",
        "        return refresh.began is None or refresh.began >= self.at\n",
        ("storage/test_refreshes.py::test_what_was_there_before_does_not_count_and_what_came_later_does",),
    ),
    Bug(
        "a refresh that a list shows late counts for a version that came after it",
        "storage.refreshes",
        "        return refresh.id not in self.seen and (refresh.began is None or refresh.began >= self.at)\n",
        "        return refresh.id not in self.seen\n",
        ("storage/test_refreshes.py::test_what_was_there_before_does_not_count_and_what_came_later_does",),
    ),
    Bug(
        "a refresh whose answer was lost is asked for again at once",
        "storage.refreshes",
        "self, once=True, json=body",
        "self, json=body",
        (
            f"{_KILLED}[lost answer]",
            "storage/test_refreshes.py::test_a_refresh_is_asked_for_once_and_anything_else_again",
        ),
    ),
    Bug(
        "a refresh of another table counts",
        "storage.refreshes",
        " and {name.lower() for name in tables} <= shown",
        "",
        ("operators/test_refresh.py::test_a_refresh_of_other_tables_or_of_no_rows_does_not_count",),
    ),
    Bug(
        "a try fails by a refresh that was cancelled before it began",
        "work.refresh",
        "            if found is not None and own == waited:\n",
        "            if found is not None:\n",
        ("operators/test_refresh.py::test_what_became_of_a_refresh_while_nobody_waited_does_not_fail_the_next_try",),
    ),
    Bug(
        "a refresh that failed is taken for a reason to ask for another one at once",
        "work.refresh",
        "            if found is not None and own == waited:\n",
        "            if False:\n",
        ("operators/test_refresh.py::test_a_failed_refresh_is_repeated_by_a_retry",),
    ),
    Bug(
        "a table that a SQL endpoint could not take up counts as shown",
        "work.refresh",
        "    if name in said.errors:\n",
        "    if name in ():\n",
        ("operators/test_refresh.py::test_an_endpoints_refresh_that_fails_is_repeated_by_a_retry",),
    ),
    Bug(
        "row groups are taken for files",
        "maintenance.direct_lake",
        ".num_row_groups)",
        ".num_row_groups and 1)",
        ("maintenance/test_direct_lake.py::test_row_groups_are_counted_where_there_may_be_too_many",),
    ),
    Bug(
        "of a model's tables only the one that is refreshed has a size",
        "maintenance.direct_lake",
        "model, limits.bytes)",
        "size, limits.bytes)",
        ("maintenance/test_direct_lake.py::test_the_size_of_a_model_is_that_of_all_its_tables",),
    ),
    Bug(
        "a retry asks for another job beside that of the try before",
        "work.table_maintenance",
        "                return Waiting(own, own=True)\n            if found",
        "                note.keep(own=None)\n            if found",
        (
            "operators/test_table_maintenance.py::test_a_retry_waits_for_the_job_of_the_try_before_and_a_clear_asks_for_another",
        ),
    ),
    Bug(
        "a job that was skipped beside one whose answer was lost counts",
        "work.table_maintenance",
        '                if not note.get("lost"):\n',
        "                if note is not None:\n",
        (
            "operators/test_table_maintenance.py::test_where_the_answer_was_lost_it_is_asked_again_until_a_job_of_its_own_has_ended",
        ),
    ),
    Bug(
        "a clear takes the job of the start before",
        "operators.table_maintenance",
        '        return {**wanted.upkeep.to_json(), "deed": self._deed}\n',
        '        return {**wanted.upkeep.to_json(), "deed": ""}\n',
        ("operators/test_table_maintenance.py::test_a_clear_asks_for_another_job_also_of_the_same_version",),
    ),
    Bug(
        "Fabric's vacuum is asked for beside kept versions",
        "operators.table_maintenance",
        "        if kept and not self.despite_kept_versions:\n",
        "        if kept and self.despite_kept_versions:\n",
        ("operators/test_table_maintenance.py::test_a_vacuum_beside_kept_versions_is_refused_unless_it_is_wanted",),
    ),
    Bug(
        "a retention below seven days is sent",
        "operators.table_maintenance",
        "not isinstance(retention, timedelta) or retention < SHORTEST_RETENTION",
        "not isinstance(retention, timedelta)",
        ("operators/test_table_maintenance.py::test_what_is_wrong_is_refused_at_parse",),
    ),
    Bug(
        "a clear of a refresh takes a version of a table that was made again for the one of before",
        "work.refresh",
        'wanted = {"version": version, "digest": digest(version)}',
        'wanted = {"version": version}',
        ("work/test_refresh.py::test_a_clear_repeats_what_showed_its_version_only_of_a_table_that_was_made_again",),
    ),
]
