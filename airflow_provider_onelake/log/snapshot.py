"""The state of a table at one version, without its files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import timedelta
from functools import cached_property
from typing import Any, cast

import attrs

from airflow_provider_onelake.exceptions import CorruptLogError, LogGapError, TablePropertyError
from airflow_provider_onelake.log.actions import DomainMetadata, Metadata, Protocol
from airflow_provider_onelake.log.commits import Commit
from airflow_provider_onelake.log.features import IN_COMMIT_TIMESTAMPS, check_readable, check_supported, features_of
from airflow_provider_onelake.log.partitions import Partitioning
from airflow_provider_onelake.log.schema import column_mapping, flag
from airflow_provider_onelake.log.wellformed import check_metadata

# Delta's defaults of delta.deletedFileRetentionDuration and delta.logRetentionDuration.
_RETENTION_DAYS = 7.0
_LOG_RETENTION_DAYS = 30.0
# Delta's own metadata domains that matter to a writer.
ROW_TRACKING_DOMAIN = "delta.rowTracking"
CLUSTERING_DOMAIN = "delta.clustering"
NO_VERSION = -1
"""What precedes version 0."""


@attrs.frozen
class LostTimestamp:
    """An in-commit timestamp that the table has, but whose log entry is gone.

    :param why: what to say where the timestamp is needed.
    """

    why: str


@attrs.define(slots=False, frozen=True)
class Snapshot:
    """A table at one version, which we can read.

    Whoever has one need not ask whether the table has a feature that we do not know: of such a table there is none.

    :param protocol: the body of the ``protocol`` action.
    :param metadata: the body of the ``metaData`` action.
    :param txns: for every application id, the ``txn`` version that it last committed.
    :param domains: the bodies of the ``domainMetadata`` actions by domain, without removed ones.
    :param in_commit_timestamp: the last commit's in-commit timestamp in milliseconds; ``None`` where the table has
        none.
    :param table: what messages call the table.
    :param iceberg_may_be_stale: whether readers of other formats may see the table without our commits.
    :raises UnsupportedFeatureError: the table has a feature of readers that is not known here.
    """

    version: int
    protocol: Protocol = attrs.field(repr=False)
    metadata: Metadata = attrs.field(repr=False)
    txns: Mapping[str, int] = attrs.field(repr=False)
    domains: Mapping[str, DomainMetadata] = attrs.field(factory=dict, repr=False)
    _in_commit_timestamp: int | LostTimestamp | None = attrs.field(default=None, repr=False)
    table: str = attrs.field(default="The table", eq=False, repr=False)
    iceberg_may_be_stale: bool = attrs.field(default=False, eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        if self.version > NO_VERSION:
            check_readable(self.protocol, self.metadata, self.table)

    def after(self, commits: list[Commit]) -> Snapshot:
        """Return the snapshot that the next commits lead to.

        Only what counts in the last of them is judged: an older ``metaData`` may lack what readers need.

        :param commits: the versions that follow, in order.
        :raises CorruptLogError: the last version has no protocol, or no metaData that readers can use.
        :raises UnsupportedFeatureError: the last version has a feature of readers that is not known here.
        """
        if not commits:
            return self
        protocol, metadata, txns, domains = self.protocol, self.metadata, dict(self.txns), dict(self.domains)
        stamp = self._in_commit_timestamp
        for commit in commits:
            protocol = commit.protocol or protocol
            metadata = commit.metadata or metadata
            txns.update(commit.txns)
            domains.update(commit.domains)
            if commit.in_commit_timestamp is not None:
                stamp = commit.in_commit_timestamp
            elif not flag(metadata, IN_COMMIT_TIMESTAMPS):
                stamp = None
            # Else a writer left out a timestamp that the table requires. Keep the last known one: the next commit's
            # timestamp must be later than that.
        live = {name: body for name, body in domains.items() if not body.get("removed", False)}
        version = commits[-1].version
        if not protocol or not metadata:
            raise CorruptLogError(f"The log of {self.table} has no protocol or no metaData up to version {version}.")
        if metadata is not self.metadata:
            check_metadata(metadata, f"Version {version} of {self.table}")
        return Snapshot(version, protocol, metadata, txns, live, stamp, self.table, self.iceberg_may_be_stale)

    @property
    def in_commit_timestamp(self) -> int | None:
        """The last commit's in-commit timestamp in milliseconds, ``None`` where the table has none.

        The next commit's must be later (protocol: rising timestamps).

        :raises LogGapError: the table has in-commit timestamps, but the entry that holds the last one is gone.
        """
        if isinstance(self._in_commit_timestamp, LostTimestamp):
            raise LogGapError(self._in_commit_timestamp.why)
        return self._in_commit_timestamp

    @property
    def has_in_commit_timestamps(self) -> bool:
        """Whether every commit must carry an in-commit timestamp."""
        return flag(self.metadata, IN_COMMIT_TIMESTAMPS)

    @cached_property
    def writer_features(self) -> frozenset[str]:
        """The features that the protocol names, for readers and for writers."""
        return features_of(self.protocol)

    @property
    def has_row_tracking(self) -> bool:
        """Whether a commit must give base row ids to its files: it must if the protocol lists row tracking at all."""
        return "rowTracking" in self.writer_features

    @property
    def row_id_high_water_mark(self) -> int:
        """The highest row id that any commit has assigned, or -1."""
        return int(self._domain(ROW_TRACKING_DOMAIN).get("rowIdHighWaterMark", -1))

    @property
    def column_mapping(self) -> str:
        """How files identify columns: ``none`` (by name), ``name`` (by physical name) or ``id`` (by field id)."""
        return column_mapping(self.metadata)

    @property
    def clustering_columns(self) -> list[list[str]]:
        """The clustering columns, each as the physical names that lead to it."""
        return list(self._domain(CLUSTERING_DOMAIN).get("clusteringColumns") or ())

    @property
    def has_change_feed(self) -> bool:
        """Whether the table's change data feed is switched on."""
        return flag(self.metadata, "delta.enableChangeDataFeed")

    def _domain(self, name: str) -> Mapping[str, Any]:
        body = self.domains.get(name)
        return json.loads(body.get("configuration") or "{}") if body else {}

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
        return flag(self.metadata, "delta.appendOnly")

    @property
    def retention_days(self) -> float:
        """For how many days VACUUM keeps a file that is no longer in the table.

        :raises TablePropertyError: the table's property is no interval.
        """
        return interval_days(self.configuration.get("delta.deletedFileRetentionDuration"), _RETENTION_DAYS)

    @property
    def log_retention_days(self) -> float:
        """For how many days the log of a version is kept.

        :raises TablePropertyError: the table's property is no interval.
        """
        return interval_days(self.configuration.get("delta.logRetentionDuration"), _LOG_RETENTION_DAYS)

    def check_supported(self, table: str) -> None:
        """Refuse a table that uses a feature outside the allow-list.

        :param table: what messages call the table.
        :raises UnsupportedFeatureError: naming every such feature.
        """
        check_supported(self.protocol, self.metadata, table, iceberg_may_be_stale=self.iceberg_may_be_stale)


NO_TABLE = Snapshot(NO_VERSION, cast("Protocol", {}), cast("Metadata", {}), {})
"""The state before version 0."""


def interval_days(text: str | None, default: float) -> float:
    """Return the length of an interval as table properties spell it, in days.

    :param text: an interval such as ``interval 1 week`` or ``2 days 12 hours``.
    :param default: the result in days if there is no text.
    :raises TablePropertyError: the text is no such interval.
    """
    if not text:
        return default
    words = text.lower().replace("interval", "").split()
    try:
        if not words:
            raise ValueError(text)
        # The units are those of timedelta, which are plural.
        parts = (timedelta(**{f"{u.rstrip('s')}s": float(n)}) for n, u in zip(words[::2], words[1::2], strict=True))
        return sum(parts, timedelta()) / timedelta(days=1)
    except (TypeError, ValueError, OverflowError) as error:
        raise TablePropertyError(
            f"{text!r} is no interval of weeks, days, hours, minutes or seconds, such as 'interval 7 days'. Nothing "
            "was changed; set the table's property anew."
        ) from error
