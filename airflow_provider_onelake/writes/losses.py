"""Rows that writers staged and that are not in the table, because a policy counts another write more.

Such a writer is green: the policy decided as its author chose. With ``on_set_aside`` the author asks to be told of it
by a task that is skipped, or red.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from airflow_provider_onelake.choices import OnSetAside
from airflow_provider_onelake.exceptions import RowsSetAsideError
from airflow_provider_onelake.writes.policy import Outcome, Settlement

if TYPE_CHECKING:
    from airflow_provider_onelake.writes.report import Report

_TODO = "nothing else was changed. Clear the writer to write its rows on the newest version, or"
_RED = f"on_set_aside='fail' makes this task red; {_TODO} mark this task as successful to leave them out."
_SKIPPED = f"on_set_aside='skip' ends this task as skipped; {_TODO} leave it skipped to leave them out."


def loss_of(losses: Sequence[str], writer: str, where: str, on_set_aside: OnSetAside) -> str | None:
    """Say that rows of a writer are not in the table, whose rows stand there, and what to do.

    :param losses: what the policy left out, as :func:`left_out_of` says it.
    :param writer: its key.
    :param where: the version in which it was settled, and the table, in words.
    :param on_set_aside: what its author asks for.
    :returns: the message; ``None`` if the policy left nothing out, or if the author asks for no more than a warning.
    """
    if not losses or on_set_aside is OnSetAside.WARN:
        return None
    todo = _RED if on_set_aside is OnSetAside.FAIL else _SKIPPED
    return f"Rows of writer {writer!r} are not in the table: {'; '.join(losses)} ({where}). {todo}"


def left_out_of(settlements: Iterable[Settlement]) -> list[str]:
    """Say which rows a policy left out, in a sentence for each commit in conflict.

    :param settlements: of one commit.
    """
    return [str(one) for one in settlements if one.outcome is not Outcome.REPLACED]


def check_load(report: Report) -> None:
    """Refuse to call a load done if rows of its writers are not in the table, as other writes count more.

    :param report: of the load's reconciliation.
    :raises RowsSetAsideError: there are such rows; see :attr:`Report.left_out`.
    """
    if found := report.left_out:
        said = " ".join(f"{writer}: {'; '.join(why)}." for writer, why in found.items())
        raise RowsSetAsideError(f"Rows of these writers are not in the table {report.table}. {said} {_RED}")
