"""Whether files were written in V-Order, by the mark that Fabric's Spark itself leaves in the log."""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_provider_onelake.log.actions import Add

logger = logging.getLogger(__name__)

_MARK = "VORDER"


def files_in_v_order(name: str, what: str, asked: bool | None, adds: Collection[Add]) -> int | None:
    """Count the files that are marked as V-Order, and warn where that is not what was asked for.

    This package never marks a file: only the engine that wrote it knows.

    :param name: of the table, for people.
    :param what: who wrote the files, for people.
    :param asked: whether V-Order was asked for; ``None`` where it was left to Spark.
    :param adds: ``add`` actions, as Spark wrote them.
    :returns: how many; ``None`` where nothing was asked for.
    """
    if asked is None:
        return None
    marked = sum(str((add.get("tags") or {}).get(_MARK)).lower() == "true" for add in adds)
    if asked and marked < len(adds):
        logger.warning(
            "%s: %s asks for V-Order, and %d of %d files are not marked so: only Fabric's Spark writes it. On any "
            "other, v_order=True has no effect. The rows are right, and every engine reads them",
            name,
            what,
            len(adds) - marked,
            len(adds),
        )
    if not asked and marked:
        logger.warning(
            "%s: %s asks for no V-Order, and %d of %d files are marked so: a property of the table asks for it, "
            "delta.parquet.vorder.enabled or delta.parquet.vorder.default",
            name,
            what,
            marked,
            len(adds),
        )
    return marked
