"""A function that makes rows in this process, on a Spark Connect session.

The function may collect rows from the table that is written, such as its latest date, and compute from them. The data
frame that it returns does not show this. So the queries that the function has Spark execute are kept, and searched for
the table as well (protocol: reads its target).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import grpc
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_CONNECT_MODE = "SPARK_CONNECT_MODE_ENABLED"


class OldSql(grpc.UnaryStreamClientInterceptor):  # type: ignore[misc]
    """Writes a statement where servers of Spark 3.5 read it too. Newer servers read only where pyspark 4 writes it."""

    def intercept_unary_stream(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        """Send a request on to the server; the parameters are those of :class:`QueryRecorder`."""
        if hasattr(request, "plan") and request.plan.command.HasField("sql_command"):
            command = request.plan.command.sql_command
            command.sql = command.input.sql.query
        return continuation(client_call_details, request)


class QueryRecorder(grpc.UnaryStreamClientInterceptor):  # type: ignore[misc]
    """Keeps the queries that a session sends to Spark while a function makes rows."""

    def __init__(self) -> None:
        self._listens = False
        self._plans: list[Any] = []

    def during(self, make: Callable[[SparkSession], Any]) -> Callable[[SparkSession], Any]:
        """Wrap a function, so that its queries are kept and ``pyspark.sql.functions`` makes Connect's columns.

        ``pyspark.sql.functions`` reads an environment variable, which only pyspark's session builder sets, and never
        resets. Set it for the call only, because this process may also have a classic session.

        :param make: the function.
        :returns: a function that does the same.
        """

        def made(spark: SparkSession) -> Any:
            before = os.environ.get(_CONNECT_MODE)
            os.environ[_CONNECT_MODE] = "1"
            self._listens = True
            try:
                return make(spark)
            finally:
                self._listens = False
                if before is None:
                    os.environ.pop(_CONNECT_MODE, None)
                else:
                    os.environ[_CONNECT_MODE] = before

        return made

    def intercept_unary_stream(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        """Keep the plan of a request, and send the request on to the server.

        :param continuation: sends the request.
        :param client_call_details: gRPC's details of the call.
        :param request: pyspark's request.
        :returns: the server's answer.
        """
        if self._listens and hasattr(request, "plan"):
            self._plans.append(request.plan)
        return continuation(client_call_details, request)

    def texts(self, client: Any) -> list[str]:
        """Return the texts in the kept queries, and the plans that Spark explains for them.

        :param client: the session's client.
        """
        plans, self._plans = self._plans, []
        plans = [_whole(plan) for plan in plans]
        texts = [text for plan in plans for text in _strings(plan)]
        # A command, such as the one that analyses SQL, has no plan. Its result is read by a query, which has one.
        return texts + [client.explain_string(plan) for plan in plans if plan.HasField("root")]


def _whole(plan: Any) -> Any:
    """Return a plan uncompressed. pyspark compresses plans that are larger than the server's threshold."""
    if plan.WhichOneof("op_type") != "compressed_operation":
        return plan
    import zstandard  # It is installed, because pyspark has compressed with it.
    from pyspark.sql.connect.proto import base_pb2

    packed, whole = plan.compressed_operation, base_pb2.Plan()
    part = whole.root if packed.op_type == packed.OP_TYPE_RELATION else whole.command
    part.CopyFrom(type(part).FromString(zstandard.decompress(packed.data)))
    return whole


def _strings(message: Message) -> Iterator[str]:
    """Yield the texts in a message. Rows that a message may carry are bytes, so they are left out."""
    for field, value in message.ListFields():
        if field.type == FieldDescriptor.TYPE_STRING:
            yield from [value] if isinstance(value, str) else value
        elif field.type == FieldDescriptor.TYPE_MESSAGE:
            for item in [value] if isinstance(value, Message) else value:
                if isinstance(item, Message):
                    yield from _strings(item)
                else:
                    # The item is the key of a map, such as the one of a reader's options.
                    inner = value[item]
                    yield from _strings(inner) if isinstance(inner, Message) else [str(inner)]
