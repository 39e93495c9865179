"""Which files a DELETE or UPDATE concerns: those that may have a row for which its predicate is true.

Any other file is left as it is by the statement, so Spark need not read it, also if another writer has added it while
the statement was at work (protocol: statements map rows). The predicate is read as the condition of a read is. One that
says more than such a condition can rules no file out.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from airflow_provider_onelake.exceptions import InvalidReadError
from airflow_provider_onelake.rows.choice import FileFilter
from airflow_provider_onelake.rows.layout import Layout
from airflow_provider_onelake.rows.where import Where

if TYPE_CHECKING:
    from airflow_provider_onelake.log.actions import Add
    from airflow_provider_onelake.log.snapshot import Snapshot

# What these mean depends on settings of the session that runs the statement: "x" may be a column
# (spark.sql.ansi.doubleQuotedIdentifiers), a backslash may be itself (spark.sql.parser.escapedStringLiterals), a
# quote that is doubled may be none (spark.sql.legacy.consecutiveStringLiterals.enabled), and a number with an exponent
# may be a decimal (spark.sql.legacy.exponentLiteralAsDecimal.enabled).
_BY_SETTINGS = re.compile(r"""["\\]|''.|[0-9.][eE][-+]?[0-9]""", re.DOTALL)


def concerned(where: str, snapshot: Snapshot) -> Callable[[Add], bool] | None:
    """Return what says whether a file may have a row for which a predicate is true; ``None`` where nobody knows.

    :param where: the predicate, in Spark SQL.
    :param snapshot: of the table.
    """
    if _BY_SETTINGS.search(where):
        return None
    layout = Layout.of(snapshot.metadata)
    try:
        condition = Where.parse(where, layout.compared_as)
    except InvalidReadError:
        return None
    return FileFilter(layout, condition).may_hold
