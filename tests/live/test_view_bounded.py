"""The view takes a bounded share of Airflow's API server, whatever becomes of the stores that it asks."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from include.local.api import wait_for
from tests.support.tables import make_table
from tests.support.view_server import ViewServer

# More than the forty threads that all of the API server's routes share.
MANY = 45
AT_ONCE = 8
PROMISED = 2.0


class SilentStore:
    """A server that takes every connection, and never says a word."""

    def __init__(self) -> None:
        self.connections: list[socket.socket] = []
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=100)
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._take, daemon=True).start()

    def _take(self) -> None:
        while True:
            try:
                self.connections.append(self._listening.accept()[0])
            except OSError:
                return

    def hang_up(self) -> None:
        """End every connection, and take no other."""
        # Without it, accept() goes on in its thread.
        self._listening.shutdown(socket.SHUT_RDWR)
        for each in (self._listening, *self.connections):
            each.close()


@pytest.fixture(scope="module")
def silent() -> Iterator[SilentStore]:
    store = SilentStore()
    yield store
    store.hang_up()


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lakehouse on local disk."""
    found = tmp_path_factory.mktemp("lake")
    make_table(found / "Tables" / "trips")
    return found


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, lake: Path, silent: SilentStore) -> Iterator[ViewServer]:
    """An API server that shows a lakehouse on local disk, and one in the silent store."""
    s3 = {
        "login": "key",
        "password": "secret",
        "extra": {"lakehouse": "s3://bucket/lake", "endpoint": silent.url, "allow_http": True},
    }
    with ViewServer(tmp_path_factory.mktemp("state"), {"onelake_default": lake, "silent": s3}) as running:
        client = running.signed_in("viewer")
        # The first answers of a server cost seconds, as it imports what they need.
        assert client.get(commits("onelake_default")).status_code == 200
        assert client.get("/api/v2/dags").status_code == 200
        yield running


def commits(connection: str, table: str = "trips") -> str:
    return f"/onelake/lakehouses/{connection}/commits?table=Tables/{table}"


@pytest.mark.costs("It starts an API server, and a store's silence takes twenty seconds")
def test_forty_five_questions_to_a_store_that_never_answers_leave_airflows_own_routes_alone(
    server: ViewServer, silent: SilentStore
) -> None:
    """``/api/v2/dags`` answers in less than two seconds meanwhile: the promise is a time, so this is a test of a time.

    The two seconds are the request's own limit. It is asked while the server has all that it takes of the forty-five:
    each of them either holds a connection to the store, or was told that the page is busy. Whoever was not told so waits
    still when the answer is there. A machine may be so busy that a request takes two seconds by itself, so three tries
    are made.
    """
    client = server.signed_in("viewer")

    def answer_meanwhile() -> tuple[int | None, list[str], list[str]]:
        """Return the status of the answer, what was said until then of the forty-five, and what was said of each."""
        before = len(silent.connections)
        with ThreadPoolExecutor(MANY) as people:
            asked = [people.submit(client.get, commits("silent")) for _ in range(MANY)]
            # A server that lets the view have all of its forty threads takes forty of them.
            wait_for(
                lambda: len(silent.connections) - before + sum(each.done() for each in asked) >= 40,
                "the questions to be taken",
                60,
                every=0.05,
            )
            try:
                status = client.get("/api/v2/dags", timeout=PROMISED).status_code
            except httpx.TimeoutException:
                status = None
            until_then = [each.result().json()["detail"] for each in asked if each.done()]
        assert {each.result().status_code for each in asked} == {503}
        return status, until_then, [each.result().json()["detail"] for each in asked]

    for _ in range(3):
        status, until_then, said = answer_meanwhile()
        if status is not None:
            break
    assert status == 200
    assert all("busy" in each for each in until_then)
    assert sum("busy" in each for each in said) == MANY - AT_ONCE
