"""What a table's definition becomes: creating a table, and adding columns to one.

Version 0 is put create-only, so exactly one of many writers makes the table.

Columns are added by a commit of its own, before the rows that bring them are staged (protocol: compatible definition).
If two buffers added the same column, each would give it another physical name, and one of them would read as NULL. So
the column is added to the table before any writer stages it, and every twin copies its physical name.
"""

from __future__ import annotations

import copy
import json
import logging
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from random import Random
from typing import Any

import attrs

from airflow_provider_onelake.commit.entry import Entry
from airflow_provider_onelake.commit.loop import Proposal, Put, Tally, Transactions, View, random_id
from airflow_provider_onelake.exceptions import (
    InvalidWriteError,
    SchemaMismatchError,
    TablePropertyError,
)
from airflow_provider_onelake.log.actions import Action, Metadata, Protocol, encode
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.log.features import check_supported, new_protocol
from airflow_provider_onelake.log.paths import unknown_in
from airflow_provider_onelake.log.properties import (
    CHANGE_FEED,
    MAPPING,
    OF_CHANGE_FEED,
    STATISTICS_COLUMNS,
    of_new_table,
)
from airflow_provider_onelake.log.schema import COLLATIONS, CONSTRAINT, GENERATION, MAPPING_ID, PHYSICAL_NAME
from airflow_provider_onelake.log.snapshot import NO_TABLE, Snapshot
from airflow_provider_onelake.log.types import (
    JsonType,
    fields_within,
    is_primitive,
    name_of,
    sql_name,
    struct_of,
    types_within,
)
from airflow_provider_onelake.storage.clock import milliseconds, whole_number

logger = logging.getLogger(__name__)

Field = dict[str, Any]

# Raises ValueError unless rows of one schema can be appended to a table of another; also takes its partition columns.
Fit = Callable[[dict[str, Any], dict[str, Any], Sequence[str]], object]

_MAX_COLUMN_ID = "delta.columnMapping.maxColumnId"

# The feature that a table's protocol must name before the table may have a column of the type.
_NEEDED = {"timestamp_ntz": "timestampNtz"}
# Parquet refuses these characters in names. With column mapping, columns have other names in files.
_NOT_IN_NAMES = " ,;{}()\n\t="

_ICEBERG = re.compile(r"delta\.enableIcebergCompatV\d+", re.IGNORECASE)


def create_table(
    log: DeltaLog,
    schema_json: str,
    partition_by: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
    random: Random | None = None,
    told: str | None = None,
) -> Snapshot:
    """Create a table unless there is one, and return its newest snapshot.

    :param schema_json: the columns, as Spark writes a schema in JSON; see :func:`with_generated` for generated ones.
    :param partition_by: names of the partition columns.
    :param properties: of the table, such as ``delta.deletedFileRetentionDuration``.
    :param random: for ids.
    :param told: what people read of the commit in the table's history. Default: nothing.
    :returns: the newest snapshot, also where another writer made the table.
    :raises InvalidWriteError: a column is of a type that is not written here, a partition column does not exist or is
        nested, there is no other column, or a CHECK or the columns with statistics name a column that does not exist.
    :raises TablePropertyError: no table must be created with a property, or not with its value.
    :raises UnsupportedFeatureError: a property switches a feature on that this version does not write to.
    :raises StoreUnavailableError: the store did not answer until the budget was used up; calling again settles it.
    :raises CommitContentionError: others keep creating and dropping the table; calling again carries on.
    """
    transactions = Transactions(log, random or Random())  # noqa: S311 - ids, not secrets
    new = _TableCreation(log, transactions.random, schema_json, partition_by, properties or {}, told)
    return transactions.commit(new)


@attrs.define(eq=False)
class _TableCreation(Proposal[Snapshot]):
    """One call of :func:`create_table`: put version 0, or take the table of another writer that was first."""

    name = "a new table"
    creates_table = True

    _log: DeltaLog
    _random: Random
    _schema_json: str
    _partition_by: Sequence[str]
    _properties: Mapping[str, str]
    _message: str | None = None

    def decide(self, view: View) -> Put | Snapshot:
        """Put version 0 where there is no table."""
        if view.snapshot is not NO_TABLE:
            return view.snapshot
        given = (self._schema_json, self._partition_by, self._properties, self._random)
        protocol, metadata = define(self._log, *given)
        metadata["createdTime"] = milliseconds(self._log.clock.now())
        parameters = {
            "isManaged": "false",
            "description": "",
            "partitionBy": json.dumps(metadata["partitionColumns"]),
            "properties": json.dumps(metadata["configuration"]),
        }
        definition: list[Action] = [{"protocol": protocol}, {"metaData": metadata}]
        entry = Entry(
            operation="CREATE TABLE", parameters=parameters, message=self._message, blind=True, definition=definition
        )
        return Put(entry, Snapshot(-1, protocol, metadata, {}))

    def committed(self, version: int, tally: Tally) -> None:
        """Look once more: the table is what stands in the log by then."""

    def give_up(self, tally: Tally) -> Snapshot | None:
        """Return the table that another writer has created; ``None`` where somebody has dropped it again."""
        return self._log.snapshot_or_none()


def define(
    log: DeltaLog, schema_json: str, partition_by: Sequence[str], properties: Mapping[str, str], random: Random
) -> tuple[Protocol, Metadata]:
    """Return a new table's ``protocol`` and ``metaData``, or refuse it as :func:`create_table` does."""
    fields = json.loads(schema_json)["fields"]
    _check_partitioning(fields, partition_by, log.table)
    _check_types(fields, log.table)
    configuration = of_new_table(properties)
    _check_named(fields, configuration)
    if configuration.get(MAPPING, "").lower() == "name":
        # Equal columns have equal names in the files of all writers, whichever of them makes the table.
        configuration[_MAX_COLUMN_ID] = str(_map_columns(fields, 0))
    metadata: Metadata = {
        "id": random_id(random),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": encode(struct_of(fields)),
        "partitionColumns": list(partition_by),
        "configuration": configuration,
    }
    protocol = new_protocol(fields, metadata, log.table)
    check_supported(protocol, metadata, log.table, iceberg_may_be_stale=log.iceberg_may_be_stale)
    return protocol, metadata


def with_generated(schema_json: str, generated: Mapping[str, str]) -> str:
    """Write the expressions that generate columns into a schema, where Delta keeps them.

    :param schema_json: as Spark writes a schema in JSON.
    :param generated: SQL by column; names are compared as Spark does, whatever their case.
    :raises InvalidWriteError: there is no such column, or an expression names one that does not exist. Spark would look
        at neither before there are rows, and every write of them would fail then.
    """
    schema = json.loads(schema_json)
    left = {name.lower(): (name, expression) for name, expression in generated.items()}
    for field in schema["fields"]:
        field["metadata"] = dict(field.get("metadata") or {})
        if field["name"].lower() in left:
            name, expression = left.pop(field["name"].lower())
            _check_columns(f"the expression {expression!r} that generates column {name!r}", expression, schema)
            field["metadata"][GENERATION] = expression
    if left:
        names = ", ".join(repr(name) for name, _ in left.values())
        raise InvalidWriteError(
            f"The table cannot generate {names}: there is no such column among {_names(schema)}. Nothing was created: "
            "generate a column that `schema`, or the rows, have."
        )
    return json.dumps(schema)


def _check_columns(what: str, expression: str, schema: Mapping[str, Any]) -> None:
    unknown = unknown_in(expression, schema)
    if unknown:
        raise InvalidWriteError(
            f"There is no column {', '.join(unknown)}, which {what} names, among {_names(schema)}. Nothing was "
            "created: correct the name."
        )


def _check_types(fields: list[Field], table: str) -> None:
    """Refuse columns of types that Delta does not have, or that need what is not set up here.

    Spark would write no row to the table, and of some types nobody could read the table's log.
    """
    for field in fields:
        unwritten = next(filter(None, map(_why_unwritten, types_within(field["type"]))), None)
        if unwritten is not None:
            raise InvalidWriteError(
                f"{table} cannot be created with column {field['name']}: it {unwritten}. Nothing was created."
            )


def _check_named(fields: list[Field], configuration: Mapping[str, str]) -> None:
    """Refuse properties that name columns which the table would not have, or that keep the name of one it would."""
    schema = struct_of(fields)
    if configuration.get(CHANGE_FEED, "").lower() == "true":
        # Spark would write rows with a value in the first of them to the change feed alone.
        taken = [field["name"] for field in fields if field["name"].lower() in OF_CHANGE_FEED]
        if taken:
            raise InvalidWriteError(
                f"The table cannot have both {CHANGE_FEED}=true and a column {taken[0]!r}, whose name the change data "
                "feed keeps for itself. Nothing was created: rename the column in a step, or leave the property out."
            )
    for name, value in configuration.items():
        if name.startswith(CONSTRAINT):
            _check_columns(f"the property {name}={value!r}", value, schema)
        if name == STATISTICS_COLUMNS:
            _check_columns(f"the property {name}={value!r}", f"struct({value})", schema)


def _names(schema: Mapping[str, Any]) -> str:
    return ", ".join(field["name"] for field in schema["fields"])


def _check_partitioning(fields: list[dict[str, Any]], partition_by: Sequence[str], table: str) -> None:
    types = {field["name"]: field["type"] for field in fields}
    if not types:
        raise InvalidWriteError(
            f"{table} cannot be made from rows without a column, as Spark sees them where a source without a schema is "
            "empty. Nothing was created: give the columns by new_table=NewTable(schema=…), or the source its `schema`."
        )
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
        raise InvalidWriteError(f"{table} cannot be partitioned by all of its columns. Nothing was created.")


def add_columns(
    transactions: Transactions,
    rows_schema_json: str,
    fit: Fit,
    *,
    generated: Collection[str] = (),
    told: str | None = None,
) -> Snapshot:
    """Add the columns of some rows that a table lacks, nullable and behind the others.

    If several writers add the same column, one commits it, and the others find it. Different columns are all added.
    Columns that are there stay as they are, and so do the fields inside them: a struct does not grow.

    :param rows_schema_json: the rows' columns, as Spark writes a schema in JSON.
    :param fit: asked whether Spark will append the rows to the table with the new columns.
    :param generated: columns that the writer wants to be generated; none of them can be added.
    :param told: what people read of the commit in the table's history. Default: nothing.
    :returns: the newest snapshot, which has all the columns.
    :raises SchemaMismatchError: the rows would not fit the table all the same, or a column cannot be added; nothing was
        changed.
    :raises TableNotFoundError: there is no table.
    :raises UnsupportedFeatureError: the table uses a feature outside the allow-list.
    :raises CommitContentionError: the budget is used up by others' commits; calling again carries on.
    :raises StoreUnavailableError: the store did not answer until the budget was used up; calling again settles it.
    """
    rows = json.loads(rows_schema_json)
    return transactions.commit(_NewColumns(transactions.log, rows, fit, generated, transactions.random, told))


@attrs.define(eq=False)
class _NewColumns(Proposal[Snapshot]):
    """One call of :func:`add_columns`. Only the columns of the newest snapshot decide what is left to add."""

    name = "the columns that it lacks"

    _log: DeltaLog
    _rows: dict[str, Any]
    _fit: Fit
    _generated: Collection[str]
    _random: Random
    _message: str | None = None
    _names: str = ""

    def decide(self, view: View) -> Put | Snapshot:
        """Add the columns that the table lacks."""
        snapshot, table = view.snapshot, self._log.table
        # If our put succeeded and its answer was lost, the columns are in the snapshot.
        new = _new_fields(self._rows, snapshot)
        if not new:
            return snapshot
        snapshot.check_supported(table)
        self._check(new, snapshot)
        self._names = ", ".join(field["name"] for field in new)
        return Put(_entry(new, snapshot, self._random, self._message), snapshot)

    def committed(self, version: int, tally: Tally) -> None:
        """Look once more: another engine may have dropped a column since.

        :param version: in which they were added.
        """
        logger.info("%s: version %d adds the columns %s", self._log.table, version, self._names)

    def _check(self, new: list[Field], snapshot: Snapshot) -> None:
        """Refuse before anything is changed, and name all problems at once."""
        table, generated = self._log.table, {name.lower() for name in self._generated}
        problems = [
            f"column {field['name']} is to be generated, and a table gets generated columns when it is created"
            for field in new
            if field["name"].lower() in generated
        ]
        for field in new:
            problems += [f"column {field['name']} {reason}" for reason in _reasons(field, snapshot)]
        if problems:
            raise SchemaMismatchError(
                f"{table} cannot take new columns of the rows: {'; '.join(problems)}. Nothing was changed."
            )
        given = snapshot.configuration.get(_MAX_COLUMN_ID, 0)
        if whole_number(given) is None:
            raise TablePropertyError(
                f"{table} sets {_MAX_COLUMN_ID}={given!r}, which is no number, so a new column could get the id of one "
                "that was dropped, and its rows. Nothing was changed: set the property to the highest id ever given."
            )
        grown = struct_of([*_schema(snapshot)["fields"], *map(_plain, new)])
        try:
            self._fit(self._rows, grown, list(snapshot.partitioning.types))
        except ValueError as error:
            raise SchemaMismatchError(
                f"{error} No column was added and nothing was staged. Evolution adds whole columns; it changes no type "
                "and no field inside a struct."
            ) from None


def _new_fields(rows: Mapping[str, Any], snapshot: Snapshot) -> list[Field]:
    """Return the fields that the table lacks; names are compared as Spark does, whatever their case."""
    there = {field["name"].lower() for field in _schema(snapshot)["fields"]}
    return [field for field in rows["fields"] if field["name"].lower() not in there]


def _schema(snapshot: Snapshot) -> dict[str, Any]:
    schema: dict[str, Any] = json.loads(snapshot.metadata["schemaString"])
    return schema


def _reasons(field: Field, snapshot: Snapshot) -> Iterator[str]:
    if snapshot.has_change_feed and field["name"].lower() in OF_CHANGE_FEED:
        yield "has a name that the change data feed keeps for itself: rename it in a step"
    if COLLATIONS in (field.get("metadata") or {}):
        yield "has a collation, which tables here do not keep: cast it in a step"
    if snapshot.column_mapping == "none":
        names = {inner["name"] for inner in fields_within(struct_of([field]))}
        spoilt = sorted(name for name in names if set(name) & set(_NOT_IN_NAMES))
        for name in spoilt:
            yield (
                f"has a character in {name!r} that Parquet does not allow in names: rename it in a step, or switch "
                "column mapping on"
            )
    iceberg = any(_ICEBERG.fullmatch(k) and str(v).lower() == "true" for k, v in snapshot.configuration.items())
    for kind in types_within(field["type"]):
        name = name_of(kind)
        if name in ("array", "map"):
            if iceberg:
                yield "holds an array or a map, and the table is kept compatible with Iceberg: add it by ALTER TABLE"
        elif (unwritten := _why_unwritten(kind)) is not None:
            yield unwritten
        elif name in _NEEDED and _NEEDED[name] not in snapshot.writer_features:
            yield (
                f"is {sql_name(kind)}, and the table does not have the feature {_NEEDED[name]}: cast it in a step, or "
                f"set the table's property delta.feature.{_NEEDED[name]} = 'supported' first"
            )


def _why_unwritten(kind: JsonType) -> str | None:
    """Say why no column is written here that has a type, or holds it; ``None`` where one may be.

    :param kind: the types inside of it are not looked at.
    """
    if isinstance(kind, Mapping) and name_of(kind) == "struct":
        inside = [inner["name"].lower() for inner in kind["fields"]]
        twice = "holds a struct with one name twice" if len(set(inside)) != len(inside) else None
        return twice if inside else "holds a struct without a field: leave it out in a step"
    if isinstance(kind, Mapping) and name_of(kind) in ("array", "map"):
        return None
    if name_of(kind) == "void":
        return "has no type, as all its values are NULL: cast it in a step"
    return None if is_primitive(kind) else f"is {sql_name(kind)}, which is not written here: cast it in a step"


def _plain(field: Field) -> Field:
    """Return a field as a table takes it: nullable throughout, and of its metadata only what people wrote."""
    whole = struct_of([copy.deepcopy(field)])
    for one in fields_within(whole):
        comment = (one.get("metadata") or {}).get("comment")
        one |= {"nullable": True, "metadata": {} if comment is None else {"comment": comment}}
    for kind in types_within(whole):
        if isinstance(kind, dict):
            kind |= {key: True for key in ("containsNull", "valueContainsNull") if key in kind}
    found: Field = whole["fields"][0]
    return found


def _entry(new: list[Field], snapshot: Snapshot, random: Random, told: str | None) -> Entry:
    fields = [_plain(field) for field in new]
    added = encode([{"column": field} for field in fields])
    schema = _schema(snapshot)
    configuration = dict(snapshot.configuration)
    if snapshot.column_mapping != "none":
        ids = [int((field.get("metadata") or {}).get(MAPPING_ID, 0)) for field in fields_within(schema)]
        given = whole_number(configuration.get(_MAX_COLUMN_ID, 0)) or 0
        highest = max(given, *ids, 0)
        configuration[_MAX_COLUMN_ID] = str(_map_columns(fields, highest, random))
    schema["fields"] += fields
    metadata: Metadata = {
        **snapshot.metadata,
        "schemaString": encode(schema),
        "configuration": configuration,
    }
    definition: list[Action] = [{"metaData": metadata}]
    return Entry(
        operation="ADD COLUMNS", parameters={"columns": added}, message=told, blind=True, definition=definition
    )


def _map_columns(fields: list[dict[str, Any]], newest: int, random: Random | None = None) -> int:
    """Give columns, and the fields inside them, an id and a physical name each.

    :param fields: as the JSON of a schema has them; changed in place.
    :param newest: the highest id that the table has given out.
    :param random: for the names. Default: they follow from id and name, so every writer of a new table has the same.
    :returns: the highest id now.
    """
    for newest, field in enumerate(fields_within(struct_of(fields)), start=newest + 1):  # noqa: B020
        drawn = random or Random(f"{newest} {field['name']}")  # noqa: S311 - no secrets
        name = f"col-{random_id(drawn)}"
        field["metadata"] = {**(field.get("metadata") or {}), MAPPING_ID: newest, PHYSICAL_NAME: name}
    return newest
