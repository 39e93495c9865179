"""What the page asks for on a table of a thousand versions, and on one of a thousand files: so many requests, and no more.

Both are many times what any route may read, so a route that reads each version or each file is seen.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_onelake.storage import stores
from airflow_provider_onelake.view import tables
from airflow_provider_onelake.view.commits import MOST_COMMITS
from tests.benchmarks.logs import SINCE_CHECKPOINT, long_log, wide_log
from tests.support.stores import Counted
from tests.unit.view.test_routes import OF_TABLES, address_of, let_read, lets_see

VERSIONS = FILES = 1_000
# A snapshot: the hint, the checkpoint (its footer and the columns that are wanted), and each entry after it.
SNAPSHOT = 10 + SINCE_CHECKPOINT
# How many objects, or parts of objects, each route reads.
MOST_READ = {
    # The first page asks whether the table can be read at all.
    "/lakehouses/{connection}/commits": MOST_COMMITS + 2 + SNAPSHOT,
    "/lakehouses/{connection}/commits/{version}": 2,
    # Of versions that lie further back, nothing is asked.
    "/lakehouses/{connection}/now": MOST_COMMITS + SNAPSHOT,
    "/lakehouses/{connection}/partitions": 2 * SNAPSHOT,
    "/lakehouses/{connection}/staged": SNAPSHOT,
    # By a click, as of every store: a read of one object. What Fabric is asked is counted in test_access.py.
    "/lakehouses/{connection}/access": 1,
    # By a click: what a vacuum would delete is in the log since the retention's begin, which here is all of it.
    "/lakehouses/{connection}/health": VERSIONS + 3 * SNAPSHOT,
}
MOST_LISTED = 8
# Of all versions, by halves.
A_SEARCH = 11


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lakehouse with both tables."""
    found = tmp_path_factory.mktemp("lake")
    (found / "Tables").mkdir()
    long_log(found / "Tables" / "long", VERSIONS)
    wide_log(found / "Tables" / "wide", FILES)
    return found


@pytest.fixture
def calls(lake: Path, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """The requests to the store, by kind."""
    extra = {"lakehouse": str(lake)}
    monkeypatch.setenv("AIRFLOW_CONN_ONELAKE_DEFAULT", json.dumps({"conn_type": "onelake", "extra": extra}))
    counted: Counter[str] = Counter()
    opened = stores.open_store

    def count(*given: Any) -> Counted:
        store = Counted(opened(*given))
        store.calls = counted
        return store

    monkeypatch.setattr(stores, "open_store", count)
    return counted


def read(calls: Counter[str]) -> int:
    return sum(calls[kind] for kind in ("get", "get_range", "head"))


def test_every_route_has_its_bound() -> None:
    assert set(OF_TABLES) == set(MOST_READ)


@pytest.mark.parametrize("path", OF_TABLES)
def test_a_route_reads_so_much_of_a_long_log(calls: Counter[str], path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {"table": "Tables/long", "limit": 10**6, "version": [1, VERSIONS - MOST_COMMITS + 1, VERSIONS - 1]}
    with lets_see(monkeypatch) as client:
        answer = client.get(address_of(path), params=asked)
    assert answer.status_code == 200, answer.text
    assert read(calls) <= MOST_READ[path]
    assert calls["list"] <= MOST_LISTED
    assert calls["create"] == 0


@pytest.mark.parametrize("path", [path for path in OF_TABLES if path.endswith(("partitions", "staged"))])
def test_a_route_reads_so_much_of_many_files(calls: Counter[str], path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with lets_see(monkeypatch) as client:
        answer = client.get(address_of(path), params={"table": "Tables/wide"})
    assert answer.status_code == 200, answer.text
    assert answer.json().get("files", FILES) == FILES
    assert read(calls) <= MOST_READ[path]
    assert calls["list"] <= MOST_LISTED


def test_whose_a_table_is_costs_a_snapshot_for_those_who_may_not_read_every_dag(
    calls: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (path,) = [path for path in OF_TABLES if path.endswith("/commits")]
    with lets_see(monkeypatch) as client:
        let_read(monkeypatch, lambda dag: dag == "taxi")
        answer = client.get(address_of(path), params={"table": "Tables/long", "limit": 10**6})
    assert answer.status_code == 200
    assert read(calls) <= MOST_READ[path] + SNAPSHOT


@pytest.mark.parametrize(
    ("asked", "more"),
    [
        ({"writer": "nobody"}, 0),
        ({"conflicts": True, "dag": "nobody"}, 0),
        ({"since": "17", "until": "900"}, 0),
        ({"before": 500}, 0),
        ({"until": "2019-06-01"}, A_SEARCH),
        ({"since": "2010-01-01", "until": "2019-06-01 12:00"}, 2 * A_SEARCH),
    ],
    ids=str,
)
def test_a_filter_reads_no_more_than_a_page_and_its_searches(
    calls: Counter[str], asked: dict[str, Any], more: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with lets_see(monkeypatch) as client:
        answer = client.get(
            "/lakehouses/onelake_default/commits", params={"table": "Tables/long", "limit": MOST_COMMITS, **asked}
        )
    assert answer.status_code == 200
    assert read(calls) <= MOST_READ["/lakehouses/{connection}/commits"] + more
    assert calls["list"] <= MOST_LISTED


def test_the_list_of_tables_reads_little_of_each_and_nothing_again(
    calls: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "_sums", {})
    with lets_see(monkeypatch) as client:
        found = client.get("/lakehouses/onelake_default/tables").json()["tables"]
        assert {row["table"]: row["files"] for row in found} == {"Tables/long": 20, "Tables/wide": FILES}
        # The entry of the newest version and the hint are read to know what it takes, and then all is read for the files.
        assert read(calls) <= 2 * (3 + 2 * SNAPSHOT)
        calls.clear()
        assert client.get("/lakehouses/onelake_default/tables").json()["tables"] == found
        assert read(calls) == 2 * 2
        # And a listing for each directory on the way.
        assert calls["list"] == 2
