"""Every request that a writer's task asks of its store, from the operator's ``execute`` to its end, and what it is for.

On a store over the network, each of them that waits for the one before costs some tens of milliseconds. What Spark asks
is not among them.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.sources import FileSource
from airflow_provider_onelake.storage import stores
from tests.support.contexts import connect, context_of
from tests.support.engines import FakeEngine, use_engine
from tests.support.stores import InRounds
from tests.support.tables import ids, make_table
from tests.support.versions import needs_airflow

FIRST, NEXT = "_delta_log/00000000000000000000.json", "_delta_log/00000000000000000001.json"
AN_APPEND_OF_ONE_FILE = [
    # The table is loaded.
    ("get _delta_log/_last_checkpoint", "Is there a checkpoint?"),
    ("list _delta_log", "Which entries are there?"),
    (f"get {FIRST}", "What does the only one say?"),
    # The generation begins.
    ("list WRITER", "Which generations have begun, and which buffers have earlier tries?"),
    ("create WRITER/_claim-1.json", "Generation 1 is ours."),
    ("create WRITER/_claim-1.json", "Preflight: does the store refuse to create what is there?"),
    (f"get {NEXT}", "Is there a newer version? The load and the write begin at the newest after the claim."),
    ("create staged/_begun/LOAD.json", "The load begins here, if no other writer has begun it."),
    # The buffer is opened.
    (f"create BUFFER/{FIRST}", "Spark's job appends to it."),
    ("put BUFFER/_delta_log/00000000000000000000.crc", "With it, Spark does not list the log."),
    # Spark has appended, and the buffer is complete.
    (f"get BUFFER/{NEXT}", "Which files has it? If Spark had no rows, it is missing, and is put."),
    ("list BUFFER", "Are these files there, and when was the work finished, by the store's clock?"),
    ("get a range of BUFFER/FILE", "Statistics, from the file's footer."),
    # The commit: tests/unit/writes/test_requests.py says which of these are asked at once.
    (f"get {FIRST}", "Is it still the same table?"),
    (f"get {NEXT}", "Is there a newer version? What it says must not be in conflict."),
    ("get BUFFER/_closed.json", "Has anybody set the buffer aside?"),
    (f"create {NEXT}", "The rows are in the table."),
    ("put BUFFER/_closed.json", "The buffer is published."),
]
MOST = 20


@needs_airflow("3.3", "a store for what a task keeps")
def test_an_append_asks_this_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_table(tmp_path / "Tables/trips")
    connect(monkeypatch, OneLakeHook, lakehouse=str(tmp_path))
    use_engine(monkeypatch, FakeEngine({None: {"2019-01": [1]}}))
    opened, open_store = list[InRounds](), stores.open_store

    def watched(*given: Any) -> InRounds:
        opened.append(InRounds(open_store(*given), concurrency=1))
        return opened[-1]

    monkeypatch.setattr(stores, "open_store", watched)
    task = OneLakeWriteOperator(task_id="write", table="Tables/trips", source=FileSource("/data/x.json", format="json"))
    result = task.execute(context_of(task))
    (store,) = opened
    (file,) = (tmp_path / "Tables/trips").rglob("*.parquet")
    buffer = result["buffer"]
    name = str(file.relative_to(tmp_path / "Tables/trips" / buffer))
    asked = [
        re.sub(r"_begun/\w+", "_begun/LOAD", request)
        .replace(buffer, "BUFFER")
        .replace(buffer.rpartition("/")[0], "WRITER")
        .replace(name, "FILE")
        for (request,) in store.rounds
    ]
    assert asked == [request for request, _ in AN_APPEND_OF_ONE_FILE]
    assert len(asked) <= MOST
    assert ids(tmp_path / "Tables/trips") == [1]
