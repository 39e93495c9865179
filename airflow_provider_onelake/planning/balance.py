"""Divides a source's partitions over writers by size."""

from __future__ import annotations

import hashlib
import heapq
import json
from collections.abc import Collection, Mapping

import attrs

from airflow_provider_onelake.exceptions import PlanError
from airflow_provider_onelake.texts import listed

_SHOWN = 5


@attrs.frozen
class Share:
    """The partitions that one writer gets.

    :param writer: the writer's key, made from its partitions.
    :param partitions: the names of the partitions, sorted.
    """

    writer: str
    partitions: tuple[str, ...]

    def size(self, sizes: Mapping[str, int]) -> int:
        """Return the share's size in bytes; a partition that is gone counts as 0.

        :param sizes: the sizes in bytes, by partition.
        """
        return sum(sizes.get(name, 0) for name in self.partitions)


def balance(
    sizes: Mapping[str, int], *, writers: int | None = None, max_bytes: int | None = None, prefix: str = ""
) -> list[Share]:
    """Divide partitions over writers, each partition to exactly one.

    Partitions are dealt out from the largest to the smallest, each to the writer that has least. So no writer gets more
    than the mean plus one partition. If one would get more than ``max_bytes``, they are packed tightly instead: each
    partition goes to the first writer that has room. The same sizes give the same shares in whatever order they come.

    :param sizes: the sizes in bytes, by partition.
    :param writers: the number of writers; there are fewer if there are fewer partitions, and more if ``max_bytes``
        needs more. Default: few, at most 11/9 of the fewest that ``max_bytes`` allows, plus 6/9; without ``max_bytes``,
        one for each partition.
    :param max_bytes: the most bytes that a writer may get. Default: no limit.
    :param prefix: what every writer's key begins with.
    :returns: the shares, in the order of their first partitions.
    :raises PlanError: a partition alone is larger than ``max_bytes``, or a parameter makes no sense.
    """
    _check(sizes, writers, max_bytes)
    if not sizes:
        return []
    packed = [] if max_bytes is None else _pack(sizes, max_bytes)
    count = max(writers or (len(sizes) if max_bytes is None else 1), len(packed))
    shares = _spread(sizes, min(count, len(sizes)))
    if max_bytes is not None and any(sum(sizes[name] for name in share) > max_bytes for share in shares):
        shares = packed
    return sorted((_share(share, prefix) for share in shares), key=lambda share: share.partitions)


def _spread(sizes: Mapping[str, int], count: int) -> list[list[str]]:
    # The heap also holds the number of partitions, so that partitions of size 0 are spread as well.
    heap = [(0, 0, index) for index in range(count)]
    shares: list[list[str]] = [[] for _ in range(count)]
    for name in _largest_first(sizes):
        size, length, index = heap[0]
        shares[index].append(name)
        heapq.heapreplace(heap, (size + sizes[name], length + 1, index))
    return shares


def _pack(sizes: Mapping[str, int], max_bytes: int) -> list[list[str]]:
    """Pack by first fit, the largest partition first: this needs at most 11/9 of the fewest writers, plus 6/9."""
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
        raise PlanError(f"writers={writers!r} must be a number of writers, above 0. Nothing was planned.")
    if max_bytes is not None and max_bytes < 1:
        raise PlanError(f"max_bytes={max_bytes!r} must be a size in bytes, above 0. Nothing was planned.")
    if wrong := [name for name, size in sizes.items() if not name.strip() or size < 0]:
        raise PlanError(
            f"{listed(wrong, _SHOWN)}: a partition has a name, and a size of 0 bytes or more. Nothing was planned."
        )
    large = [f"{name} ({size} bytes)" for name, size in sorted(sizes.items()) if size > (max_bytes or size)]
    if large:
        raise PlanError(
            f"{listed(large, _SHOWN)}: above max_bytes={max_bytes}, and a partition is not divided between writers. "
            "Nothing was planned: raise max_bytes, or divide the source more finely, down to its files (by=None) or by "
            "another column."
        )
