"""Others at the table: engines that know nothing of us, VACUUM, checkpoints, and people."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import attrs

from airflow_provider_onelake.buffers.markers import read_marker, write_marker
from airflow_provider_onelake.exceptions import OneLakeError
from airflow_provider_onelake.log.actions import dump_actions, version_path
from tests.simulation.checkpoint import checkpoint
from tests.simulation.scenario import NULL, PARTITIONS, ForeignPlan
from tests.simulation.store import parsed
from tests.simulation.table import (
    PART,
    State,
    altered,
    data_columns,
    high_water_mark,
    new_vectors,
    partition_name,
    spelling_of,
    vector_id,
)
from tests.support.log_order import Row, Write

if TYPE_CHECKING:
    from tests.simulation.actors import Deployment
    from tests.simulation.lake import Lake

_WITH_ROWS = ("append", "overwrite", "overwrite dynamic", "overwrite all", "replace")
_MAY_BE_SILENT = ("append", "overwrite", "delete")
DAY = 86_400 * 1_000_000
WEEK = 7 * DAY
Actions = list[dict[str, Any]]


@attrs.frozen
class ForeignWrite:
    """What a commit of somebody else's does to rows, as the judge is told.

    :param says: the partitions of which its log entry says that it replaced whatever was there.
    :param restores: the version whose rows it brings back.
    """

    write: Write
    says: frozenset[int] = frozenset()
    restores: int | None = None


@attrs.define
class _Draft:
    """A commit that somebody else thinks of.

    :param actions: without its ``commitInfo``.
    """

    task_start: ForeignWrite
    operation: str
    actions: Actions
    parameters: dict[str, str] = attrs.field(factory=dict)


def foreign(lake: Lake, plan: ForeignPlan) -> None:
    """A commit of another engine: it decides on a snapshot, and again where it was overtaken."""
    store, world = lake.store, lake.world
    for _ in range(100):
        if store.version() < 0:
            world.sleep(1)
    if store.version() < 0:
        return
    if plan.kind == "remake":
        _make_again(lake, plan)
        return
    if plan.kind == "swap column":
        # Two statements of a person, one after the other.
        for kind in ("drop column", "add again"):
            _commit(lake, attrs.evolve(plan, kind=kind))
        return
    _commit(lake, plan)
    if plan.compacts and plan.kind == "append":
        _commit(lake, attrs.evolve(plan, kind="compact"))


def _commit(lake: Lake, plan: ForeignPlan) -> None:
    world, store = lake.world, lake.store
    new: list[dict[str, Any]] = []
    if plan.kind in _WITH_ROWS:
        metadata = State.of(store).metadata
        if not metadata:
            return
        new = [_new_file(lake, partition, metadata) for partition in lake.spread(plan)]
        definition = metadata
    while True:
        epoch = lake.epoch
        state = State.of(store)
        if not state.metadata or (new and state.metadata != definition):
            # The engine finds that the table is another by now, and gives up.
            return
        draft = _decide(lake, plan, state, new)
        if draft is None:
            return
        info: dict[str, Any] = {"operation": draft.operation, "operationParameters": draft.parameters}
        if plan.blind is not None:
            info["isBlindAppend"] = plan.kind == "append" and plan.blind
        task_start, actions = draft.task_start, [_hidden(plan, action) for action in draft.actions]
        now = int(world.now().timestamp() * 1000)
        info["timestamp"] = now
        if not plan.silent or plan.kind not in _MAY_BE_SILENT or state.stamped:
            actions.insert(0, {"commitInfo": info})
        else:
            task_start = attrs.evolve(task_start, says=frozenset())
        state.stamp_foreign(actions, now + int(plan.ahead * 1000))
        world.sleep(plan.thinks)
        if epoch != lake.epoch:
            # Others are no better than we are; what they do to another table is their own.
            continue
        # A drop waits for an entry that is on its way: else the log of no table would begin with it.
        try:
            with lake.uninterrupted():
                store.create(version_path(state.version + 1), dump_actions(actions))
        except OneLakeError:
            plan = attrs.evolve(plan, thinks=plan.thinks / 2)
            continue
        lake.foreign_writes[state.version + 1] = task_start
        world.counters[f"foreign: {plan.kind}"] += 1
        return


def _new_file(lake: Lake, partition: int, metadata: dict[str, Any]) -> dict[str, Any]:
    spelling = lake.column.spell(partition, lake.world.random)
    rows = [(name, data_columns(metadata)) for name in lake.new_rows(2)]
    return lake.file(partition, rows, prefix="", spelling=spelling, metadata=metadata)


def _hidden(plan: ForeignPlan, action: dict[str, Any]) -> dict[str, Any]:
    """A ``remove`` may leave out what partition its file was of."""
    if plan.hides is None or "remove" not in action:
        return action
    remove = {k: v for k, v in action["remove"].items() if k != "partitionValues"}
    told: dict[str, dict[str, Any]] = {
        "absent": {},
        "null": {"partitionValues": None},
        "empty": {"partitionValues": {}},
    }
    return {"remove": {**remove, **told[plan.hides]}}


def _decide(lake: Lake, plan: ForeignPlan, state: State, new: list[dict[str, Any]]) -> _Draft | None:
    """Return a commit; ``None`` for nothing to do."""
    random, column = lake.world.random, lake.column
    everything = list(state.live.values())
    mine = [add for add in everything if column.read(spelling_of(add)) == plan.partition]
    adds: Actions = [{"add": dict(add)} for add in new]
    rows = [name for add in new for name, _ in lake.rows_of(add)]
    puts = _in(plan.partition, rows)
    whole, here = frozenset(PARTITIONS), frozenset({plan.partition})
    if plan.kind == "append":
        return _Draft(ForeignWrite(Write(puts=puts)), "WRITE", adds, {"mode": "Append"})
    if plan.kind == "overwrite":
        predicate = column.predicate((plan.partition,))
        if partition_name(state.metadata) != PART:
            predicate = predicate.replace(PART, partition_name(state.metadata))
        # The log does not say in which zone a session takes times without one.
        says = frozenset[int]() if column.type == "timestamp" and plan.partition != NULL else here
        return _Draft(
            ForeignWrite(Write(here, puts=puts), says),
            "WRITE",
            [*adds, *_removes(mine)],
            {"mode": "Overwrite", "predicate": predicate},
        )
    if plan.kind == "overwrite dynamic":
        parameters = {"mode": "Overwrite", "isDynamicPartitionOverwrite": "true"}
        return _Draft(ForeignWrite(Write(here, puts=puts), here), "WRITE", [*adds, *_removes(mine)], parameters)
    if plan.kind == "overwrite all":
        # Not every engine says whether it was a dynamic overwrite, which empties no other partition.
        parameters = {"mode": "Overwrite", **({} if plan.blind is None else {"isDynamicPartitionOverwrite": "false"})}
        says = here if plan.blind is None else whole
        return _Draft(ForeignWrite(Write(whole, puts=puts), says), "WRITE", [*adds, *_removes(everything)], parameters)
    if plan.kind == "truncate":
        return _Draft(ForeignWrite(Write(whole), whole), "TRUNCATE", _removes(everything)) if everything else None
    if plan.kind == "replace":
        metadata = {**state.metadata, "id": f"replaced-{state.version}"}
        actions = [{"metaData": metadata}, *adds, *_removes(everything)]
        return _Draft(ForeignWrite(Write(whole, puts=puts), whole), "CREATE OR REPLACE TABLE AS SELECT", actions)
    if plan.kind == "delete":
        # Its predicate is on the partition column, so that it would take whatever is there.
        return _Draft(ForeignWrite(Write(here)), "DELETE", _removes(mine)) if mine else None
    if plan.kind == "erase":
        return _erase(lake, mine)
    if plan.kind in ("update", "trim") and mine:
        return _rewrite(lake, plan, state, random.choice(mine))
    if plan.kind == "restore":
        return _restore(lake, state)
    if plan.kind == "compact":
        if len(mine) < 2:
            return None
        chosen = mine if random.random() < 0.6 else random.sample(mine, 2)
        merged = {**_anew(lake, plan, state, chosen), "dataChange": False}
        return _Draft(ForeignWrite(Write()), "OPTIMIZE", [*_removes(chosen, change=False), {"add": merged}])
    if plan.kind in ("update", "trim"):
        return None
    lake.columns += 1
    altered_to = altered(state.metadata, plan.kind, lake.columns)
    return None if altered_to is None else _Draft(ForeignWrite(Write()), "ALTER TABLE", [{"metaData": altered_to}])


def _in(partition: int, names: Iterable[str]) -> frozenset[Row]:
    return frozenset((partition, name) for name in names)


def _renamed(names: Mapping[str, str | None]) -> Callable[[Row], Row | None]:
    """Return what gives rows other names wherever they are, and deletes those whose other name is ``None``."""

    def renamed(row: Row) -> Row | None:
        name = names.get(row[1], row[1])
        return None if name is None else (row[0], name)

    return renamed


def _removes(files: Iterable[dict[str, Any]], *, change: bool = True) -> Actions:
    return [{"remove": removed(add, change=change)} for add in files]


def _rewrite(lake: Lake, plan: ForeignPlan, state: State, old: dict[str, Any]) -> _Draft:
    """UPDATE the rows of a file, or DELETE one of them, by writing the file anew."""
    rows = [name for name, _ in lake.rows_of(old)]
    if plan.kind == "update":
        lake.changes += 1
        names = {row: lake.changed_row(row) for row in rows}
        add = _anew(lake, plan, state, [old], names)
        return _Draft(ForeignWrite(Write(changes=_renamed(names))), "UPDATE", [*_removes([old]), {"add": add}])
    gone = lake.world.random.choice(rows)
    left: Actions = []
    if any(row != gone for row in rows):
        left = [{"add": _anew(lake, plan, state, [old], {row: row for row in rows if row != gone})}]
    return _Draft(ForeignWrite(Write(changes=_renamed({gone: None}))), "DELETE", [*_removes([old]), *left])


def _anew(
    lake: Lake,
    plan: ForeignPlan,
    state: State,
    files: list[dict[str, Any]],
    names: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Write rows of some files into a new one, and return its ``add``.

    :param names: what the rows are called from then on; those without a name are left out. Default: all, as before.
    """
    columns = set(data_columns(state.metadata))
    rows = [
        (names[n] if names is not None else n, tuple(c for c in had if c in columns))
        for add in files
        for n, had in lake.rows_of(add)
        if names is None or n in names
    ]
    return lake.file(plan.partition, rows, prefix="", spelling=spelling_of(files[0]), metadata=state.metadata)


def _make_again(lake: Lake, plan: ForeignPlan) -> None:
    """Drop the table, and make another in its place; sometimes somebody else is faster in making it."""
    world, store = lake.world, lake.store
    world.sleep(plan.thinks)
    for _ in range(100):
        if not lake.busy and not store.in_the_net:
            break
        world.sleep(1)
    else:
        return
    newest = store.version()
    if newest < 0:
        return
    world.note("drop", "", f"the table of {newest + 1} versions")
    lake.before_remake()
    lake.foreign_writes.clear()
    store.forget_log()
    if not plan.silent:
        _make(lake, plan, world.random.choice((0, newest, newest + 1)))
        world.counters["foreign: remake"] += 1


def _make(lake: Lake, plan: ForeignPlan, appends: int) -> None:
    """Make a table at once, with some versions."""
    world, store = lake.world, lake.store
    now = int(world.now().timestamp() * 1000)
    column, table = lake.column, lake.table
    made = table.version_0(column.type, now, f"made-again-{lake.epoch}")
    store.put_at_once(version_path(0), dump_actions(made))
    for version in range(1, appends + 1):
        state = State.of(store)
        spelling = column.spell(plan.partition, world.random)
        rows = [(f"{world.actor.name}/{version}", data_columns(state.metadata))]
        add = lake.file(plan.partition, rows, prefix="", spelling=spelling, metadata=state.metadata, at_once=True)
        info = {"operation": "WRITE", "operationParameters": {"mode": "Append"}, "timestamp": now}
        actions: Actions = [{"commitInfo": info}, {"add": add}]
        state.stamp_foreign(actions, now)
        store.put_at_once(version_path(version), dump_actions(actions))
        lake.foreign_writes[version] = ForeignWrite(Write(puts=_in(plan.partition, [rows[0][0]])))


def _erase(lake: Lake, mine: list[dict[str, Any]]) -> _Draft | None:
    """DELETE one row of a file by a deletion vector."""
    store, random = lake.store, lake.world.random
    with_rows = [add for add in mine if len(lake.rows_of(add)) > 1]
    if not with_rows:
        return None
    add = random.choice(with_rows)
    hidden = lake.hidden(add)
    count = json.loads(add["stats"])["numRecords"]
    gone = random.choice([at for at in range(count) if at not in hidden])
    lake.vectors += 1
    before = [name for name, _ in lake.rows_of(add)]
    (vector,) = new_vectors(store, lake.vectors, [hidden | {gone}], random.choice(("", "ab")))
    left = {**add, "deletionVector": vector, "dataChange": True}
    deleted = dict.fromkeys({*before} - {name for name, _ in lake.rows_of(left)})
    return _Draft(ForeignWrite(Write(changes=_renamed(deleted))), "DELETE", [*_removes([add]), {"add": left}])


def _restore(lake: Lake, state: State) -> _Draft | None:
    """RESTORE TABLE to an earlier version: it takes back files and columns, but no txn."""
    store, random = lake.store, lake.world.random
    if state.version < 2:
        return None
    to = random.randrange(max(1, state.version - 4), state.version)
    before = State.of(store, to)
    now = {(path, vector_id(add)) for path, add in state.live.items()}
    then = {(path, vector_id(add)) for path, add in before.live.items()}
    actions = _removes(state.live[p] for p, v in sorted(now - then, key=str))
    actions += [{"add": {**before.live[p], "dataChange": True}} for p, v in sorted(then - now, key=str)]
    if before.metadata != state.metadata:
        actions.insert(0, {"metaData": before.metadata})
    return _Draft(ForeignWrite(Write(), restores=to), "RESTORE", actions, {"version": str(to)}) if actions else None


def vacuum(lake: Lake) -> None:
    """VACUUM lists first, and deletes later."""
    world, store = lake.world, lake.store
    spared = set(State.of(store).live)
    for entry in store.entries.values():
        for action in parsed(entry.data):
            if "remove" in action and world.microseconds - entry.modified < WEEK:
                spared.add(action["remove"]["path"])
    listed = [
        path
        for path, stored in sorted(store.objects.items())
        if path.endswith(".parquet")
        and "_delta_log/" not in path
        and world.microseconds - stored.modified > WEEK
        and quote(path, safe="/=-._") not in spared
    ]
    world.note("VACUUM", "", f"has listed {len(listed)} files")
    world.sleep(world.random.uniform(0, 130_000))
    for path in listed:
        store.delete(path)
        world.counters["files deleted by VACUUM"] += 1


def write_checkpoint(lake: Lake) -> None:
    """An engine writes a checkpoint, and cleans up the log behind it."""
    world, store = lake.world, lake.store
    state = State.of(store)
    if not state.metadata:
        return
    actions: Actions = [{"protocol": state.protocol}, {"metaData": state.metadata}]
    actions += [{"txn": txn} for txn in state.txns.values()]
    if state.mark >= 0:
        actions.append({"domainMetadata": high_water_mark(state.mark)})
    actions += [{"add": {**add, "dataChange": False}} for add in state.live.values()]
    store.put(f"_delta_log/{state.version:020d}.checkpoint.parquet", checkpoint(actions))
    store.put("_delta_log/_last_checkpoint", json.dumps({"version": state.version, "size": len(actions)}).encode())
    old = [v for v, e in sorted(store.entries.items()) if v < state.version and world.microseconds - e.modified > DAY]
    for v in old:
        store.delete(version_path(v))
    world.counters["checkpoints"] += 1
    world.counters["log entries cleaned up"] += len(old)


def set_aside(deployment: Deployment) -> None:
    """A person closes a complete buffer by hand."""
    store, world = deployment.store, deployment.world
    waiting = [path for path in deployment.staged if store.peek(f"{path}/{version_path(1)}")]
    if waiting:
        path = world.random.choice(sorted(waiting))
        if read_marker(store, path) is None:
            write_marker(store, path, {"reason": "a person does not want it"})
            world.counters["buffers closed by hand"] += 1


def removed(add: dict[str, Any], *, change: bool) -> dict[str, Any]:
    """Return the ``remove`` of a live file."""
    kept = ("path", "partitionValues", "size", "deletionVector", "baseRowId", "defaultRowCommitVersion")
    return {**{k: add[k] for k in kept if k in add}, "deletionTimestamp": 1, "dataChange": change}
