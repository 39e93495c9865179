"""The clauses of a MERGE: what is told of them without Spark, and what is refused."""

from __future__ import annotations

import pytest

from airflow_provider_onelake.clauses import Clause
from airflow_provider_onelake.exceptions import InvalidWriteError


@pytest.mark.parametrize(
    ("text", "case", "action", "condition"),
    [
        ("MATCHED THEN UPDATE SET *", "MATCHED", "UPDATE", None),
        ("when matched and source.op = 'THEN DELETE' then delete", "MATCHED", "DELETE", "source.op = 'THEN DELETE'"),
        ("NOT MATCHED BY TARGET\nAND x -- a comment\nTHEN INSERT *", "NOT MATCHED", "INSERT", "x -- a comment"),
        ("MATCHED -- a comment\rAND x\nTHEN DELETE", "MATCHED", "DELETE", "x"),
        ("MATCHED -- a comment\\\nAND x\nTHEN DELETE", "MATCHED", "DELETE", None),
        ("NOT MATCHED BY SOURCE AND CASE WHEN a THEN b END THEN DELETE", "NOT MATCHED BY SOURCE", "DELETE", "CASE WHEN a THEN b END"),
    ],
)  # fmt: skip
def test_a_clause_is_read(text: str, case: str, action: str, condition: str | None) -> None:
    found = Clause.parse(text)
    assert (found.case, found.action, found.condition) == (case, action, condition)
    assert not found.text.lower().startswith("when")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "UPDATE SET *",
        "MATCHED THEN INSERT *",
        "NOT MATCHED THEN DELETE",
        "NOT MATCHED BY SOURCE THEN INSERT *",
        "MATCHED UPDATE SET *",
        "MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT *",
        7,
    ],
)
def test_what_is_no_clause_is_refused(text: str) -> None:
    with pytest.raises(InvalidWriteError, match="NOT MATCHED"):
        Clause.parse(text)
