"""Running a DAG in this process, and looking at what became of it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pendulum
from airflow.sdk import DAG

from tests.support.versions import dag_bag

JANUARY, FEBRUARY = (pendulum.datetime(2019, month, 1, tz="UTC") for month in (1, 2))


def store_dag(dag: DAG) -> None:
    """Put a DAG that a test has made into Airflow's database, as the DAG processor does."""
    from airflow.dag_processing.bundles.manager import DagBundlesManager

    dagbag = dag_bag()
    DagBundlesManager().sync_bundles_to_db()
    bag = dagbag.DagBag(dag_folder=os.devnull, bundle_path=Path(os.devnull))
    dag.fileloc = __file__
    bag.bag_dag(dag)
    dagbag.sync_bag_to_db(bag, "dags-folder", None)


def run_dag(dag: DAG, **arguments: Any) -> Any:
    """Run a DAG that a test has made: ``dag.test()`` itself only knows those in files."""
    store_dag(dag)
    return dag.test(**arguments)


def run_again(dag: DAG, run: Any, task_id: str, map_index: int = -1) -> str:
    """Clear one task of a run, as a person does, and run nothing but that; returns its state."""
    from airflow.models.taskinstance import clear_task_instances
    from airflow.sdk.definitions.dag import _run_task
    from airflow.utils.session import create_session
    from airflow.utils.state import TaskInstanceState

    with create_session() as session:
        clear_task_instances([_task_instance(run, task_id, map_index, session)], session)
    with create_session() as session:
        ti = _task_instance(run, task_id, map_index, session)
        ti.try_number += 1
        ti.state = TaskInstanceState.SCHEDULED
        session.commit()
        _run_task(ti=ti, task=dag.get_task(task_id), run_triggerer=True)
    return states(run)[task_id if map_index < 0 else f"{task_id}[{map_index}]"]


def _task_instance(run: Any, task_id: str, map_index: int, session: Any) -> Any:
    instances = run.get_task_instances(session=session)
    (found,) = [ti for ti in instances if (ti.task_id, ti.map_index) == (task_id, map_index)]
    return found


def states(run: Any) -> dict[str, str]:
    """The state of each task, by what people call it."""
    return {
        f"{ti.task_id}[{ti.map_index}]" if ti.map_index >= 0 else ti.task_id: str(ti.state)
        for ti in run.get_task_instances()
    }


def xcom(run: Any, task_id: str, key: str = "return_value", map_index: int = -1) -> Any:
    """What a task left behind."""
    from airflow.models.xcom import XComModel
    from airflow.utils.session import create_session

    with create_session() as session:
        found = session.scalars(
            XComModel.get_many(run_id=run.run_id, key=key, task_ids=task_id, dag_ids=run.dag_id, map_indexes=map_index)
        ).first()
        return XComModel.deserialize_value(found) if found is not None else None


def load_dag(file: Path, dag_id: str) -> DAG:
    """The DAG of a file, as Airflow parses it."""
    bag = dag_bag().DagBag(dag_folder=file, bundle_path=file.parent)
    assert not bag.import_errors, bag.import_errors
    return bag.dags[dag_id]
