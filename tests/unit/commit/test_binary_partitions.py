"""A table that another engine has partitioned by BINARY: every operation that writes refuses it, and none asks Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_onelake.choices import OnNewerCommit
from airflow_provider_onelake.commit.delete import delete
from airflow_provider_onelake.commit.transaction import Transactions
from airflow_provider_onelake.exceptions import UnsupportedFeatureError
from airflow_provider_onelake.maintenance.restore import restore
from airflow_provider_onelake.staging.prepare import prepare
from tests.support.changes import ChangeByHand, asker, change_of
from tests.support.commits import committer
from tests.support.tables import SCHEMA, change_metadata, local_log, newest, stage, three_versions, writer_spec


@pytest.mark.parametrize("operation", ["stage", "publish", "DELETE", "UPDATE", "RESTORE"])
def test_a_table_partitioned_by_bytes_is_refused_and_left_alone(tmp_path: Path, operation: str) -> None:
    before, engine = three_versions(tmp_path), ChangeByHand()
    buffer = stage(before, writer_spec(), {"2019-01": [99]})
    change_metadata(before, schemaString=SCHEMA.replace('"month", "type": "string"', '"month", "type": "binary"'))
    log = local_log(tmp_path)
    assert log.snapshot().partitioning.types == {"month": "binary"}
    doors = {
        "stage": lambda: prepare(log, writer_spec("again")),
        "publish": lambda: committer(log).publish([buffer]),
        "DELETE": lambda: delete(Transactions(log), None, asker("a")),
        "UPDATE": lambda: change_of(log, engine).carry_out(),
        "RESTORE": lambda: restore(Transactions(log), 1, newest(log), asker("a"), on_newer_commit=OnNewerCommit.UNDO),
    }
    with pytest.raises(UnsupportedFeatureError, match="uses the partition column month of type BINARY, which"):
        doors[operation]()
    assert (newest(log).version, engine.jobs) == (4, [])
