"""Columns of a table that get the wider type that a writer's rows bring.

As new columns do, they change by a commit of its own before the rows are staged (protocol: compatible definition). So
the rows are staged in the wider type, and those that other writers have staged in the narrower one still fit. The
commit is what Spark's ALTER TABLE would make. It is made here, as a writer may be one of many that need it at once.

Only a number of the same kind is wider without being asked for by name: a longer integer, DOUBLE instead of FLOAT, a
DECIMAL with room for all digits of a DECIMAL. An integer becomes no DOUBLE and no DECIMAL, because then one file with
``1.0`` in it would make another kind of column for everybody. Delta's own schema evolution draws the same line.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import attrs

from airflow_provider_onelake.commit.entry import commit_info, stamp
from airflow_provider_onelake.commit.transaction import Proposal, Put, Tally, Transactions, View
from airflow_provider_onelake.exceptions import CommitContentionError, SchemaMismatchError
from airflow_provider_onelake.log.actions import encode
from airflow_provider_onelake.log.paths import meet, named_in, written
from airflow_provider_onelake.log.schema import GENERATION, TYPE_CHANGES, constraints, flag
from airflow_provider_onelake.log.types import INTEGERS, is_wider, precision_and_scale, sql_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_provider_onelake.commit.definition import Fit
    from airflow_provider_onelake.log.actions import Action, Metadata
    from airflow_provider_onelake.log.delta_log import DeltaLog
    from airflow_provider_onelake.log.snapshot import Snapshot

logger = logging.getLogger(__name__)

_WIDENING = "delta.enableTypeWidening"
# https://github.com/delta-io/delta/blob/master/PROTOCOL.md#column-invariants
_INVARIANTS = "delta.invariants"


def widen(transactions: Transactions, rows_schema_json: str, fit: Fit, *, told: str | None = None) -> Snapshot:
    """Give the columns of a table the wider types that they have in some rows.

    If several writers widen the same column, one commits it, and the others find it.

    :param rows_schema_json: the rows' columns, as Spark writes a schema in JSON.
    :param fit: asked whether Spark will append the rows to the table with the wider types.
    :param told: what people read of the commit in the table's history. Default: nothing.
    :returns: the newest snapshot, which has the wider types.
    :raises SchemaMismatchError: the table does not allow it, or the rows would not fit all the same; nothing was
        changed.
    :raises TableNotFoundError: there is no table.
    :raises UnsupportedFeatureError: the table uses a feature outside the allow-list.
    :raises CommitContentionError: the budget is used up by others' commits; calling again carries on.
    :raises StoreUnavailableError: the store did not answer until the budget was used up; calling again settles it.
    """
    return transactions.commit(_WiderTypes(transactions.log, json.loads(rows_schema_json), fit, told))


def check_widening(rows_schema_json: str, snapshot: Snapshot, table: str) -> None:
    """Refuse rows for which columns cannot be widened, before anything is changed for them.

    :param rows_schema_json: the rows' columns, as Spark writes a schema in JSON.
    :param table: what messages call the table.
    :raises SchemaMismatchError: the table does not allow it.
    """
    _target(json.loads(rows_schema_json), snapshot, table)


def widened(rows: dict[str, Any], table: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a table with the wider types that its columns have in some rows.

    :param rows: the schema of the rows.
    :param table: the schema of the table.
    """
    wider = {field["name"]: kind for field, kind in _wider(rows, table)}
    return {
        **table,
        "fields": [{**field, "type": wider.get(field["name"], field["type"])} for field in table["fields"]],
    }


@attrs.frozen
class _Target:
    """What the table becomes.

    :param fields: those that change, as they become.
    """

    fields: tuple[dict[str, Any], ...]
    metadata: Metadata


@attrs.define(eq=False)
class _WiderTypes(Proposal["Snapshot"]):
    """One call of :func:`widen`. Only the columns of the newest snapshot decide what is left to widen."""

    name = "wider types"

    _log: DeltaLog
    _rows: dict[str, Any]
    _fit: Fit
    _told: str | None
    _words: str = ""

    def decide(self, view: View) -> Put | Snapshot:
        """Widen the columns that are narrower in the table than in the rows."""
        snapshot, table = view.snapshot, self._log.table
        # If our put succeeded and its answer was lost, the types in the snapshot are the wider ones.
        target = _target(self._rows, snapshot, table)
        if target is None:
            return snapshot
        snapshot.check_supported(table)
        schema = json.loads(target.metadata["schemaString"])
        try:
            self._fit(self._rows, schema, list(snapshot.partitioning.types))
        except ValueError as error:
            raise SchemaMismatchError(f"{error} No type was widened and nothing was staged.") from None
        self._words = ", ".join(f"{field['name']} is {sql_name(field['type'])}" for field in target.fields)
        return Put(self._entry(target, snapshot, view.txn_id))

    def committed(self, version: int, tally: Tally) -> None:
        """Look once more: another engine may have changed a column since.

        :param version: in which they were widened.
        """
        logger.info("%s: version %d: %s", self._log.table, version, self._words)

    def give_up(self, tally: Tally) -> Snapshot:
        """Leave it to a retry.

        :raises CommitContentionError: always.
        """
        raise CommitContentionError(
            f"{self._log.table}: no type was widened, as {tally.lost_races} of {tally.attempts} puts met another's "
            "commit and the budget is used up. Nothing was changed; a retry carries on."
        )

    def _entry(self, target: _Target, snapshot: Snapshot, txn_id: str) -> list[Action]:
        now = self._log.clock.now()
        told = [{**field, "name": written((field["name"],))} for field in target.fields]
        one = len(told) == 1
        parameters = {"column": encode(told[0])} if one else {"columns": encode(told)}
        operation = "CHANGE COLUMN" if one else "CHANGE COLUMNS"
        info = commit_info(operation, parameters, snapshot, txn_id, now, blind=True, told=self._told)
        return [{"commitInfo": info}, *stamp(info, [], snapshot, now), {"metaData": target.metadata}]


def _target(rows: dict[str, Any], snapshot: Snapshot, table: str) -> _Target | None:
    """Return what the table becomes; ``None`` where no column of it is narrower than in the rows."""
    schema = json.loads(snapshot.metadata["schemaString"])
    wider = list(_wider(rows, schema))
    if not wider:
        return None
    changes = ", ".join(f"{field['name']} from {sql_name(field['type'])} to {sql_name(kind)}" for field, kind in wider)
    if not flag(snapshot.metadata, _WIDENING):
        raise SchemaMismatchError(
            f"{table} does not allow that types are widened, and the rows need it: {changes}. Nothing was changed and "
            f"nothing was staged: set {_WIDENING}='true' by OneLakeAlterOperator, after which readers must know the "
            "feature, or cast the columns in a step."
        )
    if why := next((why for field, _ in wider for why in _obstacles(field, schema["fields"], snapshot)), None):
        raise SchemaMismatchError(
            f"The rows need wider types in {table} ({changes}), and {why}. Nothing was changed and nothing was staged: "
            "cast the columns in a step."
        )
    for field, kind in wider:
        metadata = field.get("metadata") or {}
        changed = [*(metadata.get(TYPE_CHANGES) or ()), {"toType": kind, "fromType": field["type"]}]
        field |= {"type": kind, "metadata": {**metadata, TYPE_CHANGES: changed}}
    return _Target(tuple(field for field, _ in wider), {**snapshot.metadata, "schemaString": encode(schema)})


def _obstacles(field: dict[str, Any], fields: list[dict[str, Any]], snapshot: Snapshot) -> Iterator[str]:
    """Yield why the type of a column cannot change."""
    name = field["name"]
    if name in snapshot.partitioning.types:
        yield f"{name} is a partition column, and its values in the log are of the type of now"
    if flag(snapshot.metadata, "delta.enableIcebergCompatV2"):
        yield "it is kept compatible with Iceberg, which does not know all wider types"
    if GENERATION in (field.get("metadata") or {}):
        yield f"column {name} is generated, and its expression has the type of now"
    expressions = [(f"CHECK {check}", text) for check, text in constraints(snapshot.metadata).items()]
    for other in fields:
        told = other.get("metadata") or {}
        if text := told.get(GENERATION):
            expressions.append((f"the generated column {other['name']}", text))
        if text := told.get(_INVARIANTS):
            rule = str(json.loads(text)["expression"]["expression"])
            expressions.append((f"the invariant of column {other['name']}", rule))
    for what, text in expressions:
        if any(meet((name,), path) for path in named_in(text)):
            yield f"{what} ({text}) names it"


def _wider(rows: dict[str, Any], table: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield the columns of a table that have a wider type in the rows, with that type."""
    given = {field["name"].lower(): field["type"] for field in rows["fields"]}
    for field in table["fields"]:
        before, after = field["type"], given.get(field["name"].lower())
        if isinstance(before, str) and isinstance(after, str) and _is_wider(before, after):
            yield field, after


def _is_wider(before: str, after: str) -> bool:
    """Say whether a type is a wider one of the same kind of number."""
    decimals = [precision_and_scale(kind) is not None for kind in (before, after)]
    alike = all(decimals) or (not any(decimals) and (before in INTEGERS) is (after in INTEGERS))
    return alike and before != after and is_wider(before, after)
