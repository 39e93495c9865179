"""Our symlink manifests beside those of Delta's own GENERATE: the same bytes, for every name of a partition."""

from __future__ import annotations

import shutil
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_provider_onelake.exceptions import UnsupportedFeatureError
from airflow_provider_onelake.maintenance.manifests import DIRECTORY, ENABLED, generate
from airflow_provider_onelake.storage.addresses import TableAddress
from airflow_provider_onelake.table import Table
from tests.support.tables import local_log, stage, writer_spec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS = ("a b", "b/c", "d:e=1", "100%", "[x]^{y}", 'it\'s "q"', "a\\b", "é ü", "tab\there", "#1?*", "")


def manifests(table: Path) -> dict[str, list[str]]:
    """Return the lines of each manifest; Spark lists the files in the order of its threads."""
    return {
        str(path.relative_to(table / DIRECTORY)): sorted(path.read_text().splitlines())
        for path in (table / DIRECTORY).rglob("manifest")
    }


def test_they_are_those_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "a lake" / "t"
    spark.sql(
        f"CREATE TABLE delta.`{table}` (id BIGINT, `a:b` STRING, day DATE) USING delta PARTITIONED BY (`a:b`, day)"
    )
    rows = [(at, text, date(2019, 1, at % 3 + 1)) for at, text in enumerate(PARTITIONS)]
    for batch in (rows, [*rows, (50, None, None)]):
        frame = spark.createDataFrame(batch, "id BIGINT, `a:b` STRING, day DATE")
        frame.write.format("delta").mode("append").save(str(table))
    spark.sql(f"DELETE FROM delta.`{table}` WHERE id = 0")
    spark.sql(f"GENERATE symlink_format_manifest FOR TABLE delta.`{table}`")
    theirs = manifests(table)
    shutil.rmtree(table / DIRECTORY)
    generate(local_log(table), TableAddress.parse(str(table)).manifest_uri)
    assert manifests(table) == theirs
    assert len(theirs) == len(PARTITIONS)


def test_sparks_own_hook_and_ours_follow_one_another(spark: SparkSession, tmp_path: Path) -> None:
    """Spark keeps the manifests up to date after its commits, and we after ours."""
    table = tmp_path / "t"
    spark.sql(
        f"CREATE TABLE delta.`{table}` (id BIGINT, month STRING) USING delta PARTITIONED BY (month) "
        f"TBLPROPERTIES ('{ENABLED}' = 'true')"
    )
    ours = Table(TableAddress.parse(str(table)), None, 10.0)
    for number, month in enumerate(("01", "02", "01")):
        spark.sql(f"INSERT INTO delta.`{table}` VALUES ({number}, '{month}')")
        ours.committer().publish([stage(ours.log, writer_spec(f"w{number}"), {month: [10 + number]})])
    kept = manifests(table)
    spark.sql(f"GENERATE symlink_format_manifest FOR TABLE delta.`{table}`")
    assert kept == manifests(table)
    assert sum(map(len, kept.values())) == 6
    staged = list((table / "staged").rglob("manifest"))
    assert not staged


def test_spark_refuses_deletion_vectors_as_well(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "t"
    spark.sql(
        f"CREATE TABLE delta.`{table}` (id BIGINT) USING delta TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
    )
    spark.sql(f"INSERT INTO delta.`{table}` SELECT id FROM range(0, 10, 1, 1)")
    spark.sql(f"DELETE FROM delta.`{table}` WHERE id = 1")
    with pytest.raises(Exception, match="DELTA_UNSUPPORTED_GENERATE_WITH_DELETION_VECTORS"):
        spark.sql(f"GENERATE symlink_format_manifest FOR TABLE delta.`{table}`")
    with pytest.raises(UnsupportedFeatureError, match="APPLY"):
        generate(local_log(table), "file:t")
    spark.sql(f"ALTER TABLE delta.`{table}` SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'false')")
    spark.sql(f"REORG TABLE delta.`{table}` APPLY (PURGE)")
    assert generate(local_log(table), "file:t").files == 1
