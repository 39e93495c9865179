"""Seeded histories of writers whose keys must be unique, beside others: no version that one makes has its keys twice.

What Spark would find is found by reading the very files that it is shown. The judge reads each version by deltalake.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import unquote

import attrs
import pyarrow.parquet as pq
import pytest

from airflow_provider_onelake.checks import unique
from airflow_provider_onelake.choices import OnRerun, Policy
from airflow_provider_onelake.commit.publish import Committer, Status
from airflow_provider_onelake.commit.unique import to_compare
from airflow_provider_onelake.exceptions import ConflictError, RerunRefusedError, UncomparedKeysError
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.staging.buffers import Buffer, audited, open_buffer
from airflow_provider_onelake.staging.modes import Append, OverwritePartitions
from airflow_provider_onelake.staging.prepare import Stage
from airflow_provider_onelake.staging.verdict import CheckResult, Verdict, with_comparisons, write_comparison
from tests.support.stores import through
from tests.support.tables import (
    append_files,
    finish,
    foreign_append,
    foreign_commit,
    ids,
    make_table,
    newest,
    writer_spec,
)

MONTHS = ("2019-01", "2019-02", "2019-03")
STEPS = 40


class History:
    """One table, and everybody who writes it.

    :param seed: decides everything.
    """

    def __init__(self, path: Path, seed: int) -> None:
        self.log, self.random = make_table(path), Random(seed)
        self.open: list[Buffer] = []
        self.generations: Counter[str] = Counter()
        self.counted: Counter[str] = Counter()

    def run(self) -> Counter[str]:
        steps: list[Callable[[], None]] = [
            *[self.stage] * 4,
            *[self.publish] * 8,
            *[self.append] * 2,
            self.compact,
            self.update,
            self.delete,
            self.restore,
        ]
        for _ in range(STEPS):
            self.random.choice(steps)()
        return self.counted

    # -- our writers ---------------------------------------------------------------------------------------------------

    def rows(self) -> dict[str | None, list[int]]:
        # A few ids beside each other, so that statistics rule some files out.
        first = self.random.randrange(40)
        found: dict[str | None, list[int]] = {}
        for row in self.random.sample(range(first, first + 6), self.random.randrange(1, 4)):
            found.setdefault(self.random.choice(MONTHS), []).append(row)
        return found

    def stage(self) -> None:
        writer = self.random.choice("abc")
        self.generations[writer] += 1
        mode = self.random.choice((Append(), Append(), OverwritePartitions()))
        spec = writer_spec(
            writer,
            checks={"once": unique("id")} if self.random.random() < 0.9 else {},
            generation=self.generations[writer],
            fingerprint=str(self.generations[writer]),
            mode=mode,
            on_rerun=OnRerun.REPLACE if mode.replaces else self.random.choice((OnRerun.REPLACE, OnRerun.APPEND)),
        )
        log = through(self.log.store, self.log)
        opened = open_buffer(log.store, spec, newest(log), log.clock)
        buffer = finish(log, Stage(opened.path, opened.read_version, opened.metadata), spec, self.rows())
        if spec.checks:
            try:
                buffer = audited(log.store, buffer, Verdict(buffer.rows or 0, self.compared(log, buffer)))
            except RerunRefusedError:
                return
        self.open.append(attrs.evolve(buffer, finished=buffer.finished.replace(microsecond=self.random.randrange(9))))

    def compared(self, log: DeltaLog, buffer: Buffer, since: int | None = None) -> tuple[CheckResult, ...]:
        """What Spark would say: it is shown the files that are to be compared, and no others."""
        snapshot = newest(log)
        mine = Counter(row for file in buffer.adds for row in self.ids_in(f"{buffer.path}/{file['path']}"))
        beside = {row for file in to_compare(log, buffer, snapshot, since) for row in self.ids_in(file["path"])}
        failed = sum(count for row, count in mine.items() if count > 1 or row in beside)
        sql = buffer.spec.checks["once"]
        return (
            CheckResult(name="once", sql=sql, each_row=True, met=not failed, failed=failed, compared=snapshot.version),
        )

    def ids_in(self, path: str) -> list[int]:
        found: list[int] = pq.ParquetFile(Path(self.log.table, unquote(path))).read().column("id").to_pylist()
        return found

    def publish(self) -> None:
        if not self.open:
            return
        buffer = self.open.pop(self.random.randrange(len(self.open)))
        log = through(self.log.store, self.log)
        policy = self.random.choice((None, Policy.LAST_WRITER_WINS, Policy.LAST_WRITER_WINS_PER_PARTITION))
        try:
            if buffer.refused:
                self.counted["refused"] += 1
                return
            done = Committer(log).publish([buffer], policy)
        except UncomparedKeysError:
            self.counted["compared again"] += 1
            self.compare_again(log, buffer)
            return
        except ConflictError as error:
            self.counted["kept" if "keep rows of others" in str(error) else "conflict"] += 1
            return
        except Exception as error:
            # A zombie, or a rerun whose rows are not there as they were.
            self.counted[type(error).__name__] += 1
            return
        self.counted[done.status.value] += 1
        if done.status is Status.PUBLISHED and buffer.spec.checks:
            assert done.version is not None
            commit = log.commit(done.version)
            assert commit is not None
            there = Counter(ids(Path(log.table), done.version))
            mine = [row for add in commit.adds for row in self.ids_in(add["path"])]
            assert [row for row in mine if there[row] != 1] == [], f"version {done.version} by {buffer.path}"

    def compare_again(self, log: DeltaLog, buffer: Buffer) -> None:
        assert buffer.verdict is not None
        try:
            results = self.compared(log, buffer, buffer.compared)
        except RerunRefusedError:
            return
        version = results[0].compared
        assert version is not None
        write_comparison(log.store, buffer.path, version, results)
        self.open.append(attrs.evolve(buffer, verdict=with_comparisons(log.store, buffer.path, buffer.verdict)))

    # -- other engines -------------------------------------------------------------------------------------------------

    def newest_log(self) -> DeltaLog:
        return through(self.log.store, self.log)

    def live(self, log: DeltaLog) -> list[Any]:
        return list(log.live_files(lambda add: True, newest(log).version))

    def append(self) -> None:
        foreign_append(self.newest_log(), self.rows())

    def _rewrite(self, operation: str, removed: list[Any], added: list[Any], *, data_change: bool) -> None:
        actions: list[Any] = [{"commitInfo": {"operation": operation}}]
        actions += [{"remove": {**file, "deletionTimestamp": 1, "dataChange": data_change}} for file in removed]
        actions += [{"add": {**file, "dataChange": data_change}} for file in added]
        foreign_commit(self.newest_log(), actions)

    def _copy(self, file: Any) -> Any:
        """A file with the same rows, as a compaction of one file leaves it."""
        name = f"month={file['partitionValues']['month']}/copy-{self.random.getrandbits(64):x}.parquet"
        data = Path(self.log.table, unquote(file["path"])).read_bytes()
        self.log.store.put(name, data)
        return {**file, "path": name}

    def compact(self) -> None:
        if files := self.live(self.newest_log()):
            file = self.random.choice(files)
            self._rewrite("OPTIMIZE", [file], [self._copy(file)], data_change=False)

    def update(self) -> None:
        if files := self.live(self.newest_log()):
            file = self.random.choice(files)
            rows = {file["partitionValues"]["month"]: [self.random.randrange(46)]}
            added = [action["add"] for action in append_files(self.log.store, "", rows)[1:]]
            self._rewrite("UPDATE", [file], added, data_change=True)

    def delete(self) -> None:
        if files := self.live(self.newest_log()):
            self._rewrite("DELETE", [self.random.choice(files)], [], data_change=True)

    def restore(self) -> None:
        log = self.newest_log()
        now = newest(log).version
        before = max(now - self.random.randrange(1, 4), 0)
        then = {file["path"]: file for file in log.live_files(lambda add: True, before)}
        live = {file["path"]: file for file in self.live(log)}
        removed = [file for path, file in live.items() if path not in then]
        added = [file for path, file in then.items() if path not in live]
        if removed or added:
            self._rewrite("RESTORE", removed, added, data_change=True)


@pytest.mark.parametrize("seeds", [range(at, at + 10) for at in range(0, 20, 10)], ids=str)
def test_no_version_that_a_writer_with_unique_keys_makes_has_its_keys_twice(tmp_path: Path, seeds: range) -> None:
    counted: Counter[str] = Counter()
    for seed in seeds:
        counted += History(tmp_path / str(seed), seed).run()
    # Each of these outcomes must come up, or the histories say little.
    print(dict(counted))
    assert min(counted[name] for name in ("published", "refused", "compared again", "conflicted")) > 0
