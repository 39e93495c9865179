"""What a writer promises before it starts, kept in its buffer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import attrs

from airflow_provider_onelake.choices import GONE, OnFailedCheck, OnRerun, OnUnexpectedRows, PublishMode, chosen
from airflow_provider_onelake.modes import Append, Mode, mode_from, mode_of
from airflow_provider_onelake.templates import is_final, text_or_none

if TYPE_CHECKING:
    from airflow_provider_onelake.buffers.beginnings import Beginning
    from airflow_provider_onelake.buffers.identity import WriterIdentity
    from airflow_provider_onelake.buffers.reads import Reads
    from airflow_provider_onelake.log.commits import PublishedWriter
    from airflow_provider_onelake.log.partitions import PartitionPredicate
    from airflow_provider_onelake.log.snapshot import Snapshot

_NOT_TERMS = ("attempt", "task", "message", "began", "source")
_NOT_ALWAYS = ("message", "checks", "on_failed_check", "planned", "reads", "began", "source")


def _mode(asked: Any) -> Any:
    return mode_of(text_or_none(asked) or Append()) if is_final(asked) else asked


def _unexpected(value: Any) -> Any:
    return chosen("on_unexpected_rows", value, OnUnexpectedRows, OnUnexpectedRows.SET_ASIDE)


def _failed(value: Any) -> Any:
    return chosen("on_failed_check", value, OnFailedCheck, OnFailedCheck.REFUSE)


def _rerun(value: Any) -> Any:
    return chosen("on_rerun", value, OnRerun)


def _publish(value: Any) -> Any:
    return chosen("publish", value, PublishMode, PublishMode.EACH)


def _as_dict(checks: Any) -> Any:
    return dict(checks) if isinstance(checks, Mapping) else checks


@attrs.frozen(kw_only=True)
class Promise:
    """What a writer promises of its rows, which its buffer keeps.

    :param mode: what the write does to what is there.
    :param expected_partitions: the predicate on partition columns that rows should satisfy; ``None`` for any rows.
    :param on_unexpected_rows: what happens to rows outside of ``expected_partitions``.
    :param checks: conditions that the staged rows should meet, in Spark SQL, by name.
    :param on_failed_check: what happens to rows that fail a check.
    :param on_rerun: what a deliberate rerun does; ``None`` for what the mode makes of it.
    :param publish: when the buffer becomes visible.
    :param message: what the author tells people who read the table's history. It is no part of the work.
    :param planned: what a plan of new files says of the writer's files: ``ledger``, ``entry``, ``files`` (how many),
        ``digest`` and ``version`` (up to which it looked for a RESTORE); ``None`` for a writer without such a plan.
    :param reads: the part of its own table that the writer declares to read; ``None`` where it declares nothing.
    """

    mode: Mode = attrs.field(factory=Append, converter=_mode)
    expected_partitions: str | None = attrs.field(default=None, converter=text_or_none)
    on_unexpected_rows: OnUnexpectedRows = attrs.field(
        default=OnUnexpectedRows.SET_ASIDE,
        converter=_unexpected,
    )
    checks: Mapping[str, str] = attrs.field(factory=dict, converter=_as_dict, hash=False)
    on_failed_check: OnFailedCheck = attrs.field(
        default=OnFailedCheck.REFUSE,
        converter=_failed,
    )
    on_rerun: OnRerun | None = attrs.field(default=None, converter=_rerun)
    publish: PublishMode = attrs.field(default=PublishMode.EACH, converter=_publish)
    message: str | None = attrs.field(default=None, converter=text_or_none)
    planned: Mapping[str, Any] | None = attrs.field(default=None, hash=False)
    reads: Reads | None = None

    @property
    def allow_empty(self) -> bool:
        """Whether a write without rows empties what its mode replaces."""
        return self.mode.allow_empty


@attrs.frozen(kw_only=True)
class WriteSpec(Promise):
    """One attempt of one writer: who, what, and on which terms. It also takes the parameters of a :class:`Promise`.

    :param attempt: new for every try.
    :param generation: the number of the deliberate rerun; a retry keeps it.
    :param task: what people call the task: ``load.write[3]``.
    :param on_rerun: what a deliberate rerun does. Default: ``skip`` for appends, ``replace`` for overwrites.
    :param fingerprint: of the rendered source, steps and code: equal fingerprints mean equal rows.
    :param source: the kind of source that the fingerprint is of: ``files``, ``sql`` or ``function``; ``None`` where it
        is not known.
    :param began: the table when the writer's load began; ``None`` where nobody knows.
    """

    identity: WriterIdentity
    attempt: str
    generation: int = attrs.field(default=1, validator=attrs.validators.ge(1))
    task: str = ""
    on_rerun: OnRerun = attrs.field(converter=OnRerun)
    fingerprint: str = ""
    source: str | None = None
    began: Beginning | None = None

    @on_rerun.default
    def _default_on_rerun(self) -> OnRerun:
        return OnRerun.SKIP if self.mode.repeats else OnRerun.REPLACE

    @classmethod
    def of(cls, promise: Promise, **attempt: Any) -> WriteSpec:
        """Return the spec of one attempt of a writer.

        :param promise: of the writer.
        :param attempt: the other fields, and those of the promise that the attempt knows better.
        """
        asked = {name: value for name, value in attrs.asdict(promise, recurse=False).items() if value is not None}
        return cls(**{**asked, **attempt})

    @property
    def buffer(self) -> str:
        """The buffer's path, relative to the table."""
        return self.identity.buffer(self.attempt)

    @property
    def takes_back(self) -> bool:
        """Whether a rerun removes what the writer added before, as the mode itself does not replace it."""
        return self.mode.repeats and self.on_rerun is OnRerun.REPLACE

    @property
    def must_not_repeat(self) -> bool:
        """Whether rows could be there twice, and the author did not say that they may be."""
        return self.mode.repeats and self.on_rerun is not OnRerun.APPEND

    @property
    def predicates(self) -> list[str]:
        """The predicates on partition columns that rows should satisfy, as their author wrote them."""
        return [text for text in (self.mode.bounds, self.expected_partitions) if text]

    def range(self, snapshot: Snapshot) -> PartitionPredicate | None:
        """Return where the writer's rows may lie, or ``None`` for anywhere.

        :param snapshot: whose partition columns count.
        :raises InvalidWriteError: the predicate is not on partition columns.
        """
        from airflow_provider_onelake.log.partitions import PartitionPredicate

        parts = self.predicates
        return PartitionPredicate.parse_all(parts, snapshot.partitioning) if parts else None

    def to_json(self) -> dict[str, Any]:
        """Return the spec as it stands in the buffer's version 0."""
        value = attrs.asdict(self, recurse=False)
        value["reads"] = self.reads.to_json() if self.reads else None
        value["began"] = attrs.asdict(self.began) if self.began else None
        value["identity"] = {**attrs.asdict(self.identity.load), "writer": self.identity.key}
        return {**value, **self.mode.to_json()}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> WriteSpec:
        """Read a spec back; unknown fields, of later formats, are ignored.

        :param value: as it stands in the buffer's version 0.
        """
        from airflow_provider_onelake.buffers.beginnings import Beginning
        from airflow_provider_onelake.buffers.identity import Load, WriterIdentity
        from airflow_provider_onelake.buffers.reads import Reads

        # A buffer that an earlier release staged has no message, no checks and no reads.
        known = {f.name: value[f.name] for f in attrs.fields(cls) if f.name in value or f.name not in _NOT_ALWAYS}
        who = dict(known["identity"])
        known["identity"] = WriterIdentity(key=who.pop("writer"), load=Load(**who))
        known["mode"] = mode_from(value)
        known["reads"] = Reads.from_json(known.get("reads"))
        known["began"] = Beginning.from_json(known.get("began"))
        if known.get("on_failed_check") in GONE:
            del known["on_failed_check"]  # The buffer is left alone. Who cleans it up asks whose it is.
        return cls(**known)


def equal_work(one: WriteSpec | PublishedWriter, other: WriteSpec | PublishedWriter) -> bool:
    """Say whether the fingerprints of two attempts are of the same work (protocol: same source).

    An earlier release did not say the kind of source, and made the fingerprint of a function by another rule. Nobody
    can tell whether such a function has changed since, so it counts as the same.
    """
    by_two_rules = {one.source, other.source} == {None, "function"} and one.fingerprint and other.fingerprint
    return one.fingerprint == other.fingerprint or bool(by_two_rules)


def equal_terms(one: WriteSpec, other: WriteSpec) -> bool:
    """Say whether two attempts have equal specs, apart from the attempt's id, the task and the message.

    Two unknown fingerprints are equal here.
    """

    def promised(spec: WriteSpec) -> Mapping[str, Any]:
        return attrs.asdict(spec, recurse=False, filter=lambda field, _: field.name not in _NOT_TERMS)

    return promised(one) == promised(other)
