"""A proxy in front of a real store, which does to single requests what networks and busy stores do."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import attrs

# What becomes of a request: an answer of this status without asking the store, or one of the words.
Fault = int | str
LOSE_ANSWER, DROP, SILENCE = "lose answer", "drop", "silence"
_BODIES = {409: b"<Error><Code>ConditionalRequestConflict</Code></Error>"}


@attrs.define
class Proxy:
    """What a running proxy does, and what it has seen.

    :param url: its address.
    :param faults: asked for every request, by method, path and number of such requests before it.
    :param seen: method and path of every request.
    """

    url: str = ""
    faults: Callable[[str, str, int], Fault | None] = lambda method, path, before: None
    seen: list[tuple[str, str]] = attrs.field(factory=list)
    over: threading.Event = attrs.field(factory=threading.Event)

    def requests(self, method: str, part: str) -> int:
        """How many requests of a method there were whose path holds something."""
        return sum(m == method and part in path for m, path in self.seen)


def first(count: int, method: str, part: str, fault: Fault) -> Callable[[str, str, int], Fault | None]:
    """A fault for the first requests of a method to any path that holds something."""
    left = [count]

    def decide(asked: str, path: str, _: int) -> Fault | None:
        if asked != method or part not in path or not left[0]:
            return None
        left[0] -= 1
        return fault

    return decide


@contextmanager
def proxy_to(endpoint: str) -> Iterator[Proxy]:
    """Run a proxy to a store; its address has the same path as the store's."""
    target = urlsplit(endpoint)
    proxy = Proxy()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            return

        def pass_on(self) -> None:
            body = self._body()
            key = (self.command, self.path.partition("?")[0])
            fault = proxy.faults(*key, proxy.seen.count(key))
            proxy.seen.append(key)
            if fault == DROP:
                self.close_connection = True
                return None
            if fault == SILENCE:
                proxy.over.wait()
                self.close_connection = True
                return None
            if isinstance(fault, int):
                return self._answer(fault, {}, _BODIES.get(fault, b"<Error><Code>Made up</Code></Error>"))
            store = http.client.HTTPConnection(target.hostname or "", target.port, timeout=60)
            try:
                # The Host header too is passed on as it came: it is part of what S3 signs.
                store.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
                for name, value in self.headers.items():
                    if name.lower() not in ("connection", "transfer-encoding"):
                        store.putheader(name, value)
                store.endheaders(body)
                answer = store.getresponse()
                data = answer.read()
                if fault == LOSE_ANSWER:
                    self.close_connection = True
                    return None
                self._answer(answer.status, dict(answer.getheaders()), data)
            finally:
                store.close()

        def _body(self) -> bytes:
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))

        def _answer(self, status: int, headers: dict[str, str], data: bytes) -> None:
            self.send_response_only(status)
            for name, value in headers.items():
                if name.lower() not in ("connection", "transfer-encoding", "content-length"):
                    self.send_header(name, value)
            length = next((v for k, v in headers.items() if k.lower() == "content-length"), None)
            self.send_header("Content-Length", length if self.command == "HEAD" and length else str(len(data)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

        do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = pass_on  # noqa: N815

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    proxy.url = f"http://127.0.0.1:{server.server_port}{target.path}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.over.set()
        server.shutdown()
        server.server_close()
        thread.join(10)
