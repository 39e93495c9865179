"""Where a writer's rows were published before, and whether they are still there.

Protocol: skip only what is there, take back whole.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import attrs

from airflow_provider_onelake.buffers.identity import RETIRED
from airflow_provider_onelake.buffers.markers import markers
from airflow_provider_onelake.exceptions import RerunRefusedError
from airflow_provider_onelake.history.published import Aftermath, Publishing, aftermath, record_of
from airflow_provider_onelake.history.undone import MAKING_ANEW
from airflow_provider_onelake.log.actions import total_rows
from airflow_provider_onelake.log.commits import PublishedWriter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_provider_onelake.buffers.identity import Identity
    from airflow_provider_onelake.log.actions import Add
    from airflow_provider_onelake.log.commits import Commit
    from airflow_provider_onelake.log.delta_log import DeltaLog
    from airflow_provider_onelake.log.snapshot import Snapshot


@attrs.define(slots=False, frozen=True)
class WriterHistory:
    """What a table's log, and the markers beside it, say of a writer.

    :param log: of the table.
    :param writer: whose history it is.
    :param snapshot: the newest of the table.
    :param winners: commits among which the newest publishing is looked for first, in the order of versions.
    """

    log: DeltaLog
    writer: Identity
    snapshot: Snapshot = attrs.field(repr=False)
    winners: Sequence[Commit] = attrs.field(default=(), repr=False)

    @property
    def stored(self) -> int | None:
        """The generation that the writer's ``txn`` names; ``None`` where it has none."""
        return self.snapshot.txns.get(self.writer.app_id)

    @cached_property
    def newest(self) -> Publishing | None:
        """Where the generation that the ``txn`` names was published; ``None`` where nothing says it."""
        found = record_of(self.writer, self.winners)
        if found is not None and found.record.generation == self.stored:
            return found
        return self.find(self.stored) if self.stored is not None else None

    def find(self, generation: int) -> Publishing | None:
        """Return where a generation was published, or ``None`` where neither a marker nor the log says."""
        found = self.publishings(generation)
        return next((each for each in found if each.record.generation == generation), None)

    def publishings(self, generation: int | None = None) -> list[Publishing]:
        """Return where the rows of all generations were published, the newest first, as far as it is known.

        The markers of the writer's buffers say it. A writer that died before it marked its buffer is looked for in the
        log.

        :param generation: that is looked for. Default: the one that its ``txn`` names.
        """
        wanted = self.stored if generation is None else generation
        found = []
        for marker in markers(self.log.store, self.writer.directory):
            if marker.get("version") is None or "writer" not in marker:
                continue
            each = Publishing(int(marker["version"]), PublishedWriter.from_json(marker["writer"]))
            # A marker lies beside the table, so it may be older than the table. A rerun may come after the snapshot.
            if each.record.app_id != self.writer.app_id or each.version > self.snapshot.version:
                continue
            if marker.get("table") == self.snapshot.table_id or self._is_logged(each):
                found.append(each)
        if wanted is not None and wanted not in (RETIRED, *(each.record.generation for each in found)):
            commit = self.commit_that_set(wanted)
            found += [last] if commit is not None and (last := record_of(self.writer, [commit])) is not None else []
        return sorted(found, key=lambda each: each.version, reverse=True)

    def _is_logged(self, found: Publishing) -> bool:
        """Say whether the log has a publishing. A table that was dropped and made again has another log."""
        commit = self.log.commit(found.version)
        return commit is not None and commit.txns.get(self.writer.app_id) == found.record.generation

    def commit_that_set(self, generation: int) -> Commit | None:
        """Return the commit that set the ``txn`` to a generation; ``None`` where the log does not reach so far back."""
        version = self.snapshot.version
        while version >= 0 and (commit := self.log.commit(version)) is not None:
            if commit.txns.get(self.writer.app_id) == generation:
                return commit
            version -= 1
        return None

    def since(self, found: Publishing) -> Aftermath:
        """Return what became of the rows of a publishing."""
        return aftermath(self.log, found, self.snapshot)

    def left(self, found: Publishing) -> bool | None:
        """Say whether rows of a publishing are in the table; ``None`` where nobody can tell."""
        if found.record.rows == 0 or found.record.set_aside:
            return False
        gone = self.since(found).gone
        return None if gone is None else not gone

    def still_there(self) -> Publishing | None:
        """Return the newest publishing whose rows are in the table, as far as markers and the log say.

        It need not be of the generation that the ``txn`` names: a RESTORE leaves each ``txn`` as it is, and a newer
        generation may have added its rows beside the older ones.
        """
        return next((each for each in self.publishings() if self.left(each)), None)

    def restored_away(self, restore: Commit) -> tuple[bool | None, str]:
        """Say whether the writer has no rows in the table as a RESTORE took them, and what took them.

        ``None`` where nobody can tell. Of a writer that is retired it says whether it has no rows, whatever took them.

        :param restore: the newest commit that took the table back.
        """
        target = -1 if restore.operation in MAKING_ANEW else restore.restored_to
        known = self.publishings()
        left = [self.left(each) for each in known]
        found = next((each for each in known if each.record.generation == self.stored), None)
        if True in left:
            return False, ""
        if known and known[0].version < restore.version and target is not None and target < known[-1].version:
            return True, f"{restore.operation} in version {restore.version} took its rows back"
        if None in left or (found is None and self.stored != RETIRED):
            return None, ""
        why = self.since(found).undone if found is not None else "it is retired"
        return why is not None, why or ""

    def files_to_take_back(self) -> list[Add]:
        """Return the live files of what the writer appended last, for a rerun that replaces it.

        Protocol: take back whole. All of these files must be live and as they were. After an UPDATE, a DELETE or a
        compaction, the writer's rows are changed, erased or mixed with others, and staging them again would bring back
        rows that were changed or erased.

        :returns: the raw ``add`` actions; empty where that generation had no rows.
        :raises RerunRefusedError: a file is gone or has a deletion vector, or the log does not say which files they
            were.
        """
        found = self.newest
        live = list(self.log.live_files(found.has, self.snapshot.version)) if found is not None else []
        if (why_not := self._why_not_taken_back(found, live)) is not None:
            raise RerunRefusedError(
                f"What writer {self.writer.key!r} appended to {self.log.table} in generation {self.stored} cannot be "
                f"taken back: {why_not} (seen at version {self.snapshot.version}). Nothing was changed: use the mode "
                "overwrite_partitions or replace_where, which replace what is there, or on_rerun='append', which adds "
                "the rows beside it."
            )
        return live

    def _why_not_taken_back(self, found: Publishing | None, live: list[Add]) -> str | None:
        if found is None:
            return "neither a marker nor the log says which files they are"
        if found.record.merged:
            return f"version {found.version} has merged it into rows of others"
        commit = self.log.commit(found.version)
        if commit is not None:
            missing = {add["path"] for add in commit.adds if found.has(add)} - {file["path"] for file in live}
            if missing:
                return f"{min(missing)} of version {found.version} is gone"
        elif found.record.rows is None or total_rows(live) != found.record.rows:
            return f"version {found.version} was cleaned up, and not all of its {found.record.rows} rows are live"
        if not live and (why := self.since(found).undone):
            # This generation had no files, so none can be missing. But a RESTORE may have brought back the rows of an
            # older generation, which this one had taken back.
            return why
        changed = next((file["path"] for file in live if file.get("deletionVector")), None)
        return f"rows of {changed} were deleted or updated since" if changed is not None else None
