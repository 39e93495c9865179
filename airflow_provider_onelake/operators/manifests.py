"""The operator that writes a table's symlink manifests."""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.links.onelake import LakehouseLink, TableLink
from airflow_provider_onelake.operators._parameters import check_rendered
from airflow_provider_onelake.operators._spark_task import TableTaskOperator
from airflow_provider_onelake.texts import counted

if TYPE_CHECKING:
    from airflow.sdk import Context

logger = logging.getLogger(__name__)


class OneLakeManifestOperator(TableTaskOperator):
    """Write a table's symlink manifests, from which Athena, Presto and Redshift Spectrum read it. No Spark is asked.

    It does what Delta's ``GENERATE symlink_format_manifest`` does, for all partitions
    (https://docs.delta.io/latest/presto-integration.html). Loads may run meanwhile: their commits are followed. A
    reader sees each partition as it was in one version, but not all partitions of one version at the same instant.

    Where the table has the property ``delta.compatibility.symlinkFormatManifest.enabled``, every commit of this package
    keeps the manifests up to date by itself, and this operator repairs them, such as after a commit of deltalake.

    The result in XCom is a dict:

    - ``table`` (str), ``version`` (int): whose files the manifests list.
    - ``files`` (int): how many they are; ``manifests`` (int): how many were written, one for a partition.
    - ``deleted`` (int): manifests of partitions that are gone.
    - ``directory`` (str): the address for the ``LOCATION`` of the external table.

    :param table: an address, or a path such as ``Tables/trips`` in the connection's lakehouse (templated).
    :param onelake_conn_id: the connection of the lakehouse. Default: ``onelake_default``. Not templated.
    :param kwargs: the parameters of every operator.
    """

    operator_extra_links = (LakehouseLink(), TableLink())
    template_fields: Collection[str] = ("table",)
    ui_color = "#e8efe6"

    def __init__(self, *, table: str, onelake_conn_id: str = OneLakeHook.default_conn_name, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.table = table
        self.onelake_conn_id = onelake_conn_id

    def execute(self, context: Context) -> dict[str, Any]:
        """Write the manifests.

        :param context: of the running task.
        :returns: the result for XCom, as the class describes it.
        :raises AirflowFailException: there is no table, or a manifest would lie: a file has a deletion vector, or the
            table has column mapping. No manifest was written.
        """
        from airflow_provider_onelake.maintenance.manifests import DIRECTORY, generate

        with self.errors_explained():
            check_rendered("table", self.table)
            table = self.begin(context)
            address = table.address.manifest_uri
            done = generate(table.log, address)
        logger.info(
            "%s, version %d: wrote %s of %s; deleted those of partitions that are gone: %d",
            table.name,
            done.version,
            counted(len(done.written), "manifest"),
            counted(done.files, "file"),
            len(done.deleted),
        )
        self.show_commit(done.version)
        return {
            "table": str(table),
            "version": done.version,
            "files": done.files,
            "manifests": len(done.written),
            "deleted": len(done.deleted),
            "directory": f"{address}/{DIRECTORY}/",
        }
