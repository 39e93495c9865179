"""The write operator's parameters, its templates, its identity, and how it is stopped."""

from __future__ import annotations

import re
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException
from airflow.sdk import DAG, TaskGroup
from deltalake import DeltaTable

from airflow_provider_onelake.checks import rows_like_last
from airflow_provider_onelake.exceptions import InvalidWriteError
from airflow_provider_onelake.hooks.context import task_run_of
from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.modes import Append, Merge, ReplaceWhere
from airflow_provider_onelake.operators._parameters import check_rendered
from airflow_provider_onelake.operators._source_files import seen_files
from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.options import NewTable
from airflow_provider_onelake.sources import FileSource, SqlSource
from airflow_provider_onelake.steps.write_terms import fingerprint, partition_columns
from airflow_provider_onelake.task_groups.write import OneLakeWriteTaskGroup
from tests.support.contexts import connect, context_of
from tests.support.engines import FakeEngine, use_engine
from tests.support.tables import LOAD, ids
from tests.support.versions import needs_airflow

SOURCE = FileSource("/data/x.json", format="json")


def write(**arguments: Any) -> OneLakeWriteOperator:
    return OneLakeWriteOperator(**{"task_id": "write", "table": "Tables/trips", "source": SOURCE, **arguments})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param({"mode": "sideways"}, "mode='sideways' is unknown; it is one of append", id="mode"),
        pytest.param({"publish": "maybe"}, "publish='maybe'", id="publish"),
        pytest.param({"on_unexpected_rows": "drop"}, "on_unexpected_rows='drop'", id="rows-outside"),
        pytest.param({"on_rerun": "again"}, "on_rerun='again'", id="on-rerun"),
        pytest.param({"schema_evolution": "merge"}, "schema_evolution='merge'", id="schema-evolution"),
        pytest.param({"mode": "replace_where"}, "needs its replace_where", id="replace-where-without"),
        pytest.param({"mode": {"mode": "append", "keys": ["id"]}}, "mode='append' takes no keys", id="other-mode"),
        pytest.param({"table": None}, "`table` is missing", id="no-table"),
        pytest.param({"source": "SELECT 1"}, "neither a FileSource nor a SqlSource", id="source"),
        pytest.param({"steps": ["SELECT 1"]}, "steps are named SQL", id="steps"),
        pytest.param({"steps": {"source": "SELECT 1"}}, "name of the source's view", id="step-named-as-the-source"),
        pytest.param({"steps": {"a-b": "SELECT 1"}}, "no name of a view", id="step-name"),
        pytest.param({"partition_by": ["month", "month"]}, "different columns", id="partition-twice"),
        pytest.param({"partition_by": 5}, "partition_by=5: the names of different columns", id="partition-of-no-text"),
        pytest.param({"partition_by": [5]}, "different columns", id="partitions-of-no-text"),
        pytest.param({"spark_timeout": "5m"}, "spark_timeout='5m' must be seconds or a timedelta", id="time-out-text"),
        pytest.param({"spark_timeout": -5}, "spark_timeout=-5 must be", id="time-out"),
        pytest.param({"spark_timeout": timedelta(0)}, "spark_timeout=.* must be", id="no-time"),
        pytest.param({"table": 5}, "table=5 must be an address", id="table"),
        pytest.param({"writer": 5}, "writer=5 must be a text: spell it writer='5'", id="key"),
        pytest.param({"files": "/data/a.json"}, "files='/data/a.json' must be a list of texts", id="files"),
        pytest.param({"files": [1]}, r"files=\[1\] must be a list of texts", id="files-of-no-text"),
        pytest.param({"commit_message": "x" * 1001}, "1001 characters, and at most 1,000", id="long-message"),
        pytest.param({"checks": ["id > 0"]}, "checks=.* are named conditions in Spark SQL", id="checks-without-names"),
        pytest.param({"checks": {" ": "id > 0"}}, "' ' is no name of a check", id="check-without-a-name"),
        pytest.param({"checks": {"x" * 101: "id > 0"}}, "at most 100 characters", id="check-of-a-long-name"),
        pytest.param({"checks": {"{{ ds }}": "id > 0"}}, "without templates", id="check-of-a-templated-name"),
        pytest.param({"checks": {"some": " "}}, "'some' is ' ', which is no condition", id="blank-check"),
        pytest.param({"checks": {"usual": rows_like_last(0)}}, "is no check of the number of rows", id="no-load"),
        pytest.param({"checks": {"some": True}}, "'some' is True, which is no condition", id="check-of-no-text"),
        pytest.param(
            {"on_failed_check": "ignore"}, "'ignore' is unknown; it is one of refuse, warn", id="failed-check"
        ),
        pytest.param(
            {"on_failed_check": "quarantine"}, "gone.* Take where='fare >= 0'.* a second writer", id="is-gone"
        ),
        pytest.param(
            {"schema_evolution": "add_and_widen"},
            r"^write: schema_evolution='add_and_widen' is gone.* Take OneLakeAlterOperator\(column_types=",
            id="widening",
        ),
        pytest.param({"commit_message": 7}, "commit_message=7 must be a text", id="message-of-no-text"),
        pytest.param({"partition_by": {"a": " "}}, "partition_by: 'a' is ' '; it is the name", id="blank-sql"),
    ],
)
def test_a_wrong_value_is_refused_when_the_dag_is_parsed(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidWriteError, match=message):
        write(**arguments)


@pytest.mark.parametrize(
    ("gone", "instead"),
    [
        ({"keys": ["id"], "when": []}, "keys is now mode=Merge(keys=…); when is now mode=Merge(when=…)"),
        ({"replace_where": "month = 1"}, "replace_where is now mode=ReplaceWhere(…)"),
        ({"v_order": True}, "v_order is now tuning=Tuning(v_order=…)"),
        ({"table_properties": {}}, "table_properties is now new_table=NewTable(properties=…)"),
    ],
)
def test_a_parameter_that_is_gone_is_refused_with_what_to_write(gone: dict[str, Any], instead: str) -> None:
    for make in (write, partial(OneLakeWriteOperator.partial, task_id="write")):
        with pytest.raises(InvalidWriteError, match=re.escape(instead)):
            make(**gone)
    with DAG("taxi", schedule=None), pytest.raises(InvalidWriteError, match=re.escape(instead)):
        OneLakeWriteTaskGroup(group_id="load", table="/t", **gone)


@pytest.mark.parametrize("wrong", ["no", "False", "{{ params.x }}", "", 0, 1])
def test_what_is_no_boolean_says_neither_yes_nor_no(wrong: Any) -> None:
    """Any text counts as yes in Python."""
    said = f"deferrable={wrong!r} must be True, False or None"
    with pytest.raises(InvalidWriteError, match=re.escape(said)):
        write(deferrable=wrong)
    with DAG("taxi", schedule=None), pytest.raises(InvalidWriteError, match=re.escape(said)):
        OneLakeWriteTaskGroup(group_id="load", table="/t", deferrable=wrong)


# Blank files are not all files, nor are blank steps none.
@pytest.mark.parametrize(("name", "value"), [("files", "/data/a.json"), ("writer", 5), ("files", ""), ("steps", "")])
def test_what_a_template_renders_to_is_checked_as_what_is_given(name: str, value: Any) -> None:
    task = write(**{name: "{{ params.x }}"})
    setattr(task, name, value)
    with pytest.raises(InvalidWriteError, match=name):
        task.terms()


@pytest.mark.parametrize("name", ["on_conflict", "on_set_aside", "on_rerun", "publish", "mode", "schema_evolution"])
def test_a_choice_whose_template_renders_to_nothing_is_the_default(name: str) -> None:
    task = write(**{name: "{{ params.x }}"})
    setattr(task, name, " \n")
    assert task.terms() == write().terms()


def test_what_a_table_is_created_with_is_checked_as_rendered(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    engine = use_engine(monkeypatch, FakeEngine({None: {"2019-01": [1]}}))
    connect(monkeypatch, OneLakeHook, lakehouse=str(tmp_path))
    wrong: list[tuple[str, Any, str]] = [
        ("properties", {"delta.checkpointInterval": "ten"}, "the value is a whole number above 0"),
        ("properties", {"delta.enableRowTracking": "true"}, "make the table with Spark"),
        ("generated_columns", ["month"], "generated columns are SQL by name"),
    ]
    for name, value, message in wrong:
        task = write(new_table=NewTable(**{name: "{{ params.of_table }}"}))
        # The DAG renders to native objects here.
        with DAG("native", schedule=None, render_template_as_native_obj=True) as dag:
            task.dag = dag
        task.render_template_fields({"params": {"of_table": value}})  # type: ignore[typeddict-item]
        with pytest.raises(AirflowFailException, match=message):
            task.execute(context_of(task))
    assert (engine.analyzed, list(tmp_path.rglob("_delta_log/*.json"))) == ([], [])


@pytest.mark.parametrize(
    "arguments",
    [
        {"mode": "{{ params.mode }}"},
        {"new_table": NewTable(generated_columns="{{ params.columns }}", properties="{{ params.properties }}")},
        {"new_table": NewTable(generated_columns={"a": "{{ x }}"}, properties={"delta.checkpointInterval": "{{ y }}"})},
        {"partition_by": "{{ params.partition_by }}"},
        {"mode": ReplaceWhere("month = '{{ ds }}'")},
        {"mode": Merge(keys="{{ params.keys }}", when=["{{ params.when }}"])},
        {"mode": {"mode": "replace_where", "replace_where": "month = '{{ ds }}'"}},
        {"steps": {"a": "SELECT '{{ ds }}'"}},
    ],
)
def test_templates_wait_for_the_run(arguments: dict[str, Any]) -> None:
    write(**arguments)


@pytest.mark.parametrize(
    ("group", "mapped", "message"),
    [
        ({}, {"checks": {"keys": "unique('id')"}}, r'The check "unique\(.id.\)" is gone'),
        ({"publish": "together"}, {"mode": Merge(keys=["id"])}, "takes neither expected_partitions nor publish="),
        ({}, {"on_failed_check": "quarantine"}, "on_failed_check='quarantine' is gone"),
        ({}, {"checks": {"some": " "}}, "'some' is ' ', which is no condition"),
        ({}, {"mode": "sideways"}, "mode='sideways' is unknown"),
        ({}, {"on_rerun": "again"}, "on_rerun='again' is unknown"),
        ({}, {"mode": {"mode": "merge"}}, "either `keys`"),
    ],
    ids=str,
)
def test_a_mapped_writer_is_refused_at_its_start(group: dict[str, Any], mapped: dict[str, Any], message: str) -> None:
    with DAG("taxi", schedule=None), OneLakeWriteTaskGroup(group_id="load", table="Tables/trips", **group):
        task = OneLakeWriteOperator.partial(task_id="write", source=SOURCE, writer="w").expand_kwargs([mapped])
    with pytest.raises(InvalidWriteError, match=f"^load.write: .*{message}"):
        task.unmap(mapped)


@pytest.mark.parametrize("rendered", [None, "", " "])
def test_a_choice_or_a_text_that_renders_to_nothing_counts_as_not_given(rendered: str | None) -> None:
    """An XComArg, or a template that renders native objects, may come to None."""
    names = (
        *("where", "writer", "mode", "reads", "expected_partitions", "on_unexpected_rows", "publish", "on_rerun"),
        *("schema_evolution", "on_failed_check", "commit_message"),
    )
    task = write(**dict.fromkeys(names, "{{ params.x }}"))
    for name in names:
        setattr(task, name, rendered)
    promise = task.terms().promise
    assert (promise.mode, promise.publish, task.terms().query.where, promise.on_rerun) == (Append(), "each", None, None)


def test_a_template_that_was_not_rendered_is_refused() -> None:
    with pytest.raises(InvalidWriteError, match="does not render values inside expand_kwargs"):
        check_rendered("where", "vendor_id = {{ n }}")
    with pytest.raises(InvalidWriteError, match="still holds a template"):
        check_rendered("source", FileSource("/data/{{ ds }}.json"))


def test_a_source_is_rendered_into_a_copy() -> None:
    source = FileSource(["/data/{{ month }}.json"], format="json", options={"a": "{{ month }}"})
    with DAG("taxi", schedule=None):
        task = write(source=source, steps={"last": "SELECT '{{ month }}'"})
    task.render_template_fields({"month": "2019-01"})  # type: ignore[typeddict-unknown-key]
    assert isinstance(task.source, FileSource)
    assert task.source.paths == ["/data/2019-01.json"]
    assert task.source.options == {"a": "2019-01"}
    assert task.steps == {"last": "SELECT '2019-01'"}
    assert source.paths == ["/data/{{ month }}.json"]


def test_a_source_that_came_from_another_task_is_not_rendered() -> None:
    with DAG("taxi", schedule=None):
        task = write()
    source = SqlSource("SELECT '{{ ds }}'")
    assert task.render_template(source, {}, seen_oids={id(source)}) is source


def test_sources_are_shown_in_the_web_ui() -> None:
    from airflow.serialization.helpers import serialize_template_field

    shown = {"format": "json", "kind": "files", "options": {}, "path": ["/data/x.json"], "schema": None}
    assert serialize_template_field(SOURCE, "source") == {**shown, "view": "source"}


def test_the_fingerprint_follows_the_source_the_steps_and_the_files(tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    file.write_text("{}")
    source = FileSource(str(file), format="json")
    no_lakehouse: Any = SimpleNamespace(lakehouse=None)

    def digest(**work: Any) -> str:
        return fingerprint(source, seen_files(source, no_lakehouse), **work)

    first = digest(steps=[("a", "SELECT 1")], where=None)
    assert first == digest(steps=[("a", "SELECT 1")], where=None)
    assert first != digest(steps=[("a", "SELECT 2")], where=None)
    assert first != digest(steps=[("a", "SELECT 1")], where="x = 1")
    file.write_text("{ }")
    assert first != digest(steps=[("a", "SELECT 1")], where=None)
    task = write(steps={"a": "SELECT 1", "b": "SELECT 2"})
    other = write(steps={"b": "SELECT 2", "a": "SELECT 1"})
    run, who = task_run_of(context_of(task)), LOAD.writer("w")
    assert task.terms().spec(who, run, 1, []).fingerprint != other.terms().spec(who, run, 1, []).fingerprint


@pytest.mark.parametrize(
    ("given", "columns"),
    [(None, None), ("month", ["month"]), ("a, b", ["a", "b"]), ("", []), (["a"], ["a"]), ({"m": "year(d)"}, ["m"])],
)
def test_partition_columns_are_given_in_several_forms(given: Any, columns: list[str] | None) -> None:
    assert partition_columns(given) == columns


@needs_airflow("3.3", "a store for what a task keeps")
def test_a_writer_says_who_it_is_before_anything_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    connect(monkeypatch, OneLakeHook)
    task = write(table="no lakehouse", writer="w")
    context = context_of(task, map_index=1)
    with pytest.raises(AirflowFailException, match="no lakehouse"):
        task.execute(context)
    assert context["ti"].pushed["writer"]["writer"] == context["writer"]
    assert context["ti"].pushed["writer"]["task"] == "write[1]"


def test_the_default_key_is_the_task_s_id_inside_of_its_group(engine: FakeEngine) -> None:
    with DAG("taxi", schedule=None):
        alone = write()
        with OneLakeWriteTaskGroup(group_id="load", table="Tables/trips"), TaskGroup("north"):
            grouped = write()
    assert [task.execute(context_of(task))["writer"] for task in (alone, grouped)] == ["write", "north.write"]


def test_a_mapped_task_is_called_after_its_key_or_its_authors_label(engine: FakeEngine) -> None:
    engine.rows = {"a": {"2019-01": [1]}}

    def key(**given: Any) -> str:
        task = write(where="a", on_rerun="append", **given)
        return str(task.execute(context_of(task, map_index=0))["writer"])

    assert key(writer="north") == "north"
    assert key(map_index_template="of {{ task.where }}") == "of a"
    for label in ("{{ writer }}", " ", None):
        with pytest.raises(AirflowFailException, match="write is mapped and has no `writer`"):
            key(map_index_template=label)


def test_a_clear_is_not_skipped_after_its_mode_has_changed(engine: FakeEngine, tmp_path: Path) -> None:
    task = write(partition_by=["month"])
    assert task.execute(context_of(task))["status"] == "published"
    overwrite = write(partition_by=["month"], mode="overwrite_partitions", on_rerun="skip")
    with pytest.raises(AirflowFailException, match="from another source, code or mode, so it cannot be skipped"):
        overwrite.execute(context_of(overwrite, clears=1, max_tries=1, try_number=2))
    assert ids(tmp_path / "Tables" / "trips") == [1, 2]


def test_the_fingerprint_outlives_a_release_of_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    first = fingerprint(SOURCE, [])
    monkeypatch.setattr("airflow_provider_onelake.__version__", "99.0")
    assert fingerprint(SOURCE, []) == first
    monkeypatch.setattr("airflow_provider_onelake.steps.write_terms.FINGERPRINT_FORMAT", 99)
    assert fingerprint(SOURCE, []) != first


def test_a_message_stands_in_every_commit_of_the_writer(engine: FakeEngine, tmp_path: Path) -> None:
    task = write(partition_by=["month"], commit_message="fix 7 ", new_table=NewTable(schema="id BIGINT, month STRING"))
    task.execute(context_of(task))
    wrote, created = DeltaTable(tmp_path / "Tables" / "trips").history()
    assert wrote["userMetadata"].endswith(": write 2 rows. Message: fix 7")
    assert created["operation"] == "CREATE TABLE"
    assert created["userMetadata"].endswith(": write. Message: fix 7")
    cleared = write(
        partition_by=["month"], commit_message="fix 8", new_table=NewTable(schema="id BIGINT, month STRING")
    )
    assert cleared.execute(context_of(cleared, clears=1, try_number=2, max_tries=1))["status"] == "skipped"


def test_a_stopped_task_stops_spark_and_publishes_nothing(engine: FakeEngine, tmp_path: Path) -> None:
    task = write(partition_by=["month"])
    engine.before = lambda job: task.on_kill()
    with pytest.raises(AirflowException, match="was stopped") as caught:
        task.execute(context_of(task))
    assert not isinstance(caught.value, AirflowFailException)
    assert engine.stopped == 1
    assert not (tmp_path / "Tables" / "trips" / "_delta_log").exists()


def test_stopping_before_spark_began_is_no_error() -> None:
    write().on_kill()
