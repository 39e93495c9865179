"""What the modules of the package import while they are imported themselves."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import airflow_provider_onelake

ROOT = Path(airflow_provider_onelake.__file__).parent


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in ROOT.rglob("*.py")}


def run_on_import(node: ast.AST) -> Iterator[ast.stmt]:
    """The statements of a module that Python runs as soon as it is imported."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(child, ast.If) and isinstance(child.test, ast.Name) and child.test.id == "TYPE_CHECKING":
            continue
        if isinstance(child, ast.stmt):
            yield child
        yield from run_on_import(child)


def imports(module: str) -> set[str]:
    """The modules of the package that must be imported before a module is."""
    found = {module.rpartition(".")[0]}
    for statement in run_on_import(ast.parse(MODULES[module].read_text())):
        if isinstance(statement, ast.Import):
            found |= {alias.name for alias in statement.names}
        elif isinstance(statement, ast.ImportFrom) and statement.module:
            below = {f"{statement.module}.{alias.name}" for alias in statement.names}
            found |= {statement.module, *(below & MODULES.keys())}
    return (found & MODULES.keys()) - {module}


def test_no_two_modules_import_each_other() -> None:
    """Where two threads come first, one would meet a module that is half imported, or Python's error of a deadlock."""
    graph = {module: imports(module) for module in MODULES}
    assert "airflow_provider_onelake.exceptions" in graph["airflow_provider_onelake.storage.stores"]
    # It raises a CycleError, which names the circle.
    order = list(TopologicalSorter(graph).static_order())
    assert len(order) == len(MODULES)
