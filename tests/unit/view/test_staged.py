"""What stands below a table is shown for bounded work, however many files its published buffers have."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.storage.stores import ObjectInfo
from airflow_provider_onelake.view import staged
from airflow_provider_onelake.view.staged import page_of_staged, staged_below
from airflow_provider_onelake.writes.publish import Committer
from tests.support.stores import PassingOn, through
from tests.support.tables import make_table, stage, writer_spec


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


def test_all_is_shown_what_is_in_flight_first(log: DeltaLog) -> None:
    page = page_of_staged(log)
    assert (page["staged"], page["found"], page["whole"]) == (staged_below(log), 4, True)
    assert [one["state"] for one in page["staged"]] == ["in flight", "closed", "closed", "closed"]
    assert page["staged"][0]["owner"] == "writer d"


def test_a_page_looks_at_so_many_objects_and_shows_no_half_buffer(log: DeltaLog) -> None:
    everything = {(one["path"], one["state"], one["complete"]) for one in staged_below(log)}
    number = len(list(log.store.list("staged")))
    for most in range(1, number):
        listed = Listed(log.store)
        page = page_of_staged(through(listed, log), most)
        assert listed.objects == most + 1
        assert not page["whole"]
        # The buffer that the end of the listing cuts is left out: its version 1 may lie behind the end.
        assert {(one["path"], one["state"], one["complete"]) for one in page["staged"]} <= everything
    assert page_of_staged(log, number)["whole"]


def test_a_page_shows_so_many(log: DeltaLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staged, "MOST_STAGED", 2)
    page = page_of_staged(log)
    assert ([one["state"] for one in page["staged"]], page["found"]) == (["in flight", "closed"], 4)
