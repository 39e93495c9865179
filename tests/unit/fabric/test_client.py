"""What the one client of JSON over HTTP sends again, after which pause, and what it says of an answer."""

from __future__ import annotations

import threading

import httpx
import pytest

from airflow_provider_onelake.fabric.client import BusyError, Client, words

Answer = httpx.Response | Exception


class Service:
    """Answers one after another, the last one again and again."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.asked: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def client(service: Service, patience: float = 60, unwanted: threading.Event | None = None) -> Client:
    made = Client("https://x", lambda: {"Authorization": "Bearer s3cr3t"}, patience, unwanted or threading.Event())
    made.__dict__["_client"] = httpx.Client(transport=httpx.MockTransport(service))
    return made


def busy(status: int, after: str | None = None) -> httpx.Response:
    return httpx.Response(status, headers={} if after is None else {"Retry-After": after})


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    found: list[float] = []
    monkeypatch.setattr(Client, "_pause", lambda self, seconds: found.append(seconds))
    return found


@pytest.mark.parametrize("status", [429, 430, 503])
def test_it_is_sent_again_when_the_service_wants_to_be_asked(pauses: list[float], status: int) -> None:
    service = Service(busy(status, "7"), busy(status), httpx.ConnectError("refused"), httpx.Response(200))
    assert client(service).send("GET", "/a").status_code == 200
    assert pauses[0] == 7
    assert 0 <= max(pauses[1:]) <= 10
    assert {request.headers["authorization"] for request in service.asked} == {"Bearer s3cr3t"}


def test_it_is_not_waited_for_longer_than_the_patience_lasts(pauses: list[float]) -> None:
    service = Service(busy(429, "61"))
    with pytest.raises(BusyError, match="429 Too Many Requests"):
        client(service).send("GET", "/a")
    assert (len(service.asked), pauses) == (1, [])


@pytest.mark.parametrize("answer", [busy(429), httpx.ConnectTimeout("late")], ids=["no room", "never sent"])
def test_what_must_be_obeyed_once_is_sent_again_where_it_was_certainly_not(pauses: list[float], answer: Answer) -> None:
    service = Service(answer, httpx.Response(409))
    assert client(service).send("POST", "/a", once=True).status_code == 409
    assert len(service.asked) == 2


@pytest.mark.parametrize("answer", [busy(500), httpx.ReadTimeout("late")], ids=["its fault", "no answer"])
def test_what_may_have_been_obeyed_is_sent_once_if_it_must_be(pauses: list[float], answer: Answer) -> None:
    service = Service(answer)
    with pytest.raises(BusyError) as raised:
        client(service).send("POST", "/a", once=True)
    assert (len(service.asked), raised.value.unknown, pauses) == (1, True, [])
    assert "s3cr3t" not in str(raised.value)


def test_nothing_is_sent_again_once_nobody_wants_an_answer() -> None:
    unwanted = threading.Event()
    service = Service(busy(430, "60"))
    asking = client(service, 3600, unwanted)
    threading.Timer(0.05, unwanted.set).start()
    for _ in range(2):
        with pytest.raises(BusyError):
            asking.send("POST", "/a", once=True)
    assert len(service.asked) == 2


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"errorCode": "Gone", "message": "It went.", "requestId": "r1"}', "400 Gone: It went (request r1)."),
        (b'{"error": {"code": "Busy", "message": "Later"}}', "400 Busy: Later."),
        (b'{"msg": "Duplicate session name: x"}', "400 Duplicate session name: x."),
        (b"<html>", "400 <html>."),
        (b"[1]", "400 [1]."),
        (b"", "400 Bad Request."),
    ],
)
def test_what_a_service_says_is_a_sentence(body: bytes, said: str) -> None:
    assert words(httpx.Response(400, content=body)) == said
