"""The files of a submitted job: its code as one zip, ``job.json`` that it reads, and ``result.json`` that it writes."""

from __future__ import annotations

import functools
import hashlib
import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from airflow_provider_onelake.exceptions import SparkJobError
from airflow_provider_onelake.spark.errors import ReportedError
from airflow_provider_onelake.spark.jobs import main

_PACKAGE = "airflow_provider_onelake"
_EPOCH = (1980, 1, 1, 0, 0, 0)
_UNIX = 3
_READABLE = 0o644 << 16
_MAIN = f"import sys\nfrom {_PACKAGE}.spark.jobs.main import main\nsys.exit(main(*sys.argv[1:]))\n"

MAIN_FILE = Path(main.__file__)
"""The script that spark-submit starts; it imports the jobs from the zip."""


@attrs.frozen
class JobPackage:
    """The code of all jobs.

    :param name: of the file, with a hash of its content: the same code has the same name.
    :param content: a zip for ``--py-files``, which Python can also run as it is.
    """

    name: str
    content: bytes = attrs.field(repr=False)


@functools.cache
def job_package() -> JobPackage:
    """Return the code of all jobs as one zip, whose bytes depend on the code only."""
    # Use empty __init__ instead of the package's own: the zip has only the jobs of the package.
    files = {f"{_PACKAGE}/__init__.py": b"", f"{_PACKAGE}/spark/__init__.py": b"", "__main__.py": _MAIN.encode()}
    files |= {f"{_PACKAGE}/spark/jobs/{path.name}": path.read_bytes() for path in MAIN_FILE.parent.glob("*.py")}
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, source in sorted(files.items()):
            info = zipfile.ZipInfo(name, _EPOCH)
            info.create_system = _UNIX
            info.external_attr = _READABLE
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, source)
    digest = hashlib.sha256(content.getvalue()).hexdigest()[:16]
    return JobPackage(f"onelake_spark_jobs-{digest}.zip", content.getvalue())


def job_files() -> dict[str, bytes]:
    """Return the files of the jobs' code, by name, for a cluster that reads them from the table's store."""
    return {job_package().name: job_package().content, MAIN_FILE.name: MAIN_FILE.read_bytes()}


def dump_job(kind: str, job: Mapping[str, Any]) -> bytes:
    """Return the content of ``job.json``, as ``spark.jobs.main`` reads it.

    :param kind: what is done: ``analysing``, or what the job says that it does.
    :param job: its fields.
    """
    return json.dumps({"format": main.FORMAT, "kind": kind, "job": job}).encode()


@attrs.frozen
class JobResult:
    """How a job went. It has returned nothing and has no error while its driver has written only its id.

    :param driver: the driver's id on its cluster, in what a driver writes when it begins; else ``None``.
    :param returned: what the job returned.
    :param error: why it returned nothing.
    :param starting: whether Spark itself could not be started.
    """

    driver: str | None = None
    returned: Mapping[str, Any] | None = None
    error: ReportedError | None = None
    starting: bool = False

    @property
    def is_final(self) -> bool:
        """Whether the driver has done its job, or failed."""
        return self.returned is not None or self.error is not None


def load_result(content: bytes) -> JobResult:
    """Read a result.

    :param content: as ``spark.jobs.main`` wrote it.
    :raises SparkJobError: this version of the package cannot read the result.
    """
    try:
        said = json.loads(content)
        if said["format"] != main.FORMAT:
            raise ValueError(f"format {said['format']}")
        error = said.get("error")
        return JobResult(
            driver=said.get("driver"),
            returned=said.get("result"),
            error=ReportedError(error["class"], error["message"], error["condition"], error["state"], error["stack"])
            if error
            else None,
            starting=bool(error and error["starting"]),
        )
    except (ValueError, KeyError, TypeError) as problem:
        raise SparkJobError(
            f"The Spark job left a result that cannot be read ({problem}). Whether it did its work is not known; a "
            "retry finds it where it did, and stages again where not."
        ) from problem
