"""The connection type ``onelake``: where the tables are, and what this deployment is called there."""

from __future__ import annotations

import json
import uuid
from functools import cached_property
from typing import TYPE_CHECKING

from airflow.sdk import BaseHook

from airflow_provider_onelake.exceptions import (
    CredentialsError,
    InvalidWriteError,
    OneLakeError,
)
from airflow_provider_onelake.table import Table, this_process

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from airflow_provider_onelake.fabric.shortcuts import FollowedShortcuts
    from airflow_provider_onelake.storage.addresses import TableAddress
    from airflow_provider_onelake.storage.credentials import Credentials, Fields
    from airflow_provider_onelake.storage.stores import Store

DEFAULT_NAMESPACE = "default"

SHORT_PATIENCE = 10.0
"""Seconds to wait for a store, for triggers, which ask again by themselves, and for tests of a connection."""


def _reader() -> str:
    """Name the task that runs, or else the process."""
    from airflow.sdk import get_current_context

    try:
        ti = get_current_context()["ti"]
    except RuntimeError:
        return this_process()
    return f"{ti.dag_id}.{ti.task_id} of {ti.run_id}"


class OneLakeHook(BaseHook):
    """Opens the tables of one lakehouse.

    The connection's extra has these fields, all optional. ``lakehouse`` is the directory that every table of the
    connection must lie in. ``lakehouse_alias`` is the same lakehouse with its other spelling, by names or by GUIDs.
    ``namespace`` is this Airflow deployment's name in the tables' logs. Two deployments that write the same table need
    two namespaces: else a run of one counts as a rerun of the other's. With ``iceberg_readers`` as ``may_be_stale``,
    tables with UniForm are written to, and their Iceberg readers may see them without these commits. With ``fsync`` as
    ``false``, a power cut may damage tables on a local disk or a mount, and commits are faster. Login, password and the
    other fields of the extra say how the connection signs in (``docs/operate/stores.md``).

    :param onelake_conn_id: the connection of the lakehouse. Default: ``onelake_default``.
    :param most_patience: an upper limit in seconds for the connection's ``patience``. Default: no limit.
    """

    conn_name_attr = "onelake_conn_id"
    default_conn_name = "onelake_default"
    conn_type = "onelake"
    hook_name = "OneLake"

    def __init__(self, onelake_conn_id: str = default_conn_name, most_patience: float | None = None) -> None:
        super().__init__()
        self.onelake_conn_id = onelake_conn_id
        self.most_patience = most_patience
        self._known: dict[TableAddress, FollowedShortcuts] = {}
        self.opened: dict[str, str] = {}
        """The addresses of the tables that :meth:`table` has returned, by what messages call them."""

    @classmethod
    async def from_async(cls, onelake_conn_id: str = default_conn_name) -> OneLakeHook:
        """Make a hook whose connection is read already, so that an event loop is not blocked later.

        The hook waits at most 10 seconds for a store, because a trigger asks again by itself.

        :param onelake_conn_id: the connection of the lakehouse. Default: ``onelake_default``.
        :returns: the hook.
        """
        hook = cls(onelake_conn_id, most_patience=SHORT_PATIENCE)
        hook.__dict__["connection"] = await cls.aget_connection(onelake_conn_id)
        return hook

    @cached_property
    def connection(self) -> Connection:
        """The Airflow connection, read once."""
        return self.get_connection(self.onelake_conn_id)

    @cached_property
    def _fields(self) -> Fields:
        """What the connection says, read once.

        :raises CredentialsError: the extra is no JSON object. Airflow takes such an extra for an empty one, or fails
            without a word about the connection.
        """
        from airflow_provider_onelake.storage.credentials import Fields

        given = self.connection
        try:
            parsed = json.loads(given.extra or "{}")
        except ValueError:
            parsed = None
        if not isinstance(parsed, dict):
            # The extra itself may hold a secret.
            raise CredentialsError(
                f"The connection {self.onelake_conn_id} has an extra that is no JSON object. Nothing was done: write "
                'it as {"lakehouse": "/data/lakehouse"}.'
            )
        # Airflow's own way to the fields hides the secrets among them from logs.
        return Fields(given.conn_id, given.login, given.password, given.extra_dejson)

    @property
    def lakehouse(self) -> str | None:
        """The directory that every table of the connection must lie in; ``None`` if tables may lie anywhere."""
        return self.setting("lakehouse")

    @property
    def lakehouse_alias(self) -> str | None:
        """The lakehouse's other spelling, by GUIDs or by names; ``None`` where the connection has none."""
        return self.setting("lakehouse_alias")

    @property
    def namespace(self) -> str:
        """This Airflow deployment's name in the tables' logs (protocol: writer identity)."""
        return self.setting("namespace") or DEFAULT_NAMESPACE

    @property
    def patience(self) -> float:
        """Seconds for which a request is repeated while the store does not answer.

        :raises InvalidWriteError: ``patience`` in the connection's extra is not a number of seconds, 0 or more.
        """
        from airflow_provider_onelake.storage.stores import PATIENCE

        seconds = self._fields.seconds("patience", PATIENCE)
        return seconds if self.most_patience is None else min(seconds, self.most_patience)

    def table(self, name: str) -> Table:
        """Return a table. It does not have to exist yet, and its log is not read.

        A path that leads through a shortcut of OneLake is the table that it leads to (docs/operate/onelake.md). OneLake
        is asked once for a path and hook whether it is one, by a request for each folder of the path; then, Fabric's
        REST is asked where it leads, and the store whether the target is there. ``follow_shortcuts`` in the
        connection's extra may forbid that, or have Fabric's REST asked always, whose errors then count.

        :param name: an address, or a path such as ``Tables/trips`` inside the lakehouse.
        :raises AddressError: malformed, or outside the lakehouse.
        :raises CredentialsError: the connection's sign-in is incomplete or contradictory.
        :raises ShortcutError: with ``follow_shortcuts=true``: a shortcut on the way is broken or circular, or does not
            show where it leads.
        :raises StoreUnavailableError: with ``follow_shortcuts=true``: Fabric's REST does not answer.
        """
        named = self.address(name)
        found = self.followed(named)
        shortcut, short = named if found.links else None, self._in_short(named)
        self.opened[short] = str(found.address)
        return Table(
            found.address,
            self.credentials(found.address),
            self.patience,
            self.setting,
            _reader,
            shortcut,
            found.read_only,
            short,
        )

    def address(self, name: str) -> TableAddress:
        """Return the address that a name stands for. Nothing is asked, and no shortcut is followed.

        :param name: an address, or a path such as ``Tables/trips`` inside the lakehouse.
        :raises AddressError: malformed, or outside the lakehouse.
        """
        from airflow_provider_onelake.storage.addresses import resolve_table

        return resolve_table(name, self.lakehouse, self.lakehouse_alias, self._in_words)

    def in_short(self, name: str) -> str:
        """Return what messages call a table.

        :param name: an address, or a path such as ``Tables/trips`` inside the lakehouse.
        :returns: its path in the lakehouse, or from ``Tables`` on, or its last segment.
        :raises AddressError: malformed, or outside the lakehouse.
        """
        return self._in_short(self.address(name))

    def _in_short(self, address: TableAddress) -> str:
        from airflow_provider_onelake.storage.addresses import TableAddress

        below = address.relative_to(TableAddress.parse_root(self.lakehouse)) if self.lakehouse is not None else None
        if below is not None:
            return below
        _, tables, path = address.path.rpartition("/Tables/")
        return f"Tables/{path}" if tables else address.name

    def followed(self, address: TableAddress) -> FollowedShortcuts:
        """Return where an address leads, as far as ``follow_shortcuts`` lets it be followed. Each is asked for once.

        :param address: of a table.
        :raises OneLakeError: as of :meth:`table`.
        """
        from airflow_provider_onelake.fabric.shortcuts import FollowedShortcuts

        follows = self.follows_shortcuts
        if not address.kind.in_fabric or follows is False or self.lakehouse is None:
            return FollowedShortcuts(address)
        if address not in self._known:
            self._known[address] = self._to_the_end(address) if follows else self._as_far_as_shown(address)
        return self._known[address]

    def _to_the_end(self, named: TableAddress, most_patience: float = float("inf")) -> FollowedShortcuts:
        from airflow_provider_onelake.fabric.rest import API, open_fabric
        from airflow_provider_onelake.fabric.shortcuts import follow_to_table

        root, patience = self.root(), min(self.patience, most_patience)
        fabric = open_fabric(self.credentials(root), self.setting("fabric_api") or API, patience)
        return follow_to_table(fabric, named, root, self.credentials(named), patience)

    def _as_far_as_shown(self, named: TableAddress) -> FollowedShortcuts:
        """Follow what OneLake itself marks as a shortcut. Where the way is not shown, the table keeps its own path."""
        from airflow_provider_onelake.fabric.shortcuts import FollowedShortcuts, is_marked, warn_of_path

        # Who names the host of a region or of a private link may not reach the global one, at which a target lies.
        asks = named.host is None and self.reaches_fabric(named)
        if asks and is_marked(named, self.credentials(named), min(self.patience, SHORT_PATIENCE)):
            try:
                return self._to_the_end(named, SHORT_PATIENCE)
            except OneLakeError as error:
                warn_of_path(self._in_short(named), error, self.onelake_conn_id)
        return FollowedShortcuts(named)

    def reaches_fabric(self, address: TableAddress) -> bool:
        """Say whether Fabric's REST can be asked: beside an endpoint of its own, a connection must say where it is.

        :param address: of a table.
        """
        credentials = self.credentials(address)
        return credentials is None or credentials.endpoint is None or self.setting("fabric_api") is not None

    @property
    def follows_shortcuts(self) -> bool | None:
        """Whether a path through a shortcut of OneLake is the table that it leads to.

        ``None``: if OneLake marks it as a shortcut and Fabric shows where it leads. ``True``: else it is an error.

        :raises CredentialsError: ``follow_shortcuts`` in the connection's extra is neither true nor false.
        """
        answer: bool | None = self._fields.filled(flags=["follow_shortcuts"]).get("follow_shortcuts")
        return answer

    def credentials(self, address: TableAddress) -> Credentials | None:
        """Read how the connection signs in to the store of an address.

        ``login`` and ``password`` are a key with its secret, or a client id with its secret; or ``password`` alone is
        an account key or a token. The extra has the rest.

        :param address: of a table or a lakehouse.
        :returns: the credentials; ``None`` for a local disk, unless ``fsync`` is off.
        :raises CredentialsError: incomplete or contradictory.
        """
        try:
            return address.kind.credentials_of(self._fields)
        except CredentialsError as error:
            if self._fields.conn_id in str(error):
                raise
            raise CredentialsError(f"The connection {self._fields.conn_id} cannot sign in. {error}") from error

    def root(self) -> TableAddress:
        """Return the address of the lakehouse.

        :raises InvalidWriteError: the connection has none.
        :raises AddressError: it is malformed.
        """
        from airflow_provider_onelake.storage.addresses import TableAddress

        if self.lakehouse is None:
            raise InvalidWriteError(
                f"T{self._in_words[1:]} has no lakehouse. Nothing was done: set `lakehouse` in its extra."
            )
        return TableAddress.parse_root(self.lakehouse)

    @property
    def _in_words(self) -> str:
        """What messages call the connection: it may be one of another type by mistake."""
        return f"the connection {self.onelake_conn_id} of the type {self.connection.conn_type!r}"

    def setting(self, name: str) -> str | None:
        """Return a field of the connection's extra; ``None`` where it is empty."""
        return self._fields.text(name)

    def get_conn(self, most_patience: float = float("inf")) -> Store:
        """Open the lakehouse's store.

        :param most_patience: an upper limit in seconds for :attr:`patience`. Default: no other limit.
        :returns: a store rooted at the lakehouse.
        :raises OneLakeError: the connection has no lakehouse, or it cannot be opened.
        """
        from airflow_provider_onelake.storage.addresses import parse_alias
        from airflow_provider_onelake.storage.stores import open_store

        root = self.root()
        if self.lakehouse_alias is not None:
            parse_alias(self.lakehouse_alias, root)
        # Opening a local store creates its directory. So check first, or the connection test would always succeed.
        root.kind.check_is_there(root, to_write=True)
        return open_store(root, self.credentials(root), min(self.patience, most_patience))

    def test_connection(self) -> tuple[bool, str]:
        """List, read and write the lakehouse, and prove that its store refuses a second create-only put.

        :returns: whether all of it worked, and what to tell the user.
        """
        if self.lakehouse is None:
            return (
                True,
                "The connection has no lakehouse, so there is nothing to try; tables are named by whole addresses.",
            )
        from airflow_provider_onelake.storage.preflight import problems_of

        # OneLake allows no directory beside Tables and Files. Use a new directory, because the whole of it is listed.
        path = f"Files/airflow-connection-test/{uuid.uuid4()}"
        try:
            problems = problems_of(self.get_conn(SHORT_PATIENCE), path, self.lakehouse)
        except OneLakeError as error:
            return False, str(error)
        if problems:
            return False, " ".join(f"{number}. {problem}" for number, problem in enumerate(problems, 1))
        return True, f"{self.lakehouse} can be listed, read and written, and refuses a second create-only put."
