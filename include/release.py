"""``make release-check``: build what a release would publish, and say what stands in its way.

It builds the sdist, and from that the wheel, into ``dist``, and looks at both as the package index and its users will.
It publishes nothing: that is .github/workflows/release.yml, which runs this before.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from email import message_from_bytes
from email.message import Message
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PLACEHOLDER = "OWNER-FILLS-IN"
PACKAGE = "airflow_provider_onelake"

_NEVER = ("tests/", "include/", "dags/", "docs/")
_NEEDED = ("get_provider_info.py", "provider.yaml", "py.typed", "view/static/lakehouse.js")
_LINK = re.compile(r"\]\(([^)\s]+)")


def main() -> int:
    """Build a release, and say what stands in its way.

    :returns: the status of the command: 0 if nothing does.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    sdist, wheel = build(ROOT / "dist")
    metadata = metadata_of(wheel)
    found = [
        *placeholders(project),
        *unlike_the_version(project["version"], (ROOT / "CHANGELOG.md").read_text()),
        *of_sdist(sdist),
        *of_wheel(wheel),
        *of_long_description(metadata),
        *of_rating(metadata),
    ]
    print(f"{sdist.relative_to(ROOT)} and {wheel.relative_to(ROOT)}")
    for problem in found:
        print(f"  - {problem}")
    print(f"{len(found)} problems: this is no release yet" if found else "Nothing stands in the way of a release")
    return 1 if found else 0


def build(directory: Path) -> tuple[Path, Path]:
    """Build the sdist, and the wheel from it.

    :param directory: gets both, and loses what was there.
    :returns: both.
    """
    shutil.rmtree(directory, ignore_errors=True)
    environment = {**os.environ, "VENV": sys.prefix}
    uv: list[str | Path] = [ROOT / ".ci" / "uv", "build", "--quiet", "--out-dir", directory]
    subprocess.run(uv, env=environment, cwd=ROOT, check=True)
    return next(directory.glob("*.tar.gz")), next(directory.glob("*.whl"))


def metadata_of(wheel: Path) -> Message:
    """Return a wheel's metadata.

    :param wheel: the file.
    """
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return message_from_bytes(archive.read(name))


def placeholders(project: dict[str, Any]) -> Iterator[str]:
    """Name what only the owner knows, and has not filled in.

    :param project: the table ``[project]`` of pyproject.toml.
    """
    facts = {
        **{f"authors: {name}": value for author in project["authors"] for name, value in author.items()},
        **{f"urls: {name}": value for name, value in project["urls"].items()},
    }
    for name, value in facts.items():
        if PLACEHOLDER in value:
            yield f"pyproject.toml, [project] {name} = {value!r} is for the owner to fill in"


def unlike_the_version(version: str, changes: str) -> Iterator[str]:
    """Say where a file tells another version than pyproject.toml, or no date of this one.

    :param version: of pyproject.toml.
    :param changes: the text of CHANGELOG.md.
    """
    from airflow_provider_onelake import __version__

    if __version__ != version:
        yield f"{PACKAGE}/__init__.py says {__version__}, and pyproject.toml says {version}"
    newest = re.search(r"^## (.*)$", changes, re.MULTILINE)
    if newest is None or not re.fullmatch(rf"{re.escape(version)}, \d{{4}}-\d\d-\d\d", newest[1]):
        told = "nothing" if newest is None else f"{newest[1]!r}"
        yield f"CHANGELOG.md begins with {told}; the entry of this release is '## {version}, YYYY-MM-DD'"


def of_sdist(sdist: Path) -> Iterator[str]:
    """Name what an sdist should not have, or lacks.

    :param sdist: the file.
    """
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    for name in sorted(names):
        if name.startswith(_NEVER):
            yield f"{sdist.name} has {name}"
    for name in ("CHANGELOG.md", "LICENSE", "README.md", "hatch_build.py", "pyproject.toml"):
        if name not in names:
            yield f"{sdist.name} lacks {name}"


def of_wheel(wheel: Path) -> Iterator[str]:
    """Name what a wheel should not have, or lacks.

    :param wheel: the file.
    """
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    for name in names:
        if not name.startswith((f"{PACKAGE}/", f"{wheel.name.partition('-py3')[0]}.dist-info/")):
            yield f"{wheel.name} has {name}"
    for name in _NEEDED:
        if f"{PACKAGE}/{name}" not in names:
            yield f"{wheel.name} lacks {PACKAGE}/{name}"


def of_long_description(metadata: Message) -> Iterator[str]:
    """Say what the package index would not show of the long description.

    :param metadata: of the wheel.
    """
    from readme_renderer import markdown

    text = str(metadata.get_payload(decode=False))
    if metadata["Description-Content-Type"] != "text/markdown" or not markdown.render(text):
        yield "the long description is no Markdown that renders"
    for link in _LINK.findall(re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)):
        if not link.startswith(("https://", "#")):
            yield f"the long description links to {link}, which leads nowhere outside of the repository"


def of_rating(metadata: Message) -> Iterator[str]:
    """Say what pyroma misses.

    :param metadata: of the wheel.
    """
    from pyroma.projectdata import normalize
    from pyroma.ratings import rate

    told = {normalize(key): metadata.get_all(key, []) for key in set(metadata.keys())}
    data = {key: values[0] if len(values) == 1 else values for key, values in told.items()}
    rating, problems = rate({**data, "description": metadata.get_payload()})
    if rating < 10:
        yield f"pyroma rates the package {rating} of 10"
    yield from (f"pyroma: {' '.join(problem.split())}" for problem in problems)


if __name__ == "__main__":
    sys.exit(main())
