"""The private tables of one try of a task, each for one Spark job over files that it has not read yet."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from airflow_provider_onelake.buffers.layout import WriterDirectory, changes_directory
from airflow_provider_onelake.buffers.markers import try_to_mark
from airflow_provider_onelake.buffers.shadow import Shadow
from airflow_provider_onelake.statements.round_tables import open_round
from airflow_provider_onelake.texts import counted

if TYPE_CHECKING:
    from airflow_provider_onelake.log.actions import Add
    from airflow_provider_onelake.log.snapshot import Snapshot
    from airflow_provider_onelake.steps.spark import SparkWork
    from airflow_provider_onelake.table import Table

logger = logging.getLogger(__name__)


@attrs.define(kw_only=True)
class PrivateTables:
    """The rounds of one try of a task.

    :param operation: of the statement, as Delta calls it.
    :param doing: the kind of the rounds' Spark jobs.
    :param owner: names the task in its run, the same for all its tries.
    :param attempt: id of the try.
    :param name: the whole name of the task, for people who look at what is staged.
    """

    table: Table
    spark: SparkWork
    operation: str
    doing: str
    owner: str
    attempt: str
    name: str
    _opened: list[Shadow] = attrs.field(factory=list, init=False)
    _earlier_ended: bool = attrs.field(default=False, init=False)

    def open(self, number: int, snapshot: Snapshot, files: Sequence[Add]) -> tuple[Shadow, dict[str, Any]]:
        """Make the private table of a round. What earlier tries of the task left at work is ended before the first one.

        :param number: of the round, from 1.
        :param snapshot: from which the private table takes its definition.
        :param files: that Spark is to read in it.
        :returns: the round, and what its Spark job says of it.
        """
        if not self._earlier_ended:
            self._end_earlier()
        log, address = self.table.log, self.table.address
        logger.info("%s: round %d: Spark looks at %s", self.table.name, number, counted(len(files), "file"))
        # Spark's jobs are told apart by their attempts, and each round is a job of its own.
        attempt = str(uuid.uuid5(uuid.NAMESPACE_URL, f"{self.attempt}/round {number}"))
        told = {"name": self.name, "operation": self.operation, "round": number}
        opened = open_round(log, snapshot, files, address.spark_uri, self._directory, attempt, told)
        self._opened.append(opened)
        shadow_uri = address.child(opened.path).spark_uri
        job = {"table_uri": address.spark_uri, "attempt": attempt, "shadow_uri": shadow_uri, "owner": self.owner}
        return opened, job

    def close(self, outcome: Mapping[str, Any]) -> None:
        """Mark the private tables as done with.

        :param outcome: what became of their results.
        """
        for opened in self._opened:
            try_to_mark(self.table.log, opened.path, outcome)

    def _end_earlier(self) -> None:
        """End what earlier tries of the task left at work, and mark their private tables as done with."""
        self._earlier_ended = True
        for attempt in self.spark.left_at_work(self.table, self.owner, self.doing):
            self.spark.kill_job(self.table, attempt, self.doing)
        for earlier in WriterDirectory.read(self.table.log.store, self._directory).attempts:
            if not earlier.marker:
                try_to_mark(self.table.log, earlier.path, {"reason": "another try runs the statement anew"})

    @property
    def _directory(self) -> str:
        return changes_directory(self.owner)
