from __future__ import annotations

import io
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from airflow_provider_onelake.exceptions import SparkJobError
from airflow_provider_onelake.spark.submit.package import MAIN_FILE, dump_job, job_package, load_result


def test_the_same_code_is_the_same_bytes_whenever_and_by_whomever_it_is_zipped(monkeypatch: pytest.MonkeyPatch) -> None:
    first = job_package()
    monkeypatch.setattr("time.time", lambda: 2e9)
    job_package.cache_clear()
    again = job_package()
    assert again is not first
    assert again == first


def test_another_code_is_another_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = job_package().name
    for file in MAIN_FILE.parent.glob("*.py"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "stage.py").write_bytes((tmp_path / "stage.py").read_bytes() + b"\n")
    monkeypatch.setattr("airflow_provider_onelake.spark.submit.package.MAIN_FILE", tmp_path / "main.py")
    job_package.cache_clear()
    try:
        assert job_package().name != before
    finally:
        job_package.cache_clear()


def test_the_zip_holds_the_jobs_and_nothing_else_of_the_package() -> None:
    with zipfile.ZipFile(io.BytesIO(job_package().content)) as archive:
        names = archive.namelist()
    jobs = {f"airflow_provider_onelake/spark/jobs/{path.name}" for path in MAIN_FILE.parent.glob("*.py")}
    rooms = {f"airflow_provider_onelake/{name}__init__.py" for name in ("", "spark/")}
    assert set(names) == jobs | rooms | {"__main__.py"}


def test_the_zip_stands_on_its_own(tmp_path: Path) -> None:
    """Without the package, its dependencies or pyspark: nothing but the standard library is imported before Spark."""
    archive = tmp_path / job_package().name
    archive.write_bytes(job_package().content)
    code = (
        f"import sys; sys.path.insert(0, {str(archive)!r})\n"
        "from airflow_provider_onelake.spark.jobs import main\n"
        "assert main.__file__.startswith(sys.path[0]), main.__file__\n"
        "assert 'pyspark' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_plan_keeps_the_order_of_steps() -> None:
    assert list(json.loads(dump_job("staging", {"steps": {"z": "1", "a": "2"}}))["job"]["steps"]) == ["z", "a"]


def test_a_driver_that_only_says_where_it_is_has_no_result_yet() -> None:
    found = load_result(b'{"format": 1, "driver": "driver-1-0"}')
    assert (found.driver, found.returned, found.error) == ("driver-1-0", None, None)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"format": 2}', b'{"format": 1, "error": {"message": "x"}}'])
def test_what_is_no_result_is_a_job_that_is_run_again(content: bytes) -> None:
    with pytest.raises(SparkJobError, match="a retry"):
        load_result(content)
