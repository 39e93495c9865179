"""Turns errors of stores into the package's own, which say what happened, where, what is safe and what to do."""

from __future__ import annotations

import errno
import re
from typing import Literal

from airflow_provider_onelake.exceptions import (
    AccessDeniedError,
    ObjectExistsError,
    ObjectNotFoundError,
    OneLakeError,
    StoreFullError,
    StoreNotFoundError,
    StoreRefusedError,
    StoreUnavailableError,
)
from airflow_provider_onelake.storage.addresses import kind_of

SIGN_IN_REFUSED = "SignInRefused"
"""A mark in the text of a token provider's error: the credentials were refused, and trying again changes nothing."""

SIGN_IN_UNANSWERED = "SignInUnanswered"
"""A mark in the text of a token provider's error: the service that gives tokens did not answer."""


Doing = Literal["read", "write", "list", "delete"]
"""The operations on an object, as messages name them."""


class SignInError(RuntimeError):
    """There is no token. obstore keeps only the error's text, so the text begins with a mark that says why."""


# Error numbers of the operating system, which obstore passes on: the disk is full or read-only; a right is missing.
_NO_ROOM = (errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EFBIG)
_NO_RIGHT = (errno.EACCES, errno.EPERM)
# No object can have such a name, or none can be below it.
_NO_SUCH_NAME = (errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR, errno.EEXIST, errno.EILSEQ)
_MISSING_STORES = ("NoSuchBucket", "ContainerNotFound", "FilesystemNotFound", "WorkspaceNotFound")
# Refused rights that S3 and Azure do not answer with 401 or 403. The first comes from a delete of several objects.
_REFUSALS = (
    "(code: AccessDenied)",
    "ExpiredToken",
    "InvalidToken",
    "AuthorizationHeaderMalformed",
    "InvalidAuthenticationInfo",
)
# Answers whose status says that the request is wrong, though the same request may succeed later. S3 gives the first
# ones when the connection was slow.
_PASSING = ("RequestTimeout", "IncompleteBody", "PriorRequestNotComplete")
_PASSING_STATUS = (404, 408, 425, 429)
# A 409 usually means a conflict that passes, such as another request at the same time. These conflicts do not pass.
_LASTING_CONFLICTS = (
    "BlobImmutableDueToPolicy",
    "DirectoryIsNotEmpty",
    "InvalidBlobType",
    "PublicAccessNotPermitted",
    "ResourceTypeMismatch",
    "SnapshotsPresent",
)
_NAMES_ARE_OFF = "FriendlyNameSupportDisabled"
_OS_ERROR = re.compile(r"os error (\d+)\)")
_STATUS = re.compile(r"status code\W+(\d{3})")
_SAFE = "What is staged or published stays, and nothing is done twice: try again, or clear this task."
_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
# The part of an answer of S3 or Blob storage that is for people.
_ANSWER = re.compile(r"<\?xml[^>]*>.*?<Code>([^<]*)</Code>\s*<Message>([^<]*)</Message>.*?</Error>")
# The same part of an answer of OneLake, which is JSON.
_JSON_ANSWER = re.compile(
    r'\{\s*"error"\s*:\s*\{\s*"code"\s*:\s*"([^"]*)"\s*,\s*"message"\s*:\s*"((?:[^"\\]|\\.)*)".*\}'
)
_LONGEST = 1000
_QUERY = re.compile(r"(https?://[^\s?\"']+)\?[^\s\"')]+")


def plain_text(error: Exception) -> str:
    """Return the text of an error in one line, without inner structures, ids of requests and queries of URLs.

    :param error: obstore's or deltalake's.
    """
    text = _ESCAPES.sub("", str(error)).partition("\n\nDebug source")[0]
    line = " ".join(text.replace("↳", " ").split())
    for answer in (_ANSWER, _JSON_ANSWER):
        line = answer.sub(r"\1: \2", line)
    line = _QUERY.sub(r"\1", line)
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…"


def as_store_error(error: Exception, path: str, address: str, doing: Doing = "read") -> OneLakeError:
    """Return the error of this package for one of obstore's or deltalake's.

    :param error: the error that was raised.
    :param path: the object's path, relative to the table.
    :param address: of the store's root, as messages have it.
    :param doing: the operation that failed. A write and a list need no object, so for them "not found" means that the
        store itself is missing.
    """
    from obstore import exceptions

    raw, text = str(error), plain_text(error)
    where = f"{path} in {address}" if path else address
    if any(mark in raw for mark in _MISSING_STORES) or (
        doing in ("write", "list") and isinstance(error, FileNotFoundError)
    ):
        return StoreNotFoundError(
            f"There is no bucket, container or workspace for {address}. Nothing was written: correct the address, or "
            f"make it. ({text})"
        )
    if isinstance(error, FileNotFoundError):
        return ObjectNotFoundError(f"There is no {where}.")
    if isinstance(error, exceptions.AlreadyExistsError) and _is_there(text):
        return ObjectExistsError(f"There is {where} already.")
    number = _number(error, raw)
    if number in _NO_ROOM:
        return StoreFullError(
            f"Cannot write {where}: the disk is full or read-only. Nothing was published; make room or make it "
            f"writable, and clear this task. ({text})"
        )
    unreadable = isinstance(error, exceptions.InvalidPathError | UnicodeError) or raw.startswith("Could not parse path")
    if unreadable or number in _NO_SUCH_NAME:
        return StoreRefusedError(
            f"Cannot {doing} {where}: a name there cannot be read, is too long, leads through a file, or is a loop of "
            f"links. Rename or delete it, and clear this task. What is staged or published stays. ({text})"
        )
    if number == errno.EIO and doing != "write":
        # After a write, the outcome is unknown, so whoever wrote has to look again.
        return StoreRefusedError(
            f"Cannot {doing} {where}: the disk failed. What is staged or published stays as it is on the disk: look at "
            f"the disk or its mount, and clear this task. ({text})"
        )
    if SIGN_IN_UNANSWERED in raw:
        return StoreUnavailableError(f"The service that gives tokens for {address} did not answer. {_SAFE} ({text})")
    refused = isinstance(error, exceptions.PermissionDeniedError | exceptions.UnauthenticatedError | PermissionError)
    if (
        refused
        or _status(text) in (401, 403)
        or any(mark in raw for mark in (SIGN_IN_REFUSED, *_REFUSALS))
        or number in _NO_RIGHT
    ):
        return AccessDeniedError(
            f"Not allowed to {doing} {where}: the connection's identity lacks {_right(address, doing)}, or the store "
            f"refused its sign-in. Mend the connection, or the identity's rights. ({text})"
        )
    if _NAMES_ARE_OFF in raw:
        return StoreRefusedError(
            f"The tenant takes GUIDs only, for both the workspace and the item, so {address} is not to be had by "
            "names. Write the connection's lakehouse, or the table's address, as onelake://<workspace GUID>/<item "
            f"GUID>; both stand in the portal's address of the lakehouse. Nothing was done. ({text})"
        )
    status = _status(text)
    if status is not None and _is_refused(status, raw):
        return StoreRefusedError(
            f"The store refused to {doing} {where}, and trying again changes nothing. What is staged or published "
            f"stays. It says: {text}"
        )
    return StoreUnavailableError(f"The store did not answer for {where}. {_SAFE} ({text})")


def _right(address: str, doing: Doing) -> str:
    """Name the right that is needed, as the store's owner knows it."""
    kind = kind_of(address)
    return f"the right to {doing}" if kind is None else kind.right_to(doing)


def _number(error: Exception, text: str) -> int | None:
    """Return the operating system's number of an error, which obstore has in its text alone."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno
    found = _OS_ERROR.search(text)
    return int(found[1]) if found else None


def _status(text: str) -> int | None:
    found = _STATUS.search(text)
    return int(found[1]) if found else None


def _is_refused(status: int, answer: str) -> bool:
    """Say whether an answer means that the same request will never succeed."""
    if status == 409:
        return any(code in answer for code in _LASTING_CONFLICTS)
    return 400 <= status < 500 and status not in _PASSING_STATUS and not any(code in answer for code in _PASSING)


def _is_there(text: str) -> bool:
    # obstore takes every 409 to mean that the object exists. S3 and Azure also answer 409 when two requests meet, or
    # when a container is being deleted.
    return _status(text) != 409 or "AlreadyExists" in text.partition("already exists")[2]
