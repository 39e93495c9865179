"""Deleting on Azure, one object a request.

obstore deletes there by batches only, also a single object (``POST …?comp=batch``), and OneLake refuses those: a 400
``BadRequest``. A single ``DELETE`` is what OneLake documents, and every storage account takes it too. So whoever signs
in by a token deletes this way. An account key stays with obstore: OneLake takes none, and what does takes batches, so
that nothing here has to sign requests.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import httpx

from airflow_provider_onelake.exceptions import AddressError, ObjectNotFoundError, StoreUnavailableError
from airflow_provider_onelake.storage.errors import as_store_error
from airflow_provider_onelake.storage.stores import Tries

if TYPE_CHECKING:
    from collections.abc import Callable

_VERSION = "2023-11-03"
"""Of the Blob API: obstore's."""

# A token is asked for anew when it has no more than this to live, as obstore does.
_LEAST_LIFE = timedelta(minutes=5)
_ABSENT = 404


class BlobDeletes:
    """Deletes objects below a directory of a container, by the Blob API and a bearer token.

    :param directory: ``https://host/container/path``, percent-encoded.
    :param provider: gives a token, and when it expires.
    :param name: what messages call the table.
    :param patience: seconds during which a delete that gets no answer is tried again.
    :param silence: seconds that the store may say nothing in the middle of a request.
    """

    def __init__(
        self, directory: str, provider: Callable[[], Any], name: str, *, patience: float, silence: float
    ) -> None:
        self._directory = directory
        self._provider = provider
        self._name = name
        self._patience = patience
        self._silence = silence
        self._given: dict[str, Any] = {}

    def __call__(self, path: str) -> None:
        """Delete an object; that there is none is no error.

        :param path: relative to the directory.
        :raises AddressError: it leads out of the directory.
        :raises AccessDeniedError: the store refused the sign-in, or the identity lacks the right.
        :raises StoreRefusedError: the store takes the request for a wrong one.
        :raises StoreUnavailableError: the outcome is unknown.
        """
        if any(segment in ("", ".", "..") for segment in path.split("/")):
            # Whoever sends a URL resolves such segments first, and another object would go.
            raise AddressError(f"{path!r} is no path of an object below {self._name}. Nothing was deleted.")
        # To delete twice is to delete once, so a delete whose answer was lost is simply repeated.
        trying = Tries(self._patience)
        while True:
            try:
                return self._delete(path)
            except StoreUnavailableError:
                if not trying.wait():
                    raise

    def _delete(self, path: str) -> None:
        try:
            answer = self._client.delete(
                f"{self._directory}/{quote(path)}",
                headers={
                    "Authorization": f"Bearer {self._token()}",
                    "x-ms-version": _VERSION,
                    "x-ms-date": format_datetime(datetime.now(UTC), usegmt=True),
                },
            )
            if not answer.is_success:
                raise _as_obstore_says_it(answer)
        except Exception as error:
            refused = as_store_error(error, path, self._name, "delete")
            if not isinstance(refused, ObjectNotFoundError):
                raise refused from error

    @cached_property
    def _client(self) -> httpx.Client:
        # Made when it is first needed: one that was made before a fork must not be used behind it.
        trusted = httpx.create_ssl_context()
        # As obstore does, trust what the machine trusts.
        trusted.load_default_certs()
        return httpx.Client(verify=trusted, timeout=httpx.Timeout(self._silence, connect=5.0))

    def _token(self) -> str:
        ends = self._given.get("expires_at")
        if not self._given or (ends is not None and ends - datetime.now(UTC) < _LEAST_LIFE):
            # Kept, as not every way to sign in keeps its own: the CLI starts a process for each.
            self._given = self._provider()
        return str(self._given["token"])


def _as_obstore_says_it(answer: httpx.Response) -> Exception:
    text = f"Server returned non-2xx status code: {answer.status_code} {answer.reason_phrase}: {answer.text}"
    return FileNotFoundError(text) if answer.status_code == _ABSENT else RuntimeError(text)
