"""The connection type: its form, its settings, and what its test proves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_onelake.exceptions import AddressError, CredentialsError, InvalidWriteError, ObjectExistsError
from airflow_provider_onelake.get_provider_info import get_provider_info
from airflow_provider_onelake.hooks.fabric import FabricHook
from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.storage.stores import ObjectInfo, ObjectStore
from tests.support.contexts import connect
from tests.support.versions import needs_airflow


def test_the_provider_info_is_what_airflow_expects() -> None:
    from importlib.resources import files

    import jsonschema

    schema = json.loads(files("airflow").joinpath("provider_info.schema.json").read_text())
    jsonschema.validate(get_provider_info(), schema)


@pytest.mark.parametrize("kind", ["operators", "sensors", "triggers"])
def test_the_provider_info_names_every_module_with_such_a_class(kind: str) -> None:
    import importlib
    import pkgutil

    from airflow.sdk import BaseOperator, BaseSensorOperator
    from airflow.triggers.base import BaseTrigger

    import airflow_provider_onelake

    base = {"operators": BaseOperator, "sensors": BaseSensorOperator, "triggers": BaseTrigger}[kind]
    root = importlib.import_module(f"{airflow_provider_onelake.__name__}.{kind}")
    found = set()
    for info in pkgutil.iter_modules(root.__path__, f"{root.__name__}."):
        own = [each for each in vars(importlib.import_module(info.name)).values() if isinstance(each, type)]
        if any(issubclass(each, base) and each.__module__ == info.name for each in own):
            found.add(info.name)
    # What the others inherit from is nobody's task, and private.
    found = {name for name in found if not name.rpartition(".")[2].startswith("_")}
    assert found == {name for each in get_provider_info()[kind] for name in each["python-modules"]}


def test_the_provider_info_names_every_link() -> None:
    import importlib

    from airflow.sdk import BaseOperatorLink

    module = importlib.import_module("airflow_provider_onelake.links.onelake")
    own = [each for each in vars(module).values() if isinstance(each, type) and issubclass(each, BaseOperatorLink)]
    found = {f"{each.__module__}.{each.__name__}" for each in own if each.__module__ == module.__name__ and each.name}
    assert found == set(get_provider_info()["extra-links"])


def test_the_provider_info_names_the_plugin_as_the_entry_point_does() -> None:
    import tomllib

    root = Path(__file__).parents[3]
    (named,) = tomllib.loads((root / "pyproject.toml").read_text())["project"]["entry-points"][
        "airflow.plugins"
    ].values()
    (plugin,) = get_provider_info()["plugins"]
    assert plugin["plugin-class"] == named.replace(":", ".")
    assert f'name = "{plugin["name"]}"' in (root / "airflow_provider_onelake/view/lakehouse.py").read_text()


@needs_airflow("3.2", "forms of connections by a provider's metadata")
def test_airflow_finds_the_connection_type_and_its_form() -> None:
    from airflow.providers_manager import ProvidersManager

    manager = ProvidersManager()
    assert "onelake" in manager.hooks
    fields = {"lakehouse", "namespace", "sign_in", "tenant_id", "region", "profile", "role_arn", "endpoint"}
    fields |= {"table_page", "lakehouse_alias", "fabric_api", "powerbi_api", "iceberg_readers", "fsync"}
    assert {f"extra__onelake__{name}" for name in fields} <= set(manager.connection_form_widgets)
    assert not {"port", "login", "password"} & set(manager.field_behaviours["onelake"]["hidden_fields"])


def test_airflow_masks_what_the_form_holds_in_secret() -> None:
    from airflow.sdk._shared.secrets_masker import should_hide_value_for_key

    kind = get_provider_info()["connection-types"][0]
    hidden = [name for name, field in kind["conn-fields"].items() if field["schema"].get("format") == "password"]
    assert hidden == ["session_token"]
    assert all(should_hide_value_for_key(name) for name in (*hidden, "password"))


def test_spark_gets_the_access_that_the_connection_has(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = {"conn_type": "onelake", "login": "c", "password": "hush"}
    connection["extra"] = json.dumps({"lakehouse": "onelake://taxi/raw.Lakehouse", "tenant_id": "t"})
    monkeypatch.setenv("AIRFLOW_CONN_ONELAKE_DEFAULT", json.dumps(connection))
    access = OneLakeHook().table("Tables/trips").spark_access()
    assert access.environment == {"AZURE_CLIENT_SECRET": "hush"}
    assert "hush" not in repr(access)


def test_settings_come_from_the_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    connect(monkeypatch, OneLakeHook, lakehouse=f" {tmp_path} ", namespace="prod")
    hook = OneLakeHook()
    assert (hook.lakehouse, hook.namespace) == (str(tmp_path), "prod")
    assert hook.table("Tables/trips").address.path == f"{tmp_path}/Tables/trips"
    with pytest.raises(AddressError, match="outside the lakehouse"):
        hook.table("/elsewhere/trips")


@pytest.mark.parametrize("extra", ["[1]", "7", "hush"])
@needs_airflow("3.2", "a word for a connection that is broken")
def test_an_extra_that_is_no_json_object_is_refused_and_not_shown(monkeypatch: pytest.MonkeyPatch, extra: str) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_ONELAKE_DEFAULT", json.dumps({"conn_type": "onelake", "extra": extra}))
    with pytest.raises(CredentialsError, match="connection onelake_default has an extra that is no JSON") as caught:
        OneLakeHook().table("Tables/trips")
    assert extra not in str(caught.value)


def test_a_lakehouse_may_be_known_by_names_and_by_guids(monkeypatch: pytest.MonkeyPatch) -> None:
    guids = "0f3c8a1e-5b2d-4c6f-9a7b-1d2e3f4a5b6c/a1b2c3d4-e5f6-4789-8abc-def012345678"
    connect(monkeypatch, OneLakeHook, lakehouse="onelake://taxi/raw.Lakehouse", lakehouse_alias=f"onelake://{guids}")
    hook = OneLakeHook()
    assert hook.table(f"onelake://{guids}/Tables/trips").address == hook.table("Tables/trips").address
    page = f"https://app.fabric.microsoft.com/groups/{guids.replace('/', '/lakehouses/')}"
    assert hook.table("Tables/trips").page() == page
    connect(monkeypatch, OneLakeHook, lakehouse="onelake://taxi/raw.Lakehouse")
    assert OneLakeHook().table("Tables/trips").page() is None
    connect(monkeypatch, OneLakeHook, lakehouse="onelake://a/b.Lakehouse", lakehouse_alias="onelake://b/c.Lakehouse")
    worked, message = OneLakeHook().test_connection()
    assert not worked
    assert "no other spelling" in message


async def test_a_trigger_reads_the_connection_without_blocking(monkeypatch: pytest.MonkeyPatch) -> None:
    connect(monkeypatch, OneLakeHook, namespace="prod")
    hook = await OneLakeHook.from_async("onelake_default")
    assert hook.namespace == "prod"
    # It asks again by itself, and others wait for its threads.
    assert hook.patience == 10


@pytest.mark.parametrize(
    ("extra", "seconds"), [({}, 150), ({"patience": ""}, 150), ({"patience": "7.5"}, 7.5), ({"patience": 0}, 0)]
)
def test_how_patient_a_connection_is(monkeypatch: pytest.MonkeyPatch, extra: dict[str, Any], seconds: float) -> None:
    connect(monkeypatch, OneLakeHook, lakehouse="s3://lake", **extra)
    assert OneLakeHook().patience == seconds
    assert OneLakeHook(most_patience=5).patience == min(5, seconds)


def test_a_connections_test_proves_the_put_and_does_not_list_all(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "Files" / "raw").mkdir(parents=True)
    for name in ("one-of-millions.json", "raw/another.json"):
        (tmp_path / "Files" / name).write_text("{}")
    connect(monkeypatch, OneLakeHook, lakehouse=str(tmp_path))
    listed: list[str] = []
    listing = ObjectStore.list

    def watched(self: ObjectStore, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        for info in listing(self, prefix, start_after):
            listed.append(info.path)
            yield info

    monkeypatch.setattr(ObjectStore, "list", watched)
    worked, message = OneLakeHook().test_connection()
    assert worked, message
    assert "refuses a second create-only put" in message
    # Once whole, once from an offset.
    assert (len(listed), len(set(listed))) == (2, 1)
    assert not list(tmp_path.glob("Files/airflow-connection-test/*"))


def test_a_store_that_lets_a_second_create_through_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    connect(monkeypatch, OneLakeHook, lakehouse=str(tmp_path))
    monkeypatch.setattr(ObjectStore, "create", lambda self, path, data: self.put(path, data))
    worked, message = OneLakeHook().test_connection()
    assert not worked
    assert "commits to it would be lost" in message


@pytest.mark.parametrize("problem", ["missing", "file", "malformed"])
def test_a_lakehouse_that_is_not_there_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, problem: str) -> None:
    (tmp_path / "file").write_text("")
    lakehouse = "wasbs://x@y/z" if problem == "malformed" else str(tmp_path / problem)
    connect(monkeypatch, OneLakeHook, lakehouse=lakehouse)
    worked, message = OneLakeHook().test_connection()
    assert not worked
    assert message
    assert not (tmp_path / "missing").exists()


def test_the_scratch_object_does_not_stay(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def get(self: Any, path: str) -> bytes:
        raise ObjectExistsError("x")

    connect(monkeypatch, OneLakeHook, lakehouse=str(tmp_path))
    monkeypatch.setattr(ObjectStore, "get", get)
    assert not OneLakeHook().test_connection()[0]
    assert not list(tmp_path.glob("Files/airflow-connection-test/*"))


def test_a_connection_without_a_lakehouse_is_named_with_its_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_API", json.dumps({"conn_type": "http", "host": "api"}))
    with pytest.raises(AddressError, match="the connection api of the type 'http' has no lakehouse"):
        OneLakeHook("api").table("Tables/trips")
    for ask in (OneLakeHook("api").get_conn, FabricHook("api").get_conn):
        with pytest.raises(InvalidWriteError, match="The connection api of the type 'http' has no lakehouse"):
            ask()
