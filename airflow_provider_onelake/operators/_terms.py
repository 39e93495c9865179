"""The parameters of a write as a DAG author gives them. Each is checked as early as its value is known."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import attrs
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_onelake.checks import check_known
from airflow_provider_onelake.choices import GONE
from airflow_provider_onelake.exceptions import (
    AccessDeniedError,
    InvalidWriteError,
    OneLakeError,
    TerminalError,
    with_page,
)
from airflow_provider_onelake.hooks.task_run import closest_write_group
from airflow_provider_onelake.sources import VIEW, Source
from airflow_provider_onelake.work.terms import CHOICES, FLAGS

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator

    from airflow_provider_onelake.hooks.onelake import OneLakeHook

logger = logging.getLogger(__name__)

_MOST_MESSAGE = 1000
_MOST_NAME = 100
# In Airflow's page of a log, a window of a usual size shows 100 characters of a line. Its number takes 7 of them in all
# lines of a message, and time and level take 30 in the first.
_IN_SIGHT = 93
_STAMP = " " * 30
_DAG_ID = re.compile(r"[\w.-]{1,250}")
_TEMPLATE = re.compile(r"\{\{|\{%|\{#")
# Behind a column's type. A text or a quoted name may have the words in it, and a column may be called `default`.
_NOT_IN_SCHEMA = re.compile(r"(?<=[\w)>])\s+(GENERATED\s+(ALWAYS|BY)\b.*?\bAS(\s+IDENTITY)?|DEFAULT)\b", re.I | re.S)


# A class, as each generator of contextlib would add two frames to what a task's log shows below the message.
@attrs.frozen
class terminal_errors_fail:  # noqa: N801
    """Fail the task for good if a person has to act. Airflow retries all other errors.

    The messages of all our errors end with where the tables in them are, and where the docs say more of them.

    :param hook: that opens the tables. Default: none, so that messages do not say where tables are.
    :param explained: returns the refusal of a store with what decided. Default: the refusal as it is.
    :raises AirflowFailException: for a :class:`~airflow_provider_onelake.exceptions.TerminalError`.
    """

    hook: OneLakeHook | None = None
    explained: Callable[[AccessDeniedError], AccessDeniedError] = lambda error: error

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Say what failed.

        :param kind: not used.
        :param error: what was raised.
        :param trace: not used.
        """
        if isinstance(error, AccessDeniedError):
            error = self.explained(error)
        where = self.hook.opened if self.hook is not None else {}
        if isinstance(error, TerminalError):
            # Drop the causes: with them, the task's log would repeat the message three times and add the JVM's frames.
            logger.debug("What failed, and where", exc_info=error)
            said = f"{type(error).__name__}: {with_page(error, where)}"
            logger.error("%s", _in_sight(said))
            raise AirflowFailException(said) from None
        if isinstance(error, OneLakeError) and (said := with_page(error, where)) != str(error):
            logger.error("%s", _in_sight(f"{type(error).__name__}: {said}"))
            # The same error goes on, as the retry policy looks at its class and at its causes.
            error.args = (said,)


def _in_sight(said: str) -> str:
    """Return a message in lines that fit into Airflow's page of a task's log.

    Airflow shows an exception in one line behind a wide margin, so only its beginning is in sight there.

    :param said: the message, which may have lines of its own.
    """
    first, *others = said.splitlines()
    folded = wrap(first, _IN_SIGHT, initial_indent=_STAMP, break_long_words=False, break_on_hyphens=False)
    for line in others:
        folded += wrap(line, _IN_SIGHT, drop_whitespace=False, break_long_words=False, break_on_hyphens=False)
    return "\n".join(folded).removeprefix(_STAMP)


def is_final(value: object) -> bool:
    """Say whether a parameter's value is known now: it holds no template and no other task's output."""
    if isinstance(value, str):
        return _TEMPLATE.search(value) is None
    if isinstance(value, Mapping):
        return all(is_final(item) for item in value.values())
    if isinstance(value, Sequence):
        return all(is_final(item) for item in value)
    return value is None or isinstance(value, bool | int | float | Source)


def given(value: Any) -> Any:
    """Return a parameter's value; a blank text, as a template may render it, counts as not given."""
    return None if isinstance(value, str) and value.strip().lower() in ("", "none") else value


def check_choices(given: object, names: Iterable[str]) -> None:
    """Refuse values that are not among the choices of their parameters, as far as the values are known now.

    :param given: has the parameters as attributes.
    :raises InvalidWriteError: a value is not among the choices.
    """
    for name in names:
        value = getattr(given, name)
        if value is not None and is_final(value):
            check_choice(name, value, CHOICES[name])


def check_choice(name: str, value: object, choices: Iterable[str]) -> None:
    """Refuse a value that is not among the choices of its parameter.

    :param name: of the parameter.
    :raises InvalidWriteError: it is not among them.
    """
    if value not in list(choices):
        said = GONE.get(str(value)) or f"is unknown; it is one of {', '.join(choices)}."
        raise InvalidWriteError(f"{name}={value!r} {said}")


def check_message(message: object) -> None:
    """Refuse a ``commit_message`` that no commit can carry, as far as it is known now.

    :raises InvalidWriteError: it is no text, or has more than 1,000 characters.
    """
    if message is None or not is_final(message):
        return
    if not isinstance(message, str):
        raise InvalidWriteError(f"commit_message={message!r} must be a text. Nothing was changed.")
    if len(message) > _MOST_MESSAGE:
        raise InvalidWriteError(
            f"commit_message has {len(message)} characters, and at most {_MOST_MESSAGE:,} are taken, because every "
            "reader of the table's log fetches them. Nothing was changed: shorten it."
        )


def check_flag(name: str, value: object, *, or_none: bool = False) -> None:
    """Refuse a value that says neither yes nor no. Any text would count as yes, also ``"no"`` and a template.

    :param name: of the parameter, which is not templated.
    :param or_none: whether ``None`` is taken too.
    :raises InvalidWriteError: it is such a value.
    """
    if not isinstance(value, bool) and not (or_none and value is None):
        allowed = "True, False or None" if or_none else "True or False"
        raise InvalidWriteError(
            f"{name}={value!r} must be {allowed}; Airflow renders no templates in it. Nothing was changed."
        )


def check_whole(name: str, value: object, what: str = "a whole number") -> None:
    """Refuse a value that is no whole number above 0.

    :param name: of the parameter, which is not templated.
    :param what: what the number is, for the message.
    :raises InvalidWriteError: it is such a value.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidWriteError(f"{name}={value!r}: {what}, at least 1. Nothing was changed.")


def check_size(name: str, value: object) -> None:
    """Refuse a size that is no number of bytes.

    :param name: of the parameter, which is not templated.
    :param value: the size; ``None`` for none.
    :raises InvalidWriteError: it is such a value.
    """
    if value is not None:
        check_whole(name, value, "a size in bytes, as a whole number")


def check_number(name: str, value: object) -> None:
    """Refuse a value that is no finite number.

    :param name: of the parameter, which is not templated.
    :raises InvalidWriteError: it is such a value.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InvalidWriteError(f"{name}={value!r} must be a number. Nothing was changed.")


def check_duration(name: str, value: object) -> None:
    """Refuse a time that is neither a number of seconds nor a ``timedelta``, or not above 0.

    :param name: of the parameter, which is not templated.
    :param value: the time; ``None`` for none.
    :raises InvalidWriteError: it is such a value.
    """
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if seconds is not None and (isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0):
        raise InvalidWriteError(
            f"{name}={value!r} must be seconds or a timedelta, above 0; Airflow renders no templates in it. Nothing "
            "was changed."
        )


def check_unrendered(given: Any) -> None:
    """Refuse wrong values of those parameters of a writer that Airflow does not render, and that its group may set.

    :param given: has the parameters as attributes.
    :raises InvalidWriteError: a value is wrong.
    """
    for name in FLAGS:
        check_flag(name, getattr(given, name), or_none=True)
    check_size("target_file_size", given.target_file_size)
    check_duration("spark_timeout", given.spark_timeout)


def check_table(name: str, table: object) -> None:
    """Refuse what cannot name a table, as far as it is known now.

    :param name: of the parameter.
    :raises InvalidWriteError: it is no text, or blank.
    """
    if is_final(table) and (not isinstance(table, str) or not table.strip()):
        raise InvalidWriteError(
            f"{name}={table!r} must be an address, or a path such as 'Tables/trips'. Nothing was changed."
        )


def check_load_name(name: object) -> None:
    """Refuse a ``load_name`` that could not stand in place of a DAG's id.

    :param name: it, which is not templated; ``None`` for none.
    :raises InvalidWriteError: no DAG could have it as its id.
    """
    if name is not None and (not isinstance(name, str) or not _DAG_ID.fullmatch(name)):
        raise InvalidWriteError(
            f"load_name={name!r} must be like a DAG's id: at most 250 letters, digits, '_', '-' and '.'; Airflow "
            "renders no templates in it. Nothing was changed."
        )


def check_key(writer: object) -> None:
    """Refuse a writer's key that is no text, as far as it is known now.

    :param writer: the key; ``None`` where the author gives none.
    :raises InvalidWriteError: it is no text.
    """
    if writer is not None and is_final(writer) and not isinstance(writer, str):
        raise InvalidWriteError(f"writer={writer!r} must be a text: spell it writer='{writer}'. Nothing was staged.")


def check_files(files: object) -> None:
    """Refuse a writer's ``files`` that are no list of texts, as far as they are known now.

    A text is a sequence too: its letters would be the files.

    :param files: the paths; ``None`` for all paths of the source.
    :raises InvalidWriteError: they are no such list.
    """
    if files is None or not is_final(files):
        return
    if isinstance(files, str) or not isinstance(files, Sequence) or not all(isinstance(path, str) for path in files):
        raise InvalidWriteError(
            f"files={files!r} must be a list of texts, such as ['/data/a.json']. Nothing was staged."
        )


def rendered_message(message: Any) -> str | None:
    """Return a ``commit_message`` as a commit carries it; ``None`` where it is blank.

    :raises InvalidWriteError: it still holds a template, is no text, or is too long.
    """
    check_rendered("commit_message", message)
    check_message(message)
    return (message or "").strip() or None


def check_rendered(name: str, value: object) -> None:
    """Refuse a template that Airflow did not render.

    Airflow does not render literals inside ``expand_kwargs``, and Spark would take the template for the value.

    :raises InvalidWriteError: the value still holds a template.
    """
    if isinstance(value, Source):
        value = [getattr(value, field) for field in value.template_fields]
    if not is_final(value):
        raise InvalidWriteError(
            f"{name}={value!r} still holds a template. Airflow does not render values inside expand_kwargs: put the "
            "template into partial(), or make the list in a task. Nothing was staged."
        )


def check_all_rendered(operator: BaseOperator) -> None:
    """Refuse a templated parameter of a task that Airflow did not render.

    :raises InvalidWriteError: one of them still holds a template.
    """
    for name in operator.template_fields:
        check_rendered(name, getattr(operator, name))


def check_checks(checks: object) -> None:
    """Refuse checks that are no named conditions, as far as they are known now.

    :raises InvalidWriteError: they are no dict of texts, a name is blank or too long, or a condition is blank.
    """
    if checks is None or (not is_final(checks) and not isinstance(checks, Mapping)):
        return
    if not isinstance(checks, Mapping):
        raise InvalidWriteError(
            f"checks={checks!r}: checks are named conditions in Spark SQL, {{'no negative fares': 'fare >= 0'}}."
        )
    for name, sql in checks.items():
        if not isinstance(name, str) or not name.strip() or len(name) > _MOST_NAME or not is_final(name):
            raise InvalidWriteError(
                f"checks: {name!r} is no name of a check: a text of at most {_MOST_NAME} characters, without templates."
            )
        if is_final(sql) and (not isinstance(sql, str) or not sql.strip()):
            raise InvalidWriteError(
                f"checks: {name!r} is {sql!r}, which is no condition in Spark SQL, such as 'fare >= 0' or "
                "'count(*) > 0'."
            )
        if is_final(sql):
            check_known(sql)


def check_definition(given: Any) -> None:
    """Refuse what a table cannot be created with, as far as it is known now.

    :param given: has ``schema``, ``partition_by``, ``generated_columns`` and ``table_properties`` as attributes.
    :raises InvalidWriteError: ``schema`` has more than columns, columns are not generated by SQL, or properties are no
        dict.
    :raises TablePropertyError: no table must be created with a property, or not with its value.
    """
    generated, properties = given.generated_columns, given.table_properties
    by = given.partition_by if isinstance(given.partition_by, Mapping) else {}
    for parameter, columns in (("generated_columns", generated), ("partition_by", by)):
        if not _is_mapping(columns):
            raise InvalidWriteError(
                f"{parameter}={columns!r}: generated columns are SQL by name, such as {{'year': 'year(at)'}}."
            )
        for name, sql in _items(columns):
            if not isinstance(name, str) or not name.strip() or not isinstance(sql, str) or not sql.strip():
                raise InvalidWriteError(
                    f"{parameter}: {name!r} is {sql!r}; it is the name of a column with the SQL that generates it."
                )
    schema = re.sub(r"'[^']*'|\"[^\"]*\"|`[^`]*`", "x", given.schema) if isinstance(given.schema, str) else ""
    if clause := _NOT_IN_SCHEMA.search(schema):
        raise InvalidWriteError(
            f"schema: {clause[1].upper()} is for CREATE TABLE in Spark. Use generated_columns={{'year': 'year(at)'}}, "
            "or fill the column in a step: coalesce(n, 7) stands for a default, uuid() for an identity."
        )
    if not _is_mapping(properties):
        raise InvalidWriteError(
            f"table_properties={properties!r}: properties are texts by name, {{'delta.appendOnly': 'true'}}."
        )
    if properties:
        from airflow_provider_onelake.log.properties import check_new

        for name, value in _items(properties):
            check_new(name, value)


def _is_mapping(value: object) -> bool:
    """Say whether a value is a dict, or may be one when it is rendered."""
    return value is None or isinstance(value, Mapping) or not is_final(value)


def _items(value: object) -> list[tuple[Any, Any]]:
    """Return what a dict holds that is known now."""
    return [item for item in value.items() if is_final(item)] if isinstance(value, Mapping) else []


def check_steps(steps: object, view: str) -> None:
    """Refuse steps that cannot become views, as far as they are known now.

    :param view: the name of the source's view.
    :raises InvalidWriteError: the steps are not SQL by name, a name cannot name a view, or the source has it.
    """
    if not is_final(steps) and not isinstance(steps, Mapping):
        return
    if not isinstance(steps, Mapping) or any(not isinstance(sql, str) for sql in steps.values() if is_final(sql)):
        raise InvalidWriteError(
            f"steps={steps!r}: steps are named SQL, {{'name': 'SELECT …'}}; the last one is written."
        )
    for name in steps:
        if not isinstance(name, str) or not VIEW.match(name):
            raise InvalidWriteError(f"steps: {name!r} is no name of a view: letters, digits and _, a letter first.")
        if name.lower() == view.lower():
            raise InvalidWriteError(f"steps: {name!r} is the name of the source's view already.")


def group_defaults(task: BaseOperator) -> Mapping[str, Any]:
    """Return the defaults that the closest write group around a task gives to its writers.

    :param task: any task.
    :returns: parameters by name; an empty mapping outside of a write group.
    """
    group = closest_write_group(task)
    return {} if group is None else dict(group.write_defaults)
