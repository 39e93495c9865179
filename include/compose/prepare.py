"""What must be there before Airflow starts in containers: its password, its tables, a pool, bucket and workspace.

Doing it again changes nothing.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.storage.azure import AzureCredentials
from airflow_provider_onelake.storage.s3 import S3Credentials
from include.compose.containers import make_container
from include.local.settings import TRIPS_POOL, USER, write_atomically


def make_room(conn_id: str) -> str:
    """Make the bucket or the workspace of a connection's lakehouse, if there is none.

    :param conn_id: of the connection.
    :returns: its name.
    """
    table = OneLakeHook(conn_id).table("Tables/any")
    address, credentials = table.address, table.credentials
    if isinstance(credentials, S3Credentials):
        _make_bucket(credentials, address.authority)
    elif isinstance(credentials, AzureCredentials):
        # Azurite's container is what a workspace is to OneLake.
        make_container(str(credentials.endpoint), str(credentials.account_key), address.authority)
    return address.authority


def _make_bucket(credentials: S3Credentials, name: str) -> None:
    import boto3

    client = boto3.client(
        "s3",
        endpoint_url=credentials.endpoint,
        region_name=credentials.region,
        aws_access_key_id=credentials.access_key,
        aws_secret_access_key=credentials.secret_key,
    )
    if name not in {bucket["Name"] for bucket in client.list_buckets()["Buckets"]}:
        client.create_bucket(Bucket=name)


def write_password(file: Path, password: str) -> None:
    """Write the file from which Airflow's simple auth manager takes the password of ``admin``.

    :param file: its path.
    :param password: in plain text, as Airflow wants it.
    """
    write_atomically(file, json.dumps({USER: password}), mode=0o600)


def make_tables() -> None:
    """Make Airflow's tables, or bring them up to this version, and the pool of the example DAGs."""
    from airflow.models import Pool
    from airflow.utils import db
    from airflow.utils.session import create_session

    db.initdb()
    with create_session() as session:
        Pool.create_or_update_pool(**TRIPS_POOL, session=session)


def main() -> None:
    """Do all of it."""
    write_password(
        Path(os.environ["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE"]), os.environ["AIRFLOW_ADMIN_PASSWORD"]
    )
    for conn_id in ("onelake_default", "onelake_azure"):
        make_room(conn_id)
    make_tables()


if __name__ == "__main__":
    main()
