"""Whether a writer has nothing to do, as its rows are in the table; and what refuses to say so."""

from __future__ import annotations

import attrs

from airflow_provider_onelake.buffers.claims import check_not_retired
from airflow_provider_onelake.buffers.spec import WriteSpec, equal_work
from airflow_provider_onelake.choices import OnRerun
from airflow_provider_onelake.exceptions import RerunRefusedError, ZombieWriterError
from airflow_provider_onelake.history.published import Publishing
from airflow_provider_onelake.history.writers import WriterHistory
from airflow_provider_onelake.log.commits import FORMAT

_WAYS = (
    "on_rerun='append' adds the rows again, 'replace' takes the earlier ones back first, and the modes overwrite, "
    "overwrite_partitions and replace_where replace what is there"
)
"""What a person can do where a rerun cannot be skipped."""


@attrs.frozen
class Skip:
    """Nothing to do: the writer's rows are in the table, or were left out of it.

    :param version: in which they were published; ``None`` where the log no longer says.
    :param reason: for the log.
    """

    version: int | None
    reason: str


def in_table(history: WriterHistory, spec: WriteSpec) -> Skip | None:
    """Say whether a writer has nothing to do, as its generation is in the table, or an older one of the same work.

    Protocol: generation, skip only what is there. An older generation counts with ``on_rerun='skip'`` alone.

    :param history: of the writer.
    :param spec: of the generation that asks.
    :returns: ``None`` if the writer is to go on.
    :raises ZombieWriterError: a newer generation is in the table, or another run has taken over the writer's files.
    :raises RerunRefusedError: other work of the writer is in the table, or its rows were taken back, or deleted.
    """
    stored = history.stored
    retried = stored == spec.generation
    if stored is None:
        return None
    check_not_retired(history.writer, stored, history.log.table)
    if stored > spec.generation:
        raise ZombieWriterError(
            f"Generation {stored} of writer {history.writer.key!r} is in {history.log.table} already; this one is of "
            f"generation {spec.generation}, and is not put on top of newer data. Nothing more was staged or published."
        )
    if not retried and spec.on_rerun is not OnRerun.SKIP:
        return None
    found = history.newest
    if found is None and retried:
        return Skip(None, "its txn is in the table: an earlier attempt published it")
    if found is not None and found.record.nothing and not retried:
        # A MERGE had nothing to do then, so what counts is what came before it.
        found = next((each for each in history.publishings() if not each.record.nothing), None)
        if found is None:
            return None
    if found is not None and found.record.set_aside and not retried:
        return None
    if (why_not := _why_not(history, spec, found)) is not None:
        raise _refused(spec, why_not, retried=retried)
    assert found is not None
    if found.record.set_aside:
        return Skip(found.version, f"its rows were left out in version {found.version}, by an earlier attempt")
    if found.record.nothing:
        return Skip(None, f"an earlier attempt found nothing to do, in version {found.version}")
    why = ": an earlier attempt published it" if retried else f", with the same source and code. {_WAYS}"
    return Skip(found.version, f"already in version {found.version}{why}")


def check_same_work(found: Publishing, spec: WriteSpec, table: str) -> None:
    """Refuse to call a writer published where another attempt of its generation published other rows.

    :param found: where that generation was published.
    :param table: what messages call the table.
    :raises RerunRefusedError: it was of another source or code.
    """
    if not _is_same(found, spec):
        raise _refused(spec, _of_other_work(found, table), retried=True)


def _is_same(found: Publishing, spec: WriteSpec) -> bool:
    retried = found.record.generation == spec.generation
    told = spec.fingerprint and found.record.fingerprint
    # An attempt that comes back is the same work, even if its source has changed since.
    mine = retried and (found.record.buffer == spec.buffer or not told)
    return mine or bool(told and equal_work(found.record, spec))


def _of_other_work(found: Publishing, table: str) -> str:
    at = f"generation {found.record.generation}, version {found.version}"
    return f"is in {table} already ({at}), from another source, code or mode"


def _refused(spec: WriteSpec, why_not: str, *, retried: bool) -> RerunRefusedError:
    todo = _WAYS
    if retried and spec.on_rerun is not OnRerun.SKIP:
        todo = f"clear the task, as on_rerun={spec.on_rerun.value!r} has a clear done again, and never a retry"
    elif retried:
        todo = f"set on_rerun, which a clear asks and a retry does not, and clear the task; {_WAYS}"
    key = spec.identity.key
    return RerunRefusedError(
        f"Writer {key!r} {why_not}, so it cannot be skipped. Nothing more was staged or published: {todo}."
    )


def _why_not(history: WriterHistory, spec: WriteSpec, found: Publishing | None) -> str | None:
    stored, table = history.stored, history.log.table
    assert stored is not None
    commit = history.commit_that_set(stored) if found is None else None
    if commit is not None and commit.strange_format is not None:
        return (
            f"is in {table} already, published in format {commit.strange_format} by another release of this "
            f"package; this one reads format {FORMAT}, so it cannot tell whether the rows are the same"
        )
    if found is None:
        return f"is in {table} already (generation {stored}), perhaps from another source, code or mode"
    if not _is_same(found, spec):
        return _of_other_work(found, table)
    if found.record.set_aside:
        return None
    since = history.since(found)
    why_not = since.undone
    if why_not is not None and (older := history.still_there()) is not None:
        why_not = f"{why_not}; what it published in version {older.version} is in the table"
    elif why_not is None and stored != spec.generation and since.gone is not False:
        # A person who deletes a run's rows and clears the run wants them back: "skipped" would leave the table empty.
        doubt = "" if since.gone else ", and nobody knows which, so look before you append"
        why_not = f"{'; '.join(since.story)}{doubt}"
    return why_not and f"was published in version {found.version} of {table}, but {why_not}"
