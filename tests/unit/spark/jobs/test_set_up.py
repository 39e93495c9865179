"""What Spark lacks is found out before it looks at a source, without a Spark job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import pytest

from airflow_provider_onelake.spark.jobs.set_up import SparkIsNotSetUpError, check_delta, check_seen, check_store

DELTA = {"spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog"}
TABLE = "s3a://lake/t"


class SparkSaysError(Exception):
    def __init__(self, condition: str | None) -> None:
        super().__init__(f"[{condition}]")
        self.condition = condition

    def getCondition(self) -> str | None:  # noqa: N802
        return self.condition


@attrs.define
class Session:
    """As much of a session as is asked: its settings, its catalog, and what it reads.

    :param settings: of the session.
    :param fails: what it raises, by what is asked of it.
    """

    settings: Mapping[str, str] = attrs.field(factory=dict)
    fails: Mapping[str, Exception] = attrs.field(factory=dict)
    asked: list[str] = attrs.field(factory=list)

    def _ask(self, what: str) -> Session:
        self.asked.append(what)
        if what in self.fails:
            raise self.fails[what]
        return self

    @property
    def conf(self) -> Any:
        return type("Conf", (), {"getAll": dict(self._ask("settings").settings)})

    @property
    def catalog(self) -> Session:
        return self

    read = catalog

    def currentCatalog(self) -> str:  # noqa: N802
        self._ask("catalog")
        return "spark_catalog"

    def format(self, name: str) -> Session:
        return self

    def load(self, path: str) -> Session:
        return self._ask(f"delta {path}")

    def text(self, path: str) -> Session:
        return self._ask(f"text {path}")

    schema = None


def check(session: Session) -> None:
    check_delta(session, TABLE)  # type: ignore[arg-type]


def test_where_settings_name_delta_its_catalog_is_asked_and_nothing_is_read() -> None:
    session = Session(DELTA)
    check(session)
    assert session.asked == ["settings", "catalog"]


def test_a_catalog_that_cannot_be_loaded_ends_it() -> None:
    with pytest.raises(SparkSaysError):
        check(Session(DELTA, {"catalog": SparkSaysError("_LEGACY_ERROR_TEMP_2215")}))


@pytest.mark.parametrize(
    "condition", ["DATA_SOURCE_NOT_FOUND", "DELTA_CONFIGURE_SPARK_SESSION_WITH_EXTENSION_AND_CATALOG"]
)
def test_without_such_settings_the_format_is_tried(condition: str) -> None:
    with pytest.raises(SparkSaysError):
        check(Session({}, {f"delta {TABLE}": SparkSaysError(condition)}))


@pytest.mark.parametrize("condition", ["PATH_NOT_FOUND", "DELTA_TABLE_NOT_FOUND", None])
def test_what_else_is_wrong_there_is_not_deltas_absence(condition: str | None) -> None:
    session = Session({}, {f"delta {TABLE}": SparkSaysError(condition)})
    check(session)
    assert session.asked == ["settings", f"delta {TABLE}"]


def test_a_table_that_is_not_there_yet_is_no_reason() -> None:
    first = f"text {TABLE}/_delta_log/00000000000000000000.json"
    missing = Session({}, {first: SparkSaysError("PATH_NOT_FOUND")})
    check_store(missing, TABLE)  # type: ignore[arg-type]
    assert missing.asked == [first]
    with pytest.raises(SparkSaysError):
        check_store(Session({}, {first: SparkSaysError(None)}), TABLE)  # type: ignore[arg-type]


def test_what_was_put_there_and_is_not_seen_is_explained() -> None:
    def check_it(condition: str) -> None:
        check_seen(Session({}, {"text /lake/t/staged": SparkSaysError(condition)}), "/lake/t/staged")  # type: ignore[arg-type]

    with pytest.raises(SparkIsNotSetUpError, match="no /lake/t/staged, which this task has put there"):
        check_it("PATH_NOT_FOUND")
    with pytest.raises(SparkSaysError):
        check_it("OTHER")
