"""Google Cloud Storage: addresses of sources and assets are understood, but no table is written there."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from airflow_provider_onelake.storage.kinds import StoreKind
from airflow_provider_onelake.storage.s3 import bucket_address

if TYPE_CHECKING:
    from airflow_provider_onelake.storage.addresses import Spelling, TableAddress


class Gcs(StoreKind):
    """A bucket of Google's."""

    name = "gcs"
    schemes = ("gs",)
    forms = ("gs://bucket/path",)
    hints: ClassVar = {"gcs": "Use gs://bucket/path."}

    def parse(self, spelled: Spelling) -> TableAddress:
        """See :meth:`StoreKind.parse`."""
        return bucket_address(self, spelled)
