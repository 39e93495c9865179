"""How far a writer has come, by the marks of its generations."""

from __future__ import annotations

from pathlib import Path

from airflow_provider_onelake.commit.publish import Committer
from airflow_provider_onelake.staging.claims import Standing, claim, standing
from airflow_provider_onelake.staging.prepare import Skip, prepare
from tests.support.tables import LOAD, make_table, stage, writer_spec


def test_a_generation_is_not_skipped_because_an_older_one_was(tmp_path: Path) -> None:
    log = make_table(tmp_path / "t")
    Committer(log).publish([stage(log, writer_spec(), {"2019-01": [1]})])
    assert isinstance(prepare(log, writer_spec(generation=2)), Skip)
    assert standing(log.store, LOAD.writer("w")) == Standing(2, skipped=True)
    claim(log.store, writer_spec(generation=3))
    assert standing(log.store, LOAD.writer("w")) == Standing(3, skipped=False)
