"""The driver that one job became on a cluster: looked for, asked, given up, killed."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import attrs

from airflow_provider_onelake.exceptions import OneLakeError

if TYPE_CHECKING:
    from airflow_provider_onelake.engines.submit.clusters import Cluster
    from airflow_provider_onelake.engines.submit.spool import Exchange

log = logging.getLogger(__name__)


@attrs.frozen
class Driver:
    """A job's driver, whether or not anybody has heard of it yet.

    :param cluster: that it runs on.
    :param exchange: of the job.
    :param where: the master, for the log.
    """

    cluster: Cluster
    exchange: Exchange
    where: str

    def learn(self, known: str | None = None) -> str | None:
        """Return its id: as its submitter was told, as it says itself, or as the cluster knows it.

        :param known: from the submission. Default: nothing.
        :returns: ``None`` where nobody has heard of it.
        :raises SparkUnavailableError: the cluster does not answer.
        """
        told = None if known else self.exchange.driver
        found = known or told or self.cluster.find(self.exchange)
        if found is not None and told is None:
            self.exchange.remember(found)
            log.info("Spark at %s: driver %s", self.where, found)
        return found

    def at_work(self) -> bool:
        """Say of a driver that is not over whether it is known which one it is, and it has said nothing else so far.

        :raises StoreUnavailableError: the store did not answer.
        """
        verdict = self.exchange.verdict
        silent = verdict is None or (verdict.result is None and verdict.error is None)
        return silent and self.exchange.driver is not None

    def is_over(self) -> bool:
        """Say whether there is nothing to wait for: it has ended, or it is given up and will do nothing.

        :raises TransientError: the store or the cluster does not answer.
        """
        verdict = self.exchange.verdict
        # A failed driver may be started again by its cluster, a finished one needs no cluster any more.
        if verdict is not None and verdict.result is not None:
            return True
        driver = self.learn()
        if driver is not None:
            return self.cluster.is_over(driver)
        return (self.exchange.withdrawn or self.exchange.unseen) and self.give_up()

    def give_up(self) -> bool:
        """Take its plan back, so that it does nothing when it starts after all.

        :returns: whether it had not started.
        :raises StoreUnavailableError: the store did not answer.
        """
        given_up = self.exchange.withdraw()
        if given_up:
            log.warning(
                "Spark at %s: nobody has heard of the driver of attempt %s. Should it still start, it finds no plan "
                "and does nothing",
                self.where,
                self.exchange.attempt,
            )
        return given_up

    def kill(self) -> bool:
        """End it, also where it has not started yet; best effort.

        :returns: whether the store and the cluster took the order; else the driver may work on.
        """
        done = True
        # The plan first: one that its cluster starts again, or late, then has nothing to do.
        for step in (self.exchange.withdraw, self._kill):
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
