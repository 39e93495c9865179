"""A run without a partition key: refused where a template asks for one, before anything is asked of anybody."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.sdk import DAG

from airflow_provider_onelake.decorators.write import OneLakeWriteDecoratedOperator
from airflow_provider_onelake.operators.plan import OneLakePlanOperator
from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.sources import FileSource
from tests.support.contexts import context_of
from tests.support.versions import cron_partitions, needs_airflow

pytestmark = needs_airflow("3.2", "partition keys")


def rendered(key: str | None, kind: type = OneLakeWriteOperator, *, native: bool = False, **fields: Any) -> Any:
    """An operator and its context, after Airflow rendered it."""
    months = cron_partitions("@monthly", timezone="UTC", key_format="%Y-%m")
    with DAG("taxi", schedule=months, render_template_as_native_obj=native):
        task = kind(**{"task_id": "write", "table": "Tables/trips", "source": FileSource("/x"), **fields})
    context = context_of(task, None)
    context |= {"partition_key": key, "partition_date": None, "params": {"month": "2019-02"}}
    context["dag_run"].partition_key = key
    task.render_template_fields(context)
    return task, context


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"source": FileSource("/trips_{{ partition_key }}.json")}, id="source"),
        pytest.param({"source": FileSource(["/a", "/trips_{{ partition_key[:4] }}.json"])}, id="slice"),
        pytest.param({"steps": {"last": "SELECT '{{ partition_key.lower() }}' AS m FROM source"}}, id="method"),
        pytest.param({"expected_partitions": "month = '{{ partition_key | upper }}'"}, id="filter"),
        pytest.param({"expected_partitions": "month = '{{ dag_run.partition_key }}'"}, id="dag-run"),
        pytest.param({"expected_partitions": "month = '{{ partition_date.year }}'"}, id="date"),
        pytest.param({"expected_partitions": "{{ partition_key }}", "native": True}, id="native-object"),
        pytest.param({"expected_partitions": "{% if partition_key == '1' %}m = 'x'{% endif %}"}, id="compared"),
    ],
)
def test_a_run_without_a_partition_key_is_refused_where_a_template_asks_for_one(fields: dict[str, Any]) -> None:
    task, context = rendered(None, **fields)
    with pytest.raises(AirflowFailException, match=r"partition key in .*, and this run has none") as e:
        task.execute(context)
    assert "Nothing was staged: trigger the DAG with a partition key of the form %Y-%m" in str(e.value)
    assert not context["ti"].pushed


def test_so_are_a_plan_and_a_function() -> None:
    kinds: dict[Any, dict[str, Any]] = {
        OneLakePlanOperator: {"source": FileSource("/{{ partition_key }}/*.json")},
        OneLakeWriteDecoratedOperator: {
            "python_callable": _rows,
            "op_args": [],
            "op_kwargs": {"path": "/{{ partition_key }}"},
        },
    }
    for kind, given in kinds.items():
        with DAG("taxi", schedule=None):
            task: Any = kind(task_id="task", table="Tables/trips", **given)
        context = context_of(task, None)
        context["partition_key"] = None
        task.render_template_fields(context)
        with pytest.raises(AirflowFailException, match="trigger the DAG with a partition key, in the form of the web"):
            task.execute(context)


def _rows(path: str) -> Any:
    raise AssertionError


@pytest.mark.parametrize(
    ("template", "without", "with_key"),
    [
        ("{% if partition_key %}m = '{{ partition_key }}'{% endif %}", "", "m = '2019-01'"),
        ("m = '{{ partition_key or params.month }}'", "m = '2019-02'", "m = '2019-01'"),
        ("m = '{{ partition_key | default(params.month, true) }}'", "m = '2019-02'", "m = '2019-01'"),
        ("m = '{{ params.month if partition_key is none else partition_key }}'", "m = '2019-02'", "m = '2019-01'"),
        ("m = '{{ params.month }}'", "m = '2019-02'", "m = '2019-02'"),
    ],
)
def test_a_template_that_can_do_without_renders(template: str, without: str, with_key: str) -> None:
    for key, expected in ((None, without), ("2019-01", with_key)):
        task, _ = rendered(key, expected_partitions=template)
        assert task.expected_partitions == expected
        task.check_partition_key()
