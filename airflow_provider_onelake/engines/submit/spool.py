"""The directory in the table's store by which a job's submitter and its driver on a cluster talk.

    staged/jobs/<attempt>/<what it does>/submission.json    the claim: whose it is, which driver it became
    staged/jobs/<attempt>/<what it does>/plan.json          what to do: without it, a driver does nothing
    staged/jobs/<attempt>/<what it does>/verdict.json       which driver it is, then how it went

A worker that died leaves it behind, and the next try reads it. It is removed when the job's verdict was read; of a job
that nobody asked for any more, VACUUM removes it as any file that the table does not name.

The plan is a ticket. A driver says which one it is *before* it reads the plan; whoever gives up a driver that nobody
has heard of takes the plan back *before* looking for a word of it once more. So either the driver is heard of, or it
finds no plan: work is never done twice, however long a submission was on its way.
"""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import attrs

from airflow_provider_onelake.engines.submit.package import Verdict, dump_plan, load_verdict
from airflow_provider_onelake.exceptions import ObjectExistsError, ObjectNotFoundError
from airflow_provider_onelake.staging.layout import JOBS

if TYPE_CHECKING:
    from airflow_provider_onelake.engines.jobs import SparkJob
    from airflow_provider_onelake.storage.stores import Store

PLAN, VERDICT, SUBMISSION = "plan.json", "verdict.json", "submission.json"

_UNSEEN_SECONDS = 180
# What differs between two tries of the same work.
_OF_A_TRY = ("attempt", "buffer_uri")


@attrs.frozen
class Exchange:
    """One job's directory.

    :param store: rooted at the table.
    :param path: relative to the table.
    :param uri: as Spark addresses it.
    """

    store: Store
    path: str
    uri: str

    @classmethod
    def of(cls, store: Store, job: SparkJob, kind: str) -> Exchange:
        """Return a job's.

        :param store: rooted at the table.
        :param job: that is submitted.
        :param kind: what it does.
        """
        return cls.at(store, job.table_uri, job.attempt, kind)

    @classmethod
    def at(cls, store: Store, table_uri: str, attempt: str, kind: str) -> Exchange:
        """Return that of an attempt.

        :param store: rooted at the table.
        :param table_uri: of the table, as Spark addresses it.
        :param attempt: its id.
        :param kind: what its job does.
        """
        path = f"{JOBS}/{attempt}/{kind}"
        return cls(store, path, f"{table_uri}/{path}")

    @classmethod
    def owned(cls, store: Store, table_uri: str, owner: str, kind: str) -> list[Exchange]:
        """Return those of all tries of a task whose verdict nobody has read, in one listing.

        :param store: rooted at the table.
        :param table_uri: of the table, as Spark addresses it.
        :param owner: as the jobs say; nothing is found for an empty one.
        :param kind: what the jobs do.
        """
        if not owner:
            return []
        ending = f"/{kind}/{SUBMISSION}"
        paths = [info.path.removesuffix(ending) for info in store.list(JOBS) if info.path.endswith(ending)]
        found = [cls.at(store, table_uri, path.rpartition("/")[2], kind) for path in sorted(paths)]
        return [exchange for exchange in found if exchange.owner == owner]

    @property
    def attempt(self) -> str:
        """Id of the attempt that submitted."""
        return self.path.split("/")[-2]

    def address(self, name: str) -> str:
        """Return an object's address, for Spark.

        :param name: of the object.
        """
        return f"{self.uri}/{name}"

    def send(
        self, kind: str, fields: Mapping[str, Any], files: Mapping[str, bytes] | None = None, owner: str = ""
    ) -> bool:
        """Claim the submission, and write what the driver needs.

        :param kind: what the job does.
        :param fields: of the job.
        :param files: by name, of the job's code. Default: none.
        :param owner: whose work it is, for :meth:`owned`.
        :returns: whether it is the caller's to submit; another execution of the attempt may have done so.
        """
        try:
            # Bytes of its own: of two executions with an answer that was lost, both would take equal ones for theirs.
            claim = {"owner": owner, "claim": uuid.uuid4().hex}
            self.store.create(f"{self.path}/{SUBMISSION}", json.dumps(claim).encode())
        except ObjectExistsError:
            # Not a file more: the plan may have been taken back.
            return False
        for name, content in {**(files or {}), PLAN: dump_plan(kind, fields)}.items():
            self.store.put(f"{self.path}/{name}", content)
        return True

    @property
    def submitted(self) -> bool:
        """Whether somebody claimed the submission."""
        return self._get(SUBMISSION) is not None

    @property
    def owner(self) -> str:
        """Whose work it is."""
        return str(self._submission.get("owner") or "")

    @property
    def driver(self) -> str | None:
        """The driver, as whoever submitted it knew it, or as it says itself; ``None`` while neither does."""
        known: str | None = self._submission.get("driver")
        return known or (verdict.driver if (verdict := self.verdict) else None)

    def remember(self, driver: str) -> None:
        """Write down which driver it became.

        :param driver: its id.
        """
        self._note(driver=driver)

    def does_work_of(self, kind: str, fields: Mapping[str, Any]) -> bool:
        """Say whether the plan that was sent is that of a job, whichever try's. One that was taken back is none.

        :param kind: what the job does.
        :param fields: of the job.
        """
        sent = self._get(PLAN)
        return sent is not None and _work(sent) == _work(dump_plan(kind, fields))

    def withdraw(self) -> bool:
        """Take the plan back, so that a driver that starts from now on does nothing.

        :returns: whether that is certain. Else a driver has spoken up, and may have read the plan before.
        :raises StoreUnavailableError: the store did not answer.
        """
        self.store.delete(f"{self.path}/{PLAN}")
        self._note(withdrawn=True)
        return self.driver is None

    @property
    def withdrawn(self) -> bool:
        """Whether the plan was taken back."""
        return bool(self._submission.get("withdrawn"))

    @property
    def verdict(self) -> Verdict | None:
        """What the driver says, ``None`` before it says anything.

        :raises SparkJobError: it is none of this version of the package.
        """
        content = self._get(VERDICT)
        # Hadoop writes in place where a store has no other way, so half of one may be there for a moment.
        return load_verdict(content) if content is not None and _is_whole(content) else None

    @property
    def age(self) -> float:
        """Seconds since the submission."""
        modified = self.store.head(f"{self.path}/{SUBMISSION}").modified
        return (datetime.now(UTC) - modified).total_seconds()

    @property
    def unseen(self) -> bool:
        """Whether the submission is so old that a driver of which nobody has heard is given up."""
        return self.age > _UNSEEN_SECONDS

    def clear(self) -> None:
        """Remove all of it; best effort, as VACUUM takes what is left."""
        with contextlib.suppress(Exception):
            # In the order of their names: the plan before the claim.
            for info in list(self.store.list(self.path)):
                self.store.delete(info.path)
            # Hadoop leaves empty objects on Azure that stand for the directories of what a driver wrote. The attempt's
            # may hold another job: whether a store deletes what is in a directory too, is not left to the store.
            for directory in (self.path, self.path.rpartition("/")[0]):
                if not any(True for _ in self.store.list(directory)):
                    self.store.delete(directory)

    @property
    def _submission(self) -> dict[str, Any]:
        said: dict[str, Any] = json.loads(self._get(SUBMISSION) or b"{}")
        return said

    def _note(self, **more: Any) -> None:
        self.store.put(f"{self.path}/{SUBMISSION}", json.dumps({**self._submission, **more}).encode())

    def _get(self, name: str) -> bytes | None:
        try:
            return self.store.get(f"{self.path}/{name}")
        except ObjectNotFoundError:
            return None


def _is_whole(content: bytes) -> bool:
    try:
        json.loads(content)
    except ValueError:
        return False
    return True


def _work(plan: bytes) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(plan)
    return {**said, "job": {name: value for name, value in said["job"].items() if name not in _OF_A_TRY}}
