"""The command ``local-onelake``: what it starts, what it prints, what it refuses."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.spark.livy.settings import LivyTarget
from local_onelake import cli
from local_onelake.instructions import spark_settings, spark_settings_with_tls
from local_onelake.lake import Lake
from local_onelake.serve import listen, running

pytestmark = pytest.mark.promise


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[Lake]:
    """What would be served; the command returns at once."""
    lakes: list[Lake] = []
    monkeypatch.setattr(cli, "serve_lake", lambda lake, at, context: (lakes.append(lake), at.close()))
    return lakes


def serve(directory: Path, *options: str) -> Result:
    return CliRunner().invoke(cli.app, [str(directory), "--port", "0", *options])


def test_it_prints_what_a_person_needs_and_what_it_is_not(served: list[Lake], tmp_path: Path) -> None:
    said = serve(tmp_path, "--workspace", "Sales", "--item", "raw.Lakehouse", "--token", "ann=s3cret")
    assert said.exit_code == 0, said.output
    (workspace,) = served[0].names.all()
    (item,) = workspace.items.values()
    assert "It is not OneLake" in said.output
    for text in (
        "onelake://Sales/raw.Lakehouse",
        f"onelake://{workspace.guid}/{item.guid}",
        "AIRFLOW_CONN_ONELAKE_DEFAULT",
    ):
        assert text in said.output
    port = int(said.output.partition("http://127.0.0.1:")[2].split()[0])
    for name, value in spark_settings(port, "s3cret", tmp_path / ".onelake" / "hosts").items():
        assert f"--conf '{name}={value}'" in said.output


def test_the_connection_that_it_prints_is_one(
    served: list[Lake], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = serve(tmp_path, "--token", "ann=s3cret").output
    connection = json.loads(said.partition("AIRFLOW_CONN_ONELAKE_DEFAULT='")[2].partition("'\n")[0])
    lake = Lake.open(tmp_path, served[0].identities)
    with running(lake) as url:
        connection["extra"]["endpoint"] = url
        monkeypatch.setenv("AIRFLOW_CONN_ONELAKE_DEFAULT", json.dumps(connection))
        worked, message = OneLakeHook().test_connection()
    lake.close()
    assert worked, message


def test_with_tls_it_says_what_to_trust_and_how_spark_signs_in(served: list[Lake], tmp_path: Path) -> None:
    assert "HTTPS_PROXY" not in serve(tmp_path, "--token", "ann=s3cret").output
    said = serve(tmp_path, "--token", "ann=s3cret", "--tls").output
    authority, truststore = (tmp_path / ".onelake" / "tls" / name for name in ("ca.pem", "truststore.p12"))
    assert f"SSL_CERT_FILE={authority}" in said
    port = int(said.partition("HTTPS_PROXY=http://127.0.0.1:")[2].split()[0])
    hosts = tmp_path / ".onelake" / "hosts"
    for name, value in spark_settings_with_tls(port, "ann", "s3cret", hosts, truststore).items():
        assert f"--conf '{name}={value}'" in said


def test_with_a_spark_it_serves_livy_and_prints_its_connection(
    served: list[Lake], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "LIVY" not in serve(tmp_path, "--token", "ann=s3cret").output
    monkeypatch.chdir("/bin")
    said = serve(
        tmp_path, "--token", "ann=s3cret", "--spark-submit", "./true", "--spark-conf", "spark.driver.memory=1g"
    ).output
    text = said.partition("AIRFLOW_CONN_ONELAKE_LIVY_DEFAULT='")[2].partition("'\n")[0]
    monkeypatch.setenv("AIRFLOW_CONN_L", text)
    target = LivyTarget.of(OneLakeHook.get_connection("l"))
    assert target.in_fabric
    assert target.headers() == {"Authorization": "Bearer s3cret"}
    batches = served[-1].batches
    assert batches is not None
    assert Path(batches.spark_submit).is_absolute()
    assert Path(batches.spark_submit).samefile("/bin/true")
    settings = batches.settings("s3cret")
    assert settings["spark.driver.memory"] == "1g"
    assert settings["spark.master"] == "local[2]"
    assert "http.proxyPort" in settings["spark.driver.extraJavaOptions"]


def test_without_a_token_one_is_made_and_kept_for_its_owner(served: list[Lake], tmp_path: Path) -> None:
    for _ in range(2):
        assert serve(tmp_path).exit_code == 0
    first, second = (lake.identities.tokens for lake in served)
    assert first == second
    assert list(first) == ["me"]
    assert stat.S_IMODE((tmp_path / ".onelake" / "tokens.json").stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--token", "ann"], "NAME=SECRET"),
        (["--token", "ann=x", "--token", "bob=x"], "a secret of its own"),
        (["--fault", "fire"], "no fault 'fire'"),
        (["--spark-submit", "/no/such/script"], "no script /no/such/script"),
        (["--spark-submit", "/bin/true", "--spark-conf", "spark.x"], "NAME=VALUE"),
        (["--spark-conf", "spark.x=y"], "for the batches of --spark-submit"),
        (["--host", "192.0.2.1"], "Cannot assign requested address"),
        (["--workspace", "a/b"], "cannot be called"),
        (["--item", "raw"], "cannot be called"),
        (["--token", "ann=x", "--role", "bob=Viewer"], "no identity 'bob'"),
        (["--token", "ann=x", "--role", "ann=Viewer"], "keeps one Admin"),
        (["--token", "ann=x", "--role", "Viewer"], "is NAME="),
        (["--token", "ann=x", "--permission", "ann=Fly"], "no permission 'Fly'"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_served(
    served: list[Lake], tmp_path: Path, options: list[str], why: str
) -> None:
    said = serve(tmp_path, *options)
    assert (said.exit_code, served) == (1, [])
    assert why in said.output


def test_a_port_that_is_taken_and_a_directory_that_is_open_are_said(served: list[Lake], tmp_path: Path) -> None:
    with listen() as taken:
        said = CliRunner().invoke(cli.app, [str(tmp_path), "--port", str(taken.getsockname()[1])])
        assert (said.exit_code, served) == (1, [])
        assert "in use" in said.output
    assert serve(tmp_path).exit_code == 0
    other = Lake.open(tmp_path, served[0].identities)
    assert "Another server has" in serve(tmp_path).output
    other.close()


def test_it_listens_on_this_machine_only_unless_it_is_asked_for_more_and_then_says_so(
    served: list[Lake], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listening: list[tuple[str, int]] = []
    monkeypatch.setattr(cli, "serve_lake", lambda lake, at, context: listening.append(at.getsockname()))
    assert "OTHER MACHINES" not in serve(tmp_path / "alone").output
    said = serve(tmp_path / "open", "--host", "0.0.0.0").output
    assert "OTHER MACHINES REACH IT" in said
    assert [host for host, _ in listening] == ["127.0.0.1", "0.0.0.0"]
    # This machine reaches it as before.
    assert f"Blob   http://127.0.0.1:{listening[-1][1]}\n" in said


def test_identities_may_be_in_the_environment_which_not_everybody_can_read(
    served: list[Lake], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONELAKE_TOKENS", "ann=s3cret bob=other")
    assert serve(tmp_path).exit_code == 0
    assert served[-1].identities.tokens == {"ann": "s3cret", "bob": "other"}
