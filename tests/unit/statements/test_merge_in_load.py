"""A MERGE among the writers of a load: what reconcile says of it, and that the table equals an order of whole writes."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from airflow_provider_onelake.buffers.buffer import Buffer
from airflow_provider_onelake.buffers.layout import CLOSED
from airflow_provider_onelake.buffers.markers import write_marker
from airflow_provider_onelake.choices import OnMissingWriter, OnRerun, Policy
from airflow_provider_onelake.commit.loop import Transactions
from airflow_provider_onelake.exceptions import ConflictError, MissingWritersError, RerunRefusedError
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.modes import Append, Merge, OverwritePartitions
from airflow_provider_onelake.statements.delete import delete
from airflow_provider_onelake.writes.publish import Committer, PublishStatus
from airflow_provider_onelake.writes.reconcile import reconcile
from airflow_provider_onelake.writes.report import Report
from tests.support import tables
from tests.support.changes import asker
from tests.support.commits import statuses
from tests.support.merges import MergeByHand, merged, source_of
from tests.support.stores import through
from tests.support.tables import prepare

PARTITIONS: dict[str, Any] = {"mode": OverwritePartitions()}
DELETES = Merge(keys="id", when="MATCHED THEN DELETE")  # type: ignore[arg-type]


@pytest.fixture
def log(tmp_path: Path) -> DeltaLog:
    log = tables.make_table(tmp_path / "t")
    tables.foreign_append(log, {"p1": [1, 2], "p2": [3]})
    return log


def settle(log: DeltaLog, *writers: str, policy: Policy = Policy.LAST_WRITER_WINS, **terms: Any) -> Report:
    committer = Committer(through(log.store, log))
    return reconcile(committer, tables.LOAD, list(writers), on_conflict=policy, **terms)


def merge(log: DeltaLog, rows: dict[str | None, list[int]], writer: str = "m", **terms: Any) -> Buffer:
    source = source_of(through(log.store, log), rows, writer, **terms)
    merged(through(log.store, log), MergeByHand(), source)
    return source


def test_one_that_was_merged_is_published_also_where_only_the_log_says_so(log: DeltaLog) -> None:
    source = merge(log, {"p1": [2, 10], "p3": [11]})
    for _ in range(2):
        report = settle(log, "m")
        (outcome,) = report.outcomes
        assert (outcome.status, outcome.version, outcome.rows_published) == ("already_published", 2, 3)
        assert outcome.buffer == source.path
        assert report.touched_partitions(log) == [{"month": "p1"}, {"month": "p3"}]
        report.raise_for_failures()
        log.store.delete(f"{source.path}/{CLOSED}")


def test_one_whose_task_died_before_it_had_merged_is_waiting_and_the_others_are_published(log: DeltaLog) -> None:
    tables.stage(log, tables.writer_spec("a"), {"p1": [10]})
    source = source_of(log, {"p1": [2, 11]}, "m")
    report = settle(log, "a", "m")
    assert statuses(report) == {"a": "published", "m": "waiting"}
    assert tables.table_ids(log) == [1, 2, 3, 10]
    with pytest.raises(MissingWritersError, match=rf"'m'.*{source.path}.*clear it with its downstream tasks"):
        report.raise_for_failures()
    assert merged(through(log.store, log), MergeByHand(), source).rows_inserted == 1
    assert statuses(settle(log, "a", "m")) == {"a": "already_published", "m": "already_published"}


def test_all_or_none_waits_for_it(log: DeltaLog) -> None:
    tables.stage(log, tables.writer_spec("a"), {"p1": [10]})
    source_of(log, {"p1": [2]}, "m")
    report = settle(log, "a", "m", on_missing_writer=OnMissingWriter.PUBLISH_NOTHING)
    assert statuses(report) == {"a": "held_back", "m": "waiting"}


def test_one_that_had_nothing_to_do_is_not_missing(log: DeltaLog) -> None:
    merge(log, {"p1": [77]}, mode=DELETES)
    merge(log, {}, "empty")
    report = settle(log, "m", "empty", "gone")
    assert statuses(report) == {"m": "nothing_to_do", "empty": "nothing_to_do", "gone": "missing"}
    assert (report.missing, tables.newest(log).version) == (("gone",), 1)
    assert settle(log, "m").version is None
    # A clear begins anew, and counts as missing until it is merged.
    prepare(log, tables.writer_spec("m", mode=DELETES, generation=2))
    assert statuses(settle(log, "m")) == {"m": "missing"}


def test_a_rerun_is_told_from_what_was_merged_before(log: DeltaLog) -> None:
    told = []
    for generation, terms in enumerate(({}, {}, {"mode": DELETES}), 1):
        merge(log, {"p1": [77] if terms else [10, 11][:generation]}, generation=generation, **terms)
        told += [(outcome.status, outcome.version) for outcome in settle(log, "m").outcomes]
    assert told == [("already_published", 2), ("already_published", 3), ("nothing_to_do", None)]


def test_one_that_commits_that_it_had_nothing_to_do_is_not_called_published(log: DeltaLog) -> None:
    source_of(log, {"p1": [10]}, "m")  # Its task may still be at work.
    merge(log, {"p1": [77]}, mode=DELETES, generation=2)
    report = settle(log, "m")
    (outcome,) = report.outcomes
    assert (outcome.status, outcome.version, report.version) == ("nothing_to_do", None, None)
    assert (tables.newest(log).version, report.touched_partitions(log)) == (2, [])


def test_one_that_a_restore_took_back_is_not_called_published(log: DeltaLog) -> None:
    merge(log, {"p1": [2, 10]})
    DeltaTable(log.table).restore(1)
    assert statuses(settle(log, "m")) == {"m": "restored_away"}


def test_what_was_merged_is_never_taken_back_as_if_it_had_been_appended(log: DeltaLog) -> None:
    merge(log, {"p1": [2, 10]}, "w")
    again = tables.writer_spec("w", mode=Append(), generation=2, on_rerun=OnRerun.REPLACE, fingerprint="other")
    with pytest.raises(RerunRefusedError, match="version 2 has merged it into rows of others"):
        prepare(log, again)


def test_an_overwrite_that_begins_behind_it_replaces_what_it_merged(log: DeltaLog) -> None:
    merge(log, {"p1": [10]})
    tables.stage(through(log.store, log), tables.writer_spec("b", **PARTITIONS), {"p1": [20]})
    assert statuses(settle(log, "m", "b")) == {"m": "superseded", "b": "published"}
    assert tables.table_ids(log) == [3, 20]


@pytest.mark.parametrize(
    ("policy", "told"),
    [(Policy.LAST_WRITER_WINS, "refused"), (Policy.FIRST_WRITER_WINS, "set_aside"), (Policy.FAIL, "refused")],
)
def test_an_overwrite_staged_before_it_is_not_put_on_top(log: DeltaLog, policy: Policy, told: str) -> None:
    early = tables.stage(log, tables.writer_spec("b", **PARTITIONS), {"p1": [20]})
    merge(log, {"p1": [10]})
    tables.finished_at(log, early, early.finished - timedelta(hours=1))
    report = settle(log, "m", "b", policy=policy)
    assert statuses(report) == {"m": "already_published", "b": told}
    assert tables.table_ids(log) == [1, 2, 3, 10]
    if told == "refused":
        with pytest.raises(ConflictError, match=r"version 2 \(MERGE of m of taxi"):
            report.raise_for_failures()


def test_an_append_that_was_staged_before_it_landed_comes_after_it(log: DeltaLog) -> None:
    tables.stage(log, tables.writer_spec("a"), {"p1": [10]})
    merge(log, {"p1": [2, 11]})
    assert statuses(settle(log, "a", "m", policy=Policy.FAIL)) == {"a": "published", "m": "already_published"}
    assert tables.table_ids(log) == [1, 2, 3, 10, 11]


def test_it_merges_into_what_rivals_have_published_meanwhile(log: DeltaLog) -> None:
    overwrite = tables.stage(log, tables.writer_spec("b", **PARTITIONS), {"p1": [2, 10]})
    other = source_of(log, {"p2": [10, 11]}, "other")
    source = source_of(log, {"p1": [10, 12]}, "m")

    def rivals(_: object) -> None:
        if tables.newest(log).version == 1:
            assert Committer(through(log.store, log)).publish([overwrite]).status is PublishStatus.PUBLISHED
            merged(through(log.store, log), MergeByHand(), other)

    done = merged(through(log.store, log), MergeByHand(after=rivals), source)
    # The order of the log: the overwrite, the other merge, this one. No key is there twice.
    assert (done.version, done.rows_inserted, done.rows_updated) == (4, 1, 1)
    assert tables.table_ids(log) == [2, 3, 10, 11, 12]
    report = settle(log, "b", "m", "other")
    # As of any statement, reconcile says whose rows it has changed.
    assert statuses(report) == {"b": "deleted", "m": "already_published", "other": "deleted"}
    assert "some of its rows were changed or deleted by MERGE of m of taxi" in report.outcomes[0].aftermath[1]


def test_a_marker_that_was_lost_makes_one_with_nothing_to_do_wait(log: DeltaLog) -> None:
    source = merge(log, {"p1": [77]}, mode=DELETES)
    log.store.delete(f"{source.path}/{CLOSED}")
    assert statuses(settle(log, "m")) == {"m": "waiting"}
    write_marker(log.store, source.path, {"reason": "a person set it aside"})
    assert statuses(settle(log, "m")) == {"m": "missing"}


def test_a_delete_between_two_of_a_load_is_seen_by_the_second(log: DeltaLog) -> None:
    merge(log, {"p1": [1, 10]}, "first")
    delete(Transactions(log), "month = 'p1'", asker("between"))
    merge(log, {"p1": [10]}, "second")
    assert tables.table_ids(log) == [3, 10]
    assert statuses(settle(log, "first", "second")) == {"first": "deleted", "second": "already_published"}
