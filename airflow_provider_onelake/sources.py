"""What a writer reads: files of a format, a query, or the data frame of a function.

Sources are small frozen values. A DAG author may write templates in them; the operator renders a copy when the task
runs.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar

import attrs

from airflow_provider_onelake.exceptions import InvalidWriteError
from airflow_provider_onelake.reading.code_fingerprint import code_of
from airflow_provider_onelake.reading.stable_values import plain
from airflow_provider_onelake.templates import Templated

VIEW = re.compile(r"^[A-Za-z][A-Za-z0-9_]*$")
"""The name of a view."""

TARGET = "target"
"""The view by which a writer's source and steps read what its author says that they ``read`` of the table itself."""


def _texts(value: object) -> bool:
    return isinstance(value, str) or (isinstance(value, Sequence) and all(isinstance(item, str) for item in value))


# What follows the name of a secret in a URL, as of JDBC or of a shared access signature; a user with a password before
# the host; and the same as Oracle's driver has it.
_NAME = re.compile(r"(?i)[\w.-]*(?:password|passwd|pwd|secret|token|key|passphrase)|sig")
_SECRET = re.compile(rf"(?i)(\b(?:{_NAME.pattern.removeprefix('(?i)')})=)[^;&,)\s]*")
_USER = re.compile(r"(//)[^/@\s]*:[^@\s]*(?=@)|(:(?:thin|oci):)[^@\s]+(?=@)")


def _without_secrets(text: str) -> str:
    return _USER.sub(r"\1\2***", _SECRET.sub(r"\1***", text))


def _check_view(source: object, field: object, view: str) -> None:
    if not VIEW.match(view):
        raise InvalidWriteError(f"view={view!r} is no name of a view: letters, digits and _, a letter first.")


@attrs.frozen
class _Source(Templated):
    """A source with templates in some of its fields. A function has none: the task renders its arguments.

    :cvar kind: what jobs and records call this kind of source.
    """

    kind: ClassVar[str]


@attrs.frozen
class FileSource(_Source):
    """Files in a format that Spark reads, by the names of their columns. What ``options`` say wins.

    A CSV's ``header`` has to be that of the schema, or of the first file (``enforceSchema=false``). Parquet and ORC are
    read with the columns of all files (``mergeSchema=true``). Several Avro files need ``schema`` or ``avroSchema``. A
    record of CSV, JSON or XML that is malformed is refused, and so is one of JSON or XML with a value in none of the
    columns (``mode=FAILFAST``).

    :param path: a path, an address or a glob, or a list of them, as Spark sees them (templated).
    :param format: Spark's name of the format. Default: ``parquet`` (templated).
    :param options: options of Spark's reader, such as ``{"header": "true"}``. Default: none (templated).
    :param schema: the columns as Spark DDL, ``id BIGINT, name STRING``. Default: what Spark infers (templated).
    :param view: the name by which the steps read it. Default: ``source``.
    :raises InvalidWriteError: a field is of the wrong kind.
    """

    kind: ClassVar[str] = "files"
    template_fields: ClassVar[tuple[str, ...]] = ("path", "format", "options", "schema")

    path: str | Sequence[str]
    format: str = "parquet"
    options: Mapping[str, str] = attrs.field(factory=dict)
    schema: str | None = None
    view: str = attrs.field(default="source", validator=_check_view)

    def __attrs_post_init__(self) -> None:
        if not _texts(self.path) or not self.path:
            raise InvalidWriteError(
                f"FileSource(path={self.path!r}): a path is text, or a list of texts. To take it from another task, "
                "expand over whole sources, or write \"{{ ti.xcom_pull('task') }}\"."
            )

    @property
    def paths(self) -> list[str]:
        """The paths, as a list."""
        return [self.path] if isinstance(self.path, str) else list(self.path)

    def job(self) -> dict[str, Any]:
        """Return the source as a Spark job takes it."""
        given = attrs.asdict(self, recurse=False)
        return {"kind": self.kind, **given, "path": self.paths, "options": dict(self.options)}

    def serialize(self) -> dict[str, Any]:
        """Return the source as Airflow's web UI shows it: without secrets in its options and paths."""
        job = self.job()
        options = {
            name: "***" if _NAME.fullmatch(name) else _without_secrets(str(value))
            for name, value in job["options"].items()
        }
        return {**job, "path": [_without_secrets(path) for path in self.paths], "options": options}


@attrs.frozen
class SqlSource(_Source):
    """A query that Spark runs.

    :param query: Spark SQL (templated).
    :param view: the name by which the steps read it. Default: ``source``.
    :raises InvalidWriteError: a field is of the wrong kind.
    """

    kind: ClassVar[str] = "sql"
    template_fields: ClassVar[tuple[str, ...]] = ("query",)

    query: str
    view: str = attrs.field(default="source", validator=_check_view)

    def __attrs_post_init__(self) -> None:
        if not isinstance(self.query, str) or not self.query.strip():
            raise InvalidWriteError(f"SqlSource(query={self.query!r}): a query is Spark SQL, as text.")

    def job(self) -> dict[str, Any]:
        """Return the source as a Spark job takes it."""
        return {"kind": self.kind, "query": self.query, "view": self.view}

    def serialize(self) -> dict[str, Any]:
        """Return the source as Airflow's web UI shows it."""
        return self.job()


@attrs.frozen
class FunctionSource(_Source):
    """The data frame that a Python function returns. The function runs in the task, on Spark Connect.

    ``@task.onelake_write`` makes this source of a function.

    :param function: the function. It is called as ``function(spark=…, …)``, once for each session in which Spark gets
        work.
    :param arguments: the author's arguments by name, rendered. Default: none.
    :param given: the arguments that Airflow gives, by name. Default: none.
    :param view: the name by which the steps read it. Default: ``source``.
    :raises InvalidWriteError: ``view`` is no name of a view.
    """

    kind: ClassVar[str] = "function"

    function: Callable[..., Any] = attrs.field(repr=False)
    arguments: Mapping[str, Any] = attrs.field(factory=dict, repr=False)
    given: Mapping[str, Any] = attrs.field(factory=dict, repr=False)
    view: str = attrs.field(default="source", validator=_check_view)

    def name(self) -> dict[str, Any]:
        """Return the function's name and the author's arguments, which stay the same when the code changes.

        :raises InvalidWriteError: an argument cannot be compared with that of another try.
        """
        arguments = {}
        for name, value in self.arguments.items():
            try:
                arguments[name] = plain(value)
            except TypeError as error:
                raise InvalidWriteError(
                    f"{self.function.__qualname__}: the argument {name!r} cannot be compared with that of another try, "
                    f"as {error}. Give it text, numbers, dates, paths, or lists and dicts of them. Nothing was staged."
                ) from None
        return {"kind": self.kind, "function": self.function.__qualname__, "arguments": arguments, "view": self.view}

    def job(self) -> dict[str, Any]:
        """Return the source as a Spark job takes it, with everything that decides what the function returns.

        :raises InvalidWriteError: an argument cannot be compared, or the code cannot be read.
        """
        given = {}
        # Of Airflow's arguments, count only those that the function names as parameters and that are plain values. An
        # object of Airflow's, such as `ti`, has no plain form and does not count.
        for name in sorted(set(self.given) & set(inspect.signature(self.function).parameters)):
            with suppress(TypeError):
                given[name] = plain(self.given[name])
        return {**self.name(), "given": given, "code": code_of(self.function)}

    def rows(self, spark: Any) -> Any:
        """Call the function.

        :param spark: the Spark session.
        :returns: what the function returns: a data frame.
        """
        return self.function(spark=spark, **self.given, **self.arguments)


Source = FileSource | SqlSource | FunctionSource
