"""What is asked before buffers are put: one function a question."""

from __future__ import annotations

import attrs
import pytest

from airflow_provider_onelake.exceptions import BufferDoesNotFitError, TerminalError, UnsupportedFeatureError
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.modes import OverwritePartitions
from airflow_provider_onelake.writes.commit_checks import check_definition, check_no_path_twice
from tests.support.tables import newest, stage, writer_spec
from tests.support.winners import file, winner


def test_a_table_replaced_by_another_does_not_fit(log: DeltaLog) -> None:
    buffer = stage(log, writer_spec("vendor-1", task="load.write[3]"), {"2019-01": [1]})
    snapshot = newest(log)
    replaced = attrs.evolve(snapshot, version=9, metadata={**snapshot.metadata, "id": "another"})
    with pytest.raises(BufferDoesNotFitError, match=r"'vendor-1' staged at version 0: the table was replaced") as error:
        check_definition(buffer, replaced, "trips")
    assert "seen at version 9" in str(error.value)
    assert "Clear load.write[3]" in str(error.value)
    check_definition(buffer, snapshot, "trips")


def test_an_append_only_table_takes_appends_only(log: DeltaLog) -> None:
    snapshot = newest(log)
    metadata = {**snapshot.metadata, "configuration": {"delta.appendOnly": "true"}}
    changed = attrs.evolve(snapshot, metadata=metadata)
    check_definition(stage(log, writer_spec("a"), {}), changed, "trips")
    with pytest.raises(BufferDoesNotFitError, match="it is append-only now"):
        check_definition(stage(log, writer_spec("b", mode=OverwritePartitions()), {}), changed, "trips")


def test_a_feature_off_the_list_added_since_is_refused(log: DeltaLog) -> None:
    buffer, snapshot = stage(log, writer_spec(), {}), newest(log)
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["variantType"]}
    with pytest.raises(UnsupportedFeatureError, match="variantType"):
        check_definition(buffer, attrs.evolve(snapshot, protocol=protocol), "trips")


def test_a_file_that_was_ever_in_the_table_is_not_added_again(log: DeltaLog) -> None:
    buffer = stage(log, writer_spec(), {"2019-01": [1]})
    came = winner({"add": file("2019-01", f"{buffer.path}/{buffer.adds[0]['path']}")})
    with pytest.raises(TerminalError, match="came into trips in version 7 already"):
        check_no_path_twice([buffer], [came], "trips")
    namesake = winner({"add": file("2019-01", f"{buffer.path}-1/{buffer.adds[0]['path']}")})
    check_no_path_twice([buffer], [namesake], "trips")
