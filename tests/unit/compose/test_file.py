"""docker-compose.yaml as docker-compose reads it: which parts, which images, as whom, with which secrets and settings."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

import pytest
import yaml

from include.local.jars import SetUpError
from include.local.settings import REPOSITORY
from tests.support.compose import FILE, Service, configuration, services

COMPOSE = REPOSITORY / "include" / "compose"
# A part of a name or of a variable that holds a secret.
SECRET = re.compile(r"PASSWORD|SECRET|KEY|TOKEN|AZURITE_ACCOUNTS|SQL_ALCHEMY_CONN|AIRFLOW_CONN_(ONELAKE|SPARK_CONNECT)")
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


def test_every_part_that_stays_has_a_health_check_and_what_is_depended_on_is_waited_for(
    parts: dict[str, Service],
) -> None:
    assert {name for name, service in parts.items() if service.health is None} == {"airflow-init"}
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


def test_nothing_becomes_root_and_nothing_writes_to_its_own_image(found: dict[str, Any]) -> None:
    for name, service in found["services"].items():
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
    assert {name for name, service in found["services"].items() if not service.get("read_only")} == {"metadata-db"}


def test_spark_connect_wants_the_token_that_airflow_shows(parts: dict[str, Service]) -> None:
    token = parts["spark-connect"].environment["SPARK_CONNECT_AUTHENTICATE_TOKEN"]
    connection = json.loads(parts["airflow-scheduler"].environment["AIRFLOW_CONN_SPARK_CONNECT_DEFAULT"])
    assert connection["password"] == token
    # A client whose environment has it sends it by TLS only.
    assert [name for name, part in parts.items() if "SPARK_CONNECT_AUTHENTICATE_TOKEN" in part.environment] == [
        "spark-connect"
    ]


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
