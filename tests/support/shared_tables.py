"""A table that a real Spark makes, and that Spark and buffers then write to in turn, with the rows that it should hold."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import attrs
import pyarrow as pa
import pyarrow.parquet as pq

from airflow_provider_onelake.buffers.buffer import Buffer
from airflow_provider_onelake.log.checkpoints import checkpointer
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.log.snapshot import Snapshot
from airflow_provider_onelake.modes import mode_of
from airflow_provider_onelake.rows.read import read_rows
from airflow_provider_onelake.spark.connect import ConnectEngine
from airflow_provider_onelake.storage.clock import Clock
from airflow_provider_onelake.writes.publish import Committer, PublishStatus
from tests.support.spark import stage_with
from tests.support.tables import LOAD, local_log, writer_spec

Row = tuple[Any, ...]
# A row of a test: its id, and the name of the partition that it is in.
Place = tuple[int, str]


@attrs.frozen
class Column:
    """A column besides ``id`` and ``part``; its values follow from the id.

    :param ddl: its type, and what else CREATE TABLE says of it.
    :param sql: the same in Spark SQL; empty for a column that the table itself fills in.
    """

    name: str
    ddl: str
    value: Callable[[int], Any]
    sql: str = ""


@attrs.define(slots=False)
class SharedTable:
    """The table of one test: ``id BIGINT, part …`` and further columns.

    :param columns: besides ``id`` and ``part``.
    :param parts: the values of ``part``, by the names that tests give them.
    :param part_type: type of ``part`` in SQL.
    :param deltalake_reads_rows: else only its list of files, with their rows, is compared.
    """

    path: Path
    spark: Any = attrs.field(repr=False)
    engine: ConnectEngine = attrs.field(repr=False)
    columns: tuple[Column, ...] = ()
    parts: Mapping[str, Any] = attrs.field(factory=lambda: {name: name for name in "abc"})
    part_type: str = "STRING"
    clock: Clock | None = None
    deltalake_reads_rows: bool = True
    rows: dict[int, Row] = attrs.field(factory=dict)
    #: What each version did to the rows: those that went, and those that came.
    changes: dict[int, tuple[list[Row], list[Row]]] = attrs.field(factory=dict)
    #: The version that each row came with, by id.
    since: dict[int, int] = attrs.field(factory=dict)
    #: What a test saw of each row, by id; kept in copies.
    remembered: dict[int, Any] = attrs.field(factory=dict)
    #: The versions that we committed.
    ours: list[int] = attrs.field(factory=list)

    # -- what is in it ------------------------------------------------------------------------------------------

    @property
    def log(self) -> DeltaLog:
        """The log as a process sees it that has just started."""
        log = local_log(self.path)
        return DeltaLog(log.store, log.table, self.clock)

    @property
    def snapshot(self) -> Snapshot:
        """The newest snapshot, read from the start."""
        return self.log.snapshot()

    @property
    def version(self) -> int:
        """The newest version."""
        return max(self.entries)

    @property
    def entries(self) -> list[int]:
        """The versions whose entries are in the log."""
        return sorted(int(file.stem) for file in (self.path / "_delta_log").glob("*.json") if file.stem.isdecimal())

    def actions(self, kind: str, version: int) -> list[dict[str, Any]]:
        """The bodies of the actions of one kind in a version."""
        lines = (self.path / "_delta_log" / f"{version:020d}.json").read_text().splitlines()
        return [action[kind] for action in map(json.loads, lines) if kind in action]

    def live(self, version: int | None = None) -> list[dict[str, Any]]:
        """The raw ``add`` actions of a version, the newest by default, as the committer reads them."""
        return list(self.log.live_files(lambda _: True, self.version if version is None else version))

    def parquet(self, add: Mapping[str, Any]) -> pq.ParquetFile:
        """The file of an ``add``."""
        return pq.ParquetFile(self.path / unquote(add["path"]))

    def spark_rows(self) -> list[Row]:
        """The rows as Spark reads them, by id."""
        return [tuple(row) for row in self.sql("SELECT * FROM {t} ORDER BY id").collect()]

    def deltalake_rows(self) -> list[Row]:
        """The rows as deltalake's query engine reads them, which knows deletion vectors; by id."""
        from deltalake import DeltaTable, QueryBuilder

        query = QueryBuilder().register("t", DeltaTable(str(self.path)))
        found = pa.table(query.execute("SELECT * FROM t ORDER BY id").read_all())
        return [tuple(row.values()) for row in found.to_pylist()]

    def our_rows(self) -> list[Row]:
        """The rows as this package reads them without Spark, by id."""
        found = read_rows(self.log).read_all().sort_by("id")
        return [tuple(row.values()) for row in found.to_pylist()]

    def deltalake_files(self) -> dict[str, int]:
        """How many rows each live file has, also those that a vector hides, as deltalake lists them."""
        from deltalake import DeltaTable

        listed = pa.table(DeltaTable(str(self.path)).get_add_actions())
        return dict(zip(listed.column("path").to_pylist(), listed.column("num_records").to_pylist(), strict=True))

    def check(self) -> None:
        """All readers see exactly the rows that the table should hold."""
        expected = [self.rows[key] for key in sorted(self.rows)]
        assert self.spark_rows() == expected
        assert self.our_rows() == expected
        if self.deltalake_reads_rows:
            assert self.deltalake_rows() == expected
        live = {unquote(add["path"]): json.loads(add["stats"])["numRecords"] for add in self.live()}
        assert {unquote(path): rows for path, rows in self.deltalake_files().items()} == live

    # -- Spark's side ----------------------------------------------------------------------------------------------

    def create(self, properties: Mapping[str, str], layout: str = "PARTITIONED BY (part)", part_ddl: str = "") -> None:
        """CREATE TABLE."""
        columns = ["id BIGINT", f"part {self.part_type} {part_ddl}", *(f"{c.name} {c.ddl}" for c in self.columns)]
        listed = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
        self.sql(
            f"CREATE TABLE {{t}} ({', '.join(columns)}) USING delta {layout}"
            + (f" TBLPROPERTIES ({listed})" if listed else "")
        )

    def sql(self, statement: str) -> Any:
        """Run a statement; ``{t}`` in it is the table."""
        return self.spark.sql(statement.replace("{t}", f"delta.`{self.path}`"))

    def insert(self, *places: Place) -> int:
        """Spark's append; returns its version."""
        names = ", ".join(["id", "part", *(column.name for column in self.columns if column.sql)])
        self.sql(f"INSERT INTO {{t}} ({names}) {self.query(*places)}")
        return self._changed(set(), places)

    def delete(self, *ids: int) -> int:
        """Spark's DELETE; returns its version."""
        self.sql(f"DELETE FROM {{t}} WHERE id IN ({', '.join(map(str, ids))})")
        return self._changed(set(ids), ())

    def query(self, *places: Place) -> str:
        """A query that gives rows, as one task so that they share a file where they share a partition."""
        rows = ", ".join(f"({key}L, {self._literal(part)})" for key, part in places)
        columns = ", ".join(["id", "part", *(f"{c.sql} AS {c.name}" for c in self.columns if c.sql)])
        return f"SELECT /*+ COALESCE(1) */ {columns} FROM VALUES {rows} AS v(id, part)"

    # -- our side ----------------------------------------------------------------------------------------------------

    def stage(self, mode: str, *places: Place, query: str | None = None) -> Buffer:
        """What the writer's task does until its buffer is complete; ``replace_where`` is of the first row's part."""
        terms: dict[str, Any] = {}
        if mode == "replace_where":
            value = self.parts[places[0][1]]
            terms["replace_where"] = "part IS NULL" if value is None else f"part = {_quoted(str(value))}"
        log = self.log
        # Each write is of a run of its own: writers of one load are rivals.
        spec = writer_spec(load=attrs.evolve(LOAD, run=str(uuid.uuid4())), mode=mode_of({"mode": mode, **terms}))
        return stage_with(self.engine, log, spec, query or self.query(*places), footers=True)

    def publish(self, buffer: Buffer, *places: Place) -> int:
        """Publish a buffer; returns its version."""
        done = Committer(self.log).publish([buffer])
        assert done.status is PublishStatus.PUBLISHED, done
        mode, parts = buffer.spec.mode.name, {part for _, part in places}
        gone = {"append": lambda _: False, "overwrite": lambda _: True}.get(
            mode, lambda row: row[1] in [self.parts[part] for part in parts]
        )
        version = self._changed({key for key, row in self.rows.items() if gone(row)}, places)
        assert version == done.version
        self.ours.append(version)
        return version

    def write(self, mode: str, *places: Place) -> int:
        """Stage and publish; returns the version."""
        return self.publish(self.stage(mode, *places), *places)

    def checkpoint(self) -> None:
        """Write a checkpoint of the newest version, as the committer does."""
        snapshot = self.snapshot
        checkpointer(str(self.path), interval=1, log=self.log)(
            attrs.evolve(snapshot, metadata=_every_version(snapshot)), self.version
        )

    def without_earlier_log(self) -> SharedTable:
        """A copy of the table, new to Spark, whose log begins with the checkpoint of the newest version.

        That version's own entry stays, as it does in every clean-up.
        """
        copy = self.path.with_name(f"{self.path.name}-cleaned")
        shutil.copytree(self.path, copy)
        for file in (copy / "_delta_log").iterdir():
            number = file.name.lstrip(".").partition(".")[0]
            if number.isdecimal() and (int(number) < self.version or file.name.endswith(".crc")):
                file.unlink()
        return attrs.evolve(self, path=copy, rows=dict(self.rows), changes={}, since=dict(self.since), ours=[])

    # -- in between --------------------------------------------------------------------------------------------------

    def _changed(self, gone: set[int], places: tuple[Place, ...]) -> int:
        came = {key: (key, self.parts[part], *(c.value(key) for c in self.columns)) for key, part in places}
        self.changes[self.version] = ([self.rows.pop(key) for key in sorted(gone)], list(came.values()))
        self.rows.update(came)
        self.since.update(dict.fromkeys(came, self.version))
        return self.version

    def _literal(self, part: str) -> str:
        value = self.parts[part]
        if value is None:
            return f"CAST(NULL AS {self.part_type})"
        return (
            f"CAST({_quoted(value.isoformat(' ') if isinstance(value, datetime) else str(value))} AS {self.part_type})"
        )


def _every_version(snapshot: Snapshot) -> dict[str, Any]:
    configuration = {k: v for k, v in snapshot.configuration.items() if k != "delta.checkpointInterval"}
    return {**snapshot.metadata, "configuration": configuration}


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
