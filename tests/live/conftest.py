"""The live stack of the session, see ``harness.LiveStack``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from include.local.settings import REPOSITORY
from tests.live.harness import LiveStack, make_settings, start, stop
from tests.live.held_load import HeldLoad

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture(scope="session")
def live_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveStack]:
    """A live stack with the DAGs of ``dags/`` and ``tests/live/dags/``, for the whole session."""
    settings = make_settings(tmp_path_factory.mktemp("live"), REPOSITORY / "dags", Path(__file__).parent / "dags")
    try:
        running = start(settings)
        yield running
    finally:
        stop(settings)


@pytest.fixture
def new_load(
    live_stack: LiveStack, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Callable[..., HeldLoad]]:
    """A load into a table of the test's own, that the test can hold; arguments are those of ``HeldLoad``."""
    own = re.sub(r"\W+", "_", request.node.name.removeprefix("test_"))
    loads: list[HeldLoad] = []

    def make(name: str = own, **arguments: Any) -> HeldLoad:
        load = HeldLoad(live_stack, tmp_path, name, **arguments)
        loads.append(load)
        return load

    yield make
    for load in loads:
        # Whatever became of the test, its run must not hold up the next.
        load.let_go()
