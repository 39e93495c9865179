"""Which properties may be set and unset, and to what."""

from __future__ import annotations

import pytest

from airflow_provider_onelake.exceptions import TablePropertyError
from airflow_provider_onelake.log.properties import check_set, check_unset, feature_of, spelled


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("owner team", "rides"),
        ("delta.appendOnly", "TRUE"),
        ("DELTA.ENABLECHANGEDATAFEED", "false"),
        ("delta.logRetentionDuration", "interval 60 days"),
        ("delta.deletedFileRetentionDuration", "2 weeks"),
        ("delta.checkpointInterval", "50"),
        ("delta.dataSkippingNumIndexedCols", "-1"),
        ("delta.targetFileSize", "100mb"),
        ("delta.columnMapping.mode", "Name"),
        ("delta.feature.timestampntz", "supported"),
    ],
)
def test_what_may_be_set(name: str, value: str) -> None:
    check_set(name, value)


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("", "1", "no name of a property"),
        ("delta.appendOnly", "yes", "true or false"),
        ("delta.appendOnly", True, "write it as one"),
        ("delta.checkpointInterval", "0", "above 0"),
        ("delta.logRetentionDuration", "interval 1 month", "an interval of weeks, days"),
        ("delta.logRetentionDuration", "interval -1 day", "an interval of weeks, days"),
        ("delta.columnMapping.mode", "id", "the value is name"),
        ("delta.columnMapping.maxColumnId", "1", "keeps it for itself"),
        ("delta.constraints.positive", "id > 0", "add_checks and drop_checks"),
        ("delta.setTransactionRetentionDuration", "interval 1 day", "would expire"),
        ("delta.dataSkippingStatsColumns", "id", "Spark's ALTER TABLE only"),
        ("delta.enableRowTracking", "true", "more than a property"),
        ("delta.enableInCommitTimestamps", "true", "more than a property"),
        ("delta.minWriterVersion", "7", "named one by one"),
        ("delta.coordinatedCommits.commitCoordinator", "x", "through a catalog"),
        ("delta.nope", "1", "does not know it"),
        ("delta.feature.clustering", "supported", "only one of"),
        ("delta.feature.timestampNtz", "true", "by the value 'supported'"),
        ("comment", "hello", "table_comment"),
        ("location", "x", "keeps this name for itself"),
    ],
)
def test_what_is_refused(name: str, value: object, why: str) -> None:
    with pytest.raises(TablePropertyError, match=why):
        check_set(name, value)


def test_what_may_be_unset() -> None:
    for name in ("mine", "delta.appendonly", "delta.setTransactionRetentionDuration", "delta.dataSkippingStatsColumns"):
        check_unset(name)
    for name in ("", None, "delta.columnMapping.mode", "delta.rowTracking.x", "delta.constraints.x", "delta.feature.x"):
        with pytest.raises(TablePropertyError, match=r"Nothing was changed"):
            check_unset(name)


def test_names_of_delta_are_known_in_any_case_and_others_are_not() -> None:
    assert spelled("DELTA.appendonly") == "delta.appendOnly"
    assert spelled("My.Own") == "My.Own"
    assert feature_of("delta.feature.TIMESTAMPNTZ", "supported") == "timestampNtz"
