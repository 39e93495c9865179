"""A proxy in front of a real store: it keeps a log of every request, and makes some of them go wrong.

What goes through is left as it is, signatures too: a store signs the host that the client was given, and the proxy
passes that header on.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from random import Random
from urllib.parse import urlsplit

import attrs
import h11

_CHUNK = 1 << 16


@attrs.frozen
class Request:
    """What a client asked.

    :param method: ``GET``, ``PUT``, ….
    :param agent: the client's ``User-Agent``.
    """

    method: str
    path: str
    query: str
    agent: str
    conditional: bool

    @property
    def is_commit(self) -> bool:
        """Whether it puts a version of a table's log, not of a buffer's."""
        puts = self.method == "PUT" and self.path.endswith(".json") and "/_delta_log/" in self.path
        return puts and "/staged/" not in self.path


@attrs.frozen
class Fault:
    """What goes wrong with one request, in this order.

    :param delay: seconds that the request is kept before it is looked at.
    :param lose_answer: the store is asked, and the connection is closed without its answer.
    """

    delay: float = 0
    hold: threading.Event | None = None
    reset: bool = False
    status: int | None = None
    code: str = "MadeUp"
    lose_answer: bool = False


@attrs.frozen
class Seen:
    """A request, and what became of it.

    :param status: that the client got; ``None`` for no answer.
    :param stored: that the store gave; ``None`` where it was not asked.
    """

    request: Request
    status: int | None
    stored: int | None


Faults = Callable[[Request], Fault | None]
"""Decides what goes wrong with a request; called on the proxy's own thread, once for each request."""


class Proxy:
    """Listens on a free port of 127.0.0.1, and passes on to a store.

    :param store: ``http://host:port`` of the store; a path behind it is the proxy's too.
    :param faults: what goes wrong; may be replaced at any time. Default: nothing does.
    """

    def __init__(self, store: str, faults: Faults | None = None) -> None:
        split = urlsplit(store)
        self._host, self._port, self._path = str(split.hostname), int(split.port or 80), split.path
        self.faults = faults
        self.seen: list[Seen] = []
        self.url = ""
        self._over = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._server: asyncio.Server | None = None

    def __enter__(self) -> Proxy:
        started: Future[str] = Future()
        self._thread = threading.Thread(target=self._run, args=[started], name="proxy", daemon=True)
        self._thread.start()
        self.url = started.result(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()

        asyncio.run_coroutine_threadsafe(self._end(), self._loop)
        self._thread.join(10)

    def count(self, method: str, part: str) -> int:
        """Say how many requests of a method have ended whose path holds something."""
        return sum(seen.request.method == method and part in seen.request.path for seen in list(self.seen))

    def _run(self, started: Future[str]) -> None:
        asyncio.set_event_loop(self._loop)

        async def listen() -> None:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
            port = self._server.sockets[0].getsockname()[1]
            started.set_result(f"http://127.0.0.1:{port}{self._path}")

        self._loop.run_until_complete(listen())
        self._loop.run_forever()
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    async def _end(self) -> None:
        assert self._server is not None
        self._server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        self._loop.stop()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, h11.RemoteProtocolError, asyncio.IncompleteReadError):
            client = _Peer(reader, writer, h11.Connection(h11.SERVER))
            while await self._exchange(client):
                client.connection.start_next_cycle()
        writer.close()

    async def _exchange(self, client: _Peer) -> bool:
        """Serve one request; says whether the connection can take another."""
        head = await client.next_event()
        if not isinstance(head, h11.Request):
            return False
        if client.connection.they_are_waiting_for_100_continue:
            await client.send(h11.InformationalResponse(status_code=100, headers=[]))
        body = await client.read_body()
        request = _request(head)
        fault = (self.faults(request) if self.faults else None) or Fault()
        if fault.delay:
            await asyncio.sleep(fault.delay)
        if fault.hold is not None:
            await asyncio.to_thread(self._wait, fault.hold)
        if fault.reset:
            self.seen.append(Seen(request, None, None))
            return False
        if fault.status is not None:
            self.seen.append(Seen(request, fault.status, None))
            said = b"" if request.method == "HEAD" else f"<Error><Code>{fault.code}</Code></Error>".encode()
            headers = [("Content-Length", str(len(said))), ("Connection", "close")]
            await client.send(h11.Response(status_code=fault.status, headers=headers))
            await client.send(h11.Data(data=said))
            await client.send(h11.EndOfMessage())
            return False
        answer, content = await self._ask(head, body)
        self.seen.append(Seen(request, None if fault.lose_answer else answer.status_code, answer.status_code))
        if fault.lose_answer:
            return False
        await client.send(answer)
        # An answer to HEAD has the length of what it does not carry.
        if content and request.method != "HEAD":
            await client.send(h11.Data(data=content))
        await client.send(h11.EndOfMessage())
        return client.connection.our_state is h11.DONE and client.connection.their_state is h11.DONE

    def _wait(self, hold: threading.Event) -> None:
        while not self._over.is_set() and not hold.wait(0.05):
            pass

    async def _ask(self, head: h11.Request, body: bytes) -> tuple[h11.Response, bytes]:
        reader, writer = await asyncio.open_connection(self._host, self._port)
        store = _Peer(reader, writer, h11.Connection(h11.CLIENT))
        try:
            skipped = (b"transfer-encoding", b"content-length", b"expect", b"connection")
            headers = [(name, value) for name, value in head.headers.raw_items() if name.lower() not in skipped]
            headers += [(b"Content-Length", str(len(body)).encode()), (b"Connection", b"close")]
            await store.send(h11.Request(method=head.method, target=head.target, headers=headers))
            if body:
                await store.send(h11.Data(data=body))
            await store.send(h11.EndOfMessage())
            answer = await store.next_event()
            while isinstance(answer, h11.InformationalResponse):
                answer = await store.next_event()
            assert isinstance(answer, h11.Response)
            content = await store.read_body()
        finally:
            writer.close()
        kept = [
            (name, value)
            for name, value in answer.headers.raw_items()
            if name.lower() not in (b"connection", b"transfer-encoding")
        ]
        if not any(name.lower() == b"content-length" for name, _ in kept) and answer.status_code not in (204, 304):
            kept.append((b"Content-Length", str(len(content)).encode()))
        return h11.Response(status_code=answer.status_code, reason=answer.reason, headers=kept), content


class _Peer:
    """One end of a connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: h11.Connection) -> None:
        self._reader = reader
        self._writer = writer
        self.connection = connection

    async def next_event(self) -> h11.Event | type[h11.PAUSED]:
        while (event := self.connection.next_event()) is h11.NEED_DATA:
            self.connection.receive_data(await self._reader.read(_CHUNK))
        assert not isinstance(event, type) or event is h11.PAUSED
        return event

    async def read_body(self) -> bytes:
        parts = []
        while isinstance(event := await self.next_event(), h11.Data):
            parts.append(bytes(event.data))
        return b"".join(parts)

    async def send(self, event: h11.Event) -> None:
        data = self.connection.send(event)
        if data:
            self._writer.write(data)
            await self._writer.drain()


def _request(head: h11.Request) -> Request:
    headers = {name.decode().lower(): value.decode() for name, value in head.headers}
    path, _, query = head.target.decode().partition("?")
    return Request(
        method=head.method.decode(),
        path=path,
        query=query,
        agent=headers.get("user-agent", ""),
        conditional="if-none-match" in headers,
    )


def weather(seed: int, share: float = 0.1) -> Faults:
    """Return faults of every kind, for a share of all requests: slow, reset, refused, answered and lost."""
    random = Random(seed)
    kinds = [
        Fault(delay=0.3),
        Fault(reset=True),
        Fault(status=429),
        Fault(status=500),
        Fault(status=503),
        Fault(lose_answer=True),
    ]
    return lambda _: random.choice(kinds) if random.random() < share else None


def first(count: int, method: str, part: str, fault: Fault) -> Faults:
    """Return a fault for the first requests of a method to any path that holds something."""
    left = [count]

    def decide(request: Request) -> Fault | None:
        if request.method != method or part not in request.path or not left[0]:
            return None
        left[0] -= 1
        return fault

    return decide


@contextlib.contextmanager
def outage(proxy: Proxy) -> Iterator[None]:
    """Let the store be away: every connection is closed without an answer."""
    before, proxy.faults = proxy.faults, lambda _: Fault(reset=True)
    try:
        yield
    finally:
        proxy.faults = before


@contextlib.contextmanager
def holding(proxy: Proxy, at: Callable[[Request], bool]) -> Iterator[threading.Event]:
    """Hold the first request of a kind, before the store is asked, until the block ends."""
    reached, let_go = threading.Event(), threading.Event()

    def decide(request: Request) -> Fault | None:
        if reached.is_set() or not at(request):
            return None
        reached.set()
        return Fault(hold=let_go)

    before, proxy.faults = proxy.faults, decide
    try:
        yield reached
    finally:
        let_go.set()
        proxy.faults = before


def away_from(at: Callable[[Request], bool], seconds: float = float("inf")) -> Faults:
    """Return an outage that begins with a request, for every proxy that is given these faults.

    :param seconds: that it lasts. Default: until the faults are replaced.
    """
    ends: list[float] = []

    def decide(request: Request) -> Fault | None:
        if not ends and at(request):
            ends.append(time.monotonic() + seconds)
        return Fault(reset=True) if ends and time.monotonic() < ends[0] else None

    return decide


def either(*faults: Faults) -> Faults:
    """Return what the first of several has against a request."""
    return lambda request: next((fault for decide in faults if (fault := decide(request))), None)
