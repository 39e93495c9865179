"""The judge of the stress finds what is wrong in a log: each kind of fault, put into what a good run leaves."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_onelake.log.commits import FORMAT, Commit
from tests.live.stress.judge import Evidence, check_log

VECTOR = {"storageType": "u", "pathOrInlineDv": "x", "cardinality": 1}


def commit(version: int, *actions: dict[str, Any], buffer: str | None = None, **staged: Any) -> Commit:
    who = {"app_id": f"app-{buffer}", "writer": "first", "generation": 1, "buffer": buffer, "rows": 1}
    writer = {**who, "finished": "2019-01-01T00:00:00+00:00", "fingerprint": "same"}
    info = {"operation": "WRITE", "staged": {"format": FORMAT, "writers": [writer] if buffer else [], **staged}}
    return Commit(version, [{"commitInfo": info}, *actions])


def add(path: str, **more: Any) -> dict[str, Any]:
    return {"add": {"path": path, "partitionValues": {}, **more}}


def remove(path: str) -> dict[str, Any]:
    return {"remove": {"path": path}}


@pytest.mark.parametrize(
    ("commits", "problems"),
    [
        ([commit(0, add("x"), buffer="b0"), commit(1, remove("x"), add("y"), buffer="b1")], []),
        # A foreign DELETE.
        ([commit(0, add("x")), commit(1, remove("x"), add("x", deletionVector=VECTOR))], []),
        ([commit(0, add("x")), commit(1, add("x"))], ["x is in versions 0 and 1"]),
        ([commit(0, add("x")), commit(1, remove("x"), add("x"))], ["x is in versions 0 and 1"]),
        (
            [commit(0, add("x"), buffer="b"), commit(1, add("y"), buffer="b")],
            ["b is in versions 0 and 1", "app-b is in versions 0 and 1"],
        ),
        ([commit(0), commit(2)], ["The log has gaps: [0, 2]"]),
    ],
)
def test_what_is_in_the_log_twice_is_found(commits: list[Commit], problems: list[str]) -> None:
    seen = Evidence(commits=commits)
    check_log(seen)
    assert seen.problems == problems


def test_a_compaction_that_another_overwrote_or_that_nobody_tells_of_is_found() -> None:
    told = {"status": "published", "version": 1}
    for there, compactions in (({"compaction": {}}, [told]), ({}, [told]), ({"compaction": {}}, [])):
        seen = Evidence(commits=[commit(0), commit(1, **there)], compactions=compactions)
        check_log(seen)
        assert bool(seen.problems) == (bool(there) != bool(compactions))
