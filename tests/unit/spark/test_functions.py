"""What a function asks of Spark while it makes rows, without a server."""

from __future__ import annotations

import os
from typing import Any

import pytest
import zstandard
from pyspark.sql.connect.proto import base_pb2 as pb

from airflow_provider_onelake.spark.functions import OldSql, QueryRecorder


class Client:
    """Explains plans as the server would."""

    def __init__(self) -> None:
        self.explained: list[pb.Plan] = []

    def explain_string(self, plan: pb.Plan) -> str:
        self.explained.append(plan)
        return "== Parsed Logical Plan =="


def query() -> pb.ExecutePlanRequest:
    request = pb.ExecutePlanRequest(session_id="s")
    source = request.plan.root.filter.input.read.data_source
    source.format = "delta"
    source.paths.append("/lake/trips")
    source.options["basePath"] = "/lake"
    return request


def command() -> pb.ExecutePlanRequest:
    request = pb.ExecutePlanRequest()
    request.plan.command.sql_command.input.sql.query = "SELECT * FROM delta.`/lake/other`"
    return request


def send(asked: QueryRecorder, *requests: Any) -> list[Any]:
    return [asked.intercept_unary_stream(lambda details, sent: (details, sent), "details", one) for one in requests]


def test_queries_are_kept_and_explained_and_sent_on() -> None:
    asked, client = QueryRecorder(), Client()
    requests = [query(), command(), pb.ReattachExecuteRequest()]

    answers = asked.during(lambda spark: send(asked, *requests))(None)

    assert answers == [("details", request) for request in requests]
    texts = asked.texts(client)
    assert {"/lake/trips", "/lake", "SELECT * FROM delta.`/lake/other`", "== Parsed Logical Plan =="} <= set(texts)
    # A command has no job file that could be explained.
    assert client.explained == [query().plan]
    assert asked.texts(client) == []


@pytest.mark.parametrize("whole", [query(), command()], ids=["query", "command"])
def test_a_plan_that_pyspark_compressed_is_read_as_well(whole: pb.ExecutePlanRequest) -> None:
    from pyspark.sql.connect.client.core import SparkConnectClient

    class Compresses(SparkConnectClient):
        def __init__(self) -> None:
            self._zstd_module = zstandard

        def _get_plan_compression_threshold_and_algorithm(self) -> tuple[int, str]:
            return 0, "ZSTD"

    pyspark, sent = Compresses(), pb.ExecutePlanRequest()
    if whole.plan.HasField("root"):
        # Large enough to be worth it.
        whole.plan.root.filter.input.read.data_source.options["more"] = "x" * 1000
        pyspark._set_relation_in_plan(sent.plan, whole.plan.root)
    else:
        whole.plan.command.sql_command.input.sql.query += " -- " + "x" * 1000
        pyspark._set_command_in_plan(sent.plan, whole.plan.command)
    assert sent.plan.WhichOneof("op_type") == "compressed_operation"

    plain, packed = QueryRecorder(), QueryRecorder()
    plain.during(lambda spark: send(plain, whole))(None)
    packed.during(lambda spark: send(packed, sent))(None)
    # The options of a reader are a map, without an order.
    assert sorted(packed.texts(Client())) == sorted(plain.texts(Client())) != []


def test_what_staging_itself_asks_is_not() -> None:
    asked = QueryRecorder()
    send(asked, query())
    asked.during(lambda spark: None)(None)
    send(asked, query())
    assert asked.texts(Client()) == []


@pytest.mark.parametrize("before", [None, "of somebody else"])
def test_the_environment_is_as_it_was(monkeypatch: pytest.MonkeyPatch, before: str | None) -> None:
    name = "SPARK_CONNECT_MODE_ENABLED"
    monkeypatch.delenv(name, raising=False)
    if before:
        monkeypatch.setenv(name, before)
    asked = QueryRecorder()

    def fails(spark: Any) -> None:
        assert os.environ[name] == "1"
        send(asked, query())
        raise ValueError

    with pytest.raises(ValueError):
        asked.during(fails)(None)
    assert os.environ.get(name) == before
    send(asked, query())
    assert len([text for text in asked.texts(Client()) if text == "/lake/trips"]) == 1


def test_a_statement_stands_where_spark_3_5_reads_it_too() -> None:
    answers = [
        OldSql().intercept_unary_stream(lambda details, sent: (details, sent), "details", request)
        for request in (command(), query(), pb.ReattachExecuteRequest())
    ]
    whole = command()
    whole.plan.command.sql_command.sql = "SELECT * FROM delta.`/lake/other`"
    assert answers == [("details", whole), ("details", query()), ("details", pb.ReattachExecuteRequest())]
