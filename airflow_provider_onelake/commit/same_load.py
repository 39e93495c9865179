"""What other writers of a load have in the table that a batch of the load would remove.

Writers of one load are rivals, whether they ran at the same time or one after another: what a policy does must not
depend on how many of them had a slot.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from airflow_provider_onelake.commit.batch import Batch
from airflow_provider_onelake.log.commits import FORMAT, STAGED, Commit
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.log.snapshot import Snapshot
from airflow_provider_onelake.staging.claims import standing
from airflow_provider_onelake.staging.identity import WriterIdentity
from airflow_provider_onelake.staging.layout import is_staged, writer_directory
from airflow_provider_onelake.staging.published import Publishing, find_published


class SameLoad:
    """Finds the commits of a load's other writers, also those that a batch was formed on top of.

    :param log: of the table.
    """

    def __init__(self, log: DeltaLog) -> None:
        self._log = log
        self._known: dict[tuple[str, int], Publishing | None] = {}

    def commits(self, batch: Batch, snapshot: Snapshot, removable: Iterable[Mapping[str, Any]]) -> list[Commit]:
        """Return what other writers published before the batch was formed, and the batch would remove.

        What a writer that is being rerun published before counts no more: its rerun is the rival.

        :param batch: to publish.
        :param snapshot: that the commit is decided on.
        :param removable: the live files that the batch would remove, but for colleagues'.
        :returns: their commits, in the order of versions, with those of their files that are live.
        """
        met: dict[str, list[Mapping[str, Any]]] = {}
        for file in removable:
            if is_staged(file["path"]):
                met.setdefault(writer_directory(file["path"]), []).append(file)
        # Most overwrites remove no staged file, and a table may know many thousands of writers.
        others = {writer.directory: writer for writer in self._others(batch, snapshot)} if met else {}
        found: dict[int, list[tuple[Publishing, list[Mapping[str, Any]]]]] = {}
        for directory in sorted(met.keys() & others.keys()):
            publishing = self._publishing(others[directory], snapshot)
            if publishing is not None and publishing.version <= batch.read_version:
                found.setdefault(publishing.version, []).append((publishing, met[directory]))
        return [_still_there(version, found[version]) for version in sorted(found)]

    def _others(self, batch: Batch, snapshot: Snapshot) -> Iterable[WriterIdentity]:
        load = batch.buffers[0].spec.identity.load
        own = {buffer.spec.identity.app_id for buffer in batch.buffers}
        prefix = f"onelake/{load.id}/"
        for app_id in snapshot.txns:
            if app_id.startswith(prefix) and app_id not in own and (writer := WriterIdentity.from_app_id(app_id)):
                yield writer

    def _publishing(self, writer: WriterIdentity, snapshot: Snapshot) -> Publishing | None:
        generation = snapshot.txns[writer.app_id]
        if standing(self._log.store, writer).generation > generation:
            return None
        key = (writer.app_id, generation)
        if key not in self._known:
            self._known[key] = find_published(self._log, writer, generation, snapshot.version)
        return self._known[key]


def _still_there(version: int, published: Iterable[tuple[Publishing, Iterable[Mapping[str, Any]]]]) -> Commit:
    """Return what of a commit is there still: what others have replaced since is no longer its writers'.

    :param version: of the commit.
    :param published: its writers' records, each with the files that are live.
    """
    writers = [publishing.record.to_json() for publishing, _ in published]
    adds = [{"add": {**file, "dataChange": True}} for _, files in published for file in files]
    info = {"operation": "WRITE", STAGED: {"format": FORMAT, "writers": writers}}
    return Commit(version, [{"commitInfo": info}, *adds])
