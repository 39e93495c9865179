"""Advice on what to add to a Spark that lacks something, chosen by the text of its error."""

from __future__ import annotations

import re
from collections.abc import Iterable

from airflow_provider_onelake.storage.spark import AZURE_PACKAGES, HADOOP, S3_PACKAGES, delta_package

_FILE_SYSTEM = f"It lacks the file system of the store. Add {{}} to its packages (for Hadoop {HADOOP}, or as its own)."

# The first pattern that matches decides.
_ADVICE = (
    (
        r"NoAuthWithAWSException|KeyProviderException|No AWS Credentials",
        (
            "It has no credentials for the table's store. Start it with the settings and the environment that "
            "OneLakeHook().spark_access(table) names, or with an identity of its own."
        ),
    ),
    (
        r'for scheme "?s3\b(?!a)',
        "It reads S3 by addresses that begin with s3a://, and one here begins with s3://: correct the source.",
    ),
    (r'fs[./]s3a\b|for scheme "?s3a', _FILE_SYSTEM.format(", ".join(S3_PACKAGES))),
    (r'fs[./]azurebfs\b|for scheme "?abfs', _FILE_SYSTEM.format(", ".join(AZURE_PACKAGES))),
    (r"this task has put there", "Let it reach the store, or the disk, of the lakehouse's connection."),
    (
        r"DELTA_CONFIGURE_SPARK_SESSION",
        (
            "Start it with spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension and "
            "spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog."
        ),
    ),
)


def what_to_add(said: Iterable[str]) -> str:
    """Return advice on what to add to Spark. A package is named with its version.

    :param said: the texts of an error and of its causes.
    """
    text = "\n".join(said)
    for pattern, advice in _ADVICE:
        if re.search(pattern, text):
            return advice
    return f"It lacks the JARs of Delta Lake. Add {delta_package()} to its packages, or the one that fits its version."
