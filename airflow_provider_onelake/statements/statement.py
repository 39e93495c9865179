"""A DELETE or UPDATE as its author writes it, and what can be refused of it without Spark."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum

import attrs

from airflow_provider_onelake.clauses import DELETE, NOISE, UPDATE
from airflow_provider_onelake.exceptions import InvalidWriteError
from airflow_provider_onelake.log.commits import digest_of

__all__ = ["DELETE", "UPDATE", "Statement", "StatementStatus"]


class StatementStatus(StrEnum):
    """How a statement ended."""

    DONE = "done"
    ALREADY = "already_done"
    NOTHING_TO_DO = "nothing_to_do"


_SUBQUERY = re.compile(r"\(\s*(?:SELECT|WITH)\b", re.IGNORECASE)
# Spark's functions whose answer for a row is another one when it is asked again, or in another file.
_CHANGING = re.compile(
    r"\b(rand|randn|random|randstr|uniform|uuid|shuffle|monotonically_increasing_id|spark_partition_id"
    r"|input_file_name|input_file_block_start|input_file_block_length)\s*\(",
    re.IGNORECASE,
)


@attrs.frozen(kw_only=True)
class Statement:
    """One DELETE or UPDATE with a predicate on rows.

    Each of them maps every row of the table by itself. So it can be run on some files now and on others later, and the
    results together are what it does to the table (protocol: statements map rows).

    :param operation: ``DELETE`` or ``UPDATE``.
    :param where: the rows that it is done to, in Spark SQL.
    :param covers: a predicate on partition columns; no other partitions are looked at. Default: all are.
    :param assignments: of an UPDATE: by column, its new value in Spark SQL.
    :raises InvalidWriteError: a text is empty, has a subquery, or asks for something that differs from run to run.
    """

    operation: str
    where: str
    covers: str | None = None
    assignments: Mapping[str, str] = attrs.field(factory=dict)

    def __attrs_post_init__(self) -> None:
        if (self.operation == UPDATE) != bool(self.assignments):
            raise InvalidWriteError("An UPDATE sets at least one column, and a DELETE none. Nothing was changed.")
        check_expression("where", self.where, self.operation)
        for name, text in self.assignments.items():
            check_expression(f"set[{name!r}]", text, self.operation, may_change=True)

    def __str__(self) -> str:
        sets = f" SET {', '.join(f'{name} = {sql}' for name, sql in self.assignments.items())}"
        return f"{self.operation}{sets if self.assignments else ''} WHERE {self.predicate}"

    @property
    def predicate(self) -> str:
        """What is true of the rows that it is done to, as people read it."""
        return f"({self.where}) AND ({self.covers})" if self.covers else self.where

    @property
    def digest(self) -> str:
        """Tells the statement from another one of the same task."""
        # A DELETE without more has the digest of its predicate, as a DELETE of whole partitions has.
        more = [f"covers {self.covers}"] if self.covers else []
        more += [f"set {name}={sql}" for name, sql in sorted(self.assignments.items())]
        return digest_of("\n".join([self.where, *more]).encode())


def check_expression(name: str, text: object, operation: str, *, may_change: bool = False) -> None:
    """Refuse an expression that a statement does not take, as far as its text tells.

    :param name: of the parameter, for messages.
    :param operation: of the statement, as Delta calls it.
    :param may_change: whether its answer may differ from run to run.
    :raises InvalidWriteError: it is empty, has a subquery, or calls such a function.
    """
    if not isinstance(text, str) or not text.strip():
        raise InvalidWriteError(f"{name}={text!r}: an expression in Spark SQL. Nothing was changed.")
    sql = NOISE.sub(" ", text)
    if _SUBQUERY.search(sql):
        raise InvalidWriteError(
            f"{name}={text!r} has a subquery, which Delta does not take in {operation}. Nothing was "
            "changed: compute the values in a task before, and pass them by a template, as in id IN ({{ … }})."
        )
    if not may_change and (found := _CHANGING.search(sql)):
        raise InvalidWriteError(
            f"{name}={text!r} calls {found[1]}(), whose answer changes from run to run. The statement may read "
            "files one after another, so nobody could say which rows it meant. Nothing was changed: compare "
            "columns with fixed values."
        )
