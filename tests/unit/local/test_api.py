from __future__ import annotations

import json

import httpx
import pytest

from include.local.api import AirflowApi, ApiError, WaitTimeoutError, wait_for


class FakeAirflow:
    """Answers like Airflow's API; its tokens can be revoked."""

    def __init__(self):
        self.logins = 0
        self.valid = ""
        self.requests: list[httpx.Request] = []
        self.password = "right"
        self.dags = [{"dag_id": f"dag_{n}"} for n in range(250)]

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.url.path == "/auth/token":
            if json.loads(request.content)["password"] != self.password:
                return httpx.Response(401, text="Invalid credentials")
            self.logins += 1
            self.valid = f"Bearer token-{self.logins}"
            return httpx.Response(201, json={"access_token": f"token-{self.logins}"})
        if request.headers.get("Authorization") != self.valid:
            return httpx.Response(401, text="expired")
        self.requests.append(request)
        if request.url.path == "/api/v2/dags":
            first, count = int(request.url.params["offset"]), int(request.url.params["limit"])
            return httpx.Response(200, json={"dags": self.dags[first : first + count], "total_entries": 250})
        return httpx.Response(404, json={"detail": "not found"})


@pytest.fixture
def airflow():
    return FakeAirflow()


def client(airflow, password="right"):
    return AirflowApi("http://airflow", "admin", password, transport=httpx.MockTransport(airflow))


def test_every_page_of_a_list_is_read(airflow):
    with client(airflow) as api:
        assert [dag["dag_id"] for dag in api.dags()] == [f"dag_{n}" for n in range(250)]
    assert len(airflow.requests) == 3


def test_logs_in_once_and_again_when_the_token_has_expired(airflow):
    with client(airflow) as api:
        api.dags()
        api.dags()
        assert airflow.logins == 1
        airflow.valid = "another"
        api.dags()
        assert airflow.logins == 2


def test_a_wrong_password_is_told_apart(airflow):
    with client(airflow, "wrong") as api, pytest.raises(ApiError, match="refused the log-in of admin"):
        api.dags()


def test_an_error_carries_the_request_and_airflows_answer(airflow):
    with (
        client(airflow) as api,
        pytest.raises(ApiError, match=r"GET dags/a%20b/dagRuns/r was answered 404: .*not found"),
    ):
        api.run("a b", "r")


def test_waiting_ends_with_what_was_waited_for():
    answers = iter([None, False, {"state": "success"}])
    assert wait_for(lambda: next(answers), "the run", 5, every=0) == {"state": "success"}
    with pytest.raises(WaitTimeoutError, match="Waited 0 s for the run"):
        wait_for(lambda: None, "the run", 0)


def test_the_api_that_tasks_ask_is_asked_itself_because_airflows_health_does_not_start_it():
    asked = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.path)
        if len(asked) == 1:
            raise httpx.ReadTimeout("busy")
        return httpx.Response(503 if len(asked) == 2 else 200, json={"status": "healthy"})

    with client(answer) as api:
        assert [api.serves_tasks() for _ in range(3)] == [False, False, True]
    assert asked == ["/execution/health"] * 3
