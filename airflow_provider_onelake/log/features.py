"""Which tables we commit to, by the features of their protocol (docs/concepts/tables.md), and what a new one needs.

A table with a feature outside an explicit list is refused before Spark runs. Older tables do not name features but have
a writer version that implies some; such a table is refused only if it uses a feature that is not on the list.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from airflow_provider_onelake.exceptions import UnsupportedFeatureError
from airflow_provider_onelake.log.actions import Metadata, Protocol
from airflow_provider_onelake.log.schema import (
    CONSTRAINT,
    DEFAULT,
    GENERATION,
    columns,
    flag,
    partition_columns,
    setting,
)
from airflow_provider_onelake.log.types import struct_of, types_within

ALLOWED = frozenset(
    {
        "allowColumnDefaults",
        "appendOnly",
        "changeDataFeed",
        "checkConstraints",
        "clustering",
        "columnMapping",
        "deletionVectors",
        "domainMetadata",
        "generatedColumns",
        "icebergCompatV2",
        "inCommitTimestamp",
        "invariants",
        "rowTracking",
        "timestampNtz",
        "typeWidening",
        "typeWidening-preview",
        "v2Checkpoint",
        "vacuumProtocolCheck",
    }
)
READABLE = frozenset(
    {
        "columnMapping",
        "deletionVectors",
        "timestampNtz",
        "typeWidening",
        "typeWidening-preview",
        "v2Checkpoint",
        "vacuumProtocolCheck",
    }
)
# A protocol that was raised from (1, 6) names this feature even if the table has no identity column. So refuse a table
# only if it has one.
_HARMLESS_UNLESS_USED = frozenset({"identityColumns"})
_IDENTITY = "its values are given out one after another, and two buffers would give out the same ones"
_BINARY = "a log holds partition values as text, so bytes that are no text would become others"
_UNIFORM = "delta.universalFormat.enabledFormats"
_STALE = (
    "its Iceberg readers would not see the commits of this package, as only Spark and Databricks write Iceberg's "
    'metadata. If they may see an older table until then, say iceberg_readers="may_be_stale" in the connection'
)
_CATALOG = "its commits go through a catalog, not through the log"
# Why a feature is refused, by the beginning of its name.
_REASONS: Mapping[str, str] = {
    "catalog": _CATALOG,
    "checkpointProtection": "its log may be cleaned up by its own rules only",
    "coordinatedCommits": _CATALOG,
    "icebergCompat": "files that Iceberg must be able to read have been tried with icebergCompatV2 only",
    "managedCommits": _CATALOG,
    "materializePartitionColumns": "its files must repeat the partition columns, which has not been tried",
    "variant": "files with variants have not been tried",
}
_UNKNOWN = "this version does not know it"
_LEGACY_READER, _LEGACY_WRITER = 2, 6
# From which legacy writer version on a table has a feature without naming it.
_IN_LEGACY = {
    "appendOnly": 2,
    "invariants": 2,
    "checkConstraints": 3,
    "changeDataFeed": 4,
    "generatedColumns": 4,
    "columnMapping": 5,
    "identityColumns": 6,
}
# Features that a table may get by a property `delta.feature.<name>`, as nothing else has to be set up for them.
ADDED_BY_NAME = ALLOWED - {
    "clustering",
    "icebergCompatV2",
    "inCommitTimestamp",
    "rowTracking",
    "typeWidening-preview",
}
IN_COMMIT_TIMESTAMPS = "delta.enableInCommitTimestamps"
_COLUMN_MAPPING = "delta.columnMapping.mode"


@attrs.frozen
class _Switch:
    """A property that needs a feature in the protocol.

    :param value: what the property is then, in lower case.
    :param for_readers: whether readers must know the feature too.
    :param legacy: the lowest legacy (reader, writer) version that has the feature without naming it; ``None`` for a
        feature that must always be named.
    :param by_spark: whether only Spark can create a table with it, because it takes more than a property and a name.
    """

    property: str
    value: str
    feature: str
    for_readers: bool = False
    legacy: tuple[int, int] | None = None
    by_spark: bool = False


_SWITCHES = (
    _Switch("delta.enableRowTracking", "true", "rowTracking", by_spark=True),
    _Switch("delta.enableIcebergCompatV2", "true", "icebergCompatV2", by_spark=True),
    _Switch(_COLUMN_MAPPING, "id", "columnMapping", True, (2, 5), by_spark=True),
    _Switch(_COLUMN_MAPPING, "name", "columnMapping", True, (2, 5)),
    _Switch("delta.enableChangeDataFeed", "true", "changeDataFeed", legacy=(1, 4)),
    _Switch("delta.enableDeletionVectors", "true", "deletionVectors", True),
    _Switch(IN_COMMIT_TIMESTAMPS, "true", "inCommitTimestamp"),
    _Switch("delta.enableTypeWidening", "true", "typeWidening", True),
    _Switch("delta.checkpointPolicy", "v2", "v2Checkpoint", True),
)
_MADE_HERE = frozenset(switch.property for switch in _SWITCHES if not switch.by_spark)
# Engines write deletion vectors only where the property and the protocol both say so: the property alone is harmless.
_IGNORED_ALONE = "deletionVectors"
# These properties look like switches of the protocol, but change nothing in it.
_PLAIN = ("delta.enableExpiredLogCleanup", "delta.enableFullRetentionRollback")
_OF_PROTOCOL = ("delta.feature.", "delta.minreaderversion", "delta.minwriterversion")
_MAPPING_MODES = ("", "none", "name", "id")


def check_supported(protocol: Protocol, metadata: Metadata, table: str, *, iceberg_may_be_stale: bool = False) -> None:
    """Refuse a table that uses a feature outside the allow-list.

    :param protocol: the table's ``protocol``.
    :param metadata: the table's ``metaData``.
    :param table: what messages call the table.
    :param iceberg_may_be_stale: whether readers of other formats (UniForm) may see the table without our commits.
    :raises UnsupportedFeatureError: naming every such feature, and why it is refused.
    """
    found = {**dict(_named(protocol)), **dict(_in_use(metadata)), **dict(_without_protocol(protocol, metadata))}
    if setting(metadata, _UNIFORM) and not iceberg_may_be_stale:
        found[_UNIFORM] = _STALE
    if found:
        listed = "; ".join(f"{name}: {found[name]}" for name in sorted(found))
        raise UnsupportedFeatureError(
            f"{table} uses {', '.join(sorted(found))}, which this version does not write to ({listed}). Nothing was "
            "changed and Spark was not asked. It is not left to a Spark INSERT … SELECT with txnAppId either: Spark's "
            "own commit is not put-if-absent on this store, so it can overwrite another writer's, or be overwritten. "
            f"Supported: {', '.join(sorted(ALLOWED))}."
        )


def check_readable(protocol: Protocol, metadata: Metadata, table: str) -> None:
    """Refuse a table of which nothing can be said without knowing a feature that we do not know.

    Features that are for writers only change nothing for a reader, so more tables are read than are written to. Where a
    catalog takes the commits, even the log alone does not say what the table is.

    :param protocol: the table's ``protocol`` in the version that is read.
    :param metadata: the table's ``metaData`` in that version.
    :param table: what messages call the table.
    :raises UnsupportedFeatureError: naming every such feature.
    """
    reader = int(protocol["minReaderVersion"])
    found = {name: _reason(name) for name in frozenset(protocol.get("readerFeatures") or ()) - READABLE}
    found |= {name: _CATALOG for name in features_of(protocol) if _reason(name) == _CATALOG}
    found |= dict(_by_catalog(metadata))
    if reader > 3 or (reader == 3 and "readerFeatures" not in protocol):
        found[f"reader version {reader}"] = _UNKNOWN
    mode = setting(metadata, _COLUMN_MAPPING)
    if mode not in _MAPPING_MODES:
        found[f"columnMapping by {mode}"] = _UNKNOWN
    if found:
        listed = "; ".join(f"{name}: {found[name]}" for name in sorted(found))
        raise UnsupportedFeatureError(
            f"{table} uses {', '.join(sorted(found))}, which this version does not read ({listed}). Nothing was "
            "changed: use an engine that knows it, such as Spark. Features of readers that are supported: "
            f"{', '.join(sorted(READABLE))}."
        )


def _reason(feature: str) -> str:
    return next((reason for start, reason in _REASONS.items() if feature.startswith(start)), _UNKNOWN)


def _by_catalog(metadata: Metadata) -> Iterator[tuple[str, str]]:
    for name in metadata.get("configuration") or {}:
        if name.startswith(("delta.coordinatedCommits.commitCoordinator", "delta.managedCommit")):
            yield name, _CATALOG


def features_of(protocol: Protocol) -> frozenset[str]:
    """Return the features that a ``protocol`` action names, for readers and for writers."""
    return frozenset((*(protocol.get("readerFeatures") or ()), *(protocol.get("writerFeatures") or ())))


def all_features_of(protocol: Protocol) -> frozenset[str]:
    """Return the features that a ``protocol`` action names, and those that its legacy writer version stands for.

    https://github.com/delta-io/delta/blob/master/PROTOCOL.md#valid-feature-names-in-table-features
    """
    writer = int(protocol["minWriterVersion"])
    implied = (name for name, since in _IN_LEGACY.items() if since <= writer <= _LEGACY_WRITER)
    return features_of(protocol).union(implied)


def new_protocol(fields: list[dict[str, Any]], metadata: Metadata, table: str) -> Protocol:
    """Return the least protocol that a new table needs; features are named, so that other engines can read it.

    :param fields: of the table's schema.
    :param metadata: the table's ``metaData``.
    :param table: what messages call the table.
    :raises UnsupportedFeatureError: a property asks for what only Spark can set up, or for a feature by name.
    """
    switched = [switch for switch in _SWITCHES if setting(metadata, switch.property) == switch.value]
    for switch in switched:
        if switch.by_spark:
            raise UnsupportedFeatureError(
                f"{table} cannot be created with {switch.property}={switch.value}: it is set up by more than a "
                "property. Nothing was created: make the table with Spark (CREATE TABLE), and write to it from here."
            )
    configuration = metadata.get("configuration") or {}
    for name, value in configuration.items():
        if _would_stay_words(name, str(value)):
            raise UnsupportedFeatureError(
                f"{table} cannot be created with {name}={value}: a feature of the protocol is switched on here by the "
                f"columns that need it and by {', '.join(sorted(_MADE_HERE))}. Nothing was created: leave it out, or "
                "make the table with Spark (CREATE TABLE), and write to it from here."
            )
    by_columns = set(_by_columns(fields))
    writer = {"appendOnly", "invariants", *by_columns, *(switch.feature for switch in switched)}
    reader = {"timestampNtz"} & by_columns | {switch.feature for switch in switched if switch.for_readers}
    if any(name.startswith(CONSTRAINT) for name in configuration):
        writer.add("checkConstraints")
    if writer == {"appendOnly", "invariants"}:
        return {"minReaderVersion": 1, "minWriterVersion": 2}
    protocol: Protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": sorted(writer)}
    return {**protocol, "minReaderVersion": 3, "readerFeatures": sorted(reader)} if reader else protocol


def _would_stay_words(name: str, value: str) -> bool:
    """Say whether a property is about the protocol, and would be written down without changing it."""
    if name.lower().startswith(_OF_PROTOCOL):
        return True
    switch = name.lower().startswith("delta.enable") and value.lower() != "false"
    return switch and name not in (*_MADE_HERE, *_PLAIN)


def _by_columns(fields: list[dict[str, Any]]) -> Iterator[str]:
    if any(GENERATION in field["metadata"] for field in fields):
        yield "generatedColumns"
    if any(DEFAULT in field["metadata"] for field in fields):
        yield "allowColumnDefaults"
    if "timestamp_ntz" in types_within(struct_of(fields)):
        yield "timestampNtz"


def _named(protocol: Protocol) -> Iterator[tuple[str, str]]:
    """Yield what the protocol demands by name or by version, with the reason why we refuse it."""
    reader, writer = int(protocol["minReaderVersion"]), int(protocol["minWriterVersion"])
    named = features_of(protocol)
    for name in named - ALLOWED - _HARMLESS_UNLESS_USED:
        yield name, _reason(name)
    if writer > 7 or reader > 3:
        yield f"protocol version ({reader}, {writer})", _UNKNOWN
    elif (
        not named
        and (writer > _LEGACY_WRITER or reader > _LEGACY_READER)
        and not {"readerFeatures", "writerFeatures"} & protocol.keys()
    ):
        yield f"protocol version ({reader}, {writer}) without a list of features", "nobody knows what it asks for"


def _in_use(metadata: Metadata) -> Iterator[tuple[str, str]]:
    """Yield what the table's columns and properties demand, with the reason why we refuse it."""
    if any(key.startswith("delta.identity.") for column in columns(metadata).values() for key in column.metadata):
        yield "identityColumns", _IDENTITY
    for name in partition_columns(metadata):
        if columns(metadata)[name].type == "binary":
            yield f"the partition column {name} of type BINARY", _BINARY
    mode = setting(metadata, _COLUMN_MAPPING)
    if mode not in _MAPPING_MODES:
        yield f"columnMapping by {mode}", _UNKNOWN
    if flag(metadata, "delta.rowTrackingSuspended"):
        yield "delta.rowTrackingSuspended", "files would need row ids on some commits and must have none on others"
    yield from _by_catalog(metadata)


def _without_protocol(protocol: Protocol, metadata: Metadata) -> Iterator[tuple[str, str]]:
    """Yield features that a property switches on but the protocol lacks: engines disagree about such a table."""
    named = features_of(protocol)
    reader, writer = int(protocol["minReaderVersion"]), int(protocol["minWriterVersion"])
    for switch in _SWITCHES:
        on = switch.feature != _IGNORED_ALONE and setting(metadata, switch.property) == switch.value
        # From writer version 7 on, a table has only the features that its protocol names.
        least = switch.legacy if writer <= _LEGACY_WRITER else None
        implied = least is not None and reader >= least[0] and writer >= least[1]
        if on and not implied and not {switch.feature, f"{switch.feature}-preview"} & named:
            yield switch.feature, "a property switches it on, but the protocol does not have it"
