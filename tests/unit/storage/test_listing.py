"""Listings: how many pages one asks for, and on which scale its times are."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

from obstore.store import LocalStore

from airflow_provider_onelake.reading.listing import stored_files
from airflow_provider_onelake.storage.local import LocalDirectory
from airflow_provider_onelake.storage.stores import ObjectStore


class _Pages:
    """A store with a hundred pages of a thousand objects; it counts those that are asked for."""

    def __init__(self) -> None:
        self.asked = 0

    def list(self, prefix: str, **_: Any) -> Iterator[list[dict[str, Any]]]:
        for page in range(100):
            self.asked += 1
            yield [
                {"path": f"{prefix}/{1000 * page + number:06d}", "size": 1, "last_modified": datetime.now(UTC)}
                for number in range(1000)
            ]


def test_who_takes_the_first_objects_pays_for_their_pages_only() -> None:
    pages = _Pages()
    store = ObjectStore.remote(lambda _: pages, "s3://b/t", 0)  # type: ignore[arg-type, return-value]
    found = [info.path for info in islice(store.list("staged"), 2_500)]
    assert found == [f"staged/{number:06d}" for number in range(2_500)]
    assert pages.asked == 3


FINE = datetime(2019, 1, 31, 12, 0, 5, 678_000, tzinfo=UTC)


class _Finer:
    """A store whose listings have milliseconds, which HTTP's ``Last-Modified`` has not."""

    def list(self, prefix: str, **_: Any) -> Iterator[list[dict[str, Any]]]:
        yield [{"path": "staged/0", "size": 1, "last_modified": FINE}]

    def head(self, path: str) -> dict[str, Any]:
        return {"path": path, "size": 1, "last_modified": FINE.replace(microsecond=0)}


def test_a_store_over_the_network_tells_one_time_of_an_object_whichever_way_it_is_asked() -> None:
    store = ObjectStore.remote(lambda _: _Finer(), "s3://b/t", 0)  # type: ignore[arg-type, return-value]
    (listed,) = store.list("staged")
    assert listed.modified == store.head("staged/0").modified == FINE.replace(microsecond=0)


def test_the_time_by_which_a_file_of_a_source_is_known_is_as_listed() -> None:
    store = ObjectStore.remote(lambda _: _Finer(), "s3://b/t", 0)  # type: ignore[arg-type, return-value]
    (found,) = stored_files(store, "s3a://b/t", ["staged"])
    assert found.file.modified == int(FINE.timestamp() * 1_000_000_000)


def test_a_local_disk_tells_one_time_of_an_object_whichever_way_it_is_asked(tmp_path: Path) -> None:
    store = LocalDirectory(LocalStore(prefix=tmp_path), "the table", root=tmp_path)
    store.put("staged/0", b"")
    assert [info.modified for info in store.list("staged")] == [store.head("staged/0").modified]
