"""``@task.onelake_write``: what a function is given, who its writer is, what a clear notices, what is refused."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.sdk import DAG, task

from airflow_provider_onelake.buffers.identity import ledger_id
from airflow_provider_onelake.decorators.write import OneLakeWriteDecoratedOperator, onelake_write_task
from airflow_provider_onelake.exceptions import InvalidWriteError
from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.operators._roles import is_writer
from airflow_provider_onelake.operators.plan import OneLakePlanOperator
from airflow_provider_onelake.sources import FileSource
from airflow_provider_onelake.task_groups.write import OneLakeWriteTaskGroup
from tests.support.contexts import connect, context_of
from tests.support.engines import FakeEngine, use_engine
from tests.support.tables import ids, local_log


def trips(spark: Any, vendor: int = 1, partition_key: str | None = None) -> Any:
    """A session that is a list here notes the call."""
    spark.append((vendor, partition_key))
    return spark


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeEngine:
    connect(monkeypatch, OneLakeHook, lakehouse=str(tmp_path), namespace="test")
    spark_is(monkeypatch, "spark_connect")
    return use_engine(monkeypatch, FakeEngine({None: {"2019-01": [1, 2]}}))


def spark_is(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    connection = {"conn_type": kind, "host": "sc://127.0.0.1"}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_CONNECT_DEFAULT", json.dumps(connection))


def written(function: Any = trips, *args: Any, **settings: Any) -> OneLakeWriteDecoratedOperator:
    """The task that a call of a decorated function makes."""
    arguments = settings.pop("arguments", {})
    with DAG("taxi", schedule=None):
        made = onelake_write_task(**{"table": "Tables/trips", "partition_by": ["month"], **settings})(function)
        operator: OneLakeWriteDecoratedOperator = made(*args, **arguments).operator
    return operator


def run(operator: Any, **context: Any) -> dict[str, Any]:
    whole = {**context_of(operator), **context}
    operator.render_template_fields(whole)
    result: dict[str, Any] = operator.execute(whole)
    return result


def made_by(engine: FakeEngine) -> list[Any]:
    """What the function that the engine was given does."""
    rows = engine.staged[-1].rows
    assert rows is not None
    return rows([])


# -- in a DAG ----------------------------------------------------------------------------------------------------------


def test_in_a_group_it_is_a_writer_and_takes_what_it_is_not_given() -> None:
    with (
        DAG("taxi", schedule=None) as dag,
        OneLakeWriteTaskGroup(group_id="load", table="/t", mode="overwrite", publish="together"),
    ):

        @task.onelake_write(writer="vendor-{{ op_kwargs.vendor }}")
        def one(spark: Any, vendor: int) -> Any:
            return spark

        @task.onelake_write(writer="many-{{ op_kwargs.vendor }}")
        def many(spark: Any, vendor: int) -> Any:
            return spark

        one(1)
        many.expand(vendor=[1, 2])

    single: Any = dag.get_task("load.one")
    mapped: Any = dag.get_task("load.many")
    unmapped = mapped.unmap({"op_kwargs": {"vendor": 1}})
    for writer in (single, unmapped):
        assert (writer.table, writer.mode, writer.publish) == ("/t", "overwrite", "together")
    assert is_writer(single)
    assert is_writer(mapped)
    assert dag.get_task("load.reconcile").upstream_task_ids == {"load.one", "load.many"}
    assert "{{ writer" in mapped.partial_kwargs["map_index_template"]


@pytest.mark.parametrize(
    "function", [lambda: None, lambda session: None, lambda spark, /: None, lambda spark, *more: None], ids=range(4)
)
def test_a_function_that_cannot_be_given_its_session_is_refused_when_the_dag_is_parsed(function: Any) -> None:
    with pytest.raises(InvalidWriteError, match="gets its Spark session as `spark`"):
        written(function)


def test_a_missing_or_unknown_argument_is_refused_when_the_dag_is_parsed() -> None:
    def needy(spark: Any, vendor: int) -> Any:
        return spark

    with pytest.raises(TypeError, match="missing a required argument: 'vendor'"):
        written(needy)
    with pytest.raises(TypeError, match="vendors"):
        written(needy, arguments={"vendor": 1, "vendors": 1})


# -- what the function is given ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("args", "kwargs"), [((2,), {}), ((), {"vendor": 2})], ids=["by-position", "by-name"])
def test_it_gets_the_session_the_arguments_and_what_airflow_gives(
    engine: FakeEngine, args: tuple[int, ...], kwargs: dict[str, int], tmp_path: Path
) -> None:
    result = run(written(trips, *args, arguments=kwargs, writer="v-{{ op_kwargs.vendor }}"), partition_key="2019-01")

    assert (result["writer"], result["status"]) == ("v-2", "published")
    assert made_by(engine) == [(2, "2019-01")]
    assert ids(tmp_path / "Tables" / "trips") == [1, 2]


def test_its_arguments_are_templates(engine: FakeEngine) -> None:
    run(written(arguments={"vendor": "{{ run_id }}"}, writer="of {{ op_kwargs.vendor }}"), run_id="manual__7")
    assert made_by(engine) == [("manual__7", None)]
    assert engine.staged[-1].label.startswith("writer of manual__7 of task ")


def doubled(function: Any) -> Any:
    """An author's own decorator, such as one that takes duplicates out of what a function returns."""

    @functools.wraps(function)
    def twice(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs) * 2

    return twice


def test_the_authors_own_decorators_are_kept_and_count(engine: FakeEngine) -> None:
    run(written(doubled(trips), writer="w"))
    assert made_by(engine) == [(1, None), (1, None)]
    plain = written(trips, writer="w")
    with pytest.raises(AirflowFailException, match="RerunRefusedError"):
        run(plain, ti=cleared(plain))


def test_another_kind_of_connection_is_refused_before_anything_is_done(
    engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    spark_is(monkeypatch, "spark")
    with pytest.raises(AirflowFailException, match=r"type 'spark'.*OneLakeWriteOperator\(source=…, steps="):
        run(written())
    assert engine.analyzed == []
    assert not (tmp_path / "Tables" / "trips" / "_delta_log").exists()


def test_it_takes_its_share_of_a_plan(engine: FakeEngine) -> None:
    def read(spark: Any, writer: str, files: list[str]) -> Any:
        return writer, files

    with DAG("taxi", schedule=None) as dag:
        plan = OneLakePlanOperator(task_id="plan", table="Tables/trips", source=FileSource("/in"))
        made = onelake_write_task(table="Tables/trips", partition_by=["month"], writer="{{ op_kwargs.writer }}")(read)
        made.expand_kwargs(plan.output)
    mapped: Any = dag.get_task("read")
    assert mapped.upstream_task_ids == {"plan"}
    assert run(mapped.unmap({"op_kwargs": {"writer": "2019-01", "files": ["/in/a"]}}))["writer"] == "2019-01"
    assert made_by(engine) == ("2019-01", ["/in/a"])


def test_what_a_plan_of_new_files_says_is_for_the_writer_and_not_for_the_function(
    engine: FakeEngine, tmp_path: Path
) -> None:
    def read(spark: Any, writer: str, files: list[str]) -> Any:
        return writer, files

    planned = {"ledger": "l", "entry": 3, "files": 1, "digest": "d"}
    with DAG("taxi", schedule=None) as dag:
        made = onelake_write_task(table="Tables/trips", partition_by=["month"], writer="{{ op_kwargs.writer }}")(read)
        made.expand_kwargs([{"writer": "a", "files": ["/in/a"], "planned": planned}])
    mapped: Any = dag.get_task("read")
    run(mapped.unmap({"op_kwargs": {"writer": "a", "files": ["/in/a"], "planned": planned}}))
    assert made_by(engine) == ("a", ["/in/a"])
    assert local_log(tmp_path / "Tables" / "trips").snapshot().txns[ledger_id("l")] == 3


def test_an_argument_that_differs_in_every_process_is_refused(engine: FakeEngine) -> None:
    with pytest.raises(AirflowFailException, match="argument 'vendor' cannot be compared with that of another try"):
        run(written(arguments={"vendor": object()}))
    assert engine.staged == []


# -- who the writer is, and what a clear notices -----------------------------------------------------------------------


def version(number: int) -> Any:
    """Two versions of one function, as if its file had been edited."""
    if number == 1:

        def cleaned(spark: Any, vendor: int = 1, partition_key: Any = None, **context: Any) -> Any:
            return spark
    else:

        def cleaned(spark: Any, vendor: int = 1, partition_key: Any = None, **context: Any) -> Any:
            return spark.distinct()

    return cleaned


def test_the_default_key_is_the_task_s_id_not_its_code_nor_its_arguments(engine: FakeEngine) -> None:
    operator = written(version(1))
    assert run(operator)["writer"] == operator.task_id == "cleaned"
    for changed in (written(version(2)), written(version(1), arguments={"vendor": 2})):
        with pytest.raises(AirflowFailException, match=r"RerunRefusedError: Writer 'cleaned' is in .* another source"):
            run(changed, ti=cleared(changed))


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"function": version(2)}, id="code"),
        pytest.param({"context": {"partition_key": "2019-02"}}, id="what-airflow-gives"),
        pytest.param({"where": "true"}, id="filter"),
    ],
)
def test_a_changed_function_is_noticed(engine: FakeEngine, changed: dict[str, Any]) -> None:
    engine.rows = {None: {"2019-01": [1]}, "true": {"2019-01": [1]}}
    context = {"partition_key": "2019-01"}
    run(written(version(1), writer="w"), **context)
    again = written(changed.get("function", version(1)), writer="w", where=changed.get("where"))
    with pytest.raises(AirflowFailException, match="RerunRefusedError"):
        run(again, **{**context, **changed.get("context", {})}, ti=cleared(again))
    assert len(engine.staged) == 1


def test_a_clear_of_the_same_function_is_skipped(engine: FakeEngine) -> None:
    run(written(version(1), writer="w"), prev_start_date_success="one")
    again = written(version(1), writer="w")
    # It asks for the whole context, in which other runs and tries leave their marks.
    assert run(again, ti=cleared(again), prev_start_date_success="two")["status"] == "skipped"
    assert len(engine.staged) == 1


def cleared(operator: Any) -> Any:
    return context_of(operator, max_tries=1)["ti"]
