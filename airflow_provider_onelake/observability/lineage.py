"""A task's lineage for OpenLineage: what the task read, which version of the table it made, and what its checks said.

A task keeps plain values. They are turned into OpenLineage's objects only when OpenLineage's provider asks for them. It
may ask in a process that it forked, where no store can be used any more. Without the extra ``openlineage``, it never
asks.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import attrs

from airflow_provider_onelake.choices import OnFailedCheck
from airflow_provider_onelake.sources import FileSource, Source, SqlSource
from airflow_provider_onelake.storage.onelake import one_host

if TYPE_CHECKING:
    from airflow_provider_onelake.buffers.buffer import Buffer
    from airflow_provider_onelake.buffers.verdict import CheckVerdict
    from airflow_provider_onelake.log.snapshot import Snapshot
    from airflow_provider_onelake.storage.addresses import TableAddress
    from airflow_provider_onelake.writes.publish import Publication

logger = logging.getLogger(__name__)

_ADDRESS = re.compile(r"^(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+):(?://(?P<authority>[^/]*))?(?P<path>.*)$", re.DOTALL)
_SAME_STORE = {"s3a": "s3", "s3n": "s3", "abfs": "abfss", "wasb": "wasbs"}
# A query has an equals sign; a question mark without one may belong to a glob.
_QUERY = re.compile(r"\?(?=[^/]*=)")
_WITH_CONTAINER = ("abfss", "wasbs")


@attrs.frozen(kw_only=True)
class Lineage:
    """What one task did to one table.

    :param table: the table's address.
    :param inputs: the addresses that the task read, as Spark spells them.
    :param read_version: the version of the table that the task read; ``None`` if it did not read the table.
    :param version: the version of the table that the task made; ``None`` if none of its rows are in the table yet.
    :param columns: the names and types of the columns at that version.
    :param rows: how many rows were added; ``None`` if that is not known, or if rows only moved to other files.
    :param bytes: the size in bytes of the files that were added.
    :param files: how many files were added.
    :param checks: what checks say of staged rows, each with what becomes of rows that fail it.
    """

    table: TableAddress
    inputs: tuple[str, ...] = ()
    read_version: int | None = None
    version: int | None = None
    columns: tuple[tuple[str, str], ...] = ()
    rows: int | None = None
    bytes: int | None = None
    files: int | None = None
    checks: tuple[tuple[OnFailedCheck, CheckVerdict], ...] = ()

    def with_snapshot(self, snapshot: Snapshot) -> Lineage:
        """Return this lineage with the table's columns.

        :param snapshot: the table's snapshot.
        """
        from airflow_provider_onelake.log.schema import columns

        found = columns(snapshot.metadata).values()
        # Name only the kind of a nested type, because the whole type may be very long.
        kinds = ((c.name, c.type if isinstance(c.type, str) else str(c.type.get("type"))) for c in found)
        return attrs.evolve(self, columns=tuple(kinds))

    def with_publications(self, publications: Iterable[Publication]) -> Lineage:
        """Return this lineage with what the task put into the table.

        :param publications: the task's publications; those that put nothing do not count.
        """
        put = [(p.version, p.entry) for p in publications if p.entry is not None]
        adds = [add for _, entry in put for add in entry.entry.added]
        rows = [entry.rows for _, entry in put]
        return attrs.evolve(
            self,
            version=max((version for version, _ in put if version is not None), default=None),
            rows=None if not put or any(count is None for count in rows) else sum(count or 0 for count in rows),
            bytes=sum(int(add["size"]) for add in adds) if put else None,
            files=len(adds) if put else None,
        )

    def with_checks(self, buffers: Iterable[Buffer]) -> Lineage:
        """Return this lineage with what checks say of staged rows.

        :param buffers: with the rows. Those whose checks were not evaluated, and those without checks, do not count.
        """
        told = [(buffer.spec.on_failed_check, buffer.verdict) for buffer in buffers if buffer.verdict is not None]
        return attrs.evolve(self, checks=tuple((asked, each) for asked, said in told for each in said.results))

    def facets(self) -> Any:
        """Return this lineage as OpenLineage's provider for Airflow takes it.

        :raises ImportError: the extra ``openlineage`` is not installed.
        """
        from airflow.providers.openlineage.extractors import OperatorLineage
        from openlineage.client.event_v2 import InputDataset, OutputDataset
        from openlineage.client.facet_v2 import dataset_version_dataset as versions
        from openlineage.client.facet_v2 import output_statistics_output_dataset as statistics
        from openlineage.client.facet_v2 import schema_dataset, storage_dataset

        namespace, name = dataset_of(self.table.spark_uri)
        facets: dict[str, Any] = {"storage": storage_dataset.StorageDatasetFacet("delta", "parquet")}
        if self.columns:
            fields = [schema_dataset.SchemaDatasetFacetFields(column, kind) for column, kind in self.columns]
            facets["schema"] = schema_dataset.SchemaDatasetFacet(fields=fields)
        made: dict[str, Any] = dict(facets)
        if self.checks:
            made["dataQualityAssertions"] = _assertions(self.checks)
        told: dict[str, Any] = {}
        if self.version is not None:
            made["version"] = versions.DatasetVersionDatasetFacet(str(self.version))
            told["outputStatistics"] = statistics.OutputStatisticsOutputDatasetFacet(
                rowCount=self.rows, size=self.bytes, fileCount=self.files
            )
        inputs = [InputDataset(*dataset) for dataset in dict.fromkeys(map(dataset_of, self.inputs))]
        if self.read_version is not None:
            facets["version"] = versions.DatasetVersionDatasetFacet(str(self.read_version))
            inputs.append(InputDataset(namespace, name, facets=facets))
        return OperatorLineage(inputs=inputs, outputs=[OutputDataset(namespace, name, facets=made, outputFacets=told)])


def is_wanted() -> bool:
    """Say whether OpenLineage's provider is installed and not disabled."""
    try:
        from airflow.providers.openlineage.conf import is_disabled
    except ImportError:
        return False
    return not is_disabled()


def lineage_of(make: Callable[[], Lineage]) -> Lineage | None:
    """Return a task's lineage if OpenLineage wants it. An error never fails the task: its rows may be in the table.

    :param make: makes the lineage.
    """
    if not is_wanted():
        return None
    try:
        return make()
    except Exception as error:
        logger.warning("There is no lineage of this task: %s", error)
        return None


def facets_of(lineage: Lineage | None) -> Any:
    """Return what OpenLineage's provider asks an operator for.

    :param lineage: the task's lineage; ``None`` if there is none.
    """
    return lineage.facets() if lineage is not None else None


def inputs_of(source: Source, steps: Mapping[str, str]) -> tuple[str, ...]:
    """Return the addresses that a writer reads, as far as its source and its steps spell them out.

    Tables of a catalog, and what a Python function reads, are not known here.

    :param source: the rendered source.
    :param steps: the rendered steps.
    """
    paths = source.paths if isinstance(source, FileSource) else []
    queries = [*([source.query] if isinstance(source, SqlSource) else []), *steps.values()]
    return tuple(dict.fromkeys([*paths, *(path for query in queries for path in _paths_in(query))]))


def dataset_of(address: str) -> tuple[str, str]:
    """Return an address's namespace and name, by OpenLineage's naming: https://openlineage.io/docs/spec/naming.

    :param address: a path, an address or a glob. A user, a password and a signature in it are left out.
    """
    found = _ADDRESS.match(address)
    if found is None or found["scheme"].lower() == "file":
        return "file", address if found is None else found["path"]
    scheme = found["scheme"].lower()
    scheme, authority, path = _SAME_STORE.get(scheme, scheme), found["authority"] or "", found["path"]
    # The part before the @ of abfss is a container, unless it has a colon: then it is a user and a password.
    if scheme not in _WITH_CONTAINER or ":" in authority.rpartition("@")[0]:
        authority = authority.rpartition("@")[2]
    if scheme in _WITH_CONTAINER:
        container, at, host = authority.rpartition("@")
        authority = f"{container}{at}{one_host(host)}"
    path = path.partition("?")[0] if scheme in ("http", "https") else _QUERY.split(path, maxsplit=1)[0]
    return f"{scheme}://{authority}", path.strip("/") or "/"


def _assertions(checks: Iterable[tuple[OnFailedCheck, CheckVerdict]]) -> Any:
    """Return what checks say as OpenLineage's facet. A check of several writers is met if the rows of each meet it."""
    from openlineage.client.facet_v2 import data_quality_assertions_dataset as quality

    by_check: dict[tuple[str, str, str], list[CheckVerdict]] = {}
    for asked, result in checks:
        # An error keeps the rows that fail out of the table. After a warning, they are in it.
        severity = "warn" if asked is OnFailedCheck.WARN else "error"
        by_check.setdefault((result.name, result.sql, severity), []).append(result)
    assertions = []
    for (name, sql, severity), results in by_check.items():
        counts_rows = results[0].each_row
        rows = sum(result.failed or 0 for result in results)
        found = "; ".join(result.found for result in results if result.found is not None)
        # Only of a comparison with the last loads is it told what was compared.
        kind = "row_count" if found else "custom_sql"
        facet: dict[str, Any] = {
            "assertion": kind,
            "success": all(result.passed for result in results),
            "severity": severity,
            "name": name,
            # As dbt tells it: how many rows fail, where none should.
            "expected": "0" if counts_rows else None,
            "actual": str(rows) if counts_rows else found or None,
            "content": sql,
            "contentType": "sql" if kind == "custom_sql" else "expression",
        }
        # Assertions have names and what follows from openlineage-python 1.47 on.
        known = attrs.fields_dict(quality.Assertion)
        assertions.append(quality.Assertion(**{field: value for field, value in facet.items() if field in known}))
    return quality.DataQualityAssertionsDatasetFacet(assertions=assertions)


def _paths_in(query: str) -> list[str]:
    """Return the paths that a query reads in the form ``json.`/data/x.json```."""
    import sqlglot
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    try:
        tree = sqlglot.parse_one(query, dialect="spark")
    except SqlglotError as error:
        logger.debug("What the query reads is not known: %s", error)
        return []
    return [table.name for table in tree.find_all(exp.Table) if table.db and "/" in table.name]
