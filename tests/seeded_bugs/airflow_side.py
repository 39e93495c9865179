"""Bugs of what stands between Airflow, Spark and Fabric: plans, sensors, jobs, rights, refreshes."""

from __future__ import annotations

from airflow_provider_onelake.exceptions import ObjectExistsError
from airflow_provider_onelake.fabric import semantic_model
from airflow_provider_onelake.following import watch
from airflow_provider_onelake.planning import filters, ledger, restores
from airflow_provider_onelake.spark.livy import batches
from airflow_provider_onelake.spark.livy import settings as livy_settings
from airflow_provider_onelake.spark.submit import spool
from airflow_provider_onelake.spark.submit.engine import SubmitEngine
from airflow_provider_onelake.steps.spark import SparkWork
from airflow_provider_onelake.triggers import feed
from airflow_provider_onelake.view import permissions
from tests.seeded_bugs.bug import seeded

_ENGINE = "tests/unit/spark/submit/test_engine.py"
_BATCHES = "tests/unit/spark/livy/test_batches.py"

# -- plans -------------------------------------------------------------------------------------------------------------


@seeded(
    "Each new file is given to one writer, also by two plans at the same time.",
    in_=ledger.Ledger.add,
    fails=("tests/unit/planning/test_new_files.py::test_of_two_plans_at_the_same_time_one_gets_each_file",),
)
def two_plans_at_the_same_time_give_a_file_to_two_writers(original, self, store, **entry):
    try:
        return original(self, store, **entry)
    except ObjectExistsError:
        self.entries += 1
        return original(self, store, **entry)


@seeded(
    "A file whose rows a RESTORE took back does not count as loaded.",
    in_=restores.look_for_restores,
    fails=(
        "tests/unit/planning/test_new_files.py::test_rows_that_a_restore_took_back_are_left_until_somebody_says_so",
    ),
)
def files_whose_rows_a_restore_took_back_count_as_loaded(original, log, known, snapshot):
    return None


@seeded(
    "A plan by values leaves no row out, also where the value is NULL.",
    in_=filters.filter_of,
    fails=("tests/unit/operators/test_plan.py::test_values_become_a_filter",),
)
def rows_with_null_are_planned_for_nobody(original, column, values):
    return original(column, [value for value in values if value is not None])


# -- sensors and watchers ----------------------------------------------------------------------------------------------


@seeded(
    "A sensor that waits for several writers waits for all of them.",
    in_=watch.LogWatch._strike_off,
    fails=("tests/unit/following/test_watch.py::test_all_the_writers_are_waited_for",),
)
def one_writer_of_several_ends_the_wait(original, self, txns):
    waited_for = len(self.pending)
    original(self, txns)
    if len(self.pending) < waited_for:
        self.pending.clear()


@seeded(
    "A commit is an event until Airflow has taken it, whatever failed meanwhile.",
    in_=feed.LogFeed.advance,
    fails=(
        "tests/unit/triggers/test_delta_log.py::test_a_poll_that_a_watcher_failed_in_lets_nobody_keep_how_far_it_came",
    ),
)
async def events_that_airflow_has_not_taken_count_as_taken(original, self, batch):
    for item in batch:
        await item.broker_payload.keep()


# -- Spark -------------------------------------------------------------------------------------------------------------


@seeded(
    "A task that is stopped stops its Spark job.",
    in_=SparkWork.stop,
    fails=(
        "tests/unit/operators/test_write.py::test_a_stopped_task_stops_spark_and_publishes_nothing",
        "tests/unit/triggers/test_driver.py::test_a_task_that_is_stopped_as_it_comes_back_ends_the_driver_that_it_left",
    ),
)
def a_stopped_task_leaves_spark_at_work(original, self):
    self._stopped = True


@seeded(
    "One attempt never submits its job twice.",
    in_=spool.JobSpool.send,
    fails=("tests/unit/spark/submit/test_clusters.py::test_the_same_attempt_never_submits_twice",),
)
def an_attempt_that_comes_back_submits_its_job_again(original, self, *args, **kwargs):
    original(self, *args, **kwargs)
    return True


@seeded(
    "A batch of Livy whose answer was lost is looked for, and not made twice.",
    in_=batches.Batches.submit,
    fails=(f"{_BATCHES}::test_a_batch_whose_answer_was_lost_is_found_by_its_name_and_not_made_twice",),
)
def a_batch_whose_answer_was_lost_is_made_twice(original, self, job):
    return original(self, job) or original(self, job)


@seeded(
    "A secret is not sent to Livy without TLS.",
    in_=livy_settings._signed_in,
    fails=("tests/unit/spark/livy/test_settings.py::test_a_secret_is_not_sent_without_tls",),
)
def a_secret_is_sent_without_tls(original, fields, address, *, in_fabric):
    return original(fields, address.replace("http://", "https://"), in_fabric=in_fabric)


@seeded(
    "A secret of the store stands in no message and no log, whatever Spark prints.",
    in_=SubmitEngine._without_secrets,
    fails=(f"{_ENGINE}::test_a_driver_without_a_result_says_its_last_lines_without_secrets",),
)
def a_message_repeats_a_secret_that_spark_printed(original, self, text):
    return text


# -- Fabric ------------------------------------------------------------------------------------------------------------


@seeded(
    "A refresh counts for a version only if it began after the version was there.",
    in_=semantic_model.Mark.counts,
    fails=("tests/unit/fabric/test_refreshes.py::test_what_was_there_before_does_not_count_and_what_came_later_does",),
)
def a_refresh_that_began_before_the_version_counts_for_it(original, self, refresh):
    return refresh.id not in self.known


@seeded(
    "The Lakehouse view shows no table of DAGs that its reader may not read.",
    in_=permissions.may_see,
    fails=("tests/unit/view/test_routes.py::test_a_table_of_a_dag_that_is_not_theirs_is_refused",),
)
def every_table_is_shown_to_everybody(original, user, table, namespace):
    return True
