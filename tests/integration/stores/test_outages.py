"""Busy answers, lost answers and outages, between us and a real store."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import attrs
import pytest

from airflow_provider_onelake.commit.publish import Committer, Status
from airflow_provider_onelake.exceptions import (
    AccessDeniedError,
    ObjectExistsError,
    StoreNotFoundError,
    StoreUnavailableError,
)
from airflow_provider_onelake.storage import remote, stores
from tests.support.object_stores import Lake
from tests.support.proxy import Fault, Faults, Proxy, Request
from tests.support.tables import stage, writer_spec

BUSY = [pytest.param(Fault(status=status), id=str(status)) for status in (429, 500, 503)]
RESET, LOST = Fault(reset=True), Fault(lose_answer=True)
FAULTS = [*BUSY, pytest.param(RESET, id="reset"), pytest.param(LOST, id="answer lost")]

pytestmark = pytest.mark.parametrize("lake", ["s3", "azure"], indirect=True)


@pytest.fixture
def proxy(lake: Lake) -> Iterator[Proxy]:
    assert lake.credentials is not None
    assert lake.credentials.endpoint is not None
    with Proxy(lake.credentials.endpoint) as running:
        yield running


@pytest.fixture
def far(lake: Lake, proxy: Proxy) -> Lake:
    """The same lakehouse, seen through the proxy."""
    assert lake.credentials is not None
    path = urlsplit(lake.credentials.endpoint).path
    return attrs.evolve(lake, credentials=attrs.evolve(lake.credentials, endpoint=f"{proxy.url}{path}"))


def first(count: int, method: str, part: str, fault: Fault) -> Faults:
    """A fault for the first requests of a method to any path that holds something."""
    left = [fault] * count
    return lambda request: left.pop() if left and request.method == method and part in request.path else None


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "PATIENCE", 0.5)
    monkeypatch.setattr(remote, "SILENCE", 0.5)
    monkeypatch.setitem(remote._AGAIN, "max_retries", 2)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_create_whose_answer_was_busy_or_lost_lands_once_and_is_known_to_be_ours(
    lake: Lake, far: Lake, proxy: Proxy, fault: Fault
) -> None:
    proxy.faults = first(2, "PUT", "a/b", fault)
    far.log().store.create("a/b", b"mine")
    assert lake.log().store.get("a/b") == b"mine"
    assert len(proxy.asked(lambda request: request.method == "PUT")) == 3


@pytest.mark.parametrize("fault", FAULTS)
def test_a_create_that_another_won_meanwhile_is_a_lost_race(lake: Lake, far: Lake, proxy: Proxy, fault: Fault) -> None:
    lake.log().store.create("a/b", b"theirs")
    proxy.faults = first(1, "PUT", "a/b", fault)
    with pytest.raises(ObjectExistsError):
        far.log().store.create("a/b", b"mine")
    assert lake.log().store.get("a/b") == b"theirs"


def test_two_requests_that_meet_are_no_object_that_exists(far: Lake, proxy: Proxy) -> None:
    """S3 answers 409 then, which obstore takes for an object that is there."""
    proxy.faults = first(1, "PUT", "a/b", Fault(status=409))
    far.log().store.create("a/b", b"mine")
    assert far.log().store.get("a/b") == b"mine"


@pytest.mark.parametrize("fault", FAULTS[:-1])
def test_reads_lists_puts_and_deletes_are_tried_again(far: Lake, proxy: Proxy, fault: Fault) -> None:
    store = far.log().store
    met: set[tuple[str, str]] = set()

    def once(request: Request) -> Fault | None:
        key = (request.method, request.path)
        known = key in met
        met.add(key)
        return None if known else fault

    proxy.faults = once
    store.put("a/b", b"1")
    assert store.get("a/b") == b"1"
    assert store.head("a/b").size == 1
    assert [info.path for info in store.list("a")] == ["a/b"]
    store.delete("a/b")
    assert list(store.list("a")) == []


def test_a_commit_whose_answer_was_lost_is_published_once_and_lost_no_race(lake: Lake, far: Lake, proxy: Proxy) -> None:
    lake.make_table()
    log = far.log()
    buffer = stage(log, writer_spec(), {"2019-01": [1]})
    proxy.faults = first(1, "PUT", "/_delta_log/00000000000000000001.json", LOST)
    publication = Committer(log).publish([buffer])
    assert (publication.status, publication.version, publication.lost_races) == (Status.PUBLISHED, 1, 0)
    assert lake.ids() == [1]


@pytest.mark.usefixtures("impatient")
def test_an_outage_is_said_in_bounded_time_and_the_same_buffer_is_published_afterwards(
    lake: Lake, far: Lake, proxy: Proxy
) -> None:
    lake.make_table()
    log = far.log()
    buffer = stage(log, writer_spec(), {"2019-01": [1]})
    proxy.faults = lambda request: RESET
    for ask in (lambda: log.store.create("x", b""), lambda: log.store.put("x", b""), lambda: log.store.get("x")):
        begun = time.monotonic()
        with pytest.raises(StoreUnavailableError, match="did not answer for x"):
            ask()
        assert time.monotonic() - begun < 10
    proxy.faults = None
    assert Committer(log).publish([buffer]).status is Status.PUBLISHED
    assert lake.ids() == [1]


@pytest.mark.usefixtures("impatient")
def test_a_store_that_says_nothing_is_given_up_on(far: Lake, proxy: Proxy) -> None:
    store = far.log().store
    over = threading.Event()
    proxy.faults = lambda request: Fault(hold=over)
    begun = time.monotonic()
    try:
        with pytest.raises(StoreUnavailableError):
            store.create("x", b"")
        with pytest.raises(StoreUnavailableError):
            store.get("x")
    finally:
        over.set()
    assert time.monotonic() - begun < 20


def test_a_refusal_is_not_tried_again(far: Lake, proxy: Proxy) -> None:
    proxy.faults = lambda request: Fault(status=403)
    for ask in ("get", "head", "delete"):
        with pytest.raises(AccessDeniedError, match="Check the rights"):
            getattr(far.log().store, ask)("x")
    with pytest.raises(AccessDeniedError):
        far.log().store.create("x", b"")
    assert len(proxy.seen) == 4


def test_wrong_keys_are_refused_without_showing_the_right_ones(lake: Lake) -> None:
    field = "secret_key" if lake.kind == "s3" else "account_key"
    wrong = attrs.evolve(lake, credentials=attrs.evolve(lake.credentials, **{field: "bm90IHRoaXM="}))
    with pytest.raises(AccessDeniedError) as refused:
        wrong.log().store.create("x", b"")
    assert "bm90IHRoaXM" not in str(refused.value)
    assert "bm90IHRoaXM" not in repr(wrong)


def test_a_missing_bucket_or_workspace_is_named(lake: Lake) -> None:
    root = lake.root.replace("lakes/", "no-such-bucket/").replace("taxi/", "no-such-workspace/")
    nowhere = attrs.evolve(lake, root=root)
    for ask in (
        lambda: nowhere.log().store.create("x", b""),
        lambda: nowhere.log().store.get("x"),
        lambda: list(nowhere.log().store.list("x")),
        lambda: nowhere.log().snapshot(),
    ):
        with pytest.raises(StoreNotFoundError, match="no bucket, container or workspace"):
            ask()


def test_waits_between_tries_grow(monkeypatch: pytest.MonkeyPatch, far: Lake, proxy: Proxy) -> None:
    bounds: list[float] = []
    monkeypatch.setattr(stores.random, "uniform", lambda low, high: bounds.append(high) or 0.0)
    proxy.faults = first(4, "PUT", "x", Fault(status=503))
    far.log().store.create("x", b"")
    assert bounds == [0.1, 0.2, 0.4, 0.8]
