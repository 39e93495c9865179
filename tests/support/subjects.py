"""What each test proves, as a mark: ``pytest -m upkeep`` runs what concerns upkeep, and ``-m promise`` is ``make test``.

A test's subject follows from the path of its file. The mark ``promise`` comes on top: it is given here to the unit tests
that are cheap for what they show, and beside the test, by ``@pytest.mark.promise``, where Spark or Airflow is needed.
"""

from __future__ import annotations

from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
_INCLUDE = TESTS.parent / "include"
"""Below it are the tests of the local OneLake, ``local_onelake/tests``."""

SUBJECTS = {
    "load": "writers, groups, plans, checks and reconcile: every row of a load is there once",
    "statement": "DELETE, UPDATE, MERGE and ALTER are done once, to the version before",
    "table": "what a table's log and files say, whoever wrote them",
    "upkeep": "compaction, vacuum, checkpoints, RESTORE, manifests",
    "store": "local disk, S3, Azure and OneLake, and their outages",
    "engine": "Spark Connect, spark-submit, clusters, Livy",
    "onelake": "Fabric's shortcuts, access, refreshes and jobs; the local OneLake",
    "events": "sensors, watchers, assets",
    "ui": "the view, links, the command line, logs and errors as people read them",
    "tooling": "make's targets, containers, the bench, the wheel, the tests' own judges",
}

_MORE = {
    "promise": "what `make test` runs: all that the promise rests on",
    "nightly": "what `make test-all` has no time for, and `make test-nightly` runs",
    "costs(why)": "why a test that takes long stays",
}

# A path begins the paths of test files below tests/, or include/; the longest that fits counts.
_CONCERNS = {
    "load": """simulation  unit/commit  unit/buffers  unit/writes  unit/history  unit/definition  unit/decorators  unit/hooks  unit/operators  unit/planning  unit/reading
        unit/retry_policies  unit/spark/jobs  unit/task_groups  unit/test_checks  unit/test_of_2223e7c8
        unit/test_modes  unit/test_clauses  unit/test_options  unit/test_results  unit/test_sources  unit/test_table  unit/steps  airflow  integration/spark  live""",
    "statement": """simulation/test_statements  unit/statements  unit/operators/test_alter  unit/operators/test_rivals  unit/operators/test_statements  unit/steps/test_change
        unit/steps/test_merge  unit/steps/test_statement
        integration/spark/test_alter  integration/spark/test_changes  integration/spark/test_concerned
        integration/spark/test_merge  integration/spark/test_rivals
        integration/spark/test_statement_matrix  integration/submit/test_merge  live/test_forget_while_loading""",
    "table": """unit/following  unit/fuzz  unit/log  unit/rows  integration/spark/test_calendars
        integration/spark/test_features  integration/spark/test_history  integration/spark/test_predicates
        integration/spark/test_replay  integration/spark/test_statistics  integration/spark/test_table_changes
        integration/spark/test_delta_conflicts  airflow/test_spark_tables""",
    "upkeep": """unit/maintenance  unit/operators/test_health  unit/operators/test_manifests  unit/operators/test_optimize
        unit/operators/test_restore  unit/operators/test_vacuum  integration/spark/test_foreign_vacuum
        integration/spark/test_manifests  integration/spark/test_optimize  integration/spark/test_restore
        integration/spark/test_vacuum  airflow/test_upkeep""",
    "store": """unit/storage  integration/stores  airflow/test_bad_weather  airflow/test_stores""",
    "engine": """unit/spark  integration/livy  integration/submit  integration/spark/test_engine
        integration/spark/test_light_writer  live/test_deferred_drivers  unit/hooks/test_spark
        unit/operators/test_spark_task""",
    "onelake": """local_onelake  unit/hooks/test_shortcuts  unit/hooks/test_onelake_sign_in
        unit/operators/test_access  unit/operators/test_refresh  unit/operators/test_shortcuts
        unit/operators/test_table_maintenance  unit/fabric  unit/storage/test_sign_in
        airflow/test_onelake_weather  integration/stores/test_local_onelake  integration/stores/test_onelake
        live/test_stack_on_onelake""",
    "events": """unit/assets  unit/sensors  unit/triggers  unit/operators/test_outlets  airflow/test_sensor
        airflow/test_table_events  live/test_events""",
    "ui": """unit/cli  unit/links  unit/notifications  unit/view  unit/test_exceptions  unit/observability
        unit/test_messages  airflow/test_failing_dags  airflow/test_observability  live/test_backfills
        live/test_failing_dags  live/test_secrets  live/test_ui  live/test_view""",
    "tooling": """packaging  unit/benchmarks  unit/compose  unit/local/  unit/support  unit/test_docs
        unit/test_airflow  unit/test_example_dags  unit/test_imports  unit/test_names
        unit/test_parsing  unit/test_preload  unit/test_reference  unit/test_seeded_bugs  unit/test_words  live/test_compose  live/test_demo  live/test_stack.py
        live/test_stress  integration/stores/test_compose_rooms""",
}
_SUBJECT_OF = {path: subject for subject, paths in _CONCERNS.items() for path in paths.split()}

# Unit tests that are not worth a place in ten minutes. All others are.
_NOT_IN_TEN_MINUTES = (
    *("unit/benchmarks", "unit/compose", "unit/fuzz", "unit/local/", "unit/support"),
    *("unit/test_parsing", "unit/test_preload"),
)


def subject_of(path: Path) -> str:
    """Return the subject of a test file.

    :raises LookupError: no subject is known for it: name it in this module.
    """
    below = _below(path)
    fitting = [known for known in _SUBJECT_OF if below.startswith(known)]
    if not fitting:
        raise LookupError(f"{below} has no subject: name it in {Path(__file__).name}.")
    return _SUBJECT_OF[max(fitting, key=len)]


def _below(path: Path) -> str:
    return path.relative_to(TESTS if path.is_relative_to(TESTS) else _INCLUDE).as_posix()


def pytest_configure(config: pytest.Config) -> None:
    """Tell pytest the marks."""
    for name, what in (SUBJECTS | _MORE).items():
        config.addinivalue_line("markers", f"{name}: {what}")


# Before pytest chooses by marks.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test with its subject, and cheap unit tests with ``promise``."""
    for item in items:
        below = _below(item.path)
        item.add_marker(subject_of(item.path))
        if below.startswith("unit/") and not below.startswith(_NOT_IN_TEN_MINUTES):
            item.add_marker("promise")
