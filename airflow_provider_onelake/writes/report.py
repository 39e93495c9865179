"""What a reconciliation did: for the log, XCom, the person who has to act, and the compaction that comes after."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import attrs

from airflow_provider_onelake.buffers.buffer import Buffer
from airflow_provider_onelake.exceptions import MissingWritersError, TerminalError
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.texts import aligned, counted, listed

# Partitions go through XCom, which Airflow's database stores, so their number is limited.
_MOST_PARTITIONS = 1000
_PUBLISHED = ("published", "already_published", "nothing_to_do", "deleted")
_LEFT_OUT = ("set_aside", "superseded")
_MOST_NAMED = 3


@attrs.frozen(kw_only=True)
class WriterOutcome:
    """What became of one writer.

    :param writer: its key.
    :param status: ``published`` now or ``already_published``; ``superseded`` where other writes stand in place of all
        of its rows, ``deleted`` where another engine's statement took rows of them, ``restored_away`` where the table
        was taken back to a version before them; ``set_aside`` by the policy; ``missing``, ``held_back`` or ``refused``.
        Of a merge also ``nothing_to_do``, where no row of the table had to change, and ``waiting``, where its rows are
        staged and its task has not merged them.
    :param version: the version of the table in which its rows were published, or in which a policy left them out.
    :param rows_staged: how many rows its buffer has.
    :param rows_published: how many rows were published in that version.
    :param rows_in_table: how many of them are in the table now; ``None`` where nobody can tell.
    :param rows_unexpected: how many rows were set aside, as they lie outside of the writer's expected partitions.
    :param buffer: the buffer's path, relative to the table.
    :param lost_races: how many puts met another's commit.
    :param decisions: what was done that its task had not, and how its conflicts were settled, a sentence each.
    :param aftermath: what became of its rows since they were published, a sentence each.
    :param replaced: whether other writes have replaced some of its rows, or all.
    :param error: why it was refused, or how what was committed differs from what it staged.
    """

    writer: str
    status: str
    version: int | None = None
    rows_staged: int | None = None
    rows_published: int | None = None
    rows_in_table: int | None = None
    rows_unexpected: int | None = None
    buffer: str | None = None
    lost_races: int = 0
    decisions: tuple[str, ...] = ()
    aftermath: tuple[str, ...] = ()
    replaced: bool = False
    error: str | None = None


@attrs.frozen(kw_only=True)
class Report:
    """What a reconciliation did, writer by writer.

    :param load: the load's id.
    :param table: what messages call the table.
    :param address: of the table, as results have it. Default: ``table``, which is an address then.
    :param outcomes: one for every expected writer.
    :param missing: names of writers without a complete buffer, and of tasks that never named their writer.
    :param failures: the errors that :meth:`raise_for_failures` raises.
    :param decided: the staged rows that this reconciliation decided on: it published them, held them back or refused
        them.
    """

    load: str
    table: str
    outcomes: tuple[WriterOutcome, ...]
    missing: tuple[str, ...]
    address: str = attrs.field(default=attrs.Factory(lambda self: self.table, takes_self=True))
    failures: tuple[TerminalError, ...] = ()
    decided: tuple[Buffer, ...] = attrs.field(default=(), eq=False, repr=False)

    @property
    def version(self) -> int | None:
        """The newest version in which rows of the load were published."""
        return max((o.version for o in self.outcomes if o.version is not None), default=None)

    @property
    def left_out(self) -> dict[str, list[str]]:
        """The writers that have rows which are not in the table, as other writes count more; and why, in sentences."""
        lost = [o for o in self.outcomes if o.replaced or o.status in _LEFT_OUT]
        return {o.writer: list(o.aftermath or o.decisions) or [o.status.replace("_", " ")] for o in lost}

    @property
    def in_short(self) -> str:
        """What of the load is in the table, for the label of the task."""
        unknown = any(o.rows_in_table is None and o.version is not None for o in self.outcomes)
        there = "?" if unknown else sum(o.rows_in_table or 0 for o in self.outcomes)
        parts = [f"{there} of {counted(sum(o.rows_staged or 0 for o in self.outcomes), 'row')} in the table"]
        parts += [f"left out: {listed(list(self.left_out), _MOST_NAMED)}"] if self.left_out else []
        refused = [o.writer for o in self.outcomes if o.status == "refused"]
        parts += [f"refused: {listed(refused, _MOST_NAMED)}"] if refused else []
        parts += [f"missing: {listed(self.missing, _MOST_NAMED)}"] if self.missing else []
        return "; ".join(parts)

    def to_json(self) -> dict[str, Any]:
        """Return the report for XCom."""
        return {
            "load": self.load,
            "table": self.address,
            "version": self.version,
            "missing": list(self.missing),
            # Lists, as JSON has them: Airflow would wrap a tuple.
            "writers": [
                {**attrs.asdict(o), "decisions": list(o.decisions), "aftermath": list(o.aftermath)}
                for o in self.outcomes
            ],
        }

    def table_lines(self) -> list[str]:
        """Return the report as the lines of a table, for a log: a head, and a line for each writer."""
        cells: list[tuple[str, ...]] = [("writer", "status", "version", "rows staged", "in the table", "lost races")]
        for o in self.outcomes:
            there = "?" if o.rows_in_table is None and o.version is not None else o.rows_in_table
            shown = (o.version, o.rows_staged, there, o.lost_races)
            cells.append((o.writer, o.status, *("-" if value is None else str(value) for value in shown)))
        return aligned(cells, range(2, 6))

    def touched_partitions(self, log: DeltaLog, most: int = _MOST_PARTITIONS) -> list[dict[str, str | None]] | None:
        """Return the partitions into which the writers put files, as values by column.

        A compaction after the load looks at these only.

        :param most: how many partitions are named at most.
        :returns: the values as the log spells them, by the columns' present names; one ``{}`` for a table without
            partitions. ``None`` stands for all partitions, where there are too many, or where the log no longer says.
        """
        split = log.snapshot().partitioning
        touched: dict[object, dict[str, str | None]] = {}
        for outcome in self.outcomes:
            if outcome.version is None or outcome.buffer is None:
                continue
            commit = log.commit(outcome.version)
            if commit is None:
                return None
            for add in commit.adds:
                # A commit that merged rows is of one writer.
                if commit.merger is not None or add["path"].startswith(f"{outcome.buffer}/"):
                    values = add["partitionValues"]
                    named = {name: values.get(split.physical.get(name, name)) for name in split.types}
                    touched.setdefault(split.partition(values), named)
        return list(touched.values()) if len(touched) <= most else None

    def raise_for_failures(self) -> None:
        """Raise what a person has to act on.

        :raises TerminalError: the failure, or one error for several failures.
        :raises MissingWritersError: writers have no complete buffer.
        """
        if len(self.failures) == 1 and not self.missing:
            raise self.failures[0]
        messages = _told_once(map(str, self.failures))
        if self.missing:
            expected = {*self.missing, *(outcome.writer for outcome in self.outcomes)}
            there = [o.writer for o in self.outcomes if o.status in _PUBLISHED]
            messages.append(
                f"{len(self.missing)} of {len(expected)} writers of load {self.load} of "
                f"{self.table} left no complete buffer: {', '.join(self.missing)}. Published: "
                f"{', '.join(there) or 'none'}. Mend what their own logs say, and clear the missing ones with their "
                "downstream tasks; the others keep their buffers and do not run Spark again."
            )
            messages += [
                f"What {o.writer} published before, in version {o.version}, is still in the table"
                f"{', but ' + '; '.join(o.aftermath) if o.aftermath else ''}."
                for o in self.outcomes
                if o.status == "missing" and o.version is not None
            ]
            raise MissingWritersError(" ".join(messages))
        if messages:
            raise TerminalError(" ".join(messages))


def _told_once(messages: Iterable[str]) -> list[str]:
    """Return messages in their order, but the last sentence of several, which says what to do, once behind them."""
    by_advice: dict[str, list[str]] = {}
    for message in messages:
        what, _, advice = message.rpartition(". ")
        by_advice.setdefault(advice, []).extend([what] if what else [])
    return [". ".join([*what, advice]) for advice, what in by_advice.items()]
