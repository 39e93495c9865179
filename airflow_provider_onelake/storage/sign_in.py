"""Asks for a key or a token when it is needed, and tells whether a failure to get one may pass."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from airflow_provider_onelake.exceptions import causes_of
from airflow_provider_onelake.storage.errors import SIGN_IN_REFUSED, SIGN_IN_UNANSWERED, SignInError

if TYPE_CHECKING:
    from airflow_provider_onelake.storage.credentials import Credentials

# obstore calls a provider whenever it needs a key or a token, and again before that expires.
Provider = Callable[[], Any]

# Credentials that have yielded a token in this process. For them, "no credential available" is a transient failure.
_ANSWERED: set[Credentials] = set()

# Texts that mean "try again", because an error may come without a status: botocore's codes, Entra's codes, and the text
# of msal for an answer that it kept.
_BUSY = re.compile(
    r"Throttl|TooManyRequests|RequestLimitExceeded|BandwidthLimitExceeded|SlowDown|PriorRequestNotComplete"
    r"|RequestTimeout|IDPCommunicationError|AADSTS(?:90006|90024|90033|90055|50196)\b|HTTP Error: (?:429|5\d\d)\b"
)
_TOO_MANY, _SERVERS_FAULT = 429, 500


def explained(
    inner: Provider,
    credentials: Credentials,
    silent: tuple[type[Exception], ...],
    nobody: tuple[type[Exception], ...],
) -> Provider:
    """Return a provider whose error says whether trying again may help; obstore takes every error for a refusal.

    :param inner: returns a token.
    :param credentials: the credentials that ``inner`` uses.
    :param silent: errors of a request that got no answer.
    :param nobody: errors that say that no source of tokens was found. They are permanent, unless these credentials have
        yielded a token in this process before.
    """

    def ask() -> Any:
        try:
            given = inner()
        except Exception as error:
            passes = _is_passing(error, silent) or (isinstance(error, nobody) and credentials in _ANSWERED)
            raise SignInError(f"{SIGN_IN_UNANSWERED if passes else SIGN_IN_REFUSED}: {error}") from None
        _ANSWERED.add(credentials)
        return given

    return ask


def _is_passing(error: BaseException, silent: tuple[type[BaseException], ...]) -> bool:
    """Say whether asking for a token again later may succeed.

    azure-identity turns nearly every failure into a refusal, so the causes of an error are examined too.

    :param error: the error that asking for a token raised.
    :param silent: errors of a request that got no answer.
    """
    return any(
        isinstance(one, silent) or _status(one) == _TOO_MANY or _status(one) >= _SERVERS_FAULT or _BUSY.search(str(one))
        for one in causes_of(error)
    )


def _status(error: BaseException) -> int:
    """Return the HTTP status of the answer that caused an error; 0 if it is not known."""
    answer = getattr(error, "response", None)
    if isinstance(answer, dict):
        # The error is botocore's.
        return int(answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    return int(getattr(answer, "status_code", None) or 0)
