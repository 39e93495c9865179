"""What a writer leaves in XCom, as types: a DAG that reads a result is checked by them, and knows its keys."""

from __future__ import annotations

from typing import NotRequired, TypedDict


class CheckResult(TypedDict):
    """What one check said of a writer's rows."""

    name: str
    """The check's name."""
    sql: str
    """The condition."""
    passed: bool
    """Whether the rows meet the check."""
    done: NotRequired[str]
    """What was done with the rows if they failed: ``refused`` or ``warned``."""
    each_row: bool
    """Whether the check is about each row, or about all of them together."""
    failed: int | None
    """How many rows do not meet it."""
    met: bool | None
    """What the condition is; ``None`` for NULL."""
    found: NotRequired[str]
    """What was compared, of a :func:`~airflow_provider_onelake.checks.rows_like_last`."""


class WriterResult(TypedDict):
    """Whose result it is: the parts of the writer's identity, and where it writes."""

    writer: str
    """The writer's key."""
    dag: str
    """The DAG's id, or the group's ``load_name``."""
    group: str
    """The id of the closest write group, else of the closest task group, else of the task."""
    run: str
    """The run's name in the table's log."""
    task: str
    """The task's label."""
    table: str
    """The table's address."""
    mode: str
    """The mode's name, such as ``append``."""


class SkippedResult(WriterResult):
    """Of a writer that staged nothing, because its rows are in the table already."""

    status: str
    """``skipped``."""
    version: int | None
    """The table's version that holds the rows."""
    reason: str
    """Why the writer was skipped."""
    left_out: list[str]
    """The decisions by which all rows were left out."""


class BufferResult(WriterResult):
    """What every writer says that has staged rows."""

    status: str
    """What became of the rows, in a word."""
    version: int | None
    """The table's version that holds the rows."""
    rows: int | None
    """The rows that were staged; ``None`` without statistics, as for all counts of rows."""
    files: int
    """The files that were staged."""
    bytes: int
    """The size of these files."""
    partitions: list[str]
    """The partitions that were staged, at most 50."""
    finished: str
    """When Spark had appended the rows, for those of a shared scan into the scan, in ISO format."""
    buffer: str
    """The path of the buffer below the table."""
    read_version: int
    """The version of the table that the write was formed on."""
    reads_target: bool
    """Whether the job read the table that it writes."""
    reused: bool
    """Whether the buffer was there already."""
    reruns: int
    """How often the job ran again."""
    without_rows: NotRequired[str]
    """Where the source gave no row: that, and what was not replaced because of it."""
    checks: NotRequired[list[CheckResult]]
    """What the checks said, of a writer that has some."""


class StagedResult(BufferResult):
    """Of a writer that did not try to publish: ``staged`` with ``publish="together"``, or ``refused`` by a check."""

    left_out: NotRequired[list[str]]
    """Empty, of a task that failed because its rows fail a check."""


class PublishedResult(BufferResult):
    """Of a writer that published its rows itself, or tried to.

    Its status is ``published``, ``already_published``, ``superseded``, ``set_aside`` or ``nothing_to_do``.
    """

    left_out: list[str]
    """The decisions by which all rows were left out."""
    decisions: list[str]
    """How conflicts were settled."""
    lost_races: int
    """Puts that met another commit at the same version."""
    rows_published: int | None
    """The rows that the commit added."""
    files_removed: int | None
    """The files that the commit removed."""
    rows_unexpected: int | None
    """Rows that ``expected_partitions`` left out."""


class MergedResult(BufferResult):
    """Of a writer whose mode is a ``Merge``: ``published``, ``already_published`` or ``nothing_to_do``."""

    left_out: list[str]
    """Always empty."""
    rows_inserted: int | None
    """The rows that the merge inserted."""
    rows_updated: int | None
    """The rows that the merge updated."""
    rows_deleted: int | None
    """The rows that the merge deleted."""
    files_removed: int | None
    """The files that the commit removed."""
    files_added: int | None
    """The files that the commit added."""
    rounds: int
    """How many times Spark ran the merge."""
    lost_races: int
    """Puts that met another commit at the same version."""
    decisions: list[str]
    """Always empty."""


WriteResult = SkippedResult | StagedResult | PublishedResult | MergedResult
"""What a :class:`~airflow_provider_onelake.operators.write.OneLakeWriteOperator` leaves in XCom."""
