"""What `make release-check` finds, of what is built here and of what is wrong, and the workflows that run it."""

from __future__ import annotations

import io
import re
import tarfile
import zipfile
from email.message import Message
from pathlib import Path
from typing import Any

import pytest
import yaml

from include import release

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return release.build(tmp_path_factory.mktemp("release") / "dist")


def test_only_the_owners_facts_are_missing_in_what_is_built(built: tuple[Path, Path]) -> None:
    sdist, wheel = built
    metadata = release.metadata_of(wheel)
    assert [*release.of_sdist(sdist), *release.of_wheel(wheel)] == []
    assert [*release.of_long_description(metadata), *release.of_rating(metadata)] == []


def test_an_sdist_is_small(built: tuple[Path, Path]) -> None:
    assert built[0].stat().st_size < 1_500_000


def test_the_long_description_leads_to_the_repository_of_the_version(built: tuple[Path, Path]) -> None:
    metadata = release.metadata_of(built[1])
    (repository,) = (
        said.split(", ")[1] for said in metadata.get_all("Project-URL", []) if said.startswith("Repository")
    )
    assert f"]({repository}/blob/v{metadata['Version']}/docs/" in metadata.get_payload()


@pytest.mark.parametrize("filled", [True, False])
def test_each_fact_that_the_owner_has_not_filled_in_is_named(filled: bool) -> None:
    value = "Ann" if filled else release.PLACEHOLDER
    project = {
        "authors": [{"name": value, "email": f"{value}@x.example"}],
        "urls": {"Issues": f"https://{value}.example"},
    }
    found = [*release.placeholders(project)]
    assert len(found) == (0 if filled else 3)
    assert filled or "[project] authors: email = 'OWNER-FILLS-IN@x.example'" in found[1]


@pytest.mark.parametrize(
    ("version", "head", "found"),
    [
        ("0.1.0", "## 0.1.0, 2026-12-24", []),
        ("0.1.0", "## 0.1.0, not released yet", ["CHANGELOG.md begins with '0.1.0, not released yet'"]),
        ("0.1.0", "", ["CHANGELOG.md begins with nothing"]),
        ("0.2.0", "## 0.1.0, 2026-12-24", ["airflow_provider_onelake/__init__.py says", "CHANGELOG.md begins with"]),
    ],
)
def test_the_version_is_one_everywhere(
    monkeypatch: pytest.MonkeyPatch, version: str, head: str, found: list[str]
) -> None:
    monkeypatch.setattr("airflow_provider_onelake.__version__", "0.1.0")
    said = [*release.unlike_the_version(version, f"# Changes\n\n{head}\n")]
    assert len(said) == len(found)
    assert all(one.startswith(begin) for one, begin in zip(said, found, strict=True))


def test_what_an_sdist_should_not_have_and_lacks_is_named(tmp_path: Path) -> None:
    sdist = tmp_path / "x-0.1.0.tar.gz"
    with tarfile.open(sdist, "w:gz") as archive:
        for name in ("tests/unit/test_x.py", "include/data/trips.json", "README.md", "LICENSE", "CHANGELOG.md"):
            archive.addfile(tarfile.TarInfo(f"x-0.1.0/{name}"), io.BytesIO())
    said = "\n".join(release.of_sdist(sdist))
    assert re.findall(r"(?:has|lacks) \S+", said) == [
        *("has include/data/trips.json", "has tests/unit/test_x.py", "lacks hatch_build.py", "lacks pyproject.toml")
    ]


def test_what_a_wheel_should_not_have_and_lacks_is_named(tmp_path: Path) -> None:
    wheel = tmp_path / "airflow_provider_onelake-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in ("tests/x.py", "airflow_provider_onelake/py.typed", "airflow_provider_onelake/provider.yaml"):
            archive.writestr(name, "")
    said = "\n".join(release.of_wheel(wheel))
    assert re.findall(r"(?:has|lacks) \S+", said) == [
        "has tests/x.py",
        "lacks airflow_provider_onelake/get_provider_info.py",
        "lacks airflow_provider_onelake/view/static/lakehouse.js",
    ]


def test_a_relative_link_and_a_poor_rating_are_named() -> None:
    metadata = Message()
    metadata["Name"], metadata["Version"] = "x", "0.1.0"
    metadata["Description-Content-Type"] = "text/markdown"
    metadata.set_payload("[x](docs/index.md) [y](#z)\n\n```python\na[0](b)\n```\n")
    (said,) = release.of_long_description(metadata)
    assert "docs/index.md" in said
    assert any(problem.startswith("pyroma rates") for problem in release.of_rating(metadata))


def steps(workflow: Path) -> list[dict[str, Any]]:
    jobs = yaml.safe_load(workflow.read_text())["jobs"]
    return [step for job in jobs.values() for step in job["steps"]]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_runs_what_there_is_and_names_no_index(workflow: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    ran = "\n".join(step.get("run", "") for step in steps(workflow))
    assert set(re.findall(r"\bmake ([a-z-]+)", ran)) <= targets
    assert all((ROOT / script).exists() for script in re.findall(r"\.ci/\w+", ran))
    assert not re.search(r"https?://", workflow.read_text())
    assert "secrets." not in workflow.read_text()


def test_a_release_is_checked_before_it_is_published_and_needs_no_token() -> None:
    jobs = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())["jobs"]
    assert "make release-check" in [step.get("run") for step in jobs["build"]["steps"]]
    assert jobs["publish"]["needs"] == "build"
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
