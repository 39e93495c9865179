"""Bugs of the rule by which a commit decides, which unit tests show (docs/concepts/how-it-works.md)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import attrs

from airflow_provider_onelake.buffers import beginnings
from airflow_provider_onelake.choices import Policy
from airflow_provider_onelake.writes import colleagues, commit_checks, conflicts, entry, policy, publish, reconcile
from airflow_provider_onelake.writes.policy import Outcome
from tests.seeded_bugs.bug import seeded

_BEGINNINGS = "tests/unit/buffers/test_beginnings.py"
_COLLEAGUES = "tests/unit/writes/test_colleagues.py"
_CONFLICTS = "tests/unit/writes/test_conflicts.py"
_DECISIONS = "tests/unit/writes/test_decisions.py"
_HISTORIES = "tests/unit/writes/test_histories.py::test_a_history"
_MOVED = f"{_COLLEAGUES}::test_a_late_writer_keeps_files_of_others"
_POLICY = "tests/unit/writes/test_policy.py"
_LATE = f"{_POLICY}::test_a_late_write_not_replaced_whole_is_out_of_date"
_RIVALS = f"{_DECISIONS}::test_others_of_its_load_are_rivals"
_SETTLED = f"{_DECISIONS}::test_each_policys_decision"
_SAID = f"{_CONFLICTS}::test_a_winner_replaced_what_it_says_and_where_it_does_not_say_it_may_have_changed_rows"
_BEGINS = f"{_BEGINNINGS}::test_a_load_begins_with_its_first_writer_and_each_clear_begins_it_anew"

# -- what is in conflict -----------------------------------------------------------------------------------------------


@seeded(
    "What others have done since a write was formed is looked at.", in_=conflicts.conflicts_of, fails=(_SETTLED, _SAID)
)
def no_conflicts_are_found(original, batch, winners, partitioning):
    return []


@seeded(
    "Who replaced a partition without a file in it has replaced it all the same.",
    in_=conflicts._replaced_range,
    fails=(_SAID,),
)
def ranges_without_files_are_ignored(original, winner, partitioning, renamed):
    range_ = original(winner, partitioning, renamed)
    filled = {partitioning.partition(file["partitionValues"]) for file in (*winner.adds, *winner.removes)}
    return lambda partition: partition in filled and range_(partition)


@seeded(
    "Where the log does not say what a commit replaced, it may have changed rows there.",
    in_=conflicts._foreign_range,
    fails=(_SAID, _HISTORIES),
)
def what_is_not_said_was_not_done(original, *args):
    range_ = original(*args)
    return lambda partition: range_(partition) is True


# -- what a policy makes of it -----------------------------------------------------------------------------------------


@seeded(
    "A late write does not replace what others have put there meanwhile.",
    in_=policy.Contest.later,
    fails=(_LATE, _SETTLED),
)
def a_late_write_replaces_newer_rows(original, self):
    return []


@seeded("With first_writer_wins, the first writer stays.", in_=policy.settle, fails=(_SETTLED, _HISTORIES))
def the_first_writer_is_replaced(original, contest, chosen):
    if chosen is Policy.FIRST_WRITER_WINS:
        return contest.settled(contest.conflicts, Outcome.REPLACED)
    return original(contest, chosen)


@seeded(
    "A late write is left out only if all of it was replaced.",
    in_=policy.Contest.is_replaced_by,
    fails=(_LATE, _SETTLED),
)
def whoever_is_late_is_superseded(original, self, later):
    return True


@seeded(
    "After a RESTORE, nobody knows whether what replaced a write is there.",
    in_=policy.Contest.is_replaced_by,
    fails=(
        f"{_POLICY}::test_after_a_restore_nobody_knows_whether_the_rows_that_replaced_it_are_there",
        f"{_HISTORIES}[12 the same, a RESTORE of other rows-last_writer_wins]",
    ),
)
def a_write_is_superseded_by_what_a_restore_took_back(original, self, later):
    return original(attrs.evolve(self, winners=()), later)


_removable: list[Any] = []


@seeded(
    "A write that is left out changes nothing.", in_=(publish._Replaced.files, entry.build_entry), fails=(_SETTLED,)
)
def a_write_that_is_left_out_removes_rows_all_the_same(original, first, second, third, *more):
    if isinstance(first, publish._Replaced):
        _removable[:] = original(first, second, third, *more)
        return list(_removable)
    return original(first, second, _removable, *more)


@seeded(
    "In a table that was copied, times of before do not tell who was later.",
    in_=publish._BatchProposal._times_count,
    fails=(_HISTORIES,),
)
def times_of_a_log_that_was_copied_count(original, self, batch):
    return True


@seeded(
    "A reconciliation publishes in the order in which writers finished.",
    in_=reconcile._StagedWriter.finished,
    fails=(
        "tests/unit/writes/test_reconcile.py::test_rivals_of_one_load_settle_in_the_order_in_which_they_finished",
        _HISTORIES,
    ),
)
def a_reconciliation_goes_by_the_writers_keys(original, self):
    return datetime.min.replace(tzinfo=UTC), original(self)[1]


# -- since when --------------------------------------------------------------------------------------------------------


@seeded(
    "Writers of a load are rivals, also where they ran one after another.",
    in_=publish._BatchProposal._commits_of_load,
    fails=(_RIVALS, _HISTORIES),
)
def writers_one_after_another_are_no_rivals(original, self, batch):
    return []


@seeded(
    "What others than its load have done before a write was formed is no conflict.",
    in_=publish._BatchProposal._commits_of_load,
    fails=(_RIVALS, _HISTORIES),
)
def commits_of_others_count_since_the_load_began(original, self, batch):
    began = batch.buffers[0].spec.began
    if began is None or self._policy is Policy.LAST_WRITER_WINS:
        return []
    return self._log.commits_between(began.version, batch.read_version)


@seeded(
    "What a write was computed from is judged from the version that it has read.",
    in_=(publish._BatchProposal.__attrs_post_init__, commit_checks.since),
    fails=(f"{_HISTORIES}[25 computed from what the load appended-fail]",),
)
def what_was_read_is_judged_from_the_beginning_of_the_load(original, first, winners=None):
    if winners is not None:
        return list(winners)
    original(first)
    began = [buffer.spec.began.version for buffer in first._buffers if buffer.spec.began is not None]
    first.read_version = min([first.read_version, *began])
    return None


@seeded(
    "A clear begins a load once for all the writers that it runs again.",
    in_=beginnings.beginning_of,
    fails=(_BEGINS, _HISTORIES),
)
def each_writer_of_a_clear_begins_the_load_anew(original, store, load, turn, life):
    return original(store, load, turn, f"{life} {turn.snapshot.version}" if turn.generation > 1 else life)


@seeded(
    "A writer that runs for the first time belongs to the first beginning of its load.",
    in_=beginnings.beginning_of,
    fails=(_BEGINS, _HISTORIES),
)
def a_first_start_belongs_to_somebody_elses_clear(original, store, load, turn, life):
    return original(store, load, attrs.evolve(turn, generation=turn.generation + 1), life)


# -- colleagues --------------------------------------------------------------------------------------------------------


@seeded(
    "Rows of a colleague stay where others have moved them into a file with rows of others.",
    in_=colleagues.check_apart,
    fails=(_MOVED,),
)
def a_file_that_holds_a_colleagues_rows_is_replaced(original, *args):
    return None
