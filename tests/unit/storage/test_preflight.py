"""The preflight finds every problem at once, and leaves nothing behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_provider_onelake.storage.addresses import TableAddress
from airflow_provider_onelake.storage.preflight import SCRATCH, problems_of
from airflow_provider_onelake.storage.stores import open_store
from tests.support.stores import Broken, OffsetBlind, refuse


@pytest.mark.parametrize(
    ("otherwise", "said"),
    [
        pytest.param({}, [], id="sound"),
        pytest.param({"create": refuse}, ["it cannot be written: Access was refused."], id="no right to write"),
        pytest.param(
            {"create": refuse, "list": refuse},
            ["it cannot be written: Access was refused.", "it cannot be listed: Access was refused."],
            id="no right at all",
        ),
        pytest.param({"get": refuse}, ["it cannot be read: Access was refused."], id="no right to read"),
        pytest.param({"list": refuse}, ["it cannot be listed: Access was refused."], id="no right to list"),
        pytest.param({"get": lambda path: b"x"}, ["it gave back other bytes than were written."], id="other bytes"),
        pytest.param({"list": lambda *_, **__: iter(())}, ["it does not list what was just written."], id="unlisted"),
        pytest.param(
            {"delete": refuse},
            ["it cannot be deleted from, so s/x was left there: Access was refused."],
            id="no right to delete",
        ),
        pytest.param({"delete": lambda path: None}, ["it still has s/x after it was deleted."], id="delete ignored"),
        pytest.param(
            {"get": refuse, "list": refuse},
            ["it cannot be read: Access was refused.", "it cannot be listed: Access was refused."],
            id="two at once",
        ),
    ],
)
def test_each_problem_is_named(tmp_path: Path, otherwise: dict[str, Any], said: list[str]) -> None:
    assert list(map(str, problems_of(Broken(tmp_path, **otherwise), "s/x", "it"))) == said
    if "delete" not in otherwise:
        assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_on_a_local_disk_the_directory_goes_too_unless_another_preflight_is_at_work(tmp_path: Path) -> None:
    store = open_store(TableAddress.parse(str(tmp_path)))
    store.create(f"{SCRATCH}/another", b"")
    assert problems_of(store, f"{SCRATCH}/x", "it") == []
    store.delete(f"{SCRATCH}/another")
    assert not list(tmp_path.iterdir())


def test_a_second_create_that_passes_is_named(tmp_path: Path) -> None:
    store = Broken(tmp_path)
    store.create = store.put  # type: ignore[method-assign]
    assert list(map(str, problems_of(store, "s/x", "it"))) == [
        "it let a second create-only put through, so commits to it would be lost."
    ]


def test_a_list_from_an_offset_that_has_no_rows_is_named_with_the_way_out(tmp_path: Path) -> None:
    (problem,) = problems_of(OffsetBlind(Broken(tmp_path)), "s/x", "it")
    assert problem.text.startswith("it lists nothing from an offset")
    assert "GUID" in problem.text
