"""Others at the table: engines that know nothing of us, VACUUM, checkpoints, and people."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import attrs

from airflow_provider_onelake.exceptions import OneLakeError
from airflow_provider_onelake.log.actions import dump_actions, version_path
from airflow_provider_onelake.staging.buffers import close, closed
from tests.simulation.checkpoint import checkpoint
from tests.simulation.scenario import ForeignPlan
from tests.simulation.store import parsed
from tests.simulation.table import State, altered, data_columns, high_water_mark, new_vector, spelling_of, vector_id

if TYPE_CHECKING:
    from tests.simulation.actors import Deployment

DAY = 86_400 * 1_000_000
WEEK = 7 * DAY
Actions = list[dict[str, Any]]


def foreign(deployment: Deployment, plan: ForeignPlan) -> None:
    """A commit of another engine: it decides on a snapshot, and again where it was overtaken.

    :param deployment: whose table it is.
    :param plan: what it does.
    """
    store, world = deployment.store, deployment.world
    for _ in range(100):
        if store.version() < 0:
            world.sleep(1)
    if store.version() < 0:
        return
    if plan.kind == "swap column":
        # Two statements of a person, one after the other.
        for kind in ("drop column", "add again"):
            _commit(deployment, attrs.evolve(plan, kind=kind))
        return
    _commit(deployment, plan)
    if plan.compacts and plan.kind == "append":
        _commit(deployment, attrs.evolve(plan, kind="compact"))


def _commit(deployment: Deployment, plan: ForeignPlan) -> None:
    world, store = deployment.world, deployment.store
    new: list[dict[str, Any]] = []
    if plan.kind in ("append", "overwrite"):
        metadata = State.of(store).metadata
        spelling = deployment.scenario.column.spell(plan.partition, world.random)
        rows = [(f"{world.actor.name}/{i}", data_columns(metadata)) for i in range(2)]
        new = [deployment.file(plan.partition, rows, prefix="", spelling=spelling, metadata=metadata)]
        definition = metadata
    while True:
        state = State.of(store)
        if new and state.metadata != definition:
            # The engine finds that the table is another by now, and gives up.
            return
        info: dict[str, Any] = {"operation": "WRITE", "isBlindAppend": plan.kind == "append" and plan.blind}
        info["operationParameters"] = {"mode": "Overwrite" if plan.kind == "overwrite" else "Append"}
        decided = _decide(deployment, plan, state, info, new)
        if decided is None:
            return
        now = int(world.now().timestamp() * 1000)
        info["timestamp"] = now
        if not plan.silent or plan.kind not in ("append", "overwrite", "delete") or state.stamped:
            decided.insert(0, {"commitInfo": info})
        state.stamp_foreign(decided, now + int(plan.ahead * 1000))
        world.sleep(plan.thinks)
        try:
            store.create(version_path(state.version + 1), dump_actions(decided))
        except OneLakeError:
            plan = attrs.evolve(plan, thinks=plan.thinks / 2)
            continue
        world.counters[f"foreign: {plan.kind}"] += 1
        return


def _decide(
    deployment: Deployment, plan: ForeignPlan, state: State, info: dict[str, Any], new: list[dict[str, Any]]
) -> Actions | None:
    """Return the actions of a commit, without its ``commitInfo``; ``None`` for nothing to do."""
    random, column = deployment.world.random, deployment.scenario.column
    mine = [add for add in state.live.values() if column.read(spelling_of(add)) == plan.partition]
    if plan.kind == "append":
        return [{"add": dict(add)} for add in new]
    if plan.kind == "overwrite":
        return [*({"add": dict(add)} for add in new), *({"remove": removed(add, change=True)} for add in mine)]
    if plan.kind == "delete":
        return [{"remove": removed(add, change=True)} for add in mine] or None
    if plan.kind == "erase":
        return _erase(deployment, mine, info)
    if plan.kind == "update":
        info["operation"] = "UPDATE"
        if not mine:
            return None
        old = random.choice(mine)
        return [{"remove": removed(old, change=True)}, {"add": _anew(deployment, plan, state, [old])}]
    if plan.kind == "restore":
        return _restore(deployment, state, info)
    if plan.kind == "compact":
        info["operation"] = "OPTIMIZE"
        if len(mine) < 2:
            return None
        chosen = mine if random.random() < 0.6 else random.sample(mine, 2)
        merged = {**_anew(deployment, plan, state, chosen), "dataChange": False}
        return [*({"remove": removed(old, change=False)} for old in chosen), {"add": merged}]
    deployment.columns += 1
    metadata = altered(state.metadata, plan.kind, deployment.columns)
    info["operation"] = "ALTER TABLE"
    return None if metadata is None else [{"metaData": metadata}]


def _anew(deployment: Deployment, plan: ForeignPlan, state: State, files: list[dict[str, Any]]) -> dict[str, Any]:
    """Write the rows of some files into a new one, and return its ``add``."""
    columns = set(data_columns(state.metadata))
    rows = [(n, tuple(c for c in had if c in columns)) for add in files for n, had in deployment.rows_of(add)]
    return deployment.file(plan.partition, rows, prefix="", spelling=spelling_of(files[0]), metadata=state.metadata)


def _erase(deployment: Deployment, mine: list[dict[str, Any]], info: dict[str, Any]) -> Actions | None:
    """DELETE one row of a file by a deletion vector."""
    store, random = deployment.store, deployment.world.random
    info["operation"] = "DELETE"
    with_rows = [add for add in mine if len(deployment.rows_of(add)) > 1]
    if not with_rows:
        return None
    add = random.choice(with_rows)
    hidden = deployment.hidden(add)
    count = json.loads(add["stats"])["numRecords"]
    gone = random.choice([at for at in range(count) if at not in hidden])
    deployment.vectors += 1
    vector = new_vector(store, deployment.vectors, hidden | {gone}, random.choice(("", "ab")))
    left = {**add, "deletionVector": vector, "dataChange": True}
    return [{"remove": removed(add, change=True)}, {"add": left}]


def _restore(deployment: Deployment, state: State, info: dict[str, Any]) -> Actions | None:
    """RESTORE TABLE to an earlier version: it takes back files and columns, but no txn."""
    store, random = deployment.store, deployment.world.random
    info["operation"] = "RESTORE"
    if state.version < 2:
        return None
    before = State.of(store, random.randrange(max(1, state.version - 4), state.version))
    now = {(path, vector_id(add)) for path, add in state.live.items()}
    then = {(path, vector_id(add)) for path, add in before.live.items()}
    actions: Actions = [{"remove": removed(state.live[p], change=True)} for p, v in sorted(now - then, key=str)]
    actions += [{"add": {**before.live[p], "dataChange": True}} for p, v in sorted(then - now, key=str)]
    if before.metadata != state.metadata:
        actions.insert(0, {"metaData": before.metadata})
    return actions or None


def vacuum(deployment: Deployment) -> None:
    """VACUUM lists first, and deletes later."""
    world, store = deployment.world, deployment.store
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


def write_checkpoint(deployment: Deployment) -> None:
    """An engine writes a checkpoint, and cleans up the log behind it."""
    world, store = deployment.world, deployment.store
    state = State.of(store)
    if state.version < 0:
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
        if closed(store, path) is None:
            close(store, path, {"reason": "a person does not want it"})
            world.counters["buffers closed by hand"] += 1


def removed(add: dict[str, Any], *, change: bool) -> dict[str, Any]:
    """Return the ``remove`` of a live file."""
    kept = ("path", "partitionValues", "size", "deletionVector", "baseRowId", "defaultRowCommitVersion")
    return {**{k: add[k] for k in kept if k in add}, "deletionTimestamp": 1, "dataChange": change}
