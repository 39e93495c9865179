"""A try of a task, as a value: whose load it is, and who asks."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

import attrs

if TYPE_CHECKING:
    from airflow_provider_onelake.buffers.claims import Start
    from airflow_provider_onelake.buffers.identity import Load
    from airflow_provider_onelake.log.delta_log import DeltaLog
    from airflow_provider_onelake.statements.asker import Asker


@attrs.frozen
class TaskRun:
    """One try of one task instance.

    :param dag: the DAG's id.
    :param group: the write group that the task belongs to: the id of its task group, or the task's own id.
    :param run: the name of the run, the same for every rerun of it (protocol: writer identity); see
        :func:`~airflow_provider_onelake.hooks.context.run_name`.
    :param run_id: Airflow's id of the run.
    :param attempt: Airflow's id of the try. Every try has a new one (protocol: attempt id).
    :param label: what people call the task, such as ``load.write[3]``.
    :param map_index: the map index of a mapped task; -1 for other tasks.
    :param number: of the try, counted from 1 over all starts of the task instance.
    :param former: the name that the run had before the ticks of one partition key had a name each; ``None`` if it has
        its old name. Default: ``None``.
    :param may_be_former: whether the task may have begun under the former name, by what it has kept. Default: it has
        not.
    :param load_name: the name in place of the DAG's id, by which the table knows the load. Default: the DAG's id.
    """

    dag: str
    group: str
    run: str
    run_id: str
    attempt: str
    label: str
    map_index: int
    number: int = 1
    former: str | None = None
    may_be_former: bool = False
    load_name: str | None = None

    def found_in(self, log: DeltaLog, namespace: str) -> TaskRun:
        """Return the try under its run's former name, if it is under that name that the table has rows of the run.

        Call it after :func:`~airflow_provider_onelake.hooks.context.start_of`, which keeps the name that a new task
        has.

        :param log: of the table.
        :param namespace: the deployment's name, from the connection.
        """
        from airflow_provider_onelake.buffers.claims import claims
        from airflow_provider_onelake.buffers.identity import writers_among

        snapshot = log.snapshot_or_none() if self.former is not None else None
        if self.former is None or snapshot is None:
            return self
        for writer in writers_among(snapshot.txns, self.load(namespace).dag_prefix):
            if writer.load.run == self.former:
                published = snapshot.txns[writer.app_id]
                runs = {
                    claim.generation: claim.task_start.run_id for claim in claims(log.store, writer) if claim.task_start
                }
                # A full VACUUM may have taken the claim; later claims of the run and what the task keeps tell too.
                if published in runs:
                    is_mine = runs[published] == self.run_id
                else:
                    is_mine = self.may_be_former or self.run_id in runs.values()
                if is_mine:
                    return attrs.evolve(self, run=self.former, former=None)
        return self

    def load(self, namespace: str) -> Load:
        """Return the load that the task belongs to.

        :param namespace: the deployment's name, from the connection.
        """
        from airflow_provider_onelake.buffers.identity import Load

        return Load(namespace=namespace, dag=self.load_name or self.dag, group=self.group, run=self.run)

    def asker(self, log: DeltaLog, statement: str, task_start: Start, namespace: str, message: str | None) -> Asker:
        """Return who runs a statement, with the generation that the task's start has claimed.

        :param log: of the table.
        :param statement: the operation, and what tells the statement from a corrected one, such as ``delete/where=…``.
        :param task_start: the task's first start or last clear; all tries of it are one statement.
        :param namespace: the deployment's name, from the connection.
        :param message: of the task's author, for people who read the table's history.
        :raises ZombieWriterError: a newer start of the task has claimed a generation.
        """
        from airflow_provider_onelake.commit.words import task_in_words
        from airflow_provider_onelake.statements.asker import Asker

        by = task_in_words(self.dag, self.label, self.run_id, namespace)
        return Asker.of_task(log, self.owner(namespace), task_start, self.number, statement, by, message)

    def owner(self, namespace: str) -> str:
        """Name the task in its run.

        All tries have the same name. The same task in another run of the partition has another one.

        :param namespace: the deployment's name, from the connection.
        """
        return "/".join(quote(part, safe=":+[]") for part in (namespace, self.dag, self.label, self.run_id))
