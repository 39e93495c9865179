"""The ledger: what it keeps of each file, by which spelling, and what reading it costs (protocol: one ledger)."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_onelake.buffers.identity import Load
from airflow_provider_onelake.planning.ledger import CHECKPOINT_EVERY, Ledger, Looked, key_of, name_of, path_of
from airflow_provider_onelake.reading.spark_files import SourceFile
from tests.support.stores import Counted
from tests.support.tables import local_log

BY_NAMES = "abfss://shop@onelake.dfs.fabric.microsoft.com/trips.Lakehouse"
BY_GUIDS = "abfss://6f1d@onelake.dfs.fabric.microsoft.com/93ab"
LOCAL = "file:///lake"


@pytest.mark.parametrize(
    ("path", "root", "other", "other_root"),
    [
        (f"{BY_NAMES}/Files/in/a", BY_NAMES, f"{BY_GUIDS}/Files/in/a", BY_GUIDS),
        ("/in/a", "", "file:///in/a", ""),
        ("/in/a", BY_NAMES, "file:/in/a", BY_GUIDS),
        ("file:///mnt/one/in/a", "file:///mnt/one", "file:///mnt/two/in/a", "file:///mnt/two"),
    ],
)
def test_two_spellings_of_a_file_are_one_file(path: str, root: str, other: str, other_root: str) -> None:
    name, other_name = name_of(path, root), name_of(other, other_root)
    assert key_of(name, root) == key_of(other_name, other_root)
    assert (path_of(name, root), path_of(other_name, other_root)) == (path, other)


@pytest.mark.parametrize("path", ["/lake/in/a", "file:/lake/in/a", "file:///lake/in/a", "file://localhost/lake/in/a"])
def test_a_file_of_a_local_lakehouse_is_one_file_however_it_is_spelled(path: str) -> None:
    name = name_of(path, LOCAL)
    assert {key_of(name, LOCAL), key_of("{lakehouse}/in/a", LOCAL)} == {"{lakehouse}/in/a"}
    assert path_of(name, LOCAL) == path  # A function opens the file as the author spells it.


def test_what_lies_beside_the_lakehouse_is_not_in_it() -> None:
    assert name_of(f"{BY_NAMES}2/Files/a", BY_NAMES) == f"{BY_NAMES}2/Files/a"
    assert name_of("/lake2/in/a", LOCAL) == "/lake2/in/a"


def test_a_plan_reads_a_checkpoint_and_few_entries_which_say_what_all_entries_say(tmp_path: Path) -> None:
    log = local_log(tmp_path)
    ledger = Ledger.read(log.store, "l", "")
    load = Load("test", "taxi", "load", "1")
    for number in range(2 * CHECKPOINT_EVERY + 3):
        file = SourceFile(f"/in/{number % 70}", number, number)
        looked = Looked({f"writer {number}": (1, "RESTORE")}, frozenset({"another"})) if number == 7 else None
        writers = {f"w{number}": [file]} if number % 5 else {}
        ignored = [] if number % 5 else [file]
        ledger.add(log.store, table_id="t", version=number, load=load, writers=writers, ignored=ignored, looked=looked)
    counted = Counted(log.store)
    assert Ledger.read(counted, "l", "") == ledger
    assert dict(counted.calls) == {"list": 1, "get": 1 + 3}
    for path in tmp_path.rglob("*.all.json.gz"):
        path.unlink()
    assert Ledger.read(log.store, "l", "") == ledger
