"""Airflow's database made ready in one process: migrated, with the pools and connections of the stack.

``python -m include.local.bootstrap`` reads them as JSON from its input. Each ``airflow …`` command would cost seconds.
"""

from __future__ import annotations

import json
import sys
from typing import Any


def migrate() -> None:
    """Create Airflow's tables, or bring them up to this version."""
    from airflow.utils import db

    db.initdb()


def set_up(pools: list[dict[str, Any]], connections: list[dict[str, Any]]) -> None:
    """Create pools and connections, or bring them up to date.

    :param pools: ``name``, ``slots``, ``description``, and whether to ``include_deferred`` tasks.
    :param connections: fields of Airflow's ``Connection``; ``extra`` as an object. Their type may not be known yet.
    """
    from airflow.models import Connection, Pool
    from airflow.utils.session import create_session
    from sqlalchemy import delete

    with create_session() as session:
        for pool in pools:
            Pool.create_or_update_pool(**{"include_deferred": False, **pool}, session=session)
        for fields in connections:
            session.execute(delete(Connection).where(Connection.conn_id == fields["conn_id"]))
            extra = fields.get("extra")
            session.add(Connection(**{**fields, "extra": json.dumps(extra) if extra is not None else None}))


def main() -> None:
    """Do all of it."""
    wanted = json.load(sys.stdin)
    migrate()
    set_up(wanted["pools"], wanted["connections"])


if __name__ == "__main__":
    main()
