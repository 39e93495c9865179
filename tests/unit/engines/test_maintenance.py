from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_provider_onelake.engines.maintenance import OptimizeJob
from airflow_provider_onelake.exceptions import InvalidWriteError


def job(**fields: Any) -> OptimizeJob:
    return OptimizeJob(
        **{"table_uri": "/lake/t", "attempt": "a", "shadow_uri": "/lake/t/staged/c/a", "target_file_size": 1, **fields}
    )


def test_a_compaction_is_plain_json() -> None:
    whole = job(zorder_by=("a", "b"), session={"spark.sql.shuffle.partitions": "8"}, label="optimize")
    assert OptimizeJob(**json.loads(json.dumps(whole.as_dict()))).as_dict() == whole.as_dict()


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"target_file_size": 0}, "above 0"),
        ({"session": {"spark.databricks.delta.optimize.batchSize": "1g"}}, "batchSize"),
        ({"session": {"spark.sql.session.timeZone": "CET"}}, "timeZone"),
    ],
)
def test_what_a_compaction_cannot_do_is_refused(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidWriteError, match=said):
        job(**fields)
