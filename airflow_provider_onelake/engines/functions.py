"""A function that makes rows in this process, on a Spark Connect session.

It may collect rows from the very table that is written, such as the latest date in it, and compute from them. What it
returns does not show that, so what it has Spark execute is kept, and looked at as well (protocol: reads its target).
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


class Asked(grpc.UnaryStreamClientInterceptor):  # type: ignore[misc]
    """Keeps the queries that a session is asked to execute while a function makes rows."""

    def __init__(self) -> None:
        self._listens = False
        self._plans: list[Any] = []

    def during(self, make: Callable[[SparkSession], Any]) -> Callable[[SparkSession], Any]:
        """Keep what a function asks, and have ``pyspark.sql.functions`` speak Connect to it.

        They go by the environment, which only pyspark's session builder sets, and for good: the process may have a
        classic session too.

        :param make: the function.
        :returns: does what it does.
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
        """Note a request on its way to the server.

        :param continuation: sends it.
        :param client_call_details: of the call.
        :param request: of pyspark's.
        :returns: what the server answers.
        """
        if self._listens and hasattr(request, "plan"):
            self._plans.append(request.plan)
        return continuation(client_call_details, request)

    def texts(self, client: Any) -> list[str]:
        """Return what the queries were made of, and their plans.

        :param client: of the session, which explains them.
        """
        plans, self._plans = self._plans, []
        plans = [_whole(plan) for plan in plans]
        texts = [text for plan in plans for text in _strings(plan)]
        # A command, such as the one by which SQL is analysed, has no plan; what it leads to is asked as a query.
        return texts + [client.explain_string(plan) for plan in plans if plan.HasField("root")]


def _whole(plan: Any) -> Any:
    """Return a plan as it was before pyspark compressed it, which it does with those above the server's threshold."""
    if plan.WhichOneof("op_type") != "compressed_operation":
        return plan
    import zstandard  # there, as pyspark has compressed with it
    from pyspark.sql.connect.proto import base_pb2

    packed, whole = plan.compressed_operation, base_pb2.Plan()
    part = whole.root if packed.op_type == packed.OP_TYPE_RELATION else whole.command
    part.CopyFrom(type(part).FromString(zstandard.decompress(packed.data)))
    return whole


def _strings(message: Message) -> Iterator[str]:
    """Yield the texts in a message; the data that it may carry are bytes."""
    for field, value in message.ListFields():
        if field.type == FieldDescriptor.TYPE_STRING:
            yield from [value] if isinstance(value, str) else value
        elif field.type == FieldDescriptor.TYPE_MESSAGE:
            for item in [value] if isinstance(value, Message) else value:
                if isinstance(item, Message):
                    yield from _strings(item)
                else:
                    # The key of a map, such as a reader's options.
                    inner = value[item]
                    yield from _strings(inner) if isinstance(inner, Message) else [str(inner)]
