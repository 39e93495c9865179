"""Statements of several tasks that all begin before any of them commits, and the serial orders that explain the outcome.

The names of :data:`RULES` are those of Trino's tests of concurrent writes to a Delta table, without what is equal in all
of them: https://github.com/trinodb/trino, ``TestDeltaLakeLocalConcurrentWritesTest``. Its columns are called ``id`` and
``month`` here.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest

from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.modes import Merge
from airflow_provider_onelake.operators.optimize import OneLakeOptimizeOperator
from airflow_provider_onelake.operators.statements import (
    OneLakeDeleteOperator,
    OneLakeTruncateOperator,
    OneLakeUpdateOperator,
)
from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.options import Tuning
from airflow_provider_onelake.sources import SqlSource
from airflow_provider_onelake.storage import stores
from tests.support.contexts import connect, context_of
from tests.support.sql_by_hand import Row, alone, files_of, in_order, table_rows
from tests.support.stores import LoserHeld
from tests.support.tables import foreign_commit, make_table, newest

TABLE = "Tables/t"


@attrs.frozen(eq=False)
class Statement:
    """What one task does.

    :param task: makes its operator, of an id and the address of the table.
    :param sql: the same for the table ``t`` of SQLite; empty for what changes no rows.
    """

    task: Callable[[str, str], Any]
    sql: str

    def on(self, rows: Sequence[Row]) -> list[Row]:
        """What it makes of rows, alone."""
        return alone(rows, self.sql) if self.sql else in_order(rows)


@attrs.frozen
class Rule:
    """Statements at one time.

    :param rows: of the table before, by append.
    :param partitioned: whether the table is partitioned by month.
    :param once: whether Spark may run no statement twice, as the author has said that no other one matters to it.
    :param in_order: whether the order of the log is the serial one.
    """

    rows: Sequence[Sequence[Row]]
    statements: Sequence[Statement]
    partitioned: bool = True
    once: bool = False
    in_order: bool = True

    @property
    def orders(self) -> list[tuple[int, ...]]:
        """Every order that differs from the others."""
        numbers = tuple(range(len(self.statements)))
        return [numbers] if len(set(self.statements)) == 1 else list(itertools.permutations(numbers))

    @property
    def rotations(self) -> list[tuple[int, ...]]:
        """As many orders as statements that differ: each statement is the first once, and the last once."""
        numbers = self.orders[0]
        return [numbers[at:] + numbers[:at] for at in range(len(set(self.statements)))]

    def outcomes(self) -> list[list[Row]]:
        """What the table may hold in the end: one outcome for each serial order, some of them equal."""
        found = []
        for order in self.orders:
            rows = in_order(row for each in self.rows for row in each)
            for number in order:
                rows = self.statements[number].on(rows)
            found.append(rows)
        return found


@attrs.frozen
class Raced:
    """What became of a rule.

    :param order: in which the tasks began.
    :param results: of the tasks, in the order of the statements.
    """

    rule: Rule
    order: Sequence[int]
    table: Path
    version: int
    results: Sequence[dict[str, Any]]

    def check(self) -> None:
        """The rows are those of a serial order, and no statement ran twice that must not."""
        assert table_rows(self.table) in self.rule.outcomes()
        # Whoever began last committed first: the race took place.
        versions = [made for number in reversed(self.order) if (made := self.results[number]["version"]) is not None]
        assert versions == [self.version + number for number in range(1, len(versions) + 1)]
        if self.rule.once:
            assert all(done.get("rounds", 1) <= 1 and not done.get("reruns") for done in self.results), self.results
        if self.rule.in_order:
            self._check_order_of_log()

    def _check_order_of_log(self) -> None:
        """Every version is one statement on the version before; one without a version had nothing to do in some."""
        newest = max(int(entry.stem) for entry in (self.table / "_delta_log").glob("*.json"))
        held = {number: table_rows(self.table, number) for number in range(self.version, newest + 1)}
        for done, statement in zip(self.results, self.rule.statements, strict=True):
            if (version := done["version"]) is not None:
                assert held[version] == statement.on(held[version - 1])
            else:
                assert done["status"] in ("nothing_to_do", "dropped"), done
                assert any(statement.on(rows) == rows for rows in held.values())


def race(rule: Rule, order: Sequence[int], lakehouse: Path, monkeypatch: pytest.MonkeyPatch) -> Raced:
    """Let tasks begin in an order; each is held at its first put until all that began later have committed.

    So each of them but the last has worked on the version before, and loses its first race.
    """
    log = _table(rule, lakehouse / TABLE)
    before, results, waiting = newest(log).version, {}, list(order)
    connect(monkeypatch, OneLakeHook, lakehouse=str(lakehouse), namespace="test")
    opened = stores.open_store

    def next_begins() -> None:
        # More than one where a task has nothing to put.
        while waiting:
            number = waiting.pop(0)
            task = rule.statements[number].task(f"task_{number}", log.table)
            results[number] = task.execute(context_of(task))

    with monkeypatch.context() as held:
        held.setattr(stores, "open_store", lambda *which: LoserHeld(opened(*which), next_begins))
        next_begins()
    return Raced(rule, order, Path(log.table), before, [results[number] for number in range(len(order))])


def _table(rule: Rule, path: Path) -> DeltaLog:
    by = ["month"] if rule.partitioned else []
    log = make_table(path, partition_by=by)
    for rows in rule.rows:
        adds = files_of(path, rows, by)
        info = {"timestamp": 1, "operation": "WRITE", "isBlindAppend": True}
        foreign_commit(log, [{"commitInfo": info}, *({"add": add} for add in adds)])
    return log


# -- statements ------------------------------------------------------------------------------------------------------


def select(query: str, at: str = "", **terms: Any) -> Statement:
    """INSERT … SELECT: ``{t}`` is the table, of a version if one is said; with ``reads``, the part of it that is."""

    def task(name: str, table: str) -> OneLakeWriteOperator:
        source = SqlSource(query.replace("{t}", "target" if "reads" in terms else f"delta.`{table}`{at}"))
        return OneLakeWriteOperator(task_id=name, table=table, source=source, tuning=Tuning(preflight=False), **terms)

    read = "t" if terms.get("reads") in (None, True) else f"(SELECT * FROM t WHERE {terms['reads']})"
    return Statement(task, f"INSERT INTO t {query.replace('{t}', read)}")


def values(*rows: Row) -> Statement:
    """INSERT of rows."""
    return select(_rows(rows))


def delete(where: str, covers: str | None = None, **terms: Any) -> Statement:
    both = f"({where}) AND ({covers})" if covers else where
    return Statement(
        lambda name, table: OneLakeDeleteOperator(task_id=name, table=table, where=where, covers=covers, **terms),
        f"DELETE FROM t WHERE {both}",
    )


def truncate() -> Statement:
    return Statement(lambda name, table: OneLakeTruncateOperator(task_id=name, table=table), "DELETE FROM t")


def add_one(where: str = "true", covers: str | None = None, **terms: Any) -> Statement:
    """UPDATE … SET id = id + 1."""
    both = f"({where}) AND ({covers})" if covers else where
    return Statement(
        lambda name, table: OneLakeUpdateOperator(
            task_id=name, table=table, set={"id": "id + 1"}, where=where, covers=covers, **terms
        ),
        f"UPDATE t SET id = id + 1 WHERE {both}",
    )


def merge(rows: Sequence[Row], when: str, sql: str, **terms: Any) -> Statement:
    """MERGE of rows by one clause.

    :param terms: ``keys`` or ``on``.
    """

    def task(name: str, table: str) -> OneLakeWriteOperator:
        return OneLakeWriteOperator(
            task_id=name,
            table=table,
            source=SqlSource(_rows(rows)),
            mode=Merge(when=[when], **terms),
            tuning=Tuning(preflight=False),
        )

    return Statement(task, sql)


def optimize(where: str) -> Statement:
    return Statement(
        lambda name, table: OneLakeOptimizeOperator(task_id=name, table=table, where=where, min_files=2), ""
    )


def _rows(rows: Sequence[Row]) -> str:
    texts = (f"SELECT CAST({row} AS BIGINT) AS id, '{month}' AS month" for row, month in rows)
    return " UNION ALL ".join(texts)


# -- rules -----------------------------------------------------------------------------------------------------------

_INSERT_ONLY = merge([(12, "20")], "NOT MATCHED THEN INSERT *", "INSERT INTO t VALUES (12, '20')", on="false")
_COUNT = "SELECT CAST(count(*) AS BIGINT) AS id, '10' AS month FROM {t}"
_TWO = [[(1, "10"), (11, "20")]]
_THREE = [[(0, "10"), (11, "20"), (22, "30")]]
_FOUR = [[(1, "10"), (11, "20"), (21, "30"), (31, "40")]]
_MORE_IN_10 = [[(1, "10"), (11, "20"), (21, "30")], [(2, "10")]]
_SERIALIZABLE = [[(0, "10"), (33, "40")]]


def _both(name: str, rule: Rule) -> Iterator[tuple[str, Rule]]:
    yield f"{name}, partitioned", rule
    yield name, attrs.evolve(rule, partitioned=False)


RULES: dict[str, Rule] = {
    **dict(_both("blind inserts", Rule([], [values((1, "10")), values((11, "20")), values((21, "30"))]))),
    **dict(_both("inserts selecting from the same table", Rule([[(0, "10")]], [select(_COUNT)] * 3))),
    **dict(
        _both(
            "inserts selecting from the same versioned table",
            Rule(
                [[(0, "a")]],
                [
                    attrs.evolve(
                        select(
                            f"SELECT CAST({row[0]} AS BIGINT) AS id, '{row[1]}' AS month FROM {{t}}", " VERSION AS OF 1"
                        ),
                        sql=f"INSERT INTO t VALUES {row}",
                    )
                    for row in ((1, "b"), (2, "c"), (3, "d"))
                ],
            ),
        )
    ),
    "inserts selecting from the same partition": Rule(_THREE, [select(f"{_COUNT} WHERE month = '10'")] * 3),
    "mixed inserts": Rule(
        [[(0, "10"), (11, "20")]],
        [
            select(f"{_COUNT} WHERE month = '10'"),
            select(f"{_COUNT.replace('10', '20')} WHERE month = '20'"),
            values((22, "30")),
        ],
    ),
    "inserts selecting from different partitions of the same table": Rule(
        _THREE, [select(f"SELECT id + {n} AS id, '40' AS month FROM {{t}} WHERE month = '{n}0'") for n in (1, 2, 3)]
    ),
    "inserts selecting from multiple nonoverlapping partitions of the same table": Rule(
        [
            [(0, "10"), (11, "20"), (22, "30"), (33, "40"), (44, "50"), (55, "60")],
            [(2, "10"), (13, "20"), (24, "30"), (35, "40"), (46, "50"), (57, "60")],
        ],
        [
            select(f"SELECT id + 1 AS id, month FROM {{t}} WHERE month IN ('{one}', '{other}')")
            for one, other in (("10", "20"), ("30", "40"), ("50", "60"))
        ],
    ),
    "serializable blind inserts": Rule(_SERIALIZABLE, [values((1, "10"))] * 5),
    **dict(_both("inserts", Rule([[(1, "10")]], [select("SELECT id, month FROM {t} WHERE month = '10'")] * 3))),
    "delete pushdown": Rule(_FOUR, [delete(f"month = '{month}'") for month in ("10", "20", "30")], once=True),
    "delete pushdown from the same partition": Rule(_THREE, [delete("month = '10'")] * 3),
    "truncate": Rule(_THREE, [truncate()] * 3),
    "delete pushdown and blind inserts": Rule(
        _TWO, [delete("month IS NOT NULL"), values((21, "30")), values((31, "40"))]
    ),
    "truncate and blind inserts": Rule(_TWO, [truncate(), values((21, "30")), values((31, "40"))]),
    "delete pushdown and non-blind inserts": Rule(
        _MORE_IN_10,
        [
            delete("month = '10'"),
            select("SELECT id + 1 AS id, month FROM {t} WHERE month = '20'"),
            delete("month = '30'"),
        ],
    ),
    "serializable deletes pushdown": Rule(_SERIALIZABLE, [delete("month = '10'")] * 5),
    "serializable truncate": Rule(_SERIALIZABLE, [truncate()] * 5),
    "update": Rule(_FOUR, [add_one(covers=f"month = '{month}'") for month in ("10", "20", "30")], once=True),
    "delete": Rule(
        [*_FOUR, [(2, "10")]],
        [delete("id IN (1, 2)", "month = '10'"), delete("id = 11", "month = '20'"), delete("id = 21", "month = '30'")],
        once=True,
    ),
    "merge": Rule(
        [*_FOUR, [(22, "30")]],
        [
            _INSERT_ONLY,
            merge([(21, "30")], "MATCHED THEN DELETE", "DELETE FROM t WHERE month = '30'", keys=["month"]),
            merge(
                [(32, "40")],
                "MATCHED THEN UPDATE SET target.id = source.id",
                "UPDATE t SET id = 32 WHERE month = '40'",
                keys=["month"],
            ),
        ],
    ),
    "serializable merge": Rule(_SERIALIZABLE, [_INSERT_ONLY] * 5),
    "delete and non-blind inserts": Rule(
        _MORE_IN_10,
        [
            delete("id IN (1, 2)", "month = '10'"),
            select("SELECT id + 1 AS id, month FROM {t} WHERE month = '20'"),
            delete("id BETWEEN 20 AND 30", "month = '30'"),
        ],
    ),
    "delete and blind inserts": Rule(_TWO, [delete("id > 10"), values((8, "10")), values((21, "30"))]),
    "update and blind inserts": Rule(_TWO, [add_one(), values((13, "20")), values((21, "30"))]),
    "merge and blind inserts": Rule(
        _TWO,
        [
            merge(
                [(11, "20"), (8, "10"), (21, "30")],
                "MATCHED THEN DELETE",
                "DELETE FROM t WHERE (id, month) IN (VALUES (11, '20'), (8, '10'), (21, '30'))",
                keys=["id", "month"],
            ),
            values((8, "10")),
            values((21, "30")),
        ],
    ),
    "delete, delete pushdown and non-blind inserts": Rule(
        _MORE_IN_10,
        [
            delete("id IN (1, 2)", "month = '10'"),
            select("SELECT id + 1 AS id, month FROM {t} WHERE month = '20'"),
            delete("month = '30'"),
        ],
    ),
    "optimize": Rule(
        [[(1, "10"), (11, "20"), (21, "30")], [(2, "10"), (12, "20"), (22, "30")]],
        [optimize(f"month = '{month}'") for month in ("10", "20", "30")],
        once=True,
    ),
    "serializable optimize": Rule([*_SERIALIZABLE, [(1, "10")]], [optimize("month = '10'")] * 5),
    "optimize and blind inserts": Rule(
        [[(1, "10"), (21, "30")], [(22, "30")]],
        [optimize("month > '20'"), values((8, "10")), values((11, "20"))],
        once=True,
    ),
    "optimize and non-blind inserts": Rule(
        _MORE_IN_10,
        [
            optimize("month = '10'"),
            select("SELECT id + 1 AS id, month FROM {t} WHERE month = '20'"),
            delete("id BETWEEN 20 AND 30", "month = '30'"),
        ],
    ),
}
"""What Trino reconciles, by name. Where it refuses a loser (``…ReconciliationFailure``), ours is done all the same."""

OURS: dict[str, Rule] = {
    "inserts selecting from partitions that each names": Rule(
        _THREE,
        [select(f"SELECT id + {n} AS id, '40' AS month FROM {{t}}", reads=f"month = '{n}0'") for n in (1, 2, 3)],
        once=True,
    ),
    "inserts selecting from one partition that each names": Rule(_THREE, [select(_COUNT, reads="month = '10'")] * 3),
    "inserts that each name the whole table": Rule(_THREE, [select(_COUNT, reads=True)] * 3, partitioned=False),
    "an insert that names a partition beside changes there and elsewhere": Rule(
        _MORE_IN_10,
        [
            select("SELECT id + 1 AS id, '40' AS month FROM {t}", reads="month = '10'"),
            delete("id = 1", "month = '10'"),
            add_one(covers="month = '20'"),
        ],
    ),
    "an insert that names a partition beside changes elsewhere": Rule(
        _MORE_IN_10,
        [
            select("SELECT id + 1 AS id, '40' AS month FROM {t}", reads="month = '10'"),
            values((31, "40")),
            optimize("month = '10'"),
            add_one(covers="month = '20'"),
        ],
        once=True,
    ),
    "one person is forgotten while today is ingested and older partitions are compacted": Rule(
        [[(17, "2019-01"), (1, "2019-01"), (17, "2019-02")], [(2, "2019-01"), (17, "2019-02"), (3, "2019-02")]],
        [
            values((17, "2019-03"), (4, "2019-03")),
            delete("id = 17", "month < '2019-03'"),
            optimize("month < '2019-03'"),
        ],
    ),
}
"""What others have no rule for."""
