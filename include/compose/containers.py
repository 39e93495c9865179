"""What a workspace of OneLake is at Azurite: a container of its account."""

from __future__ import annotations

import base64
import hashlib
import hmac
from email.utils import formatdate

import httpx

ACCOUNT = "onelake"
"""Azurite's account: the one that OneLake's addresses name."""


def make_container(account_endpoint: str, account_key: str, name: str) -> None:
    """Make a container of Azurite's account, if there is none.

    :param account_endpoint: address of the account.
    :param account_key: in base64.
    :param name: of a workspace: small letters, digits, hyphens.
    :raises RuntimeError: the server refuses.
    """
    date = formatdate(usegmt=True)
    signed = "\n".join(
        ["PUT", *[""] * 11, f"x-ms-date:{date}\nx-ms-version:2023-11-03", f"/{ACCOUNT}/{ACCOUNT}/{name}"]
    )
    digest = hmac.digest(base64.b64decode(account_key), f"{signed}\nrestype:container".encode(), hashlib.sha256)
    answer = httpx.put(
        f"{account_endpoint}/{name}?restype=container",
        headers={
            "x-ms-date": date,
            "x-ms-version": "2023-11-03",
            "Authorization": f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}",
        },
        timeout=10,
    )
    if answer.is_error and answer.status_code != httpx.codes.CONFLICT:
        raise RuntimeError(f"Azurite made no container {name}: {answer.status_code} {answer.text!r}")
