"""Spark's matching settings: no secret among them, each for its own bucket or account."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path
from typing import Any

import attrs
import pytest

from airflow_provider_onelake.exceptions import CredentialsError, SparkSetUpError
from airflow_provider_onelake.storage.addresses import TableAddress
from airflow_provider_onelake.storage.azure import AzureCredentials
from airflow_provider_onelake.storage.credentials import Credentials
from airflow_provider_onelake.storage.s3 import S3Credentials
from airflow_provider_onelake.storage.spark import SparkAccess, delta_package, hadoop, spark_access

S3 = TableAddress.parse("s3://lake/t")
ONELAKE = TableAddress.parse("onelake://taxi/raw.Lakehouse/Tables/t")
ADLS = TableAddress.parse("abfss://raw@lake.dfs.core.windows.net/t")
BUCKET = "spark.hadoop.fs.s3a.bucket.lake."
ACCOUNT = "spark.hadoop.fs.azure.account."
HOST = "onelake.dfs.fabric.microsoft.com"


@pytest.mark.parametrize(
    ("address", "credentials"),
    [
        (S3, S3Credentials(access_key="AKID", secret_key="hush-1", session_token="hush-2")),
        (S3, S3Credentials(access_key="AKID", secret_key="hush-1", role_arn="arn:aws:iam::1:role/r")),
        (ADLS, AzureCredentials(sign_in="account_key", account_key="hush-1")),
        (ONELAKE, AzureCredentials(sign_in="service_principal", tenant_id="t", client_id="c", client_secret="hush-1")),
    ],
    ids=["s3 key", "s3 role", "account key", "service principal"],
)
def test_secrets_are_in_the_environment_only(address: TableAddress, credentials: Credentials) -> None:
    access = spark_access(address, credentials)
    assert "hush" not in f"{access} {access!r} {dict(access.settings)} {access.packages}"
    assert "hush-1" in access.environment.values()


def test_a_bucket_has_settings_of_its_own() -> None:
    credentials = S3Credentials(
        access_key="A", secret_key="B", region="eu-north-1", endpoint="http://store:9000", allow_http=True
    )
    access = spark_access(S3, credentials)
    assert access.settings == {
        f"{BUCKET}path.style.access": "true",
        f"{BUCKET}endpoint": "http://store:9000",
        f"{BUCKET}endpoint.region": "eu-north-1",
        f"{BUCKET}retry.limit": "9",
        f"{BUCKET}connection.ssl.enabled": "false",
        f"{BUCKET}aws.credentials.provider": (
            "software.amazon.awssdk.auth.credentials.EnvironmentVariableCredentialsProvider"
        ),
        "spark.jars.excludes": "software.amazon.awssdk:bundle",
    }
    assert access.environment == {"AWS_ACCESS_KEY_ID": "A", "AWS_SECRET_ACCESS_KEY": "B", "AWS_REGION": "eu-north-1"}
    assert access.packages == S3.kind.packages("3.5.0")


def test_a_role_is_assumed_by_spark_itself() -> None:
    settings = spark_access(S3, S3Credentials(role_arn="arn:aws:iam::1:role/r", region="eu-north-1")).settings
    assert settings[f"{BUCKET}aws.credentials.provider"].endswith("AssumedRoleCredentialProvider")
    assert settings[f"{BUCKET}assumed.role.arn"] == "arn:aws:iam::1:role/r"
    assert f"{BUCKET}assumed.role.credentials.provider" not in settings


def test_without_keys_hadoops_own_chain_is_asked() -> None:
    access = spark_access(S3)
    assert not any("provider" in name for name in access.settings)
    assert access.environment == {}


def test_an_account_key_is_looked_up_in_the_environment_by_hadoop() -> None:
    access = spark_access(ADLS, AzureCredentials(sign_in="account_key", account_key="k"))
    assert access.settings == {
        f"{ACCOUNT}auth.type.lake.dfs.core.windows.net": "SharedKey",
        f"{ACCOUNT}key.lake.dfs.core.windows.net": "${env.AZURE_STORAGE_ACCOUNT_KEY}",
    }
    assert access.environment == {"AZURE_STORAGE_ACCOUNT_KEY": "k"}
    assert access.packages == ADLS.kind.packages("3.5.0")


@pytest.mark.parametrize(
    ("given", "provider", "more"),
    [
        (
            {"sign_in": "service_principal", "tenant_id": "t", "client_id": "c", "client_secret": "s"},
            "ClientCredsTokenProvider",
            {
                "oauth2.client.id": "c",
                "oauth2.client.secret": "${env.AZURE_CLIENT_SECRET}",
                "oauth2.client.endpoint": "https://login.microsoftonline.com/t/oauth2/token",
            },
        ),
        (
            {"sign_in": "workload_identity"},
            "WorkloadIdentityTokenProvider",
            {
                "oauth2.client.id": "${env.AZURE_CLIENT_ID}",
                "oauth2.msi.tenant": "${env.AZURE_TENANT_ID}",
                "oauth2.token.file": "${env.AZURE_FEDERATED_TOKEN_FILE}",
            },
        ),
        ({"sign_in": "managed_identity", "client_id": "c"}, "MsiTokenProvider", {"oauth2.client.id": "c"}),
    ],
    ids=["service principal", "workload identity", "managed identity"],
)
def test_spark_renews_tokens_by_itself(given: dict[str, Any], provider: str, more: dict[str, str]) -> None:
    assert spark_access(ONELAKE, AzureCredentials(**given)).settings == {
        f"{ACCOUNT}auth.type.{HOST}": "OAuth",
        f"{ACCOUNT}hns.enabled.{HOST}": "true",
        f"{ACCOUNT}oauth.provider.type.{HOST}": f"org.apache.hadoop.fs.azurebfs.oauth2.{provider}",
        **{f"{ACCOUNT}{name}.{HOST}": value for name, value in more.items()},
    }


@pytest.mark.parametrize(
    "credentials", [None, AzureCredentials(sign_in="cli"), AzureCredentials(sign_in="token", token="x")], ids=str
)
def test_ways_that_spark_does_not_know_are_refused_with_the_way_out(credentials: AzureCredentials | None) -> None:
    with pytest.raises(CredentialsError, match="service principal, a workload identity or a managed identity"):
        spark_access(ONELAKE, credentials)


def test_the_local_disk_needs_nothing() -> None:
    assert spark_access(TableAddress.parse("/lake/t")) == SparkAccess()
    with pytest.raises(CredentialsError):
        spark_access(S3, AzureCredentials())


KEYS = S3Credentials(access_key="A", secret_key="B", region="eu-north-1")
PRINCIPAL = AzureCredentials(sign_in="service_principal", tenant_id="t", client_id="c", client_secret="s")


def test_machines_without_the_keys_are_not_told_to_look_for_them() -> None:
    access = spark_access(S3, KEYS).without_environment({})
    assert access.environment == {}
    # Hadoop looks at the environment by itself, then at the machine's identity.
    assert f"{BUCKET}aws.credentials.provider" not in access.settings
    assert access.settings[f"{BUCKET}endpoint.region"] == "eu-north-1"


@pytest.mark.parametrize("name", [f"{ACCOUNT}auth.type", f"{ACCOUNT}auth.type.{HOST}"])
def test_machines_with_an_identity_of_their_own_sign_in_by_that_alone(name: str) -> None:
    access = spark_access(ONELAKE, PRINCIPAL).without_environment({name: "OAuth"})
    assert access.settings == {f"{ACCOUNT.removesuffix('account.')}account.hns.enabled.{HOST}": "true"}


def test_a_role_gives_way_to_what_machines_are_told_for_all_buckets() -> None:
    access = spark_access(S3, attrs.evolve(KEYS, role_arn="arn:aws:iam::1:role/r"))
    own = {"spark.hadoop.fs.s3a.aws.credentials.provider": "IAMInstanceCredentialsProvider"}
    assert not any("role" in name or "provider" in name for name in access.without_environment(own).settings)
    assert access.without_environment({}).settings[f"{BUCKET}assumed.role.arn"].endswith("role/r")


def test_machines_with_the_variables_of_azure_are_told_which() -> None:
    access = spark_access(ONELAKE, PRINCIPAL).without_environment({"spark.executor.memory": "1g"})
    assert access.settings[f"{ACCOUNT}oauth2.client.secret.{HOST}"] == "${env.AZURE_CLIENT_SECRET}"


def test_without_a_secret_all_of_it_goes_to_every_machine() -> None:
    access = spark_access(ONELAKE, AzureCredentials(sign_in="managed_identity"))
    assert access.without_environment({f"{ACCOUNT}auth.type": "OAuth"}) == access


@pytest.mark.parametrize("patience", [0, 1, 30, 63, 64, 120, 150, 600])
def test_s3a_hangs_on_for_as_long_as_the_committer_and_not_for_ever(patience: float) -> None:
    retries = int(spark_access(S3, patience=patience).settings[f"{BUCKET}retry.limit"])
    waits = sum(0.5 * 2**number for number in range(retries))
    assert patience <= waits <= max(1, 2 * patience + 1)


def home_of(directory: Path, core: str) -> Path:
    (directory / "jars").mkdir(parents=True)
    (directory / "jars" / f"spark-core_{core}.jar").touch()
    return directory


@pytest.mark.parametrize(
    ("core", "package", "inside"),
    [
        ("2.12-3.5.7", "io.delta:delta-spark_2.12:3.3.2", "3.3.4"),
        ("2.13-3.5.5.5.4.20241017", "io.delta:delta-spark_2.13:3.3.2", "3.3.4"),
        ("2.13-4.0.2-amzn-0", "io.delta:delta-spark_2.13:4.0.1", "3.4.1"),
        ("2.13-4.1.4", "io.delta:delta-spark_4.1_2.13:4.4.0", "3.4.2"),
        ("2.13-4.2.1", "io.delta:delta-spark_4.2_2.13:4.4.0", "3.5.0"),
    ],
)
def test_packages_are_those_that_were_tried_with_the_spark(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, core: str, package: str, inside: str
) -> None:
    monkeypatch.setenv("SPARK_HOME", str(home_of(tmp_path, core)))
    assert (delta_package(), hadoop()) == (package, inside)
    assert spark_access(ADLS, AzureCredentials(sign_in="managed_identity")).packages == (
        f"org.apache.hadoop:hadoop-azure:{inside}",
    )


def test_without_spark_home_the_spark_is_that_of_the_script_on_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script = home_of(tmp_path, "2.13-4.0.1") / "bin" / "spark-submit"
    script.parent.mkdir()
    script.touch(0o755)
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setenv("PATH", str(script.parent))
    assert delta_package() == "io.delta:delta-spark_2.13:4.0.1"


@pytest.mark.parametrize("client", ["3.4.1", "4.9.0"])
def test_without_any_it_is_that_of_the_client_and_an_unknown_one_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, client: str
) -> None:
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    monkeypatch.setattr(importlib.metadata, "version", {"pyspark-client": "4.1.2"}.__getitem__)
    assert delta_package() == "io.delta:delta-spark_4.1_2.13:4.4.0"
    monkeypatch.setattr(importlib.metadata, "version", {"pyspark-client": client}.__getitem__)
    with pytest.raises(SparkSetUpError, match=rf"Spark is {client[:3]}, .* with 3\.5, 4\.0, 4\.1, 4\.2\. .*`packages`"):
        delta_package()


def test_a_hadoop_of_before_3_4_has_the_old_sdk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPARK_HOME", str(home_of(tmp_path, "2.12-3.5.7")))
    access = spark_access(S3, S3Credentials(access_key="A", secret_key="B"))
    assert access.packages == ("org.apache.hadoop:hadoop-aws:3.3.4",)
    provider = "com.amazonaws.auth.EnvironmentVariableCredentialsProvider"
    assert access.settings[f"{BUCKET}aws.credentials.provider"] == provider
    # Its default is "delete", by which a write of Spark 3.5 blocked for ever.
    assert access.settings[f"{BUCKET}directory.marker.retention"] == "keep"
