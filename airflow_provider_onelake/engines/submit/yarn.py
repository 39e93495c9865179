"""A client of the REST API of YARN's ResourceManager: it finds applications by a tag, asks for them and kills them.

https://hadoop.apache.org/docs/stable/hadoop-yarn/hadoop-yarn-site/ResourceManagerRest.html
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import attrs

from airflow_provider_onelake.exceptions import SparkSetUpError, SparkUnavailableError

# Seconds to connect, and seconds to read.
_TIMEOUT = (5, 30)
_OVER = ("FINISHED", "FAILED", "KILLED")
_HTTP_NOT_FOUND = 404
_HTTP_ERROR = 400


@attrs.frozen(slots=False)
class ResourceManager:
    """The ResourceManager of a cluster.

    :param address: the address of its web application. Without a scheme, ``http`` is used.
    :param kerberos: whether requests need a Kerberos ticket.
    """

    address: str
    kerberos: bool = False

    def find(self, tag: str) -> str | None:
        """Return an application with a tag. One that still runs comes before one that has ended.

        :param tag: the tag. YARN keeps tags in lower case.
        :raises SparkUnavailableError: the ResourceManager does not answer.
        """
        said = self._ask("GET", f"?applicationTags={tag.lower()}") or {}
        # If there is no application, YARN answers null.
        found = sorted((said.get("apps") or {}).get("app") or (), key=lambda app: app["state"] in _OVER)
        return str(found[0]["id"]) if found else None

    def is_over(self, application: str) -> bool:
        """Say whether an application has ended, or is forgotten.

        :param application: its id.
        :raises SparkUnavailableError: the ResourceManager does not answer.
        """
        said = self._ask("GET", f"/{application}")
        return said is None or said["app"]["state"] in _OVER

    def kill(self, application: str) -> None:
        """End an application.

        :param application: its id.
        :raises SparkUnavailableError: the ResourceManager does not answer, or refuses.
        """
        self._ask("PUT", f"/{application}/state", json={"state": "KILLED"})

    def _ask(self, method: str, what: str, **body: Any) -> dict[str, Any] | None:
        """Return the answer, or ``None`` if there is no such application."""
        import requests

        try:
            answer = requests.request(
                method, f"{self._base}/ws/v1/cluster/apps{what}", auth=self._auth, timeout=_TIMEOUT, **body
            )
            if answer.status_code == _HTTP_NOT_FOUND:
                return None
            if answer.status_code >= _HTTP_ERROR:
                raise SparkUnavailableError(
                    f"YARN's ResourceManager at {self._base} says {answer.status_code}: {answer.text[:200]}"
                )
            said: dict[str, Any] = answer.json() if answer.content else {}
        except (requests.RequestException, ValueError) as error:
            raise SparkUnavailableError(f"YARN's ResourceManager at {self._base} does not answer: {error}") from error
        return said

    @cached_property
    def _base(self) -> str:
        return (self.address if "://" in self.address else f"http://{self.address}").rstrip("/")

    @cached_property
    def _auth(self) -> Any:
        if not self.kerberos:
            return None
        try:
            from requests_kerberos import HTTPKerberosAuth
        except ImportError as error:
            raise SparkSetUpError(
                "The Spark connection signs in by a keytab, and to ask YARN's ResourceManager this worker lacks "
                "requests-kerberos. Install it; nothing was submitted."
            ) from error
        return HTTPKerberosAuth()
