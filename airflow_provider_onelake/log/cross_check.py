"""A second opinion on which files are live (protocol: verbatim remove), for ``onelake doctor`` and the tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from airflow_provider_onelake.log.actions import LOG_DIRECTORY, object_path
from airflow_provider_onelake.storage.errors import SignInError, as_store_error

if TYPE_CHECKING:
    from airflow_provider_onelake.log.delta_log import DeltaLog


def told_apart_by_deltalake(log: DeltaLog, version: int, table_uri: str, options: Mapping[str, str]) -> str | None:
    """Compare the live files of a version with those that deltalake sees.

    :param table_uri: the table's address as deltalake wants it.
    :param options: the current credentials, as deltalake wants them.
    :returns: a sentence that says how they differ, or that deltalake cannot read the table; ``None`` for no difference.
    :raises OneLakeError: the store failed, or the log cannot be read.
    """
    import pyarrow as pa
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    ours = {object_path(file) for file in log.live_files(lambda _: True, version)}
    try:
        listed = DeltaTable(table_uri, version=version, storage_options=dict(options)).get_add_actions()
    except (OSError, SignInError) as error:
        raise as_store_error(error, LOG_DIRECTORY, table_uri) from error
    except DeltaError as error:
        return f"deltalake cannot read version {version} of {table_uri}, so nobody compared the live files: {error}."
    paths = pa.RecordBatchReader.from_stream(listed).read_all()["path"].to_pylist()
    apart = ours ^ {object_path({"path": path}) for path in paths}
    if not apart:
        return None
    return (
        f"At version {version} of {table_uri} our replay and deltalake disagree about {len(apart)} live files, such as "
        f"{min(apart)}. Let no overwrite, DELETE, UPDATE, MERGE, compaction or restore run, and report the table's log."
    )
