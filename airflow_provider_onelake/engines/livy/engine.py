"""The Livy engine: each job is a batch, on Fabric's Spark or on any Livy server, or a run of a Spark job definition.

A batch runs the same script as ``spark-submit`` in cluster mode does, and everything else is as there: job, code and
result go through the table's store, the driver outlives the task, and a retry finds it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from airflow_provider_onelake.engines.livy.batches import Batches
from airflow_provider_onelake.engines.livy.client import LivyClient
from airflow_provider_onelake.engines.livy.definitions import Runs
from airflow_provider_onelake.engines.livy.settings import LivyTarget
from airflow_provider_onelake.engines.submit.drivers import DriverEngine
from airflow_provider_onelake.exceptions import InvalidWriteError
from airflow_provider_onelake.storage.spark import SparkAccess

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from airflow_provider_onelake.engines.base import SparkJob, Surroundings
    from airflow_provider_onelake.engines.submit.spool import JobSpool

_LOCAL = re.compile(r"^(?:file:|/)")


class LivyEngine(DriverEngine):
    """Runs jobs as batches of a Livy server.

    :param target: the settings of the connection.
    :param around: what the task gives. Job, code and result go through its ``store``, which is refused without one.
    :raises InvalidWriteError: a setting would show a secret, or ``timeout`` is not above 0.
    """

    name = "livy"

    def __init__(self, target: LivyTarget, around: Surroundings) -> None:
        self._in_fabric = target.in_fabric
        self._jobs = self._open(target, around)
        super().__init__(target.address, self._jobs, around)

    @classmethod
    def of(cls, connection: Connection, around: Surroundings) -> LivyEngine:
        """Make the engine of a connection of the type ``onelake_livy``; see :meth:`Engine.of`."""
        target = LivyTarget.of(connection)
        return (cls if target.definition is None else DefinitionEngine)(target, around)

    def _open(self, target: LivyTarget, around: Surroundings) -> Batches | Runs:
        access = SparkAccess() if target.in_fabric or around.access is None else around.access()
        client = LivyClient(target.address, target.headers, target.patience, self._wake)
        return Batches(client, target.body(access))

    def run(self, kind: str, job: SparkJob) -> dict[str, Any]:
        """Make a batch of one job, and wait for it; see :meth:`Engine.run`."""
        if self._in_fabric and _LOCAL.match(job.table_uri):
            raise InvalidWriteError(
                f"Fabric's Spark reaches no disk of this machine, and the table is {job.table_uri}. Nothing was "
                "submitted: use a table in OneLake, or another Spark connection."
            )
        return super().run(kind, job)

    def _submit_job(self, spool: JobSpool, job: SparkJob) -> tuple[str | None, str | None]:
        """Make a batch; see :meth:`DriverEngine._submit_job`."""
        return None, self._jobs.submit(spool)


class DefinitionEngine(LivyEngine):
    """Runs jobs as runs of one Spark job definition in Fabric.

    :param target: the settings of the connection, whose address is a definition's.
    :param around: as for :class:`LivyEngine`.
    :raises InvalidWriteError: as for :class:`LivyEngine`.
    """

    name = "definition"

    def _open(self, target: LivyTarget, around: Surroundings) -> Batches | Runs:
        return Runs(target.runs(self._wake), target.settings(), target.submit.jars)
