"""Retiring writers: one commit after which nothing of theirs can ever be published (protocol: retired).

A retired writer's ``txn`` has the highest generation that there is. A commit of the writer needs a higher one, so of
the two only that one stands which comes first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from airflow_provider_onelake.buffers.identity import RETIRED
from airflow_provider_onelake.commit.entry import commit_info, stamp
from airflow_provider_onelake.commit.loop import Proposal, Put, Tally, Transactions, View
from airflow_provider_onelake.commit.words import of_task
from airflow_provider_onelake.exceptions import CommitContentionError
from airflow_provider_onelake.log.actions import Action
from airflow_provider_onelake.log.commits import FORMAT, STAGED
from airflow_provider_onelake.storage.clock import milliseconds


def retire(transactions: Transactions, writers: Mapping[str, int | None], by: str) -> frozenset[str]:
    """Retire writers of whom the table knows no more than the caller does.

    A writer that has published in the meantime is left as it is.

    :param writers: the generation that the caller saw in the table, by the writers' ``txn`` ids; ``None`` for none.
    :param by: who asks; shown to people.
    :returns: the ``txn`` ids of the writers that are retired now.
    :raises TableNotFoundError: there is no table.
    :raises CommitContentionError: others were faster in every attempt; nothing was changed.
    :raises StoreUnavailableError: the store did not answer until the budget was used up. A retry settles it.
    """
    return transactions.commit(_Retirement(transactions, writers, by))


@attrs.define(eq=False)
class _Retirement(Proposal[frozenset[str]]):
    """One call of :func:`retire`."""

    _transactions: Transactions
    _writers: Mapping[str, int | None]
    _by: str
    _retired: frozenset[str] = frozenset()

    def __attrs_post_init__(self) -> None:
        self._log = self._transactions.log
        self.name = f"the retirement of {len(self._writers)} writers"

    def decide(self, view: View) -> Put | frozenset[str]:
        """Retire those who have not published since."""
        txns = view.snapshot.txns
        view.snapshot.check_supported(self._log.table)
        before = {app_id for app_id in self._writers if txns.get(app_id) == RETIRED}
        now = [app_id for app_id, seen in self._writers.items() if app_id not in before and txns.get(app_id) == seen]
        self._retired = frozenset([*before, *now])
        return Put(self._entry(now, view)) if now else self._retired

    def committed(self, version: int, tally: Tally) -> frozenset[str]:
        """Return whom the commit retired, and who was retired before.

        :param version: of the table.
        """
        return self._retired

    def give_up(self, tally: Tally) -> frozenset[str]:
        """Change nothing.

        :raises CommitContentionError: always.
        """
        raise CommitContentionError(
            f"{self._log.table}: {tally.lost_races} of {tally.attempts} puts of {self.name} met another's commit, and "
            f"the budget of {self._transactions.backoff.budget:g} s is used up. Nothing was changed; a retry goes on."
        )

    def _entry(self, app_ids: Iterable[str], view: View) -> list[Action]:
        now = self._log.clock.now()
        told = of_task(self._by, "took over the files of writers that have not published", None)
        info = commit_info("WRITE", {"mode": "Append"}, view.snapshot, view.txn_id, now, blind=True, told=told)
        info[STAGED] = {"format": FORMAT, "retired": list(app_ids)}
        stamped = stamp(info, [], view.snapshot, now)
        written = milliseconds(now)
        txns: list[Action] = [
            {"txn": {"appId": app_id, "version": RETIRED, "lastUpdated": written}} for app_id in app_ids
        ]
        return [{"commitInfo": info}, *txns, *stamped]
