"""What the trips table must hold, counted from the gzip files and the log's own words.

A second opinion on the demo: this module imports the standard library only, neither Spark nor the provider package.
"""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

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


@dataclass(frozen=True)
class Trip:
    """One line of a file.

    :param file_month: of the file that it is in, ``2019-01``.
    :param month: in which it began, in UTC.
    :param vendor: who recorded it.
    :param row: what identifies it, as far as anything does.
    """

    file_month: str
    month: str
    vendor: int
    row: Row


@dataclass(frozen=True)
class Finished:
    """One writer's word in the log.

    :param file_month: that it loaded.
    :param vendor: that it loaded.
    :param finished: when its rows were complete.
    """

    file_month: str
    vendor: int
    finished: str


def month_files(directory: Path) -> dict[str, Path]:
    """Return the sample files of a directory by month.

    :param directory: to look in.
    """
    found = {match[1]: path for path in directory.iterdir() if (match := FILE.match(path.name))}
    return dict(sorted(found.items()))


def month_after(month: str, later: int = 1) -> str:
    """Return the month that comes so many months later.

    :param month: ``YYYY-MM``.
    :param later: how many; below 0 for an earlier one.
    """
    number = int(month[:4]) * 12 + int(month[5:]) - 1 + later
    return f"{number // 12}-{number % 12 + 1:02d}"


def read_trips(files: dict[str, Path]) -> list[Trip]:
    """Return the two vendors' trips of all files.

    :param files: by month.
    """
    trips = []
    for file_month, path in files.items():
        with gzip.open(path, "rt") as lines:
            for line in lines:
                trip = json.loads(line)
                if trip["vendor_id"] in VENDORS:
                    began = datetime.fromtimestamp(trip["pickup_datetime"] / 1000, UTC)
                    row = tuple(trip.get(name) for name in KEY)
                    trips.append(Trip(file_month, f"{began:%Y-%m}", trip["vendor_id"], row))
    return trips


def finished_writers(table: Path, group: str) -> list[Finished]:
    """Return what the table's log says of the writers of a write group, in the order of the log.

    :param table: the table's directory.
    :param group: ``<dag>/<task group>``.
    """
    found = []
    for entry in sorted((table / "_delta_log").glob("*.json")):
        for line in entry.read_text().splitlines():
            staged = json.loads(line).get("commitInfo", {}).get("staged", {})
            load = str(staged.get("load", "")).split("/")
            if "/".join(load[1:-1]) != group:
                continue
            for writer in staged.get("writers", ()):
                month = load[-1][:7]
                found.append(Finished(month, int(writer["writer"].rpartition("-")[2]), writer["finished"]))
    return found


def expected_append(trips: list[Trip]) -> Counter[Row]:
    """Return how often each row must be there after appends: as often as in the files.

    :param trips: of all files.
    """
    return Counter(trip.row for trip in trips)


def expected_overwrite(trips: list[Trip], writers: list[Finished], partition_by: str) -> Counter[Row]:
    """Return how often each row must be there after dynamic overwrites: per partition, the last finished writer's only.

    :param trips: of all files.
    :param writers: what the log says of who finished when.
    :param partition_by: ``month``, where a writer covers its file's month, or ``vendor_id``.
    """
    last: dict[object, Finished] = {}
    for writer in writers:
        partition = writer.file_month if partition_by == "month" else writer.vendor
        if partition not in last or writer.finished > last[partition].finished:
            last[partition] = writer
    rows: Counter[Row] = Counter()
    for trip in trips:
        partition = trip.month if partition_by == "month" else trip.vendor
        # A trip outside its file's month never replaces another month's partition.
        covered = trip.month == trip.file_month or partition_by != "month"
        owner = last.get(partition)
        if covered and owner and (owner.file_month, owner.vendor) == (trip.file_month, trip.vendor):
            rows[trip.row] += 1
    return rows
