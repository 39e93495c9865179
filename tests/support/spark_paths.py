"""A tree of files, and which of them Spark 4.2 reads for a path: found by asking it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs

TREE = (
    "plain/a.json",
    "plain/b.json",
    "plain/done/old.json",
    "plain/_tmp/x.json",
    "plain/.h.json",
    "plain/_c.json",
    "plain/_x=1.json",
    "plain/w._COPYING_",
    "plain/d1.json",
    "plain/d[1].json",
    "hive/m=1/a.json",
    "hive/m=2/b.json",
    "hive/m=2/sub/c.json",
    "hive/m=2/_tmp/t.json",
    "hive/_SUCCESS",
    "hive/top.json",
    "under/_day=1/a.json",
    "under/_day=2/b.json",
    "deep/sub/m=1/a.json",
    "mixed/m=1/a.json",
    "mixed/done/b.json",
    "two/y=1/m=1/a.json",
    "two/y=2/m=1/a.json",
    "names/m=1/a.json",
    "names/n=1/a.json",
    "neg/a.json",
    "neg/b.json",
    "neg/!.json",
    "neg/^.json",
    "pct/a%20b.json",
    "pct/a b.json",
    "esc/a.json",
    "esc/{a,b}.json",
    "esc/b*.json",
    "esc/bb.json",
    "esc/q?.json",
    "esc/back\\slash.json",
)
"""Files with a line each: their own name."""


@attrs.frozen
class Case:
    """What is read for paths below the tree.

    :param names: of the files that Spark reads; ``None`` where it refuses them together.
    :param options: of the reader, ``TREE`` for the tree's own path.
    """

    paths: Sequence[str]
    names: Sequence[str] | None
    columns: Sequence[str] = ()
    options: Mapping[str, str] = attrs.field(factory=dict)

    def __str__(self) -> str:
        return ",".join((*self.paths, *self.options))


_PLAIN = ["plain/_x=1.json", "plain/a.json", "plain/b.json", "plain/d1.json", "plain/d[1].json"]
_NEG = ["neg/!.json", "neg/^.json", "neg/b.json"]
_HIVE = ["hive/m=1/a.json", "hive/m=2/b.json", "hive/m=2/sub/c.json"]
_TWO = ["two/y=1/m=1/a.json", "two/y=2/m=1/a.json"]

CASES = (
    Case(["plain"], _PLAIN),
    Case(["plain/"], _PLAIN),
    Case(["plain/*"], sorted([*_PLAIN, "plain/_tmp/x.json", "plain/done/old.json"])),
    Case(["plain/*.json"], _PLAIN),
    Case(["plain/_c.json"], []),
    Case(["plain/_tmp"], ["plain/_tmp/x.json"]),
    Case(["plain/d[1].json"], ["plain/d1.json"]),
    Case(["plain/d\\[1\\].json"], ["plain/d[1].json"]),
    Case(["plain"], [*_PLAIN, "plain/done/old.json"], options={"recursiveFileLookup": "true"}),
    Case(["plain"], ["plain/a.json"], options={"pathGlobFilter": "a*"}),
    Case(["link"], ["link/" + name.removeprefix("plain/") for name in _PLAIN]),
    Case(["hive"], _HIVE, ["m"]),
    Case(["hive/*"], ["hive/m=1/a.json", "hive/m=2/b.json", "hive/top.json"]),
    Case(["hive/m=*"], ["hive/m=1/a.json", "hive/m=2/b.json"]),
    Case(["hive/m=1/a.json"], ["hive/m=1/a.json"]),
    Case(["hive/m=1/a.json"], ["hive/m=1/a.json"], ["m"], options={"basePath": "TREE/hive/"}),
    Case(["hive", "hive/top.json"], _HIVE, ["m"]),
    Case(["hive"], [*_HIVE, "hive/top.json"], options={"recursivefilelookup": "TRUE"}),
    Case(["hive"], ["hive/m=2/b.json"], ["m"], options={"pathGlobFilter": "b*"}),
    Case(["under"], ["under/_day=1/a.json", "under/_day=2/b.json"], ["_day"]),
    Case(["deep"], ["deep/sub/m=1/a.json"], ["m"]),
    Case(["two"], _TWO, ["y", "m"]),
    Case(["two/y=[1]"], _TWO[:1], ["m"]),
    Case(["two/y=*"], _TWO, ["y", "m"], options={"basePath": "TREE/two"}),
    Case(["two/y=*"], None),
    Case(["mixed"], None),
    Case(["names"], None),
    Case(["hive", "neg"], None),
    Case(["neg/[!a]*.json"], _NEG),
    Case(["neg/[^a]*.json"], _NEG),
    Case(["neg/[a-b].json"], ["neg/a.json", "neg/b.json"]),
    Case(["neg/[]a].json"], ["neg/a.json"]),
    Case(["{neg/a,plain/b}.json"], ["neg/a.json", "plain/b.json"]),
    Case(["plain/../neg/./a.json"], ["neg/a.json"]),
    Case(["neg//a.json"], ["neg/a.json"]),
    Case(["pct/a%20b.json"], ["pct/a%20b.json"]),
    Case(["pct/a b.json"], ["pct/a b.json"]),
    Case(["esc/\\{a,b\\}.json"], ["esc/{a,b}.json"]),
    Case(["esc/{a,\\{a\\,b\\}}.json"], ["esc/a.json", "esc/{a,b}.json"]),
    Case(["esc/b\\*.json"], ["esc/b*.json"]),
    Case(["esc/q\\?.json"], ["esc/q?.json"]),
    Case(["esc/back\\\\slash.json"], ["esc/back\\slash.json"]),
    Case(["esc/\\a.json"], ["esc/a.json"]),
)


def grow(root: Path) -> Path:
    """Make the tree."""
    for name in TREE:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{name}\n")
    (root / "link").symlink_to(root / "plain")
    return root
