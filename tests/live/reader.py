"""A reader in a process of its own: reads a table again and again, and says what it saw.

``python -m tests.live.reader TABLE STOP`` prints a line of JSON for each answer, until the file STOP exists.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from pathlib import Path

from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from include.local.demo import local_files

# The writers need the cores too.
_PAUSE = 0.1


def main(table: str, stop: Path) -> None:
    while not stop.exists():
        try:
            seen = DeltaTable(table)
        except TableNotFoundError:
            time.sleep(_PAUSE)
            continue
        found = seen.to_pyarrow_table(columns=["vendor_id"], filesystem=local_files(Path(table)))
        vendors = Counter(found.column("vendor_id").to_pylist())
        sys.stdout.write(json.dumps({"version": seen.version(), "vendors": vendors}) + "\n")
        sys.stdout.flush()
        time.sleep(_PAUSE)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
