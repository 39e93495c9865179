"""A table that only a catalog, or only a later version of this package, can read is refused at every door."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from airflow_provider_onelake.cli import main
from airflow_provider_onelake.exceptions import UnsupportedFeatureError
from airflow_provider_onelake.fabric import direct_lake
from airflow_provider_onelake.following.watch import Awaited, Freshness, LogWatch, RowsHeld
from airflow_provider_onelake.log.actions import dump_actions, version_path
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.log.snapshot import Snapshot
from airflow_provider_onelake.maintenance import health, vacuum
from airflow_provider_onelake.maintenance.clean_up import clean_up
from airflow_provider_onelake.maintenance.manifests import generate
from airflow_provider_onelake.maintenance.overview import look_at
from airflow_provider_onelake.triggers.feed import LogFeed
from airflow_provider_onelake.view.commits import page_of_commits
from airflow_provider_onelake.view.partitions import partitions_of
from airflow_provider_onelake.view.staged import page_of_staged, staged_below
from tests.support.stores import through
from tests.support.tables import change_metadata, foreign_append, foreign_commit, make_table, prepare, writer_spec

DAY = timedelta(days=1)


def protocol(*features: str) -> dict[str, Any]:
    return {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features, "writerFeatures": features}


def make_unreadable(log: DeltaLog, feature: str) -> DeltaLog:
    foreign_append(log, {"2019-01": [1]})
    foreign_commit(log, [{"protocol": protocol(feature)}])
    return through(log.store, log)


def watched(log: DeltaLog) -> object:
    feed = LogFeed(log.table, "none", 1.0)
    feed._log = log
    return feed._look()


DOORS: dict[str, Callable[[DeltaLog], object]] = {
    "snapshot": lambda log: log.snapshot(),
    "an old version": lambda log: log.snapshot_at(2),
    "health": health.examine,
    "vacuum": vacuum.plan,
    "clean-up": lambda log: clean_up(log, DAY),
    "manifests": lambda log: generate(log, "file:/t/"),
    "Direct Lake": lambda log: direct_lake.examine(log, "F2"),
    "stage": lambda log: prepare(log, writer_spec()),
    "overview": look_at,
    "page of commits": page_of_commits,
    "page of partitions": partitions_of,
    "page of what is staged": page_of_staged,
    "buffers": staged_below,
    "sensor of an operation": lambda log: LogWatch(log, Awaited(operation="OPTIMIZE")).poll(),
    "sensor of a version": lambda log: LogWatch(log, Awaited(version=9)).poll(),
    "sensor of a partition": lambda log: LogWatch(log, Awaited(partition="month = '2019-01'")).poll(),
    "sensor that begins behind the newest version": lambda log: LogWatch(log, Awaited(operation="X"), after=2).poll(),
    "sensor of rows": lambda log: RowsHeld(log, 5, None).look(),
    "sensor of freshness": lambda log: Freshness(log, DAY).look(),
    "watcher": watched,
}


@pytest.mark.parametrize("feature", ["catalogManaged", "inventedTomorrow"])
@pytest.mark.parametrize("door", DOORS)
def test_every_door_refuses_a_table_that_cannot_be_read_by_the_name_of_the_feature(
    tmp_path: Path, door: str, feature: str
) -> None:
    log = make_unreadable(make_table(tmp_path), feature)
    with pytest.raises(UnsupportedFeatureError, match=f"{tmp_path} uses {feature}, which"):
        DOORS[door](log)


@pytest.mark.parametrize("command", ["health", "vacuum", "history", "buffers", "doctor", "show", "tables"])
def test_every_command_says_the_feature_and_fails(tmp_path: Path, command: str) -> None:
    make_unreadable(make_table(tmp_path), "catalogManaged")
    further = ["1"] if command == "show" else []
    done = CliRunner().invoke(main.app, [command, str(tmp_path), *further])
    assert done.exit_code != 0
    assert "catalogManaged" in done.output
    assert "All is well" not in done.output


def test_a_sensor_and_a_watcher_that_are_at_work_refuse_a_table_that_becomes_unreadable(tmp_path: Path) -> None:
    log = make_table(tmp_path)
    watch, feed = LogWatch(through(log.store, log), Awaited(operation="OPTIMIZE")), LogFeed(log.table, "none", 1.0)
    feed._log = through(log.store, log)
    watch.poll()
    assert feed._look() == 0
    foreign_commit(log, [{"protocol": protocol("catalogManaged")}])
    for look in (watch.poll, feed._look):
        with pytest.raises(UnsupportedFeatureError, match="catalogManaged"):
            look()


@pytest.mark.parametrize("feature", ["catalogOwned-preview", "coordinatedCommits-preview", "managedCommits-dev"])
def test_a_catalog_that_is_named_for_writers_only_takes_the_commits_all_the_same(tmp_path: Path, feature: str) -> None:
    log = make_table(tmp_path)
    foreign_commit(log, [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": [feature]}}])
    with pytest.raises(UnsupportedFeatureError, match=f"{feature}: its commits go through a catalog"):
        health.examine(log)


def test_a_coordinator_among_the_properties_takes_the_commits(tmp_path: Path) -> None:
    log = make_table(tmp_path)
    change_metadata(log, configuration={"delta.coordinatedCommits.commitCoordinator-preview": "dynamodb"})
    with pytest.raises(UnsupportedFeatureError, match="commitCoordinator-preview"):
        log.snapshot()


def test_there_is_no_snapshot_of_a_table_that_cannot_be_read(tmp_path: Path) -> None:
    readable = make_table(tmp_path).snapshot()
    with pytest.raises(UnsupportedFeatureError, match="The table uses catalogManaged"):
        Snapshot(3, protocol("catalogManaged"), readable.metadata, {})  # type: ignore[arg-type]


def test_a_feature_that_was_dropped_again_counts_only_where_the_table_has_it(tmp_path: Path) -> None:
    log = make_table(tmp_path)
    make_unreadable(log, "inventedTomorrow")
    plain = {"minReaderVersion": 1, "minWriterVersion": 2}
    log.store.create(version_path(3), dump_actions([{"protocol": plain}]))
    reader = through(log.store, log)
    assert reader.snapshot().version == 3
    assert reader.snapshot_at(1).version == 1
    with pytest.raises(UnsupportedFeatureError, match="inventedTomorrow"):
        reader.snapshot_at(2)
