"""One word means one thing: words that did not explain themselves name nothing any more."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import airflow_provider_onelake

PACKAGE = Path(airflow_provider_onelake.__file__).parent

RETIRED = set(
    "ahead asked at_once begun call deed each few given holds kept own pages plugins roll said seen sharing standing "  # noqa: SIM905
    "surroundings told work".split()
)

# What others have on disk, in Airflow's database or in their DAGs keeps its name.
STAYS = {
    "FunctionSource.given": "its author may write it",
    "RefreshTrigger.own": "Airflow's database has it",
}


def names() -> Iterator[tuple[str, str]]:
    """Yield what names something, and where: modules, classes, functions, and fields."""
    for path in sorted(PACKAGE.rglob("*.py")):
        module = path.relative_to(PACKAGE).with_suffix("").as_posix()
        yield from ((part, module) for part in module.split("/"))
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) if not name.startswith("__"):
                    yield name, f"{module}:{node.lineno}"
                case ast.ClassDef(name=name, body=body):
                    yield name, f"{module}:{node.lineno}"
                    for field in body:
                        match field:
                            case ast.AnnAssign(target=ast.Name(id=word)) if f"{name}.{word}" not in STAYS:
                                yield word, f"{module}:{field.lineno}"


def test_no_retired_word_names_anything() -> None:
    found = [f"{name} in {where}" for name, where in names() if name.strip("_").lower() in RETIRED]
    assert found == []


def test_no_two_classes_have_one_name() -> None:
    classes = Counter(
        node.name.lstrip("_")
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    )
    assert [name for name, times in classes.items() if times > 1] == []
