"""Runs tasks of one release, the one that comes first on ``PYTHONPATH``, each in a process of its own.

:mod:`~tests.data.of_2223e7c8.two_releases` asks for them, one a line. Nothing here is used by the process that forks them:
it has only imported what they need.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import pkgutil
import re
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.support.airflow_home import use_own_home

use_own_home()

import pandas  # noqa: E402, F401
import pytest  # noqa: E402
from airflow.sdk import DAG  # noqa: E402

import airflow_provider_onelake  # noqa: E402
from airflow_provider_onelake.hooks.onelake import OneLakeHook  # noqa: E402
from airflow_provider_onelake.operators import statements as of_statements  # noqa: E402
from airflow_provider_onelake.operators.write import OneLakeWriteOperator  # noqa: E402
from airflow_provider_onelake.sources import SqlSource  # noqa: E402
from airflow_provider_onelake.storage import stores  # noqa: E402
from airflow_provider_onelake.task_groups.write import OneLakeWriteTaskGroup  # noqa: E402
from tests.data.of_2223e7c8 import runs  # noqa: E402
from tests.support.contexts import connect  # noqa: E402
from tests.support.engines import FakeEngine, use_engine  # noqa: E402
from tests.support.sql_by_hand import SqlByHand  # noqa: E402
from tests.support.stores import PassingOn  # noqa: E402

try:
    from airflow_provider_onelake.modes import Merge
    from airflow_provider_onelake.options import NewTable, Tuning
except ModuleNotFoundError:
    # As 2223e7c8 spells it.
    def new_table(**properties: str) -> dict[str, Any]:
        return {"partition_by": "month", "table_properties": properties}

    def merging(keys: Sequence[str], when: Sequence[str]) -> dict[str, Any]:
        return {"mode": "merge", "keys": keys, "when": when, "preflight": False}

else:

    def new_table(**properties: str) -> dict[str, Any]:
        """The terms of a table that the first writer makes."""
        return {"partition_by": "month", "new_table": NewTable(properties=properties)}

    def merging(keys: Sequence[str], when: Sequence[str]) -> dict[str, Any]:
        """The terms of a MERGE."""
        return {"mode": Merge(keys=keys, when=when), "tuning": Tuning(preflight=False)}  # type: ignore[arg-type]


def load(table: str, writers: Sequence[str], **terms: Any) -> DAG:
    """A load of writers, each with the rows of its name."""
    given = {"table": f"Tables/{table}", "committed": False, **new_table(), **terms}
    with DAG(table, schedule=None) as dag, OneLakeWriteTaskGroup(group_id="load", **given):
        for writer in writers:
            OneLakeWriteOperator(task_id=writer, source=SqlSource("SELECT * FROM source_of_all"), where=writer)
    return dag


def merge(table: str, rows: Sequence[int], when: Sequence[str]) -> DAG:
    """A MERGE of rows of March, by their ids."""
    query = " UNION ALL ".join(f"SELECT CAST({row} AS BIGINT) AS id, '2019-03' AS month" for row in rows)
    with DAG(table, schedule=None) as dag:
        OneLakeWriteOperator(
            task_id="statement", table=f"Tables/{table}", source=SqlSource(query), **merging(["id"], when)
        )
    return dag


def statement(table: str, kind: str, **terms: Any) -> DAG:
    """A statement of a task.

    :param kind: ``Delete``, ``Update`` or ``Truncate``.
    """
    with DAG(table, schedule=None) as dag:
        getattr(of_statements, f"OneLake{kind}Operator")(task_id="statement", table=f"Tables/{table}", **terms)
    return dag


# Airflow imports more when it makes its first DAG.
statement("warm", "Truncate")
DAGS = {made.__name__: made for made in (load, merge, statement)}


# Of what a task imports when it needs it, whatever its release calls it: an import in each fork would take longer.
_ROOMS = "buffers staging commit writes history statements definition log storage steps work hooks operators rows maintenance fabric planning observability"
for _found in pkgutil.walk_packages(airflow_provider_onelake.__path__, "airflow_provider_onelake."):
    if _found.name.split(".")[1] in _ROOMS.split() and not _found.ispkg:
        with contextlib.suppress(ImportError):
            importlib.import_module(_found.name)


class KilledError(BaseException):
    """The process of a task ends here."""


class Mortal(PassingOn):
    """A store in which a task's process waits before a put until it is let go, or from which on it writes nothing.

    :param dies: a pattern that the path of a put matches from its beginning, before which the process is killed.
    :param holds: the same, of the put before which it waits, once.
    """

    def __init__(self, inner: Any, dies: str | None, holds: str | None, out: Path) -> None:
        super().__init__(inner)
        self.dies, self.holds, self.out, self.dead = dies, holds, out, False

    def create(self, path: str, data: bytes) -> None:
        self._passes(path)
        super().create(path, data)

    def put(self, path: str, data: bytes) -> None:
        self._passes(path)
        super().put(path, data)

    def delete(self, path: str) -> None:
        self._passes(path)
        super().delete(path)

    def _passes(self, path: str) -> None:
        self.dead = self.dead or (self.dies is not None and re.match(self.dies, path) is not None)
        if self.dead:
            raise KilledError
        if self.holds is not None and re.match(self.holds, path):
            wait_at(self.out)


def wait_at(out: Path) -> None:
    """Wait, the first time, until this task is let go."""
    held, go = out.with_suffix(".held"), out.with_suffix(".go")
    if held.exists():
        return
    held.touch()
    until = time.monotonic() + 300
    while not go.exists() and time.monotonic() < until:
        time.sleep(0.005)


class Engine(SqlByHand):
    """Stages what the sources give, and does statements by hand."""

    def __init__(self, rows: Mapping[str | None, Any], *, vectors: bool, held: Path | None) -> None:
        super().__init__(vectors=vectors)
        self.fake = FakeEngine(rows, before=lambda job: wait_at(held) if held else None)

    def analyze(self, job: Any) -> str:
        return self.fake.analyze(job)

    def stage(self, job: Any) -> Any:
        return super().stage(job) if "CAST(" in job.source.get("query", "") else self.fake.stage(job)

    def audit(self, job: Any) -> Any:
        return self.fake.audit(job)


def run(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Run a try of a task.

    :param asked: ``lakehouse``, ``run``, ``dag`` by name and with its terms, ``task``, ``rows`` by writer and month,
        ``vectors``; and ``dies``, ``holds`` and ``holds_spark``, which say where it is killed or waits.
    :returns: the task instance, and how its try ended.
    """
    out = Path(asked["out"])

    class KeptAtOnce(runs.Kept):
        """What a task instance keeps is kept when it says so, and not when it ends."""

        def set(self, key: str, value: Any) -> None:
            super().set(key, value)
            out.with_suffix(".kept").write_text(json.dumps(self))

    of, ended = runs.Run.from_json(asked["run"]), ""
    opened = stores.open_store
    result = None
    with pytest.MonkeyPatch.context() as patch:
        connect(patch, OneLakeHook, lakehouse=asked["lakehouse"], namespace="prod")
        patch.setenv("AIRFLOW_CONN_SPARK_CONNECT_DEFAULT", '{"conn_type": "spark_connect", "host": "sc://127.0.0.1"}')
        patch.setattr(runs, "Kept", KeptAtOnce)
        patch.setattr(
            stores, "open_store", lambda *which: Mortal(opened(*which), asked.get("dies"), asked.get("holds"), out)
        )
        held = out if asked.get("holds_spark") else None
        use_engine(patch, Engine(asked.get("rows", {}), vectors=asked.get("vectors", False), held=held))
        try:
            name, terms = asked["dag"]
            result = of.run(DAGS[name](**terms), asked["task"])
        except KilledError:
            ended = "killed"
        except BaseException as error:
            found = re.match(r"(\w+Error): ", str(error))
            ended = found[1] if found else "".join(traceback.format_exception(error))
    status = result.get("status") if isinstance(result, Mapping) else None
    return {"task": of.to_json()["tasks"][asked["task"]], "ended": ended, "status": status}


def main() -> None:
    """Run what is asked for, until nobody asks any more."""
    print(airflow_provider_onelake.__file__, flush=True)
    # Nobody reads on, and Airflow logs to it.
    os.dup2(2, 1)
    for line in sys.stdin:
        asked = json.loads(line)
        if os.fork():
            # Whose processes have ended are forgotten.
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG) != (0, 0):
                    pass
            continue
        out = Path(asked["out"])
        try:
            said = run(asked)
        except BaseException:
            said = {"task": None, "ended": traceback.format_exc(), "status": None}
        draft = out.with_suffix(".draft")
        draft.write_text(json.dumps(said))
        draft.rename(out)
        os._exit(0)


if __name__ == "__main__":
    main()
