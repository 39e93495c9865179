"""The rows of a load's other writers, which a writer that is published with them leaves alone (protocol: colleagues).

Their rows lie in files of their own directories, until a compaction or a statement moves them into files of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from airflow_provider_onelake.buffers.identity import WriterIdentity
from airflow_provider_onelake.buffers.layout import is_of_a_writer
from airflow_provider_onelake.exceptions import MixedRowsError
from airflow_provider_onelake.history.writers import WriterHistory
from airflow_provider_onelake.log.actions import Add, object_path
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.log.snapshot import Snapshot
from airflow_provider_onelake.log.values import Partition


def check_apart(
    log: DeltaLog, colleagues: Iterable[WriterIdentity], removable: Iterable[Add], names: str, snapshot: Snapshot
) -> None:
    """Refuse to remove a file that no writer staged, in a partition into which a colleague wrote.

    What the colleague published there has replaced everything else in the partition. So the file came later, and a
    compaction or a statement may have put the colleague's rows into it.

    :param colleagues: writers whose rows are to stay.
    :param removable: the files that a batch would remove, without those in the colleagues' directories.
    :param names: of the batch's writers, as messages list them.
    :param snapshot: that is decided on.
    :raises MixedRowsError: there is such a file.
    """
    read = snapshot.partitioning.partition
    mixed = {read(file["partitionValues"]): file for file in removable if not is_of_a_writer(object_path(file))}
    if not mixed:
        return
    for identity in (each for each in colleagues if each.app_id in snapshot.txns):
        wrote = _partitions_of(log, identity, snapshot)
        partition = next((one for one in mixed if wrote is None or one in wrote), None)
        if partition is not None:
            raise MixedRowsError(
                f"Writer {identity.key!r} of load {identity.load.id} was published in {log.table} before, and "
                f"{mixed[partition]['path']} in {snapshot.partitioning.describe(partition)} may hold its rows now: a "
                f"compaction or a statement wrote that file. They cannot be told from the rows that {names} replace. "
                "Nothing was published: clear all writers of the load."
            )


def _partitions_of(log: DeltaLog, identity: WriterIdentity, snapshot: Snapshot) -> Collection[Partition] | None:
    """Return the partitions into which a writer's commits put files; ``None`` where the log does not say any more."""
    history = WriterHistory(log, identity, snapshot)
    known = history.publishings()
    if history.stored not in {each.record.generation for each in known}:
        return None
    found: set[Partition] = set()
    for publishing in known:
        commit = log.commit(publishing.version)
        if commit is None:
            return None
        found |= {
            snapshot.partitioning.partition(add["partitionValues"]) for add in filter(publishing.has, commit.adds)
        }
    return found
