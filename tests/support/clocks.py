"""A clock that stands still until it is moved."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta


class HeldClock:
    """Sleeping moves it on, and is remembered."""

    def __init__(self, now: datetime | None = None) -> None:
        self.instant = now or datetime.now(UTC)
        self.sleeps: list[float] = []

    def now(self) -> datetime:
        return self.instant

    def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.instant += timedelta(seconds=seconds)

    def forward(self, **by: float) -> None:
        self.instant += timedelta(**by)


class BetweenTries(HeldClock):
    """Lets something happen while somebody waits."""

    def __init__(self, happening: Callable[[], object]) -> None:
        super().__init__()
        self.happening = happening

    def sleep(self, seconds: float) -> None:
        self.happening()
        super().sleep(seconds)
