"""The server's time, which is also its ETags: every change of a file gets an instant of its own."""

from __future__ import annotations

import threading
import time

_TICK = 100
"""Nanoseconds. Azure counts time in such ticks, and so do its ETags."""

# Ticks between the first day of the year 1, from which Azure counts, and 1970.
_BEFORE_1970 = 621_355_968_000_000_000


class Clock:
    """Gives instants, none of them twice.

    :param newest: the newest instant that was given before, in nanoseconds since 1970. The clock of the machine may
        have been set back since.
    """

    def __init__(self, newest: int = 0) -> None:
        self._last = newest // _TICK
        self._turn = threading.Lock()

    def next(self) -> int:
        """Return an instant in nanoseconds since 1970, later than each one before."""
        with self._turn:
            self._last = max(time.time_ns() // _TICK, self._last + 1)
            return self._last * _TICK


def etag(modified: int) -> str:
    """Return the ETag of what was changed last at an instant, without quotes.

    :param modified: nanoseconds since 1970.
    """
    return f"0x{modified // _TICK + _BEFORE_1970:X}"
