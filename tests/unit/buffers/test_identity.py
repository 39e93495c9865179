"""Who a writer is, whatever attempt it is at."""

from __future__ import annotations

import itertools
import re
from typing import Any

import pytest

from airflow_provider_onelake.buffers.identity import Load, WriterIdentity
from airflow_provider_onelake.exceptions import InvalidWriteError

LOAD = Load("prod", "taxi", "load", "2019-01-01T00:00:00+00:00")
KEYS = ["vendor-1", "vendor 1", "Vendor-1", "vendor/1", "vendor%2F1", "ü", "_x", ".x", "-", "x" * 300, "a b=c:d", "1"]


def test_identity_is_namespace_dag_group_key_and_run() -> None:
    assert LOAD.writer("vendor-1").app_id == "onelake/prod/taxi/load/2019-01-01T00:00:00+00:00/vendor-1"
    others = [
        Load("test", "taxi", "load", LOAD.run),
        Load("prod", "bus", "load", LOAD.run),
        Load("prod", "taxi", "reload", LOAD.run),
        Load("prod", "taxi", "load", "2019-02-01T00:00:00+00:00"),
    ]
    writers = [load.writer("w") for load in (LOAD, *others)] + [LOAD.writer("v")]
    assert len({writer.app_id for writer in writers}) == len(writers)
    assert len({writer.directory for writer in writers}) == len(writers)


def test_a_slash_in_a_name_makes_no_two_identities_one() -> None:
    assert Load("a", "b/c", "d", "e").writer("w").app_id != Load("a/b", "c", "d", "e").writer("w").app_id
    assert Load("a", "b", "c", "d").writer("e/f").app_id != Load("a", "b", "c", "d/e").writer("f").app_id
    assert Load("a%2Fb", "c", "d", "e").id != Load("a/b", "c", "d", "e").id


def test_directory_names_need_no_encoding_and_vacuum_does_not_skip_them() -> None:
    for key in KEYS:
        root, name = LOAD.writer(key).directory.split("/")
        assert root == "staged"
        assert re.fullmatch(r"[a-z0-9][a-z0-9-]*", name), name
        assert len(name) <= 60
        assert len(name.rsplit("-", 1)[-1]) == 12


def test_keys_that_look_alike_have_directories_of_their_own() -> None:
    for one, other in itertools.combinations(KEYS, 2):
        assert LOAD.writer(one).directory != LOAD.writer(other).directory


def test_the_directory_is_recognised_by_people() -> None:
    assert LOAD.writer("Vendor 1").directory.startswith("staged/vendor-1-")


def test_every_attempt_has_a_buffer_of_its_own_below_the_writers_directory() -> None:
    writer = LOAD.writer("w")
    one, other = writer.buffer("0199-a"), writer.buffer("0199-b")
    assert one != other
    assert one == f"{writer.directory}/0199-a"


@pytest.mark.parametrize("attempt", ["", "A", "a b", "a%20b", "../x", "_a", ".a", "-a", "a/b", "a\n"])
def test_an_attempt_id_that_would_need_encoding_is_refused(attempt: str) -> None:
    with pytest.raises(InvalidWriteError, match="attempt id"):
        LOAD.writer("w").buffer(attempt)


@pytest.mark.parametrize("position", range(4))
@pytest.mark.parametrize("blank", ["", "  "])
def test_a_part_of_the_identity_that_is_blank_is_refused(position: int, blank: str) -> None:
    parts = ["a", "b", "c", "d"]
    parts[position] = blank
    with pytest.raises(InvalidWriteError, match="must not be empty"):
        Load(*parts)
    with pytest.raises(InvalidWriteError, match="key must not be empty"):
        LOAD.writer(blank)


@pytest.mark.parametrize("number", [5, 2019.5, True])
def test_a_key_that_is_no_text_is_refused_with_how_to_spell_it(number: Any) -> None:
    with pytest.raises(InvalidWriteError, match=f"key must be a text, and not {number}: spell it '{number}'"):
        LOAD.writer(number)


@pytest.mark.parametrize("key", ["w", "a/b c", "ä:+%", "x=1"])
def test_an_identity_comes_back_from_its_txn_id(key: str) -> None:
    identity = LOAD.writer(key)
    assert WriterIdentity.from_app_id(identity.app_id) == identity
    assert identity.app_id.startswith(LOAD.prefix)
    assert LOAD.prefix.startswith(LOAD.dag_prefix)


@pytest.mark.parametrize("strange", ["", "w", "onelake/a/b/c/d", "onelake/a/b/c/d/ ", "spark/a/b/c/d/e"])
def test_another_s_txn_id_is_none(strange: str) -> None:
    assert WriterIdentity.from_app_id(strange) is None
