"""Example DAGs: a deadline, a vacuum that a person approves, old months, a person, a look at rows, …"""

from __future__ import annotations

import gzip
import json
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from airflow_provider_onelake.maintenance import vacuum
from airflow_provider_onelake.maintenance.pinned_versions import pinned_versions
from airflow_provider_onelake.spark.base import Engine
from local_onelake.faults import Fault
from tests.support.ages import grow_old
from tests.support.airflow_dags import load_dag, run_again, run_dag, states, store_dag, xcom
from tests.support.contexts import JANUARY
from tests.support.onelake import BY_GUIDS, BY_NAMES, LAKEHOUSE_GUID, MODEL, OneLake
from tests.support.rights import Rights
from tests.support.spark import Server
from tests.support.tables import commit_of, foreign_append, foreign_commit, ids, landed_at, make_table

pytestmark = pytest.mark.promise

DAGS = Path(__file__).parents[2] / "dags"


def test_a_load_with_a_deadline(spark_connection: Server) -> None:
    from airflow.models.deadline_alert import DeadlineAlert
    from airflow.sdk._shared.module_loading import import_string
    from airflow.utils.session import create_session
    from sqlalchemy import select

    dag = load_dag(DAGS / "guarded_load.py", "guarded_load")
    store_dag(dag)
    with create_session() as session:
        # What the scheduler goes by.
        (alert,) = [a for a in session.scalars(select(DeadlineAlert)) if a.name == "trips are late"]
        interval, callback = alert.interval, alert.callback_def
    assert interval["__data__"] == timedelta(hours=2).total_seconds()
    assert callback["__data__"]["path"] == "airflow.providers.smtp.notifications.smtp.SmtpNotifier"
    # What the triggerer makes of it.
    (given,) = dag.deadline
    assert "is late" in import_string(given.callback.path)(**given.callback.kwargs).subject

    # dag.test() of Airflow 3.3 takes a deadline's definition for the id of a stored one, when the run ends.
    dag.deadline = []
    run = run_dag(dag)
    assert set(states(run).values()) == {"success"}
    # The session on the server, which Spark shows for a while after it has ended.
    page = xcom(run, "load.scan", "_link_SparkUiLink")
    assert page.startswith(f"{spark_connection.ui_url}/connect/session/?id=")
    assert page.rpartition("=")[2] in httpx.get(page).raise_for_status().text


@pytest.mark.costs("Spark checks two loads")
def test_rows_that_fail_a_check_are_not_published(
    lakehouse: Path, spark_connection: Server, caplog: pytest.LogCaptureFixture
) -> None:
    from deltalake import DeltaTable

    dag = load_dag(DAGS / "checked_load.py", "checked_load")
    run = run_dag(dag)
    # The scan plans the table, and checks the rows of both writers.
    assert xcom(run, "load.scan")["status"] == "shared"
    assert states(run) == {
        "load.scan": "success",
        "load.write[0]": "success",
        "load.write[1]": "failed",
        "load.reconcile": "failed",
        "load.committed": "upstream_failed",
    }
    first, second = (xcom(run, "load.write", "return_value", number) for number in (0, 1))
    assert (first["status"], first["rows_published"], second["status"]) == ("published", 3754, "refused")
    failed = {check["name"]: check["failed"] for check in second["checks"] if not check["passed"]}
    assert failed == {"no negative fares": 7}
    table = DeltaTable(str(lakehouse / "Tables" / "checked_load"))
    assert table.to_pyarrow_table().num_rows == 3754
    assert "vendor-1 3754 rows (3 checks passed)" in table.history(1)[0]["userMetadata"]
    refused = DeltaTable(f"{table.table_uri}/{second['buffer']}").to_pyarrow_table()
    assert sum(fare < 0 for fare in refused.column("fare_amount").to_pylist()) == 7
    assert "no negative fares  each row            7  failed" in caplog.messages
    reported = {o["writer"]: o["status"] for o in xcom(run, "load.reconcile")["writers"]}
    assert reported == {"vendor-1": "already_published", "vendor-2": "refused"}

    # In the next run, the odd trips are published, and everybody is told.
    run = run_dag(load_dag(DAGS / "checked_load.py", "checked_load"), run_conf={"on_failed_check": "warn"})
    assert set(states(run).values()) == {"success"}
    assert xcom(run, "load.scan")["status"] == "shared"
    second = xcom(run, "load.write", "return_value", 1)
    (odd,) = (check for check in second["checks"] if not check["passed"])
    assert (second["status"], odd["name"], odd["failed"], odd["done"]) == (
        "published",
        "no negative fares",
        7,
        "warned",
    )
    table.update_incremental()
    trips = table.to_pyarrow_table()
    assert (trips.num_rows, sum(fare < 0 for fare in trips.column("fare_amount").to_pylist())) == (2 * 3754 + 6150, 7)


class Deletes(Engine):
    """An engine that deletes what a vacuum's inventory says, in place of Spark."""

    def __init__(self) -> None:
        self.jobs: list[Any] = []

    def vacuum(self, job: Any) -> None:
        import pyarrow.parquet as pq

        self.jobs.append(job)
        table = Path(job.table_uri.removeprefix("file://"))
        for row in pq.read_table(job.inventory_uri.removeprefix("file://")).to_pylist():
            (table / row["path"]).unlink()

    def stop(self) -> None:
        """Nothing is at work."""


def answer(monkeypatch: pytest.MonkeyPatch, choice: str) -> list[str]:
    """Answer as a person does by the web UI, as soon as a task waits for one; returns what the person was shown."""
    from airflow.models.hitl import HITLDetail
    from airflow.models.taskinstance import TaskInstance
    from airflow.models.trigger import handle_event_submit
    from airflow.sdk import timezone
    from airflow.triggers.base import TriggerEvent
    from airflow.utils.session import create_session
    from sqlalchemy import select

    shown: list[str] = []
    sleep = time.sleep

    def instead(seconds: float) -> None:
        # dag.test() sleeps when all there is to do is to wait for a person.
        with create_session(scoped=False) as session:
            detail = session.scalars(select(HITLDetail).where(HITLDetail.responded_at.is_(None))).first()
            if detail is None:
                sleep(seconds)
                return
            shown.append(detail.body)
            detail.responded_at = timezone.utcnow()
            detail.chosen_options, detail.params_input = [choice], {}
            waiting = session.get(TaskInstance, detail.ti_id)
            assert waiting.state == "awaiting_input"
            event = TriggerEvent(detail.as_resume_event_payload())
            handle_event_submit(event, task_instance=waiting, session=session)

    monkeypatch.setattr(time, "sleep", instead)
    return shown


def test_a_load_waits_for_a_look_at_its_rows_and_for_a_person(
    lakehouse: Path, spark_connection: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    from deltalake import DeltaTable

    dag = load_dag(DAGS / "audited_load.py", "audited_load")
    table = lakehouse / "Tables" / "audited_load"
    shown = answer(monkeypatch, "Reject")
    run = run_dag(dag)
    ended = states(run)
    assert (ended.pop("load.reconcile"), ended.pop("load.committed")) == ("skipped", "skipped")
    assert set(ended.values()) == {"success"}
    assert "**vendor-1**: 3754 trips of " in shown[0]
    assert "**vendor-2**: 6150 trips of " in shown[0]
    assert not (table / "_delta_log").exists()

    answer(monkeypatch, "Approve")
    run = run_dag(dag)
    assert set(states(run).values()) == {"success"}
    assert DeltaTable(str(table)).to_pyarrow_table().num_rows == 3754 + 6150
    looked = {one["writer"]: one["buffer"] for one in xcom(run, "load.staged")}
    assert {one["writer"]: one["buffer"] for one in xcom(run, "load.reconcile")["writers"]} == looked


@pytest.mark.parametrize(
    ("choice", "state", "left"), [("Approve", "success", False), ("Reject", "skipped", True)], ids=["yes", "no"]
)
def test_a_vacuum_waits_for_a_person_who_sees_what_would_go(
    lakehouse: Path, monkeypatch: pytest.MonkeyPatch, choice: str, state: str, left: bool
) -> None:
    spark = Deletes()
    monkeypatch.setattr("airflow_provider_onelake.operators._spark_task.engine_for", lambda *_: spark)
    log = make_table(lakehouse / "Tables" / "trips")
    commit = commit_of(log, foreign_append(log, {"2019-01": [1]}))
    (add,) = commit.adds
    foreign_commit(log, [{"remove": {"path": add["path"], "deletionTimestamp": 1, "dataChange": True}}])
    grow_old(log)
    shown = answer(monkeypatch, choice)

    run = run_dag(load_dag(DAGS / "approved_vacuum.py", "approved_vacuum"))
    assert states(run) == {"what_would_go": "success", "approve": "success", "vacuum": state}
    (body,) = shown
    planned = xcom(run, "what_would_go")
    assert f"**1 files of {planned['bytes']} bytes** are to go from {log.table}" in body
    assert add["path"] in body
    assert Path(log.table, add["path"]).exists() is left
    assert len(spark.jobs) == (not left)


def test_old_months_are_deleted(lakehouse: Path) -> None:
    log = make_table(lakehouse / "Tables" / "trips")
    for number, month in enumerate(("2018-11", "2018-12", "2019-01", "2020-12")):
        foreign_append(log, {month: [number]})
    dag = load_dag(DAGS / "keep_two_years.py", "keep_two_years")
    run = run_dag(dag, logical_date=JANUARY.replace(year=2021))
    assert states(run) == {"delete_old_months": "success"}
    assert xcom(run, "delete_old_months")["rows_deleted"] == 2
    assert ids(Path(log.table)) == [2, 3]


def test_rows_are_looked_at_without_spark(lakehouse: Path) -> None:
    import pyarrow as pa
    from deltalake import write_deltalake

    trips = str(lakehouse / "Tables" / "trips")
    for month, fares in {"2019-01": [7.5, 9.0], "2019-02": [-3.0, 4.0]}.items():
        rows = pa.table({"id": [1, 2], "fare": fares, "month": [month, month]})
        write_deltalake(trips, rows, partition_by=["month"], mode="append")
    run = run_dag(load_dag(DAGS / "check_trips.py", "check_trips"), run_conf={"month": "2019-01"})
    assert states(run) == {"no_negative_fares": "success"}
    report = xcom(run, "no_negative_fares")
    # Its statistics say that the file has no such row.
    assert (report["files_skipped_by_partition"], report["files_skipped_by_statistics"], report["rows"]) == (1, 1, 0)
    run = run_dag(load_dag(DAGS / "check_trips.py", "check_trips"), run_conf={"month": "2019-02"})
    assert states(run) == {"no_negative_fares": "failed"}


def test_a_person_is_forgotten(lakehouse: Path, spark_connection: Server) -> None:
    import pyarrow as pa
    from deltalake import DeltaTable, write_deltalake

    visits = str(lakehouse / "Tables" / "visits")
    months = ["2019-01", "2019-01", "2019-02", "2019-02"]
    rows = pa.table({"person": pa.array([1, 2, 1, 2], pa.int64()), "name": ["a", "b", "a", "b"], "month": months})
    write_deltalake(visits, rows, partition_by=["month"])
    run = run_dag(load_dag(DAGS / "forget_person.py", "forget_person"), run_conf={"person": 1})
    assert states(run) == {"delete": "success", "mask": "success"}
    assert (xcom(run, "delete")["rows_deleted"], xcom(run, "mask")["rows_updated"]) == (1, 1)
    left = DeltaTable(visits).to_pyarrow_table(columns=["month", "name", "person"]).to_pylist()
    assert sorted((row["month"], row["name"], row["person"]) for row in left) == [
        ("2019-01", "b", 2),
        ("2019-02", "***", None),
        ("2019-02", "b", 2),
    ]


def test_customers_are_merged(lakehouse: Path, spark_connection: Server) -> None:
    import pyarrow as pa
    from deltalake import DeltaTable, write_deltalake

    customers = str(lakehouse / "Tables" / "customers")
    write_deltalake(customers, pa.table({"id": pa.array([1, 2, 3], pa.int64()), "name": ["a", "b", "c"]}))
    changes = [
        {"id": 1, "name": "old", "op": "update", "at": "1"},
        {"id": 1, "name": "A", "op": "update", "at": "2"},
        {"id": 2, "name": "b", "op": "delete", "at": "1"},
        {"id": 4, "name": "d", "op": "update", "at": "1"},
        {"id": 5, "name": "e", "op": "delete", "at": "1"},
    ]
    (lakehouse / "changes.json").write_text("\n".join(map(json.dumps, changes)))
    dag = load_dag(DAGS / "upsert_customers.py", "upsert_customers")
    run = run_dag(dag, run_conf={"changes": str(lakehouse / "changes.json")})
    assert states(run) == {"merge": "success"}
    result = xcom(run, "merge")
    assert [result[f"rows_{what}"] for what in ("inserted", "updated", "deleted")] == [1, 1, 1]
    left = DeltaTable(customers).to_pyarrow_table().to_pylist()
    assert sorted((row["id"], row["name"]) for row in left) == [(1, "A"), (3, "c"), (4, "d")]


def test_no_key_is_there_twice(lakehouse: Path, spark_connection: Server) -> None:
    from deltalake import DeltaTable

    def load(*members: tuple[int, str]) -> dict[str, str | None]:
        lines = [json.dumps({"id": key, "name": f"n{key}", "shop": shop}) for key, shop in members]
        (lakehouse / "members.json").write_text("\n".join(lines))
        dag = load_dag(DAGS / "no_key_twice.py", "no_key_twice")
        return states(run_dag(dag, run_conf={"members": str(lakehouse / "members.json")}))

    def keys(table: str) -> list[int]:
        found = DeltaTable(str(lakehouse / "Tables" / table)).to_pyarrow_table(columns=["id"])
        return sorted(row["id"] for row in found.to_pylist())

    assert set(load((1, "north"), (2, "south")).values()) == {"success"}
    # One key is in the table, and one comes from both shops.
    ended = load((2, "north"), (3, "north"), (3, "south"))
    assert (ended["insert.reconcile"], ended["append.each_key_once"]) == ("success", "failed")
    assert (keys("members"), keys("new_members")) == ([1, 2, 3], [1, 2])


def test_trips_that_are_there_are_not_added_again(lakehouse: Path, spark_connection: Server) -> None:
    log = make_table(lakehouse / "Tables" / "trips")
    foreign_append(log, {"2019-01": [1, 2], "2019-02": [3]})
    trips = [{"id": number, "month": month} for number, month in ((2, "2019-01"), (3, "2019-01"), (4, "2019-02"))]
    (lakehouse / "late.json").write_text("\n".join(map(json.dumps, trips)))
    dag = load_dag(DAGS / "add_unseen_trips.py", "add_unseen_trips")
    for version in (2, 3):
        run = run_dag(dag, run_conf={"trips": str(lakehouse / "late.json"), "month": "2019-01"})
        assert states(run) == {"add": "success"}
        assert xcom(run, "add")["version"] == version
        assert ids(Path(log.table)) == [1, 2, 3, 3]


@pytest.mark.costs("It merges four times by Spark, with windows")
def test_a_history_is_the_same_however_often_its_files_are_loaded(lakehouse: Path, spark_connection: Server) -> None:
    from deltalake import DeltaTable

    def load(number: int, *changes: tuple[int, str, str, str]) -> Any:
        lines = [{"id": row, "name": name, "op": op, "at": f"{day}T00:00:00Z"} for row, name, op, day in changes]
        (lakehouse / f"{number}.json").write_text("\n".join(map(json.dumps, lines)))
        dag = load_dag(DAGS / "customer_history.py", "customer_history")
        run = run_dag(dag, run_conf={"changes": str(lakehouse / f"{number}.json")})
        assert states(run) == {"merge": "success"}
        return dag, run

    def history() -> list[tuple[int, str, str, str | None]]:
        rows = DeltaTable(str(lakehouse / "Tables" / "customer_history")).to_pyarrow_table().to_pylist()
        days = ("valid_from", "valid_to")
        return sorted((row["id"], row["name"], *(row[at] and str(row[at].date()) for at in days)) for row in rows)

    first = load(1, (1, "a", "update", "2021-01-01"), (2, "b", "update", "2021-01-01"))
    load(2, (1, "A", "update", "2021-03-01"), (2, "", "delete", "2021-03-01"), (3, "c", "update", "2021-03-01"))
    expected = [
        (1, "a", "2021-01-01", "2021-03-01"),
        (1, "A", "2021-03-01", None),
        (2, "b", "2021-01-01", "2021-03-01"),
        (3, "c", "2021-03-01", None),
    ]
    assert history() == sorted(expected)
    assert run_again(*first, "merge") == "success"
    assert history() == sorted(expected)
    # A change that comes late is put between; what was deleted stays deleted.
    load(3, (1, "x", "update", "2021-02-01"), (2, "y", "update", "2021-02-01"))
    assert history() == [
        (1, "A", "2021-03-01", None),
        (1, "a", "2021-01-01", "2021-02-01"),
        (1, "x", "2021-02-01", "2021-03-01"),
        (2, "b", "2021-01-01", "2021-02-01"),
        (2, "y", "2021-02-01", "2021-03-01"),
        (3, "c", "2021-03-01", None),
    ]


@pytest.mark.costs("It follows a table by three MERGEs of Spark")
def test_the_changes_of_a_table_are_merged_into_another_once(lakehouse: Path, spark_connection: Server) -> None:
    import pyarrow as pa
    from deltalake import DeltaTable, write_deltalake

    customers = str(lakehouse / "Tables" / "customers")

    def write(rows: dict[int, str], **terms: Any) -> None:
        columns = {"id": pa.array(rows, pa.int64()), "name": list(rows.values())}
        write_deltalake(customers, pa.table(columns), mode="append", **terms)

    def follow(hour: int) -> Any:
        dag = load_dag(DAGS / "follow_customers.py", "follow_customers")
        run = run_dag(dag, logical_date=JANUARY.replace(year=2021, hour=hour))
        assert states(run) == {"keep": "success", "merge": "success", "release": "success"}
        return dag, run

    def names() -> list[tuple[int, str]]:
        rows = DeltaTable(str(lakehouse / "Tables" / "customer_names")).to_pyarrow_table().to_pylist()
        return sorted((row["id"], row["name"]) for row in rows)

    write({1: "a", 2: "b"}, configuration={"delta.enableChangeDataFeed": "true"})
    first = follow(0)
    assert xcom(first[1], "merge")["rows"] == 2
    DeltaTable(customers).update(updates={"name": "'A'"}, predicate="id = 1")
    DeltaTable(customers).update(updates={"name": "'AA'"}, predicate="id = 1")
    DeltaTable(customers).delete("id = 2")
    write({3: "c"})
    merged = xcom(follow(1)[1], "merge")
    assert [merged[f"rows_{what}"] for what in ("inserted", "updated", "deleted")] == [1, 1, 1]
    assert names() == [(1, "AA"), (3, "c")]
    # Nothing came since, and a clear of the first run brings nothing back.
    assert run_again(*first, "merge") == "success"
    assert xcom(first[1], "merge")["status"] == "nothing_to_do"
    assert names() == [(1, "AA"), (3, "c")]
    told = [commit.get("userMetadata", "") for commit in DeltaTable(str(lakehouse / "Tables/customer_names")).history()]
    assert [text.rpartition(". ")[2] for text in told][:2] == [f"Message: customers up to version {n}" for n in (4, 0)]


def test_a_person_is_forgotten_while_today_is_loaded(lakehouse: Path, spark_connection: Server) -> None:
    import pyarrow as pa
    from deltalake import DeltaTable, write_deltalake

    visits = str(lakehouse / "Tables" / "daily_visits")
    days = ["2019-02-01", "2019-02-01", "2019-02-27"]
    rows = {"id": pa.array([1, 2, 3], pa.int64()), "person": pa.array([1, 2, 1], pa.int64()), "day": days}
    write_deltalake(visits, pa.table(rows), partition_by=["day"])
    (lakehouse / "today.json").write_text(json.dumps({"id": 4, "person": 1, "day": "2019-02-28"}))
    conf = {"today": "2019-02-28", "visits": str(lakehouse / "today.json"), "person": 1}
    run = run_dag(load_dag(DAGS / "forget_while_loading.py", "forget_while_loading"), run_conf=conf)
    assert states(run) == {"load_today": "success", "forget": "success", "compact_old_days": "success"}
    assert sorted(DeltaTable(visits).to_pyarrow_table().column("id").to_pylist()) == [2, 4]


def test_two_reports_of_one_version(lakehouse: Path) -> None:
    log = make_table(lakehouse / "Tables" / "trips")
    foreign_append(log, {"2019-01": [1, 2], "2019-02": [3]})
    run = run_dag(load_dag(DAGS / "two_reports.py", "two_reports"))
    assert set(states(run).values()) == {"success"}
    assert xcom(run, "keep")["version"] == xcom(run, "release")["version"] == 1
    assert [xcom(run, "count", map_index=at) for at in range(2)] == [2, 1]
    assert pinned_versions(log) == []


def test_a_restore_point_of_every_night_outlives_a_vacuum(lakehouse: Path) -> None:
    log = make_table(lakehouse / "Tables" / "trips")
    nights = load_dag(DAGS / "restore_points.py", "restore_points")
    for number in (1, 2):
        foreign_append(log, {"x": [number]})
        assert states(run_dag(nights, logical_date=JANUARY + timedelta(days=number))) == {"keep": "success"}
    assert [pinned.version for pinned in pinned_versions(log)] == [1, 2]

    lost = [add["path"] for add in log.live_files(lambda _: True, 2)]
    foreign_commit(log, [{"remove": {"path": path, "deletionTimestamp": 1, "dataChange": True}} for path in lost])
    grow_old(log)
    todo = vacuum.plan(log)
    assert (todo.candidates, [kept.version for kept in todo.pinned]) == ((), [1, 2])
    restore = load_dag(DAGS / "restore_table.py", "restore_table")
    assert states(run_dag(restore, run_conf={"version": 2})) == {"restore": "success"}
    assert ids(lakehouse / "Tables" / "trips") == [1, 2]


def test_a_restore_from_the_trigger_form(lakehouse: Path) -> None:
    log = make_table(lakehouse / "Tables" / "trips")
    for number in range(1, 4):
        foreign_append(log, {"x": [number]})
    for number in range(4):
        landed_at(log, number, JANUARY + timedelta(days=number))

    def restore(**form: Any) -> Any:
        # Load the DAG for every run: dag.test() renders the templates of the very tasks that it is given.
        run = run_dag(load_dag(DAGS / "restore_table.py", "restore_table"), run_conf=form)
        assert states(run) == {"restore": "success"}
        return xcom(run, "restore")

    assert restore(version=2)["restored_to"] == 2
    assert ids(lakehouse / "Tables" / "trips") == [1, 2]
    assert restore(timestamp=(JANUARY + timedelta(days=3)).isoformat())["restored_to"] == 3
    assert ids(lakehouse / "Tables" / "trips") == [1, 2, 3]


def test_manifests_after_a_load(lakehouse: Path) -> None:
    foreign_append(make_table(lakehouse / "Tables" / "trips"), {"01": [1], "02": [2]})
    run = run_dag(load_dag(DAGS / "athena_manifests.py", "trips_for_athena"))
    assert states(run) == {"manifests": "success"}
    directory = Path(xcom(run, "manifests")["directory"].removeprefix("file:"))
    lines = [line for path in directory.rglob("manifest") for line in path.read_text().splitlines()]
    assert len(lines) == 2
    assert all(Path(line.removeprefix("file:")).is_file() for line in lines)


@pytest.mark.usefixtures("airflow_home")
def test_a_shortcut_from_the_trigger_form(monkeypatch: pytest.MonkeyPatch) -> None:
    with OneLake() as server:
        server.served.tree.make_directory("taxi/raw.Lakehouse/Files/trips")
        monkeypatch.setenv("AIRFLOW_CONN_ONELAKE_DEFAULT", server.connection())
        conf = {"shortcut": "Tables/trips", "target": f"{BY_NAMES}/Files/trips"}
        run = run_dag(load_dag(DAGS / "share_table.py", "share_table"), run_conf=conf)
        assert states(run) == {"share": "success", "check": "success"}
        found = xcom(run, "share")
        assert found == {"shortcut": f"{BY_GUIDS}/Tables/trips", "target": f"{BY_GUIDS}/Files/trips"}
        assert xcom(run, "check")["links"] == [found["shortcut"]]


@pytest.mark.usefixtures("airflow_home")
def test_each_shortcut_has_a_check_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    with OneLake() as server:
        monkeypatch.setenv("AIRFLOW_CONN_ONELAKE_DEFAULT", server.connection(BY_NAMES))
        for name in ("a", "b"):
            server.served.tree.make_directory(f"taxi/raw.Lakehouse/Files/{name}")
            Rights(server).link(f"Tables/{name}", f"Files/{name}", LAKEHOUSE_GUID)
        server.served.tree.delete("taxi/raw.Lakehouse/Files/b", recursive=True)
        run = run_dag(load_dag(DAGS / "share_table.py", "check_shortcuts"))
        assert states(run) == {"list": "success", "check[0]": "success", "check[1]": "failed"}


@pytest.mark.costs("Two refreshes are waited for in the triggerer")
@pytest.mark.usefixtures("airflow_home")
def test_a_load_is_shown_to_sql_and_to_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    with OneLake(lists_by_names=True) as server:
        server.add_model()
        version = foreign_append(server.lake().make_table("Tables/trips"), {"2019-01": [1]})
        # So each of the two is waited for in the triggerer.
        server.served.faults.set("refresh_hangs", Fault(count=2))
        monkeypatch.setenv("AIRFLOW_CONN_ONELAKE_DEFAULT", server.connection())
        run = run_dag(
            load_dag(DAGS / "refresh_after_load.py", "refresh_after_load"), run_conf={"semantic_model": MODEL}
        )
        assert states(run) == {"endpoint": "success", "reports": "success"}
        endpoint, reports = xcom(run, "endpoint"), xcom(run, "reports")
        assert (endpoint["version"], endpoint["status"]) == (version, "Success")
        assert (reports["version"], reports["own"], reports["guardrails"]["findings"]) == (version, True, [])


def test_a_month_is_replaced_and_the_others_stay(spark_connection: Server, lakehouse: Path, tmp_path: Path) -> None:
    from deltalake import DeltaTable

    def reload(day: int, month: str, trips: dict[int, datetime]) -> dict[str, Any]:
        """Load a month whose file has trips of these ids; returns what the writer left in XCom."""
        lines = [json.dumps({"id": id_, "pickup_datetime": int(at.timestamp() * 1000)}) for id_, at in trips.items()]
        (tmp_path / f"yellow_tripdata_{month}.json.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
        dag, conf = load_dag(DAGS / "reload_month.py", "reload_month"), {"input": str(tmp_path), "month": month}
        found: dict[str, Any] = xcom(run_dag(dag, logical_date=JANUARY + timedelta(days=day), run_conf=conf), "reload")
        return found

    days = {number: datetime(2019, number // 10, number % 10 + 4, tzinfo=UTC) for number in (11, 12, 21, 14, 25)}
    reload(0, "2019-01", {1: days[11], 2: days[12]})
    reload(1, "2019-02", {3: days[21]})
    again = reload(2, "2019-01", {4: days[14], 5: days[25]})

    table = DeltaTable(str(lakehouse / "Tables" / "trips_by_month"))
    rows = {(row["month"], row["id"]) for row in table.to_pyarrow_table().to_pylist()}
    assert rows == {("2019-01", 4), ("2019-02", 3)}
    # Both were staged; the one of another month was set aside.
    assert (again["rows"], again["rows_unexpected"]) == (2, 1)
