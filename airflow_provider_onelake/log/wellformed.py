"""Checks that actions are well formed when a log is read, so that all other code can rely on complete actions.

Only fields that readers need are checked, as the format requires them; any other field may hold anything.
Format: https://github.com/delta-io/delta/blob/master/PROTOCOL.md#actions
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from airflow_provider_onelake.exceptions import CorruptLogError
from airflow_provider_onelake.log.actions import Action, Metadata
from airflow_provider_onelake.log.schema import Column, columns, fields, partition_columns
from airflow_provider_onelake.storage.clock import whole_number

_NESTED = {"array": ("elementType",), "map": ("keyType", "valueType")}
_DELTAS_OWN = "delta."


def check_actions(actions: Iterable[Action], where: str) -> None:
    """Refuse the actions of a log entry if one of them lacks what readers need.

    :param where: what messages call the entry.
    :raises CorruptLogError: saying which action lacks what.
    """
    for action in actions:
        for kind, body in action.items():
            if kind in _CHECKS:
                check_body(kind, body, where)


def check_body(kind: str, body: Any, where: str) -> None:
    """Refuse an action that lacks what readers need; change a number in a map of texts, in place, into its JSON text.

    :param kind: ``add``, ``remove``, ``txn``, ….
    :param where: what messages call the entry or the checkpoint.
    :raises CorruptLogError: saying what it lacks.
    """
    check = _CHECKS.get(kind)
    # Checkpoints and some engines write null for an action that is not there.
    if check is None or body is None:
        return
    problem = check(body) if isinstance(body, dict) else "is no JSON object"
    if problem is not None:
        raise CorruptLogError(
            f"{where} cannot be read: its {kind} action {problem}. Nothing was changed. The file is damaged, or an "
            "engine wrote what the Delta format does not allow: put it back as its writer put it, or ask who that was."
        )


def _add(body: dict[str, Any]) -> str | None:
    if whole_number(body.get("size")) is None:
        return f"has the size {body.get('size')!r}"
    return _file(body, required=True)


def _remove(body: dict[str, Any]) -> str | None:
    return _file(body, required=False)


def _file(body: dict[str, Any], *, required: bool) -> str | None:
    if not isinstance(body.get("path"), str) or not body["path"]:
        return f"has the path {body.get('path')!r}"
    vector = body.get("deletionVector")
    if vector is not None and not (
        isinstance(vector, dict)
        and isinstance(vector.get("storageType"), str)
        and isinstance(vector.get("pathOrInlineDv"), str)
    ):
        return f"has the deletion vector {vector!r}"
    if body.get("partitionValues") is None and not required:
        return None
    return _texts(body, "partitionValues")


def _sidecar(body: dict[str, Any]) -> str | None:
    return None if isinstance(body.get("path"), str) else f"has the path {body.get('path')!r}"


def _txn(body: dict[str, Any]) -> str | None:
    if not isinstance(body.get("appId"), str):
        return f"has the appId {body.get('appId')!r}"
    return None if whole_number(body.get("version")) is not None else f"has the version {body.get('version')!r}"


def _protocol(body: dict[str, Any]) -> str | None:
    for name in ("minReaderVersion", "minWriterVersion"):
        if whole_number(body.get(name)) is None:
            return f"has the {name} {body.get(name)!r}"
    for name in ("readerFeatures", "writerFeatures"):
        if not _is_list_of_texts(body.get(name) or []):
            return f"has the {name} {body.get(name)!r}"
    return None


def _metadata(body: dict[str, Any]) -> str | None:
    if not isinstance(body.get("id"), str):
        return f"has the id {body.get('id')!r}"
    if not isinstance(body.get("schemaString"), str):
        return "has no schemaString"
    if not _is_list_of_texts(body.get("partitionColumns") or []):
        return f"has the partitionColumns {body.get('partitionColumns')!r}"
    if body.get("configuration") is not None and (problem := _texts(body, "configuration")) is not None:
        return problem
    metadata = cast("Metadata", body)
    try:
        known = columns(metadata)
        _check_columns(known.values())
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        return f"has a schemaString that is no schema ({type(error).__name__}: {error})"
    missing = next((name for name in partition_columns(metadata) if name not in known), None)
    return None if missing is None else f"names the partition column {missing!r}, which is not in its schema"


def _check_columns(found: Iterable[Column]) -> None:
    for column in found:
        described = isinstance(column.name, str), isinstance(column.nullable, bool), isinstance(column.metadata, dict)
        # Reading field_id raises if the id is no number.
        if not all(described) or isinstance(column.field_id, str):
            raise TypeError(f"the column {column.name!r} is no column")
        _check_type(column.type)


def _check_type(kind: Any) -> None:
    if isinstance(kind, str):
        return
    if kind["type"] == "struct":
        _check_columns(fields(kind))
        return
    for part in _NESTED[kind["type"]]:
        _check_type(kind[part])


def _domain(body: dict[str, Any]) -> str | None:
    name = body.get("domain")
    if not isinstance(name, str):
        return f"has the domain {name!r}"
    if body.get("removed") or not name.startswith(_DELTAS_OWN):
        return None
    try:
        configuration = json.loads(body.get("configuration") or "{}")
    except (ValueError, TypeError, RecursionError):
        configuration = None
    if not isinstance(configuration, dict):
        return f"of {name} has a configuration that is no JSON object"
    mark = configuration.get("rowIdHighWaterMark", -1)
    return None if whole_number(mark) is not None else f"of {name} has the rowIdHighWaterMark {mark!r}"


def _texts(body: dict[str, Any], name: str) -> str | None:
    values = body.get(name)
    if not isinstance(values, dict):
        return f"has the {name} {values!r}"
    for key, value in values.items():
        if value is None or isinstance(value, str):
            continue
        if not isinstance(value, bool | int | float):
            return f"has {key}={value!r} in its {name}"
        # Spark and deltalake read a boolean or a number here as its JSON text.
        values[key] = json.dumps(value)
    return None


def _is_list_of_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


_CHECKS: Mapping[str, Callable[[dict[str, Any]], str | None]] = {
    "add": _add,
    "remove": _remove,
    "sidecar": _sidecar,
    "txn": _txn,
    "protocol": _protocol,
    "metaData": _metadata,
    "domainMetadata": _domain,
}
