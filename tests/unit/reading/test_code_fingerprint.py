"""What a function is made of: which changes of its file are changes of what it returns."""

from __future__ import annotations

import datetime as dt
import enum
import importlib.util
import json
import os
import subprocess
import sys
import textwrap
import uuid
from pathlib import Path, PurePosixPath
from typing import Any

import pendulum
import pytest
from lazy_object_proxy import Proxy

from airflow_provider_onelake.exceptions import InvalidWriteError
from airflow_provider_onelake.reading.code_fingerprint import code_of
from airflow_provider_onelake.reading.stable_values import plain

FILE = """
    from pathlib import Path
    import json

    FOLDER = "/data"
    WORDS = {"a": [1, 2]}
    UNUSED = 1

    def helper(x):
        return x + 1

    double = lambda x: x * 2

    class Base:
        step = 5

    class Reader(Base):
        limit = 3
        def read(self):
            return FOLDER

    def deep():
        return helper(1)

    def rows(spark, vendor=WORDS):
        '''Say what it does.'''
        # a comment
        return double(1), [f"{FOLDER}{deep()}" for _ in range(3)], Reader().read(), json.dumps({})
"""


def code(directory: Path, text: str, name: str = "rows") -> Any:
    """The code of a function in a file of its own, as a process that has just started sees it."""
    file = directory / f"m{uuid.uuid4().hex}.py"
    file.write_text(textwrap.dedent(text))
    # Airflow names the modules of DAGs after their paths.
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    spec.loader.exec_module(module)
    return json.dumps(code_of(getattr(module, name)))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param("range(3)", "range(4)", id="the-function"),
        pytest.param("x + 1", "x + 2", id="a-function-two-calls-away"),
        pytest.param("limit = 3", "limit = 4", id="a-class"),
        pytest.param("step = 5", "step = 6", id="its-base"),
        pytest.param("x * 2", "x * 3", id="a-lambda"),
        pytest.param('FOLDER = "/data"', 'FOLDER = "/other"', id="a-value"),
        pytest.param("[1, 2]", "[1, 3]", id="a-default"),
    ],
)
def test_what_it_uses_counts(tmp_path: Path, old: str, new: str) -> None:
    assert old in FILE
    assert code(tmp_path, FILE) != code(tmp_path, FILE.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param("# a comment", "# another", id="comment"),
        pytest.param("Say what it does", "Say it otherwise", id="docstring"),
        pytest.param("UNUSED = 1", "UNUSED = 2", id="what-it-does-not-use"),
        pytest.param(
            "def rows(spark,",
            "@json.loads('[]').__class__.__call__ if 0 else (lambda f: f)\n    def rows(spark,",
            id="decorator",
        ),
        pytest.param("range(3)]", "range( 3 ) ]", id="layout"),
        pytest.param("import json", "import json, os", id="imports"),
    ],
)
def test_what_it_does_not_use_does_not_count(tmp_path: Path, old: str, new: str) -> None:
    assert old in FILE
    assert code(tmp_path, FILE) == code(tmp_path, FILE.replace(old, new))


HELD = """
    import functools

    class Cleaner:
        def clean(self, x): return (x, 1)
    class Reader:
        def __call__(self, x): return (x, 2)
    class Maker:
        @classmethod
        def made(cls, x): return (x, 3)

    def trim(x): return (x, 4)
    def drop(x): return (x, 5)
    def fill(x, limit, word): return (x, 6)
    def deep(x): return (x, 7)
    def given(x): return (x, 8)
    def default(x): return (x, 9)

    STEPS = [trim, ("drop", 10, drop)]
    BY_NAME = {"deep": [deep], "lambda": lambda x: (x, 11), "set": {len}}
    FILL = functools.partial(functools.partial(fill, 12), word="13")
    clean, made, read = Cleaner().clean, Maker.made, Reader()
    STEPS.append(STEPS)

    def rows(spark, by=(default,)):
        return functools.reduce(given, STEPS, BY_NAME), FILL(clean(1)), made(2), read(3)
"""


@pytest.mark.parametrize("number", range(1, 14))
def test_what_it_uses_out_of_a_collection_a_partial_or_an_object_counts(tmp_path: Path, number: int) -> None:
    old = {10: "10", 12: "12", 13: '"13"'}.get(number, f"(x, {number})")
    assert HELD.count(old) == 1
    assert code(tmp_path, HELD) == code(tmp_path, HELD)
    assert code(tmp_path, HELD) != code(tmp_path, HELD.replace(old, old.replace(str(number), "99")))


IN_A_DAG = """
    import functools, os

    class DAG:
        def __init__(self, *_): pass
        def __enter__(self): return self
        def __exit__(self, *_): pass

    def twice(n):
        def around(f):
            @functools.wraps(f)
            def twice_around(spark): return [f(spark)] * n
            return twice_around
        return around

    class Counted:
        def __init__(self, f): functools.update_wrapper(self, f)
        def __call__(self, spark): return (self.__wrapped__(spark), "counted")

    with DAG("x", ["a"]) as dag:
        VENDORS = ["1", "2"]
        FILES = [name for name in VENDORS]
        if VENDORS:
            LIMIT = 3
        else:
            LIMIT = 4
        FROM_OUTSIDE = os.environ.get("FROM_OUTSIDE", "")
        LATE = {}
        LATE["a"] = max
        for folder in ["f", "g"]:
            @Counted
            @twice(2)
            def rows(spark, at=folder):
                return [name for name in VENDORS][:LIMIT], FROM_OUTSIDE, LATE
        def other(spark):
            return 5

    def loads():
        other = 6
        def prepared(x): return (x, 7)
        def rows(spark): return prepared(8)
        return rows
    inside = loads()
"""


@pytest.mark.parametrize(
    ("name", "old", "new", "counts"),
    [
        pytest.param("rows", '["1", "2"]', '["1"]', True, id="a-value"),
        pytest.param("rows", "LIMIT = 4", "LIMIT = 5", True, id="another-way-to-it"),
        pytest.param("rows", "LATE = {}", 'LATE = {"b": 1}', True, id="a-collection"),
        pytest.param("rows", "= max", "= min", True, id="what-is-put-into-a-collection"),
        pytest.param("rows", "twice(2)", "twice(3)", True, id="the-value-of-a-decorator"),
        pytest.param("rows", "* n", "* n * 1", True, id="a-decorator"),
        pytest.param("rows", '"counted"', '"Counted"', True, id="a-decorator-that-is-a-class"),
        pytest.param("rows", '["f", "g"]', '["f", "h"]', True, id="a-default-in-a-loop"),
        pytest.param("rows", '"x", [', '"y", [', False, id="the-dag"),
        pytest.param("rows", "FILES =", "FILES = 1,", False, id="a-name-in-a-comprehension"),
        pytest.param("rows", "return 5", "return 9", False, id="another-function"),
        pytest.param("rows", "(x, 7)", "(x, 9)", False, id="a-function-of-another-function"),
        pytest.param("inside", "prepared(8)", "prepared(9)", True, id="inside"),
        pytest.param("inside", "(x, 7)", "(x, 9)", True, id="inside-and-beside"),
        pytest.param("inside", "other = 6", "other = 9", False, id="inside-and-unused"),
        pytest.param("inside", "return 5", "return 9", False, id="outside"),
    ],
)
def test_what_counts_in_a_dags_file(tmp_path: Path, name: str, old: str, new: str, counts: bool) -> None:
    assert IN_A_DAG.count(old) == 1
    assert code(tmp_path, IN_A_DAG, name) == code(tmp_path, IN_A_DAG, name)
    assert (code(tmp_path, IN_A_DAG, name) != code(tmp_path, IN_A_DAG.replace(old, new), name)) is counts


def test_where_a_definition_stands_does_not_count(tmp_path: Path) -> None:
    lines = "    def one(): return 1\n", "    def two(): return 2\n"
    rows = "    def rows(spark): return one(), two()\n"
    assert code(tmp_path, "".join((*lines, rows))) == code(tmp_path, "".join((rows, *reversed(lines))))


def test_a_value_from_outside_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = code(tmp_path, IN_A_DAG)
    monkeypatch.setenv("FROM_OUTSIDE", "new")
    assert code(tmp_path, IN_A_DAG) != before


IN_EVERY_PROCESS = """
    import functools
    import json

    class Asked:
        def __getattr__(self, name): return Asked()
    class Silent:
        def __getattr__(self, name): raise RuntimeError(name)
    def made(x): return lambda: x
    def fill(x, limit): return x

    CHECKS = {("id", made), ("day", fill), ("amount", fill)}
    SMALL = {lambda x: 1, lambda x: 2, lambda x: 3, made(4), made(5), made(6)}
    FILLS = {functools.partial(fill, limit=n) for n in range(5)}
    FILLS.add(functools.partial(fill, FILLS))
    BY_KEY = {Asked(): fill, Silent(): fill}
    known = lambda x: x in {"a", "b", "c", "d", "e"}

    def rows(spark): return CHECKS, SMALL, FILLS, BY_KEY, known(1)
"""
PRINT = """
import importlib.util, json, sys
from airflow_provider_onelake.reading.code_fingerprint import code_of
spec = importlib.util.spec_from_file_location("m", sys.argv[1])
m = sys.modules["m"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(m)
print(json.dumps(code_of(m.rows)))
"""


def test_sets_and_objects_are_the_same_in_every_process(tmp_path: Path) -> None:
    file = tmp_path / "m.py"
    file.write_text(textwrap.dedent(IN_EVERY_PROCESS))
    command = [sys.executable, "-c", PRINT, str(file)]
    found = {
        subprocess.run(command, env={**os.environ, "PYTHONHASHSEED": seed}, check=True, capture_output=True).stdout
        for seed in ("1", "2", "3")
    }
    assert len(found) == 1


def test_values_of_a_closure_count() -> None:
    def make(folder: str) -> Any:
        def rows(spark: Any) -> Any:
            # Text inside indented code need not be indented.
            return (
                """
SELECT 1
""",
                [folder for _ in range(2)],
            )

        return rows

    assert code_of(make("a")) == code_of(make("a"))
    assert code_of(make("a")) != code_of(make("b"))


def test_functions_that_use_each_other_end() -> None:
    def even(n: int) -> bool:
        return n == 0 or odd(n - 1)

    def odd(n: int) -> bool:
        return n != 0 and even(n - 1)

    said, _ = code_of(even)
    assert [text.partition("(")[0] for text in said] == ["def even", "def odd"]


@pytest.mark.parametrize(
    "function", [lambda spark: 1, eval("lambda spark: 1"), len], ids=["lambda", "no-file", "builtin"]
)
def test_code_that_cannot_be_read_is_refused(function: Any) -> None:
    with pytest.raises(InvalidWriteError, match="cannot be read"):
        code_of(function)


class Colour(enum.StrEnum):
    RED = "r"


@pytest.mark.parametrize(
    ("one", "same"),
    [
        pytest.param("x", Proxy(lambda: "x"), id="lazy"),
        pytest.param({"a": 1, "b": 2}, {"b": 2, "a": 1}, id="order-of-keys"),
        pytest.param({"x", "y", "z"}, frozenset("zyx"), id="set"),
        pytest.param([1, 2], (1, 2), id="sequences"),
        pytest.param(dt.datetime(2019, 1, 1, tzinfo=dt.UTC), pendulum.datetime(2019, 1, 1), id="dates"),
        pytest.param(range(10**12), range(0, 10**12, 1), id="ranges"),
        pytest.param(Path("/x"), PurePosixPath("/x"), id="paths"),
    ],
)
def test_equal_values_are_written_alike(one: Any, same: Any) -> None:
    assert json.dumps(plain(one)) == json.dumps(plain(same))


@pytest.mark.parametrize(
    ("one", "other"),
    [(1, "1"), ({1: 2}, {"1": 2}), (Colour.RED, "r"), (True, 1), (None, ""), ([], {}), ([[1], 2], [1, 2])],
    ids=str,
)
def test_unequal_values_are_not(one: Any, other: Any) -> None:
    assert json.dumps(plain(one)) != json.dumps(plain(other))


@pytest.mark.parametrize(
    "value", [object(), [object()], {"a": len}, iter([])], ids=["object", "inside-a-list", "builtin", "iterator"]
)
def test_what_is_known_by_its_place_in_memory_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="no form that is the same in every process"):
        plain(value)
