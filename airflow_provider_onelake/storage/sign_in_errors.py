"""What those who give tokens say: no for good, or not now."""

from __future__ import annotations

import re
from collections.abc import Iterator

# They may come without a status: botocore's codes, those of Entra for "try again", msal's word for an answer it kept.
_BUSY = re.compile(
    r"Throttl|TooManyRequests|RequestLimitExceeded|BandwidthLimitExceeded|SlowDown|PriorRequestNotComplete"
    r"|RequestTimeout|IDPCommunicationError|AADSTS(?:90006|90024|90033|90055|50196)\b|HTTP Error: (?:429|5\d\d)\b"
)
_TOO_MANY, _SERVERS_FAULT = 429, 500


def is_passing(error: BaseException, silent: tuple[type[BaseException], ...]) -> bool:
    """Say whether a token may be given to whoever asks again later.

    azure-identity makes a refusal of nearly everything, so the errors behind an error count too.

    :param error: what asking for a token raised.
    :param silent: errors of a request that got no answer.
    """
    return any(
        isinstance(one, silent) or _status(one) == _TOO_MANY or _status(one) >= _SERVERS_FAULT or _BUSY.search(str(one))
        for one in _chain(error)
    )


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def _status(error: BaseException) -> int:
    """Return the status of the answer that an error is about, 0 where it is not known."""
    answer = getattr(error, "response", None)
    if isinstance(answer, dict):
        # botocore's.
        return int(answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    return int(getattr(answer, "status_code", None) or 0)
