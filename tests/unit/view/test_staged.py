"""What stands below a table is shown for bounded work, however many files its published buffers have."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from airflow_provider_onelake.buffers.claims import Start, begin
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.storage.stores import ObjectInfo
from airflow_provider_onelake.view import staged
from airflow_provider_onelake.view.commits import instance
from airflow_provider_onelake.view.staged import page_of_staged, staged_below
from airflow_provider_onelake.writes.publish import Committer
from tests.support.changes import ChangeByHand, as_if_killed, change_of
from tests.support.stores import Counted, KilledError, PassingOn, through
from tests.support.tables import LOAD, foreign_append, make_table, stage, writer_spec


class Listed(PassingOn):
    """Counts the objects that listings of ``staged`` have given."""

    objects = 0

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        for info in super().list(prefix, start_after):
            self.objects += prefix == "staged"
            yield info


@pytest.fixture
def log(tmp_path: Path) -> DeltaLog:
    """Three published buffers and one that waits."""
    made = make_table(tmp_path / "trips")
    for key in ("a", "b", "c"):
        Committer(made).publish([stage(made, writer_spec(key), {"2019-01": [1]})])
    stage(made, writer_spec("d"), {"2019-01": [2]})
    return made


def test_what_waits_is_shown_and_what_is_closed_is_counted(log: DeltaLog) -> None:
    page = page_of_staged(log)
    assert (page["staged"], page["found"], page["closed"], page["whole"]) == (staged_below(log)[:1], 1, 3, True)
    assert [one["state"] for one in staged_below(log)] == ["in flight", "closed", "closed", "closed"]
    assert page["staged"][0]["owner"] == "writer d"


def test_a_page_looks_at_so_many_objects_and_shows_no_half_buffer(log: DeltaLog) -> None:
    (waiting,) = page_of_staged(log)["staged"]
    number = len(list(log.store.list("staged")))
    for most in range(1, number):
        listed = Listed(log.store)
        page = page_of_staged(through(listed, log), most)
        assert listed.objects == most + 1
        assert not page["whole"]
        # The buffer that the end of the listing cuts is left out: its version 1 may lie behind the end.
        assert {(one["path"], one["complete"]) for one in page["staged"]} <= {(waiting["path"], True)}
        assert page["closed"] <= 3
    assert page_of_staged(log, number)["whole"]


def test_what_is_not_closed_leads_to_the_task_whose_it_is(tmp_path: Path) -> None:
    log = make_table(tmp_path / "trips")
    begins = Start(id="d", task="load.write[3]", run_id="manual__1", chain="c", dag="taxi_v2")
    for key, start in (("eu", begins), ("us", attrs.evolve(begins, id="e", task="load.write_us", chain="e", dag=None))):
        begin(log, LOAD.writer(key), start)
        stage(log, writer_spec(key), {"2019-01": [1]})
    # An earlier release did not say which start it was of, and a claim may be damaged or gone.
    for key in ("old", "damaged", "gone"):
        stage(log, writer_spec(key), {"2019-01": [1]})
    log.store.put(f"{LOAD.writer('damaged').directory}/_claim-1.json", b"[")
    log.store.delete(f"{LOAD.writer('gone').directory}/_claim-1.json")
    engine = ChangeByHand(after=die)
    foreign_append(log, {"2019-01": [3]})
    with pytest.raises(KilledError):
        change_of(log, engine, task="forget").carry_out()
    as_if_killed(log)

    def told(namespace: str) -> dict[str, tuple[Any, ...]]:
        page = page_of_staged(log, namespace=namespace)["staged"]
        return {one["owner"]: (one["by"], one["run"], one["task"]) for one in page}

    found = told("test")
    assert found == {
        "writer eu": ("taxi.load", "manual__1", instance("taxi_v2", "manual__1", "load.write[3]")),
        "writer us": ("taxi.load", "manual__1", instance("taxi", "manual__1", "load.write_us")),
        "writer old": ("taxi.load", LOAD.run, None),
        "writer damaged": (None, None, None),
        "writer gone": (None, None, None),
        "statement test/dag/forget": ("dag.forget", "run", instance("dag", "run", "forget")),
    }
    # The tasks of another deployment are not known here.
    others = {owner: (by, run, None) for owner, (by, run, _) in found.items()}
    assert told("another") == others


def die(job: object) -> None:
    raise KilledError


def test_what_is_closed_costs_no_look_at_its_task(log: DeltaLog) -> None:
    counted = Counted(log.store)
    page_of_staged(through(counted, log))
    # What a snapshot takes, and version 0 and the claim of the buffer that waits.
    assert counted.calls["get"] == 1 + 4 + 1 + 1


def test_a_page_shows_so_many(log: DeltaLog, monkeypatch: pytest.MonkeyPatch) -> None:
    stage(log, writer_spec("e"), {"2019-01": [2]})
    monkeypatch.setattr(staged, "MOST_STAGED", 1)
    page = page_of_staged(log)
    assert ([one["owner"] for one in page["staged"]], page["found"]) == (["writer d"], 2)
