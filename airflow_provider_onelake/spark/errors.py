"""Translate Spark's errors into the package's errors.

Spark gives its errors a condition (``DELTA_NOT_NULL_CONSTRAINT_VIOLATED``) and a SQLSTATE, and these decide. An error
inside a Spark task arrives wrapped, with its condition in the text of a cause, so the causes' text is read second.
An unknown error counts as transient, because a retry of staging repeats no work.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

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
    causes_of,
)
from airflow_provider_onelake.spark.jobs.application import condition_of
from airflow_provider_onelake.storage.kinds import StoreKind, kinds
from airflow_provider_onelake.storage.spark import TRIED, hadoop

# How conditions begin. The first class that has such a beginning decides. SQLSTATEs are coarser, and looked at after.
_CONDITIONS: dict[type[OneLakeError], str] = {
    ConstraintViolatedError: (
        "DELTA_NOT_NULL_CONSTRAINT_VIOLATED DELTA_MISSING_NOT_NULL_COLUMN_VALUE DELTA_VIOLATE_CONSTRAINT_WITH_VALUES "
        "DELTA_EXCEED_CHAR_VARCHAR_LIMIT EXCEED_LIMIT_LENGTH NOT_NULL_ASSERT_VIOLATION"
    ),
    # With the last one, files of one source differ in a column's type.
    SchemaMismatchError: (
        "DELTA_FAILED_TO_MERGE_FIELDS DELTA_MERGE_INCOMPATIBLE_DATATYPE DELTA_METADATA_MISMATCH "
        "DELTA_SCHEMA_CHANGE_SINCE_ANALYSIS DELTA_COLUMN_STRUCT_TYPE_MISMATCH INCOMPATIBLE_DATA_FOR_TABLE "
        "FAILED_READ_FILE.PARQUET_COLUMN_DATA_TYPE_MISMATCH"
    ),
    UnsupportedFeatureError: "DELTA_UNSUPPORTED_FEATURES_FOR",
    SparkJobError: "DELTA_CONCURRENT OPERATION_CANCELED OPERATION_CANCELLED",
    # The server was restarted, or has dropped the session.
    SparkUnavailableError: "INVALID_HANDLE NO_ACTIVE_SESSION RESPONSE_ALREADY_RECEIVED",
    # A raise_error() or assert_true() does not like a row. With the others, a value cannot be read or computed; Spark
    # 3.5 has no SQLSTATEs in the text of a cause.
    SparkQueryError: (
        "USER_RAISED_EXCEPTION MALFORMED_RECORD CANNOT_PARSE_ CAST_ DIVIDE_BY_ZERO ARITHMETIC_OVERFLOW NUMERIC_ "
        "INVALID_ARRAY_INDEX"
    ),
    # These only wrap another error, and the wrapped error decides.
    OneLakeError: "TASK_WRITE_FAILED FAILED_EXECUTE_UDF FAILED_READ_FILE _LEGACY_ERROR_TEMP",
}

# SQLSTATE classes: 23 is a constraint, 22 a value that cannot be computed, 42 syntax or access, 0A not supported.
_STATES: dict[str, type[OneLakeError]] = {
    "23": ConstraintViolatedError,
    "22": SparkQueryError,
    "42": SparkQueryError,
    "0A": SparkQueryError,
}

# The SQLSTATE class of pyspark's exceptions, as a Spark Connect server of 3.5 gives a condition without a SQLSTATE.
_STATES_OF_CLASSES = {
    "ParseException": "42",
    "AnalysisException": "42",
    "IllegalArgumentException": "42",
    "ArithmeticException": "22",
    "DateTimeException": "22",
    "NumberFormatException": "22",
}

# Errors that Spark passes on from Hadoop, the JVM or a store have no condition, so their text decides.
_WORDS: tuple[tuple[str, type[OneLakeError]], ...] = (
    # Spark also has conditions for these, but their SQLSTATEs would blame the query.
    (r"No FileSystem for scheme|Failed to find (?:the )?data source: delta", SparkSetUpError),
    (r"Cannot find catalog plugin class|DELTA_CONFIGURE_SPARK_SESSION", SparkSetUpError),
    (r"(?:ClassNotFoundException|NoClassDefFoundError):? .*(?:io[./]delta|apache[./]hadoop[./]fs)\b", SparkSetUpError),
    (r"NoAuthWithAWSException|KeyProviderException|No AWS Credentials", SparkSetUpError),
    (r"No space left on device|Disk quota exceeded|Read-only file system", StoreFullError),
    (r"Permission denied|AccessControlException|AuthorizationPermissionMismatch|AccessDenied\b", AccessDeniedError),
    (r"AccessDeniedException|Status ?Code: (?:401|403)\b", AccessDeniedError),
    (r"CSV header does not conform to the schema|Number of column in CSV header is not equal", SchemaMismatchError),
    # Hadoop takes what stands before a colon in the name of a local file for the scheme of an address.
    (r"Relative path in absolute URI", SparkQueryError),
    (r"server side session identifier|Cannot invoke RPC", SparkUnavailableError),
)

# What to add to a Spark that lacks something; the kind of a store stands for its file system. The first pattern that
# matches decides.
_ADVICE: tuple[tuple[str, str | StoreKind], ...] = (
    (
        r"NoAuthWithAWSException|KeyProviderException|No AWS Credentials",
        (
            "It has no credentials for the table's store. Start it with the settings and the environment that "
            "OneLakeHook().table(…).spark_access() names, or with an identity of its own."
        ),
    ),
    (
        r'for scheme "?s3\b(?!a)',
        "It reads S3 by addresses that begin with s3a://, and one here begins with s3://: correct the source.",
    ),
    *((kind.missing_file_system, kind) for kind in kinds()),
    (
        r"Jobs of this package need",
        (
            "Choose a newer Spark there; on Fabric, that is the runtime of the workspace, or of the environment that "
            "the connection names."
        ),
    ),
    (r"this task has put there", "Let it reach the store, or the disk, of the lakehouse's connection."),
    (
        r"DELTA_CONFIGURE_SPARK_SESSION",
        (
            "Start it with spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension and "
            "spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog."
        ),
    ),
)

_CONFLICTS = (
    "DeltaConcurrentModificationException",
    "ConcurrentWriteException",
    "MetadataChangedException",
    "ProtocolChangedException",
    "ConcurrentAppendException",
    "ConcurrentDeleteReadException",
    "ConcurrentDeleteDeleteException",
    "ConcurrentTransactionException",
)
_CONFLICT = re.compile(
    r"DELTA_(?:CONCURRENT_(?:APPEND|WRITE|TRANSACTION|DELETE_READ|DELETE_DELETE)|METADATA_CHANGED|PROTOCOL_CHANGED)\b"
    rf"|(?:io\.delta\.exceptions|org\.apache\.spark\.sql\.delta)\.(?:{'|'.join(_CONFLICTS)})\b"
)

_NAMED = re.compile(r"\[([A-Z][A-Z0-9_]+(?:\.[A-Z0-9_]+)*)\]")
_SQLSTATE = re.compile(r"SQLSTATE: ([0-9A-Z]{5})")
# Behind a message about a query, Spark prints the query's plan.
_PLAN = re.compile(r"(SQLSTATE: \w{5}(?:; line \d+,? pos \d+)?);\n.*", re.DOTALL)
_REFUSED: dict[type[OneLakeError], str] = {
    SparkQueryError: "the query",
    SchemaMismatchError: "the rows",
    ConstraintViolatedError: "the rows",
}
# What is refused if a query is right and its rows are not, by the beginning of the condition. The first one decides.
_REFUSED_OF_ROWS = {
    "MALFORMED_RECORD": "a malformed record",
    "USER_RAISED_EXCEPTION": "a row",
    **dict.fromkeys(
        ["CANNOT_PARSE_", "CAST_", "DIVIDE_BY_ZERO", "ARITHMETIC_OVERFLOW", "NUMERIC_", "INVALID_ARRAY_INDEX"],
        "a value",
    ),
}
_SEE_RECORDS = (
    "\nTo see such records, read the file with mode='PERMISSIVE' and a schema that ends with `_corrupt_record STRING`, "
    "and select that column."
)
_LONGEST = 2000
_LONGEST_CAUSE = 500
_AGAIN = "The table is unchanged; a retry starts again. Spark said: "
_SAID: dict[type[OneLakeError], str] = {
    SparkSetUpError: (
        "Spark at {where} is not set up for {doing}. {advice} Then clear this task; the table is unchanged. "
        "Spark said: "
    ),
    SparkUnavailableError: f"Spark at {{where}} went away while {{doing}}. {_AGAIN}",
    SparkJobError: f"Spark failed while {{doing}}. {_AGAIN}",
}
# Our own jobs cannot import the package's exceptions, so their classes are recognised by name.
_OF_JOBS: dict[str, tuple[type[OneLakeError], str]] = {
    "RowsDoNotFitError": (SchemaMismatchError, "Nothing was written."),
    "CheckRefusedError": (InvalidWriteError, "Nothing was published: correct the check, and clear the task."),
    "KeysAreNotUniqueError": (
        ConstraintViolatedError,
        "The table is unchanged: clear the task when its source is mended.",
    ),
}


class ReportedError(Exception):
    """An error that the result of a submitted job reports.

    :param name: name of the error's class in the driver.
    :param condition: Spark's condition, if there is one.
    :param state: the SQLSTATE, if there is one.
    :param stack: the JVM's stack, with Python's causes.
    """

    def __init__(
        self, name: str, message: str, condition: str | None = None, state: str | None = None, stack: str | None = None
    ) -> None:
        super().__init__(message)
        self.name = name
        self._condition = condition, state, stack

    def getCondition(self) -> str | None:  # noqa: N802 - as pyspark's errors
        """Return Spark's condition."""
        return self._condition[0]

    def getSqlState(self) -> str | None:  # noqa: N802
        """Return the SQLSTATE."""
        return self._condition[1]

    def getStackTrace(self) -> str | None:  # noqa: N802
        """Return the JVM's stack."""
        return self._condition[2]


def translate(error: BaseException, doing: str, where: str) -> OneLakeError:
    """Return the package's error for an error of Spark, or of our own jobs on Spark.

    :param error: an error that pyspark or a job raised, or that a result reports.
    :param doing: what the job was doing, for the message: ``staging the rows of …``, ``running …``.
    :param where: Spark's address, for the message.
    """
    name = error.name if isinstance(error, ReportedError) else type(error).__name__
    if name in _OF_JOBS:
        kind, then = _OF_JOBS[name]
        return kind(f"{error} {then}")
    kind = SparkSetUpError if name == "SparkIsNotSetUpError" else kind_of(error)
    said = _SAID.get(kind, "Spark refused {what} while {doing}. The table is unchanged. Spark said: ")
    advice = _what_to_add(_texts(error)) if kind is SparkSetUpError else ""
    what = _of_rows(error) if kind is SparkQueryError else None
    words = {"where": where, "doing": doing, "advice": advice, "what": what or _REFUSED.get(kind, "the work")}
    see = _SEE_RECORDS if what == _REFUSED_OF_ROWS["MALFORMED_RECORD"] else ""
    return kind(said.format(**words) + _message(error) + see)


def is_sparks(error: BaseException) -> bool:
    """Return whether an error comes from Spark's clients: pyspark, gRPC below it, or py4j."""
    return any(kind.__module__.partition(".")[0] in ("pyspark", "grpc", "py4j") for kind in type(error).__mro__)


def is_conflict(error: BaseException) -> bool:
    """Return whether an error is one of Delta's conflicts, or has one in its text: another commit came first.

    Delta has eight exceptions for it (https://docs.delta.io/latest/concurrency-control.html#conflict-exceptions). Over
    Spark Connect, not every one of them has its own class, but their conditions are the same.
    """
    if any(
        kind.__module__.partition(".")[0] == "delta" and kind.__name__ in _CONFLICTS for kind in type(error).__mro__
    ):
        return True
    own = condition_of(error) or ""
    return bool(_CONFLICT.match(own)) or any(_CONFLICT.search(text) for text in _own_texts(error))


def was_unreachable(error: BaseException) -> bool:
    """Return whether an error of pyspark means that no server answered."""
    return _status(error) == "UNAVAILABLE"


def kind_of(error: BaseException) -> type[OneLakeError]:
    """Return the package's class for an error of Spark. An unknown error counts as transient."""
    status = _status(error)
    if status == "UNAVAILABLE":
        return SparkUnavailableError
    if status in ("UNAUTHENTICATED", "PERMISSION_DENIED"):
        return AccessDeniedError
    texts = list(_texts(error))
    for pattern, kind in _WORDS:
        if any(re.search(pattern, text) for text in texts):
            return kind
    for condition, state in _conditions(error, texts):
        found = _by_condition(condition, state)
        if found is not None:
            return found
    return SparkJobError


def _by_condition(condition: str, state: str) -> type[OneLakeError] | None:
    for kind, beginnings in _CONDITIONS.items():
        if condition.startswith(tuple(beginnings.split())):
            return None if kind is OneLakeError else kind
    return _STATES.get(state[:2])


def _of_rows(error: BaseException) -> str | None:
    """Return what Spark refused of the rows; ``None`` if the query itself is refused."""
    named = [condition for condition, _ in _conditions(error, list(_texts(error)))]
    return next((what for start, what in _REFUSED_OF_ROWS.items() if any(n.startswith(start) for n in named)), None)


def _conditions(error: BaseException, texts: list[str]) -> Iterator[tuple[str, str]]:
    """Yield conditions with their SQLSTATEs: the error's own, then those in the text of its causes."""
    own = condition_of(error)
    if own:
        state = getattr(error, "getSqlState", lambda: None)() or ""
        yield own, state or _STATES_OF_CLASSES.get(type(error).__name__, "")
    for text in texts:
        for found in _NAMED.finditer(text):
            later = _SQLSTATE.search(text, found.end())
            yield found[1], later[1] if later else ""


def _texts(error: BaseException) -> Iterator[str]:
    """Yield the text of an error and of its causes, in Python and in the JVM."""
    for cause in causes_of(error, hidden=True):
        yield from _own_texts(cause)


def _own_texts(error: BaseException) -> Iterator[str]:
    yield str(error)
    yield from _jvm_texts(error)


def _status(error: BaseException) -> str | None:
    """Return the name of an error's gRPC status. Spark's own errors have the status INTERNAL."""
    for name in ("getGrpcStatusCode", "code"):
        method = getattr(error, name, None)
        if callable(method):
            return getattr(method(), "name", None)
    return None


def _message(error: BaseException) -> str:
    """Return Spark's message with its causes, without the JVM's frames and cut to a readable length."""
    said = _PLAN.sub(r"\1", str(error).split("\n\nJVM stacktrace:")[0]).strip()[:_LONGEST]
    for cause in _jvm_texts(error)[1:]:
        # "java.io.IOException: what happened" → what happened
        line = cause.strip().splitlines()[0][:_LONGEST_CAUSE] if cause.strip() else ""
        words = line.partition(": ")[2] or line
        if words and words not in said:
            said += f"\nCaused by: {words}"
    return said


def _jvm_texts(error: BaseException) -> list[str]:
    """Return the classes and messages of an error and its causes in the JVM, without the frames."""
    stack = getattr(error, "getStackTrace", lambda: None)() or ""
    # Drop the frames: they have no conditions, and the class names in them could match a pattern of _WORDS.
    lines = "\n".join(line for line in stack.splitlines() if not line.startswith("\tat "))
    return re.split(r"^Caused by: ", lines, flags=re.MULTILINE)


def _what_to_add(said: Iterable[str]) -> str:
    """Return advice on what to add to a Spark that lacks something. A package is named with its version."""
    text = "\n".join(said)
    for pattern, advice in _ADVICE:
        if re.search(pattern, text):
            return advice if isinstance(advice, str) else _file_system(advice)
    fitting = ", ".join(f"{delta} (Spark {spark})" for spark, (delta, _) in TRIED.items())
    return f"It lacks the JARs of Delta Lake. Add the package that fits its version: {fitting}."


def _file_system(kind: StoreKind) -> str:
    here = hadoop()
    packages = ", ".join(kind.packages(here))
    return f"It lacks the file system of the store. Add {packages} to its packages (for Hadoop {here}, or as its own)."
