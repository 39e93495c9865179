"""The list of a lakehouse's tables: what it says of each, what it costs, and that a table it cannot read hides no other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_onelake.exceptions import StoreUnavailableError
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.view import tables
from airflow_provider_onelake.view.partitions import partitions_of
from airflow_provider_onelake.view.tables import page_of_tables
from airflow_provider_onelake.writes.publish import Committer
from tests.benchmarks.logs import long_log, wide_log
from tests.support.stores import Counted, through
from tests.support.tables import foreign_append, foreign_commit, local_log, make_table, stage, writer_spec

NOON = 1_546_344_000_000
Page = Callable[..., dict[str, Any]]


@pytest.fixture
def calls() -> Counter[str]:
    return Counter()


@pytest.fixture
def page(tmp_path: Path, calls: Counter[str], monkeypatch: pytest.MonkeyPatch) -> Page:
    """Looks at tables of a lakehouse by logs of its own, as another question would, and counts the requests."""
    monkeypatch.setattr(tables, "_sums", {})

    def look(*names: str, **terms: Any) -> dict[str, Any]:
        calls.clear()

        def opened(name: str) -> DeltaLog:
            counted = Counted(local_log(tmp_path / name).store)
            counted.calls = calls
            return through(counted, local_log(tmp_path / name))

        return page_of_tables(local_log(tmp_path).store, names, opened, **terms)

    return look


def told(page: dict[str, Any], *names: str) -> list[list[Any]]:
    return [[row[name] for name in ("table", *names)] for row in page["tables"]]


def test_what_was_changed_last_comes_first_with_its_size_and_whose_it_is(tmp_path: Path, page: Page) -> None:
    foreign_append(make_table(tmp_path / "old"), {"1": [1]}, timestamp=NOON, engineInfo="Spark/4")
    log = make_table(tmp_path / "new")
    Committer(log).publish([stage(log, writer_spec(), {"1": [1, 2], "2": [3]})])
    found = page("old", "new")
    assert (found["found"], found["pages"]) == (2, 1)
    assert told(found, "version", "operation", "by", "rows", "files", "health", "why") == [
        ["new", 1, "WRITE", "w of taxi.load", 3, 2, "well", ""],
        ["old", 1, "WRITE", "Spark/4", 1, 1, "well", ""],
    ]
    assert found["tables"][0]["run"] == "2019-01-01T00:00:00+00:00"
    assert found["tables"][1]["time"].isoformat() == "2019-01-01T12:00:00+00:00"
    assert found["tables"][1]["bytes"] > 0


def test_a_table_that_cannot_be_read_is_told_first_and_hides_no_other(tmp_path: Path, page: Page) -> None:
    make_table(tmp_path / "whole")
    Path(make_table(tmp_path / "damaged").table, "_delta_log", f"{1:020d}.json").write_text("{not json")
    Path(make_table(tmp_path / "gone").table, "_delta_log", f"{0:020d}.json").unlink()
    hidden = foreign_append(make_table(tmp_path / "behind"), {"1": [1]})
    Path(tmp_path, "behind", "_delta_log", f"{hidden - 1:020d}.json").write_text("{")
    of_later = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["later"], "writerFeatures": ["later"]}
    foreign_commit(make_table(tmp_path / "later"), [{"protocol": of_later}])
    found = page("whole", "damaged", "gone", "behind", "later")
    assert {name: health for name, health, _ in told(found, "health", "why")} == {
        "damaged": "broken",
        "gone": "broken",
        "behind": "broken",
        "later": "broken",
        "whole": "well",
    }
    assert {name for name, *_ in told(found)[:2]} == {"damaged", "gone"}
    why = dict(told(found, "why"))
    assert "is not JSON" in why["damaged"]
    assert "is not JSON" in why["behind"]
    assert "has no entry" in why["gone"]
    assert "later" in why["later"]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (StoreUnavailableError("The store does not answer."), "The store does not answer."),
        (ZeroDivisionError("hush"), "An error that was not expected: ZeroDivisionError."),
    ],
)
def test_what_goes_wrong_at_one_table_stands_in_its_row(tmp_path: Path, error: Exception, said: str) -> None:
    def fail(name: str) -> DeltaLog:
        if name == "a":
            raise error
        return make_table(tmp_path / name)

    found = page_of_tables(local_log(tmp_path).store, ["a", "b"], fail)
    (first, second) = told(found, "health", "why")
    assert first[:2] == ["a", "unknown"]
    assert first[2].startswith(said)
    assert "hush" not in first[2]
    assert second == ["b", "well", ""]


def test_small_files_and_a_long_log_are_told_in_a_word(tmp_path: Path, page: Page) -> None:
    log = make_table(tmp_path / "small")
    for number in range(4):
        foreign_append(log, {"1": [number]})
    long = make_table(tmp_path / "long")
    for number in range(tables.MANY_ENTRIES):
        foreign_append(long, {str(number): [1]})
    assert {name: rest for name, *rest in told(page("small", "long"), "rows", "health", "why")} == {
        "small": [4, "fragmented", "A compaction would rewrite 4 files."],
        "long": [None, "slow", "Since its newest checkpoint, its log has 101 entries."],
    }


def test_what_is_known_of_a_table_is_kept_until_it_changes(tmp_path: Path, page: Page, calls: Counter[str]) -> None:
    log = make_table(tmp_path / "t")
    for number in range(20):
        foreign_append(log, {str(number): [number]})
    assert told(page("t"), "rows") == [["t", 20]]
    assert calls["get"] > 20
    assert told(page("t"), "rows") == [["t", 20]]
    # The hint of a checkpoint, a listing and the newest entry.
    assert calls == {"get": 2, "list": 1}
    foreign_append(log, {"1": [1]})
    assert told(page("t"), "rows") == [["t", 21]]
    # Another table at the same place has another newest entry.
    for entry in Path(log.table, "_delta_log").iterdir():
        entry.unlink()
    other = make_table(tmp_path / "t")
    for _ in range(21):
        foreign_append(other, {"1": [1, 2]})
    assert told(page("t"), "rows") == [["t", 42]]


def test_so_much_is_kept_at_most(tmp_path: Path, page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "_MOST_KEPT", 2)
    for name in ("a", "b", "c"):
        make_table(tmp_path / name)
        assert told(page(name), "rows") == [[name, 0]]
        assert len(tables._sums) <= 2


def test_a_page_reads_so_many_files_of_all_its_tables_and_the_next_look_reads_others(
    tmp_path: Path, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        wide_log(tmp_path / name, 200)
    monkeypatch.setattr(tables, "MOST_ACTIONS", 300)
    assert sorted(rows for _, rows in told(page("a", "b"), "files") if rows) == [200]
    assert [files for _, files in told(page("a", "b"), "files")] == [200, 200]


def test_a_table_that_is_too_large_is_summed_up_by_a_look_at_its_partitions(
    tmp_path: Path, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    wide_log(tmp_path / "a", 200)
    monkeypatch.setattr(tables, "MOST_ACTIONS", 100)
    ((_, files, health, why),) = told(page("a"), "files", "health", "why")
    assert (files, health) == (None, "unknown")
    assert why.startswith("It is too large to be summed up here")
    assert partitions_of(local_log(tmp_path / "a"))["files"] == 200
    assert told(page("a"), "files") == [["a", 200]]


def test_pages_have_so_many_tables(tmp_path: Path, page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        foreign_append(make_table(tmp_path / str(number)), {"1": [1]}, timestamp=NOON + number)
    monkeypatch.setattr(tables, "MOST_ON_A_PAGE", 2)
    names = [str(number) for number in range(5)]
    pages = [page(*names, page=number) for number in (0, 1, 2, 3)]
    assert [[name for (name,) in told(each)] for each in pages] == [["4", "3"], ["2", "1"], ["0"], []]
    assert {each["pages"] for each in pages} == {3}


def test_a_hint_that_is_damaged_or_says_nothing_is_none(tmp_path: Path, page: Page) -> None:
    long_log(tmp_path / "t", 60)
    hint = tmp_path / "t" / "_delta_log" / "_last_checkpoint"
    for text, files in (("[]", 20), ("{", 20), ('{"version": 10}', None)):
        tables._sums.clear()
        hint.write_text(text)
        assert told(page("t"), "files") == [["t", files]]
