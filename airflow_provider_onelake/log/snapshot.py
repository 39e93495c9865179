"""What a table is at one version, but for its files."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import attrs

from airflow_provider_onelake.log.commits import Commit
from airflow_provider_onelake.log.features import append_only, check_supported
from airflow_provider_onelake.log.partitions import Partitioning

# Delta's default of delta.deletedFileRetentionDuration.
_RETENTION_DAYS = 7.0
_UNIT_DAYS = {"second": 1 / 86_400, "minute": 1 / 1_440, "hour": 1 / 24, "day": 1.0, "week": 7.0}


@attrs.define(slots=False, frozen=True)
class Snapshot:
    """A table at one version.

    :param version: of the table.
    :param protocol: the body of its ``protocol`` action.
    :param metadata: the body of its ``metaData`` action.
    :param txns: for every application id, the version that it last committed.
    """

    version: int
    protocol: Mapping[str, Any] = attrs.field(repr=False)
    metadata: Mapping[str, Any] = attrs.field(repr=False)
    txns: Mapping[str, int] = attrs.field(repr=False)

    def after(self, commits: list[Commit]) -> Snapshot:
        """Return the snapshot that the next commits lead to.

        :param commits: the versions that follow, in order.
        """
        if not commits:
            return self
        protocol, metadata, txns = self.protocol, self.metadata, dict(self.txns)
        for commit in commits:
            protocol = commit.protocol or protocol
            metadata = commit.metadata or metadata
            txns.update(commit.txns)
        return Snapshot(commits[-1].version, protocol, metadata, txns)

    @property
    def table_id(self) -> str:
        """The table's own id; it changes when the table is replaced."""
        return str(self.metadata["id"])

    @cached_property
    def partitioning(self) -> Partitioning:
        """The table's partition columns and their types."""
        return Partitioning.of(self.metadata)

    @property
    def configuration(self) -> Mapping[str, str]:
        """The table's properties."""
        return self.metadata.get("configuration") or {}

    @property
    def append_only(self) -> bool:
        """Whether the table's rows may only ever be appended to."""
        return append_only(self.metadata)

    @property
    def retention_days(self) -> float:
        """How long VACUUM spares a file that is not in the table, in days."""
        return interval_days(self.configuration.get("delta.deletedFileRetentionDuration"), _RETENTION_DAYS)

    def check_supported(self, table: str) -> None:
        """Refuse a table that uses a feature outside the allow-list.

        :param table: what messages call the table.
        :raises UnsupportedFeatureError: naming every such feature.
        """
        check_supported(self.protocol, self.metadata, table)


def interval_days(text: str | None, default: float) -> float:
    """Return the length of an interval as table properties spell it, in days.

    :param text: ``interval 1 week``, ``2 days 12 hours``, …
    :param default: in days, where there is no text.
    :raises ValueError: the text is no such interval.
    """
    if not text:
        return default
    words = text.lower().replace("interval", "").split()
    if not words or len(words) % 2:
        raise ValueError(f"{text!r} is no interval of seconds, minutes, hours, days or weeks")
    try:
        return sum(float(n) * _UNIT_DAYS[unit.rstrip("s")] for n, unit in zip(words[::2], words[1::2], strict=True))
    except (KeyError, ValueError) as error:
        raise ValueError(f"{text!r} is no interval of seconds, minutes, hours, days or weeks") from error
