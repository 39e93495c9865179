"""Which tests share servers, so that one process of pytest-xdist runs them: others run beside them."""

from __future__ import annotations

from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]


def group_of(path: Path) -> str | None:
    """Return the servers that a file's tests share, ``None`` for none.

    :param path: of the test file.
    """
    match path.relative_to(TESTS).parts:
        case ("live", *_):
            return "a live Airflow"
        case ("integration", "submit", *_):
            return "a Spark cluster"
        case ("integration", "stores", *_) | ("airflow", "test_stores.py"):
            return "stores"
        case ("integration" | "airflow", *_):
            return "Spark Connect"
    return None


# Before pytest-xdist's own, which reads the marks.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        group = group_of(item.path)
        if group is not None:
            item.add_marker(pytest.mark.xdist_group(group))
