"""Rows of a load's other writers in the table that a batch of the load would remove.

Writers of one load are rivals, whether they ran at the same time or one after another. So the outcome of a policy does
not depend on how many of them had a slot.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from airflow_provider_onelake.commit.batch import Batch
from airflow_provider_onelake.commit.conflicts import UNLOGGED
from airflow_provider_onelake.log.actions import Action, Add, CommitInfo
from airflow_provider_onelake.log.commits import FORMAT, STAGED, Commit, PublishedWriter
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.log.snapshot import Snapshot
from airflow_provider_onelake.staging.identity import WriterIdentity, writers_among
from airflow_provider_onelake.staging.layout import WriterDirectory, attempt_directory, is_staged, writer_directory
from airflow_provider_onelake.staging.published import Publishing, find_published


class SameLoad:
    """Finds the commits of a load's other writers, including those that a batch was formed on top of."""

    def __init__(self, log: DeltaLog) -> None:
        self._log = log
        self._known: dict[tuple[str, int], Publishing | None] = {}

    def commits(self, batch: Batch, snapshot: Snapshot, removable: Iterable[Add]) -> list[Commit]:
        """Return what other writers published before the batch was formed, if the batch would remove it.

        If such a writer is being rerun, its earlier commit does not count: its rerun is the rival.

        :param snapshot: that the commit is decided on.
        :param removable: the live files that the batch would remove, without those of colleagues.
        :returns: the writers' commits, in the order of versions, with only the files that are still live.
        """
        met: dict[str, list[Add]] = {}
        for file in removable:
            if is_staged(file["path"]):
                met.setdefault(writer_directory(file["path"]), []).append(file)
        # Skip this where no staged file is removed, as in most overwrites: a table may have many thousands of txns.
        others = {writer.directory: writer for writer in self._others(batch, snapshot)} if met else {}
        found: dict[int, list[tuple[Publishing, list[Add]]]] = {}
        for directory in sorted(met.keys() & others.keys()):
            publishing = self._publishing(others[directory], snapshot, met[directory])
            if publishing is not None and publishing.version <= batch.read_version:
                found.setdefault(publishing.version, []).append((publishing, met[directory]))
        return [_still_there(version, found[version]) for version in sorted(found)]

    def _others(self, batch: Batch, snapshot: Snapshot) -> Iterable[WriterIdentity]:
        load = batch.buffers[0].spec.identity.load
        own = {buffer.spec.identity.app_id for buffer in batch.buffers}
        return (writer for writer in writers_among(snapshot.txns, load.prefix) if writer.app_id not in own)

    def _publishing(self, writer: WriterIdentity, snapshot: Snapshot, files: Sequence[Add]) -> Publishing | None:
        generation = snapshot.txns[writer.app_id]
        if WriterDirectory.read(self._log.store, writer.directory).generation > generation:
            return None
        key = (writer.app_id, generation)
        if key not in self._known:
            self._known[key] = find_published(self._log, writer, generation, snapshot) or _unlogged(writer, files)
        return self._known[key]


def _unlogged(writer: WriterIdentity, files: Sequence[Add]) -> Publishing:
    """Return the record of a writer whose files are live, though neither a marker nor the log says since when.

    Whoever cleaned up the log has left every commit since the read version, so this one is older.
    """
    buffer = attempt_directory(files[0]["path"])
    finished = datetime.min.replace(tzinfo=UTC)
    return Publishing(UNLOGGED, PublishedWriter(writer.app_id, writer.key, 0, buffer, finished, None, ""))


def _still_there(version: int, published: Iterable[tuple[Publishing, Iterable[Add]]]) -> Commit:
    """Return a commit with only its files that are still live, without those that others have replaced since.

    :param version: of the commit.
    :param published: the records of its writers, each with the files that are live.
    """
    writers = [publishing.record.to_json() for publishing, _ in published]
    adds: list[Action] = [{"add": {**file, "dataChange": True}} for _, files in published for file in files]
    info: CommitInfo = {"operation": "WRITE", STAGED: {"format": FORMAT, "writers": writers}}
    return Commit(version, [{"commitInfo": info}, *adds])
