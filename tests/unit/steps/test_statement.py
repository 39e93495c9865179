"""What a task says of a DELETE or TRUNCATE."""

from __future__ import annotations

import pytest

from airflow_provider_onelake.statements.delete import Deleted
from airflow_provider_onelake.statements.statement import StatementStatus
from airflow_provider_onelake.steps.statement import describe_deletion


@pytest.mark.parametrize(
    ("rows", "files", "said"),
    [
        (1, 1, "1 row in 1 file"),
        (2, 3, "2 rows in 3 files"),
        (None, None, "an unknown number of rows in an unknown number of files"),
    ],
)
def test_one_is_not_said_as_several(rows: int | None, files: int | None, said: str) -> None:
    done = Deleted(status=StatementStatus.DONE, version=4, rows_deleted=rows, files_removed=files)
    assert describe_deletion(done)["summary"] == f"version 4 is without {said}"
