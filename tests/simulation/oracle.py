"""What must hold of every history, judged from the log's raw entries and from what was staged.

The judge shares no code with what it judges: it replays the JSON itself, knows which rows every file holds, and says for
every commit of ours exactly which files it should have added and removed.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any
from urllib.parse import unquote

import attrs

from airflow_provider_onelake.commit.policy import Policy
from airflow_provider_onelake.commit.publish import Publication
from airflow_provider_onelake.commit.reconcile import OnMissingWriter
from airflow_provider_onelake.commit.report import Report
from airflow_provider_onelake.exceptions import (
    BufferDoesNotFitError,
    BufferLostError,
    ConflictError,
    DuplicateWriterError,
    InvalidWriteError,
    MissingWritersError,
    OneLakeError,
    RerunRefusedError,
    RowsOutsideError,
    TableNotFoundError,
    TransientError,
    ZombieWriterError,
)
from airflow_provider_onelake.staging.prepare import Skip
from airflow_provider_onelake.staging.spec import Mode, OnRerun, PublishMode, RowsOutside
from tests.simulation.actors import Deployment, Said, Staged
from tests.simulation.compactor import Compacted
from tests.simulation.format import FormatJudge
from tests.simulation.scenario import PARTITIONS, LoadPlan
from tests.simulation.store import parsed
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

Key = tuple[datetime, str]
_HALF_RETENTION = timedelta(days=3.5)
# How long an actor may stand still between looking at a buffer's age and the commit.
_PAUSE = timedelta(hours=1)
_TAKEN_BACK = re.compile(r"What writer '([^']*)' appended to .* in generation (\d+) cannot be taken back")
# Of these, the table gives each file its own at every version.
_GIVEN = ("baseRowId", "defaultRowCommitVersion")


@attrs.define
class File:
    """A live file of the table."""

    path: str
    partition: int
    read: list[Row]
    version: int
    vector: str | None
    merged: bool = False

    @property
    def rows(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.read)


@attrs.define
class Published:
    """A version of the table, as the judge sees it."""

    version: int
    info: dict[str, Any]
    adds: list[dict[str, Any]]
    removes: list[dict[str, Any]]
    touched: set[int]
    emptied: set[int]
    key: Key | None
    buffers: list[Staged | None] = attrs.field(factory=list)
    records: list[dict[str, Any]] = attrs.field(factory=list)
    policy: Policy | None = None
    plan: LoadPlan | None = None
    read: int = -1
    yielded: set[int] = attrs.field(factory=set)
    replaced: set[int] = attrs.field(factory=set)
    # What was in the partitions that it changed, right after it.
    after: dict[int, set[str]] = attrs.field(factory=dict)
    # The writers whose rows a rerun took back later.
    taken_back: set[str] = attrs.field(factory=set)

    @property
    def compaction(self) -> str | None:
        """The shadow that it publishes, of a compaction of ours."""
        record = (self.info.get("staged") or {}).get("compaction")
        return record["shadow"] if record else None

    @property
    def ours(self) -> bool:
        return self.plan is not None

    @property
    def blind(self) -> bool:
        """Whether it says that all it did was to append."""
        return bool(self.info.get("isBlindAppend")) and not any(r.get("dataChange", True) for r in self.removes)

    @cached_property
    def generations(self) -> dict[str, int]:
        return {record["app_id"]: record["generation"] for record in self.records}


def _fail(message: str) -> None:
    raise ViolationError(message)


class Judge:
    """Judges one history.

    :param deployment: that has run.
    """

    def __init__(self, deployment: Deployment) -> None:
        self.d = deployment
        self.store = deployment.store
        self.commits: list[Published] = []
        self.live: dict[str, File] = {}
        self.ever: set[str] = set()
        self.txns: dict[str, int] = {}
        self.counters = deployment.world.counters
        # Partitions in which a conflict could only be settled with care, so that the order of finishing does not tell.
        self.careful: set[int] = set()
        # Files that were removed, or lost rows, at any time.
        self.changed: set[str] = set()
        self.rows_at: list[Counter[str]] = []
        self._judged = -1
        self._adds: dict[str, dict[str, Any]] = {}
        self._format = FormatJudge(self.counters)
        identities = [plan.load.writer(w.key) for plan in deployment.scenario.loads for w in plan.writers]
        self._directory = {identity.app_id: identity.directory for identity in identities}

    # -- the log -------------------------------------------------------------------------------------------------------

    def judge_log(self) -> None:
        """Judge every version that is new since the last time.

        :raises ViolationError: saying what is wrong.
        """
        versions = sorted(self.store.entries)
        if versions != list(range(len(versions))):
            _fail(f"the versions of the log are {versions}")
        metadata: dict[str, Any] = {}
        for version in versions:
            entry = self.store.entries[version]
            actions = parsed(entry.data)
            before = metadata
            metadata = next((a["metaData"] for a in actions if "metaData" in a), metadata)
            if version <= self._judged:
                continue
            commit = self._read(version, actions)
            self._format.check(version, actions, self.ever)
            if commit.ours:
                self._check_ours(commit, before, entry.began, entry.modified)
            if commit.compaction is not None:
                self._check_compaction(commit, entry.modified)
            self._check_moved(commit, before)
            self._apply(commit)
            self._judged = version

    def _read(self, version: int, actions: tuple[dict[str, Any], ...]) -> Published:
        infos = [a["commitInfo"] for a in actions if "commitInfo" in a]
        info = infos[0] if infos else {}
        adds = [a["add"] for a in actions if "add" in a]
        removes = [a["remove"] for a in actions if "remove" in a]
        touched = {self._partition(f) for f in (*adds, *removes) if f.get("dataChange", True)}
        removed = {self._partition(f) for f in removes if f.get("dataChange", True)}
        stamp = info.get("inCommitTimestamp", info.get("timestamp"))
        # Of a commit that does not say when it was made, the store does.
        stored = EPOCH + timedelta(microseconds=self.store.entries[version].modified)
        key = (datetime.fromtimestamp(stamp / 1000, UTC) if stamp is not None else stored, "")
        commit = Published(version, info, adds, removes, touched, removed, key, read=version - 1)
        record = info.get("staged")
        if not record or "writers" not in record:
            return commit
        commit.plan = self.d.plans[record["load"]]
        commit.records = record["writers"]
        commit.buffers = [self.d.staged.get(writer["buffer"]) for writer in commit.records]
        finishes = []
        for writer in commit.records:
            finished = self._finished(writer["buffer"])
            if datetime.fromisoformat(writer["finished"]) != finished:
                _fail(
                    f"version {version} says that {writer['buffer']} finished at {writer['finished']}, not {finished}"
                )
            finishes.append((finished, writer["app_id"]))
        commit.key = max(finishes)
        commit.read = min(self._read_version(writer["buffer"]) for writer in commit.records)
        reconciled = "reconcile" in self.store.entries[version].creator
        commit.policy = commit.plan.policy if reconciled else None
        return commit

    def _check_ours(self, commit: Published, metadata: dict[str, Any], began: int, at: int) -> None:
        plan, version = commit.plan, commit.version
        assert plan is not None
        if commit.info["readVersion"] != version - 1:
            _fail(f"version {version} was decided on version {commit.info['readVersion']}")
        by_generation = {(w["app_id"], w["generation"]) for w in commit.records}
        txns = {(a, v) for a, v in self._txns(version).items()}
        if txns != by_generation:
            _fail(f"version {version} records {txns} for {by_generation}")
        for writer in commit.records:
            self._check_publishable(commit, writer, metadata, began, at)
        if plan.publish is PublishMode.TOGETHER or commit.policy is not None:
            self._check_nobody_missing(commit)
        adds, removes = self._expected(commit)
        _compare(version, "adds", adds, [add["path"] for add in commit.adds])
        _compare(version, "removes", removes, [remove["path"] for remove in commit.removes])
        self._check_colleagues(commit)

    def _check_publishable(
        self, commit: Published, writer: dict[str, Any], metadata: dict[str, Any], began: int, at: int
    ) -> None:
        path, version = writer["buffer"], commit.version
        opened = self._version_0(path)
        spec = opened["commitInfo"]["staged"]["spec"]
        if spec["generation"] != writer["generation"]:
            _fail(f"version {version} publishes {path} as generation {writer['generation']}")
        closing = self.store.closings.get(path)
        if closing is not None and closing < began:
            _fail(f"version {version} publishes {path}, which was closed before")
        if commit.buffers[0] is not None and spec["publish"] == "together" and commit.policy is None:
            _fail(f"version {version} is a writer's own, though the load is published together")
        checks = {k: v for k, v in metadata["configuration"].items() if k.startswith("delta.constraints.")}
        known = opened["metaData"]["configuration"]
        if metadata["id"] != opened["commitInfo"]["staged"]["tableId"] or any(
            known.get(k) != v for k, v in checks.items()
        ):
            _fail(f"version {version} publishes {path}, which was staged under another definition of the table")
        self._check_read(commit, path)
        staged = self.d.staged.get(path)
        if staged is None:
            return
        oldest = min(self.store.put_at[f"{path}/{unquote(file)}"] for file in staged.files)
        if timedelta(microseconds=at - oldest) > _HALF_RETENTION + _PAUSE:
            _fail(f"version {version} publishes {path} at the age of {timedelta(microseconds=at - oldest)}")
        for add in commit.adds:
            if not add["path"].startswith(f"{path}/"):
                continue
            name = add["path"].removeprefix(f"{path}/")
            if name not in staged.files:
                _fail(f"version {version} adds {name}, which {path} does not name")
            as_staged, as_added = self._staged_add(path, name), {**add, "path": name}
            if {k: v for k, v in as_added.items() if k not in _GIVEN} != {
                k: v for k, v in as_staged.items() if k not in _GIVEN
            }:
                _fail(f"version {version} changes the action of {add['path']}")
            written = {column for _, columns in self._read_file(add) for column in columns}
            known = data_columns(metadata)
            if strange := written - set(known):
                _fail(
                    f"version {version} adds {add['path']} with the columns {strange}, of which the table has {known}"
                )
            if physical_names(metadata)[KEY] not in written:
                _fail(f"version {version} adds {add['path']}, whose rows would be NULL")

    def _check_read(self, commit: Published, path: str) -> None:
        """What a job computed from the table itself is published only as long as the table is as it was."""
        read = self.d.reads.get(path)
        if read is None:
            return
        self.counters["self-reads published"] += 1
        if self.rows_at[read] == self.rows_at[commit.version - 1]:
            return
        for other in self.commits[read + 1 : commit.version]:
            colleague = other.ours and other.plan is commit.plan and commit.plan.publish is PublishMode.TOGETHER  # type: ignore[union-attr]
            if colleague and not commit.generations.keys() & other.generations.keys():
                return
        _fail(f"version {commit.version} publishes {path}, computed from version {read}, which changed since")

    def _check_compaction(self, commit: Published, at: int) -> None:
        version, shadow = commit.version, commit.compaction
        self.counters["versions by compaction"] += 1
        if commit.info["readVersion"] != version - 1:
            _fail(f"version {version} was decided on version {commit.info['readVersion']}")
        if self._txns(version) or any("metaData" in a or "protocol" in a for a in self._actions(version)):
            _fail(f"version {version} is a compaction, and does more")
        if any(file["dataChange"] for file in (*commit.adds, *commit.removes)):
            _fail(f"version {version} is a compaction that changes data")
        for add in commit.adds:
            path = unquote(add["path"])
            if not path.startswith(f"{shadow}/"):
                _fail(f"version {version} adds {path}, which lies outside of {shadow}")
            age = timedelta(microseconds=at - self.store.put_at[path])
            if age > _HALF_RETENTION + _PAUSE:
                _fail(f"version {version} publishes {path} at the age of {age}")

    def _check_moved(self, commit: Published, metadata: dict[str, Any]) -> None:
        """A version without a change of data leaves every row as readers saw it."""
        if not (commit.adds or commit.removes) or any(f["dataChange"] for f in (*commit.adds, *commit.removes)):
            return
        dead = [r["path"] for r in commit.removes if r["path"] not in self.live]
        if dead:
            _fail(f"version {commit.version} compacts {dead[0]}, which is not live")
        before = [row for remove in commit.removes for row in seen(self.live[remove["path"]].read, metadata)]
        after = [row for add in commit.adds for row in seen(self._read_file(add), metadata)]
        if sorted(before) != sorted(after):
            _fail(f"version {commit.version} compacts {sorted(before)} to {sorted(after)}")

    def _check_nobody_missing(self, commit: Published) -> None:
        plan = commit.plan
        assert plan is not None
        if plan.on_missing is not OnMissingWriter.PUBLISH_NOTHING or commit.policy is None:
            return
        entry = self.store.entries[commit.version]
        for writer in plan.writers:
            app_id = plan.load.writer(writer.key).app_id
            complete = any(self.store.completed[p] <= entry.step for p in self._complete(app_id))
            if not complete and app_id not in self.txns:
                _fail(f"version {commit.version} is published though {app_id} is missing")

    def _expected(self, commit: Published) -> tuple[set[str], set[str]]:
        """Return the paths that a commit of ours must add, and those that it must remove."""
        plan = commit.plan
        assert plan is not None
        adds: dict[int, set[str]] = defaultdict(set)
        replaced: set[int] = set()
        for record, staged in zip(commit.records, commit.buffers, strict=True):
            into = self._into(plan, record, staged)
            inside: set[int] = set()
            for name, (partition, _) in staged.files.items() if staged else ():
                if into is None or partition in into:
                    adds[partition].add(f"{record['buffer']}/{name}")
                    inside.add(partition)
                elif plan.rows_outside is RowsOutside.REFUSE:
                    _fail(f"version {commit.version} publishes {record['buffer']}, which has rows outside")
            if plan.mode is Mode.OVERWRITE_PARTITIONS:
                replaced |= inside
            elif plan.mode is Mode.OVERWRITE and (inside or plan.allow_empty):
                replaced |= set(PARTITIONS)
                self.counters["whole tables overwritten"] += 1
            elif plan.mode is Mode.REPLACE_WHERE and (inside or plan.allow_empty):
                assert into is not None
                replaced |= set(into)
        commit.replaced = replaced
        removes = self._taken_back(commit)
        for partition in replaced:
            kept = self._kept(commit, partition, own=bool(adds[partition]))
            if kept is None:
                commit.yielded.add(partition)
                adds[partition].clear()
                continue
            there = {f.path for f in self.live.values() if f.partition == partition}
            removes |= there - kept - self._colleagues_files(commit)
        if plan.mode is Mode.OVERWRITE and commit.policy is Policy.FIRST_WRITER_WINS and commit.yielded:
            # It is one write of the whole table: all of it is seen, or nothing.
            commit.yielded |= replaced
            adds.clear()
            removes.clear()
        return {path for paths in adds.values() for path in paths}, removes

    def _taken_back(self, commit: Published) -> set[str]:
        """Return the files of what the writers appended before, where a rerun replaces it: all, and as they were."""
        plan = commit.plan
        assert plan is not None
        if plan.mode is not Mode.APPEND or plan.on_rerun is not OnRerun.REPLACE:
            return set()
        paths: set[str] = set()
        for record in commit.records:
            stored = self.txns.get(record["app_id"])
            earlier = next((c for c in self.commits if c.generations.get(record["app_id"]) == stored), None)
            if stored is None or earlier is None:
                continue
            buffer = next(r["buffer"] for r in earlier.records if r["app_id"] == record["app_id"])
            mine = {add["path"] for add in earlier.adds if add["path"].startswith(f"{buffer}/")}
            for path in mine:
                if path not in self.live or self.live[path].vector is not None:
                    _fail(f"version {commit.version} takes back {path} of version {earlier.version}, changed since")
            earlier.taken_back.add(record["app_id"])
            gone = {row for path in mine for row in self.live[path].rows}
            for seen_before in self.commits:
                seen_before.after = {partition: rows - gone for partition, rows in seen_before.after.items()}
            self.counters["appends taken back"] += bool(mine)
            paths |= mine
        return paths

    def _kept(self, commit: Published, partition: int, *, own: bool) -> set[str] | None:
        """Return the paths that stay beside a commit's rows in a partition that it replaces; ``None`` if all does."""
        rivals = [
            c for c in self.commits[commit.read + 1 : commit.version] if self._rival(commit, c, partition, own=own)
        ]
        if not rivals:
            return set()
        self.counters["conflicts"] += 1
        if commit.policy in (None, Policy.FAIL):
            _fail(f"version {commit.version} passes over version {rivals[0].version} in partition {partition}")
        if commit.policy is Policy.FIRST_WRITER_WINS:
            self.counters["set aside"] += 1
            return None
        assert commit.key is not None
        later = [c for c in rivals if not (c.key is not None and c.key < commit.key)]
        kept: set[str] = set()
        if any(rival.key is None for rival in later):
            self.careful.add(partition)
        for rival in later:
            appended = {a["path"] for a in rival.adds if a.get("dataChange", True) and self._partition(a) == partition}
            there = {path for path in appended if path in self.live and not self.live[path].merged}
            if not rival.blind or there != appended:
                if rival.blind or not self._replaces(rival, partition):
                    self.careful.add(partition)
                self.counters["set aside"] += 1
                return None
            kept |= appended
        self.counters["kept beside" if kept else "replaced"] += 1
        return kept

    def _rival(self, commit: Published, other: Published, partition: int, *, own: bool) -> bool:
        """Say whether a winner changed rows in a partition that a commit replaces."""
        if commit.plan is other.plan and commit.plan is not None:
            if commit.plan.publish is PublishMode.TOGETHER:
                return False
            # What an older generation of the same writer did is what a deliberate rerun replaces.
            if all(commit.generations.get(a, 0) > g for a, g in other.generations.items()):
                return False
        if partition in other.touched:
            return True
        ranged = other.plan is not None and other.plan.mode in (Mode.REPLACE_WHERE, Mode.OVERWRITE)
        return own and ranged and partition in other.replaced

    def _colleagues_files(self, commit: Published) -> set[str]:
        plan = commit.plan
        assert plan is not None
        if plan.publish is not PublishMode.TOGETHER:
            return set()
        keys = {plan.load.writer(w.key) for w in plan.writers}
        prefixes = tuple(f"{k.directory}/" for k in keys if k.app_id not in commit.generations)
        return {path for path in self.live if path.startswith(prefixes)}

    def _check_colleagues(self, commit: Published) -> None:
        """A colleague's rows are not replaced, in whatever file they are by now."""
        plan = commit.plan
        assert plan is not None
        if plan.publish is not PublishMode.TOGETHER:
            return
        others = {w.task for w in plan.writers if plan.load.writer(w.key).app_id not in commit.generations}
        for remove in commit.removes:
            file = self.live.get(remove["path"])
            for row in file.rows if file else ():
                if row.split("/")[0] == plan.load.dag and row.split("/")[1] in others:
                    _fail(f"version {commit.version} removes {row} of a colleague")

    def _apply(self, commit: Published) -> None:
        version = commit.version
        added = [add["path"] for add in commit.adds]
        removed = [remove["path"] for remove in commit.removes]
        if len(set(added)) != len(added) or len(set(removed)) != len(removed):
            _fail(f"version {version} names a file twice")
        mine = commit.ours or commit.compaction is not None
        # Others remove and add a file to give it another deletion vector, and RESTORE adds one again.
        if (both := set(added) & set(removed)) and mine:
            _fail(f"version {version} adds and removes {min(both)}")
        restored = commit.info.get("operation") == "RESTORE"
        if (again := set(added) & self.ever) and not restored and (mine or again - set(removed)):
            _fail(f"version {version} adds {min(again)}, which was in the table before")
        live = {(path, file.vector) for path, file in self.live.items()}
        if dead := {(remove["path"], vector_id(remove)) for remove in commit.removes} - live:
            _fail(f"version {version} removes {min(dead, key=str)}, which is not live")
        for remove in commit.removes if mine else ():
            add = self._adds[remove["path"]]
            copied = ("partitionValues", "size", "stats", "tags", "deletionVector", *_GIVEN)
            if any(add.get(k) != remove.get(k) for k in copied):
                _fail(f"version {version} removes {remove['path']} otherwise than it was added")
        for app_id, stored in self._txns(version).items():
            if stored <= self.txns.get(app_id, 0):
                _fail(f"version {version} sets the txn of {app_id} from {self.txns.get(app_id)} to {stored}")
            self.txns[app_id] = stored
        merged = any(not add.get("dataChange", True) for add in commit.adds)
        for path in removed:
            del self.live[path]
        for add in commit.adds:
            read = self._read_file(add)
            self.live[add["path"]] = File(add["path"], self._partition(add), read, version, vector_id(add), merged)
            self._adds[add["path"]] = add
        self.changed |= set(removed)
        self.ever |= set(added)
        for partition in commit.touched:
            commit.after[partition] = {r for f in self.live.values() if f.partition == partition for r in f.rows}
        self.rows_at.append(Counter(row for file in self.live.values() for row in file.rows))
        self.commits.append(commit)
        if version != len(self.commits) - 1:
            _fail("the judge has lost count")

    # -- what is in the table at the end -------------------------------------------------------------------------------------

    def judge_end(self) -> None:
        """Judge the table as it stands.

        :raises ViolationError: saying what is wrong.
        """
        rows = Counter(row for file in self.live.values() for row in file.rows)
        for row, times in rows.items():
            if times > 1:
                _fail(f"row {row} is in the table {times} times")
        for path in self.live:
            if self.store.peek(unquote(path)) is None:
                _fail(f"the live file {path} is gone")
        self._judge_appends(set(rows))
        self._judge_order(rows)

    def _judge_appends(self, live: set[str]) -> None:
        """Where nothing was ever replaced: every published row, once, and nothing else."""
        if any(c.emptied or c.replaced for c in self.commits):
            return
        self.counters["histories of appends only"] += 1
        expected: set[str] = set()
        for commit in self.commits:
            for record, staged in zip(commit.records, commit.buffers, strict=True):
                assert commit.plan is not None
                into = self._into(commit.plan, record, staged)
                for partition, rows in staged.files.values() if staged else ():
                    expected |= set(rows) if into is None or partition in into else set()
            if not commit.ours and commit.touched:
                expected |= {row for add in commit.adds for row in self._rows(add)}
        if expected != live:
            _fail(f"published but not there: {expected - live}; there but not published: {live - expected}")

    def _judge_order(self, rows: Counter[str]) -> None:
        """Where the last writer wins: the table equals the writes run one by one, in the order in which they finished."""
        if any(c.plan and c.replaced and c.plan.policy is not Policy.LAST_WRITER_WINS for c in self.commits):
            return
        for partition in set(PARTITIONS) - self.careful:
            last: Published | None = None
            if self._tied([c for c in self.commits if self._replaces(c, partition)]):
                continue
            for commit in self.commits:
                if self._replaces(commit, partition) and (last is None or _after(commit, last)):
                    last = commit
            expected = self._rows_into(last, partition) if last else set()
            either: set[str] = set()
            for commit in self.commits:
                appends = partition in commit.touched and not self._replaces(commit, partition)
                if appends and (last is None or commit.version > last.version or _after(commit, last)):
                    expected |= self._rows_into(commit, partition)
                    # It finished earlier than one that came later and emptied the partition, though not the last.
                    if any(
                        c.version > commit.version and self._empties(c, partition) and _after(c, commit)
                        for c in self.commits
                    ):
                        either |= self._rows_into(commit, partition)
            if last is not None and last.plan is not None and last.plan.publish is PublishMode.TOGETHER:
                # Colleagues that came in other versions are beside it.
                continue
            actual = {row for file in self.live.values() if file.partition == partition for row in file.rows}
            if actual | either != expected | either:
                _fail(
                    f"partition {partition} is not what the order of finishing says (last: version "
                    f"{last.version if last else None}): missing {expected - actual}, too many {actual - expected}"
                )
            self.counters["partitions judged by order"] += last is not None

    @staticmethod
    def _tied(commits: list[Published]) -> bool:
        """Say whether the order of three or more is not one, because a coarse clock gives two the same time."""
        times = [commit.key[0] for commit in commits if commit.key is not None]
        return len(times) > 2 and len(set(times)) < len(times)

    def _replaces(self, commit: Published, partition: int) -> bool:
        if commit.ours:
            return partition in commit.replaced
        parameters = commit.info.get("operationParameters") or {}
        overwrites = parameters.get("mode") == "Overwrite" or commit.info.get("operation") == "RESTORE"
        return (overwrites and partition in commit.touched) or partition in commit.emptied

    def _empties(self, commit: Published, partition: int) -> bool:
        """Say whether a commit of ours replaced a partition for which it had no rows."""
        if partition not in commit.replaced - commit.yielded:
            return False
        return not any(p == partition for staged in commit.buffers if staged for p, _ in staged.files.values())

    def _rows_into(self, commit: Published, partition: int) -> set[str]:
        if not commit.ours and self._replaces(commit, partition):
            return commit.after[partition]
        if not commit.ours:
            mine = [add for add in commit.adds if add.get("dataChange", True) and self._partition(add) == partition]
            return {row for add in mine for row in self._rows(add)}
        assert commit.plan is not None
        found: set[str] = set()
        for record, staged in zip(commit.records, commit.buffers, strict=True):
            if record["app_id"] in commit.taken_back:
                continue
            into = self._into(commit.plan, record, staged)
            if into is None or partition in into:
                found |= {
                    row for p, rows in (staged.files.values() if staged else ()) if p == partition for row in rows
                }
        return found

    # -- what processes said --------------------------------------------------------------------------------------------------

    def judge_said(self) -> None:
        """Judge what tasks reported.

        :raises ViolationError: saying what is wrong.
        """
        for said in self.d.said:
            if said.error is not None:
                self._judge_error(said, said.error)
            elif isinstance(said.said, Report):
                self._judge_report(said, said.said)
            elif isinstance(said.said, Publication | Skip) and said.spec is not None:
                self._judge_writer(said)
        for compacted in self.d.compacted:
            self._judge_compacted(compacted)

    def _judge_compacted(self, told: Compacted) -> None:
        versions = [c.version for c in self.commits if told.shadow is not None and c.compaction == told.shadow]
        if len(versions) > 1:
            _fail(f"{told.actor} was published in versions {versions}")
        if told.said is not None and versions != ([] if told.said.version is None else [told.said.version]):
            _fail(f"{told.actor} says {told.said.status.value} in {told.said.version}, and the log {versions}")
        if told.error is not None and not isinstance(told.error, TransientError | BufferLostError):
            _fail(f"{told.actor} fails with {type(told.error).__name__}: {told.error}")

    def _judge_writer(self, said: Said) -> None:
        spec, what = said.spec, said.said
        assert spec is not None
        app_id = spec.identity.app_id
        if isinstance(what, Publication):
            self.counters[f"writers {what.status.value}"] += 1
            if what.status.value == "conflicted":
                return
            if what.status.value == "set_aside":
                if not any(path.startswith(f"{spec.identity.directory}/") for path in self.store.closings):
                    _fail(f"{said.actor} says set_aside, but nobody did")
                return
        else:
            self.counters["writers skipped"] += 1
            self._check_not_restored(said, what)
        assert what is not None
        stored = self._txn_at(app_id, said.newest)
        if stored >= spec.generation:
            pass
        elif not stored or spec.on_rerun is not OnRerun.SKIP:
            _fail(f"{said.actor} says {what}, but version {said.newest} has txn {stored} of {app_id}")
        version = what.version
        if version is not None and app_id not in self._txns(version):
            _fail(f"{said.actor} names version {version}, which {app_id} has no part in")
        if isinstance(what, Publication) and what.status.value == "published":
            assert version is not None
            if self._txns(version)[app_id] != spec.generation:
                _fail(f"{said.actor} names version {version}, which is of another generation")

    def _check_not_restored(self, said: Said, skip: Any) -> None:
        """What a RESTORE took back is not skipped as if it were there (a retry without a fingerprint cannot tell)."""
        if skip.version is None or not skip.reason.startswith("already in"):
            return
        for commit in self.commits[skip.version + 1 :]:
            landed = self.store.entries[commit.version].step
            if commit.info.get("operation") == "RESTORE" and landed < said.began:
                _fail(f"{said.actor} skips version {skip.version}, before the RESTORE of version {commit.version}")

    def _judge_report(self, said: Said, report: Report) -> None:
        for failure in report.failures:
            self._judge_error(said, failure)
        mine = [v for v, e in self.store.entries.items() if e.creator == said.actor]
        if report.missing and said.plan.on_missing is OnMissingWriter.PUBLISH_NOTHING and mine:
            _fail(f"{said.actor} published versions {mine} though {report.missing} were missing")
        for outcome in report.outcomes:
            self.counters[f"reconciled: {outcome.status}"] += 1
            app_id = said.plan.load.writer(outcome.writer).app_id
            if outcome.status in ("published", "set_aside", "already_published"):
                aside = outcome.status == "set_aside" and outcome.buffer in self.store.closings
                if not aside and not self._txn_at(app_id, said.newest):
                    _fail(f"{said.actor} says {outcome.status} of {app_id}, which has no txn by version {said.newest}")
                if outcome.version is not None and app_id not in self._txns(outcome.version):
                    _fail(f"{said.actor} names version {outcome.version}, which {app_id} has no part in")
            elif outcome.status == "held_back" and said.plan.on_missing is not OnMissingWriter.PUBLISH_NOTHING:
                _fail(f"{said.actor} holds {app_id} back")
            elif outcome.status == "missing" and outcome.error is None:
                self._judge_missing(said, app_id)

    def _judge_missing(self, said: Said, app_id: str) -> None:
        """A writer whose newest generation was complete all along is not missing."""
        newest = max(
            (g for g, step in self.store.claims.get(self._directory[app_id], {}).items() if step <= said.ended),
            default=0,
        )
        for path in self._complete(app_id):
            spec = self._version_0(path)["commitInfo"]["staged"]["spec"]
            closing = self.store.closings.get(path, said.ended + 1)
            if spec["generation"] == newest and self.store.completed[path] < said.began and closing > said.ended:
                _fail(f"{said.actor} says that {app_id} is missing, though {path} was complete before it began")

    def _judge_error(self, said: Said, error: OneLakeError) -> None:
        plan = said.plan
        others = {f.kind for f in self.d.scenario.foreign}
        self.counters[f"error: {type(error).__name__}"] += 1
        if isinstance(error, TransientError | MissingWritersError):
            return
        allowed: dict[type[OneLakeError], bool] = {
            BufferLostError: bool(self.d.scenario.vacuums),
            BufferDoesNotFitError: bool(others & {"add check", "swap column", "restore"}),
            ConflictError: plan.policy is Policy.FAIL
            or plan.publish is PublishMode.TOGETHER
            or any(writer.reads for writer in plan.writers)
            or bool(self.d.scenario.checkpoints),
            # A load's own predicate names a column that has another name by now.
            InvalidWriteError: "rename partition" in others and any(w.into is not None for w in plan.writers),
            DuplicateWriterError: len({w.key for w in plan.writers}) < len(plan.writers),
            RerunRefusedError: plan.on_rerun is OnRerun.SKIP
            or (plan.on_rerun is OnRerun.REPLACE and plan.mode is Mode.APPEND)
            or "restore" in others,
            RowsOutsideError: plan.rows_outside is RowsOutside.REFUSE,
            TableNotFoundError: not self.d.scenario.exists,
            ZombieWriterError: bool(plan.reruns),
        }
        if not allowed.get(type(error), False):
            _fail(f"{said.actor} fails with {type(error).__name__}: {error}")
        if isinstance(error, ConflictError) and any(
            text in str(error) for text in ("wrote the rows of", "rewritten since")
        ):
            self._check_not_by_compaction(said, error)
        if found := _TAKEN_BACK.match(str(error)):
            self._check_rightly_refused(said, found[1], int(found[2]))

    def _check_not_by_compaction(self, said: Said, error: OneLakeError) -> None:
        """No writer fails because a compaction of ours merged files, if it had begun by then and is not published."""
        plan = said.plan
        by_others = any(not add.get("dataChange", True) for c in self.commits if not c.compaction for add in c.adds)
        # Where days go by, what nobody settled for half of the retention counts as abandoned.
        if (
            by_others
            or self.d.scenario.vacuums
            or any(f.kind in ("restore", "update") for f in self.d.scenario.foreign)
        ):
            return
        self.counters["refused because of a compaction of ours"] += 1
        identities = [plan.load.writer(w.key) for w in plan.writers]
        colleagues = tuple(f"{identity.directory}/" for identity in identities)
        for commit in self.commits:
            if commit.compaction is None or commit.version > said.newest:
                continue
            if not any(r["path"].startswith(colleagues) for r in commit.removes):
                continue
            began = self.store.entries[commit.version].began
            for identity in identities:
                claims = self.store.claims.get(identity.directory, {})
                skipped = f"{identity.directory}/_skipped-{{}}.json"
                # A reconciliation that was held up may find all that it knew of published, and merged, by others.
                until = min(began, said.began)
                waiting = [g for g, step in claims.items() if step < until and not self.store.peek(skipped.format(g))]
                if waiting and self._txn_at(identity.app_id, said.newest) < max(waiting):
                    _fail(f"{said.actor} fails because of version {commit.version}, a compaction: {error}")

    def _check_rightly_refused(self, said: Said, key: str, generation: int) -> None:
        """Where every file of an append is as it was, a rerun can take it back."""
        self.counters["taking back refused"] += 1
        identity = said.plan.load.writer(key)
        commit = next((c for c in self.commits if c.generations.get(identity.app_id) == generation), None)
        mine = [a["path"] for a in commit.adds if a["path"].startswith(f"{identity.directory}/")] if commit else []
        since = self.commits[commit.version :] if commit else []
        if not mine and any(later.info.get("operation") == "RESTORE" for later in since):
            # Without files, nobody can tell whether what was there before came back.
            return
        if not self.d.scenario.checkpoints and not self.changed & set(mine):
            _fail(f"{said.actor} may not take back {mine}, though nobody changed it")

    def judge_settled(self, said: Said) -> None:
        """After the last reconciliation of a load: every complete buffer's writer is settled, or refused with a reason.

        :param said: by reconcile, undisturbed.
        :raises ViolationError: saying what is wrong.
        """
        if not isinstance(said.said, Report):
            _fail(f"{said.actor} could not settle {said.plan.load.id}: {said.error}")
        assert isinstance(said.said, Report)
        for outcome in said.said.outcomes:
            app_id = said.plan.load.writer(outcome.writer).app_id
            newest = max(self.store.claims.get(self._directory[app_id], {}), default=0)
            if outcome.status in ("refused", "held_back"):
                continue
            for path in self._complete(app_id):
                spec = self._version_0(path)["commitInfo"]["staged"]["spec"]
                if spec["generation"] != newest or path in self.store.closings:
                    continue
                again = spec["on_rerun"] == "skip" and self.txns.get(app_id)
                if self.txns.get(app_id) != newest and not again and outcome.status != "missing":
                    _fail(f"{app_id} is {outcome.status}, but {path} is not settled")
                if outcome.status == "missing" and outcome.error is None:
                    _fail(f"{app_id} is missing, but {path} is complete")

    # -- facts -----------------------------------------------------------------------------------------------------------

    def _partition(self, file: dict[str, Any]) -> int:
        return self.d.scenario.column.read(spelling_of(file))

    def _into(self, plan: LoadPlan, record: dict[str, Any], staged: Staged | None) -> tuple[int, ...] | None:
        if staged is not None:
            return staged.writer.into
        task = self._version_0(record["buffer"])["commitInfo"]["staged"]["spec"]["task"]
        return next(w.into for w in plan.writers if w.task == task)

    def _read_file(self, add: dict[str, Any]) -> list[Row]:
        data = self.store.contents.get(unquote(add["path"]))
        if data is None:
            raise ViolationError(f"there never was a file {add['path']}")
        return load_rows(data, hidden_rows(self.store, add))

    def _rows(self, add: dict[str, Any]) -> tuple[str, ...]:
        return tuple(name for name, _ in self._read_file(add))

    def _actions(self, version: int) -> tuple[dict[str, Any], ...]:
        return parsed(self.store.entries[version].data)

    def _txns(self, version: int) -> dict[str, int]:
        return {a["txn"]["appId"]: a["txn"]["version"] for a in self._actions(version) if "txn" in a}

    def _txn_at(self, app_id: str, version: int) -> int:
        found = 0
        for commit in self.commits[: version + 1]:
            found = commit.generations.get(app_id, found)
        return found

    def _version_0(self, path: str) -> dict[str, Any]:
        stored = self.store.peek(f"{path}/_delta_log/{0:020d}.json")
        assert stored is not None
        return {k: v for action in parsed(stored.data) for k, v in action.items()}

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

    def _read_version(self, path: str) -> int:
        return int(self._version_0(path)["commitInfo"]["staged"]["readVersion"])

    def _complete(self, app_id: str) -> list[str]:
        return [path for path in self.store.completed if path.startswith(f"{self._directory[app_id]}/")]


def _after(one: Published, other: Published) -> bool:
    """Say whether a write comes after another: it saw it, or is its rerun, or finished later."""
    if one.ours and other.ours and one.plan is other.plan:
        for app_id, generation in one.generations.items():
            if app_id in other.generations:
                return generation > other.generations[app_id]
    if one.read >= other.version:
        return True
    if other.read >= one.version:
        return False
    if one.key is None or other.key is None:
        return one.version > other.version
    return one.key > other.key


def _compare(version: int, what: str, expected: set[str], actual: list[str]) -> None:
    if expected != set(actual):
        missing, extra = sorted(expected - set(actual)), sorted(set(actual) - expected)
        _fail(f"version {version} {what}: it lacks {missing}, it should not have {extra}")
