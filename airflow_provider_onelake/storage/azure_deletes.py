"""Deletes objects on Azure, one object with each request.

On Azure, obstore deletes only by batches (``POST …?comp=batch``), even a single object, and OneLake refuses batches:
it answers 400 ``BadRequest``. OneLake documents a single ``DELETE``, and every storage account takes it too. So with a
token we delete this way. With an account key, obstore deletes: OneLake takes no account key, and stores that take one
also take batches, so this module need not sign requests.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import attrs
import httpx

from airflow_provider_onelake.exceptions import AddressError, ObjectNotFoundError
from airflow_provider_onelake.storage.errors import as_store_error
from airflow_provider_onelake.storage.stores import tries

if TYPE_CHECKING:
    from collections.abc import Callable

_VERSION = "2023-11-03"
"""The version of the Blob API; obstore uses the same."""

# Like obstore, ask for a new token when the current one expires sooner than this.
_LEAST_LIFE = timedelta(minutes=5)
_ABSENT = 404


@attrs.define(slots=False, eq=False, repr=False)
class BlobDeletes:
    """Deletes objects below a directory of a container, by the Blob API and a bearer token.

    :param directory: ``https://host/container/path``, percent-encoded.
    :param provider: returns a token and the instant at which it expires.
    :param name: what messages call the table.
    :param patience: seconds during which a delete that gets no answer is tried again.
    :param silence: seconds without any data after which a request counts as unanswered.
    """

    _directory: str
    _provider: Callable[[], Any]
    _name: str
    _patience: float = attrs.field(kw_only=True)
    _silence: float = attrs.field(kw_only=True)
    _arguments: dict[str, Any] = attrs.field(factory=dict, init=False)

    def __call__(self, path: str) -> None:
        """Delete an object; it is no error if there is none.

        :param path: relative to the directory.
        :raises AddressError: the path leads out of the directory.
        :raises AccessDeniedError: the store refused the sign-in, or the identity lacks the right.
        :raises StoreRefusedError: the store refused the request as wrong.
        :raises StoreUnavailableError: the outcome is unknown.
        """
        if any(segment in ("", ".", "..") for segment in path.split("/")):
            # HTTP clients resolve such segments before they send a URL, so another object would be deleted.
            raise AddressError(f"{path!r} is no path of an object below {self._name}. Nothing was deleted.")
        # Deleting an object twice does no harm, so repeat a delete whose answer was lost.
        tries(self._patience)(self._delete, path)

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
        # Make the client when it is first needed, because a client that was made before a fork must not be used after.
        trusted = httpx.create_ssl_context()
        # Like obstore, trust the certificates that the machine trusts.
        trusted.load_default_certs()
        return httpx.Client(verify=trusted, timeout=httpx.Timeout(self._silence, connect=5.0))

    def _token(self) -> str:
        ends = self._arguments.get("expires_at")
        if not self._arguments or (ends is not None and ends - datetime.now(UTC) < _LEAST_LIFE):
            # Keep the token, because not every way to sign in does: the CLI starts a process for each token.
            self._arguments = self._provider()
        return str(self._arguments["token"])


def _as_obstore_says_it(answer: httpx.Response) -> Exception:
    text = f"Server returned non-2xx status code: {answer.status_code} {answer.reason_phrase}: {answer.text}"
    return FileNotFoundError(text) if answer.status_code == _ABSENT else RuntimeError(text)
