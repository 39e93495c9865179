"""Keys that must be unique: what they are compared with, and what makes a comparison out of date at the commit.

Protocol: unique keys.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

from airflow_provider_onelake.checks import unique
from airflow_provider_onelake.choices import OnRerun, Policy
from airflow_provider_onelake.commit.publish import Committer, Status
from airflow_provider_onelake.commit.reconcile import reconcile
from airflow_provider_onelake.commit.unique import to_compare
from airflow_provider_onelake.exceptions import (
    ConflictError,
    UncomparedKeysError,
)
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.staging.buffers import Buffer, audited, open_buffer, read_staged
from airflow_provider_onelake.staging.modes import Mode, Overwrite, OverwritePartitions, ReplaceWhere
from airflow_provider_onelake.staging.prepare import Stage, complete
from airflow_provider_onelake.staging.verdict import CheckResult, Verdict
from tests.support.stores import LoserHeld, through
from tests.support.tables import (
    LOAD,
    begun,
    change_metadata,
    cleaned_up,
    finish,
    foreign_append,
    foreign_commit,
    ids,
    make_table,
    newest,
    writer_spec,
)

ONCE = {"once": unique("id")}
IN_MONTH = {"once": unique("ID", "Month")}


@pytest.fixture
def log(tmp_path: Path) -> DeltaLog:
    """Version 1 has 1 and 5 in January, and 100 in February."""
    log = make_table(tmp_path / "t")
    foreign_append(log, {"2019-01": [1, 5], "2019-02": [100]})
    return log


def staged(log: DeltaLog, writer: str = "w", rows: Any = None, checks: Any = None, **terms: Any) -> Buffer:
    """A complete buffer whose checks were not evaluated. Default: of 3 in January."""
    spec = writer_spec(writer, terms.pop("load", LOAD), checks=ONCE if checks is None else checks, **terms)
    task = begun(log, spec)
    finish(log, task, spec, {"2019-01": [3]} if rows is None else rows)
    return complete(log, task.path)


def result_of(buffer: Buffer, version: int, failed: int = 0) -> tuple[CheckResult, ...]:
    return tuple(
        CheckResult(name=name, sql=sql, each_row=True, met=not failed, failed=failed, found="…", compared=version)
        for name, sql in buffer.spec.checks.items()
    )


def compared(log: DeltaLog, *arguments: Any, **terms: Any) -> Buffer:
    """A complete buffer whose keys are in no row of the newest version that stays beside it."""
    log = through(log.store, log)
    buffer = staged(log, *arguments, **terms)
    version = newest(through(log.store, log)).version
    return audited(log.store, buffer, Verdict(buffer.rows or 0, result_of(buffer, version)))


def publish(log: DeltaLog, buffer: Buffer, policy: Policy | None = None) -> Status:
    return Committer(through(log.store, log)).publish([buffer], policy).status


# -- at the commit -------------------------------------------------------------------------------------------------


def test_of_two_that_append_the_same_new_key_at_one_time_one_is_published(log: DeltaLog) -> None:
    """The loser is held until the winner has committed."""
    winner, loser = compared(log, "winner"), compared(log, "loser")
    held = LoserHeld(log.store, lambda: publish(log, winner))
    with pytest.raises(
        UncomparedKeysError,
        match=r"^Writer 'loser' must have unique keys, and version 2 \(winner\) brought rows to .* since they were "
        r"compared with version 1\. Nothing was published: clear load\.write\[loser\]",
    ):
        Committer(through(held, log)).publish([loser])
    assert (held.refused, ids(Path(log.table))) == (1, [1, 3, 5, 100])


@pytest.mark.parametrize("policy", list(Policy))
def test_no_policy_publishes_keys_that_were_not_compared(log: DeltaLog, policy: Policy) -> None:
    buffer = compared(log)
    foreign_append(log, {"2019-01": [2, 4]})
    with pytest.raises(UncomparedKeysError):
        publish(log, buffer, policy)


def appends(month: str | None, *rows: int, **info: Any) -> Callable[[DeltaLog], Any]:
    return lambda log: foreign_append(through(log.store, log), {month: list(rows)}, **info)


def rewrites(*, data_change: bool, month: str = "2019-01", **changed: Any) -> Callable[[DeltaLog], Any]:
    """Another engine puts a file in the place of another one, with other statistics or a deletion vector."""

    def rewrite(log: DeltaLog) -> None:
        log = through(log.store, log)
        (file,) = log.live_files(lambda add: add["partitionValues"]["month"] == month, newest(log).version)
        actions: list[Any] = [
            {"commitInfo": {"operation": "x"}},
            {"remove": {**file, "deletionTimestamp": 1, "dataChange": data_change}},
            {"add": {**file, "path": "moved", "dataChange": data_change, **changed}},
        ]
        foreign_commit(log, actions)

    return rewrite


def removes(month: str) -> Callable[[DeltaLog], Any]:
    def remove(log: DeltaLog) -> None:
        log = through(log.store, log)
        files = log.live_files(lambda add: add["partitionValues"]["month"] == month, newest(log).version)
        gone = [{"remove": {**file, "deletionTimestamp": 1, "dataChange": True}} for file in files]
        foreign_commit(log, [{"commitInfo": {"operation": "DELETE"}}, *gone])

    return remove


def sets_a_property(log: DeltaLog) -> None:
    change_metadata(log, configuration={"a": "b"})


def several(*changes: Callable[[DeltaLog], Any]) -> Callable[[DeltaLog], Any]:
    return lambda log: [change(log) for change in changes]


@pytest.mark.parametrize(
    ("checks", "others"),
    [
        pytest.param(ONCE, appends("2019-01", 3), id="the key"),
        pytest.param(ONCE, appends("2019-02", 2, 4), id="a range with the key, elsewhere"),
        pytest.param(ONCE, appends("2019-02", 3, isBlindAppend=False), id="no blind append"),
        pytest.param(ONCE, rewrites(data_change=True), id="an update, or a vector"),
        pytest.param(ONCE, rewrites(data_change=True, month="2019-02", stats=None), id="no statistics"),
        pytest.param(IN_MONTH, appends("2019-01", 3), id="the key in its partition"),
        pytest.param(IN_MONTH, appends(None, 3), id="the partition of NULL, which engines read as they like"),
        pytest.param({**IN_MONTH, "and": unique("id")}, appends("2019-02", 3), id="the second check"),
        pytest.param(ONCE, several(appends("2019-01", 9), appends("2019-01", 3)), id="the second commit"),
        pytest.param(ONCE, several(appends("2019-01", 3), removes("2019-01")), id="gone again"),
        pytest.param(ONCE, several(sets_a_property, appends("2019-02", 9)), id="a definition, in which names may swap"),
    ],
)
def test_what_may_bring_a_key_makes_the_comparison_out_of_date(
    log: DeltaLog, checks: Any, others: Callable[[DeltaLog], Any]
) -> None:
    buffer = compared(log, checks=checks)
    others(log)
    with pytest.raises(UncomparedKeysError):
        publish(log, buffer)


def test_nobody_knows_what_a_log_brought_that_was_cleaned_up(log: DeltaLog) -> None:
    buffer = compared(log)
    appends("2019-01", 9)(log)
    appends("2019-01", 9)(log)
    cleaned_up(log, *range(3))
    with pytest.raises(ConflictError, match=r"its log since then was cleaned up"):
        publish(log, buffer)


# -- overwrites ----------------------------------------------------------------------------------------------------

MODES = [Overwrite(), OverwritePartitions(), ReplaceWhere("month = '2019-01'")]


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_rows_that_an_overwrite_replaces_do_not_count(log: DeltaLog, mode: Mode) -> None:
    buffer = staged(log, rows={"2019-01": [1, 100]}, mode=mode)
    beside = [file["partitionValues"]["month"] for file in to_compare(log, buffer, newest(log))]
    assert beside == ([] if mode.name == "overwrite" else ["2019-02"])
    buffer = audited(log.store, buffer, Verdict(2, result_of(buffer, 1)))
    foreign_append(log, {"2019-01": [1]}, timestamp=1)
    # What was appended before this writer had finished is replaced too.
    late = attrs.evolve(buffer, finished=buffer.finished.replace(year=2999))
    assert publish(log, late, Policy.LAST_WRITER_WINS) is Status.PUBLISHED
    assert ids(Path(log.table)) == ([1, 100] if mode.name == "overwrite" else [1, 100, 100])


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_rows_that_a_policy_keeps_beside_an_overwrite_were_not_compared(log: DeltaLog, mode: Mode) -> None:
    buffer = compared(log, rows={"2019-01": [3]}, mode=mode)
    early = attrs.evolve(buffer, finished=buffer.finished.replace(year=1999))
    foreign_append(log, {"2019-01": [3]})
    assert publish(log, early) is Status.CONFLICTED
    for policy in (Policy.LAST_WRITER_WINS, Policy.LAST_WRITER_WINS_PER_PARTITION):
        with pytest.raises(ConflictError, match=r"keep rows of others in .* beside its own that it was to replace"):
            publish(log, early, policy)
    assert ids(Path(log.table)) == [1, 3, 5, 100]
    assert publish(log, early, Policy.FIRST_WRITER_WINS) is Status.SET_ASIDE


# -- the load ------------------------------------------------------------------------------------------------------


def test_of_two_writers_of_a_load_that_have_one_key_reconcile_publishes_one(log: DeltaLog) -> None:
    compared(log, "v")
    compared(log, "w")
    report = reconcile(Committer(through(log.store, log)), LOAD, ["v", "w"])
    assert sorted(outcome.status for outcome in report.outcomes) == ["published", "refused"]
    assert ids(Path(log.table)) == [1, 3, 5, 100]


# -- what is compared ----------------------------------------------------------------------------------------------


def months(log: DeltaLog, buffer: Buffer, since: int | None = None) -> list[str | None]:
    log = through(log.store, log)
    return sorted((file["partitionValues"]["month"] for file in to_compare(log, buffer, newest(log), since)), key=str)


def test_another_generation_that_came_is_what_is_taken_back_now(log: DeltaLog) -> None:
    """What it leaves there was left out of the comparison."""
    publish(log, compared(log, rows={"2019-01": [3]}, generation=1))
    third = compared(log, rows={"2019-01": [3]}, generation=3, on_rerun=OnRerun.REPLACE, fingerprint="other")
    second = writer_spec(generation=2, on_rerun=OnRerun.APPEND, fingerprint="another", allow_empty=True)
    spec = attrs.evolve(second, checks={})
    task = Stage(spec.buffer, 2, third.metadata)
    open_buffer(log.store, spec, newest(through(log.store, log)), log.clock)
    finish(through(log.store, log), task, spec, {})
    assert publish(log, read_staged(log.store, spec.buffer)) is Status.PUBLISHED
    with pytest.raises(UncomparedKeysError):
        publish(log, third)
    assert len(months(log, third, third.compared)) == 2
    assert ids(Path(log.table)) == [1, 3, 5, 100]
