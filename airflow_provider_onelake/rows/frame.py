"""A frame: a version of a table held open, whose columns come into memory when they are first asked for and stay there.

It does in a task what Direct Lake does for Power BI (https://learn.microsoft.com/fabric/fundamentals/direct-lake-overview):
all reads see one version, a column of a file is fetched once, and to *reframe* is to go on to the newest version and to
keep in memory the columns of all files that are still in the table.
"""

from __future__ import annotations

import json
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import attrs

from airflow_provider_onelake.exceptions import InvalidReadError, ReadRefusedError, VacuumRefusedError
from airflow_provider_onelake.log.actions import Add, FileKey, file_key
from airflow_provider_onelake.rows.choice import ReadReport, choose
from airflow_provider_onelake.rows.data_file import ParquetFile
from airflow_provider_onelake.rows.layout import Layout
from airflow_provider_onelake.rows.read import ReadRequest, Rows, batches, snapshot_of

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_provider_onelake.log.delta_log import DeltaLog
    from airflow_provider_onelake.log.snapshot import Snapshot

logger = logging.getLogger(__name__)

MEMORY = 1 << 30
"""How many bytes of columns a frame keeps in memory unless it is told otherwise."""

# A column of a row group: the file's path, what identifies the column and its type in the table, and the group.
_Place = tuple[str, str, int]


class Held(Protocol):
    """A version that no vacuum of ours takes files of."""

    def check(self) -> None:
        """Make sure that it is still held.

        :raises VacuumRefusedError: it was not held for a while, and files of it are gone.
        """

    def end(self) -> None:
        """Hold it no longer."""


@attrs.frozen(kw_only=True)
class Reframed:
    """What changed from one version of a frame to the next.

    :param before: the version that the frame had.
    :param version: the version that it has now; the same if no commit came.
    :param files_stayed: files that both versions have, and ``files_gone`` and ``files_new`` the others.
    :param columns_kept: columns of row groups of files that stay in memory, and ``bytes_kept`` in them.
    :param columns_dropped: those of files that are no longer in the table, and ``bytes_dropped`` in them.
    """

    before: int
    version: int
    files_stayed: int
    files_gone: int
    files_new: int
    columns_kept: int
    bytes_kept: int
    columns_dropped: int
    bytes_dropped: int

    def to_json(self) -> dict[str, Any]:
        """Return it for programs, such as XCom."""
        return attrs.asdict(self)


class Frame:
    """A version of a table held open. Use it in a ``with``, or :meth:`close` it.

    Columns are kept as files have them, also rows that a deletion vector hides: a DELETE that only marks rows evicts
    nothing. Those that were not asked for the longest go when the memory is full.

    A frame is for one thread.

    :param log: of the table.
    :param hold: holds a version open until it is told to end.
    :param version: to begin with. Default: the newest, or that of ``timestamp``.
    :param timestamp: the version of that time, with a time zone; as text in ISO 8601.
    :param memory: how many bytes of columns are kept in memory.
    """

    def __init__(
        self,
        log: DeltaLog,
        hold: Callable[[int], Held],
        version: int | None = None,
        timestamp: datetime | str | None = None,
        memory: int = MEMORY,
    ) -> None:
        if memory < 0:
            raise InvalidReadError(f"memory={memory!r}: bytes, 0 or more. Nothing was read.")
        self._log = log
        self._hold = hold
        self._most = memory
        self._lock = threading.Lock()
        self._columns: OrderedDict[_Place, pa.ChunkedArray] = OrderedDict()
        self._opened: dict[FileKey, ParquetFile] = {}
        self.columns_paged_in = 0
        """How many columns of row groups were fetched since the frame was opened."""
        self._bytes = 0
        self._open: Held | None = None
        self._begin(snapshot_of(log, version, timestamp))

    @property
    def version(self) -> int:
        """The version of the table that all reads see."""
        return self._snapshot.version

    @property
    def bytes_in_memory(self) -> int:
        """How many bytes of columns are in memory."""
        return self._bytes

    @property
    def columns_in_memory(self) -> int:
        """How many columns of row groups are in memory."""
        return len(self._columns)

    def read(self, columns: Sequence[str] | None = None, where: str | None = None) -> Rows:
        """Return rows of the frame's version; columns that are not in memory are fetched as the rows are taken.

        The rows must be taken before the frame is closed or reframed.

        :param columns: as for :meth:`~airflow_provider_onelake.table.Table.read`. Default: all.
        :param where: as for :meth:`~airflow_provider_onelake.table.Table.read`. Default: all rows.
        :returns: an iterator of Arrow record batches. In its report, ``bytes_fetched`` are those that were not in
            memory.
        :raises InvalidReadError: a column is unknown, or the condition means nothing.
        :raises ReadRefusedError: the frame is closed; or it could not hold its version, and files are gone.
        """
        self._check()
        asked = ReadRequest.of(self._layout, columns, where, self._log.table)
        report = ReadReport(table=self._log.address, version=self.version)
        chosen = choose(self._files.values(), asked.layout, asked.where, report, self._log.table)
        columns_of = partial(self._columns_of, self._snapshot)
        found = batches(self._log.store, chosen, asked, report, self._open_file, columns_of)
        return Rows(asked.schema, report, self._unchanged(found, self._snapshot))

    def column(self, name: str) -> pa.ChunkedArray:
        """Return a column of all rows.

        :param name: of the column.
        :raises InvalidReadError: there is no such column.
        :raises ReadRefusedError: as for :meth:`read`.
        """
        return self.read([name]).read_all().column(0)

    def reframe(self) -> Reframed:
        """Go on to the newest version. Columns of files that are still in the table stay in memory.

        If it fails, the frame stays at its version.

        :returns: what changed.
        :raises ReadRefusedError: the frame is closed.
        :raises UnsupportedFeatureError: the newest version has a feature that this version does not read.
        """
        if self._open is None:
            raise self._closed()
        before, files = self._snapshot, self._files
        self._log.doubt()
        newest = snapshot_of(self._log, None, None)
        if (newest.version, newest.table_id) != (before.version, before.table_id):
            self._begin(newest)
        dropped, bytes_dropped = self._evict(same_table=newest.table_id == before.table_id)
        stayed = files.keys() & self._files.keys()
        done = Reframed(
            before=before.version,
            version=self.version,
            files_stayed=len(stayed),
            files_gone=len(files) - len(stayed),
            files_new=len(self._files) - len(stayed),
            columns_kept=self.columns_in_memory,
            bytes_kept=self._bytes,
            columns_dropped=dropped,
            bytes_dropped=bytes_dropped,
        )
        logger.info(
            "%s: reframed from version %d to %d; of its files, %d stayed, %d are gone, %d are new",
            self._log.table,
            done.before,
            done.version,
            done.files_stayed,
            done.files_gone,
            done.files_new,
        )
        return done

    def close(self) -> None:
        """Hold the version no longer, and forget the columns. It may be closed twice.

        :raises StoreUnavailableError: the store did not answer; the lease on the version ends by itself.
        """
        held, self._open = self._open, None
        with self._lock:
            self._columns.clear()
            self._opened.clear()
            self._bytes = 0
        if held is not None:
            held.end()

    def __enter__(self) -> Frame:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- versions ----------------------------------------------------------------------------------------------------

    def _begin(self, snapshot: Snapshot) -> None:
        """Hold a version, and no longer the one before."""
        try:
            held = self._hold(snapshot.version)
        except VacuumRefusedError as error:
            raise ReadRefusedError(
                f"No frame of version {snapshot.version} of {self._log.table} can be opened: {error}"
            ) from error
        try:
            layout = Layout.of(snapshot.metadata)
            files = {file_key(add): add for add in self._log.live_files(lambda _: True, snapshot.version)}
        except BaseException:
            held.end()
            raise
        before, self._open = self._open, held
        self._snapshot, self._layout = snapshot, layout
        self._files: Mapping[FileKey, Add] = files
        if before is not None:
            before.end()

    def _check(self) -> None:
        if self._open is None:
            raise self._closed()
        try:
            self._open.check()
        except VacuumRefusedError as error:
            raise ReadRefusedError(
                f"The frame of version {self.version} of {self._log.table} is lost, as its lease was not renewed in "
                f"time: {error} Go on with the newest version by reframe()."
            ) from error

    def _closed(self) -> ReadRefusedError:
        return ReadRefusedError(f"The frame of {self._log.table} is closed. Open another one.")

    # -- columns -----------------------------------------------------------------------------------------------------

    def _unchanged(self, batches: Iterator[pa.RecordBatch], snapshot: Snapshot) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if self._open is None or self._snapshot is not snapshot:
                raise ReadRefusedError(
                    f"The frame of {self._log.table} was closed or reframed while its rows were taken. Read again."
                )
            yield batch

    def _open_file(self, add: Add) -> ParquetFile:
        key = file_key(add)
        if key in self._opened:
            return self._opened[key]
        data = ParquetFile.open(self._log.store, add, self._log.table)
        with self._lock:
            self._opened[key] = attrs.evolve(data, fetched=0)
        return data

    def _columns_of(
        self, snapshot: Snapshot, data: ParquetFile, group: int, names: Sequence[str], layout: Layout
    ) -> tuple[dict[str, pa.ChunkedArray], int]:
        """Return columns of a row group, see :meth:`ParquetFile.columns`, and fetch those that are not in memory.

        :param snapshot: that is read.
        """
        places = {name: (data.add["path"], _mark(name, layout), group) for name in names}
        with self._lock:
            found = {name: self._columns[place] for name, place in places.items() if place in self._columns}
            for name in found:
                self._columns.move_to_end(places[name])
        missing = [name for name in names if name not in found]
        new, fetched = data.columns(group, missing, layout) if missing else ({}, 0)
        with self._lock:
            for name, column in new.items() if self._open is not None and self._snapshot is snapshot else ():
                if places[name] not in self._columns:
                    self.columns_paged_in += 1
                    self._columns[places[name]] = column
                    self._bytes += column.nbytes
            while self._bytes > self._most:
                _, oldest = self._columns.popitem(last=False)
                self._bytes -= oldest.nbytes
        return {**found, **new}, fetched

    def _evict(self, *, same_table: bool) -> tuple[int, int]:
        """Forget what is of no file or column of the version; return how many columns went, and their bytes."""
        paths = {path for path, _ in self._files} if same_table else set()
        marks = {_mark(name, self._layout) for name in self._layout.columns}
        before, bytes_before = self.columns_in_memory, self._bytes
        with self._lock:
            for place in [place for place in self._columns if place[0] not in paths or place[1] not in marks]:
                self._bytes -= self._columns.pop(place).nbytes
            self._opened = {key: data for key, data in self._opened.items() if same_table and key in self._files}
        return before - self.columns_in_memory, bytes_before - self._bytes


def _mark(name: str, layout: Layout) -> str:
    """Return what identifies a column and its type in files: a rename changes nothing, a widening does."""
    column = layout.columns[name]
    return json.dumps([column.field_id, column.physical_name, column.type], sort_keys=True)
