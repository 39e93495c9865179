"""What processes said, against what was in the table by then: nobody says of rows that they are there when they are not."""

from __future__ import annotations

import json
import re
from typing import Any

from airflow_provider_onelake.choices import OnMissingWriter, OnRerun, OnUnexpectedRows, PublishMode
from airflow_provider_onelake.exceptions import (
    BufferDoesNotFitError,
    BufferLostError,
    ConflictError,
    DuplicateWriterError,
    InvalidWriteError,
    LogGapError,
    MissingWritersError,
    OneLakeError,
    OutOfDateError,
    RerunRefusedError,
    TableNotFoundError,
    TransientError,
    UnexpectedRowsError,
    ZombieWriterError,
)
from airflow_provider_onelake.history.reruns import Skip
from airflow_provider_onelake.modes import Append
from airflow_provider_onelake.writes.publish import Publication
from airflow_provider_onelake.writes.report import Report, WriterOutcome
from tests.simulation.actors import Said
from tests.simulation.compactor import Compacted
from tests.simulation.versions import Published, Versions, fail, original
from tests.simulation.whole import WholeWrites

_TAKEN_BACK = re.compile(r"What writer '([^']*)' appended to .* in generation (\d+) cannot be taken back")
_BY_POLICY = re.compile(r"Writers ([^.]+) replace these rows, and were formed on (?:version \d+|no table)")
_IN_THE_TABLE = ("published", "already_published")
_GONE = ("superseded", "deleted", "restored_away")


class Words:
    """Judges what processes said."""

    def __init__(self, versions: Versions, whole: WholeWrites) -> None:
        self._versions = versions
        self._whole = whole
        self._d = versions.d
        self._store = versions.store
        self._counters = versions.counters
        self._epoch = versions.d.epoch
        self._told = self._compacted = 0

    def judge(self) -> None:
        """Judge what is new since the last time."""
        said, self._told = self._d.said[self._told :], len(self._d.said)
        for one in said:
            # Of one table, and then of another that was made in its place, nobody can speak rightly.
            if one.epoch == self._epoch:
                self._judge(one)
        compacted, self._compacted = self._d.compacted[self._compacted :], len(self._d.compacted)
        for told in compacted:
            if told.epoch == self._epoch:
                self._judge_compacted(told)

    def _judge(self, said: Said) -> None:
        if said.error is not None:
            self._judge_error(said, said.error, [said.buffer] if said.buffer is not None else [])
        elif isinstance(said.said, Report):
            self._judge_report(said, said.said)
        elif isinstance(said.said, Publication | Skip) and said.spec is not None:
            self._judge_writer(said)

    def _judge_compacted(self, told: Compacted) -> None:
        versions = [
            c.version for c in self._versions.commits if told.shadow is not None and c.compaction == told.shadow
        ]
        if len(versions) > 1:
            fail(f"{told.actor} was published in versions {versions}")
        if told.said is not None and versions != ([] if told.said.version is None else [told.said.version]):
            fail(f"{told.actor} says {told.said.status.value} in {told.said.version}, and the log {versions}")
        if told.error is not None and not isinstance(told.error, TransientError | BufferLostError):
            fail(f"{told.actor} fails with {type(told.error).__name__}: {told.error}")

    # -- writers -----------------------------------------------------------------------------------------------------------

    def _judge_writer(self, said: Said) -> None:
        spec, what = said.spec, said.said
        assert spec is not None
        app_id = spec.identity.app_id
        if isinstance(what, Publication):
            self._counters[f"writers {what.status.value}"] += 1
            if what.status.value in ("set_aside", "superseded"):
                closed = any(path.startswith(f"{spec.identity.directory}/") for path in self._store.closings)
                if what.version is None and not closed:
                    fail(f"{said.actor} says {what.status.value}, but nobody did")
                if what.version is not None and self._files(what.version, spec.identity.directory):
                    fail(f"{said.actor} says {what.status.value}, but its rows came in version {what.version}")
                return
            if what.status.value == "nothing_to_do":
                if said.oldest >= 0 or spec.buffer in self._d.staged:
                    fail(f"{said.actor} says nothing_to_do, but it had rows, or there was a table")
                return
        else:
            self._counters["writers skipped"] += 1
            self._check_not_restored(said, what)
        assert what is not None
        stored = self._versions.txn_at(app_id, said.newest)
        if stored >= spec.generation:
            pass
        elif not stored or spec.on_rerun is not OnRerun.SKIP:
            fail(f"{said.actor} says {what}, but version {said.newest} has txn {stored} of {app_id}")
        version = what.version
        if version is not None and app_id not in self._versions.txns_of(version):
            fail(f"{said.actor} names version {version}, which {app_id} has no part in")
        if isinstance(what, Publication) and what.status.value == "published":
            assert version is not None
            if self._versions.txns_of(version)[app_id] != spec.generation:
                fail(f"{said.actor} names version {version}, which is of another generation")

    def _check_not_restored(self, said: Said, skip: Any) -> None:
        """What a RESTORE took back is not skipped as if it were there (a retry without a fingerprint cannot tell)."""
        if skip.version is None or not skip.reason.startswith("already in"):
            return
        assert said.spec is not None
        files = self._files(skip.version, said.spec.identity.directory)
        rows = {name for add in files for name, _ in self._versions.read_file(add)}
        for commit in self._versions.commits[skip.version + 1 : said.newest + 1]:
            landed = self._store.entries[commit.version].step
            if commit.info.get("operation") != "RESTORE" or landed >= said.began:
                continue
            taken = (rows & self._there(commit.version - 1)) - self._there(commit.version)
            later = range(commit.version + 1, said.newest + 1)
            if taken and not any(taken <= self._there(version) for version in later):
                fail(
                    f"{said.actor} skips version {skip.version}, though the RESTORE of version {commit.version} took "
                    f"{sorted(taken)} of it back"
                )

    def _there(self, version: int) -> set[str]:
        """Return the rows that a version has, by their names before anybody changed them."""
        return {original(row) for _, row in self._versions.states[version]}

    # -- reconciliations ---------------------------------------------------------------------------------------------------

    def _judge_report(self, said: Said, report: Report) -> None:
        for failure in report.failures:
            refused = [o.buffer for o in report.outcomes if o.error == str(failure) and o.buffer is not None]
            self._judge_error(said, failure, refused)
        mine = [v for v, e in self._store.entries.items() if e.creator == said.actor]
        if report.missing and said.plan.on_missing is OnMissingWriter.PUBLISH_NOTHING and mine:
            fail(f"{said.actor} published versions {mine} though {report.missing} were missing")
        for outcome in report.outcomes:
            self._counters[f"reconciled: {outcome.status}"] += 1
            app_id = self._versions.writer(said.plan, outcome.writer).app_id
            if outcome.status in (*_IN_THE_TABLE, *_GONE, "set_aside"):
                aside = outcome.status == "set_aside" and outcome.buffer in self._store.closings
                if not aside and not self._versions.txn_at(app_id, said.newest):
                    fail(f"{said.actor} says {outcome.status} of {app_id}, which has no txn by version {said.newest}")
                if outcome.version is not None and app_id not in self._versions.txns_of(outcome.version):
                    fail(f"{said.actor} names version {outcome.version}, which {app_id} has no part in")
                self._judge_there(said, outcome)
            elif outcome.status == "held_back" and said.plan.on_missing is not OnMissingWriter.PUBLISH_NOTHING:
                fail(f"{said.actor} holds {app_id} back")
            elif outcome.status == "missing" and outcome.error is None:
                self._judge_missing(said, app_id)

    def _judge_there(self, said: Said, outcome: WriterOutcome) -> None:
        """Rows that are said to be there are there, or it is said who took them."""
        if outcome.version is None:
            return
        directory = self._versions.writer(said.plan, outcome.writer).directory
        files = self._files(outcome.version, directory)
        rows = {name for add in files for name, _ in self._versions.read_file(add)}
        if outcome.status == "set_aside":
            if rows:
                fail(f"{said.actor} says set_aside of {outcome.writer}, whose rows came in version {outcome.version}")
            return
        if outcome.rows_published is not None and outcome.rows_published != len(rows):
            fail(f"{said.actor} says {outcome.rows_published} rows of {outcome.writer}, and they are {sorted(rows)}")
        # It looked at some moment while it ran.
        seen = range(max(said.oldest, outcome.version), said.newest + 1)
        gone = [rows - {row for _, row in self._versions.states[v]} for v in seen]
        app_id, counted = self._versions.writer(said.plan, outcome.writer).app_id, outcome.rows_in_table
        # Another generation brings the same rows again.
        if self._versions.txn_at(app_id, said.newest) == 1 and counted not in {
            None,
            *(len(rows - lost) for lost in gone),
        }:
            fail(f"{said.actor} says that {counted} of {sorted(rows)} are there, and {gone[-1]} are not")
        self._counters["told: some rows are there"] += 0 < (counted or 0) < len(rows)
        if outcome.status in _IN_THE_TABLE:
            if all(gone) and rows and not getattr(outcome, "aftermath", ()):
                fail(
                    f"{said.actor} says {outcome.status} of {outcome.writer}, though {sorted(gone[-1])} of version "
                    f"{outcome.version} are not in the table any more"
                )
            return
        if outcome.status == "superseded" and not files:
            return
        self._counters[f"told: {outcome.status}"] += 1
        since = self._versions.commits[outcome.version + 1 : said.newest + 1]
        if not any(self._could_be(outcome.status, commit) for commit in since):
            fail(
                f"{said.actor} says {outcome.status} of {outcome.writer} of version {outcome.version}: nobody did that"
            )

    def _could_be(self, word: str, commit: Published) -> bool:
        operation = commit.info.get("operation")
        if word == "restored_away" and operation == "RESTORE":
            # Also where the rows were gone: they would be there again, had it not gone back before them.
            return True
        if not any(r.get("dataChange", True) for r in commit.removes):
            return False
        restores = operation == "RESTORE" or str(operation).startswith("CREATE OR REPLACE")
        if word == "restored_away":
            return restores
        return not restores and (not commit.ours or word == "superseded")

    def _files(self, version: int, directory: str) -> list[dict[str, Any]]:
        """Return what a version added of a writer's."""
        return [add for add in self._versions.commits[version].adds if add["path"].startswith(f"{directory}/")]

    def _judge_missing(self, said: Said, app_id: str) -> None:
        """A writer whose newest generation was complete all along is not missing."""
        newest = max(
            (g for g, step in self._claims(app_id).items() if step <= said.ended),
            default=0,
        )
        for path in self._versions.complete(app_id):
            spec = self._versions.version_0(path)["commitInfo"]["staged"]["spec"]
            closing = self._store.closings.get(path, said.ended + 1)
            all_along = self._store.completed[path] < said.began and closing > said.ended
            if spec["generation"] == newest and all_along and self._of_this_table(path):
                fail(f"{said.actor} says that {app_id} is missing, though {path} was complete before it began")

    def _of_this_table(self, path: str) -> bool:
        """Whether a buffer was staged for the table as it is, and not for one that it was made in place of.

        What was staged while there was no table is for any that is made, until it is published in one.
        """
        staged_for = self._versions.version_0(path)["commitInfo"]["staged"]
        marker = self._store.peek(f"{path}/_closed.json")
        if staged_for["readVersion"] < 0 and marker is None:
            return True
        table = json.loads(marker.data).get("table") if marker is not None else None
        return self._versions.table_id in (staged_for["tableId"], table)

    def _claims(self, app_id: str) -> dict[int, int]:
        return self._store.claims.get(self._versions.directory[app_id], {})

    # -- errors ------------------------------------------------------------------------------------------------------------

    def _judge_error(self, said: Said, error: OneLakeError, buffers: list[str]) -> None:
        plan = said.plan
        others = {f.kind for f in self._d.scenario.foreign}
        self._counters[f"error: {type(error).__name__}"] += 1
        if isinstance(error, TransientError | MissingWritersError):
            return
        replaced = bool(others & {"replace", "remake"})
        twins = len({w.key for w in plan.writers}) < len(plan.writers)
        # A load's own predicate names a column that has another name by now.
        misnamed = "rename partition" in others and any(
            w.into is not None or w.named is not None for w in plan.all_writers
        )
        refused = _BY_POLICY.search(str(error)) if isinstance(error, ConflictError) else None
        by_policy = refused is not None
        # A report does not name the buffers of a batch that others have published meanwhile.
        if refused is not None and len(refused[1].split(", ")) == len(buffers):
            self._whole.check_refused(said.actor, plan, buffers, range(said.oldest, said.newest + 1))
        allowed: dict[str, bool] = {
            BufferLostError.__name__: bool(self._d.scenario.vacuums),
            BufferDoesNotFitError.__name__: replaced
            or self._d.varies
            or misnamed
            or bool(others & {"add check", "swap column", "restore"}),
            ConflictError.__name__: by_policy,
            "MixedRowsError": plan.publish is PublishMode.TOGETHER,
            "UnknownCommitsError": bool(self._d.scenario.checkpoints),
            OutOfDateError.__name__: by_policy or any(writer.reads for writer in plan.all_writers),
            InvalidWriteError.__name__: misnamed,
            LogGapError.__name__: "remake" in others and any(w.named is not None for w in plan.all_writers),
            DuplicateWriterError.__name__: twins or (said.stale and any(r.listed != plan.writers for r in plan.reruns)),
            # Its name is another one's by now, and nobody has it any more that it had.
            "OrphanWriterError": any(r.listed != plan.writers for r in plan.reruns),
            RerunRefusedError.__name__: plan.on_rerun is OnRerun.SKIP
            or (plan.on_rerun is OnRerun.REPLACE and plan.mode is Append)
            or "restore" in others
            or replaced,
            UnexpectedRowsError.__name__: plan.on_unexpected_rows is OnUnexpectedRows.REFUSE,
            "RowsRestoredAwayError": replaced or "restore" in others,
            TableNotFoundError.__name__: not self._d.scenario.exists or "remake" in others,
            ZombieWriterError.__name__: bool(plan.reruns) and (said.stale or twins or said.spec is None),
        }
        if not allowed.get(type(error).__name__, False):
            fail(f"{said.actor} fails with {type(error).__name__}: {error}")
        if isinstance(error, ConflictError) and "may hold its rows now" in str(error):
            self._check_not_by_compaction(said, error)
        if found := _TAKEN_BACK.match(str(error)):
            self._check_rightly_refused(said, found[1], int(found[2]))

    def _check_not_by_compaction(self, said: Said, error: OneLakeError) -> None:
        """No writer fails because a compaction of ours merged files, if it had begun by then and is not published."""
        plan = said.plan
        commits = self._versions.commits
        by_others = any(not add.get("dataChange", True) for c in commits if not c.compaction for add in c.adds)
        # Where days go by, what nobody settled for half of the retention counts as abandoned.
        if (
            by_others
            or self._d.scenario.vacuums
            or any(f.kind in ("restore", "update", "trim") for f in self._d.scenario.foreign)
        ):
            return
        self._counters["refused because of a compaction of ours"] += 1
        identities = self._versions.writers_of(plan)
        colleagues = tuple(f"{identity.directory}/" for identity in identities)
        for commit in commits:
            if commit.compaction is None or commit.version > said.newest:
                continue
            if not any(r["path"].startswith(colleagues) for r in commit.removes):
                continue
            began = self._store.entries[commit.version].began
            for identity in identities:
                skipped = f"{identity.directory}/_skipped-{{}}.json"
                # A reconciliation that was held up may find all that it knew of published, and merged, by others.
                until = min(began, said.began)
                claims = self._claims(identity.app_id)
                waiting = [
                    generation
                    for generation, step in claims.items()
                    if step < until
                    and not self._store.peek(skipped.format(generation))
                    and not self._is_discarded(identity.app_id, generation, until)
                ]
                if waiting and self._versions.txn_at(identity.app_id, said.newest) < max(waiting):
                    fail(f"{said.actor} fails because of version {commit.version}, a compaction: {error}")

    def _is_discarded(self, app_id: str, generation: int, until: int) -> bool:
        """Whether all that a writer staged in a generation was closed by then, though it was never published."""
        specs = {
            path: self._versions.version_0(path)["commitInfo"]["staged"]["spec"]
            for path in self._versions.complete(app_id)
        }
        paths = [
            path
            for path, spec in specs.items()
            if spec["generation"] == generation and self._store.completed[path] < until
        ]
        return bool(paths) and all(self._store.closings.get(path, until) < until for path in paths)

    def _check_rightly_refused(self, said: Said, key: str, generation: int) -> None:
        """Where every file of an append is as it was, a rerun can take it back."""
        self._counters["taking back refused"] += 1
        identity = self._versions.writer(said.plan, key)
        commits = self._versions.commits
        commit = next((c for c in commits if c.generations.get(identity.app_id) == generation), None)
        mine = [a["path"] for a in self._files(commit.version, identity.directory)] if commit else []
        since = commits[commit.version :] if commit else []
        if not mine and any(later.info.get("operation") == "RESTORE" for later in since):
            # Without files, nobody can tell whether what was there before came back.
            return
        if not self._d.scenario.checkpoints and not self._versions.changed & set(mine):
            fail(f"{said.actor} may not take back {mine}, though nobody changed it")

    # -- the last word -----------------------------------------------------------------------------------------------------

    def judge_settled(self, said: Said) -> None:
        """After the last reconciliation of a load: every complete buffer's writer is settled, or refused with a reason."""
        assert isinstance(said.said, Report)
        for outcome in said.said.outcomes:
            app_id = self._versions.writer(said.plan, outcome.writer).app_id
            newest = max(self._claims(app_id), default=0)
            if outcome.status in ("refused", "held_back"):
                continue
            for path in self._versions.complete(app_id):
                spec = self._versions.version_0(path)["commitInfo"]["staged"]["spec"]
                if spec["generation"] != newest or path in self._store.closings or not self._of_this_table(path):
                    continue
                stored = self._versions.txns.get(app_id)
                again = spec["on_rerun"] == "skip" and stored
                nothing = (
                    outcome.status == "nothing_to_do" and not self._versions.commits and path not in self._d.staged
                )
                if stored != newest and not again and outcome.status != "missing" and not nothing:
                    fail(f"{app_id} is {outcome.status}, but {path} is not settled")
                if outcome.status == "missing" and outcome.error is None:
                    fail(f"{app_id} is missing, but {path} is complete")
