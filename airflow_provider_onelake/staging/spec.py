"""What a writer promises before it starts, kept in its buffer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from airflow_provider_onelake.choices import Mode, OnRerun, PublishMode, RowsOutside
from airflow_provider_onelake.exceptions import InvalidWriteError
from airflow_provider_onelake.log.partitions import PartitionPredicate
from airflow_provider_onelake.log.snapshot import Snapshot
from airflow_provider_onelake.staging.identity import Load, WriterIdentity


@attrs.frozen(kw_only=True)
class WriteSpec:
    """One attempt of one writer: who, what, and on which terms.

    :param attempt: new for every try.
    :param generation: the number of the deliberate rerun; a retry keeps it.
    :param task: what people call the task: ``load.write[3]``.
    :param mode: what the write does to what is there.
    :param replace_where: with that mode, the predicate on partition columns that the rows replace.
    :param covers: the predicate on partition columns in which the rows are expected; ``None`` for anywhere.
    :param rows_outside: what happens to rows outside of ``covers``.
    :param allow_empty: whether an ``overwrite`` or a ``replace_where`` without rows empties what it replaces.
    :param on_rerun: what a deliberate rerun does; ``None`` for ``skip`` of appends and ``replace`` of overwrites.
    :param publish: when the buffer becomes visible.
    :param fingerprint: of the rendered source, steps and code: equal fingerprints mean equal rows.
    :raises InvalidWriteError: the terms contradict each other.
    """

    identity: WriterIdentity
    attempt: str
    generation: int = attrs.field(default=1, validator=attrs.validators.ge(1))
    task: str = ""
    mode: Mode = Mode.APPEND
    replace_where: str | None = None
    covers: str | None = None
    rows_outside: RowsOutside = RowsOutside.SET_ASIDE
    allow_empty: bool = False
    on_rerun: OnRerun = attrs.field()
    publish: PublishMode = PublishMode.EACH
    fingerprint: str = ""

    @on_rerun.default
    def _default_on_rerun(self) -> OnRerun:
        return OnRerun.SKIP if self.mode is Mode.APPEND else OnRerun.REPLACE

    def __attrs_post_init__(self) -> None:
        if (self.mode is Mode.REPLACE_WHERE) != (self.replace_where is not None):
            raise InvalidWriteError(
                f"mode={self.mode.value!r} with replace_where={self.replace_where!r}: the mode replace_where needs the "
                "predicate, and no other mode takes it. Nothing was staged."
            )

    @property
    def buffer(self) -> str:
        """The buffer's path, relative to the table."""
        return self.identity.buffer(self.attempt)

    @property
    def replaces(self) -> str | None:
        """The predicate whose range the rows replace; ``None`` for an append and for ``overwrite_partitions``."""
        return "true" if self.mode is Mode.OVERWRITE else self.replace_where

    def range(self, snapshot: Snapshot) -> PartitionPredicate | None:
        """Return where the writer's rows may lie, or ``None`` for anywhere.

        :param snapshot: whose partition columns count.
        :raises InvalidWriteError: the predicate is not on partition columns.
        """
        parts = [text for text in (self.replace_where, self.covers) if text]
        return PartitionPredicate.parse_all(parts, snapshot.partitioning) if parts else None

    def to_json(self) -> dict[str, Any]:
        """Return the spec as it stands in the buffer's version 0."""
        value = attrs.asdict(self, recurse=False)
        value["identity"] = {**attrs.asdict(self.identity.load), "writer": self.identity.key}
        return value

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> WriteSpec:
        """Read a spec back; unknown fields, of later formats, are ignored.

        :param value: as it stands in the buffer's version 0.
        """
        known = {field.name: value[field.name] for field in attrs.fields(cls)}
        who = dict(known["identity"])
        known["identity"] = WriterIdentity(
            load=Load(**{k: v for k, v in who.items() if k != "writer"}), key=who["writer"]
        )
        for name, kind in (
            ("mode", Mode),
            ("on_rerun", OnRerun),
            ("rows_outside", RowsOutside),
            ("publish", PublishMode),
        ):
            known[name] = kind(known[name])
        return cls(**known)
