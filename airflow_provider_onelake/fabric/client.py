"""The one client of JSON over HTTP: what is sent again, after which pause, and what must not be sent twice."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import attrs
import httpx
from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception,
    stop_before_delay,
    stop_when_event_set,
    wait_random_exponential,
)

_SERVERS_FAULT = 500
# 430: the capacity has no room for another Spark job.
# https://learn.microsoft.com/fabric/data-engineering/spark-job-concurrency-and-queueing
_TOO_MANY = (429, 430)
_NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
# Seconds without any data after which a request counts as unanswered.
_SILENCE = httpx.Timeout(30.0, connect=5.0)
_GROWING = wait_random_exponential(0.1, 10)
_LONGEST_WORDS = 500


class BusyError(Exception):
    """A request was not answered, or the service wants to be asked again later.

    :param said: by the service, or why there is no answer.
    :param after: seconds after which to ask again; ``None`` if the service does not say.
    :param unknown: whether the request may have been obeyed.
    """

    def __init__(self, said: str, after: float | None = None, *, unknown: bool = True) -> None:
        super().__init__(said)
        self.after = after
        self.unknown = unknown


@attrs.define(slots=False, eq=False, repr=False)
class Client:
    """Sends requests to one service, each again while it gets no answer, 429, 430 or 5xx.

    The pauses grow, unless ``Retry-After`` says how long they are.

    :param address: of the service, without a slash at the end.
    :param headers: returns the headers that sign a request in.
    :param patience: seconds for which a request is sent again.
    :param unwanted: set when nobody wants an answer any more; then no request is sent again. Default: never.
    """

    address: str
    headers: Callable[[], Mapping[str, str]]
    patience: float
    unwanted: threading.Event = attrs.field(factory=threading.Event)

    def send(self, method: str, path: str, *, once: bool = False, **more: Any) -> httpx.Response:
        """Send a request, and return the answer, whatever its status.

        :param method: of HTTP.
        :param path: below the address.
        :param once: whether the request must not be sent again where it may have been obeyed. Default: it may.
        :param more: as :meth:`httpx.Client.request` takes it.
        :raises BusyError: there was no answer for as long as the patience lasts, or ``Retry-After`` is longer.
        :raises OneLakeError: the sign-in failed.
        """
        tries = Retrying(
            retry=retry_if_exception(lambda error: isinstance(error, BusyError) and not (once and error.unknown)),
            stop=stop_before_delay(self.patience) | stop_when_event_set(self.unwanted),
            sleep=self._pause,
            wait=_wait,
            reraise=True,
        )
        answer: httpx.Response = tries(self._send, method, path, **more)
        return answer

    def has_no_room(self, answer: httpx.Response) -> bool:
        """Say whether the service has refused a request that it may obey later."""
        return answer.status_code in _TOO_MANY

    def _pause(self, seconds: float) -> None:
        if self.unwanted.wait(seconds):
            raise BusyError("nobody waits for the answer any more.", unknown=False)

    def _send(self, method: str, path: str, *, headers: Mapping[str, str] | None = None, **more: Any) -> httpx.Response:
        signed = {**(headers or {}), **self.headers()}
        try:
            answer = self._client.request(method, f"{self.address}{path}", headers=signed, **more)
        except httpx.TransportError as error:
            unknown = not isinstance(error, _NEVER_SENT)
            raise BusyError(f"{type(error).__name__}: {error}.", unknown=unknown) from error
        no_room = self.has_no_room(answer)
        if no_room or answer.status_code >= _SERVERS_FAULT:
            after = answer.headers.get("retry-after", "")
            raise BusyError(words(answer), float(after) if after.isdecimal() else None, unknown=not no_room)
        return answer

    @cached_property
    def _client(self) -> httpx.Client:
        # Made when it is first needed, because a client that was made before a fork must not be used after.
        return httpx.Client(timeout=_SILENCE)


def words(answer: httpx.Response) -> str:
    """Return the status of an answer and what the service says about it, as a sentence."""
    try:
        said, request = answer.json(), ""
        # Power BI says it one level deeper.
        said = said["error"] if isinstance(said.get("error"), dict) else said
        text = ": ".join(str(said[name]) for name in ("errorCode", "code", "message", "msg") if said.get(name))
        request = f" (request {said['requestId']})" if said.get("requestId") else ""
    except (ValueError, AttributeError):
        text, request = answer.text.strip(), ""
    return f"{answer.status_code} {(text or answer.reason_phrase)[:_LONGEST_WORDS].rstrip('.')}{request}."


def _wait(state: RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome is not None else None
    after = error.after if isinstance(error, BusyError) else None
    return _GROWING(state) if after is None else after
