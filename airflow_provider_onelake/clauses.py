"""The clauses of a MERGE as a DAG author writes them, in SQL: what can be told of one without Spark.

DAG files import this module, so it imports nothing heavy.
"""

from __future__ import annotations

import re

import attrs

from airflow_provider_onelake.exceptions import InvalidWriteError

NOISE = re.compile(
    r"""--(?:\\\n|[^\r\n])*|/\*.*?\*/|[rR]?'(?:[^'\\]|\\.|'')*'|[rR]?"(?:[^"\\]|\\.|"")*"|`(?:[^`]|``)*`""", re.DOTALL
)
"""What is no SQL to look at: comments, texts, and names in backticks."""

MATCHED, NOT_MATCHED, NOT_MATCHED_BY_SOURCE = "MATCHED", "NOT MATCHED", "NOT MATCHED BY SOURCE"
UPDATE, DELETE, INSERT = "UPDATE", "DELETE", "INSERT"

_ACTION = re.compile(r"\bTHEN\s+(UPDATE\s+SET\b|DELETE\b|INSERT\b)", re.IGNORECASE)
_CASE = re.compile(
    r"\s*(?:WHEN\s+)?(NOT\s+MATCHED\s+BY\s+SOURCE|NOT\s+MATCHED(?:\s+BY\s+TARGET)?|MATCHED)\s+(AND\b|THEN\b)",
    re.IGNORECASE,
)
_WAYS = (
    "It is one of: MATCHED [AND condition] THEN UPDATE SET … or DELETE; NOT MATCHED [AND condition] THEN INSERT …; "
    "NOT MATCHED BY SOURCE [AND condition] THEN UPDATE SET … or DELETE."
)


@attrs.frozen
class Clause:
    """One clause of a MERGE.

    :param text: in SQL, without ``WHEN`` at its beginning.
    :param case: ``MATCHED``, ``NOT MATCHED`` or ``NOT MATCHED BY SOURCE``.
    :param action: ``UPDATE``, ``DELETE`` or ``INSERT``.
    :param condition: after ``AND``; ``None`` for every row of the case.
    """

    text: str
    case: str
    action: str
    condition: str | None

    @classmethod
    def parse(cls, text: str) -> Clause:
        """Read a clause.

        :raises InvalidWriteError: it is none.
        """
        if not isinstance(text, str):
            raise InvalidWriteError(f"when={text!r} is no clause of a MERGE. {_WAYS} Nothing was staged.")
        # Of the same length, so that places in it are places in the text.
        plain = NOISE.sub(lambda found: " " * len(found[0]), text)
        case, actions = _CASE.match(plain), list(_ACTION.finditer(plain))
        if case is None or len(actions) != 1:
            raise InvalidWriteError(f"when={text!r} is no clause of a MERGE. {_WAYS} Nothing was staged.")
        kind = " ".join(case[1].upper().split()).removesuffix(" BY TARGET")
        action = actions[0][1].upper().split()[0]
        if (kind == NOT_MATCHED) != (action == INSERT):
            raise InvalidWriteError(f"when={text!r}: {kind} has no {action}. {_WAYS} Nothing was staged.")
        condition = text[case.end() : actions[0].start()].strip() if case[2].upper() == "AND" else None
        return cls(re.sub(r"^\s*WHEN\s+", "", text, flags=re.IGNORECASE).strip(), kind, action, condition)


UPSERT = (Clause.parse("MATCHED THEN UPDATE SET *"), Clause.parse("NOT MATCHED THEN INSERT *"))
"""What a MERGE does without clauses of its own: it updates the rows that match, and inserts the others."""
