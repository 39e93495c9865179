"""The wheel installs beside the versions that Airflow publishes with each release, and says which Pythons it is for."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable
from email import message_from_bytes
from email.message import Message
from pathlib import Path

import pytest

CONSTRAINTS = Path(__file__).parent / "constraints"
EXTRAS = ("azure", "cli", "local", "openlineage", "s3", "submit")
OF_SPARK_4_1 = "submit-4-1"


@pytest.fixture
def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return message_from_bytes(archive.read(name))


def test_what_a_checkout_needs_is_not_published(metadata: Message) -> None:
    assert set(metadata.get_all("Provides-Extra", [])) == {*EXTRAS, OF_SPARK_4_1}
    assert not [asked for asked in metadata.get_all("Requires-Dist", []) if "pytest" in asked]


def test_the_local_onelake_is_no_part_of_it(wheel: Path, metadata: Message) -> None:
    with zipfile.ZipFile(wheel) as archive:
        assert not [name for name in archive.namelist() if "local_onelake" in name]
    asked = {re.match(r"[\w-]+", said)[0] for said in metadata.get_all("Requires-Dist", [])}
    assert not asked & {"cryptography", "h11", "local-onelake", "starlette", "uvicorn"}


def test_the_pythons_of_the_lock_are_published(metadata: Message) -> None:
    told = [said for said in metadata.get_all("Classifier", []) if re.search(r"Python :: \d", said)]
    assert told == [f"Programming Language :: Python :: 3.{minor}" for minor in (11, 12, 13)]


@pytest.mark.costs("it asks the package index for all versions of 150 packages")
@pytest.mark.parametrize(
    ("airflow", "extras"), [("3.3.1", EXTRAS), ("3.2.1", ("azure", "cli", "openlineage", "s3", OF_SPARK_4_1))]
)
def test_the_wheel_installs_beside_airflows_constraints(
    uv: Callable[..., str], wheel: Path, airflow: str, extras: tuple[str, ...]
) -> None:
    constraints = CONSTRAINTS / f"constraints-{airflow}-python3.12.txt"
    published = dict(line.split("==") for line in constraints.read_text().splitlines() if "==" in line)
    asked = f"apache-airflow=={airflow}\nairflow-provider-onelake[{','.join(extras)}] @ {wheel.as_uri()}\n"
    options = ("--quiet", "--no-header", "--no-annotate", "--python-version", "3.12", "--constraint", str(constraints))
    found = uv("pip", "compile", *options, "-", said=asked)
    for name in ("apache-airflow", "apache-airflow-providers-apache-spark", "pyroaring", "pyspark-client"):
        assert f"{name}=={published.get(name, airflow)}\n" in found
    spark = re.search(r"^pyspark==(\d+\.\d+)", found, re.MULTILINE)
    assert spark
    assert spark[1] == published["pyspark-client"].rpartition(".")[0]
