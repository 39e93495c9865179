"""Spark, as statements know it: it reads what a shadow names, and puts files, deletion vectors, and then version 1."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

import attrs

from airflow_provider_onelake.exceptions import SparkJobError
from airflow_provider_onelake.log.actions import dump_actions, version_path
from airflow_provider_onelake.spark.base import ChangeJob, Engine, SparkResult
from airflow_provider_onelake.storage.addresses import TableAddress
from tests.simulation.lake import Lake
from tests.simulation.statements.records import Effect, Placed, Record
from tests.simulation.store import parsed
from tests.simulation.table import Row, data_columns, hidden_rows, load_rows, new_vectors, spelling_of

ADDRESS = TableAddress.parse("/lake/sim table")
_BASE = "file:/lake/sim%20table"


@attrs.frozen
class _Input:
    """A file of a shadow.

    :param rows: that a reader finds, by their positions.
    """

    add: dict[str, Any]
    partition: int
    hidden: frozenset[int]
    rows: dict[int, Row]


@attrs.define
class SimulatedSpark(Engine):
    """Does to the rows of a shadow what a statement says.

    :param effect: returns what the statement does, from the rows of its source by their keys.
    :param works: how many seconds it takes.
    """

    lake: Lake
    effect: Callable[[dict[int, Placed]], Effect]
    works: float
    jobs: int = 0

    def change(self, job: ChangeJob) -> SparkResult:
        """See :meth:`~airflow_provider_onelake.spark.base.Engine.change`."""
        lake, random = self.lake, self.lake.world.random
        lake.world.counters["rounds"] += 1
        self.jobs += 1
        lake.world.sleep(self.works * random.uniform(0, 0.3))
        effect = self.effect(self._source(job.source_uri) if job.source_uri else {})
        shadow = _relative(job.shadow_uri)
        entry = lake.store.peek(f"{shadow}/{version_path(0)}")
        assert entry is not None
        metadata = next(action["metaData"] for action in parsed(entry.data) if "metaData" in action)
        inputs = [self._input(action["add"]) for action in parsed(entry.data) if "add" in action]
        lake.world.sleep(self.works)
        actions, metrics = self._run(effect, inputs, metadata, shadow)
        if actions:
            info = {"timestamp": 1, "operation": "any", "operationMetrics": metrics}
            info["tags"] = {"delta.rowTracking.preserved": "true"}
            lake.store.create(f"{shadow}/{version_path(1)}", dump_actions([{"commitInfo": info}, *actions]))
        return SparkResult(engine="simulated")

    def _input(self, add: dict[str, Any]) -> _Input:
        stored = self.lake.store.peek(unquote(add["path"].removeprefix(f"{_BASE}/")))
        if stored is None:
            raise SparkJobError(f"{add['path']} is gone")
        hidden = hidden_rows(self.lake.store, add, _BASE)
        rows = {at: row for at, row in enumerate(load_rows(stored.data)) if at not in hidden}
        return _Input(add, self.lake.column.read(spelling_of(add)), hidden, rows)

    def _source(self, uri: str) -> dict[int, Placed]:
        """Return the rows of a buffer by their keys."""
        found: dict[int, Placed] = {}
        buffer = _relative(uri)
        entry = self.lake.store.peek(f"{buffer}/{version_path(1)}")
        assert entry is not None
        for add in (action["add"] for action in parsed(entry.data) if "add" in action):
            stored = self.lake.store.peek(f"{buffer}/{unquote(add['path'])}")
            if stored is None:
                raise SparkJobError(f"{buffer}/{add['path']} is gone")
            for name, _ in load_rows(stored.data):
                record = Record.parse(name)
                found[record.key] = self.lake.column.read(spelling_of(add)), record
        return found

    def _run(
        self, effect: Effect, inputs: list[_Input], metadata: dict[str, Any], shadow: str
    ) -> tuple[list[dict[str, Any]], dict[str, str]]:
        random = self.lake.world.random
        columns = data_columns(metadata)
        by_vectors = self.lake.table.vectors and random.random() < 0.7
        actions: list[dict[str, Any]] = []
        new: dict[int, list[Row]] = {}
        hidden: list[tuple[dict[str, Any], frozenset[int]]] = []
        before: list[Placed] = []
        updated = deleted = 0
        for file in inputs:
            placed = {at: (file.partition, Record.parse(name)) for at, (name, _) in file.rows.items()}
            before += placed.values()
            after = {at: effect.on(row) for at, row in placed.items()}
            hit = frozenset(at for at, row in placed.items() if effect.touches(row))
            if not hit:
                continue
            gone = {
                key: file.add[key] for key in ("path", "partitionValues", "size", "deletionVector") if key in file.add
            }
            actions.append({"remove": {**gone, "deletionTimestamp": 1, "dataChange": True}})
            for at, row in after.items():
                had = tuple(column for column in file.rows[at][1] if column in columns)
                if row is None:
                    deleted += 1
                elif at in hit:
                    updated += 1
                    new.setdefault(row[0], []).append((row[1].name, had))
                elif not by_vectors:
                    new.setdefault(file.partition, []).append((file.rows[at][0], had))
            if by_vectors and len(hit) < len(file.rows):
                hidden.append((file.add, file.hidden | hit))
        inserted = effect.inserted(before)
        for partition, record in inserted:
            new.setdefault(partition, []).append((record.name, columns))
        for partition, rows in new.items():
            actions += [{"add": add} for add in self._write(partition, rows, metadata, shadow)]
        actions += [{"add": add} for add in self._hide(hidden, shadow)]
        counts = {
            "numUpdatedRows": updated,
            "numTargetRowsUpdated": updated,
            "numTargetRowsDeleted": deleted,
            "numTargetRowsInserted": len(inserted),
        }
        return actions, {name: str(count) for name, count in counts.items()}

    def _write(self, partition: int, rows: list[Row], metadata: dict[str, Any], shadow: str) -> list[dict[str, Any]]:
        lake, random = self.lake, self.lake.world.random
        ids = {"baseRowId": 0, "defaultRowCommitVersion": 1} if lake.table.row_tracking else {}
        spelling = lake.column.spell(partition, random)
        return [
            {**lake.file(partition, some, prefix=f"{shadow}/", spelling=spelling, metadata=metadata), **ids}
            for some in ((rows,) if len(rows) < 2 or random.random() < 0.8 else (rows[:1], rows[1:]))
        ]

    def _hide(self, hidden: list[tuple[dict[str, Any], frozenset[int]]], shadow: str) -> list[dict[str, Any]]:
        """Put all vectors into one object, as Spark does."""
        if not hidden:
            return []
        lake = self.lake
        lake.vectors += 1
        prefix = lake.world.random.choice(("", "ab"))
        vectors = new_vectors(lake.store, lake.vectors, [at for _, at in hidden], prefix, shadow)
        return [
            {
                **add,
                "deletionVector": vector,
                "stats": json.dumps({**json.loads(add["stats"]), "tightBounds": False}),
                "dataChange": True,
            }
            for (add, _), vector in zip(hidden, vectors, strict=True)
        ]


def _relative(uri: str) -> str:
    return uri.removeprefix(f"{ADDRESS.spark_uri}/")
