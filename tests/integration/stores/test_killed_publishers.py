"""A publisher that is killed at any moment, beside another: every version is one write of theirs, done whole, or it changes nothing.

``KILLS=1000`` kills more often than the nightly run does.
"""

from __future__ import annotations

import json
import os
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import attrs
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from airflow_provider_onelake.log.cross_check import told_apart_by_deltalake
from tests.support.killed_publishers import Staged, Work, ran
from tests.support.log_order import Commit, LogOrder, Outcome, Row, Write
from tests.support.sql_by_hand import in_order, table_rows
from tests.support.tables import local_log, make_table

KILLS = int(os.environ.get("KILLS", "200"))
# More of them would only make a log that every publisher reads.
KILLS_OF_A_TABLE = 100
WHEN = ("before the put", "between put and marker", "after the marker")


def works_done(told: list[Any]) -> dict[tuple[str, int], Staged]:
    """What was staged, by the writer's ``txn`` id and its generation. A retry goes on with what a killed try has staged."""
    staged: dict[tuple[str, int], Staged] = {}
    for said in told:
        work = Work(**{**said["work"], "ids": tuple(said["work"]["ids"])})
        one = Staged(work, said["buffer"], said["read"], datetime.fromisoformat(said["finished"]))
        assert staged.setdefault((work.app_id, work.generation), one) == one
    return staged


def write_of(work: Work) -> Write:
    """What a work does to the rows of any table."""
    puts = frozenset((work.month, row) for row in work.ids)
    if work.kind == "merge":
        # Whatever month a row of these ids is in, it comes into that of the source.
        return Write(changes=lambda row: None if row[1] in work.ids else row, puts=puts)
    return Write(wipes=frozenset() if work.kind == "append" else frozenset((work.month,)), puts=puts)


def commit_of(staged: Staged) -> Commit:
    """What the judge is to know of a publisher's commit."""
    work = staged.work
    replaces = frozenset((work.month,)) if work.kind in ("own", "shared") else frozenset()
    return Commit(
        f"{work.writer} in generation {work.generation}",
        write_of(work),
        finished=(staged.finished, work.app_id),
        replaces=replaces,
        policy="last_writer_wins" if replaces else None,
        read=staged.read,
        writers=frozenset((work.app_id,)),
    )


@attrs.define
class Judge:
    """Follows a table from version to version, by nothing but its log's JSON and its files."""

    path: Path
    staged: dict[tuple[str, int], Staged]
    order: LogOrder = attrs.field(factory=LogOrder)
    outcomes: Counter[str] = attrs.field(factory=Counter)
    versions: dict[tuple[str, int], int] = attrs.field(factory=dict)
    live: dict[str, list[Row]] = attrs.field(factory=dict)
    ever: set[str] = attrs.field(factory=set)
    txns: dict[str, int] = attrs.field(factory=dict)

    def judge(self) -> None:
        """Judge every version."""
        for version, actions in enumerate(self.entries()):
            self.move_files(version, actions)
            done = [
                one for app_id, number in self.new_txns(version, actions) if (one := (app_id, number)) in self.staged
            ]
            assert len(done) == min(version, 1), f"version {version} is of {done}"
            rows = [row for found in self.live.values() for row in found]
            assert len(set(rows)) == len(rows), f"version {version} has rows twice"
            whose = commit_of(self.staged[done[0]]) if done else Commit("the maker of the table")
            should, _ = self.order.take_in(whose, frozenset(rows))
            self.outcomes[should] += 1
            self.versions.update(dict.fromkeys(done, version))
            if version % 10 == 0:
                # At each, it would take longer than all the rest.
                files = DeltaTable(str(self.path), version=version).file_uris()
                assert {*files} == {str(self.path / unquote(path)) for path in self.live}
        assert not self.order.complaints, "\n".join(self.order.complaints)
        assert self.versions.keys() == self.staged.keys(), "what was staged and was tried to the end is published"

    def entries(self) -> Iterator[list[dict[str, Any]]]:
        """Yield the actions of each version; none is torn, and none is missing."""
        names = sorted(path.name for path in (self.path / "_delta_log").glob("*.json"))
        assert names == [f"{version:020d}.json" for version in range(len(names))]
        for name in names:
            text = (self.path / "_delta_log" / name).read_text()
            yield [json.loads(line) for line in text.splitlines()]

    def move_files(self, version: int, actions: list[dict[str, Any]]) -> None:
        """Take out what is removed, which was there, and take in what is added, which never was."""
        for remove in (action["remove"] for action in actions if "remove" in action):
            assert self.live.pop(remove["path"], None) is not None, f"version {version} removes what is not there"
        for add in (action["add"] for action in actions if "add" in action):
            assert add["path"] not in self.ever, f"version {version} adds {add['path']} again"
            self.ever.add(add["path"])
            file = pq.ParquetFile(self.path / unquote(add["path"])).read()
            month = add["partitionValues"]["month"]
            self.live[add["path"]] = [(month, row) for row in file.column("id").to_pylist()]

    def new_txns(self, version: int, actions: list[dict[str, Any]]) -> Iterator[tuple[str, int]]:
        """Yield what a version says of writers; each has risen."""
        for txn in (action["txn"] for action in actions if "txn" in action):
            assert txn["version"] > self.txns.get(txn["appId"], 0), f"version {version} has an old {txn}"
            self.txns[txn["appId"]] = txn["version"]
            yield txn["appId"], txn["version"]

    def check_markers(self) -> Counter[str]:
        """Return how many buffers have a marker. Each says what the log says."""
        found: Counter[str] = Counter()
        for which, staged in self.staged.items():
            marker = self.path / staged.buffer / "_closed.json"
            found["marked" if marker.exists() else "not marked"] += 1
            if marker.exists():
                assert json.loads(marker.read_text())["version"] == self.versions[which]
        return found


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_a_publisher_that_is_killed_loses_doubles_and_tears_nothing(tmp_path: Path) -> None:
    when: dict[str, Counter[str]] = defaultdict(Counter)
    outcomes: Counter[str] = Counter()
    landed: Counter[str] = Counter()
    for number, first in enumerate(range(0, KILLS, KILLS_OF_A_TABLE)):
        path = tmp_path / f"table-{number}"
        make_table(path)
        told = ran(path, min(KILLS_OF_A_TABLE, KILLS - first), seed=number)
        assert not told["failures"], told["failures"]
        judge = Judge(path, works_done(told["staged"]))
        judge.judge()
        ours = [(row, month) for month, row in judge.order.states[-1]]
        assert table_rows(path) == in_order(ours)
        log = local_log(path)
        assert told_apart_by_deltalake(log, log.snapshot().version, str(path), {}) is None
        for kill in told["kills"]:
            when[kill["kind"]][kill["when"]] += 1
        landed = sum(when.values(), Counter())
        outcomes += judge.outcomes
        print(
            f"{path.name}: {len(judge.versions)} publishes, {judge.check_markers()}, seconds each: {told['seconds']}; {dict(landed)}"
        )
    print(*(f"{kind}: {dict(found)}" for kind, found in when.items()), dict(outcomes), sep="\n")
    assert landed.total() >= KILLS
    # The kills have come at all moments, and the judge has seen what it is there for.
    assert all(landed[moment] for moment in WHEN), landed
    assert outcomes[Outcome.LEFT_OUT] or KILLS < KILLS_OF_A_TABLE
