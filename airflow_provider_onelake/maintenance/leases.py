"""A lease on a version: it stays readable while somebody has it open, and no longer.

The lease is a record among those of the versions that people asked to keep (pinned_versions.py). It says for how long
it counts after it was last written, and its holder writes it again in time. If the holder is killed, nobody writes it
again, so it ends.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable
from datetime import datetime, timedelta

import attrs

from airflow_provider_onelake.exceptions import InvalidReadError, OneLakeError, StoreUnavailableError
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.maintenance.pinned_versions import (
    PinnedVersion,
    pin_version,
    record_of,
    record_path,
    release_version,
)

logger = logging.getLogger(__name__)

SHORTEST = timedelta(minutes=1)
"""A shorter lease would end while a store is away for a moment."""
_TIMES_RENEWED = 3
"""How often a lease is renewed within the time that it lasts, so that one renewal may fail."""


@attrs.define(eq=False, slots=False)
class Lease:
    """A version that is held open.

    :param log: of the table.
    :param version: of the table.
    :param by: who holds it; shown to people.
    :param lasts: for how long it counts after it was last renewed.
    """

    log: DeltaLog
    version: int
    by: str
    lasts: timedelta
    _holder: str = attrs.field(init=False, repr=False)
    _pinned: PinnedVersion = attrs.field(init=False, repr=False)
    _renewed: datetime = attrs.field(init=False)
    _lock: threading.Lock = attrs.field(factory=threading.Lock, init=False, repr=False)
    _stopped: threading.Event = attrs.field(factory=threading.Event, init=False, repr=False)

    @classmethod
    def take(cls, log: DeltaLog, version: int, by: str, lasts: timedelta) -> Lease:
        """Hold a version open.

        :param log: of the table.
        :param version: of the table.
        :param by: who holds it; shown to people.
        :param lasts: for how long it counts after it was last renewed: a minute or more.
        :raises InvalidReadError: ``lasts`` is too short.
        :raises VacuumRefusedError: there is no such version, its log or one of its files is gone.
        :raises VacuumAtWorkError: a vacuum is deleting files of the version.
        :raises StoreUnavailableError: the outcome is unknown; a lease that nobody renews ends by itself.
        """
        if lasts < SHORTEST:
            raise InvalidReadError(f"A lease of {lasts}: it lasts a minute or more. Nothing was read.")
        lease = cls(log, version, by, lasts)
        lease._take(log)
        return lease

    def check(self) -> None:
        """Renew it if it is time to, see :meth:`renew`. Call it before you rely on it.

        :raises StoreUnavailableError: the store did not answer, and the lease has ended meanwhile.
        """
        now = self.log.clock.now()
        if now < self._renewed + self.lasts / _TIMES_RENEWED:
            return
        try:
            self.renew()
        except StoreUnavailableError:
            if now >= self._renewed + self.lasts:
                raise

    def renew(self) -> None:
        """Have it count from now on. A lease that has ended is taken again, if its files are still there.

        :raises VacuumRefusedError: the lease had ended meanwhile, and a vacuum took files of the version.
        :raises VacuumAtWorkError: the lease had ended meanwhile, and a vacuum is deleting files of the version.
        :raises StoreUnavailableError: the store did not answer; the lease counts as long as before.
        """
        with self._lock:
            if self._stopped.is_set():
                return
            now = self.log.clock.now()
            if now >= self._renewed + self.lasts:
                logger.warning("%s: the lease on version %d was not renewed in time", self.log.table, self.version)
                # A record that has ended keeps nothing, so begin with a new one. A log belongs to one thread.
                release_version(self.log, self.version, holder=self._holder)
                self._take(self.log.anew())
                return
            self.log.store.put(self._path, record_of(self._pinned, self.lasts))
            self._renewed = now

    def end(self) -> None:
        """Hold the version no longer.

        :raises StoreUnavailableError: the store did not answer; the lease ends by itself.
        """
        self._stopped.set()
        with self._lock:
            release_version(self.log, self.version, holder=self._holder)

    def renew_by_thread(self, wait: Callable[[float], bool] | None = None) -> threading.Thread:
        """Renew it from a thread of its own, from now until :meth:`end`.

        What fails is tried again at the next renewal, and whoever reads is told by :meth:`check`.

        :param wait: waits for so many seconds, and says whether it was stopped meanwhile. Default: it waits for
            :meth:`end`.
        :returns: the thread.
        """
        stopped = wait or self._stopped.wait

        def run() -> None:
            while not stopped(self.lasts.total_seconds() / _TIMES_RENEWED):
                try:
                    self.renew()
                except OneLakeError as error:
                    logger.warning(
                        "%s: the lease on version %d was not renewed: %s", self.log.table, self.version, error
                    )

        thread = threading.Thread(target=run, name=f"lease on version {self.version}", daemon=True)
        thread.start()
        return thread

    def _take(self, log: DeltaLog) -> None:
        # A name of its own each time, because a vacuum that found the ended record may delete that one only now.
        self._holder = f"lease{uuid.uuid4().hex}"
        # Count from before the record is there, because it counts from when the store has written it.
        now = log.clock.now()
        if not self._take_newest(log, now):
            self._pinned = pin_version(log, self.version, self.by, holder=self._holder, lasts=self.lasts)
        self._renewed = now

    def _take_newest(self, log: DeltaLog, now: datetime) -> bool:
        """Take a lease on the newest version, whose files need no look: all of them are live.

        :returns: whether the version was still the newest when the record was there.
        """
        if log.snapshot().version != self.version:
            return False
        self._pinned = PinnedVersion(self.version, self.by, now, held=True)
        self.log.store.put(self._path, record_of(self._pinned, self.lasts))
        if log.snapshot().version == self.version:
            return True
        release_version(log, self.version, holder=self._holder)
        return False

    @property
    def _path(self) -> str:
        return record_path(self.version, self._holder)
