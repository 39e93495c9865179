"""What the trips table must hold, counted from the gzip files.

A second opinion on the demo: this module imports the standard library only, neither Spark nor the provider package.
"""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

Row = tuple[object, ...]

FILE = re.compile(r"^yellow_tripdata_(\d{4}-\d{2})\.json\.gz$")
VENDORS = (1, 2)
KEY = (
    "vendor_id",
    "pickup_datetime",
    "dropoff_datetime",
    "pickup_location_id",
    "dropoff_location_id",
    "trip_distance",
    "total_amount",
)


class Trip(NamedTuple):
    """One line of a file: the file's month, the month in which it began in UTC, its vendor, and what identifies it."""

    file_month: str
    month: str
    vendor: int
    row: Row


def month_files(directory: Path) -> dict[str, Path]:
    """Return the sample files of a directory by month, in order."""
    found = {match[1]: path for path in directory.iterdir() if (match := FILE.match(path.name))}
    return dict(sorted(found.items()))


def month_after(month: str) -> str:
    """Return the month that comes after one, ``YYYY-MM``."""
    number = int(month[:4]) * 12 + int(month[5:])
    return f"{number // 12}-{number % 12 + 1:02d}"


def read_trips(files: dict[str, Path]) -> list[Trip]:
    """Return the two vendors' trips of all files, which are given by month."""
    trips = []
    for file_month, path in files.items():
        with gzip.open(path, "rt") as lines:
            for trip in map(json.loads, lines):
                if trip["vendor_id"] in VENDORS:
                    began = datetime.fromtimestamp(trip["pickup_datetime"] / 1000, UTC)
                    row = tuple(trip.get(name) for name in KEY)
                    trips.append(Trip(file_month, f"{began:%Y-%m}", trip["vendor_id"], row))
    return trips


def expected_append(trips: list[Trip]) -> Counter[Row]:
    """Return how often each row must be there after appends: as often as in the files."""
    return Counter(trip.row for trip in trips)


def expected_overwrite(trips: list[Trip], writers: list[tuple[str, int]], partition_by: str) -> Counter[Row]:
    """Return how often each row must be there after dynamic overwrites: per partition, the last finished writer's only.

    :param trips: of all files.
    :param writers: month and vendor of each, in the order in which they finished.
    :param partition_by: ``month``, where a writer covers its file's month, or ``vendor_id``.
    """
    by_month = partition_by == "month"
    last: dict[str | int, tuple[str, int]] = {
        (month if by_month else vendor): (month, vendor) for month, vendor in writers
    }
    return Counter(
        trip.row
        for trip in trips
        if last.get(trip.month if by_month else trip.vendor) == (trip.file_month, trip.vendor)
    )
