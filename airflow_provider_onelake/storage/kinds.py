"""What a kind of store knows of itself, and which kinds there are.

All that holds for one kind of store only is in one class, in a module of its own: ``local``, ``s3``, ``azure`` and
``onelake``. Everybody else asks the kind of an address, and never compares kinds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, ClassVar
from urllib.parse import quote

if TYPE_CHECKING:
    from airflow_provider_onelake.storage.addresses import Spelling, TableAddress
    from airflow_provider_onelake.storage.credentials import Credentials, Fields
    from airflow_provider_onelake.storage.errors import Doing
    from airflow_provider_onelake.storage.spark import SparkAccess
    from airflow_provider_onelake.storage.stores import Store


class StoreKind(ABC):
    """A kind of store. What has a default here need not be known of a new kind."""

    name: ClassVar[str]
    """What the address of an asset calls it; no other kind has this name."""
    schemes: ClassVar[tuple[str, ...]]
    """The schemes of addresses that :meth:`parse` is asked about; an empty one stands for a path with a slash first."""
    spark_scheme: ClassVar[str | None] = None
    """The scheme by which Spark knows it. Default: the first of ``schemes``."""
    forms: ClassVar[tuple[str, ...]]
    """How its addresses are spelled, for messages."""
    hints: ClassVar[Mapping[str, str]] = {}
    """What to write in place of a scheme that is not taken."""
    in_fabric: ClassVar[bool] = False
    """Whether its directories belong to items of Fabric, so that Fabric's REST knows them."""
    asset_scheme: ClassVar[str | None] = None
    """The scheme of its assets' URIs, if it has one of its own. Else they begin with ``delta://<name>/``."""
    any_parent: ClassVar[bool] = False
    """Whether the directories above a table may have any name, even that of a hidden one."""
    logs_spark_commits: ClassVar[bool] = False
    """Whether Spark's own commit is safe with several drivers (protocol: no Spark commit to the shared log)."""
    missing_file_system: ClassVar[str] = r"(?!)"
    """A pattern of what a Spark without the packages says."""

    def packages(self, hadoop: str) -> tuple[str, ...]:
        """Return the Maven coordinates of the file system by which Spark reaches it. Default: Spark has it.

        :param hadoop: the version of Spark's Hadoop.
        """
        return ()

    @abstractmethod
    def parse(self, spelled: Spelling) -> TableAddress | None:
        """Bring an address into its normal form.

        :returns: the address; ``None`` if it is of another kind with the same scheme.
        :raises AddressError: the address is malformed.
        """

    def check_table(self, text: str, address: TableAddress) -> None:  # noqa: B027 - by default, nothing is refused
        """Refuse an address at which no table can lie. Default: each one is taken.

        :param text: the address as it was written.
        :raises AddressError: no table can lie there.
        """

    def check_root(self, text: str, address: TableAddress) -> None:  # noqa: B027 - by default, nothing is refused
        """Refuse an address at which no lakehouse can lie. Default: each one is taken.

        :param text: the address as it was written.
        :raises AddressError: no lakehouse can lie there.
        """

    def check_inside(self, text: str, address: TableAddress, root: TableAddress) -> None:  # noqa: B027 - by default, nothing is refused
        """Refuse a table that only seems to lie in a lakehouse. Default: the paths are enough to know.

        :param text: the table as it was written.
        :raises AddressError: the table lies outside.
        """

    def check_is_there(self, root: TableAddress, *, to_write: bool = False) -> None:  # noqa: B027 - by default, nothing is refused
        """Refuse a lakehouse or a table that :meth:`open` would make, as nobody could tell that its address is wrong.

        :param to_write: whether who asks may want it to be made. Default: there must be something to look at.
        :raises OneLakeError: there is no such lakehouse.
        """

    def is_other_spelling(self, address: TableAddress, other: TableAddress) -> bool:
        """Say whether two addresses may be one place, as one is spelled with names and the other with GUIDs."""
        return False

    def spark_uri(self, address: TableAddress) -> str:
        """Return the address as Spark takes it. Hadoop paths are not percent-encoded.

        :raises AddressError: Spark cannot reach the table by this address.
        """
        return f"{self.spark_scheme or self.schemes[0]}://{address.authority}/{address.path}".rstrip("/")

    def manifest_uri(self, address: TableAddress) -> str:
        """Return the address as symlink manifests have it, for engines that read Hive tables. It is not encoded.

        :raises AddressError: no such engine can reach the table by this address.
        """
        return self.spark_uri(address)

    def deltalake_uri(self, address: TableAddress) -> str:
        """Return the address as the deltalake library takes it."""
        return f"{self.schemes[0]}://{address.authority}/{quote(address.path)}".rstrip("/")

    def text(self, address: TableAddress) -> str:
        """Return the shortest spelling that :meth:`parse` takes back."""
        return self.deltalake_uri(address)

    def asset_address(self, path: str) -> str:
        """Return the address that follows ``delta://<name of the kind>`` in the URI of an asset.

        :param path: decoded, with a slash in front.
        """
        return f"{self.schemes[0]}:/{path}"

    def credentials_of(self, fields: Fields) -> Credentials | None:
        """Read how a connection signs in. Default: the store needs no sign-in.

        :raises CredentialsError: incomplete or contradictory.
        """
        return None

    @abstractmethod
    def open(self, address: TableAddress, credentials: Credentials | None, patience: float) -> Store:
        """Open a store, see :func:`~airflow_provider_onelake.storage.stores.open_store`."""

    @abstractmethod
    def for_deltalake(self, address: TableAddress, credentials: Credentials | None, patience: float) -> dict[str, str]:
        """Return options, see :func:`~airflow_provider_onelake.storage.stores.deltalake_options`."""

    @abstractmethod
    def for_spark(self, address: TableAddress, credentials: Credentials | None, patience: float) -> SparkAccess:
        """Return what Spark needs, see :func:`~airflow_provider_onelake.storage.spark.spark_access`."""

    def table_page(self, address: TableAddress, region: str | None) -> str | None:
        """Return the address of a table's page in the store's console; ``None`` if the address does not lead there."""
        return None

    def security_endpoint(self, address: TableAddress, endpoint: str | None) -> str:
        """Return where a store in Fabric says what a principal may read.

        :param endpoint: of the connection, which leads to an emulator. Default: the store's own.
        :raises NotImplementedError: it is not in Fabric.
        """
        raise NotImplementedError

    def right_to(self, doing: Doing) -> str:
        """Name the right that an operation needs, as the store's owner knows it."""
        return f"the right to {doing}"


# In the order in which they are asked. OneLake's addresses look like ADLS's, so OneLake is asked first.
_KINDS = ("local:Local", "s3:S3", "onelake:OneLake", "azure:Adls")


@cache
def kinds() -> tuple[StoreKind, ...]:
    """Return all kinds of stores, in the order in which they are asked whether an address is theirs."""
    # Import them here, and not where the package is imported: they import this module and addresses, so that of two
    # threads that come first, one would know no kind yet, or meet Python's error of a deadlock.
    found = (kind.partition(":") for kind in _KINDS)
    return tuple(getattr(import_module(f"{__package__}.{module}"), name)() for module, _, name in found)
