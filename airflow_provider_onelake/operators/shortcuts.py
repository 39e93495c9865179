"""The operators that make, list, check and delete shortcuts of OneLake."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from airflow_provider_onelake.exceptions import (
    AccessDeniedError,
    InvalidWriteError,
    ObjectExistsError,
    ObjectNotFoundError,
    ShortcutError,
    ShortcutRefusedError,
    StoreRefusedError,
)
from airflow_provider_onelake.hooks.fabric import FabricHook
from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.operators._parameters import (
    check_all_rendered,
    check_flag,
    check_rendered,
    terminal_errors_fail,
    value_or_none,
)
from airflow_provider_onelake.templates import is_final

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_onelake.fabric.rest import Folder
    from airflow_provider_onelake.storage.addresses import TableAddress

logger = logging.getLogger(__name__)


class _LakehouseOperator(BaseOperator):
    """A task on shortcuts of a lakehouse of OneLake."""

    ui_color = "#e3ecf4"

    def __init__(self, *, onelake_conn_id: str = OneLakeHook.default_conn_name, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.onelake_conn_id = onelake_conn_id

    @cached_property
    def hook(self) -> OneLakeHook:
        """The hook of the lakehouse that the shortcuts are in."""
        return OneLakeHook(self.onelake_conn_id)

    @cached_property
    def fabric(self) -> FabricHook:
        """The hook of Fabric, beside the lakehouse."""
        return FabricHook(lakehouse=self.hook)

    def _check_given(self, *names: str) -> None:
        for name in names:
            value = getattr(self, name)
            if is_final(value) and not (isinstance(value, str) and value.strip()):
                raise InvalidWriteError(
                    f"{self.task_id}: {name}={value!r} must be a path such as Tables/trips, or an address."
                )

    def _address(self, text: str) -> TableAddress:
        """Return the address of a target, which may lie outside of the connection's lakehouse."""
        from airflow_provider_onelake.storage.addresses import TableAddress

        return TableAddress.parse(text) if "://" in text else self.hook.address(text)


class _ShortcutOperator(_LakehouseOperator):
    """A task on one shortcut."""

    template_fields: Collection[str] = ("shortcut",)

    def __init__(self, *, shortcut: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.shortcut = shortcut

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
            fabric = self.fabric.get_conn()
            at, target = fabric.folder(self.hook.address(self.shortcut)), fabric.folder(self._address(self.target))
            try:
                made = fabric.create_shortcut(at, target)
            except (ObjectExistsError, ObjectNotFoundError, StoreRefusedError) as error:
                raise ShortcutRefusedError(
                    f"The shortcut {self.shortcut} to {self.target} was not made. {error}"
                ) from error
        logger.info("%s is a shortcut to %s", made.at, target)
        return {"shortcut": str(made.at), "target": str(target)}


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
            fabric = self.fabric.get_conn()
            at = fabric.folder(self.hook.address(self.shortcut))
            deleted = fabric.delete_shortcut(at)
        logger.info("%s: %s", at, "the shortcut was deleted" if deleted else "there was no shortcut")
        return {"shortcut": str(at), "deleted": deleted}


class OneLakeListShortcutsOperator(_LakehouseOperator):
    """List the shortcuts of a lakehouse, by Fabric's REST. Nothing behind them is looked at.

    The identity needs the role Viewer in the workspace, or a permission of the lakehouse. The result in XCom is a list,
    in the order of the paths, of dicts with ``path`` (str, in the lakehouse: what other tasks take, also mapped ones),
    ``shortcut`` (str, the same with GUIDs), ``kind`` (str, of the target, as Fabric names it: ``OneLake``,
    ``AmazonS3``, …) and ``target`` (str with GUIDs; None if it is not in OneLake, or if this identity may not see it).

    :param folder: at and below which they are, in the connection's lakehouse: ``Tables``, ``Files/landing``
        (templated). Default: anywhere.
    :param onelake_conn_id: the connection of the lakehouse. Its field ``fabric_api`` is the address of Fabric's REST.
        Default: ``onelake_default``. Not templated.
    :param kwargs: the parameters of every operator.
    """

    template_fields: Collection[str] = ("folder",)

    def __init__(self, *, folder: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.folder = folder

    def execute(self, context: Context) -> list[dict[str, str | None]]:
        """List the shortcuts.

        :param context: of the running task.
        :returns: the result for XCom, as the class describes it.
        :raises AirflowFailException: a person has to act.
        """
        with terminal_errors_fail():
            check_rendered("folder", self.folder)
            found = self.fabric.list_shortcuts(value_or_none(self.folder))
        for each in found:
            logger.info("%s is a shortcut to %s", each.at.path, each.target or each.kind)
        return [
            {
                "path": each.at.path,
                "shortcut": str(each.at),
                "kind": each.kind,
                "target": None if each.target is None else str(each.target),
            }
            for each in found
        ]


class OneLakeCheckShortcutOperator(_ShortcutOperator):
    """Check that a shortcut leads to a folder that can be read. The task is red where it does not.

    Shortcuts are followed by Fabric's REST to the last one, and then one object is read through them, which need not be
    there. Nothing is written. A shortcut that is missing, broken, circular or hidden, or whose target refuses to be
    read, fails the task for good, as only a person can mend it: put the task behind what makes the target. If Fabric or
    the store does not answer, Airflow retries the task.

    The result in XCom is a dict with ``shortcut`` (str), ``target`` (str: the folder in the end; None if it is not in
    OneLake), both with GUIDs, ``kind`` (str, of the last target, as Fabric names it), ``links`` (list of str: the
    shortcuts on the way, in order) and ``read_only`` (bool: OneLake does not write to that store).

    :param shortcut: a path such as ``Tables/trips`` in the connection's lakehouse, or an address in it; also that of a
        folder below a shortcut, such as a table in a schema (templated).
    :param target: where it is to lead, at once or in the end: an address such as
        ``onelake://workspace/item.Lakehouse/Tables/trips``, or a path in the same lakehouse (templated). Default:
        anywhere.
    :param writable: whether the task is red, too, if OneLake only reads the store that the shortcut leads to. What this
        identity may write is not tried: that says ``OneLakeAccessOperator``. Default: no. Not templated.
    :param onelake_conn_id: the connection of the lakehouse. Its field ``fabric_api`` is the address of Fabric's REST.
        Default: ``onelake_default``. Not templated.
    :param kwargs: the parameters of every operator.
    """

    template_fields: Collection[str] = ("shortcut", "target")

    def __init__(self, *, shortcut: str, target: str | None = None, writable: bool = False, **kwargs: Any) -> None:
        super().__init__(shortcut=shortcut, **kwargs)
        check_flag("writable", writable)
        self.target = target
        self.writable = writable
        self._check_given("shortcut")

    def execute(self, context: Context) -> dict[str, Any]:
        """Check the shortcut.

        :param context: of the running task.
        :returns: the result for XCom, as the class describes it.
        :raises AirflowFailException: it does not lead where it should, or cannot be read; a person has to act.
        """
        with terminal_errors_fail(explained=self._explained):
            check_all_rendered(self)
            self._check_given("shortcut")
            found = self.fabric.check_shortcut(self.shortcut)
            last, wanted = found.links[-1], value_or_none(self.target)
            inside = last.target is not None
            if wanted is not None:
                self._check_leads_to(wanted, found.way[1:], last.kind)
            if self.writable and found.read_only is not None:
                raise ShortcutError(found.read_only)
        for link in found.links:
            logger.info("%s is a shortcut to %s", link.at, link.target or link.kind)
        return {
            "shortcut": str(found.way[0]),
            "target": str(found.way[-1]) if inside else None,
            "kind": last.kind,
            "links": [str(link.at) for link in found.links],
            "read_only": found.read_only is not None,
        }

    def _check_leads_to(self, wanted: str, folders: Sequence[Folder], kind: str) -> None:
        if self.fabric.get_conn().folder(self._address(wanted)) in folders:
            return
        where = ", ".join(map(str, folders)) or kind
        raise ShortcutError(
            f"{self.shortcut} leads to {where}, and not to {wanted}. Nothing was done: delete the shortcut and make it "
            "anew, or correct the target of this check."
        )

    def _explained(self, error: AccessDeniedError) -> AccessDeniedError:
        return self.fabric.explained(self.shortcut, error, writes=False)
