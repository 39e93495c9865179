"""A source's partitions divided over writers by size."""

from __future__ import annotations

import hashlib
import heapq
import json
from collections.abc import Collection, Mapping

import attrs

from airflow_provider_onelake.exceptions import PlanError

_SHOWN = 5


@attrs.frozen
class Share:
    """What one writer gets.

    :param writer: its key, made from its partitions.
    :param partitions: their names, sorted.
    """

    writer: str
    partitions: tuple[str, ...]

    def size(self, sizes: Mapping[str, int]) -> int:
        """Return the share's size; a partition that is gone has none.

        :param sizes: in bytes, by partition.
        """
        return sum(sizes.get(name, 0) for name in self.partitions)


def balance(
    sizes: Mapping[str, int], *, writers: int | None = None, max_bytes: int | None = None, prefix: str = ""
) -> list[Share]:
    """Divide partitions over writers, each partition to exactly one.

    The largest partition goes first, always to the writer that has least. So no writer gets more than the mean and one
    partition, and the same sizes give the same shares, in whatever order they come. Where ``max_bytes`` would
    ask for more writers than a tight packing does, each partition goes to the first writer that has room for it.

    :param sizes: of the partitions, in bytes.
    :param writers: how many there should be; fewer where there are fewer partitions, more where ``max_bytes`` asks for
        them. Default: few (at most 11/9 of the fewest that ``max_bytes`` allows, and 6/9); without either, one for each
        partition.
    :param max_bytes: the most that a writer may get. Default: anything.
    :param prefix: of the writers' keys.
    :returns: the shares, in the order of their first partitions.
    :raises PlanError: a partition alone is above ``max_bytes``, or a number makes no sense.
    """
    _check(sizes, writers, max_bytes)
    if not sizes:
        return []
    count = len(sizes) if writers is None and max_bytes is None else writers or 1
    packed = None if max_bytes is None else _pack(sizes, max_bytes)
    if max_bytes is not None:
        count = max(count, -(-sum(sizes.values()) // max_bytes))
    while True:
        shares = _spread(sizes, min(count, len(sizes)))
        if max_bytes is None or max(sum(sizes[name] for name in share) for share in shares) <= max_bytes:
            break
        if packed is not None and len(packed) <= count:
            shares = packed
            break
        # With a writer for each partition it fits, as every partition does.
        count += 1
    return sorted((_share(share, prefix) for share in shares), key=lambda share: share.partitions)


def _spread(sizes: Mapping[str, int], count: int) -> list[list[str]]:
    # The number of partitions is in the heap too, so that empty ones are spread as well.
    heap = [(0, 0, index) for index in range(count)]
    shares: list[list[str]] = [[] for _ in range(count)]
    for name in _largest_first(sizes):
        size, length, index = heap[0]
        shares[index].append(name)
        heapq.heapreplace(heap, (size + sizes[name], length + 1, index))
    return shares


def _pack(sizes: Mapping[str, int], max_bytes: int) -> list[list[str]]:
    """First fit, the largest first: never more than 11/9 of the fewest, and 6/9."""
    room: list[int] = []
    shares: list[list[str]] = []
    for name in _largest_first(sizes):
        fits = next((index for index, left in enumerate(room) if left >= sizes[name]), len(room))
        if fits == len(room):
            room.append(max_bytes)
            shares.append([])
        room[fits] -= sizes[name]
        shares[fits].append(name)
    return shares


def _largest_first(sizes: Mapping[str, int]) -> list[str]:
    return sorted(sizes, key=lambda name: (-sizes[name], name))


def _share(names: Collection[str], prefix: str) -> Share:
    partitions = tuple(sorted(names))
    if len(partitions) == 1:
        return Share(f"{prefix}{partitions[0]}", partitions)
    digest = hashlib.sha256(json.dumps(partitions).encode()).hexdigest()[:8]
    return Share(f"{prefix}{partitions[0]}+{len(partitions) - 1}-{digest}", partitions)


def _check(sizes: Mapping[str, int], writers: int | None, max_bytes: int | None) -> None:
    if writers is not None and writers < 1:
        raise PlanError(f"writers={writers!r}: a number of writers, above 0. Nothing was planned.")
    if max_bytes is not None and max_bytes < 1:
        raise PlanError(f"max_bytes={max_bytes!r}: a size in bytes, above 0. Nothing was planned.")
    if wrong := [name for name, size in sizes.items() if not name.strip() or size < 0]:
        raise PlanError(f"{_some(wrong)}: a partition has a name, and a size of 0 bytes or more. Nothing was planned.")
    large = [f"{name} ({size} bytes)" for name, size in sorted(sizes.items()) if size > (max_bytes or size)]
    if large:
        raise PlanError(
            f"{_some(large)}: above max_bytes={max_bytes}, and a partition is not divided between writers. Nothing was "
            "planned: raise max_bytes, or divide the source more finely, down to its files (by=None) or by another "
            "column."
        )


def _some(names: Collection[str]) -> str:
    shown = ", ".join(list(names)[:_SHOWN])
    return shown if len(names) <= _SHOWN else f"{shown} and {len(names) - _SHOWN} more"
