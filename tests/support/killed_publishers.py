"""Two publishers of one table, of which one is killed by SIGKILL again and again: ``python -m`` this module runs them.

The process that kills has imported everything and used none of it, so a publisher is a fork of it: it begins warm, and no
thread is forked. Each writer stages its rows, says so, and publishes. It is killed at a moment drawn from all of the
time that such a publish takes. Then it is tried again, and that try may be killed, too, until one ends. Whenever one
begins to publish, the other publisher does so, too, with rows of its own.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import select
import signal
import statistics
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import IO, Any

import attrs
import pandas  # noqa: F401  Arrow imports it at the first table.

from airflow_provider_onelake.buffers.buffer import Buffer
from airflow_provider_onelake.buffers.spec import WriteSpec
from airflow_provider_onelake.exceptions import OneLakeError
from airflow_provider_onelake.history.reruns import Skip
from airflow_provider_onelake.log import checkpoints, parquet_checkpoints  # noqa: F401  And others need these, later.
from airflow_provider_onelake.maintenance import manifests, pinned_versions  # noqa: F401
from airflow_provider_onelake.modes import Append, Merge, OverwritePartitions
from airflow_provider_onelake.steps.merge import merge_buffer
from airflow_provider_onelake.steps.spark import SparkWork
from airflow_provider_onelake.storage.addresses import TableAddress
from airflow_provider_onelake.storage.local import LocalDisk
from airflow_provider_onelake.table import Table
from airflow_provider_onelake.writes.publish import Committer  # noqa: F401
from tests.support.merges import MergeByHand
from tests.support.tables import LOAD, Stage, finish, prepare, writer_spec

MODES: dict[str, Callable[[], Any]] = {
    "append": Append,
    "own": OverwritePartitions,
    "shared": OverwritePartitions,
    "merge": lambda: Merge(keys="id"),  # type: ignore[arg-type]
}
# No process of ours takes this long for one publish, even on a busy machine.
_PATIENCE = 120.0


@attrs.frozen
class Work:
    """What one generation of a writer is to do.

    :param kind: ``append``; ``own``, which replaces a partition of its own; ``shared``, which replaces one that the other
        publisher replaces as well; or ``merge``, an upsert by id.
    :param ids: of its rows, all in one month.
    """

    kind: str
    writer: str
    generation: int
    month: str
    ids: tuple[int, ...]

    @property
    def app_id(self) -> str:
        """Its ``txn`` id."""
        return LOAD.writer(self.writer).app_id

    def spec(self) -> WriteSpec:
        """The terms of one more try."""
        return writer_spec(self.writer, mode=MODES[self.kind](), generation=self.generation)


@attrs.frozen
class Staged:
    """What a try has staged, or found.

    :param read: the version of the table that it is formed on.
    """

    work: Work
    buffer: str
    read: int
    finished: datetime


def works_of(publisher: str) -> Iterator[Work]:
    """All that a publisher has to do, of each kind in turn.

    :param publisher: ``0`` or ``1``, which tells the ids of the two.
    """
    first = 1_000_000_000 * int(publisher)
    for number in itertools.count():
        ids = tuple(range(first + 3 * number, first + 3 * number + 3))
        name = f"{publisher}-{number}"
        yield Work("append", f"append-{name}", 1, f"appended-{number % 3}", ids)
        yield Work("own", f"own-{publisher}-{number % 2}", number // 2 + 1, f"own-{publisher}-{number % 2}", ids)
        yield Work("shared", f"shared-{name}", 1, "shared", ids)
        # Two of its ids are there, and one is new. All of them come into another month.
        merged = tuple(first + 500_000_000 + number % 40 + at for at in range(3))
        yield Work("merge", f"merge-{name}", 1, f"merged-{publisher}-{number % 2}", merged)


def table_at(path: Path) -> Table:
    """A table on the local disk, whose puts wait for no disk."""
    return Table(TableAddress.parse(str(path)), LocalDisk(fsync=False), 10.0)


def publish(table: Table, work: Work, say: Callable[[Any], None]) -> None:
    """Do a writer's work, as its task does; a retry goes on with what there is.

    :param say: is told what was staged before any of it is published, and then how it ended.
    """
    spec = work.spec()
    done = prepare(table.log, spec)
    if isinstance(done, Stage):
        done = finish(table.log, done, spec, {work.month: list(work.ids)})
    if isinstance(done, Skip):
        say({"skipped": done.version})
        return
    say({"buffer": done.path, "read": done.read_version, "finished": done.finished.isoformat()})
    say({"ended": _published(table, work, done)})


def _published(table: Table, work: Work, buffer: Buffer) -> str:
    if work.kind == "merge":
        return merge_buffer(table, SparkWork(MergeByHand), buffer, retried=True).status.value
    return table.committer().publish([buffer]).status.value


@attrs.define
class _Process:
    """A fork that publishes once."""

    pid: int
    pipe: IO[str]

    @classmethod
    def of(cls, path: Path, work: Work) -> _Process:
        came, goes = os.pipe()
        pid = os.fork()
        if pid == 0:
            # Fork after fork, none keeps the other publisher waiting for a turn.
            os.closerange(3, came + 1)
            _run(lambda: publish(table_at(path), work, lambda said: os.write(goes, _line(said))), goes)
        os.close(goes)
        return cls(pid, os.fdopen(came))

    def says(self, seconds: float) -> Any:
        """Return the next line that it says, ``None`` if it has said nothing in time or has ended."""
        ready, _, _ = select.select([self.pipe], [], [], seconds)
        line = self.pipe.readline() if ready else ""
        return json.loads(line) if line else None

    def ends(self) -> bool:
        """Wait until it has ended, and say whether a signal has ended it."""
        _, status = os.waitpid(self.pid, 0)
        self.pipe.close()
        return os.WIFSIGNALED(status)


def _line(said: Any) -> bytes:
    return json.dumps(said).encode() + b"\n"


def _run(call: Callable[[], None], goes: int) -> None:
    """Call something in a fork, which never returns."""
    try:
        call()
    except OneLakeError as error:
        os.write(goes, _line({"refused": f"{type(error).__name__}: {error}"[:2000]}))
    except BaseException:
        os.write(goes, _line({"failed": traceback.format_exc()[-2000:]}))
    finally:
        os._exit(0)


@attrs.define
class Killer:
    """Runs one publisher and kills it.

    :param path: of the table.
    :param chance: when to kill.
    :param other: the end of a pipe that lets the other publisher publish once for each byte.
    """

    path: Path
    chance: random.Random
    other: int
    # Of publishes that nobody killed, in seconds.
    took: dict[str, list[float]] = attrs.field(factory=lambda: {kind: [] for kind in MODES})
    staged: list[Any] = attrs.field(factory=list)
    kills: list[dict[str, str]] = attrs.field(factory=list)
    failures: list[str] = attrs.field(factory=list)

    def does(self, work: Work, *, kill: bool) -> None:
        """Let a writer publish, and kill its tries until one ends before it is killed."""
        while not self.tries(work, kill=kill):
            # Two out of three retries are let alone, so that most kills are of work that nobody has begun before.
            kill = kill and self.chance.random() < 1 / 3

    def tries(self, work: Work, *, kill: bool) -> bool:
        """Run one try, and say whether it has ended without being killed."""
        process = _Process.of(self.path, work)
        said = process.says(_PATIENCE)
        began = time.monotonic()
        if said is None or "buffer" not in said:
            self._note(work, said)
            process.ends()
            return True
        os.write(self.other, b".")
        self.staged.append({"work": attrs.asdict(work), **said})
        ended = self._until_its_moment(process, work) if kill else process.says(_PATIENCE)
        if ended is None:
            os.kill(process.pid, signal.SIGKILL)
        else:
            self.took[work.kind].append(time.monotonic() - began)
            self._note(work, ended)
        if not process.ends():
            return True
        self.kills.append({"kind": work.kind, "when": self._when(work, said["buffer"])})
        return False

    def _until_its_moment(self, process: _Process, work: Work) -> Any:
        """Wait until a publisher is to be killed. Return what it has said, if it has ended before.

        Two of three moments are drawn from all of the time; the others come when anybody begins to put a version.
        """
        # Longer than most publishes take: on a busy machine some take longer than others.
        within = self.chance.uniform(0.0, 1.5) * statistics.median(self.took[work.kind][-15:])
        if self.chance.random() < 2 / 3:
            return process.says(within)
        log, ended = self.path / "_delta_log", None
        # Drafts of puts are among them.
        before, until = len(os.listdir(log)), time.monotonic() + _PATIENCE  # noqa: PTH208
        while ended is None and len(os.listdir(log)) == before and time.monotonic() < until:  # noqa: PTH208
            ended = process.says(0.0)
        return ended if ended is not None else process.says(self.chance.uniform(0.0, 0.01))

    def _note(self, work: Work, said: Any) -> None:
        if said is None or not said.keys() & {"skipped", "ended"}:
            self.failures.append(f"{work.writer}: {said}")

    def _when(self, work: Work, buffer: str) -> str:
        """Say how far a publisher had come when it was killed, by what lies on the disk."""
        if (self.path / buffer / "_closed.json").exists():
            return "after the marker"
        txn = {"appId": work.app_id, "version": work.generation}
        newest = sorted((self.path / "_delta_log").glob("0*.json"), reverse=True)[:60]
        actions = (json.loads(line) for entry in newest for line in entry.read_text().splitlines())
        there = any(txn.items() <= action["txn"].items() for action in actions if "txn" in action)
        return "between put and marker" if there else "before the put"


def _beside(path: Path, said: Path, turns: int) -> None:
    """Be the publisher that nobody kills, until nobody gives it a turn any more."""
    table = table_at(path)
    with said.open("wb", buffering=0) as lines:
        for work in works_of("1"):
            if not os.read(turns, 1):
                return
            publish(table, work, lambda told, work=work: lines.write(_line({"work": attrs.asdict(work), **told})))  # type: ignore[misc]


def main(path: Path, kills: int, seed: int) -> dict[str, Any]:
    """Run both publishers until one was killed so many times.

    :param path: of a table, which is there.
    :param seed: of the moments.
    :returns: what was staged, by either; the kills; and what failed, which should be nothing.
    """
    other, (turns, gives) = path.with_name(f"{path.name} other"), os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(gives)
        with path.with_name(f"{path.name} failed").open("wb", buffering=0) as failed:
            _run(lambda: _beside(path, other, turns), failed.fileno())
    killer = Killer(path, random.Random(seed), gives)
    try:
        for number, work in enumerate(works_of("0")):
            # The first ones of each kind say how long it takes.
            killer.does(work, kill=number >= 3 * len(MODES))
            if len(killer.kills) >= kills or killer.failures:
                break
    finally:
        os.close(gives)
        os.waitpid(pid, 0)
    failed = path.with_name(f"{path.name} failed").read_text()
    told = [json.loads(line) for line in other.read_text().splitlines()]
    return {
        "staged": [*killer.staged, *(line for line in told if "buffer" in line)],
        "kills": killer.kills,
        "failures": [*killer.failures, *([failed] if failed else [])],
        "seconds": {kind: statistics.median(took) for kind, took in killer.took.items()},
    }


def ran(path: Path, kills: int, seed: int) -> dict[str, Any]:
    """Run :func:`main` in a process of its own, in which nothing has begun a thread."""
    result = path.with_name(f"{path.name} result")
    asked = [sys.executable, "-m", __name__, str(path), str(kills), str(seed), str(result)]
    subprocess.run(asked, check=True, stdout=subprocess.DEVNULL, cwd=Path(__file__).parents[2])
    return dict(json.loads(result.read_text()))


if __name__ == "__main__":
    Path(sys.argv[4]).write_text(json.dumps(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))))
