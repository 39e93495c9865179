"""The parameters of a write as a DAG author gives them. Each is checked as early as its value is known."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import attrs
from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_provider_onelake.checks import check_known
from airflow_provider_onelake.exceptions import (
    AccessDeniedError,
    InvalidWriteError,
    OneLakeError,
    TerminalError,
    with_page,
)
from airflow_provider_onelake.hooks.context import closest_write_group
from airflow_provider_onelake.templates import is_final

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
_IN_TABLE, _IN_TUNING, _IN_MERGE = "new_table=NewTable({}=…)", "tuning=Tuning({}=…)", "mode=Merge({}=…)"
_GONE: Mapping[str, str] = {
    **{name: _IN_MERGE.format(name) for name in ("keys", "on", "when", "covers", "max_rounds")},
    **{name: _IN_TABLE.format(name) for name in ("schema", "generated_columns")},
    **{name: _IN_TUNING.format(name) for name in ("target_file_size", "v_order", "preflight")},
    "isolation": "left out: a MERGE sees all that lands before it; name its partitions by Merge(covers=…)",
    "replace_where": "mode=ReplaceWhere(…)",
    "allow_empty": "mode=Overwrite(allow_empty=True), or the same of ReplaceWhere and Merge",
    "table_properties": _IN_TABLE.format("properties"),
    "max_bytes": "OneLakePlanOperator(max_bytes=…); clear a plan of an earlier checkout with its writers",
    "quarantine_table": "a second writer with another `table`, whose `where` is for the rows that fail",
}
"""Parameters of a writer and of its group that are gone, each with what to write instead."""
_DAG_ID = re.compile(r"[\w.-]{1,250}")


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


def value_or_none(value: Any) -> Any:
    """Return a parameter's value; a blank text, as a template may render it, counts as not given."""
    return None if isinstance(value, str) and value.strip().lower() in ("", "none") else value


def check_gone(given: Iterable[str]) -> None:
    """Refuse parameters of a writer, or of its group, that are gone.

    :param given: the names.
    :raises InvalidWriteError: one of them is gone; the message says what to write instead.
    """
    if gone := [name for name in given if name in _GONE]:
        instead = "; ".join(f"{name} is now {_GONE[name]}" for name in gone)
        raise InvalidWriteError(
            f"A writer has no such parameters any more: {instead}. Import modes from airflow_provider_onelake.modes, "
            "and NewTable and Tuning from airflow_provider_onelake.options. Nothing was staged."
        )


def own_or(own: Any, group: Any) -> Any:
    """Return a writer's own value, or its group's where the writer has none; a blank text is none.

    :param own: of the writer.
    :param group: of its group.
    """
    return group if own is None or own == "" else own


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


def group_defaults(task: BaseOperator) -> Mapping[str, Any]:
    """Return the defaults that the closest write group around a task gives to its writers.

    :param task: any task.
    :returns: parameters by name; an empty mapping outside of a write group.
    """
    group = closest_write_group(task)
    return {} if group is None else dict(group.write_defaults)
