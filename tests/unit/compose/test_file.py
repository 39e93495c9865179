"""docker-compose.yaml as docker-compose reads it: which parts, which images, as whom, with which secrets and settings."""

from __future__ import annotations

import base64
import json
import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
import yaml

from airflow_provider_onelake.cli import instructions
from airflow_provider_onelake.storage.addresses import resolve_table
from airflow_provider_onelake.storage.azure import AzureCredentials
from airflow_provider_onelake.storage.s3 import S3Credentials
from airflow_provider_onelake.storage.spark import spark_access
from include.local.jars import SetUpError
from include.local.settings import REPOSITORY
from tests.support.compose import FILE, IMAGE_PATHS, Service, configuration, services
from tests.support.store_servers import BlobServer

COMPOSE = REPOSITORY / "include" / "compose"
SPARK = {"spark-master", "spark-worker-1", "spark-worker-2", "spark-connect"}
AIRFLOW = {"airflow-api", "airflow-dag-processor", "airflow-triggerer", "airflow-scheduler"}
STORES = {"metadata-db", "s3-server", "azure-server"}
ONELAKE = "onelake"
# A part of a name or of a variable that holds a secret.
SECRET = re.compile(r"PASSWORD|SECRET|KEY|TOKEN|AZURITE_ACCOUNTS|SQL_ALCHEMY_CONN|AIRFLOW_CONN_ONELAKE")
# The variable that chooses what is started, and no secret.
CHOICE = "COMPOSE_PROFILES"


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    """The file with its defaults."""
    try:
        return configuration()
    except SetUpError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def parts(found: dict[str, Any]) -> dict[str, Service]:
    return services(found)


@pytest.fixture(scope="module")
def dockerfile() -> list[list[str]]:
    """Its instructions, in words."""
    text = re.sub(r"\\\n", " ", (COMPOSE / "Dockerfile").read_text())
    return [line.split() for line in text.splitlines() if line and not line.startswith("#")]


@pytest.fixture(scope="module")
def with_onelake(found: dict[str, Any]) -> dict[str, Service]:
    """The parts with the local OneLake among them."""
    return services(configuration({CHOICE: ONELAKE}), ONELAKE)


def settings_in(directory: str) -> dict[str, str]:
    lines = (COMPOSE / directory / "spark-defaults.conf").read_text().splitlines()
    return dict(line.split(maxsplit=1) for line in lines if line and not line.startswith("#"))


@pytest.fixture(scope="module")
def spark_settings() -> dict[str, str]:
    return settings_in("spark")


def test_it_has_these_parts_and_no_others(parts: dict[str, Service], with_onelake: dict[str, Service]) -> None:
    assert set(parts) == STORES | SPARK | AIRFLOW | {"airflow-init"}
    assert with_onelake.keys() - parts.keys() == {"onelake-server"}


def test_a_variable_chooses_the_local_onelake_and_where_sparks_onelake_addresses_lead(
    parts: dict[str, Service], with_onelake: dict[str, Service], spark_settings: dict[str, str], tmp_path: Path
) -> None:
    for chosen, directory, proxy in ((parts, "spark", "azure-server"), (with_onelake, ONELAKE, "onelake-server")):
        for name in (*SPARK, "airflow-scheduler"):
            assert chosen[name].environment["SPARK_CONF_DIR"] == f"/opt/onelake/include/compose/{directory}"
        assert f"-Dhttp.proxyHost={proxy} " in settings_in(directory)["spark.driver.extraJavaOptions"]
    settings = settings_in(ONELAKE)
    needed = instructions.spark_settings(10000, "${env.ONELAKE_TOKEN}", tmp_path / "hosts")
    for key, value in needed.items():
        if not key.endswith("extraJavaOptions"):
            assert settings[key] == unquote(value)
    # What leads to Azurite is the only other difference.
    of_azurite = {key for key in spark_settings if ".fs.azure." in key or key.endswith("extraJavaOptions")}
    assert {key: value for key, value in spark_settings.items() if key not in of_azurite} == {
        key: value for key, value in settings.items() if key not in of_azurite | needed.keys()
    } | {key: spark_settings[key] for key in spark_settings.keys() & needed.keys() - of_azurite}


def test_the_connection_to_the_local_onelake_is_what_its_server_would_print(with_onelake: dict[str, Service]) -> None:
    server = with_onelake["onelake-server"]
    ((_, secret),) = (pair.split("=") for pair in server.environment["ONELAKE_TOKENS"].split())
    said = json.loads(with_onelake["airflow-scheduler"].environment["AIRFLOW_CONN_ONELAKE_LOCAL"])
    workspace, item = (server.command[server.command.index(option) + 1] for option in ("--workspace", "--item"))
    printed = instructions.connection_to(10000, secret, f"onelake://{workspace}/{item}", "onelake-server")
    printed["extra"]["namespace"] = "compose"
    assert said == {**printed, "extra": {**printed["extra"], "allow_http": True}}
    assert secret == with_onelake["spark-connect"].environment["ONELAKE_TOKEN"]
    assert server.command[server.command.index("--host") + 1] == instructions.EVERYWHERE


def test_every_part_that_stays_has_a_health_check(parts: dict[str, Service]) -> None:
    assert {name for name, service in parts.items() if service.health is None} == {"airflow-init"}


def test_what_is_depended_on_is_waited_for(parts: dict[str, Service]) -> None:
    for service in parts.values():
        for other, condition in service.after.items():
            assert condition == ("service_completed_successfully" if other == "airflow-init" else "service_healthy")
    # Nothing is scheduled before all that a task needs answers.
    needed, waited = {"airflow-scheduler"}, set[str]()
    while needed:
        waited |= needed
        needed = {other for name in needed for other in parts[name].after} - waited
    assert waited == set(parts)


def test_images_are_pinned(found: dict[str, Any], dockerfile: list[list[str]]) -> None:
    own = {words[3] for words in dockerfile if words[0] == "FROM"}
    images = [service["image"] for service in found["services"].values() if "build" not in service]
    images += [words[1] for words in dockerfile if words[0] == "FROM" and words[1] not in own]
    for image in images:
        assert re.search(r":v?\d+\.\d+(\.\d+)?(-[a-z-]+)?$", image), image
    for service in found["services"].values():
        if "build" in service:
            assert service["build"]["target"] in own
            assert service["build"]["context"] == str(REPOSITORY)


def test_versions_are_those_of_the_native_servers_and_of_this_package(dockerfile: list[list[str]]) -> None:
    from airflow_provider_onelake import __version__
    from tests.support import tools

    bases = {words[3]: words[1].rpartition(":")[2] for words in dockerfile if words[0] == "FROM"}
    assert bases["s3-server"] == tools.VERSITYGW
    assert bases["azure-server"] == tools.AZURITE
    assert set(re.findall(r"image: onelake-\S+:(\S+)", FILE.read_text())) == {__version__}


def test_nothing_is_root(found: dict[str, Any], dockerfile: list[list[str]]) -> None:
    for name, service in found["services"].items():
        assert service["user"].partition(":")[0] not in ("", "0", "root"), name
    last_user: dict[str, str] = {}
    target = ""
    for words in dockerfile:
        target = words[3] if words[0] == "FROM" else target
        if words[0] == "USER":
            last_user[target] = words[1]
    for service in found["services"].values():
        if "build" in service:
            assert last_user[service["build"]["target"]] == service["user"]


def test_ports_are_published_on_this_machine_only(found: dict[str, Any]) -> None:
    published = [port for service in found["services"].values() for port in service.get("ports", ())]
    assert len(published) == len({str(port).split(":")[1] for port in published}) > 5
    assert all(str(port).startswith("127.0.0.1:") for port in published)


def test_sources_are_mounted_read_only(found: dict[str, Any]) -> None:
    for service in found["services"].values():
        for volume in service.get("volumes", ()):
            assert volume.endswith(":ro") == volume.startswith("/"), volume


def test_every_secret_is_a_variable_and_its_default_says_that_it_is_for_development() -> None:
    variables = dict(re.findall(r"\$\{(\w+):-([^}]*)\}", FILE.read_text()))
    for name, default in variables.items():
        if name != CHOICE:
            assert "development" in default or "development" in base64.b64decode(default).decode(), name
    mine = {name: f"mine-{number}" for number, name in enumerate(variables) if name != CHOICE}
    replaced = configuration(mine)
    for name, body in replaced["services"].items():
        for key, value in body["environment"].items():
            if SECRET.search(key) and not key.endswith("_FILE"):
                assert "mine-" in value, f"{name}: {key}"
    assert "development" not in yaml.safe_dump(replaced)


def test_no_secret_is_on_a_command_line(found: dict[str, Any]) -> None:
    for service in found["services"].values():
        said = json.dumps([service["command"], service.get("healthcheck")])
        assert "development" not in said
        assert "ZGV2" not in said


def test_the_connections_tell_spark_what_it_is_set_up_with(
    parts: dict[str, Service], spark_settings: dict[str, str], tmp_path: Path
) -> None:
    environment = parts["airflow-scheduler"].environment
    s3 = json.loads(environment["AIRFLOW_CONN_ONELAKE_DEFAULT"])
    azure = json.loads(environment["AIRFLOW_CONN_ONELAKE_AZURE"])
    needed = [
        spark_access(
            resolve_table("Tables/t", s3["extra"]["lakehouse"]),
            S3Credentials(
                access_key=s3["login"],
                secret_key=s3["password"],
                **{key: s3["extra"][key] for key in ("region", "endpoint", "allow_http")},
            ),
        ),
        spark_access(
            resolve_table("Tables/t", azure["extra"]["lakehouse"]),
            AzureCredentials(
                sign_in="account_key",
                account_key=azure["password"],
                **{key: azure["extra"][key] for key in ("endpoint", "allow_http")},
            ),
        ),
    ]
    for access in needed:
        # What to fetch and what not is a question of the image.
        settings = {key: value for key, value in access.settings.items() if not key.startswith("spark.jars")}
        assert settings.items() <= spark_settings.items()
        for name in (*SPARK, "airflow-scheduler"):
            assert access.environment.keys() <= parts[name].environment.keys() | {"AWS_REGION"}
            given = {key: parts[name].environment[key] for key in access.environment if key != "AWS_REGION"}
            assert given.items() <= access.environment.items()
    for key, value in BlobServer(tmp_path, port=10000).spark_settings(tmp_path / "hosts").items():
        if not key.endswith("extraJavaOptions"):
            assert spark_settings[key] == value


def test_spark_has_delta_as_the_local_server_has(spark_settings: dict[str, str]) -> None:
    from include.local.connect_server import _SETTINGS

    for key, value in _SETTINGS.items():
        if key.startswith(("spark.sql.", "spark.databricks.", "spark.connect.execute.", "spark.scheduler.")):
            assert spark_settings[key] == value, key


def test_what_the_file_names_is_there_and_in_the_image(parts: dict[str, Service], dockerfile: list[list[str]]) -> None:
    copied = {words[-1] for words in dockerfile if words[0] == "COPY"}
    assert "/opt/onelake/jars" in copied
    for service in parts.values():
        for source in service.volumes.values():
            assert not source.startswith("/") or Path(source).is_dir()
    # What the image's build may see.
    seen = {line[1:] for line in (REPOSITORY / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    for words in dockerfile:
        if words[0] == "COPY" and not words[1].startswith("--"):
            assert set(words[1:-1]) <= seen
    assert all((REPOSITORY / name).exists() for name in seen)
    assert os.path.commonpath(list(IMAGE_PATHS)) == "/opt/onelake"
