"""Livy's REST for batches, as Apache Livy and Fabric have it: https://livy.apache.org/docs/latest/rest-api.html.

Fabric's differs. Ids are GUIDs, all fields of an answer are optional, 430 says that the capacity has no room for
another Spark job, and a batch may be unknown for a moment after it was made. What both have in common is all that is
used here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import attrs
import httpx

from airflow_provider_onelake.exceptions import AccessDeniedError, SparkSetUpError, SparkUnavailableError
from airflow_provider_onelake.fabric.client import BusyError, Client, words

_PAGE = 100
_BAD, _NO_RIGHT, _NOT_FOUND = 400, (401, 403), 404
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


@attrs.frozen
class LivyBatch:
    """What Livy says of a batch. Any part may be missing.

    :param answer: the answer.
    """

    answer: Mapping[str, Any]

    @property
    def id(self) -> str | None:
        """Its id, which is a number or a GUID."""
        found = self.answer.get("id")
        return None if found is None else str(found)

    @property
    def name(self) -> str | None:
        """The name that it was made with."""
        return self.answer.get("name")

    @property
    def states(self) -> dict[str, str]:
        """What is said of its state, by where: Livy's own, and in Fabric the capacity's and the job's result too."""
        found = {
            "state": self.answer.get("state"),
            "livyInfo": _inner(self.answer, "livyInfo").get("currentState"),
            "fabricBatchStateInfo": _inner(self.answer, "fabricBatchStateInfo").get("state"),
            "result": self.answer.get("result"),
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
        told += [_inner(self.answer, "fabricBatchStateInfo").get("errorMessage"), self.answer.get("cancellationReason")]
        told += [
            " ".join(filter(None, (each.get("errorCode"), each.get("message"))))
            for each in self.answer.get("errorInfo") or []
        ]
        return "; ".join(str(each)[:_LONGEST_WORDS] for each in told if each)


class LivyClient(Client):
    """Asks one Livy server; as :class:`~airflow_provider_onelake.fabric.client.Client`."""

    def all(self) -> Iterator[LivyBatch]:
        """Yield the batches that Livy shows, page by page. Fabric shows them all at once, without a number.

        :raises SparkUnavailableError: Livy does not answer.
        """
        seen = 0
        while True:
            said = self.ask("GET", "/batches", params={"from": seen, "size": _PAGE} if seen else None)
            found = said.get("sessions") or said.get("items") or said.get("value") or []
            yield from map(LivyBatch, found)
            seen += len(found)
            if not found or seen >= int(said.get("total") or 0):
                return

    def has_no_room(self, answer: httpx.Response) -> bool:
        """See :meth:`Client.has_no_room`."""
        told = answer.status_code == _BAD and any(said in answer.text.lower() for said in _NO_ROOM)
        return told or super().has_no_room(answer)

    def ask(self, method: str, path: str, *, once: bool = False, **more: Any) -> dict[str, Any]:
        """Ask, and return the answer.

        :param method: of HTTP.
        :param path: below the server's address.
        :param once: whether the request must not be sent again where it may have been obeyed. Default: it may.
        :param more: as :meth:`httpx.Client.request` takes it.
        :raises NotThereError: there is no such batch, or it is not shown yet; or there is no Livy at the address.
        :raises UnansweredError: there was no answer; with ``once``, it may have been obeyed.
        :raises SparkUnavailableError: with ``once``: there is no room, and was none for as long as the patience lasts.
        :raises SparkSetUpError: Livy refuses it.
        :raises AccessDeniedError: the identity may not.
        """
        livy, what = f"Livy at {self.address}", f"{method} {path}"
        try:
            # Livy refuses changes without this header where it is protected from pages of others.
            answer = self.send(method, path, once=once, headers={"X-Requested-By": "airflow"}, **more)
        except BusyError as error:
            if once and not error.unknown:
                raise SparkUnavailableError(
                    f"{livy} takes no {what} now: {error} Nothing was submitted. Try again later: give the task "
                    "`retries`, and a `retry_delay` for as long as there may be no room."
                ) from error
            raise UnansweredError(f"{livy} does not answer {what}: {error}") from error
        if answer.status_code == _NOT_FOUND:
            raise NotThereError(f"{livy} finds nothing at {what}: {words(answer)}")
        if answer.status_code in _NO_RIGHT:
            raise AccessDeniedError(
                f"{livy} refuses {what}: {words(answer)} Correct the sign-in of the connection, or give the "
                "identity the right to run Spark there. The table is unchanged."
            )
        if not answer.is_success:
            raise SparkSetUpError(f"{livy} refuses {what}: {words(answer)} The table is unchanged.")
        try:
            found = answer.json() if answer.content else {}
        except ValueError as error:
            raise UnansweredError(f"{livy} answers {what} with no JSON.") from error
        return found if isinstance(found, dict) else {"value": found}


def _inner(said: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = said.get(name)
    return found if isinstance(found, dict) else {}
