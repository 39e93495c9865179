"""Numbers, lists and tables as people read them, in messages, logs and what commits say."""

from __future__ import annotations

from collections.abc import Collection, Sequence

# A load may have hundreds of writers, and every reader of the log fetches what a commit says of them.
MOST_LISTED = 10


def rows_in_words(count: int | None) -> str:
    """Return a number of rows; ``None`` stands for an unknown one."""
    return "an unknown number of rows" if count is None else counted(count, "row")


def counted(number: int, noun: str, form: str = "") -> str:
    """Return a number of things, such as ``1 row`` and ``3 rows``.

    :param noun: what one of them is called.
    :param form: how the number is written, as :func:`format` takes it.
    """
    return f"{number:{form}} {noun}{'' if number == 1 else 's'}"


def listed(texts: Sequence[str], most: int = MOST_LISTED, between: str = ", ") -> str:
    """Return the first texts of several, and how many more there are.

    :param most: how many are named. Default: 10.
    :param between: what stands between two of them.
    """
    return between.join(texts[:most]) + (f" and {len(texts) - most} more" if len(texts) > most else "")


def aligned(lines: Sequence[Sequence[str]], numbers: Collection[int]) -> list[str]:
    """Return the lines of a table whose columns stand below each other.

    :param lines: the cells, with the head first.
    :param numbers: the columns that stand at the right, as numbers do, counted from 0.
    """
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if place in numbers else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
