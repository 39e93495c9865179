"""The connection type ``onelake_livy``: a Livy server, or a lakehouse's Livy in Fabric."""

from __future__ import annotations

import attrs
from airflow.sdk import BaseHook

from airflow_provider_onelake.exceptions import OneLakeError


class OneLakeLivyHook(BaseHook):
    """Says whether a Livy server answers. The jobs are the engine's (:mod:`airflow_provider_onelake.spark.livy`).

    :param livy_conn_id: the connection. Default: ``onelake_livy_default``.
    """

    conn_name_attr = "livy_conn_id"
    default_conn_name = "onelake_livy_default"
    conn_type = "onelake_livy"
    hook_name = "OneLake Livy"

    def __init__(self, livy_conn_id: str = default_conn_name) -> None:
        super().__init__()
        self.livy_conn_id = livy_conn_id

    def test_connection(self) -> tuple[bool, str]:
        """Sign in, and ask for the batches. No batch is made, so nothing is said of Spark's versions.

        :returns: whether that worked, and what to tell the user.
        """
        from airflow_provider_onelake.spark.livy.client import LivyClient, NotThereError
        from airflow_provider_onelake.spark.livy.settings import LivyTarget
        from airflow_provider_onelake.storage.spark import SparkAccess

        try:
            # Whoever fills in the form does not wait.
            target = attrs.evolve(LivyTarget.of(self.get_connection(self.livy_conn_id)), patience=0)
            target.body(SparkAccess())
            LivyClient(target.address, target.headers, 0).ask("GET", "/batches")
        except NotThereError as error:
            return False, f"{error} Correct the host of the connection."
        except OneLakeError as error:
            return False, str(error)
        return True, f"Livy answers at {target.address}, and shows its batches. Spark was not started."
