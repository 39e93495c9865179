"""The parts of the reference that are made from declarations: the command line, connections, metrics, errors.

A page says where each goes: ``<!-- generated: connections -->``. Errors stand in their page in the repository too,
because their messages lead there: ``python tests/unit/test_docs.py`` writes them.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from airflow_provider_onelake import exceptions
from airflow_provider_onelake.exceptions import OneLakeError, TerminalError, TransientError
from include.docs.docstrings import in_markdown

MARK = re.compile(r"<!-- generated: ([\w-]+) -->")

ERRORS = "<!-- Made by: python tests/unit/test_docs.py -->"
"""Below it, the page of errors is made from their docstrings."""

# Airflow's own fields of a connection, in the order of its form.
_STANDARD = ("host", "schema", "login", "password", "port", "description")


def command_line() -> str:
    """Return the commands of ``onelake``, as Typer's own generator of docs has them."""
    import typer
    from typer.cli import get_docs_for_click

    from airflow_provider_onelake.cli.main import app

    group: Any = typer.main.get_command(app)
    group.commands = {name: each for name, each in group.commands.items() if not each.hidden}
    said = get_docs_for_click(obj=group, ctx=typer.Context(group), name="onelake")
    # The list of commands cuts each one's text, and the headings below are a list too.
    said = re.sub(r"\*\*Commands\*\*:\n\n(?:\* .*\n)+\n", "", said)
    return said.partition("\n")[2].strip()


def connections() -> str:
    """Return the fields of the connection types, as their forms have them."""
    from airflow_provider_onelake.get_provider_info import get_provider_info

    return "\n\n".join(_connection(kind) for kind in get_provider_info()["connection-types"])


def _connection(kind: dict[str, Any]) -> str:
    behaviour = kind["ui-field-behaviour"]
    relabelled, hints = behaviour.get("relabeling", {}), behaviour.get("placeholders", {})
    own = [
        (f"`{name}`", f"{relabelled[name]}: {hints[name]}" if name in hints else relabelled[name])
        for name in _STANDARD
        if name in relabelled
    ]
    more = [(f"`{name}`", field["label"], _described(field)) for name, field in kind["conn-fields"].items()]
    return "\n\n".join(
        [
            f"## {kind['hook-name']}: `{kind['connection-type']}`",
            "Airflow's own fields mean here:",
            _table(("field", "what it is"), own),
            "These stand in the connection's `extra`, as JSON:",
            _table(("field", "in the form", "what it is"), more),
        ]
    )


def _described(field: dict[str, Any]) -> str:
    schema = field["schema"]
    said = [field.get("description", "")]
    if "enum" in schema:
        said.append(f"One of {', '.join(f'`{value}`' for value in schema['enum'] if value)}.")
    if "default" in schema:
        said.append(f"Default: `{str(schema['default']).lower()}`.")
    (kind,) = (name for name in schema["type"] if name != "null")
    return " ".join([*filter(None, said), *([] if kind == "string" else [f"({kind})"])])


def configuration() -> str:
    """Return the options of Airflow's configuration that this package reads."""
    from airflow_provider_onelake.get_provider_info import get_provider_info

    rows = [
        (f"`[{section}] {name}`", option["description"], f"`{option['default']}`")
        for section, each in get_provider_info()["config"].items()
        for name, option in each["options"].items()
    ]
    return _table(("option", "what it is", "default"), rows)


def metrics() -> str:
    """Return the metrics."""
    from airflow_provider_onelake.observability.metrics import METRICS, PREFIX

    rows = [(f"`{PREFIX}.{name}`", each.kind, each.text, each.tag) for name, each in METRICS.items()]
    return _table(("name", "kind", "what it counts", "further tag"), rows)


def with_errors(text: str) -> str:
    """Return the page of errors with what each error is today.

    :param text: of the page.
    """
    return f"{text.partition(ERRORS)[0]}{ERRORS}\n\n{errors()}\n"


def errors() -> str:
    """Return what each error is, and whether Airflow tries the task again."""
    ours = [kind for kind in vars(exceptions).values() if inspect.isclass(kind) and issubclass(kind, OneLakeError)]
    return "\n\n".join(_error(kind) for kind in sorted(ours, key=lambda kind: kind.__name__))


def _error(kind: type[OneLakeError]) -> str:
    retried = {True: "**Retried.** ", False: ""}[issubclass(kind, TransientError)]
    if issubclass(kind, TerminalError):
        retried = "**Not retried.** "
    above = kind.__mro__[1]
    derived = f"\n\nIt is a kind of [`{above.__name__}`](#{above.__name__.lower()})." if above not in _ROOTS else ""
    return f"## {kind.__name__}\n\n{retried}{in_markdown(inspect.cleandoc(kind.__doc__ or ''))}{derived}"


_ROOTS = (Exception, OneLakeError, TerminalError, TransientError)


def _table(heads: Sequence[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table in Markdown. Its cells are Markdown too, but no HTML."""
    cells = [[cell.replace("|", "\\|").replace("<", "&lt;") for cell in row] for row in rows]
    lines = [" | ".join(row) for row in (heads, *cells)]
    return "\n".join([f"| {lines[0]} |", "|" + "---|" * len(heads), *(f"| {line} |" for line in lines[1:])])


GENERATED: dict[str, Callable[[], str]] = {
    "cli": command_line,
    "configuration": configuration,
    "connections": connections,
    "metrics": metrics,
}


def filled(text: str) -> str:
    """Return a page's text with what its marks ask for.

    :param text: of the page.
    """
    return MARK.sub(lambda mark: GENERATED[mark[1]](), text)
