"""What an entry names is on the disk itself before the entry is: readers trust an entry, also after a power cut."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

from airflow_provider_onelake.log.actions import LOG_DIRECTORY, is_absolute, object_path, of_kind
from airflow_provider_onelake.log.vectors import vector_home
from airflow_provider_onelake.storage.stores import Syncing

if TYPE_CHECKING:
    from airflow_provider_onelake.log.actions import Action
    from airflow_provider_onelake.storage.stores import Store

_FILES: tuple[Literal["add", "cdc"], ...] = ("add", "cdc")


def sync_named(store: Store, actions: Iterable[Action], synced: set[str]) -> None:
    """Sync the files that actions add to a table, where its store needs that.

    :param store: of the table.
    :param actions: of the entry that is to be put.
    :param synced: files that were synced before and have not changed; those that are synced now are added to it.
    :raises OneLakeError: the disk failed.
    """
    if not isinstance(store, Syncing):
        return
    actions = list(actions)
    named = {object_path(file) for kind in _FILES for file in of_kind(actions, kind) if not is_absolute(file["path"])}
    vectors = [add["deletionVector"] for add in of_kind(actions, "add") if add.get("deletionVector")]
    named.update(home for home in map(vector_home, vectors) if home is not None)
    store.sync(sorted(named - synced))
    synced |= named


def sync_checkpoint(store: Store, version: int) -> None:
    """Sync a checkpoint that deltalake has written, where the table's store needs that.

    :param store: of the table.
    :param version: of the checkpoint.
    :raises OneLakeError: the disk failed.
    """
    if isinstance(store, Syncing):
        begins = f"{LOG_DIRECTORY}/{version:020d}.checkpoint"
        paths = [info.path for info in store.list(LOG_DIRECTORY, start_after=f"{LOG_DIRECTORY}/{version:020d}.c")]
        store.sync([*(path for path in paths if path.startswith(begins)), f"{LOG_DIRECTORY}/_last_checkpoint"])
