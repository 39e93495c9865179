"""The proxy that makes stores fail: what it passes on, and what it does to a request."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest

from tests.support.proxy import Fault, Proxy, Request, away_from, either, first, holding, outage, weather


class Shelf(BaseHTTPRequestHandler):
    """A store that keeps what is put into it."""

    protocol_version = "HTTP/1.1"
    things: dict[str, bytes]

    def do_PUT(self) -> None:
        self.things[self.path] = self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(201)

    def do_GET(self) -> None:
        self.answer(200 if self.path in self.things else 404, self.things.get(self.path, b""))

    def do_HEAD(self) -> None:
        self.do_GET()

    def answer(self, status: int, content: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

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


def test_what_goes_through_is_as_it_was_and_in_the_log(proxy: Proxy, shelf: tuple[str, dict[str, bytes]]) -> None:
    data = b"x" * 200_000
    with httpx.Client(base_url=proxy.url) as client:
        assert client.put("/t/a%20b?x=1", content=data, headers={"If-None-Match": "*"}).status_code == 201
        assert client.get("/t/a%20b?x=1").content == data
        assert client.head("/t/a%20b?x=1").headers["Content-Length"] == "200000"
        assert client.put("/chunked", content=iter([b"one", b"two"])).status_code == 201
        assert client.get("/none").status_code == 404
    assert shelf[1] == {"/t/a%20b?x=1": data, "/chunked": b"onetwo"}
    first = proxy.seen[0]
    assert (first.request.path, first.request.query, first.request.conditional) == ("/t/a%20b", "x=1", True)
    assert [(seen.request.method, seen.status, seen.stored) for seen in proxy.seen] == [
        ("PUT", 201, 201),
        ("GET", 200, 200),
        ("HEAD", 200, 200),
        ("PUT", 201, 201),
        ("GET", 404, 404),
    ]


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
            httpx.put(f"{proxy.url}/a", content=b"a")
    else:
        assert httpx.put(f"{proxy.url}/a", content=b"a").status_code == status
    assert ("/a" in shelf[1]) is kept
    (seen,) = proxy.seen
    assert (seen.status, seen.stored) == (status, 201 if kept else None)


def test_a_request_is_held_until_it_is_let_go(proxy: Proxy, shelf: tuple[str, dict[str, bytes]]) -> None:
    answers: list[int] = []
    commit = f"{proxy.url}/t/_delta_log/00000000000000000001.json"
    putting = threading.Thread(target=lambda: answers.append(httpx.put(commit, content=b"c", timeout=30).status_code))
    with holding(proxy, lambda request: request.is_commit) as reached:
        putting.start()
        assert reached.wait(10)
        assert httpx.put(f"{proxy.url}/t/staged/w/_delta_log/1.json", content=b"b").status_code == 201
        # Only the first one is held.
        assert httpx.put(f"{proxy.url}/t/_delta_log/2.json", content=b"b").status_code == 201
        assert list(shelf[1]) == ["/t/staged/w/_delta_log/1.json", "/t/_delta_log/2.json"]
    putting.join(10)
    assert answers == [201]


def test_an_outage_ends(proxy: Proxy) -> None:
    with outage(proxy), pytest.raises(httpx.RemoteProtocolError):
        httpx.get(f"{proxy.url}/a")
    assert httpx.get(f"{proxy.url}/a").status_code == 404


def test_an_outage_may_begin_with_a_request_and_last_its_time() -> None:
    def asked(path: str) -> Request:
        return Request("PUT", path, "", "", conditional=False)

    faults = away_from(lambda request: request.path == "/begins", 0.2)
    assert faults(asked("/a")) is None
    assert faults(asked("/begins")) == Fault(reset=True)
    deadline = time.monotonic() + 60
    away = 0
    while faults(asked("/a")) is not None and time.monotonic() < deadline:
        away += 1
    assert away
    assert faults(asked("/begins")) is None


def test_of_several_faults_the_first_that_applies_counts() -> None:
    faults = either(first(1, "PUT", "/a", Fault(status=500)), first(2, "PUT", "/", Fault(reset=True)))
    asked = Request("PUT", "/a", "", "", conditional=False)
    assert [faults(asked) for _ in range(4)] == [Fault(status=500), Fault(reset=True), Fault(reset=True), None]


def test_bad_weather_is_the_same_for_a_seed_and_hits_its_share() -> None:
    request = Request("GET", "/", "", "", conditional=False)
    first, second = weather(7), weather(7)
    drawn = [first(request) for _ in range(2000)]
    assert drawn == [second(request) for _ in range(2000)]
    assert 100 < sum(fault is not None for fault in drawn) < 300
    assert len({fault for fault in drawn if fault is not None}) == 6
