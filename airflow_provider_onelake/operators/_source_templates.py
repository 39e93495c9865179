"""Templates of a writer: those inside a source, and those that ask for a partition key."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, cast

import jinja2
from airflow.sdk import BaseOperator

from airflow_provider_onelake.exceptions import InvalidWriteError, OneLakeError
from airflow_provider_onelake.templates import Templated

if TYPE_CHECKING:
    from airflow.sdk import Context

_KEYS = ("partition_key", "partition_date")
_OF_THE_RUN = re.compile(rf"\bdag_run\.(?=({'|'.join(_KEYS)})\b)")
_LOOKED_AFTER = re.compile(rf"\b({'|'.join(_KEYS)})\s+is\s+(not\s+)?none\b", re.IGNORECASE)


class _NoPartitionKeyError(jinja2.UndefinedError):
    """A template uses the partition key of a run that has none. The message is the name that the template uses."""


class _Nothing(jinja2.StrictUndefined):
    """Stands for the missing key, which Jinja would render as ``None``. A template may test it, but not use it."""

    __slots__ = ()

    def __bool__(self) -> bool:  # type: ignore[override]
        return False


class SourceTemplates(BaseOperator):
    """An operator whose fields may be values with templates in them, and whose run may lack a partition key."""

    _lacks_partition_key: str | None = None
    _refused: OneLakeError | None = None

    def render_template(
        self,
        content: Any,
        context: Context,
        jinja_env: jinja2.Environment | None = None,
        seen_oids: set[int] | None = None,
    ) -> Any:
        """Render templates, also those inside a source, a mode or a new table, into a copy.

        :param content: of a field.
        :param context: of the running task.
        :param jinja_env: to render with.
        :param seen_oids: what must not be rendered.
        :returns: the rendered value; as it is where it asks for a partition key that the run does not have, or where
            what it renders to is refused. :meth:`check_partition_key` says so when the task runs.
        """
        if isinstance(content, Templated):
            if id(content) in (seen_oids or ()):
                return content
            try:
                return content.rendered(lambda value: self.render_template(value, context, jinja_env))
            except OneLakeError as error:
                self._refused = error
                return content
        render = super().render_template
        missing = [name for name in _KEYS if context.get(name, "") is None]
        # _Nothing is not None, so a template that tests the key by `is none` renders with the key as it is.
        if not isinstance(content, str) or not missing or _LOOKED_AFTER.search(content):
            return render(content, context, jinja_env, seen_oids)
        nothing = {name: _Nothing(name=name, exc=_NoPartitionKeyError) for name in missing}
        try:
            given = cast("Context", {**context, **nothing})
            rendered = render(_OF_THE_RUN.sub("", content), given, jinja_env, seen_oids)
            # If the DAG renders to native objects, the missing key itself may be the result.
            if not isinstance(rendered, _Nothing):
                return rendered
        except _NoPartitionKeyError:
            pass
        # Do not raise here, because Airflow would log a traceback and retry. check_partition_key() raises instead.
        self._lacks_partition_key = content
        return content

    def check_partition_key(self) -> None:
        """Refuse a run without a partition key where a template asks for one, and what templates render to.

        :raises InvalidWriteError: it does; or a rendered value is wrong.
        """
        if self._refused is not None:
            raise self._refused
        if self._lacks_partition_key is None:
            return
        timetable = getattr(self.get_dag(), "timetable", None)
        key_format = getattr(timetable, "key_format", None)
        form = f" of the form {key_format}" if key_format else ""
        raise InvalidWriteError(
            f"{self.task_id} asks for the run's partition key in {self._lacks_partition_key!r}, and this run has none. "
            f"Nothing was staged: trigger the DAG with a partition key{form}, in the form of the web UI or as "
            "`partition_key` of the API's call, or start a backfill, whose runs have theirs. A template that can do "
            "without tests it first: {% if partition_key %}."
        )
