"""One version of a table as a value, and what our own commits record about themselves."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import cached_property
from typing import Any, Final, cast
from urllib.parse import unquote

import attrs
from attrs.validators import instance_of, optional

from airflow_provider_onelake.exceptions import CorruptLogError
from airflow_provider_onelake.log.actions import (
    Action,
    Add,
    CommitInfo,
    DomainMetadata,
    Metadata,
    Protocol,
    Remove,
    StagedRecord,
    of_kind,
    parse_actions,
    total_rows,
)
from airflow_provider_onelake.log.wellformed import check_actions
from airflow_provider_onelake.storage.clock import instant_of, whole_number

# The field of ``commitInfo`` that holds our record of a commit or a buffer.
STAGED: Final = "staged"
# The key in that record under which a compaction describes itself.
COMPACTION: Final = "compaction"
# The key under which a DELETE, UPDATE or TRUNCATE does.
CHANGE: Final = "change"
# The key under which an ALTER says what it changed.
ALTER: Final = "alter"
# The key under which a shared scan does.
SCAN: Final = "scan"
# How the txn ids of our writers begin; behind it stand namespace, DAG, group, run and key.
OURS: Final = "onelake/"
# How those began that named MERGEs without an effect, in an earlier release.
_ENDED = "onelake-ended/"
# Of a load that is published together, messages name the first writers.
_MOST_NAMED = 10
FORMAT = 2
"""The format of these records. No other one is read: a buffer or a commit of format 1 is left alone, by name."""


@attrs.frozen
class PublishedWriter:
    """What a commit of ours records about one buffer that it published.

    :param app_id: the ``txn`` application id that stands for the writer's identity.
    :param writer: the writer's key.
    :param generation: the number of the start (a first start or a clear) among the writer's starts.
    :param buffer: the buffer's path, relative to the table.
    :param finished: when Spark's append had ended that wrote the rows, by the store's clock.
    :param rows: how many rows were published; ``None`` where statistics do not say.
    :param fingerprint: the fingerprint of the source and the code.
    :param set_aside: whether a policy left out the whole write. Releases that left out a part say it in the rows.
    :param planned: which files a plan of new files gave to the writer: ``ledger``, ``entry``, ``files`` (how many),
        ``digest`` and ``version`` (up to which it looked for a RESTORE); ``None`` for a writer without such a plan.
    :param merged: whether the rows were merged into the table, so that no file of the buffer came into it.
    :param nothing: whether a MERGE of the rows had nothing to do, so that nothing of them is in the table.
    :param reads: the partitions of the table that the rows were computed from, as a predicate; ``None`` for none.
    :param staged: how many rows the buffer has; ``None`` for as many as were published.
    :param source: the kind of source that the fingerprint is of: ``files``, ``sql`` or ``function``; ``None`` where an
        earlier release made it, which did not say.
    """

    app_id: str = attrs.field(validator=instance_of(str))
    writer: str = attrs.field(validator=instance_of(str))
    generation: int = attrs.field(validator=instance_of(int))
    buffer: str = attrs.field(validator=instance_of(str))
    finished: datetime
    rows: int | None = attrs.field(validator=optional(instance_of(int)))
    fingerprint: str = attrs.field(validator=instance_of(str))
    set_aside: bool = attrs.field(default=False, validator=instance_of(bool))
    planned: Mapping[str, Any] | None = attrs.field(
        default=None,
        hash=False,
        validator=optional(instance_of(Mapping)),  # type: ignore[type-abstract]
    )
    merged: bool = attrs.field(default=False, validator=instance_of(bool))
    nothing: bool = attrs.field(default=False, validator=instance_of(bool))
    reads: str | None = attrs.field(default=None, validator=optional(instance_of(str)))
    staged: int | None = attrs.field(default=None, validator=optional(instance_of(int)))
    source: str | None = attrs.field(default=None, validator=optional(instance_of(str)))

    @property
    def rows_staged(self) -> int | None:
        """How many rows the buffer has; ``None`` where statistics do not say."""
        return self.rows if self.staged is None else self.staged

    def to_json(self) -> dict[str, object]:
        """Return the value as it stands in ``commitInfo``."""
        said = {**attrs.asdict(self, recurse=False), "finished": self.finished.isoformat()}
        unsaid = [name for name in ("planned", "merged", "nothing", "reads", "staged", "source") if not said[name]]
        return {name: value for name, value in said.items() if name not in unsaid}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> PublishedWriter:
        """Read the value back; fields that are not known are ignored.

        :param value: the record as it stands in ``commitInfo``.
        :raises ValueError: the value is no record of ours.
        """
        try:
            known = {field.name: value[field.name] for field in attrs.fields(cls) if field.name in value}
            record = cls(**{**known, "finished": datetime.fromisoformat(known["finished"])})
        except (KeyError, TypeError) as error:
            raise ValueError(f"{value!r} is no record of a writer") from error
        if record.finished.tzinfo is None:
            raise ValueError(f"{value!r} is no record of a writer")
        return record


def named_by(app_id: str) -> list[str] | None:
    """Return the namespace, DAG, group, run and key that the ``txn`` id of a writer of ours names; else ``None``.

    :param app_id: as it stands in the table's log.
    """
    parts = [unquote(part) for part in app_id.removeprefix(OURS).split("/")]
    return parts if app_id.startswith(OURS) and len(parts) == 5 and all(part.strip() for part in parts) else None


def digest_of(entry: bytes) -> str:
    """Return a digest of a log entry's content; it tells the entry from another one at the same version."""
    return hashlib.sha256(entry).hexdigest()[:16]


@attrs.define(slots=False, frozen=True)
class Commit:
    """One version of a table.

    :param actions: the actions as they stand in the log.
    :param modified: the store's time of the log entry, where it is known already.
    :param size: the size of the log entry in bytes.
    :param look_up: asks the store for the time of a version's entry.
    :param digest: the digest of the log entry. A table that was made again has another digest at the same version.
    """

    version: int
    actions: list[Action] = attrs.field(repr=False)
    modified: datetime | None = None
    size: int = attrs.field(default=0, repr=False)
    look_up: Callable[[int], datetime | None] | None = attrs.field(default=None, eq=False, repr=False)
    digest: str = attrs.field(default="", eq=False, repr=False)

    @classmethod
    def parse(
        cls, version: int, data: bytes, table: str, look_up: Callable[[int], datetime | None] | None = None
    ) -> Commit:
        """Read a log entry.

        :param data: the entry's content.
        :param table: what messages call the table.
        :param look_up: asks the store for the time of a version's entry; it is called only if the entry itself does
            not tell the time.
        :raises CorruptLogError: the entry is empty or no JSON, or an action lacks a field that every reader needs.
        """
        where = f"Version {version} of {table}"
        actions = parse_actions(data, where)
        if not actions:
            raise CorruptLogError(
                f"{where} is empty: it is half written, or damaged. Nothing was changed. Ask whoever wrote it, or put "
                "the entry back."
            )
        check_actions(actions, where)
        return cls(version, actions, size=len(data), look_up=look_up, digest=digest_of(data))

    @cached_property
    def info(self) -> CommitInfo:
        """The body of the ``commitInfo`` action, empty where there is none."""
        found = of_kind(self.actions, "commitInfo")
        return found[0] if found else {}

    @property
    def txn_id(self) -> str | None:
        """The random id by which a committer recognises its own commit (protocol: create-only)."""
        return self.info.get("txnId")

    @property
    def operation(self) -> str:
        """The operation that made the commit (WRITE, OPTIMIZE, RESTORE, …), or an empty string."""
        return str(self.info.get("operation", ""))

    @cached_property
    def time(self) -> datetime | None:
        """When the commit was made: its in-commit timestamp, else its ``timestamp``, else the store's time.

        Protocol: whole writes.
        """
        for said in (self.info.get("inCommitTimestamp"), self.info.get("timestamp")):
            if (instant := instant_of(said)) is not None:
                return instant
        return self._stored

    @property
    def landed(self) -> datetime | None:
        """When the log entry came into the store, by the store's clock; if that is unknown, :attr:`time`.

        Use this to compare another engine's commit with a buffer: a buffer's completion is also a time of the store, so
        both times have the same clock and the same resolution (protocol: whole writes).
        """
        return self._stored or self.time

    @cached_property
    def _stored(self) -> datetime | None:
        return self.modified or (self.look_up(self.version) if self.look_up else None)

    @cached_property
    def adds(self) -> list[Add]:
        """The bodies of the ``add`` actions."""
        return of_kind(self.actions, "add")

    @cached_property
    def removes(self) -> list[Remove]:
        """The bodies of the ``remove`` actions."""
        return of_kind(self.actions, "remove")

    @cached_property
    def txns(self) -> dict[str, int]:
        """The ``txn`` versions that the commit records, by application id."""
        found: dict[str, int] = {}
        for txn in of_kind(self.actions, "txn"):
            # An earlier release had a txn beside the writer's own for a MERGE that had nothing to do. It is the newer.
            app_id = OURS + txn["appId"].removeprefix(_ENDED) if txn["appId"].startswith(_ENDED) else txn["appId"]
            found[app_id] = max(int(txn["version"]), found.get(app_id, -1))
        return found

    @cached_property
    def domains(self) -> dict[str, DomainMetadata]:
        """The bodies of the ``domainMetadata`` actions, by domain; a removed domain's body has ``removed: true``."""
        return {body["domain"]: body for body in of_kind(self.actions, "domainMetadata")}

    @property
    def in_commit_timestamp(self) -> int | None:
        """The commit's in-commit timestamp in milliseconds, where it has one."""
        return whole_number(self.info.get("inCommitTimestamp"))

    @property
    def metadata(self) -> Metadata | None:
        """The table's metadata, where the commit changes it."""
        found = of_kind(self.actions, "metaData")
        return found[-1] if found else None

    @property
    def protocol(self) -> Protocol | None:
        """The table's protocol, where the commit changes it."""
        found = of_kind(self.actions, "protocol")
        return found[-1] if found else None

    @cached_property
    def data_change(self) -> bool:
        """Whether the commit changes rows; commits of a compaction or a VACUUM do not."""
        return any(file.get("dataChange", True) for file in (*self.adds, *self.removes))

    @cached_property
    def added_partitions(self) -> frozenset[tuple[tuple[str, str | None], ...]]:
        """The partitions that got files, as (column, spelling) pairs."""
        return frozenset(_partition(file) for file in self.adds)

    @cached_property
    def removed_partitions(self) -> frozenset[tuple[tuple[str, str | None], ...]]:
        """The partitions that lost files, as (column, spelling) pairs; a ``remove`` without partition is left out."""
        return frozenset(_partition(file) for file in self.removes if file.get("partitionValues") is not None)

    @property
    def rows_added(self) -> int | None:
        """Rows in the added files, ``None`` where statistics do not say."""
        return total_rows(self.adds)

    @property
    def rows_removed(self) -> int | None:
        """Rows in the removed files, ``None`` where statistics do not say."""
        return total_rows(self.removes)

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The ``operationParameters``; empty where the commit has none that can be read."""
        found = self.info.get("operationParameters")
        return found if isinstance(found, Mapping) else {}

    @property
    def restored_to(self) -> int | None:
        """The version that a RESTORE took the table back to, as far as the commit says; ``None`` for other commits."""
        return whole_number(self.parameters.get("version")) if self.operation == "RESTORE" else None

    @property
    def user_metadata(self) -> str | None:
        """What the commit's author said of it (``userMetadata``): a person, or this package of its own commits."""
        return self.info.get("userMetadata")

    @property
    def staged(self) -> StagedRecord:
        """Our own record of the commit; empty for commits of other engines and for a record that cannot be read."""
        return self._record[0]

    @property
    def strange_format(self) -> object:
        """The format in which another release of this package described the commit; ``None`` for every other commit."""
        record = self.info.get(STAGED)
        if not isinstance(record, dict) or "writers" not in record or record.get("format") == FORMAT:
            return None
        return record.get("format", "unknown")

    @property
    def writers(self) -> tuple[PublishedWriter, ...]:
        """The buffers that the commit published; empty for commits of other engines."""
        return self._record[1]

    @cached_property
    def merger(self) -> PublishedWriter | None:
        """The writer whose rows the commit merged into those of the table; ``None`` for every other commit."""
        record = self.info.get(STAGED)
        change = record.get(CHANGE) if isinstance(record, dict) and record.get("format") == FORMAT else None
        if not isinstance(change, dict):
            return None
        if isinstance(change.get("writer"), dict):
            with suppress(ValueError):
                return PublishedWriter.from_json(change["writer"])
        ended = [txn["appId"] for txn in of_kind(self.actions, "txn") if txn["appId"].startswith(_ENDED)]
        if not ended or self.time is None:
            return None
        app_id = OURS + ended[0].removeprefix(_ENDED)
        return PublishedWriter(
            app_id=app_id,
            writer=unquote(app_id.rpartition("/")[2]),
            generation=self.txns[app_id],
            buffer="",
            finished=self.time,
            rows=0,
            fingerprint=str(change.get("fingerprint") or ""),
            merged=True,
            nothing=True,
            source=change.get("source"),
        )

    @property
    def all_writers(self) -> tuple[PublishedWriter, ...]:
        """The writers of ours whose rows the commit published or merged."""
        return (*self.writers, *([self.merger] if self.merger is not None else ()))

    @cached_property
    def _record(self) -> tuple[StagedRecord, tuple[PublishedWriter, ...]]:
        record = self.info.get(STAGED)
        if isinstance(record, dict) and record.get("format") == FORMAT and isinstance(record.get("writers"), list):
            with suppress(ValueError):
                if _is_readable(record) and _are_texts(self.partitioned_by):
                    return record, tuple(PublishedWriter.from_json(value) for value in record["writers"])
        return {}, ()

    @property
    def partitioned_by(self) -> list[str] | None:
        """The names of the partition columns as the commit spells them; ``None`` where it does not name them.

        :raises ValueError: a text that is no JSON.
        """
        said = self.parameters.get("partitionBy")
        found = json.loads(said) if isinstance(said, str) else said
        return cast("list[str] | None", found)

    @property
    def author(self) -> str:
        """Who made the commit, in messages: our writers with their DAG, group and run, or else the operation."""
        if self.merger is not None:
            return f"{self.operation} of {_whose([self.merger])}"
        return _whose(self.writers) or self.operation or "an unknown writer"

    @property
    def finished(self) -> datetime | None:
        """When the work behind the commit was done: when the last of our writers finished, else the commit's time.

        Protocol: whole writes.
        """
        return max((writer.finished for writer in self.writers), default=None) or self.time


def _whose(writers: Sequence[PublishedWriter]) -> str:
    """Return the keys of writers, with the DAG, the group and the run that their ids name."""
    if not writers:
        return ""
    more = f" and {len(writers) - _MOST_NAMED} more" if len(writers) > _MOST_NAMED else ""
    keys = ", ".join(writer.writer for writer in writers[:_MOST_NAMED]) + more
    named = named_by(writers[0].app_id)
    return f"{keys} of {named[1]}.{named[2]}, run {named[3]}" if named else keys


def _is_readable(record: Mapping[str, Any]) -> bool:
    """Say whether the parts of our record on which decisions rest are what this release writes."""
    return record.get("replaces", []) is not None and _are_texts(record.get("replaces"))


def _are_texts(found: object) -> bool:
    return found is None or (isinstance(found, list) and all(isinstance(text, str) for text in found))


def _partition(file: Add | Remove) -> tuple[tuple[str, str | None], ...]:
    return tuple((file.get("partitionValues") or {}).items())
