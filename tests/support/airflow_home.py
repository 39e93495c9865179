"""An Airflow of the tests' own: its home and database are set before anything imports Airflow."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

CACHE = Path(__file__).resolve().parents[2] / ".local" / "tests"


def use_own_home() -> Path:
    """Point this process's Airflow to an empty directory; must come before the first import of Airflow."""
    if "airflow" in sys.modules:
        raise RuntimeError("Airflow was imported before the tests could give it a home.")
    home = Path(tempfile.mkdtemp(prefix="onelake-airflow-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    os.environ |= environment(home)
    return home


def environment(home: Path) -> dict[str, str]:
    """The settings of an Airflow that runs in process, on SQLite."""
    return {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(home / "dags"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        # Tests make one DAG after another under one id.
        "AIRFLOW__CORE__MIN_SERIALIZED_DAG_UPDATE_INTERVAL": "0",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home / 'airflow.db'}",
        "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(home / "logs"),
    }


def migrated_database(home: Path) -> Path:
    """Put a migrated database into a home: a copy of one that is made once per version of Airflow."""
    cached = CACHE / f"airflow-{version('apache-airflow')}.db"
    if not cached.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="onelake-airflow-") as directory:
            scratch = Path(directory)
            subprocess.run(
                [sys.executable, "-m", "airflow", "db", "migrate"],
                env={**os.environ, **environment(scratch)},
                check=True,
                capture_output=True,
            )
            # Renamed into place: another run may be looking.
            copy = cached.with_suffix(f".{os.getpid()}")
            shutil.copyfile(scratch / "airflow.db", copy)
            copy.rename(cached)
    return Path(shutil.copyfile(cached, home / "airflow.db"))
