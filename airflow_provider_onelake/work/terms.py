"""What a DAG author asked of a write, as one value."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import attrs

from airflow_provider_onelake.choices import (
    Isolation,
    OnFailedCheck,
    OnMissingWriter,
    OnRerun,
    OnSetAside,
    OnUnexpectedRows,
    Policy,
    PublishMode,
    SchemaEvolution,
)
from airflow_provider_onelake.exceptions import InvalidWriteError, SourceChangedError, SourceGrewError
from airflow_provider_onelake.reading.spark_files import SourceFile, base_of, digest_of
from airflow_provider_onelake.sources import FileSource, Source
from airflow_provider_onelake.staging.modes import MODES, Append, mode_of

if TYPE_CHECKING:
    from airflow_provider_onelake.hooks.task_run import TaskRun
    from airflow_provider_onelake.staging.beginnings import Beginning
    from airflow_provider_onelake.staging.identity import WriterIdentity
    from airflow_provider_onelake.staging.reads import Reads
    from airflow_provider_onelake.staging.spec import WriteSpec

PartitionBy = str | Sequence[str] | Mapping[str, str]

FINGERPRINT_FORMAT = 1
"""Raise this number only if the staging job makes other rows from equal parameters. A clear compares fingerprints, so
after each change the rows that an earlier release published count as other work, and ``on_rerun="skip"`` is refused."""


@attrs.frozen(kw_only=True)
class WriteTerms:
    """The parameters of a write, rendered and checked.

    They are described at :class:`~airflow_provider_onelake.operators.write.OneLakeWriteOperator`, which takes from here
    what is templated, what the defaults are, and what a write group may set.
    """

    table: str = ""
    source: Source
    steps: Mapping[str, str] = attrs.field(default={})
    where: str | None = None
    files: Sequence[str] | None = None
    max_bytes: int | None = None
    planned: Mapping[str, Any] | None = None
    writer: str | None = None
    mode: str = Append.name
    replace_where: str | None = None
    keys: Sequence[str] | None = None
    on: str | None = None
    when: Sequence[str] | None = None
    covers: str | None = None
    isolation: Isolation | None = attrs.field(default=None, converter=attrs.converters.optional(Isolation))
    max_rounds: int | None = None
    reads: str | bool | None = None
    expected_partitions: str | None = None
    on_unexpected_rows: OnUnexpectedRows = attrs.field(default=OnUnexpectedRows.SET_ASIDE, converter=OnUnexpectedRows)
    allow_empty: bool = False
    publish: PublishMode = attrs.field(default=PublishMode.EACH, converter=PublishMode)
    on_rerun: OnRerun | None = attrs.field(default=None, converter=attrs.converters.optional(OnRerun))
    on_conflict: Policy | None = attrs.field(default=None, converter=attrs.converters.optional(Policy))
    on_set_aside: OnSetAside = attrs.field(default=OnSetAside.WARN, converter=OnSetAside)
    partition_by: PartitionBy | None = None
    generated_columns: Mapping[str, str] = attrs.field(default={})
    table_properties: Mapping[str, str] = attrs.field(default={})
    schema: str | None = None
    schema_evolution: SchemaEvolution = attrs.field(default=SchemaEvolution.NONE, converter=SchemaEvolution)
    target_file_size: int | None = None
    v_order: bool | None = None
    preflight: bool = True
    checks: Mapping[str, str] = attrs.field(default={})
    on_failed_check: OnFailedCheck = attrs.field(default=OnFailedCheck.REFUSE, converter=OnFailedCheck)
    commit_message: str | None = None

    @property
    def adds_columns(self) -> bool:
        """Whether columns that only the rows have are added to the table."""
        return self.schema_evolution is not SchemaEvolution.NONE

    @property
    def widens_types(self) -> bool:
        """Whether columns of the table get the wider type that they have in the rows."""
        return self.schema_evolution is SchemaEvolution.ADD_AND_WIDEN

    @property
    def partition_columns(self) -> list[str] | None:
        """The names of the partition columns; ``None`` if the author gives none."""
        return partition_columns(self.partition_by)

    @property
    def declared_reads(self) -> Reads | None:
        """The part of its own table that the writer declares to read."""
        from airflow_provider_onelake.staging.reads import WHOLE, Reads

        if not self.reads:
            return None
        return Reads(WHOLE if self.reads is True else str(self.reads))

    @property
    def generated(self) -> dict[str, str]:
        """All columns that the table generates, with their SQL."""
        partitions = self.partition_by if isinstance(self.partition_by, Mapping) else {}
        return {**self.generated_columns, **partitions}

    def restricted(self, task_id: str) -> WriteTerms:
        """Return terms whose source has the writer's files only, but the same columns as the whole source.

        :param task_id: what messages call the task.
        :raises InvalidWriteError: Spark would refuse to read the files together.
        """
        if self.files is None or not isinstance(self.source, FileSource):
            return self
        reading = base_of(self.source.paths, self.files, self.source.options)
        if reading.conflict:
            raise InvalidWriteError(
                f"`files` of {task_id} cannot be read together: {reading.conflict}. Nothing was staged."
            )
        options = dict(self.source.options)
        if reading.base is not None and "basepath" not in map(str.lower, options):
            # Without basePath, Spark reads no partition columns from the directory names of a single file.
            options["basePath"] = reading.base
        return attrs.evolve(self, source=attrs.evolve(self.source, path=list(self.files), options=options))

    def check_size(self, files: Iterable[SourceFile], task_id: str) -> None:
        """Refuse a source that has become larger than ``max_bytes`` since it was planned.

        :param files: of the source, as far as they can be listed.
        :param task_id: what messages call the task.
        :raises SourceGrewError: it has.
        """
        size = sum(file.size for file in files)
        if self.max_bytes is not None and size > self.max_bytes:
            raise SourceGrewError(
                f"The source of {task_id} has {size} bytes now, above max_bytes={self.max_bytes}. Nothing was staged: "
                "clear the plan, which then says what else there is, or raise max_bytes."
            )

    def check_planned(self, files: Iterable[SourceFile], task_id: str) -> None:
        """Refuse files that are not as a plan of new files has recorded them.

        The record says which file is loaded, by its size and time. So rows of another file must not be published.

        :param files: of the source, as they are now.
        :param task_id: what messages call the task.
        :raises SourceChangedError: a file has changed, or is gone.
        """
        if self.planned is not None and digest_of(files) != self.planned["digest"]:
            raise SourceChangedError(
                f"The {self.planned['files']} files of {task_id} are not as they were planned: one has changed, or is "
                "gone. Nothing of this writer was published: clear the plan with its downstream tasks, which plans "
                "what is there now."
            )

    def spec(
        self,
        who: WriterIdentity,
        run: TaskRun,
        generation: int,
        files: Iterable[SourceFile],
        began: Beginning | None = None,
    ) -> WriteSpec:
        """Return what one attempt of a writer promises.

        :param run: the try of the task.
        :param generation: of the writer.
        :param files: of the source, as far as they can be listed.
        :param began: the table when the writer's load began. Default: nobody knows.
        """
        from airflow_provider_onelake.staging.spec import WriteSpec

        on_rerun: dict[str, Any] = {"on_rerun": self.on_rerun} if self.on_rerun else {}
        return WriteSpec(
            identity=who,
            attempt=run.attempt,
            generation=generation,
            task=run.label,
            mode=mode_of(self.mode, attrs.asdict(self, recurse=False)),
            expected_partitions=self.expected_partitions,
            on_unexpected_rows=self.on_unexpected_rows,
            allow_empty=self.allow_empty,
            publish=self.publish,
            fingerprint=self.digest(files),
            source=self.source.kind,
            message=self.commit_message,
            checks=self.checks,
            on_failed_check=self.on_failed_check,
            planned=self.planned,
            reads=self.declared_reads,
            began=began,
            **on_rerun,
        )

    def digest(self, files: Iterable[SourceFile]) -> str:
        """Return the fingerprint of the work.

        :param files: of the source, as far as they can be listed.
        """
        if self.planned is not None:
            # The work is the files as they were planned, whatever has become of them since they were loaded.
            files = ()
        return fingerprint(
            self.source,
            files,
            steps=list(self.steps.items()),
            where=self.where,
            expected_partitions=self.expected_partitions,
            into=self.replace_where,
            # Rows that were appended have left those of before, which an overwrite is to replace. An append has the
            # fingerprint of a release in which the mode did not count.
            **({"mode": self.mode} if self.mode != Append.name else {}),
            # Rows that nobody checked so are not the rows that are asked for now. Without checks, the fingerprint is
            # that of a release without checks, as modes other than merge have that of a release without merge.
            **({"checks": dict(self.checks), "on_failed_check": self.on_failed_check} if self.checks else {}),
            **({"planned": self.planned["digest"]} if self.planned is not None else {}),
            **({"merge": [self.keys, self.on, self.when]} if self.keys or self.on else {}),
            **({"covers": self.covers} if self.covers else {}),
            **({"reads": self.declared_reads.where} if self.declared_reads else {}),
        )


DEFAULTS: Mapping[str, Any] = {
    name: str(default) if isinstance(default, StrEnum) else None if default is attrs.NOTHING else default
    for name, default in ((field.name, field.default) for field in attrs.fields(WriteTerms))
}
"""What counts where neither the writer nor its group says anything, by parameter."""

CHOICES: Mapping[str, Iterable[str]] = {
    "mode": MODES,
    "publish": PublishMode,
    "on_unexpected_rows": OnUnexpectedRows,
    "on_failed_check": OnFailedCheck,
    "on_rerun": OnRerun,
    "schema_evolution": SchemaEvolution,
    "isolation": Isolation,
    "on_conflict": Policy,
    "on_missing_writer": OnMissingWriter,
    "on_set_aside": OnSetAside,
}
"""The choices of each parameter."""

_NOT_TEMPLATED = ("max_bytes", "planned", "max_rounds", "allow_empty", "target_file_size", "v_order", "preflight")
_OF_ONE_WRITER = (
    *("source", "steps", "where", "files", "max_bytes", "planned", "writer"),
    *("keys", "on", "when", "covers", "isolation", "max_rounds", "reads"),
)
FLAGS = ("allow_empty", "v_order", "preflight", "deferrable")
"""The parameters that say yes or no, or leave it open. Airflow renders none of them."""

CONNECTIONS = ("onelake_conn_id", "spark_conn_id", "spark_timeout", "deferrable")

TEMPLATED = tuple(name for name in DEFAULTS if name not in _NOT_TEMPLATED)
"""The parameters that Airflow renders."""

MAY_BE_BLANK = (
    *(name for name in CHOICES if name in DEFAULTS),
    "table",
    "where",
    "writer",
    "replace_where",
    "on",
    "covers",
    "reads",
    "expected_partitions",
    "schema",
    "commit_message",
)
"""The parameters for which an empty text counts as not given, such as one that a template with an ``{% if %}`` renders.
Blank ``files`` must not mean all files, and blank ``steps`` not the source as it is: both are refused."""

OF_GROUP = (*(name for name in DEFAULTS if name not in _OF_ONE_WRITER), *CONNECTIONS)
"""The parameters that a write group may set for its writers."""


def without_blanks(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters with the default in place of each that is not given, or blank where blank counts as that.

    :param given: rendered parameters by name.
    """
    found = {
        name: (value.strip() if isinstance(value, str) else value) or None if name in MAY_BE_BLANK else value
        for name, value in given.items()
    }
    return {name: DEFAULTS[name] if value is None else value for name, value in found.items()}


def partition_columns(partition_by: PartitionBy | None) -> list[str] | None:
    """Read ``partition_by`` in any of its forms.

    :param partition_by: names with commas between, a list of names, or names with the expressions that generate them.
    :returns: the names; ``None`` if the author gives none.
    :raises InvalidWriteError: a name is no text or empty, or comes twice.
    """
    if partition_by is None:
        return None
    given: Any = [name.strip() for name in partition_by.split(",")] if isinstance(partition_by, str) else partition_by
    if given == [""]:
        return []
    names = list(given) if isinstance(given, Sequence | Mapping) else [given]
    if not all(isinstance(name, str) and name for name in names) or len(set(names)) != len(names):
        raise InvalidWriteError(f"partition_by={partition_by!r}: the names of different columns. Nothing was staged.")
    return names


def fingerprint(source: Source, files: Iterable[SourceFile], **work: Any) -> str:
    """Digest everything that decides a writer's rows (protocol: same source).

    :param source: the rendered source.
    :param files: the source's files that can be listed. Their paths, sizes and times count.
    :param work: the other rendered parameters that decide the rows.
    :returns: a digest that is equal for equal work.
    """
    seen = [(file.path, file.size, file.modified) for file in files]
    value = {"source": source.job(), "files": seen, "format": FINGERPRINT_FORMAT, **work}
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()
