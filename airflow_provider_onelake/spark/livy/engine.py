"""The Livy engine: each job is a batch, on Fabric's Spark or on any Livy server.

A batch runs the same script as ``spark-submit`` in cluster mode does, and everything else is as there: job, code and
result go through the table's store, the driver outlives the task, and a retry finds it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from airflow_provider_onelake.exceptions import InvalidWriteError
from airflow_provider_onelake.spark.livy.batches import Batches
from airflow_provider_onelake.spark.livy.client import LivyClient
from airflow_provider_onelake.spark.livy.settings import LivyTarget
from airflow_provider_onelake.spark.submit.drivers import DriverEngine
from airflow_provider_onelake.storage.spark import SparkAccess

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from airflow_provider_onelake.spark.base import EngineContext, SparkJob
    from airflow_provider_onelake.spark.submit.spool import JobSpool

_LOCAL = re.compile(r"^(?:file:|/)")


class LivyEngine(DriverEngine):
    """Runs jobs as batches of a Livy server.

    :param target: the settings of the connection.
    :param around: what the task gives. Job, code and result go through its ``store``, which is refused without one.
    :raises InvalidWriteError: a setting would show a secret.
    """

    name = "livy"

    def __init__(self, target: LivyTarget, around: EngineContext) -> None:
        self._in_fabric = target.in_fabric
        access = SparkAccess() if target.in_fabric or around.access is None else around.access()
        client = LivyClient(target.address, target.headers, target.patience, self._wake)
        self._batches = Batches(client, target.body(access))
        super().__init__(target.address, self._batches, around)

    @classmethod
    def of(cls, connection: Connection, around: EngineContext) -> LivyEngine:
        """Make the engine of a connection of the type ``onelake_livy``; see :meth:`Engine.of`."""
        return cls(LivyTarget.of(connection), around)

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
        return None, self._batches.submit(spool)
