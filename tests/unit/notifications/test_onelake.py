"""What the notifier tells of a load, to whom, and when it is silent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from airflow.sdk import DAG, BaseNotifier

from airflow_provider_onelake.choices import OnMissingWriter, Policy
from airflow_provider_onelake.exceptions import InvalidWriteError, MissingWritersError
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.notifications.onelake import LoadNews, OneLakeLoadNotifier
from airflow_provider_onelake.operators.reconcile import OneLakeReconcileOperator
from airflow_provider_onelake.writes.publish import Committer
from airflow_provider_onelake.writes.reconcile import reconcile
from tests.support.contexts import FakeTaskInstance, context_of
from tests.support.tables import LOAD, OVERWRITE, make_table, stage, writer_spec

SENT: list[str] = []


class Sends(BaseNotifier):
    """A notifier as other providers have them, with a template."""

    template_fields = ("text",)

    def __init__(self, text: str = "{{ load }}") -> None:
        super().__init__()
        self.text = text

    def notify(self, context: Any) -> None:
        SENT.append(self.text)


@pytest.fixture(autouse=True)
def _nothing_sent() -> None:
    SENT.clear()


@pytest.fixture
def log(tmp_path: Any) -> DeltaLog:
    return make_table(tmp_path / "lake" / "Tables" / "dbo" / "trips")


def result_of(log: DeltaLog, writers: list[str], policy: Policy = Policy.LAST_WRITER_WINS, **terms: Any) -> Any:
    """What the reconcile operator leaves in XCom."""
    report = reconcile(Committer(log), LOAD, writers, on_conflict=policy, **terms)
    return {**report.to_json(), "left_out": report.left_out}


def context(result: Any, exception: Exception | None = None, **ti: Any) -> Any:
    with DAG("taxi", schedule=None) as dag:
        task = OneLakeReconcileOperator(task_id="reconcile", table="Tables/dbo/trips")
    given = context_of(task, pulled={"return_value": result}, **ti)
    return {**given, "dag": dag, "exception": exception}


def tell(result: Any, exception: Exception | None = None, text: str = "{{ load }}", **terms: Any) -> list[str]:
    OneLakeLoadNotifier(Sends(text), **terms)(context(result, exception))
    return SENT


def rivals(log: DeltaLog) -> None:
    for key, row in (("a", 1), ("b", 2)):
        stage(log, writer_spec(key, **OVERWRITE), {"2019-01": [row], f"2019-1{row}": [row]})


def test_a_load_whose_rows_are_all_there_is_told_only_to_those_who_always_want_it(log: DeltaLog) -> None:
    stage(log, writer_spec("a"), {"2019-01": [1]})
    result = result_of(log, ["a"])
    assert tell(result) == []
    assert tell(result, text="{{ load.summary }}", when="always") == [
        "Tables/dbo/trips (version 1): all rows are in the table"
    ]


@pytest.mark.parametrize(
    ("policy", "loser", "why"),
    [
        (Policy.LAST_WRITER_WINS, "a", "1 of its 2 rows were replaced by b of"),
        (Policy.FIRST_WRITER_WINS, "b", "all of it is set aside, 2 rows in month=2019-01, "),
    ],
)
def test_rows_that_the_policy_left_out_are_told_with_their_writer_and_why(
    log: DeltaLog, policy: Policy, loser: str, why: str
) -> None:
    rivals(log)
    (text,) = tell(result_of(log, ["a", "b"], policy))
    head, *lines, task = text.splitlines()
    assert head == f"Tables/dbo/trips (version 2): left out: {loser}"
    (line,) = lines
    assert line.startswith(f"- {loser}: ")
    assert why in line
    assert task == "Task: taxi.reconcile, run manual__1"


def test_who_is_missing_or_held_back_is_told_with_the_error(log: DeltaLog) -> None:
    stage(log, writer_spec("a"), {"2019-01": [1]})
    result = result_of(log, ["a", "b"], on_missing_writer=OnMissingWriter.PUBLISH_NOTHING, unnamed=["load.c (failed)"])
    (text,) = tell(result, MissingWritersError("Two of three."))
    assert text.splitlines() == [
        "Tables/dbo/trips: not published: b, load.c (failed), a",
        "- b: missing: it left no complete buffer",
        "- load.c (failed): missing: it left no complete buffer",
        "- a: held back",
        "Task: taxi.reconcile, run manual__1",
        "Two of three.",
    ]


def test_who_is_refused_is_told_with_the_reason(log: DeltaLog) -> None:
    rivals(log)
    (text,) = tell(result_of(log, ["a", "b"], Policy.FAIL), text="{{ load.not_published | tojson }}")
    assert "month=2019-01" in text


def test_a_task_that_failed_before_it_knew_anything_is_told_too() -> None:
    assert tell(None, ValueError("out of order")) == [
        "Tables/dbo/trips: failed\nTask: taxi.reconcile, run manual__1\nout of order"
    ]
    SENT.clear()
    assert tell(None, KeyError()) == ["Tables/dbo/trips: failed\nTask: taxi.reconcile, run manual__1\nKeyError"]


def test_a_writer_that_settled_itself_is_told_by_its_label() -> None:
    result = {"writer": "eu", "table": "/lake/Tables/trips", "version": 3, "left_out": ["month=2019-01: it stays"]}
    OneLakeLoadNotifier(Sends())(context(result, map_index=2))
    assert SENT[0].splitlines() == [
        "Tables/trips (version 3): left out: eu",
        "- eu: month=2019-01: it stays",
        "Task: taxi.reconcile[2], run manual__1",
    ]
    SENT.clear()
    assert tell({**result, "left_out": []}) == []


def test_where_xcom_does_not_answer_the_failure_is_told_all_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    class Silent(FakeTaskInstance):
        def xcom_pull(self, *_: Any, **__: Any) -> Any:
            raise ConnectionError("no API server")

    OneLakeLoadNotifier(Sends())({**context(None, ValueError("killed")), "ti": Silent(task_id="reconcile")})
    assert SENT[0].endswith("killed")
    assert "no API server" in capsys.readouterr().out


def test_all_are_told_even_if_one_cannot_be(log: DeltaLog) -> None:
    rivals(log)
    seen: list[Any] = []

    def broken(_: Any) -> None:
        raise OSError("no network")

    notifier = OneLakeLoadNotifier([broken, Sends(), seen.append])
    with pytest.raises(ExceptionGroup, match="Not everybody was told") as caught:
        notifier(context(result_of(log, ["a", "b"])))
    assert [str(error) for error in caught.value.exceptions] == ["no network"]
    assert (len(SENT), isinstance(seen[0]["load"], LoadNews)) == (1, True)


def test_many_writers_make_no_endless_text() -> None:
    lost = {f"w{number}": ["x"] * 30 for number in range(50)}
    news = LoadNews(table="s3://bucket/lake/trips", task="t", left_out=lost)
    assert news.summary.startswith("trips: left out: w0, ")
    assert news.summary.endswith("w19 and 30 more")
    assert len(news.text.splitlines()) == 23
    assert "x and 10 more" in news.text


@pytest.mark.parametrize(
    "given", [{"send": []}, {"send": "slack"}, {"send": [None]}, {"send": print, "when": "never"}], ids=str
)
def test_what_cannot_tell_is_refused_when_the_dag_is_parsed(given: Mapping[str, Any]) -> None:
    make: Callable[..., object] = OneLakeLoadNotifier
    with pytest.raises(InvalidWriteError):
        make(**given)
