"""The links on a task's page in the web UI.

A task pushes the address of a page to XCom as soon as the address is known, so that people can open the Spark UI while
Spark works. The web server reads the address from XCom. It asks neither a store nor Spark, and runs none of this code.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperatorLink

from airflow_provider_onelake.exceptions import OneLakeError

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import TaskInstanceKey
    from airflow.sdk import BaseOperator

logger = logging.getLogger(__name__)

_PAGES = "_onelake_pages"


class PageLink(BaseOperatorLink):
    """A link whose address the task itself pushes. If the task pushes none, there is no button."""

    name = ""

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """Return the address that the task pushed. Airflow calls this when the task ends, and stores it under its key.

        :param operator: the operator, in the process in which it ran. XCom is not read, because Airflow logs a missing
            XCom as an error.
        :param ti_key: the key of the task instance.
        """
        pages: dict[str, str] = getattr(operator, _PAGES, {})
        return pages.get(self.xcom_key, "")


class SparkUiLink(PageLink):
    """Leads to the Spark UI of the session on a Spark Connect server, or of the job's own application."""

    name = "Spark UI"


class LakehouseLink(PageLink):
    """Leads to the table in Airflow's own Lakehouse view, and there to the version that the task made."""

    name = "Lakehouse"


class TableLink(PageLink):
    """Leads to the table in its store's console, or to the page that the lakehouse's connection names."""

    name = "Table"


LINKS = (SparkUiLink(), LakehouseLink(), TableLink())
"""The links of an operator that gives work to Spark and commits."""


def show(operator: BaseOperator, ti: Any, link: type[PageLink], page: Callable[[], str | None]) -> None:
    """Push the address of a page, if there is one. An address that cannot be formed does not fail the task.

    :param operator: the operator that runs.
    :param ti: the operator's task instance.
    :param link: the link to the page.
    :param page: returns the address, or ``None`` if there is no page.
    """
    try:
        address = page()
        if address:
            key = link().xcom_key
            operator.__dict__.setdefault(_PAGES, {})[key] = address
            ti.xcom_push(key=key, value=address)
    except OneLakeError as error:
        logger.warning("There is no link %r: %s", link.name, error)
