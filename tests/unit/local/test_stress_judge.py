"""The judge of the stress finds what is wrong: each kind of fault, put into what a good run leaves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest

from airflow_provider_onelake.log.commits import FORMAT, Commit
from tests.live.stress.driver import Stress
from tests.live.stress.judge import Evidence, check_log, check_outcome, check_reader, check_versions
from tests.live.stress.shape import EACH, TOGETHER, Load

LOADS = [Load(EACH, "a", "a", "0"), Load(EACH, "b", "b", "0"), Load(TOGETHER, "t", "t", "0")]
BEFORE = {"a/spread": 60, "a/slot": 30}
AFTER = {"a/spread": 60, "b/slot": 30, "t/left": 40, "t/right": 24, "foreign/foreign": 7}
VECTOR = {"storageType": "u", "pathOrInlineDv": "x", "cardinality": 1}


def seen_by_reader(*answers: dict[str, Any]) -> list[str]:
    stress = Stress(None, 1, Path(), loads=LOADS, answers=list(answers))  # type: ignore[arg-type]
    seen = Evidence()
    check_reader(stress, seen)
    return seen.problems


def commit(version: int, *actions: dict[str, Any], buffer: str | None = None, **staged: Any) -> Commit:
    writer = {
        "app_id": f"app-{buffer}",
        "writer": "spread",
        "generation": 1,
        "buffer": buffer,
        "finished": "2019-01-01T00:00:00+00:00",
        "rows": 1,
        "fingerprint": "same",
    }
    info = {"operation": "WRITE", "staged": {"format": FORMAT, "writers": [writer] if buffer else [], **staged}}
    return Commit(version, [{"commitInfo": info}, *actions])


def add(path: str, **more: Any) -> dict[str, Any]:
    return {"add": {"path": path, "partitionValues": {}, **more}}


def remove(path: str) -> dict[str, Any]:
    return {"remove": {"path": path}}


def test_a_reader_of_whole_versions_saw_nothing_wrong() -> None:
    assert seen_by_reader({"version": 1, "rows": BEFORE}, {"version": 2, "rows": AFTER}) == []


@pytest.mark.parametrize(
    ("after", "problem"),
    [
        ({"error": "OSError: gone"}, "The reader met, 1 times: OSError: gone"),
        ({"version": 2, "rows": AFTER | {"b/spread": 59}}, "The reader saw 59 rows of b/spread in version 2"),
        ({"version": 2, "rows": AFTER | {"a/slot": 30}}, "The reader saw ['a/slot', 'b/slot'] in a slot in version 2"),
        ({"version": 0, "rows": AFTER}, "The reader saw version 0 after version 1"),
        *(
            ({"version": 2, "rows": {key: AFTER[key] for key in AFTER if key != gone}}, f"The reader saw {problem}")
            for gone, problem in (
                ("a/spread", "no a/spread any more in version 2"),
                ("b/slot", "nothing in a slot in version 2"),
                ("t/left", "half of t/left in version 2"),
                ("t/right", "half of t/left in version 2"),
            )
        ),
    ],
)
def test_what_a_reader_should_not_see_is_found(after: dict[str, Any], problem: str) -> None:
    assert seen_by_reader({"version": 1, "rows": BEFORE}, after) == [problem]


@pytest.mark.parametrize(
    ("commits", "problems"),
    [
        ([commit(0, add("x"), buffer="b0"), commit(1, remove("x"), add("y"), buffer="b1")], []),
        # A foreign DELETE.
        ([commit(0, add("x")), commit(1, remove("x"), add("x", deletionVector=VECTOR))], []),
        ([commit(0, add("x")), commit(1, add("x"))], ["x came with version 0 and 1"]),
        ([commit(0, add("x")), commit(1, remove("x"), add("x"))], ["x came with version 0 and 1"]),
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


def test_a_version_of_ours_that_another_overwrote_is_found() -> None:
    told = {"run_id": "a", "writer": "spread", "status": "published", "version": 1, "buffer": "b"}
    compacted = {"run_id": "o", "status": "published", "version": 2}
    good = Evidence(
        commits=[commit(0), commit(1, buffer="b"), commit(2, compaction={})], writes=[told], compactions=[compacted]
    )
    check_versions(good)
    assert (good.problems, good.overwritten) == ([], [])

    bad = attrs.evolve(good, commits=[commit(0), commit(1), commit(2)])
    check_versions(bad)
    assert len(bad.overwritten) == 2
    assert bad.problems == bad.overwritten
    assert bad.overwritten[0] == (
        "a: spread was published in version 1, which is WRITE of None in the log: it was overwritten"
    )


@pytest.mark.parametrize(
    ("writer", "status", "well"),
    [
        ("slot", "superseded", True),
        ("slot", "set_aside", True),
        ("slot", "deleted", False),
        ("spread", "superseded", False),
        ("spread", "already_published", True),
    ],
)
def test_only_what_replaces_a_slot_may_be_replaced(writer: str, status: str, well: bool) -> None:
    seen = Evidence()
    check_outcome({"run_id": "a", "writer": writer, "status": status, "error": None}, seen)
    assert seen.problems == ([] if well else [f"a: {writer} is {status}: None"])
