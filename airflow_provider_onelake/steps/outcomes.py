"""What writers, compactions and vacuums did, and how they leave it in XCom."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from airflow_provider_onelake.log.partitions import Partitioning
from airflow_provider_onelake.modes import Merge
from airflow_provider_onelake.texts import counted, rows_in_words
from airflow_provider_onelake.writes.losses import left_out_of
from airflow_provider_onelake.writes.policy import Settlement

if TYPE_CHECKING:
    from collections.abc import Iterable

    from airflow_provider_onelake.buffers.buffer import Buffer
    from airflow_provider_onelake.history.reruns import Skip
    from airflow_provider_onelake.log.delta_log import DeltaLog
    from airflow_provider_onelake.maintenance import compact, compaction, vacuum
    from airflow_provider_onelake.statements.merge import Merged
    from airflow_provider_onelake.writes.publish import Publication

# What a MERGE's own status is called as a writer's.
_MERGED = {"done": "published", "already_done": "already_published", "nothing_to_do": "nothing_to_do"}
_NAMES = 10
# Airflow's database has room for 250 characters, with the writer's key.
_LONGEST_LABEL = 140
_MOST = 50


@attrs.frozen(kw_only=True)
class Written:
    """What one writer did.

    :param skipped: why nothing was staged; ``None`` where rows were.
    :param buffer: what was staged.
    :param partitions: of the buffer, as people write them.
    :param reused: whether the buffer was there already.
    :param reruns: how often Spark ran again, because the rows came too late.
    :param publication: how publishing the buffer ended; ``None`` where it is left to a reconciliation.
    :param publications: every publication of the task.
    :param merged: how the MERGE of the buffer ended last; ``None`` in other modes.
    """

    skipped: Skip | None = None
    buffer: Buffer | None = None
    partitions: tuple[str, ...] = ()
    reused: bool = False
    reruns: int = 0
    publication: Publication | None = None
    publications: tuple[Publication, ...] = ()
    merged: Merged | None = None

    @property
    def status(self) -> str:
        """What became of the rows, in a word."""
        if self.skipped is not None:
            return "skipped"
        if self.refused:
            return "refused"
        if self.merged is not None:
            return _MERGED[self.merged.status]
        if self.publication is None:
            return "staged"
        return self.publication.status.value

    @property
    def refused(self) -> bool:
        """Whether the rows fail a check, so that nothing is published."""
        return self.buffer is not None and self.buffer.refused

    @property
    def in_short(self) -> str:
        """What the task did with the rows, for its label, which nobody renders again: so in words that stay true."""
        verdict = self.buffer.verdict if self.buffer is not None else None
        more = f", {verdict.in_words}" if verdict is not None and verdict.failed else ""
        more += f": {self.without_rows}" if self.without_rows else ""
        said = self.ending + more
        return said if len(said) <= _LONGEST_LABEL else f"{said[: _LONGEST_LABEL - 1]}…"

    @property
    def ending(self) -> str:
        """What the task did with the rows, without what its checks and its source say."""
        status, at = self.status.replace("_", " "), f" in version {self.version}" if self.version is not None else ""
        rows = rows_in_words(self.buffer.rows) if self.buffer is not None else ""
        if self.skipped is not None:
            return f"skipped: {self.skipped.reason.partition('. ')[0]}"
        if status == "staged":
            return f"{rows} staged"
        if status == "published" and self.merged is not None:
            return f"merged {rows}{at}"
        if status == "published" and self.publication is not None and self.publication.entry is not None:
            return f"published {rows_in_words(self.publication.entry.rows)}{at}"
        first = next(iter(self.publication.settlements if self.publication is not None else ()), None)
        if first is None:
            return f"{status}{at}"
        winner = f"version {first.winner_version} ({first.winner.partition(', run ')[0]})"
        return f"set aside: {winner} came first" if status == "set aside" else f"superseded by {winner}"

    @property
    def without_rows(self) -> str | None:
        """That the source gave no row, and what was not replaced because of that; ``None`` where there are rows."""
        if self.buffer is None or self.buffer.rows != 0:
            return None
        return "its source gave no row" + (", so nothing was replaced" if self._left_alone else "")

    @property
    def _left_alone(self) -> bool:
        """Whether rows stay in the table only because the source gave none."""
        assert self.buffer is not None
        spec = self.buffer.spec
        if self.merged is not None:
            assert isinstance(spec.mode, Merge)
            return spec.mode.looks_everywhere and not spec.allow_empty and self.status == "nothing_to_do"
        entry = self.publication.entry if self.publication is not None else None
        return spec.mode.replaces and not spec.allow_empty and entry is not None and not entry.files_removed

    @property
    def version(self) -> int | None:
        """The version that holds the rows, if there is one."""
        done = self.skipped or self.merged or self.publication
        return done.version if done is not None else None

    @property
    def rows_unexpected(self) -> int | None:
        """The rows that the commit left out because of ``expected_partitions``; ``None`` if they have no statistics."""
        if self.publication is None or self.publication.entry is None or self.publication.batch is None:
            return 0
        return self.publication.batch.placed[0].rows_unexpected

    def left_out(self, log: DeltaLog) -> list[str]:
        """Say which rows the policy left out, in a sentence for each commit in conflict.

        :param log: of the table. It is asked where an earlier try has committed them.
        """
        if self.skipped is None:
            return left_out_of(self.publication.settlements if self.publication is not None else ())
        commit = log.commit(self.skipped.version) if self.skipped.version is not None else None
        return left_out_of(Settlement.of(commit)) if commit is not None else []

    def to_json(self) -> dict[str, Any]:
        """Return what was done, by the keys that ``OneLakeWriteOperator`` describes."""
        result: dict[str, Any] = {"status": self.status, "version": self.version}
        if self.skipped is not None:
            return {**result, "reason": self.skipped.reason}
        if self.buffer is not None:
            result |= {
                "rows": self.buffer.rows,
                "files": self.buffer.files,
                "bytes": self.buffer.bytes,
                "partitions": list(self.partitions[:_MOST]),
                "finished": self.buffer.finished.isoformat(),
                "buffer": self.buffer.path,
                "read_version": self.buffer.read_version,
                "reads_target": self.buffer.reads_target,
                "reused": self.reused,
                "reruns": self.reruns,
            }
            if self.without_rows:
                result["without_rows"] = self.without_rows
            if self.buffer.verdict is not None:
                result["checks"] = self.buffer.verdict.as_results(self.buffer.spec.on_failed_check)
        if self.merged is not None:
            result |= {
                name: getattr(self.merged, name)
                for name in (
                    "rows_inserted",
                    "rows_updated",
                    "rows_deleted",
                    "rounds",
                    "files_removed",
                    "files_added",
                )
            }
            result |= {"lost_races": self.merged.lost_races, "decisions": []}
        if self.publication is not None:
            entry = self.publication.entry
            result |= {
                "lost_races": self.publication.tally.lost_races,
                "decisions": [str(settlement) for settlement in self.publication.settlements],
                "rows_published": entry.rows if entry is not None else None,
                "files_removed": entry.files_removed if entry is not None else None,
                "rows_unexpected": self.rows_unexpected,
            }
        return result


def checks_told(buffers: Iterable[Buffer]) -> list[dict[str, Any]]:
    """Return what checks say of the rows of several writers, one entry for each check, however many writers there are.

    :param buffers: with the rows.
    """
    found: dict[tuple[str, str, bool], dict[str, Any]] = {}
    for buffer in buffers:
        told = buffer.verdict.as_results(buffer.spec.on_failed_check) if buffer.verdict is not None else ()
        for check in told:
            name, sql, each_row = key = (check["name"], check["sql"], check["each_row"])
            fresh: dict[str, Any] = {"name": name, "sql": sql, "each_row": each_row, "passed": True, "failed": None}
            entry = found.setdefault(key, fresh)
            if each_row:
                entry["failed"] = (entry["failed"] or 0) + (check["failed"] or 0)
            if not check["passed"]:
                done = {*filter(None, entry.get("done", "").split(", ")), check["done"]}
                writers = [*entry.get("writers", ()), buffer.spec.identity.key][:_NAMES]
                entry |= {"passed": False, "done": ", ".join(sorted(done)), "writers": writers}
    return list(found.values())


def partitions_of(buffer: Buffer) -> tuple[str, ...]:
    """Return the partitions of a buffer, as people write them."""
    if buffer.spec.mode.own_columns:
        return ()
    split = Partitioning.of(buffer.metadata)
    return tuple(sorted({split.describe(split.partition(add["partitionValues"])) for add in buffer.adds}))


def describe_compaction(
    plan: compaction.CompactionPlan, publication: compact.CompactionResult | None
) -> dict[str, Any]:
    """Return what a compaction did.

    :param publication: how the compaction ended; ``None`` if there was nothing to publish.
    :returns: plain JSON, with the first 50 partitions and counts of all.
    """
    reasons = {group.name: group.reason for group in plan.groups}
    groups = publication.groups if publication is not None else ()
    dropped = publication.dropped if publication is not None else ()
    rows: list[dict[str, Any]] = [
        {
            "partition": group.name,
            "reason": reasons.get(group.name, ""),
            "files_before": len(group.removed),
            "files_after": len(group.added),
            "bytes_before": sum(int(file["size"]) for file in group.removed),
            "bytes_after": sum(int(file["size"]) for file in group.added),
        }
        for group in groups
    ]
    totals = {
        key: sum(int(row[key]) for row in rows)
        for key in ("files_before", "files_after", "bytes_before", "bytes_after")
    }
    version = publication.version if publication is not None else None
    if rows:
        summary = (
            f"version {version}: {counted(totals['files_before'], 'file')} of {size(totals['bytes_before'])} became "
            f"{totals['files_after']} of {size(totals['bytes_after'])}, in {counted(len(rows), 'partition')}"
        )
    else:
        summary = "the compaction is dropped; the table is unchanged" if dropped else "nothing to compact"
    return {
        "status": publication.status.value if publication is not None else "nothing_to_do",
        "version": version,
        "summary": summary,
        **totals,
        "partitions": rows[:_MOST],
        "partitions_compacted": len(rows),
        "dropped": [attrs.asdict(drop) for drop in dropped[:_MOST]],
        "partitions_dropped": len(dropped),
        "left_out": [attrs.asdict(left) for left in plan.left_out[:_MOST]],
        "partitions_left_out": len({left.partition for left in plan.left_out}),
        "lost_races": publication.tally.lost_races if publication is not None else 0,
    }


def describe_vacuum(todo: vacuum.VacuumPlan) -> dict[str, Any]:
    """Return what a vacuum is to do.

    :param todo: the plan of the vacuum.
    :returns: plain JSON, with the first names only.
    """
    times = [info.modified for info in todo.candidates]
    return {
        "table": todo.table,
        "version": todo.version,
        "lite": todo.lite,
        "retention_days": todo.retention_days,
        "before": todo.before.isoformat(),
        "held_by": todo.held_by,
        "files": len(todo.candidates),
        "bytes": todo.bytes,
        "left": 0,
        "oldest": min(times).isoformat() if times else None,
        "newest": max(times).isoformat() if times else None,
        "examples": [info.path for info in todo.candidates[:_NAMES]],
        "spared_files": todo.spared_files,
        "spared_bytes": todo.spared_bytes,
        "in_flight": [{"path": staged.path, "owner": staged.owner} for staged in todo.in_flight[:_MOST]],
        "in_flight_count": len(todo.in_flight),
        "abandoned": [{"path": staged.path, "owner": staged.owner} for staged in todo.abandoned[:_MOST]],
        "abandoned_count": len(todo.abandoned),
        "kept_versions": [pinned.version for pinned in todo.pinned],
        "logs_deleted": 0,
        "notes": list(todo.notes[:_MOST]),
    }


def size(count: int) -> str:
    """Return a number of bytes as people read it, such as ``3 MiB``."""
    number = float(count)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if number < 1024:
            return f"{number:.0f} {unit}"
        number /= 1024
    return f"{number:.1f} TiB"
