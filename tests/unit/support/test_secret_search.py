"""The search for secrets finds them in every way of writing."""

from __future__ import annotations

import base64
import json
import shutil
import threading
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.support.secret_search import Search, watching

SECRET = 'p/s+w="rd&%20='


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(f"key={SECRET};", id="as it is"),
        pytest.param(f"sc://h:1/;token={quote(SECRET, safe='')}", id="in a URL"),
        pytest.param(json.dumps({"password": SECRET}), id="in JSON"),
        pytest.param(SECRET.encode().hex(), id="in hexadecimal"),
        *(
            pytest.param(base64.b64encode(f"{'user:'[:length]}{SECRET}!".encode()).decode(), id=f"in base64, {length}")
            for length in range(4)
        ),
        pytest.param(base64.urlsafe_b64encode(f"u:{SECRET}".encode()).decode(), id="in base64 for URLs"),
    ],
)
def test_a_secret_is_found(text: str) -> None:
    search = Search({"it": SECRET, "other": "another secret"})
    search.look("a log", f"before {text} behind", "line 1")
    assert search.found("it") == {"a log": {"line 1"}}
    assert search.found("other") == {}


def test_files_are_searched_but_for_those_left_out(tmp_path: Path) -> None:
    for name in ("a/log", "keys/secrets.json"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_bytes(b"\xff\x00" + SECRET.encode())
    search = Search({"it": SECRET})
    search.look_below("files", tmp_path, leave_out=("secrets.json",))
    assert search.found("it") == {"files": {str(tmp_path / "a/log")}}


def test_directories_that_go_meanwhile_are_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "log").write_text(SECRET)
    look = Search.look

    def look_and_lose(self: Search, place: str, content: str | bytes, detail: str = "") -> None:
        look(self, place, content, detail)
        shutil.rmtree(tmp_path / ("b" if Path(detail).parent.name == "a" else "a"))

    monkeypatch.setattr(Search, "look", look_and_lose)
    search = Search({"it": SECRET})
    search.look_below("files", tmp_path)
    assert len(search.found("it")["files"]) == 1


def test_what_fails_while_watching_fails_the_test() -> None:
    called = threading.Event()

    def fail() -> None:
        called.set()
        raise OSError("gone")

    with pytest.raises(AssertionError, match="gone"), watching(fail, 0.001):
        called.wait(10)
