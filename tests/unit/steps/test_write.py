"""A writer's steps: what is asked of Spark and when, rows computed from the table itself, columns that come with rows."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException
from airflow.sdk import DAG

from airflow_provider_onelake.buffers.buffer import read_buffer
from airflow_provider_onelake.buffers.markers import read_marker, set_aside
from airflow_provider_onelake.exceptions import BufferSetAsideError, InvalidWriteError, SparkQueryError
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.modes import Merge, Overwrite, ReplaceWhere
from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.options import NewTable, Tuning
from airflow_provider_onelake.sources import SqlSource
from airflow_provider_onelake.spark.base import StageJob
from airflow_provider_onelake.steps.write import MOST_RERUNS
from airflow_provider_onelake.storage.stores import ObjectStore
from tests.support.contexts import before_reconcile, context_of
from tests.support.engines import FakeEngine
from tests.support.tables import SCHEMA, foreign_append, foreign_commit, ids, local_log

GROWN = json.loads(SCHEMA)
GROWN["fields"].append({"name": "note", "type": "string", "nullable": True, "metadata": {}})


def write(**arguments: Any) -> OneLakeWriteOperator:
    given = {"task_id": "write", "table": "Tables/trips", "source": SqlSource("SELECT 1"), **arguments}
    return OneLakeWriteOperator(**given)


def run(**arguments: Any) -> dict[str, Any]:
    task = write(**arguments)
    return task.execute(context_of(task))


def run_of_a_load(**arguments: Any) -> dict[str, Any]:
    """The task of a writer that a reconciliation settles."""
    task = before_reconcile(lambda: write(**arguments))
    return task.execute(context_of(task))


def in_between(log: DeltaLog, engine: FakeEngine, times: int) -> Callable[[StageJob], None]:
    """Lets another writer append while Spark works, as often as asked."""

    def before(job: StageJob) -> None:
        if len(engine.staged) <= times:
            foreign_append(local_log(Path(log.table)), {"2019-01": [100 + len(engine.staged)]})

    return before


def test_v_order_is_asked_of_spark(engine: FakeEngine) -> None:
    run(tuning=Tuning(v_order=True))
    assert [job.v_order for job in engine.staged] == [True]


REPLACED = ", so nothing was replaced"


@pytest.mark.parametrize(
    ("terms", "left", "replaced"),
    [
        ({"mode": "append"}, [1], ""),
        ({"mode": "overwrite"}, [1], REPLACED),
        ({"mode": Overwrite(allow_empty=True)}, [], ""),
        ({"mode": "overwrite_partitions"}, [1], REPLACED),
        ({"mode": ReplaceWhere("month = '2019-01'")}, [1], REPLACED),
        ({"mode": Merge(keys=["id"])}, [1], ""),
        ({"mode": Merge(keys=["id"], when=["NOT MATCHED BY SOURCE THEN DELETE"])}, [1], REPLACED),
    ],
)
def test_a_source_without_rows_says_so_in_the_log_the_label_and_the_result(
    engine: FakeEngine,
    log: DeltaLog,
    caplog: pytest.LogCaptureFixture,
    terms: dict[str, Any],
    left: list[int],
    replaced: str,
) -> None:
    foreign_append(log, {"2019-01": [1]})
    engine.rows = {None: {}}
    task = write(**terms)
    context = context_of(task)
    result = task.execute(context)
    assert result["without_rows"] == f"its source gave no row{replaced}"
    assert str(context["writer_outcome"]).endswith(f": its source gave no row{replaced}")
    told = [record.levelname for record in caplog.records if result["without_rows"] in record.getMessage()]
    assert told == ["INFO" if terms["mode"] == Overwrite(allow_empty=True) else "WARNING"]
    assert ids(Path(log.table)) == left


MODES = [
    pytest.param({"mode": "append"}, [1, 2, 101], id="append"),
    pytest.param({"mode": "overwrite"}, [1, 2], id="overwrite"),
    pytest.param({"mode": "overwrite_partitions"}, [1, 2], id="overwrite_partitions"),
    pytest.param({"mode": ReplaceWhere("month = '2019-01'")}, [1, 2], id="replace_where"),
]


@pytest.mark.parametrize(("mode", "left"), MODES)
def test_without_another_commit(engine: FakeEngine, log: DeltaLog, mode: dict[str, str], left: list[int]) -> None:
    foreign_append(log, {"2019-01": [101]})
    engine.reads_target = True
    result = run(**mode)
    assert (result["status"], result["version"], result["reruns"]) == ("published", 2, 0)
    assert ids(Path(log.table)) == left


@pytest.mark.parametrize(("mode", "left"), MODES)
def test_where_another_changed_rows_meanwhile_spark_runs_again_on_the_newest_version(
    engine: FakeEngine, log: DeltaLog, mode: dict[str, str], left: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    engine.reads_target = True
    engine.before = in_between(log, engine, times=1)
    result = run(**mode)

    assert (result["status"], result["version"], result["reruns"]) == ("published", 2, 1)
    assert (result["read_version"], result["rows"], result["decisions"]) == (1, 2, [])
    first, second = (job.attempt for job in engine.staged)
    assert second == f"{first}-1"
    assert result["buffer"].endswith(second)
    set_aside = read_marker(log.store, result["buffer"].removesuffix("-1"))
    assert set_aside is not None
    assert "version 1 (WRITE) changed rows after the table was read at version 0" in set_aside["reason"]
    assert ids(Path(log.table)) == left
    (said,) = [r.getMessage() for r in caplog.records if "are staged anew" in r.getMessage()]
    assert "version 1 (WRITE) changed rows" in said
    assert "rerun 1 of at most 3" in said


def test_a_commit_that_changes_no_row_is_no_reason(engine: FakeEngine, log: DeltaLog) -> None:
    def annotate(job: StageJob) -> None:
        foreign_commit(local_log(Path(log.table)), [{"commitInfo": {"timestamp": 1, "operation": "VACUUM START"}}])

    engine.reads_target = True
    engine.before = annotate
    assert (run()["reruns"], len(engine.staged)) == (0, 1)


@pytest.mark.parametrize("make", [run, run_of_a_load], ids=["alone", "in-a-load"])
def test_after_the_last_rerun_it_is_red(engine: FakeEngine, log: DeltaLog, make: Callable[[], dict[str, Any]]) -> None:
    engine.reads_target = True
    engine.before = in_between(log, engine, times=99)
    with pytest.raises(AirflowFailException, match=r"OutOfDateError: .* computed their rows from .*version 4"):
        make()
    assert MOST_RERUNS == 3
    assert [job.attempt[36:] for job in engine.staged] == ["", "-1", "-2", "-3"]
    (last,) = (str(path.relative_to(log.table)) for path in Path(log.table).glob("staged/*/*-3"))
    # It is complete and open, for reconcile to refuse by name.
    assert read_marker(log.store, last) is None
    assert read_buffer(log.store, last).reads_target
    assert ids(Path(log.table)) == [101, 102, 103, 104]


def test_an_empty_result_computed_from_the_table_is_remembered_as_such(engine: FakeEngine, log: DeltaLog) -> None:
    engine.reads_target = True
    engine.rows = {None: {}}
    engine.before = in_between(log, engine, times=1)
    result = run()
    assert (result["status"], result["rows"], result["reruns"]) == ("published", 0, 1)
    assert read_buffer(log.store, result["buffer"]).reads_target


def test_published_together_it_is_staged_once(engine: FakeEngine, log: DeltaLog) -> None:
    engine.reads_target = True
    engine.before = in_between(log, engine, times=9)
    result = run_of_a_load(publish="together")
    assert (result["status"], "left_out" in result, len(engine.staged)) == ("staged", False, 1)


def test_a_stopped_task_does_not_start_over(engine: FakeEngine, log: DeltaLog) -> None:
    task = write()
    engine.reads_target = True
    disturb = in_between(log, engine, times=9)

    def before(job: StageJob) -> None:
        disturb(job)
        if len(engine.staged) == 2:
            task.on_kill()

    engine.before = before
    with pytest.raises(AirflowException, match="was stopped"):
        task.execute(context_of(task))
    assert len(engine.staged) == 2


def test_the_next_try_carries_on_after_the_reruns_of_the_one_before(engine: FakeEngine, log: DeltaLog) -> None:
    engine.reads_target = True
    engine.before = in_between(log, engine, times=99)
    with pytest.raises(AirflowFailException, match="OutOfDateError"):
        run_of_a_load()
    engine.before = lambda job: None
    result = run_of_a_load()
    assert (result["status"], result["reused"]) == ("published", False)
    assert ids(Path(log.table)) == [1, 2, 101, 102, 103, 104]


def test_rows_that_are_out_of_date_are_set_aside_by_the_next_try(engine: FakeEngine, log: DeltaLog) -> None:
    """Reconcile takes a writer's first complete buffer, so one that can never be published must not be in its way."""
    engine.reads_target = True
    first = run_of_a_load(publish="together")
    foreign_append(log, {"2019-01": [100]})
    second = run_of_a_load(publish="together")
    assert (second["reused"], second["read_version"]) == (False, 1)
    assert read_marker(log.store, first["buffer"]) is not None
    assert read_marker(log.store, second["buffer"]) is None


@pytest.mark.parametrize("publish", ["each", "together"])
def test_a_writer_whose_buffer_was_closed_is_red(engine: FakeEngine, log: DeltaLog, publish: str) -> None:
    """A newer attempt of other work fenced it off: nobody publishes what it staged."""

    def fence(job: StageJob) -> None:
        assert job.buffer_uri is not None
        set_aside(log.store, job.buffer_uri.split("/Tables/trips/")[1], "its writer was staged again")

    engine.before = fence
    with pytest.raises(BufferSetAsideError, match="its writer was staged again"):
        run_of_a_load(publish=publish)
    assert ids(Path(log.table)) == []
    engine.before = lambda job: None
    assert run_of_a_load()["status"] == "published"


def test_the_log_says_what_was_done_and_its_attempt_in_one_line_at_most(
    engine: FakeEngine, log: DeltaLog, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    result = run(mode="append")
    lines = [record.getMessage() for record in caplog.records]
    assert [line.partition(": ")[2] for line in lines if "2 rows" in line] == [
        "writer write staged 2 rows",
        "writer write: published 2 rows in version 1",
    ]
    assert sum(engine.staged[0].attempt in line for line in lines) <= 1, lines
    assert result["buffer"].endswith(engine.staged[0].attempt)


def test_it_settles_its_conflicts_itself(engine: FakeEngine, log: DeltaLog, caplog: pytest.LogCaptureFixture) -> None:
    foreign_append(log, {"2019-01": [7]})
    engine.before = in_between(log, engine, times=1)
    result = run(mode="overwrite_partitions")
    assert (result["status"], result["version"], ids(Path(log.table))) == ("published", 3, [1, 2])
    assert result["decisions"] == ["version 2 (WRITE) put 1 row into month=2019-01, and is replaced there"]
    assert any(result["decisions"][0] in record.getMessage() for record in caplog.records)


def test_where_the_first_wins(engine: FakeEngine, log: DeltaLog, caplog: pytest.LogCaptureFixture) -> None:
    engine.before = in_between(log, engine, times=1)
    result = run(mode="overwrite", on_conflict="first_writer_wins")
    assert (result["status"], result["version"], result["rows_published"]) == ("set_aside", 2, 0)
    assert ids(Path(log.table)) == [101]
    assert any("all of it is set aside, 2 rows" in record.getMessage() for record in caplog.records)
    # A retry finds it settled.
    assert run(mode="overwrite", on_conflict="first_writer_wins")["status"] in ("skipped", "already_published")


def test_rows_that_were_set_aside_are_red_where_the_author_asks_for_it(engine: FakeEngine, log: DeltaLog) -> None:
    engine.before = in_between(log, engine, times=1)
    terms = {"mode": "overwrite_partitions", "on_conflict": "first_writer_wins", "on_set_aside": "fail"}
    told = r"RowsSetAsideError: Rows of writer 'write' are not in the table: all of it is set aside, .*version 1 .*version 2"
    with pytest.raises(AirflowFailException, match=told):
        run(**terms)
    assert ids(Path(log.table)) == [101]
    # The commit stands, so a try after a worker died between the commit and the error must be red as well.
    with pytest.raises(AirflowFailException, match=told):
        run(**terms)
    assert log.snapshot().version == 2


def test_the_clear_that_a_red_task_advises_writes_the_rows(engine: FakeEngine, log: DeltaLog) -> None:
    engine.before = in_between(log, engine, times=1)
    terms = {"mode": "overwrite_partitions", "on_conflict": "first_writer_wins", "on_set_aside": "fail"}
    with pytest.raises(AirflowFailException, match="Clear the writer to write its rows on the newest version"):
        run(**terms, on_rerun="skip")
    task = write(**terms, on_rerun="skip")
    cleared = task.execute(context_of(task, clears=1, try_number=2, max_tries=1))
    assert (cleared["status"], cleared["version"]) == ("published", 3)
    assert ids(Path(log.table)) == [1, 2]


def test_a_writer_that_replaced_another_is_green(engine: FakeEngine, log: DeltaLog) -> None:
    engine.before = in_between(log, engine, times=1)
    try:
        ended = run(mode="overwrite_partitions", on_set_aside="fail")["status"]
    except AirflowFailException as error:
        ended = str(error)
    assert ended == "published"


def test_a_label_ends_with_what_became_of_the_rows(engine: FakeEngine, log: DeltaLog) -> None:
    def label(make: Callable[[], OneLakeWriteOperator], **again: int) -> str:
        task = make()
        context = context_of(task, **again)
        begun = task.get_template_env().from_string(task.map_index_template).render(context)
        assert begun == "a"
        task.execute(context)
        return str(task.get_template_env().from_string(task.map_index_template).render(context))

    terms = {"writer": "a", "mode": "overwrite_partitions"}
    assert label(lambda: write(**terms)) == "a · published 2 rows in version 1"
    skipped = label(lambda: write(**terms, on_rerun="skip"), clears=1, try_number=2, max_tries=1)
    assert skipped == "a · skipped: already in version 1, with the same source and code"
    staged = {**terms, "publish": "together", "task_id": "other"}
    assert label(lambda: before_reconcile(lambda: write(**staged))) == "a · 2 rows staged"
    engine.before = in_between(log, engine, times=9)
    late = {**terms, "task_id": "late"}
    assert (
        label(lambda: write(**late, on_conflict="first_writer_wins")) == "a · set aside: version 2 (WRITE) came first"
    )


# As a template over several lines renders it.
@pytest.mark.parametrize("together", ["together", "\n together\n"])
def test_it_leaves_nothing_to_a_reconciliation_that_is_not_there(
    engine: FakeEngine, log: DeltaLog, together: str
) -> None:
    with pytest.raises(AirflowFailException, match="there is none behind this writer"):
        run(publish=together)
    with DAG("taxi", schedule=None):
        task = write(publish=together)
    with pytest.raises(InvalidWriteError, match="there is none behind this writer"):
        task.resolve_template_files()
    before_reconcile(lambda: write(publish="together")).resolve_template_files()
    assert engine.staged == engine.analyzed == []


def test_without_evolution_only_a_new_table_is_analysed(engine: FakeEngine, tmp_path: Path) -> None:
    assert run(partition_by=["month"])["status"] == "published"
    assert [(job.evolves, job.schema) for job in engine.analyzed] == [(False, None)]
    engine.analyzed.clear()
    assert run(writer="b", on_rerun="append")["status"] == "published"
    assert engine.analyzed == []
    assert not engine.staged[-1].evolves


def test_new_columns_are_added_before_the_rows_are_staged(engine: FakeEngine, log: DeltaLog) -> None:
    engine.schema = json.dumps(GROWN)
    result = run(schema_evolution="add_columns")
    assert (result["version"], result["read_version"]) == (2, 1)
    assert [job.evolves for job in (*engine.analyzed, *engine.staged)] == [True, True]
    assert read_buffer(log.store, result["buffer"]).metadata["schemaString"].count("note") == 1


def test_a_skipped_or_a_staged_writer_changes_no_table(engine: FakeEngine, log: DeltaLog) -> None:
    run(schema_evolution="add_columns")
    run_of_a_load(schema_evolution="add_columns", writer="b", on_rerun="append", publish="together")
    engine.analyzed.clear()
    engine.schema = json.dumps(GROWN)
    assert run(schema_evolution="add_columns")["status"] == "skipped"
    assert run_of_a_load(schema_evolution="add_columns", writer="b", on_rerun="append", publish="together")["reused"]
    assert engine.analyzed == []
    assert local_log(Path(log.table)).commit(2) is None


def test_a_column_that_is_to_be_generated_is_not_added(engine: FakeEngine, log: DeltaLog) -> None:
    engine.schema = json.dumps(GROWN)
    with pytest.raises(AirflowFailException, match=r"SchemaMismatchError: .*note is to be generated"):
        run(schema_evolution="add_columns", new_table=NewTable(generated_columns={"note": "concat(month, '!')"}))
    assert engine.staged == []


def test_a_rerun_of_rows_from_the_table_itself_evolves_too(engine: FakeEngine, log: DeltaLog) -> None:
    engine.schema = json.dumps(GROWN)
    engine.reads_target = True
    engine.before = in_between(log, engine, times=1)
    result = run(schema_evolution="add_columns")
    assert (result["status"], result["version"], result["reruns"]) == ("published", 3, 1)


def test_a_table_can_be_made_from_given_columns(engine: FakeEngine, tmp_path: Path) -> None:
    run(partition_by=["month"], new_table=NewTable(schema="id BIGINT, month STRING"))
    assert [job.schema for job in engine.analyzed] == ["id BIGINT, month STRING"]
    run(new_table=NewTable(schema="other DATE"), writer="b", on_rerun="append")
    assert len(engine.analyzed) == 1


def test_a_job_that_reads_no_table(engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def analyze(job: StageJob) -> Any:
        raise SparkQueryError(f"Spark refused it. Spark said: no {tmp_path}/Tables/trips")

    monkeypatch.setattr(FakeEngine, "analyze", lambda self, job: analyze(job))
    with pytest.raises(AirflowFailException, match="needs `schema`, the columns to create it with"):
        run()
    assert not (tmp_path / "Tables" / "trips" / "_delta_log").exists()


def test_an_error_for_people_is_said_once(engine: FakeEngine, log: DeltaLog, caplog: pytest.LogCaptureFixture) -> None:
    def refuse(job: StageJob) -> None:
        try:
            raise ValueError("deep inside Spark")
        except ValueError as error:
            raise SparkQueryError("Spark refused it") from error

    engine.before = refuse
    with caplog.at_level(logging.DEBUG), pytest.raises(AirflowFailException) as caught:
        run()
    assert str(caught.value) == "SparkQueryError: Spark refused it More: docs/reference/errors.md#sparkqueryerror"
    assert caught.value.__suppress_context__
    # Whoever looks for more turns debugging on.
    assert any(r.levelno == logging.DEBUG and "deep inside Spark" in (r.exc_text or "") for r in caplog.records)


def test_another_fault_of_the_source_is_not_taken_for_that(engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    def analyze(engine: FakeEngine, job: StageJob) -> Any:
        raise SparkQueryError(f"Spark refused analysing {job.table_uri}. Spark said: no /elsewhere.json")

    monkeypatch.setattr(FakeEngine, "analyze", analyze)
    with pytest.raises(AirflowFailException) as raised:
        run()
    assert "needs `schema`" not in str(raised.value)


def test_a_store_that_is_unsafe_is_found_before_spark_looks_at_the_source(
    engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ObjectStore, "create", lambda self, path, data: self.put(path, data))
    with pytest.raises(AirflowFailException, match="let a second create-only put through"):
        run()
    assert engine.analyzed == engine.staged == []


def test_spark_looks_at_itself_first_unless_it_is_told_not_to(engine: FakeEngine) -> None:
    run()
    assert [job.preflight for job in engine.analyzed + engine.staged] == [True, True]
    run(writer="b", tuning=Tuning(preflight=False), on_rerun="append")
    assert not engine.staged[-1].preflight
