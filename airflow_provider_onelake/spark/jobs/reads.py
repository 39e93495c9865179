"""Whether a query reads the table that it is written to (protocol: reads its target).

No single source of truth knows. The input files miss what stands in a subquery, and an empty table; the physical plan
misses what the optimiser answers from statistics; the query's text misses tables of the catalog. Any of them saying
yes is a yes: a wrong yes costs a rerun, a wrong no could lose rows.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from airflow_provider_onelake.spark.jobs.application import is_connect
from airflow_provider_onelake.spark.jobs.columns import quoted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# So Spark's plan names what is read from the cache, and cuts off paths.
_CACHED = "InMemoryRelation"
_CUT = re.compile(r"Location: \w+\(\d+ paths\)\[[^\]\n]*\.\.\.")
# So it names what has no path by which Spark would find it in the cache: tables of Hive's own formats, and of catalogs
# such as Iceberg's.
_WITHOUT_A_PATH = re.compile(r"\b(?:Scan hive|BatchScan)\b")

# The characters of a path. A table's path must not match inside a longer one: "/t/trips" is not "/t/trips_2".
_PART_OF_A_PATH = r"[\w.%=+~@-]"
_RELATION = re.compile(r"(?:Relation|SubqueryAlias|RelationV2\[[^\]]*\]) (?:spark_catalog\.)?([\w`.]+\.[\w`]+)")
# Local paths in SQL and in plans: quoted, where they may hold spaces, or up to whatever ends a word.
_LOCAL_PATH = re.compile(r"`(/[^`]+)`|'(/[^']+)'|\"(/[^\"]+)\"|(?<![\w.%=+~@:/-])(/[^\s`'\"\[\](),;]+)")

# Paths in stores, in SQL and in plans.
_STORE = r"\b[a-z][a-z0-9+.-]+://"
_STORE_PATH = re.compile(rf"(?<=[`'\"]){_STORE}[^`'\"]+|{_STORE}[^\s`'\"\[\](),;]+", re.IGNORECASE)
_S3 = re.compile(r"\bs3[an]?://", re.IGNORECASE)
_AZURE = re.compile(r"\b(?:abfss?|wasbs?)://([^/@`'\"]*)@([A-Za-z0-9.-]+)(?::443)?", re.IGNORECASE)
_ONELAKE_HOST = re.compile(
    r"^(?:(?:[a-z0-9]+-)?onelake\.(?:dfs|blob)|[0-9a-f]{32}\.z[0-9a-f]{2}\.(?:dfs|blob|onelake))\.(?=fabric\.)"
)
_ONELAKE_ITEM = re.compile(r"(?<=@onelake\.dfs\.fabric\.microsoft\.com/)[^/`'\"]*")


def reads_table(
    spark: SparkSession,
    plan: str,
    table_uri: str,
    texts: Iterable[str],
    files: Iterable[str],
    asked: Iterable[str] = (),
    other_uri: str | None = None,
    declared_uri: str | None = None,
) -> bool:
    """Tell whether a query reads anything in a table's directory.

    Of a local table every name is seen through, symbolic links and mounts too, as long as the directory can be seen
    from where this runs. Of one in a store every scheme is, and every host of its account; a mount of it is not, nor
    is a OneLake table by its names where only its GUIDs are given, or the other way round.

    :param spark: session in which the query is known.
    :param plan: of the query, see :func:`plan_of`.
    :param table_uri: of the table.
    :param texts: what the query was made from: SQL and source paths.
    :param files: the query's input files.
    :param asked: what was read before to make the query: texts and plans. Default: nothing.
    :param other_uri: of the same table, where it has another. Default: none is known.
    :param declared_uri: of a table inside the table's directory that may be read besides. Default: there is none.
    """
    table = _ReadDirectory(table_uri, other_uri, declared_uri)
    directories = {file.rpartition("/")[0] for file in files}
    if any(table.named_in(text) for text in (*texts, *directories)):
        return True
    return any(
        table.named_in(text) or any(table.named_in(place) for place in _catalog_locations(spark, text))
        for text in (plan, *asked)
    )


def forget_cached(
    spark: SparkSession, plan: str, table_uri: str, texts: Iterable[str], other_uri: str | None = None
) -> None:
    """Have a query read a table as it is now, not as some session cached it.

    All sessions of a server share its cache, and a query that reads a table which any of them has cached gets the rows
    of then: perhaps of a version before the one that the writer's buffer was opened on.

    :param spark: session in which the query is known.
    :param plan: of the query, see :func:`plan_of`.
    :param table_uri: of the table; what was cached by another name of it is forgotten too.
    :param texts: what the query was made from: SQL and source paths.
    :param other_uri: of the same table, where it has another. Default: none is known.
    """
    table = _ReadDirectory(table_uri, other_uri)
    names = [place for place in _catalog_locations(spark, plan) if table.named_in(place)]
    names += [name for text in (plan, *texts) for name in table.names_in(text)]
    spark.catalog.refreshByPath(table_uri)
    for place in dict.fromkeys(names):
        # Ignore a spelling that this Spark cannot read, such as one in a comment: no table is cached under it.
        with suppress(Exception):
            spark.catalog.refreshByPath(place)


def uncached_plan(spark: SparkSession, view: str, plan: str, texts: Iterable[str], *, may_cache: bool) -> str:
    """Have a query read its sources as they are now, not as some session cached them, and return its plan.

    All sessions of a server share its cache, and what is cached stays there when its session has ended. Spark compares
    plans, and a plan names directories but not the files in them. So a query that reads what was cached misses the rows
    that came since, and has those that are gone. Its plan does not say for certain which files it would read, either:
    of a plan that another session has cached, Spark shows the beginning.

    :param spark: session in which ``view`` is known.
    :param view: the query's name.
    :param plan: of the query, see :func:`plan_of`. Where nothing that is cached is in it, it is returned.
    :param texts: what the query was made from: SQL and source paths.
    :param may_cache: whether the query's author may have cached something for it on purpose. That stays cached, and is
        made anew from the files of now, where it is of files. Else the server forgets all that it has cached, if the
        query would read any.
    :returns: as :func:`plan_of`.
    """
    if _CACHED not in plan:
        return plan
    if may_cache:
        places = [place for text in (plan, *texts) for place in _places(text)] + _catalog_locations(spark, plan)
        for place in dict.fromkeys(places):
            # Ignore what is no path, such as a comment in SQL: nothing is cached under it.
            with suppress(Exception):
                spark.catalog.refreshByPath(place)
        # What is made anew is planned in this session, which shows paths to their end.
        plan = plan_of(spark, view)
        if _CACHED not in plan or not (_CUT.search(plan) or _WITHOUT_A_PATH.search(plan)):
            return plan
    spark.catalog.clearCache()
    return plan_of(spark, view)


def plan_of(spark: SparkSession, view: str) -> str:
    """Return what Spark plans to do to read a view, as text: the plans as parsed, analyzed, optimized and physical.

    :param spark: session in which ``view`` is known.
    :param view: its name.
    """
    query = f"SELECT * FROM {quoted(view)}"  # noqa: S608 - quoted
    if is_connect(spark):
        from pyspark.sql.connect.proto import SQL, Plan, Relation

        # This is one request to analyse the query. EXPLAIN is a command: Spark runs it, then a query for its result.
        return str(spark.client.explain_string(Plan(root=Relation(sql=SQL(query=query))), "extended"))
    return str(spark.sql(f"EXPLAIN EXTENDED {query}").collect()[0][0])


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


class _ReadDirectory:
    """A table's directory, known by its names and, on this machine, by its identity on the disk.

    :param uri: of the table.
    :param other: of the same table; ``None`` where it has no other.
    :param declared: of a directory inside it that does not count; ``None`` where there is none.
    """

    def __init__(self, uri: str, other: str | None = None, declared: str | None = None) -> None:
        path = _plain(uri).rstrip("/")
        self._paths = {path, *([_plain(other).rstrip("/")] if other else [])}
        self._name = _whole_path(self._paths)
        self._declared = _whole_path([_plain(declared).rstrip("/")]) if declared else None
        self._seen: dict[Path, tuple[int, int] | None] = {}
        self._identity = self._look_at(Path(path)) if path.startswith("/") else None

    def named_in(self, text: str) -> bool:
        """Say whether a text names the directory, or something inside it.

        :param text: SQL, a plan or a path.
        """
        if self._declared is not None:
            text = self._declared.sub("", _plain(text))
        if self._name.search(_plain(text)):
            return True
        return self._identity is not None and any(self._is_inside(path) for path in _local_paths(text))

    def names_in(self, text: str) -> Iterator[str]:
        """Yield the paths in a text that lead to this very directory, as they are spelled.

        :param text: SQL, a plan or a path.
        """
        for uri in _STORE_PATH.findall(text):
            places = accumulate(uri.rstrip("/").split("/"), "{}/{}".format)
            yield from (place for place in places if _plain(place) in self._paths)
        if self._identity is not None:
            for path in map(Path, _local_paths(text)):
                yield from (str(place) for place in (path, *path.parents) if self._look_at(place) == self._identity)

    def _is_inside(self, path: str) -> bool:
        real = Path(os.path.realpath(path))
        return any(self._look_at(place) == self._identity for place in (real, *real.parents))

    def _look_at(self, path: Path) -> tuple[int, int] | None:
        """Return what is the same for every name of a directory; ``None`` where there is nothing to be seen."""
        if path not in self._seen:
            try:
                info = path.stat()
                self._seen[path] = (info.st_dev, info.st_ino)
            except (OSError, ValueError):
                self._seen[path] = None
        return self._seen[path]


def _whole_path(paths: Iterable[str]) -> re.Pattern[str]:
    """Return a pattern of some paths, which does not match inside longer ones."""
    return re.compile(rf"(?<!{_PART_OF_A_PATH})(?:{'|'.join(map(re.escape, paths))})(?!{_PART_OF_A_PATH})")


def _places(text: str) -> Iterator[str]:
    """Yield the paths in a text, on this machine and in stores; of one that is cut off, a directory above it."""
    stored = (spelled for uri in _STORE_PATH.findall(text) for spelled in dict.fromkeys((uri, unquote(uri))))
    for place in (*_local_paths(text), *stored):
        yield place.rpartition("/")[0] or "/" if place.endswith("...") else place


def _local_paths(text: str) -> Iterator[str]:
    # Plans percent-encode a space, SQL does not, and a path may contain a real "%20". So look at both readings.
    for spelled in dict.fromkeys((_slashes(text), _plain(text))):
        for match in _LOCAL_PATH.finditer(spelled):
            path = next(group for group in match.groups() if group)
            yield from dict.fromkeys((path, unquote(path)))
        if spelled.startswith("/"):
            yield spelled


def _plain(text: str) -> str:
    """Return text with every path spelled alike.

    There is no ``file:``, no doubled slash, nothing percent-encoded, and a store has one scheme and one host.
    """
    alike = _AZURE.sub(_azure, _S3.sub("s3a://", _slashes(unquote(text))))
    return _ONELAKE_ITEM.sub(lambda match: match[0].lower(), alike)


def _azure(match: re.Match[str]) -> str:
    # OneLake has a host for each region and private link, and an account has another host for blobs. All lead to the
    # same data, and upper and lower case do not matter.
    host = _ONELAKE_HOST.sub("onelake.dfs.", match[2].lower()).replace(".blob.", ".dfs.", 1)
    return f"abfss://{match[1].lower()}@{host}"


def _slashes(text: str) -> str:
    return re.sub(r"(?<!:)/{2,}", "/", re.sub(r"\bfile:/+", "/", text))
