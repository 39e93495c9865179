"""Every message of the package has its point in sight: who and what, in the first 100 characters of the line.

A message is put together here as it would be for a table in OneLake, with values of usual lengths, and then shown as a
task shows it: the error's class, the message, and where the table is.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import attrs

from airflow_provider_onelake import exceptions
from airflow_provider_onelake.exceptions import OneLakeError, with_page
from tests.support.messages import has_its_point_in_sight

PACKAGE = Path(exceptions.__file__).parent
KINDS = {
    name: kind for name, kind in vars(exceptions).items() if isinstance(kind, type) and issubclass(kind, OneLakeError)
}
ADDRESS = "onelake://0f3c8a1e-5b2d-4c6f-9a7b-1d2e3f4a5b6c/a1b2c3d4-e5f6-4789-8abc-def012345678/Tables/trips"
TABLE = "Tables/trips"
# What stands where an expression stands, by the first pattern that the expression has.
USUAL = {
    r"^error$": "it cannot be read.",
    r"address\b|uri\b|^root$": ADDRESS,
    r"(\b|_)table\b": TABLE,
    r"buffer\b|\bpath\b|^where$|directory|_path": "staged/vendor-1-91cd023d9b83/773f389c-a98e-4bae-9d06-893d3e538e62",
    r"\bload\b": "prod/nyc_taxi/load/2019-01-01T00:00:00+00:00",
    r"\bkey\b": "vendor-1",
    r"task": "load.eu",
    r"column": "fare",
    r"version|len\(|number|generation": "12",
}


@attrs.frozen
class Message:
    """A message as the code makes it.

    :param where: the file and the line.
    :param kind: the error's class.
    :param text: with usual values in it.
    """

    where: str
    kind: str
    text: str

    @property
    def shown(self) -> str:
        """As a task shows it."""
        return f"{self.kind}: {with_page(KINDS[self.kind](self.text), {TABLE: ADDRESS})}"


def text_of(node: ast.expr) -> str | None:
    """Put a text together; ``None`` where the code makes it elsewhere."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(text_of(part) or "" for part in parts)
        case ast.FormattedValue(value=value, conversion=conversion):
            said = ast.unparse(value)
            usual = next((text for form, text in USUAL.items() if re.search(form, said)), said.strip("'")[:20])
            # In quotes stands what a person wrote, who seldom writes a whole address.
            return repr(usual.replace(ADDRESS, TABLE)) if conversion == ord("r") else usual
        case ast.BinOp(left=left, right=right):
            both = text_of(left), text_of(right)
            return None if None in both else "".join(map(str, both))
    return None


def messages() -> Iterator[Message]:
    for file in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            match node:
                case ast.Call(func=ast.Name(id=kind), args=[first, *_]) if kind in KINDS:
                    text = text_of(first)
                    if text is not None:
                        yield Message(f"{file.relative_to(PACKAGE)}:{node.lineno}", kind, text)


def test_the_point_of_every_message_is_in_sight() -> None:
    found = list(messages())
    assert len(found) > 400
    hidden = [f"{one.where} {one.shown}" for one in found if not has_its_point_in_sight(one.shown)]
    assert not hidden, "\n".join(hidden)


def test_no_line_of_a_log_counts_one_rows() -> None:
    """Such a line says how many by ``counted`` or ``rows_in_words``, which know the singular."""
    found = []
    for file in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            match node:
                case ast.Call(
                    func=ast.Attribute(value=ast.Name(id="logger" | "log")), args=[ast.Constant(value=text), *_]
                ):
                    if re.search(r"(?<!of )%[ds] (rows|files|objects|manifests|bytes|buffers|writers)\b", str(text)):
                        found.append(f"{file.relative_to(PACKAGE)}:{node.lineno} {text}")
    assert not found, "\n".join(found)


def test_where_its_table_is_a_message_says_once_and_behind_its_point() -> None:
    found = [one for one in messages() if re.search(rf"(?<!['\w/]){TABLE}(?![\w-])", one.text)]
    assert len(found) > 130
    for one in found:
        # In quotes is what a person is to read or to copy.
        assert not re.search(rf"(?<!['\w/]){re.escape(ADDRESS)}", one.text), one.where
        end = rf"[ \n]{TABLE} is {re.escape(ADDRESS)}\.[ \n]More: docs/reference/errors\.md#\w+"
        assert re.search(f"{end}$", one.shown), one.where
