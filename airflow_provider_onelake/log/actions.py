"""The actions of a log entry, kept as they are.

An action is a mapping with one key, its kind (``add``, ``remove``, ``metaData``, …). Unknown kinds and unknown fields
pass through untouched, because a ``remove`` must copy all that the ``add`` said, even fields that we do not know
(protocol: verbatim remove).

Format: https://github.com/delta-io/delta/blob/master/PROTOCOL.md#actions
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import unquote

from airflow_provider_onelake.exceptions import CorruptLogError
from airflow_provider_onelake.storage.clock import whole_number

Action = dict[str, Any]
FileKey = tuple[str, str | None]

LOG_DIRECTORY = "_delta_log"

# An absolute path begins with a slash or a scheme. Hadoop writes file:/ with one slash.
_ABSOLUTE = re.compile(r"/|[A-Za-z][A-Za-z0-9+.-]*:")

_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


def version_path(version: int) -> str:
    """Return the path of a version's log entry, relative to the table."""
    return f"{LOG_DIRECTORY}/{version:020d}.json"


def parse_actions(data: bytes, where: str) -> list[Action]:
    """Return the actions of a log entry, in order.

    :param data: the entry: one JSON object a line.
    :param where: what messages call the entry.
    :raises CorruptLogError: a line is no JSON object.
    """
    try:
        actions = [json.loads(line) for line in data.splitlines() if line.strip()]
    except (ValueError, RecursionError) as error:
        raise CorruptLogError(f"{where} is not JSON: {error}. Nothing was changed.") from error
    if not all(isinstance(action, dict) for action in actions):
        raise CorruptLogError(f"{where} holds a line that is no JSON object. Nothing was changed.")
    return actions


def dump_actions(actions: Iterable[Action]) -> bytes:
    """Return actions as the content of a log entry, in the given order."""
    return ("\n".join(map(_encode, actions)) + "\n").encode()


def of_kind(actions: Iterable[Action], kind: str) -> list[dict[str, Any]]:
    """Return the bodies of the actions of one kind, in order.

    :param kind: ``add``, ``remove``, ``txn``, ….
    """
    return [action[kind] for action in actions if isinstance(action.get(kind), dict)]


def object_path(file: Mapping[str, Any]) -> str:
    """Return the path in the store of the file that an ``add`` or ``remove`` names.

    :param file: the action's body; its ``path`` is URL-encoded, the store's is not.
    """
    return unquote(file["path"])


def is_absolute(path: str) -> bool:
    """Say whether a path is absolute. Shallow clones name files so; such a file lies outside the table's directory.

    :param path: the path of an ``add``, a ``remove`` or a deletion vector.
    """
    return _ABSOLUTE.match(path) is not None


def deletion_vector_id(file: Mapping[str, Any]) -> str | None:
    """Return the unique id of a file's deletion vector, or ``None``.

    :param file: an ``add`` or ``remove``.
    """
    vector = file.get("deletionVector")
    if not vector:
        return None
    offset = vector.get("offset")
    identity = f"{vector['storageType']}{vector['pathOrInlineDv']}"
    return identity if offset is None else f"{identity}@{offset}"


def file_key(file: Mapping[str, Any]) -> FileKey:
    """Return what identifies a logical file: its path, as it is spelled, and its deletion vector.

    Spark and deltalake also compare spellings: a ``remove`` that spells the path of a live file differently, such as
    ``%C3%A9`` for ``é``, leaves the file live for every engine.

    :param file: an ``add`` or ``remove``.
    """
    return file["path"], deletion_vector_id(file)


def row_count(file: Mapping[str, Any]) -> int | None:
    """Return how many rows of a file are live, or ``None`` where its statistics do not say.

    Statistics that cannot be parsed count as missing and are no error, because other engines read such a table.

    :param file: an ``add`` or ``remove``.
    """
    stats = file.get("stats")
    try:
        said = json.loads(stats) if isinstance(stats, str) else stats
    except (ValueError, RecursionError):
        return None
    records = whole_number(said.get("numRecords")) if isinstance(said, Mapping) else None
    vector = file.get("deletionVector")
    gone = whole_number(vector.get("cardinality")) if vector else 0
    return None if records is None or gone is None else records - gone


def total_rows(files: Iterable[Mapping[str, Any]]) -> int | None:
    """Return the live rows of several files, or ``None`` if the statistics of one file do not say.

    :param files: ``add`` or ``remove`` bodies.
    """
    total = 0
    for file in files:
        rows = row_count(file)
        if rows is None:
            return None
        total += rows
    return total
