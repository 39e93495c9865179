"""Bugs that the simulation must find, from a known seed on: a simulation that finds nothing proves nothing else."""

from __future__ import annotations

from datetime import timedelta

import pytest

from airflow_provider_onelake.commit import checks, conflicts, entry, followers, policy, publish, reconcile, transaction
from airflow_provider_onelake.commit.colleagues import RowsOfLoad
from airflow_provider_onelake.commit.publish import _Replaced
from airflow_provider_onelake.hooks import task_run
from airflow_provider_onelake.log import compatibility, partitions, replay
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.maintenance import compact
from airflow_provider_onelake.staging import buffers, prepare, published, reads
from airflow_provider_onelake.staging.standing import Standing
from tests.simulation import actors, versions
from tests.simulation.mutants import Change, check_found
from tests.simulation.runner import simulate

_Publishing = publish._Publishing
_Transaction = transaction._Transaction
_Reconciliation = reconcile._Reconciliation

NO_TXN_CHECK = (
    Change(_Publishing, "_pending", {"and not is_done(buffer, view, self._log)": ""}),
    Change(_Publishing, "_is_open", {"is_in_table(buffer, view, self._log)": "False"}),
)
NO_PATH_CHECK = Change(publish, "check_no_path_twice", {"if add[": "if False and add["})
BOTH = {"for file in removed]": "for file in (*removed, *(flat[:1] if batch.replaces_anything else ()))]"}

# What is changed, and what the judge must say of it. Where production has a second line of defence that would hide the
# bug, it is taken down too, and a comment says so.
BUGS = [
    # The check of paths would refuse a second put of the same buffer.
    pytest.param([*NO_TXN_CHECK, NO_PATH_CHECK], "sets the txn|was in the table before|times", id="txn-check-dropped"),
    pytest.param(
        [Change(_Replaced, "_live_files", {"files.follow(view.winners)": "pass"})],
        "removes",
        id="winners-remove-ignored",
    ),
    pytest.param(
        # Reconcile passes over closed buffers, and the committer asks again.
        [
            Change(_Publishing, "_is_open", {"= self._marker_of(buffer.path)": "= None"}),
            Change(
                Standing, "of", {"elif (marker := read_marker(log.store, path)) is None:": "elif not (marker := {}):"}
            ),
        ],
        "was closed before",
        id="closed-buffer-published-again",
    ),
    pytest.param(
        # The txn would tell, and so would the path.
        [Change(_Transaction, "_attempt", {"commit.txn_id == self._txn_id": "False"}), *NO_TXN_CHECK, NO_PATH_CHECK],
        "was in the table before|sets the txn|passes over|serial order",
        id="lost-answer-taken-for-a-refusal",
    ),
    pytest.param(
        [Change(checks, "is_done", {"if stored > spec.generation:": "if False:"})],
        "sets the txn of",
        id="zombies-generation-ignored",
    ),
    pytest.param(
        [Change(buffers.Buffer, "check_age", {"if self.oldest is not None and": "if False and"})],
        "the live file .* is gone",
        id="old-buffer-published",
    ),
    pytest.param(
        [
            Change(
                policy.Contest,
                "is_earlier",
                {"conflict.finished < self.batch.finished": "conflict.finished > self.batch.finished"},
            )
        ],
        "serial order|should have been refused",
        id="earlier-finisher-wins",
    ),
    pytest.param(
        # The entry is checked before it is put.
        [Change(publish, "build_entry", {**BOTH, "if both:": "if False:"})],
        "removes|adds and removes",
        id="path-both-added-and-removed",
    ),
    pytest.param(
        [Change(publish, "build_entry", BOTH)],
        "CorruptLogError",
        id="path-both-added-and-removed-is-refused",
    ),
    pytest.param(
        [Change(_Replaced, "files", {'if writer_directory(file["path"]) not in colleagues': ""})],
        "of a colleague",
        id="colleagues-rows-replaced",
    ),
    pytest.param(
        [Change(_Publishing, "decide", {"if buffer not in buffers": "if False"})],
        "of a colleague|serial order",
        id="rows-of-a-colleague-published-meanwhile-replaced",
    ),
    pytest.param(
        [
            Change(
                _Reconciliation,
                "run",
                {"for state in states if state.buffer is None]": "for state in states if state.published]"},
            )
        ],
        "of a colleague",
        id="rows-of-a-colleague-whose-rerun-is-missing-replaced",
    ),
    pytest.param(
        [Change(RowsOfLoad, "check_apart", {"if rows is None or mixed is not None": "if rows is None"})],
        "of a colleague",
        id="colleagues-rows-in-a-compacted-file-replaced",
    ),
    pytest.param(
        [Change(published, "moved", {"rewrites = not": "rewrites = False and not"})],
        "of a colleague",
        id="colleagues-rows-in-an-updated-file-replaced",
    ),
    pytest.param(
        [Change(RowsOfLoad, "_begin", {"if found.record.generation > 1:": "if False:"})],
        "of a colleague",
        id="colleagues-older-rows-in-a-compacted-file-replaced",
    ),
    pytest.param(
        # That nothing of a writer is left is asked besides.
        [
            Change(
                published,
                "restored_away",
                {
                    "undoing = next((commit for commit in since if commit.operation in operations), None)": (
                        "undoing = None"
                    )
                },
            ),
            Change(prepare, "_why_not_skipped", {"if since.gone is not False else None": "if False else None"}),
        ],
        "of it back",
        id="writer-skipped-though-a-restore-took-its-rows",
    ),
    pytest.param(
        [Change(entry, "_published", {"if not settled.yields(partition):": "if True:"})],
        "serial order",
        id="rows-published-in-a-yielded-partition",
    ),
    pytest.param(
        [
            Change(
                partitions,
                "typed_value",
                {'if spelling is None or spelling == "":': "if True:\n        return spelling\n    if True:"},
            )
        ],
        "serial order|passes over|should have been refused",
        id="partitions-compared-as-they-are-spelled",
    ),
    pytest.param(
        [
            Change(
                _Transaction,
                "_attempt",
                {
                    "self._log.snapshot_or_none() if self._proposal.creates_table else self._log.snapshot()": "self._log._known.snapshot if self._log._known else self._log.snapshot_or_none()",
                    "version = snapshot.version + 1": "version = self._log.store.version() + 1",
                },
            ),
        ],
        "was decided on version",
        id="snapshot-not-refreshed-before-deciding",
    ),
    pytest.param(
        [Change(_Transaction, "_attempt", {"self._log.store.create(": "self._log.store.put("})],
        "is put over",
        id="put-is-not-create-only",
    ),
    pytest.param(
        [Change(_Publishing, "_allied", {"spec.generation > writer.generation": "False"})],
        "serial order|fails with ConflictError",
        id="rerun-yields-to-its-own-older-generation",
    ),
    pytest.param(
        [Change(_Reconciliation, "_look_at", {"if not complete and": "if False and"})],
        "is missing",
        id="writer-that-published-meanwhile-named-missing",
    ),
    pytest.param(
        [Change(_Publishing, "_ended_without_put", {"if all(": "if False and all("})],
        "says",
        id="set-aside-reported-as-published",
    ),
    pytest.param(
        [Change(replay.LogFiles, "check_contiguous", {"and not exists(version)": ""})],
        "LogGapError",
        id="listing-taken-for-an-instant",
    ),
    pytest.param(
        [Change(_Reconciliation, "run", {"on_missing is OnMissingWriter.PUBLISH_NOTHING": "False"})],
        "missing",
        id="published-though-a-writer-is-missing",
    ),
    pytest.param(
        [Change(compact._Compaction, "_drop_groups", {"if file_key(file) not in present:": "if False:"})],
        "which is not live",
        id="compaction-published-after-an-input-was-removed",
    ),
    pytest.param(
        [Change(_Transaction, "_attempt", {"commit.txn_id == self._txn_id": "False"})],
        "says dropped in None, and the log|which is not live",
        id="compactions-own-commit-not-recognised",
    ),
    pytest.param(
        # The vector is part of what a file is: without it, readers go on seeing the old one.
        [Change(entry, "remove_of", {"is not None}": 'is not None and key != "deletionVector"}'})],
        "which is not live|otherwise than it was added",
        id="remove-without-its-deletion-vector",
    ),
    pytest.param(
        # The ids of columns would tell as well.
        [
            Change(
                compatibility,
                "_fields",
                {
                    "{column.physical_name: column for": "{column.name: column for",
                    "now.pop(column.physical_name, None)": "now.pop(column.name, None)",
                    "elif None not in (column.field_id, found.field_id) and": "elif False and",
                },
            )
        ],
        "of which the table has|compacts .* to",
        id="stale-column-mapping",
    ),
    pytest.param(
        [
            Change(
                _Publishing,
                "decide",
                {
                    "build_entry(batch, snapshot,": "build_entry(batch, attrs.evolve(snapshot, "
                    "domains=self.__dict__.setdefault('_first', snapshot).domains),"
                },
            )
        ],
        "gives row id .* twice",
        id="row-ids-not-rebased",
    ),
    pytest.param(
        [
            Change(
                entry,
                "stamp",
                {"max(milliseconds(now), -1 if previous is None else previous + 1)": "milliseconds(now)"},
            )
        ],
        "in-commit timestamp .*, not later",
        id="in-commit-timestamp-not-later",
    ),
    pytest.param(
        [Change(checks, "stale_reads", {"if buffer.reads_target]": "if False]"})],
        "computed from version .*, which changed since",
        id="self-read-published-after-a-change",
    ),
    pytest.param(
        [Change(reads, "changes", {"if commit.version <= counts_until]": "if not commit.blind_append]"})],
        "computed from version .*, which changed since",
        id="append-counts-as-later-that-another-may-have-read",
    ),
    pytest.param(
        [Change(reads, "_touching", {"inside.meets(": "False and ("})],
        "computed from version .*, which changed since",
        id="declared-read-published-after-a-change",
    ),
    pytest.param(
        [
            Change(
                followers,
                "missed_by",
                {"areas.meet(effect.read, changed)": "False and areas.meet(effect.read, changed)"},
            )
        ],
        "serial order",
        id="write-placed-before-a-reader-that-has-not-seen-it",
    ),
    # Whoever prepares a rerun asks as well.
    pytest.param(
        [Change(published, "_why_not_taken_back", {"if missing:": "if False:"})],
        "takes back .* changed since",
        id="append-taken-back-though-a-file-is-gone",
    ),
    pytest.param(
        [
            Change(
                _Replaced,
                "files",
                {"not in colleagues]": "not in colleagues and not any(file in w.adds for w in view.winners)]"},
            )
        ],
        "serial order",
        id="overwrite-leaves-a-winners-file",
    ),
    pytest.param(
        [Change(_Publishing, "_rivals", {"self._same_load.commits(batch, view, removable) + ": ""})],
        "serial order|passes over",
        id="writers-of-a-load-one-after-another-are-no-rivals",
    ),
    pytest.param(
        [
            Change(
                policy,
                "_by_completion",
                {
                    "elif conflict.effect is Effect.APPENDED:": "elif conflict.effect is Effect.CHANGED:\n"
                    "            settled.yielded.add(conflict.partition)\n"
                    "            outcome = Outcome.SUPERSEDED\n"
                    "        elif conflict.effect is Effect.APPENDED:"
                },
            ),
            Change(policy, "_tell_files_apart", {"elif read(": "elif False and read("}),
        ],
        "should have been refused|serial order",
        id="half-of-a-write-yields-to-a-delete",
    ),
    pytest.param(
        [
            Change(
                policy,
                "settle",
                {"Settled(set_aside=True,": "Settled(yielded={c.partition for c in contest.conflicts},"},
            )
        ],
        "serial order",
        id="half-of-a-write-yields-to-who-was-first",
    ),
    pytest.param(
        [Change(conflicts, "winner_changed_files", {"if len(named) < len(changed):": "if False:"})],
        "serial order|passes over|should have been refused",
        id="removes-that-do-not-say-where-passed-over",
    ),
    pytest.param(
        [Change(conflicts, "winner_changed_files", {"winner.blind_append": 'winner.info.get("isBlindAppend")'})],
        "fails with ConflictError",
        id="appends-that-do-not-say-that-they-are-blind-refused",
    ),
    pytest.param(
        [Change(policy, "_tell_files_apart", {"settled.kept.add(object_path(file))": "pass"})],
        "serial order",
        id="later-appends-replaced",
    ),
    pytest.param(
        [Change(reconcile, "aftermath", {"return Aftermath(fate, tuple(story),": "return Aftermath(Fate.LIVE, (),"})],
        "are not in the table any more",
        id="rows-that-are-gone-called-published",
    ),
    pytest.param(
        [Change(DeltaLog, "_is_the_same", {"return self._read_digest(version) == digest": "return True"})],
        "another definition of the table|the versions of the log are|which is not live",
        id="published-into-another-table",
    ),
    pytest.param(
        [Change(actors, "begin", {"newest.deed.id == deed.id": "newest.deed.task == deed.task"})],
        "are of generations",
        id="clear-taken-for-a-retry",
    ),
    pytest.param(
        [Change(task_run, "_cleared", {'known["max_tries"] != ti.max_tries': 'known["try_number"] != ti.try_number'})],
        "are of generations",
        id="retry-taken-for-a-clear",
    ),
]

# Histories that show them. Where production or scenarios have changed, the search goes on from there; where it takes long,
# write down what it finds.
SHOWN_BY = {
    "writer-skipped-though-a-restore-took-its-rows": 1126,
    "winners-remove-ignored": 824,
    "closed-buffer-published-again": 46,
    "zombies-generation-ignored": 265,
    "old-buffer-published": 149,
    "rows-of-a-colleague-published-meanwhile-replaced": 1484,
    "rows-of-a-colleague-whose-rerun-is-missing-replaced": 240,
    "colleagues-rows-in-a-compacted-file-replaced": 212,
    "colleagues-rows-in-an-updated-file-replaced": 212,
    "colleagues-older-rows-in-a-compacted-file-replaced": 994684266,
    "rerun-yields-to-its-own-older-generation": 965,
    "set-aside-reported-as-published": 493,
    "listing-taken-for-an-instant": 82,
    "compaction-published-after-an-input-was-removed": 51,
    "compactions-own-commit-not-recognised": 1907,
    "remove-without-its-deletion-vector": 297,
    "stale-column-mapping": 78,
    "row-ids-not-rebased": 402,
    "in-commit-timestamp-not-later": 65,
    "self-read-published-after-a-change": 51,
    "append-counts-as-later-that-another-may-have-read": 58,
    "declared-read-published-after-a-change": 51,
    "write-placed-before-a-reader-that-has-not-seen-it": 874484403,
    "overwrite-leaves-a-winners-file": 64,
    "half-of-a-write-yields-to-a-delete": 116,
    "half-of-a-write-yields-to-who-was-first": 71,
    "removes-that-do-not-say-where-passed-over": 1273,
    "appends-that-do-not-say-that-they-are-blind-refused": 337,
    "later-appends-replaced": 26,
}


@pytest.mark.parametrize(("changes", "says"), BUGS)
def test_simulation_finds(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, changes: list[Change], says: str
) -> None:
    for change in changes:
        change.apply(monkeypatch)
    # The judge knows the age rule too; here it must see the harm: a file of the table that VACUUM took.
    monkeypatch.setattr(versions, "HALF_RETENTION", timedelta(days=1000))
    check_found(simulate, says, SHOWN_BY.get(request.node.callspec.id, 0))
