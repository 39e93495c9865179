"""The steps of a writer's MERGE behind its staging: Spark merges the rows in rounds, and one commit publishes."""

from __future__ import annotations

import logging
import uuid
from typing import TYPE_CHECKING, Any

from airflow_provider_onelake.buffers.plain_parquet import plain_files
from airflow_provider_onelake.modes import Merge
from airflow_provider_onelake.statements.engine import MOST_ROUNDS
from airflow_provider_onelake.statements.merge import MERGE, Merged, merge
from airflow_provider_onelake.statements.statement import StatementStatus
from airflow_provider_onelake.steps.change import StatementRounds
from airflow_provider_onelake.steps.keys import check_keys
from airflow_provider_onelake.texts import rows_in_words

if TYPE_CHECKING:
    from airflow_provider_onelake.buffers.buffer import Buffer
    from airflow_provider_onelake.steps.spark import SparkWork
    from airflow_provider_onelake.table import Table

logger = logging.getLogger(__name__)


def merge_buffer(
    table: Table,
    spark: SparkWork,
    source: Buffer,
    *,
    max_rounds: int | None = None,
    v_order: bool | None = None,
    retried: bool = False,
) -> Merged:
    """Merge the rows that a writer has staged.

    :param source: its buffer.
    :param max_rounds: how many times Spark may run it before it gives up. Default: ``MOST_ROUNDS``.
    :param v_order: whether Spark is to write V-Order. Default: as its session and the table say.
    :param retried: whether an older try of the same generation may still be at work.
    :returns: how it ended.
    :raises OneLakeError: as :func:`~airflow_provider_onelake.statements.merge.merge`, and as an engine's ``change``.
    """
    spec, mode = source.spec, source.spec.mode
    assert isinstance(mode, Merge)
    plain = plain_files(source)
    keys = tuple(key.strip() for key in mode.keys)

    def job(number: int) -> dict[str, Any]:
        # The staged source does not change, so it is looked at once.
        is_to_look = number == 1 and bool(keys)
        if is_to_look and plain is not None and check_keys(table.log.store, source, plain, keys):
            is_to_look = False
        return {
            "where": mode.condition,
            "source_uri": table.address.child(source.path).spark_uri,
            "source_files": tuple(table.address.child(path).spark_uri for path in plain.paths) if plain else (),
            "source_schema": plain.schema if plain else None,
            "when": tuple(clause.text for clause in mode.clauses),
            "keys": keys if is_to_look else (),
            "v_order": v_order,
        }

    rounds = StatementRounds(
        table=table,
        spark=spark,
        operation=MERGE,
        owner=spec.identity.app_id,
        # The source may be of an earlier try, whose rounds must not be taken for ours.
        attempt=str(uuid.uuid4()),
        label=f"writer {spec.identity.key} of task {spec.task}",
        name=f"{spec.identity.load.id}/{spec.identity.key}",
        job=job,
        # Updated and inserted rows may come into any partition, in the same files.
        reading=lambda _: {"keeps_rows": False, "moves_rows": True, "adds_rows": True},
    )
    done = rounds.publish(
        lambda: merge(
            table.committer(),
            source,
            rounds.run,
            most_rounds=max_rounds or MOST_ROUNDS,
            retried=retried,
        )
    )
    logger.info("%s: writer %s: %s", table.name, spec.identity.key, summary_of(done))
    return done


def summary_of(done: Merged) -> str:
    """Return one sentence that says what was done."""
    if done.status is StatementStatus.NOTHING_TO_DO:
        return "no row of the table had to change"
    counted = (
        f"inserted {rows_in_words(done.rows_inserted)}, updated {rows_in_words(done.rows_updated)} and deleted "
        f"{rows_in_words(done.rows_deleted)}"
    )
    if done.status is StatementStatus.ALREADY:
        return f"an earlier try {counted}{'' if done.version is None else f' in version {done.version}'}"
    rounds = "one round" if done.rounds == 1 else f"{done.rounds} rounds"
    return f"version {done.version} {counted}, in {rounds} of Spark"
