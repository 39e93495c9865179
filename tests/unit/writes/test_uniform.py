"""Tables that every operation that writes refuses alike: with UniForm, unless its author says so; partitioned by bytes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from airflow_provider_onelake.buffers.buffer import Buffer
from airflow_provider_onelake.choices import OnNewerCommit
from airflow_provider_onelake.commit.loop import Transactions
from airflow_provider_onelake.exceptions import InvalidWriteError, UnsupportedFeatureError
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.maintenance.restore import restore
from airflow_provider_onelake.statements.delete import delete
from airflow_provider_onelake.storage.addresses import TableAddress
from airflow_provider_onelake.table import Table
from airflow_provider_onelake.writes.publish import Committer
from tests.support.changes import ChangeByHand, asker, change_of
from tests.support.tables import SCHEMA, change_metadata, local_log, newest, prepare, stage, three_versions, writer_spec

UNIFORM = {"delta.universalFormat.enabledFormats": "iceberg"}


def opened(path: Path, **settings: str) -> DeltaLog:
    return Table(TableAddress.parse(str(path)), None, 1.0, settings.get).log


UNDO = OnNewerCommit.UNDO
DOORS: dict[str, Callable[[DeltaLog, Buffer], object]] = {
    "stage": lambda log, buffer: prepare(log, writer_spec("again")),
    "publish": lambda log, buffer: Committer(log).publish([buffer]),
    "DELETE": lambda log, buffer: delete(Transactions(log), None, asker("a")),
    "UPDATE": lambda log, buffer: change_of(log, ChangeByHand()).carry_out(),
    "RESTORE": lambda log, buffer: restore(Transactions(log), 1, newest(log), asker("a"), on_newer_commit=UNDO),
}


@pytest.mark.parametrize("operation", DOORS)
def test_uniform_is_written_to_where_iceberg_readers_may_be_stale(tmp_path: Path, operation: str) -> None:
    before = three_versions(tmp_path)
    buffer = stage(before, writer_spec(), {"2019-01": [99]})
    change_metadata(before, configuration=UNIFORM)
    with pytest.raises(UnsupportedFeatureError, match=r'uses delta\.universalFormat.* iceberg_readers="may_be_stale"'):
        DOORS[operation](opened(tmp_path), buffer)
    assert newest(before).version == 4
    DOORS[operation](opened(tmp_path, iceberg_readers="may_be_stale"), buffer)
    assert newest(before).version == (4 if operation == "stage" else 5)


@pytest.mark.parametrize("operation", DOORS)
def test_a_table_partitioned_by_bytes_is_refused_and_left_alone(tmp_path: Path, operation: str) -> None:
    before = three_versions(tmp_path)
    buffer = stage(before, writer_spec(), {"2019-01": [99]})
    change_metadata(before, schemaString=SCHEMA.replace('"month", "type": "string"', '"month", "type": "binary"'))
    log = local_log(tmp_path)
    assert log.snapshot().partitioning.types == {"month": "binary"}
    with pytest.raises(UnsupportedFeatureError, match="uses the partition column month of type BINARY, which"):
        DOORS[operation](log, buffer)
    assert newest(log).version == 4


def test_a_table_with_uniform_is_read_whatever_the_connection_says(tmp_path: Path) -> None:
    change_metadata(three_versions(tmp_path), configuration=UNIFORM)
    assert Table(TableAddress.parse(str(tmp_path)), None, 1.0, {}.get).read().read_all().num_rows == 6


def test_what_the_connection_says_of_iceberg_readers_counts_for_every_log_of_the_table(tmp_path: Path) -> None:
    change_metadata(three_versions(tmp_path), configuration=UNIFORM)
    log = opened(tmp_path, iceberg_readers="may_be_stale")
    for snapshot in (log.snapshot(), log.anew().snapshot(), log.snapshot_at(4)):
        snapshot.check_supported(log.table)
    with pytest.raises(UnsupportedFeatureError):
        opened(tmp_path, iceberg_readers="").snapshot().check_supported(log.table)


def test_an_unknown_word_for_iceberg_readers_is_refused_without_repeating_it(tmp_path: Path) -> None:
    with pytest.raises(InvalidWriteError, match="`iceberg_readers`, of 6 characters") as refused:
        opened(tmp_path, iceberg_readers="secret")
    assert "secret" not in str(refused.value)
