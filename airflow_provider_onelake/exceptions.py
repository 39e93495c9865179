"""The errors of this package, grouped by what the caller should do about them.

:class:`TerminalError` means that trying again changes nothing: a person has to act, and the message says how.
:class:`TransientError` means that the same call may succeed later. Every message names the table, the version or
the writer that it is about, and what is safe to do next.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_PAGE = "docs/operate/errors.md"


class OneLakeError(Exception):
    """The root of all errors that this package raises on purpose."""


class TerminalError(OneLakeError):
    """Trying again changes nothing; a person has to act."""


class TransientError(OneLakeError):
    """The same call may succeed later."""


# -- addresses and stores ------------------------------------------------------------------------------------------


class AddressError(TerminalError):
    """An address of a table is malformed, ambiguous, or lies outside the connection's lakehouse."""


class CredentialsError(TerminalError):
    """A connection's way to sign in is incomplete, contradictory or no JSON object, or needs a package's extra."""


class StoreNotFoundError(TerminalError):
    """There is no bucket, container or workspace at the address."""


class AccessDeniedError(TerminalError):
    """The store refused the credentials, or they do not allow the operation."""


class StoreRefusedError(TerminalError):
    """The store refused a request as wrong, for a reason that the message gives in the store's own words."""


class ShortcutRefusedError(TerminalError):
    """A shortcut is not made: something else is at its place, or its target is not there or may not be one."""


class ShortcutError(TerminalError):
    """An address leads through a shortcut that is broken or circular, hides its target, or only lets itself be read.

    Or a check of a shortcut finds none, or one that leads elsewhere.
    """


class ObjectNotFoundError(OneLakeError):
    """There is no object at the path. This is part of the store's interface, not a failure in itself."""


class ObjectExistsError(OneLakeError):
    """A create-only put met an object at its path. This is part of the store's interface, not a failure in itself."""


class UnsafeStoreError(TerminalError):
    """The store lets a second create-only put through, so two committers could overwrite each other's commits."""


class StoreUnavailableError(TransientError):
    """The store did not answer, or answered with an error that may pass. A put may still have taken effect."""


class ConnectionUnavailableError(TransientError):
    """Airflow does not give a connection: it is not defined, or the service that stores it did not answer."""


class StoreFullError(TerminalError):
    """The store has no room left, or is read-only."""


# -- the log -------------------------------------------------------------------------------------------------------


class TableNotFoundError(TerminalError):
    """There is no Delta table at the address."""


class LogGapError(TerminalError):
    """A version of the log is missing while a later one, or a checkpoint, exists (protocol: log gap)."""


class CorruptLogError(TerminalError):
    """A log entry cannot be read as Delta actions."""


class MissingStatisticsError(TerminalError):
    """Rows are to be counted, but the statistics of some files do not say how many rows they hold."""


class UnsupportedFeatureError(TerminalError):
    """The table uses a protocol feature that is not on the allow-list."""


class TablePropertyError(TerminalError):
    """A property of the table has a value that cannot be read, or is to be changed in a way that is refused."""


# -- reading ------------------------------------------------------------------------------------------------------


class InvalidReadError(TerminalError):
    """A parameter of a read is wrong: an unknown column, a condition that means nothing, two ways to say a version."""


class ReadRefusedError(TerminalError):
    """Rows cannot be read: there is no such version, or a file of it is gone, damaged, or outside of the table."""


# -- staging -------------------------------------------------------------------------------------------------------


class InvalidWriteError(TerminalError):
    """A parameter of a write is wrong: an unknown mode, a predicate on a column that is no partition column, …."""


class DuplicateWriterError(TerminalError):
    """Two writers of one run have the same key."""


class OrphanWriterError(TerminalError):
    """The run published rows under a writer's name that no task has any more, so appending may double the rows."""


class RerunRefusedError(TerminalError):
    """The rerun is refused, because what ``on_rerun`` asks for would lose or repeat rows.

    Protocol: generation, skip only what is there, take back whole, no expiring txn.
    """


class BufferIncompleteError(TransientError):
    """The buffer has no version 1 yet, or no verdict of its checks, so a retry must stage or check its rows."""


class BufferSetAsideError(TransientError):
    """A buffer was closed while its writer worked, so it is never published. A retry stages the rows again."""


class BufferLostError(TerminalError):
    """Files of a complete buffer are gone, or too old to be published safely (protocol: complete, young)."""


class BufferInvalidError(TerminalError):
    """A buffer holds something that an ordinary append does not leave behind (protocol: exactly version 1)."""


class UnexpectedRowsError(TerminalError):
    """A writer produced rows outside of its ``expected_partitions``, and ``on_unexpected_rows`` is ``refuse``."""


class ChecksFailedError(TerminalError):
    """Staged rows fail a check of their writer, and ``on_failed_check`` is ``refuse``."""


class AuditRefusedError(TerminalError):
    """An audit of a load did not agree to its staged rows, or has not looked at all of them."""


class SchemaMismatchError(TerminalError):
    """The rows do not have the columns or types of the table."""


class ConstraintViolatedError(TerminalError):
    """A row violates NOT NULL, a CHECK constraint (also one to be added) or a generation expression of the table."""


# -- planning ------------------------------------------------------------------------------------------------------


class PlanError(TerminalError):
    """A source cannot be divided over writers as requested."""


class SourceGrewError(TerminalError):
    """A writer's source has grown beyond its ``max_bytes`` since it was planned."""


class SourceChangedError(TerminalError):
    """A writer's file has changed or is gone since a plan of new files gave it to the writer."""


# -- commit --------------------------------------------------------------------------------------------------------


class BufferDoesNotFitError(TerminalError):
    """The table changed since staging in such a way that the buffer's files no longer fit.

    Protocol: compatible definition.
    """


class ConflictError(TerminalError):
    """Others' commits stand in the way of a write or a statement. Each kind of conflict is a class below this one.

    Raised as it is where a winner (a commit after the read version) changed what a write replaces, and the policy is
    ``fail``.
    """


class OutOfDateError(ConflictError):
    """Staged rows came too late, as others have changed the table since. Rows that are staged anew can be published.

    A writer's own task stages them anew, a few times. So this reaches people where it did not help, or where nobody
    could: in a reconciliation, which runs no Spark.
    """


class RoundsUsedUpError(ConflictError):
    """Others changed in every round of Spark what a statement may concern. Nothing was changed."""


class UnknownCommitsError(ConflictError):
    """The log no longer has all commits since a write was formed, so nobody knows whether one is in conflict."""


class MixedRowsError(ConflictError):
    """A file that a write would remove may hold rows of the load's other writers, as it was compacted or rewritten."""


class TwoWorksError(ConflictError):
    """Two attempts of one writer staged different work at the same time, and nobody can tell which is wanted."""


class BroughtBackError(ConflictError):
    """A RESTORE since a plan of new files was made may have brought back the rows of a writer's files."""


class RowsSetAsideError(TerminalError):
    """Rows are not in the table as the policy counts another write more, and ``on_set_aside`` is ``fail``."""


class ZombieWriterError(TerminalError):
    """A newer generation of the same writer has taken over (protocol: generation)."""


class CommitContentionError(TransientError):
    """Other committers were faster in every attempt that was allowed. The buffer can still be published."""


class StatementRefusedError(TerminalError):
    """A DELETE, UPDATE, TRUNCATE or ALTER is refused: the table is not one to which it can be done, or not any more."""


class RestoreRefusedError(TerminalError):
    """A table is not taken back to an older version: that would lose rows nobody asked to lose, or files are gone."""


class MissingWritersError(TerminalError):
    """Reconcile found writers of the run without a complete buffer."""


class RowsRestoredAwayError(TerminalError):
    """A RESTORE took back rows that a load had published."""


class ReconciliationMismatchError(TerminalError):
    """Rows committed do not equal rows staged, or a file is in the table twice."""


# -- maintenance ---------------------------------------------------------------------------------------------------


class UnhealthyTableError(TerminalError):
    """A look at a table found what its author asked to be told of by a red task. Nothing was changed."""


class VacuumRefusedError(TerminalError):
    """A VACUUM is refused: it could delete what is still needed, or was asked to keep what is gone."""


class VacuumAtWorkError(TransientError):
    """A version cannot be kept yet, as a vacuum is deleting files of it."""


# -- after a commit ------------------------------------------------------------------------------------------------


class RefreshFailedError(TransientError):
    """A refresh of a semantic model or of a SQL endpoint failed, was cancelled or took too long. It can be repeated."""


class RefreshRefusedError(TerminalError):
    """Fabric or Power BI does not refresh a semantic model or a SQL endpoint: it is not there, or it may not be."""


class GuardrailError(TerminalError):
    """A table is too large, or in too many files, for Direct Lake on the capacity. Nothing was refreshed."""


# -- Spark ---------------------------------------------------------------------------------------------------------


class SparkUnavailableError(TransientError):
    """No Spark answers at the connection's address, or it went away during the work."""


class SparkSetUpError(TerminalError):
    """Spark lacks something that the job needs: Delta Lake's JARs, a store's JARs, or a way to be started at all."""


class SparkJobError(TransientError):
    """The Spark job failed for a reason that may pass: a lost executor, a fetch failure, …."""


class SparkQueryError(TerminalError):
    """Spark refuses the query: a syntax error, an unknown column or table, an unreadable source."""


class SparkJobTimeoutError(TransientError):
    """The Spark job ran longer than it was allowed to, and was stopped."""


def with_page(error: OneLakeError, where: Mapping[str, str] | None = None) -> str:
    """Return an error's message as a person is to read it, with its point first.

    At its end it says where the tables in it are, and where the docs say more of errors of its class. This is for the
    last one who shows the error to a person: a message may stand in the middle of another one.

    :param error: of a class of this module, or derived from one.
    :param where: the addresses of tables, by what messages call them. Default: none is known.
    """
    name = next(kind.__name__ for kind in type(error).__mro__ if kind.__module__ == __name__)
    pointer = f"More: {_PAGE}#{name.lower()}"
    said = str(error)
    if said.endswith(pointer):
        return said
    # Spark's words may end with lines of SQL.
    between = "\n" if "\n" in said else " "
    # Not where the name ends an address, or stands in quotes, which show what somebody wrote.
    there = [
        f"{table} is {address}."
        for table, address in (where or {}).items()
        if re.search(rf"(?<!['\w/]){re.escape(table)}(?![\w-])", said)
    ]
    return between.join([said, *there, pointer])


def causes_of(error: BaseException | None, *, hidden: bool = False) -> Iterator[BaseException]:
    """Yield an error and what led to it, as a traceback shows them.

    :param error: the outermost error.
    :param hidden: whether to yield also what ``raise … from None`` hides from a traceback. pyspark raises a server's
        errors so, sometimes with an empty message, and then only the hidden error says what happened.
    """
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or (error.__context__ if hidden or not error.__suppress_context__ else None)
