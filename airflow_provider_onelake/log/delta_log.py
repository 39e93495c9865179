"""Reads a table's log forward: the newest snapshot, and every commit since a version."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from copy import copy
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, TypeVar

import attrs

from airflow_provider_onelake.exceptions import CorruptLogError, LogGapError, ObjectNotFoundError, TableNotFoundError
from airflow_provider_onelake.log.actions import LOG_DIRECTORY, Add, version_path
from airflow_provider_onelake.log.commits import Commit, digest_of
from airflow_provider_onelake.log.directories import Below
from airflow_provider_onelake.log.features import IN_COMMIT_TIMESTAMPS
from airflow_provider_onelake.log.partitions import InPartitions
from airflow_provider_onelake.log.replay import LAST_CHECKPOINT, Checkpoint, LiveFiles, LogFiles, read_checkpoint
from airflow_provider_onelake.log.schema import flag
from airflow_provider_onelake.log.snapshot import NO_TABLE, LostTimestamp, Snapshot
from airflow_provider_onelake.storage.clock import Clock, SystemClock
from airflow_provider_onelake.storage.concurrent import map_concurrently, prefetched

if TYPE_CHECKING:
    from airflow_provider_onelake.log.actions import Metadata, Protocol
    from airflow_provider_onelake.storage.stores import Store

logger = logging.getLogger(__name__)
_T = TypeVar("_T")

# While a snapshot is younger than this, the next version cannot have been cleaned up, so a missing entry means "not
# committed yet". An older snapshot is brought up to date by a listing, because a listing shows gaps.
_PROBE_WHILE = timedelta(minutes=1)
# A committer of many buffers reads the same winners again and again. Keep parsed entries of up to this many bytes in
# total; in memory they take about four times as much.
_KEPT_BYTES = 16 << 20
# How often to begin to read the log where clean-ups delete what was just listed: once, and three times anew.
_BEGINNINGS = 4


@attrs.frozen
class _KnownLog:
    """What was read of the table, and what shows that the log still belongs to this table.

    :param seen_at: when the snapshot was the newest.
    :param anchor: the version and the digest of an entry that the snapshot was built from. All later versions followed
        it, so the table is the same as long as the entry is. ``None`` where the entry was cleaned up behind a
        checkpoint; then nothing proves that the table is the same.
    :param checked: when the anchor was last looked at; ``None`` where the next snapshot must look again.
    """

    snapshot: Snapshot
    seen_at: datetime
    anchor: tuple[int, str] | None
    checked: datetime | None


class DeltaLog:
    """Reads one table's log; the cost is proportional to the number of commits since the last read.

    A table that was dropped and made again has different entries at the same versions, and the old snapshot must not be
    continued with them. So once a minute, and where :meth:`doubt` asks for it, the log reads an entry again that the
    snapshot was built from. If that entry has changed, the log forgets everything and loads the table anew.

    :param store: rooted at the table's directory.
    :param table: what messages call the table, such as ``Tables/trips``.
    :param clock: gives the age of the snapshot. Default: the system's.
    :param address: of the table, as results and events have it. Default: ``table``, which is an address then.
    :param iceberg_may_be_stale: whether readers of other formats (UniForm) may see the table without our commits.
        Default: such a table is not written to.
    """

    def __init__(
        self,
        store: Store,
        table: str,
        clock: Clock | None = None,
        address: str | None = None,
        *,
        iceberg_may_be_stale: bool = False,
    ) -> None:
        self.store = store
        self.table = table
        self.address = address or table
        self.clock = clock or SystemClock()
        self.iceberg_may_be_stale = iceberg_may_be_stale
        self.loads = 0
        """How often a snapshot was loaded from a checkpoint or from version 0, which takes long."""
        self.planned: Snapshot | None = None
        """What :meth:`snapshot` returns while there is no table: the first commit of rows makes it so."""
        self._known: _KnownLog | None = None
        self._expected = -1
        self._put: dict[int, bytes] = {}
        self._commits: dict[int, Commit] = {}
        self._kept_bytes = 0

    def anew(self) -> DeltaLog:
        """Return a log of the same table that knows nothing of it yet."""
        stale = self.iceberg_may_be_stale
        return DeltaLog(self.store, self.table, self.clock, self.address, iceberg_may_be_stale=stale)

    def snapshot(self) -> Snapshot:
        """Return the newest snapshot.

        :raises TableNotFoundError: there is no table, and none is planned.
        :raises LogGapError: a version is missing while a later one exists.
        :raises CorruptLogError: an entry cannot be read.
        :raises UnsupportedFeatureError: the table has a feature of readers that is not known here.
        """
        snapshot = self.snapshot_or_none() or self.planned
        if snapshot is None:
            raise TableNotFoundError(f"There is no Delta table at {self.table}.")
        return snapshot

    def plan(self, protocol: Protocol, metadata: Metadata) -> None:
        """Let :meth:`snapshot` return a table that is not there yet, by its definition."""
        self.planned = attrs.evolve(self._nothing(), protocol=protocol, metadata=metadata)

    def snapshot_or_none(self) -> Snapshot | None:
        """Return the newest snapshot, or ``None`` where there is no table yet.

        :raises LogGapError: a version is missing while a later one exists.
        :raises CorruptLogError: an entry cannot be read.
        :raises UnsupportedFeatureError: the table has a feature of readers that is not known here.
        """
        now = self.clock.now()
        known = self._known
        due = known is None or known.checked is None or now - known.checked >= _PROBE_WHILE
        young = known is not None and now - known.seen_at < _PROBE_WHILE
        # The next entry is asked for during the check. If the check fails, nobody looks at the answer.
        next_ones = self._next(known.snapshot.version) if known is not None and due and young else ()
        with prefetched(self.store, self._fetch, next_ones) as fetch:
            if known is not None and due and not self._is_the_same(known):
                self._forget()
            known = self._known
            if known is None:
                snapshot = self._load()
            elif young:
                snapshot = known.snapshot.after(list(self._probe(known.snapshot.version, fetch)))
            else:
                snapshot = self._list_forward(known.snapshot)
        if snapshot is None:
            return None
        if known is None or due:
            self._known = _KnownLog(snapshot, now, self._anchor_at(snapshot.version), now)
        else:
            self._known = attrs.evolve(known, snapshot=snapshot, seen_at=now)
        return snapshot

    def snapshot_at(self, version: int) -> Snapshot:
        """Return the snapshot of a version that is not the newest.

        :param version: of the table.
        :raises LogGapError: there is no such version, or the log no longer reaches back to it.
        :raises UnsupportedFeatureError: that version has a feature of readers that is not known here.
        """
        return self._loaded(version)

    def check_readable(self) -> None:
        """Ask what :meth:`snapshot` asks, for those who tell of single commits, also of a log that is damaged.

        :raises UnsupportedFeatureError: the table has a feature of readers that is not known here.
        """
        with suppress(CorruptLogError, LogGapError):
            self.snapshot_or_none()

    def doubt(self) -> None:
        """Make the next :meth:`snapshot` check first that the table was not made again; this costs one request.

        Call it before you decide something on a snapshot that may be old, such as a put. You need not call it again
        after a lost race: :meth:`snapshot` repeats the check every minute (protocol: same table).
        """
        if self._known is not None:
            self._known = attrs.evolve(self._known, checked=None)

    def put(self, version: int, entry: bytes) -> None:
        """Put an entry, and let the next :meth:`snapshot` ask for the one after it as well: ours or another's is there.

        :param entry: the content of ours, which a snapshot does not read back.
        :raises ObjectExistsError: another's entry is there.
        :raises StoreUnavailableError: the outcome is unknown.
        """
        self._expected, self._put = version, {}
        self.store.create(version_path(version), entry)
        self._put[version] = entry

    def commit(self, version: int) -> Commit | None:
        """Return the commit of one version, or ``None`` if the log has no entry for it.

        :raises CorruptLogError: the entry cannot be read.
        """
        known = self._commits.get(version)
        return known if known is not None else self._parse(version, self._fetch(version))

    def digest(self, version: int) -> str | None:
        """Return a digest of a version's entry, even if the entry cannot be parsed; ``None`` if there is no entry."""
        try:
            commit = self.commit(version)
        except CorruptLogError:
            return self._read_digest(version)
        return None if commit is None else commit.digest

    def commits_between(self, after: int, until: int) -> list[Commit]:
        """Return the commits of a range of versions, in order.

        :param after: the version before the first.
        :param until: the last version.
        :raises LogGapError: the log has no entry for one of these versions.
        """
        commits: list[Commit] = []
        versions = range(after + 1, until + 1)
        for version, commit in zip(versions, self._read(versions, self._fetch), strict=True):
            if commit is None:
                raise LogGapError(f"Version {version} of {self.table} is no longer in its log; nothing was changed.")
            commits.append(commit)
        return commits

    def commits_since(self, version: int) -> list[Commit]:
        """Return every commit after a version, in order; the cost is that of the new commits only.

        :param version: the last one already seen; -1 for all.
        :raises LogGapError: a version is missing while a later one, or a checkpoint, exists.
        """
        commits = list(self._probe(version, self._fetch))
        newest = commits[-1].version if commits else version
        # The caller's version may be old, so a missing entry may be a gap and not the end. A listing tells which.
        self._files_from(newest).check_contiguous(newest, self.table, self._exists)
        return commits

    def versions_after(self, version: int) -> tuple[int, ...]:
        """List the versions after a version that have an entry, ascending; gaps are no error here.

        :param version: the version to list after; -1 for all.
        """
        return tuple(found for found in self._files_from(version + 1).versions if found > version)

    def newest_listed(self) -> int:
        """Find the newest version that has an entry; with a good checkpoint hint, list nothing older than it.

        :returns: the version; -1 if the log is empty.
        """
        hint = self._last_checkpoint_hint()
        versions = self._files_from(-1 if hint is None else hint).versions
        return versions[-1] if versions else -1

    def live_files(
        self,
        wanted: Callable[[Add], bool],
        until: int,
        keep: Callable[[Add], Add] = copy,
    ) -> LiveFiles:
        """Return the live files of a version that meet a condition, as raw ``add`` actions.

        :param wanted: says of an ``add`` whether its file meets the condition. With an :class:`InPartitions` or a
            :class:`Below`, other files cost next to nothing.
        :param until: the version.
        :param keep: returns what to keep of an ``add``. Default: all of it.
        :raises LogGapError: an entry between the newest readable checkpoint and that version is missing.
        """

        def load(checkpoint: Checkpoint) -> LiveFiles:
            files = LiveFiles(wanted, keep)
            adds = wanted if isinstance(wanted, InPartitions | Below) else None
            files.load(action["add"] for action in read_checkpoint(self.store, checkpoint, ["add"], adds))
            return files

        loaded, commits = self._replayed(load, until)
        files = loaded or LiveFiles(wanted, keep)
        files.follow(commits)
        files.version = until
        return files

    def _load(self) -> Snapshot | None:
        self.loads += 1
        snapshot = self._loaded()
        return None if snapshot.version < 0 else snapshot

    def _loaded(self, until: int | None = None) -> Snapshot:
        """Return the snapshot of a version, by default the newest; its version is -1 where there is no table."""
        found, commits = self._replayed(self._from_checkpoint, until)
        start, summary = found or (self._nothing(), [])
        return start.after([*summary, *commits])

    def _replayed(self, read: Callable[[Checkpoint], _T], until: int | None = None) -> tuple[_T | None, list[Commit]]:
        """Return what the newest readable checkpoint holds, if there is one, and the commits that follow it.

        A clean-up may delete what was just listed. The newer checkpoint that it kept is a better beginning, so begin
        again there, a few times.

        :param read: reads a checkpoint.
        :param until: the version that the commits lead to; ``None`` for the newest.
        :raises LogGapError: a version is missing, and no newer checkpoint sums it up.
        """
        for left in reversed(range(_BEGINNINGS)):
            files, found = self._begin(read, until)
            version, loaded = found or (-1, None)
            try:
                if until is None:
                    files.check_contiguous(version, self.table, self._exists)
                return loaded, self.commits_between(version, files.latest if until is None else until)
            except LogGapError:
                newest = next(iter(self._listed(None, until).checkpoints), None)
                if not left or newest is None or newest.version <= version:
                    raise
        raise AssertionError("the last beginning returns or raises")

    def _begin(
        self, read: Callable[[Checkpoint], _T], until: int | None = None
    ) -> tuple[LogFiles, tuple[int, _T] | None]:
        """Return a listing, and what the newest readable checkpoint in it holds, with that checkpoint's version.

        The hint saves listing the entries before it. It proves nothing: newer entries are always listed, and if no
        checkpoint from the hint on can be read, the whole log is listed.

        :param read: reads a checkpoint.
        :param until: the newest version of interest; ``None`` for all.
        """
        hint = self._last_checkpoint_hint()
        starts = [hint, 0] if hint is not None and (until is None or hint <= until) else [0]
        for start in starts:
            files = self._files_from(start, until)
            # A checkpoint may be listed while some of its files are missing: it is being written, or a clean-up went
            # too far. An older checkpoint, or none, is enough as long as the entries after it are there.
            for checkpoint in files.checkpoints:
                try:
                    return files, (checkpoint.version, read(checkpoint))
                except CorruptLogError as error:
                    logger.warning(
                        "%s: the checkpoint of version %d is passed over: %s", self.table, checkpoint.version, error
                    )
        return files, None

    def _from_checkpoint(self, checkpoint: Checkpoint) -> tuple[Snapshot, list[Commit]]:
        """Return what precedes a checkpoint, and a commit that made the whole table at once, as the checkpoint says.

        They are no snapshot yet: what the table is, and whether we can read it, is decided by the newest version.
        """
        kinds = ["protocol", "metaData", "txn", "domainMetadata"]
        summary = Commit(checkpoint.version, list(read_checkpoint(self.store, checkpoint, kinds)))
        if not summary.protocol or not summary.metadata:
            raise CorruptLogError(f"The checkpoint {checkpoint.paths[0]} has no protocol or no metaData.")
        stamp = self._stamp(checkpoint.version) if flag(summary.metadata, IN_COMMIT_TIMESTAMPS) else None
        return self._nothing(stamp), [summary]

    def _nothing(self, stamp: int | LostTimestamp | None = None) -> Snapshot:
        """Return what precedes the first commit that is read."""
        stale = self.iceberg_may_be_stale
        return attrs.evolve(NO_TABLE, table=self.table, in_commit_timestamp=stamp, iceberg_may_be_stale=stale)

    def _stamp(self, version: int) -> int | LostTimestamp | None:
        # A checkpoint does not hold the in-commit timestamp. A clean-up keeps the entry of the checkpoint's version for
        # this reason, so read the timestamp there.
        commit = self.commit(version)
        if commit is None:
            return LostTimestamp(
                f"{self.table} wants in-commit timestamps, and the one of version {version} is lost: its log entry is "
                "gone and only a checkpoint is left. Nothing was changed, for the next commit could get an earlier "
                "time. Commit once with another engine, then try again."
            )
        return commit.in_commit_timestamp

    def _list_forward(self, snapshot: Snapshot) -> Snapshot | None:
        files = self._files_from(snapshot.version)
        if snapshot.version in files.versions:
            # Loading the table anew finds the newer checkpoint if a clean-up made the gap, and names the gap if not.
            with suppress(LogGapError):
                files.check_contiguous(snapshot.version, self.table, self._exists)
                return snapshot.after(self.commits_between(snapshot.version, files.latest))
        # The entry was cleaned up behind a checkpoint, or the table was dropped since. Load the table anew.
        self._forget()
        return self._load()

    def _next(self, version: int) -> range:
        """Return the versions to ask for first, after a version that is known."""
        return range(version + 1, max(version, self._expected) + 2)

    def _probe(self, version: int, fetch: Callable[[int], bytes | None]) -> Iterator[Commit]:
        """Yield the commits after a version, up to the newest.

        :param fetch: returns the content of the entries of :meth:`_next`.
        """
        versions = self._next(version)
        while True:
            for commit in self._read(versions, fetch):
                if commit is None:
                    return
                yield commit
            # Where some entries were there, there may be as many again. Ask for these at once, but for no more: what is
            # asked for in vain costs a committer as much as what is there.
            versions, fetch = range(versions.stop, 2 * versions.stop - version - 1), self._fetch

    def _read(self, versions: Sequence[int], fetch: Callable[[int], bytes | None]) -> Iterator[Commit | None]:
        """Yield the commit of each version, or ``None`` where the log has no entry for it."""
        known = {version: self._commits[version] for version in versions if version in self._commits}
        fetched = map_concurrently(self.store, fetch, [version for version in versions if version not in known])
        for version in versions:
            yield known[version] if version in known else self._parse(version, next(fetched))

    def _fetch(self, version: int) -> bytes | None:
        """Return the content of an entry, or ``None``. Threads ask for several at once."""
        return self._put.pop(version, None) or self._stored(version)

    def _stored(self, version: int) -> bytes | None:
        try:
            return self.store.get(version_path(version))
        except ObjectNotFoundError:
            return None

    def _parse(self, version: int, data: bytes | None) -> Commit | None:
        if data is None:
            return None
        commit = Commit.parse(version, data, self.table, self.landed)
        self._commits[version] = commit
        self._kept_bytes += commit.size
        while self._kept_bytes > _KEPT_BYTES and len(self._commits) > 1:
            self._kept_bytes -= self._commits.pop(next(iter(self._commits))).size
        return commit

    def _is_the_same(self, known: _KnownLog) -> bool:
        if known.anchor is None:
            return False
        version, digest = known.anchor
        return self._read_digest(version) == digest

    def _anchor_at(self, version: int) -> tuple[int, str] | None:
        if self._known is not None and self._known.anchor is not None and self._known.anchor[0] == version:
            return self._known.anchor
        digest = self.digest(version)
        return None if digest is None else (version, digest)

    def _read_digest(self, version: int) -> str | None:
        data = self._stored(version)
        return None if data is None else digest_of(data)

    def _forget(self) -> None:
        self._known = None
        self._expected = -1
        self._put.clear()
        self._commits.clear()
        self._kept_bytes = 0

    def landed(self, version: int) -> datetime | None:
        """Return when a version's entry came into the store, by the store's clock; ``None`` where it is gone."""
        try:
            return self.store.head(version_path(version)).modified
        except ObjectNotFoundError:
            return None

    def _exists(self, version: int) -> bool:
        return self.commit(version) is not None

    def _files_from(self, version: int, until: int | None = None) -> LogFiles:
        """List the log from a version on.

        OneLake has answered a list from an offset with no rows at all where the workspace and the item were given by
        name. So such a listing is trusted only if it contains the entry of ``version``; else the whole log is listed.

        :param version: the first version of interest, whose entry should exist.
        :param until: the newest version of interest; ``None`` for all.
        """
        if version > 0:
            files = self._listed(version_path(version - 1), until)
            if version in files.versions:
                return files
        return self._listed(None, until)

    def _listed(self, start_after: str | None, until: int | None) -> LogFiles:
        return LogFiles.of(self.store.list(LOG_DIRECTORY, start_after=start_after), until)

    def _last_checkpoint_hint(self) -> int | None:
        try:
            return int(json.loads(self.store.get(LAST_CHECKPOINT))["version"])
        except ObjectNotFoundError:
            return None
        except (ValueError, KeyError, TypeError):
            # The format allows a half-written hint. A listing of the whole log finds the checkpoint without it.
            return None
