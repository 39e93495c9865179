"""Tells whether a failed request for a token was refused for good or may succeed later."""

from __future__ import annotations

import re

from airflow_provider_onelake.exceptions import causes_of

# Texts that mean "try again", because an error may come without a status: botocore's codes, Entra's codes, and the text
# of msal for an answer that it kept.
_BUSY = re.compile(
    r"Throttl|TooManyRequests|RequestLimitExceeded|BandwidthLimitExceeded|SlowDown|PriorRequestNotComplete"
    r"|RequestTimeout|IDPCommunicationError|AADSTS(?:90006|90024|90033|90055|50196)\b|HTTP Error: (?:429|5\d\d)\b"
)
_TOO_MANY, _SERVERS_FAULT = 429, 500


def is_passing(error: BaseException, silent: tuple[type[BaseException], ...]) -> bool:
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
