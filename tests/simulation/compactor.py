"""A task of ``OneLakeOptimizeOperator``, with the production code of ``maintenance``; only Spark's OPTIMIZE is played."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import attrs

from airflow_provider_onelake.buffers.markers import write_marker
from airflow_provider_onelake.buffers.shadow import Shadow
from airflow_provider_onelake.commit.loop import Transactions
from airflow_provider_onelake.exceptions import OneLakeError, TerminalError, TransientError
from airflow_provider_onelake.log.actions import dump_actions, version_path
from airflow_provider_onelake.maintenance.compact import CompactionResult, publish_rewrite
from airflow_provider_onelake.maintenance.compaction import CompactionPlan as FilesPlan
from airflow_provider_onelake.maintenance.compaction import CompactionTerms, plan
from airflow_provider_onelake.maintenance.in_flight import writers_in_flight
from airflow_provider_onelake.maintenance.shadow import read_rewrite, shadow_of_plan
from tests.simulation.scenario import CompactionPlan
from tests.simulation.table import Row, data_columns, hidden_rows, load_rows
from tests.simulation.world import ViolationError

if TYPE_CHECKING:
    from tests.simulation.lake import Lake

_URI = "file:///lake/sim table"
_BASE = "file:/lake/sim%20table"


@attrs.define
class Compacted:
    """What a compaction said when it was done.

    :param epoch: how often the table had been made again when it began; -1 if it was while it ran.
    :param shadow: its path; ``None`` where there was nothing to do.
    """

    actor: str
    epoch: int
    shadow: str | None = None
    said: CompactionResult | None = None
    error: OneLakeError | None = None


def compact(lake: Lake, terms: CompactionPlan) -> None:
    """Compact once; nothing is retried."""
    world = lake.world
    told = Compacted(world.actor.name, lake.epoch)
    try:
        _compact(lake, terms, told)
    except (TransientError, TerminalError) as error:
        told.error = error
        world.counters[f"compaction failed: {type(error).__name__}"] += 1
    except OneLakeError as error:
        raise ViolationError(f"{type(error).__name__} leaves a compaction: {error}") from error
    except Exception as error:
        if isinstance(error, ViolationError):
            raise
        raise ViolationError(f"a compaction ends with {type(error).__name__}: {error}") from error
    told.epoch = told.epoch if told.epoch == lake.epoch else -1
    lake.compacted.append(told)
    world.note("compaction", "ended", str(told.error or told.said or "nothing to do"))
    if told.said is not None:
        world.counters[f"compactions {told.said.status.value}"] += 1
        world.counters["partitions compacted"] += len(told.said.groups)
        for dropped in told.said.dropped:
            reason = "an input is gone" if "no longer" in dropped.reason else "other reasons"
            world.counters[f"partitions dropped: {reason}"] += 1


def _compact(lake: Lake, terms: CompactionPlan, told: Compacted) -> None:
    world, random = lake.world, lake.world.random
    log = lake.log()
    snapshot = log.snapshot_or_none()
    if snapshot is None:
        return
    snapshot.check_supported(log.table)
    files = log.live_files(lambda _: True, snapshot.version)
    needed = writers_in_flight(log, snapshot)
    found: FilesPlan = plan(files, snapshot, CompactionTerms(min_files=2, zorder_by=terms.zorder_by), needed.why_needed)
    if not found.groups:
        return
    shadow = shadow_of_plan(log, snapshot, found, _URI, "sim/upkeep/optimize", f"c-{random.getrandbits(64):016x}")
    told.shadow = shadow.path
    world.sleep(terms.works)
    _optimize(lake, shadow)
    rewrite = read_rewrite(log.store, shadow)
    if rewrite is None or not rewrite.groups:
        write_marker(log.store, shadow.path, {"reason": "Spark found nothing to rewrite"})
        return
    world.sleep(terms.waits)
    told.said = lake.committing(
        lambda: publish_rewrite(Transactions(log, random), shadow, rewrite, zorder_by=terms.zorder_by)
    )


def _optimize(lake: Lake, shadow: Shadow) -> None:
    """OPTIMIZE of the shadow, by what stands in its version 0 alone: files first, then version 1."""
    store, random = lake.store, lake.world.random
    entry = store.peek(f"{shadow.path}/{version_path(0)}")
    assert entry is not None
    actions = [json.loads(line) for line in entry.data.splitlines()]
    metadata = next(action["metaData"] for action in actions if "metaData" in action)
    groups: dict[int, list[dict[str, Any]]] = {}
    for add in (action["add"] for action in actions if "add" in action):
        (spelling,) = add["partitionValues"].values()
        groups.setdefault(lake.column.read(spelling), []).append(add)
    columns = set(data_columns(metadata))
    changes: list[dict[str, Any]] = []
    for partition, files in groups.items():
        rows: list[Row] = []
        for file in files:
            stored = store.peek(unquote(file["path"].removeprefix(f"{_BASE}/")))
            if stored is None:
                # Spark fails: a VACUUM took what was replaced meanwhile.
                return
            read = load_rows(stored.data, hidden_rows(store, file, _BASE))
            rows += [(name, tuple(column for column in had if column in columns)) for name, had in read]
        for file in files:
            gone = {k: file[k] for k in ("path", "partitionValues", "size", "deletionVector") if k in file}
            changes.append({"remove": {**gone, "deletionTimestamp": 1, "dataChange": False}})
        (spelling,) = files[0]["partitionValues"].values()
        for some in (rows,) if len(rows) < 2 or random.random() < 0.8 else (rows[:1], rows[1:]):
            add = lake.file(partition, some, prefix=f"{shadow.path}/", spelling=spelling, metadata=metadata)
            changes.append({"add": {**add, "dataChange": False, "baseRowId": 0, "defaultRowCommitVersion": 1}})
    if not lake.table.row_tracking:
        for change in changes:
            for name in ("baseRowId", "defaultRowCommitVersion"):
                change.get("add", {}).pop(name, None)
    info = {"timestamp": 1, "operation": "OPTIMIZE", "tags": {"delta.rowTracking.preserved": "true"}}
    store.create(f"{shadow.path}/{version_path(1)}", dump_actions([{"commitInfo": info}, *changes]))
