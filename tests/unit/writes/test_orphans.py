"""Writers of a run that no task names any more, as the table knows them."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from deltalake import DeltaTable

from airflow_provider_onelake.choices import OnRerun, Policy
from airflow_provider_onelake.exceptions import OrphanWriterError
from airflow_provider_onelake.log.actions import version_path
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.modes import OverwritePartitions
from airflow_provider_onelake.writes import orphans as orphans_of
from airflow_provider_onelake.writes.publish import Committer
from tests.support.tables import LOAD, foreign_append, newest, stage, writer_spec

NOVEMBER = attrs.evolve(LOAD, run="2019-11-01T00:00:00+00:00")
OTHER_GROUP = attrs.evolve(LOAD, group="more")
RENAMED = attrs.evolve(LOAD, dag="taxi_v2")


def publish(log: DeltaLog, writer: str, rows: list[int] | None = None, **terms: object) -> None:
    spec = writer_spec(writer, **terms)  # type: ignore[arg-type]
    buffer = stage(log, spec, {"2019-01": [1, 2] if rows is None else rows} if rows != [] else {})
    Committer(log).publish([buffer], Policy.LAST_WRITER_WINS)


def found(log: DeltaLog, *keys: str, groups: tuple[str, ...] = ("load", "more")) -> list[str]:
    snapshot = log.snapshot()
    return [str(orphan) for orphan in orphans_of.orphans(log, LOAD, keys, groups, snapshot)]


def test_they_are_those_of_the_run_that_nobody_names(log: DeltaLog) -> None:
    for writer in ("a", "b/c d"):
        publish(log, writer)
    publish(log, "elsewhere", load=NOVEMBER)
    publish(log, "more", load=OTHER_GROUP)
    publish(log, "empty", [])
    told = "'b/c d' (group load, task load.write[b/c d], version 2, 2 rows)"
    assert found(log, "a") == [told]
    assert found(log, "a", "b/c d") == []
    gone = "'more' (group more, task load.write[more], version 4, 2 rows)"
    assert found(log, "a", groups=("load",)) == [told, gone]


def test_one_whose_rows_were_compacted_is_one_until_they_are_deleted(log: DeltaLog) -> None:
    publish(log, "a")
    foreign_append(log, {"2019-01": [9]})
    DeltaTable(log.table).optimize.compact()
    assert len(found(log)) == 1
    publish(log, "b")
    DeltaTable(log.table).delete()
    assert found(log) == []


@pytest.mark.parametrize("second", [{}, {"2019-01": [3]}], ids=["no rows", "rows that a RESTORE took back"])
def test_one_of_which_an_older_generation_has_rows_is_one(log: DeltaLog, second: dict[str | None, list[int]]) -> None:
    terms: Any = {"on_rerun": OnRerun.APPEND}
    Committer(log).publish([stage(log, writer_spec("old", **terms), {"2019-01": [1, 2]})])
    Committer(log).publish([stage(log, writer_spec("old", generation=2, **terms), second)])
    if second:
        DeltaTable(log.table).restore(1)
    found = orphans_of.orphans(log, LOAD, {"new"}, {"load"}, newest(log))
    assert [str(orphan) for orphan in found] == ["'old' (group load, task load.write[old], version 1, 2 rows)"]
    DeltaTable(log.table).delete()
    assert orphans_of.orphans(log, LOAD, {"new"}, {"load"}, newest(log)) == []


def test_one_whose_rows_an_update_moved_into_another_partition_is_one(log: DeltaLog) -> None:
    publish(log, "a")
    DeltaTable(log.table).update({"month": "'2019-02'"}, predicate="id > 0")
    assert len(found(log)) == 1


@pytest.mark.parametrize(
    ("terms", "complete", "refused"),
    [
        pytest.param({}, True, True, id="append"),
        pytest.param({}, False, True, id="the same work, and not all keys are known"),
        pytest.param({"fingerprint": "other"}, True, True, id="other work"),
        pytest.param({"fingerprint": "other"}, False, False, id="other work, and not all keys are known"),
        pytest.param({"on_rerun": OnRerun.APPEND}, True, False, id="rows may be there twice"),
        pytest.param({"mode": OverwritePartitions()}, True, False, id="overwrite"),
    ],
)
def test_only_an_append_that_may_double_rows_is_refused(
    log: DeltaLog, terms: dict[str, object], complete: bool, refused: bool, caplog: pytest.LogCaptureFixture
) -> None:
    publish(log, "a")
    spec = writer_spec("b", **terms)  # type: ignore[arg-type]
    if refused:
        with pytest.raises(OrphanWriterError, match=r"published 'a' \(group load, .* and nothing of writer 'b'"):
            orphans_of.check_no_orphans(log, spec, {"b"}, {"load"}, complete=complete)
    else:
        orphans_of.check_no_orphans(log, spec, {"b"}, {"load"}, complete=complete)
        assert "this run also published 'a'" in caplog.text


def test_a_writer_that_has_published_itself_is_no_new_name(log: DeltaLog) -> None:
    publish(log, "a")
    assert orphans_of.is_new_beside_others(LOAD.writer("b"), newest(log))
    assert not orphans_of.is_new_beside_others(NOVEMBER.writer("b"), newest(log))
    assert not orphans_of.is_new_beside_others(LOAD.writer("a"), newest(log))
    publish(log, "b")
    orphans_of.check_no_orphans(log, writer_spec("b"), {"b"}, {"load"}, complete=True)


@pytest.mark.parametrize(
    ("terms", "error"), [({}, True), ({"on_rerun": OnRerun.APPEND}, False), ({"mode": OverwritePartitions()}, False)]
)
def test_reconcile_names_who_appended_beside_an_orphan(log: DeltaLog, terms: dict[str, object], error: bool) -> None:
    publish(log, "before", fingerprint="of other rows")
    publish(log, "a")
    publish(log, "b", **terms)
    assert ("Writer 'b' appended to" in reconciled(log, "before", "b")) is error


@pytest.mark.parametrize("how", ["the old name publishes last", "the new one is run again", "its marker is lost"])
def test_a_new_name_that_doubled_rows_is_named_all_the_same(log: DeltaLog, how: str) -> None:
    old = stage(log, writer_spec("old"), {"2019-01": [1]})
    late = how == "the old name publishes last"
    for publishes in (lambda: Committer(log).publish([old]), lambda: publish(log, "new"))[:: -1 if late else 1]:
        publishes()
    if how == "the new one is run again":
        publish(log, "new", generation=2, on_rerun=OnRerun.REPLACE)
    if how == "its marker is lost":
        for info in list(log.store.list(LOAD.writer("new").directory)):
            if info.path.endswith("/_closed.json"):
                log.store.delete(info.path)
    assert reconciled(log, "new").startswith("Writer 'new' appended to")


def reconciled(log: DeltaLog, *keys: str) -> str:
    left = orphans_of.orphans(log, LOAD, set(keys), {"load"}, newest(log))
    return str(orphans_of.doubled(log, LOAD, left, keys) or "")


def test_a_writer_that_is_taken_out_leaves_no_new_writers(log: DeltaLog) -> None:
    for key in "abc":
        publish(log, key, fingerprint=f"of {key}")
    assert reconciled(log, "b", "c") == ""
    assert reconciled(log, "c") == ""


def test_a_new_name_of_a_function_that_an_earlier_release_loaded_is_named(log: DeltaLog) -> None:
    publish(log, "a", fingerprint="by the old rule")
    publish(log, "new name of a", fingerprint="by the rule of now", source="function")
    assert reconciled(log, "new name of a").startswith("Writer 'new name of a' appended to")


def test_what_another_dag_appended_in_the_run_is_not_appended_again(log: DeltaLog) -> None:
    publish(log, "other")
    publish(log, "a/b")
    with pytest.raises(OrphanWriterError) as refused:
        orphans_of.check_other_dags(log, writer_spec("a/b", RENAMED), newest(log))
    assert str(refused.value).startswith(
        "DAG 'taxi' has appended the same rows in this run, as writer 'a/b' (group load, task load.write[a/b], version 2, 2 rows), to"
    )
    assert "If 'taxi_v2' is a new name of that DAG, say load_name='taxi' in" in str(refused.value)


@pytest.mark.parametrize(
    "terms",
    [
        pytest.param({"writer": "b"}, id="another key"),
        pytest.param({"load": attrs.evolve(RENAMED, group="more")}, id="another group"),
        pytest.param({"load": attrs.evolve(RENAMED, run=NOVEMBER.run)}, id="another run"),
        pytest.param({"load": attrs.evolve(RENAMED, namespace="prod")}, id="another deployment"),
        pytest.param({"fingerprint": "another"}, id="other work"),
        pytest.param({"on_rerun": OnRerun.APPEND}, id="rows may be there twice"),
        pytest.param({"mode": OverwritePartitions()}, id="overwrite"),
    ],
)
def test_what_is_another_load_goes_on(log: DeltaLog, terms: dict[str, Any]) -> None:
    publish(log, "a")
    orphans_of.check_other_dags(log, writer_spec(**{"writer": "a", "load": RENAMED, **terms}), newest(log))


def test_a_function_that_an_earlier_release_loaded_is_not_appended_again_by_another_dag(log: DeltaLog) -> None:
    publish(log, "a", fingerprint="by the old rule")
    publish(log, "b", fingerprint="of a query", source="sql")
    function: dict[str, Any] = {"source": "function", "fingerprint": "by the rule of now"}
    with pytest.raises(OrphanWriterError, match="DAG 'taxi' has appended the same rows"):
        orphans_of.check_other_dags(log, writer_spec("a", RENAMED, **function), newest(log))
    orphans_of.check_other_dags(log, writer_spec("b", RENAMED, **function), newest(log))


def test_rows_of_another_dag_that_are_gone_or_never_were_are_not_doubled(log: DeltaLog) -> None:
    publish(log, "empty", [])
    publish(log, "a")
    DeltaTable(log.table).delete()
    for writer in ("a", "empty"):
        orphans_of.check_other_dags(log, writer_spec(writer, RENAMED), newest(log))


def test_an_older_generation_of_another_dag_counts_too(log: DeltaLog) -> None:
    publish(log, "a")
    publish(log, "a", generation=2, on_rerun=OnRerun.APPEND, fingerprint="of a mended source")
    with pytest.raises(OrphanWriterError, match="version 1, 2 rows"):
        orphans_of.check_other_dags(log, writer_spec("a", RENAMED), newest(log))


def test_a_record_that_does_not_say_the_work_refuses_nothing(log: DeltaLog) -> None:
    """So an entry of the log may be that was written before there were fingerprints."""
    publish(log, "a")
    found = [info.path for info in log.store.list(LOAD.writer("a").directory)]
    (marker,) = (path for path in found if path.endswith("/_closed.json"))
    for path in (marker, version_path(1)):
        with pytest.raises(OrphanWriterError):
            orphans_of.check_other_dags(log.anew(), writer_spec("a", RENAMED), newest(log))
        log.store.put(path, log.store.get(path).replace(b'"fingerprint"', b'"unknown"'))
    orphans_of.check_other_dags(log.anew(), writer_spec("a", RENAMED), newest(log))
