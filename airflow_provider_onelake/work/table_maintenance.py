"""The steps of one table maintenance by Fabric: find the job of the try before, or ask for one.

The id of a job is kept as soon as it is known, so a retry finds it. Where the answer with the id was lost, the job is
asked for again: what it finds done already it leaves as it is, and while the first one is at work, Fabric skips the
second, which is then asked for once more.
"""

from __future__ import annotations

import logging

import attrs

from airflow_provider_onelake.exceptions import (
    MaintenanceFailedError,
    MaintenanceRefusedError,
    ObjectExistsError,
    ObjectNotFoundError,
    StoreRefusedError,
    StoreUnavailableError,
)
from airflow_provider_onelake.storage.jobs import Job, JobState, TableMaintenance, Upkeep
from airflow_provider_onelake.work.refresh import Note, Waiting

logger = logging.getLogger(__name__)


@attrs.frozen
class Wanted:
    """A table, and what is to be done to it.

    :param schema: of the table; ``None`` in a lakehouse without schemas.
    :param table: its name.
    :param upkeep: what is to be done.
    """

    schema: str | None
    table: str
    upkeep: Upkeep


def maintain(fabric: TableMaintenance, note: Note, wanted: Wanted, waited: str | None = None) -> Job | Waiting:
    """See to it that Fabric maintains a table once for a start of a task.

    :param fabric: of the lakehouse.
    :param note: of the task.
    :param wanted: the table.
    :param waited: the job that this try has waited for. If it has failed, the try fails; in the place of one that an
        earlier try left behind, another one is asked for. Default: none.
    :returns: the job that has ended, completed or skipped by Fabric; or one at work. Then call this again later.
    :raises MaintenanceFailedError: the job that was waited for failed. A retry asks for another one.
    :raises MaintenanceRefusedError: Fabric refuses it.
    :raises StoreUnavailableError: Fabric does not answer.
    """
    try:
        if (own := note.get("own")) is not None:
            found = fabric.look(own)
            if found is not None and found.state is JobState.RUNNING:
                return Waiting(own, own=True)
            if found is not None and found.state is JobState.COMPLETED:
                return found
            note.keep(own=None)
            if found is not None and found.state is JobState.DEDUPED:
                if not note.get("lost"):
                    return found
                # The job at work may be ours, whose answer was lost; and it may be another table's.
                logger.info("Fabric skipped the job %s beside one at work", own)
                return Waiting(None, own=False)
            if found is not None and own == waited:
                raise MaintenanceFailedError(
                    f"Fabric did not maintain {wanted.table}: its job {own} ended so: {found.words}. The table's rows "
                    "are as they were; a retry or a clear asks for another job."
                )
            logger.warning("The job %s %s. Another one is asked for", own, found.words if found else "is not known")
        try:
            own = fabric.begin(wanted.schema, wanted.table, wanted.upkeep)
        except StoreUnavailableError:
            note.keep(lost=True)
            raise
        note.keep(own=own)
        logger.info("Fabric maintains %s: job %s", wanted.table, own)
        return Waiting(own, own=True)
    except (ObjectNotFoundError, ObjectExistsError, StoreRefusedError) as error:
        raise MaintenanceRefusedError(f"Fabric does not maintain {wanted.table}. {error}") from error
