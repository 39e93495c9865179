"""What is wrong with a table, or will be: lost files, small files, a long log, abandoned buffers; and what to do."""

from __future__ import annotations

import logging
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import attrs

from airflow_provider_onelake.exceptions import CorruptLogError, ObjectNotFoundError, VacuumRefusedError
from airflow_provider_onelake.log.actions import LOG_DIRECTORY, Add, total_rows, version_path
from airflow_provider_onelake.log.replay import LogFiles
from airflow_provider_onelake.maintenance import compaction, vacuum
from airflow_provider_onelake.maintenance.compaction import bytes_of
from airflow_provider_onelake.maintenance.in_flight import writers_in_flight
from airflow_provider_onelake.maintenance.referenced import lost_files
from airflow_provider_onelake.texts import counted

if TYPE_CHECKING:
    from airflow_provider_onelake.log.delta_log import DeltaLog
    from airflow_provider_onelake.storage.stores import ObjectInfo

# A reader loads every entry since the newest checkpoint, one request each; Delta writes a checkpoint every ten commits.
_MANY_ENTRIES = 100
_GIB = 1 << 30


class Severity(StrEnum):
    """How bad a finding is.

    ``ERROR``: readers fail, or rows are gone. ``WARNING``: it costs time or money, and grows. ``NOTE``: to be known.
    """

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"

    @property
    def level(self) -> int:
        """The level of a log's line that tells such a finding."""
        return {"error": logging.ERROR, "warning": logging.WARNING, "note": logging.INFO}[self.value]


@attrs.frozen
class Finding:
    """Something about a table that a person should know.

    :param what: in a sentence.
    :param todo: what to do about it, in a sentence.
    """

    severity: Severity
    what: str
    todo: str

    def to_json(self) -> dict[str, str]:
        """Return it for programs."""
        return {"severity": self.severity.value, "what": self.what, "todo": self.todo}


@attrs.frozen
class Health:
    """How a table is.

    :param table: what messages call it.
    :param version: that was looked at.
    :param rows: in the table; ``None`` where statistics do not say.
    :param files: live data files.
    :param bytes: of the live data files.
    :param partitions: with live files.
    :param log_entries: since the newest checkpoint.
    :param checkpoint: the version of the newest checkpoint; ``None`` where there is none.
    :param to_compact: files that a compaction would rewrite.
    :param to_vacuum: objects that a vacuum would delete; ``None`` where it is refused.
    :param bytes_to_vacuum: of these objects.
    :param waiting: paths of buffers and compactions that are in flight.
    :param abandoned: paths of those that will not be published any more.
    :param findings: the worst first.
    """

    table: str
    version: int
    rows: int | None
    files: int
    bytes: int
    partitions: int
    log_entries: int
    checkpoint: int | None
    to_compact: int
    to_vacuum: int | None
    bytes_to_vacuum: int | None
    waiting: tuple[str, ...]
    abandoned: tuple[str, ...]
    findings: tuple[Finding, ...]

    @property
    def is_broken(self) -> bool:
        """Whether readers of the table fail, or rows of it are gone."""
        return any(finding.severity is Severity.ERROR for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        """Return it for programs."""
        found = attrs.asdict(self, recurse=False)
        listed = {name: list(value) for name, value in found.items() if isinstance(value, tuple)}
        return {**found, **listed, "findings": [finding.to_json() for finding in self.findings]}


def examine(log: DeltaLog) -> Health:
    """Look at a table's log, and at every object in its directory. Nothing is changed.

    :raises TableNotFoundError: there is no table.
    :raises CorruptLogError: the log cannot be read; entries without a byte at its end are named, all of them.
    :raises StoreUnavailableError: the store did not answer.
    """
    _check_end(log)
    snapshot = log.snapshot()
    files = list(log.live_files(lambda _: True, snapshot.version))
    # The listing is younger than the snapshot, so a live file that it lacks was not written only afterwards.
    listing = list(log.store.list(""))
    split = snapshot.partitioning.divided(files)
    in_log = LogFiles.of(info for info in listing if info.path.startswith(f"{LOG_DIRECTORY}/"))
    checkpoint = in_log.checkpoints[0].version if in_log.checkpoints else None
    entries = sum(version > (-1 if checkpoint is None else checkpoint) for version in in_log.versions)
    todo = compaction.plan(files, snapshot, compaction.CompactionTerms(), writers_in_flight(log, snapshot).why_needed)
    findings = [*_lost(log, files, listing), *_log(entries, checkpoint)]
    small = sum(len(group.inputs) for group in todo.groups)
    if small:
        findings.append(
            Finding(
                Severity.WARNING,
                f"{counted(small, 'small or half-deleted file')} in {counted(len(todo.groups), 'partition')} "
                f"{'is' if small == 1 else 'are'} worth rewriting",
                "Compact the table by OneLakeOptimizeOperator: readers open fewer files",
            )
        )
    waste: vacuum.VacuumPlan | None = None
    try:
        waste = vacuum.plan(log)
    except VacuumRefusedError as error:
        findings.append(Finding(Severity.WARNING, "A vacuum would be refused", str(error)))
    findings += [*_waste(waste, bytes_of(files)), *_pinned(waste)] if waste else []
    return Health(
        table=log.address,
        version=snapshot.version,
        rows=total_rows(files),
        files=len(files),
        bytes=bytes_of(files),
        partitions=len(split),
        log_entries=entries,
        checkpoint=checkpoint,
        to_compact=small,
        to_vacuum=len(waste.candidates) if waste else None,
        bytes_to_vacuum=waste.bytes if waste else None,
        waiting=tuple(staged.path for staged in waste.in_flight) if waste else (),
        abandoned=tuple(staged.path for staged in waste.abandoned) if waste else (),
        findings=tuple(sorted(findings, key=lambda finding: list(Severity).index(finding.severity))),
    )


def _check_end(log: DeltaLog) -> None:
    """Refuse a log whose last entries are empty, as a power cut leaves what an engine did not sync."""
    listing = list(log.store.list(LOG_DIRECTORY))
    sizes = {info.path: info.size for info in listing}
    versions = sorted(LogFiles.of(listing).versions)
    empty: list[int] = []
    while versions and not sizes[version_path(versions[-1])]:
        empty.insert(0, versions.pop())
    if empty:
        which = f"entry {empty[0]}" if len(empty) == 1 else f"entries {empty[0]} to {empty[-1]}"
        raise CorruptLogError(
            f"{log.table}: {which} at the end of its log {'has' if len(empty) == 1 else 'have'} 0 bytes, as after a "
            "power cut. Nothing was changed. Bring them and the files of their versions back from a backup; if there "
            "is none, move the empty entries away, so that the table is at its last whole version, and clear the tasks "
            "that wrote since."
        )


def _lost(log: DeltaLog, files: list[Add], listing: list[ObjectInfo]) -> list[Finding]:
    """Ask for every file that the listing lacks, as a listing may be older than what was put before it."""
    lost = [path for path in lost_files(files, {info.path for info in listing}) if not _is_there(log, path)]
    if not lost:
        return []
    one = len(lost) == 1
    missing = f"{counted(len(lost), 'file')} of the newest version {'is' if one else 'are'} not in the store"
    what = f"{missing}, {'it is' if one else 'such as'} {lost[0]}: readers of {'it' if one else 'them'} fail"
    return [
        Finding(
            Severity.ERROR,
            what,
            "Bring them back from the store's deleted objects if it keeps these; else clear the tasks that wrote them, "
            "or give the rows up by deltalake's DeltaTable.repair()",
        )
    ]


def _is_there(log: DeltaLog, path: str) -> bool:
    try:
        log.store.head(path)
    except ObjectNotFoundError:
        return False
    return True


def _log(entries: int, checkpoint: int | None) -> list[Finding]:
    if entries <= _MANY_ENTRIES:
        return []
    since = "and there is no checkpoint" if checkpoint is None else f"since the checkpoint of version {checkpoint}"
    what = f"{entries} log entries {since}: every reader fetches them one by one"
    return [Finding(Severity.WARNING, what, "Let an engine write a checkpoint, as every commit of this package may do")]


def _waste(waste: vacuum.VacuumPlan, live: int) -> list[Finding]:
    findings = [
        Finding(
            Severity.NOTE,
            f"{staged.path} of {staged.owner} was abandoned {_days(staged.age)} ago",
            "Clear its task if its rows are wanted; a vacuum takes its files",
        )
        for staged in waste.abandoned
    ]
    if waste.bytes > live and waste.bytes > _GIB:
        what = f"A vacuum would free {waste.bytes} bytes, more than the table holds"
        findings.append(Finding(Severity.WARNING, what, "Vacuum the table by OneLakeVacuumOperator"))
    return findings + [Finding(Severity.NOTE, note, "Read docs/guides/upkeep.md on vacuum") for note in waste.notes]


def _pinned(waste: vacuum.VacuumPlan) -> list[Finding]:
    return [
        Finding(
            Severity.NOTE,
            f"A vacuum spares {pinned}",
            "It ends by itself"
            if pinned.until is not None
            else "Its task takes it away when it ends"
            if pinned.held
            else "Release it by release_versions of OneLakeVacuumOperator if nobody needs it any more",
        )
        for pinned in waste.pinned
    ]


def _days(age: timedelta) -> str:
    return f"{age / timedelta(days=1):.1f} days"
