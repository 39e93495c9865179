"""The reference has every public class, and a docstring says what each parameter is and whether Airflow renders it."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mkdocs.exceptions import PluginError

from airflow_provider_onelake.observability.metrics import METRICS
from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.sources import FileSource
from airflow_provider_onelake.task_groups.write import OneLakeWriteTaskGroup
from include.docs import hooks
from include.docs.docstrings import documented, in_markdown
from include.docs.generated import GENERATED, MARK, with_errors
from include.docs.parameters import parameters_of

ROOT = Path(__file__).parents[2]
ROOMS = ("operators", "task_groups", "decorators", "sensors", "triggers", "hooks", "notifications", "retry_policies")
ALONE = ("sources", "modes", "options")
# Airflow and this package alone make them: a base, a step of a shared poll, a page's button, what a task keeps.
INSIDE = {
    *("operators.table_maintenance", "triggers.asking", "triggers.feed", "hooks.context", "hooks.spark"),
    *("hooks.task_state.TaskState", "modes.Range", "modes.Mode"),
}


def public_classes() -> Iterator[type]:
    for room in (*ROOMS, *ALONE):
        module = importlib.import_module(f"airflow_provider_onelake.{room}")
        names = [module.__name__]
        if room in ROOMS:
            names = [each.name for each in pkgutil.iter_modules(module.__path__, f"{module.__name__}.")]
        for name in names:
            if "._" in name or name.removeprefix("airflow_provider_onelake.") in INSIDE:
                continue
            for kind in vars(importlib.import_module(name)).values():
                path = f"{name}.{getattr(kind, '__name__', '')}"
                public = inspect.isclass(kind) and kind.__module__ == name and not kind.__name__.startswith("_")
                if public and path.removeprefix("airflow_provider_onelake.") not in INSIDE:
                    yield kind


CLASSES = list(public_classes())


def test_there_are_classes_of_every_room() -> None:
    rooms = {kind.__module__.split(".")[1] for kind in CLASSES}
    assert rooms == {*ROOMS, *ALONE}
    assert OneLakeWriteOperator in CLASSES


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_public_class_is_in_the_reference(kind: type) -> None:
    assert f"{kind.__module__}.{kind.__name__}" in documented()


def test_the_reference_describes_only_what_there_is() -> None:
    for path in documented():
        module, _, name = path.rpartition(".")
        assert hasattr(importlib.import_module(module), name), path


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_a_docstring_says_what_each_parameter_is(kind: type) -> None:
    assert not [each.name for each in parameters_of(kind) if not each.text]


@pytest.mark.parametrize(
    "kind", [kind for kind in CLASSES if hasattr(kind, "template_fields")], ids=lambda k: k.__name__
)
def test_a_docstring_says_of_each_parameter_whether_airflow_renders_it(kind: Any) -> None:
    said = {
        each.name: "templated" in (each.text or "") and "Not templated" not in (each.text or "")
        for each in parameters_of(kind)
    }
    rendered = {name: name in kind.template_fields for name in said}
    assert said == rendered


def test_a_group_describes_the_parameters_that_it_hands_to_its_writers() -> None:
    of_group, of_writer = (
        {each.name: each for each in parameters_of(kind)} for kind in (OneLakeWriteTaskGroup, OneLakeWriteOperator)
    )
    assert of_group["mode"].text == of_writer["mode"].text
    assert "OneLakeWriteOperator" in (of_group["table"].text or "")
    assert of_group["committed_timeout"].default == "timedelta(seconds=3600)"


def test_a_class_has_the_parameters_of_those_that_it_derives_from() -> None:
    found = {each.name: each for each in parameters_of(OneLakeWriteOperator)}
    assert {"source", "spark_timeout", "deferrable"} <= found.keys()
    assert (found["source"].annotation, found["source"].default) == ("Source", None)
    assert found["map_index_template"].default
    assert {each.name: each.default for each in parameters_of(FileSource)}["options"] == "{}"


def test_roles_become_links_to_what_the_reference_has_and_else_code() -> None:
    known = {"pkg.room.Thing": "page.md"}
    assert in_markdown(":class:`~pkg.room.Thing`", known=known) == "[`Thing`][pkg.room.Thing]"
    assert in_markdown(':class:`Thing("x")\n<pkg.room.Thing>`', known=known) == '[`Thing("x")`][pkg.room.Thing]'
    assert in_markdown(":class:`Thing` and :meth:`other`", "pkg.room", known) == "[`Thing`][pkg.room.Thing] and `other`"
    assert in_markdown("``Thing``, ``thing``", known=known) == "[`Thing`][pkg.room.Thing], ``thing``"
    assert in_markdown("(docs/guides/reading.md)").startswith("([")
    assert in_markdown("(docs/guides/reading.md)").endswith("](../guides/reading.md))")


def test_what_is_generated_is_on_a_page() -> None:
    pages = [page.read_text() for page in (ROOT / "docs" / "reference").glob("*.md")]
    assert sorted(name for text in pages for name in MARK.findall(text)) == sorted(GENERATED)


def test_the_page_of_errors_is_made_from_the_docstrings_of_today() -> None:
    page = (ROOT / "docs" / "reference" / "errors.md").read_text()
    assert page == with_errors(page), "run: python tests/unit/test_docs.py"


@pytest.mark.parametrize("name", GENERATED)
def test_what_is_generated_has_rows_or_commands(name: str) -> None:
    assert {
        "cli": "## `onelake history`",
        "connections": "| `lakehouse` |",
        "metrics": "| `onelake.commit.rows` |",
        "configuration": "view_connections",
    }[name] in GENERATED[name]()


def test_every_metric_is_declared() -> None:
    source = inspect.getsource(importlib.import_module("airflow_provider_onelake.observability.metrics"))
    sent = {*re.findall(r'self\._(?:count|time)\("([\w.]+)"', source)}
    for about, names in re.findall(r'self\._counts\("(\w+)", result, \(([^)]*)\)', source):
        sent |= {f"{about}.{name}" for name in re.findall(r'"(\w+)"', names)}
    assert sent == {*METRICS}


# -- links of the site ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("link", "home", "there", "leads"),
    [
        pytest.param("b.md", "docs/guides/load.md", "guides/load.md", None, id="there-is-no-such-file"),
        pytest.param("upsert.md", "docs/guides/load.md", "guides/load.md", "upsert.md", id="a-page"),
        pytest.param(
            "../../SECURITY.md", "docs/guides/load.md", "guides/load.md", "../security.md", id="ours-elsewhere"
        ),
        pytest.param("docs/guides/load.md", "SECURITY.md", "security.md", "guides/load.md", id="from-elsewhere"),
        pytest.param("../../dags", "docs/guides/load.md", "guides/load.md", "https://x/tree/main/dags", id="a-folder"),
        pytest.param("LICENSE", "SECURITY.md", "security.md", "https://x/blob/main/LICENSE", id="a-file"),
        pytest.param("../../../x", "docs/guides/load.md", "guides/load.md", None, id="outside"),
    ],
)
def test_where_a_link_leads_in_the_site(link: str, home: str, there: str, leads: str | None) -> None:
    if leads is None:
        with pytest.raises(PluginError, match="there is no"):
            hooks.led(link, home, there, "https://x")
    else:
        assert hooks.led(link, home, there, "https://x") == leads


def test_a_versions_pages_lead_to_its_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIKE_DOCS_VERSION", "1.2.3")
    assert hooks.led("LICENSE", "SECURITY.md", "security.md", "https://x") == "https://x/blob/v1.2.3/LICENSE"


def test_the_first_mention_of_a_class_is_a_link_and_no_other() -> None:
    text = "# `Merge`\n`Merge(keys=[1])`, `Merge`, [`Tuning`](x.md), `Nobody`, ``ConflictError``\n```\n`Append`\n```\n"
    linked = "[`Merge(keys=[1])`](../reference/sources.md#merge)"
    assert hooks.with_references(text, "guides/load.md") == text.replace("`Merge(keys=[1])`", linked)
