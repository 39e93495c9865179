"""The cells of the matrix: each differs in one version from the pinned column, which is what ``make test`` runs."""

from __future__ import annotations

from pathlib import Path

import attrs

LOCKS = Path(__file__).parent / "locks"

_SPARK = (
    "tests/airflow/test_spark_writers.py",
    "tests/integration/spark/test_stage.py",
    "tests/integration/spark/test_merge.py",
)
_AIRFLOW = tuple(
    f"tests/unit/{room}"
    for room in "assets decorators hooks links observability operators retry_policies sensors task_groups triggers view".split()
)


@attrs.frozen
class Cell:
    """One column of versions, and the tests that are run on it.

    :param name: of the cell, such as ``airflow-3.2``.
    :param tests: paths of tests.
    :param lock: the versions of its environment. Default: those of ``requirements.lock``.
    :param python: the Python of its environment, such as ``3.13``. Default: the one that runs.
    :param spark: the Spark of its servers and of its spark-submit. Default: the one beside Airflow.
    """

    name: str
    tests: tuple[str, ...]
    lock: Path | None = None
    python: str | None = None
    spark: str | None = None


CELLS = (
    Cell("airflow-3.1", _AIRFLOW, lock=LOCKS / "airflow-3.1.txt"),
    Cell("airflow-3.2", _AIRFLOW, lock=LOCKS / "airflow-3.2.txt"),
    Cell("spark-3.5", _SPARK, spark="3.5.9"),
    Cell("spark-4.0", _SPARK, spark="4.0.5"),
    Cell("spark-4.1", _SPARK, spark="4.1.4"),
    Cell("python-3.12", ("tests/unit",), python="3.12"),
    Cell("python-3.13", ("tests/unit",), python="3.13"),
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
