"""What holds of every batch, whatever is staged and whoever was first."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import attrs
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from airflow_provider_onelake.buffers.buffer import Buffer
from airflow_provider_onelake.buffers.identity import Load
from airflow_provider_onelake.buffers.spec import WriteSpec
from airflow_provider_onelake.choices import Policy
from airflow_provider_onelake.exceptions import ConflictError
from airflow_provider_onelake.log.actions import Action
from airflow_provider_onelake.log.commits import Commit
from airflow_provider_onelake.log.partitions import Partitioning
from airflow_provider_onelake.log.replay import LiveFiles
from airflow_provider_onelake.log.snapshot import Snapshot
from airflow_provider_onelake.log.values import Partition
from airflow_provider_onelake.modes import Append, Mode, Overwrite, OverwritePartitions, ReplaceWhere
from airflow_provider_onelake.writes.batch import Batch, place
from airflow_provider_onelake.writes.conflicts import conflicts_of
from airflow_provider_onelake.writes.entry import build_entry
from airflow_provider_onelake.writes.policy import Contest, Settled, settle
from tests.support.schemas import field, struct

# A busy machine is no bug, and a failure must come again.
steady = settings(deadline=None, derandomize=True)

NOON = datetime(2019, 1, 1, 12, tzinfo=UTC)
SCHEMA = json.dumps(struct(field("id", "long"), field("p", "integer")))
METADATA = {"id": "t", "schemaString": SCHEMA, "partitionColumns": ["p"], "configuration": {}}
SNAPSHOT = Snapshot(9, {"minReaderVersion": 1, "minWriterVersion": 2}, METADATA, {})
PARTITIONING = SNAPSHOT.partitioning

texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(str.strip)
instants = st.datetimes(timezones=st.just(UTC))
# An integer has more than one spelling, and NULL has two.
spellings = st.sampled_from(["0", "-0", "1", "01", "+1", "2", None, ""])
minutes = st.integers(-5, 5).map(lambda m: NOON + timedelta(minutes=m))


def add(path: str, spelling: str | None, **more: Any) -> dict[str, Any]:
    stats = '{"numRecords":1}'
    return {"path": path, "partitionValues": {"p": spelling}, "size": 1, "dataChange": True, "stats": stats, **more}


def buffer(key: str, mode: Mode, files: list[str | None], finished: datetime) -> Buffer:
    spec = WriteSpec(identity=Load("n", "d", "g", "r").writer(key), attempt=f"a-{key}", mode=mode)
    adds = tuple(add(f"{n}.parquet", spelling) for n, spelling in enumerate(files))
    return Buffer(spec.buffer, spec, 0, "t", METADATA, adds, finished, NOON)


@st.composite
def buffers(draw: st.DrawFn, modes: st.SearchStrategy[Mode]) -> list[Buffer]:
    mode, count = draw(modes), draw(st.integers(1, 3))
    return [buffer(f"w{n}", mode, draw(st.lists(spellings, max_size=4)), draw(minutes)) for n in range(count)]


DYNAMIC = {"mode": "Overwrite", "isDynamicPartitionOverwrite": "true"}
KINDS: dict[str, dict[str, Any]] = {
    "append": {"operation": "WRITE", "operationParameters": {"mode": "Append"}, "isBlindAppend": True},
    "insert from a query": {"operation": "WRITE", "operationParameters": {"mode": "Append"}, "isBlindAppend": False},
    "overwrite": {"operation": "WRITE", "operationParameters": DYNAMIC, "isBlindAppend": False},
    "truncate": {"operation": "TRUNCATE"},
    "update": {"operation": "UPDATE"},
    "compaction": {"operation": "OPTIMIZE"},
    "unknown": {},
}


@st.composite
def logs(draw: st.DrawFn) -> list[Commit]:
    """Winners that append, replace, change and compact files of one small table, one after another."""
    live: dict[str, dict[str, Any]] = {}
    commits = []
    for version in range(1, draw(st.integers(1, 5)) + 1):
        kind = draw(st.sampled_from(sorted(KINDS)))
        change = kind != "compaction"
        places = draw(st.lists(spellings, max_size=3)) if kind != "truncate" else []
        added = [add(f"{version}-{n}", spelling, dataChange=change) for n, spelling in enumerate(places)]
        match kind:
            case "append" | "insert from a query":
                gone = []
            case "overwrite":
                into = {partition_of(file) for file in added}
                gone = [path for path, file in live.items() if partition_of(file) in into]
            case "truncate":
                gone = list(live)
            case _:
                gone = draw(st.lists(st.sampled_from(sorted(live)), unique=True)) if live else []
        actions: list[Action] = [{"commitInfo": KINDS[kind]}, *({"add": file} for file in added)]
        actions += [{"remove": {**live.pop(path), "dataChange": change}} for path in gone]
        live.update({file["path"]: file for file in added})
        commits.append(Commit(version, actions, modified=draw(st.none() | minutes)))
    return commits


def partition_of(file: dict[str, Any]) -> Partition:
    return PARTITIONING.partition(file["partitionValues"])


def live_after(commits: list[Commit], wanted: Callable[[Any], bool] = lambda _: True) -> list[dict[str, Any]]:
    files = LiveFiles(wanted)
    for commit in commits:
        files.apply(commit)
    return list(files)


def decide(
    batch: Batch, winners: list[Commit], policy: Policy = Policy.LAST_WRITER_WINS
) -> tuple[Settled, list[dict[str, Any]], list[Any]]:
    """Decide on a batch; an example in which it is refused, so that nothing is put, is passed over."""
    removable = live_after(winners, lambda file: batch.replaces(PARTITIONING.partition(file["partitionValues"])))
    conflicts = conflicts_of(batch, winners, PARTITIONING)
    try:
        settled = settle(Contest(batch, conflicts, winners, removable, PARTITIONING, True, "t"), policy)
    except ConflictError:
        reject()
    removed = [] if settled.left_out else removable
    return settled, removed, build_entry(batch, SNAPSHOT, removed, settled, NOON).entry.on(SNAPSHOT, "x", NOON)


def paths(entry: list[Any], kind: str) -> list[str]:
    return [action[kind]["path"] for action in entry if kind in action]


overwrites = st.sampled_from([Overwrite(), OverwritePartitions(), ReplaceWhere("p IN (0, 1)")])
settling = st.sampled_from([Policy.LAST_WRITER_WINS, Policy.FIRST_WRITER_WINS])


@steady
@given(buffers(st.just(Append())), logs())
def test_an_append_is_the_same_on_every_snapshot(staged: list[Buffer], winners: list[Commit]) -> None:
    batch = place(staged, SNAPSHOT)
    _, _, there = decide(batch, winners, Policy.FAIL)
    _, _, alone = decide(batch, [])
    assert there == alone
    assert paths(there, "remove") == []


@steady
@given(buffers(overwrites), logs(), settling)
def test_a_write_is_done_whole_or_not_at_all(staged: list[Buffer], winners: list[Commit], policy: Policy) -> None:
    batch = place(staged, SNAPSHOT)
    settled, removed, entry = decide(batch, winners, policy)
    before = {file["path"]: partition_of(file) for file in live_after(winners)}
    after = {file["path"] for file in live_after([*winners, Commit(len(winners) + 1, entry)])}
    if settled.left_out:
        assert (after, removed) == (set(before), [])
        return
    staged_files = ((placed, file) for placed in batch.placed for files in placed.inside.values() for file in files)
    inside = {f"{placed.buffer.path}/{file['path']}" for placed, file in staged_files}
    assert after == inside | {path for path, where in before.items() if not batch.replaces(where)}
    assert len(set(paths(entry, "remove"))) == len(paths(entry, "remove"))


@steady
@given(buffers(overwrites), logs())
def test_what_is_superseded_was_replaced_by_later_writes(staged: list[Buffer], winners: list[Commit]) -> None:
    batch = place(staged, SNAPSHOT)
    settled, _, _ = decide(batch, winners)
    if not settled.left_out:
        return
    later = [winner for winner in winners if (winner.landed or datetime.max.replace(tzinfo=UTC)) > batch.finished[0]]
    overwrites = (winner for winner in later if winner.parameters.get("mode") == "Overwrite")
    overwritten = {partition_of(file) for winner in overwrites for file in winner.adds}
    truncated = any(winner.operation == "TRUNCATE" for winner in later)
    assert truncated or {partition for placed in batch.placed for partition in placed.inside} <= overwritten


@steady
@given(buffers(overwrites), logs())
def test_where_the_first_writer_wins_no_row_goes_that_came_since(staged: list[Buffer], winners: list[Commit]) -> None:
    _, removed, _ = decide(place(staged, SNAPSHOT), winners, Policy.FIRST_WRITER_WINS)
    assert all(file["dataChange"] is False for file in removed)


@steady
@given(buffers(overwrites), logs())
def test_compaction_alone_is_never_a_conflict(staged: list[Buffer], winners: list[Commit]) -> None:
    def quiet(winner: Commit) -> Commit:
        added: list[Any] = [{"add": {**file, "dataChange": False}} for file in winner.adds]
        removed: list[Any] = [{"remove": {**file, "dataChange": False}} for file in winner.removes]
        return Commit(winner.version, [{"commitInfo": {"operation": "OPTIMIZE"}}, *added, *removed])

    assert not conflicts_of(place(staged, SNAPSHOT), list(map(quiet, winners)), PARTITIONING)


@steady
@given(buffers(overwrites), logs(), settling, st.randoms(use_true_random=False))
def test_spelling_decides_nothing(staged: list[Buffer], winners: list[Commit], policy: Policy, random: Any) -> None:
    def respelled(file: dict[str, Any]) -> dict[str, Any]:
        groups = (("0", "-0"), ("1", "01", "+1"), ("2",), (None, ""))
        same = next(group for group in groups if file["partitionValues"]["p"] in group)
        return {**file, "partitionValues": {"p": random.choice(same)}}

    def of(action: Any) -> Any:
        return {kind: respelled(body) if kind in ("add", "remove") else body for kind, body in action.items()}

    others = [attrs.evolve(commit, actions=list(map(of, commit.actions))) for commit in winners]
    anew = [attrs.evolve(b, adds=tuple(respelled(file) for file in b.adds)) for b in staged]
    one, _, entry = decide(place(staged, SNAPSHOT), winners, policy)
    two, _, other = decide(place(anew, SNAPSHOT), others, policy)
    assert one.left_out == two.left_out
    assert sorted(paths(entry, "add")) == sorted(paths(other, "add"))
    assert sorted(paths(entry, "remove")) == sorted(paths(other, "remove"))


@steady
@given(instants, st.integers(-14, 14))
def test_an_instant_is_one_partition_in_every_time_zone(instant: datetime, hours: int) -> None:
    daily = Partitioning({"at": "timestamp"})
    elsewhere = instant.astimezone(timezone(timedelta(hours=hours)))
    ways = [instant.isoformat(), elsewhere.isoformat(sep=" "), instant.isoformat().replace("+00:00", "Z")]
    assert len({daily.partition({"at": spelling}) for spelling in ways}) == 1
    assert not daily.ambiguous(daily.partition({"at": ways[0]}))


@steady
@given(st.builds(Load, texts, texts, texts, texts), texts, st.builds(Load, texts, texts, texts, texts), texts)
def test_different_writers_have_different_names_and_directories(one: Load, a: str, two: Load, b: str) -> None:
    first, second = one.writer(a), two.writer(b)
    assert (first == second) == (first.app_id == second.app_id) == (first.directory == second.directory)
