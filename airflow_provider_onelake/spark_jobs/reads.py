"""Whether a query reads the table that it is written to (protocol, rule 19).

No single source of truth knows. The input files miss what stands in a subquery, and an empty table; the physical plan
misses what the optimiser answers from statistics; the query's text misses tables of the catalog. Any of them saying
yes is a yes: a wrong yes costs a refusal, a wrong no could lose rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from airflow_provider_onelake.spark_jobs.columns import quoted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A path goes on with these; "/t/trips" is not in "/t/trips_2", nor in "/old/t/trips".
_PART_OF_A_PATH = r"[\w.%=+~@-]"
_RELATION = re.compile(r"(?:Relation|SubqueryAlias|RelationV2\[[^\]]*\]) (?:spark_catalog\.)?([\w`.]+\.[\w`]+)")


def reads_table(spark: SparkSession, view: str, table_uri: str, texts: Iterable[str], files: Iterable[str]) -> bool:
    """Tell whether a query reads anything in a table's directory.

    A symbolic link, or another spelling of the same account, is not seen through.

    :param spark: session in which ``view`` is known.
    :param view: the view whose rows are to be written.
    :param table_uri: of the table.
    :param texts: what the query was made from: SQL and source paths.
    :param files: the query's input files.
    """
    inside = _pattern(table_uri)
    if any(inside.search(_plain(text)) for text in (*files, *texts)):
        return True
    plan: str = spark.sql(f"EXPLAIN EXTENDED SELECT * FROM {quoted(view)}").collect()[0][0]  # noqa: S608 - quoted
    if inside.search(_plain(plan)):
        return True
    return any(inside.search(_plain(place)) for place in _catalog_locations(spark, plan))


def _catalog_locations(spark: SparkSession, plan: str) -> list[str]:
    """Return where the catalog's tables in a plan lie."""
    places = []
    for name in sorted(set(_RELATION.findall(plan))):
        try:
            described: list[Any] = spark.sql(f"DESCRIBE TABLE EXTENDED {name}").collect()
        except Exception:  # noqa: S112 - a path (delta.`/x`) or an alias, not a table of the catalog
            continue
        places += [row["data_type"] for row in described if row["col_name"] == "Location"]
    return places


def _pattern(uri: str) -> re.Pattern[str]:
    path = re.escape(_plain(uri).rstrip("/"))
    return re.compile(rf"(?<!{_PART_OF_A_PATH}){path}(?!{_PART_OF_A_PATH})")


def _plain(text: str) -> str:
    """Return text with every local path spelled alike: no ``file:``, no doubled slashes, nothing percent-encoded."""
    return re.sub(r"(?<!:)/{2,}", "/", re.sub(r"\bfile:/+", "/", unquote(text)))
