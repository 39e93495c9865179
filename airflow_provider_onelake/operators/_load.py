"""The base of operators behind the writers of a load: whose load it is, and which writers have begun."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow_provider_onelake.exceptions import InvalidWriteError
from airflow_provider_onelake.hooks.context import shares_its_name, task_run_of, write_group
from airflow_provider_onelake.operators._roles import is_writer
from airflow_provider_onelake.operators._spark_task import TableTaskOperator
from airflow_provider_onelake.operators._writers_of_run import WritersOfRun

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_onelake.buffers.identity import Load
    from airflow_provider_onelake.log.delta_log import DeltaLog


class LoadTaskOperator(TableTaskOperator):
    """A task that stands behind the writers of one load."""

    write_task_ids: Sequence[str] | None

    def writers(self) -> list[Any]:
        """Return the tasks of the load's writers: those of ``write_task_ids``, or all that stand directly before.

        :raises InvalidWriteError: there are none.
        """
        dag = self.get_dag()
        assert dag is not None
        if self.write_task_ids is not None:
            return [dag.get_task(task_id) for task_id in self.write_task_ids]
        tasks = [
            dag.get_task(task_id) for task_id in sorted(self.upstream_task_ids) if is_writer(dag.get_task(task_id))
        ]
        if not tasks:
            raise InvalidWriteError(f"{self.task_id} has no writers: put it behind OneLakeWriteOperators.")
        return tasks

    def load_of(self, context: Context, tasks: Sequence[Any], log: DeltaLog) -> Load:
        """Return the load whose writers tasks are.

        :param log: of the table, which may know the run by a former name.
        :raises InvalidWriteError: they are of several write groups.
        """
        groups = {write_group(task) for task in tasks}
        if len(groups) != 1:
            raise InvalidWriteError(
                f"{self.task_id} stands behind one write group, and its writers are of {', '.join(sorted(groups))}: "
                "put them into one OneLakeWriteTaskGroup."
            )
        return task_run_of(context, tasks[0]).found_in(log, self.hook.namespace).load(self.hook.namespace)

    def started_generations(
        self, context: Context, log: DeltaLog, load: Load, roll: WritersOfRun
    ) -> tuple[WritersOfRun, dict[str, int] | None]:
        """Look up in the claims which generation each writer began. A writer that got no claim counts as unnamed.

        Its key may have rows of an earlier generation in the table, and these must not pass for the rows of this one.

        :returns: the roll, and the generations by key, if other runs may have a load of the same name: each run
            publishes only the generations that it began.
        """
        from airflow_provider_onelake.buffers.claims import generation_of
        from airflow_provider_onelake.buffers.layout import WriterDirectory

        begun = {
            key: generation_of(log.store, load.writer(key), task_start) for key, task_start in roll.task_starts.items()
        }
        late = [
            key
            for key, generation in begun.items()
            # If the writer has no claim at all, a full VACUUM took its claims or it never began. Then the table's txn
            # decides.
            if generation is None and WriterDirectory.read(log.store, load.writer(key).directory).generation
        ]
        generations = {key: generation for key, generation in begun.items() if generation is not None}
        return roll.without(late), generations if shares_its_name(context) else None
