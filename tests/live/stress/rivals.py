"""What became of loads that replaced the same partitions by every policy, while others wrote there as well.

The log is read as JSON, the rows by deltalake, and what each load was told comes from Airflow: nothing here asks the
package how it decides.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import attrs
import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from tests.live.stress.shape import BLOCK, COLUMNS, Load, Row, is_overwriter
from tests.support.log_order import Commit, LogOrder, Outcome, Rows, Write

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from tests.live.stress.meddler import Statement

_IN_THE_TABLE = ("published", "already_published", "superseded", "deleted")
_MOST = 3


@attrs.frozen
class Told:
    """What Airflow was told of a writer.

    :param status: ``published``, ``superseded``, ``set_aside``, ``refused``, ….
    :param story: what became of its rows since, in words.
    :param asked: when it was asked what became of its rows; ``None`` where it was told what it had just done.
    """

    load: Load
    writer: str
    status: str
    version: int | None = None
    rows: int | None = None
    error: str = ""
    story: tuple[str, ...] = ()
    asked: float | None = None

    @property
    def who(self) -> str:
        """The writer, for people."""
        return f"{self.load.name}/{self.writer} ({self.load.policy})"


@attrs.define
class Contest:
    """What was found.

    :param problems: what is wrong, a sentence each.
    :param outcomes: of writers, by policy and status.
    :param fates: of the partitions of what was published: whole at the end, or who took rows.
    :param kinds: versions, by who made them.
    :param order: of the table's versions, which is judged.
    :param landed: when the versions came into the store.
    """

    problems: list[str] = attrs.field(factory=list)
    outcomes: Counter[tuple[str, str]] = attrs.field(factory=Counter)
    fates: Counter[str] = attrs.field(factory=Counter)
    kinds: Counter[str] = attrs.field(factory=Counter)
    order: LogOrder = attrs.field(factory=LogOrder)
    landed: list[float] = attrs.field(factory=list)


def judge_rivals(
    table: Path, loads: Iterable[Load], statements: Mapping[str, Statement], told: Iterable[Told]
) -> Contest:
    """Look at every version of the table, and at what was said of it.

    :param statements: of other engines, by name; those that took effect and those that did not.
    """
    seen, log = Contest(), Log(table, {load.name: load for load in loads}, statements)
    versions: dict[str, int] = {}
    for version in range(log.newest + 1):
        rows = rows_at(table, version)
        seen.problems += [f"{row} is {count} times in version {version}" for row, count in rows.items() if count > 1]
        kind, names, commit = log.read(version)
        seen.kinds[kind] += 1
        for name in names:
            if name in versions:
                seen.problems.append(f"{name} is in versions {versions[name]} and {version}")
            versions[name] = version
        twice = doubled(frozenset(rows))
        seen.problems += [f"{row} is beside another form of it in version {version}" for row in sorted(twice)[:_MOST]]
        seen.order.take_in(commit, frozenset(rows))
        seen.landed.append(log.landed(version) / 1e9)
    seen.problems += log.problems + seen.order.complaints
    for statement in statements.values():
        # A DELETE or UPDATE that meets no row may leave no version.
        if statement.name not in versions and statement.write.puts:
            seen.problems.append(f"{statement.name} ({statement.kind} in {statement.part}) is in no version")
    for said in told:
        seen.outcomes[said.load.policy, said.status] += 1
        seen.problems += [f"{said.who} {what}" for what in judge_told(said, seen, versions, log.staged(said))]
        seen.fates.update(_fates(said, seen))
    return seen


def rows_at(table: Path, version: int | None = None) -> Counter[Any]:
    """The table's rows, and how often each is there, as deltalake reads them.

    :param version: default: the newest.
    """
    query = f"SELECT {', '.join(COLUMNS)} FROM t"
    builder = QueryBuilder().register("t", DeltaTable(str(table), version=version))
    found = pa.table(builder.execute(query).read_all())
    return Counter(zip(*(found.column(name).to_pylist() for name in COLUMNS), strict=True))


# -- the log -----------------------------------------------------------------------------------------------------------


@attrs.define
class Log:
    """Reads whose write a version is.

    :param statements: of other engines, by name.
    """

    table: Path
    loads: Mapping[str, Load]
    statements: Mapping[str, Statement]
    problems: list[str] = attrs.field(factory=list)

    @property
    def newest(self) -> int:
        """The newest version."""
        return max(int(entry.stem) for entry in self._log.glob("*.json") if entry.stem.isdigit())

    def landed(self, version: int) -> int:
        """When a version came into the store, in nanoseconds."""
        return (self._log / f"{version:020}.json").stat().st_mtime_ns

    def read(self, version: int) -> tuple[str, list[str], Commit]:
        """Return who made a version, in a word, the names of its writes, and what they do together."""
        actions = _actions(self._log / f"{version:020}.json")
        info: dict[str, Any] = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
        files = [body for action in actions for kind, body in action.items() if kind in ("add", "remove")]
        changed = frozenset(file["partitionValues"]["part"] for file in files if file.get("dataChange", True))
        writers = (info.get("staged") or {}).get("writers", ())
        if writers:
            load = self.loads[unquote(writers[0]["app_id"]).split("/")[-2]]
            names = [f"{load.name}/{writer['writer']}" for writer in writers]
            commit = self._of_load(load, [writer["buffer"] for writer in writers])
            return load.dag_id, names, attrs.evolve(commit, may_change=changed)
        statement, landed = self.statements.get(str(info.get("userMetadata"))), (self.landed(version), "")
        if statement is not None:
            does, who = statement.write, f"{statement.kind} in {statement.part}"
            return statement.kind, [statement.name], Commit(who, does, landed, does.wipes, may_change=changed)
        if changed:
            self.problems.append(f"Version {version} is nobody's: {info.get('operation')} of {info.get('engineInfo')}")
        kind = str(info.get("operation", "?"))
        return kind, [], Commit(kind, finished=landed)

    def staged(self, said: Told) -> list[Commit]:
        """Return what each complete buffer of a writer would do; those that are published together, at once."""
        together = said.load.dag_id == BLOCK
        found = [
            path.parents[1].relative_to(self.table).as_posix()
            for writer in (said.load.writers if together else [said.writer])
            for path in self.table.glob(f"staged/{writer}-*/*/_delta_log/{1:020}.json")
            if self._opened(path.parents[1])["identity"]["run"] == said.load.name
        ]
        return [self._of_load(said.load, buffers) for buffers in ([found] if together else [[path] for path in found])]

    def _of_load(self, load: Load, buffers: list[str]) -> Commit:
        specs = [self._opened(self.table / buffer) for buffer in buffers]
        writers = [spec["identity"]["writer"] for spec in specs]
        parts = frozenset(part for writer in writers if is_overwriter(writer) for part in load.parts(writer))
        mates = [writer for writer in load.writers if writer not in writers and load.dag_id == BLOCK]
        return Commit(
            f"{', '.join(writers)} of {load.name}",
            Write(parts, _rows(load, mates), puts=_rows(load, writers)),
            max(
                ((self.table / buffer / "_delta_log" / f"{1:020}.json").stat().st_mtime_ns, spec["app_id"])
                for buffer, spec in zip(buffers, specs, strict=True)
            ),
            parts,
            policy=load.policy if parts else None,
            read=min(spec["read"] for spec in specs),
            # Two loads of one kind have writers of one name.
            writers=frozenset(f"{load.name}/{writer}" for writer in writers),
            allies=frozenset(f"{load.name}/{writer}" for writer in mates),
            load=load.name,
            began=None if load.dag_id == BLOCK else specs[0]["began"]["version"],
        )

    def _opened(self, buffer: Path) -> dict[str, Any]:
        """Return what a buffer's version 0 says of its writer."""
        (info,) = [a["commitInfo"] for a in _actions(buffer / "_delta_log" / f"{0:020}.json") if "commitInfo" in a]
        spec = info["staged"]["spec"]
        ids = (spec["identity"][name] for name in ("namespace", "dag", "group", "run", "writer"))
        return {**spec, "read": info["staged"]["readVersion"], "app_id": "/".join(ids)}

    @property
    def _log(self) -> Path:
        return self.table / "_delta_log"


def _actions(entry: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in entry.read_text().splitlines() if line.strip()]


def _rows(load: Load, writers: Iterable[str]) -> frozenset[Row]:
    return frozenset(row for writer in writers for row in load.rows(writer))


# -- what was said -----------------------------------------------------------------------------------------------------


def judge_told(said: Told, seen: Contest, versions: Mapping[str, int], staged: Iterable[Commit]) -> Iterator[str]:
    """Yield what is wrong with what Airflow was told of a writer, in words that follow its name.

    :param versions: of the log, by the names of the writes in them.
    :param staged: what each of the writer's buffers would do.
    """
    name = (said.load.name, said.writer)
    counts = [sum(row[1:3] == name for row in state) for state in seen.order.states]
    version = versions.get("/".join(name))
    if said.status in _IN_THE_TABLE:
        if version is None or version != said.version:
            yield f"is {said.status} in version {said.version}, and the log says {version}"
            return
        if said.status == "superseded" and not any(counts):
            # It was left out, and whether it should have been is judged already.
            return
        if said.rows is not None and (counts[version] != said.rows or not said.rows):
            yield f"is {said.status} with {said.rows} rows in version {version}, and {counts[version]} came with it"
        if said.status in ("superseded", "deleted") and not list(_takers(seen.order, version, _parts(said))):
            yield f"is {said.status}, and nobody wrote there after version {version}"
        if said.status == "superseded" and max(counts[version:]) == min(counts[version:]):
            yield f"is superseded, and all its rows are there since version {version}"
        known = [v for v, at in enumerate(seen.landed) if said.asked is not None and version < v and at < said.asked]
        silent = said.status not in ("superseded", "deleted") and not said.story
        if silent and known and counts[known[-1]] < counts[version]:
            gone = counts[version] - counts[known[-1]]
            yield f"is {said.status}, though {gone} of its rows were gone by version {known[-1]}, before anybody asked"
    elif said.status in ("set_aside", "refused"):
        if any(counts):
            yield f"is {said.status}, and has rows in version {next(v for v, n in enumerate(counts) if n)}"
        if said.status == "set_aside" and said.load.policy != "first_writer_wins":
            yield "is set aside, which its policy does not do"
        if said.status == "refused" and not any(_is_refused(seen.order, commit) for commit in staged):
            yield f"is refused, and its policy refuses it at no version: {said.error}"
    else:
        yield f"is {said.status}: {said.error}"


def _is_refused(order: LogOrder, commit: Commit) -> bool:
    """Say whether there is a version at which a policy refuses a commit."""
    later = range(commit.read + 1, len(order.states) + 1)
    return any(order.ruling(commit, at)[0] is Outcome.REFUSED for at in later)


def _takers(order: LogOrder, version: int, parts: set[str]) -> Iterator[Commit]:
    """Yield the commits after a version that replaced or changed rows of some partitions."""
    for later in range(version + 1, len(order.commits)):
        commit = order.commits[later]
        if order.touched(later) & parts and (commit.write.wipes or commit.write.changes is not None):
            yield commit


def _fates(said: Told, seen: Contest) -> Iterator[str]:
    """Yield what became of each partition of what was published; what nobody took is whole."""
    order = seen.order
    if said.status not in _IN_THE_TABLE or said.version is None or said.version >= len(order.states):
        return
    mine = _rows(said.load, [said.writer])
    if not mine & order.states[said.version]:
        yield "left out"
        return
    for part in _parts(said):
        here = frozenset(row for row in mine if row[0] == part)
        takers = list(_takers(order, said.version, {part}))
        if here <= order.states[-1]:
            yield "whole"
        elif takers:
            yield "replaced by a load" if takers[-1].load else "changed by a statement"
        else:
            seen.problems.append(
                f"{said.who} lacks rows in {part}, and nobody wrote there after version {said.version}"
            )


def _parts(said: Told) -> set[str]:
    return set(said.load.parts(said.writer))


def doubled(state: Rows) -> Rows:
    """Return the rows that are there as well with another value."""
    keys = Counter(row[:4] for row in state)
    return frozenset(row for row in state if keys[row[:4]] > 1)
