"""Livy's REST for batches, as Apache Livy and Fabric have it: https://livy.apache.org/docs/latest/rest-api.html.

Fabric's differs. Ids are GUIDs, all fields of an answer are optional, 430 says that the capacity has no room for
another Spark job, and a batch may be unknown for a moment after it was made. What both have in common is all that is
used here.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any

import attrs
import httpx

from airflow_provider_onelake.exceptions import (
    AccessDeniedError,
    OneLakeError,
    SparkSetUpError,
    SparkUnavailableError,
)

_SILENCE = httpx.Timeout(30.0, connect=5.0)
_SHORTEST, _LONGEST = 0.5, 15.0
_LONGEST_AFTER = 60.0
_PAGE = 100
_NO_RIGHT, _NOT_FOUND = (401, 403), 404
_BUSY = (429, 430)
_NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_SERVERS_FAULT = 500
_LONGEST_WORDS = 500
# Livy answers 400 where a server has as many sessions as it takes: https://github.com/apache/livy/pull/297
_NO_ROOM = ("too many sessions", "too many batches")

_OVER = ("success", "dead", "killed", "error")
_FABRIC_OVER = ("error", "cancelled", "canceled", "expired")
_RESULTS = ("succeeded", "failed", "cancelled", "canceled")


class NotThereError(SparkUnavailableError):
    """Livy knows no such batch, now."""


class UnansweredError(SparkUnavailableError):
    """A request got no answer. Whether it was obeyed is not known."""


class _NotReachedError(SparkUnavailableError):
    """A request was not sent, because there was no connection."""


class _NoRoomError(SparkUnavailableError):
    """Livy has refused a request that it may obey later.

    :param after: seconds; ``None`` if Livy does not say.
    """

    def __init__(self, said: str, after: float | None = None) -> None:
        super().__init__(said)
        self.after = after


@attrs.frozen
class Batch:
    """What Livy says of a batch. Any part may be missing.

    :param said: the answer.
    """

    said: Mapping[str, Any]

    @property
    def id(self) -> str | None:
        """Its id, which is a number or a GUID."""
        found = self.said.get("id")
        return None if found is None else str(found)

    @property
    def name(self) -> str | None:
        """The name that it was made with."""
        return self.said.get("name")

    @property
    def states(self) -> dict[str, str]:
        """What is said of its state, by where: Livy's own, and in Fabric the capacity's and the job's result too."""
        found = {
            "state": self.said.get("state"),
            "livyInfo": _inner(self.said, "livyInfo").get("currentState"),
            "fabricBatchStateInfo": _inner(self.said, "fabricBatchStateInfo").get("state"),
            "result": self.said.get("result"),
        }
        return {where: str(value).lower() for where, value in found.items() if value}

    @property
    def is_over(self) -> bool:
        """Whether it has ended. A capacity's refusal stands in ``fabricBatchStateInfo`` alone."""
        said = self.states
        return (
            said.get("state") in _OVER
            or said.get("livyInfo") in _OVER
            or said.get("fabricBatchStateInfo") in _FABRIC_OVER
            or said.get("result") in _RESULTS
        )

    @property
    def words(self) -> str:
        """What is said of its state and of its errors, for people."""
        told: list[Any] = [", ".join(f"{where} {state}" for where, state in self.states.items()) or "it says no state"]
        told += [_inner(self.said, "fabricBatchStateInfo").get("errorMessage"), self.said.get("cancellationReason")]
        told += [
            " ".join(filter(None, (each.get("errorCode"), each.get("message"))))
            for each in self.said.get("errorInfo") or []
        ]
        return "; ".join(str(each)[:_LONGEST_WORDS] for each in told if each)


class LivyClient:
    """Asks one Livy server, in as many requests as it takes.

    :param address: of the server.
    :param headers: returns the headers that sign a request in.
    :param patience: seconds for which a request is sent again.
    :param pause: waits for some seconds, and returns whether nobody wants the answer any more.
    """

    def __init__(
        self,
        address: str,
        headers: Callable[[], Mapping[str, str]],
        patience: float,
        pause: Callable[[float], bool],
    ) -> None:
        self.address = address
        self._headers = headers
        self._patience = patience
        self._pause = pause

    def create(self, body: Mapping[str, Any]) -> Batch:
        """Make a batch. It is never asked for twice, unless Livy has refused.

        :param body: of the request.
        :raises UnansweredError: it may be there, or may come to be there.
        :raises SparkUnavailableError: there is no room for it, and was none for as long as the patience lasts.
        :raises SparkSetUpError: Livy refuses it.
        :raises AccessDeniedError: the identity may not.
        """
        try:
            return Batch(self._ask("POST", "/batches", self._patience, once=True, json=body))
        except _NoRoomError as error:
            raise SparkUnavailableError(
                f"{error} Nothing was submitted. Try again later: give the task `retries`, and a `retry_delay` for as "
                "long as there may be no room."
            ) from error

    def get(self, batch: str) -> Batch:
        """Return a batch.

        :param batch: its id.
        :raises NotThereError: there is none, or it is not shown yet.
        :raises SparkUnavailableError: Livy does not answer.
        """
        return Batch(self._ask("GET", f"/batches/{batch}"))

    def check(self) -> None:
        """Ask whether Livy answers, and lets this identity see its batches.

        :raises NotThereError: there is no Livy at the address.
        :raises SparkUnavailableError: Livy did not answer for as long as the patience lasts.
        :raises AccessDeniedError: the identity may not.
        """
        self._ask("GET", "/batches", self._patience)

    def all(self) -> Iterator[Batch]:
        """Yield the batches that Livy shows, page by page. Fabric shows them all at once, without a number.

        :raises SparkUnavailableError: Livy does not answer.
        """
        seen = 0
        while True:
            said = self._ask("GET", "/batches", params={"from": seen, "size": _PAGE} if seen else None)
            found = said.get("sessions") or said.get("items") or said.get("value") or []
            yield from map(Batch, found)
            seen += len(found)
            if not found or seen >= int(said.get("total") or 0):
                return

    def delete(self, batch: str) -> None:
        """End a batch, whether it runs or waits.

        :param batch: its id.
        :raises NotThereError: there is none, or it is not shown yet.
        :raises SparkUnavailableError: Livy does not answer.
        """
        self._ask("DELETE", f"/batches/{batch}")

    def log(self, batch: str, lines: int = 30) -> list[str]:
        """Return the last lines of a batch's log; none, if Livy does not have it.

        :param batch: its id.
        :param lines: as many at most.
        """
        try:
            said = self._ask("GET", f"/batches/{batch}/log", params={"size": lines})
        except OneLakeError:
            return []
        return [str(line) for line in said.get("log") or []][-lines:]

    def _ask(self, method: str, path: str, patience: float = 0.0, *, once: bool = False, **more: Any) -> dict[str, Any]:
        until, pause = time.monotonic() + patience, _SHORTEST
        after: float | None
        last: SparkUnavailableError
        while True:
            try:
                return self._send(method, path, **more)
            except NotThereError:
                raise
            except UnansweredError as error:
                if once:
                    raise
                after, last = None, error
            except _NotReachedError as error:
                after, last = None, error
            except _NoRoomError as error:
                after, last = error.after, error
            wait = random.uniform(pause / 2, pause) if after is None else after  # noqa: S311 - no secret comes of it
            if time.monotonic() + wait > until:
                # Whoever asks again by himself does so soon, but not before Livy wants to be asked.
                if not patience and after is not None:
                    self._pause(min(after, _LONGEST_AFTER))
                raise last
            if self._pause(wait):
                raise last
            pause = min(2 * pause, _LONGEST)

    def _send(self, method: str, path: str, **more: Any) -> dict[str, Any]:
        # Livy refuses changes without the second header where it is protected from pages of others.
        headers = {**self._headers(), "X-Requested-By": "airflow"}
        what = f"{method} {path}"
        try:
            answer = self._client.request(method, f"{self.address}{path}", headers=headers, **more)
        except _NEVER_SENT as error:
            raise _NotReachedError(
                f"Livy at {self.address} does not answer {what} ({type(error).__name__}: {error})."
            ) from error
        except httpx.TransportError as error:
            raise UnansweredError(
                f"Livy at {self.address} does not answer {what} ({type(error).__name__}: {error})."
            ) from error
        status, said = answer.status_code, _words(answer)
        if status in _BUSY or (status == 400 and any(words in said.lower() for words in _NO_ROOM)):
            after = answer.headers.get("retry-after", "")
            raise _NoRoomError(
                f"Livy at {self.address} has no room for {what} now: {said}",
                float(after) if after.isdecimal() else None,
            )
        if status >= _SERVERS_FAULT:
            raise UnansweredError(f"Livy at {self.address} fails at {what}: {said}")
        if status == _NOT_FOUND:
            raise NotThereError(f"Livy at {self.address} finds nothing at {what}: {said}")
        if status in _NO_RIGHT:
            raise AccessDeniedError(
                f"Livy refuses {what} at {self.address}: {said} Correct the sign-in of the connection, or give the "
                "identity the right to run Spark there. The table is unchanged."
            )
        if not answer.is_success:
            raise SparkSetUpError(f"Livy refuses {what} at {self.address}: {said} The table is unchanged.")
        if not answer.content:
            return {}
        try:
            found = answer.json()
        except ValueError as error:
            raise UnansweredError(f"Livy at {self.address} answers {what} with no JSON.") from error
        return found if isinstance(found, dict) else {"value": found}

    @cached_property
    def _client(self) -> httpx.Client:
        # Made when it is first needed, because a client that was made before a fork must not be used after.
        return httpx.Client(timeout=_SILENCE)


def _inner(said: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = said.get(name)
    return found if isinstance(found, dict) else {}


def _words(answer: httpx.Response) -> str:
    """Return the status, and what Livy or Fabric says about it."""
    try:
        said = answer.json()
        text = said.get("msg") or " ".join(filter(None, (said.get("errorCode"), said.get("message"))))
    except (ValueError, AttributeError):
        text = answer.text.strip()
    return f"{answer.status_code} {str(text or answer.reason_phrase)[:_LONGEST_WORDS].rstrip('.')}."
