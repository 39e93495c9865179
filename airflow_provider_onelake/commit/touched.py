"""Which partitions a load wrote to. A compaction after the load looks at these only."""

from __future__ import annotations

from airflow_provider_onelake.commit.report import Report
from airflow_provider_onelake.log.delta_log import DeltaLog

# The partitions go through XCom, which Airflow's database stores, so their number is limited.
_MOST = 1000


def touched_partitions(log: DeltaLog, report: Report, most: int = _MOST) -> list[dict[str, str | None]] | None:
    """Return the partitions into which a load's writers put files, as values by column.

    :param report: of the load's reconciliation.
    :param most: how many partitions are named at most.
    :returns: the values as the log spells them, by the columns' present names; one ``{}`` for a table without
        partitions. ``None`` stands for all partitions, where there are too many, or where the log no longer says.
    """
    snapshot = log.snapshot()
    assert snapshot is not None
    split = snapshot.partitioning
    touched: dict[object, dict[str, str | None]] = {}
    for outcome in report.outcomes:
        if outcome.version is None or outcome.buffer is None:
            continue
        commit = log.commit(outcome.version)
        if commit is None:
            return None
        for add in commit.adds:
            if add["path"].startswith(f"{outcome.buffer}/"):
                values = add["partitionValues"]
                named = {name: values.get(split.physical.get(name, name)) for name in split.types}
                touched.setdefault(split.partition(values), named)
    return list(touched.values()) if len(touched) <= most else None
