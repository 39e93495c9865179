"""What stores say, as the package's own errors: what happened, where, what is safe, what to do."""

from __future__ import annotations

import errno
import re

from airflow_provider_onelake.exceptions import (
    AccessDeniedError,
    ObjectExistsError,
    ObjectNotFoundError,
    OneLakeError,
    StoreFullError,
    StoreNotFoundError,
    StoreUnavailableError,
)

SIGN_IN_REFUSED = "SignInRefused"
"""In the text of what a token provider raises: nobody will get a token this way."""

SIGN_IN_UNANSWERED = "SignInUnanswered"
"""In the text of what a token provider raises: whoever gives tokens did not answer."""


class SignInError(RuntimeError):
    """No token. It passes through obstore, which keeps the text only; the text begins with why."""


# What the operating system says through obstore when a disk is full or must not be written.
_NO_ROOM = (errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EFBIG)
_NO_RIGHT = (errno.EACCES, errno.EPERM)
_MISSING_STORES = ("NoSuchBucket", "ContainerNotFound", "FilesystemNotFound", "WorkspaceNotFound")
# Refusals that S3 and Azure do not answer with 401 or 403.
_REFUSALS = ("ExpiredToken", "InvalidToken", "AuthorizationHeaderMalformed", "InvalidAuthenticationInfo")
_STATUS = re.compile(r"status code\W+(\d{3})")
_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
_QUERY = re.compile(r"(https?://[^\s?\"']+)\?[^\s\"')]+")


def plain_text(error: Exception) -> str:
    """Return what an error says, in one line, without the library's inner structures and without any URL's query.

    :param error: obstore's or deltalake's.
    """
    text = _ESCAPES.sub("", str(error)).partition("\n\nDebug source")[0]
    return _QUERY.sub(r"\1", " ".join(text.replace("↳", " ").split()))


def as_store_error(error: Exception, path: str, name: str, *, need_not_be: bool = False) -> OneLakeError:
    """Return the error of this package for one of obstore's or deltalake's.

    :param error: what was raised.
    :param path: of the object, relative to the table.
    :param name: what messages call the table.
    :param need_not_be: whether there need not have been such an object, as for a put or a listing.
    """
    from obstore import exceptions

    raw, text = str(error), plain_text(error)
    where = f"{path} in {name}" if path else name
    if any(mark in raw for mark in _MISSING_STORES) or (need_not_be and isinstance(error, FileNotFoundError)):
        return StoreNotFoundError(
            f"There is no bucket, container or workspace for {name}. Nothing was written: correct the address, or make "
            f"it. ({text})"
        )
    if isinstance(error, FileNotFoundError):
        return ObjectNotFoundError(f"There is no {where}.")
    if isinstance(error, exceptions.AlreadyExistsError) and _is_there(text):
        return ObjectExistsError(f"There is {where} already.")
    if any(f"os error {number})" in raw for number in _NO_ROOM):
        return StoreFullError(
            f"Cannot write {where}: the disk is full or read-only. Nothing was published; make room or make it "
            f"writable, and clear this task. ({text})"
        )
    if SIGN_IN_UNANSWERED in raw:
        return StoreUnavailableError(f"Whoever gives tokens for {name} did not answer: {text}")
    refused = isinstance(error, exceptions.PermissionDeniedError | exceptions.UnauthenticatedError | PermissionError)
    if (
        refused
        or _status(text) in (401, 403)
        or any(mark in raw for mark in (SIGN_IN_REFUSED, *_REFUSALS))
        or any(f"os error {number})" in raw for number in _NO_RIGHT)
    ):
        return AccessDeniedError(f"Access to {where} was refused. Check the rights of the connection. ({text})")
    return StoreUnavailableError(f"{name} did not answer for {path}: {text}")


def _status(text: str) -> int | None:
    found = _STATUS.search(text)
    return int(found[1]) if found else None


def _is_there(text: str) -> bool:
    # obstore takes every 409 for an object that exists; S3 and Azure also answer so when two requests meet, or when a
    # container is being deleted.
    return _status(text) != 409 or "AlreadyExists" in text.partition("already exists")[2]
