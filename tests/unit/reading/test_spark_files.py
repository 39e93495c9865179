"""What Spark reads for a path, as tests/integration/spark/test_planned.py has Spark itself say."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_onelake.exceptions import InvalidWriteError
from airflow_provider_onelake.reading.listing import local_files
from airflow_provider_onelake.reading.spark_files import base_of, is_glob, literal, normal, patterns, read_by_spark
from tests.support.spark_paths import CASES, TREE, Case, grow


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return grow(tmp_path_factory.mktemp("tree"))


@pytest.mark.parametrize("prefix", ["", "file://", "file:"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_path_stands_for_the_files_that_spark_reads(tree: Path, case: Case, prefix: str) -> None:
    options = {name: value.replace("TREE", str(tree)) for name, value in case.options.items()}
    paths = [f"{prefix}{tree}/{path}" for path in case.paths]
    found = read_by_spark((each for path in paths for each in local_files(path)), options)

    assert (found.conflict is None) == (case.names is not None)
    if case.names is not None:
        assert [file.path for file in found.files] == [f"{prefix}{tree}/{name}" for name in case.names]
        assert (found.base is not None) == bool(case.columns)
        # The columns of each file by itself are those of all.
        for file in found.files:
            alone = base_of(paths, [literal(file.path)], options)
            assert (alone.base is not None) == bool(case.columns)
            assert [each.path for each in alone.files] == [file.path]


@pytest.mark.parametrize("name", TREE)
def test_a_literal_path_is_this_very_file(tree: Path, name: str) -> None:
    path = literal(f"{tree}/{name}")
    roots = [each.root for each in local_files(path)]
    hidden = name in ("plain/.h.json", "plain/_c.json", "plain/w._COPYING_", "hive/_SUCCESS")
    assert roots == ([] if hidden else [f"{tree}/{name}"])


def test_a_literal_path_is_no_template() -> None:
    assert literal("/in/{{ ds }}{% x %}{# y #}") == r"/in/\{\{ ds \}\}\{\% x %\}\{\# y #\}"
    assert literal("s3a://b/m=1/a b.json") == "s3a://b/m=1/a b.json"
    assert is_glob(literal("/in/[1].json"))
    assert not is_glob("/in/1-,.json")


def test_a_conflict_says_what_to_do(tree: Path) -> None:
    found = read_by_spark((each for path in ("hive", "neg") for each in local_files(f"{tree}/{path}")), {})
    assert f"such as {tree}/hive and {tree}/neg; the reader's option basePath" in str(found.conflict)
    found = read_by_spark(local_files(f"{tree}/names"), {})
    assert found.conflict == "their directories have different columns, m=… and n=…"


def test_a_link_that_leads_around_ends(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    (tmp_path / "again").symlink_to(tmp_path)
    assert [each.file.path for each in local_files(str(tmp_path))] == [f"{tmp_path}/a"]


def test_a_relative_path_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").write_text("x")
    monkeypatch.chdir(tmp_path)
    for path in ("in", "./in", "i*", "in/a", "*/a"):
        assert [file.path for file in read_by_spark(local_files(path), {}).files] == ["in/a"]


@pytest.mark.parametrize("path", ["/in/{a,b", "/in/[a", "/in/[[a]", "/in/[b-a]"])
def test_what_hadoop_takes_for_no_glob_is_refused(path: str) -> None:
    with pytest.raises(InvalidWriteError, match="is no glob"):
        list(patterns(path))


def test_addresses_keep_what_stands_in_front() -> None:
    assert normal("s3a://bucket//in/./a/") == "s3a://bucket/in/a"
    assert normal("abfss://w@onelake.dfs.fabric.microsoft.com/x.Lakehouse/Files/") == (
        "abfss://w@onelake.dfs.fabric.microsoft.com/x.Lakehouse/Files"
    )
    assert base_of(["s3a://b/in"], ["s3a://b/in/m=1/a", "s3a://b/in/m=2/a"], {}).base == "s3a://b/in"
    assert base_of(["s3a://b/in/m=*"], ["s3a://b/in/m=1/a"], {}).base is None
    # Files that the source's path does not stand for have no columns either.
    assert base_of(["/in"], ["/out/m=1/a"], {}).base is None


@pytest.mark.parametrize("prefix", ["", "file://", "file:"])
def test_a_local_file_with_a_colon_in_its_name_is_named(tmp_path: Path, prefix: str) -> None:
    (tmp_path / "10:00.csv").touch()
    found = read_by_spark(local_files(f"{prefix}{tmp_path}"), {})
    assert (
        found.conflict
        == f"Spark cannot open {prefix}{tmp_path}/10:00.csv, a local file with a colon in its name: rename it"
    )


def test_a_file_of_a_store_may_have_a_colon_in_its_name() -> None:
    assert base_of(["s3a://b/in"], ["s3a://b/in/10:00.csv"], {}).conflict is None
