"""Single deletes on Azure: patient, by tokens that are renewed, and of nothing but what was meant."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from airflow_provider_onelake.exceptions import (
    AccessDeniedError,
    AddressError,
    StoreRefusedError,
    StoreUnavailableError,
)
from airflow_provider_onelake.storage.azure import AzureCredentials
from airflow_provider_onelake.storage.azure_deletes import BlobDeletes
from airflow_provider_onelake.storage.errors import SIGN_IN_REFUSED, SIGN_IN_UNANSWERED, SignInError
from tests.support.object_stores import Lake
from tests.support.onelake import BY_GUIDS, TOKEN, Asked, OneLake, RefusalError

BELOW = "a1b2c3d4-e5f6-4789-8abc-def012345678/Tables/t"


class Tokens:
    """Gives a token that lives for so long, and counts how often it was asked."""

    def __init__(self, lives: timedelta | None = None) -> None:
        self.lives = lives
        self.asked = 0

    def __call__(self) -> dict[str, Any]:
        self.asked += 1
        return {"token": TOKEN, "expires_at": None if self.lives is None else datetime.now(UTC) + self.lives}


def deletes(onelake: OneLake, provider: Any = None, patience: float = 5) -> BlobDeletes:
    directory = f"{onelake.url}/{BY_GUIDS.removeprefix('onelake://')}/Tables/t"
    return BlobDeletes(directory, provider or Tokens(), "the table", patience=patience, silence=5)


def busy(times: int, status: int, code: str = "ServerBusy") -> Any:
    left = [RefusalError(status, code, "Try again.")] * times

    def fault(_: Asked) -> RefusalError | None:
        return left.pop() if left else None

    return fault


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random, "uniform", lambda low, high: 0.0)


@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_a_busy_store_is_asked_again(onelake: OneLake, status: int) -> None:
    onelake.lake().log().store.put("x", b"")
    onelake.faults = busy(3, status)
    deletes(onelake)("x")
    assert onelake.blobs == {}
    assert [asked.method for asked in onelake.asked].count("DELETE") == 4


def test_patience_has_an_end(onelake: OneLake) -> None:
    onelake.faults = busy(2, 503)
    with pytest.raises(StoreUnavailableError, match="The store did not answer for x in the table"):
        deletes(onelake, patience=0)("x")
    assert len(onelake.asked) == 1


def test_a_store_that_is_away_is_asked_again_and_then_said_to_be(onelake: OneLake) -> None:
    onelake.url = "http://127.0.0.1:1"
    with pytest.raises(StoreUnavailableError, match="The store did not answer for x in the table"):
        deletes(onelake, patience=0.05)("x")


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (401, "InvalidAuthenticationInfo", AccessDeniedError),
        (403, "AuthorizationPermissionMismatch", AccessDeniedError),
        (400, "InvalidUri", StoreRefusedError),
        (409, "DirectoryIsNotEmpty", StoreRefusedError),
    ],
)
def test_a_refusal_is_not_tried_again_and_shows_no_token(
    onelake: OneLake, status: int, code: str, expected: type[Exception]
) -> None:
    onelake.faults = busy(2, status, code)
    with pytest.raises(expected, match=f"{code}: Try again") as refused:
        deletes(onelake)("x")
    assert len(onelake.asked) == 1
    assert TOKEN not in str(refused.value)


@pytest.mark.parametrize("path", ["", "a/../b", "../b", "a//b", "./a", "/a"])
def test_a_path_that_leads_elsewhere_deletes_nothing(onelake: OneLake, path: str) -> None:
    with pytest.raises(AddressError, match="Nothing was deleted"):
        deletes(onelake)(path)
    assert onelake.asked == []


@pytest.mark.parametrize("path", ["x y", "100%", "a%20b", "ü", "a=b:c+d", "q?&#!", "[1]", "~'\""])
def test_the_very_object_goes_whatever_it_is_called(onelake: OneLake, path: str) -> None:
    deletes(onelake)(f"month={path}/part")
    assert [asked.path.partition(BELOW)[2] for asked in onelake.asked] == [f"/month={path}/part"]


def test_a_token_is_kept_until_it_is_about_to_expire(onelake: OneLake) -> None:
    for lives, asked in ((None, 1), (timedelta(hours=1), 1), (timedelta(minutes=4), 3)):
        tokens = Tokens(lives)
        delete = deletes(onelake, tokens)
        for _ in range(3):
            delete("x")
        assert tokens.asked == asked


@pytest.mark.parametrize(
    ("why", "expected"), [(SIGN_IN_REFUSED, AccessDeniedError), (SIGN_IN_UNANSWERED, StoreUnavailableError)]
)
def test_where_no_token_is_given_it_is_said_whether_that_may_pass(
    onelake: OneLake, why: str, expected: type[Exception]
) -> None:
    def refuse() -> Any:
        raise SignInError(f"{why}: no")

    with pytest.raises(expected):
        deletes(onelake, refuse, patience=0)("x")


def test_an_account_key_leaves_deletes_to_obstore() -> None:
    for credentials, expected in (
        (AzureCredentials(sign_in="account_key", account_key="aGk="), False),
        (AzureCredentials(sign_in="token", token=TOKEN), True),
    ):
        for root in (BY_GUIDS, "abfss://lake@acct.dfs.core.windows.net/raw"):
            lake = Lake("azure", root, credentials)
            address = lake.address()
            assert (address.kind.deletes(address, credentials, 1) is not None) is expected
