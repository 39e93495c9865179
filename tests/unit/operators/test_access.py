"""A viewer's load fails before Spark, with the step that decided; and the operator that says who may do what."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_provider_onelake.definition.create import create_table
from airflow_provider_onelake.exceptions import AccessDeniedError, InvalidWriteError
from airflow_provider_onelake.fabric.access_report import Step
from airflow_provider_onelake.hooks.fabric import FabricHook
from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.operators.access import OneLakeAccessOperator
from airflow_provider_onelake.operators.alter import OneLakeAlterOperator
from airflow_provider_onelake.operators.statements import OneLakeDeleteOperator, OneLakeTruncateOperator
from airflow_provider_onelake.operators.versions import OneLakeKeepVersionOperator
from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.sources import SqlSource
from airflow_provider_onelake.spark.base import Engine, SparkJob
from tests.support.contexts import context_of
from tests.support.engines import use_engine
from tests.support.onelake import BY_GUIDS, OTHER_TOKEN, TOKEN, WORKSPACE_GUID, OneLake
from tests.support.rights import ANN, Rights, data_role, rows_of
from tests.support.tables import SCHEMA, foreign_append

GOLD_GUID = "b1b2c3d4-e5f6-4789-8abc-def012345678"
GOLD = f"onelake://{WORKSPACE_GUID}/{GOLD_GUID}"


class SparkWasAskedError(Exception):
    """What a load does that nothing has refused before."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[OneLake]:
    """A table Tables/trips, and beside it a shortcut Tables/link to one of another lakehouse; no Spark."""

    class NoSpark(Engine):
        name = "none"

        def run(self, kind: str, job: SparkJob) -> dict[str, Any]:
            raise SparkWasAskedError

    use_engine(monkeypatch, NoSpark())
    with OneLake(lists_by_names=True) as running:
        running.served.names.add_item("taxi", "gold.Lakehouse", GOLD_GUID)
        for lakehouse in (BY_GUIDS, GOLD):
            sign_in(monkeypatch, running, TOKEN, lakehouse=lakehouse)
            create_table(OneLakeHook().table("Tables/trips").log, SCHEMA, ("month",), {})
        sign_in(monkeypatch, running, TOKEN)
        Rights(running).link("Tables/link", "Tables/trips", GOLD_GUID)
        yield running


def sign_in(monkeypatch: pytest.MonkeyPatch, server: OneLake, token: str = OTHER_TOKEN, **extra: str) -> None:
    connection = server.connection(**extra).replace(TOKEN, token)
    monkeypatch.setenv("AIRFLOW_CONN_ONELAKE_DEFAULT", connection)


def load(table: str = "Tables/trips", **terms: Any) -> None:
    task = OneLakeWriteOperator(task_id="write", table=table, source=SqlSource("SELECT 1 AS id"), **terms)
    task.execute(context_of(task))


@pytest.mark.parametrize(
    ("role", "permissions", "data_roles", "message"),
    [
        pytest.param(
            "Viewer",
            [],
            [data_role("readers", "*")],
            r"write .* What decided: write: no, by the workspace role Viewer\. .*"
            r"Ask for the role Contributor in the workspace .*, or the permission Write of the item",
            id="Viewer",
        ),
        pytest.param("Viewer", [], [], r"What decided: read: no, by the data access role\. None that", id="no role"),
        pytest.param(
            "Viewer",
            [],
            [data_role("some", "*", actions=["ReadWrite"], constraints=rows_of("Tables/trips"))],
            r"or one hides rows or columns of the table",
            id="rows are hidden",
        ),
        pytest.param(
            None,
            ["Read"],
            [data_role("readers", "*")],
            r"write: no, by the item permission\. It has no role in the workspace\. The item is shared",
            id="item Read",
        ),
    ],
)
def test_a_load_that_may_not_be_fails_before_spark_and_says_which_step_decided(
    server: OneLake,
    monkeypatch: pytest.MonkeyPatch,
    role: str | None,
    permissions: list[str],
    data_roles: list[dict[str, Any]],
    message: str,
) -> None:
    Rights(server).set(role, permissions, data_roles)
    sign_in(monkeypatch, server)
    before = server.blobs
    server.asked.clear()
    with pytest.raises(AirflowFailException, match=rf"AccessDeniedError: Not allowed to .*{message}"):
        load()
    assert server.blobs == before
    assert len(server.asked) <= 20


@pytest.mark.parametrize(
    ("follow", "message"),
    [
        ("false", r"by the shortcut's target\. .*Tables/trips, and both"),
        ("", rf"Not allowed to write .* in {GOLD}/Tables/trips.* by the workspace role Viewer"),
    ],
)
def test_a_load_through_a_shortcut_whose_target_forbids_it_names_the_target(
    server: OneLake, monkeypatch: pytest.MonkeyPatch, follow: str, message: str
) -> None:
    rights = Rights(server)
    rights.set("Viewer", data_roles=[data_role("own", "/Tables/link", actions=["ReadWrite"])])
    rights.data_roles(data_role("readers", "/Tables/trips"), item=GOLD_GUID)
    sign_in(monkeypatch, server, follow_shortcuts=follow)
    with pytest.raises(AirflowFailException, match=message) as raised:
        load("Tables/link")
    assert f"{GOLD_GUID}/Tables/trips" in str(raised.value)


@pytest.mark.parametrize(
    "task",
    [
        OneLakeTruncateOperator(task_id="truncate", table="Tables/trips"),
        OneLakeDeleteOperator(task_id="delete", table="Tables/trips", where="month = '2019-01'"),
        OneLakeAlterOperator(task_id="alter", table="Tables/trips", table_comment="of the city"),
        OneLakeKeepVersionOperator(task_id="keep", table="Tables/trips"),
    ],
    ids=lambda task: task.task_id,
)
def test_other_tasks_that_may_not_say_so_too(server: OneLake, monkeypatch: pytest.MonkeyPatch, task: Any) -> None:
    foreign_append(OneLakeHook().table("Tables/trips").log, {"2019-01": [1]})
    Rights(server).set("Viewer", [], [data_role("readers", "*")])
    sign_in(monkeypatch, server)
    with pytest.raises(AirflowFailException, match="What decided: write: no, by the workspace role Viewer"):
        task.execute(context_of(task))


def test_a_load_that_may_be_asks_fabric_nothing(server: OneLake, monkeypatch: pytest.MonkeyPatch) -> None:
    Rights(server).set("Contributor")
    sign_in(monkeypatch, server)
    server.asked.clear()
    with pytest.raises(SparkWasAskedError):
        load()
    assert not [each for each in server.asked if each.path.startswith("/v1/") or "_preflight" in each.path]


def test_a_refusal_that_no_probe_meets_says_that_roles_take_minutes(
    server: OneLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    Rights(server).set("Contributor")
    sign_in(monkeypatch, server)
    said = str(FabricHook().explained("Tables/trips", AccessDeniedError("Not allowed.")))
    assert said.startswith("Not allowed. A probe just now was not refused")


def test_a_refused_sign_in_is_no_missing_right(server: OneLake, monkeypatch: pytest.MonkeyPatch) -> None:
    sign_in(monkeypatch, server, "nobodys-token")
    with pytest.raises(AirflowFailException, match=r"Which step decided is not known\. .*it answered 401 to GET"):
        load()


def check(**terms: Any) -> tuple[OneLakeAccessOperator, Any]:
    task = OneLakeAccessOperator(**{"task_id": "access", "table": "Tables/trips", **terms})
    return task, context_of(task)


def test_the_operator_is_red_where_a_right_is_missing_that_is_needed(
    server: OneLake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    Rights(server).set("Viewer", data_roles=[data_role("readers", "*")])
    sign_in(monkeypatch, server)
    task, context = check()
    with pytest.raises(AirflowFailException, match=r"AccessDeniedError: .*write: no, by the workspace role Viewer"):
        task.execute(context)
    assert context["ti"].pushed["access"]["rights"]["commit"]["allowed"] is False
    assert "Ask for the role Contributor" in caplog.text
    task, context = check(need=["read"])
    assert task.execute(context)["rights"]["read"]["step"] == Step.DATA_ACCESS_ROLE


def test_another_principal_is_refused_by_name() -> None:
    with pytest.raises(InvalidWriteError, match=r"no `principal` any more: use the connection of that identity"):
        check(principal=ANN)


def test_the_operator_takes_no_other_rights() -> None:
    for need in ("read", ["fly"]):
        with pytest.raises(InvalidWriteError, match="read, write, commit, delete"):
            check(need=need)
