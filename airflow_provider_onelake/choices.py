"""The words among which a DAG author chooses, parameter by parameter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any

from airflow_provider_onelake.exceptions import InvalidWriteError
from airflow_provider_onelake.templates import is_final, text_or_none


class PublishMode(StrEnum):
    """When buffers become visible."""

    EACH = "each"
    TOGETHER = "together"


class OnUnexpectedRows(StrEnum):
    """What happens to rows outside of the partitions that are expected of a writer."""

    SET_ASIDE = "set_aside"
    REFUSE = "refuse"


class OnSetAside(StrEnum):
    """What it means for a task that rows are not in the table, because a policy counts another write more."""

    WARN = "warn"
    SKIP = "skip"
    FAIL = "fail"


class OnChanged(StrEnum):
    """What a plan of new files does with a file that has changed since it was loaded."""

    REFUSE = "refuse"
    LOAD_AGAIN = "load_again"
    IGNORE = "ignore"


class OnFailedCheck(StrEnum):
    """What happens to the rows of a writer that fail one of its checks."""

    REFUSE = "refuse"
    WARN = "warn"


class OnRerun(StrEnum):
    """What a deliberate rerun of committed work does."""

    SKIP = "skip"
    REPLACE = "replace"
    APPEND = "append"


class SchemaEvolution(StrEnum):
    """What happens to columns that only the rows have, and to columns that have a wider type in the rows."""

    NONE = "none"
    ADD_COLUMNS = "add_columns"


class Policy(StrEnum):
    """Which write is seen where two writes replaced the same partition."""

    LAST_WRITER_WINS = "last_writer_wins"
    FIRST_WRITER_WINS = "first_writer_wins"
    FAIL = "fail"


GONE: Mapping[str, str] = {
    **{
        f"{policy}_per_partition": (
            f"is gone: a writer of several partitions is published whole or not at all. Take '{policy}', and one "
            "writer for each partition to settle each by itself."
        )
        for policy in (Policy.LAST_WRITER_WINS, Policy.FIRST_WRITER_WINS)
    },
    "add_and_widen": (
        "is gone: columns are widened by the table's owner. Take OneLakeAlterOperator(column_types={'id': 'BIGINT'}) "
        "once, and 'add_columns' here for columns that are new."
    ),
    "quarantine": (
        "is gone: no writer divides its rows. Take where='fare >= 0', or a step that filters, for the rows that meet "
        "the check; and for the others a second writer outside of this group, with another `table` and "
        "where='NOT coalesce(fare >= 0, false)'."
    ),
}
"""Choices that are gone, each with what a message says of it."""


class OnMissingWriter(StrEnum):
    """What is published of a load whose writers are not all complete."""

    PUBLISH_OTHERS = "publish_others"
    PUBLISH_NOTHING = "publish_nothing"


class OnNewerCommit(StrEnum):
    """What a restore does with commits that came after the task began."""

    FAIL = "fail"
    UNDO = "undo"


class OnStatementRerun(StrEnum):
    """What a statement does that is cleared after it was done."""

    SKIP = "skip"
    AGAIN = "again"


def check_choice(name: str, value: object, choices: Iterable[str]) -> None:
    """Refuse a value that is not among the choices of its parameter, as far as it is known now.

    :param name: of the parameter.
    :raises InvalidWriteError: it is not among them.
    """
    if is_final(value) and value not in list(choices):
        said = GONE.get(str(value)) or f"is unknown; it is one of {', '.join(choices)}."
        raise InvalidWriteError(f"{name}={value!r} {said}")


def chosen(name: str, value: Any, kind: type[StrEnum], default: StrEnum | None = None) -> Any:
    """Return the choice that a parameter's value is: a template stays as it is, and a blank text is the default.

    :param name: of the parameter.
    :param kind: the choices.
    :param default: where none is given.
    :raises InvalidWriteError: the value is not among the choices.
    """
    given = text_or_none(value)
    if given is None or not is_final(given):
        return default if given is None else given
    check_choice(name, given, kind)
    return kind(given)
