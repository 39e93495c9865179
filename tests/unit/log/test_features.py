"""The allow-list: what is not on it is refused before Spark runs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_provider_onelake.exceptions import UnsupportedFeatureError
from airflow_provider_onelake.log.features import ALLOWED, check_supported

REFUSED = {
    "catalogManaged": "through a catalog",
    "catalogOwned-preview": "through a catalog",
    "checkpointProtection": "rules only",
    "coordinatedCommits-preview": "through a catalog",
    "icebergCompatV1": "icebergCompatV2 only",
    "icebergCompatV3": "icebergCompatV2 only",
    "inCommitTimestamp-preview": "does not know it",
    "inventedTomorrow": "does not know it",
    "materializePartitionColumns": "has not been tried",
    "variantType": "have not been tried",
}
# As Delta 4.4 lists them for a table made with each of them.
LISTED = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [], "writerFeatures": sorted(ALLOWED)}


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
@pytest.mark.parametrize("kind", ["readerFeatures", "writerFeatures"])
def test_every_other_feature_is_refused_by_name_with_the_reason(feature: str, kind: str) -> None:
    protocol = {**LISTED, "writerFeatures": ["appendOnly"], kind: [feature]}
    with pytest.raises(UnsupportedFeatureError) as caught:
        check_supported(protocol, metadata(), "trips")
    text = str(caught.value)
    assert f"trips uses {feature}, which" in text
    assert f"{feature}: " in text
    assert REFUSED[feature] in text
    assert "Nothing was changed and Spark was not asked" in text


def test_the_refusal_says_why_spark_is_not_left_to_do_it() -> None:
    with pytest.raises(UnsupportedFeatureError, match="Spark's own commit is not put-if-absent on this store"):
        check_supported({**LISTED, "writerFeatures": ["variantType"]}, metadata(), "trips")


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


@pytest.mark.parametrize("writer", [6, 7])
def test_an_identity_column_is_refused_where_it_is_used_not_where_it_is_listed(writer: int) -> None:
    listed = {"writerFeatures": ["identityColumns"]} if writer == 7 else {}
    protocol = {"minReaderVersion": 1, "minWriterVersion": writer, **listed}
    check_supported(protocol, metadata(), "trips")
    with pytest.raises(UnsupportedFeatureError, match=r"uses identityColumns, .*two buffers would give out the same"):
        check_supported(protocol, metadata({"delta.identity.start": 1, "delta.identity.step": 1}), "trips")


@pytest.mark.parametrize(
    ("properties", "named"),
    [
        ({"delta.columnMapping.mode": "magic"}, "columnMapping by magic"),
        ({"delta.rowTrackingSuspended": "true"}, "delta.rowTrackingSuspended"),
        (
            {"delta.coordinatedCommits.commitCoordinator-preview": "dynamodb"},
            "delta.coordinatedCommits.commitCoordinator-preview",
        ),
    ],
)
def test_a_property_that_asks_for_more_than_the_list_is_refused(properties: dict[str, str], named: str) -> None:
    with pytest.raises(UnsupportedFeatureError, match=f"trips uses {named},"):
        check_supported(LISTED, metadata(**properties), "trips")


def test_a_table_that_is_partitioned_by_bytes_is_refused_by_the_column() -> None:
    fields = [{"name": n, "type": "binary", "nullable": True, "metadata": {}} for n in ("id", "p")]
    bytewise = {**metadata(), "schemaString": json.dumps({"type": "struct", "fields": fields})}
    check_supported(LISTED, bytewise, "trips")
    with pytest.raises(UnsupportedFeatureError, match="trips uses the partition column p of type BINARY, which"):
        check_supported(LISTED, {**bytewise, "partitionColumns": ["p"]}, "trips")


SWITCHES = [
    ("delta.columnMapping.mode", "name", "columnMapping", (2, 5)),
    ("delta.columnMapping.mode", "id", "columnMapping", (2, 5)),
    ("delta.enableChangeDataFeed", "TRUE", "changeDataFeed", (1, 4)),
    ("delta.enableInCommitTimestamps", "true", "inCommitTimestamp", None),
    ("delta.enableRowTracking", "true", "rowTracking", None),
    ("delta.enableTypeWidening", "true", "typeWidening", None),
    ("delta.enableIcebergCompatV2", "true", "icebergCompatV2", None),
    ("delta.checkpointPolicy", "v2", "v2Checkpoint", None),
]


@pytest.mark.parametrize(("name", "value", "feature", "legacy"), SWITCHES)
def test_what_a_property_switches_on_is_written_to_where_the_protocol_has_it(
    name: str, value: str, feature: str, legacy: tuple[int, int] | None
) -> None:
    described = metadata(**{name: value})
    check_supported(LISTED, described, "trips")
    if legacy:
        for reader, writer in (legacy, (2, 6)):
            check_supported({"minReaderVersion": reader, "minWriterVersion": writer}, described, "trips")


@pytest.mark.parametrize(("name", "value", "feature", "legacy"), SWITCHES)
@pytest.mark.parametrize(
    "protocol",
    [
        {"minReaderVersion": 1, "minWriterVersion": 2},
        {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [], "writerFeatures": ["appendOnly"]},
    ],
)
def test_what_a_property_switches_on_is_refused_where_the_protocol_does_not_have_it(
    name: str, value: str, feature: str, legacy: tuple[int, int] | None, protocol: dict[str, Any]
) -> None:
    with pytest.raises(UnsupportedFeatureError, match=f"uses {feature}, .*the protocol does not have it"):
        check_supported(protocol, metadata(**{name: value}), "trips")


@pytest.mark.parametrize(
    "described", [metadata(**{"delta.columnMapping.mode": "none"}), metadata(**{"delta.enableChangeDataFeed": "false"})]
)
def test_what_is_switched_off_is_not_in_use(described: dict[str, Any]) -> None:
    check_supported({"minReaderVersion": 1, "minWriterVersion": 2}, described, "trips")


def test_all_that_is_refused_is_named_at_once() -> None:
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["variantType", "inventedTomorrow"]}
    described = metadata({"delta.identity.start": 1})
    with pytest.raises(UnsupportedFeatureError, match="uses identityColumns, inventedTomorrow, variantType,"):
        check_supported(protocol, described, "trips")
