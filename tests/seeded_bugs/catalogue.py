"""Every seeded bug, room by room."""

from __future__ import annotations

from tests.seeded_bugs import (
    access,
    commit,
    livy,
    local_onelake,
    log,
    maintenance,
    planning,
    refreshes,
    rows,
    shortcuts,
    staging,
    triggers,
    view,
)

ROOMS = {
    "commit": commit.BUGS,
    "log": log.BUGS,
    "staging": staging.BUGS,
    "maintenance": maintenance.BUGS,
    "planning": planning.BUGS,
    "rows": rows.BUGS,
    "triggers": triggers.BUGS,
    "refreshes": refreshes.BUGS,
    "livy": livy.BUGS,
    "local_onelake": local_onelake.BUGS,
    "access": access.BUGS,
    "shortcuts": shortcuts.BUGS,
    "view": view.BUGS,
}

BUGS = [bug for bugs in ROOMS.values() for bug in bugs]
