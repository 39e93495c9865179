"""Creating a table: version 0 is put create-only, so exactly one of many writers makes it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from random import Random
from typing import Any

import attrs

from airflow_provider_onelake.commit.entry import MAX_COLUMN_ID, commit_info, map_columns, stamp
from airflow_provider_onelake.commit.transaction import (
    Proposal,
    Put,
    Tally,
    Transactions,
    View,
    random_id,
)
from airflow_provider_onelake.exceptions import CommitContentionError, InvalidWriteError
from airflow_provider_onelake.log.actions import Metadata, Protocol, encode
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.log.features import check_supported, new_protocol
from airflow_provider_onelake.log.schema import GENERATION
from airflow_provider_onelake.log.snapshot import NO_TABLE, Snapshot
from airflow_provider_onelake.log.types import is_primitive, struct_of
from airflow_provider_onelake.storage.clock import milliseconds


def create_table(
    log: DeltaLog,
    schema_json: str,
    partition_by: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
    random: Random | None = None,
) -> Snapshot:
    """Create a table unless there is one, and return its newest snapshot.

    :param schema_json: the columns, as Spark writes a schema in JSON; see :func:`with_generated` for generated ones.
    :param partition_by: names of the partition columns.
    :param properties: of the table, such as ``delta.deletedFileRetentionDuration``.
    :param random: for ids.
    :returns: the newest snapshot, also where another writer made the table.
    :raises InvalidWriteError: a partition column does not exist or is nested, or there is no other column.
    :raises UnsupportedFeatureError: a property switches a feature on that this version does not write to.
    :raises StoreUnavailableError: the store did not answer until the budget was used up; calling again settles it.
    :raises CommitContentionError: others keep creating and dropping the table; calling again carries on.
    """
    transactions = Transactions(log, random or Random())  # noqa: S311 - ids, not secrets
    new = _NewTable(log, transactions.random, schema_json, partition_by, properties or {})
    return transactions.commit(new)


@attrs.define(eq=False)
class _NewTable(Proposal[Snapshot]):
    """One call of :func:`create_table`: put version 0, or take the table of another writer that was first."""

    name = "a new table"
    creates_table = True

    _log: DeltaLog
    _random: Random
    _schema_json: str
    _partition_by: Sequence[str]
    _properties: Mapping[str, str]

    def decide(self, view: View) -> Put | Snapshot:
        """Put version 0 where there is no table."""
        if view.snapshot is not NO_TABLE:
            return view.snapshot
        now = self._log.clock.now()
        protocol, metadata = self._definition(now)
        parameters = {
            "isManaged": "false",
            "description": "",
            "partitionBy": json.dumps(metadata["partitionColumns"]),
            "properties": json.dumps(metadata["configuration"]),
        }
        info = commit_info("CREATE TABLE", parameters, view.snapshot, view.txn_id, now, blind=True)
        stamp(info, [], Snapshot(-1, protocol, metadata, {}), now)
        return Put([{"commitInfo": info}, {"protocol": protocol}, {"metaData": metadata}])

    def _definition(self, now: datetime) -> tuple[Protocol, Metadata]:
        """Return the new table's ``protocol`` and ``metaData``, or refuse it."""
        fields = json.loads(self._schema_json)["fields"]
        _check_partitioning(fields, self._partition_by, self._log.table)
        configuration = dict(self._properties)
        if configuration.get("delta.columnMapping.mode", "").lower() == "name":
            configuration[MAX_COLUMN_ID] = str(map_columns(fields, 0, self._random))
        metadata: Metadata = {
            "id": random_id(self._random),
            "format": {"provider": "parquet", "options": {}},
            "schemaString": encode(struct_of(fields)),
            "partitionColumns": list(self._partition_by),
            "configuration": configuration,
            "createdTime": milliseconds(now),
        }
        protocol = new_protocol(fields, metadata, self._log.table)
        check_supported(protocol, metadata, self._log.table)
        return protocol, metadata

    def committed(self, version: int, tally: Tally) -> None:
        """Look once more: the table is what stands in the log by then."""

    def give_up(self, tally: Tally) -> Snapshot:
        """Return the table that another writer has created, or leave the creation to a retry.

        :raises CommitContentionError: another's version 0 was there for the last put, and is gone again.
        """
        created = self._log.snapshot_or_none()
        if created is not None:
            return created
        raise CommitContentionError(
            f"{self._log.table} was not created: {tally.lost_races} of {tally.attempts} puts of its version 0 met "
            "another's, and now there is no table. Somebody keeps dropping it; a retry carries on."
        )


def with_generated(schema_json: str, generated: Mapping[str, str]) -> str:
    """Write the expressions that generate columns into a schema, where Delta keeps them.

    :param schema_json: as Spark writes a schema in JSON.
    :param generated: SQL by column.
    """
    schema = json.loads(schema_json)
    for field in schema["fields"]:
        field["metadata"] = dict(field.get("metadata") or {})
        if field["name"] in generated:
            field["metadata"][GENERATION] = generated[field["name"]]
    return json.dumps(schema)


def _check_partitioning(fields: list[dict[str, Any]], partition_by: Sequence[str], table: str) -> None:
    types = {field["name"]: field["type"] for field in fields}
    for name in partition_by:
        if name not in types:
            raise InvalidWriteError(
                f"{table} cannot be partitioned by {name!r}: there is no such column among {', '.join(types)}. Nothing "
                "was created."
            )
        kind = types[name]
        if not is_primitive(kind) or kind == "binary":
            raise InvalidWriteError(f"{table} cannot be partitioned by {name!r}, which is {kind}. Nothing was created.")
    if len(set(partition_by)) != len(partition_by):
        raise InvalidWriteError(f"{table} cannot be partitioned by one column twice: {', '.join(partition_by)}.")
    if set(types) == set(partition_by):
        raise InvalidWriteError(f"{table} needs a column that is no partition column. Nothing was created.")
