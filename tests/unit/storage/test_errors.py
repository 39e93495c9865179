"""What stores say becomes one line in plain words, without what must not be shown."""

from __future__ import annotations

import pytest
from obstore import exceptions as obstore_errors

from airflow_provider_onelake.exceptions import (
    AccessDeniedError,
    ObjectExistsError,
    ObjectNotFoundError,
    StoreNotFoundError,
    StoreUnavailableError,
)
from airflow_provider_onelake.storage.errors import as_store_error, plain_text

DONE = "Error performing PUT http://store/b/k in 1ms - Server returned non-2xx status code: "


def test_inner_structures_colours_and_queries_are_left_out() -> None:
    error = OSError(
        "Kernel error -> Generic S3 error\n  \x1b[31m↳\x1b[0m GET https://store/b/k?sig=hush&se=1 failed"
        '\n\nDebug source:\nGeneric { store: "S3" }'
    )
    assert plain_text(error) == "Kernel error -> Generic S3 error GET https://store/b/k failed"


@pytest.mark.parametrize(
    ("error", "need_not_be", "expected"),
    [
        pytest.param(FileNotFoundError("not found"), False, ObjectNotFoundError, id="no object"),
        pytest.param(FileNotFoundError("not found"), True, StoreNotFoundError, id="nowhere to write"),
        pytest.param(
            obstore_errors.GenericError(f"{DONE}404 Not Found: <Code>NoSuchBucket</Code>"),
            False,
            StoreNotFoundError,
            id="no bucket",
        ),
        pytest.param(
            obstore_errors.AlreadyExistsError(f"Object at location k already exists: {DONE}412 Precondition Failed: "),
            True,
            ObjectExistsError,
            id="S3: exists",
        ),
        pytest.param(
            obstore_errors.AlreadyExistsError(
                f"Object at location k already exists: {DONE}409 Conflict: <Code>BlobAlreadyExists</Code>"
            ),
            True,
            ObjectExistsError,
            id="Azure: exists",
        ),
        pytest.param(
            obstore_errors.AlreadyExistsError("Object at location k already exists: File exists (os error 17)"),
            True,
            ObjectExistsError,
            id="local: exists",
        ),
        pytest.param(
            obstore_errors.AlreadyExistsError(
                f"Object at location k already exists: {DONE}409 Conflict: <Code>ConditionalRequestConflict</Code>"
            ),
            True,
            StoreUnavailableError,
            id="S3: two requests met",
        ),
        pytest.param(
            obstore_errors.AlreadyExistsError(
                f"Object at location k already exists: {DONE}409 Conflict: <Code>ContainerBeingDeleted</Code>"
            ),
            True,
            StoreUnavailableError,
            id="Azure: container goes",
        ),
        pytest.param(
            obstore_errors.GenericError(f"{DONE}400 Bad Request: <Code>ExpiredToken</Code>"),
            False,
            AccessDeniedError,
            id="S3: expired",
        ),
        pytest.param(
            OSError("Kernel error\n ↳ Server returned non-2xx status code\n  ↳ 403 Forbidden"),
            False,
            AccessDeniedError,
            id="deltalake: refused",
        ),
        pytest.param(obstore_errors.GenericError(f"{DONE}503 Slow Down: "), True, StoreUnavailableError, id="busy"),
    ],
)
def test_what_a_store_says_becomes_a_named_error(
    error: Exception, need_not_be: bool, expected: type[Exception]
) -> None:
    assert type(as_store_error(error, "a/b", "the table", need_not_be=need_not_be)) is expected
