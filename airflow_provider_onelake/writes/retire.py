"""Retiring writers: one commit after which nothing of theirs can ever be published (protocol: retired).

A retired writer's ``txn`` has the highest generation that there is. A commit of the writer needs a higher one, so of
the two only that one stands which comes first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from airflow_provider_onelake.buffers.identity import RETIRED
from airflow_provider_onelake.commit.entry import Entry
from airflow_provider_onelake.commit.loop import Proposal, Put, Tally, Transactions, View
from airflow_provider_onelake.commit.words import of_task


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
        return Put(self._entry(now), view.snapshot) if now else self._retired

    def committed(self, version: int, tally: Tally) -> frozenset[str]:
        """Return whom the commit retired, and who was retired before.

        :param version: of the table.
        """
        return self._retired

    def _entry(self, app_ids: Sequence[str]) -> Entry:
        return Entry(
            operation="WRITE",
            parameters={"mode": "Append"},
            message=of_task(self._by, "took over the files of writers that have not published", None),
            record={"retired": list(app_ids)},
            blind=True,
            txns=dict.fromkeys(app_ids, RETIRED),
        )
