"""The errors of this package, grouped by what the caller should do about them.

:class:`TerminalError` means that trying again changes nothing: a person has to act, and the message says how.
:class:`TransientError` means that the same call may succeed later. Every message names the table, the version or
the writer that it is about, and what is safe to do next. docs/reference/errors.md is made of the docstrings here.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_PAGE = "docs/reference/errors.md"


class OneLakeError(Exception):
    """The root of all errors that this package raises on purpose. Each says what happened and what to do."""


class TerminalError(OneLakeError):
    """Trying again changes nothing; a person has to act. Several errors at once are raised as this class itself."""


class TransientError(OneLakeError):
    """The same call may succeed later. Airflow retries the task as often as its ``retries`` say."""


# -- addresses and stores ------------------------------------------------------------------------------------------


class AddressError(TerminalError):
    """An address is malformed or ambiguous, or lies outside the connection's lakehouse.

    Nothing was changed. Correct the address, or the connection's ``lakehouse``; docs/operate/stores.md has the forms.
    """


class CredentialsError(TerminalError):
    """A connection's way to sign in is incomplete, contradicts itself, or needs an extra that is not installed.

    No store was asked. Correct the connection, whose own extra must be a JSON object (docs/operate/stores.md).
    """


class StoreNotFoundError(TerminalError):
    """There is no bucket, container or workspace at the address. Nothing was written: correct the address."""


class AccessDeniedError(TerminalError):
    """The store, Fabric or Spark refused the sign-in, or the identity lacks a right, which the message names.

    The refused request wrote nothing. Give the identity the right, or correct the connection, and clear the task.
    In OneLake, ``onelake access TABLE`` says which step decided (docs/operate/onelake.md).
    """


class StoreRefusedError(TerminalError):
    """The store refused a request as wrong, for a reason that the message gives in the store's own words.

    It is also raised for a name that no listing can show, and for a directory where a file is to be. What was staged
    or published stays. Do what the words ask for.
    """


class ShortcutRefusedError(TerminalError):
    """A shortcut is not made: something else is at its place, or its target is not there or may not be one.

    Nothing was made. Fabric's own words in the message say which.
    """


class ShortcutError(TerminalError):
    """An address leads through a shortcut that is broken or circular, hides its target, or only lets itself be read.

    A check of a shortcut raises it too, where there is none or where it leads elsewhere. Nothing was done. The message
    names the shortcut, and says what to do.
    """


class ObjectNotFoundError(OneLakeError):
    """There is no object at the path. This is part of the store's interface, not a failure in itself."""


class ObjectExistsError(OneLakeError):
    """A create-only put met an object at its path. This is part of the store's interface, not a failure in itself."""


class UnsafeStoreError(TerminalError):
    """The store lets a second create-only put through, so two committers could overwrite each other's commits.

    A mount without hard links is refused too. Nothing was published. Use a store that honours conditional puts.
    """


class StoreUnavailableError(TransientError):
    """The store did not answer, or answered with an error that may pass.

    A put may have taken effect all the same. The next try finds it, and does nothing twice.
    """


class ConnectionUnavailableError(TransientError):
    """Airflow does not give a trigger its connection: there is none, or the service that stores it is away.

    Nothing was changed. Define the connection, and clear the task; a watcher asks again by itself.
    """


class StoreFullError(TerminalError):
    """The store has no room left, or is read-only. Nothing was published: make room, and clear the task."""


# -- the log -------------------------------------------------------------------------------------------------------


class TableNotFoundError(TerminalError):
    """There is no Delta table at the address.

    Nothing was changed. Correct the table's name. After a load, the writers' own logs say why none of them made it.
    """


class LogGapError(TerminalError):
    """A version of the log is missing while a later one, or a checkpoint, exists (protocol: log gap).

    It is also raised where the log does not reach back to what is asked for. Nothing was changed. Bring back the
    entries that somebody deleted, or ask for a later version.
    """


class CorruptLogError(TerminalError):
    """A log entry or a checkpoint cannot be read as Delta actions, or says what no table may say.

    Nothing was changed. Look at the file that the message names: somebody damaged it, or an engine wrote it wrongly.
    """


class MissingStatisticsError(TerminalError):
    """Rows are to be counted, and some files do not say how many they hold. Compute statistics, and clear the task."""


class UnsupportedFeatureError(TerminalError):
    """The table uses a feature that is not on the allow-list, so it might be damaged or read wrongly.

    Nothing was changed. docs/concepts/tables.md has the list, and what the connection may allow.
    """


class TablePropertyError(TerminalError):
    """A property of the table has a value that cannot be read, or is to be changed in a way that is refused.

    Nothing was changed. The message names the property, and says what to do.
    """


# -- reading ------------------------------------------------------------------------------------------------------


class InvalidReadError(TerminalError):
    """A parameter of a read, a frame or a kept version is wrong. Nothing was read: do what the message says."""


class ReadRefusedError(TerminalError):
    """Rows cannot be read: there is no such version, or a file of it is gone, damaged, or outside of the table.

    It is also raised for dates in Spark 2's calendar, and for a frame that is closed or has lost its version. Batches
    that were returned before are right. Read a later version, or keep one by a frame (docs/guides/reading.md).
    """


# -- staging -------------------------------------------------------------------------------------------------------


class InvalidWriteError(TerminalError):
    """A parameter is wrong, or parameters contradict each other. Nothing was changed: fix the DAG or the command."""


class DuplicateWriterError(TerminalError):
    """Two writers of one run have the same key. The first carries on: give each its own, and clear the second."""


class OrphanWriterError(TerminalError):
    """Rows were published under a name that no task has any more, so appending may double them.

    A writer, a task, a group or a DAG was renamed. Nothing is added. Give the old name back (a DAG's by
    ``load_name``), or delete the old rows and clear the task.
    """


class RerunRefusedError(TerminalError):
    """The rerun is refused, because what ``on_rerun`` asks for would lose or repeat rows.

    What was published stays, and nothing is added. Reconcile counts the writer as missing, so the run is red until a
    try of the writer ends well. docs/concepts/reruns.md has every case.

    Protocol: generation, skip only what is there, take back whole, no expiring txn.
    """


class BufferIncompleteError(TransientError):
    """A writer's Spark job ended, or was lost, before all rows were staged and its checks were evaluated.

    Nothing of the writer was published. The next try stages the rows again, or checks them.
    """


class BufferSetAsideError(TransientError):
    """A buffer was closed while its writer worked, as by a clear. The next try stages the rows again."""


class BufferLostError(TerminalError):
    """Files of a complete buffer are gone, or too old to be published safely (protocol: complete, young).

    Nothing of it was published. Clear the writer that the message names, and give VACUUM a longer retention.
    """


class BufferInvalidError(TerminalError):
    """A buffer holds something that an ordinary append does not leave behind (protocol: exactly version 1).

    It is also raised for a claim, and for the result of a compaction. The object is damaged, of another release, or was
    changed by somebody. It is left alone, and nothing of it is published. Do what the message says: mostly, clear the
    writer.
    """


class UnexpectedRowsError(TerminalError):
    """A writer's rows lie outside of its ``expected_partitions``, or outside of the ``covers`` of its MERGE.

    Nothing of the writer was published. Fix the source or the parameter, and clear the writer.
    """


class ChecksFailedError(TerminalError):
    """Staged rows fail a check of their writer, and ``on_failed_check`` is ``refuse``.

    Nothing of the writer was published; with ``publish="together"``, nothing of its load was. The message says where
    the rows lie. Correct the source or the check, and clear the writer with its downstream tasks.
    """


class AuditRefusedError(TerminalError):
    """An audit of a load did not agree to its staged rows, or has not looked at all of them.

    Nothing of the load was published; its rows stay staged. Clear the audit with its downstream tasks, or correct the
    source and clear the writers with theirs.
    """


class SchemaMismatchError(TerminalError):
    """The rows do not have the columns or types of the table. The message names every difference.

    Nothing of the writer was published. Fix the source, or cast in a step. ``schema_evolution="add_columns"`` adds new
    columns, and ``OneLakeAlterOperator`` widens types.
    """


class ConstraintViolatedError(TerminalError):
    """A row violates NOT NULL, a CHECK constraint (also one to be added) or a generation expression of the table.

    It is also raised where the source of a MERGE has a key twice, or NULL in a key. Nothing was published or changed.
    Correct or delete these rows, and clear the task.
    """


# -- planning ------------------------------------------------------------------------------------------------------


class PlanError(TerminalError):
    """A source cannot be divided over writers as requested. Nothing was planned: do what the message says."""


class SourceGrewError(TerminalError):
    """A writer's files have grown beyond ``max_bytes`` of their plan. Nothing was staged: clear plan and writers."""


class SourceChangedError(TerminalError):
    """A writer's file has changed or is gone since a plan of new files gave it to the writer.

    Nothing of the writer was published. Clear the plan with its downstream tasks.
    """


# -- commit --------------------------------------------------------------------------------------------------------


class BufferDoesNotFitError(TerminalError):
    """The table changed since staging in such a way that the buffer's files no longer fit.

    Nothing of the writer was published. Clear the writer: it stages its rows for the table as it is now.

    Protocol: compatible definition.
    """


class ConflictError(TerminalError):
    """Another commit changed what a write replaces, and the policy is ``fail``.

    Nothing of the write was published. Clear the writer, which then replaces these rows, or give writers partitions of
    their own. Each other kind of conflict has a class of its own.
    """


class OutOfDateError(ConflictError):
    """Staged rows came too late, as others have changed the table since.

    Nothing of the writer was published. A writer's own task stages such rows anew, three times at most; reconcile runs
    no Spark, and cannot. Clear the writer.
    """


class RoundsUsedUpError(ConflictError):
    """Others changed in every round of Spark what a statement may concern.

    Nothing was changed. Clear the task when fewer writers are at work, give ``covers``, or raise ``max_rounds``.
    """


class UnknownCommitsError(ConflictError):
    """The log no longer has all commits since a write was formed, so nobody knows whether one is in conflict.

    Nothing was published. Clear the writer.
    """


class MixedRowsError(ConflictError):
    """A file that a write would remove may hold rows of the load's other writers, as it was compacted or rewritten.

    Nothing was published. Clear all writers of the load.
    """


class TwoWorksError(ConflictError):
    """Two attempts of one writer staged different work at one time. Neither was published: clear the writer."""


class BroughtBackError(ConflictError):
    """A RESTORE since a plan of new files was made may have brought back the rows of a writer's files.

    Nothing was published. Clear the plan with its downstream tasks.
    """


class RowsSetAsideError(TerminalError):
    """Rows are not in the table as the policy counts another write more, and ``on_set_aside`` is ``fail``.

    All else is settled and published. Clear the writer, or mark the task as successful to leave the rows out.
    """


class ZombieWriterError(TerminalError):
    """A newer generation of the same writer has taken over (protocol: generation).

    It is raised for statements, and for tasks that keep a version, too. Nothing of the old process is published, and
    the newer start carries on. There is nothing to do, unless the message says so.
    """


class CommitContentionError(TransientError):
    """Other committers were faster in every attempt that was allowed. What is staged stays: the next try goes on."""


class StatementRefusedError(TerminalError):
    """A DELETE, UPDATE, TRUNCATE, MERGE or ALTER cannot be done to the table, or not any more.

    Nothing was changed. The table is append-only, was made again or changed meanwhile, or has more files than a
    statement looks at; or nobody knows whether a RESTORE took back what an earlier try did. Do what the message says.
    """


class RestoreRefusedError(TerminalError):
    """A table is not taken back to an older version: that would lose rows nobody asked to lose, or files are gone.

    Nothing was changed. The message says which, and what would help.
    """


class MissingWritersError(TerminalError):
    """Writers of the load left no complete buffer, or staged a MERGE and did not do it.

    The others are published, or nothing is, as ``on_missing_writer`` asks. Fix what the writers' own logs say, and
    clear them with their downstream tasks.
    """


class RowsRestoredAwayError(TerminalError):
    """A RESTORE took back rows that a load had published.

    This task changed nothing. Clear the writer to publish them again, or mark the task as successful to leave them out.
    """


class ReconciliationMismatchError(TerminalError):
    """Rows committed do not equal rows staged, or a file is in the table twice.

    Look at the table before anybody reads it. ``onelake restore`` or ``OneLakeRestoreOperator`` takes the version back.
    """


# -- maintenance ---------------------------------------------------------------------------------------------------


class UnhealthyTableError(TerminalError):
    """A look at a table found what ``fail_on`` names. Nothing was changed: each finding says what to do."""


class VacuumRefusedError(TerminalError):
    """A VACUUM is refused: it could delete what is still needed, or was asked to keep what is gone.

    Nothing was deleted. The message says what is needed, and by whom.
    """


class VacuumAtWorkError(TransientError):
    """A version cannot be kept or restored yet, as a vacuum deletes its files, or a committer its log.

    Nothing was changed. The next try sees what is left.
    """


# -- after a commit ------------------------------------------------------------------------------------------------


class RefreshFailedError(TransientError):
    """A refresh of a semantic model or of a SQL endpoint failed, was cancelled or took too long.

    The table is as it was. The next try asks for another refresh.
    """


class RefreshRefusedError(TerminalError):
    """Fabric or Power BI does not refresh a semantic model or a SQL endpoint: it is not there, or it may not be.

    The table is as it was. The message says why, mostly in Fabric's own words.
    """


class GuardrailError(TerminalError):
    """A table is too large, or in too many files, for Direct Lake on the capacity.

    Nothing was refreshed. Compact the partitions that the message and the XCom ``guardrails`` name, and clear the task.
    """


# -- Spark ---------------------------------------------------------------------------------------------------------


class SparkUnavailableError(TransientError):
    """No Spark answers at the connection's address, or it went away during the work.

    The table is unchanged, and what was staged completely stays. Start Spark, or correct the connection.
    """


class SparkSetUpError(TerminalError):
    """Spark lacks what the job needs: Delta Lake's JARs, a store's JARs or credentials, or a way to be started.

    The table is unchanged. The message names what is missing; docs/operate/spark.md says what each way needs.
    """


class SparkJobError(TransientError):
    """The Spark job failed for a reason that may pass. The table is unchanged, and the next try starts again."""


class SparkQueryError(TerminalError):
    """Spark refuses the query or an ALTER TABLE: a syntax error, an unknown column or table, an unreadable source.

    The table is unchanged. Fix what Spark's own words name, and clear the task.
    """


class SparkJobTimeoutError(TransientError):
    """The Spark job ran longer than ``spark_timeout``. The table is unchanged: raise it, or divide the work."""


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
