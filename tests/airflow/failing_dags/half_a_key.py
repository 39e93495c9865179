"""A connection that does not say how to sign in. The test makes it: a bucket, and a key without its secret.

at: write
error: CredentialsError: The connection half_a_key cannot sign in. Of the S3 key, the secret key is missing.
"""

import pendulum
from airflow.sdk import DAG

from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.sources import SqlSource

with DAG("half_a_key", schedule=None, start_date=pendulum.datetime(2019, 1, 1, tz="UTC")):
    OneLakeWriteOperator(
        task_id="write", table="Tables/t", source=SqlSource("SELECT 1 AS id"), onelake_conn_id="half_a_key"
    )
