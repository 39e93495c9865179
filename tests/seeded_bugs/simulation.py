"""Bugs that schedules of the simulation show, by seeds that are kept; ``--find`` looks for such a seed again."""

from __future__ import annotations

from airflow_provider_onelake.buffers import buffer as buffers
from airflow_provider_onelake.buffers import markers
from airflow_provider_onelake.choices import OnMissingWriter
from airflow_provider_onelake.commit import loop as transaction
from airflow_provider_onelake.exceptions import ZombieWriterError
from airflow_provider_onelake.history import reruns, undone
from airflow_provider_onelake.history.writers import WriterHistory
from airflow_provider_onelake.log import compatibility
from airflow_provider_onelake.log.commits import Commit
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.maintenance import compact
from airflow_provider_onelake.statements import asker, engine, merge, rounds
from airflow_provider_onelake.writes import commit_checks, publish, reconcile
from tests.seeded_bugs.bug import seeded
from tests.simulation.schedules import Schedules

LOADS, STATEMENTS = Schedules.LOADS, Schedules.STATEMENTS

# -- loads -------------------------------------------------------------------------------------------------------------


@seeded(
    "What is in the table is not published a second time.",
    in_=reruns.in_table,
    without=commit_checks.check_no_path_twice,
    fails=LOADS,
)
def what_is_published_is_published_again(original, *args):
    return None


@seeded("What was set aside is not published.", in_=markers.read_marker, fails=LOADS)
def nobody_sees_that_a_buffer_is_closed(original, store, path):
    return None


@seeded(
    "A commit whose answer was lost is not made again.",
    in_=Commit.txn_id,
    without=(reruns.in_table, commit_checks.check_no_path_twice),
    fails=LOADS,
)
def a_lost_answer_is_taken_for_a_refusal(original, self):
    return None


@seeded("An older attempt is not put on top of newer data.", in_=reruns.in_table, fails=LOADS)
def a_zombie_publishes_an_older_generation(original, history, spec):
    try:
        return original(history, spec)
    except ZombieWriterError:
        return None


@seeded("No file is published that a VACUUM may be about to delete.", in_=buffers.Buffer.check_age, fails=LOADS)
def a_buffer_of_any_age_is_published(original, self, now, retention_days):
    return None


@seeded(
    "Writers that are published together do not replace each other's rows.", in_=publish._Replaced.files, fails=LOADS
)
def rows_of_colleagues_are_replaced(original, self, batch, view, colleagues):
    return original(self, batch, view, ())


@seeded("A rerun is skipped only while the rows are there.", in_=reruns._why_not, fails=LOADS)
def a_writer_is_skipped_whatever_became_of_its_rows(original, history, spec, found):
    return None


@seeded(
    "With publish_nothing, nothing is published while a writer is missing.",
    in_=reconcile._Reconciliation.run,
    fails=LOADS,
)
def a_load_is_published_though_a_writer_is_missing(original, self, snapshot, writers, on_missing, unnamed):
    return original(self, snapshot, writers, OnMissingWriter.PUBLISH_OTHERS, unnamed)


@seeded("A compaction brings no row back that others have removed.", in_=compact._Compaction._drop_groups, fails=LOADS)
def a_compaction_is_published_whatever_became_of_its_inputs(original, self, view):
    return None


@seeded("Files are not published that the table would read wrongly.", in_=compatibility.incompatibilities, fails=LOADS)
def files_of_another_definition_are_published(original, staged, current):
    return iter(())


@seeded(
    "What was computed from the table is published only while that is so.", in_=commit_checks.stale_reads, fails=LOADS
)
def rows_are_published_that_are_out_of_date(original, buffers, winners, partitioning):
    return []


@seeded("An append is taken back whole or not at all.", in_=WriterHistory._why_not_taken_back, fails=LOADS)
def an_append_is_taken_back_though_files_are_gone(original, self, found, live):
    return None


@seeded("Nothing is published into another table of the same place.", in_=DeltaLog._is_the_same, fails=LOADS)
def a_table_that_was_made_again_is_taken_for_the_old_one(original, self, known):
    return True


@seeded(
    "Who is told that nothing was changed finds nothing changed.",
    in_=transaction._Transaction._put_before,
    fails=(
        (
            "tests/unit/commit/test_loop.py"
            "::test_what_a_proposal_has_decided_last_is_what_stands_there_also_if_a_put_lands_late"
        ),
    ),
)
def a_put_without_an_answer_is_decided_otherwise(original, self, snapshot):
    return None


# -- statements --------------------------------------------------------------------------------------------------------


@seeded("A statement is done to what came while it ran.", in_=engine.RowStatement.unread, fails=STATEMENTS)
def what_came_after_the_first_round_is_not_looked_at(original, self, done, present):
    unread = original(self, done, present)
    return None if done.ran else unread


@seeded("What was done to a file that others changed is dropped.", in_=rounds.Rounds.drop_lost, fails=STATEMENTS)
def what_was_done_to_a_vanished_file_is_kept(original, self, present):
    return None


@seeded(
    "A statement whose answer was lost is not done twice.",
    in_=(Commit.txn_id, asker.Asker.done_before),
    fails=STATEMENTS,
)
def a_statement_does_not_know_its_own_commit(original, *args):
    return None


@seeded("An older start does nothing once a newer one is done.", in_=asker.Asker.done_before, fails=STATEMENTS)
def an_older_start_does_a_statement_again(original, self, log, name, snapshot):
    is_older = snapshot.txns.get(self.app_id, 0) > self.generation
    return None if is_older else original(self, log, name, snapshot)


@seeded("A statement that a RESTORE took back is not called done.", in_=undone.is_undone, fails=STATEMENTS)
def a_statement_that_was_taken_back_counts_as_done(original, commit, later):
    return False


@seeded(
    "A statement is published only under the definition that it ran on.",
    in_=(compatibility.unfit, engine._redefined),
    fails=STATEMENTS,
)
def a_round_under_another_definition_is_published(original, before, now):
    return None


@seeded("A MERGE that inserts looks at all files together.", in_=merge._MergeStatement.unread, fails=STATEMENTS)
def a_merge_that_inserts_takes_its_rounds_one_by_one(original, self, done, present):
    return engine.RowStatement.unread(self, done, present)


@seeded("A MERGE is computed anew where a match was changed.", in_=rounds.Rounds.hold, fails=STATEMENTS)
def a_file_that_held_a_match_may_go(original, self, present):
    return True


@seeded("A MERGE is done once.", in_=asker.Asker.done_before, fails=STATEMENTS)
def a_merge_does_not_ask_what_is_in_the_table(original, self, log, name, snapshot):
    return original(self, log, name, snapshot) if self.statement else None
