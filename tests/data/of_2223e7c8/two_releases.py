"""Tasks of 2223e7c8 and of today's code in one load: no row is lost or doubled, and no task is green without its rows.

An upgrade reaches one worker after the other, so a try may be of another release than the one before it, or than its
colleagues. To be run by hand, with a checkout of 2223e7c8:

    git worktree add --detach ../of_2223e7c8 2223e7c8
    python -m tests.data.of_2223e7c8.two_releases ../of_2223e7c8 [words of the scenes' names]

Each scene is played twice: the old release comes first, and today's. A DELETE, UPDATE or TRUNCATE is played one way, from
the old release to today's: an old worker does not know the ``txn`` by which today's release tells that it was done, so
CHANGELOG.md says to let statements end before an upgrade. A scene ends with the rows that it should, or with a
refusal by name that leaves them alone, which is told. Everything else is told as wrong, and then the script fails.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import attrs

from tests.data.of_2223e7c8.runs import Run, TaskOfRun
from tests.support.sql_by_hand import Row, files_of, in_order, table_rows
from tests.support.tables import foreign_append, foreign_commit, local_log, make_table

HERE = Path(__file__).parents[3]
COMMITS, MARKERS, VERDICTS, BUFFERS = "_delta_log/", r"staged/.*_closed", r"staged/.*_checked", r"staged/.*/_delta_log/"
JANUARY, MARCH = "2019-01", "2019-03"
KILLED, DONE = "killed", ""
MERGED = ["MATCHED THEN UPDATE SET target.month = source.month", "NOT MATCHED THEN INSERT *"]
ONCE = ["NOT MATCHED THEN INSERT *"]
_SECONDS = 120.0

Rows = Mapping[str, Mapping[str, list[int]]]
Dag = tuple[str, dict[str, Any]]


@attrs.define
class Release:
    """A process that runs tasks of one release.

    :param name: ``old`` or ``new``.
    :param tree: its checkout.
    """

    name: str
    tree: Path
    _process: subprocess.Popen[str] | None = None

    def start(self, home: Path) -> None:
        """Import all that tasks need."""
        # Its own package and its own tests come first; what this directory has is of this checkout in both.
        path = os.pathsep.join(dict.fromkeys((str(self.tree), str(HERE))))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.data.of_2223e7c8.one_task"],
            cwd=home,
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(home / f"{self.name}.log").open("w"),
            text=True,
        )

    def check(self) -> None:
        """Wait until it is ready, and see whose code it runs."""
        said = self._pipe("stdout").readline()
        while said and "airflow_provider_onelake" not in said:
            said = self._pipe("stdout").readline()
        if Path(said.strip()).parents[1] != self.tree:
            raise SystemExit(f"The {self.name} release is not that of {self.tree}, but of {said!r}.")

    def ask(self, asked: Mapping[str, Any]) -> None:
        """Have it begin a task."""
        pipe = self._pipe("stdin")
        pipe.write(json.dumps(asked) + "\n")
        pipe.flush()

    def stop(self) -> None:
        """Let it end."""
        self._pipe("stdin").close()
        assert self._process is not None
        self._process.wait()

    def _pipe(self, name: str) -> IO[str]:
        assert self._process is not None
        found: IO[str] | None = getattr(self._process, name)
        assert found is not None
        return found


class WrongError(Exception):
    """What must not be."""


@attrs.define
class Try:
    """A try of a task that has begun."""

    scene: Scene
    task: str
    out: Path

    def held(self) -> Try:
        """Wait until it waits, and return it."""
        self._until(self.out.with_suffix(".held"))
        kept = self.out.with_suffix(".kept")
        if kept.exists():
            self.scene.run.tasks[self.task].kept = json.loads(kept.read_text())
        return self

    def ends(self, *, of_date: bool = True) -> str:
        """Let it go on, wait until it has ended, and return how: by which error, if by one.

        :param of_date: whether the run goes on with what it leaves, as no other try of the task has begun since.
        """
        self.out.with_suffix(".go").touch()
        self._until(self.out)
        said = json.loads(self.out.read_text())
        if of_date and said["task"] is not None:
            self.scene.run.tasks[self.task] = TaskOfRun(**said["task"])
        self.scene.status[self.task] = said["status"]
        if "\n" in said["ended"]:
            raise WrongError(f"{self.task} failed:\n{said['ended']}")
        return str(said["ended"])

    def _until(self, file: Path) -> None:
        until = time.monotonic() + _SECONDS
        while not file.exists():
            if time.monotonic() > until or (self.out.exists() and file != self.out):
                raise WrongError(f"{self.task} does not come to {file.suffix or 'its end'}: {self._said()}")
            time.sleep(0.005)

    def _said(self) -> str:
        return self.out.read_text() if self.out.exists() else "nothing"


@attrs.define
class Scene:
    """One table, and a run of one DAG whose tasks are of two releases.

    :param first: the release that comes first.
    :param other: the other one.
    """

    first: Release
    other: Release
    lakehouse: Path
    table: str
    told: list[str] = attrs.field(factory=list)
    status: dict[str, str | None] = attrs.field(factory=dict)
    _tries: int = 0
    run: Run = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        began = {"began": "2019-02-01T00:00:00+00:00", "logical_date": "2019-01-01T00:00:00+00:00"}
        self.run = Run(self.table, "run", **began)

    @property
    def path(self) -> Path:
        """Of the table."""
        return self.lakehouse / "Tables" / self.table

    def before(self, rows: Mapping[str, list[int]]) -> None:
        """Make the table, with rows of another engine."""
        log = make_table(self.path)
        adds = files_of(self.path, [(row, month) for month, found in rows.items() for row in found], ["month"])
        info = {"timestamp": 1, "operation": "WRITE", "isBlindAppend": True}
        foreign_commit(log, [{"commitInfo": info}, *({"add": add} for add in adds)])

    def append(self, *rows: Row) -> None:
        """Append as another engine does."""
        for row, month in rows:
            foreign_append(local_log(self.path), {month: [row]})

    def delete(self, where: str) -> None:
        """Delete as another engine does."""
        from deltalake import DeltaTable

        DeltaTable(str(self.path)).delete(where)

    def begin(self, release: Release, dag: Dag, task: str, **how: Any) -> Try:
        """Begin a try of a task."""
        self._tries += 1
        out = self.lakehouse / f"{self.table}-{self._tries}"
        name, terms = dag
        asked = {"lakehouse": str(self.lakehouse), "run": self.run.to_json(), "task": task, "out": str(out)}
        self.run.tasks.setdefault(task, TaskOfRun()).state = "running"
        release.ask({**asked, "dag": [name, {"table": self.table, **terms}], **how})
        return Try(self, task, out)

    def does(self, release: Release, dag: Dag, task: str, **how: Any) -> str:
        """Run a try of a task, and return how it ended."""
        return self.begin(release, dag, task, **how).ends()

    def is_green(self, release: Release, dag: Dag, task: str, **how: Any) -> None:
        """Run a try of a task that has to end well; what refuses it is told."""
        ended = self.does(release, dag, task, **how)
        if ended == KILLED:
            raise WrongError(f"{task} was killed where nothing was to kill it")
        if ended:
            self.told.append(f"{release.name}'s {task}: {ended}")

    def dies(self, release: Release, dag: Dag, task: str, at: str, **how: Any) -> None:
        """Run a try of a task that is killed before it puts something."""
        if (ended := self.does(release, dag, task, dies=at, **how)) != KILLED:
            raise WrongError(f"{task} was to be killed at {at}, and ended: {ended!r}")

    def retry(self, release: Release, dag: Dag, task: str, **how: Any) -> None:
        """Run the next try of a task."""
        self.run.retry(task)
        self.is_green(release, dag, task, **how)

    def clear(self, release: Release, dag: Dag, task: str, **how: Any) -> None:
        """Clear a task, and run it."""
        self.run.clear(task)
        self.is_green(release, dag, task, **how)

    def has(self, *allowed: Sequence[Row], when: str) -> None:
        """Say that the table has one of some rows. Where nobody was refused, it is the first ones.

        :param when: for who reads what is wrong.
        """
        found, wanted = table_rows(self.path), [in_order(rows) for rows in allowed]
        if found not in (wanted if self.told else wanted[:1]):
            raise WrongError(f"{when}: rows {found} instead of {' or '.join(map(str, wanted))}")


SCENES: dict[str, Callable[[Scene], None]] = {}


def scene(play: Callable[[Scene], None]) -> Callable[[Scene], None]:
    """Let a function be played."""
    SCENES[play.__name__] = play
    return play


def rows_of(rows: Rows, *writers: str) -> list[Row]:
    """The rows of writers. Default: of all."""
    return [(row, month) for name in writers or rows for month, found in rows[name].items() for row in found]


# -- appends ---------------------------------------------------------------------------------------------------------

SIX: Rows = {name: {JANUARY: [at], f"2019-0{at + 1}": [10 * at]} for at, name in enumerate("abcdef", 1)}


@scene
def appends_in_turn(s: Scene) -> None:
    dag: Dag = ("load", {"writers": list(SIX)})
    for at, name in enumerate(SIX):
        s.is_green((s.first, s.other)[at % 2], dag, f"load.{name}", rows=SIX)
    for release in (s.other, s.first):
        s.is_green(release, dag, "load.reconcile")
        s.has(rows_of(SIX), when=f"reconciled by {release.name}")
    for again in (s.retry, s.clear, s.retry):
        for at, name in enumerate(SIX):
            again((s.other, s.first)[at % 2], dag, f"load.{name}", rows=SIX)
        s.has(rows_of(SIX), when=f"after each {again.__name__}")
    s.is_green(s.other, dag, "load.reconcile")
    s.has(rows_of(SIX), when="in the end")


@scene
def appends_at_once_to_a_table_that_is_not_there(s: Scene) -> None:
    dag: Dag = ("load", {"writers": list(SIX)})
    tries = [s.begin((s.first, s.other)[at % 2], dag, f"load.{name}", rows=SIX) for at, name in enumerate(SIX)]
    for each in tries:
        if ended := each.ends():
            s.told.append(f"{each.task}: {ended}")
    s.has(rows_of(SIX), when="at once")
    for release in (s.first, s.other):
        s.is_green(release, dag, "load.reconcile")
    s.has(rows_of(SIX), when="reconciled")


def _killed(s: Scene, at: str, rows: Rows = SIX, **terms: Any) -> None:
    """A writer dies, and is tried again by the other release, and once more by its own."""
    dag: Dag = ("load", {"writers": ["a", "b"], **terms})
    s.is_green(s.other, dag, "load.b", rows=rows)
    s.dies(s.first, dag, "load.a", at, rows=rows)
    for release in (s.other, s.first):
        s.retry(release, dag, "load.a", rows=rows)
        s.has(rows_of(rows, "a", "b"), when=f"tried again by {release.name}")
    for release in (s.other, s.first):
        s.is_green(release, dag, "load.reconcile")
    s.has(rows_of(rows, "a", "b"), when="reconciled")


@scene
def an_append_that_died_before_its_buffer_is_retried(s: Scene) -> None:
    _killed(s, BUFFERS)


@scene
def an_append_that_died_before_its_commit_is_retried(s: Scene) -> None:
    _killed(s, COMMITS)


@scene
def an_append_that_died_after_its_commit_is_retried(s: Scene) -> None:
    _killed(s, MARKERS)


@scene
def an_append_that_died_before_its_verdict_is_retried(s: Scene) -> None:
    _killed(s, VERDICTS, checks={"some": "count(*) > 0"})


@scene
def checked_rows_that_died_before_their_commit_are_retried(s: Scene) -> None:
    _killed(s, COMMITS, checks={"some": "count(*) > 0"})


@scene
def an_overwrite_that_died_before_its_commit_is_retried(s: Scene) -> None:
    _killed(
        s,
        COMMITS,
        {"a": {"p": [1]}, "b": {"q": [2]}},
        mode="overwrite_partitions",
        on_conflict="last_writer_wins",
        shared_scan=False,
    )


@scene
def an_append_that_died_is_reconciled(s: Scene) -> None:
    dag: Dag = ("load", {"writers": ["a", "b"]})
    s.is_green(s.other, dag, "load.b", rows=SIX)
    s.dies(s.first, dag, "load.a", COMMITS, rows=SIX)
    for release in (s.other, s.first):
        s.is_green(release, dag, "load.reconcile")
        s.has(rows_of(SIX, "a", "b"), when=f"reconciled by {release.name}")
    for again, release in ((s.retry, s.first), (s.retry, s.other), (s.clear, s.other), (s.clear, s.first)):
        again(release, dag, "load.a", rows=SIX)
        s.has(rows_of(SIX, "a", "b"), when=f"{again.__name__} by {release.name}")


@scene
def an_append_that_is_held_is_overtaken_by_its_retry(s: Scene) -> None:
    dag: Dag = ("load", {"writers": ["a"]})
    s.before({JANUARY: [100]})
    held = s.begin(s.first, dag, "load.a", rows=SIX, holds=COMMITS).held()
    s.retry(s.other, dag, "load.a", rows=SIX)
    held.ends(of_date=False)
    s.is_green(s.first, dag, "load.reconcile")
    s.has([(100, JANUARY), *rows_of(SIX, "a")], when="in the end")


@scene
def an_append_that_is_held_is_overtaken_by_a_clear(s: Scene) -> None:
    dag: Dag = ("load", {"writers": ["a"]})
    s.before({JANUARY: [100]})
    held = s.begin(s.first, dag, "load.a", rows=SIX, holds=COMMITS).held()
    s.clear(s.other, dag, "load.a", rows=SIX)
    s.has([(100, JANUARY), *rows_of(SIX, "a")], when="cleared")
    if not held.ends(of_date=False):
        raise WrongError("a zombie is green")
    s.is_green(s.first, dag, "load.reconcile")
    s.has([(100, JANUARY), *rows_of(SIX, "a")], when="in the end")


@scene
def an_append_is_replaced_by_a_clear(s: Scene) -> None:
    dag: Dag = ("load", {"writers": ["a", "b"], "on_rerun": "replace"})
    s.is_green(s.first, dag, "load.b", rows=SIX)
    s.is_green(s.first, dag, "load.a", rows=SIX)
    now: Rows = SIX
    for number, release in enumerate((s.other, s.first, s.other), 1000):
        now = {**SIX, "a": {JANUARY: [number]}}
        s.clear(release, dag, "load.a", rows=now)
        s.has(rows_of(now, "a", "b"), when=f"cleared by {release.name}")
        for retrying in (s.first, s.other):
            s.retry(retrying, dag, "load.a", rows={"a": {JANUARY: [-1]}})
            s.is_green(retrying, dag, "load.reconcile")
            s.has(rows_of(now, "a", "b"), when=f"cleared by {release.name}, and retried by {retrying.name}")


@scene
def an_append_is_repeated_by_a_clear_that_says_so(s: Scene) -> None:
    dag: Dag = ("load", {"writers": ["a"], "on_rerun": "append"})
    s.is_green(s.first, dag, "load.a", rows=SIX)
    s.clear(s.other, dag, "load.a", rows=SIX)
    s.retry(s.first, dag, "load.a", rows=SIX)
    s.has([*rows_of(SIX, "a"), *rows_of(SIX, "a")], when="cleared once, and retried")


@scene
def a_clear_that_died_is_retried(s: Scene) -> None:
    dag: Dag = ("load", {"writers": ["a"], "on_rerun": "replace"})
    s.is_green(s.first, dag, "load.a", rows=SIX)
    now: Rows = {"a": {JANUARY: [1000]}}
    s.run.clear("load.a")
    s.dies(s.other, dag, "load.a", COMMITS, rows=now)
    s.has(rows_of(SIX, "a"), when="killed")
    for release in (s.first, s.other):
        s.retry(release, dag, "load.a", rows=now)
        s.has(rows_of(now, "a"), when=f"retried by {release.name}")
    s.is_green(s.first, dag, "load.reconcile")
    s.has(rows_of(now, "a"), when="reconciled")


# -- overwrites ------------------------------------------------------------------------------------------------------

TWO: Rows = {"a": {"p": [1], "q": [2]}, "b": {"p": [3], "q": [4]}}
REST = [(9, JANUARY)]


def _rivals(s: Scene, policy: str, how: str) -> None:
    """Two writers of one load replace the same partitions, and each has begun before the other has published.

    :param how: ``finished last`` or ``finished first``, which says when the first one has staged; ``died`` where it
        has finished first and is published by reconcile.
    """
    given = {"mode": "overwrite_partitions", "on_conflict": policy, "shared_scan": False}
    dag: Dag = ("load", {"writers": ["a", "b"], **given})
    s.before({JANUARY: [9], "p": [100], "q": [200]})
    if how == "died":
        late = None
        s.dies(s.first, dag, "load.a", COMMITS, rows=TWO)
    elif how == "finished last":
        late = s.begin(s.first, dag, "load.a", rows=TWO, holds_spark=True).held()
    else:
        late = s.begin(s.first, dag, "load.a", rows=TWO, holds=COMMITS).held()
    ended = s.does(s.other, dag, "load.b", rows=TWO)
    if ended:
        raise WrongError(f"b was refused: {ended}")
    s.has([*REST, *rows_of(TWO, "b")], when="b has published")
    ended = s.does(s.other, dag, "load.reconcile") if late is None else _settled(s, s.first, dag, late)
    if bool(ended) != (policy == "fail"):
        raise WrongError(f"it ended with {ended!r} under {policy}")
    stands = "a" if policy == "last_writer_wins" and how == "finished last" else "b"
    s.has([*REST, *rows_of(TWO, stands)], when="a was decided on")
    for release in (s.first, s.other):
        s.does(release, dag, "load.reconcile")
        s.has([*REST, *rows_of(TWO, stands)], when=f"reconciled by {release.name}")
    for name, release in (("a", s.other), ("b", s.first)):
        s.run.clear(f"load.{name}")
        if ended := _settled(s, release, dag, s.begin(release, dag, f"load.{name}", rows=TWO)):
            raise WrongError(f"the clear of {name} was refused: {ended}")
        s.has([*REST, *rows_of(TWO, name)], when=f"{name} was cleared")


def _settled(s: Scene, release: Release, dag: Dag, begun: Try) -> str:
    """Wait until a writer has ended, and return how it was settled.

    The old release leaves a conflict to reconcile, and says so: then the other release reconciles the load.
    """
    ended = begun.ends()
    if not ended and s.status[begun.task] == "conflicted":
        return s.does(s.other if release is s.first else s.first, dag, "load.reconcile")
    return ended


for _policy in ("last_writer_wins", "first_writer_wins", "fail"):
    for _how in ("finished last", "finished first", "died"):
        SCENES[f"overwrites by {_policy} of which the first {_how}"] = lambda s, p=_policy, h=_how: _rivals(s, p, h)  # type: ignore[misc]


def _together(s: Scene, **terms: Any) -> None:
    given = {"mode": "overwrite_partitions", "publish": "together", **terms}
    rows: Rows = {"a": {"p": [1]}, "b": {"q": [2]}}
    dag: Dag = ("load", {"writers": ["a", "b"], **given})
    s.before({JANUARY: [9], "p": [100], "q": [200]})
    before = [*REST, (100, "p"), (200, "q")]
    scans = terms.get("shared_scan") is not False
    if scans:
        s.is_green(s.first, dag, "load.scan", rows=rows)
    s.is_green(s.first, dag, "load.a", rows=rows)
    s.is_green(s.other, dag, "load.b", rows=rows)
    s.has(before, when="before it is reconciled")
    for release in (s.other, s.first):
        s.is_green(release, dag, "load.reconcile")
        s.has([*REST, *rows_of(rows)], when=f"reconciled by {release.name}")
    for name, release in (("a", s.other), ("b", s.first)):
        rows = {**rows, name: {"pq"["ab".index(name)]: [1000]}}
        s.run.clear(f"load.{name}", "load.reconcile")
        s.is_green(release, dag, f"load.{name}", rows=rows)
        s.is_green(s.other, dag, "load.reconcile")
        s.has([*REST, *rows_of(rows)], when=f"{name} was cleared")


@scene
def writers_are_published_together(s: Scene) -> None:
    _together(s, shared_scan=False)


@scene
def writers_that_share_a_scan_are_published_together(s: Scene) -> None:
    _together(s)


# -- statements ------------------------------------------------------------------------------------------------------


@attrs.frozen
class Statement:
    """A statement, and what it does.

    :param kind: of the DAG.
    :param gone: rows that it takes, of those that are there before.
    :param came: rows that it leaves in place of them.
    :param tempting: a row that it would change, if it were done again.
    :param made: what it would make of that row.
    """

    dag: Dag
    gone: Sequence[Row]
    came: Sequence[Row]
    tempting: Row
    made: Sequence[Row]

    @property
    def one_way(self) -> bool:
        """Whether an old worker does not come back to what today's release has done."""
        return self.dag[0] == "statement"

    def releases(self, s: Scene) -> list[Release]:
        """Those that come once the other one has come, in order."""
        return [s.other] if self.one_way else [s.first, s.other]


LIVE = [(1, JANUARY), (3, JANUARY), (31, "2019-02"), (6, "2019-02"), (7, MARCH)]
STATEMENTS = {
    "a MERGE": Statement(
        ("merge", {"rows": [31, 3000], "when": MERGED}),
        [(31, "2019-02")],
        [(31, MARCH), (3000, MARCH)],
        (31, JANUARY),
        [(31, MARCH)],
    ),
    "a DELETE": Statement(
        ("statement", {"kind": "Delete", "where": "id % 3 = 0"}), [(3, JANUARY), (6, "2019-02")], [], (9, JANUARY), []
    ),
    "a DELETE of a month": Statement(
        ("statement", {"kind": "Delete", "where": f"month = '{JANUARY}'"}),
        [(1, JANUARY), (3, JANUARY)],
        [],
        (9, JANUARY),
        [],
    ),
    "an UPDATE": Statement(
        ("statement", {"kind": "Update", "set": {"id": "id + 1000"}, "where": "id IN (1, 6)"}),
        [(1, JANUARY), (6, "2019-02")],
        [(1001, JANUARY), (1006, "2019-02")],
        (6, JANUARY),
        [(1006, JANUARY)],
    ),
    "a TRUNCATE": Statement(("statement", {"kind": "Truncate"}), LIVE, [], (9, JANUARY), []),
}


def _begins(s: Scene) -> None:
    months = {month: [row for row, its in LIVE if its == month] for _, month in LIVE}
    s.before(months)


def _after(of: Statement, *more: Row) -> list[Row]:
    return [*(row for row in LIVE if row not in of.gone), *of.came, *more]


def _is_done_once(s: Scene, of: Statement) -> None:
    """What is done by now is not done again by a retry of either release, and is done anew by a clear."""
    for release in of.releases(s):
        s.retry(release, of.dag, "statement")
        s.has(_after(of, of.tempting), when=f"retried by {release.name}")
    s.clear(s.other, of.dag, "statement")
    s.has(_after(of, *of.made), _after(of, of.tempting), when=f"cleared by {s.other.name}")


def is_retried_when_it_has_ended(s: Scene, of: Statement) -> None:
    """Its task dies when the statement is done."""
    _begins(s)
    s.is_green(s.first, of.dag, "statement")
    s.has(_after(of), when=f"done by {s.first.name}")
    s.append(of.tempting)
    s.retry(s.other, of.dag, "statement")
    s.has(_after(of, of.tempting), when=f"retried by {s.other.name}")
    _is_done_once(s, of)


def died_before_its_commit(s: Scene, of: Statement) -> None:
    """Spark has done its part."""
    _begins(s)
    s.dies(s.first, of.dag, "statement", COMMITS)
    s.has(LIVE, when="killed")
    s.retry(s.other, of.dag, "statement")
    s.has(_after(of), when=f"retried by {s.other.name}")
    s.append(of.tempting)
    _is_done_once(s, of)


def died_and_was_overtaken(s: Scene, of: Statement) -> None:
    """Another engine has appended what it changes, before it is tried again."""
    _begins(s)
    s.dies(s.first, of.dag, "statement", COMMITS)
    s.append(of.tempting)
    s.retry(s.other, of.dag, "statement")
    s.has(_after(of, *of.made), when=f"retried by {s.other.name}")
    again = of.releases(s)[0]
    s.retry(again, of.dag, "statement")
    s.has(_after(of, *of.made), when=f"retried by {again.name}")


def is_held_while_its_retry_ends(s: Scene, of: Statement) -> None:
    """The first try is still at work."""
    _begins(s)
    held = s.begin(s.first, of.dag, "statement", holds=COMMITS).held()
    s.retry(s.other, of.dag, "statement")
    s.has(_after(of), when=f"retried by {s.other.name}")
    s.append(of.tempting)
    held.ends(of_date=False)
    s.has(_after(of, of.tempting), when=f"the first try of {s.first.name} has ended")
    _is_done_once(s, of)


def is_held_while_its_clear_ends(s: Scene, of: Statement) -> None:
    """The start before is still at work."""
    _begins(s)
    held = s.begin(s.first, of.dag, "statement", holds=COMMITS).held()
    s.clear(s.other, of.dag, "statement")
    s.has(_after(of), when=f"cleared by {s.other.name}")
    s.append(of.tempting)
    held.ends(of_date=False)
    s.has(_after(of, of.tempting), when=f"the start of {s.first.name} has ended")
    _is_done_once(s, of)


def is_held_while_another_finds_nothing_to_do(s: Scene, of: Statement, again: str) -> None:
    """What it changes is gone when it is tried again, or cleared."""
    if of.dag[0] == "merge":
        of = attrs.evolve(of, dag=("merge", {"rows": [31], "when": MERGED[:1]}), came=[])
    _begins(s)
    held = s.begin(s.first, of.dag, "statement", holds=COMMITS).held()
    s.delete(" OR ".join(f"(id = {row} AND month = '{month}')" for row, month in of.gone))
    getattr(s, again)(s.other, of.dag, "statement")
    left = [row for row in LIVE if row not in of.gone]
    s.has(left, when=f"{again} by {s.other.name}")
    s.append(of.tempting)
    held.ends(of_date=False)
    s.has([*left, of.tempting], when=f"the first one, of {s.first.name}, has ended")
    for release in (s.first, s.other):
        s.retry(release, of.dag, "statement")
        s.has([*left, of.tempting], when=f"retried by {release.name}")


ONE_WAY: set[str] = set()
for _name, _of in STATEMENTS.items():
    _plays = [is_retried_when_it_has_ended, died_before_its_commit, died_and_was_overtaken]
    _plays += [] if _of.one_way else [is_held_while_its_retry_ends, is_held_while_its_clear_ends]
    for _play in _plays:
        SCENES[f"{_name} {_play.__name__}"] = lambda s, play=_play, of=_of: play(s, of)  # type: ignore[misc]
        ONE_WAY |= {f"{_name} {_play.__name__}"} if _of.one_way else set()
    for _again in () if _of.one_way else ("retry", "clear"):
        SCENES[f"{_name} is held while a {_again} finds nothing to do"] = (
            lambda s, of=_of, again=_again: is_held_while_another_finds_nothing_to_do(s, of, again)  # type: ignore[misc]
        )


def play(name: str, first: Release, other: Release, lakehouse: Path) -> tuple[str, str]:
    """Play a scene, and return what came of it, in a word and in full."""
    table = f"{re.sub('[^a-z]+', '_', name.lower())}_{first.name}"
    s = Scene(first, other, lakehouse, table)
    try:
        SCENES[name](s)
    except WrongError as error:
        return "WRONG", "; ".join((str(error), *s.told, f"tasks said {s.status}"))
    except Exception:
        return "WRONG", traceback.format_exc()
    return ("refused", "; ".join(s.told)) if s.told else ("right", "")


def main(old_tree: Path, words: Sequence[str]) -> int:
    """Play the scenes whose names have some words; return how many went wrong."""
    home = Path(tempfile.mkdtemp(prefix="two-releases-"))
    old, new = Release("old", old_tree.resolve()), Release("new", HERE)
    releases = (old, new)
    for release in releases:
        release.start(home)
    wrong = 0
    try:
        for release in releases:
            release.check()
        for name in SCENES:
            said = name.replace("_", " ")
            if not all(word in said for word in words):
                continue
            for first, other in ((old, new), (new, old))[: 1 if name in ONE_WAY else 2]:
                came, why = play(name, first, other, home)
                wrong += came == "WRONG"
                print(f"{came:8} {said}, {first.name} first{': ' if why else ''}{why}", flush=True)
    finally:
        for release in releases:
            release.stop()
    if wrong:
        print(f"{wrong} went wrong; what they left is in {home}")
    else:
        shutil.rmtree(home)
    return wrong


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]) > 0)
