"""Trino's rules of concurrent statements through our operators, with real Spark: nobody fails, outcomes are serial."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_onelake.spark.connect import ConnectEngine
from tests.support.engines import use_engine
from tests.support.rivals import OURS, RULES, race

ALL = {**RULES, **OURS}
# One of each kind; all of them run without Spark as well (tests/unit/operators/test_rivals.py).
SOME = {
    "mixed inserts",
    "merge",
    "update and blind inserts",
    "an insert that names a partition beside changes there and elsewhere",
    "one person is forgotten while today is ingested and older partitions are compacted",
}
assert ALL.keys() >= SOME


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in SOME else pytest.mark.nightly) for name in ALL]
)
def test_no_statement_fails_and_the_outcome_is_serial(
    engine: ConnectEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    use_engine(monkeypatch, engine)
    rule = ALL[name]
    race(rule, rule.orders[0], tmp_path / "a lake", monkeypatch).check()
