"""An object store in memory, whose every operation is a scheduling point and may go wrong."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import lru_cache
from typing import Any, TypeVar

import attrs

from airflow_provider_onelake.exceptions import ObjectExistsError, ObjectNotFoundError, StoreUnavailableError
from airflow_provider_onelake.storage.stores import ObjectInfo, Part
from tests.simulation.world import EPOCH, CrashError, ViolationError, World

LOG = "_delta_log/"
# What the names of actors end in that are puts, on their way after whoever put them.
IN_THE_NET = " (in the net)"
_ENTRY = re.compile(r"^_delta_log/(\d{20})\.json$")
_COMPLETE = f"/_delta_log/{1:020d}.json"
_CLAIM = re.compile(r"^(.*)/_claim-(\d+)\.json$")
_SKIPPED = re.compile(r"^(.*)/_skipped-(\d+)\.json$")
T = TypeVar("T")


@lru_cache(maxsize=4096)
def parsed(data: bytes) -> tuple[dict[str, Any], ...]:
    """Return the actions of a log entry; nobody may change them."""
    return tuple(json.loads(line) for line in data.splitlines())


@attrs.frozen
class Stored:
    """An object.

    :param modified: microseconds, as the store tells them.
    :param creator: the actor that put it first.
    :param began: the step at which that actor began what it did.
    :param info: what the store tells of it.
    """

    data: bytes
    modified: int
    creator: str
    began: int
    step: int
    info: ObjectInfo


class MemoryStore:
    """A :class:`~airflow_provider_onelake.storage.stores.Store`.

    :param coarse: whether it tells times in whole seconds, as some stores do.
    """

    # One request after the other, so that a seed replays the same schedule.
    concurrency = 1

    def __init__(self, world: World, *, coarse: bool) -> None:
        self.world = world
        self.coarse = coarse
        self.objects: dict[str, Stored] = {}
        # What the judge wants to know afterwards, also of what was deleted meanwhile.
        self.entries: dict[int, Stored] = {}
        self.cleaned_up: dict[int, int] = {}
        self.contents: dict[str, bytes] = {}
        self.put_at: dict[str, int] = {}
        self.closings: dict[str, int] = {}
        self.claims: dict[str, dict[int, int]] = {}
        self.skips: dict[tuple[str, int], list[int]] = {}
        self.completed: dict[str, int] = {}
        # Puts that have not taken effect yet.
        self.in_the_net = 0

    # -- what production code calls ------------------------------------------------------------------------------------

    def get(self, path: str) -> bytes:
        def effect() -> bytes:
            if path not in self.objects:
                raise ObjectNotFoundError(path)
            return self.objects[path].data

        return self._do("get", path, effect)

    def get_range(self, path: str, start: int, end: int) -> Part:
        def effect() -> Part:
            if path not in self.objects:
                raise ObjectNotFoundError(path)
            stored = self.objects[path]
            return Part(stored.data[start:end], f"{stored.step}-{stored.modified}")

        return self._do("get a range of", path, effect)

    def head(self, path: str) -> ObjectInfo:
        def effect() -> ObjectInfo:
            if path not in self.objects:
                raise ObjectNotFoundError(path)
            return self.objects[path].info

        return self._do("head", path, effect)

    def create(self, path: str, data: bytes) -> None:
        actor = self.world.actor

        def effect() -> None:
            if path in self.objects:
                raise ObjectExistsError(path)
            self._set(path, data, actor.name, actor.began)

        self._do("create", path, effect, writes=True)

    def put(self, path: str, data: bytes) -> None:
        actor = self.world.actor

        def effect() -> None:
            if path.startswith(LOG) and path.endswith(".json"):
                raise ViolationError(f"{path} is put over what is there")
            self._set(path, data, actor.name, actor.began)

        self._do("put", path, effect, writes=True)

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        def matching() -> dict[str, ObjectInfo]:
            below = f"{prefix}/"
            return {
                path: stored.info
                for path, stored in self.objects.items()
                if path.startswith(below) and (start_after is None or path > start_after)
            }

        found = self._do("list", prefix, matching)
        world = self.world
        if world.actor.faulty and world.random.random() < world.faults.torn:
            world.pause(world.random.randrange(200_000))
            new = [info for path, info in matching().items() if path not in found]
            seen = [info for info in new if world.random.random() < 0.5]
            if new:
                world.counters["torn listings"] += len(seen) != len(new)
                found.update((info.path, info) for info in seen)
                world.note(
                    "list", prefix, f"and of {len(new)} put meanwhile: {', '.join(i.path for i in seen) or 'none'}"
                )
        return iter(sorted(found.values(), key=lambda info: info.path))

    def delete(self, path: str) -> None:
        def effect() -> None:
            self.objects.pop(path, None)
            if entry := _ENTRY.match(path):
                self.cleaned_up.setdefault(int(entry[1]), self.world.steps)
            elif skip := _SKIPPED.match(path):
                steps = self.skips.get((skip[1], int(skip[2])), [])
                steps += [self.world.steps] if len(steps) % 2 == 1 else []

        self._do("delete", path, effect, writes=True)

    # -- what the simulation asks, at no cost and without a scheduling point -----------------------------------------------

    def peek(self, path: str) -> Stored | None:
        """Return an object as it is now."""
        return self.objects.get(path)

    def version(self) -> int:
        """Return the newest version of the log, -1 for none."""
        return max(self.entries, default=-1)

    def put_at_once(self, path: str, data: bytes) -> None:
        """Put an object, while nobody else moves."""
        self._set(path, data, self.world.actor.name, self.world.steps)

    def forget_log(self) -> None:
        """Delete the table's log, while nobody else moves: the table is dropped."""
        for path in [path for path in self.objects if path.startswith(LOG)]:
            del self.objects[path]
        self.entries.clear()
        self.cleaned_up.clear()

    # -- inside ----------------------------------------------------------------------------------------------------------

    def _do(self, what: str, path: str, effect: Callable[[], T], *, writes: bool = False) -> T:
        world = self.world
        world.pause()
        commits = what == "create" and path.startswith(LOG)
        fault = world.draw(writes=writes, commits=commits)
        if fault in ("crash before", "refused", "late"):
            world.note(what, path, fault)
            if fault == "late":
                self._later(what, path, effect)
            if fault == "crash before":
                raise CrashError
            raise StoreUnavailableError(f"no answer for {path}")
        try:
            result = effect()
        except (ObjectExistsError, ObjectNotFoundError) as error:
            world.note(what, path, type(error).__name__)
            if commits:
                world.counters["lost races" if path != f"{LOG}{0:020d}.json" else "creations raced"] += 1
            if fault == "crash after":
                raise CrashError from None
            if fault == "lost":
                raise StoreUnavailableError(f"no answer for {path}") from None
            raise
        world.note(what, path, fault)
        if fault == "crash after":
            if writes and path.startswith(LOG):
                world.counters["crashes right after a commit"] += 1
            raise CrashError
        if fault == "lost":
            if path.startswith(LOG):
                world.counters["lost answers to commits"] += 1
            raise StoreUnavailableError(f"no answer for {path}")
        return result

    def _later(self, what: str, path: str, effect: Callable[[], object]) -> None:
        def happen() -> None:
            self.world.microseconds += 1
            self.in_the_net -= 1
            try:
                effect()
            except ObjectExistsError:
                self.world.note(what, path, "refused, as it was late")
            else:
                self.world.note(what, path, "took effect late")

        self.in_the_net += 1
        name = f"{self.world.actor.name}{IN_THE_NET}"
        self.world.spawn(name, happen, faulty=False, after=10 ** self.world.random.uniform(-2, 1.3))

    def _set(self, path: str, data: bytes, actor: str, began: int) -> None:
        modified = self.world.microseconds
        if self.coarse:
            modified -= modified % 1_000_000
        info = ObjectInfo(path, len(data), EPOCH + timedelta(microseconds=modified))
        stored = Stored(data, modified, actor, began, self.world.steps, info)
        self.objects[path] = stored
        if path.endswith(".parquet"):
            self.contents[path] = data
            self.put_at[path] = self.world.microseconds
        elif entry := _ENTRY.match(path):
            version = int(entry[1])
            if version in self.entries:
                raise ViolationError(f"version {version} is created twice")
            self.entries[version] = stored
        elif path.endswith(_COMPLETE):
            self.completed[path.removesuffix(_COMPLETE)] = stored.step
        elif path.endswith("/_closed.json") and "version" not in json.loads(data):
            self.closings.setdefault(path.removesuffix("/_closed.json"), stored.step)
        elif claim := _CLAIM.match(path):
            self.claims.setdefault(claim[1], {})[int(claim[2])] = stored.step
        elif skip := _SKIPPED.match(path):
            steps = self.skips.setdefault((skip[1], int(skip[2])), [])
            # Only what changes whether it is there: every other step took it away.
            steps += [stored.step] if len(steps) % 2 == 0 else []
