"""What stores say becomes one line in plain words, without what must not be shown."""

from __future__ import annotations

import pytest
from obstore import exceptions as obstore_errors

from airflow_provider_onelake.exceptions import (
    AccessDeniedError,
    ObjectExistsError,
    ObjectNotFoundError,
    StoreNotFoundError,
    StoreRefusedError,
    StoreUnavailableError,
)
from airflow_provider_onelake.storage.errors import Doing, as_store_error, plain_text

DONE = "Error performing PUT http://store/b/k in 1ms - Server returned non-2xx status code: "


def refusal(answer: str) -> Exception:
    """What obstore raises for an answer of a store."""
    return obstore_errors.GenericError(f"{DONE}{answer}")


def conflict(code: str) -> Exception:
    """What obstore raises for any answer 409 to a create-only put."""
    answer = f"{DONE}409 Conflict: <Code>{code}</Code>"
    return obstore_errors.AlreadyExistsError(f"Object at location k already exists: {answer}")


def test_inner_structures_colours_and_queries_are_left_out() -> None:
    error = OSError(
        "Kernel error -> Generic S3 error\n  \x1b[31m↳\x1b[0m GET https://store/b/k?sig=hush&se=1 failed"
        '\n\nDebug source:\nGeneric { store: "S3" }'
    )
    assert plain_text(error) == "Kernel error -> Generic S3 error GET https://store/b/k failed"


def test_of_an_answer_in_xml_the_code_and_the_message_are_left() -> None:
    answer = (
        '<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>SignatureDoesNotMatch</Code><Message>The signature does '
        "not match.</Message><AWSAccessKeyId>AKID</AWSAccessKeyId><StringToSign>hush</StringToSign></Error>"
    )
    error = refusal(f"403 Forbidden: {answer}")
    assert plain_text(error) == f"{DONE}403 Forbidden: SignatureDoesNotMatch: The signature does not match."


def test_of_an_answer_in_json_the_code_and_the_message_are_left() -> None:
    answer = '{"error":{"code":"BadRequest","message":"WorkspaceId is \\"missing\\"","innererror":{"token":"hush"}}}'
    error = refusal(f"400 Bad Request: {answer}")
    assert plain_text(error) == f'{DONE}400 Bad Request: BadRequest: WorkspaceId is \\"missing\\"'


def test_a_long_answer_is_cut() -> None:
    assert len(plain_text(refusal(f"400 Bad Request: {'<p>' * 5000}"))) < 1100


@pytest.mark.parametrize(
    ("error", "doing", "expected"),
    [
        pytest.param(FileNotFoundError("not found"), "read", ObjectNotFoundError, id="no object"),
        pytest.param(FileNotFoundError("not found"), "write", StoreNotFoundError, id="nowhere to write"),
        pytest.param(refusal("404 Not Found: <Code>NoSuchBucket</Code>"), "read", StoreNotFoundError, id="no bucket"),
        pytest.param(
            obstore_errors.AlreadyExistsError(f"Object at location k already exists: {DONE}412 Precondition Failed: "),
            "write",
            ObjectExistsError,
            id="S3: exists",
        ),
        pytest.param(conflict("BlobAlreadyExists"), "write", ObjectExistsError, id="Azure: exists"),
        pytest.param(
            obstore_errors.AlreadyExistsError("Object at location k already exists: File exists (os error 17)"),
            "write",
            ObjectExistsError,
            id="local: exists",
        ),
        pytest.param(conflict("ConditionalRequestConflict"), "write", StoreUnavailableError, id="S3: two requests met"),
        pytest.param(conflict("ContainerBeingDeleted"), "write", StoreUnavailableError, id="Azure: container goes"),
        pytest.param(
            refusal("400 Bad Request: <Code>ExpiredToken</Code>"), "read", AccessDeniedError, id="S3: expired"
        ),
        pytest.param(
            obstore_errors.GenericError("Error deleting lake/k: Access Denied. (code: AccessDenied)"),
            "delete",
            AccessDeniedError,
            id="S3: may not delete",
        ),
        pytest.param(
            OSError("Kernel error\n ↳ Server returned non-2xx status code\n  ↳ 403 Forbidden"),
            "read",
            AccessDeniedError,
            id="deltalake: refused",
        ),
        pytest.param(
            obstore_errors.InvalidPathError(
                'Encountered object with invalid path: Path "t/a//b" contained empty path segment'
            ),
            "list",
            StoreRefusedError,
            id="S3: an odd name",
        ),
        pytest.param(
            obstore_errors.GenericError("Unable to walk dir: Input/output error (os error 5)"),
            "list",
            StoreRefusedError,
            id="local: the disk failed",
        ),
        pytest.param(
            obstore_errors.GenericError("Unable to copy: Input/output error (os error 5)"),
            "write",
            StoreUnavailableError,
            id="local: the disk failed, so the outcome is unknown",
        ),
        pytest.param(refusal("503 Slow Down: "), "write", StoreUnavailableError, id="busy"),
        pytest.param(
            refusal("400 Bad Request: <Code>InvalidUri</Code>"), "write", StoreRefusedError, id="a wrong request"
        ),
        pytest.param(
            refusal("400 Bad Request: <Code>RequestTimeout</Code>"), "write", StoreUnavailableError, id="S3: too slow"
        ),
        pytest.param(refusal("429 Too Many Requests: "), "read", StoreUnavailableError, id="too many"),
        pytest.param(conflict("BlobImmutableDueToPolicy"), "write", StoreRefusedError, id="Azure: immutable"),
        pytest.param(
            OSError("Kernel error\n ↳ Server returned non-2xx status code\n  ↳ 400 Bad Request"),
            "read",
            StoreRefusedError,
            id="deltalake: a wrong request",
        ),
    ],
)
def test_what_a_store_says_becomes_a_named_error(error: Exception, doing: Doing, expected: type[Exception]) -> None:
    assert type(as_store_error(error, "a/b", "the table", doing)) is expected


def test_a_tenant_that_knows_no_names_is_told_apart_from_a_store_that_is_away() -> None:
    error = refusal("400 Bad Request: <Code>FriendlyNameSupportDisabled</Code>")
    found = as_store_error(error, "a/b", "onelake://sales/raw.Lakehouse/Tables/t", "read")
    assert type(found) is StoreRefusedError
    assert "GUIDs only" in str(found)
    assert "onelake://<workspace GUID>/<item GUID>" in str(found)


@pytest.mark.parametrize(
    ("name", "doing", "right"),
    [
        ("s3://lake/t", "write", "lacks s3:PutObject,"),
        ("s3://lake/t", "list", "lacks s3:ListBucket,"),
        ("onelake://sales/raw.Lakehouse/Tables/t", "read", "lacks the role Contributor on the workspace,"),
        ("abfss://raw@lake.dfs.core.windows.net/t", "delete", "lacks the role Storage Blob Data Contributor,"),
        ("/data/t", "write", "lacks the right to write,"),
    ],
)
def test_a_refusal_names_what_was_tried_and_the_right_that_is_missing(name: str, doing: Doing, right: str) -> None:
    said = str(as_store_error(PermissionError("403 Forbidden"), "a/b", name, doing))
    assert said.startswith(f"Not allowed to {doing} a/b in {name}: ")
    assert right in said
