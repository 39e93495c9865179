"""Spark's errors by condition, SQLSTATE and causes; texts as Spark 4.2 and Delta 4.4 give them, some as 3.5."""

from __future__ import annotations

from enum import Enum

import pytest
from pyspark.errors.exceptions.connect import AnalysisException, IllegalArgumentException, ParseException

from airflow_provider_onelake.exceptions import (
    AccessDeniedError,
    ConstraintViolatedError,
    InvalidWriteError,
    OneLakeError,
    SchemaMismatchError,
    SparkJobError,
    SparkQueryError,
    SparkSetUpError,
    SparkUnavailableError,
    StoreFullError,
    UnsupportedFeatureError,
)
from airflow_provider_onelake.spark.errors import translate, was_unreachable
from airflow_provider_onelake.spark.jobs.audit import CheckRefusedError


class Status(Enum):
    INTERNAL = 13
    UNAVAILABLE = 14
    UNAUTHENTICATED = 16


class SaidError(Exception):
    """As pyspark's exceptions over Spark Connect."""

    def __init__(
        self,
        message: str = "",
        condition: str | None = None,
        state: str | None = None,
        stack: str | None = None,
        status: Status = Status.INTERNAL,
    ) -> None:
        super().__init__(message)
        self._said = condition, state, stack, status

    def getCondition(self) -> str | None:  # noqa: N802
        return self._said[0]

    def getSqlState(self) -> str | None:  # noqa: N802
        return self._said[1]

    def getStackTrace(self) -> str | None:  # noqa: N802
        return self._said[2]

    def getGrpcStatusCode(self) -> Status:  # noqa: N802
        return self._said[3]


OLD_WRAPPED = """Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times: org.apache.spark.SparkException: \
[TASK_WRITE_FAILED] Task failed while writing rows to file:/t.
Caused by: org.apache.spark.SparkException: [MALFORMED_RECORD_IN_PARSING.WITHOUT_SUGGESTION] Malformed records."""
WRAPPED = """org.apache.spark.SparkException
\tat org.apache.spark.[NOT_A.CONDITION](Frame.scala:1)
Caused by: org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed while writing rows. SQLSTATE: 58030
\tat x.y(Z.scala:1)
Caused by: org.apache.spark.sql.delta.schema.DeltaInvariantViolationException: [DELTA_VIOLATE_CONSTRAINT_WITH_VALUES] \
CHECK constraint small (id < 5) violated by row with values: - id : 7 SQLSTATE: 23001
\tat x.y(Z.scala:1)"""
FULL = "a\nCaused by: java.io.IOException: No space left on device"
FORBIDDEN = "java.nio.file.AccessDeniedException: s3a://b/k: S3Exception: Forbidden (Status Code: 403)"
HEADER = "a\nCaused by: x: CSV header does not conform to the schema."
MISMATCH = """a
Caused by: org.apache.spark.SparkException: [FAILED_READ_FILE.PARQUET_COLUMN_DATA_TYPE_MISMATCH] Encountered error \
while reading file file:///f.parquet. SQLSTATE: KD001"""


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        pytest.param(SaidError("", "DELTA_NOT_NULL_CONSTRAINT_VIOLATED", "23502"), ConstraintViolatedError, id="null"),
        pytest.param(SaidError("", "SOME_NEW_CONSTRAINT", "23999"), ConstraintViolatedError, id="by class 23"),
        pytest.param(SaidError("failed", "TASK_WRITE_FAILED", "58030", WRAPPED), ConstraintViolatedError, id="wrapped"),
        pytest.param(SaidError("", "DELTA_FAILED_TO_MERGE_FIELDS", "22005"), SchemaMismatchError, id="types"),
        pytest.param(SaidError("", "INCOMPATIBLE_DATA_FOR_TABLE.A_CAST", "KD000"), SchemaMismatchError, id="cast"),
        pytest.param(SaidError("", "PARSE_SYNTAX_ERROR", "42601"), SparkQueryError, id="syntax"),
        pytest.param(SaidError("", "DIVIDE_BY_ZERO", "22012"), SparkQueryError, id="data"),
        pytest.param(SaidError("[PATH_NOT_FOUND] /x SQLSTATE: 42K03"), SparkQueryError, id="in the text only"),
        pytest.param(SaidError("", "DELTA_UNSUPPORTED_FEATURES_FOR_WRITE", "56038"), UnsupportedFeatureError, id="new"),
        pytest.param(SaidError("", "DELTA_CONCURRENT_APPEND.WITHOUT_HINT", "2D521"), SparkJobError, id="two at once"),
        pytest.param(SaidError("", "INVALID_HANDLE.SESSION_CHANGED", "HY000"), SparkUnavailableError, id="restarted"),
        pytest.param(SaidError("", "OPERATION_CANCELED", "HY008"), SparkJobError, id="cancelled by somebody"),
        pytest.param(SaidError("gone", status=Status.UNAVAILABLE), SparkUnavailableError, id="no server"),
        pytest.param(SaidError("who?", status=Status.UNAUTHENTICATED), AccessDeniedError, id="token"),
        pytest.param(SaidError("", "TASK_WRITE_FAILED", stack=FULL), StoreFullError, id="full disk"),
        pytest.param(SaidError("java.io.IOException: Read-only file system"), StoreFullError, id="read-only"),
        pytest.param(SaidError("FileNotFoundException: /x (Permission denied)"), AccessDeniedError, id="permission"),
        pytest.param(SaidError(FORBIDDEN), AccessDeniedError, id="right on S3"),
        pytest.param(SaidError("", "TASK_WRITE_FAILED", "58030", MISMATCH), SchemaMismatchError, id="types of Parquet"),
        pytest.param(SaidError("", "FAILED_READ_FILE.NO_HINT", "KD001", HEADER), SchemaMismatchError, id="CSV header"),
        pytest.param(SaidError("", "USER_RAISED_EXCEPTION", "P0001"), SparkQueryError, id="raised on purpose"),
        pytest.param(SaidError("Relative path in absolute URI: .10:00.crc"), SparkQueryError, id="colon in a name"),
        pytest.param(SaidError("Job aborted due to stage failure: executor lost"), SparkJobError, id="unknown"),
        pytest.param(ParseException(message="\n[PARSE_SYNTAX_ERROR] Syntax"), SparkQueryError, id="syntax in 3.5"),
        pytest.param(AnalysisException(message="[TABLE_OR_VIEW_NOT_FOUND] t"), SparkQueryError, id="no table in 3.5"),
        pytest.param(
            IllegalArgumentException(message="[DELTA_ZORDERING_COLUMN_DOES_NOT_EXIST] c"),
            SparkQueryError,
            id="no column in 3.5",
        ),
        pytest.param(AnalysisException(message="HiveException: no metastore"), SparkJobError, id="no metastore in 3.5"),
        pytest.param(SaidError(OLD_WRAPPED), SparkQueryError, id="bad record in 3.5"),
        pytest.param(ValueError("Cannot invoke RPC on closed channel!"), SparkUnavailableError, id="closed channel"),
    ],
)
def test_an_error_of_spark_becomes_ours(error: Exception, kind: type[OneLakeError]) -> None:
    found = translate(error, "staging w", "sc://h:1")
    assert type(found) is kind
    assert "staging w" in str(found)
    assert "The table is unchanged" in str(found)


@pytest.mark.parametrize(
    ("error", "kind"), [(OSError(FULL), StoreFullError), (OSError(FORBIDDEN), AccessDeniedError)], ids=["full", "right"]
)
def test_an_error_that_pyspark_hides_behind_its_own_is_found(error: Exception, kind: type[OneLakeError]) -> None:
    def hiding() -> None:
        try:
            raise error
        except OSError:
            raise RuntimeError from None

    with pytest.raises(RuntimeError) as raised:
        hiding()
    assert type(translate(raised.value, "staging w", "sc://h:1")) is kind


@pytest.mark.parametrize(
    ("said", "add"),
    [
        pytest.param(
            "Cannot find catalog plugin class for catalog 'spark_catalog': org.apache.spark.sql.delta.catalog.Delta",
            "Add the package that fits its version: io.delta:delta-spark_2.12:3.3.2 (Spark 3.5), io.delta:delta-spark_2.13:",
            id="Delta, by its catalog",
        ),
        pytest.param(
            "Failed to find the data source: delta.", "io.delta:delta-spark_4.2_2.13:4.4.0 (Spark 4.2)", id="Delta"
        ),
        pytest.param(
            "[DELTA_CONFIGURE_SPARK_SESSION_WITH_EXTENSION_AND_CATALOG] x",
            "spark.sql.extensions=io.delta",
            id="settings of Delta",
        ),
        pytest.param(
            "java.lang.ClassNotFoundException: Class org.apache.hadoop.fs.s3a.S3AFileSystem not found",
            "Add org.apache.hadoop:hadoop-aws:3.5.0, software.amazon.awssdk:s3:",
            id="S3",
        ),
        pytest.param(
            'No FileSystem for scheme "s3a"', "Add org.apache.hadoop:hadoop-aws:3.5.0", id="S3, by its scheme"
        ),
        pytest.param('No FileSystem for scheme "s3"', "begin with s3a://", id="S3 as nobody reads it"),
        pytest.param(
            "ClassNotFoundException: Class org.apache.hadoop.fs.azurebfs.SecureAzureBlobFileSystem not found",
            "Add org.apache.hadoop:hadoop-azure:3.5.0",
            id="Azure",
        ),
        pytest.param(
            'Spark finds no /t, which this task has put there: No FileSystem for scheme "abfss"',
            "Add org.apache.hadoop:hadoop-azure:3.5.0",
            id="Azure, rather than what follows from it",
        ),
        pytest.param(
            "java.nio.file.AccessDeniedException: org.apache.hadoop.fs.s3a.auth.NoAuthWithAWSException: No AWS Credentials",
            "no credentials for the table's store",
            id="keys of S3",
        ),
        pytest.param(
            "KeyProviderException: Invalid configuration value detected for fs.azure.account.key",
            "no credentials for the table's store",
            id="keys of Azure",
        ),
    ],
)
def test_what_spark_lacks_is_named_with_what_to_add(said: str, add: str) -> None:
    found = translate(SaidError(said), "staging w", "sc://h:1")
    assert type(found) is SparkSetUpError
    assert add in str(found)


def test_causes_are_told_without_the_jvms_frames() -> None:
    said = str(translate(SaidError("[TASK_WRITE_FAILED] Task failed.", "TASK_WRITE_FAILED", stack=WRAPPED), "x", "y"))
    assert "violated by row with values" in said
    assert "Frame.scala" not in said


QUERY = "staging the rows of writer eu of task load.write"


@pytest.mark.parametrize(
    "at", [pytest.param("; line 1 pos 7", id="at a place of the SQL"), pytest.param("", id="of a data frame")]
)
def test_the_plan_of_a_query_is_left_out(at: str) -> None:
    message = f"[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column `y` cannot be resolved. SQLSTATE: 42703{at}"
    plan = ";\n'CreateViewCommand `source`, false, true, LocalTempView\n+- 'Project ['y]\n"
    said = str(translate(SaidError(message + plan, "UNRESOLVED_COLUMN.WITH_SUGGESTION", "42703"), QUERY, "sc://h:1"))
    assert said == f"Spark refused the query while {QUERY}. The table is unchanged. Spark said: {message}"


def test_the_place_of_a_syntax_error_is_told() -> None:
    message = "[PARSE_SYNTAX_ERROR] Syntax error at or near 'FRM'. SQLSTATE: 42601 (line 1, pos 9)\n\n== SQL ==\nSELECT 1 FRM t"
    assert str(translate(SaidError(message, "PARSE_SYNTAX_ERROR", "42601"), QUERY, "sc://h:1")).endswith(message)


def test_what_is_refused_is_named() -> None:
    rows = translate(SaidError("", "DELTA_NOT_NULL_CONSTRAINT_VIOLATED", "23502"), QUERY, "sc://h:1")
    assert str(rows).startswith(f"Spark refused the rows while {QUERY}. The table is unchanged.")
    disk = translate(SaidError("No space left on device"), QUERY, "sc://h:1")
    assert str(disk).startswith(f"Spark refused the work while {QUERY}.")


BAD_RECORD = """a
Caused by: org.apache.spark.SparkException: [FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:///a.csv.
Caused by: org.apache.spark.SparkException: [MALFORMED_RECORD_IN_PARSING.WITHOUT_SUGGESTION] Malformed records are detected \
in record parsing: [null,3]. SQLSTATE: 22023"""


def test_a_record_of_a_file_is_no_query_and_a_way_to_see_it_is_named() -> None:
    bad = str(translate(SaidError("failed", "FAILED_READ_FILE.NO_HINT", "KD001", BAD_RECORD), QUERY, "sc://h:1"))
    assert bad.startswith(f"Spark refused a malformed record while {QUERY}. The table is unchanged.")
    assert "file:///a.csv" in bad
    assert "mode='PERMISSIVE'" in bad
    assert "_corrupt_record" in bad
    value = translate(SaidError("", "DIVIDE_BY_ZERO", "22012"), QUERY, "sc://h:1")
    assert str(value).startswith(f"Spark refused a value while {QUERY}.")
    raised = translate(SaidError("", "USER_RAISED_EXCEPTION", "P0001"), QUERY, "sc://h:1")
    assert str(raised).startswith(f"Spark refused a row while {QUERY}.")


def test_a_python_cause_counts() -> None:
    wrapper = RuntimeError("staging failed")
    wrapper.__cause__ = SaidError("[DELTA_NOT_NULL_CONSTRAINT_VIOLATED] NOT NULL violated: id. SQLSTATE: 23502")
    assert isinstance(translate(wrapper, "x", "y"), ConstraintViolatedError)


def test_only_silence_is_unreachable() -> None:
    assert was_unreachable(SaidError(status=Status.UNAVAILABLE))
    assert not was_unreachable(SaidError())
    assert not was_unreachable(ValueError())


def test_a_check_that_spark_does_not_take_is_a_mistake_of_the_dag() -> None:
    error = translate(CheckRefusedError("Spark does not take the check 'few', 'id <': no."), "staging", "sc://here")
    assert type(error) is InvalidWriteError
    assert str(error) == (
        "Spark does not take the check 'few', 'id <': no. Nothing was published: correct the check, and clear the task."
    )
