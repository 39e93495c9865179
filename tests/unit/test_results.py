"""The types of what writers leave in XCom have the keys that real writers leave there, and no others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, NotRequired, get_origin, get_type_hints

import attrs
import pytest
from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.sdk import DAG

from airflow_provider_onelake.checks import rows_like_last
from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.modes import Merge
from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.results import CheckResult, MergedResult, PublishedResult, SkippedResult, StagedResult
from airflow_provider_onelake.sources import SqlSource
from airflow_provider_onelake.spark.base import ChangeJob, SparkResult
from airflow_provider_onelake.task_groups.write import OneLakeWriteTaskGroup
from tests.support.contexts import JANUARY, connect, context_of
from tests.support.engines import FakeEngine, use_engine
from tests.support.merges import MergeByHand
from tests.support.tables import make_table

Made = Callable[..., list[dict[str, Any]]]
CHECKS = {"checks": {"small": "id < 2"}}


@attrs.define
class Merging(FakeEngine):
    """Stages rows, and merges them by hand."""

    by_hand: MergeByHand = attrs.field(factory=MergeByHand)

    def change(self, job: ChangeJob) -> SparkResult:
        return self.by_hand.change(job)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Made:
    """Runs writers, each by its terms, and returns what they leave in XCom."""
    connect(monkeypatch, OneLakeHook, lakehouse=str(tmp_path))
    make_table(tmp_path / "Tables" / "trips")
    use_engine(monkeypatch, Merging({None: {"x": [1, 2]}, "none": {}}))

    def result(number: int, terms: Mapping[str, Any]) -> dict[str, Any]:
        ti = terms.get("ti", {})
        given = {name: value for name, value in terms.items() if name not in ("ti", "group")}
        given = {"task_id": "write", "writer": f"w{number}", "source": SqlSource("SELECT 1"), **given}
        with DAG("taxi", schedule=None), OneLakeWriteTaskGroup("load", table="Tables/trips", **terms.get("group", {})):
            task = OneLakeWriteOperator(**given)
        context = context_of(task, JANUARY + timedelta(days=number), run_id=f"r{number}", **ti)
        try:
            return task.execute(context)
        except AirflowFailException:
            return dict(context["ti"].pushed["return_value"])

    return lambda *all_terms: [result(number, terms) for number, terms in enumerate(all_terms)]


def assert_has(kind: Any, found: list[dict[str, Any]]) -> None:
    """Compare the keys of results with those of their type, both ways."""
    keys, hints = [set(each) for each in found], get_type_hints(kind, include_extras=True)
    assert set.union(*keys) == set(hints)
    assert set.intersection(*keys) == {name for name, hint in hints.items() if get_origin(hint) is not NotRequired}


def test_a_writer_that_publishes(made: Made) -> None:
    found = made({}, {"where": "none", "mode": "overwrite"}, {**CHECKS, "on_failed_check": "warn"})
    assert {each["status"] for each in found} == {"published"}
    assert_has(PublishedResult, found)


def test_a_writer_that_only_stages_or_is_refused(made: Made) -> None:
    together = {"publish": "together"}
    found = made({"group": together}, {"group": together, "where": "none"}, CHECKS)
    assert [each["status"] for each in found] == ["staged", "staged", "refused"]
    assert_has(StagedResult, found)


def test_a_writer_whose_rows_are_there(made: Made) -> None:
    made({})
    found = made({"ti": {"clears": 1, "max_tries": 1, "try_number": 2}})
    assert [each["status"] for each in found] == ["skipped"]
    assert_has(SkippedResult, found)


def test_a_writer_that_merges(made: Made) -> None:
    merge = Merge(keys=["id"])
    found = made(
        {"mode": merge}, {"mode": merge, "where": "none"}, {"mode": merge, **CHECKS, "on_failed_check": "warn"}
    )
    assert [each["status"] for each in found] == ["published", "nothing_to_do", "published"]
    assert_has(MergedResult, found)


def test_what_checks_say(made: Made) -> None:
    checks = {"small": "id < 2", "some": "count(*) > 0", "usual": rows_like_last(3)}
    (found,) = made({"checks": checks, "on_failed_check": "warn"})
    assert_has(CheckResult, found["checks"])
