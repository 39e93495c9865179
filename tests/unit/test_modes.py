"""What each mode replaces, what its commit says, and what that means when it is read back."""

from __future__ import annotations

from functools import partial
from typing import Any

import attrs
import pytest

from airflow_provider_onelake.exceptions import InvalidWriteError
from airflow_provider_onelake.log.partitions import Partition, Partitioning, Unreadable
from airflow_provider_onelake.modes import (
    MODES,
    Append,
    Merge,
    Mode,
    Overwrite,
    OverwritePartitions,
    ReplaceWhere,
    mode_from,
    mode_of,
)

BY_MONTH = Partitioning({"month": "string"})
HERE: Partition = ("2019-01",)
ELSEWHERE: Partition = ("2019-02",)
WHERE = ReplaceWhere("month = '2019-01'")
ALL: list[Mode] = [Append(), Overwrite(), OverwritePartitions(), WHERE]
EACH = pytest.mark.parametrize("mode", ALL, ids=lambda mode: mode.name)


def replaced(mode: Mode, *rows: Partition) -> list[Partition]:
    found = mode.replaced(rows, BY_MONTH, "a")
    return [partition for partition in (HERE, ELSEWHERE) if found is not None and found.covers(partition)]


@EACH
def test_a_mode_is_known_by_the_name_of_the_parameter_and_comes_back_from_json(mode: Mode) -> None:
    assert MODES[mode.name] is type(mode)
    value = mode.to_json()
    assert mode_from({**value, "on_rerun": "skip"}) == mode_of(value) == mode
    assert value["replace_where"] == (mode.replace_where if isinstance(mode, ReplaceWhere) else None)


def test_an_unknown_mode_has_no_meaning() -> None:
    with pytest.raises(KeyError):
        mode_from({"mode": "upsert"})
    with pytest.raises(InvalidWriteError, match="'upsert' is unknown; it is one of append, overwrite"):
        mode_of("upsert")


@pytest.mark.parametrize("name", sorted(MODES.keys() - {"replace_where"}))
def test_the_predicate_belongs_to_its_mode(name: str) -> None:
    with pytest.raises(InvalidWriteError, match="takes no replace_where"):
        mode_of({"mode": name, "replace_where": "month = '2019-01'"})
    with pytest.raises(InvalidWriteError, match="needs its replace_where"):
        mode_of("replace_where")


@pytest.mark.parametrize("bad", [None, "", 7, ["month = 1"]])
def test_a_predicate_is_a_text(bad: Any) -> None:
    with pytest.raises(InvalidWriteError, match="is no predicate on partition columns"):
        ReplaceWhere(bad)


@pytest.mark.parametrize("mode", [Overwrite, partial(ReplaceWhere, "a = 1"), partial(Merge, keys=["id"])])
def test_a_flag_is_yes_or_no(mode: Any) -> None:
    assert mode(allow_empty=True).allow_empty
    with pytest.raises(InvalidWriteError, match="it is True or False"):
        mode(allow_empty="no")


def test_an_overwrite_replaces_everything_and_an_append_nothing() -> None:
    assert replaced(Append(), HERE) == []
    assert replaced(Overwrite(), HERE) == [HERE, ELSEWHERE]
    assert replaced(OverwritePartitions(), HERE) == [HERE]
    assert replaced(WHERE, ELSEWHERE) == [HERE]


def test_a_buffer_without_rows_replaces_what_does_not_depend_on_rows() -> None:
    assert [replaced(mode) for mode in ALL] == [[], [HERE, ELSEWHERE], [], [HERE]]


def test_a_partition_that_spark_reads_as_null_is_not_overwritten_as_one() -> None:
    strange: Partition = (Unreadable("?"),)
    of_null = OverwritePartitions().replaced([(None,)], BY_MONTH, "vendor-1")
    assert of_null is not None
    with pytest.raises(
        InvalidWriteError, match=r"'vendor-1' overwrites the partition of NULL.*which Spark reads as NULL"
    ):
        of_null.covers(strange)
    here = OverwritePartitions().replaced([HERE], BY_MONTH, "vendor-1")
    assert here is not None
    assert not here.covers(strange)
    assert not here.covers((None,))


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        (Append(), {"mode": "Append"}),
        (Overwrite(), {"mode": "Overwrite"}),
        (OverwritePartitions(), {"mode": "Overwrite", "isDynamicPartitionOverwrite": "true"}),
        (WHERE, {"mode": "Overwrite", "predicate": "[\"month = '2019-01'\"]"}),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_a_commit_says_what_delta_says(mode: Mode, said: dict[str, str]) -> None:
    found = mode.replaced([HERE], BY_MONTH, "a")
    texts = [found.text] if found is not None and found.text else []
    assert mode.parameters(BY_MONTH.types, texts) == {"partitionBy": '["month"]', **said}


@EACH
def test_a_winner_replaced_what_its_mode_replaces(mode: Mode) -> None:
    found = mode.replaced([HERE], BY_MONTH, "a")
    texts = [found.text] if found is not None and found.text else []
    read_back = mode.replaced_by(texts, [HERE], BY_MONTH)
    assert [partition for partition in (HERE, ELSEWHERE) if read_back(partition)] == replaced(mode, HERE)


@pytest.mark.parametrize(
    ("terms", "words"),
    [
        ({}, "either `keys`"),
        ({"keys": ["id"], "on": "target.id = source.id"}, "either `keys`"),
        ({"keys": ["id", "ID "]}, "different columns"),
        ({"keys": [""]}, "different columns"),
        ({"keys": 5}, "keys=5 must be a list"),
        ({"keys": "id, month"}, r"must be a list: \['id', 'month'\], or \['id, month'\] for one column"),
        ({"keys": ["id"], "when": 5}, "when=5 must be a list"),
        ({"keys": ["id"], "when": ["MATCHED THEN INSERT *"]}, "MATCHED has no INSERT"),
        ({"keys": ["id"], "replace_where": "month = 'x'"}, "takes no replace_where"),
        ({"keys": ["id"], "max_rounds": -1}, "at least 1"),
        ({"keys": ["id"], "isolation": "serializable"}, "takes no isolation"),
    ],
)
def test_a_merge_needs_to_know_what_matches(terms: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidWriteError, match=words):
        mode_of({"mode": "merge", **terms})


def test_what_a_merge_does_is_read_from_its_clauses() -> None:
    upsert = Merge(keys="id")  # type: ignore[arg-type]
    assert (upsert.inserts, upsert.touches_matches, upsert.looks_everywhere, upsert.own_columns) == (
        True,
        True,
        False,
        False,
    )
    some = Merge(on="x", when=("MATCHED AND y THEN DELETE", "NOT MATCHED BY SOURCE THEN DELETE"))
    assert (some.inserts, some.touches_matches, some.looks_everywhere, some.own_columns) == (False, False, True, True)
    for mode in (upsert, some):
        assert mode_from(mode.to_json()) == mode
    assert "max_rounds" not in upsert.to_json()


def test_terms_are_compared_with_the_mode() -> None:
    assert len({*ALL}) == len(ALL)
    assert attrs.evolve(WHERE) == WHERE != ReplaceWhere("month = '2019-02'")


@pytest.mark.parametrize("bad", ["id = 1", "month ="])
def test_a_predicate_is_on_partition_columns(bad: str) -> None:
    terms: Any = ReplaceWhere(bad)
    with pytest.raises(InvalidWriteError):
        terms.replaced([HERE], BY_MONTH, "a")
