"""The operators that make and delete shortcuts of OneLake."""

from __future__ import annotations

import logging
from collections.abc import Collection
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from airflow_provider_onelake.exceptions import (
    InvalidWriteError,
    ObjectExistsError,
    ObjectNotFoundError,
    ShortcutRefusedError,
    StoreRefusedError,
)
from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.operators._terms import check_all_rendered, is_final, terminal_errors_fail

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_onelake.storage.addresses import TableAddress

logger = logging.getLogger(__name__)


class _ShortcutOperator(BaseOperator):
    """A task on a shortcut in a lakehouse of OneLake."""

    template_fields: Collection[str] = ("shortcut",)
    ui_color = "#e3ecf4"

    def __init__(self, *, shortcut: str, onelake_conn_id: str = OneLakeHook.default_conn_name, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.shortcut = shortcut
        self.onelake_conn_id = onelake_conn_id

    @cached_property
    def hook(self) -> OneLakeHook:
        """The hook of the lakehouse that the shortcut is in."""
        return OneLakeHook(self.onelake_conn_id)

    def _check_given(self, *names: str) -> None:
        for name in names:
            value = getattr(self, name)
            if is_final(value) and not (isinstance(value, str) and value.strip()):
                raise InvalidWriteError(
                    f"{self.task_id}: {name}={value!r} must be a path such as Tables/trips, or an address."
                )

    def _check_given_all(self) -> None:
        check_all_rendered(self)
        self._check_given(*self.template_fields)


class OneLakeCreateShortcutOperator(_ShortcutOperator):
    """Make a shortcut: a folder of a lakehouse that is a folder of another one. No data is copied.

    Fabric's REST is asked (https://learn.microsoft.com/fabric/onelake/onelake-shortcuts), as the connection signs in.
    The identity needs the role Contributor where the shortcut is, and the right to read its target. If the very same
    shortcut is there, the task does nothing, so retries and clears do no harm. Anything else at its place stays as it
    is, and the task fails.

    By two addresses, a table counts as two in lineage, and where a job reads the table that it writes. The connection's
    field ``follow_shortcuts`` makes them one; else name a table by its target everywhere.

    The result in XCom is a dict with ``shortcut`` (str) and ``target`` (str), both with GUIDs.

    :param shortcut: where it is to be: a path such as ``Tables/trips`` in the connection's lakehouse, or an address in
        it (templated).
    :param target: the folder that it leads to: an address such as
        ``onelake://workspace/item.Lakehouse/Tables/trips``, or a path in the same lakehouse (templated).
    :param onelake_conn_id: the connection of the lakehouse. Its field ``fabric_api`` is the address of Fabric's REST.
        Default: ``onelake_default``. Not templated.
    :param kwargs: the parameters of every operator.
    """

    template_fields: Collection[str] = ("shortcut", "target")

    def __init__(self, *, shortcut: str, target: str, **kwargs: Any) -> None:
        super().__init__(shortcut=shortcut, **kwargs)
        self.target = target
        self._check_given("shortcut", "target")

    def execute(self, context: Context) -> dict[str, str]:
        """Make the shortcut.

        :param context: of the running task.
        :returns: the result for XCom, as the class describes it.
        :raises AirflowFailException: a person has to act; nothing was made.
        """
        with terminal_errors_fail():
            self._check_given_all()
            fabric = self.hook.fabric()
            at, target = fabric.folder(self.hook.address(self.shortcut)), fabric.folder(self._target())
            try:
                made = fabric.create_shortcut(at, target)
            except (ObjectExistsError, ObjectNotFoundError, StoreRefusedError) as error:
                raise ShortcutRefusedError(
                    f"The shortcut {self.shortcut} to {self.target} was not made. {error}"
                ) from error
        logger.info("%s is a shortcut to %s", made.at, target)
        return {"shortcut": str(made.at), "target": str(target)}

    def _target(self) -> TableAddress:
        from airflow_provider_onelake.storage.addresses import TableAddress

        # It may lie outside of the connection's lakehouse.
        return TableAddress.parse(self.target) if "://" in self.target else self.hook.address(self.target)


class OneLakeDeleteShortcutOperator(_ShortcutOperator):
    """Delete a shortcut, and nothing of its target. It is no error if there is none.

    The result in XCom is a dict with ``shortcut`` (str, with GUIDs) and ``deleted`` (bool): whether there was one.

    :param shortcut: a path such as ``Tables/trips`` in the connection's lakehouse, or an address in it (templated).
    :param onelake_conn_id: the connection of the lakehouse. Its field ``fabric_api`` is the address of Fabric's REST.
        Default: ``onelake_default``. Not templated.
    :param kwargs: the parameters of every operator.
    """

    def __init__(self, *, shortcut: str, **kwargs: Any) -> None:
        super().__init__(shortcut=shortcut, **kwargs)
        self._check_given("shortcut")

    def execute(self, context: Context) -> dict[str, Any]:
        """Delete the shortcut.

        :param context: of the running task.
        :returns: the result for XCom, as the class describes it.
        :raises AirflowFailException: a person has to act; nothing was deleted.
        """
        with terminal_errors_fail():
            self._check_given_all()
            fabric = self.hook.fabric()
            at = fabric.folder(self.hook.address(self.shortcut))
            deleted = fabric.delete_shortcut(at)
        logger.info("%s: %s", at, "the shortcut was deleted" if deleted else "there was no shortcut")
        return {"shortcut": str(at), "deleted": deleted}
