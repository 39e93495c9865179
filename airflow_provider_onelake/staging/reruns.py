"""What must not be called published: rows of another attempt, and rows that a RESTORE has taken back."""

from __future__ import annotations

from airflow_provider_onelake.exceptions import RerunRefusedError
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.log.snapshot import Snapshot
from airflow_provider_onelake.staging.buffers import Buffer
from airflow_provider_onelake.staging.published import WAYS, Publishing, restored_away
from airflow_provider_onelake.staging.spec import equal_work


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
    why_not = None if found.record.set_aside else restored_away(log, found, snapshot)
    if why_not is not None:
        raise RerunRefusedError(
            f"Writer {found.record.writer!r} was published in version {found.version} of {log.table}, but {why_not}. "
            f"Nothing more was published: {WAYS}."
        )
