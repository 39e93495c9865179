"""Keys that may read only, on a real S3 server: the right that is missing is named before Spark is asked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import attrs
import boto3
import pytest
from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.sources import SqlSource
from airflow_provider_onelake.spark.base import Engine
from include.local.jars import SetUpError
from include.local.settings import from_environment
from tests.support.contexts import context_of
from tests.support.object_stores import BUCKET, Lake, s3_credentials
from tests.support.store_servers import REGION, S3Server

READER, SECRET = "reader", "may-read-only"


class ServerWithReader(S3Server):
    """A server with a second account, which may do what a policy allows."""

    def command(self) -> list[str]:
        accounts = self.state / "accounts"
        accounts.mkdir(parents=True, exist_ok=True)
        reader = {"access": READER, "secret": SECRET, "role": "user", "userID": 0, "groupID": 0, "projectID": 0}
        (accounts / "users.json").write_text(json.dumps({"accessAccounts": {READER: reader}}))
        binary, *arguments = super().command()
        return [binary, "--iam-dir", str(accounts), *arguments]

    def allow(self, *actions: str) -> None:
        """Allow the reader these actions on the bucket and its objects, and no others."""
        client = boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
            region_name=REGION,
        )
        arn = f"arn:aws:s3:::{BUCKET}"
        statements = [
            {
                "Effect": "Allow",
                "Principal": {"AWS": [READER]},
                "Action": [action],
                "Resource": [arn if action == "s3:ListBucket" else f"{arn}/*"],
            }
            for action in actions
        ]
        client.put_bucket_policy(Bucket=BUCKET, Policy=json.dumps({"Version": "2012-10-17", "Statement": statements}))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerWithReader]:
    try:
        with ServerWithReader(tmp_path_factory.mktemp("s3"), install_into=from_environment().jars) as running:
            running.make_bucket(BUCKET)
            yield running
    except SetUpError as error:
        pytest.skip(str(error))


@pytest.fixture
def lake(server: ServerWithReader, request: pytest.FixtureRequest) -> Lake:
    """The lakehouse as the server's owner sees it."""
    return Lake("s3", f"s3://{BUCKET}/{request.node.name.partition('[')[0]}", s3_credentials(server))


@pytest.fixture
def reader(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> OneLakeHook:
    """The same lakehouse with the reader's keys."""
    assert lake.credentials is not None
    theirs = attrs.evolve(lake, credentials=attrs.evolve(lake.credentials, access_key=READER, secret_key=SECRET))
    monkeypatch.setenv("AIRFLOW_CONN_ONELAKE_DEFAULT", theirs.connection())
    return OneLakeHook()


@pytest.mark.usefixtures("reader")
@pytest.mark.parametrize("there", [False, True], ids=["no table yet", "a table"])
def test_a_writer_that_may_not_write_fails_for_good_before_spark_is_asked(
    lake: Lake, server: ServerWithReader, there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if there:
        lake.make_table("Tables/there")
    server.allow("s3:GetObject", "s3:ListBucket")

    class NoSpark(Engine):
        def analyze(self, job: Any) -> Any:
            raise AssertionError("Spark was asked")

        stage = analyze

    monkeypatch.setattr("airflow_provider_onelake.operators._spark_task.engine_for", lambda *_: NoSpark())
    task = OneLakeWriteOperator(
        task_id="write", table="Tables/there" if there else "Tables/t", source=SqlSource("SELECT 1")
    )
    with pytest.raises(AirflowFailException, match=r"Not allowed to write staged/.*lacks s3:PutObject"):
        task.execute(context_of(task))


def test_the_test_of_a_connection_names_every_right_that_is_missing(
    lake: Lake, reader: OneLakeHook, server: ServerWithReader
) -> None:
    server.allow("s3:GetObject", "s3:ListBucket")
    worked, message = reader.test_connection()
    assert not worked
    assert message.startswith(f"1. {lake.root} cannot be written: Not allowed to write Files/airflow-connection-test/")
    assert " 2. " not in message
    # People read it: neither XML nor ids of requests.
    assert "AccessDenied: " in message
    assert "<" not in message

    server.allow("s3:GetObject", "s3:PutObject")
    worked, message = reader.test_connection()
    assert not worked
    scratch = "Files/airflow-connection-test"
    assert message.startswith(f"1. {lake.root} cannot be listed: Not allowed to list {scratch} in {lake.root}: ")
    assert f"2. {lake.root} cannot be deleted from, so {scratch}/" in message
    assert "lacks s3:ListBucket" in message
    assert "lacks s3:DeleteObject" in message


def test_the_owners_keys_pass(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_ONELAKE_DEFAULT", lake.connection())
    assert OneLakeHook().test_connection() == (
        True,
        f"{lake.root} can be listed, read and written, and refuses a second create-only put.",
    )
