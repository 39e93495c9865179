"""Airflow's API server alone, on SQLite, with the Lakehouse view and users of every kind of permission.

The view is to show the connection :data:`~tests.support.guarded_secrets.DENIED` too, which a secrets backend refuses.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager

from include.local.connect_server import HOST, free_port
from include.local.settings import REPOSITORY
from tests.support.airflow_home import environment, migrated_database
from tests.support.guarded_secrets import DENIED, GuardedSecrets
from tests.support.server_process import ServerProcess

USERS = {"admin": "admin", "viewer": "viewer", "nobody": "", "reader_of_sales": "viewer", "no_assets": "viewer"}
"""Users by name, with their role of the simple auth manager. One without a role may sign in, and do nothing else."""


class ByName(SimpleAuthManager):
    """The simple auth manager, but that of two users one reads a single DAG, and the other no asset."""

    def is_authorized_dag(self, *, user: Any, details: Any = None, **asked: Any) -> bool:
        if user.username == "reader_of_sales" and details is not None and details.id != "sales":
            return False
        return super().is_authorized_dag(user=user, details=details, **asked)

    def is_authorized_asset(self, *, user: Any, **asked: Any) -> bool:
        return user.username != "no_assets" and super().is_authorized_asset(user=user, **asked)


class ViewServer(ServerProcess):
    """An API server that shows lakehouses.

    :param lakehouses: directory of each connection's lakehouse, or the connection's fields; ``None`` for a connection
        that has no lakehouse.
    """

    def __init__(self, state: Path, lakehouses: Mapping[str, Path | Mapping[str, Any] | None]) -> None:
        self.state = state
        self.log_file = state / "api-server.log"
        self.port = free_port()
        self.url = f"http://{HOST}:{self.port}"
        self._lakehouses = lakehouses

    def command(self) -> list[str]:
        return [sys.executable, "-m", "airflow", "api-server"]

    def environment(self) -> Mapping[str, str]:
        connections = {
            f"AIRFLOW_CONN_{name.upper()}": json.dumps(
                {"conn_type": "onelake", "extra": {"lakehouse": str(given), "namespace": "test"}}
                if isinstance(given, Path)
                else {"conn_type": "onelake", "extra": {}, **(given or {})}
            )
            for name, given in self._lakehouses.items()
        }
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(("AIRFLOW", "_AIRFLOW"))}
        return {
            **inherited,
            **environment(self.state),
            **connections,
            "PYTHONPATH": str(REPOSITORY),
            "AIRFLOW__CORE__AUTH_MANAGER": f"{__name__}.{ByName.__name__}",
            "AIRFLOW__API__HOST": HOST,
            "AIRFLOW__API__PORT": str(self.port),
            "AIRFLOW__API__BASE_URL": self.url,
            "AIRFLOW__API__WORKERS": "1",
            "AIRFLOW__API__SECRET_KEY": "of-these-tests-alone",
            "AIRFLOW__API_AUTH__JWT_SECRET": "of-these-tests-alone-and-of-nobody-else",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": ",".join(f"{name}:{role}" for name, role in USERS.items()),
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(self.state / "passwords.json"),
            "AIRFLOW__ONELAKE__VIEW_CONNECTIONS": ", ".join((*self._lakehouses, DENIED)),
            "AIRFLOW__SECRETS__BACKEND": f"{GuardedSecrets.__module__}.{GuardedSecrets.__name__}",
            "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
        }

    def prepare(self) -> None:
        migrated_database(self.state)
        (self.state / "dags").mkdir(exist_ok=True)
        (self.state / "passwords.json").write_text(json.dumps({name: name for name in USERS}))

    def healthy(self) -> bool:
        try:
            return httpx.get(f"{self.url}/api/v2/version").is_success
        except httpx.HTTPError:
            return False

    def client(self) -> httpx.Client:
        """Return a client that is not signed in. It waits, as the machine may be busy."""
        return httpx.Client(base_url=self.url, timeout=60)

    def signed_in(self, name: str) -> httpx.Client:
        """Return a client of a user of :data:`USERS`, signed in as scripts do."""
        client = self.client()
        answer = client.post("/auth/token", json={"username": name, "password": name})
        client.headers["Authorization"] = f"Bearer {answer.raise_for_status().json()['access_token']}"
        return client
