"""Which tests share servers, so that one process of pytest-xdist runs them all while others run beside them.

``TESTS_SHARE=2/3`` runs the second third of the selected test files, for a machine that has no time for all of them.
"""

from __future__ import annotations

import os
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from xdist.scheduler import LoadScopeScheduling
    from xdist.workermanage import WorkerController


# DAGs whose engine is none of Spark's. They go to whoever is free, so that no process of the two ends long before the
# other.
_WITHOUT_SERVERS = frozenset(f"test_{name}.py" for name in ("observability", "sensor", "table_events", "write_group"))

# Spark Connect's tests in two halves, or they are the longest group by far: what writes new rows, and what changes rows
# and files that are there. Each has a server of its own only if both run at once.
_CHANGING = "alter changes manifests merge optimize replay restore rivals statement_matrix vacuum"
_CHANGES_WHAT_IS_THERE = frozenset(f"test_{name}.py" for name in _CHANGING.split())

# A long group that begins last would leave a process without work. xdist begins with those of most tests, which are
# not the longest.
_ON_CONNECT = "on Spark Connect"
_ONE_SERVER = f"everything {_ON_CONNECT}"
_LONGEST_FIRST = (
    "a live Airflow",
    _ONE_SERVER,
    "changes on Spark Connect",
    "writers on Spark Connect",
    "DAGs on Spark Connect",
    "a Spark cluster",
    "stores",
    "every store and every way to Spark",
)


def group_of(path: str) -> str | None:
    """Return the servers that a file's tests share, ``None`` for none."""
    match PurePosixPath(path).parts[1:]:
        case ("live", "test_compose.py"):
            return "docker-compose.yaml"
        case ("live", *_):
            return "a live Airflow"
        case ("integration", "submit", *_):
            return "a Spark cluster"
        case ("airflow", "test_stores.py"):
            return "every store and every way to Spark"
        case ("integration", "stores", *_) | ("airflow", "test_bad_weather.py"):
            return "stores"
        case ("airflow", file) if file in _WITHOUT_SERVERS:
            return None
        case ("airflow", *_):
            return "DAGs on Spark Connect"
        case ("integration", "spark", file) if file in _CHANGES_WHAT_IS_THERE:
            return "changes on Spark Connect"
        case ("integration", *_):
            return "writers on Spark Connect"
    return None


# After pytest has chosen by marks.
@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the files of one share. Each group's files go round the shares, so that all shares take about as long."""
    if not (share := os.environ.get("TESTS_SHARE")):
        return
    which, shares = map(int, share.split("/"))
    if not 1 <= which <= shares:
        raise pytest.UsageError(f"TESTS_SHARE={share} is no share: 2/3 is the second third.")
    files = sorted({item.nodeid.partition("::")[0] for item in items}, key=lambda path: (group_of(path) or "", path))
    kept = set(files[which - 1 :: shares])
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid.partition("::")[0] not in kept])
    items[:] = [item for item in items if item.nodeid.partition("::")[0] in kept]


# Optional, as it is a hook of pytest-xdist; that one's own groups, by marks, need an older pytest.
@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    from xdist.scheduler import LoadScopeScheduling

    # Of `make test`, few tests need Spark: one server is enough for them all.
    one_server = config.option.markexpr == "promise"

    class ByServers(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            group = group_of(nodeid.partition("::")[0]) or nodeid
            return _ONE_SERVER if one_server and group.endswith(_ON_CONNECT) else group

        def _assign_work_unit(self, node: WorkerController) -> None:
            longest = next((group for group in _LONGEST_FIRST if group in self.workqueue), None)
            if longest is not None:
                self.workqueue.move_to_end(longest, last=False)
            super()._assign_work_unit(node)

    return ByServers(config, log)
