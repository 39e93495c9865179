"""Addresses of tables and the object stores behind them."""

from airflow_provider_onelake.storage.azure import Adls
from airflow_provider_onelake.storage.gcs import Gcs
from airflow_provider_onelake.storage.kinds import register
from airflow_provider_onelake.storage.local import Local
from airflow_provider_onelake.storage.onelake import OneLake
from airflow_provider_onelake.storage.s3 import S3

# The kind that is registered last is asked first, so OneLake, whose addresses look like ADLS's, comes after it.
for _kind in (Adls(), OneLake(), Gcs(), S3(), Local()):
    register(_kind)
