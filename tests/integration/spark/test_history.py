"""What people read of our commits by Spark's DESCRIBE HISTORY."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from airflow_provider_onelake.choices import OnNewerCommit
from airflow_provider_onelake.commit.loop import Transactions
from airflow_provider_onelake.maintenance.compact import publish_rewrite
from airflow_provider_onelake.maintenance.restore import restore
from airflow_provider_onelake.maintenance.shadow import read_rewrite
from airflow_provider_onelake.writes.publish import Committer
from tests.support.changes import asker
from tests.support.shadows import rewritten
from tests.support.tables import make_table, stage, writer_spec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_describe_history_shows_whose_a_commit_is_and_its_authors_message(spark: SparkSession, tmp_path: Path) -> None:
    log = make_table(tmp_path / "trips")
    for key in ("a", "b"):
        Committer(log).publish([stage(log, writer_spec(key, message=f"of {key}"), {"2019-01": [1]})])
    shadow = rewritten(log)
    rewrite = read_rewrite(log.store, shadow)
    assert rewrite is not None
    publish_rewrite(Transactions(log), shadow, rewrite, by="taxi.optimize, run r (test)", message="before the audit")
    restore(
        Transactions(log),
        1,
        log.snapshot(),
        attrs.evolve(asker("onelake-restore/test"), by="taxi.restore, run r (test)", message="bad prices"),
        on_newer_commit=OnNewerCommit.FAIL,
    )
    history = spark.sql(f"DESCRIBE HISTORY delta.`{tmp_path / 'trips'}`").collect()
    load = "taxi.load, run 2019-01-01T00:00:00+00:00 (test)"
    assert [(row.operation, row.userMetadata) for row in history][:4] == [
        ("RESTORE", "taxi.restore, run r (test): back to version 1. Message: bad prices"),
        ("OPTIMIZE", "taxi.optimize, run r (test): 2 files became 1. Message: before the audit"),
        ("WRITE", f"{load}: b 1 row. Message: of b"),
        ("WRITE", f"{load}: a 1 row. Message: of a"),
    ]
