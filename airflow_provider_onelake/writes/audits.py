"""What the audits of a load agreed to: tasks between staging and publishing, which look at the staged rows.

An audit agrees to buffers and not to writers. A writer that stages again after the audits have looked has other rows,
so nobody has agreed to them.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from airflow_provider_onelake.buffers.identity import Load
from airflow_provider_onelake.exceptions import AuditRefusedError


@attrs.frozen
class Audit:
    """What the audits of a load agreed to.

    :param buffers: the path of the buffer that they looked at, by writer's key.
    :param objection: which audit has not succeeded, with its state; ``None`` if all of them have.
    :param again: what to clear so that they look again.
    """

    buffers: Mapping[str, str]
    objection: str | None
    again: str

    def refusal(self, load: Load, table: str, staged: Mapping[str, str]) -> AuditRefusedError | None:
        """Say why staged rows are not to be published; ``None`` if they are.

        :param load: whose rows they are.
        :param table: what messages call the table.
        :param staged: the path of the buffer that waits, by writer's key.
        """
        why = self.objection and f"of its audits, {self.objection}"
        unseen = next((key for key in staged if self.buffers.get(key) != staged[key]), None)
        if why is None and unseen is not None:
            why = f"writer {unseen!r} has staged rows that no audit has looked at, in {staged[unseen]}"
        if why is None:
            return None
        return AuditRefusedError(
            f"Nothing of load {load.id} of {table} was published: {why}. The rows of {', '.join(staged)} stay staged. "
            f"To have them looked at again, clear {self.again} with its downstream tasks; to stage other rows, correct "
            "the source and clear the writers with theirs."
        )
