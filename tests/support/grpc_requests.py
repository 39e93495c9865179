"""The requests that pyspark's client sends to a Spark Connect server, by their kind."""

from __future__ import annotations

from collections import Counter
from typing import Any

import grpc
import pytest
from pyspark.sql.connect.client import DefaultChannelBuilder


class _Counting(grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor):  # type: ignore[misc]
    def __init__(self, requests: Counter[str]) -> None:
        self._requests = requests

    def _count(self, continuation: Any, details: Any, request: Any) -> Any:
        self._requests[details.method.rpartition("/")[2]] += 1
        return continuation(details, request)

    intercept_unary_unary = intercept_unary_stream = _count


def count_requests(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count the requests of every channel that is opened from now on.

    :returns: the requests by the name of the method, such as ``ExecutePlan``.
    """
    requests: Counter[str] = Counter()
    to_channel = DefaultChannelBuilder.toChannel

    def counted(self: Any) -> Any:
        return grpc.intercept_channel(to_channel(self), _Counting(requests))

    monkeypatch.setattr(DefaultChannelBuilder, "toChannel", counted)
    return requests
