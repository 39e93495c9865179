"""Checks of staged rows that are no conditions in SQL, for the ``checks`` of a writer or a write group."""

from __future__ import annotations


def rows_like_last(loads: int | str = 5, *, at_least: float | str = 0.5, at_most: float | str | None = 2.0) -> str:
    """Return a check that passes if a writer has about as many rows as it had in its last loads.

    It compares with the median of the rows that the writer of the same namespace, DAG, group and key published in other
    runs, as the table's own log tells. In its first load there is nothing to compare with, and the check passes.

    :param loads: how many loads count, at most 100: the newest by the order in which they were published. Default: 5.
    :param at_least: the fewest rows that pass, as a part of the median. With 0, no number is too small. Default: 0.5.
    :param at_most: the most rows that pass, as a multiple of the median. With ``None``, no number is too large.
        Default: 2.
    :returns: the check as a text, ``rows_like_last(5, at_least=0.5, at_most=2.0)``. It may hold templates.
    """
    return f"rows_like_last({loads}, at_least={at_least}, at_most={at_most})"
