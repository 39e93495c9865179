"""What the example DAGs let a person put into SQL by the trigger form."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import jsonschema
import pytest

DAGS = sorted((Path(__file__).parents[2] / "dags").glob("*.py"))
PREDICATES = ("where", "covers", "reads", "expected_partitions", "replace_where")
WIDENED = "2019-02' OR month >= '0"


def in_predicates(tree: ast.AST) -> set[str]:
    """The params that are values in a predicate. One that is the whole predicate is meant to be any."""
    texts = [
        node.value.value
        for node in ast.walk(tree)
        if isinstance(node, ast.keyword) and node.arg in PREDICATES
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    ]
    whole = re.compile(r"{{ params\.\w+ }}")
    return {name for text in texts if not whole.fullmatch(text) for name in re.findall(r"params\.(\w+)", text)}


def schemas(tree: ast.AST) -> dict[str, dict[str, object]]:
    """The JSON schema of each param."""
    return {
        key.value: {each.arg: ast.literal_eval(each.value) for each in value.keywords if each.arg}
        for node in ast.walk(tree)
        if isinstance(node, ast.Dict)
        for key, value in zip(node.keys, node.values, strict=True)
        if isinstance(key, ast.Constant) and isinstance(value, ast.Call) and getattr(value.func, "id", "") == "Param"
        if key.value in in_predicates(tree)
    }


@pytest.mark.parametrize("path", DAGS, ids=lambda path: path.stem)
def test_no_param_changes_what_a_predicate_says(path: Path) -> None:
    tree = ast.parse(path.read_text())
    found = schemas(tree)
    assert found.keys() == in_predicates(tree)
    for name, schema in found.items():
        # A format is an annotation, which a validator may leave alone.
        assert not jsonschema.Draft202012Validator(schema).is_valid(WIDENED), f"{name} may be any text"


def test_there_are_such_params() -> None:
    assert len({path for path in DAGS if in_predicates(ast.parse(path.read_text()))}) >= 4
