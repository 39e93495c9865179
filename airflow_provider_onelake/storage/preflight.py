"""Whether a store can be written to safely, found out before Spark is asked: every problem at once."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from airflow_provider_onelake.exceptions import (
    ObjectExistsError,
    ObjectNotFoundError,
    OneLakeError,
    TransientError,
    UnsafeStoreError,
)

if TYPE_CHECKING:
    from airflow_provider_onelake.storage.addresses import Kind
    from airflow_provider_onelake.storage.stores import Store

SCRATCH = "_preflight"
"""The directory below a table that gets scratch objects: readers and VACUUM pass over it."""

_LOG_STORE = ("spark.delta.logStore.", "delta.logStore.", "spark.hadoop.delta.logStore.")
# For each kind of store, log stores whose put lets a second commit of one version through.
_UNSAFE = {
    "local": {"LocalLogStore": "two Spark processes claim most versions twice (measured: 2,399 of 2,500)"},
    "s3": {"S3SingleDriverLogStore": "with two drivers it loses commits and reports success (measured: 10 of 20)"},
}


def problems_of(store: Store, path: str, name: str) -> list[str]:
    """Try everything that a commit needs at a scratch path: create-only put, read, list, list from an offset, delete.

    :param store: rooted at the table or the lakehouse.
    :param path: of the scratch object; nobody else's. It is gone afterwards.
    :param name: what messages call the store.
    :returns: what does not work, for people; empty where all does.
    """
    found: list[str] = []
    try:
        store.create(path, b"first")
    except OneLakeError as error:
        found.append(f"{name} cannot be written: {error}")
        with _noting(found, f"{name} cannot be listed"):
            list(store.list(path.rpartition("/")[0]))
        return found
    with _noting(found, f"{name} cannot be written create-only"):
        try:
            store.create(path, b"second")
        except ObjectExistsError:
            pass
        else:
            found.append(f"{name} let a second create-only put through, so commits to it would be lost.")
    with _noting(found, f"{name} cannot be read"):
        if store.get(path) not in (b"first", b"second"):
            found.append(f"{name} gave back other bytes than were written.")
    with _noting(found, f"{name} cannot be listed"):
        if not any(info.path == path for info in store.list(path.rpartition("/")[0])):
            found.append(f"{name} does not list what was just written.")
        # All but the last character of the path: it sorts just before the object, so that nothing else is listed.
        elif not any(info.path == path for info in store.list(path.rpartition("/")[0], start_after=path[:-1])):
            found.append(
                f"{name} lists nothing from an offset, where what was just written should be: whoever looks for new "
                "versions there finds none, and deltalake finds no table. OneLake has done so by names and not by "
                "GUIDs: write onelake://<workspace GUID>/<item GUID>."
            )
    with _noting(found, f"{name} cannot be deleted from, so {path} was left there"):
        store.delete(path)
        with contextlib.suppress(ObjectNotFoundError):
            store.head(path)
            found.append(f"{name} still has {path} after it was deleted.")
    return found


def prove_create_only(store: Store, path: str, data: bytes, name: str) -> None:
    """Put over an object that is there, and insist on being refused: every commit stands on it. One small request.

    :param store: rooted at the table.
    :param path: of an object that was put just now, and that may be lost.
    :param data: other bytes than it has.
    :param name: what messages call the table.
    :raises UnsafeStoreError: the put went through.
    """
    try:
        store.create(path, data)
    except (ObjectExistsError, TransientError):
        # An answer that is lost proves nothing, and is no reason to fail either.
        return
    raise UnsafeStoreError(
        f"The store of {name} let a second create-only put through ({path}), so two writers could overwrite each "
        "other's commits without noticing. Nothing was staged. Use a store that honours conditional puts "
        "(If-None-Match: *); one that keeps versions of objects for you is not enough."
    )


def unsafe_log_stores(kind: Kind, settings: Mapping[str, str]) -> list[str]:
    """Name the log stores in Spark's settings that would lose commits of Spark itself.

    Protocol: no Spark commit to the shared log.

    Writers of this package do not commit by Spark, so they are safe whatever the log store is; other jobs of the same
    Spark are not.

    :param kind: of the table's store.
    :param settings: of the Spark application.
    :returns: problems, for people.
    """
    chosen = {name: value.rpartition(".")[2] for name, value in settings.items() if name.startswith(_LOG_STORE)}
    return [
        f"{name} is {store}: {why}. Remove the setting, or let no other job of this Spark write Delta tables there."
        for name, store in chosen.items()
        for unsafe, why in _UNSAFE.get(kind, {}).items()
        if store == unsafe
    ]


@contextlib.contextmanager
def _noting(found: list[str], what: str) -> Iterator[None]:
    try:
        yield
    except OneLakeError as error:
        found.append(f"{what}: {error}")
