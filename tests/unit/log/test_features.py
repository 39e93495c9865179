"""The allow-list: what is not on it is refused before Spark runs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_provider_onelake.exceptions import UnsupportedFeatureError
from airflow_provider_onelake.log.features import ALLOWED, append_only, check_supported

REFUSED = [
    "catalogManaged",
    "clustering",
    "columnMapping",
    "domainMetadata",
    "icebergCompatV1",
    "icebergCompatV2",
    "icebergCompatV3",
    "identityColumns",
    "inCommitTimestamp",
    "rowTracking",
    "timestampNtz",
    "typeWidening",
    "v2Checkpoint",
    "vacuumProtocolCheck",
    "variantType",
    "coordinatedCommits-preview",
    "inventedTomorrow",
]


def metadata(field: dict[str, Any] | None = None, **configuration: str) -> dict[str, Any]:
    fields = [{"name": "id", "type": "long", "nullable": True, "metadata": field or {}}]
    schema = json.dumps({"type": "struct", "fields": fields})
    return {"id": "t", "schemaString": schema, "partitionColumns": [], "configuration": configuration}


@pytest.mark.parametrize(
    "protocol",
    [
        pytest.param({"minReaderVersion": 1, "minWriterVersion": 2}, id="plain"),
        pytest.param({"minReaderVersion": 1, "minWriterVersion": 3}, id="legacy CHECK"),
        pytest.param({"minReaderVersion": 1, "minWriterVersion": 4}, id="legacy generated columns"),
        pytest.param({"minReaderVersion": 2, "minWriterVersion": 6}, id="legacy, nothing of it in use"),
        pytest.param(
            {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["appendOnly", "checkConstraints"]},
            id="writer features",
        ),
        pytest.param(
            {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [], "writerFeatures": []}, id="[]"
        ),
        pytest.param(
            {
                "minReaderVersion": 3,
                "minWriterVersion": 7,
                "readerFeatures": ["deletionVectors"],
                "writerFeatures": sorted(ALLOWED),
            },
            id="all that is allowed",
        ),
    ],
)
def test_what_is_on_the_list_is_written_to(protocol: dict[str, Any]) -> None:
    check_supported(protocol, metadata(), "trips")


@pytest.mark.parametrize("feature", REFUSED)
def test_every_other_feature_is_refused_by_name(feature: str) -> None:
    for kind in ("readerFeatures", "writerFeatures"):
        protocol = {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": [],
            "writerFeatures": ["appendOnly"],
        }
        protocol[kind] = [feature]
        with pytest.raises(UnsupportedFeatureError, match=f"trips uses {feature}, .* Spark was not asked"):
            check_supported(protocol, metadata(), "trips")


@pytest.mark.parametrize(
    ("reader", "writer"),
    [pytest.param(4, 7, id="reader"), pytest.param(1, 8, id="writer"), pytest.param(3, 7, id="no list")],
)
def test_a_protocol_of_the_future_or_without_its_list_is_refused(reader: int, writer: int) -> None:
    protocol: dict[str, Any] = {"minReaderVersion": reader, "minWriterVersion": writer}
    with pytest.raises(UnsupportedFeatureError, match=rf"protocol version \({reader}, {writer}\)"):
        check_supported(protocol, metadata(), "trips")
    if (reader, writer) != (3, 7):
        listed = {**protocol, "readerFeatures": ["deletionVectors"], "writerFeatures": ["appendOnly"]}
        with pytest.raises(UnsupportedFeatureError, match=rf"protocol version \({reader}, {writer}\)"):
            check_supported(listed, metadata(), "trips")


@pytest.mark.parametrize(
    ("described", "feature"),
    [
        (metadata(**{"delta.columnMapping.mode": "name"}), "columnMapping"),
        (metadata(**{"delta.columnMapping.mode": "id"}), "columnMapping"),
        (metadata(**{"delta.enableChangeDataFeed": "true"}), "changeDataFeed"),
        (metadata(**{"delta.enableChangeDataFeed": "TRUE"}), "changeDataFeed"),
        (metadata({"delta.identity.start": 1, "delta.identity.step": 1}), "identityColumns"),
    ],
)
def test_rule_21_a_legacy_table_is_refused_where_it_uses_what_its_version_implies(
    described: dict[str, Any], feature: str
) -> None:
    with pytest.raises(UnsupportedFeatureError, match=feature):
        check_supported({"minReaderVersion": 2, "minWriterVersion": 6}, described, "trips")


@pytest.mark.parametrize(
    "described",
    [metadata(**{"delta.columnMapping.mode": "none"}), metadata(**{"delta.enableChangeDataFeed": "false"})],
)
def test_what_is_switched_off_is_not_in_use(described: dict[str, Any]) -> None:
    check_supported({"minReaderVersion": 2, "minWriterVersion": 6}, described, "trips")


def test_all_that_is_refused_is_named_at_once() -> None:
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["rowTracking", "domainMetadata"]}
    with pytest.raises(UnsupportedFeatureError, match="uses domainMetadata, rowTracking,"):
        check_supported(protocol, metadata(), "trips")


@pytest.mark.parametrize(("value", "expected"), [("true", True), ("TRUE", True), ("false", False), ("", False)])
def test_append_only_is_a_property(value: str, expected: bool) -> None:
    assert append_only(metadata(**{"delta.appendOnly": value})) is expected
