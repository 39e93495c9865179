"""Which live files a batch removes: what it replaces by partition, and what its writers appended before.

Protocol: take back whole.
"""

from __future__ import annotations

from airflow_provider_onelake.commit.batch import Batch, read_partition
from airflow_provider_onelake.commit.checks import check_paths_relative
from airflow_provider_onelake.commit.transaction import Transactions, View
from airflow_provider_onelake.exceptions import RerunRefusedError
from airflow_provider_onelake.log.actions import Add
from airflow_provider_onelake.log.replay import LiveFiles
from airflow_provider_onelake.log.snapshot import Snapshot
from airflow_provider_onelake.staging.buffers import Buffer
from airflow_provider_onelake.staging.published import files_to_take_back


class Replaced:
    """The live files that one publication removes, kept up to date from attempt to attempt."""

    def __init__(self, committer: Transactions) -> None:
        self._committer = committer
        self._log = committer.log
        self._live: tuple[tuple[Buffer, ...], LiveFiles] | None = None

    def files(self, batch: Batch, view: View, colleagues: tuple[str, ...]) -> list[Add]:
        """Return the raw ``add`` actions of the files that the batch removes, without colleagues' files.

        :param colleagues: directories of writers of the load that were published before, with a slash at their ends.
        :raises RerunRefusedError: files of the batch were in the table, or the files that it takes back have changed.
        :raises UnsupportedFeatureError: a file to remove has an absolute path.
        """
        if not batch.replaces_anything:
            if not view.complete:
                self._check_never_there(batch, view.snapshot)
            return self._taken_back(batch, view.snapshot)
        files = self._live_files(batch, view)
        return [file for file in files if not file["path"].startswith(colleagues)]

    def _taken_back(self, batch: Batch, snapshot: Snapshot) -> list[Add]:
        """Return what the batch's writers appended in their last generation, where the rerun replaces it."""
        files: list[Add] = []
        for spec in (buffer.spec for buffer in batch.buffers):
            stored = snapshot.txns.get(spec.identity.app_id)
            if spec.takes_back and stored is not None:
                files += files_to_take_back(self._log, spec.identity, stored, snapshot)
        if files and snapshot.append_only:
            raise RerunRefusedError(
                f"{self._log.table} is append-only, so what writers {batch.names} appended before is not taken back. "
                "Nothing was published: on_rerun='append' adds the rows beside it."
            )
        if files and self._committer.cross_check is not None:
            touched = {snapshot.partitioning.partition(file["partitionValues"]) for file in files}
            self._committer.live_in(snapshot, touched.__contains__)
        return files

    def _live_files(self, batch: Batch, view: View) -> LiveFiles:
        snapshot = view.snapshot
        if self._live is not None and self._live[0] == batch.buffers:
            files = self._live[1]
            files.follow(view.winners)
            return files
        read = read_partition(batch.mode, snapshot.partitioning)
        files = self._committer.live_in(snapshot, batch.replaces, read)
        check_paths_relative(files, self._log.table)
        self._live = (batch.buffers, files)
        return files

    def _check_never_there(self, batch: Batch, snapshot: Snapshot) -> None:
        prefixes = tuple(f"{buffer.path}/" for buffer in batch.buffers)
        if len(self._log.live_files(lambda add: add["path"].startswith(prefixes), snapshot.version)):
            raise RerunRefusedError(
                f"Files of writers {batch.names} are in {self._log.table} already; nothing was published."
            )
