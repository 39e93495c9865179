"""MERGE: whoever commits meanwhile and wherever it dies, version N + 1 is the MERGE on version N, and no key is twice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import attrs
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_onelake import exceptions as errors
from airflow_provider_onelake.buffers.buffer import Buffer
from airflow_provider_onelake.buffers.claims import begin
from airflow_provider_onelake.buffers.layout import CLOSED, WriterDirectory
from airflow_provider_onelake.buffers.markers import read_marker
from airflow_provider_onelake.buffers.reads import Reads
from airflow_provider_onelake.choices import OnNewerCommit, OnRerun
from airflow_provider_onelake.commit.loop import Transactions
from airflow_provider_onelake.history.reruns import Skip
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.maintenance.restore import restore
from airflow_provider_onelake.modes import Merge
from airflow_provider_onelake.statements.delete import delete
from airflow_provider_onelake.statements.statement import StatementStatus
from airflow_provider_onelake.writes.publish import Committer
from airflow_provider_onelake.writes.reconcile import reconcile
from tests.support.changes import asker, start_of, three_files
from tests.support.merges import MergeByHand, merged, source_of, upserted
from tests.support.shadows import compact, planned
from tests.support.stores import AnswerLost, KilledError, LoserHeld, through
from tests.support.tables import (
    change_metadata,
    commit_of,
    foreign_append,
    make_table,
    newest,
    prepare,
    stage,
    writer_spec,
)
from tests.support.vectors import delete_rows, hide_more

BOTH = pytest.mark.parametrize("vectors", [False, True], ids=["rewriting", "vectors"])
UPSERT = {"2019-01": [3, 40], "2019 02": [5]}
DELETES = Merge(keys="id", when="MATCHED THEN DELETE")  # type: ignore[arg-type]
INSERTS = Merge(keys="id", when="NOT MATCHED THEN INSERT *")  # type: ignore[arg-type]


@pytest.fixture
def log(tmp_path: Path) -> DeltaLog:
    return three_files(tmp_path / "a lake" / "t")


def pairs(log: DeltaLog, version: int | None = None) -> list[tuple[int, str | None]]:
    import pyarrow as pa
    from deltalake import DeltaTable, QueryBuilder

    table = DeltaTable(log.table, version=version)
    found = pa.table(QueryBuilder().register("t", table).execute("SELECT id, month FROM t").read_all())
    return sorted(zip(found.column("id").to_pylist(), found.column("month").to_pylist(), strict=True))


def months(log: DeltaLog, version: int | None = None) -> dict[int, str | None]:
    found = pairs(log, version)
    assert len({row for row, _ in found}) == len(found), found
    return dict(found)


def live(log: DeltaLog) -> list[Any]:
    return sorted(log.live_files(lambda add: True, newest(log).version), key=lambda file: file["path"])


def once(*winners: Callable[[], object]) -> Callable[[object], object]:
    left = list(winners)
    return lambda job: left.pop(0)() if left else None


@BOTH
def test_rows_are_updated_and_inserted_in_one_commit(log: DeltaLog, vectors: bool) -> None:
    before, source = months(log), source_of(log, UPSERT)
    done = merged(log, MergeByHand(vectors), source)
    assert (done.status, done.version, done.rounds) == ("done", 3, 1)
    assert (done.rows_inserted, done.rows_updated, done.rows_deleted) == (1, 2, 0)
    assert months(log) == upserted(before, UPSERT)
    commit = commit_of(log, 3)
    assert (commit.info["operation"], commit.info["isBlindAppend"]) == ("MERGE", False)
    assert commit.info["operationParameters"] == {
        "predicate": '["target.`id` = source.`id`"]',
        "matchedPredicates": '[{"actionType": "update"}]',
        "notMatchedPredicates": '[{"actionType": "insert"}]',
        "notMatchedBySourcePredicates": "[]",
    }
    assert commit.info["operationMetrics"]["numSourceRows"] == "3"
    assert commit.txns == {source.spec.identity.app_id: 1}
    marker = read_marker(log.store, source.path)
    assert marker is not None
    assert marker["version"] == 3


def test_an_empty_table_and_an_empty_source(tmp_path: Path) -> None:
    log, engine = make_table(tmp_path / "t"), MergeByHand()
    assert merged(log, engine, source_of(log, UPSERT)).rows_inserted == 3
    assert merged(log, engine, source_of(log, {}, "empty")).status == "nothing_to_do"
    assert (months(log), engine.files) == (upserted({}, UPSERT), [0])


def test_files_that_cannot_hold_a_key_are_not_looked_at(log: DeltaLog) -> None:
    engine = MergeByHand(after=once(lambda: foreign_append(log, {"2019-01": [500]})))
    assert merged(log, engine, source_of(log, {"2019-01": [2]})).version == 4
    assert engine.files == [1]
    # A key that is a partition column is looked for in its partitions alone.
    both = Merge(keys=["month", "id"])  # type: ignore[arg-type]
    merged(log, engine, source_of(log, {"2019 02": [2]}, "other", mode=both))
    assert engine.files == [1, 0]


@BOTH
def test_a_key_that_another_appends_meanwhile_is_not_inserted_twice(log: DeltaLog, vectors: bool) -> None:
    source = source_of(log, UPSERT)
    engine = MergeByHand(vectors, after=once(lambda: foreign_append(log, {"x": [40, 41]})))
    done = merged(log, engine, source)
    assert (done.version, done.rounds, done.rows_inserted, done.rows_updated) == (4, 2, 0, 3)
    assert months(log)[40] == "2019-01"
    assert {job.source_uri for job in engine.jobs} == {f"file://{log.table}/{source.path}"}
    assert [bool(job.keys) for job in engine.jobs] == [True, False]


@BOTH
def test_a_row_that_another_deletes_meanwhile_is_inserted(log: DeltaLog, vectors: bool) -> None:
    (hit,) = (file for file in live(log) if 3 in _ids_in(log, file))
    engine = MergeByHand(vectors, after=once(lambda: delete_rows(log, hit, [2])))
    done = merged(log, engine, source_of(log, UPSERT))
    assert (done.rounds, done.rows_inserted, done.rows_updated) == (2, 2, 1)
    assert months(log)[3] == "2019-01"


def _ids_in(log: DeltaLog, file: Any) -> list[int]:
    found = pq.ParquetFile(Path(log.table, unquote(file["path"]))).read().column("id").to_pylist()
    return [int(row) for row in found]


def overtaken_by_a_delete(log: DeltaLog, month: str) -> MergeByHand:
    return MergeByHand(after=once(lambda: delete(Transactions(log), f"month = '{month}'", asker(f"delete {month}"))))


def test_a_file_without_a_match_may_go(log: DeltaLog) -> None:
    foreign_append(log, {"x": [100, 300]})
    source = source_of(log, {"2019-01": [7, 200]})
    assert merged(log, overtaken_by_a_delete(log, "x"), source).rounds == 1
    assert merged(log, overtaken_by_a_delete(log, "2019-01"), source_of(log, {"y": [2, 8]}, "other")).rounds == 2


def test_a_merge_that_only_inserts_does_not_say_which_files_held_a_match(log: DeltaLog) -> None:
    foreign_append(log, {"x": [100, 300]})
    done = merged(log, overtaken_by_a_delete(log, "x"), source_of(log, {"y": [300, 301]}, mode=INSERTS))
    assert (done.rounds, months(log).get(300)) == (2, "y")


def test_two_merges_of_other_keys_in_the_same_files_are_both_done(log: DeltaLog) -> None:
    before = months(log)
    one, other = source_of(log, {"x": [1, 4]}, "one"), source_of(log, {"y": [3, 6]}, "other")
    engine = MergeByHand(after=once(lambda: merged(log, MergeByHand(), other)))
    assert merged(log, engine, one).rounds == 2
    assert months(log) == upserted(upserted(before, {"y": [3, 6]}), {"x": [1, 4]})


def test_a_merge_that_inserts_nothing_reads_only_what_is_new(log: DeltaLog) -> None:
    source = source_of(log, {"x": [3, 9, 12]}, mode=DELETES)
    engine = MergeByHand(after=once(lambda: foreign_append(log, {"2019-01": [12, 13]})))
    done = merged(log, engine, source)
    assert (done.rounds, done.rows_deleted, engine.files[1]) == (2, 3, 1)
    assert sorted(months(log)) == [1, 2, 4, 5, 6, 7, 8, 13]


def test_it_gives_up_and_the_rows_stay_staged(log: DeltaLog) -> None:
    engine = MergeByHand(after=lambda job: foreign_append(log, {"x": [3]}))
    source = source_of(log, UPSERT)
    with pytest.raises(errors.ConflictError, match=r"5 times.*Nothing was changed.*max_rounds"):
        merged(log, engine, source)
    assert read_marker(log.store, source.path) is None
    with pytest.raises(errors.ConflictError, match="2 times"):
        merged(log, engine, source, max_rounds=2)


def test_only_the_partitions_that_it_covers_are_looked_at(log: DeltaLog) -> None:
    before = pairs(log)
    covers = Merge(keys="id", covers="month = '2019-01'")  # type: ignore[arg-type]
    engine = MergeByHand(after=once(lambda: foreign_append(log, {"2019 02": [40]})))
    there = {row for row, month in before if month == "2019-01"}
    done = merged(log, engine, source_of(log, {"2019-01": [min(there), 40]}, mode=covers))
    assert (done.rounds, done.rows_inserted, done.rows_updated) == (1, 1, 1)
    assert pairs(log) == sorted([*before, (40, "2019 02"), (40, "2019-01")])
    with pytest.raises(errors.UnexpectedRowsError, match=r"partition month=x .*Nothing was merged") as refused:
        merged(log, MergeByHand(vectors=True), source_of(log, {"x": [min(there)]}, "other", mode=covers))
    assert "covers" in str(refused.value)
    assert pairs(log) == sorted([*before, (40, "2019 02"), (40, "2019-01")])


def test_what_it_covers_is_asked_before_anything_is_staged(log: DeltaLog) -> None:
    covers = Merge(keys="id", covers="id = 3")  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidWriteError, match="partition column"):
        prepare(log, writer_spec("w", mode=covers))


@pytest.mark.parametrize("reads", [None, Reads("month = '2019-01'"), Reads("true")], ids=str)
def test_a_source_computed_from_the_table_goes_out_of_date(log: DeltaLog, reads: Reads | None) -> None:
    source = attrs.evolve(source_of(log, UPSERT), reads_target=True, reads=reads)
    compact(log)
    engine = MergeByHand(after=once(lambda: foreign_append(log, {"2019-01": [500]})))
    said = rf"version 4 \(WRITE\) changed rows after the table was read at version {source.read_version}\. Nothing was"
    with pytest.raises(errors.OutOfDateError, match=said):
        merged(log, engine, source)


@BOTH
@pytest.mark.parametrize("effect", [True, False])
def test_a_lost_answer_merges_once(log: DeltaLog, effect: bool, vectors: bool) -> None:
    engine, source = MergeByHand(vectors), source_of(log, UPSERT)
    done = merged(through(AnswerLost(log.store, 1, effect=effect), log), engine, source)
    assert (done.status, done.version) == ("done", 3)
    again = merged(log, engine, source)
    assert (again.status, again.version, again.rows_inserted, again.rows_updated) == ("already_done", 3, 1, 2)
    assert len(engine.jobs) == 1


def test_what_an_older_try_merged_and_a_restore_took_back_is_not_called_merged(log: DeltaLog) -> None:
    source = source_of(log, UPSERT)
    version = merged(log, MergeByHand(), source).version
    assert version is not None
    restore(Transactions(log), version - 1, newest(log), asker("a person"), on_newer_commit=OnNewerCommit.FAIL)
    with pytest.raises(errors.RerunRefusedError, match=rf"in version {version}, and was taken back by a RESTORE"):
        merged(log, MergeByHand(), source)
    restore(Transactions(log), version, newest(log), asker("once more"), on_newer_commit=OnNewerCommit.FAIL)
    assert merged(log, MergeByHand(), source).status is StatementStatus.ALREADY


def opened_after_the_retry_had_looked(log: DeltaLog, source: Buffer) -> None:
    """Only what a retry of other work sees of earlier tries is set aside by it."""
    log.store.delete(f"{source.path}/{CLOSED}")


def test_what_an_older_try_of_other_work_merged_is_not_called_the_retrys(log: DeltaLog) -> None:
    wrong = source_of(log, {"2019-01": [40]}, fingerprint="wrong")
    right = source_of(log, {"2019-01": [50]}, fingerprint="corrected")
    opened_after_the_retry_had_looked(log, wrong)
    engine = MergeByHand(after=once(lambda: merged(through(log.store, log), MergeByHand(), wrong)))
    with pytest.raises(errors.RerunRefusedError, match=r"version 3\), from another source, code or mode"):
        merged(log, engine, right, retried=True)
    # It is so as well where it came before the retry began to merge.
    with pytest.raises(errors.RerunRefusedError, match=r"version 3\), from another source, code or mode"):
        merged(log, MergeByHand(), right, retried=True)
    assert sorted(months(log)) == [*range(1, 10), 40]


def test_a_retry_of_other_work_keeps_an_older_try_at_work_from_merging(log: DeltaLog) -> None:
    wrong = source_of(log, {"2019-01": [40]}, fingerprint="wrong")
    corrected = writer_spec("w", mode=wrong.spec.mode, fingerprint="corrected")
    begun = MergeByHand(after=once(lambda: prepare(through(log.store, log), corrected)))
    with pytest.raises(errors.BufferSetAsideError, match="its source, code or terms are others now"):
        merged(log, begun, wrong)
    assert sorted(months(log)) == [*range(1, 10)]


def test_a_reconciliation_does_not_keep_a_try_at_work_from_merging(log: DeltaLog) -> None:
    """Without a fingerprint, a retry stages beside an older try; which of them merges, only their own task knows."""
    source_of(log, UPSERT, fingerprint="")
    before, source = months(log), source_of(log, UPSERT, fingerprint="")
    committer = Committer(through(log.store, log))
    settled = once(lambda: reconcile(committer, source.spec.identity.load, ["w"]))
    assert merged(log, MergeByHand(after=settled), source).status == "done"
    assert months(log) == upserted(before, UPSERT)


def test_what_a_try_of_an_earlier_release_found_to_be_nothing_is_that_of_its_function(log: DeltaLog) -> None:
    first = source_of(log, {"2019-01": [1]}, mode=INSERTS, fingerprint="by the old rule")
    again = source_of(log, {"2019-01": [1]}, mode=INSERTS, fingerprint="by the rule of now", source="function")
    opened_after_the_retry_had_looked(log, first)
    assert merged(log, MergeByHand(), first, retried=True).status == "nothing_to_do"
    assert merged(log, MergeByHand(), again, retried=True).status == "nothing_to_do"


@pytest.mark.parametrize("source", [None, "sql", "function"])
def test_nothing_of_other_work_does_not_end_another_try(log: DeltaLog, source: str | None) -> None:
    wrong = source_of(log, {"2019-01": [1]}, mode=INSERTS, fingerprint="wrong", source=source)
    right = source_of(log, {"2019-01": [50]}, mode=INSERTS, fingerprint="corrected", source=source)
    opened_after_the_retry_had_looked(log, wrong)
    assert merged(log, MergeByHand(), wrong, retried=True).status == "nothing_to_do"
    with pytest.raises(errors.RerunRefusedError, match="from another source, code or mode"):
        merged(log, MergeByHand(), right, retried=True)
    cleared = attrs.evolve(right, spec=attrs.evolve(right.spec, generation=2))
    assert merged(log, MergeByHand(), cleared).rows_inserted == 1
    assert sorted(months(log)) == [*range(1, 10), 50]


def test_a_newer_generation_makes_zombies_and_a_skipping_one_is_not_done_twice(log: DeltaLog) -> None:
    first, second = source_of(log, UPSERT), source_of(log, UPSERT, generation=2)
    with pytest.raises(errors.ZombieWriterError, match="Nothing was changed"):
        merged(log, MergeByHand(after=once(lambda: merged(log, MergeByHand(), second))), first)
    third, fourth = (source_of(log, UPSERT, generation=n, on_rerun=OnRerun.REPLACE) for n in (3, 4))
    skipping = attrs.evolve(fourth, spec=attrs.evolve(fourth.spec, on_rerun=OnRerun.SKIP))
    with pytest.raises(errors.RerunRefusedError, match="change rows twice"):
        merged(log, MergeByHand(after=once(lambda: merged(log, MergeByHand(), third))), skipping)


@pytest.mark.parametrize("rows", [{"2019-01": [1]}, {}], ids=["all-there", "no-rows"])
def test_a_zombie_after_a_newer_generation_with_nothing_to_do(log: DeltaLog, rows: dict[str | None, list[int]]) -> None:
    wrong = source_of(log, {"2019-01": [1, 40]}, mode=INSERTS, fingerprint="wrong")
    told: list[Any] = []

    def cleared() -> None:
        fresh = through(log.store, log)
        right = source_of(fresh, rows, mode=INSERTS, fingerprint="corrected", generation=2)
        told.append(merged(fresh, MergeByHand(), right))
        reason = "merged, and no row of the table had to change"
        assert read_marker(log.store, right.path) == {"merged": True, "reason": reason}

    with pytest.raises(errors.ZombieWriterError, match=r"A newer start .*generation 2"):
        merged(log, MergeByHand(after=once(cleared)), wrong)
    assert (sorted(months(log)), told[0].status, told[0].version) == (list(range(1, 10)), "nothing_to_do", None)
    commit = commit_of(log, 3)
    assert (commit.operation, commit.data_change) == ("MERGE", False)
    assert commit.merger is not None
    assert (commit.merger.nothing, commit.merger.rows, commit.txns) == (True, 0, {wrong.spec.identity.app_id: 2})


def test_a_zombie_that_appends_publishes_nothing_after_a_merge_had_nothing_to_do(log: DeltaLog) -> None:
    old = stage(log, writer_spec("w"), {"2019-01": [40]})
    merged(log, MergeByHand(), source_of(log, {"2019-01": [1]}, mode=INSERTS, generation=2))
    with pytest.raises(errors.ZombieWriterError, match="Generation 2 of writer"):
        Committer(log).publish([old])
    for path in WriterDirectory.read(log.store, old.spec.identity.directory).claims.values():
        log.store.delete(path)
    # Where a vacuum has deleted the claims, nothing of it is staged either, and the next generation is above all.
    with pytest.raises(errors.ZombieWriterError, match="Generation 2 of writer"):
        prepare(log, writer_spec("w"))
    assert begin(log, old.spec.identity, start_of("w", "third")).generation == 3


def test_a_retry_that_had_nothing_to_do_keeps_an_older_try_from_merging(log: DeltaLog) -> None:
    source = source_of(log, {"2019-01": [1]}, mode=INSERTS)

    def retried() -> None:
        assert merged(through(log.store, log), MergeByHand(), source, retried=True).status == "nothing_to_do"
        delete(Transactions(log), "month = '2019-01'", asker("others"))

    done = merged(log, MergeByHand(after=once(retried)), source)
    assert (done.status, sorted(months(log))) == ("nothing_to_do", [7, 8, 9])


def test_a_merge_with_nothing_to_do_commits_nothing_where_no_older_one_is_at_work(log: DeltaLog) -> None:
    assert merged(log, MergeByHand(), source_of(log, {"2019-01": [1]}, mode=INSERTS)).status == "nothing_to_do"
    assert newest(log).version == 2
    # The generation before is in the table, so no older one can commit.
    assert merged(log, MergeByHand(), source_of(log, {"2019-01": [40]}, "x", mode=INSERTS)).version == 3
    cleared = source_of(log, {"2019-01": [40]}, "x", mode=INSERTS, generation=2)
    assert (merged(log, MergeByHand(), cleared).status, newest(log).version) == ("nothing_to_do", 3)


def test_a_clear_merges_again_unless_it_is_to_skip(log: DeltaLog) -> None:
    terms: dict[str, Any] = {"mode": Merge(keys="id"), "fingerprint": "same"}  # type: ignore[arg-type]
    merged(log, MergeByHand(), source_of(log, UPSERT, **terms))
    skipped = prepare(log, writer_spec("w", generation=2, on_rerun=OnRerun.SKIP, **terms))
    assert isinstance(skipped, Skip)
    assert skipped.version == 3
    assert not isinstance(prepare(log, writer_spec("w", generation=3, **terms)), Skip)


def test_a_source_is_never_appended_as_it_is(log: DeltaLog) -> None:
    with pytest.raises(errors.InvalidWriteError, match=r"source of a MERGE.*clear the writer"):
        Committer(log).publish([source_of(log, UPSERT)])


def test_another_table_at_the_same_place_is_left_alone(log: DeltaLog) -> None:
    source = source_of(log, UPSERT)
    change_metadata(log, id="another")
    with pytest.raises(errors.StatementRefusedError, match="replaced by another table"):
        merged(log, MergeByHand(), source)


_STEPS = st.sampled_from(["append", "key", "delete", "vector", "compact", "merge", "die", "lost", "none"])


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(_STEPS, st.integers(0, 2)), max_size=4),
    st.booleans(),
    st.sampled_from([Merge(keys="id"), DELETES, INSERTS]),  # type: ignore[arg-type]
)
def test_the_version_is_the_merge_on_the_version_before(
    tmp_path_factory: pytest.TempPathFactory, meanwhile: Any, vectors: bool, mode: Merge
) -> None:
    log = make_table(tmp_path_factory.mktemp("t"))
    foreign_append(log, {"m0": [0, 10], "m1": [11, 20]})
    foreign_append(log, {"m1": [21, 30], "m2": [31]})
    rows = {"m0": [10, 21, 100], "m2": [31, 101]}
    source = source_of(log, rows, mode=mode)
    keys = [row for each in rows.values() for row in each]
    fresh = iter(range(1000, 2000))

    def step(kind: str, which: int) -> None:
        files, there = live(log), months(log)
        if kind == "append":
            foreign_append(log, {f"m{which}": [50 + next(fresh), 5 + 10 * next(fresh)]})
        elif kind == "key" and (missing := [key for key in keys if key not in there]):
            foreign_append(log, {f"m{which}": [missing[which % len(missing)]]})
        elif kind == "delete":
            delete(Transactions(log), f"month = 'm{which}'", asker(f"step {next(fresh)}"))
        elif kind == "vector" and files:
            hide_more(log, files[which % len(files)], next(fresh) % 2)
        elif kind == "compact" and planned(log).groups:
            compact(log)
        elif kind == "merge":
            other = {"m1": [11, 100], "m0": [31]}
            merged(log, MergeByHand(not vectors), source_of(log, other, f"step {next(fresh)}"))
        elif kind == "die":
            raise KilledError

    steps = list(meanwhile)

    def after(_: object) -> None:
        if steps:
            step(*steps.pop(0))

    engine = MergeByHand(vectors, after=after)
    for _ in range(len(meanwhile) + 1):
        held = LoserHeld(log.store, *(lambda: after(None) for _ in range(2)))
        loses = bool(steps) and steps[0][0] == "lost"
        store = AnswerLost(held, 1, effect=bool(steps[0][1])) if loses else held
        try:
            done = merged(through(store, log), engine, source)
        except (KilledError, errors.StoreUnavailableError):
            continue
        break
    ours = [commit for commit in log.commits_since(-1) if source.spec.identity.app_id in commit.txns]
    there = months(log)
    if done.version is None:
        assert ours == []
        # As many rows of the source match as before: all for a MERGE that inserts, none for one that deletes.
        assert not {*keys} & {*there} if mode is DELETES else {*keys} <= {*there}
        return
    (commit,) = ours
    assert done.version == commit.version
    before, now = months(log, commit.version - 1), months(log, commit.version)
    if mode is DELETES:
        assert now == {row: month for row, month in before.items() if row not in keys}
    elif mode is INSERTS:
        assert now == {**upserted({}, rows), **before}
    else:
        assert now == upserted(before, rows)


@BOTH
def test_a_restore_that_left_a_merge_alone_does_not_make_a_retry_of_it_red(log: DeltaLog, vectors: bool) -> None:
    source = source_of(log, {"2019-01": [3]}, mode=DELETES)
    version = merged(log, MergeByHand(vectors), source).version
    assert version is not None
    foreign_append(log, {"x": [500]})
    restore(Transactions(log), version, newest(log), asker("a person"), on_newer_commit=OnNewerCommit.FAIL)
    assert merged(log, MergeByHand(vectors), source).status is StatementStatus.ALREADY
