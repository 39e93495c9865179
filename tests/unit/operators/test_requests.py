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

FIRST, NEXT = "_delta_log/00000000000000000000.json", "_delta_log/00000000000000000001.json"
AN_APPEND_OF_ONE_FILE = [
    # The table is loaded.
    ("get _delta_log/_last_checkpoint", "Is there a checkpoint?"),
    ("list _delta_log", "Which entries are there?"),
    (f"get {FIRST}", "What does the only one say?"),
    # The generation begins.
    ("list WRITER", "Which generations have begun?"),
    ("create WRITER/_claim-1.json", "Generation 1 is ours."),
    ("create WRITER/_claim-1.json", "Preflight: does the store refuse to create what is there?"),
    # The load has begun, or it begins.
    ("get staged/_begun/LOAD.json", "At which version has another writer begun it? Nobody has."),
    (f"get {NEXT}", "Is there a newer version? It begins at the newest."),
    ("create staged/_begun/LOAD.json", "It begins there for the writers that come."),
    (f"get {NEXT}", "Is there a newer version? Others of the run in it may be this writer under an old name."),
    # The table is looked at before the work is prepared.
    (f"get {NEXT}", "Is there a newer version? Without any, the table would be created."),
    ("list WRITER", "Has a rerun of this attempt begun a buffer, before a worker was lost?"),
    (f"get {NEXT}", "Is there a newer version? The table must be partitioned as asked."),
    # The claim is made for sure.
    (f"get {NEXT}", "Is there a newer version? The terms must fit it, and the rows may be in it."),
    ("list WRITER", "Has a newer generation begun?"),
    ("create WRITER/_claim-1.json", "Generation 1 is ours."),
    ("get WRITER/_claim-1.json", "It is there. Whose is it? Ours."),
    # The buffer is opened.
    (f"get BUFFER/{FIRST}", "Has this attempt a buffer, after a worker was lost?"),
    ("list WRITER", "Has an earlier attempt a buffer whose rows can be taken?"),
    (f"create BUFFER/{FIRST}", "Spark's job appends to it."),
    (f"get BUFFER/{FIRST}", "Its bytes, for the checksum."),
    ("put BUFFER/_delta_log/00000000000000000000.crc", "With it, Spark does not list the log."),
    # Spark has appended, and the buffer is complete.
    (f"get BUFFER/{FIRST}", "Which terms has the buffer?"),
    (f"create BUFFER/{NEXT}", "It is sealed, if Spark had no rows. It had some."),
    (f"get BUFFER/{FIRST}", "Which terms has the buffer?"),
    (f"head BUFFER/{NEXT}", "When was the work finished, by the store's clock?"),
    (f"get BUFFER/{NEXT}", "Which files has it?"),
    ("list BUFFER", "Are these files there?"),
    (f"get {NEXT}", "Is there a newer version? Its partitioning is needed for the result."),
    ("get a range of BUFFER/FILE", "Statistics, from the file's footer."),
    # The commit: tests/unit/writes/test_requests.py says which of these are asked at once.
    (f"get {FIRST}", "Is it still the same table?"),
    (f"get {NEXT}", "Is there a newer version? What it says must not be in conflict."),
    ("get BUFFER/_closed.json", "Has anybody set the buffer aside?"),
    (f"create {NEXT}", "The rows are in the table."),
    ("put BUFFER/_closed.json", "The buffer is published."),
    # The result.
    (f"get {NEXT}", "What did the commit leave out?"),
]


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
    assert ids(tmp_path / "Tables/trips") == [1]
