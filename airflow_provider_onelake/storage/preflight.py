"""Finds out, before Spark is asked, whether a store can be written to safely; reports every problem at once."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

import attrs

from airflow_provider_onelake.exceptions import (
    ObjectExistsError,
    ObjectNotFoundError,
    OneLakeError,
    TransientError,
    UnsafeStoreError,
)

if TYPE_CHECKING:
    from airflow_provider_onelake.storage.stores import Store

Doing = Literal["write", "commit", "read", "list", "delete"]
"""What is tried of a store; a commit is a create-only put over what is there."""

SCRATCH = "_preflight"
"""The directory below a table for scratch objects. Readers and VACUUM ignore it because of the underscore."""


@attrs.frozen
class Problem:
    """Something that a commit needs and that does not work.

    :param doing: what was tried.
    :param text: for people.
    :param error: by which the store refused it; ``None`` where the store did it, and wrongly.
    """

    doing: Doing
    text: str
    error: OneLakeError | None = None

    def __str__(self) -> str:
        return self.text


def problems_of(store: Store, path: str, name: str) -> list[Problem]:
    """Try everything that a commit needs at a scratch path: create-only put, read, list, list from an offset, delete.

    :param store: rooted at the table or the lakehouse.
    :param path: the scratch object's path, which no other caller may use. The object is deleted afterwards.
    :param name: what messages call the store.
    :returns: the problems; empty if everything works.
    """
    found: list[Problem] = []
    try:
        store.create(path, b"first")
    except OneLakeError as error:
        found.append(Problem("write", f"{name} cannot be written: {error}", error))
        with _noting(found, "list", f"{name} cannot be listed"):
            list(store.list(path.rpartition("/")[0]))
        return found
    with _noting(found, "commit", f"{name} cannot be written create-only"):
        try:
            store.create(path, b"second")
        except ObjectExistsError:
            pass
        else:
            lost = f"{name} let a second create-only put through, so commits to it would be lost."
            found.append(Problem("commit", lost))
    with _noting(found, "read", f"{name} cannot be read"):
        if store.get(path) not in (b"first", b"second"):
            found.append(Problem("read", f"{name} gave back other bytes than were written."))
    with _noting(found, "list", f"{name} cannot be listed"):
        if not any(info.path == path for info in store.list(path.rpartition("/")[0])):
            found.append(Problem("list", f"{name} does not list what was just written."))
        # Take the path without its last character as the offset: it sorts just before the object, so little is listed.
        elif not any(info.path == path for info in store.list(path.rpartition("/")[0], start_after=path[:-1])):
            blind = (
                f"{name} lists nothing from an offset, where what was just written should be: whoever looks for new "
                "versions there finds none, and deltalake finds no table. OneLake has done so by names and not by "
                "GUIDs: write onelake://<workspace GUID>/<item GUID>."
            )
            found.append(Problem("list", blind))
    with _noting(found, "delete", f"{name} cannot be deleted from, so {path} was left there"):
        store.delete(path)
        with contextlib.suppress(ObjectNotFoundError):
            store.head(path)
            found.append(Problem("delete", f"{name} still has {path} after it was deleted."))
    return found


def prove_create_only(store: Store, path: str, data: bytes, table: str) -> None:
    """Check, by one small request, that the store refuses a create-only put over an existing object.

    The safety of every commit depends on that refusal.

    :param store: rooted at the table.
    :param path: an object that was put just now, and that may be lost.
    :param data: other bytes than the object has.
    :param table: what messages call the table.
    :raises UnsafeStoreError: the store did not refuse the put.
    """
    try:
        store.create(path, data)
    except (ObjectExistsError, TransientError):
        # A lost answer proves nothing, and is no reason to fail.
        return
    raise UnsafeStoreError(
        f"The store of {table} let a second create-only put through ({path}), so two writers could overwrite each "
        "other's commits without noticing. Nothing was staged. Use a store that honours conditional puts "
        "(If-None-Match: *); one that keeps versions of objects for you is not enough."
    )


@contextlib.contextmanager
def _noting(found: list[Problem], doing: Doing, what: str) -> Iterator[None]:
    try:
        yield
    except OneLakeError as error:
        found.append(Problem(doing, f"{what}: {error}", error))
