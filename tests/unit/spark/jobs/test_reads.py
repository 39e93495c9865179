"""Whether a text names a table's directory: the half of the rule that needs no Spark (protocol: reads its target)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_provider_onelake.spark.jobs.reads import forget_cached, reads_table, uncached_plan

BY_GUIDS = (
    "abfss://0f3c8a1e-5b2d-4c6f-9a7b-1d2e3f4a5b6c@onelake.dfs.fabric.microsoft.com/"
    "a1b2c3d4-e5f6-4789-8abc-def012345678/Tables/trips"
)
ONELAKE = "abfss://taxi@onelake.dfs.fabric.microsoft.com/raw.Lakehouse/Tables/trips"


ADLS = "abfss://container@account.dfs.core.windows.net/lake/trips"


@pytest.mark.parametrize("table", ["/lake/trips", "/lake/my trips", ONELAKE, "s3a://bucket/lake/trips"])
def test_what_is_declared_does_not_count_and_everything_else_does(table: str) -> None:
    def reads(text: str) -> bool:
        declared = f"{table}/staged/w/a/_reads"
        return reads_table(None, "", table, [text], [], declared_uri=declared)  # type: ignore[arg-type]

    spelled = table.replace(" ", "%20") if "://" in table else f"file:{table.replace(' ', '%20')}"
    assert not reads(f"PreparedDeltaFileIndex(1 paths)[{spelled}/staged/w/a/_reads]")
    assert not reads(f"Delta[version=0, {spelled}/staged/w/a/_reads]")
    assert reads(f"PreparedDeltaFileIndex(1 paths)[{spelled}/staged/w/a/_reads_2]")
    assert reads(f"PreparedDeltaFileIndex(1 paths)[{spelled}/staged/w/a]")
    assert reads(f"[{spelled}/staged/w/a/_reads] Union PreparedDeltaFileIndex(1 paths)[{spelled}]")


@pytest.mark.parametrize(
    ("table", "text"),
    [
        ("/lake/trips", "delta.`/lake/trips`"),
        ("/lake/trips", "file:///lake/trips/month=2019-01/part-0.parquet"),
        ("/lake/trips", "file:/lake/trips"),
        ("file:///lake/trips", "PreparedDeltaFileIndex(1 paths)[file:/lake/trips]"),
        ("file:/lake/trips/", "/lake//trips"),
        ("/lake/my trips", "file:///lake/my%20trips/part-0.parquet"),
        (ONELAKE, f"SELECT * FROM delta.`{ONELAKE}/`"),
        (ONELAKE, ONELAKE.replace("@onelake", "@westeurope-onelake")),
        (ONELAKE.replace("@onelake", "@westeurope-onelake"), ONELAKE),
        (ONELAKE, ONELAKE.replace("onelake.dfs", f"{'0f' * 16}.z0f.dfs")),
        (ONELAKE.replace("onelake.dfs", f"{'0f' * 16}.z0f.dfs"), ONELAKE),
        (ONELAKE, ONELAKE.replace("abfss:", "abfs:")),
        (ONELAKE, ONELAKE.replace(".dfs.", ".blob.").replace("abfss:", "wasbs:")),
        (ONELAKE, ONELAKE.replace("onelake.dfs", "OneLake.dfs").replace(".Lakehouse", ".lakehouse")),
        (ONELAKE.replace("taxi", "my%20taxi"), f"delta.`{ONELAKE.replace('taxi', 'my taxi')}/part-0`"),
        (ADLS, ADLS.replace(".dfs.", ".blob.").replace("abfss:", "wasb:")),
        (ADLS, ADLS.replace("account.dfs", "Account.DFS").replace("/lake", ":443/lake")),
        ("s3a://bucket/lake/trips", "SELECT * FROM delta.`s3://bucket/lake/trips`"),
        ("s3a://bucket/lake/trips", "S3N://bucket/lake/trips/month=2019-01/part-0.parquet"),
    ],
)
def test_a_text_that_names_the_table(table: str, text: str) -> None:
    assert reads_table(None, "", table, [text], [])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("table", "text"),
    [
        ("/lake/trips", "/lake/trips_2/part-0"),
        ("/lake/trips", "/lake/trips-old"),
        ("/lake/trips", "/lake/trips.bak"),
        ("/lake/trips", "/old/lake/trips"),
        ("/lake/trips", "SELECT lake/trips FROM t"),
        (ONELAKE, ONELAKE.replace("raw", "other")),
        (ONELAKE, ONELAKE.replace("taxi@", "bus-taxi@")),
        (ONELAKE, ONELAKE.replace("trips", "TRIPS")),
        (ADLS, ADLS.replace("account", "other-account")),
        (ADLS, ADLS.replace("@account", "@accounts")),
        ("s3a://bucket/lake/trips", "s3://bucket-2/lake/trips"),
        ("s3a://bucket/lake/trips", "gs://bucket/lake/trips"),
    ],
)
def test_a_text_that_does_not(table: str, text: str) -> None:
    assert not reads_table(None, "", table, [text], [])  # type: ignore[arg-type]


class Caching:
    """A Spark that forgets what it cached, and cannot read by one scheme."""

    def __init__(self) -> None:
        self.forgotten: list[str] = []
        self.catalog = self

    def refreshByPath(self, path: str) -> None:  # noqa: N802 - Spark's
        if path.startswith("s3n:"):
            raise ValueError("No FileSystem for scheme: s3n")
        self.forgotten.append(path)


def test_what_was_cached_by_another_name_of_a_table_in_a_store_is_forgotten() -> None:
    spark = Caching()
    texts = ["FROM delta.`s3://b/my%20lake/t` -- s3n://b/my%20lake/t", "s3://b/t"]
    texts += ["FROM delta.`s3://b/my lake/t/month=1`"]
    forget_cached(spark, "", "s3a://b/my lake/t", texts)  # type: ignore[arg-type]
    assert spark.forgotten == ["s3a://b/my lake/t", "s3://b/my%20lake/t", "s3://b/my lake/t"]


class Planning(Caching):
    """A Spark that plans a query anew each time, as a list says."""

    def __init__(self, *plans: str) -> None:
        super().__init__()
        self.plans = list(plans)

    def sql(self, query: str) -> Planning:
        assert query.startswith(("EXPLAIN", "DESCRIBE"))
        return self

    def collect(self) -> list[tuple[str]]:
        return [(self.plans.pop(0),)]

    def clearCache(self) -> None:  # noqa: N802 - Spark's
        self.forgotten.append("all")


READ = "FileScan parquet Location: InMemoryFileIndex(1 paths)[file:/a/b%20c], PartitionFilters: [], …"
CACHED = f"InMemoryRelation [n]\n   +- {READ}"
CUT = "InMemoryRelation [n]\n   +- FileScan parquet Location: InMemoryFileIndex(2 paths)[abfss://c@h/a/b..., Format: …"
OF_A_CATALOG = (
    "InMemoryRelation [n]\n   +- *(1) BatchScan lake.db.t[n#1L] lake.db.t (branch=null) [filters=, groupedBy=]"
)
OF_HIVE = (
    "InMemoryRelation [n]\n   +- Scan hive spark_catalog.db.t [n#1L], HiveTableRelation [`spark_catalog`.`db`.`t`]"
)


@pytest.mark.parametrize(
    ("plans", "may_cache", "forgotten"),
    [
        pytest.param([READ], False, [], id="nothing-is-cached"),
        pytest.param([READ], True, [], id="nothing-is-cached-for-a-function"),
        pytest.param([CACHED, READ], False, ["all"], id="cached-by-another-session"),
        pytest.param([CACHED, CACHED], True, ["/a/b", "/a/b c", "/a/b%20c", "/x/y"], id="perhaps-by-its-author"),
        pytest.param([CUT, CACHED], True, ["/x/y", "abfss://c@h/a"], id="a-path-that-was-cut-off"),
        pytest.param([CUT, CUT, READ], True, ["/x/y", "abfss://c@h/a", "all"], id="a-path-that-nobody-knows"),
        pytest.param([OF_A_CATALOG, OF_A_CATALOG, READ], True, ["/x/y", "all"], id="a-table-without-a-path"),
        pytest.param([OF_HIVE, OF_HIVE, READ], True, ["/x/y", "all"], id="a-table-of-hive"),
        pytest.param([CACHED, READ + "..."], True, ["/a/b", "/a/b c", "/a/b%20c", "/x/y"], id="no-longer-cached"),
    ],
)
def test_what_would_come_from_the_cache_is_forgotten(plans: list[str], may_cache: bool, forgotten: list[str]) -> None:
    spark: Any = Planning(*plans[1:])
    found = uncached_plan(spark, "v", plans[0], ["SELECT * FROM parquet.`/x/y`"], may_cache=may_cache)
    assert (found, spark.plans) == (plans[-1], [])
    assert sorted(spark.forgotten) == sorted(forgotten)


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """Two tables, and links: to one of them, to what is above it, and to the other."""
    for name in ("my lake/trips/month=2019-01", "my lake/trips_2"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "my lake" / "trips")
    (tmp_path / "a link").symlink_to(tmp_path / "my lake")
    (tmp_path / "other").symlink_to(tmp_path / "my lake" / "trips_2")
    return tmp_path


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM delta.`{}/link`",
        "SELECT * FROM delta.`file://{}/a link/trips` VERSION AS OF 0",
        "SELECT * FROM delta.`{}/my lake/trips_2/../trips`",
        "SELECT * FROM delta.`{}/a%20link/trips/`",
        "PreparedDeltaFileIndex(1 paths)[file:{}/a%20link/trips]",
        "file:{}/link/month=2019-01/part-0.parquet",
        "{}/a link/trips/*.parquet",
        "FROM parquet.'{}/link/month=2019-01'",
    ],
)
def test_links_to_the_table_are_seen_through(lake: Path, text: str) -> None:
    assert reads_table(None, "", f"{lake}/my lake/trips", [text.format(lake)], [])  # type: ignore[arg-type]
    assert reads_table(None, "", f"file://{lake}/a link/trips", [text.format(lake)], [])  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["SELECT * FROM delta.`{}/other`", "{}/a link/trips_2", "{}/a link", "{}/my lake"])
def test_links_to_something_else_are_too(lake: Path, text: str) -> None:
    assert not reads_table(None, "", f"{lake}/my lake/trips", [text.format(lake)], [])  # type: ignore[arg-type]


@pytest.mark.parametrize(("table", "other"), [(BY_GUIDS, ONELAKE), (ONELAKE, BY_GUIDS)])
def test_a_table_of_onelake_is_known_by_names_and_by_guids_where_both_are_given(table: str, other: str) -> None:
    for text in (table, other, f"SELECT * FROM delta.`{other}`", other.replace("@onelake", "@westeurope-onelake")):
        assert reads_table(None, "", table, [text], [], other_uri=other)  # type: ignore[arg-type]
    for text in (f"{other}_2", other.replace("@", "1@")):
        assert not reads_table(None, "", table, [text], [], other_uri=other)  # type: ignore[arg-type]


def test_a_table_that_is_not_on_this_machine_is_known_by_its_name() -> None:
    assert not reads_table(None, "", "/no/such/lake/trips", ["/no/such/lake", "/"], [])  # type: ignore[arg-type]
    assert reads_table(None, "", ONELAKE, [], [f"{ONELAKE}/part-0.parquet"])  # type: ignore[arg-type]
