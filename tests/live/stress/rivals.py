"""What became of loads that replaced the same partitions by every policy, while others wrote there as well.

The log is read as JSON, the rows by deltalake, and what each load was told comes from Airflow: nothing here asks the
package how it decides.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import attrs
import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from tests.live.stress.history import Effect, History, State, Write, by_writer
from tests.live.stress.shape import COLUMNS, Load, is_overwriter

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from tests.live.stress.meddler import Statement

_IN_THE_TABLE = ("published", "already_published", "superseded", "deleted")
_BLAMED = re.compile(r"version (\d+) \([^)]*\) changed part=(\w+)")
# A refusal that says that rows cannot be told apart, or that a winner has no one place in the order, names that winner.
_MIXED = re.compile(r"may hold older rows beside its own|left older rows there|settled partition by partition")
_MOST = 3
_REFUSING = ("fail", "last_writer_wins")


@attrs.frozen
class Told:
    """What Airflow was told of a writer.

    :param load: of the writer.
    :param writer: its name.
    :param status: ``published``, ``superseded``, ``set_aside``, ``refused``, ….
    :param version: that its rows came with.
    :param rows: that came with it.
    :param error: why it was refused.
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
    :param history: of the table.
    """

    problems: list[str] = attrs.field(factory=list)
    outcomes: Counter[tuple[str, str]] = attrs.field(factory=Counter)
    fates: Counter[str] = attrs.field(factory=Counter)
    kinds: Counter[str] = attrs.field(factory=Counter)
    history: History = attrs.field(factory=History)


def judge_rivals(
    table: Path, loads: Iterable[Load], statements: Mapping[str, Statement], told: Iterable[Told]
) -> Contest:
    """Look at every version of the table, and at what was said of it.

    :param table: its directory.
    :param loads: that wrote.
    :param statements: of other engines, by name; those that took effect and those that did not.
    :param told: of the loads' writers.
    """
    seen, log = Contest(), Log(table, {load.name: load for load in loads}, statements)
    versions: dict[str, int] = {}
    for version in range(log.newest + 1):
        rows = rows_at(table, version)
        seen.problems += [f"{row} is {count} times in version {version}" for row, count in rows.items() if count > 1]
        kind, names, write = log.read(version)
        seen.kinds[kind] += 1
        for name in names:
            if name in versions:
                seen.problems.append(f"{name} is in versions {versions[name]} and {version}")
            versions[name] = version
        twice = doubled(frozenset(rows))
        seen.problems += [f"{row} is beside another form of it in version {version}" for row in sorted(twice)[:_MOST]]
        seen.history.take_in(write, frozenset(rows), log.landed(version))
    seen.problems += log.problems + seen.history.problems
    for statement in statements.values():
        # A DELETE or UPDATE that meets no row may leave no version.
        if statement.name not in versions and statement.effect.puts:
            seen.problems.append(f"{statement.name} ({statement.kind} in {statement.part}) is in no version")
    for said in told:
        seen.outcomes[said.load.policy, said.status] += 1
        seen.problems += [f"{said.who} {what}" for what in judge_told(said, seen.history, versions)]
        seen.fates.update(_fates(said, seen))
    return seen


def rows_at(table: Path, version: int | None = None) -> Counter[Any]:
    """The table's rows, and how often each is there, as deltalake reads them.

    :param table: its directory.
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

    :param table: its directory.
    :param loads: that wrote, by name.
    :param statements: of other engines, by name.
    :param problems: what is wrong with it.
    """

    table: Path
    loads: Mapping[str, Load]
    statements: Mapping[str, Statement]
    problems: list[str] = attrs.field(factory=list)

    @property
    def newest(self) -> int:
        """The newest version."""
        return max(int(entry.stem) for entry in self._log.glob("*.json") if entry.stem.isdigit())

    def landed(self, version: int) -> float:
        """When a version came into the store.

        :param version: of the table.
        """
        return (self._log / f"{version:020}.json").stat().st_mtime

    def read(self, version: int) -> tuple[str, list[str], Write | None]:
        """Return who made a version, in a word, the names of its writes, and what they do together.

        :param version: to read.
        """
        entry = self._log / f"{version:020}.json"
        actions = [json.loads(line) for line in entry.read_text().splitlines() if line.strip()]
        info: dict[str, Any] = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
        files = [body for action in actions for kind, body in action.items() if kind in ("add", "remove")]
        txns = [action["txn"]["appId"] for action in actions if "txn" in action]
        ours = [unquote(app_id).split("/") for app_id in txns if app_id.startswith("onelake/")]
        if ours:
            load, writers = self.loads[ours[0][-2]], [parts[-1] for parts in ours]
            return load.dag_id, [f"{load.name}/{writer}" for writer in writers], self._of_load(load, writers, info)
        statement = self.statements.get(str(info.get("userMetadata")))
        if statement is not None:
            who = f"{statement.kind} in {statement.part}"
            return statement.kind, [statement.name], Write(who, statement.effect, self.landed(version))
        if any(file.get("dataChange", True) for file in files):
            self.problems.append(f"Version {version} is nobody's: {info.get('operation')} of {info.get('engineInfo')}")
        return str(info.get("operation", "?")), [], None

    def _of_load(self, load: Load, writers: list[str], info: Mapping[str, Any]) -> Write:
        parts = {part for writer in writers if is_overwriter(writer) for part in load.parts(writer)}
        rows = frozenset(row for writer in writers for row in load.rows(writer))
        record = info["staged"]
        finished = max(self._finished(writer["buffer"]) for writer in record["writers"])
        who = f"{', '.join(writers)} of {load.name}"
        policy = load.policy if parts else None
        return Write(who, Effect(frozenset(parts), puts=rows), finished, policy, record["readVersion"], load.name)

    def _finished(self, buffer: str) -> float:
        return (self.table / buffer / "_delta_log" / f"{1:020}.json").stat().st_mtime

    @property
    def _log(self) -> Path:
        return self.table / "_delta_log"


# -- what was said -----------------------------------------------------------------------------------------------------


def judge_told(said: Told, history: History, versions: Mapping[str, int]) -> Iterator[str]:
    """Yield what is wrong with what Airflow was told of a writer, in words that follow its name.

    :param said: of the writer.
    :param history: of the table.
    :param versions: of the log, by the names of the writes in them.
    """
    name = (said.load.name, said.writer)
    counts = [by_writer(state).get(name, 0) for state in history.states]
    version = versions.get("/".join(name))
    if said.status in _IN_THE_TABLE:
        if version is None or version != said.version:
            yield f"is {said.status} in version {said.version}, and the log says {version}"
            return
        if said.rows is not None and (counts[version] != said.rows or not said.rows):
            yield f"is {said.status} with {said.rows} rows in version {version}, and {counts[version]} came with it"
        takers = [write.who for _, write, effect in history.followers(version) if _takes(effect, _parts(said))]
        if said.status in ("superseded", "deleted") and not takers:
            yield f"is {said.status}, and nobody wrote there after version {version}"
        if said.status == "superseded" and max(counts[version:]) == min(counts[version:]):
            yield f"is superseded, and all its rows are there since version {version}"
        known = [v for v, at in enumerate(history.landed) if said.asked is not None and version < v and at < said.asked]
        silent = said.status not in ("superseded", "deleted") and not said.story
        if silent and known and counts[known[-1]] < counts[version]:
            gone = counts[version] - counts[known[-1]]
            yield f"is {said.status}, though {gone} of its rows were gone by version {known[-1]}, before anybody asked"
    elif said.status in ("set_aside", "refused"):
        if any(counts):
            yield f"is {said.status}, and has rows in version {next(v for v, n in enumerate(counts) if n)}"
        if said.status == "refused":
            yield from _judge_refusal(said, history, version)
        elif said.load.policy == "fail":
            yield "is set aside, which its policy does not do"
    else:
        yield f"is {said.status}: {said.error}"


def _judge_refusal(said: Told, history: History, version: int | None) -> Iterator[str]:
    """A run is red only where its policy says so, and then it names a commit that changed what the writer replaces."""
    if version is not None:
        yield f"is refused, and in version {version} of the log"
    if said.load.policy not in _REFUSING:
        yield f"is refused, which its policy does not do: {said.error}"
    blamed = _BLAMED.search(said.error)
    if blamed is None:
        yield f"is refused, and names no conflict: {said.error}"
        return
    rival, part = int(blamed[1]), blamed[2]
    write = history.writes[rival] if rival < len(history.writes) else None
    if write is None or part not in history.touched(rival) | write.effect.wipes:
        yield f"is refused because of version {rival}, which changed nothing in {part}: {said.error}"
    elif part not in {p for writer in said.load.writers if is_overwriter(writer) for p in said.load.parts(writer)}:
        yield f"is refused because of {part}, which it does not replace: {said.error}"
    elif said.load.policy == "last_writer_wins" and not _MIXED.search(said.error):
        whole = part in write.effect.wipes and write.effect.changes is None
        if write.appends or whole:
            yield f"is refused because of version {rival} ({write.who}), which does the same after any write: {said.error}"


def _fates(said: Told, seen: Contest) -> Iterator[str]:
    """Yield what became of each partition of what was published; what nobody took is whole."""
    if said.status not in _IN_THE_TABLE or said.version is None or said.version >= len(seen.history.states):
        return
    history, last = seen.history, seen.history.states[-1]
    mine = frozenset(said.load.rows(said.writer))
    for part in _parts(said):
        here = frozenset(row for row in mine if row[0] == part)
        if here <= last:
            yield "whole"
            continue
        takers = [write for _, write, effect in history.followers(said.version) if _takes(effect, {part})]
        if takers:
            yield "replaced by a load" if takers[-1].load else "changed by a statement"
        elif not here & history.did(said.version).puts:
            # Settled partition by partition: this one was left to others.
            yield "left to others"
        else:
            seen.problems.append(
                f"{said.who} lacks rows in {part}, and nobody wrote there after version {said.version}"
            )


def _takes(effect: Effect, parts: Iterable[str]) -> bool:
    return effect.changes is not None or not effect.wipes.isdisjoint(parts)


def _parts(said: Told) -> set[str]:
    return set(said.load.parts(said.writer))


def doubled(state: State) -> State:
    """Return the rows that are there as well with another value.

    :param state: of a table.
    """
    keys = Counter(row[:4] for row in state)
    return frozenset(row for row in state if keys[row[:4]] > 1)
