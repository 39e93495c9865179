"""What refuses to call rows published: another attempt's, those that a RESTORE has taken back, those set aside."""

from __future__ import annotations

from airflow_provider_onelake.buffers.buffer import Buffer, OpenBuffer
from airflow_provider_onelake.buffers.markers import read_marker
from airflow_provider_onelake.buffers.spec import equal_work
from airflow_provider_onelake.exceptions import BufferSetAsideError, RerunRefusedError
from airflow_provider_onelake.history.published import WAYS, Publishing, aftermath
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.log.snapshot import Snapshot
from airflow_provider_onelake.storage.stores import Store


def check_same_work(found: Publishing, buffer: Buffer, log: DeltaLog) -> None:
    """Refuse to call a buffer published where another attempt of the same generation published other rows.

    :param found: where that generation was published.
    :raises RerunRefusedError: it was of another source or code.
    """
    spec = buffer.spec
    others = spec.fingerprint and found.record.fingerprint and not equal_work(found.record, spec)
    if others and found.record.buffer != buffer.path:
        raise RerunRefusedError(
            f"Another attempt of writer {spec.identity.key!r}, of another source or code, came into {log.table} in "
            f"version {found.version}. Nothing more was published: {WAYS}."
        )


def check_not_taken_back(found: Publishing, snapshot: Snapshot, log: DeltaLog) -> None:
    """Refuse to call rows published that came into the table, and that a RESTORE has taken back since.

    Protocol: skip only what is there.

    :param found: where they were published.
    :param snapshot: the newest of the table.
    :raises RerunRefusedError: a RESTORE has taken them back.
    """
    why_not = None if found.record.set_aside else aftermath(log, found, snapshot).undone
    if why_not is not None:
        raise RerunRefusedError(
            f"Writer {found.record.writer!r} was published in version {found.version} of {log.table}, but {why_not}. "
            f"Nothing more was published: {WAYS}."
        )


def check_not_set_aside(store: Store, buffer: OpenBuffer) -> None:
    """Refuse to go on with a buffer that was set aside, as it will never be published.

    :raises BufferSetAsideError: a newer attempt of other work, reconcile or a person set the buffer aside.
    """
    marker = read_marker(store, buffer.path)
    if marker is not None and "version" not in marker:
        raise BufferSetAsideError(
            f"The buffer {buffer.path} of writer {buffer.spec.identity.key!r} was closed while its writer worked "
            f"({marker.get('reason')}). Its rows are not published by anybody: a retry stages them again."
        )
