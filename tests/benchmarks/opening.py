"""How long a table takes to open, short and long, as a ratio of one run: with checkpoints, the length should not matter."""

from __future__ import annotations

import shutil
import statistics
import time
from pathlib import Path

import attrs

_LIVE = 20
_CHECKPOINT_EVERY = 100


@attrs.frozen
class Opening:
    """One measured table.

    :param commits: in its log.
    :param seconds: of every opening, sorted.
    """

    commits: int
    seconds: list[float] = attrs.field(repr=False)

    @property
    def median(self) -> float:
        """The median opening, in seconds."""
        return statistics.median(self.seconds)


def measure(directory: Path, commits: tuple[int, ...] = (100, 10_000), times: int = 25) -> list[Opening]:
    """Open tables of several lengths, in turns, so that what else the machine does strikes all of them.

    Every commit replaces a file, so that all tables hold the same number of files; the latest checkpoint is some commits
    old.

    :param directory: for the tables; it must not exist, and is removed afterwards.
    :param commits: of each table.
    :param times: that each is opened.
    """
    from tests.support.tables import local_log

    tables = {count: _make(directory / str(count), count) for count in commits}
    seconds: dict[int, list[float]] = {count: [] for count in commits}
    for _ in range(times):
        for count, path in tables.items():
            begin = time.perf_counter()
            snapshot = local_log(path).snapshot()
            seconds[count].append(time.perf_counter() - begin)
            assert snapshot is not None
            assert snapshot.version == count
    shutil.rmtree(directory)
    return [Opening(count, sorted(values)) for count, values in seconds.items()]


def _make(path: Path, commits: int) -> Path:
    from deltalake import DeltaTable

    from airflow_provider_onelake.log.actions import dump_actions, version_path
    from tests.support.tables import make_table

    log = make_table(path)
    for version in range(1, commits + 1):
        info = {"timestamp": version, "operation": "WRITE", "operationParameters": {}}
        add = {"path": f"{version}.parquet", "partitionValues": {"month": "2019-01"}, "size": 1, "modificationTime": 1}
        actions = [{"commitInfo": info}, {"add": {**add, "dataChange": True, "stats": '{"numRecords":1}'}}]
        if version > _LIVE:
            gone = {"path": f"{version - _LIVE}.parquet", "deletionTimestamp": 1, "dataChange": True}
            actions.append({"remove": gone})
        log.store.create(version_path(version), dump_actions(actions))
    last = commits - commits // 2 if commits < _CHECKPOINT_EVERY else commits - _CHECKPOINT_EVERY // 2
    DeltaTable(str(path), version=last).create_checkpoint()
    return path
