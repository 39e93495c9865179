"""A Spark job definition of Fabric as a cluster: each job is a run of it, with a file of its own.

The run executes the same script as a batch of Livy does. It differs in two things. A run has no settings, so what a
job's session needs is told to the driver. And a run has no name: if the answer that has its id is lost, the driver is
found by what it writes into the table's store, as the driver of a standalone cluster is.

https://learn.microsoft.com/rest/api/fabric/sparkjobdefinition/background-jobs/run-on-demand-spark-job-definition
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from airflow_provider_onelake.engines.submit.package import MAIN_FILE, job_files, job_package
from airflow_provider_onelake.engines.submit.spool import JOB, RESULT
from airflow_provider_onelake.exceptions import (
    InvalidWriteError,
    ObjectNotFoundError,
    OneLakeError,
    SparkSetUpError,
    SparkUnavailableError,
    StoreUnavailableError,
)
from airflow_provider_onelake.fabric.jobs import SparkJobRuns
from airflow_provider_onelake.fabric.operations import State
from airflow_provider_onelake.fabric.rest import NothingBegunError

if TYPE_CHECKING:
    from airflow_provider_onelake.engines.submit.spool import JobSpool

logger = logging.getLogger(__name__)

_BLANK = re.compile(r"""[\s"'\\]""")


class Runs:
    """The runs of one definition; see :class:`~airflow_provider_onelake.engines.submit.clusters.Cluster`.

    :param runs: asks Fabric.
    :param settings: of each driver's session.
    :param libraries: addresses of further files.
    """

    appears_seconds = 120.0
    """Fabric may not show a new run yet."""

    def __init__(self, runs: SparkJobRuns, settings: Mapping[str, str], libraries: Sequence[str] = ()) -> None:
        self._runs = runs
        self._settings = [f"{name}={value}" for name, value in settings.items()]
        self._libraries = tuple(libraries)

    def files(self) -> Mapping[str, bytes]:
        """See :meth:`Cluster.files`."""
        return job_files()

    def check(self) -> None:
        """See :meth:`Cluster.check`: the definition is there."""
        try:
            self._runs.check()
        except ObjectNotFoundError as error:
            raise SparkSetUpError(f"{error} Correct the host of the connection. Nothing was submitted.") from error

    def submit(self, spool: JobSpool) -> str | None:
        """Begin a job's run, whose files are in the spool.

        :returns: its id; ``None`` if it is not known whether there is a run.
        :raises OneLakeError: there is none, and the error says why.
        """
        file, library = spool.address(MAIN_FILE.name), spool.address(job_package().name)
        arguments = [spool.address(JOB), spool.address(RESULT), spool.name, *self._settings]
        if blank := next((text for text in arguments if _BLANK.search(text)), None):
            raise InvalidWriteError(
                f"{blank!r} has a blank or a quote, and Fabric takes the arguments of a run as one text with blanks "
                "between. Nothing was submitted: use a table without them, or a connection to Livy."
            )
        try:
            return self._runs.begin(file, arguments, [library, *self._libraries])
        except NothingBegunError as error:
            raise SparkUnavailableError(
                f"{error} Nothing was submitted. Try again later: give the task `retries`, and a `retry_delay` for as "
                "long as there may be no room."
            ) from error
        except StoreUnavailableError as error:
            logger.warning("%s The run of %s is not asked for again: its driver will be heard of", error, spool.name)
            return None
        except ObjectNotFoundError as error:
            raise SparkSetUpError(f"{error} Correct the host of the connection. Nothing was submitted.") from error

    def look(self, spool: JobSpool) -> bool | None:
        """See :meth:`Cluster.look`. A run whose id nobody knows is over when no run of the definition is at work."""
        if (driver := spool.driver) == spool.name:
            return not self._runs.at_work()
        found = None if driver is None else self._runs.look(driver)
        return None if found is None else found.state is not State.RUNNING

    def kill(self, spool: JobSpool) -> None:
        """See :meth:`Cluster.kill`."""
        if (driver := spool.driver) == spool.name:
            raise SparkUnavailableError(
                f"The run of {spool.name} cannot be cancelled, because the answer with its id was lost. Cancel it "
                f"in the portal: it is one of {self._runs}. Its job file was taken back."
            )
        self._runs.cancel(str(driver))

    def last_words(self, spool: JobSpool) -> str | None:
        """See :meth:`Cluster.last_words`."""
        driver = spool.driver
        try:
            found = None if driver in (None, spool.name) else self._runs.look(str(driver))
        except OneLakeError:
            return None
        return None if found is None else f"Fabric says of its run {found.id}: {found.words}."
