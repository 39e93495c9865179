"""What a load tells its assets."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import pytest
from airflow.sdk import Asset
from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType
from airflow.sdk.execution_time.comms import ErrorResponse

from airflow_provider_onelake.assets.commits import TableCommit
from airflow_provider_onelake.assets.tables import table_asset
from airflow_provider_onelake.assets.uris import uris_beside_shortcut
from airflow_provider_onelake.exceptions import InvalidWriteError, LogGapError
from airflow_provider_onelake.log.commits import Commit
from airflow_provider_onelake.log.partitions import Partitioning
from airflow_provider_onelake.operators import _outlets as outlets
from airflow_provider_onelake.operators._outlets import NO_VALUE, aliases_of, partition_keys, tell_outlets
from airflow_provider_onelake.operators.reconcile import OneLakeReconcileOperator
from airflow_provider_onelake.storage.addresses import TableAddress
from airflow_provider_onelake.table import Table
from airflow_provider_onelake.writes.report import Report, WriterOutcome
from tests.support.tables import foreign_append, make_table
from tests.support.versions import needs_airflow


@attrs.define
class Event:
    extra: dict[str, Any] = attrs.field(factory=dict)
    keys: list[str] = attrs.field(factory=list)

    told: dict[str, dict[str, Any]] = attrs.field(factory=dict)

    def add_partitions(self, keys: list[str]) -> None:
        self.keys += keys

    def add(self, asset: Any, extra: dict[str, Any]) -> None:
        """Tell another asset by an alias, as Airflow's own does: one that no DAG has is not found."""
        if asset.uri in FAILS:
            raise AirflowRuntimeError(ErrorResponse(error=FAILS[asset.uri]))
        self.told[asset.uri] = extra


class Strict(Event):
    """As Airflow's own refuses what its database has no room for."""

    def add_partitions(self, keys: list[str]) -> None:
        raise ValueError("partition_key must be at most 250 characters; got 251.")


FAILS = {"onelake://w/i/Tables/nobodys": ErrorType.ASSET_NOT_FOUND, "onelake://w/i/Tables/x": ErrorType.GENERIC_ERROR}


class Events(dict[str, Event]):
    def __getitem__(self, asset: Any) -> Event:
        return self.setdefault(asset.name, Event())


def report(*versions: int | None) -> Report:
    outcomes = [WriterOutcome(writer=str(v), status="published", version=v, rows_published=v and 2) for v in versions]
    return Report(load="l", table="/t", outcomes=tuple(outcomes), missing=())


def context_of(events: Events, partition_key: str | None = None) -> Any:
    return {"outlet_events": events, "dag_run": SimpleNamespace(partition_key=partition_key)}


def tell(path: Path, told: Report, *assets: Any, others: Sequence[str] = ()) -> Events:
    log = make_table(path)
    foreign_append(log, {"2019-01": [1, 2]})
    foreign_append(log, {"2019-01": [3], None: [4]})
    events = Events()
    tell_outlets(context_of(events), list(assets), log, told, others)
    return events


def test_an_assets_event_has_the_loads_commits(tmp_path: Path) -> None:
    events = tell(tmp_path, report(2, None, 1, 2), table_asset("Tables/trips", "trips"), Asset.ref(name="by name"))
    assert list(events) == ["trips"]
    extra = events[table_asset("Tables/trips", "trips")].extra
    assert json.loads(json.dumps(extra)) == extra
    assert (extra["version"], extra["rows"]) == (2, 6)
    assert [(commit["version"], commit["rows_added"]) for commit in extra["commits"]] == [(1, 2), (2, 2)]
    assert events[table_asset("Tables/trips", "trips")].keys == []


def test_assets_that_name_a_shortcuts_target_are_told_once_each_by_an_alias(tmp_path: Path) -> None:
    by_path = table_asset("Tables/link", "link")
    target, other = "onelake://w/i.Lakehouse/Tables/t", "onelake://w/i.Lakehouse/Tables/t2"
    named = table_asset(target, "named")
    (alias,) = aliases_of([by_path, named])
    uris = [target, "onelake://w/i/Tables/nobodys", other, other]
    events = tell(tmp_path, report(1, 2), by_path, named, alias, others=uris)
    assert list(events[alias].told) == [other]
    assert events[alias].told[other] == events[by_path].extra
    assert tell(tmp_path / "again", report(None), by_path, alias, others=uris) == {}
    assert list(tell(tmp_path / "none", report(1), by_path, alias)) == ["link"]
    # Which assets there are must be known: a retry tells them.
    with pytest.raises(AirflowRuntimeError, match="GENERIC_ERROR"):
        tell(tmp_path / "fails", report(1), by_path, alias, others=["onelake://w/i/Tables/x"])


@needs_airflow("3.3", "events for partitions")
def test_an_alias_is_only_there_for_assets_of_tables_that_may_be_in_onelake() -> None:
    path, whole = table_asset("Tables/trips"), table_asset("onelake://w/i.Lakehouse/Tables/t", "t")
    by_month = table_asset("Tables/trips", "by_month", partitioned_by="month")
    elsewhere = [Asset("trips loaded"), table_asset("s3://bucket/lake/t"), table_asset("/data/lake/t")]
    assert aliases_of(elsewhere) == []
    names = [[alias.name for alias in aliases_of([*elsewhere, each])] for each in (path, whole, by_month)]
    assert names == [[f"{each} behind a shortcut"] for each in (path.uri, "t", "by_month")]
    load = OneLakeReconcileOperator(task_id="r", table="Tables/trips", outlets=[path, whole])
    assert load.outlets == [path, whole, *aliases_of([path])]


def test_a_shortcuts_table_has_the_uris_of_its_target(monkeypatch: pytest.MonkeyPatch) -> None:
    guids = "onelake://0f3c8a1e-5b2d-4c6f-9a7b-1d2e3f4a5b6c/a1b2c3d4-e5f6-4789-8abc-def012345678"
    gold = guids.replace("a1b2", "b1b2")
    settings = {"lakehouse": guids, "lakehouse_alias": "onelake://taxi/raw.Lakehouse"}

    def uris(address: str, shortcut: str | None) -> list[str]:
        link = None if shortcut is None else TableAddress.parse(shortcut)
        table = Table(TableAddress.parse(address), None, 0.0, settings.get, shortcut=link)
        return uris_beside_shortcut(table, "lake")

    assert uris(f"{guids}/Tables/own", None) == []
    assert uris(f"{gold}/Tables/t", f"{guids}/Tables/link") == [f"{gold}/Tables/t"]
    spellings = [f"{guids}/Tables/own", "onelake://taxi/raw.Lakehouse/Tables/own", "delta://lake/Tables/own"]
    assert uris(f"{guids}/Tables/own", f"{guids}/Tables/link") == spellings


@needs_airflow("3.3", "events for partitions")
def test_a_partitioned_assets_event_is_one_for_each_partition(tmp_path: Path) -> None:
    by_month = table_asset("Tables/trips", "by_month", partitioned_by="month")
    assert tell(tmp_path, report(1, 2), by_month)[by_month].keys == ["2019-01", NO_VALUE]


@needs_airflow("3.3", "events for partitions")
def test_what_is_repeated_for_each_partition_does_not_grow_with_their_number(tmp_path: Path) -> None:
    log = make_table(tmp_path)
    by_month, whole = table_asset("Tables/trips", "by_month", partitioned_by="month"), table_asset("Tables/trips")
    sizes = []
    for months in (1, 40):
        version = foreign_append(log, {f"20{month:02d}-01": [1] for month in range(10, 10 + months)})
        events = Events()
        tell_outlets(context_of(events), [by_month, whole], log, report(version))
        assert len(events[by_month].keys) == months
        assert len(events[whole].extra["commits"][0]["partitions_added"]) == months
        (told,) = map(TableCommit.from_json, events[by_month].extra["commits"])
        assert (told.version, told.rows_added, told.table) == (version, months, log.table)
        assert not told.partitions_complete
        sizes.append(len(json.dumps(events[by_month].extra)))
    assert sizes[1] <= sizes[0] + 10


@needs_airflow("3.3", "events for partitions")
def test_many_commits_tell_each_partition_of_the_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outlets, "_MOST_COMMITS", 1)
    by_month, whole = table_asset("Tables/trips", "by_month", partitioned_by="month"), table_asset("Tables/trips")
    events = tell(tmp_path, report(1, 2), by_month, whole)
    extra = events[by_month].extra
    assert ([commit["version"] for commit in extra["commits"]], extra["complete"]) == ([2], False)
    assert len(events[whole].extra["commits"]) == 2
    assert events[by_month].keys == ["2019-01", NO_VALUE]


@needs_airflow("3.3", "events for partitions")
def test_plain_assets_of_a_partitions_run_are_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = make_table(tmp_path)
    foreign_append(log, {"2019-01": [1]})
    by_month, plain = table_asset("Tables/trips", "by_month", partitioned_by="month"), table_asset("Tables/trips", "p")
    for key, assets, warned in ((None, [plain, by_month], []), ("1", [by_month], []), ("1", [plain, by_month], ["p"])):
        caplog.clear()
        tell_outlets(context_of(Events(), key), assets, log, report(1))
        assert [record.args[2] for record in caplog.records if isinstance(record.args, tuple)] == warned
        assert all("watched_table_asset" in record.getMessage() for record in caplog.records)


def test_a_load_that_published_nothing_tells_nothing(tmp_path: Path) -> None:
    assert tell(tmp_path, report(None), table_asset("Tables/trips")) == {}


@needs_airflow("3.3", "events for partitions")
def test_a_column_that_is_no_partition_column_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidWriteError, match="partitioned by month"):
        tell(tmp_path, report(1), table_asset("Tables/trips", partitioned_by=["month", "id"]))


@needs_airflow("3.3", "events for partitions")
def test_a_partition_that_makes_no_key_is_refused_for_good(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Events, "__getitem__", lambda self, asset: Strict())
    with pytest.raises(InvalidWriteError, match="at most 250 characters"):
        tell(tmp_path, report(1), table_asset("Tables/trips", partitioned_by="month"))


def test_a_commit_that_is_gone_is_said(tmp_path: Path) -> None:
    with pytest.raises(LogGapError, match="Version 9"):
        tell(tmp_path, report(9), table_asset("Tables/trips"))


def test_the_keys_of_several_columns_are_joined_and_one_value_has_one_key() -> None:
    split = Partitioning({"day": "date", "vendor": "integer"}, {"vendor": "col-1"})

    def touched(kind: str, day: str, vendor: str | None) -> dict[str, Any]:
        return {kind: {"path": day, "partitionValues": {"day": day, "col-1": vendor}}}

    commits = [
        Commit(1, [touched("add", "2019-01-01", "1"), touched("remove", "2019-01-02", "2")]),
        Commit(2, [touched("add", "2019-1-1", "01"), touched("add", "2019-01-01", None)]),
    ]
    keys = partition_keys(commits, split, ["day", "vendor"], "/t")
    assert keys == ["2019-01-01|1", f"2019-01-01|{NO_VALUE}", "2019-01-02|2"]
    assert partition_keys(commits, split, ["vendor"], "/t") == ["1", "2", NO_VALUE]


@pytest.mark.parametrize(
    ("one", "other", "keys"),
    [
        pytest.param(["a|b", "c"], ["a", "b|c"], ["a%7Cb|c", "a|b%7Cc"], id="a value has the sign between values"),
        pytest.param([None, "c"], [NO_VALUE, "c"], [f"%5F{NO_VALUE[1:]}|c", f"{NO_VALUE}|c"], id="a text is like NULL"),
        pytest.param(["%7C", "c"], ["|", "c"], ["%257C|c", "%7C|c"], id="a text is like an encoded one"),
    ],
)
def test_two_partitions_have_two_keys(one: list[str | None], other: list[str | None], keys: list[str]) -> None:
    split = Partitioning({"area": "string", "vendor": "string"})
    both = (dict(zip(split.types, values, strict=True)) for values in (one, other))
    added = [{"add": {"path": "f", "partitionValues": values}} for values in both]
    assert partition_keys([Commit(1, added)], split, ["area", "vendor"], "/t") == keys
    assert len(partition_keys([Commit(1, added)], split, ["area"], "/t")) == 2
