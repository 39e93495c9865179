"""A health check says by its status whether somebody answers, and what."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest

from include.compose.healthy import main


class Answers(BaseHTTPRequestHandler):
    """Says how it is, in JSON but for /text."""

    def do_GET(self) -> None:
        body = b"no json" if self.path == "/text" else json.dumps({"part": {"status": "healthy"}, "url": ""}).encode()
        self.send_response(503 if self.path == "/busy" else 200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Answers) as running:
        Thread(target=running.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{running.server_port}"
        running.shutdown()


@pytest.mark.parametrize(
    ("path", "key", "said"),
    [
        ("/", "part.status.more", "TypeError"),
        ("/", "other.status", "KeyError"),
        ("/", "url", "url is ''"),
        ("/busy", "part.status", "503"),
        ("/text", "part.status", "JSONDecodeError"),
    ],
)
def test_one_that_says_something_else_is_not(
    server: str, path: str, key: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([f"http://{server}{path}", key, "healthy"]) == 1
    assert said in capsys.readouterr().err
