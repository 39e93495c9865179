"""What samples say together: medians and ratios of one run, and every fault."""

from __future__ import annotations

import json

import attrs
import pytest

from tests.benchmarks.results import DELTA, OURS, Result, ratio
from tests.unit.benchmarks.conftest import load


def test_a_ratio_is_of_medians_beside_one_delta_job() -> None:
    loads = [*(load(OURS, jvm) for jvm in (6.0, 30.0, 9.0)), *(load(DELTA, jvm) for jvm in (4.0, 6.0, 100.0, 5.0))]
    assert ratio(loads, OURS, lambda seen: seen.jvm) == pytest.approx(9 / 5.5)
    assert ratio(loads, DELTA, lambda seen: seen.jvm) == 1


def test_there_is_no_ratio_without_figures() -> None:
    assert ratio([load(OURS, 5.0)], OURS, lambda seen: seen.jvm) is None


def test_a_result_survives_json(result: Result) -> None:
    assert Result.from_json(json.loads(json.dumps(result.to_json()))) == result


def test_a_fault_anywhere_is_found_and_says_where(result: Result) -> None:
    assert result.faults == []
    wrong = attrs.evolve(result.loads[2], faults=["3 rows are missing"])
    assert attrs.evolve(result, loads=[wrong]).faults == [f"Load shared, 7, {OURS}, 0: 3 rows are missing"]
    for part in ("races", "commits", "openings", "publishings", "tasks", "merges"):
        samples = [attrs.evolve(getattr(result, part)[0], faults=["lost"])]
        assert len(attrs.evolve(result, **{part: samples}).faults) == 1


def test_a_latency_is_that_of_a_share(result: Result) -> None:
    sample = attrs.evolve(result.commits[0], latencies=[float(n) for n in range(100)])
    assert (sample.latency(0.5), sample.latency(0.99), sample.latency(1)) == (50, 99, 99)
    assert attrs.evolve(sample, latencies=[]).latency(0.5) == 0
