"""The cells of the matrix: each differs in one version from the pinned column, which is what ``make test`` runs."""

from __future__ import annotations

from pathlib import Path

import attrs

LOCKS = Path(__file__).parent / "locks"

_ROOMS = "assets decorators hooks links observability operators sensors task_groups triggers view test_airflow.py"
_AIRFLOW = (
    *(f"tests/unit/{room}" for room in _ROOMS.split()),
    "tests/airflow/test_sensor.py::test_it_ends_with_the_commit_it_waits_for",
    "tests/airflow/test_write_group.py::test_both_writers_rows_are_in_the_table",
    "tests/airflow/test_examples.py::test_old_months_are_deleted",
    "tests/airflow/test_upkeep.py::test_a_table_that_is_refused_does_not_stop_the_others",
)
_SPARK = (
    "tests/airflow/test_spark_writers.py",
    "tests/airflow/test_another_server.py",
    *(f"tests/integration/spark/test_{what}.py" for what in ("stage", "merge", "changes", "optimize", "vacuum")),
    "tests/integration/submit/test_local.py",
    "tests/integration/livy",
)


@attrs.frozen
class Cell:
    """One column of versions, and the tests that are run on it.

    :param name: of the cell, such as ``airflow-3.2``.
    :param tests: paths of tests.
    :param lock: the versions of its environment. Default: those of ``requirements.lock``.
    :param python: the Python of its environment, such as ``3.13``. Default: the one that runs.
    :param spark: the Spark of its servers and of its spark-submit. Default: the one beside Airflow.
    :param processes: that run its tests. Default: pytest's own, with one server of each kind.
    """

    name: str
    tests: tuple[str, ...]
    lock: Path | None = None
    python: str | None = None
    spark: str | None = None
    processes: int = 0


CELLS = (
    Cell("airflow-3.1", _AIRFLOW, lock=LOCKS / "airflow-3.1.txt"),
    Cell("airflow-3.2", _AIRFLOW, lock=LOCKS / "airflow-3.2.txt"),
    Cell("spark-3.5", _SPARK, spark="3.5.7"),
    Cell("spark-4.0", _SPARK, spark="4.0.5"),
    Cell("spark-4.1", _SPARK, spark="4.1.4"),
    Cell("python-3.12", ("tests/unit",), python="3.12", processes=3),
    Cell("python-3.13", ("tests/unit",), python="3.13", processes=3),
)
"""All but the pinned column."""


def cells_named(name: str) -> list[Cell]:
    """Return the cell of a name, or all cells if the name is empty.

    :raises LookupError: there is no such cell.
    """
    found = [cell for cell in CELLS if name in ("", cell.name)]
    if not found:
        raise LookupError(f"There is no cell {name!r}: it is one of {', '.join(cell.name for cell in CELLS)}.")
    return found
