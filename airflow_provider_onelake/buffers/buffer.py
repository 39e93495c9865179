"""A buffer: the target's twin, nested in the target's directory (docs/concepts/how-it-works.md).

staged/<writer>/<attempt>/_delta_log/0    protocol and metaData of the target; what the writer promised
staged/<writer>/<attempt>/….parquet       written by an ordinary Spark append
staged/<writer>/<attempt>/_delta_log/1    exists if and only if all rows are staged
staged/<writer>/<attempt>/_checked.json   of a writer with checks: what they say. Before it is there, the buffer is not
                                          complete
staged/<writer>/<attempt>/_closed.json    published or set aside: never to be published again
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

import attrs

from airflow_provider_onelake.buffers.layout import is_share, writer_directory
from airflow_provider_onelake.buffers.reads import WHOLE, Reads
from airflow_provider_onelake.buffers.spec import WriteSpec
from airflow_provider_onelake.buffers.statistics import INDEXED_COLUMNS, indexed_columns
from airflow_provider_onelake.buffers.verdict import Verdict, read_verdict, write_verdict
from airflow_provider_onelake.checks import is_gone
from airflow_provider_onelake.choices import GONE, OnFailedCheck
from airflow_provider_onelake.exceptions import (
    BufferIncompleteError,
    BufferInvalidError,
    BufferLostError,
    ChecksFailedError,
    CorruptLogError,
    InvalidWriteError,
    ObjectExistsError,
    ObjectNotFoundError,
)
from airflow_provider_onelake.log.actions import (
    Action,
    Add,
    CommitInfo,
    Metadata,
    StagedRecord,
    dump_actions,
    object_path,
    of_kind,
    total_rows,
    version_path,
)
from airflow_provider_onelake.log.commits import FORMAT, STAGED, Commit, PublishedWriter
from airflow_provider_onelake.log.schema import partition_columns
from airflow_provider_onelake.log.snapshot import NO_VERSION
from airflow_provider_onelake.storage.clock import milliseconds
from airflow_provider_onelake.texts import rows_in_words

if TYPE_CHECKING:
    from airflow_provider_onelake.log.delta_log import DeltaLog
    from airflow_provider_onelake.log.snapshot import Snapshot
    from airflow_provider_onelake.storage.clock import Clock
    from airflow_provider_onelake.storage.stores import ObjectInfo, Store

_AGAIN = "Nothing was published: clear the writer's task to stage its rows again."

# Key in the userMetadata of version 1, where Spark's append records facts for us. They are there from the instant in
# which the buffer is complete.
USER_METADATA = "onelake"

NOT_TWINNED = (
    # Properties that start work of their own would add versions to the twin (protocol: exactly version 1).
    "delta.autoOptimize.autoCompact",
    "delta.autoOptimize.optimizeWrite",
    "delta.autoOptimize",
    "delta.universalFormat.enabledFormats",
    # Spark would write manifests of the twin into the twin.
    "delta.compatibility.symlinkFormatManifest.enabled",
    # A twin has in-commit timestamps from its first version on, so it needs no record of when they began.
    "delta.inCommitTimestampEnablementVersion",
    "delta.inCommitTimestampEnablementTimestamp",
)

_SAME: Mapping[str, str] = {}


def lifetime(retention_days: float) -> timedelta:
    """Return how long after its oldest file was written a buffer or a compaction may be published (protocol: young).

    :param retention_days: of the table's deleted files.
    """
    return timedelta(days=retention_days) / 2


@attrs.frozen
class OpenBuffer:
    """A buffer's version 0: what the writer promised, and the table that it was promised to.

    :param path: relative to the table.
    :param read_version: the version of the table that the writer's intent was formed on.
    :param table_id: the table's id at that version (protocol: same table).
    :param read_time: when the entry of that version came into the store; ``None`` where the write replaces nothing, or
        there was no table. A table that was copied has other times.
    :param scanned: when Spark had staged the rows in a shared scan; ``None`` for rows that were staged here.
    :param metadata: the table's metadata at that version, but for what is another in its twin.
    :param indexed_columns: how many leaf columns get statistics from the footers of the files when they are published;
        ``None`` where Spark writes the statistics.
    """

    path: str
    spec: WriteSpec
    read_version: int
    table_id: str
    metadata: Metadata = attrs.field(repr=False)
    indexed_columns: int | None = attrs.field(default=None, kw_only=True)
    read_time: datetime | None = attrs.field(default=None, kw_only=True)
    scanned: datetime | None = attrs.field(default=None, kw_only=True)


@attrs.define(slots=False, frozen=True)
class Buffer(OpenBuffer):
    """A buffer whose rows are staged. It is complete, unless it is ``unchecked``.

    :param adds: its ``add`` actions, as Spark wrote them.
    :param finished: when Spark's append had ended that wrote the rows, by the store's clock. A verdict comes later.
    :param oldest: the store's time of its oldest file; ``None`` for an empty buffer.
    :param reads_target: whether the rows were computed from the table itself (protocol: reads its target).
    :param reads: the part of the table that they were computed from; ``None`` where nobody knows which.
    :param verdict: what the writer's checks say of the rows; ``None`` where there are no checks, or no verdict yet.
    """

    adds: tuple[Add, ...] = attrs.field(repr=False)
    finished: datetime
    oldest: datetime | None
    reads_target: bool = False
    reads: Reads | None = None
    verdict: Verdict | None = None

    @property
    def computed_from(self) -> str | None:
        """The partitions of its own table that its rows were computed from, as a predicate; ``None`` for none."""
        if not self.reads_target:
            return None
        return WHOLE if self.reads is None else self.reads.where

    @property
    def unchecked(self) -> bool:
        """Whether the checks of the writer were not evaluated yet (protocol: audited)."""
        return bool(self.spec.checks) and self.verdict is None

    @property
    def refused(self) -> bool:
        """Whether the rows fail a check, so that the buffer is never published (protocol: audited)."""
        failed = self.verdict is not None and bool(self.verdict.failed)
        return failed and self.spec.on_failed_check is not OnFailedCheck.WARN

    def refusal(self, log: DeltaLog) -> ChecksFailedError:
        """Return the error of a buffer that is refused.

        :param log: of the table.
        """
        assert self.verdict is not None
        failed, rows = self.verdict.failed, self.verdict.rows
        return ChecksFailedError(
            f"The {rows_in_words(rows)} of writer {self.spec.identity.key!r} for {log.table} fail "
            f"{len(failed)} of {len(self.verdict.results)} checks: {'; '.join(map(str, failed))}. Nothing of the "
            f"writer was published. To look at the rows, read the Delta table '{log.address}/{self.path}', until a "
            f"VACUUM takes it. Then correct the source or the check, and clear {self.spec.task or 'the writer'} with "
            "its downstream tasks."
        )

    @cached_property
    def rows(self) -> int | None:
        """Rows staged, ``None`` where statistics do not say."""
        return total_rows(self.adds)

    def record(self, rows: int | None, **more: Any) -> PublishedWriter:
        """Return what the commit that publishes the buffer records of it.

        :param rows: how many rows come into the table; ``None`` where statistics do not say.
        :param more: other fields of the record.
        """
        spec = self.spec
        return PublishedWriter(
            app_id=spec.identity.app_id,
            writer=spec.identity.key,
            generation=spec.generation,
            buffer=self.path,
            finished=self.finished,
            rows=rows,
            fingerprint=spec.fingerprint,
            reads=self.computed_from,
            staged=self.rows if self.rows != rows else None,
            source=spec.source,
            **more,
        )

    @property
    def bytes(self) -> int:
        """Bytes of the staged files."""
        return sum(int(add["size"]) for add in self.adds)

    @property
    def files(self) -> int:
        """How many files were staged."""
        return len(self.adds)

    def check_age(self, now: datetime, retention_days: float) -> None:
        """Refuse a buffer that a VACUUM may already have listed for deletion (protocol: young).

        :param retention_days: of the table's deleted files.
        :raises BufferLostError: the oldest file is older than half of the retention.
        """
        if self.oldest is not None and now - self.oldest >= lifetime(retention_days):
            raise BufferLostError(
                f"The buffer {self.path} of writer {self.spec.identity.key!r} is older than half of the table's "
                f"retention of {retention_days:g} days, so a VACUUM may be about to delete its files. Nothing was "
                f"published: stage it again by clearing {self.spec.task or 'its task'}."
            )


def twin(
    snapshot: Snapshot,
    table_id: str,
    description: str,
    record: StagedRecord,
    now: int,
    properties: Mapping[str, str] = _SAME,
) -> list[Action]:
    """Return version 0 of a table's twin: the same columns and properties, except those in ``NOT_TWINNED``.

    :param table_id: of the twin.
    :param record: what the twin says of itself.
    :param now: the time of the version, in milliseconds.
    :param properties: that have another value in the twin.
    """
    info: CommitInfo = {
        # Where a table has in-commit timestamps, every version has one, and it comes first.
        **({"inCommitTimestamp": now} if snapshot.has_in_commit_timestamps else {}),
        "timestamp": now,
        "operation": "CREATE TABLE",
        "operationParameters": {"description": description},
        "isolationLevel": "Serializable",
        "isBlindAppend": True,
        "operationMetrics": {},
        STAGED: {"format": FORMAT, **record},
    }
    configuration = {k: v for k, v in {**snapshot.configuration, **properties}.items() if k not in NOT_TWINNED}
    split = list(partition_columns(snapshot.metadata))
    metadata: Metadata = {
        **snapshot.metadata,
        "id": table_id,
        "configuration": configuration,
        "partitionColumns": split,
    }
    return [{"commitInfo": info}, {"protocol": snapshot.protocol}, {"metaData": metadata}]


def open_buffer(
    store: Store, spec: WriteSpec, snapshot: Snapshot, clock: Clock, *, footers: bool = False
) -> OpenBuffer:
    """Make the table's twin for one attempt, with Delta's checksum, or return the twin that this attempt made before.

    :param snapshot: that the writer's intent is formed on.
    :param clock: for the time of the twin's version 0.
    :param footers: whether the files will have footers that say their statistics, as Spark's have. Spark then counts
        rows only, if footers say what the table's statistics need.
    :raises StoreUnavailableError: the outcome is unknown; calling again is safe.
    """
    description = f"Buffer of writer {spec.identity.key}"
    record = made_on(store, snapshot, spec.mode.replaces)
    record["spec"] = spec.to_json()
    properties = _SAME
    indexed = indexed_columns(snapshot.metadata) if footers else None
    if indexed is not None:
        record["indexedColumns"] = indexed
        properties = {INDEXED_COLUMNS: "0"}
    actions = twin(snapshot, spec.attempt, description, record, milliseconds(clock.now()), properties)
    try:
        store.create(f"{spec.buffer}/{version_path(0)}", dump_actions(actions))
    except ObjectExistsError:
        return read_open_buffer(store, spec.buffer)
    put_checksum(store, spec.buffer, actions)
    metadata = of_kind(actions, "metaData")[0]
    return OpenBuffer(
        *(spec.buffer, spec, snapshot.version, snapshot.table_id, metadata),
        indexed_columns=indexed,
        read_time=_time(record.get("readTime")),
    )


def made_on(store: Store, snapshot: Snapshot, replaces: bool) -> StagedRecord:
    """Return what a buffer, or a shared scan, says of the table: where there is none, what its rows make of it.

    :param snapshot: of the table.
    :param replaces: whether the write may replace rows, so that times decide whether it is late.
    """
    record: StagedRecord = {"readVersion": snapshot.version, "tableId": snapshot.table_id}
    if replaces and snapshot.version != NO_VERSION:
        with suppress(ObjectNotFoundError):
            record["readTime"] = store.head(version_path(snapshot.version)).modified.isoformat()
    if snapshot.version == NO_VERSION:
        record["makes"] = [snapshot.protocol, snapshot.metadata]
    return record


def plan_of(log: DeltaLog, path: str) -> None:
    """Plan the table that the rows of a buffer, or of a shared scan, make; do nothing if there was one for them."""
    makes = record_in(_commit(log.store.get(f"{path}/{version_path(0)}"), path, 0).actions).get("makes")
    if makes is not None:
        log.plan(*makes)


def put_checksum(store: Store, path: str, actions: Iterable[Action]) -> None:
    """Put Delta's checksum file beside the version 0 of a private table, so that Spark need not count what it says.

    Without the file, Delta reads the log by one Spark job before it writes, and by another after it. With it, Delta
    takes the protocol and the metadata from there, and counts on from it. It must say what Delta itself would have
    written (https://github.com/delta-io/delta/blob/master/PROTOCOL.md#version-checksum-file).

    :param path: of the private table, relative to the table.
    :param actions: of its version 0.
    """
    actions = list(actions)
    files = of_kind(actions, "add")
    checksum: dict[str, Any] = {
        "tableSizeBytes": sum(int(file["size"]) for file in files),
        "numFiles": len(files),
        "numMetadata": 1,
        "numProtocol": 1,
        "setTransactions": of_kind(actions, "txn"),
        "domainMetadata": of_kind(actions, "domainMetadata"),
        "metadata": of_kind(actions, "metaData")[0],
        "protocol": of_kind(actions, "protocol")[0],
    }
    if not files:
        # Delta may also list the files here. It reads them from the log all the same, so a shadow leaves them out.
        checksum["allFiles"] = []
    (info,) = of_kind(actions, "commitInfo")
    if "inCommitTimestamp" in info:
        checksum["inCommitTimestampOpt"] = info["inCommitTimestamp"]
    store.put(f"{path}/{version_path(0).removesuffix('.json')}.crc", json.dumps(checksum).encode())


def record_in(actions: Iterable[Action]) -> StagedRecord:
    """Return what version 0 of a buffer or a compaction says of itself; nothing where it is not one of ours."""
    record = next((info.get(STAGED) for info in of_kind(actions, "commitInfo")), None)
    return record if isinstance(record, dict) else {}


def read_open_buffer(store: Store, path: str) -> OpenBuffer:
    """Read a buffer's version 0.

    :param path: of the buffer, relative to the table.
    :raises BufferIncompleteError: there is no version 0.
    :raises BufferInvalidError: version 0 is not one of ours, has another format, asks for what is gone, or is damaged.
    """
    try:
        data = store.get(f"{path}/{version_path(0)}")
    except ObjectNotFoundError as error:
        raise BufferIncompleteError(f"There is no buffer at {path}; its writer has not begun.") from error
    actions = _commit(data, path, 0).actions
    record = record_in(actions)
    if "spec" not in record:
        raise BufferInvalidError(f"{path} is no buffer of this package's; it is left alone.")
    if record.get("format") != FORMAT:
        raise BufferInvalidError(
            f"The buffer {path} has format {record.get('format')}, of another release of this package; this one reads "
            f"and publishes format {FORMAT}. It is left alone, and nothing of it is published: clear its writer, which "
            "stages its rows again."
        )
    try:
        opened = OpenBuffer(
            path,
            WriteSpec.from_json(record["spec"]),
            int(record["readVersion"]),
            str(record["tableId"]),
            of_kind(actions, "metaData")[0],
            indexed_columns=int(record["indexedColumns"]) if "indexedColumns" in record else None,
            read_time=_time(record.get("readTime")),
            scanned=_time(record.get("scanned")),
        )
        # The directory's name is made of the identity and the attempt, so it does not match a damaged one.
        # Of one that was adopted from a shared scan, the identity alone.
        lies_there = opened.spec.buffer == path or (
            is_share(path) and writer_directory(path) == opened.spec.identity.directory
        )
        damage = None if lies_there else f"it says that it lies at {opened.spec.buffer}"
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, InvalidWriteError) as error:
        damage = f"{type(error).__name__}: {error}"
    if damage is not None:
        raise BufferInvalidError(f"Version 0 of the buffer {path} is damaged ({damage}). {_AGAIN}")
    if (gone := _gone(record["spec"])) is not None:
        raise BufferInvalidError(
            f"Writer {opened.spec.identity.key!r} was staged with {gone}, which is gone. Its buffer {path} is left "
            f"alone. {_AGAIN}"
        )
    return opened


def _time(said: str | None) -> datetime | None:
    return datetime.fromisoformat(said) if said is not None else None


def _gone(spec: Mapping[str, Any]) -> str | None:
    """Return what an earlier release promised of a buffer, and nobody keeps any more; ``None`` for nothing.

    :param spec: as it stands in version 0.
    """
    if spec.get("reads") and spec["reads"].get("isolation") == "write_serializable":
        return "`reads` and isolation='write_serializable'"
    if spec.get("on_failed_check") in GONE:
        return f"on_failed_check={spec['on_failed_check']!r}"
    return next((f"the check {check!r}" for check in spec.get("checks", {}).values() if is_gone(check)), None)


def _commit(data: bytes, path: str, version: int) -> Commit:
    try:
        return Commit.parse(version, data, f"the buffer {path}")
    except CorruptLogError as error:
        raise BufferInvalidError(f"{error} {_AGAIN}") from error


def complete_buffer(log: DeltaLog, buffer: OpenBuffer, reads_target: bool = False) -> Buffer:
    """Return a buffer for which the writer's Spark action has returned.

    Where Spark wrote nothing, complete it: an empty append makes no version (protocol: sealed when empty).

    :param reads_target: whether the writer read the table itself; recorded where the buffer has to be sealed.
    :returns: the buffer, its files checked. If the writer has checks, it is ``unchecked`` as a rule.
    :raises BufferLostError: files are gone already.
    :raises BufferInvalidError: Spark did not leave an ordinary append.
    """
    with suppress(BufferIncompleteError):
        return read_rows(log.store, buffer)
    said = {USER_METADATA: {"attempt": buffer.spec.attempt, "reads_target": reads_target}}
    append_nothing(log, buffer.path, userMetadata=json.dumps(said))
    return read_rows(log.store, buffer)


def append_nothing(log: DeltaLog, path: str, **info: Any) -> None:
    """Put version 1 of a table below ``staged`` as an append without rows, unless there is one.

    :param path: of the table.
    :param info: what else its ``commitInfo`` says.
    """
    said: Any = {
        "timestamp": milliseconds(log.clock.now()),
        "operation": "WRITE",
        "operationParameters": {"mode": "Append"},
        "isBlindAppend": True,
        "operationMetrics": {"numFiles": "0", "numOutputRows": "0"},
        **info,
    }
    with suppress(ObjectExistsError):
        log.store.create(f"{path}/{version_path(1)}", dump_actions([{"commitInfo": said}]))


def read_buffer(store: Store, path: str) -> Buffer:
    """Read a complete buffer: its rows are staged, and the checks of its writer were evaluated (protocol: audited).

    :param path: of the buffer, relative to the table.
    :returns: the buffer, which may be ``refused``.
    :raises BufferIncompleteError: there is no version 1, or no verdict.
    :raises OneLakeError: as for :func:`read_staged`.
    """
    buffer = read_staged(store, path)
    if buffer.unchecked:
        raise BufferIncompleteError(
            f"The buffer {path} is not complete: the checks of its writer were not evaluated over its rows."
        )
    return buffer


def audited(store: Store, buffer: Buffer, verdict: Verdict) -> Buffer:
    """Keep what a writer's checks say of its rows, and return the buffer with the verdict that counts.

    That is the first one: another try may have evaluated the checks as well.

    :param buffer: whose rows are staged.
    :raises BufferInvalidError: the checks were evaluated over other rows.
    """
    write_verdict(store, buffer.path, verdict)
    return attrs.evolve(buffer, verdict=_read_verdict(store, buffer.path, buffer.spec, buffer.rows))


def _read_verdict(store: Store, path: str, spec: WriteSpec, rows: int | None) -> Verdict | None:
    verdict = read_verdict(store, path, spec.checks) if spec.checks else None
    if verdict is not None and rows is not None and verdict.rows != rows:
        raise BufferInvalidError(
            f"The checks of writer {spec.identity.key!r} were evaluated over {verdict.rows} rows, and its buffer "
            f"{path} has {rows}. {_AGAIN}"
        )
    return verdict


def read_staged(store: Store, path: str) -> Buffer:
    """Read a buffer whose rows are staged; see :func:`read_rows`.

    :param path: of the buffer, relative to the table.
    :raises BufferIncompleteError: there is no version 0 or 1.
    """
    return read_rows(store, read_open_buffer(store, path))


def read_rows(store: Store, opened: OpenBuffer) -> Buffer:
    """Read the rows of a buffer: version 1 exists, and so does every file that it names.

    Protocol: exactly version 1, complete.

    :param opened: its version 0.
    :returns: the buffer, which may be ``unchecked`` or ``refused``.
    :raises BufferIncompleteError: there is no version 1.
    :raises BufferLostError: a file is gone or has another size.
    :raises BufferInvalidError: version 1 is not what an ordinary append leaves behind, or it or the verdict is damaged.
    """
    path = opened.path
    entry = f"{path}/{version_path(1)}"
    try:
        data = store.get(entry)
    except ObjectNotFoundError as error:
        raise BufferIncompleteError(f"The buffer {path} is not complete: its writer has not finished.") from error
    commit = _commit(data, path, 1)
    said = _recorded(commit)
    # The job has read the table by another name than the one that its author declared.
    at_large = bool(said.get("reads_target"))
    _check_plain_append(opened, commit, said.get("attempt"))
    present = {info.path: info for info in store.list(path)}
    advice = f"stage writer {opened.spec.identity.key!r} again by clearing {opened.spec.task or 'its task'}."
    oldest = check_files(present, path, commit.adds, f"the buffer {path}", advice)
    return Buffer(
        **attrs.asdict(opened, recurse=False),
        adds=tuple(commit.adds),
        # A listing tells when the entry was put, as asking for the entry alone does.
        finished=opened.scanned or (present.get(entry) or store.head(entry)).modified,
        oldest=oldest,
        reads_target=at_large or opened.spec.reads is not None,
        reads=None if at_large else opened.spec.reads,
        verdict=_read_verdict(store, path, opened.spec, total_rows(commit.adds)),
    )


def check_files(
    present: Mapping[str, ObjectInfo], path: str, adds: Iterable[Add], what: str, advice: str
) -> datetime | None:
    """Check that every file that a log below ``staged`` names is still there, and whole (protocol: complete).

    :param present: what lies below the path, by its path relative to the table.
    :param path: of the buffer or shadow, relative to the table.
    :param adds: the files that its log names.
    :param what: what messages call it.
    :param advice: a sentence that says what to do where a file is lost.
    :returns: the modification time of the oldest file; ``None`` where there is none.
    :raises BufferLostError: a file is gone or has another size.
    """
    times = []
    for add in adds:
        info = present.get(f"{path}/{object_path(add)}")
        if info is None or info.size != int(add["size"]):
            state = "is gone" if info is None else f"has {info.size} bytes instead of {add['size']}"
            raise BufferLostError(
                f"The file {add['path']} of {what} {state}: a VACUUM or a person removed it. Nothing was published: "
                f"{advice}"
            )
        times.append(info.modified)
    return min(times, default=None)


def _recorded(commit: Commit) -> Mapping[str, Any]:
    """Return what the job recorded beside its rows; nothing where it recorded nothing that can be read."""
    try:
        said = json.loads(commit.info.get("userMetadata") or "{}")
    except (ValueError, TypeError, RecursionError):
        return {}
    record = said.get(USER_METADATA) if isinstance(said, dict) else None
    return record if isinstance(record, dict) else {}


def odd_for_an_append(commit: Commit) -> list[str]:
    """Say what an entry has that no ordinary append of rows has."""
    # Rows in a file of the change feed are in none of the files that are published.
    kinds = [kind for kind in ("remove", "cdc", "metaData", "protocol") if of_kind(commit.actions, kind)]
    problems = [f"it has a {kind} action" for kind in kinds]
    if any(not add.get("dataChange") for add in commit.adds):
        problems.append("a file is no change of data")
    if any(add.get("deletionVector") for add in commit.adds):
        problems.append("a file has a deletion vector")
    return problems


def _check_plain_append(buffer: OpenBuffer, commit: Commit, attempt: object) -> None:
    problems = odd_for_an_append(commit)
    if attempt != buffer.spec.attempt:
        problems.insert(0, "it does not say that its attempt wrote it")
    if problems:
        raise BufferInvalidError(
            f"Version 1 of the buffer {buffer.path} is no ordinary append: {'; '.join(problems)}. Nothing was "
            f"published: stage writer {buffer.spec.identity.key!r} again by clearing {buffer.spec.task or 'its task'}."
        )
