"""Histories that begin without a table: the first commit of rows makes it, or somebody else does meanwhile.

Replay a seed, with its whole history: ``python -m tests.simulation.new_tables SEED``; many: ``… new_tables FIRST LAST``.
"""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from random import Random

import attrs

from airflow_provider_onelake.definition.create import define
from airflow_provider_onelake.exceptions import ObjectExistsError
from airflow_provider_onelake.log.actions import dump_actions, version_path
from airflow_provider_onelake.log.delta_log import DeltaLog
from tests.simulation.actors import Deployment
from tests.simulation.foreign import ForeignWrite
from tests.simulation.runner import History, main, simulate
from tests.simulation.scenario import Scenario, WriterPlan
from tests.simulation.table import EXTRA, TablePlan, data_columns, fields_of
from tests.support.log_order import Write


class NewTable(Deployment):
    """A deployment whose writers find no table. Some of their rows have a column less than those of others."""

    varies = True

    def draw(self, random: Random) -> Scenario:
        scenario = Scenario.of(random)
        mapping = "none" if scenario.table.mapping == "none" else "name"
        table = TablePlan(mapping, False, scenario.table.in_commit_timestamps, scenario.table.vectors)
        return attrs.evolve(scenario, exists=False, table=table)

    def run(self) -> None:
        random = Random(self.seed)
        if random.random() < 0.3:
            after, with_row = random.choice((0.0, random.uniform(0, 3))), random.random() < 0.5
            self.world.spawn("a maker", lambda: self._make(with_row), faulty=False, after=after)
        super().run()

    def without_table(self, log: DeltaLog, writer: WriterPlan) -> None:
        if writer.reads:
            # Its job needs a table, so its author gives the columns.
            self.create(log)
            return
        random, fields = self.world.random, fields_of(self.column.type)
        few = [field for field in fields if field["name"] != EXTRA]
        schema = json.dumps({"type": "struct", "fields": few if random.random() < 0.2 else fields})
        log.plan(*define(log, schema, ["part"], self.table.properties, random))

    def _make(self, with_row: bool) -> None:
        """Make the table as Spark does: by CREATE TABLE, or with a row by CREATE TABLE AS SELECT."""
        now = int(self.world.now().timestamp() * 1000)
        made = self.table.version_0(self.column.type, now, "made-by-spark")
        if with_row:
            metadata, row = made[2]["metaData"], "a maker/0"
            spelling = self.column.spell(0, self.world.random)
            named = [(row, data_columns(metadata))]
            made.append({"add": self.file(0, named, prefix="", spelling=spelling, metadata=metadata)})
        with suppress(ObjectExistsError):
            self.store.create(version_path(0), dump_actions(made))
            self.world.counters["new tables made by others"] += 1
            if with_row:
                self.foreign_writes[0] = ForeignWrite(Write(puts=frozenset({(0, row)})))


def simulate_new_table(seed: int) -> History:
    """Run and judge one history."""
    return simulate(seed, NewTable)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], simulate_new_table))
