"""Publishing: one put, create-only, at exactly the next version; rebase, lost answers, refusals."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import attrs
import pytest
from deltalake import DeltaTable

from airflow_provider_onelake import exceptions as errors
from airflow_provider_onelake.buffers.buffer import Buffer
from airflow_provider_onelake.buffers.layout import CLOSED
from airflow_provider_onelake.buffers.markers import read_marker, write_marker
from airflow_provider_onelake.choices import OnNewerCommit, OnRerun, Policy
from airflow_provider_onelake.commit.loop import Backoff, Transactions
from airflow_provider_onelake.log.actions import LOG_DIRECTORY, dump_actions, version_path
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.maintenance.restore import restore
from airflow_provider_onelake.modes import Append, Mode, Overwrite, ReplaceWhere
from airflow_provider_onelake.writes.publish import Committer, Publication, PublishStatus
from tests.support import tables
from tests.support.changes import asker
from tests.support.clocks import HeldClock
from tests.support.commits import committer
from tests.support.schemas import field, struct
from tests.support.stores import AnswerLost, Counted, LoserHeld, PassingOn, through
from tests.support.tables import complete
from tests.support.vectors import delete_rows, ids_without_deleted

WHERE = {"mode": ReplaceWhere("month = '2019-01'")}
HERE: dict[str | None, list[int]] = {"2019-01": [10]}
IN_EACH_MODE = pytest.mark.parametrize("terms", [{}, tables.OVERWRITE, WHERE], ids=["append", "overwrite", "where"])
ADDING_OR_REPLACING = pytest.mark.parametrize("terms", [{}, tables.OVERWRITE], ids=["append", "overwrite"])
REPLACING = pytest.mark.parametrize("terms", [tables.OVERWRITE, WHERE], ids=["overwrite", "where"])


# After whatever is committed while the test runs.
SOON = datetime.now(UTC) + timedelta(hours=1)


def appends(log: DeltaLog, number: int = 20, month: str = "2019-01") -> Callable[[], object]:
    return lambda: tables.foreign_append(through(log.store, log), {month: [number]})


def entries(log: DeltaLog) -> list[str]:
    return sorted(path.name for path in Path(log.table, LOG_DIRECTORY).glob("*.json"))


def test_one_put_create_only_at_exactly_the_next_version(log: DeltaLog) -> None:
    tables.foreign_append(log, {"2019-02": [1]})
    buffer = tables.stage(log, tables.writer_spec(), HERE)
    store = Counted(log.store)
    publication = committer(log, store).publish([buffer])
    assert [path for path, _ in store.puts] == [version_path(2)]
    assert (publication.status, publication.version) == (PublishStatus.PUBLISHED, 2)
    assert (publication.tally.attempts, publication.tally.lost_races) == (1, 0)
    assert tables.table_ids(log) == [1, 10]


def test_a_lost_race_is_decided_again_on_the_newest_snapshot_and_put_at_the_version_after(log: DeltaLog) -> None:
    buffer = tables.stage(log, tables.writer_spec(), HERE)
    held = LoserHeld(log.store, appends(log, 20), appends(log, 21), appends(log, 22))
    store, told = Counted(held), list[Publication]()
    publication = committer(log, store, observer=told.append).publish([buffer])
    assert (publication.tally.lost_races, held.refused) == (3, 3)
    assert publication.tally.rebasing > 0
    assert told == [publication]
    assert publication.version == 4
    assert [path for path, _ in store.puts] == [version_path(version) for version in (1, 2, 3, 4)]
    assert [json.loads(data.splitlines()[0])["commitInfo"]["readVersion"] for _, data in store.puts] == [0, 1, 2, 3]
    assert tables.table_ids(log) == [10, 20, 21, 22]


@IN_EACH_MODE
def test_a_lost_answer_is_found_by_its_txn_id_and_nothing_is_put_again(log: DeltaLog, terms: Any) -> None:
    tables.foreign_append(log, {"2019-02": [1]})
    buffer = tables.stage(log, tables.writer_spec(**terms), HERE)
    store = Counted(AnswerLost(log.store, effect=True))
    publication = committer(log, store).publish([buffer])
    assert (publication.status, publication.version, publication.tally.attempts) == (PublishStatus.PUBLISHED, 2, 1)
    assert len(store.puts) == 1
    assert publication.entry is not None
    assert read_marker(log.store, buffer.path) is not None
    assert entries(log) == [Path(version_path(version)).name for version in range(3)]
    assert tables.table_ids(log) == [1, 10]


def test_a_lost_answer_is_found_behind_what_others_committed_since(log: DeltaLog) -> None:
    class OthersFollow(AnswerLost):
        def create(self, path: str, data: bytes) -> None:
            try:
                super().create(path, data)
            except errors.StoreUnavailableError:
                appends(log, 20)()
                appends(log, 21)()
                raise

    buffer = tables.stage(log, tables.writer_spec(), HERE)
    publication = committer(log, OthersFollow(log.store, effect=True)).publish([buffer])
    assert (publication.status, publication.version, publication.tally.attempts) == (PublishStatus.PUBLISHED, 1, 1)
    assert tables.table_ids(log) == [10, 20, 21]


@ADDING_OR_REPLACING
def test_already_exists_may_be_ones_own_put_repeated_by_the_client(log: DeltaLog, terms: Any) -> None:
    class RepeatedByTheClient(PassingOn):
        def create(self, path: str, data: bytes) -> None:
            super().create(path, data)
            if path.startswith(f"{LOG_DIRECTORY}/"):
                raise errors.ObjectExistsError(path)

    buffer = tables.stage(log, tables.writer_spec(**terms), HERE)
    publication = committer(log, RepeatedByTheClient(log.store)).publish([buffer])
    assert (publication.status, publication.version, publication.tally.attempts) == (PublishStatus.PUBLISHED, 1, 1)
    assert tables.table_ids(log) == [10]


def test_who_keeps_losing_gives_up_within_its_budget_and_the_buffer_stays(log: DeltaLog) -> None:
    buffer = tables.stage(log, tables.writer_spec(), HERE)
    clock = HeldClock()
    held = LoserHeld(log.store, *[appends(log, number) for number in range(100, 200)])
    losing = Committer(through(held, log, clock), Random(1), Backoff(first=0.1, longest=1, budget=5))
    with pytest.raises(errors.CommitContentionError, match=r"met another's commit.*budget of 5 s.*Nothing was lost"):
        losing.publish([buffer])
    assert held.refused == len(clock.sleeps) + 1
    assert held.refused > 5
    assert 4 <= sum(clock.sleeps) <= 6
    assert max(clock.sleeps) <= 1
    assert read_marker(log.store, buffer.path) is None
    assert committer(log).publish([tables.reread(log, buffer)]).status is PublishStatus.PUBLISHED
    assert 10 in tables.table_ids(log)


@IN_EACH_MODE
@pytest.mark.parametrize("marked", [True, False], ids=["marker", "marker lost"])
def test_a_buffer_already_published_is_a_no_op(log: DeltaLog, terms: Any, marked: bool) -> None:
    buffer = tables.stage(log, tables.writer_spec(**terms), HERE)
    committer(log).publish([buffer])
    if not marked:
        Path(log.table, buffer.path, CLOSED).unlink()
    store = Counted(log.store)
    publication = committer(log, store).publish([buffer])
    assert (publication.status, publication.version, publication.tally.attempts) == (PublishStatus.ALREADY, 1, 0)
    assert store.puts == []
    assert tables.table_ids(log) == [10]


def test_what_an_earlier_attempt_of_other_code_published_meanwhile_is_not_this_ones(log: DeltaLog) -> None:
    """It had looked for its marker, and not put its commit yet, when it was fenced off."""
    old, new = tables.writer_spec(fingerprint="old"), tables.writer_spec(fingerprint="new")
    late = tables.stage(log, old, {"2019-01": [666]})
    mine = tables.stage(log, new, {"2019-01": [1]})
    Path(log.table, late.path, CLOSED).unlink()
    Committer(log).publish([late])
    with pytest.raises(errors.RerunRefusedError, match=r"version 1\), from another source, code or mode.*on_rerun"):
        Committer(log).publish([mine])


def test_a_buffer_set_aside_is_never_published(log: DeltaLog) -> None:
    buffer = tables.stage(log, tables.writer_spec(), HERE)
    write_marker(log.store, buffer.path, {"reason": "set aside"})
    publication = committer(log).publish([buffer])
    assert (publication.status, publication.version) == (PublishStatus.SET_ASIDE, None)
    assert tables.table_ids(log) == []


def test_a_path_that_was_ever_in_the_table_is_not_added_again(log: DeltaLog) -> None:
    buffer = tables.stage(log, tables.writer_spec(), HERE)
    add = {**buffer.adds[0], "path": f"{buffer.path}/{buffer.adds[0]['path']}"}
    tables.foreign_commit(log, [{"commitInfo": {"timestamp": 1}}, {"add": add}])
    tables.foreign_commit(log, [{"remove": {"path": add["path"], "dataChange": True, "deletionTimestamp": 1}}])
    with pytest.raises(errors.TerminalError, match="a file is published once"):
        committer(log).publish([buffer])
    assert tables.table_ids(log) == []


def test_a_zombie_of_an_older_generation_is_not_put_on_top_of_newer_data(log: DeltaLog) -> None:
    old = tables.stage(log, tables.writer_spec(generation=1, **tables.OVERWRITE), HERE)
    new = tables.stage(log, tables.writer_spec(generation=2, **tables.OVERWRITE), {"2019-01": [11]})
    committer(log).publish([new])
    with pytest.raises(errors.ZombieWriterError, match=r"Generation 2 of writer 'w'.*this one is of generation 1"):
        committer(log).publish([old], Policy.LAST_WRITER_WINS)
    assert tables.table_ids(log) == [11]


def test_a_zombie_that_meets_the_newer_generation_in_the_race_is_fenced_off(log: DeltaLog) -> None:
    old = tables.stage(log, tables.writer_spec(generation=1, on_rerun=OnRerun.APPEND), HERE)
    new = tables.stage(log, tables.writer_spec(generation=2, on_rerun=OnRerun.APPEND), {"2019-01": [11]})
    held = LoserHeld(log.store, lambda: committer(log).publish([new]))
    with pytest.raises(errors.ZombieWriterError):
        committer(log, held).publish([old])
    assert held.refused == 1
    assert tables.table_ids(log) == [11]


@pytest.mark.parametrize("mode", [Append(), Overwrite()], ids=["append", "overwrite"])
def test_rows_of_an_older_try_that_a_restore_took_back_are_not_called_published(log: DeltaLog, mode: Mode) -> None:
    """A try that was given up lives on and publishes while the retry stages; then a person undoes that."""
    one, retried = (tables.stage(log, tables.writer_spec(fingerprint="", mode=mode), HERE) for _ in range(2))
    assert committer(log).publish([one]).version == 1
    restore(Transactions(log), 0, tables.newest(log), asker("a person"), on_newer_commit=OnNewerCommit.FAIL)
    with pytest.raises(errors.RerunRefusedError, match=r"in version 1 .*, but RESTORE in version 2 took its rows"):
        committer(log).publish([retried])
    restore(Transactions(log), 1, tables.newest(log), asker("once more"), on_newer_commit=OnNewerCommit.FAIL)
    assert (committer(log).publish([retried]).status, tables.table_ids(log)) == (PublishStatus.ALREADY, [10])


def test_a_restore_to_a_later_version_takes_back_nothing_of_a_writer_without_rows(log: DeltaLog) -> None:
    one, retried = (tables.stage(log, tables.writer_spec(fingerprint=""), {}) for _ in range(2))
    assert committer(log).publish([one]).version == 1
    tables.foreign_append(log, HERE)
    restore(Transactions(log), 1, tables.newest(log), asker("a person"), on_newer_commit=OnNewerCommit.FAIL)
    assert committer(log).publish([retried]).status is PublishStatus.ALREADY
    restore(Transactions(log), 2, tables.newest(log), asker("once more"), on_newer_commit=OnNewerCommit.FAIL)
    assert committer(log).publish([retried]).status is PublishStatus.ALREADY
    restore(Transactions(log), 0, tables.newest(log), asker("a third time"), on_newer_commit=OnNewerCommit.FAIL)
    with pytest.raises(errors.RerunRefusedError, match=r"in version 1 .*, but RESTORE in version 5 took its rows"):
        committer(log).publish([retried])
    restore(Transactions(log), 4, tables.newest(log), asker("a last time"), on_newer_commit=OnNewerCommit.FAIL)
    assert committer(log).publish([retried]).status is PublishStatus.ALREADY


APPEND = {"on_rerun": OnRerun.APPEND}
AGAIN = {"generation": 2, "fingerprint": "other"}
OLD_RULE, FUNCTION = {"fingerprint": "by the old rule"}, {"fingerprint": "by the rule of now", "source": "function"}
UNKNOWN = {"fingerprint": ""}
WAYS_OUT = r"on_rerun='append' adds the rows again, .* overwrite_partitions"


@pytest.mark.parametrize(
    ("first", "again", "ends", "expected"),
    [
        pytest.param(UNKNOWN, UNKNOWN, PublishStatus.ALREADY, [10], id="twice in one generation"),
        pytest.param({}, {"generation": 2}, PublishStatus.ALREADY, [10], id="skip, same work"),
        pytest.param({}, AGAIN, WAYS_OUT, [10], id="skip, other work"),
        pytest.param(UNKNOWN, {**AGAIN, **UNKNOWN}, WAYS_OUT, [10], id="skip, unknown work"),
        pytest.param(APPEND, {**APPEND, **AGAIN}, PublishStatus.PUBLISHED, [10, 11], id="append again"),
        pytest.param(
            tables.OVERWRITE, {**tables.OVERWRITE, **AGAIN}, PublishStatus.PUBLISHED, [11], id="overwrite replaces"
        ),
        pytest.param(OLD_RULE, FUNCTION, PublishStatus.ALREADY, [10], id="a function, by an earlier release"),
        pytest.param(OLD_RULE, {**AGAIN, **FUNCTION}, PublishStatus.ALREADY, [10], id="and cleared"),
    ],
)
def test_one_that_was_staging_when_its_writer_was_published(
    log: DeltaLog, first: dict[str, Any], again: dict[str, Any], ends: PublishStatus | str, expected: list[int]
) -> None:
    one = tables.stage(log, tables.writer_spec(**first), HERE)
    two = tables.stage(log, tables.writer_spec(**again), {"2019-01": [11]})
    # A retry sets aside only what it sees of earlier tries.
    log.store.delete(f"{one.path}/{CLOSED}")
    held = LoserHeld(log.store, lambda: committer(log).publish([one]))
    if isinstance(ends, PublishStatus):
        assert committer(log, held).publish([two]).status is ends
    else:
        with pytest.raises(errors.RerunRefusedError, match=ends):
            committer(log, held).publish([two])
    assert (held.refused, tables.table_ids(log)) == (1, expected)


def test_skip_that_meets_the_same_work_taken_back_by_a_restore_is_refused(log: DeltaLog) -> None:
    first = tables.stage(log, tables.writer_spec(generation=1, fingerprint="same"), HERE)
    again = tables.stage(log, tables.writer_spec(generation=2, fingerprint="same"), {"2019-01": [11]})

    def published_and_restored() -> None:
        committer(log).publish([first])
        (add,) = tables.live(log)
        gone = {"path": add["path"], "deletionTimestamp": 1, "dataChange": True}
        tables.foreign_commit(log, [{"commitInfo": {"operation": "RESTORE"}}, {"remove": gone}])

    held = LoserHeld(log.store, published_and_restored)
    with pytest.raises(errors.RerunRefusedError, match="RESTORE in version 2 took its rows back"):
        committer(log, held).publish([again])
    assert tables.table_ids(log) == []


@pytest.mark.parametrize("fingerprint", ["same", "another"])
def test_skip_that_meets_work_that_was_set_aside_is_published(log: DeltaLog, fingerprint: str) -> None:
    terms: dict[str, Any] = {**tables.OVERWRITE, "on_rerun": OnRerun.SKIP}
    first = tables.stage(log, tables.writer_spec(generation=1, **terms), HERE)
    tables.foreign_append(log, {"2019-01": [7]})
    cleared = tables.writer_spec(generation=2, fingerprint=fingerprint, **terms)
    again = tables.stage(through(log.store, log), cleared, {"2019-01": [11]})
    held = LoserHeld(log.store, lambda: committer(log).publish([first], Policy.FIRST_WRITER_WINS))
    assert committer(log, held).publish([again]).status is PublishStatus.PUBLISHED
    assert held.refused == 1
    assert tables.table_ids(log) == [11]


def test_publishing_records_the_buffer_and_closes_it(log: DeltaLog) -> None:
    buffer = tables.stage(log, tables.writer_spec(source="files"), HERE)
    committer(log).publish([buffer])
    (record,) = tables.commit_of(log, 1).writers
    assert (record.buffer, record.source) == (buffer.path, "files")
    assert read_marker(log.store, buffer.path) == {"version": 1, "table": buffer.table_id, "writer": record.to_json()}


@pytest.mark.parametrize("error", [errors.StoreUnavailableError, errors.StoreFullError, errors.AccessDeniedError])
def test_a_lost_marker_undoes_nothing(log: DeltaLog, caplog: pytest.LogCaptureFixture, error: type[Exception]) -> None:
    class NoMarkers(PassingOn):
        def put(self, path: str, data: bytes) -> None:
            raise error("the disk became full after the commit")

    buffer = tables.stage(log, tables.writer_spec(), HERE)
    publication = committer(log, NoMarkers(log.store)).publish([buffer])
    assert publication.status is PublishStatus.PUBLISHED
    assert f"the marker of {buffer.path} was not written" in caplog.text
    assert tables.table_ids(log) == [10]


def test_a_write_that_is_refused_puts_nothing_and_its_buffer_stays(log: DeltaLog) -> None:
    buffer, store = tables.stage(log, tables.writer_spec(**tables.OVERWRITE), HERE), Counted(log.store)
    appends(log)()
    with pytest.raises(errors.OutOfDateError, match=r"version 1 \(WRITE\) put 1 row into month=2019-01"):
        committer(log, store).publish([buffer])
    assert store.puts == []
    assert read_marker(log.store, buffer.path) is None
    assert committer(log).publish([buffer], Policy.FIRST_WRITER_WINS).status is PublishStatus.SET_ASIDE


def test_a_buffer_older_than_half_of_the_tables_retention_is_not_published(tmp_path: Path) -> None:
    log = tables.make_table(tmp_path / "t", **{"delta.deletedFileRetentionDuration": "interval 2 days"})
    buffer = tables.stage(log, tables.writer_spec(), HERE)
    file = next(Path(log.table, buffer.path).rglob("*.parquet"))
    instant = (datetime.now(UTC) - timedelta(hours=25)).timestamp()
    os.utime(file, (instant, instant))
    with pytest.raises(errors.BufferLostError, match="half of the table's retention of 2 days"):
        committer(log).publish([tables.reread(log, buffer)])
    assert tables.table_ids(log) == []
    younger = (datetime.now(UTC) - timedelta(hours=23)).timestamp()
    os.utime(file, (younger, younger))
    assert committer(log).publish([tables.reread(log, buffer)]).status is PublishStatus.PUBLISHED


def test_the_age_is_asked_again_after_a_lost_race(log: DeltaLog) -> None:
    buffer = tables.stage(log, tables.writer_spec(), HERE)
    clock = HeldClock()
    held = LoserHeld(log.store, lambda: (appends(log)(), clock.forward(days=4)))
    with pytest.raises(errors.BufferLostError):
        Committer(through(held, log, clock)).publish([buffer])
    assert held.refused == 1
    assert tables.table_ids(log) == [20]


@pytest.mark.parametrize("checkpointed", [False, True], ids=["from the log", "from a checkpoint"])
@REPLACING
def test_a_file_is_removed_with_its_deletion_vector(tmp_path: Path, terms: Any, checkpointed: bool) -> None:
    log = tables.make_table(tmp_path / "t", **{"delta.enableDeletionVectors": "true"})
    tables.foreign_append(log, {"2019-01": [1, 2, 3], "2019-02": [4]})
    add = next(add for add in tables.live(log) if add["partitionValues"]["month"] == "2019-01")
    marked = delete_rows(log, {**add, "tags": {"VORDER": "true"}}, [1])
    assert ids_without_deleted(Path(log.table)) == [1, 3, 4]
    buffer = tables.stage(log, tables.writer_spec(**terms), HERE)
    if checkpointed:
        tables.cleaned_up(log, *range(3))
    assert committer(log).publish([buffer]).status is PublishStatus.PUBLISHED
    commit = tables.commit_of(log, 3)
    (remove,) = commit.removes
    copied = ("path", "partitionValues", "size", "stats", "tags", "deletionVector")
    assert {key: remove[key] for key in copied} == {key: marked[key] for key in copied}
    assert commit.rows_removed == 2
    assert ids_without_deleted(Path(log.table)) == [4, 10]
    assert len(tables.live(through(log.store, log))) == 2


def test_the_tags_of_staged_files_are_published_as_they_are_and_outlive_a_checkpoint(log: DeltaLog) -> None:
    """Fabric's Spark marks its files of V-Order so."""
    buffer = tables.stage(log, tables.writer_spec(), HERE)
    tables.tag_files(Path(log.table, buffer.path), VORDER="true", INSERTION_TIME="17")
    publication = committer(log).publish([complete(log, buffer.path)])
    assert publication.version is not None
    marked = {"VORDER": "true", "INSERTION_TIME": "17"}
    assert [add["tags"] for add in tables.live(through(log.store, log))] == [marked]
    tables.cleaned_up(log, *range(publication.version + 1))
    assert [add["tags"] for add in tables.live(through(log.store, log))] == [marked]


def test_what_is_removed_is_resolved_on_the_newest_snapshot(tmp_path: Path) -> None:
    log = tables.make_table(tmp_path / "t", **{"delta.enableDeletionVectors": "true"})
    tables.foreign_append(log, {"2019-01": [1, 2, 3]})
    (add,) = tables.live(log)
    buffer = tables.finished_at(log, tables.stage(log, tables.writer_spec(**tables.OVERWRITE), HERE), SOON)
    held = LoserHeld(log.store, lambda: delete_rows(through(log.store, log), add, [1]))
    publication = committer(log, held).publish([buffer], Policy.LAST_WRITER_WINS)
    assert (publication.tally.lost_races, held.refused) == (1, 1)
    assert [settlement.outcome for settlement in publication.settlements] == ["replaced"]
    commit = tables.commit_of(log, 3)
    assert commit.removes[0]["deletionVector"]["cardinality"] == 1
    assert ids_without_deleted(Path(log.table)) == [10]


def test_of_the_files_added_in_the_race_none_is_forgotten(log: DeltaLog) -> None:
    tables.foreign_append(log, {"2019-01": [1]})
    buffer = tables.finished_at(log, tables.stage(log, tables.writer_spec(**tables.OVERWRITE), HERE), SOON)
    held = LoserHeld(log.store, appends(log, 20), appends(log, 21), appends(log, 22, "2019-02"))
    publication = committer(log, held).publish([buffer], Policy.LAST_WRITER_WINS)
    assert (publication.tally.lost_races, held.refused) == (3, 3)
    assert publication.entry is not None
    assert publication.entry.files_removed == 3
    assert tables.table_ids(log) == [10, 22]


def schema_with(log: DeltaLog, **changes: dict[str, Any]) -> str:
    """The table's schema, its fields changed by name, and new ones added."""
    snapshot = log.snapshot()
    fields = json.loads(snapshot.metadata["schemaString"])["fields"]
    new = [{"type": "long", "nullable": True, "metadata": {}, "name": n} for n in changes if n not in ("id", "month")]
    changed = [{**each, **changes.get(each["name"], {})} for each in [*fields, *new]]
    return json.dumps({"type": "struct", "fields": changed})


UNFIT = {
    "a CHECK added": (lambda log: {"configuration": {"delta.constraints.positive": "id > 0"}}, "CHECK positive"),
    "a column's type changed": (lambda log: {"schemaString": schema_with(log, id={"type": "string"})}, "id is string"),
    "NOT NULL added": (lambda log: {"schemaString": schema_with(log, id={"nullable": False})}, "id is NOT NULL now"),
    "a new NOT NULL": (lambda log: {"schemaString": schema_with(log, fare={"nullable": False})}, "new column fare"),
    "the partitioning changed": (lambda log: {"partitionColumns": []}, "partitioned by nothing, not by month"),
    "the table replaced": (lambda log: {"id": "another"}, "replaced by another"),
}


@pytest.mark.parametrize("raced", [True, False], ids=["in the race", "before the first put"])
@ADDING_OR_REPLACING
@pytest.mark.parametrize(("change", "reason"), UNFIT.values(), ids=UNFIT)
def test_a_buffer_that_no_longer_fits_is_refused_and_nothing_is_published(
    log: DeltaLog, terms: Any, change: Callable[[DeltaLog], dict[str, Any]], reason: str, raced: bool
) -> None:
    buffer = tables.stage(log, tables.writer_spec(task="load.write[3]", **terms), HERE)
    changed = change(log)
    held = LoserHeld(log.store, *([lambda: tables.change_metadata(log, **changed)] if raced else []))
    if not raced:
        tables.change_metadata(log, **changed)
    with pytest.raises(errors.BufferDoesNotFitError, match=reason) as error:
        committer(log, held).publish([buffer], Policy.LAST_WRITER_WINS)
    assert held.refused == raced
    assert "Nothing was published. Clear load.write[3]" in str(error.value)
    assert len(entries(log)) == 2
    assert read_marker(log.store, buffer.path) is None


@ADDING_OR_REPLACING
def test_a_nullable_column_added_in_the_race_fits(log: DeltaLog, terms: Any) -> None:
    buffer = tables.stage(log, tables.writer_spec(**terms), HERE)
    schema = schema_with(log, fare={})
    held = LoserHeld(log.store, lambda: tables.change_metadata(log, schemaString=schema))
    publication = committer(log, held).publish([buffer])
    assert (publication.tally.lost_races, held.refused, publication.version) == (1, 1, 2)
    assert DeltaTable(log.table).to_pyarrow_table().to_pylist() == [{"id": 10, "month": "2019-01", "fare": None}]


def by_instant(path: Path) -> DeltaLog:
    return tables.make_table(path, json.dumps(struct(field("id", "long"), field("at", "timestamp"))), ["at"])


def respelled(buffer: Buffer, spelling: str) -> Buffer:
    return attrs.evolve(buffer, adds=tuple({**add, "partitionValues": {"at": spelling}} for add in buffer.adds))


def test_an_overwrite_of_the_whole_table_need_not_know_which_partition_a_winner_means(tmp_path: Path) -> None:
    log = by_instant(tmp_path / "t")
    winner = respelled(tables.stage(log, tables.writer_spec("b"), {"b": [1]}), "2019-01-01 12:00:01")
    late = tables.stage(log, tables.writer_spec("a", mode=Overwrite()), {"2019-01-01T12:00:00.000000Z": [2]})
    committer(log).publish([winner])
    publication = committer(log).publish([late], Policy.FIRST_WRITER_WINS)
    assert [settlement.outcome for settlement in publication.settlements] == ["set_aside"]


def test_an_overwrite_that_meets_an_ambiguous_spelling_is_refused(tmp_path: Path) -> None:
    log = by_instant(tmp_path / "t")
    committer(log).publish([respelled(tables.stage(log, tables.writer_spec("a"), {"a": [1]}), "2019-01-01 12:00:00")])
    staged = tables.stage(log, tables.writer_spec("c", **tables.OVERWRITE), {"c": [10]})
    buffer = respelled(staged, "2019-01-01T12:00:00.000000Z")
    with pytest.raises(errors.InvalidWriteError, match="at=2019-01-01 12:00:00 is spelled without a time zone"):
        committer(log).publish([buffer])
    assert len(tables.live(log)) == 1


@pytest.mark.parametrize("policy", Policy)
@REPLACING
def test_where_the_log_since_is_gone_an_overwrite_fails(log: DeltaLog, terms: Any, policy: Policy) -> None:
    buffer = tables.stage(log, tables.writer_spec(**terms), HERE)
    appends(log)()
    tables.cleaned_up(log)
    with pytest.raises(errors.ConflictError, match="was cleaned up, so nobody knows what they would replace"):
        committer(log).publish([buffer], policy)
    assert tables.table_ids(log) == [20]


def test_where_the_log_since_the_read_version_is_gone_an_append_is_still_put_once(log: DeltaLog) -> None:
    buffer = tables.stage(log, tables.writer_spec(), HERE)
    appends(log)()
    tables.cleaned_up(log)
    assert committer(log).publish([buffer]).version == 2
    tables.cleaned_up(log)
    Path(log.table, buffer.path, CLOSED).unlink()
    assert committer(log).publish([buffer]).status is PublishStatus.ALREADY
    assert tables.table_ids(log) == [10, 20]


def test_where_the_log_is_gone_and_the_txn_expired_an_append_whose_files_are_there_is_refused(log: DeltaLog) -> None:
    buffer = tables.stage(log, tables.writer_spec(), HERE)
    committer(log).publish([buffer])
    commit = tables.commit_of(log, 1)
    log.store.put(version_path(1), dump_actions(action for action in commit.actions if "txn" not in action))
    Path(log.table, buffer.path, CLOSED).unlink()
    tables.cleaned_up(log)
    with pytest.raises(errors.RerunRefusedError, match=r"are in .* already"):
        committer(log).publish([buffer])
    assert tables.table_ids(log) == [10]


@pytest.mark.parametrize(
    "path", ["/data/other/a.parquet", "file:///data/other/a.parquet", "file:/data/a.parquet", "s3a://bucket/a.parquet"]
)
def test_a_file_named_by_an_absolute_path_is_not_replaced(log: DeltaLog, path: str) -> None:
    add = {"path": path, "partitionValues": {"month": "2019-01"}, "size": 1, "modificationTime": 1, "dataChange": True}
    tables.foreign_commit(log, [{"commitInfo": {"timestamp": 1, "operation": "CLONE"}}, {"add": add}])
    buffer = tables.stage(log, tables.writer_spec(**tables.OVERWRITE), HERE)
    with pytest.raises(errors.UnsupportedFeatureError, match="by an absolute path, as shallow clones do"):
        Committer(log).publish([buffer])
    assert len(entries(log)) == 2


def test_a_column_named_like_a_scheme_makes_no_path_absolute(log: DeltaLog) -> None:
    tables.foreign_append(log, {"s3:x": [1]})
    buffer = tables.stage(log, tables.writer_spec(**tables.OVERWRITE), {"s3:x": [10]})
    assert committer(log).publish([buffer]).status is PublishStatus.PUBLISHED
    assert tables.table_ids(log) == [10]


@pytest.mark.parametrize("versions", [1, 2, 3], ids=["fewer versions", "as many", "more"])
@pytest.mark.parametrize("mode", [Append(), Overwrite()], ids=lambda mode: mode.name)
def test_nothing_is_published_into_a_table_made_again(tmp_path: Path, versions: int, mode: Mode) -> None:
    log = tables.make_table(tmp_path, partition_by=())
    tables.foreign_commit(log, [{"commitInfo": {"timestamp": 1}}])
    spec = tables.writer_spec(mode=mode)
    task = tables.begun(log, spec)
    shutil.rmtree(tmp_path / LOG_DIRECTORY)
    new = tables.make_table(tmp_path)
    for _ in range(versions - 1):
        tables.foreign_commit(new, [{"commitInfo": {"timestamp": 1}}])
    buffer = tables.finish(log, task, spec, HERE)
    with pytest.raises(errors.BufferDoesNotFitError, match="replaced by another"):
        Committer(log).publish([buffer])
    assert tables.ids(tmp_path) == []


def test_to_make_sure_of_the_table_costs_a_publication_one_request_however_many_races_it_loses(tmp_path: Path) -> None:
    costs = []
    for races in (0, 1, 5):
        writer = tables.make_table(tmp_path / str(races))
        counted = Counted(writer.store)

        def wins(log: DeltaLog = writer) -> int:
            return tables.foreign_append(log, {"2019-03": [1]})

        log = through(LoserHeld(counted, *[wins] * races), writer)
        buffer = tables.stage(log, tables.writer_spec(), HERE)
        counted.calls.clear()
        assert Committer(log, backoff=Backoff(first=0.0, longest=0.0)).publish([buffer]).tally.lost_races == races
        costs.append(counted.calls["get"])
    # The entry that the table is known by, the next version, the marker; and for each race, the winner and what follows.
    assert costs == [3, 5, 13]
