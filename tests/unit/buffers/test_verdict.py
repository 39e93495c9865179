"""What is kept of a writer's checks, and what counts as a verdict."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_onelake.buffers.buffer import audited, read_buffer, read_staged
from airflow_provider_onelake.buffers.spec import WriteSpec
from airflow_provider_onelake.buffers.verdict import CheckVerdict, Verdict, verdict_at
from airflow_provider_onelake.exceptions import BufferIncompleteError, BufferInvalidError
from airflow_provider_onelake.log.delta_log import DeltaLog
from tests.support.tables import stage, writer_spec

CHECKS = {"small": "id < 9", "some": "count(*) > 0"}
PASSED = {
    "small": {"each_row": True, "failed": 0, "met": True},
    "some": {"each_row": False, "failed": None, "met": True},
}


def result(name: str, **given: Any) -> CheckVerdict:
    return CheckVerdict(**{"name": name, "sql": "x", "each_row": False, "met": True, **given})


def test_without_a_verdict_a_buffer_with_checks_is_not_complete(log: DeltaLog) -> None:
    buffer = stage(log, writer_spec(checks=CHECKS), {"2019-01": [1]})
    assert (buffer.unchecked, buffer.refused) == (True, False)
    with pytest.raises(BufferIncompleteError, match="the checks of its writer were not evaluated"):
        read_buffer(log.store, buffer.path)
    verdict = Verdict.of(CHECKS, {"rows": 1, "results": PASSED})
    assert verdict is not None
    checked = audited(log.store, buffer, verdict)
    assert read_buffer(log.store, buffer.path) == checked
    assert (checked.unchecked, checked.refused, checked.verdict) == (False, False, verdict)


@pytest.mark.parametrize(
    "told",
    [
        pytest.param(None, id="nothing"),
        pytest.param({}, id="no-results"),
        pytest.param({"rows": 1, "results": {"small": PASSED["small"]}}, id="a-check-is-missing"),
        pytest.param({"rows": None, "results": PASSED}, id="no-rows"),
        pytest.param({"rows": 1, "results": {**PASSED, "some": {"met": True}}}, id="half-a-result"),
    ],
)
def test_only_an_answer_to_every_check_is_a_verdict(told: Any) -> None:
    assert Verdict.of(CHECKS, told) is None


@pytest.mark.parametrize(
    "kept",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"[]", id="no-object"),
        pytest.param(b'{"rows": 1, "checks": [{"name": "small"}]}', id="half"),
        pytest.param(json.dumps({"rows": 1, "checks": []}).encode(), id="of-no-checks"),
    ],
)
def test_a_verdict_that_is_damaged_or_of_other_checks_is_refused(log: DeltaLog, kept: bytes) -> None:
    buffer = stage(log, writer_spec(checks=CHECKS), {"2019-01": [1]})
    Path(log.table, buffer.path, "_checked.json").write_bytes(kept)
    with pytest.raises(BufferInvalidError, match="is damaged, or not of its checks"):
        read_staged(log.store, buffer.path)


@pytest.mark.parametrize(("asked", "refused"), [("refuse", True), ("warn", False)])
def test_rows_that_fail_a_check_are_refused_or_warned_of(log: DeltaLog, asked: str, refused: bool) -> None:
    buffer = stage(log, writer_spec(checks=CHECKS, on_failed_check=asked), {"2019-01": [1]})
    failed = Verdict.of(CHECKS, {"rows": 1, "results": {**PASSED, "some": {**PASSED["some"], "met": False}}})
    assert failed is not None
    assert audited(log.store, buffer, failed).refused is refused


def test_a_verdict_that_leaves_a_check_to_the_whole_load_is_left_alone_by_name(log: DeltaLog) -> None:
    """An earlier release has put it. What is published already is shown with the checks that were decided."""
    buffer = stage(log, writer_spec(checks=CHECKS), {"2019-01": [1]})
    small, some = (result(name, sql=sql).to_json() for name, sql in CHECKS.items())
    kept = {"rows": 1, "checks": [small, {**some, "met": None, "of_load": True}]}
    Path(log.table, buffer.path, "_checked.json").write_text(json.dumps(kept))
    said = "leaves the check 'some' to the rows of all writers of its load together, which is gone. It is left alone"
    with pytest.raises(BufferInvalidError, match=said):
        read_staged(log.store, buffer.path)
    assert verdict_at(log.store, buffer.path) == Verdict(1, (result("small", sql=CHECKS["small"]),))


def test_only_true_is_passed() -> None:
    verdict = Verdict(3, (result("a"), result("b", met=None), result("c", met=False), result("d", met="true")))
    assert [check.name for check in verdict.failed] == ["b", "c", "d"]


def test_a_verdict_in_words() -> None:
    assert Verdict(1, (result("a"),)).in_words == "1 check passed"
    assert Verdict(1, (result("a"), result("b"))).in_words == "2 checks passed"
    many = tuple(result(name, met=False) for name in "abcdefg")
    assert Verdict(1, many).in_words == "7 of 7 checks failed: a, b, c, d, e and 2 more"


def test_a_buffer_of_a_release_without_checks_has_none() -> None:
    value = writer_spec().to_json()
    for name in ("checks", "on_failed_check", "message"):
        del value[name]
    assert WriteSpec.from_json(value).checks == {}
