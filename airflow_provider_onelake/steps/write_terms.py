"""What a DAG author asked of a write, as one value."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from airflow_provider_onelake.buffers.spec import Promise, WriteSpec
from airflow_provider_onelake.checks import in_sql
from airflow_provider_onelake.choices import OnRerun, PublishMode, SchemaEvolution, chosen
from airflow_provider_onelake.exceptions import InvalidWriteError, SourceChangedError, SourceGrewError
from airflow_provider_onelake.modes import Mode
from airflow_provider_onelake.options import NewTable, Tuning, check_generated
from airflow_provider_onelake.reading.spark_files import SourceFile, base_of, digest_of
from airflow_provider_onelake.sources import TARGET, VIEW, FileSource, FunctionSource, Source
from airflow_provider_onelake.templates import is_final, known_items, known_mapping, text_or_none

if TYPE_CHECKING:
    from airflow_provider_onelake.buffers.beginnings import Beginning
    from airflow_provider_onelake.buffers.identity import WriterIdentity
    from airflow_provider_onelake.buffers.reads import Reads
    from airflow_provider_onelake.task_run import TaskRun

PartitionBy = str | Sequence[str] | Mapping[str, str]

FINGERPRINT_FORMAT = 1
"""Raise this number only if the staging job makes other rows from equal parameters. A clear compares fingerprints, so
after each change the rows that an earlier release published count as other work, and ``on_rerun="skip"`` is refused."""


def _check_source(query: Query, field: object, source: Any) -> None:
    if is_final(source) and not isinstance(source, Source):
        raise InvalidWriteError(
            f"source={source!r} is neither a FileSource nor a SqlSource. Write FileSource('/data/x.json', "
            "format='json') or SqlSource('SELECT …')."
        )


def _check_steps(query: Query, field: object, steps: Any) -> None:
    if not known_mapping(steps) or any(not isinstance(sql, str) for _, sql in known_items(steps)):
        raise InvalidWriteError(
            f"steps={steps!r}: steps are named SQL, {{'name': 'SELECT …'}}; the last one is written."
        )
    view = getattr(query.source, "view", "")
    for name in steps if isinstance(steps, Mapping) else ():
        if not isinstance(name, str) or not VIEW.match(name):
            raise InvalidWriteError(f"steps: {name!r} is no name of a view: letters, digits and _, a letter first.")
        if name.lower() == view.lower():
            raise InvalidWriteError(f"steps: {name!r} is the name of the source's view already.")


def _check_files(query: Query, field: object, files: Any) -> None:
    if files is None:
        return
    if is_final(query.source) and not isinstance(query.source, FileSource):
        raise InvalidWriteError(f"`files` are the paths of a FileSource, not of {query.source!r}.")
    # A text is a sequence too: its letters would be the files.
    texts = isinstance(files, Sequence) and not isinstance(files, str) and all(isinstance(path, str) for path in files)
    if is_final(files) and not texts:
        raise InvalidWriteError(
            f"files={files!r} must be a list of texts, such as ['/data/a.json']. Nothing was staged."
        )


def _check_reads(query: Query, field: object, reads: Any) -> None:
    if not isinstance(reads, str | bool | None) and is_final(reads):
        raise InvalidWriteError(
            f"reads={reads!r} is neither True, for the whole table, nor a predicate on partition columns. Nothing was "
            "staged."
        )
    steps = query.steps if isinstance(query.steps, Mapping) else ()
    if reads and TARGET in {name.lower() for name in (getattr(query.source, "view", ""), *steps)}:
        raise InvalidWriteError(
            f"reads={reads!r} makes the table known to the query as {TARGET!r}, and a step or the source's view has "
            "that name already: give it another. Nothing was staged."
        )


def _check_partition_by(definition: object, field: object, partition_by: PartitionBy | None) -> None:
    if is_final(partition_by):
        partition_columns(partition_by)
    if isinstance(partition_by, Mapping):
        check_generated("partition_by", partition_by)


def _evolution(value: Any) -> Any:
    return chosen("schema_evolution", value, SchemaEvolution, SchemaEvolution.NONE)


def _new_table(value: NewTable | None) -> NewTable:
    return NewTable() if value is None else value


def _tuning(value: Tuning | None) -> Tuning:
    return Tuning() if value is None else value


@attrs.frozen(kw_only=True)
class Query:
    """What Spark runs to get a writer's rows. The operator describes the fields.

    :raises InvalidWriteError: a field is of the wrong kind, as far as it is known now.
    """

    source: Source = attrs.field(validator=_check_source)
    steps: Mapping[str, str] = attrs.field(factory=dict, validator=_check_steps)
    where: str | None = attrs.field(default=None, converter=text_or_none)
    files: Sequence[str] | None = attrs.field(default=None, validator=_check_files)
    planned: Mapping[str, Any] | None = None
    reads: str | bool | None = attrs.field(default=None, converter=text_or_none, validator=_check_reads)

    @property
    def declared_reads(self) -> Reads | None:
        """The part of its own table that the writer declares to read."""
        from airflow_provider_onelake.buffers.reads import WHOLE, Reads

        if not self.reads:
            return None
        return Reads(WHOLE if self.reads is True else str(self.reads))

    def restricted(self, task_id: str) -> Query:
        """Return a query whose source has the writer's files only, but the same columns as the whole source.

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
        """Refuse a source that has become larger than the plan's ``max_bytes`` since it was planned.

        :param files: of the source, as far as they can be listed.
        :param task_id: what messages call the task.
        :raises SourceGrewError: it has.
        """
        most = (self.planned or {}).get("max_bytes")
        size = sum(file.size for file in files)
        if most is not None and size > most:
            raise SourceGrewError(
                f"The source of {task_id} has {size} bytes now, above max_bytes={most} of its plan. Nothing was "
                "staged: clear the plan, which then says what else there is, or raise max_bytes there."
            )

    def check_planned(self, files: Iterable[SourceFile], task_id: str) -> None:
        """Refuse files that are not as a plan of new files has recorded them.

        The record says which file is loaded, by its size and time. So rows of another file must not be published.

        :param files: of the source, as they are now.
        :param task_id: what messages call the task.
        :raises SourceChangedError: a file has changed, or is gone.
        """
        planned = self.of_new_files
        if planned is not None and digest_of(files) != planned["digest"]:
            raise SourceChangedError(
                f"The {planned['files']} files of {task_id} are not as they were planned: one has changed, or "
                "is gone. Nothing of this writer was published: clear the plan with its downstream tasks, which plans "
                "what is there now."
            )

    @property
    def of_new_files(self) -> Mapping[str, Any] | None:
        """What a plan of new files says of the files; ``None`` for any other plan, which only limits their size."""
        if not self.planned or "digest" not in self.planned:
            return None
        return {name: value for name, value in self.planned.items() if name != "max_bytes"}


@attrs.frozen(kw_only=True)
class Definition:
    """What the table's columns are, and what becomes of them. The operator describes the fields.

    :raises InvalidWriteError: a field is of the wrong kind, as far as it is known now.
    """

    partition_by: PartitionBy | None = attrs.field(default=None, validator=_check_partition_by)
    new_table: NewTable = attrs.field(factory=NewTable, converter=_new_table)
    schema_evolution: SchemaEvolution = attrs.field(
        default=SchemaEvolution.NONE,
        converter=_evolution,
    )

    @property
    def adds_columns(self) -> bool:
        """Whether columns that only the rows have are added to the table."""
        return self.schema_evolution is not SchemaEvolution.NONE

    @property
    def partition_columns(self) -> list[str] | None:
        """The names of the partition columns; ``None`` if the author gives none."""
        return partition_columns(self.partition_by)

    @property
    def generated(self) -> dict[str, str]:
        """All columns that the table generates, with their SQL."""
        partitions = self.partition_by if isinstance(self.partition_by, Mapping) else {}
        return {**self.new_table.generated_columns, **partitions}


@attrs.frozen(kw_only=True)
class WriteTerms:
    """What a DAG author asked of a write: what Spark runs, what is promised of the rows, and into which table they go.

    :param query: what Spark runs.
    :param promise: what the buffer keeps.
    :param definition: of the table.
    :param tuning: how the files are written.
    """

    query: Query
    promise: Promise = attrs.field(factory=Promise)
    definition: Definition = attrs.field(factory=Definition)
    tuning: Tuning = attrs.field(factory=Tuning, converter=_tuning)

    def __attrs_post_init__(self) -> None:
        if isinstance(self.promise.mode, Mode):
            self._check_mode(self.promise.mode)

    def _check_mode(self, mode: Mode) -> None:
        """Refuse what does not go with the mode."""
        query, promise, where = self.query, self.promise, f"mode={mode.name!r}"
        if query.reads and mode.repeats and promise.on_rerun == OnRerun.REPLACE:
            raise InvalidWriteError(
                f"reads={query.reads!r} takes no on_rerun='replace' for an append: its query would read the very rows "
                "that the rerun takes back, and find that they are there already. Use 'skip' or 'append'. Nothing was "
                "staged."
            )
        if not mode.in_rounds:
            return
        if promise.expected_partitions or promise.publish == PublishMode.TOGETHER:
            raise InvalidWriteError(
                f"{where} takes neither expected_partitions nor publish='together': it merges all rows of its source, "
                "and only its own task can, because Spark has to do it on the newest version. Leave rows out by "
                "`where`; use a group with publish='each', or put this writer behind the group. Nothing was staged."
            )
        if query.of_new_files is not None:
            raise InvalidWriteError(
                f"{where} takes no plan of new files: a MERGE that changes nothing makes no commit, so the table's log "
                "would not say that the files are loaded. Nothing was staged."
            )
        if mode.own_columns and self.definition.schema_evolution != SchemaEvolution.NONE:
            raise InvalidWriteError(
                f"{where} with `when` or `on` takes no schema_evolution, because its source may have columns that are "
                "not for the table. Nothing was staged."
            )

    @property
    def sql_checks(self) -> dict[str, str]:
        """The checks that Spark evaluates. Those that compare with the last loads need no Spark."""
        return in_sql(self.promise.checks)

    def job(self) -> dict[str, Any]:
        """Return what each Spark job of these terms has to know: fields of a ``spark.base.StageJob``."""
        query = self.query
        return {
            "source": query.source.job(),
            "rows": query.source.rows if isinstance(query.source, FunctionSource) else None,
            "where": query.where,
            "steps": dict(query.steps),
            "checks": self.sql_checks,
            **attrs.asdict(self.tuning),
        }

    def restricted(self, task_id: str) -> WriteTerms:
        """Return terms whose source has the writer's files only; see :meth:`Query.restricted`."""
        return attrs.evolve(self, query=self.query.restricted(task_id))

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
        return WriteSpec.of(
            self.promise,
            identity=who,
            attempt=run.attempt,
            generation=generation,
            task=run.label,
            fingerprint=self.digest(files),
            source=self.query.source.kind,
            planned=self.query.of_new_files,
            reads=self.query.declared_reads,
            began=began,
        )

    def digest(self, files: Iterable[SourceFile]) -> str:
        """Return the fingerprint of the work.

        :param files: of the source, as far as they can be listed.
        """
        query, promise, mode = self.query, self.promise, self.promise.mode
        planned, reads = query.of_new_files, query.declared_reads
        if planned is not None:
            # The work is the files as they were planned, whatever has become of them since they were loaded.
            files = ()
        return fingerprint(
            query.source,
            files,
            steps=list(query.steps.items()),
            where=query.where,
            expected_partitions=promise.expected_partitions,
            into=mode.bounds,
            **mode.deciding,
            # Rows that nobody checked so are not the rows that are asked for now. Without checks, the fingerprint is
            # that of a release without checks.
            **({"checks": dict(promise.checks), "on_failed_check": promise.on_failed_check} if promise.checks else {}),
            **({"planned": planned["digest"]} if planned is not None else {}),
            **({"reads": reads.where} if reads else {}),
        )


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
