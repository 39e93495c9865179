"""Whose rows a RESTORE took back, and whose it brought back: it leaves each ``txn`` as it is.

Where the table's history does not say it, an earlier plan has noted whether rows of the writer were in the table, and
only a RESTORE changes that.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from airflow_provider_onelake.buffers.identity import RETIRED
from airflow_provider_onelake.buffers.layout import writer_directory
from airflow_provider_onelake.exceptions import LogGapError
from airflow_provider_onelake.history.undone import UNDOING
from airflow_provider_onelake.history.writers import WriterHistory
from airflow_provider_onelake.log.directories import Below
from airflow_provider_onelake.planning.ledger import Ledger, Looked
from airflow_provider_onelake.texts import listed

if TYPE_CHECKING:
    from airflow_provider_onelake.log.commits import Commit
    from airflow_provider_onelake.log.delta_log import DeltaLog
    from airflow_provider_onelake.log.snapshot import Snapshot

logger = logging.getLogger(__name__)

_SHOWN = 3


def look_for_restores(log: DeltaLog, ledger: Ledger, snapshot: Snapshot) -> Looked | None:
    """Return what RESTOREs have done to rows that writers of a ledger have loaded.

    :param snapshot: the newest of the table.
    :returns: ``None`` if there was none since a plan has looked.
    """
    if not ledger.writers:
        return None
    try:
        since = log.commits_between(ledger.version, snapshot.version)
    except LogGapError:
        logger.warning(
            "%s: the log since version %d was cleaned up, so nobody knows whether a RESTORE took back rows that "
            "were loaded; they count as loaded",
            log.table,
            ledger.version,
        )
        return None
    restores = [commit for commit in since if commit.operation in UNDOING]
    if not restores:
        return None
    own = Below(tuple(f"{writer.identity.directory}/" for writer in ledger.writers))
    live = {writer_directory(file["path"]) for file in log.live_files(own, snapshot.version)}
    is_as_noted = _went_to_what_was_noted(log, restores, ledger.version)
    gone, back, doubtful = {}, set(), []
    for writer in ledger.writers:
        app_id = writer.identity.app_id
        stored = snapshot.txns.get(app_id)
        if stored is None:
            continue
        # A writer that died before it marked its buffer has its files in the table, and no publishing that is known.
        is_there = writer.identity.directory in live
        history = WriterHistory(log, writer.identity, snapshot)
        is_gone, why = (False, "") if is_there else history.restored_away(restores[-1])
        if is_gone is None:
            generation, why = ledger.gone.get(app_id, (stored, ""))
            is_gone = app_id not in ledger.back if stored == RETIRED else app_id in ledger.gone and generation == stored
            changed = not is_as_noted and any(each.adds if is_gone else each.removes for each in restores)
            # What was noted of an older generation says nothing.
            if changed or generation != stored != RETIRED:
                doubtful.append(str(writer))
                is_gone = False
        if is_gone and stored != RETIRED:
            gone[app_id] = (stored, why)
        elif not is_gone and stored == RETIRED:
            back.add(app_id)
    if doubtful:
        logger.warning(
            "%s: nobody knows whether %s in version %d took back, or brought back, rows of %s, as the log does not say "
            "it; they count as loaded",
            log.table,
            restores[-1].operation,
            restores[-1].version,
            listed(doubtful, _SHOWN),
        )
    return Looked(gone, frozenset(back))


def _went_to_what_was_noted(log: DeltaLog, restores: Sequence[Commit], noted: int) -> bool:
    """Say whether RESTOREs left what a plan has noted as it was, as far as it is known.

    :param noted: the version in which the plan has looked. In the versions since the RESTORE before it, it was so too.
    """
    targets = [commit.restored_to for commit in restores if commit.restored_to is not None]
    if len(targets) < len(restores):
        return False
    try:
        between = log.commits_between(min(*targets, noted), noted)
    except LogGapError:
        return False
    return not any(commit.operation in UNDOING for commit in between)
