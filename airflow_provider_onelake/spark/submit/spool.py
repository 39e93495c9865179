"""A job's spool: the directory in the table's store through which a submitter and its driver on a cluster talk.

    staged/jobs/<attempt>/<what it does>/submission.json    the claim: whose it is, which driver it became
    staged/jobs/<attempt>/<what it does>/job.json           what to do: without it, a driver does nothing
    staged/jobs/<attempt>/<what it does>/result.json        which driver it is, then how it went

If a worker dies, it leaves the directory behind, and the next try reads it. The directory is removed when the job's
result has been read. If no try reads the result, VACUUM removes the files, because the table does not name them.

The job file is a ticket. A driver writes its id *before* it reads the job file. A submitter that gives up an unknown
driver takes the job file back *before* it looks for the driver's id once more. So either the submitter finds the id, or
the driver finds no job file. Work is never done twice, however long a submission takes to arrive.
"""

from __future__ import annotations

import contextlib
import json
import threading
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import attrs

from airflow_provider_onelake.buffers.layout import JOBS
from airflow_provider_onelake.exceptions import ObjectExistsError, ObjectNotFoundError
from airflow_provider_onelake.spark.submit.package import JobResult, dump_job, load_result

if TYPE_CHECKING:
    from airflow_provider_onelake.storage.stores import Store

JOB, RESULT, SUBMISSION = "job.json", "result.json", "submission.json"

# So many characters of a claim tell the submissions of one attempt apart.
_OF_A_CLAIM = 8

# The fields of a job that differ between two tries of the same work.
_OF_A_TRY = ("attempt", "buffer_uri")


@attrs.frozen
class JobSpool:
    """One job's directory.

    :param store: a store rooted at the table.
    :param path: the directory, relative to the table.
    :param uri: the directory's address for Spark.
    """

    store: Store
    path: str
    uri: str
    _turn: threading.Lock = attrs.field(factory=threading.Lock, init=False, repr=False, eq=False)

    @classmethod
    def at(cls, store: Store, table_uri: str, attempt: str, kind: str) -> JobSpool:
        """Return the spool of an attempt's job."""
        path = f"{JOBS}/{attempt}/{kind}"
        return cls(store, path, f"{table_uri}/{path}")

    @classmethod
    def owned(cls, store: Store, table_uri: str, owner: str, kind: str) -> list[JobSpool]:
        """Return the spools of all tries of a task whose results are not read yet, with one listing.

        :param owner: the ``owner`` of the jobs. An empty one finds nothing.
        :param kind: the kind of the jobs.
        """
        if not owner:
            return []
        ending = f"/{kind}/{SUBMISSION}"
        paths = [info.path.removesuffix(ending) for info in store.list(JOBS) if info.path.endswith(ending)]
        found = [cls.at(store, table_uri, path.rpartition("/")[2], kind) for path in sorted(paths)]
        return [spool for spool in found if spool.owner == owner]

    @property
    def attempt(self) -> str:
        """Id of the attempt that submitted."""
        return self.path.split("/")[-2]

    @property
    def name(self) -> str:
        """The name by which a cluster finds the job's driver."""
        return "-".join(("onelake", *self.path.split("/")[-2:]))

    @property
    def own_name(self) -> str:
        """The name of this submission alone, for a cluster that takes a name only once.

        One attempt may submit several jobs of one kind. So the name has a part of the submission's claim in it.
        """
        return f"{self.name}-{str(self._submission.get('claim') or '')[:_OF_A_CLAIM]}".rstrip("-")

    def address(self, name: str) -> str:
        """Return the address of an object in the directory for Spark."""
        return f"{self.uri}/{name}"

    def send(
        self, kind: str, fields: Mapping[str, Any], files: Mapping[str, bytes] | None = None, owner: str = ""
    ) -> bool:
        """Claim the submission, and write the files that the driver needs.

        :param fields: the job's fields.
        :param files: the files of the job's code, by name. Default: none.
        :param owner: the job's owner, for :meth:`owned`.
        :returns: whether the caller is to submit the job. If not, another execution of the attempt has claimed it.
        """
        try:
            # Make the bytes of each claim different: after a lost answer, equal bytes would look like one's own claim.
            claim = {"owner": owner, "claim": uuid.uuid4().hex}
            self.store.create(f"{self.path}/{SUBMISSION}", json.dumps(claim).encode())
        except ObjectExistsError:
            # Write no file: the job file may have been taken back, and must not be there again.
            return False
        for name, content in {**(files or {}), JOB: dump_job(kind, fields)}.items():
            self.store.put(f"{self.path}/{name}", content)
        return True

    @property
    def submitted(self) -> bool:
        """Whether the submission has been claimed."""
        return self._get(SUBMISSION) is not None

    @property
    def owner(self) -> str:
        """The job's owner."""
        return str(self._submission.get("owner") or "")

    @property
    def driver(self) -> str | None:
        """The driver's id, written by the submitter or by the driver itself; ``None`` while neither has written it."""
        known: str | None = self._submission.get("driver")
        return known or (result.driver if (result := self.result) else None)

    def remember(self, **more: Any) -> None:
        """Write down more about the submission, such as the id of the job's ``driver``."""
        # A stop withdraws the job in one thread while the other learns the driver's id. Neither may lose what the other
        # has written.
        with self._turn:
            self.store.put(f"{self.path}/{SUBMISSION}", json.dumps({**self._submission, **more}).encode())

    def does_work_of(self, kind: str, fields: Mapping[str, Any]) -> bool:
        """Return whether the job file in the directory is for the same work as a job. One taken back never is."""
        sent = self._get(JOB)
        return sent is not None and _same_work(sent) == _same_work(dump_job(kind, fields))

    def withdraw(self) -> bool:
        """Take the job file back, so that a driver that starts from now on does nothing.

        :returns: whether that is certain. If not, a driver has written its id, and may have read the job file before.
        :raises StoreUnavailableError: the store did not answer.
        """
        self.store.delete(f"{self.path}/{JOB}")
        self.remember(withdrawn=True)
        return self.driver is None

    @property
    def withdrawn(self) -> bool:
        """Whether the job file was taken back."""
        return bool(self._submission.get("withdrawn"))

    @property
    def result(self) -> JobResult | None:
        """The driver's result; ``None`` until the driver has written one.

        :raises SparkJobError: another version of the package wrote the result.
        """
        content = self._get(RESULT)
        # On some stores Hadoop writes in place, so for a moment half a result may be there. Ignore it.
        return load_result(content) if content is not None and _is_whole(content) else None

    @property
    def age(self) -> float:
        """Seconds since the submission."""
        modified = self.store.head(f"{self.path}/{SUBMISSION}").modified
        return (datetime.now(UTC) - modified).total_seconds()

    def clear(self) -> None:
        """Remove the directory, as far as possible. VACUUM removes what is left."""
        with contextlib.suppress(Exception):
            # The listing is sorted by name, so the job file is deleted before the claim. Delete the result after both:
            # a try that finds the claim must find the result.
            for info in sorted(self.store.list(self.path), key=lambda info: info.path.endswith(RESULT)):
                self.store.delete(info.path)
            # On Azure, Hadoop leaves an empty object for each directory that a driver wrote to. The attempt's directory
            # may hold another job, and a store may delete a directory with its content, so delete only empty ones.
            for directory in (self.path, self.path.rpartition("/")[0]):
                if not any(True for _ in self.store.list(directory)):
                    self.store.delete(directory)

    @property
    def _submission(self) -> dict[str, Any]:
        said: dict[str, Any] = json.loads(self._get(SUBMISSION) or b"{}")
        return said

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


def _same_work(content: bytes) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(content)
    return {**said, "job": {name: value for name, value in said["job"].items() if name not in _OF_A_TRY}}
