"""Trino's rules of concurrent statements through our operators, with real Spark: nobody fails, outcomes are serial."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_onelake.engines.connect import ConnectEngine
from tests.support.engines import use_engine
from tests.support.rivals import OURS, RULES, race

ALL = {**RULES, **OURS}


@pytest.mark.parametrize("name", ALL)
def test_no_statement_fails_and_the_outcome_is_serial(
    engine: ConnectEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    use_engine(monkeypatch, engine)
    rule = ALL[name]
    race(rule, rule.orders[0], tmp_path / "a lake", monkeypatch).check()
