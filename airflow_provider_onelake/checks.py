"""Checks of staged rows that are no conditions in SQL, for the ``checks`` of a writer or a write group."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Mapping

import attrs

from airflow_provider_onelake.exceptions import InvalidWriteError

_CALL = re.compile(r"\s*rows_like_last\s*\(")
_UNIQUE = re.compile(r"\s*unique\s*\(", re.IGNORECASE)
_MOST_LOADS = 100


def rows_like_last(loads: int | str = 5, *, at_least: float | str = 0.5, at_most: float | str | None = 2.0) -> str:
    """Return a check that passes if a writer has about as many rows as it had in its last loads.

    It compares with the median of the rows that the writer of the same namespace, DAG, group and key published in other
    runs, as the table's own log tells. In its first load there is nothing to compare with, and the check passes.

    :param loads: how many loads count, at most 100: the newest by the order in which they were published. Default: 5.
    :param at_least: the fewest rows that pass, as a part of the median. With 0, no number is too small. Default: 0.5.
    :param at_most: the most rows that pass, as a multiple of the median. With ``None``, no number is too large.
        Default: 2.
    :returns: the check as a text, ``rows_like_last(5, at_least=0.5, at_most=2.0)``. It may hold templates.
    """
    return f"rows_like_last({loads}, at_least={at_least}, at_most={at_most})"


@attrs.frozen
class RowsLikeLast:
    """What :func:`rows_like_last` asks for."""

    loads: int = 5
    at_least: float = 0.5
    at_most: float | None = 2.0

    @classmethod
    def parse(cls, check: str) -> RowsLikeLast | None:
        """Read the text of a check; ``None`` for a condition in SQL.

        :param check: the text, without templates.
        :raises InvalidWriteError: it does not say what to compare.
        """
        if not _CALL.match(check):
            return None
        try:
            call = ast.parse(check.strip(), mode="eval").body
            if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
                raise TypeError
            by_name = {given.arg or "": ast.literal_eval(given.value) for given in call.keywords}
            asked = cls(*map(ast.literal_eval, call.args), **by_name)
        except (SyntaxError, TypeError, ValueError):
            asked = None
        if asked is None or not asked._is_valid():
            raise InvalidWriteError(
                f"{check!r} is no check of the number of rows. It stands alone, as in rows_like_last(5, at_least=0.5, "
                f"at_most=2): 1 to {_MOST_LOADS} loads, and two parts of the median of their rows, of which the second "
                "is not the smaller one, or None. Nothing was staged."
            )
        return asked

    def _is_valid(self) -> bool:
        numbers = [self.at_least, *([] if self.at_most is None else [self.at_most])]
        return (
            isinstance(self.loads, int)
            and not isinstance(self.loads, bool)
            and 1 <= self.loads <= _MOST_LOADS
            and all(isinstance(number, int | float) and not isinstance(number, bool) for number in numbers)
            and all(0 <= number < math.inf for number in numbers)
            and numbers == sorted(numbers)
        )


def unique(*columns: str) -> str:
    """Refuse a check of keys against the table: it is gone, and the message says what to take instead.

    :param columns: of the key.
    :raises InvalidWriteError: always.
    """
    raise _unique_is_gone(f"unique({', '.join(map(repr, columns))})")


def is_gone(check: object) -> bool:
    """Say whether a check is one of keys against the table, as earlier releases had it.

    :param check: as its author wrote it.
    """
    return isinstance(check, str) and _UNIQUE.match(check) is not None


def check_known(check: str) -> None:
    """Refuse a check that is gone, or that does not say what to compare. What Spark takes, only Spark says.

    :param check: the text, without templates.
    :raises InvalidWriteError: it is such a check.
    """
    if is_gone(check):
        raise _unique_is_gone(check)
    RowsLikeLast.parse(check)


def _unique_is_gone(check: str) -> InvalidWriteError:
    return InvalidWriteError(
        f"The check {check!r} is gone: no check looks at the rows of the table. To leave out rows whose key is there, "
        "take mode='merge' with `keys` and when=['NOT MATCHED THEN INSERT *']. To look at the keys of the staged rows, "
        "take a condition such as 'count(*) = count(DISTINCT id)': docs/guides/no-key-twice.md. Nothing was staged."
    )


def in_sql(checks: Mapping[str, str]) -> dict[str, str]:
    """Return the checks that are conditions in SQL, which Spark evaluates.

    :param checks: by name.
    """
    return {name: check for name, check in checks.items() if RowsLikeLast.parse(check) is None}
