"""Whether a table is within the guardrails of Direct Lake on a capacity; and what to compact if it is not.

Beyond them, a refresh of a Direct Lake model over OneLake fails, and one over SQL falls back to DirectQuery.
"""

from __future__ import annotations

import logging
import tomllib
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from heapq import nlargest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from airflow_provider_onelake.buffers.footers import read_footer
from airflow_provider_onelake.exceptions import InvalidWriteError, ObjectNotFoundError
from airflow_provider_onelake.log.actions import Add, is_absolute, object_path, total_rows
from airflow_provider_onelake.maintenance import compaction
from airflow_provider_onelake.maintenance.compaction import bytes_of
from airflow_provider_onelake.maintenance.health import Finding, Severity
from airflow_provider_onelake.maintenance.in_flight import writers_in_flight
from airflow_provider_onelake.storage.concurrent import map_in_windows

if TYPE_CHECKING:
    from airflow_provider_onelake.log.delta_log import DeltaLog

logger = logging.getLogger(__name__)

_A_YEAR = timedelta(days=365)
_MOST_FOOTERS = 1000
_AT_ONCE = 32
# XCom is stored in Airflow's database.
_MOST_LISTED = 50


@attrs.frozen
class Guardrails:
    """What Direct Lake takes.

    :param files: Parquet files of a table.
    :param row_groups: of a table.
    :param rows: of a table.
    :param bytes: of a model, so of all its tables together; ``None`` for no limit.
    """

    files: int
    row_groups: int
    rows: int
    bytes: int | None


_FILE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
READ: date = _FILE["read"]
"""When Microsoft's page was read for the last time."""
GUARDRAILS = {
    size: Guardrails(each["files"], each["files"], each["rows"], each.get("bytes"))
    for each in _FILE["guardrails"]
    for size in each["sizes"]
}
"""The guardrails by the name of the capacity's size."""


@attrs.frozen
class Fit:
    """How a table fits.

    :param table: what messages call it.
    :param version: that was looked at.
    :param capacity: the name of its size.
    :param files: live data files.
    :param row_groups: of these; ``None`` where there are surely few enough, so that nobody counted.
    :param row_groups_exact: whether all were counted; else there are as many at least.
    :param rows: of the table; ``None`` where statistics do not say.
    :param bytes: of the live data files.
    :param model_bytes: of the live data files of all tables of the model that are known.
    :param findings: what is beyond a guardrail, and what to do.
    :param to_compact: partitions with files that a compaction would rewrite, those with the most files first.
    """

    table: str
    version: int
    capacity: str
    files: int
    row_groups: int | None
    row_groups_exact: bool
    rows: int | None
    bytes: int
    model_bytes: int
    findings: tuple[Finding, ...]
    to_compact: tuple[dict[str, Any], ...]

    def to_json(self) -> dict[str, Any]:
        """Return it for programs."""
        said = attrs.asdict(self, recurse=False)
        findings = [finding.to_json() for finding in self.findings]
        return {**said, "findings": findings, "to_compact": list(self.to_compact[:_MOST_LISTED])}


def check_capacity(capacity: object) -> None:
    """Refuse what is no capacity's size.

    :raises InvalidWriteError: there is no such size.
    """
    if capacity not in GUARDRAILS:
        raise InvalidWriteError(f"capacity={capacity!r} is unknown; it is one of {', '.join(GUARDRAILS)}.")


def _today() -> date:
    return datetime.now(UTC).date()


def examine(log: DeltaLog, capacity: str, others: Sequence[DeltaLog] = (), today: Callable[[], date] = _today) -> Fit:
    """Look whether the newest version of a table is within the guardrails of a capacity. Nothing is changed.

    Row groups are counted in the footers of the largest 1,000 files, and only if there may be too many. Every other
    file has at least one.

    :param log: of the table.
    :param capacity: the name of its size.
    :param others: the logs of the model's other tables. Only their size counts, for that of the model.
    :param today: returns the date. Guardrails that were read a year before it are warned of. Default: by this machine.
    :raises InvalidWriteError: there is no such capacity.
    :raises TableNotFoundError: there is no table, or one of the others is none.
    :raises StoreUnavailableError: the store did not answer.
    """
    check_capacity(capacity)
    if today() - READ >= _A_YEAR:
        logger.warning(
            "%s: the guardrails of Direct Lake are those of %s, and may have changed since: compare them with "
            "https://learn.microsoft.com/fabric/fundamentals/direct-lake-overview, or upgrade this package",
            log.table,
            READ,
        )
    limits, snapshot = GUARDRAILS[capacity], log.snapshot()
    files = list(log.live_files(lambda _: True, snapshot.version))
    rows, size = total_rows(files), bytes_of(files)
    model = size + sum(bytes_of(other.live_files(lambda _: True, other.snapshot().version)) for other in others)
    groups, exact = None, True
    if len(files) <= limits.row_groups and (rows is None or rows > limits.row_groups):
        groups, exact = _count_row_groups(log, files)
    findings = [
        *_beyond("files", len(files), limits.files),
        *_beyond("row groups", groups, limits.row_groups),
        *_beyond("rows", rows, limits.rows),
        *_beyond("bytes in the tables of the model together", model, limits.bytes),
    ]
    to_compact: list[dict[str, Any]] = []
    if findings:
        plan = compaction.plan(
            files, snapshot, compaction.CompactionTerms(), writers_in_flight(log, snapshot).why_needed
        )
        to_compact = [
            {"partition": group.name, "files": len(group.inputs), "bytes": group.bytes, "reason": group.reason}
            for group in sorted(plan.groups, key=lambda group: -len(group.inputs))
        ]
    todo = _todo(to_compact)
    return Fit(
        table=log.address,
        version=snapshot.version,
        capacity=capacity,
        files=len(files),
        row_groups=groups,
        row_groups_exact=exact,
        rows=rows,
        bytes=size,
        model_bytes=model,
        findings=tuple(Finding(Severity.ERROR, f"{what} on {capacity}", todo) for what in findings),
        to_compact=tuple(to_compact),
    )


def _todo(to_compact: list[dict[str, Any]]) -> str:
    if not to_compact:
        return "A compaction would not help: use larger files, fewer partitions or fewer rows, or a larger capacity"
    small, most = sum(each["files"] for each in to_compact), to_compact[0]
    return (
        f"Compact the table by OneLakeOptimizeOperator: {small:,} files in {len(to_compact):,} partitions are worth "
        f"rewriting, such as {most['files']:,} of {most['partition']}"
    )


def _beyond(what: str, found: int | None, limit: int | None) -> list[str]:
    if found is None or limit is None or found <= limit:
        return []
    return [f"{found:,} {what}; Direct Lake takes {limit:,}"]


def _count_row_groups(log: DeltaLog, files: list[Add]) -> tuple[int, bool]:
    # Import it before threads do, as half imported modules have failed in threads.
    import pyarrow.parquet  # noqa: F401

    def count(add: Add) -> int | None:
        try:
            return int(read_footer(log.store, object_path(add), int(add["size"])).num_row_groups)
        except (ObjectNotFoundError, OSError, ValueError) as error:
            logger.warning("%s: the row groups of %s are not counted: %s", log.table, add["path"], error)
            return None

    ours = [add for add in files if not is_absolute(add["path"])]
    looked_at = nlargest(_MOST_FOOTERS, ours, key=lambda add: int(add["size"]))
    counts = list(map_in_windows(log.store, count, looked_at, _AT_ONCE))
    unknown = len(files) - len(counts) + counts.count(None)
    return sum(each for each in counts if each is not None) + unknown, not unknown
