"""The proxy that makes stores fail: what it passes on, and what it does to a request."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest

from tests.support.proxy import Fault, Proxy


class Shelf(BaseHTTPRequestHandler):
    """A store that keeps what is put into it."""

    protocol_version = "HTTP/1.1"
    things: dict[str, bytes]

    def do_PUT(self) -> None:
        self.things[self.path] = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(201)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Be quiet."""


@pytest.fixture
def shelf() -> Iterator[tuple[str, dict[str, bytes]]]:
    things: dict[str, bytes] = {}
    kind = type("OwnShelf", (Shelf,), {"things": things})
    server = ThreadingHTTPServer(("127.0.0.1", 0), kind)
    threading.Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", things
    server.shutdown()
    server.server_close()


@pytest.fixture
def proxy(shelf: tuple[str, dict[str, bytes]]) -> Iterator[Proxy]:
    with Proxy(shelf[0]) as running:
        yield running


@pytest.mark.parametrize(
    ("fault", "status", "kept"),
    [
        pytest.param(Fault(reset=True), None, False, id="reset"),
        pytest.param(Fault(status=503), 503, False, id="refused"),
        pytest.param(Fault(lose_answer=True), None, True, id="answer lost"),
        pytest.param(Fault(delay=0.01), 201, True, id="slow"),
    ],
)
def test_what_goes_wrong(
    proxy: Proxy, shelf: tuple[str, dict[str, bytes]], fault: Fault, status: int | None, kept: bool
) -> None:
    proxy.faults = lambda _: fault
    if status is None:
        with pytest.raises(httpx.RemoteProtocolError):
            httpx.put(f"{proxy.url}/a%20b?x=1", content=b"a")
    else:
        sent = httpx.put(f"{proxy.url}/a%20b?x=1", content=b"a", headers={"If-None-Match": "*"})
        assert sent.status_code == status
    assert shelf[1] == ({"/a%20b?x=1": b"a"} if kept else {})
    (seen,) = proxy.seen
    assert (seen.request.path, seen.request.query, seen.request.conditional) == ("/a%20b", "x=1", status is not None)
    assert (seen.status, seen.stored) == (status, 201 if kept else None)
