"""What goes wrong on purpose: switches, at start and while the server runs."""

from __future__ import annotations

import random
import threading
from typing import Any

import attrs

FAULTS = {
    "batch_delete_refused": "a batch of deletes is refused, as OneLake does; on unless switched off",
    "empty_offset_listings": "a Blob list from an offset has no rows where workspace and item are names",
    "names_off": "names of workspaces and items are refused, as in a tenant that allows GUIDs only",
    "throttled": "429 with Retry-After (seconds)",
    "slow": "every answer waits (seconds)",
    "error_500": "500 before anything is done",
    "error_503": "503 before anything is done",
    "lost_answer": "what was asked is done, and the connection is closed without an answer",
    "capacity_paused": "everything is refused as on a paused capacity",
    "livy_full": "430 to a new batch of Livy, with Retry-After (seconds)",
    "livy_refused": "a new batch is taken, and refused by the capacity: fabricBatchStateInfo alone says so",
    "livy_unseen": "404 for a batch that is there",
    "refresh_hangs": "a refresh does not end when somebody looks at it",
    "refresh_fails": "a refresh ends, and has failed",
    "job_hangs": "a job is done, and does not end",
    "job_fails": "a job does nothing, and has failed",
}
"""Every fault, and what it does."""


@attrs.frozen
class Fault:
    """How often a fault strikes.

    :param rate: of the requests that it may strike, from 0 to 1.
    :param count: how many more requests it strikes. Default: as many as come.
    :param seconds: of ``slow``; what ``throttled`` and ``livy_full`` say in Retry-After.
    :param only: text that is in ``METHOD /path`` of the requests that it may strike. Default: any request.
    """

    rate: float = attrs.field(default=1.0, converter=float)
    count: int | None = attrs.field(default=None, converter=attrs.converters.optional(int))
    seconds: float = attrs.field(default=1.0, converter=float)
    only: str = attrs.field(default="", converter=str)

    def __attrs_post_init__(self) -> None:
        if not 0 <= self.rate <= 1:
            raise ValueError(f"rate={self.rate:g} is not from 0 to 1.")
        if self.seconds < 0 or (self.count is not None and self.count < 0):
            raise ValueError("count and seconds are not negative.")


class Faults:
    """The faults that are on. The same seed and the same requests in the same order give the same faults.

    :param seed: of their chance.
    """

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)  # noqa: S311 - no secret comes of it
        self._turn = threading.Lock()
        self._on = {"batch_delete_refused": Fault()}

    def on(self) -> dict[str, Fault]:
        """Return the faults that are on."""
        with self._turn:
            return dict(self._on)

    def set(self, name: str, fault: Fault) -> None:
        """Switch a fault on.

        :raises ValueError: there is no such fault.
        """
        _known(name)
        with self._turn:
            self._on[name] = fault

    def clear(self, name: str) -> None:
        """Switch a fault off; it is no error if it is off.

        :raises ValueError: there is no such fault.
        """
        _known(name)
        with self._turn:
            self._on.pop(name, None)

    def read(self, text: str) -> None:
        """Switch by a text, as the command line has it: ``throttled:rate=0.1,seconds=2``, or ``slow:off``.

        :raises ValueError: the text is none of these.
        """
        name, _, how = text.partition(":")
        if how == "off":
            self.clear(name)
            return
        given: dict[str, Any] = dict(pair.partition("=")[::2] for pair in how.split(",") if pair)
        self.set(name, fault_of(given))

    def strikes(self, name: str, request: str = "") -> Fault | None:
        """Say whether a fault strikes now.

        :param name: of the fault.
        :param request: ``METHOD /path``.
        """
        with self._turn:
            fault = self._on.get(name)
            if fault is None or fault.only not in request or fault.count == 0:
                return None
            if fault.rate < 1 and self._random.random() >= fault.rate:
                return None
            if fault.count is not None:
                self._on[name] = attrs.evolve(fault, count=fault.count - 1)
            return fault


def fault_of(given: dict[str, Any]) -> Fault:
    """Return the fault that texts or JSON describe.

    :raises ValueError: a name or a value is wrong.
    """
    unknown = set(given) - {field.name for field in attrs.fields(Fault)}
    if unknown:
        raise ValueError(f"A fault has rate, count, seconds and only, and no {min(unknown)}.")
    return Fault(**given)


def _known(name: str) -> None:
    if name not in FAULTS:
        raise ValueError(f"There is no fault {name!r}; faults are {', '.join(FAULTS)}.")
