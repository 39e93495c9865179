"""Writers of one load that are published together: a late one leaves its colleagues' rows alone, or is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from airflow_provider_onelake.buffers.buffer import Buffer
from airflow_provider_onelake.buffers.markers import set_aside
from airflow_provider_onelake.choices import Policy, PublishMode
from airflow_provider_onelake.exceptions import ConflictError
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.storage.stores import Store
from airflow_provider_onelake.writes.publish import Committer
from airflow_provider_onelake.writes.reconcile import reconcile
from airflow_provider_onelake.writes.report import Report
from tests.support.commits import committer, statuses
from tests.support.shadows import compact
from tests.support.stores import LoserHeld, through
from tests.support.tables import LOAD, OVERWRITE, cleaned_up, foreign_append, stage, writer_spec

TOGETHER = {**OVERWRITE, "publish": PublishMode.TOGETHER}


def staged(log: DeltaLog, key: str, rows: dict[str | None, list[int]], **terms: Any) -> Buffer:
    return stage(through(log.store, log), writer_spec(key, **{**TOGETHER, **terms}), rows)


def together(log: DeltaLog, *writers: str, store: Store | None = None, **terms: Any) -> Report:
    return reconcile(committer(log, store), LOAD, writers, publish=PublishMode.TOGETHER, **terms)


def by_month(log: DeltaLog) -> dict[str, list[int]]:
    read = DeltaTable(log.table).to_pyarrow_table().to_pydict()
    found: dict[str, list[int]] = {}
    for month, number in sorted(zip(read["month"], read["id"], strict=True)):
        found.setdefault(month, []).append(number)
    return found


def appended(log: DeltaLog) -> None:
    foreign_append(through(log.store, log), {"01": [13]})


def compacted(log: DeltaLog) -> None:
    appended(log)
    DeltaTable(log.table).optimize.compact()


def compacted_by_us(log: DeltaLog) -> None:
    appended(log)
    compact(through(log.store, log))


def updated(log: DeltaLog) -> None:
    DeltaTable(log.table).update({"id": "id + 100"}, predicate="month = '01'")


def overwritten_by_a_data_column(log: DeltaLog) -> None:
    """Such an overwrite keeps the rows outside of its predicate: it writes them into new files."""
    rows = pa.table({"id": [12], "month": ["01"]})
    write_deltalake(log.table, rows, mode="overwrite", predicate="id = 12")


def deleted(log: DeltaLog) -> None:
    compacted(log)
    DeltaTable(log.table).delete("month = '01'")


def deleted_and_brought_back(log: DeltaLog) -> None:
    deleted(log)
    DeltaTable(log.table).restore(4)


@pytest.mark.parametrize(
    ("happens", "refused"),
    [
        (lambda log: None, False),
        (appended, True),
        (compacted, True),
        (compacted_by_us, True),
        (updated, True),
        (overwritten_by_a_data_column, True),
        (deleted, False),
        (deleted_and_brought_back, True),
    ],
)
def test_a_late_writer_keeps_files_of_others(log: DeltaLog, happens: Callable[[DeltaLog], None], refused: bool) -> None:
    """Nobody knows whether the file has rows of the colleague. In other partitions no file has any."""
    foreign_append(log, {"02": [3]})
    staged(log, "b", {"01": [11, 12]})
    together(log, "a", "b", "c")
    happens(log)
    there = by_month(log).get("01", [])
    staged(log, "c", {"02": [20]})
    assert statuses(together(log, "a", "b", "c"))["c"] == "published"
    staged(log, "a", {"01": [10]})
    report = together(log, "a", "b", "c")
    assert statuses(report)["a"] == ("refused" if refused else "published")
    assert by_month(log) == {"01": there if refused else [10, *there], "02": [20]}
    if refused:
        said = r"Writer 'b' of load .* in month=01 may hold its rows now: .*: clear all writers of the load"
        with pytest.raises(ConflictError, match=said):
            report.raise_for_failures()


def test_rows_of_an_older_generation_of_a_colleague_stay_as_well(log: DeltaLog) -> None:
    """Its rerun has left them where it had no rows itself, or has left itself out."""
    staged(log, "b", {"01": [11], "02": [12]})
    together(log, "a", "b")
    staged(log, "b", {"01": [13]}, generation=2)
    together(log, "a", "b")
    assert by_month(log) == {"01": [13], "02": [12]}
    staged(log, "b", {"01": [14], "02": [14]}, generation=3)
    foreign_append(log, {"02": [15]})
    assert statuses(together(log, "b", on_conflict=Policy.FIRST_WRITER_WINS)) == {"b": "set_aside"}
    staged(log, "a", {"02": [10]})
    assert statuses(together(log, "a", "b")) == {"a": "refused", "b": "set_aside"}


def test_a_colleague_wrote_where_any_of_its_generations_did(log: DeltaLog) -> None:
    staged(log, "b", {"02": [12]})
    together(log, "a", "b")
    staged(log, "b", {"01": [13]}, generation=2)
    together(log, "a", "b")
    compacted(log)
    staged(log, "a", {"01": [10]})
    assert statuses(together(log, "a", "b"))["a"] == "refused"


@pytest.mark.parametrize(("month", "status"), [("02", "refused"), ("03", "published")])
def test_a_colleague_of_whom_the_log_says_nothing_wrote_anywhere(log: DeltaLog, month: str, status: str) -> None:
    staged(log, "b", {"01": [11]})
    together(log, "a", "b")
    foreign_append(log, {"02": [13]})
    later = cleaned_up(log, 0, 1)
    staged(later, "a", {month: [10]})
    assert statuses(together(later, "a", "b"))["a"] == status


def test_rows_that_are_moved_while_a_late_writer_publishes_are_looked_for(log: DeltaLog) -> None:
    """The compaction comes between its first look and its put."""
    staged(log, "b", {"01": [11]})
    together(log, "a", "b")
    staged(log, "a", {"01": [10]})
    report = together(log, "a", "b", store=LoserHeld(log.store, lambda: compacted(log)))
    assert statuses(report)["a"] == "refused"
    assert by_month(log) == {"01": [11, 13]}


def test_rows_of_a_rerun_set_aside_at_last_are_looked_for(log: DeltaLog, monkeypatch: pytest.MonkeyPatch) -> None:
    staged(log, "b", {"01": [11]})
    together(log, "b")
    updated(log)
    rerun = staged(log, "b", {"01": [12]}, generation=2)
    staged(log, "a", {"01": [10]})

    def held(self: Committer, *arguments: Any, **named: Any) -> Any:
        monkeypatch.undo()
        set_aside(log.store, rerun.path, "a person did")
        return self.publish(*arguments, **named)

    monkeypatch.setattr(Committer, "publish", held)
    with pytest.raises(ConflictError, match="may hold its rows now"):
        together(log, "a", "b").raise_for_failures()
    assert by_month(log) == {"01": [111]}


def test_an_error_refuses_only_writers_that_have_no_end_yet(log: DeltaLog, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b, c = (staged(log, key, {month: [10]}) for key, month in (("a", "01"), ("b", "02"), ("c", "03")))

    def held(*arguments: Any, **named: Any) -> None:
        monkeypatch.undo()
        together(log, "a")
        set_aside(log.store, b.path, "a person did")
        raise ConflictError("cannot be settled")

    monkeypatch.setattr(Committer, "publish", held)
    report = together(log, "a", "b", "c")
    assert statuses(report) == {"a": "already_published", "b": "set_aside", "c": "refused"}
    assert [outcome.buffer for outcome in report.outcomes] == [a.path, b.path, c.path]
    with pytest.raises(ConflictError, match="cannot be settled"):
        report.raise_for_failures()
    assert by_month(log) == {"01": [10]}
