"""Bugs of the engine for Livy, of the versions that a driver asks for first, and of the local OneLake's batches."""

from __future__ import annotations

from tests.seeded_bugs.bug import Bug

_BATCHES = "engines/livy/test_batches.py"
_FABRIC = "engines/livy/test_fabric.py"
_SETTINGS = "engines/livy/test_settings.py"
_DEFINITIONS = "engines/livy/test_definitions.py"
_VERSIONS = "spark_jobs/test_versions.py"

BUGS = [
    Bug(
        "a batch whose answer was lost is made twice",
        "engines.livy.client",
        '"/batches", self._patience, once=True, json=body',
        '"/batches", self._patience, json=body',
        (
            f"{_BATCHES}::test_a_batch_whose_answer_was_lost_is_found_by_its_name_and_not_made_twice",
            f"{_FABRIC}::test_a_batch_whose_answer_was_lost_is_found_by_its_name",
        ),
    ),
    Bug(
        "a batch that is not shown yet counts as ended",
        "engines.livy.batches",
        "            return batch in self._shown or spool.age > _APPEARS_SECONDS\n",
        "            return True\n",
        (
            f"{_BATCHES}::test_a_new_batch_that_is_not_shown_yet_has_not_ended",
            f"{_FABRIC}::test_a_batch_that_is_not_shown_right_after_it_was_made_is_waited_for",
        ),
    ),
    Bug(
        "a batch that was never shown is waited for without end",
        "engines.livy.batches",
        "            return batch in self._shown or spool.age > _APPEARS_SECONDS\n",
        "            return batch in self._shown\n",
        (f"{_BATCHES}::test_a_batch_that_nobody_knows_long_after_it_was_made_has_ended",),
    ),
    Bug(
        "430 is taken for a refusal for good",
        "engines.livy.client",
        "_BUSY = (429, 430)\n",
        "_BUSY = (429,)\n",
        (
            f"{_BATCHES}::test_a_batch_waits_for_room_as_long_as_livy_says[430]",
            f"{_FABRIC}::test_a_full_capacity_is_waited_for_as_long_as_it_says[livy_full]",
        ),
    ),
    Bug(
        "Retry-After is not read",
        "engines.livy.client",
        "                float(after) if after.isdecimal() else None,\n",
        "                None,\n",
        (f"{_BATCHES}::test_a_batch_waits_for_room_as_long_as_livy_says[429]",),
    ),
    Bug(
        "a batch that was refused leaves its claim behind",
        "engines.submit.drivers",
        "            except OneLakeError:\n                spool.clear()\n                raise\n",
        "            except OneLakeError:\n                raise\n",
        (
            f"{_BATCHES}::test_where_there_is_no_room_for_longer_than_the_patience_nothing_is_left_behind",
            f"{_BATCHES}::test_a_name_that_is_taken_is_refused_by_livy_and_leaves_nothing_behind",
        ),
    ),
    Bug(
        "what Livy says of a batch that left no result is not passed on",
        "engines.submit.drivers",
        "                said = said or self._last_words(spool)\n",
        "                pass\n",
        (f"{_BATCHES}::test_a_batch_that_ends_without_a_result_is_explained_by_livy_and_by_its_log[dead]",),
    ),
    Bug(
        "a secret is sent without TLS",
        "engines.livy.settings",
        'if is_secret and address.startswith("http://")',
        'if in_fabric and address.startswith("http://")',
        (f"{_SETTINGS}::test_a_secret_is_not_sent_without_tls[http://livy]",),
        error="Failed",
    ),
    Bug(
        "Fabric's Spark is told which extensions to load",
        "engines.livy.settings",
        "        if self.in_fabric:\n            conf =",
        "        if self.in_fabric and self.environment is None:\n            conf =",
        (f"{_SETTINGS}::test_fabrics_spark_gets_the_users_settings_and_nothing_that_it_has_itself",),
    ),
    Bug(
        "a Spark that is too old is let through",
        "spark_jobs.versions",
        "and known < least]",
        "and known[0] < least[0] - 1]",
        (f"{_VERSIONS}::test_the_version_that_is_too_old_is_named_with_what_is_needed[Spark-3.5.5-Spark 4.0]",),
        error="Failed",
    ),
    Bug(
        "a batch runs with another identity's token",
        "local_onelake.fabric.submitting",
        "call.lake.identities.tokens[call.identity]",
        "next(iter(call.lake.identities.tokens.values()))",
        ("local_onelake/fabric/test_livy.py::test_a_batch_runs_what_it_was_told_as_the_identity_that_made_it",),
    ),
    Bug(
        "a Viewer may make batches",
        "local_onelake.fabric.livy",
        'item_of(call, workspace_guid, guid, "Contributor")',
        "item_of(call, workspace_guid, guid)",
        ("local_onelake/fabric/test_livy.py::test_who_is_no_contributor_may_do_nothing[Viewer]",),
    ),
    Bug(
        "a run of a Spark job definition whose answer was lost is begun twice",
        "storage.jobs",
        'self.rest.ask("POST", path, self, once=True, json={"executionData": dict(execution)})',
        'self.rest.ask("POST", path, self, json={"executionData": dict(execution)})',
        (f"{_DEFINITIONS}::test_a_run_whose_answer_was_lost_is_not_asked_for_again_and_its_driver_is_heard_of",),
    ),
    Bug(
        "a run of a Spark job definition whose id nobody knows is taken for ended",
        "engines.livy.definitions",
        "            return not self._runs.at_work()\n",
        "            return True\n",
        (f"{_DEFINITIONS}::test_a_run_whose_answer_was_lost_is_not_asked_for_again_and_its_driver_is_heard_of",),
    ),
    Bug(
        "a run of a Spark job definition that is not shown yet counts as ended",
        "engines.livy.definitions",
        "            return driver in self._shown or spool.age > _APPEARS_SECONDS\n",
        "            return True\n",
        (f"{_DEFINITIONS}::test_a_run_that_is_not_shown_right_after_it_was_begun_is_waited_for",),
    ),
    Bug(
        "arguments with blanks are sent to a run of a Spark job definition",
        "engines.livy.definitions",
        "if _BLANK.search(text)), None)",
        "if not text), None)",
        (f"{_DEFINITIONS}::test_an_argument_with_a_blank_is_refused_because_fabric_would_split_it",),
    ),
    Bug(
        "for Fabric's REST, 430 is taken for a refusal for good",
        "storage.fabric",
        "_TOO_MANY = (429, 430)\n",
        "_TOO_MANY = (429,)\n",
        (f"{_DEFINITIONS}::test_a_full_capacity_is_waited_for[livy_full]",),
    ),
    Bug(
        "a batch is killed without its children",
        "local_onelake.batches",
        "    until = time.monotonic() + _TERM_SECONDS\n",
        "    process.kill()\n    process.wait()\n    return\n    until = time.monotonic() + _TERM_SECONDS\n",
        (f"{_FABRIC}::test_a_stop_kills_the_batch_with_its_children",),
    ),
    Bug(
        "two jobs of one attempt have one name",
        "engines.submit.spool",
        "str(self._submission.get('claim') or '')[:_OF_A_CLAIM]",
        "''",
        (
            "engines/livy/test_batches.py::test_a_second_job_of_an_attempt_is_a_batch_of_another_name",
            "engines/submit/test_kubernetes.py::test_a_second_job_of_an_attempt_is_a_pod_of_another_name",
        ),
    ),
]
