"""The verdict on a buffer: what its writer's checks say of the staged rows (protocol: audited).

staged/<writer>/<attempt>/_checked.json  put create-only when Spark has evaluated the checks over the files
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import attrs

from airflow_provider_onelake.buffers.layout import json_at, verdict_path
from airflow_provider_onelake.choices import OnFailedCheck
from airflow_provider_onelake.exceptions import BufferInvalidError, ObjectExistsError, ObjectNotFoundError
from airflow_provider_onelake.texts import aligned, counted, listed, rows_in_words

if TYPE_CHECKING:
    from airflow_provider_onelake.storage.stores import Store

# The names of failed checks stand in every commit of their rows, which every reader of the log fetches.
_MOST_NAMES = 5


@attrs.frozen(kw_only=True)
class CheckVerdict:
    """What one check says of the staged rows.

    :param name: of the check.
    :param sql: the condition, in Spark SQL, or what else its author wrote.
    :param each_row: whether the condition is about each row, or about all of them together.
    :param met: whether all rows meet it, or all together do; ``None`` where the condition is NULL.
    :param failed: how many rows do not meet it; ``None`` where it is about all rows together.
    :param found: what was compared, for people, where it is no condition in SQL.
    """

    name: str
    sql: str
    each_row: bool
    met: bool | None
    failed: int | None = None
    found: str | None = None

    @property
    def passed(self) -> bool:
        """Whether the check passed. A condition that is NULL is not met."""
        return self.met is True

    @property
    def why(self) -> str:
        """Why the check failed, for people."""
        if self.found is not None:
            return self.found
        if self.each_row:
            return f"not true of {rows_in_words(self.failed)}"
        return "it is NULL, which is not true" if self.met is None else "it is false"

    def to_json(self) -> dict[str, Any]:
        """Return the result as plain JSON."""
        return attrs.asdict(self, filter=lambda field, value: field.name != "found" or value is not None)

    def __str__(self) -> str:
        return f"{self.name!r} ({' '.join(self.sql.split())}): {'it is true' if self.passed else self.why}"


@attrs.frozen
class Verdict:
    """What a writer's checks say of its staged rows.

    :param rows: how many rows Spark read.
    :param results: one for each check.
    """

    rows: int
    results: tuple[CheckVerdict, ...]

    @property
    def failed(self) -> tuple[CheckVerdict, ...]:
        """The checks that failed."""
        return tuple(result for result in self.results if not result.passed)

    @property
    def in_words(self) -> str:
        """The verdict in a few words, such as ``2 checks passed`` or ``1 of 2 checks failed: no negative fares``."""
        count, names = counted(len(self.results), "check"), [result.name for result in self.failed]
        return f"{len(names)} of {count} failed: {listed(names, _MOST_NAMES)}" if names else f"{count} passed"

    def as_results(self, asked: OnFailedCheck) -> list[dict[str, Any]]:
        """Return the results for XCom and for pages.

        :param asked: what was to happen to rows that fail.
        :returns: for each check what :meth:`CheckVerdict.to_json` says, ``passed``, and ``done`` if it failed:
            ``refused`` or ``warned``.
        """
        done = {"done": "warned" if asked is OnFailedCheck.WARN else "refused"}
        return [
            {**result.to_json(), "passed": result.passed, **({} if result.passed else done)} for result in self.results
        ]

    def to_json(self) -> dict[str, Any]:
        """Return the verdict as it stands in the store."""
        return {"rows": self.rows, "checks": [result.to_json() for result in self.results]}

    def table_lines(self) -> list[str]:
        """Return the results as the lines of a table, for a log: a head, and a line for each check."""
        lines: list[Sequence[str]] = [("check", "about", "rows failed", "result")]
        for result in self.results:
            about = "each row" if result.each_row else "all rows"
            outcome = "passed" if result.passed else "NULL" if result.met is None else "failed"
            lines.append((result.name, about, "-" if result.failed is None else str(result.failed), outcome))
        return aligned(lines, {2})

    def found_lines(self) -> list[str]:
        """Return what was compared, as lines for a log, of the checks that are no conditions in SQL."""
        return [f"{result.name}: {result.found}" for result in self.results if result.found is not None]

    def joined(self, more: Mapping[str, CheckVerdict], order: Iterable[str]) -> Verdict:
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
        :param told: one writer's entry of ``spark.base.StageResult.checks``.
        """
        if told is None:
            return None
        try:
            results = tuple(CheckVerdict(name=name, sql=sql, **told["results"][name]) for name, sql in checks.items())
            return cls(int(told["rows"]), results)
        except (KeyError, TypeError, ValueError):
            return None


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
    :raises BufferInvalidError: the verdict is damaged, is of other checks, or leaves some to the writer's whole load.
    """
    again = "Nothing was published: clear the writer's task to stage its rows again."
    try:
        said = json_at(store, verdict_path(path))
    except ObjectNotFoundError:
        return None
    verdict, left = _parsed(said)
    if left:
        raise BufferInvalidError(
            f"The buffer {path} leaves the check {', '.join(map(repr, left))} to the rows of all writers of its load "
            f"together, which is gone. It is left alone. {again}"
        )
    if verdict is None or {result.name: result.sql for result in verdict.results} != dict(checks):
        raise BufferInvalidError(
            f"The verdict on the buffer {path} ({verdict_path(path)}) is damaged, or not of its checks. {again}"
        )
    return verdict


def verdict_at(store: Store, path: str) -> Verdict | None:
    """Return what is kept of the checks of a buffer, for pages: on whichever checks it is. ``None`` if it is damaged.

    :param path: of the buffer, relative to the table.
    :raises ObjectNotFoundError: there is none.
    """
    return _parsed(json_at(store, verdict_path(path)))[0]


def _parsed(said: Mapping[str, Any]) -> tuple[Verdict | None, list[str]]:
    """Return a verdict as it is kept, ``None`` if it is damaged; and the checks that it leaves to the whole load.

    Earlier releases left such checks to a task behind the writers, and kept more of some other checks.
    """
    known = attrs.fields_dict(CheckVerdict)
    try:
        left = [str(result["name"]) for result in said["checks"] if result.get("of_load")]
        own = [{name: each[name] for name in known.keys() & each} for each in said["checks"] if not each.get("of_load")]
        return Verdict(int(said["rows"]), tuple(CheckVerdict(**result) for result in own)), left
    except (AttributeError, KeyError, TypeError, ValueError):
        return None, []
