"""A listing of a store over the network asks for no more pages than its caller takes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import Any

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
