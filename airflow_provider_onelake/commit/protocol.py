"""The protocol of a new table: the least that its columns and properties need, with its features named."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from airflow_provider_onelake.commit.mapping import fields_within
from airflow_provider_onelake.exceptions import UnsupportedFeatureError
from airflow_provider_onelake.log.actions import Protocol

# By property: the value that switches a feature on, the feature, and whether readers must know it too.
_SWITCHES = {
    "delta.enableChangeDataFeed": ("true", "changeDataFeed", False),
    "delta.enableDeletionVectors": ("true", "deletionVectors", True),
    "delta.enableInCommitTimestamps": ("true", "inCommitTimestamp", False),
    "delta.enableTypeWidening": ("true", "typeWidening", True),
    "delta.checkpointPolicy": ("v2", "v2Checkpoint", True),
    "delta.columnMapping.mode": ("name", "columnMapping", True),
}
# We cannot create tables with these properties: they need more than a property and a feature's name.
_MADE_BY_SPARK = {
    "delta.enableRowTracking": "true",
    "delta.enableIcebergCompatV2": "true",
    "delta.columnMapping.mode": "id",
}

# These properties look like switches of the protocol, but change nothing in it.
_PLAIN = ("delta.enableExpiredLogCleanup", "delta.enableFullRetentionRollback")
_OF_PROTOCOL = ("delta.feature.", "delta.minreaderversion", "delta.minwriterversion")


def new_protocol(fields: list[dict[str, Any]], configuration: Mapping[str, str], table: str) -> Protocol:
    """Return the least protocol that a new table needs; features are named, so that other engines can read it.

    :param fields: of the schema's JSON.
    :param configuration: the table's properties.
    :param table: what messages call the table.
    :raises UnsupportedFeatureError: a property asks for what only Spark can set up, or for a feature by name.
    """
    for name, value in _MADE_BY_SPARK.items():
        if str(configuration.get(name, "")).lower() == value:
            raise UnsupportedFeatureError(
                f"{table} cannot be created with {name}={value}: it is set up by more than a property. Nothing was "
                "created: make the table with Spark (CREATE TABLE), and write to it from here."
            )
    for name, value in configuration.items():
        if _would_stay_words(name, str(value)):
            raise UnsupportedFeatureError(
                f"{table} cannot be created with {name}={value}: a feature of the protocol is switched on here by the "
                f"columns that need it and by {', '.join(sorted(_SWITCHES))}. Nothing was created: leave it out, or "
                "make the table with Spark (CREATE TABLE), and write to it from here."
            )
    writer = {"appendOnly", "invariants", *_by_columns(fields)}
    reader = {"timestampNtz"} & writer
    if any(key.startswith("delta.constraints.") for key in configuration):
        writer.add("checkConstraints")
    for name, (value, feature, read) in _SWITCHES.items():
        if str(configuration.get(name, "")).lower() == value:
            writer.add(feature)
            reader |= {feature} if read else set()
    if writer == {"appendOnly", "invariants"}:
        return {"minReaderVersion": 1, "minWriterVersion": 2}
    protocol: Protocol = {
        "minReaderVersion": 3 if reader else 1,
        "minWriterVersion": 7,
        "writerFeatures": sorted(writer),
    }
    return {**protocol, "readerFeatures": sorted(reader)} if reader else protocol


def _would_stay_words(name: str, value: str) -> bool:
    """Say whether a property is about the protocol, and would be written down without changing it."""
    if name.lower().startswith(_OF_PROTOCOL):
        return True
    switch = name.lower().startswith("delta.enable") and value.lower() != "false"
    return switch and name not in (*_SWITCHES, *_PLAIN)


def _by_columns(fields: list[dict[str, Any]]) -> Iterator[str]:
    if any("delta.generationExpression" in field["metadata"] for field in fields):
        yield "generatedColumns"
    if any("CURRENT_DEFAULT" in field["metadata"] for field in fields):
        yield "allowColumnDefaults"
    struct = {"type": "struct", "fields": fields}
    types = [struct, *(field["type"] for field in fields_within(struct))]
    if any("timestamp_ntz" in _leaves(kind) for kind in types):
        yield "timestampNtz"


def _leaves(kind: Any) -> Iterator[str]:
    if isinstance(kind, str):
        yield kind
    elif isinstance(kind, dict):
        for key in ("elementType", "keyType", "valueType"):
            yield from _leaves(kind.get(key))
