"""The verdict on a buffer: what its writer's checks say of the staged rows (protocol: audited).

staged/<writer>/<attempt>/_checked.json  put create-only when Spark has evaluated the checks over the files
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import attrs

from airflow_provider_onelake.choices import OnFailedCheck
from airflow_provider_onelake.exceptions import BufferInvalidError, ObjectExistsError, ObjectNotFoundError
from airflow_provider_onelake.staging.layout import json_at, verdict_path

if TYPE_CHECKING:
    from airflow_provider_onelake.storage.stores import Store

# The names of failed checks stand in every commit of their rows, which every reader of the log fetches.
_MOST_NAMES = 5
_NOT_ALWAYS = ("found", "of_load")


@attrs.frozen(kw_only=True)
class CheckResult:
    """What one check says of the staged rows.

    :param name: of the check.
    :param sql: the condition, in Spark SQL, or what else its author wrote.
    :param each_row: whether the condition is about each row, or about all of them together.
    :param met: whether all rows meet it, or all together do; ``None`` where the condition is NULL.
    :param failed: how many rows do not meet it; ``None`` where it is about all rows together.
    :param found: what was compared, for people, where it is no condition in SQL.
    :param of_load: ``True`` of a check that the rows of the writer alone do not decide, but those of its whole load
        together. It has neither passed nor failed here.
    """

    name: str
    sql: str
    each_row: bool
    met: bool | None
    failed: int | None = None
    found: str | None = None
    of_load: bool | None = None

    @property
    def passed(self) -> bool:
        """Whether the check passed. A condition that is NULL is not met."""
        return self.met is True

    @property
    def is_decided(self) -> bool:
        """Whether the rows of the writer alone decide it."""
        return not self.of_load

    @property
    def why(self) -> str:
        """Why the check failed, for people."""
        if self.found is not None:
            return self.found
        if self.each_row:
            return f"not true of {self.failed} row{'' if self.failed == 1 else 's'}"
        return "it is NULL, which is not true" if self.met is None else "it is false"

    def to_json(self) -> dict[str, Any]:
        """Return the result as plain JSON."""
        return attrs.asdict(self, filter=lambda field, value: field.name not in _NOT_ALWAYS or value is not None)

    def __str__(self) -> str:
        return f"{self.name!r} ({' '.join(self.sql.split())}): {'it is true' if self.passed else self.why}"


@attrs.frozen(kw_only=True)
class Quarantined:
    """Where the rows of a writer are that fail a check.

    :param table: the quarantine's address.
    :param version: of the quarantine, in which they came; ``None`` where its log no longer says.
    :param rows: how many there are; ``None`` where an earlier try put them there and nobody knows how many.
    :param failed: by name, how many rows do not meet a check.
    """

    table: str
    version: int | None
    rows: int | None
    failed: Mapping[str, int] = attrs.field(hash=False)


@attrs.frozen
class Verdict:
    """What a writer's checks say of its staged rows.

    :param rows: how many rows Spark read.
    :param results: one for each check.
    :param quarantined: the rows of the writer that fail a check, where they are in quarantine. They are among the rows
        of the buffer that holds all rows of the writer, and not of the one that is published.
    """

    rows: int
    results: tuple[CheckResult, ...]
    quarantined: Quarantined | None = None

    @property
    def rows_failed(self) -> tuple[CheckResult, ...]:
        """The checks about each row that failed, so that the rows can be divided."""
        return tuple(result for result in self.failed if result.each_row)

    @property
    def failed(self) -> tuple[CheckResult, ...]:
        """The checks that failed. A check of rows that are in quarantine passes here, where they are not."""
        return tuple(result for result in self.results if result.is_decided and not result.passed)

    @property
    def of_load(self) -> tuple[CheckResult, ...]:
        """The checks that the rows of the whole load decide together."""
        return tuple(result for result in self.results if not result.is_decided)

    @property
    def of_all_rows(self) -> tuple[CheckResult, ...]:
        """The results over all rows of the writer: a check that rows in quarantine fail has failed."""
        apart = self.quarantined.failed if self.quarantined is not None else {}
        return tuple(
            attrs.evolve(result, met=False, failed=apart[result.name]) if apart.get(result.name) else result
            for result in self.results
        )

    @property
    def in_words(self) -> str:
        """The verdict in a few words, such as ``2 checks passed`` or ``1 of 2 checks failed: no negative fares``.

        It is over all rows of the writer. It is empty where the writer's own rows decide no check.
        """
        said = results_in_words([result for result in self.of_all_rows if result.is_decided])
        return f"{said}{self._in_quarantine}"

    @property
    def _in_quarantine(self) -> str:
        if self.quarantined is None:
            return ""
        rows = self.quarantined.rows
        return f", {'rows' if rows is None else '1 row' if rows == 1 else f'{rows} rows'} in quarantine"

    def told(self, asked: OnFailedCheck) -> list[dict[str, Any]]:
        """Return the results for XCom and for pages, over all rows of the writer.

        :param asked: what was to happen to rows that fail.
        :returns: for each check what :meth:`CheckResult.to_json` says; ``passed``, which is ``None`` for a check that
            the whole load decides; and of one that failed, ``done``.
        """
        apart = self.quarantined.failed if self.quarantined is not None else {}
        return [
            result_told(result, Done.QUARANTINED if apart.get(result.name) else done_by(asked))
            for result in self.of_all_rows
        ]

    def for_load(self, names: Collection[str]) -> Verdict:
        """Return the verdict with checks about all rows left to the whole load.

        :param names: of the checks that may be.
        """
        results = (
            attrs.evolve(result, met=None, of_load=True) if result.name in names and not result.each_row else result
            for result in self.results
        )
        return attrs.evolve(self, results=tuple(results))

    def to_json(self) -> dict[str, Any]:
        """Return the verdict as it stands in the store."""
        kept = {"quarantined": attrs.asdict(self.quarantined)} if self.quarantined is not None else {}
        return {"rows": self.rows, "checks": [result.to_json() for result in self.results], **kept}

    def table_lines(self) -> list[str]:
        """Return the results as the lines of a table, for a log: a head, and a line for each check."""
        lines: list[Sequence[str]] = [("check", "about", "rows failed", "result")]
        for result in self.results:
            about = "the load" if result.of_load else "each row" if result.each_row else "all rows"
            apart = self.quarantined.failed.get(result.name) if self.quarantined is not None else None
            failed = "-" if result.failed is None else str(apart or result.failed)
            outcome = "decided later" if result.of_load else outcome_of(result)
            outcome = "failed, in quarantine" if apart else outcome
            lines.append((result.name, about, failed, outcome))
        return lines_of_table(lines)

    def found_lines(self) -> list[str]:
        """Return what was compared, as lines for a log, of the checks that are no conditions in SQL."""
        return [f"{result.name}: {result.found}" for result in self.results if result.found is not None]

    def joined(self, more: Mapping[str, CheckResult], order: Iterable[str]) -> Verdict:
        """Return the verdict with the results of further checks.

        :param more: by the check's name.
        :param order: the names of all checks.
        """
        results = {result.name: result for result in self.results} | dict(more)
        return attrs.evolve(self, results=tuple(results[name] for name in order))

    @classmethod
    def of(cls, checks: Mapping[str, str], told: Mapping[str, Any] | None) -> Verdict | None:
        """Return the verdict that an engine tells, or ``None`` where it does not tell one of every check.

        :param checks: conditions by name.
        :param told: one writer's entry of ``engines.base.StageResult.checks``.
        """
        if told is None:
            return None
        try:
            results = tuple(CheckResult(name=name, sql=sql, **told["results"][name]) for name, sql in checks.items())
            return cls(int(told["rows"]), results)
        except (KeyError, TypeError, ValueError):
            return None


class Done(StrEnum):
    """What becomes of rows that fail a check."""

    REFUSED = "refused"
    QUARANTINED = "quarantined"
    WARNED = "warned"


def done_by(asked: OnFailedCheck) -> Done:
    """Return what becomes of rows that fail a check, where they are not in quarantine.

    :param asked: what was to happen to rows that fail.
    """
    return Done.WARNED if asked is OnFailedCheck.WARN else Done.REFUSED


def result_told(result: CheckResult, done: Done) -> dict[str, Any]:
    """Return what XCom and pages say of one check.

    :param done: what becomes of rows that fail it.
    """
    passed = result.passed if result.is_decided else None
    return {**result.to_json(), "passed": passed, **({"done": str(done)} if passed is False else {})}


def results_in_words(results: Sequence[CheckResult]) -> str:
    """Return results in a few words, such as ``1 of 2 checks failed: no negative fares``; nothing where there are none.

    :param results: each of which has passed or failed.
    """
    count = f"{len(results)} check{'' if len(results) == 1 else 's'}"
    names = [result.name for result in results if not result.passed]
    if not names:
        return f"{count} passed" if results else ""
    left_out = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return f"{len(names)} of {count} failed: {', '.join(names[:_MOST_NAMES])}{left_out}"


def lines_of_table(lines: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table for a log. The third column has numbers, and stands at the right.

    :param lines: cells, the head first.
    """
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if number == 2 else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]


def outcome_of(result: CheckResult) -> str:
    """Return what a check says, in a word."""
    return "passed" if result.passed else "NULL" if result.met is None else "failed"


def write_verdict(store: Store, path: str, verdict: Verdict) -> None:
    """Keep a verdict beside the rows. The first one counts, as the rows do not change.

    :param path: of the buffer, relative to the table.
    """
    with suppress(ObjectExistsError):
        store.create(verdict_path(path), json.dumps(verdict.to_json()).encode())


def read_verdict(store: Store, path: str, checks: Mapping[str, str]) -> Verdict | None:
    """Return the verdict on a buffer; ``None`` where its checks were not evaluated.

    :param path: of the buffer, relative to the table.
    :param checks: that the buffer's writer promised.
    :raises BufferInvalidError: the verdict is damaged, or is of other checks.
    """
    try:
        said = json_at(store, verdict_path(path))
    except ObjectNotFoundError:
        return None
    verdict = _parsed(said)
    if verdict is None or {result.name: result.sql for result in verdict.results} != dict(checks):
        raise BufferInvalidError(
            f"The verdict on the buffer {path} ({verdict_path(path)}) is damaged, or not of its checks. Nothing was "
            "published: clear the writer's task to stage its rows again."
        )
    return verdict


def verdict_at(store: Store, path: str) -> Verdict | None:
    """Return what is kept of the checks of a buffer, for pages: on whichever checks it is. ``None`` if it is damaged.

    :param path: of the buffer, relative to the table.
    :raises ObjectNotFoundError: there is none.
    """
    return _parsed(json_at(store, verdict_path(path)))


def _parsed(said: Mapping[str, Any]) -> Verdict | None:
    known = attrs.fields_dict(CheckResult)
    try:
        # Earlier releases kept more of some checks.
        found = [{name: result[name] for name in known.keys() & result} for result in said["checks"]]
        kept = said.get("quarantined")
        quarantined = Quarantined(**kept) if kept is not None else None
        return Verdict(int(said["rows"]), tuple(CheckResult(**result) for result in found), quarantined)
    except (KeyError, TypeError, ValueError):
        return None
