"""Checks that actions are well formed when a log is read, so that all other code can rely on complete actions.

Only fields that readers need are checked, as the format requires them; any other field may hold anything.
Format: https://github.com/delta-io/delta/blob/master/PROTOCOL.md#actions
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

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
            check_body(kind, body, where)


def check_body(kind: str, body: Any, where: str) -> None:
    """Refuse an action that lacks what readers need; change a number in a map of texts, in place, into its JSON text.

    :param kind: ``add``, ``remove``, ``txn``, ….
    :param where: what messages call the entry or the checkpoint.
    :raises CorruptLogError: saying what it lacks.
    """
    # Checkpoints and some engines write null for an action that is not there.
    if kind not in _FIELDS or body is None:
        return
    _refuse(kind, _problem(kind, body) if isinstance(body, dict) else "is no JSON object", where)


def check_metadata(metadata: Metadata, where: str) -> None:
    """Refuse a table's definition that readers cannot use.

    Ask this of the ``metaData`` that counts only. Delta Live Tables begins a log with one that has no schema, and
    replaces it by the next commit.

    :param where: what messages call the version that it counts in.
    :raises CorruptLogError: saying what it lacks.
    """
    _refuse("metaData", _no_schema(metadata), where)


def _refuse(kind: str, problem: str | None, where: str) -> None:
    if problem is not None:
        raise CorruptLogError(
            f"{where} cannot be read: its {kind} action {problem}. Nothing was changed. The file is damaged, or an "
            "engine wrote what the Delta format does not allow: put it back as its writer put it, or ask who that was."
        )


def _problem(kind: str, body: dict[str, Any]) -> str | None:
    for name, is_right in _FIELDS[kind].items():
        if not is_right(body.get(name)):
            return f"has the {name} {body.get(name)!r}"
    if kind in _TEXTS and (kind == "add" or body.get(_TEXTS[kind]) is not None):
        return _texts(body, _TEXTS[kind])
    return _domain(body) if kind == "domainMetadata" else None


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_path(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _is_whole(value: Any) -> bool:
    return whole_number(value) is not None


def _is_vector(value: Any) -> bool:
    parts = ("storageType", "pathOrInlineDv")
    return value is None or (isinstance(value, dict) and all(isinstance(value.get(part), str) for part in parts))


def _are_texts(value: Any) -> bool:
    return not value or (isinstance(value, list) and all(isinstance(item, str) for item in value))


def _no_schema(metadata: Metadata) -> str | None:
    if not isinstance(metadata.get("schemaString"), str):
        return f"has the schemaString {metadata.get('schemaString')!r}"
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
    name = body["domain"]
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


# What the fields of each action must be, ``None`` standing for a field that is not there.
_FIELDS: Mapping[str, Mapping[str, Callable[[Any], bool]]] = {
    "add": {"size": _is_whole, "path": _is_path, "deletionVector": _is_vector},
    "remove": {"path": _is_path, "deletionVector": _is_vector},
    "sidecar": {"path": _is_text},
    "txn": {"appId": _is_text, "version": _is_whole},
    "protocol": {
        **dict.fromkeys(("minReaderVersion", "minWriterVersion"), _is_whole),
        **dict.fromkeys(("readerFeatures", "writerFeatures"), _are_texts),
    },
    "metaData": {"id": _is_text, "partitionColumns": _are_texts},
    "domainMetadata": {"domain": _is_text},
}
# The field of an action that maps names to texts.
_TEXTS = {"add": "partitionValues", "remove": "partitionValues", "metaData": "configuration"}
