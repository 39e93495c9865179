"""Faults: each by itself, by rate and by count, at start and while the server runs."""

from __future__ import annotations

import httpx
import pytest

from include.local_onelake.tests.conftest import Clients, code
from local_onelake import app
from local_onelake.faults import FAULTS


def switch(onelake: Clients, name: str, **how: object) -> httpx.Response:
    return onelake.plain.put(f"/_admin/faults/{name}", json=how)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("throttled", (429, "TooManyRequests")),
        ("error_500", (500, "InternalError")),
        ("error_503", (503, "ServerBusy")),
        ("capacity_paused", (403, "CapacityNotActive")),
    ],
)
def test_a_fault_strikes_as_often_as_it_is_told_and_nothing_is_done(
    onelake: Clients, name: str, expected: tuple[int, str]
) -> None:
    assert switch(onelake, name, count=2, seconds=7).status_code == 200
    for asked in (onelake.put("a", b"x"), onelake.create("a")):
        assert code(asked) == expected
        assert asked.headers.get("retry-after") == ("7" if name == "throttled" else None)
    assert code(onelake.dfs("HEAD", "a")) == (404, "PathNotFound")
    assert onelake.put("a", b"x").status_code == 201


def test_an_answer_is_lost_after_the_write(onelake: Clients) -> None:
    switch(onelake, "lost_answer", count=3)
    assert onelake.blob("HEAD", "a").status_code == 404
    with pytest.raises(httpx.RemoteProtocolError):
        onelake.put("a", b"x", If_None_Match="*")
    assert onelake.blob("GET", "a").content == b"x"
    # What was refused anyway has changed nothing, so its answer comes.
    assert code(onelake.put("a", b"y", If_None_Match="*")) == (409, "BlobAlreadyExists")
    before = onelake.dfs("HEAD", "a").headers["etag"]
    with pytest.raises(httpx.RemoteProtocolError):
        onelake.rename("a", "b", If_None_Match="*")
    assert onelake.dfs("HEAD", "b").headers["etag"] == before
    with pytest.raises(httpx.RemoteProtocolError):
        onelake.blob("DELETE", "b")
    assert onelake.blob("HEAD", "b").status_code == 404
    assert onelake.put("a", b"x").status_code == 201


def test_a_slow_server_waits_before_it_does_anything(onelake: Clients, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[tuple[float, bool]] = []

    async def sleep(seconds: float) -> None:
        waited.append((seconds, f"{onelake.directory}/a" in onelake.server.blobs))

    monkeypatch.setattr(app, "sleep", sleep)
    switch(onelake, "slow", seconds=5, count=1)
    for _ in range(2):
        assert onelake.put("a").status_code == 201
    assert waited == [(5.0, False)]


def test_empty_offset_listings_are_by_names_only(onelake: Clients) -> None:
    onelake.put("a")
    switch(onelake, "empty_offset_listings")
    for by, rows in (("names", 0), ("guids", 1)):
        start = onelake.at("", by).partition("/")[2]
        assert onelake.list("", by, startFrom=start).text.count("<Blob>") == rows
        assert onelake.list("", by).text.count("<Blob>") == 1


def test_a_fault_strikes_only_the_requests_that_it_is_for(onelake: Clients) -> None:
    switch(onelake, "error_503", only="PUT /taxi")
    assert onelake.put("a").status_code == 503
    assert onelake.blob("HEAD", "a").status_code == 404
    assert onelake.blob("PUT", "a", by="guids", headers={"x-ms-blob-type": "BlockBlob"}).status_code == 201


def test_faults_are_read_and_switched_while_the_server_runs(onelake: Clients) -> None:
    assert set(onelake.plain.get("/_admin/faults").json()["known"]) == set(FAULTS)
    on = switch(onelake, "slow", rate=0, seconds=3).json()["on"]
    assert on["slow"] == {"rate": 0.0, "count": None, "seconds": 3.0, "only": ""}
    assert "slow" not in onelake.plain.delete("/_admin/faults/slow").json()["on"]
    assert switch(onelake, "slow", rate=2).status_code == 400
    assert switch(onelake, "slow", colour="red").status_code == 400
    assert switch(onelake, "fire").status_code == 404
    assert onelake.plain.post("/_admin/faults").status_code == 405
    assert onelake.plain.get("/_admin/other").status_code == 404
