"""Partitions divided over writers: nothing left out, nothing twice, nobody with too much."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_onelake.exceptions import PlanError
from airflow_provider_onelake.planning.balance import balance

NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8).filter(str.strip)
SIZES = st.dictionaries(NAMES, st.integers(0, 10**6), max_size=40)
WRITERS = st.none() | st.integers(1, 12)


def loads(sizes: dict[str, int], **limits: int | None) -> list[int]:
    return [share.size(sizes) for share in balance(sizes, **limits)]


@given(sizes=SIZES, writers=WRITERS, room=st.none() | st.integers(0, 10**6))
def test_every_partition_is_in_exactly_one_writer_and_no_writer_is_too_large(
    sizes: dict[str, int], writers: int | None, room: int | None
) -> None:
    max_bytes = None if room is None else max(1, *sizes.values(), 0) + room
    shares = balance(sizes, writers=writers, max_bytes=max_bytes)

    assert sorted(name for share in shares for name in share.partitions) == sorted(sizes)
    assert all(share.partitions for share in shares)
    assert len({share.writer for share in shares}) == len(shares)
    if max_bytes is not None:
        assert all(share.size(sizes) <= max_bytes for share in shares)


@given(sizes=SIZES.filter(bool), writers=st.integers(1, 12))
def test_no_writer_gets_more_than_the_mean_and_one_partition(sizes: dict[str, int], writers: int) -> None:
    found = loads(sizes, writers=writers)
    assert len(found) == min(writers, len(sizes))
    assert max(found) <= sum(sizes.values()) / len(found) + max(sizes.values())


def fewest(sizes: list[int], max_bytes: int) -> int:
    """The fewest writers there could be, by trying every way."""

    def least(rest: list[int], loads: tuple[int, ...]) -> int:
        if not rest:
            return len(loads)
        first, *others = rest
        fits = [index for index, load in enumerate(loads) if load + first <= max_bytes]
        ways = [(*loads[:at], loads[at] + first, *loads[at + 1 :]) for at in fits]
        return min(least(others, way) for way in (*ways, (*loads, first)))

    return least(sizes, ())


@given(sizes=st.lists(st.integers(0, 12), min_size=1, max_size=7), room=st.integers(0, 12))
def test_with_max_bytes_alone_there_are_few_writers(sizes: list[int], room: int) -> None:
    max_bytes = max(1, *sizes) + room
    found = loads({str(number): size for number, size in enumerate(sizes)}, max_bytes=max_bytes)
    assert 9 * len(found) <= 11 * fewest(sizes, max_bytes) + 6


def test_a_tight_packing_is_found() -> None:
    assert sorted(loads({"a": 3, "b": 3, "c": 2, "d": 2, "e": 2}, max_bytes=6)) == [6, 6]


@given(sizes=SIZES, writers=WRITERS, seed=st.integers())
def test_the_order_of_the_partitions_does_not_count(sizes: dict[str, int], writers: int | None, seed: int) -> None:
    names = list(sizes)
    random.Random(seed).shuffle(names)
    assert balance({name: sizes[name] for name in names}, writers=writers) == balance(sizes, writers=writers)


def test_a_key_is_made_from_the_partitions_alone() -> None:
    (one,) = balance({"2019-01": 5}, writers=3)
    assert one.writer == "2019-01"
    (two,) = balance({"2019-01": 5, "2019-02": 6}, writers=1)
    (again,) = balance({"2019-02": 600, "2019-01": 0}, writers=1, max_bytes=1000)
    (other,) = balance({"2019-01": 5, "2019-03": 6}, writers=1)
    assert two.writer == again.writer
    assert two.writer.startswith("2019-01+1-")
    assert two.writer != other.writer
    assert balance({"2019-01": 5}, prefix="north-")[0].writer == "north-2019-01"


def test_a_partition_that_is_too_large_alone_is_refused_by_name() -> None:
    with pytest.raises(PlanError, match=r"^b \(11 bytes\), c \(12 bytes\): above max_bytes=10.*raise max_bytes, or"):
        balance({"a": 10, "b": 11, "c": 12}, max_bytes=10)


@pytest.mark.parametrize(
    ("sizes", "limits", "message"),
    [
        ({}, {"writers": 0}, "writers=0"),
        ({}, {"max_bytes": 0}, "max_bytes=0"),
        ({"a": -1}, {}, "a: a partition has"),
        ({" ": 1}, {}, "has a name"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(sizes: dict[str, int], limits: dict[str, int], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        balance(sizes, **limits)
