"""A secrets backend that refuses one connection for good. It is apart, as Airflow imports it with its configuration."""

from __future__ import annotations

from typing import Any

from airflow.secrets import BaseSecretsBackend

DENIED = "denied"


class GuardedSecrets(BaseSecretsBackend):
    """It knows nothing, and lets no other backend answer for the connection :data:`DENIED`."""

    def get_connection(self, conn_id: str, *asked: Any, **more: Any) -> None:
        from airflow_provider_onelake._airflow import AirflowSecretsBackendAccessDenied

        if conn_id == DENIED:
            raise AirflowSecretsBackendAccessDenied("hush")
