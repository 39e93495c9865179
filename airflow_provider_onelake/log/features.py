"""Which tables we commit to: an explicit allow-list of protocol features (design, "Tried with…").

What is not on the list is refused before Spark runs. Older tables name no features but a writer version that implies
some; there, what counts is whether the table uses them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from airflow_provider_onelake.exceptions import UnsupportedFeatureError
from airflow_provider_onelake.log.schema import columns

# Listing in writerFeatures means "supported", not "in use"; properties switch some of these on, see _in_use.
ALLOWED = frozenset(
    {
        "allowColumnDefaults",
        "appendOnly",
        "changeDataFeed",
        "checkConstraints",
        "deletionVectors",
        "generatedColumns",
        "invariants",
    }
)
_LEGACY_READER, _LEGACY_WRITER = 2, 6


def check_supported(protocol: Mapping[str, Any], metadata: Mapping[str, Any], table: str) -> None:
    """Refuse a table that uses a feature outside the allow-list.

    :param protocol: the table's ``protocol``.
    :param metadata: the table's ``metaData``.
    :param table: what messages call the table.
    :raises UnsupportedFeatureError: naming every such feature.
    """
    found = sorted({*_named(protocol), *_in_use(metadata)})
    if found:
        raise UnsupportedFeatureError(
            f"{table} uses {', '.join(found)}, which this version does not write to. Nothing was changed and Spark was "
            f"not asked. Supported: {', '.join(sorted(ALLOWED))}."
        )


def append_only(metadata: Mapping[str, Any]) -> bool:
    """Say whether a table's rows may only ever be appended to.

    :param metadata: the table's ``metaData``.
    """
    return _property(metadata, "delta.appendOnly") == "true"


def _named(protocol: Mapping[str, Any]) -> Iterator[str]:
    reader, writer = int(protocol["minReaderVersion"]), int(protocol["minWriterVersion"])
    named = {*(protocol.get("readerFeatures") or ()), *(protocol.get("writerFeatures") or ())}
    yield from named - ALLOWED
    if writer > 7 or reader > 3:
        yield f"protocol version ({reader}, {writer})"
    elif (
        not named
        and (writer > _LEGACY_WRITER or reader > _LEGACY_READER)
        and not {"readerFeatures", "writerFeatures"} & protocol.keys()
    ):
        yield f"protocol version ({reader}, {writer}) without a list of features"


def _in_use(metadata: Mapping[str, Any]) -> Iterator[str]:
    if _property(metadata, "delta.columnMapping.mode") not in ("", "none"):
        yield "columnMapping"
    if _property(metadata, "delta.enableChangeDataFeed") == "true":
        yield "changeDataFeed"
    if any(key.startswith("delta.identity.") for column in columns(metadata).values() for key in column.metadata):
        yield "identityColumns"


def _property(metadata: Mapping[str, Any], name: str) -> str:
    return str((metadata.get("configuration") or {}).get(name, "")).lower()
