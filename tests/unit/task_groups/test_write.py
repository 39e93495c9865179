"""The write group: what its writers take from it, and what it adds behind them."""

from __future__ import annotations

import re
from typing import Any

import pytest
from airflow.sdk import DAG, BaseOperator, TaskGroup

from airflow_provider_onelake.assets.tables import table_asset
from airflow_provider_onelake.exceptions import InvalidWriteError
from airflow_provider_onelake.operators.plan import OneLakePlanOperator
from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.options import NewTable, Tuning
from airflow_provider_onelake.sensors.delta_log import DeltaLogSensor
from airflow_provider_onelake.sources import FileSource
from airflow_provider_onelake.task_groups.write import OneLakeWriteTaskGroup
from tests.support.versions import needs_airflow

SOURCE = FileSource("/x")


def build(inside: Any = None, **group: Any) -> DAG:
    with DAG("taxi", schedule=None) as dag, OneLakeWriteTaskGroup(**{"group_id": "load", "table": "/t", **group}):
        (inside or (lambda: OneLakeWriteOperator(task_id="write", source=SOURCE)))()
    return dag


def test_it_adds_reconcile_and_the_gate() -> None:
    dag = build()
    assert sorted(dag.task_ids) == ["load.committed", "load.reconcile", "load.write"]
    assert dag.get_task("load.reconcile").upstream_task_ids == {"load.write"}
    gate: Any = dag.get_task("load.committed")
    assert gate.upstream_task_ids == {"load.reconcile"}
    assert gate.deferrable
    assert sorted(build(committed=False).task_ids) == ["load.reconcile", "load.write"]


def test_compaction_and_vacuum_follow_where_they_are_asked_for() -> None:
    dag = build(optimize=True, vacuum={"keep_days": 30}, spark_conn_id="cluster", onelake_conn_id="lake")
    optimize: Any = dag.get_task("load.optimize")
    vacuum: Any = dag.get_task("load.vacuum")
    assert optimize.upstream_task_ids == {"load.committed", "load.reconcile"}
    assert (optimize.table, optimize.spark_conn_id, optimize.onelake_conn_id) == ("/t", "cluster", "lake")
    assert optimize.partitions.key == "partitions"
    assert vacuum.upstream_task_ids == {"load.optimize"}
    assert (vacuum.table, vacuum.keep_days, vacuum.only_dry_run) == ("/t", 30, False)


@pytest.mark.parametrize("name", ["optimize", "refresh_sql_endpoint", "vacuum"])
def test_a_task_at_the_end_is_asked_for_by_true_or_a_dict_and_nothing_else(name: str) -> None:
    for asked in (True, {}):
        assert f"load.{name}" in build(**{name: asked}).task_ids
    for off in (False, None):
        assert f"load.{name}" not in build(**{name: off}).task_ids
    for wrong in ("false", "yes", "", 0, 1, ["x"], "{{ params.x }}"):
        with pytest.raises(InvalidWriteError, match=re.escape(f"{name}={wrong!r} must be True, False, None, or")):
            build(**{name: wrong})


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"committed": "no"}, "committed='no' must be True or False"),
        ({"shared_scan": "off"}, "shared_scan"),
        ({"spark_timeout": "5m"}, "spark_timeout='5m'"),
        ({"table": 5}, "table=5 must be an address"),
        *(({"pool": pool}, "a pool's name; Airflow renders no templates in it") for pool in ("", "{{ params.pool }}")),
        ({"pool": 5}, "pool=5 must be a pool's name"),
        *(
            ({"load_name": name}, f"load_name={name!r} must be like a DAG's id: at most 250 letters")
            for name in ("", "a/b", "a b", "../a", "x" * 251, 5)
        ),
        ({"load_name": "{{ params.name }}"}, "Airflow renders no templates in it"),
        ({"mode": "sideways"}, "mode='sideways'"),
        ({"publish": "never"}, "publish='never'"),
        ({"schema_evolution": "merge"}, "schema_evolution='merge'"),
        ({"on_conflict": "coin"}, "on_conflict='coin'"),
        ({"on_conflict": "first_writer_wins_per_partition"}, "is gone.*Take 'first_writer_wins', and one writer"),
        ({"checks": {"keys": "unique('id')"}}, "is gone.*take mode='merge'"),
        (
            {"checks": {"a": "count(*) > 0"}, "publish": "together"},
            r"are gone.*`checks` to each.*look\(load.staged\(\)\)",
        ),
        ({"on_failed_check": "quarantine"}, "'quarantine' is gone.* and for the others a second writer"),
        ({"on_missing_writer": "wait"}, "on_missing_writer='wait'"),
        ({"commit_message": "x" * 1001}, "1001 characters"),
        ({"notifiers": None}, "notifiers=None must be a list"),
        ({"outlets": table_asset("/t")}, "outlets=.* must be a list of assets"),
        ({"outlets": "Tables/t"}, "outlets='Tables/t' must be a list of assets"),
        ({"outlets": ["Tables/t"]}, "'Tables/t' is no asset"),
    ],
    ids=str,
)
def test_what_is_wrong_is_refused_when_the_dag_is_parsed(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidWriteError, match=message):
        build(**wrong)


def mapped() -> Any:
    return OneLakeWriteOperator.partial(task_id="write", source=SOURCE)


OF_THE_GROUP = "in a write group it is the group's"
NO_KEY = r"load\.write is mapped and has no `writer`"


@pytest.mark.parametrize(
    ("inside", "message"),
    [
        (lambda: BaseOperator(task_id="other"), "no OneLakeWriteOperator"),
        (lambda: OneLakeWriteOperator(task_id="write", source=SOURCE, table="/other"), OF_THE_GROUP),
        (lambda: OneLakeWriteOperator(task_id="write", source=SOURCE, publish="together"), OF_THE_GROUP),
        (lambda: OneLakeWriteOperator(task_id="write", source=SOURCE, on_conflict="fail"), OF_THE_GROUP),
        (lambda: OneLakeWriteOperator(task_id="write", source=SOURCE, onelake_conn_id="other"), OF_THE_GROUP),
        (lambda: mapped().expand(where=["a", "b"]), NO_KEY),
        (lambda: mapped().expand_kwargs([{"writer": "a"}, {"where": "b"}]), NO_KEY),
        (lambda: mapped().expand_kwargs([{"writer": 2019}]), "writer=2019 must be a text: spell it writer='2019'"),
        (lambda: mapped().expand(writer=[0, 1]), "writer=0 must be a text: spell it writer='0'"),
    ],
)
def test_what_may_not_be_in_a_group_is_refused_when_the_dag_is_parsed(inside: Any, message: str) -> None:
    with pytest.raises(InvalidWriteError, match=message):
        build(inside)


def test_compaction_may_be_given_parameters_of_its_own_and_follows_reconcile_without_a_gate() -> None:
    dag = build(optimize={"zorder_by": ["id"], "partitions": None}, committed=False)
    optimize: Any = dag.get_task("load.optimize")
    assert (optimize.zorder_by, optimize.partitions) == (["id"], None)
    assert optimize.upstream_task_ids == {"load.reconcile"}


def test_refreshes_come_after_compaction_and_before_the_vacuum() -> None:
    model = {"semantic_model": "Trips", "capacity": "F64"}
    tasks = {"optimize": True, "refresh_sql_endpoint": True, "refresh_semantic_model": model, "vacuum": True}
    dag = build(**tasks, onelake_conn_id="lake")
    endpoint: Any = dag.get_task("load.refresh_sql_endpoint")
    reports: Any = dag.get_task("load.refresh_semantic_model")
    assert endpoint.upstream_task_ids == {"load.optimize"}
    assert reports.upstream_task_ids == {"load.refresh_sql_endpoint"}
    assert dag.get_task("load.vacuum").upstream_task_ids == {"load.refresh_semantic_model"}
    assert (endpoint.table, endpoint.version, endpoint.onelake_conn_id) == ("/t", None, "lake")
    assert (reports.semantic_model, reports.capacity, reports.onelake_conn_id) == ("Trips", "F64", "lake")
    for wrong in (True, {}, "Trips"):
        with pytest.raises(InvalidWriteError, match="refresh_semantic_model="):
            build(refresh_semantic_model=wrong)


def test_notifiers_are_called_when_reconcile_has_ended() -> None:
    def group(context: Any) -> None:
        """One of the group's."""

    def default(context: Any) -> None:
        """One of default_args."""

    ends = ("on_success_callback", "on_failure_callback")
    given = {"default_args": dict.fromkeys(ends, default)}
    dags = [build(notifiers=[group]), build(notifiers=[group], **given), build(**given), build()]
    called = [[getattr(dag.get_task("load.reconcile"), end) for end in ends] for dag in dags]
    assert called == [[[group]] * 2, [[group]] * 2, [[default]] * 2, [[]] * 2]
    assert [getattr(dags[0].get_task("load.write"), end) for end in ends] == [[], []]
    for wrong in (group, ["slack"]):
        with pytest.raises(InvalidWriteError, match="notifiers="):
            build(notifiers=wrong)


def test_a_message_of_the_group_is_that_of_its_writers() -> None:
    task: Any = build(commit_message="fix {{ params.ticket }}").get_task("load.write")
    assert task.commit_message == "fix {{ params.ticket }}"
    assert "commit_message" in task.template_fields


def test_writers_with_messages_of_their_own_share_a_scan() -> None:
    items = [{"writer": key, "where": f"v = '{key}'", "commit_message": f"of {key}"} for key in "ab"]
    dag = build(lambda: OneLakeWriteOperator.partial(task_id="write", source=SOURCE).expand_kwargs(items))
    scan: Any = dag.get_task("load.scan")
    assert [item["writer"] for item in scan.writers[0]["items"]] == ["a", "b"]
    assert all("commit_message" not in item for item in scan.writers[0]["items"])


def test_writers_wait_in_the_triggerer_as_the_group_says() -> None:
    def inside() -> None:
        OneLakeWriteOperator(task_id="a", source=SOURCE)
        OneLakeWriteOperator(task_id="b", source=SOURCE, deferrable=False)

    dag = build(inside, deferrable=True)
    found: list[Any] = [dag.get_task("load.a"), dag.get_task("load.b")]
    assert [task.deferrable for task in found] == [True, False]


def test_writers_that_name_no_pool_have_the_group_s_and_nothing_else_has() -> None:
    def inside() -> None:
        OneLakeWriteOperator(task_id="plain", source=SOURCE)
        OneLakeWriteOperator.partial(task_id="mapped", source=SOURCE).expand_kwargs([{"writer": "a"}])
        OneLakeWriteOperator.partial(task_id="own", source=SOURCE, pool="wide").expand_kwargs([{"writer": "b"}])
        BaseOperator(task_id="other")

    dag = build(inside, pool="trips", optimize=True)
    pools = {task.task_id.removeprefix("load."): task.pool for task in dag.tasks}
    others = dict.fromkeys(("other", "reconcile", "committed", "optimize"), "default_pool")
    assert pools == {"plain": "trips", "mapped": "trips", "own": "wide", **others}


def test_writers_take_what_they_are_not_given_from_the_group() -> None:
    def inside() -> None:
        OneLakeWriteOperator(task_id="a", source=SOURCE)
        own: dict[str, Any] = {"mode": "append", "expected_partitions": "x = 1", "schema_evolution": "none"}
        own |= {"tuning": Tuning(target_file_size=5, preflight=True), "new_table": NewTable(schema="id INT")}
        OneLakeWriteOperator(task_id="b", source=SOURCE, **own)

    tuning = Tuning(target_file_size=9, preflight=False)
    group = {"mode": "overwrite_partitions", "partition_by": ["m"], "tuning": tuning, "on_rerun": "replace"}
    dag = build(inside, **group, new_table=NewTable(schema="id BIGINT"), schema_evolution="add_columns")
    a: Any = dag.get_task("load.a")
    b: Any = dag.get_task("load.b")
    assert (a.table, a.mode, a.partition_by, a.tuning) == ("/t", "overwrite_partitions", ["m"], tuning)
    assert (a.new_table.schema, a.schema_evolution, a.on_rerun) == ("id BIGINT", "add_columns", "replace")
    assert (b.new_table.schema, b.schema_evolution) == ("id INT", "none")
    assert (b.mode, b.expected_partitions, b.tuning) == ("append", "x = 1", Tuning(target_file_size=5))


def test_v_order_is_the_groups_for_writers_their_scan_and_the_compaction() -> None:
    def inside() -> None:
        OneLakeWriteOperator(task_id="a", source=SOURCE, where="id = 1")
        OneLakeWriteOperator(task_id="b", source=SOURCE, where="id = 2")
        OneLakeWriteOperator(task_id="c", source=SOURCE, tuning=Tuning(v_order=False))

    dag = build(inside, tuning=Tuning(v_order=True), optimize=True)
    found = {name: dag.get_task(f"load.{name}").tuning.v_order for name in ("a", "b", "c", "scan")}  # type: ignore[attr-defined]
    assert found == {"a": True, "b": True, "c": False, "scan": True}
    optimize: Any = dag.get_task("load.optimize")
    assert optimize.v_order is True
    other: Any = build(inside, tuning=Tuning(v_order=True), optimize={"v_order": False}).get_task("load.optimize")
    assert other.v_order is False


def test_writers_of_one_scan_have_one_v_order() -> None:
    def inside() -> None:
        for value in (False, True):
            tuning = Tuning(v_order=value)
            OneLakeWriteOperator(task_id=f"w{value}", source=SOURCE, where=f"id = {int(value)}", tuning=tuning)

    assert "load.scan" not in build(inside).task_ids

    def alike() -> None:
        for at in range(2):
            OneLakeWriteOperator(task_id=f"w{at}", source=SOURCE, where=f"id = {at}", tuning=Tuning(v_order=False))

    scan: Any = build(alike, tuning=Tuning(v_order=True)).get_task("load.scan")
    assert scan.tuning.v_order is False


def test_mapped_writers_take_it_when_they_are_unmapped() -> None:
    def inside() -> None:
        OneLakeWriteOperator.partial(task_id="write", source=SOURCE).expand_kwargs([{"writer": "a"}, {"writer": "b"}])

    dag = build(inside, mode="overwrite_partitions")
    found: Any = dag.get_task("load.write")
    task = found.unmap({"writer": "a"})
    assert (task.table, task.mode, task.writer) == ("/t", "overwrite_partitions", "a")
    assert "{{ writer" in found.partial_kwargs["map_index_template"]


def test_other_operators_in_the_group_are_left_alone() -> None:
    def inside() -> None:
        OneLakeWriteOperator(task_id="write", source=SOURCE)
        # It has a `table` and a `mode` of its own.
        DeltaLogSensor(task_id="sensor", table="/other", version=1)
        BaseOperator(task_id="other")

    dag = build(inside, mode="overwrite_partitions")
    sensor: Any = dag.get_task("load.sensor")
    assert (sensor.table, sensor.mode) == ("/other", "poke")
    assert dag.get_task("load.reconcile").upstream_task_ids == {"load.write"}


def test_writers_in_groups_inside_belong_to_it() -> None:
    def inside() -> None:
        with TaskGroup("inner"):
            OneLakeWriteOperator(task_id="write", source=SOURCE)

    dag = build(inside)
    assert dag.get_task("load.reconcile").upstream_task_ids == {"load.inner.write"}


def test_what_follows_the_group_follows_the_gate() -> None:
    with DAG("taxi", schedule=None) as dag:
        with OneLakeWriteTaskGroup(group_id="load", table="/t") as group:
            OneLakeWriteOperator(task_id="write", source=SOURCE)
        group >> BaseOperator(task_id="report")
    assert dag.get_task("report").upstream_task_ids == {"load.committed"}


def test_a_label_that_says_what_each_is_makes_keys_and_so_may_a_list_that_another_task_makes() -> None:
    def inside() -> None:
        label = "{{ task.where }}"
        OneLakeWriteOperator.partial(task_id="a", source=SOURCE, map_index_template=label).expand(where=["a", "b"])
        plan = OneLakePlanOperator(task_id="plan", source=SOURCE)
        OneLakeWriteOperator.partial(task_id="b", source=SOURCE).expand_kwargs(plan.output)
        OneLakeWriteOperator.partial(task_id="c", source=SOURCE).expand_kwargs([])

    assert len(build(inside).tasks) == 6


@needs_airflow("3.2", "DagSerialization")
def test_the_dag_can_be_serialised() -> None:
    from airflow.serialization.serialized_objects import DagSerialization

    def inside() -> None:
        OneLakeWriteOperator.partial(task_id="write", source=FileSource("/{{ ds }}")).expand_kwargs([{"writer": "a"}])

    dag = build(inside)
    again = DagSerialization.deserialize_dag(DagSerialization.serialize_dag(dag))
    assert sorted(again.task_ids) == sorted(dag.task_ids)
    assert DagSerialization.serialize_dag(dag) == DagSerialization.serialize_dag(build(inside))
