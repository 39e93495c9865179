"""A source's files in a store, as Spark would read them, and their partitions."""

from __future__ import annotations

from pathlib import Path

import pytest
from obstore.store import LocalStore

from airflow_provider_onelake.exceptions import PlanError
from airflow_provider_onelake.reading.listing import by_partition, stored_files
from airflow_provider_onelake.reading.spark_files import SourceFile, literal, read_by_spark
from airflow_provider_onelake.storage.stores import ObjectStore

FILES = (
    "Files/in/month=2019-01/a.json",
    "Files/in/month=2019-01/b.json",
    "Files/in/month=2019-02/a.json",
    "Files/in/month=2019-02/_SUCCESS",
    "Files/in/_tmp/x.json",
    "Files/other.json",
    "Files/in2/c.json",
    "Files/in2/done/old.json",
    "Files/day/_day=1/a.json",
)


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    return ObjectStore(LocalStore(prefix=tmp_path), "the lakehouse")


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        pytest.param("Files/other.json", ["Files/other.json"], id="file"),
        pytest.param("Files/in", FILES[:3], id="directory"),
        pytest.param("Files/in/", FILES[:3], id="directory-with-slash"),
        pytest.param("Files/in/*/a.json", [FILES[0], FILES[2]], id="glob"),
        pytest.param("Files/in/month=*", FILES[:3], id="glob-of-directories"),
        pytest.param("Files/in/month=2019-0[1]", FILES[:2], id="class"),
        pytest.param("Files/in/month=2019-0?/{a,c}.json", [FILES[0], FILES[2]], id="braces"),
        pytest.param("Files/{other.json,in2}", [FILES[6], FILES[5]], id="braces-of-both"),
        pytest.param("*/other.json", ["Files/other.json"], id="from-the-root"),
        pytest.param("Files/*.json", ["Files/other.json"], id="not-across-slashes"),
        pytest.param("Files/i.2", [], id="a-dot-is-a-dot"),
        pytest.param("Files/missing", [], id="missing"),
        pytest.param("Files/in2", [FILES[6]], id="not-below-plain-directories"),
        pytest.param("Files/day", [FILES[8]], id="a-column-may-begin-with-an-underscore"),
        pytest.param("Files/in/month=2019-01/[!a]*", [FILES[1]], id="class-of-others"),
        pytest.param("Files/in/month=2019-01/[^a]*", [FILES[1]], id="class-of-others-by-a-caret"),
        pytest.param("Files/in/_tmp", ["Files/in/_tmp/x.json"], id="hidden-but-asked-for"),
    ],
)
def test_a_path_stands_for_the_files_that_spark_would_read(store: ObjectStore, pattern: str, found: list[str]) -> None:
    listed = read_by_spark(stored_files(store, "s3a://lake/", [pattern]), {}).files
    assert [file.path for file in listed] == [f"s3a://lake/{path}" for path in found]
    assert [file.size for file in listed] == [len(path) for path in found]
    assert all(file.modified > 1.6e18 for file in listed)


def test_a_file_is_listed_once_however_many_paths_stand_for_it(store: ObjectStore) -> None:
    paths = ["Files/other.json", "Files/*.json", "Files/o*"]
    reading = read_by_spark(stored_files(store, "s3a://lake", paths), {})
    assert [file.path for file in reading.files] == ["s3a://lake/Files/other.json"]


@pytest.mark.parametrize("count", [3, 30])
def test_a_share_is_looked_at_by_its_names_or_by_one_listing(store: ObjectStore, count: int) -> None:
    names = [f"Files/many/{number:02d}[x].json" for number in range(30)]
    for name in names:
        store.put(name, b"x")
    listed: list[str] = []
    below = store.list
    store.list = lambda prefix, start_after=None: listed.append(prefix) or below(prefix)  # type: ignore
    found = [each.file.path for each in stored_files(store, "s3a://lake", map(literal, names[:count]))]
    assert found == [f"s3a://lake/{name}" for name in names[:count]]
    assert listed == (names[:3] if count == 3 else ["Files/many"])


def files(*paths: str) -> list[SourceFile]:
    return [SourceFile(path, 1, 0) for path in paths]


@pytest.mark.parametrize(
    ("by", "names"),
    [
        pytest.param(None, ["/x/k=1/a", "/x/k=1/b", "/x/k=a%20b/a"], id="each-file"),
        pytest.param("k", ["1", "a b"], id="column"),
        pytest.param(r"/(\w)$", ["a", "b"], id="expression"),
    ],
)
def test_files_are_grouped_by_partition(by: str | None, names: list[str]) -> None:
    found = by_partition(files("/x/k=1/b", "/x/k=a%20b/a", "/x/k=1/a"), by)
    assert sorted(found) == names
    assert sorted(file.path for group in found.values() for file in group) == ["/x/k=1/a", "/x/k=1/b", "/x/k=a%20b/a"]


@pytest.mark.parametrize(
    ("by", "message"),
    [
        ("month", r"^/x/k=1/a belongs to no partition by='month'"),
        ("k=(2?)", "belongs to no partition"),
        ("k=", "one group"),
        ("(k)(=)", "one group"),
        ("(k", "no regular expression"),
    ],
)
def test_a_file_without_a_partition_is_not_left_out_in_silence(by: str, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        by_partition(files("/x/k=1/a"), by)
