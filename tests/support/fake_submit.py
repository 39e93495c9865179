"""A ``spark-submit`` without Spark: a script that notes how it was called, and then does what a test wants."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

_SCRIPT = """#!{python}
import json, os, sys
from pathlib import Path
called = {{"argv": sys.argv[1:], "env": dict(os.environ), "pid": os.getpid(), "group": os.getpgid(0)}}
plan, result = sys.argv[-2:]
if Path(plan).exists():
    called["plan"] = json.loads(Path(plan).read_text())
Path({calls!r}).open("a").write(json.dumps(called) + "\\n")
def say(**fields):
    Path(result).write_text(json.dumps({{"format": 1, **fields}}))
{body}
"""


@attrs.frozen
class FakeSubmit:
    """The script's directory, for ``PATH``, and what it was called with."""

    bin: Path

    def does(self, body: str) -> None:
        """Let it do something else; ``say(result={…})`` writes the result."""
        script = self.bin / "spark-submit"
        script.write_text(_SCRIPT.format(python=sys.executable, calls=str(self.bin / "calls"), body=body))
        script.chmod(0o755)

    @property
    def calls(self) -> list[Mapping[str, Any]]:
        """Every call: ``argv``, ``env``, ``pid``, ``group`` and the local ``plan``."""
        file = self.bin / "calls"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def settings(argv: list[str]) -> dict[str, str]:
    """The settings on a command line."""
    given = [value for flag, value in itertools.pairwise(argv) if flag == "--conf"]
    return dict(item.split("=", 1) for item in given)


def option(argv: list[str], name: str) -> str | None:
    """The value of an option on a command line."""
    return argv[argv.index(name) + 1] if name in argv else None
