"""Which engine a connection stands for, and that what it knows of signing in reaches Spark and nobody else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_onelake.exceptions import InvalidWriteError
from airflow_provider_onelake.hooks.spark import engine_for
from airflow_provider_onelake.spark.connect import ConnectEngine
from airflow_provider_onelake.spark.submit.engine import SubmitEngine
from airflow_provider_onelake.storage.spark import SparkAccess

# What stands in a URL for something else.
TOKEN = "t0ken;use_ssl=false/+ &#?"


def connection(monkeypatch: pytest.MonkeyPatch, **fields: Any) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_C", json.dumps(fields))


def test_a_connection_of_spark_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    connection(monkeypatch, conn_type="spark_connect", host="sc://127.0.0.1", port=15002)
    assert isinstance(engine_for("c"), ConnectEngine)


@pytest.mark.parametrize(("host", "port"), [("local[2]", None), ("spark://master", 7077), ("yarn", None)])
def test_a_connection_of_spark_submit(monkeypatch: pytest.MonkeyPatch, host: str, port: int | None) -> None:
    connection(monkeypatch, conn_type="spark", host=host, **({"port": port} if port else {}))
    assert isinstance(engine_for("c"), SubmitEngine)


def test_another_connection_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    connection(monkeypatch, conn_type="livy", host="h")
    with pytest.raises(InvalidWriteError, match=r"'livy'.*'spark_connect', 'spark' and 'onelake_livy'"):
        engine_for("c")


def test_kubernetes_without_its_provider_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("airflow.providers.apache.spark")
    connection(monkeypatch, conn_type="spark", host="k8s://https://h:6443", extra={"deploy-mode": "cluster"})
    try:
        import airflow.providers.cncf.kubernetes  # noqa: F401
    except ImportError:
        from airflow_provider_onelake.exceptions import SparkSetUpError

        with pytest.raises(SparkSetUpError, match="cncf-kubernetes"):
            engine_for("c")
    else:
        pytest.skip("the Kubernetes provider is installed")


def test_secrets_of_the_store_are_masked_in_the_tasks_log(monkeypatch: pytest.MonkeyPatch) -> None:
    masked: list[str] = []
    monkeypatch.setattr("airflow.sdk.log.mask_secret", masked.append)
    connection(monkeypatch, conn_type="spark", host="local[1]")
    engine_for("c", None, lambda: SparkAccess(environment={"AWS_REGION": "eu-1", "AWS_SECRET_ACCESS_KEY": "s3cr3t"}))
    assert masked == ["s3cr3t"]


@pytest.fixture
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[int, Path, list[dict[str, str]]]]:
    """A server, with TLS or without, that lets nobody in, and notes what everybody showed: port, certificate, headers."""
    grpc: Any = pytest.importorskip("grpc")
    key, certificate = self_signed()
    (tmp_path / "roots.pem").write_bytes(certificate)
    shown: list[dict[str, str]] = []

    def refuse(_: Any, context: Any) -> Any:
        shown.append(dict(context.invocation_metadata()))
        context.abort(grpc.StatusCode.UNAUTHENTICATED, "who are you?")

    class Anything(grpc.GenericRpcHandler):  # type: ignore[misc]
        def service(self, details: Any) -> Any:
            if details.method.rpartition("/")[2] in ("ExecutePlan", "ReattachExecute"):
                return grpc.unary_stream_rpc_method_handler(refuse)
            return grpc.unary_unary_rpc_method_handler(refuse)

    made = grpc.server(ThreadPoolExecutor(2), handlers=[Anything()])
    if request.param:
        port = made.add_secure_port("localhost:0", grpc.ssl_server_credentials([(key, certificate)]))
    else:
        port = made.add_insecure_port("127.0.0.1:0")
    made.start()
    yield port, tmp_path / "roots.pem", shown
    made.stop(0)


def self_signed() -> tuple[bytes, bytes]:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return private, certificate.public_bytes(serialization.Encoding.PEM)


# In a process of its own: gRPC reads the roots that it trusts once.
CLIENT = """
from airflow_provider_onelake.spark.base import StageJob
from airflow_provider_onelake.hooks.spark import engine_for

engine = engine_for("c")
print(repr(engine))
try:
    source = {"kind": "sql", "query": "SELECT 1"}
    engine.stage(StageJob(source=source, table_uri="/t", attempt="a", buffer_uri="/t/b", metadata={"schemaString": "{}"}))
except Exception as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize(
    ("server", "host", "extra", "arrives"),
    [
        pytest.param(True, "localhost", {"use_ssl": True}, True, id="by TLS"),
        pytest.param(False, "127.0.0.1", {"use_ssl": False, "token_without_tls": False}, False, id="never without"),
        pytest.param(False, "127.0.0.1", {"token_without_tls": True}, True, id="but where that is asked for"),
    ],
    indirect=["server"],
)
def test_a_token_reaches_the_server_by_tls_or_as_asked_for_and_nobody_else(
    server: tuple[int, Path, list[dict[str, str]]], host: str, extra: dict[str, bool], arrives: bool
) -> None:
    port, roots, shown = server
    fields = {"conn_type": "spark_connect", "host": host, "port": port, "login": "ann", "password": TOKEN}
    fields["extra"] = extra
    env = {**os.environ, "AIRFLOW_CONN_C": json.dumps(fields), "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(roots)}
    done = subprocess.run([sys.executable, "-c", CLIENT], env=env, capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    assert ("AccessDeniedError" if arrives else "SparkUnavailableError") in said, said
    assert {headers["authorization"] for headers in shown} == ({f"Bearer {TOKEN}"} if arrives else set())
    assert TOKEN not in said
    assert "t0ken" not in said


def test_an_address_that_pyspark_refuses_does_not_tell_the_token(monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow_provider_onelake.spark.base import StageJob

    engine = ConnectEngine("sc://127.0.0.1:1/path;token=t0ken")
    source = {"kind": "sql", "query": "SELECT 1"}
    job = StageJob(source=source, table_uri="/t", attempt="a", buffer_uri="/t/b", metadata={"schemaString": "{}"})
    with pytest.raises(InvalidWriteError, match=r"sc://127\.0\.0\.1:1") as refused:
        engine.stage(job)
    assert "t0ken" not in str(refused.value)
    assert refused.value.__cause__ is None


@pytest.mark.parametrize("host", ["https://user:t0ken@host", "sc://", "user:t0ken@sc://host"])
def test_what_is_no_address_of_spark_connect_is_not_repeated(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    with pytest.raises(InvalidWriteError, match="no address of Spark Connect") as refused:
        ConnectEngine(f"{host}/;token=t0ken")
    assert "t0ken" not in str(refused.value)
