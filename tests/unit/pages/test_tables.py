"""Which tables a lakehouse has."""

from __future__ import annotations

from pathlib import Path

from obstore.store import LocalStore

from airflow_provider_onelake.pages.tables import tables_below
from airflow_provider_onelake.storage.stores import ObjectStore
from tests.support.tables import make_table


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
