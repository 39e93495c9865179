"""Which tables a lakehouse has, and how large each is."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from deltalake import DeltaTable
from obstore.store import LocalStore

from airflow_provider_onelake.exceptions import TableNotFoundError
from airflow_provider_onelake.maintenance.overview import look_at, tables_below
from airflow_provider_onelake.storage.stores import ObjectStore
from tests.support.tables import cleaned_up, foreign_append, local_log, make_table


def below(path: Path) -> list[str]:
    return tables_below(ObjectStore(LocalStore(prefix=path), str(path)))


def test_tables_lie_in_tables_with_and_without_a_schema(tmp_path: Path) -> None:
    for name in ("Tables/trips", "Tables/dbo/orders", "Tables/dbo/lines", "Files/copy", "Tables/_hidden/t"):
        make_table(tmp_path / name)
    (tmp_path / "Tables" / "empty").mkdir()
    assert below(tmp_path) == ["Tables/dbo/lines", "Tables/dbo/orders", "Tables/trips"]


def test_without_tables_every_directory_counts_three_levels_deep(tmp_path: Path) -> None:
    for name in ("a", "b/c", "b/d/e", "b/d/f/g", ".hidden"):
        make_table(tmp_path / name)
    assert below(tmp_path) == ["a", "b/c", "b/d/e"]


def test_a_table_is_as_large_as_its_live_files(tmp_path: Path) -> None:
    log = make_table(tmp_path)
    assert (look_at(log).rows, look_at(log).files, look_at(log).operation) == (0, 0, "CREATE TABLE")
    foreign_append(log, {"2019-01": [1, 2], "2019-02": [3]}, timestamp=1_548_979_200_000)
    DeltaTable(log.table).create_checkpoint()
    found = look_at(local_log(tmp_path))
    size = sum(file.stat().st_size for file in tmp_path.glob("month=*/*.parquet"))
    assert (found.version, found.rows, found.files, found.bytes, found.operation) == (1, 3, 2, size, "WRITE")
    assert found.time == datetime(2019, 2, 1, tzinfo=UTC)


def test_where_the_newest_entry_is_gone_the_time_is_not_known(tmp_path: Path) -> None:
    log = make_table(tmp_path)
    foreign_append(log, {"2019-01": [1]})
    cleaned_up(log, *range(2))
    found = look_at(local_log(tmp_path))
    assert (found.version, found.rows, found.time, found.operation) == (1, 1, None, None)


def test_a_directory_without_a_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TableNotFoundError):
        look_at(local_log(tmp_path))
