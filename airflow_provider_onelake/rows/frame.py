"""A frame: a version of a table held open, whose columns come into memory when they are first asked for and stay there.

It does in a task what Direct Lake does for Power BI (https://learn.microsoft.com/fabric/fundamentals/direct-lake-overview):
all reads see one version, a column of a file is fetched once, and to *reframe* is to go on to the newest version and to
keep in memory the columns of all files that are still in the table.
"""

from __future__ import annotations

import json
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

import attrs

from airflow_provider_onelake.exceptions import InvalidReadError, ReadRefusedError, VacuumRefusedError
from airflow_provider_onelake.log.actions import Add, FileKey, file_key
from airflow_provider_onelake.rows.choice import Chosen, ReadReport, choose
from airflow_provider_onelake.rows.data_file import DataFile
from airflow_provider_onelake.rows.layout import Layout
from airflow_provider_onelake.rows.read import AHEAD, AHEAD_BYTES, Asked, Rows, batches_of, snapshot_of, wanted_rows
from airflow_provider_onelake.storage.at_once import few

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_provider_onelake.log.delta_log import DeltaLog
    from airflow_provider_onelake.log.snapshot import Snapshot

logger = logging.getLogger(__name__)

MEMORY = 1 << 30
"""How many bytes of columns a frame keeps in memory unless it is told otherwise."""

# A column of a file: the file's path, and what identifies the column and its type in the table.
_Place = tuple[str, str]


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
    :param columns_kept: columns of files that stay in memory, and ``bytes_kept`` in them.
    :param columns_dropped: columns of files that are no longer in the table, and ``bytes_dropped`` in them.
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


@attrs.frozen
class _PagedIn:
    """The columns of a file that a read needs.

    :param data: the file.
    :param found: columns that were in memory, by name.
    :param new: columns that were fetched.
    :param fetched: how many bytes were fetched.
    """

    data: DataFile
    found: Mapping[str, pa.ChunkedArray] = attrs.field(repr=False)
    new: Mapping[str, pa.ChunkedArray] = attrs.field(repr=False)
    fetched: int

    def columns(self, names: Sequence[str]) -> dict[str, pa.ChunkedArray]:
        """Return some of the columns."""
        return {name: self.found[name] if name in self.found else self.new[name] for name in names}


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
        self._columns: OrderedDict[_Place, pa.ChunkedArray] = OrderedDict()
        self._opened: dict[FileKey, DataFile] = {}
        self.columns_paged_in = 0
        """How many columns of files were fetched since the frame was opened."""
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
        """How many columns of files are in memory."""
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
        asked = Asked.of(self._layout, columns, where, self._log.table)
        report = ReadReport(table=self._log.address, version=self.version)
        chosen = choose(self._files.values(), asked.layout, asked.where, report, self._log.table)
        return Rows(asked.schema, report, self._batches(self._snapshot, chosen, asked, report))

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
        kept, dropped = self._evict(same_table=newest.table_id == before.table_id)
        stayed = files.keys() & self._files.keys()
        done = Reframed(
            before=before.version,
            version=self.version,
            files_stayed=len(stayed),
            files_gone=len(files) - len(stayed),
            files_new=len(self._files) - len(stayed),
            columns_kept=kept,
            bytes_kept=self._bytes,
            columns_dropped=dropped[0],
            bytes_dropped=dropped[1],
        )
        logger.info(
            "%s: reframed from version %d to %d; %d files stayed, %d are gone, %d are new",
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

    def _batches(
        self, snapshot: Snapshot, chosen: Sequence[Chosen], asked: Asked, report: ReadReport
    ) -> Iterator[pa.RecordBatch]:
        # Import it before threads do, as half imported modules have failed in threads.
        import pyarrow.compute
        import pyarrow.parquet  # noqa: F401

        names = asked.needed

        def page_in(file: Chosen) -> tuple[Chosen, _PagedIn]:
            return file, self._page_in(file, names, asked.layout)

        def size(file: Chosen) -> int:
            return int(file.add["size"])

        for file, page in few(self._log.store, page_in, chosen, AHEAD, size, AHEAD_BYTES):
            if self._open is None or self._snapshot is not snapshot:
                raise ReadRefusedError(
                    f"The frame of {self._log.table} was closed or reframed while its rows were taken. Read again."
                )
            self._opened[file_key(file.add)] = page.data
            self._keep(file.add, page, asked.layout)
            report.bytes_fetched += page.fetched
            count = page.data.footer.num_rows
            report.rows_read += count
            yield from batches_of(wanted_rows(file, count, page.data.kept, page.columns, asked), report)

    def _page_in(self, file: Chosen, names: frozenset[str], layout: Layout) -> _PagedIn:
        """Fetch what is not in memory. Threads do so; only the frame's own thread changes what is in memory."""
        import pyarrow as pa

        data = self._opened.get(file_key(file.add))
        fetched = 0
        if data is None:
            data = DataFile.open(self._log.store, file.add, self._log.table)
            fetched = data.fetched
        wanted = [name for name in layout.fields if name in names and name not in file.partition]
        found = {}
        for name in wanted:
            column = self._columns.get(_place(file.add, name, layout))
            if column is not None:
                found[name] = column
        missing = [name for name in wanted if name not in found]
        parts: dict[str, list[pa.Array]] = {name: [] for name in missing}
        for group in data.groups if missing else ():
            columns, more = data.columns(group, missing, layout)
            fetched += more
            for name, column in columns.items():
                parts[name] += column.chunks
        schema = layout.schema(missing)
        new = {name: pa.chunked_array(parts[name], schema.field(name).type) for name in missing}
        return _PagedIn(data, found, new, fetched)

    def _keep(self, add: Add, page: _PagedIn, layout: Layout) -> None:
        for name in page.found:
            place = _place(add, name, layout)
            if place in self._columns:
                self._columns.move_to_end(place)
        for name, column in page.new.items():
            self.columns_paged_in += 1
            self._columns[_place(add, name, layout)] = column
            self._bytes += column.nbytes
        while self._bytes > self._most:
            _, oldest = self._columns.popitem(last=False)
            self._bytes -= oldest.nbytes

    def _evict(self, *, same_table: bool) -> tuple[int, tuple[int, int]]:
        """Forget what is of no file or column of the version; return how many columns are left, and what went."""
        paths = {path for path, _ in self._files} if same_table else set()
        marks = {_mark(name, self._layout) for name in self._layout.columns}
        gone = [place for place in self._columns if place[0] not in paths or place[1] not in marks]
        bytes_gone = sum(self._columns.pop(place).nbytes for place in gone)
        self._bytes -= bytes_gone
        self._opened = {key: data for key, data in self._opened.items() if same_table and key in self._files}
        return len(self._columns), (len(gone), bytes_gone)


def _place(add: Add, name: str, layout: Layout) -> _Place:
    return add["path"], _mark(name, layout)


def _mark(name: str, layout: Layout) -> str:
    """Return what identifies a column and its type in files: a rename changes nothing, a widening does."""
    column = layout.columns[name]
    return json.dumps([column.field_id, column.physical_name, column.type], sort_keys=True)
