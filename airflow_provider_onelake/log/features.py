"""Which tables we commit to: an explicit allow-list of protocol features (docs/which-tables.md).

A table with any other feature is refused before Spark runs. Older tables do not name features but have a writer version
that implies some; such a table is refused only if it uses a feature that is not on the list.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from airflow_provider_onelake.exceptions import UnsupportedFeatureError
from airflow_provider_onelake.log.actions import Metadata, Protocol
from airflow_provider_onelake.log.schema import columns

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
# A protocol that was raised from (1, 6) names this feature even if the table has no identity column. So refuse a table
# only if it has one.
_HARMLESS_UNLESS_USED = frozenset({"identityColumns"})
_IDENTITY = "its values are given out one after another, and two buffers would give out the same ones"
_CATALOG = "its commits go through a catalog, not through the log"
_CLEANUP = "its log may be cleaned up by its own rules only"
_VARIANT = "files with variants have not been tried"
_ICEBERG = "files that Iceberg must be able to read have been tried with icebergCompatV2 only"
_REASONS: Mapping[str, str] = {
    "catalogManaged": _CATALOG,
    "catalogOwned": _CATALOG,
    "catalogOwned-preview": _CATALOG,
    "checkpointProtection": _CLEANUP,
    "coordinatedCommits-preview": _CATALOG,
    "icebergCompatV1": _ICEBERG,
    "icebergCompatV3": _ICEBERG,
    "managedCommits-dev": _CATALOG,
    "materializePartitionColumns": "its files must repeat the partition columns, which has not been tried",
    "variantShredding": _VARIANT,
    "variantShredding-preview": _VARIANT,
    "variantType": _VARIANT,
    "variantType-preview": _VARIANT,
}
_UNKNOWN = "this version does not know it"
_LEGACY_READER, _LEGACY_WRITER = 2, 6
# By property: the value that switches a feature on, the feature, and the lowest legacy (reader, writer) version that
# has the feature without naming it (None: it must always be named).
_SWITCHES: Mapping[str, tuple[str, str, tuple[int, int] | None]] = {
    "delta.enableChangeDataFeed": ("true", "changeDataFeed", (1, 4)),
    "delta.enableIcebergCompatV2": ("true", "icebergCompatV2", None),
    "delta.enableInCommitTimestamps": ("true", "inCommitTimestamp", None),
    "delta.enableRowTracking": ("true", "rowTracking", None),
    "delta.enableTypeWidening": ("true", "typeWidening", None),
    "delta.checkpointPolicy": ("v2", "v2Checkpoint", None),
}
_MAPPING_MODES = ("", "none", "name", "id")


def check_supported(protocol: Protocol, metadata: Metadata, table: str) -> None:
    """Refuse a table that uses a feature outside the allow-list.

    :param protocol: the table's ``protocol``.
    :param metadata: the table's ``metaData``.
    :param table: what messages call the table.
    :raises UnsupportedFeatureError: naming every such feature, and why it is refused.
    """
    found = {**dict(_named(protocol)), **dict(_in_use(metadata)), **dict(_without_protocol(protocol, metadata))}
    if found:
        listed = "; ".join(f"{name}: {found[name]}" for name in sorted(found))
        raise UnsupportedFeatureError(
            f"{table} uses {', '.join(sorted(found))}, which this version does not write to ({listed}). Nothing was "
            "changed and Spark was not asked. It is not left to a Spark INSERT … SELECT with txnAppId either: Spark's "
            "own commit is not put-if-absent on this store, so it can overwrite another writer's, or be overwritten. "
            f"Supported: {', '.join(sorted(ALLOWED))}."
        )


def features_of(protocol: Protocol) -> frozenset[str]:
    """Return the features that a ``protocol`` action names, for readers and for writers."""
    return frozenset((*(protocol.get("readerFeatures") or ()), *(protocol.get("writerFeatures") or ())))


def append_only(metadata: Metadata) -> bool:
    """Say whether a table is append-only, so that no commit may delete or change rows."""
    return _property(metadata, "delta.appendOnly") == "true"


def has_in_commit_timestamps(metadata: Metadata) -> bool:
    """Say whether every commit of a table must carry an in-commit timestamp.

    :param metadata: the table's ``metaData``.
    """
    return _property(metadata, "delta.enableInCommitTimestamps") == "true"


def _named(protocol: Protocol) -> Iterator[tuple[str, str]]:
    """Yield what the protocol demands by name or by version, with the reason why we refuse it."""
    reader, writer = int(protocol["minReaderVersion"]), int(protocol["minWriterVersion"])
    named = features_of(protocol)
    for name in named - ALLOWED - _HARMLESS_UNLESS_USED:
        yield name, _REASONS.get(name, _UNKNOWN)
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
    mode = _property(metadata, "delta.columnMapping.mode")
    if mode not in _MAPPING_MODES:
        yield f"columnMapping by {mode}", _UNKNOWN
    if _property(metadata, "delta.rowTrackingSuspended") == "true":
        yield "delta.rowTrackingSuspended", "files would need row ids on some commits and must have none on others"
    for name in metadata.get("configuration") or {}:
        if name.startswith(("delta.coordinatedCommits.commitCoordinator", "delta.managedCommit")):
            yield name, _CATALOG


def _without_protocol(protocol: Protocol, metadata: Metadata) -> Iterator[tuple[str, str]]:
    """Yield features that a property switches on but the protocol lacks: engines disagree about such a table."""
    reason = "a property switches it on, but the protocol does not have it"
    named = features_of(protocol)
    version = (int(protocol["minReaderVersion"]), int(protocol["minWriterVersion"]))

    def missing(feature: str, legacy: tuple[int, int] | None) -> bool:
        if feature in named or f"{feature}-preview" in named:
            return False
        # From writer version 7 on, a table has only the features that its protocol names.
        return legacy is None or version[1] > _LEGACY_WRITER or version[0] < legacy[0] or version[1] < legacy[1]

    for name, (value, feature, legacy) in _SWITCHES.items():
        if _property(metadata, name) == value and missing(feature, legacy):
            yield feature, reason
    if _property(metadata, "delta.columnMapping.mode") in ("name", "id") and missing("columnMapping", (2, 5)):
        yield "columnMapping", reason


def _property(metadata: Metadata, name: str) -> str:
    return str((metadata.get("configuration") or {}).get(name, "")).lower()
