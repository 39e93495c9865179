"""What a task's page in the web UI links to.

A task pushes the address of a page to XCom as soon as it knows it, so the Spark UI can be opened while Spark works.
The web server reads it there: it asks neither a store nor Spark, and runs none of this.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperatorLink

from airflow_provider_onelake.exceptions import OneLakeError

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator
    from airflow.sdk.types import TaskInstanceKey

logger = logging.getLogger(__name__)

_PAGES = "_onelake_pages"


class PageLink(BaseOperatorLink):
    """A link whose address the task itself pushes; without one, there is no button."""

    name = ""

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """Return what the task pushed. Airflow asks at the end of the task, and keeps the answer under the same key.

        :param operator: the operator, in the process in which it ran. XCom is not read, because Airflow logs a missing
            XCom as an error.
        :param ti_key: the key of the task instance.
        """
        pages: dict[str, str] = getattr(operator, _PAGES, {})
        return pages.get(self.xcom_key, "")


class SparkUiLink(PageLink):
    """To the Spark UI: of the session on a Spark Connect server, or of the job's own application."""

    name = "Spark UI"


class TableLink(PageLink):
    """To the table in its store's console, or wherever the lakehouse's connection says."""

    name = "Table"


class CommitLink(PageLink):
    """To the log entry of the version that the task made."""

    name = "Commit"


LINKS = (SparkUiLink(), TableLink(), CommitLink())
"""The links of an operator that gives work to Spark and commits."""


def show(operator: BaseOperator, ti: Any, link: type[PageLink], page: Callable[[], str | None]) -> None:
    """Push the address of a page, if there is one. One that cannot be formed fails no task.

    :param operator: that runs.
    :param ti: its task instance.
    :param link: that leads there.
    :param page: forms the address.
    """
    try:
        address = page()
        if address:
            key = link().xcom_key
            operator.__dict__.setdefault(_PAGES, {})[key] = address
            ti.xcom_push(key=key, value=address)
    except OneLakeError as error:
        logger.warning("There is no link %r: %s", link.name, error)
