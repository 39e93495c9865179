"""The driver of one job on a cluster: how it is found, asked, given up and killed."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import attrs

from airflow_provider_onelake.exceptions import OneLakeError

if TYPE_CHECKING:
    from airflow_provider_onelake.engines.submit.clusters import Cluster
    from airflow_provider_onelake.engines.submit.spool import JobSpool

log = logging.getLogger(__name__)


@attrs.frozen
class Driver:
    """A job's driver, whether or not its id is known yet.

    :param where: the master, for the log.
    """

    cluster: Cluster
    spool: JobSpool
    where: str

    def learn(self, known: str | None = None) -> str | None:
        """Return the driver's id: from the submission, from the spool, or from the cluster.

        :param known: the id that the submission returned. Default: none.
        :returns: the id; ``None`` while it is unknown.
        :raises SparkUnavailableError: the cluster does not answer.
        """
        told = None if known else self.spool.driver
        found = known or told or self.cluster.find(self.spool)
        if found is not None and told is None:
            self.spool.remember(found)
            log.info("Spark at %s: driver %s", self.where, found)
        return found

    def at_work(self) -> bool:
        """Return whether a driver that is not over has a known id and has written no result and no error yet.

        :raises StoreUnavailableError: the store did not answer.
        """
        result = self.spool.result
        return (result is None or not result.is_final) and self.spool.driver is not None

    def is_over(self) -> bool:
        """Return whether the driver has ended, or is given up and will do nothing.

        :raises TransientError: the store or the cluster does not answer.
        """
        result = self.spool.result
        # A result ends the wait. An error does not, because the cluster may start a failed driver again.
        if result is not None and result.returned is not None:
            return True
        driver = self.learn()
        if driver is not None:
            return self.cluster.is_over(driver)
        return (self.spool.withdrawn or self.spool.unseen) and self.give_up()

    def give_up(self) -> bool:
        """Take the driver's job file back, so that the driver does nothing if it still starts.

        :returns: whether the driver had not started.
        :raises StoreUnavailableError: the store did not answer.
        """
        given_up = self.spool.withdraw()
        if given_up:
            log.warning(
                "Spark at %s: nobody has heard of the driver of attempt %s. Should it still start, it finds no job "
                "file and does nothing",
                self.where,
                self.spool.attempt,
            )
        return given_up

    def kill(self) -> bool:
        """Try to end the driver, also if it has not started yet.

        :returns: whether the store and the cluster took the order. If not, the driver may go on.
        """
        done = True
        # Take the job file back first: a driver that the cluster starts late, or again, then finds nothing to do.
        for step in (self.spool.withdraw, self._kill):
            try:
                step()
            except OneLakeError as error:
                done = False
                log.warning("A driver at %s could not be killed: %s", self.where, error)
        return done

    def _kill(self) -> None:
        driver = self.learn()
        if driver is not None:
            log.info("Killing driver %s at %s", driver, self.where)
            self.cluster.kill(driver)
