"""Trino's rules of concurrent statements, by name, through our operators: nobody fails, and every outcome is serial."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.engines import use_engine
from tests.support.rivals import OURS, RULES, race
from tests.support.sql_by_hand import SqlByHand, table_rows


@pytest.mark.parametrize("name", [*RULES, *OURS])
def test_the_outcome_is_serial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    rule = {**RULES, **OURS}[name]
    for number, order in enumerate(rule.rotations):
        use_engine(monkeypatch, SqlByHand(vectors=bool(number % 2)))
        race(rule, order, tmp_path / f"lake {number}", monkeypatch).check()


@pytest.mark.parametrize("vectors", [False, True], ids=["rewriting", "vectors"])
def test_a_person_is_forgotten_at_every_place_among_an_ingestion_and_a_compaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, vectors: bool
) -> None:
    rule = OURS["one person is forgotten while today is ingested and older partitions are compacted"]
    use_engine(monkeypatch, SqlByHand(vectors=vectors))
    for number, order in enumerate(rule.orders):
        raced = race(rule, order, tmp_path / f"lake {number}", monkeypatch)
        raced.check()
        # The other statements do not meet, so there is one outcome, and nobody had to do anything again.
        assert [month for person, month in table_rows(raced.table) if person == 17] == ["2019-03"]
        ingested, forgotten, _ = raced.results
        assert (ingested["status"], forgotten["status"], forgotten["rows_deleted"]) == ("published", "done", 3)
