"""The judge of serial orders: which tables it accepts after which writes."""

from __future__ import annotations

import pytest

from tests.simulation.serial import Candidate, Rows, SerialOrder, Write, by_partition, difference


def rows(*named: str) -> Rows:
    """Rows such as ``0a``: row ``a`` of partition 0."""
    return by_partition(2, ((int(name[0]), name[1:]) for name in named))


def puts(*named: str) -> dict[int, frozenset[str]]:
    """What a write adds."""
    return {partition: there for partition, there in enumerate(rows(*named)) if there}


def overwrite(*named: str) -> Write:
    """A write of the whole table."""
    return Write(wipes=frozenset({0, 1}), puts=puts(*named))


@pytest.fixture
def order() -> SerialOrder:
    """Of a table with two rows in each partition, and the version after that was formed on it."""
    order = SerialOrder(rows())
    assert order.take_in([Candidate(Write(puts=puts("0a", "0b", "1c")), -1)], rows("0a", "0b", "1c")) is None
    return order


def test_a_write_of_the_whole_table_that_is_half_there_has_no_serial_order(order: SerialOrder) -> None:
    order.take_in([Candidate(Write(puts=puts("0x")), 0)], rows("0a", "0b", "0x", "1c"))
    half = rows("0a", "0b", "0x")
    expected = order.take_in([Candidate(overwrite("0n"), 0)], half)
    assert expected is not None
    assert list(difference(expected, half)) == ["partition 0 lacks ['n'] and has too much ['a', 'b', 'x']"]


def test_a_write_stands_before_an_append_that_came_later_in_the_order_but_earlier_in_the_log(
    order: SerialOrder,
) -> None:
    order.take_in([Candidate(Write(puts=puts("0x")), 0)], rows("0a", "0b", "0x", "1c"))
    before = Candidate(overwrite("0n"), 0, before=frozenset({1}))
    assert order.take_in([before], rows("0n", "0x")) is None
    assert order.order == [0, 2, 1]


def test_what_a_write_was_formed_on_comes_before_it(order: SerialOrder) -> None:
    order.take_in([Candidate(Write(puts=puts("0x")), 0)], rows("0a", "0b", "0x", "1c"))
    assert order.take_in([Candidate(overwrite("0n"), 1)], rows("0n", "0x")) == rows("0n")


@pytest.mark.parametrize(("undoes", "explained"), [(frozenset({2}), True), (frozenset[int](), False)])
def test_what_takes_rows_back_takes_them_along_to_where_it_stands(
    order: SerialOrder, undoes: frozenset[int], explained: bool
) -> None:
    """It has read partition 0 before what was appended there, and so it stands before that, behind which `o` landed."""
    order.take_in([Candidate(Write(puts=puts("0x")), 0)], rows("0a", "0b", "0x", "1c"))
    order.take_in([Candidate(Write(puts=puts("0o")), 1)], rows("0a", "0b", "0o", "0x", "1c"))
    again = Write(drops=frozenset({"o"}), puts=puts("1n"))
    reader = Candidate(again, 0, saw={0: frozenset({"a", "b"})}, undoes=undoes)
    assert (order.take_in([reader], rows("0a", "0b", "0x", "1c", "1n")) is None) is explained


def test_a_write_that_must_come_before_what_must_come_before_it_has_no_place(order: SerialOrder) -> None:
    order.take_in([Candidate(Write(puts=puts("0x")), 0)], rows("0a", "0b", "0x", "1c"))
    both = Candidate(overwrite("0n"), 0, after=frozenset({1}), before=frozenset({1}))
    assert order.take_in([both], rows("0n")) is not None


def test_where_the_rules_leave_it_open_any_way_will_do(order: SerialOrder) -> None:
    order.take_in([Candidate(Write(puts=puts("0x")), 0)], rows("0a", "0b", "0x", "1c"))
    ways = [Candidate(overwrite("0n"), 0), Candidate(overwrite("0n"), 0, before=frozenset({1}))]
    assert order.take_in(ways, rows("0n", "0x")) is None


def test_a_later_version_may_move_a_write_that_nothing_held_in_its_place(order: SerialOrder) -> None:
    order.take_in([Candidate(Write(wipes=frozenset({0}), puts=puts("0x")), 0)], rows("0x", "1c"))
    order.take_in([Candidate(Write(wipes=frozenset({1}), puts=puts("1y")), 0)], rows("0x", "1y"))
    assert (
        order.take_in([Candidate(overwrite("0n", "1n"), 0, frozenset({2}), frozenset({1}))], rows("0x", "1n")) is None
    )
    assert order.order == [0, 2, 3, 1]


def test_deletes_and_updates_are_of_rows_wherever_they_stand_in_the_order(order: SerialOrder) -> None:
    change = Write(drops=frozenset({"a"}), renames={"b": "b~1"})
    assert order.take_in([Candidate(change, 0)], rows("0b~1", "1c")) is None
    assert order.take_in([Candidate(change, 1)], rows("0b", "1c")) == rows("0b~1", "1c")
