"""Creating a table: version 0, put create-only, so that of many writers exactly one makes it."""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from airflow_provider_onelake import __version__
from airflow_provider_onelake.commit.mapping import MAX_COLUMN_ID, map_columns
from airflow_provider_onelake.commit.protocol import new_protocol
from airflow_provider_onelake.commit.stamps import stamp
from airflow_provider_onelake.exceptions import InvalidWriteError, ObjectExistsError
from airflow_provider_onelake.log.actions import dump_actions, version_path
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.log.features import check_supported
from airflow_provider_onelake.log.snapshot import Snapshot
from airflow_provider_onelake.storage.clock import milliseconds

_PARTITIONABLE = (
    "string",
    "byte",
    "short",
    "integer",
    "long",
    "boolean",
    "date",
    "timestamp",
    "timestamp_ntz",
    "float",
    "double",
)


def create_table(
    log: DeltaLog,
    schema_json: str,
    partition_by: Sequence[str] | Mapping[str, str] = (),
    properties: Mapping[str, str] | None = None,
    random: Random | None = None,
) -> Snapshot:
    """Create a table unless there is one, and return its newest snapshot.

    :param log: of the table.
    :param schema_json: the columns, as Spark writes a schema in JSON, generated ones included.
    :param partition_by: names of the partition columns, or the expressions that generate them by name.
    :param properties: of the table, such as ``delta.deletedFileRetentionDuration``.
    :param random: for ids.
    :returns: the newest snapshot, of a table that another made too.
    :raises InvalidWriteError: a partition column does not exist, is nested, or is all that there is.
    :raises UnsupportedFeatureError: a property switches a feature on that this version does not write to.
    """
    existing = log.snapshot()
    if existing is not None:
        return existing
    source = random or Random()  # noqa: S311 - ids, not secrets
    expressions = dict(partition_by) if isinstance(partition_by, Mapping) else {}
    fields = json.loads(with_generated(schema_json, expressions))["fields"]
    _check_partitioning(fields, list(partition_by), log.table)
    configuration = dict(properties or {})
    if configuration.get("delta.columnMapping.mode", "").lower() == "name":
        configuration[MAX_COLUMN_ID] = str(map_columns(fields, 0, source))
    metadata: dict[str, Any] = {
        "id": str(uuid.UUID(int=source.getrandbits(128), version=4)),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}, separators=(",", ":"), ensure_ascii=False),
        "partitionColumns": list(partition_by),
        "configuration": configuration,
        "createdTime": milliseconds(log.clock.now()),
    }
    protocol = new_protocol(fields, metadata["configuration"], log.table)
    check_supported(protocol, metadata, log.table)
    info: dict[str, Any] = {
        "timestamp": metadata["createdTime"],
        "operation": "CREATE TABLE",
        "operationParameters": {
            "isManaged": "false",
            "description": "",
            "partitionBy": json.dumps(list(partition_by)),
            "properties": json.dumps(metadata["configuration"]),
        },
        "isolationLevel": "Serializable",
        "isBlindAppend": True,
        "operationMetrics": {},
        "engineInfo": f"airflow-provider-onelake/{__version__}",
        "txnId": str(uuid.UUID(int=source.getrandbits(128), version=4)),
    }
    stamp(info, [], Snapshot(-1, protocol, metadata, {}), log.clock.now())
    # Where another writer was first, its table is the one to write.
    with contextlib.suppress(ObjectExistsError):
        log.store.create(
            version_path(0), dump_actions([{"commitInfo": info}, {"protocol": protocol}, {"metaData": metadata}])
        )
    created = log.snapshot()
    assert created is not None
    return created


def with_generated(schema_json: str, generated: Mapping[str, str]) -> str:
    """Write the expressions that generate columns into a schema, where Delta keeps them.

    :param schema_json: as Spark writes a schema in JSON.
    :param generated: SQL by column.
    :returns: the schema with them.
    """
    schema = json.loads(schema_json)
    for field in schema["fields"]:
        field["metadata"] = dict(field.get("metadata") or {})
        if field["name"] in generated:
            field["metadata"]["delta.generationExpression"] = generated[field["name"]]
    return json.dumps(schema)


def _check_partitioning(fields: list[dict[str, Any]], partition_by: list[str], table: str) -> None:
    types = {field["name"]: field["type"] for field in fields}
    for name in partition_by:
        if name not in types:
            raise InvalidWriteError(
                f"{table} cannot be partitioned by {name!r}: there is no such column among {', '.join(types)}. Nothing "
                "was created."
            )
        kind = types[name]
        if not isinstance(kind, str) or not (kind in _PARTITIONABLE or kind.startswith("decimal")):
            raise InvalidWriteError(f"{table} cannot be partitioned by {name!r}, which is {kind}. Nothing was created.")
    if len(set(partition_by)) != len(partition_by):
        raise InvalidWriteError(f"{table} cannot be partitioned by one column twice: {', '.join(partition_by)}.")
    if set(types) == set(partition_by):
        raise InvalidWriteError(f"{table} needs a column that is no partition column. Nothing was created.")
