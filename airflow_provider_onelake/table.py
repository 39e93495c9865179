"""One table of a lakehouse, with all that a task needs of it: its log, its commits, Spark's access, its pages."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, cast

import attrs

if TYPE_CHECKING:
    from airflow_provider_onelake.log.delta_log import DeltaLog
    from airflow_provider_onelake.log.snapshot import Snapshot
    from airflow_provider_onelake.rows.frame import Frame
    from airflow_provider_onelake.rows.read import Rows
    from airflow_provider_onelake.storage.addresses import TableAddress
    from airflow_provider_onelake.storage.credentials import Credentials
    from airflow_provider_onelake.storage.spark import SparkAccess
    from airflow_provider_onelake.storage.stores import Store
    from airflow_provider_onelake.writes.publish import Committer, Publication


def this_process() -> str:
    """Name this process for people."""
    return f"process {os.getpid()} on {socket.gethostname()}"


@attrs.frozen
class Table:
    """A table, which does not have to exist yet. Nothing is opened before it is asked for.

    :param address: where the table is.
    :param credentials: how to sign in to its store; ``None`` for a local disk.
    :param patience: seconds for which a request is repeated while the store does not answer.
    :param setting: returns a field of the connection, or ``None`` where it is empty. Default: all are empty.
    :param reader: returns what people call whoever reads. Default: the process and its machine.
    :param shortcut: the address that the table was named by, if that leads to :attr:`address` through a shortcut.
    :param read_only: why nothing can be written to the table; ``None`` if something can.
    :param name: what messages call the table. Default: its address.
    """

    address: TableAddress
    credentials: Credentials | None = attrs.field(repr=False)
    patience: float
    setting: Callable[[str], str | None] = attrs.field(default=lambda name: None, repr=False)
    reader: Callable[[], str] = attrs.field(default=this_process, repr=False)
    shortcut: TableAddress | None = None
    read_only: str | None = attrs.field(default=None, repr=False)
    name: str = attrs.field(default=attrs.Factory(str, takes_self=True), eq=False)

    def __str__(self) -> str:
        return str(self.address)

    @property
    def other_address(self) -> TableAddress | None:
        """The address by GUIDs if :attr:`address` uses names, and the other way round; ``None`` if it is not known.

        :raises AddressError: ``lakehouse_alias`` is no other spelling of the lakehouse.
        """
        from airflow_provider_onelake.storage.addresses import other_spelling

        return other_spelling(self.address, self.setting("lakehouse"), self.setting("lakehouse_alias"))

    @cached_property
    def log(self) -> DeltaLog:
        """The table's log.

        :raises InvalidWriteError: the connection's ``iceberg_readers`` is neither empty nor ``may_be_stale``.
        """
        from airflow_provider_onelake.log.delta_log import DeltaLog
        from airflow_provider_onelake.storage.read_only import ReadOnly
        from airflow_provider_onelake.storage.stores import open_store

        store = open_store(self.address, self.credentials, self.patience)
        given = store if self.read_only is None else cast("Store", ReadOnly(store, self.read_only))
        return DeltaLog(given, self.name, address=str(self), iceberg_may_be_stale=self.iceberg_may_be_stale)

    @property
    def iceberg_may_be_stale(self) -> bool:
        """Whether Iceberg readers of a table with UniForm may see it without the commits of this package.

        :raises InvalidWriteError: the connection's ``iceberg_readers`` is neither empty nor ``may_be_stale``.
        """
        from airflow_provider_onelake.exceptions import InvalidWriteError

        said = self.setting("iceberg_readers")
        if said not in (None, "", "may_be_stale"):
            raise InvalidWriteError(
                f"The connection of {self.name} has an `iceberg_readers`, of {len(said)} characters, that is unknown. "
                "Nothing was done: write may_be_stale, or leave it empty."
            )
        return said == "may_be_stale"

    def committer(self, observer: Callable[[Publication], None] | None = None, message: str | None = None) -> Committer:
        """Return what commits to the table.

        After a commit it writes a checkpoint where one is due, and symlink manifests where the table's property asks
        for them.

        :param observer: called with every publication that did not fail. Default: no call.
        :param message: of the task's author, for people who read the table's history. Default: none.
        """
        from airflow_provider_onelake.log.checkpoints import checkpointer
        from airflow_provider_onelake.maintenance.manifests import follow_commits
        from airflow_provider_onelake.maintenance.pinned_versions import oldest_pinned
        from airflow_provider_onelake.storage.stores import deltalake_options
        from airflow_provider_onelake.writes.publish import Committer

        def options() -> dict[str, str]:
            # Called whenever deltalake opens the table, because the token of an earlier call may have expired.
            return deltalake_options(self.address, self.credentials, self.patience)

        uri = self.address.deltalake_uri
        write_manifests = follow_commits(self.log, lambda: self.address.manifest_uri)
        write_checkpoint = checkpointer(uri, options, log=self.log, keep_from=oldest_pinned)

        def after_commit(snapshot: Snapshot, version: int) -> None:
            write_manifests(snapshot, version)
            write_checkpoint(snapshot, version)

        return Committer(
            self.log,
            after_commit=after_commit,
            observer=observer,
            message=message,
        )

    def read(
        self,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        version: int | None = None,
        timestamp: datetime | str | None = None,
    ) -> Rows:
        """Read rows of the table, without Spark (docs/guides/reading.md).

        Files whose partition or statistics say that they have none of the rows are not opened. The log is read now, the
        files are read as the rows are taken.

        :param columns: names of columns, in the order that the rows are to have. Default: all, as in the table.
        :param where: a condition on the rows, in Spark SQL, as docs/guides/reading.md describes it. Default: all rows.
        :param version: of the table. Default: the newest.
        :param timestamp: the version that the table had at a time, with its zone; as text in ISO 8601. Default: as
            ``version`` says.
        :returns: an iterator of Arrow record batches. Its ``report`` says which files and bytes were read and skipped.
        :raises InvalidReadError: a column is unknown, the condition means nothing, or the version is said twice.
        :raises TableNotFoundError: there is no table.
        :raises ReadRefusedError: there is no such version. While rows are taken: a file is gone or damaged.
        :raises LogGapError: the log no longer reaches back to the version.
        :raises UnsupportedFeatureError: the table has a feature that this version does not read.
        """
        from airflow_provider_onelake.rows.read import read_rows

        return read_rows(self.log, columns, where, version, timestamp)

    def frame(
        self,
        version: int | None = None,
        timestamp: datetime | str | None = None,
        *,
        memory: int = 1 << 30,
        lease: timedelta = timedelta(minutes=10),
    ) -> Frame:
        """Hold a version open, for many reads that see the same rows (docs/guides/reading.md).

        A column of a file is fetched once and stays in memory. ``frame.reframe()`` goes on to the newest version and
        keeps the columns of files that are still there. Use it in a ``with``: until it is closed, our vacuum keeps the
        version.

        :param version: of the table. Default: the newest.
        :param timestamp: the version that the table had at a time, with its zone; as text in ISO 8601. Default: as
            ``version`` says.
        :param memory: how many bytes of columns are kept in memory. Default: 1 GiB.
        :param lease: for how long a vacuum keeps the version after this process was killed; a minute or more. The
            frame renews it three times in this time. Default: ten minutes.
        :returns: the frame.
        :raises InvalidReadError: a parameter is wrong, or the version is said twice.
        :raises TableNotFoundError: there is no table.
        :raises ReadRefusedError: there is no such version, or files of it are gone.
        :raises VacuumAtWorkError: a vacuum is deleting files of the version.
        :raises UnsupportedFeatureError: the table has a feature that this version does not read.
        """
        from airflow_provider_onelake.maintenance.leases import Lease
        from airflow_provider_onelake.rows.frame import Frame

        def hold(held: int) -> Lease:
            taken = Lease.take(self.log, held, self.reader(), lease)
            taken.renew_by_thread()
            return taken

        return Frame(self.log, hold, version, timestamp, memory)

    def staged(self, buffer: str) -> Table:
        """Return what a writer has staged, as a table of its own that can only be read.

        :param buffer: its path in this table, as
            :class:`~airflow_provider_onelake.operators.staged.OneLakeStagedOperator` says it.
        :raises InvalidReadError: nothing is staged at such a path.
        """
        from airflow_provider_onelake.exceptions import InvalidReadError
        from airflow_provider_onelake.storage.addresses import STAGED_DIRECTORY

        if not buffer.startswith(f"{STAGED_DIRECTORY}/"):
            raise InvalidReadError(f"buffer={buffer!r}: what is staged lies below {STAGED_DIRECTORY}/ of {self.name}.")
        return attrs.evolve(
            self,
            address=self.address.child(buffer),
            shortcut=None,
            read_only="a writer's staged rows are its own",
            name=f"{self.name}/{buffer}",
        )

    def last_told(self, pattern: str) -> re.Match[str] | None:
        r"""Search what the table's commits say of themselves (``userMetadata``), from the newest backwards.

        So a task can remember in the table itself how far it has come: by a ``commit_message``, which is there exactly
        if the commit's rows are (docs/guides/follow.md). Commits that a RESTORE took back do not count.

        :param pattern: a regular expression, as in ``r"customers up to version (\d+)"``.
        :returns: the newest that matches; ``None`` if none does, or there is no table.
        :raises LogGapError: none matches as far as the log reaches back, or a RESTORE does not say to which version.
        """
        from airflow_provider_onelake.history.messages import newest_told

        return newest_told(self.log, pattern)

    def rehearsal(self) -> Committer:
        """Return what commits to a copy of the table in memory, and changes nothing in the store.

        It decides as :meth:`committer` does, but nothing follows a commit.
        """
        from airflow_provider_onelake.log.delta_log import DeltaLog
        from airflow_provider_onelake.storage.rehearsal import Rehearsal
        from airflow_provider_onelake.writes.publish import Committer

        store, stale = Rehearsal(self.log.store), self.iceberg_may_be_stale
        return Committer(DeltaLog(store, self.name, address=str(self), iceberg_may_be_stale=stale))

    def spark_access(self) -> SparkAccess:
        """Return what a Spark application needs to reach the table: settings, an environment with secrets, packages.

        :raises CredentialsError: the sign-in is of a kind that Spark cannot use.
        """
        from airflow_provider_onelake.storage.spark import spark_access

        return spark_access(self.address, self.credentials, self.patience)

    def page(self) -> str | None:
        """Return the address of the table's page: the connection's ``table_page``, or in the store's console.

        In ``table_page`` stand names in braces: ``{table}`` (the table's address), ``{authority}`` (workspace,
        container with account, or bucket), ``{path}`` (the path below that) and ``{name}`` (its last part).

        :returns: ``None`` where none is known.
        :raises InvalidWriteError: ``table_page`` is malformed, or would put a secret into a link.
        """
        from airflow_provider_onelake.storage.console import filled

        at = self.address
        if template := self.setting("table_page"):
            names = {"table": str(at), "authority": at.authority, "path": at.path.lstrip("/"), "name": at.name}
            return filled(template, names)
        # With an endpoint, the store is not AWS's, so its console is unknown.
        if self.setting("endpoint") is not None:
            return None
        page = at.kind.table_page(at, self.setting("region"))
        # The portal's addresses need GUIDs.
        other = self.other_address if page is None else None
        return page if other is None else other.kind.table_page(other, None)
