"""At which version of the table a load began: whoever asks first decides it, and the others read it."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest

from airflow_provider_onelake.buffers.beginnings import Beginning, beginning_of
from airflow_provider_onelake.buffers.buffer import read_open_buffer
from airflow_provider_onelake.buffers.claims import Turn
from airflow_provider_onelake.buffers.identity import Load
from airflow_provider_onelake.buffers.layout import beginning_path
from airflow_provider_onelake.buffers.spec import WriteSpec, equal_terms
from airflow_provider_onelake.log.delta_log import DeltaLog
from tests.support import tables
from tests.support.stores import PassingOn, through

FIRST = "started at nine"


def beginning(log: DeltaLog, load: Load, generation: int, life: str) -> Beginning | None:
    """What one more writer is told, of a generation that is begun."""
    turn = Turn.of(log, load.writer("w"), generation)
    return beginning_of(log.store, load, turn, life)


def asked(log: DeltaLog, generation: int = 1, life: str = FIRST) -> int | None:
    """The version that one more writer of the load is told, before another commit comes."""
    began = beginning(through(log.store, log), tables.LOAD, generation, life)
    tables.foreign_append(through(log.store, log), {"2019-01": [1]})
    return began.version if began is not None else None


def test_a_load_begins_with_its_first_writer_and_each_clear_begins_it_anew(log: DeltaLog) -> None:
    assert [asked(log), asked(log)] == [0, 0]
    # The run was made again, or the writer is new in its list: a first start belongs to the first beginning.
    assert asked(log, 1, "another run of the name") == 0
    assert [asked(log, 2, "cleared at ten"), asked(log, 3, "cleared at ten")] == [3, 3]
    assert [asked(log, 2, FIRST), asked(log, 2, FIRST)] == [5, 5]
    assert asked(log) == 0
    other = beginning(log, attrs.evolve(tables.LOAD, run="another"), 1, FIRST)
    assert other == Beginning(8, tables.newest(log).table_id)


def test_where_there_was_no_table_all_of_its_commits_came_since(tmp_path: Path) -> None:
    log = tables.local_log(tmp_path)
    assert beginning(log, tables.LOAD, 1, FIRST) == Beginning(-1)
    made = tables.make_table(tmp_path)
    began = beginning(made, tables.LOAD, 1, FIRST)
    assert began == Beginning(-1)
    assert began.is_of(tables.newest(made).table_id)


def test_a_version_is_of_the_table_of_which_it_was_noted(log: DeltaLog) -> None:
    began = beginning(log, tables.LOAD, 1, FIRST)
    assert began is not None
    assert (began.is_of(tables.newest(log).table_id), began.is_of("of another table")) == (True, False)


@pytest.mark.parametrize("note", [b"", b"{", b"[]", b'{"table_id": "t"}', b'{"version": "x"}', b'{"version": null}'])
def test_a_damaged_note_says_nothing(log: DeltaLog, note: bytes) -> None:
    log.store.create(beginning_path(tables.LOAD.id), note)
    assert asked(log) is None


def test_of_two_that_ask_at_once_the_first_to_put_decides(log: DeltaLog) -> None:
    class Rival(PassingOn):
        """Another writer, which has looked before a commit, puts its note first."""

        def create(self, path: str, data: bytes) -> None:
            self.inner.create(path, b'{"version": 7, "table_id": "t"}')
            super().create(path, data)

    assert beginning(through(Rival(log.store), log), tables.LOAD, 1, FIRST) == Beginning(7, "t")


def test_a_buffer_remembers_it_and_a_retry_that_does_not_know_it_does_the_same_work(log: DeltaLog) -> None:
    spec = tables.writer_spec(began=Beginning(3, "t"))
    assert tables.stage(log, spec, {"2019-01": [1]}).spec.began == Beginning(3, "t")
    assert equal_terms(spec, attrs.evolve(spec, attempt="again", began=None))
    older = spec.to_json()
    del older["began"]
    assert WriteSpec.from_json(older).began is None


def test_a_buffer_that_replaces_remembers_when_its_read_version_landed(log: DeltaLog) -> None:
    opened = read_open_buffer(log.store, tables.begun(log, tables.writer_spec("a", **tables.OVERWRITE)).path)
    assert opened.read_time == log.landed(0)
    # What only adds rows is never late.
    assert read_open_buffer(log.store, tables.begun(log, tables.writer_spec("b")).path).read_time is None
