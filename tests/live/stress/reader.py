"""A reader in a process of its own: reads the table again and again with deltalake, and says what it saw.

``python -m tests.live.stress.reader TABLE STOP`` prints a line of JSON for each look, until the file STOP exists.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

# The writers need the cores too.
_PAUSE = 0.5


def look(table: str) -> dict[str, Any]:
    """What a reader sees now: how many rows of each load and writer, or the error that it met."""
    try:
        seen = DeltaTable(table)
        query = QueryBuilder().register("t", seen)
        counted = pa.table(
            query.execute("SELECT load, writer, count(*) AS rows FROM t GROUP BY load, writer").read_all()
        )
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
    rows = counted.to_pylist()
    return {"version": seen.version(), "rows": {f"{row['load']}/{row['writer']}": row["rows"] for row in rows}}


def main(table: str, stop: Path) -> None:
    while not stop.exists():
        sys.stdout.write(json.dumps(look(table)) + "\n")
        sys.stdout.flush()
        time.sleep(_PAUSE)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
