"""Busy answers, lost answers and outages, between us and a real store."""

from __future__ import annotations

import random
import threading
import uuid

import attrs
import pytest

from airflow_provider_onelake.exceptions import (
    AccessDeniedError,
    ObjectExistsError,
    StoreNotFoundError,
    StoreUnavailableError,
)
from airflow_provider_onelake.storage import azure, stores
from airflow_provider_onelake.writes.publish import Committer, PublishStatus
from tests.support.object_stores import Lake
from tests.support.onelake import WORKSPACE_GUID
from tests.support.proxy import Fault, Proxy, Request, first, outage
from tests.support.tables import stage, writer_spec

pytestmark = pytest.mark.parametrize("lake", ["s3", "azure", "onelake"], indirect=True)

BUSY = [pytest.param(Fault(status=status), id=str(status)) for status in (429, 500, 503)]
DROPPED = pytest.param(Fault(reset=True), id="dropped")
ANSWER_LOST = pytest.param(Fault(lose_answer=True), id="answer lost")


@pytest.fixture
def far(lake: Lake, proxy: Proxy) -> Lake:
    """The same lakehouse, seen through the proxy."""
    return lake.behind(proxy)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "PATIENCE", 0.5)
    monkeypatch.setattr(stores, "SILENCE", 0.5)
    monkeypatch.setattr(azure, "SILENCE", 0.5)


@pytest.mark.parametrize("fault", [*BUSY, DROPPED, ANSWER_LOST])
def test_a_create_whose_answer_was_busy_or_lost_lands_once_and_is_known_to_be_ours(
    lake: Lake, far: Lake, proxy: Proxy, fault: Fault
) -> None:
    proxy.faults = first(2, "PUT", "a/b", fault)
    far.log().store.create("a/b", b"mine")
    assert lake.log().store.get("a/b") == b"mine"
    assert proxy.count("PUT", "a/b") == 3


@pytest.mark.parametrize("fault", [*BUSY, DROPPED, ANSWER_LOST])
def test_a_create_that_another_won_meanwhile_is_a_lost_race(lake: Lake, far: Lake, proxy: Proxy, fault: Fault) -> None:
    lake.log().store.create("a/b", b"theirs")
    proxy.faults = first(1, "PUT", "a/b", fault)
    with pytest.raises(ObjectExistsError):
        far.log().store.create("a/b", b"mine")
    assert lake.log().store.get("a/b") == b"theirs"


def test_two_requests_that_meet_are_no_object_that_exists(far: Lake, proxy: Proxy) -> None:
    """S3 answers 409 then, which obstore takes for an object that is there."""
    proxy.faults = first(1, "PUT", "a/b", Fault(status=409, code="ConditionalRequestConflict"))
    far.log().store.create("a/b", b"mine")
    assert far.log().store.get("a/b") == b"mine"


@pytest.mark.parametrize("fault", [*BUSY, DROPPED])
def test_reads_lists_puts_and_deletes_are_tried_again(far: Lake, proxy: Proxy, fault: Fault) -> None:
    store = far.log().store
    asked: set[tuple[str, str]] = set()

    def once_each(request: Request) -> Fault | None:
        before, this = len(asked), (request.method, request.path)
        asked.add(this)
        return fault if len(asked) > before else None

    proxy.faults = once_each
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
    proxy.faults = first(1, "PUT", "/_delta_log/00000000000000000001.json", Fault(lose_answer=True))
    publication = Committer(log).publish([buffer])
    assert (publication.status, publication.version, publication.tally.lost_races) == (PublishStatus.PUBLISHED, 1, 0)
    assert lake.ids() == [1]


# The bound is the mark's: where patience had no end, that would end them.
@pytest.mark.timeout(240)
@pytest.mark.usefixtures("impatient")
def test_an_outage_is_said_in_bounded_time_and_the_same_buffer_is_published_afterwards(
    lake: Lake, far: Lake, proxy: Proxy
) -> None:
    lake.make_table()
    log = far.log()
    buffer = stage(log, writer_spec(), {"2019-01": [1]})
    with outage(proxy):
        for ask in (lambda: log.store.create("x", b""), lambda: log.store.put("x", b""), lambda: log.store.get("x")):
            with pytest.raises(StoreUnavailableError, match="store did not answer for x"):
                ask()
    assert Committer(log).publish([buffer]).status is PublishStatus.PUBLISHED
    assert lake.ids() == [1]


@pytest.mark.timeout(240)
@pytest.mark.usefixtures("impatient")
def test_a_store_that_says_nothing_is_given_up_on(far: Lake, proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    store = far.log().store
    proxy.faults = lambda _: Fault(hold=threading.Event())
    with pytest.raises(StoreUnavailableError):
        store.create("x", b"")
    with pytest.raises(StoreUnavailableError):
        store.get("x")


def test_a_refusal_is_not_tried_again(far: Lake, proxy: Proxy) -> None:
    proxy.faults = lambda _: Fault(status=403)
    for ask in ("get", "head", "delete"):
        with pytest.raises(AccessDeniedError, match=r"Not allowed to .* Mend the connection"):
            getattr(far.log().store, ask)("x")
    with pytest.raises(AccessDeniedError):
        far.log().store.create("x", b"")
    assert len(proxy.seen) == 4


def test_wrong_keys_are_refused_without_showing_the_right_ones(lake: Lake) -> None:
    field = {"s3": "secret_key", "azure": "account_key", "onelake": "token"}[lake.kind]
    wrong = attrs.evolve(lake, credentials=attrs.evolve(lake.credentials, **{field: "bm90IHRoaXM="}))
    with pytest.raises(AccessDeniedError) as refused:
        wrong.log().store.create("x", b"")
    assert "bm90IHRoaXM" not in str(refused.value)
    assert "bm90IHRoaXM" not in repr(wrong)


def test_a_missing_bucket_or_workspace_is_named(lake: Lake) -> None:
    root = lake.root.replace("lakes/", "no-such-bucket/").replace("taxi/", "no-such-workspace/")
    root = root.replace(WORKSPACE_GUID, str(uuid.uuid4()))
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
    monkeypatch.setattr(random, "uniform", lambda low, high: bounds.append(high) or 0.0)
    proxy.faults = first(4, "PUT", "x", Fault(status=503))
    far.log().store.create("x", b"")
    assert bounds == [0.1, 0.2, 0.4, 0.8]
