"""Who may see which table: Airflow's auth manager says who may read a DAG, and the table's log whose the table is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import DagDetails

if TYPE_CHECKING:
    from airflow.api_fastapi.auth.managers.models.base_user import BaseUser

    from airflow_provider_onelake.table import Table

# No DAG can have such an id, as it has a space. So nobody may read it but who may read every DAG.
_EVERY_DAG = "every dag"


def reads_every_dag(user: BaseUser) -> bool:
    """Say whether somebody may read every DAG; then no table has to be opened to see whose it is.

    :param user: who asks.
    """
    return _reads(user, _EVERY_DAG)


def may_see(user: BaseUser, table: Table, namespace: str) -> bool:
    """Say whether somebody may see a table: one of the DAGs that wrote it is theirs to read, or none of ours wrote it.

    The table is opened, which reads the newest checkpoint and the entries after it. One that cannot be read, as there
    is none or its log is damaged, is shown to nobody who may not read every DAG.

    :param user: who asks.
    :param table: in a lakehouse that the page shows.
    :param namespace: of this deployment: the DAGs of another one are not known here.
    """
    from airflow_provider_onelake.buffers.identity import WriterIdentity
    from airflow_provider_onelake.exceptions import TerminalError

    try:
        snapshot = table.log.snapshot()
    except TerminalError:
        return False
    found = [identity.load for app_id in snapshot.txns if (identity := WriterIdentity.from_app_id(app_id))]
    dags = {load.dag for load in found if load.namespace == namespace}
    return not dags or any(_reads(user, dag) for dag in dags)


def _reads(user: BaseUser, dag: str) -> bool:
    return get_auth_manager().is_authorized_dag(method="GET", details=DagDetails(id=dag), user=user)
