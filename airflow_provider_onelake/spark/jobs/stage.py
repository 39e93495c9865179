"""Read a source, run the steps, append the result to a buffer.

Works with a Spark Connect session and with a classic one: only SQL and the data frame reader and writer are used. The
session must be the job's own, as views are made in it and settings changed.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from airflow_provider_onelake.spark.jobs.application import application, configure
from airflow_provider_onelake.spark.jobs.audit import evaluate, sort_checks
from airflow_provider_onelake.spark.jobs.columns import RowsDoNotFitError, check_creatable, fit, nullable, quoted
from airflow_provider_onelake.spark.jobs.private_table import SETTINGS
from airflow_provider_onelake.spark.jobs.reads import forget_cached, plan_of, reads_table, uncached_plan
from airflow_provider_onelake.spark.jobs.row_by_row import why_not_row_by_row
from airflow_provider_onelake.spark.jobs.set_up import check_delta, check_seen, check_store, is_there, version_file
from airflow_provider_onelake.spark.jobs.v_order import v_order_settings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

_MEBIBYTE = 1 << 20


class FunctionFailedError(Exception):
    """The function that makes the rows failed, not Spark: what it raised is the cause."""


class NoRowsError(TypeError):
    """The function that makes the rows returned something else."""


_FIXED = {
    **SETTINGS,
    # The buffer is the table's twin, so its schema does not change.
    "spark.databricks.delta.schema.autoMerge.enabled": "false",
    "spark.sql.storeAssignmentPolicy": "ANSI",
    # By default, Spark writes timestamps in an old form without bounds in the footer (protocol: sound statistics).
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # By default, parquet-mr leaves out the bounds of texts that are too long. Delta needs their first 33 characters.
    "parquet.statistics.truncate.length": "256",
    # The commit names its attempt, without which the buffer is refused.
    "spark.databricks.delta.commitInfo.enabled": "true",
    # A read of the table itself must see at least the version that the buffer was opened on (protocol: reads its
    # target).
    "spark.databricks.delta.stalenessLimit": "0",
    # Plans are searched for paths; by default Spark cuts them after 100 characters.
    "spark.sql.maxMetadataStringLength": "100000",
}

TARGET = "target"
SCANNED_FOR = "onelake_writer"
CLAIMED_TWICE = "A row satisfies the filters of two writers of a shared scan."

_AUTHORS = (TypeError, ValueError, LookupError, AttributeError, NotImplementedError)

# By default a malformed record becomes a row of NULLs, the columns of one file count for all, and a CSV's header is
# skipped unread, so that columns would be dropped and values come into other columns.
_STRICT = {
    "json": {"mode": "FAILFAST"},
    "csv": {"mode": "FAILFAST", "enforceSchema": "false"},
    "xml": {"mode": "FAILFAST"},
    "parquet": {"mergeSchema": "true"},
    "orc": {"mergeSchema": "true"},
}
NO_COLUMN = "A record has a value in none of the columns of the source"
_BY_RECORD = ("json", "xml")


def analyze(spark: SparkSession, job: Mapping[str, Any]) -> dict[str, Any]:
    """Tell what a job would write, without writing.

    Spark reads files where it must infer their schema.

    :param spark: session of the job's own.
    :param job: fields of ``spark.base.StageJob``. With a ``schema``, the source is not looked at.
    :returns: ``schema_json`` (of the rows with the generated columns, nullable unless a ``schema`` says otherwise).
    :raises RowsDoNotFitError: no table can be made from the rows, unless they are for one that is there and evolves.
    """
    if job.get("preflight"):
        check_delta(spark, job["table_uri"])
        check_store(spark, job["table_uri"])
    _configure(spark, job)
    if job.get("schema"):
        given = json.loads(_with_generated(spark.createDataFrame([], job["schema"]), job).schema.json())
        check_creatable(given)
        return {"schema_json": json.dumps(given)}
    rows = _with_generated(spark.table(quoted(_views(spark, job))), job)
    schema = json.loads(rows.schema.json())
    if not job.get("evolves"):
        check_creatable(schema)
    return {"schema_json": json.dumps(nullable(schema))}


def stage(spark: SparkSession, job: Mapping[str, Any]) -> dict[str, Any]:
    """Append a job's rows to its buffer, as version 1.

    A second append of the same attempt does nothing: it finds version 1 there. If two run at the same time, the later
    one makes a version 2, which nobody reads (protocol: exactly version 1). No ``txnAppId`` is asked for, because Delta
    would run three Spark jobs to find that the empty log has no such ``txn``. Without rows there may be no version 1;
    then the caller seals (protocol: sealed when empty). The version's ``userMetadata`` names the attempt, and says
    whether the job read its target (protocol: reads its target).

    :param spark: session of the job's own.
    :param job: fields of ``spark.base.StageJob``. Where a function makes the rows, ``asked`` tells what it had Spark
        execute meanwhile.
    :returns: ``reads_target``, ``application_id``, ``ui`` and ``buffer_uri``: the buffer that has all rows of the job
        now. A shared scan of its own target has none, and neither has one whose steps must see the rows of one writer
        only: ``why_not_shared`` then says why. Of a job with checks also ``checks``: what they say of the staged rows.
    :raises RowsDoNotFitError: the rows do not have the columns of the table.
    :raises CheckRefusedError: Spark does not take a check. The source was not looked at.
    :raises SparkIsNotSetUpError: Spark does not see the buffer.
    """
    if job.get("preflight"):
        check_delta(spark, job["table_uri"])
    _configure(spark, job)
    # Look at the buffer before the source, because this shows whether Spark reaches the table's store at all. If it did
    # not, Delta would make a table elsewhere, and the buffer would count as empty.
    check_seen(spark, version_file(job["buffer_uri"], 0))
    checks = job.get("checks") or {}
    about_rows = sort_checks(spark, job["metadata"], checks) if checks else {}
    view = _views(spark, job)
    rows, routes = spark.table(quoted(view)), job.get("routes")
    may_cache = job["source"]["kind"] == "function"
    plan = uncached_plan(spark, view, plan_of(spark, view), _texts(job), may_cache=may_cache)
    if routes and job.get("steps") and (why_not := _why_not_shared(job, plan, rows)):
        return {"reads_target": False, "why_not_shared": why_not, **application(spark)}
    expressions = fit(
        json.loads((rows.drop(SCANNED_FOR) if routes else rows).schema.json()),
        json.loads(job["metadata"]["schemaString"]),
        job["table_uri"],
        missing_as_null=bool(job.get("evolves")),
        partition_columns=job["metadata"]["partitionColumns"],
    )
    reads_target = _reads_target(spark, job, plan, list(rows.inputFiles()))
    if routes:
        if reads_target:
            return {"reads_target": True, **application(spark)}
        expressions = [quoted(SCANNED_FOR), *expressions]
    if reads_target:
        forget_cached(spark, plan, job["table_uri"], _texts(job), job.get("other_uri"))
    writer = (
        rows.selectExpr(*expressions)
        .write.format("delta")
        .mode("append")
        .option("mergeSchema", "false")
        .option("userMetadata", json.dumps({"onelake": {"attempt": job["attempt"], "reads_target": reads_target}}))
    )
    if job.get("target_file_size"):
        writer = writer.option("optimizeWrite", "true")
    if not is_there(spark, version_file(job["buffer_uri"], 1)):
        writer.save(job["buffer_uri"])
    written: dict[str, Any] = {"buffer_uri": job["buffer_uri"]}
    if checks:
        written["checks"] = evaluate(spark, job, about_rows, SCANNED_FOR if routes else None)
    return {"reads_target": reads_target, **written, **application(spark)}


def route(routes: Mapping[str, str]) -> str:
    """Return the expression that names the writer of a row of a shared scan, in the column ``onelake_writer``.

    A row that satisfies the filters of two writers would come to the first of them only, so it fails the job. Only
    ordinary expressions are used, for which Spark generates code: a higher-order function is interpreted for each row,
    and costs more than the scan saves.

    :param routes: the filter of each writer, by its name, which holds no quote.
    """
    filters = {name: f"(\n{where}\n)" for name, where in routes.items()}
    claims = " + ".join(f"IF({where}, 1, 0)" for where in filters.values())
    named = " ".join(f"WHEN {where} THEN '{name}'" for name, where in filters.items())
    return f"CASE WHEN {claims} > 1 THEN raise_error('{CLAIMED_TWICE}') {named} END AS {quoted(SCANNED_FOR)}"


def _configure(spark: SparkSession, job: Mapping[str, Any]) -> None:
    settings = {**_FIXED, **v_order_settings(job)}
    if job.get("routes"):
        # Java never compiles a method of more than 8,000 bytes, and the expression that names a row's writer comes to
        # that with some twenty filters. Beyond this limit, Spark divides the expression into small methods.
        settings["spark.sql.codegen.hugeMethodLimit"] = "8000"
    if size := job.get("target_file_size"):
        # Delta counts in whole mebibytes, of rows before they are compressed.
        settings["spark.databricks.delta.optimizeWrite.binSize"] = f"{max(1, round(size / _MEBIBYTE))}m"
    configure(spark, settings)


def _views(spark: SparkSession, job: Mapping[str, Any]) -> str:
    """Make the views of the source and of each step, and return the name of the last."""
    source = job["source"]
    if job.get("target_uri"):
        spark.read.format("delta").load(job["target_uri"]).createOrReplaceTempView(TARGET)
    view: str = source.get("view") or "source"
    where, routes = job.get("where"), job.get("routes")
    # A view cannot be made of itself, so the unfiltered source gets another name.
    whole = f"{view}__whole" if where or routes else view
    if source["kind"] == "sql":
        _create_view(spark, whole, source["query"])
    elif source["kind"] == "files":
        _read(spark, source).createOrReplaceTempView(whole)
    else:
        _made(spark, job).createOrReplaceTempView(whole)
    if whole != view:
        rows = spark.table(quoted(whole))
        rows = rows.where(where) if where else rows
        (rows.selectExpr("*", route(routes)) if routes else rows).createOrReplaceTempView(view)
    for name, query in (job.get("steps") or {}).items():
        _create_view(spark, name, query)
        view = name
    return view


def _create_view(spark: SparkSession, name: str, query: str) -> None:
    # Spark's grammar takes a query here and nothing else: an INSERT or a DELETE in a step is a syntax error, where
    # spark.sql() would run it on the spot.
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {quoted(name)} AS\n{query}")


def _read(spark: SparkSession, source: Mapping[str, Any]) -> DataFrame:
    """Read files by the names of their columns. What the author says in an option wins."""
    form, given = (source.get("format") or "parquet").lower(), source.get("options") or {}
    said = {name.lower() for name in given}
    strict = {name: value for name, value in _STRICT.get(form, {}).items() if name.lower() not in said}
    reader = spark.read.format(form).options(**strict, **given)
    if source.get("schema"):
        reader = reader.schema(source["schema"])
    path = source["path"]
    rows = reader.load([path] if isinstance(path, str) else list(path))
    if form == "avro" and not source.get("schema") and "avroschema" not in said and len(rows.inputFiles()) > 1:
        raise RowsDoNotFitError(
            f"The Avro files of {path} would all be read by the columns of one of them, and what others have beside "
            "these would be dropped. Give `schema`, or the reader's option avroSchema, with the columns of all files."
        )
    if form in _BY_RECORD and "mode" in strict:
        # Spark calls a record well-formed that has none of the columns, and makes a row of NULLs of it. Columns that
        # come from the names of directories are in each of them.
        place = next(iter(rows.inputFiles()), "").lower()
        own = [name for name in rows.columns if f"/{name.lower()}=" not in place]
        if some := " OR ".join(f"{quoted(name)} IS NOT NULL" for name in own):
            rows = rows.where(f"IF({some}, true, raise_error('{NO_COLUMN}'))")
    return rows


def _made(spark: SparkSession, job: Mapping[str, Any]) -> DataFrame:
    """Call the function that makes the rows, and hold what it returns to this job's session."""
    from pyspark.errors import PySparkException
    from pyspark.sql import DataFrame

    # The function may collect rows from the table. Drop the cache, so that it reads the table as it is now.
    spark.catalog.refreshByPath(job["table_uri"])
    try:
        rows = job["rows"](spark)
    except Exception as error:
        # An error such as pyspark's own TypeError comes from a mistake in the function, not from Spark.
        if isinstance(error, PySparkException) and not isinstance(error, _AUTHORS):
            raise
        raise FunctionFailedError from error
    # The function may have changed the session's settings. Set ours again, because the rows are read and written later.
    configure(spark, {**_FIXED, **v_order_settings(job)})
    if not isinstance(rows, DataFrame):
        kind = f"{type(rows).__module__}.{type(rows).__qualname__}".removeprefix("builtins.")
        raise NoRowsError(
            f"The function returned {kind}, not a data frame of Spark: return one made from `spark`, such as "
            "spark.read.… or spark.createDataFrame(…)."
        )
    if rows.sparkSession is not spark:
        raise NoRowsError(
            "The function returned a data frame of another Spark session. Make it from the `spark` that it is given: "
            "that session has this job's settings, and stops with the task."
        )
    return rows


def _with_generated(rows: DataFrame, job: Mapping[str, Any]) -> DataFrame:
    """Return rows with the generated columns that they do not bring themselves."""
    given = {name.lower() for name in rows.columns}
    generated: Mapping[str, str] = job.get("generated") or {}
    missing = {name: expression for name, expression in generated.items() if name.lower() not in given}
    return rows.selectExpr("*", *(f"{expression} AS {quoted(name)}" for name, expression in missing.items()))


def _why_not_shared(job: Mapping[str, Any], plan: str, rows: DataFrame) -> str | None:
    """Say why the steps of a shared scan must see the rows of one writer only; ``None`` where they may see all."""
    if any(SCANNED_FOR in query.lower() for query in job["steps"].values()):
        return f"a step names {SCANNED_FOR}, the column that names the writer of a row"
    source = job["source"].get("view") or "source"
    return why_not_row_by_row(plan, source, rows.columns, SCANNED_FOR)


def _reads_target(spark: SparkSession, job: Mapping[str, Any], plan: str, files: list[str]) -> bool:
    asked, declared = job["asked"]() if job.get("asked") else [], job.get("target_uri")
    if declared:
        # What is read under the name `target` is declared. It has the table's files, and lies in the table's directory.
        own = set(spark.table(TARGET).inputFiles())
        files = [file for file in files if file not in own]
    return reads_table(spark, plan, job["table_uri"], _texts(job), files, asked, job.get("other_uri"), declared)


def _texts(job: Mapping[str, Any]) -> list[str]:
    """Return what the job's query is made from: SQL and source paths."""
    source = job["source"]
    paths = source.get("path") or []
    texts = [source.get("query") or "", *([paths] if isinstance(paths, str) else paths), job.get("where") or ""]
    return [*texts, *(job.get("steps") or {}).values()]
