"""The structure of every version of the log: what no entry may do, whoever wins.

It replays the raw JSON by itself, knows which rows every file holds, and shares no code with what it judges. Which writes
are seen is judged in :mod:`tests.simulation.whole`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any
from urllib.parse import unquote

import attrs

from airflow_provider_onelake.choices import OnMissingWriter, OnRerun, OnUnexpectedRows, PublishMode
from airflow_provider_onelake.modes import Append, Overwrite, OverwritePartitions, ReplaceWhere
from tests.simulation.actors import Deployment, Staged
from tests.simulation.format import FormatJudge
from tests.simulation.scenario import PARTITIONS, LoadPlan
from tests.simulation.store import IN_THE_NET, parsed
from tests.simulation.table import (
    KEY,
    Row,
    data_columns,
    hidden_rows,
    load_rows,
    physical_names,
    seen,
    spelling_of,
    vector_id,
)
from tests.simulation.world import EPOCH, ViolationError
from tests.support.log_order import Rows

# When the work behind a commit was done; the second part settles ties between writers.
Finish = tuple[datetime, str]
HALF_RETENTION = timedelta(days=3.5)
# How long an actor may stand still between looking at a buffer's age and the commit.
_PAUSE = timedelta(hours=1)
# Of these, the table gives each file its own at every version.
_GIVEN = ("baseRowId", "defaultRowCommitVersion")


def fail(message: str) -> None:
    """End the history."""
    raise ViolationError(message)


@attrs.define
class File:
    """A live file of the table.

    :param merged: whether a compaction wrote it.
    """

    path: str
    partition: int
    read: list[Row]
    version: int
    vector: str | None
    merged: bool = False

    @property
    def rows(self) -> tuple[str, ...]:
        """The names of its rows."""
        return tuple(name for name, _ in self.read)


@attrs.frozen
class Writer:
    """A writer of a load, under all the names that it has."""

    key: str
    app_id: str
    directory: str


@attrs.define(slots=False)
class Published:
    """A version of the table, as the judge sees it.

    :param touched: partitions in which it changed rows.
    :param finished: when the work behind it was done, by the store's clock.
    :param buffers: that it publishes, where it is of writers of ours; ``None`` for one without rows.
    :param reconciled: whether a reconciliation put it.
    :param read: the version that it was formed on.
    :param ranges: the partitions that its writes replace.
    :param inside: the rows that it should put into the partitions.
    :param taken_back: names of the rows that its writers appended before, and that it takes back.
    """

    version: int
    info: dict[str, Any]
    adds: list[dict[str, Any]]
    removes: list[dict[str, Any]]
    touched: frozenset[int]
    finished: Finish
    buffers: list[Staged | None] = attrs.field(factory=list)
    records: list[dict[str, Any]] = attrs.field(factory=list)
    plan: LoadPlan | None = None
    reconciled: bool = False
    read: int = -1
    ranges: frozenset[int] = frozenset()
    inside: Rows = frozenset()
    taken_back: frozenset[str] = frozenset()
    colleagues: tuple[Writer, ...] | None = None

    @property
    def compaction(self) -> str | None:
        """The shadow that it publishes, of a compaction of ours."""
        record = (self.info.get("staged") or {}).get("compaction")
        return record["shadow"] if record else None

    @property
    def ours(self) -> bool:
        """Whether it publishes writers of ours."""
        return self.plan is not None

    @property
    def load(self) -> LoadPlan:
        """The load whose writers it publishes."""
        assert self.plan is not None
        return self.plan

    @property
    def together(self) -> bool:
        """Whether it publishes writers of a load that is one transaction."""
        return self.plan is not None and self.plan.publish is PublishMode.TOGETHER

    @cached_property
    def generations(self) -> dict[str, int]:
        """Of its writers."""
        return {record["app_id"]: record["generation"] for record in self.records}


class Versions:
    """Reads and judges one version after another."""

    def __init__(self, deployment: Deployment) -> None:
        self.d = deployment
        self.store = deployment.store
        self.counters = deployment.world.counters
        self.commits: list[Published] = []
        self.live: dict[str, File] = {}
        self.ever: set[str] = set()
        self.txns: dict[str, int] = {}
        # Files that were removed, or lost rows, at any time.
        self.changed: set[str] = set()
        self.states: list[Rows] = []
        self._metadata: dict[str, Any] = {}
        self._adds: dict[str, dict[str, Any]] = {}
        self._format = FormatJudge(self.counters)
        self._writers: dict[str, tuple[Writer, ...]] = {}
        self.directory: dict[str, str] = {}
        for plan in deployment.scenario.loads:
            identities = [plan.load.writer(key) for key in dict.fromkeys(w.key for w in plan.all_writers)]
            self._writers[plan.load.id] = tuple(Writer(i.key, i.app_id, i.directory) for i in identities)
            self.directory |= {identity.app_id: identity.directory for identity in identities}

    # -- one version ---------------------------------------------------------------------------------------------------

    def read(self, version: int) -> Published:
        """Return a version, judged by itself."""
        actions, entry = self.actions(version), self.store.entries[version]
        commit = self._published(version, actions)
        self._format.check(version, actions, self.ever)
        if commit.ours:
            self._check_ours(commit, entry.began, entry.modified)
        if commit.compaction is not None:
            self._check_compaction(commit, entry.modified)
        self._check_moved(commit)
        return commit

    def apply(self, commit: Published) -> None:
        """Make a version the newest one."""
        version = commit.version
        added = [add["path"] for add in commit.adds]
        removed = [remove["path"] for remove in commit.removes]
        if len(set(added)) != len(added) or len(set(removed)) != len(removed):
            fail(f"version {version} names a file twice")
        mine = commit.ours or commit.compaction is not None
        # Others remove and add a file to give it another deletion vector, and RESTORE adds one again.
        if (both := set(added) & set(removed)) and mine:
            fail(f"version {version} adds and removes {min(both)}")
        restored = commit.info.get("operation") == "RESTORE"
        if (again := set(added) & self.ever) and not restored and (mine or again - set(removed)):
            fail(f"version {version} adds {min(again)}, which was in the table before")
        live = {(path, file.vector) for path, file in self.live.items()}
        if dead := {(remove["path"], vector_id(remove)) for remove in commit.removes} - live:
            fail(f"version {version} removes {min(dead, key=str)}, which is not live")
        for remove in commit.removes if mine else ():
            add = self._adds[remove["path"]]
            copied = ("partitionValues", "size", "stats", "tags", "deletionVector", *_GIVEN)
            if any(add.get(k) != remove.get(k) for k in copied):
                fail(f"version {version} removes {remove['path']} otherwise than it was added")
        for app_id, stored in self.txns_of(version).items():
            if stored <= self.txns.get(app_id, 0):
                fail(f"version {version} sets the txn of {app_id} from {self.txns.get(app_id)} to {stored}")
            self.txns[app_id] = stored
        merged = any(not add.get("dataChange", True) for add in commit.adds)
        for path in removed:
            del self.live[path]
        for add in commit.adds:
            read = self.read_file(add)
            self.live[add["path"]] = File(add["path"], self.partition(add), read, version, vector_id(add), merged)
            self._adds[add["path"]] = add
        self.changed |= set(removed)
        self.ever |= set(added)
        self.states.append(frozenset((file.partition, row) for file in self.live.values() for row in file.rows))
        for row, times in Counter(row for file in self.live.values() for row in file.rows).items():
            if times > 1:
                fail(f"row {row} is in version {version} {times} times")
        self.commits.append(commit)
        self._metadata = next((a["metaData"] for a in self.actions(version) if "metaData" in a), self._metadata)

    def _published(self, version: int, actions: tuple[dict[str, Any], ...]) -> Published:
        info = next((a["commitInfo"] for a in actions if "commitInfo" in a), {})
        adds = [a["add"] for a in actions if "add" in a]
        removes = [a["remove"] for a in actions if "remove" in a]
        touched = frozenset(self.partition(f) for f in (*adds, *removes) if f.get("dataChange", True))
        stored = EPOCH + timedelta(microseconds=self.store.entries[version].modified)
        commit = Published(version, info, adds, removes, touched, (stored, ""), read=version - 1)
        record = info.get("staged")
        if not record or "writers" not in record:
            return commit
        commit.records = record["writers"]
        for writer in commit.records:
            finished = self._finished(writer["buffer"])
            if datetime.fromisoformat(writer["finished"]) != finished:
                fail(f"version {version} says that {writer['buffer']} finished at {writer['finished']}, not {finished}")
        commit.reconciled = "reconcile" in self.store.entries[version].creator
        self._place(commit, self.d.plans[record["load"]])
        commit.taken_back = self._taken_back(commit)
        return commit

    def unpublished(self, plan: LoadPlan, paths: Iterable[str]) -> Published:
        """Return what would have been a version."""
        specs = {path: self.version_0(path)["commitInfo"]["staged"]["spec"] for path in paths}
        app_ids = {path: self.writer(plan, spec["identity"]["writer"]).app_id for path, spec in specs.items()}
        commit = Published(-1, {}, [], [], frozenset(), (EPOCH, ""))
        commit.records = [
            {"buffer": path, "app_id": app_ids[path], "generation": spec["generation"]} for path, spec in specs.items()
        ]
        commit.colleagues = tuple(w for w in self.writers_of(plan) if w.app_id not in app_ids.values())
        self._place(commit, plan)
        return commit

    def _place(self, commit: Published, plan: LoadPlan) -> None:
        """Say what the writes of its buffers replace, with which rows, and when they were formed and finished."""
        commit.plan = plan
        paths = [record["buffer"] for record in commit.records]
        commit.buffers = [self.d.staged.get(path) for path in paths]
        commit.finished = max((self._finished(record["buffer"]), record["app_id"]) for record in commit.records)
        commit.read = min(map(self.read_version, paths))
        for path, staged in zip(paths, commit.buffers, strict=True):
            into = self.d.writer_of[path].into
            there = staged.files.values() if staged else ()
            rows = {(p, name) for p, names in there for name in names if into is None or p in into}
            commit.inside |= rows
            if plan.mode is OverwritePartitions:
                commit.ranges |= {partition for partition, _ in rows}
            elif plan.mode is Overwrite and (rows or plan.allow_empty):
                commit.ranges |= set(PARTITIONS)
            elif plan.mode is ReplaceWhere and (rows or plan.allow_empty):
                commit.ranges |= set(into or ())

    def _taken_back(self, commit: Published) -> frozenset[str]:
        """Return what the writers appended before, where a rerun replaces it: all, and as it was."""
        plan = commit.load
        if plan.mode is not Append or plan.on_rerun is not OnRerun.REPLACE:
            return frozenset()
        rows: set[str] = set()
        for record in commit.records:
            stored = self.txns.get(record["app_id"])
            earlier = next((c for c in self.commits if c.generations.get(record["app_id"]) == stored), None)
            if stored is None or earlier is None:
                continue
            buffer = next(r["buffer"] for r in earlier.records if r["app_id"] == record["app_id"])
            mine = {add["path"] for add in earlier.adds if add["path"].startswith(f"{buffer}/")}
            for path in mine:
                if path not in self.live or self.live[path].vector is not None:
                    fail(f"version {commit.version} takes back {path} of version {earlier.version}, changed since")
            self.counters["appends taken back"] += bool(mine)
            rows |= {row for path in mine for row in self.live[path].rows}
        return frozenset(rows)

    # -- checks ----------------------------------------------------------------------------------------------------------

    def _check_ours(self, commit: Published, began: int, at: int) -> None:
        version = commit.version
        if commit.info.get("readVersion", -1) != version - 1:
            fail(f"version {version} was decided on version {commit.info.get('readVersion', -1)}")
        self.counters["tables made with rows"] += version == 0
        by_generation = {(w["app_id"], w["generation"]) for w in commit.records}
        txns = set(self.txns_of(version).items())
        if txns != by_generation:
            fail(f"version {version} records {txns} for {by_generation}")
        for writer in commit.records:
            self._check_publishable(commit, writer, began, at)
        self._check_nobody_missing(commit)
        strangers = [
            add["path"] for add in commit.adds if not add["path"].startswith(tuple(r["buffer"] for r in commit.records))
        ]
        if strangers:
            fail(f"version {version} adds {strangers[0]}, which none of its writers staged")
        self._check_colleagues(commit)

    def _check_publishable(self, commit: Published, writer: dict[str, Any], began: int, at: int) -> None:
        path, version = writer["buffer"], commit.version
        metadata = self._metadata or next(a["metaData"] for a in self.actions(version) if "metaData" in a)
        opened = self.version_0(path)
        spec = opened["commitInfo"]["staged"]["spec"]
        if spec["generation"] != writer["generation"]:
            fail(f"version {version} publishes {path} as generation {writer['generation']}")
        closing = self.store.closings.get(path)
        if closing is not None and closing < began:
            fail(f"version {version} publishes {path}, which was closed before")
        if commit.buffers[0] is not None and spec["publish"] == "together" and not commit.reconciled:
            fail(f"version {version} is a writer's own, though the load is published together")
        checks = {k: v for k, v in metadata["configuration"].items() if k.startswith("delta.constraints.")}
        known = opened["metaData"]["configuration"]
        constrained = any(known.get(k) != v for k, v in checks.items()) and commit.buffers[0] is not None
        staged_for = opened["commitInfo"]["staged"]
        if constrained or (staged_for["readVersion"] >= 0 and staged_for["tableId"] != metadata["id"]):
            fail(f"version {version} publishes {path}, which was staged under another definition of the table")
        self._check_read(commit, path)
        staged, into = self.d.staged.get(path), self.d.writer_of[path].into
        if staged is None:
            return
        outside = into is not None and any(partition not in into for partition, _ in staged.files.values())
        if outside and commit.load.on_unexpected_rows is OnUnexpectedRows.REFUSE:
            fail(f"version {version} publishes {path}, which has rows outside")
        oldest = min(self.store.put_at[f"{path}/{unquote(file)}"] for file in staged.files)
        if timedelta(microseconds=at - oldest) > HALF_RETENTION + _PAUSE:
            fail(f"version {version} publishes {path} at the age of {timedelta(microseconds=at - oldest)}")
        for add in commit.adds:
            if not add["path"].startswith(f"{path}/"):
                continue
            name = add["path"].removeprefix(f"{path}/")
            if name not in staged.files:
                fail(f"version {version} adds {name}, which {path} does not name")
            as_staged, as_added = self._staged_add(path, name), {**add, "path": name}
            if {k: v for k, v in as_added.items() if k not in _GIVEN} != {
                k: v for k, v in as_staged.items() if k not in _GIVEN
            }:
                fail(f"version {version} changes the action of {add['path']}")
            written = {column for _, columns in self.read_file(add) for column in columns}
            columns = data_columns(metadata)
            if strange := written - set(columns):
                fail(
                    f"version {version} adds {add['path']} with the columns {strange}, of which the table has {columns}"
                )
            if physical_names(metadata)[KEY] not in written:
                fail(f"version {version} adds {add['path']}, whose rows would be NULL")

    def _check_read(self, commit: Published, path: str) -> None:
        """What a job computed from the table itself is published only as long as what it read is as it was."""
        read = self.d.reads.get(path)
        if read is None:
            return
        writer, newest = self.d.writer_of[path], commit.version - 1
        self.counters["self-reads published"] += 1
        self.counters["declared reads published"] += writer.named is not None
        named = PARTITIONS if writer.named is None else writer.named
        then, now = (frozenset(row for row in self.states[v] if row[0] in named) for v in (read, newest))
        if then != now:
            fail(f"version {commit.version} publishes {path}, computed from version {read}, which changed since")
        self.counters["declared reads published beside others"] += self.states[read] != self.states[newest]

    def _check_compaction(self, commit: Published, at: int) -> None:
        version, shadow = commit.version, commit.compaction
        self.counters["versions by compaction"] += 1
        if commit.info["readVersion"] != version - 1:
            fail(f"version {version} was decided on version {commit.info['readVersion']}")
        if self.txns_of(version) or any("metaData" in a or "protocol" in a for a in self.actions(version)):
            fail(f"version {version} is a compaction, and does more")
        if any(file["dataChange"] for file in (*commit.adds, *commit.removes)):
            fail(f"version {version} is a compaction that changes data")
        for add in commit.adds:
            path = unquote(add["path"])
            if not path.startswith(f"{shadow}/"):
                fail(f"version {version} adds {path}, which lies outside of {shadow}")
            age = timedelta(microseconds=at - self.store.put_at[path])
            if age > HALF_RETENTION + _PAUSE:
                fail(f"version {version} publishes {path} at the age of {age}")

    def _check_moved(self, commit: Published) -> None:
        """A version without a change of data leaves every row as readers saw it."""
        if not (commit.adds or commit.removes) or any(f["dataChange"] for f in (*commit.adds, *commit.removes)):
            return
        dead = [r["path"] for r in commit.removes if r["path"] not in self.live]
        if dead:
            fail(f"version {commit.version} compacts {dead[0]}, which is not live")
        before = [row for remove in commit.removes for row in seen(self.live[remove["path"]].read, self._metadata)]
        after = [row for add in commit.adds for row in seen(self.read_file(add), self._metadata)]
        if sorted(before) != sorted(after):
            fail(f"version {commit.version} compacts {sorted(before)} to {sorted(after)}")

    def _check_nobody_missing(self, commit: Published) -> None:
        plan = commit.load
        if plan.on_missing is not OnMissingWriter.PUBLISH_NOTHING:
            return
        entry = self.store.entries[commit.version]
        for key in self.d.expected.get(entry.creator.removesuffix(IN_THE_NET), ()):
            app_id = self.writer(plan, key).app_id
            complete = any(self.store.completed[p] <= entry.step for p in self.complete(app_id))
            if not complete and app_id not in self.txns:
                fail(f"version {commit.version} is published though {app_id} is missing")

    def _check_colleagues(self, commit: Published) -> None:
        """A colleague's rows are not replaced, in whatever file they are by now."""
        if not commit.together:
            return
        theirs = self.colleagues_rows(commit)
        for remove in commit.removes:
            file = self.live.get(remove["path"])
            for row in file.rows if file else ():
                if original(row) in theirs:
                    fail(f"version {commit.version} removes {row} of a colleague")

    # -- facts -----------------------------------------------------------------------------------------------------------

    @property
    def newest(self) -> Rows:
        """The rows of the newest version that was judged; none before the first."""
        return self.states[-1] if self.states else frozenset()

    @property
    def table_id(self) -> str | None:
        """The id of the table at its newest version."""
        return self._metadata.get("id")

    def colleagues(self, commit: Published) -> tuple[Writer, ...]:
        """Return the writers of a commit's load that it does not publish.

        Published together, they are those that the reconciliation knew of; a writer that no task names any more is none.
        """
        if commit.colleagues is None:
            found = self.writers_of(commit.load)
            if commit.together:
                creator = self.store.entries[commit.version].creator.removesuffix(IN_THE_NET)
                expected = self.d.expected.get(creator, ())
                found = tuple(writer for writer in found if writer.key in expected)
            commit.colleagues = tuple(writer for writer in found if writer.app_id not in commit.generations)
        return commit.colleagues

    def writers_of(self, plan: LoadPlan) -> tuple[Writer, ...]:
        """Return every writer that a load ever has."""
        return self._writers[plan.load.id]

    def writer(self, plan: LoadPlan, key: str) -> Writer:
        """Return a writer of a load."""
        return next(writer for writer in self.writers_of(plan) if writer.key == key)

    def colleagues_rows(self, commit: Published) -> set[str]:
        """Return the rows that colleagues of a commit's writers staged."""
        return {row for identity in self.colleagues(commit) for row in self.rows_of(identity)}

    def rows_of(self, writer: Writer) -> set[str]:
        """Return the rows that a writer staged."""
        staged = (s for path, s in self.d.staged.items() if path.startswith(f"{writer.directory}/"))
        return {row for one in staged for row in one.row_ids}

    def partition(self, file: dict[str, Any]) -> int:
        """Return the partition of a file, whatever a ``remove`` says of it.

        :param file: an ``add`` or a ``remove``.
        """
        known = self._adds.get(file["path"])
        return self.d.scenario.column.read(spelling_of(known or file))

    def read_file(self, add: dict[str, Any]) -> list[Row]:
        """Return the rows of a file."""
        data = self.store.contents.get(unquote(add["path"]))
        if data is None:
            raise ViolationError(f"there never was a file {add['path']}")
        return load_rows(data, hidden_rows(self.store, add))

    def actions(self, version: int) -> tuple[dict[str, Any], ...]:
        """Return what stands in a version."""
        return parsed(self.store.entries[version].data)

    def txns_of(self, version: int) -> dict[str, int]:
        """Return the transactions of a version."""
        return {a["txn"]["appId"]: a["txn"]["version"] for a in self.actions(version) if "txn" in a}

    def txn_at(self, app_id: str, version: int) -> int:
        """Return the generation of a writer that was in the table at a version, 0 for none."""
        found = 0
        for commit in self.commits[: version + 1]:
            found = commit.generations.get(app_id, found)
        return found

    def at_step(self, step: int) -> int:
        """Return the version that was the newest at a step, -1 for none."""
        return max((version for version, entry in self.store.entries.items() if entry.step <= step), default=-1)

    def version_0(self, path: str) -> dict[str, Any]:
        """Return what opened a buffer, by kind of action."""
        stored = self.store.peek(f"{path}/_delta_log/{0:020d}.json")
        assert stored is not None
        return {k: v for action in parsed(stored.data) for k, v in action.items()}

    def read_version(self, path: str) -> int:
        """Return the version that a buffer was formed on."""
        return int(self.version_0(path)["commitInfo"]["staged"]["readVersion"])

    def complete(self, app_id: str) -> list[str]:
        """Return the buffers of a writer that ever were complete."""
        return [path for path in self.store.completed if path.startswith(f"{self.directory[app_id]}/")]

    def _staged_add(self, path: str, name: str) -> dict[str, Any]:
        stored = self.store.peek(f"{path}/_delta_log/{1:020d}.json")
        assert stored is not None
        adds = [action.get("add") for action in parsed(stored.data)]
        return next(add for add in adds if add and add["path"] == name)

    def _finished(self, path: str) -> datetime:
        stored = self.store.peek(f"{path}/_delta_log/{1:020d}.json")
        if stored is None:
            raise ViolationError(f"{path} is published, though it is not complete")
        return EPOCH + timedelta(microseconds=stored.modified)


def original(row: str) -> str:
    """Return the name of a row before anybody changed it."""
    return row.split("~")[0]
