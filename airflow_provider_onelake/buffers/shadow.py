"""A shadow: a private Delta table whose version 0 names files of the table, by absolute path.

Spark sees an ordinary table and commits to the shadow's log alone. So Spark can have read no other file of the table
than those of the shadow, and it never touches the shared log (protocol: no Spark commit to the shared log).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING
from urllib.parse import quote

from airflow_provider_onelake.buffers.buffer import twin
from airflow_provider_onelake.log.actions import Action, Add, FileKey, StagedRecord, file_key, of_kind
from airflow_provider_onelake.log.vectors import deletion_vector_path

if TYPE_CHECKING:
    from airflow_provider_onelake.log.snapshot import Snapshot

_AUTHORITY = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*://[^/]*)(.*)$")

MOST_FILES = 200_000
"""How many files a shadow may name: its version 0 names each of them, by about a kilobyte."""

ShadowInputs = Mapping[FileKey, tuple[Add, Add]]
"""The files of a shadow by their keys in it: the ``add`` as the shadow has it, and as the table has it."""


def shadow_inputs(files: Iterable[Add], table_uri: str) -> ShadowInputs:
    """Return files of a table as a shadow names them.

    :param files: live ``add`` actions of the table, with relative paths.
    :param table_uri: of the table, as Spark addresses it.
    """
    base = encoded_uri(table_uri)
    both = [(_absolute(file, base), file) for file in files]
    return {file_key(there): (there, file) for there, file in both}


def shadow_log(
    snapshot: Snapshot, inputs: ShadowInputs, attempt: str, description: str, record: StagedRecord, now: int
) -> list[Action]:
    """Return version 0 of a shadow: the table's definition, and its files.

    :param snapshot: of the table.
    :param attempt: becomes the shadow's table id.
    :param description: for people who look at the shadow.
    :param record: what the shadow says of itself.
    :param now: the time of the version, in milliseconds.
    """
    return [
        *twin(snapshot, attempt, description, record, now),
        *(Action(domainMetadata=body) for body in snapshot.domains.values()),
        *(Action(add=add) for add, _ in inputs.values()),
    ]


def table_paths(actions: Iterable[Action], base: str) -> set[str]:
    """Return the paths of a shadow's files, as the table's log spells them.

    :param actions: version 0 of the shadow.
    :param base: what :func:`encoded_uri` returned for the table when the shadow was made.
    """
    return {add["path"].removeprefix(f"{base}/") for add in of_kind(actions, "add")}


def encoded_uri(table_uri: str) -> str:
    """Return Spark's address of a table as a log spells it, percent-encoded; Spark's own is not.

    A local path gets ``file:`` with one slash, as Hadoop writes it. With three slashes Delta finds no match between the
    files that it scans and those in the log, and a statement that writes deletion vectors fails.

    :param table_uri: of the table, as Spark addresses it.
    """
    match = _AUTHORITY.match(table_uri)
    scheme, path = match.groups() if match else ("file:", table_uri)
    scheme = "file:" if scheme == "file://" else scheme
    return f"{scheme}{quote(path.rstrip('/'), safe='/=:+@~!,-._')}"


def _absolute(file: Add, base: str) -> Add:
    """Return a file's ``add`` as another table's log writes it, with absolute paths."""
    absolute: Add = {**file, "path": f"{base}/{file['path']}", "dataChange": True}
    vector = file.get("deletionVector")
    if vector and vector["storageType"] == "u":
        absolute["deletionVector"] = {
            **vector,
            "storageType": "p",
            "pathOrInlineDv": f"{base}/{deletion_vector_path(vector['pathOrInlineDv'])}",
        }
    return absolute
