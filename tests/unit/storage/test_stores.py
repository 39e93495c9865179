"""The store's promises, on a real local disk and on the local OneLake: create-only above all."""

from __future__ import annotations

import errno
import multiprocessing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from obstore import exceptions as obstore_errors
from obstore.store import LocalStore, S3Store

from airflow_provider_onelake.exceptions import (
    AccessDeniedError,
    AddressError,
    ObjectExistsError,
    ObjectNotFoundError,
    StoreFullError,
    StoreUnavailableError,
)
from airflow_provider_onelake.log.actions import version_path
from airflow_provider_onelake.storage.addresses import TableAddress
from airflow_provider_onelake.storage.local import SyncedDirectory
from airflow_provider_onelake.storage.s3 import S3Credentials
from airflow_provider_onelake.storage.stores import (
    ObjectStore,
    Store,
    deltalake_options,
    deltalake_retries,
    open_store,
)
from local_onelake.faults import Fault
from tests.support.onelake import OneLake
from tests.support.racers import claim_versions, publish_where_files_may_not_grow, write_where_files_may_not_grow
from tests.support.tables import ids, make_table, stage, writer_spec

if TYPE_CHECKING:
    from obstore.store import RetryConfig

SPAWN = multiprocessing.get_context("spawn")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return SyncedDirectory(LocalStore(prefix=tmp_path), "the table", root=tmp_path)


def test_create_refuses_an_existing_object_and_leaves_it_alone(store: Store) -> None:
    store.create("a/b", b"first")
    with pytest.raises(ObjectExistsError, match="a/b in the table"):
        store.create("a/b", b"second")
    assert store.get("a/b") == b"first"


def test_put_replaces_an_existing_object(store: Store) -> None:
    store.create("a/b", b"first")
    store.put("a/b", b"second")
    assert store.get("a/b") == b"second"


@pytest.mark.parametrize(("name", "more"), [("get", ()), ("head", ()), ("get_range", (0, 1))])
def test_a_missing_object_is_said_to_be_missing(store: Store, name: str, more: tuple[int, ...]) -> None:
    store.create("a/b", b"")
    with pytest.raises(ObjectNotFoundError, match="a/c in the table"):
        getattr(store, name)("a/c", *more)


def test_a_range_is_part_of_the_object_whose_tag_it_has(store: Store) -> None:
    store.create("a/b", b"0123456789")
    parts = [store.get_range("a/b", *bounds) for bounds in ((0, 3), (3, 7), (7, 10), (8, 99))]
    assert [part.data for part in parts] == [b"012", b"3456", b"789", b"89"]
    assert len({part.tag for part in parts}) == 1
    store.put("a/b", b"another one")
    assert store.get_range("a/b", 0, 3).tag != parts[0].tag


def test_a_range_of_a_missing_object_is_said_to_be_missing(store: Store) -> None:
    with pytest.raises(ObjectNotFoundError, match="a/c in the table"):
        store.get_range("a/c", 0, 1)


def test_head_says_size_and_time(store: Store, tmp_path: Path) -> None:
    store.create("a/b", b"12345")
    info = store.head("a/b")
    assert (info.path, info.size) == ("a/b", 5)
    assert info.modified.timestamp() == pytest.approx((tmp_path / "a/b").stat().st_mtime, abs=1e-3)
    assert info.modified.utcoffset() is not None


def test_a_listing_is_in_the_order_of_paths(store: Store) -> None:
    for name in ("c", "a/z", "b", "a/10", "a/9"):
        store.create(f"dir/{name}", b"")
    assert [info.path for info in store.list("dir")] == ["dir/a/10", "dir/a/9", "dir/a/z", "dir/b", "dir/c"]


def test_a_listing_is_of_the_directory_only_not_of_its_namesakes(store: Store) -> None:
    for name in ("w-1/x", "w-10/x", "w-1x"):
        store.create(f"staged/{name}", b"")
    assert [info.path for info in store.list("staged/w-1")] == ["staged/w-1/x"]


def test_a_listing_starts_after_the_path_given(store: Store) -> None:
    for version in range(4):
        store.create(version_path(version), b"")
    assert [info.path for info in store.list("_delta_log", version_path(1))] == [version_path(2), version_path(3)]


def test_directories_are_those_directly_there(store: Store) -> None:
    for name in ("a/b/c", "a/é %20=1/d", "a/file", "top"):
        store.create(name, b"")
    assert store.directories("") == ["a"]
    assert store.directories("a") == ["b", "é %20=1"]
    assert store.directories("a/b") == store.directories("nowhere") == []


def test_a_listing_of_a_missing_directory_is_empty(store: Store) -> None:
    assert list(store.list("nowhere")) == []


@pytest.mark.parametrize("name", ["x y", "100%", "a%20b", "ü", "a=b:c+d", "q?&#!", "[1]", "~'\""])
def test_names_that_partition_values_lead_to_come_back_unchanged(store: Store, name: str) -> None:
    store.create(f"month={name}/part", b"here")
    assert store.get(f"month={name}/part") == b"here"
    assert store.head(f"month={name}/part").path == f"month={name}/part"
    assert [info.path for info in store.list(f"month={name}")] == [f"month={name}/part"]


def test_delete_removes_and_a_missing_object_is_no_error(store: Store) -> None:
    store.create("a/b", b"")
    store.delete("a/b")
    store.delete("a/b")
    with pytest.raises(ObjectNotFoundError):
        store.head("a/b")


# -- over the network ------------------------------------------------------------------------------------------------


def test_a_create_whose_answer_was_lost_has_succeeded(onelake: OneLake) -> None:
    store = onelake.lake().log().store
    onelake.served.faults.set("lost_answer", Fault(count=1, only="PUT"))
    store.create("a", b"mine")
    assert store.get("a") == b"mine"
    assert [asked.method for asked in onelake.asked if asked.path.endswith("/a")] == ["PUT", "PUT", "GET", "GET"]


def test_a_create_that_was_not_answered_has_not_succeeded_where_the_object_is_anothers(onelake: OneLake) -> None:
    store = onelake.lake().log().store
    store.create("a", b"theirs")
    onelake.served.faults.set("error_503", Fault(count=1, only="PUT"))
    with pytest.raises(ObjectExistsError):
        store.create("a", b"mine")
    assert store.get("a") == b"theirs"


def test_parts_of_what_was_replaced_within_a_second_have_another_tag(onelake: OneLake) -> None:
    store = onelake.lake().log().store
    tags = set()
    for number in range(3):
        store.put("a", f"{number}".encode())
        tags.add(store.get_range("a", 0, 1).tag)
    assert len(tags) == 3


def test_of_two_processes_exactly_one_creates_each_of_a_hundred_versions(tmp_path: Path) -> None:
    versions, names = 100, ("left", "right")
    lined_up, won = SPAWN.Barrier(len(names)), SPAWN.Queue()
    arguments = [(str(tmp_path), name, versions, lined_up, won) for name in names]
    rivals = [SPAWN.Process(target=claim_versions, daemon=True, args=args) for args in arguments]
    for rival in rivals:
        rival.start()
    results = dict(won.get(timeout=60) for _ in rivals)
    for rival in rivals:
        rival.join(timeout=60)
    assert sorted(results["left"] + results["right"]) == list(range(versions))
    for name, mine in results.items():
        for version in mine:
            assert (tmp_path / version_path(version)).read_text() == f'{{"{name}": {version}}}'


def test_a_disk_that_takes_no_more_is_said_to_be_full_and_nothing_is_left_behind(tmp_path: Path) -> None:
    said = SPAWN.Queue()
    process = SPAWN.Process(target=write_where_files_may_not_grow, daemon=True, args=(str(tmp_path), 1000, said))
    process.start()
    for _ in ("create", "put"):
        name, message = said.get(timeout=60)
        assert name == StoreFullError.__name__, message
        assert "a/b" in message
        assert "Nothing was published" in message
    process.join(timeout=60)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_full_disk_refuses_a_commit_early_and_leaves_the_table_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "t"
    log = make_table(path)
    buffer = stage(log, writer_spec(), {"2019-01": [1]})
    said = SPAWN.Queue()
    process = SPAWN.Process(
        target=publish_where_files_may_not_grow, daemon=True, args=(str(path), buffer.path, 100, said)
    )
    process.start()
    name, message = said.get(timeout=60)
    process.join(timeout=60)
    assert name == StoreFullError.__name__, message
    assert ids(path) == []
    assert [entry.name for entry in (path / "_delta_log").iterdir()] == [Path(version_path(0)).name]


class _Refusing:
    """Stands for obstore's store where the operating system says something that a test cannot make it say."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def put(self, *_: object, **__: object) -> None:
        raise self.error


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        pytest.param(errno.ENOSPC, StoreFullError, id="disk full"),
        pytest.param(errno.EROFS, StoreFullError, id="read-only"),
        pytest.param(errno.EDQUOT, StoreFullError, id="quota"),
        pytest.param(errno.EFBIG, StoreFullError, id="file size limit"),
        pytest.param(errno.EACCES, AccessDeniedError, id="no right"),
        pytest.param(errno.EPERM, AccessDeniedError, id="not permitted"),
        pytest.param(errno.EIO, StoreUnavailableError, id="anything else"),
    ],
)
def test_what_the_operating_system_says_becomes_a_named_error(number: int, expected: type[Exception]) -> None:
    text = f"Generic LocalFileSystem error: Unable to copy data to file: said (os error {number})"
    refusing = _Refusing(obstore_errors.GenericError(text))
    with pytest.raises(expected, match="a/b"):
        ObjectStore(refusing, "the table").create("a/b", b"")  # type: ignore[arg-type]


class _NoValue:
    """What no setting takes, not even by its text."""


def test_the_stores_own_clients_know_every_setting_of_their_retries() -> None:
    """Both leave a name that they do not know alone, without a word; what they know, they refuse if it has no value."""
    told: list[RetryConfig] = []

    def opened(again: RetryConfig) -> S3Store:
        return S3Store("lake", endpoint="http://127.0.0.1:1", retry_config=again)

    def remember(again: RetryConfig) -> S3Store:
        told.append(again)
        return opened(again)

    ObjectStore.remote(remember, "the table", 7.0)
    for again in told:
        backoff = again.get("backoff", {})
        wrong = [{**again, name: _NoValue()} for name in again if name != "backoff"]
        for given in (*wrong, *({**again, "backoff": {**backoff, name: _NoValue()}} for name in backoff)):
            with pytest.raises(TypeError, match=r"_NoValue|real number"):
                opened(given)  # type: ignore[arg-type]
    assert [again.get("max_retries") for again in told] == [10_000, 0]

    keys = S3Credentials(access_key="a", secret_key="s", endpoint="http://127.0.0.1:1", allow_http=True)
    options = deltalake_options(TableAddress.parse("s3://lake/table"), keys, 0.0)
    wrong = dict.fromkeys(deltalake_retries(0.0), r"failed to parse .*never")
    for name, said in {**wrong, "aws_region": "error sending request"}.items():
        with pytest.raises((DeltaError, OSError), match=said):
            DeltaTable("s3://lake/table", storage_options={**options, "max_retries": "0", name: "never"})


def test_opening_makes_the_directory(tmp_path: Path) -> None:
    store = open_store(TableAddress.parse(str(tmp_path / "new" / "table")))
    store.create("a", b"1")
    assert (tmp_path / "new/table/a").read_bytes() == b"1"


def test_opening_a_path_that_leads_through_a_file_is_refused_as_an_address(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in ("file", "file/table"):
        with pytest.raises(AddressError, match="cannot be made"):
            open_store(TableAddress.parse(str(tmp_path / path)))
