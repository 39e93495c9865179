"""A second opinion on which files are live, before any of them is removed (protocol, rule 16)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from airflow_provider_onelake.exceptions import CorruptLogError
from airflow_provider_onelake.log.actions import LOG_DIRECTORY, object_path
from airflow_provider_onelake.log.partitions import Partition, Partitioning
from airflow_provider_onelake.storage.errors import SignInError, as_store_error

# Says whether deltalake sees the same live files of some partitions at a version, by raising where it does not.
Referee = Callable[[int, Partitioning, Callable[[Partition], bool], Iterable[Mapping[str, Any]]], None]


def deltalake_referee(table_uri: str, storage_options: Callable[[], Mapping[str, str]] = dict) -> Referee:
    """Return a referee that asks deltalake.

    :param table_uri: the table's address as deltalake wants it.
    :param storage_options: gives the credentials of now, as deltalake wants them. Default: none.
    """

    def check(
        version: int,
        partitioning: Partitioning,
        touches: Callable[[Partition], bool],
        files: Iterable[Mapping[str, Any]],
    ) -> None:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError

        try:
            table = DeltaTable(table_uri, version=version, storage_options=dict(storage_options()))
            # The list holds one column a field; rows are needed.
            listed = table.get_add_actions()
        except (OSError, SignInError) as error:
            raise as_store_error(error, LOG_DIRECTORY, table_uri) from error
        except DeltaError as error:
            raise CorruptLogError(
                f"deltalake cannot read version {version} of {table_uri}: {error}. Nothing was removed. Where it finds "
                "no files, the store may list nothing from an offset, as OneLake has done by names and not by GUIDs: "
                "write the connection's lakehouse as onelake://<workspace GUID>/<item GUID>."
            ) from error
        paths = listed.column("path").to_pylist()
        values: Any = listed.column("partition").to_pylist() if partitioning.types else [{}] * len(paths)
        theirs = {
            object_path({"path": path})
            for path, row in zip(paths, values, strict=True)
            if touches(tuple(_plain(row[name]) for name in partitioning.types))
        }
        ours = {object_path(file) for file in files}
        if ours != theirs:
            raise CorruptLogError(
                f"At version {version} of {table_uri} our replay and deltalake disagree about {len(ours ^ theirs)} "
                f"live files, such as {min(ours ^ theirs)}. Nothing was removed. Please report the table's log."
            )

    return check


def _plain(value: Any) -> Any:
    if isinstance(value, float) and math.isnan(value):
        return math.nan
    return None if value == "" else value
