"""A file that is read by ranges: what is read is what is there, few requests, and never two objects in one."""

from __future__ import annotations

import io
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from obstore.store import MemoryStore

from airflow_provider_onelake.exceptions import ObjectNotFoundError, StoreUnavailableError
from airflow_provider_onelake.storage.ranged import TAIL, WINDOW, RangedFile
from airflow_provider_onelake.storage.stores import ObjectStore, Part
from tests.support.stores import Counted, PassingOn

SIZE = 20 << 20
DATA = Random(1).randbytes(SIZE)


def holding(data: bytes = DATA) -> Counted:
    store = ObjectStore(MemoryStore(), "the table")
    store.put("a", data)
    return Counted(store)


SPANS = st.lists(st.tuples(st.integers(0, SIZE + 9), st.integers(0, 3 << 19)), max_size=12)


@settings(deadline=None)
@given(reads=SPANS, expected=SPANS)
def test_whatever_is_expected_what_is_read_is_what_is_there(
    reads: list[tuple[int, int]], expected: list[tuple[int, int]]
) -> None:
    file, real = RangedFile(holding(), "a", SIZE), io.BytesIO(DATA)
    file.expect((start - 5, start + length) for start, length in expected)
    for start, length in reads + expected:
        assert file.seek(start) == real.seek(start)
        assert bytes(file.read(length)) == real.read(length)
        assert file.tell() == real.tell()
    assert file.seek(-7, io.SEEK_END) == SIZE - 7
    assert file.seek(3, io.SEEK_CUR) == SIZE - 4
    assert bytes(file.read()) == DATA[-4:]


def test_an_empty_file_is_read_without_a_request() -> None:
    store = holding(b"")
    assert bytes(RangedFile(store, "a", 0).read()) == b""
    assert not store.calls


def test_what_lies_close_together_is_one_request_and_a_long_range_is_read_in_windows() -> None:
    store = holding()
    file = RangedFile(store, "a", SIZE)
    assert (store.calls["get_range"], store.bytes_read) == (1, TAIL)
    long = (1 << 20, (1 << 20) + 3 * WINDOW)
    file.expect([(100, 200), (300, 5000), long, (SIZE - 50, SIZE - 40)])
    places = {start: start for start in (100, 300, long[0])}
    for _ in range(long[1] >> 16):
        # In turns, as Arrow reads the columns of a batch.
        for start, end in ((100, 200), (300, 5000), long):
            at = places[start]
            file.seek(at)
            places[start] = min(end, at + (1 << 16))
            assert file.read(places[start] - at) == DATA[at : places[start]]
    assert store.calls["get_range"] == 1 + 1 + 3
    assert store.bytes_read == TAIL + 4900 + 3 * WINDOW
    file.seek(SIZE - 50)
    assert file.read(10) == DATA[-50:-40]
    assert store.calls["get_range"] == 5


@pytest.mark.parametrize(
    "other", [DATA[::-1], DATA[:-1], DATA[:100], b""], ids=["same size", "shorter", "short", "none"]
)
def test_an_object_that_was_replaced_meanwhile_is_not_mixed_with_the_first(other: bytes) -> None:
    store = holding()
    file = RangedFile(store, "a", SIZE)
    store.put("a", other)
    file.seek(WINDOW)
    with pytest.raises(OSError, match="a was replaced or cut short"):
        file.read(10)
    if len(other) != SIZE:
        with pytest.raises(OSError, match="a was replaced or cut short"):
            RangedFile(store, "a", SIZE)


def test_errors_of_the_store_are_raised_as_they_are() -> None:
    class Silent(PassingOn):
        def get_range(self, path: str, start: int, end: int) -> Part:
            raise StoreUnavailableError(path)

    with pytest.raises(StoreUnavailableError):
        RangedFile(Silent(holding()), "a", SIZE)
    with pytest.raises(ObjectNotFoundError):
        RangedFile(holding(), "b", SIZE)
