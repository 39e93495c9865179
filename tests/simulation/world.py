"""A deterministic world: actors that take turns at every step, one virtual clock, and faults, all from one seed.

Actors are greenlets, so production code runs in them unchanged; whoever runs is decided at the scheduling points only:
every operation of the store and every sleep.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from random import Random

import attrs
from greenlet import greenlet  # type: ignore[import-untyped]

EPOCH = datetime(2019, 2, 1, tzinfo=UTC)
_LONGEST = 20_000


class CrashError(BaseException):
    """The process of an actor dies here; no production code may swallow it."""


class ViolationError(AssertionError):
    """Something that must never happen has happened."""


@attrs.frozen
class Faults:
    """How often a step goes wrong, as probabilities.

    :param crash: the actor dies, before or after the effect.
    :param refused: the store does not answer, and nothing has happened.
    :param lost: the store does not answer, but a put has taken effect.
    :param late: the store does not answer, and a put takes effect some time later.
    :param delay: the actor stands still for a while.
    :param torn: a listing sees what was put meanwhile, in part.
    """

    crash: float = 0.0
    refused: float = 0.0
    lost: float = 0.0
    late: float = 0.0
    delay: float = 0.0
    torn: float = 0.0


@attrs.frozen
class Step:
    """One line of the history."""

    number: int
    microseconds: int
    actor: str
    what: str
    path: str
    result: str

    def __str__(self) -> str:
        return f"{self.number:5} {self.microseconds / 1e6:14.3f} s  {self.actor:32} {self.what:10} {self.path}  {self.result}"


@attrs.define(eq=False)
class Actor:
    """One process of the world.

    :param faulty: whether faults may hit it.
    """

    name: str
    faulty: bool
    thread: greenlet
    wake: int
    blocked: bool = False
    waiters: list[Actor] = attrs.field(factory=list)
    crashed: bool = False
    began: int = 0


class World:
    """Runs actors one at a time.

    :param faults: how often steps go wrong.
    :param sticky: how likely an actor is to go on, where another could.
    """

    def __init__(self, random: Random, faults: Faults, sticky: float) -> None:
        self.random = random
        self.faults = faults
        self.sticky = sticky
        self.microseconds = 0
        self.steps = 0
        self.history: list[Step] = []
        self.counters: Counter[str] = Counter()
        self._actors: list[Actor] = []
        self._current: Actor | None = None
        self._hub: greenlet | None = None

    # -- time ----------------------------------------------------------------------------------------------------------

    def now(self) -> datetime:
        """See :class:`~airflow_provider_onelake.storage.clock.Clock`."""
        return EPOCH + timedelta(microseconds=self.microseconds)

    def sleep(self, seconds: float) -> None:
        """See :class:`~airflow_provider_onelake.storage.clock.Clock`."""
        self.pause(int(seconds * 1_000_000) + 1)

    # -- actors --------------------------------------------------------------------------------------------------------

    @property
    def actor(self) -> Actor:
        """Who runs."""
        assert self._current is not None
        return self._current

    def spawn(self, name: str, body: Callable[[], None], *, faulty: bool = True, after: float = 0.0) -> Actor:
        """Start an actor.

        :param body: what it does; it must handle its own errors, but for crashes.
        :param faulty: whether faults may hit it.
        :param after: how many seconds from now.
        """

        def run() -> None:
            try:
                body()
            except CrashError:
                actor.crashed = True
                self.counters["crashes"] += 1

        actor = Actor(name, faulty, greenlet(run, self._hub), self.microseconds + int(after * 1_000_000))
        self._actors.append(actor)
        return actor

    def join(self, actors: Iterable[Actor]) -> None:
        """Wait until actors are done, however they end."""
        for other in actors:
            while not other.thread.dead:
                other.waiters.append(self.actor)
                self.actor.blocked = True
                self._switch()

    def run(self) -> None:
        """Run until every actor is done."""
        self._hub = greenlet.getcurrent()
        for actor in self._actors:
            actor.thread.parent = self._hub
        while self._actors:
            due = [a for a in self._actors if not a.blocked and a.wake <= self.microseconds]
            if not due:
                waking = [a.wake for a in self._actors if not a.blocked]
                if not waking:
                    raise ViolationError(f"deadlock of {', '.join(a.name for a in self._actors)}")
                self.microseconds = min(waking)
                continue
            actor = due[0] if len(due) == 1 else due[self.random.randrange(len(due))]
            self._current = actor
            actor.thread.switch()
            if actor.thread.dead:
                self._actors.remove(actor)
                for waiter in actor.waiters:
                    waiter.blocked = False
        self._current = None

    def stop(self) -> None:
        """End every actor at once, where a run is given up."""
        self._hub = greenlet.getcurrent()
        for actor in self._actors:
            if actor.thread and not actor.thread.dead:
                actor.thread.parent = self._hub
                actor.thread.throw()
        self._actors.clear()

    # -- scheduling points ---------------------------------------------------------------------------------------------

    def pause(self, microseconds: int = 0) -> None:
        """Let others run."""
        self.steps += 1
        if self.steps > _LONGEST:
            raise ViolationError(f"no end after {_LONGEST} steps: somebody tries for ever")
        if microseconds:
            self.actor.wake = self.microseconds + microseconds
        elif self.random.random() < self.sticky:
            return
        self._switch()

    def draw(self, *, writes: bool, commits: bool) -> str:
        """Decide whether the step that comes goes wrong, and advance the clock.

        :param writes: whether it has an effect.
        :param commits: whether it puts an entry into the log, where a crash is four times as likely.
        :returns: ``""``, ``crash before``, ``crash after``, ``refused``, ``lost`` or ``late``.
        """
        self.microseconds += 1_000 + self.random.randrange(12_000)
        if not self.actor.faulty:
            return ""
        faults, x = self.faults, self.random.random()
        if x < faults.delay:
            self.counters["delays"] += 1
            self.pause(int(10 ** self.random.uniform(5, 7.5)))
            x = self.random.random()
        if (x := x - (4 * faults.crash if commits else faults.crash)) < 0:
            return self.random.choice(("crash before", "crash after"))
        if (x := x - faults.refused) < 0:
            self.counters["refused answers"] += 1
            return "refused"
        if writes and (x := x - faults.lost) < 0:
            self.counters["lost answers"] += 1
            return "lost"
        if writes and x - faults.late < 0:
            self.counters["late effects"] += 1
            return "late"
        return ""

    def note(self, what: str, path: str, result: str) -> None:
        """Write a line of history."""
        name = self._current.name if self._current else "-"
        self.history.append(Step(len(self.history), self.microseconds, name, what, path, result))

    def _switch(self) -> None:
        assert self._hub is not None
        self._hub.switch()
