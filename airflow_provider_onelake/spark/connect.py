"""The Spark Connect engine: each job runs in its own session on a server that many writers share.

pyspark and gRPC are imported when a job starts, never at module level: Airflow parses DAGs in a process that it forks
for every task, and gRPC's threads do not survive the fork.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import uuid
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlparse

from airflow_provider_onelake.exceptions import (
    InvalidWriteError,
    OneLakeError,
    SparkJobError,
    SparkUnavailableError,
)
from airflow_provider_onelake.spark.base import (
    Engine,
    EngineContext,
    Seen,
    SparkJob,
    StageJob,
    error_of_end,
    in_words,
    time_limit,
)
from airflow_provider_onelake.spark.client import check_one_client
from airflow_provider_onelake.spark.errors import translate, was_unreachable
from airflow_provider_onelake.spark.jobs.application import configure, driver_ui, lasting_ui
from airflow_provider_onelake.spark.jobs.main import JOBS
from airflow_provider_onelake.spark.jobs.progress import Progress
from airflow_provider_onelake.spark.jobs.stage import FunctionFailedError, NoRowsError

if TYPE_CHECKING:
    from airflow.sdk import Connection

logger = logging.getLogger(__name__)

# The first logs every error with 200 lines of JVM frames, the second with those of gRPC.
QUERY_LOGGER, CLIENT_LOGGER = "SQLQueryContextLogger", "pyspark.sql.connect.logging"

_DEFAULT_PORT = 15002
_CONNECT_SECONDS = 4
_RECONNECT_SECONDS = 12
_STOP_SECONDS = 8
_STOP_TRIES = 5
_QUIET_SECONDS = 5
_RETRY_MILLISECONDS = 250
_ISOLATION = ("spark.sql.artifact.isolation.enabled", "spark.sql.artifact.isolation.alwaysApplyClassloader")


class ConnectEngine(Engine):
    """Runs jobs on a Spark Connect server, each in a session of its own.

    Sessions share the code that Spark compiles, except those in which a function of the author's runs.

    :param remote: address of the server, ``sc://host:port`` with pyspark's parameters (``;token=…``).
    :param timeout: seconds after which a job is stopped. Default: never.
    :param settings: Spark settings of every job's session, unless a job needs another value. Default: none.
    :param on_started: called with every job's session before Spark starts to work. Default: no call.
    :raises InvalidWriteError: ``remote`` is not an address of Spark Connect.
    """

    name = "connect"
    takes_functions = True

    def __init__(
        self,
        remote: str,
        timeout: float | None = None,
        settings: Mapping[str, str] | None = None,
        on_started: Seen | None = None,
    ) -> None:
        url = urlparse(remote)
        if url.scheme != "sc" or not url.hostname:
            # It is not repeated, as it may hold the token.
            raise InvalidWriteError("The connection's host is no address of Spark Connect: write 'sc://host:port'.")
        self._remote = _encoded(remote)
        self._address = f"sc://{url.hostname}:{url.port or _DEFAULT_PORT}"  # without the token, for messages
        self._timeout = timeout
        self._settings = dict(settings or {})
        self._on_started = on_started
        self._running: _Running | None = None
        self._stopped = False

    @classmethod
    def of(cls, connection: Connection, around: EngineContext) -> ConnectEngine:
        """Make the engine of a connection of the type ``spark_connect``; see :meth:`Engine.of`."""
        from airflow.providers.apache.spark.hooks.spark_connect import SparkConnectHook

        remote = SparkConnectHook(connection.conn_id).get_connection_url()
        if str(connection.extra_dejson.get("token_without_tls")).lower() == "true":
            # pyspark sends a token by TLS only, and a parameter that it does not know as a header, also without.
            remote = remote.replace(";token=", ";authorization=Bearer ")
        return cls(remote, around.timeout, on_started=around.on_started)

    def stop(self) -> None:
        """Interrupt what runs, release its session, and refuse further jobs."""
        self._stopped = True
        running = self._running
        if running is None:
            return
        logger.info("Stopping Spark session %s at %s", running.session_id, self._address)
        # Use a thread: this may be a signal handler that interrupted the main thread inside gRPC, with a lock held.
        threading.Thread(target=running.interrupt, args=["stopped"], name="stop-spark", daemon=True).start()
        running.interrupted.wait(_STOP_SECONDS)

    def run(self, kind: str, job: SparkJob) -> dict[str, Any]:
        """Run one job in a session of its own; see :meth:`Engine.run`."""
        what = in_words(kind, job)
        self._check_stopped(what)
        check_one_client()
        try:
            running = _Running(self._remote, job)
        except ValueError as error:
            # Drop pyspark's message: it contains the whole address, with the token.
            raise InvalidWriteError(
                f"pyspark takes no such parameters of a connection to {self._address} ({type(error).__name__}): check "
                "the Airflow connection's extra. Nothing was staged."
            ) from None
        self._running = running
        try:
            running.connect(self._address, what)
            with time_limit(self._timeout, running.interrupt, "expired"):
                self._check_stopped(what)
                logger.info("Spark session %s at %s: %s", running.session_id, self._address, what)
                return self._run(kind, job, running)
        except NoRowsError as error:
            raise InvalidWriteError(f"{error} Nothing was written.") from error
        except FunctionFailedError as error:
            cause = error.__cause__
            if cause is None or running.ended is not None:
                raise self._explain(error, running, what) from error
            # The author's function raised this error, or an Airflow exception such as a skip. Pass it on unchanged.
            raise cause from cause.__cause__
        except OneLakeError:
            raise
        except Exception as error:
            raise self._explain(error, running, what) from error
        finally:
            self._running = None
            running.close()

    def _run(self, kind: str, job: SparkJob, running: _Running) -> dict[str, Any]:
        self._tell_of(running)
        if self._settings:
            configure(running.session, self._settings)
        fields = job.as_dict()
        if fields.get("rows") is not None:
            fields["rows"] = running.queries.during(fields["rows"])
            fields["asked"] = partial(running.queries.texts, running.session.client)
        progress = Progress(logger.info)
        running.session.registerProgressHandler(progress)
        with progress.reporting():
            return {**JOBS[kind](running.session, fields), "session_id": running.session_id}

    def _tell_of(self, running: _Running) -> None:
        if self._on_started is None:
            return
        try:
            settings: Mapping[str, str] = running.session.conf.getAll
        except Exception as error:
            # If Spark is in trouble, the job that follows fails with a better message.
            logger.debug("Spark session %s does not say where its UI is", running.session_id, exc_info=error)
            return
        base = lasting_ui(settings) or driver_ui(settings)
        page = f"{base.rstrip('/')}/connect/session/?id={running.session_id}" if base else None
        self._on_started(settings.get("spark.app.id"), running.session_id, page)

    def _check_stopped(self, what: str) -> None:
        if self._stopped:
            raise SparkJobError(f"Stopped before {what}, as asked. The table is unchanged.")

    def _explain(self, error: Exception, running: _Running, what: str) -> OneLakeError:
        if running.ended is not None:
            return error_of_end(running.ended, what, "was interrupted", self._timeout)
        return translate(error, what, self._address)


def _silence_pyspark() -> None:
    """Keep pyspark from logging what went wrong: our own errors say it, and a file that is not there is none.

    By default, pyspark disables the logger of its Connect client itself. But Airflow configures logging when a task
    begins, which enables all loggers that are there already, and :mod:`airflow_provider_onelake.preload` has imported
    pyspark by then. An author who sets ``SPARK_CONNECT_LOG_LEVEL`` wants to see that log.
    """
    logging.getLogger(QUERY_LOGGER).disabled = True
    if "SPARK_CONNECT_LOG_LEVEL" not in os.environ:
        logging.getLogger(CLIENT_LOGGER).disabled = True


class _Running:
    """The session of one job on the server, with the ways to end it.

    Sessions of jobs without a function share compiled code. By default a server gives every session a class loader of
    its own, so that Spark compiles the code of every writer's queries anew, and the JVM never gets warm. A function may
    add artifacts to its session, and these must not reach others, so it keeps an isolated session.
    """

    def __init__(self, remote: str, job: SparkJob) -> None:
        from pyspark.sql.connect.client import DefaultChannelBuilder
        from pyspark.sql.connect.session import SparkSession

        from airflow_provider_onelake.spark.functions import OldSql, QueryRecorder

        _silence_pyspark()
        self.session_id = str(uuid.uuid4())
        self.ended: str | None = None
        self.interrupted = threading.Event()
        self._finished = threading.Event()
        channel = DefaultChannelBuilder(remote)
        channel.set("session_id", self.session_id)
        self.queries = QueryRecorder()
        self._isolated = isinstance(job, StageJob) and job.rows is not None
        if self._isolated:
            channel.add_interceptor(self.queries)
        channel.add_interceptor(OldSql())
        # By default, gRPC's pause between connects doubles up to two minutes, and every call in a pause fails at once.
        channel.setChannelOption("grpc.initial_reconnect_backoff_ms", 200)
        channel.setChannelOption("grpc.min_reconnect_backoff_ms", 1000 * _CONNECT_SECONDS)
        channel.setChannelOption("grpc.max_reconnect_backoff_ms", 1000)
        # Use the class, not its builder: the builder's session becomes the process's default, and later jobs share it.
        self.session: Any = SparkSession(connection=channel)
        self._retries = _retry_policy()
        self.session.client.set_retry_policies([self._retries])
        self._patience(_CONNECT_SECONDS)
        self._tags = [f"onelake attempt {job.attempt}"]
        if job.label:
            self._tags.insert(0, f"onelake {job.label}".replace(",", ";"))

    def connect(self, address: str, what: str) -> None:
        """Reach the server.

        :param address: the server's address, for messages.
        :param what: what the job is to do, for messages.
        :raises SparkUnavailableError: no server answers.
        """
        try:
            if self._isolated:
                _ = self.session.version
            else:
                self._share_code()
        except Exception as error:
            if self.ended is None and was_unreachable(error):
                raise SparkUnavailableError(
                    f"No Spark Connect server answers at {address}, so {what} did not begin. The table is unchanged. "
                    "Start the server, or correct host and port of the Airflow connection."
                ) from error
            raise
        self._patience(_RECONNECT_SECONDS)
        for tag in self._tags:
            self.session.addTag(tag)

    def _share_code(self) -> None:
        """Go on in a clone of the session which shares the server's class loader.

        A session reads the settings for this at its first request. A clone has them from the beginning.

        :raises Exception: no server answers.
        """
        first = self.session
        try:
            configure(first, dict.fromkeys(_ISOLATION, "false"))
            clone = first.cloneSession(str(uuid.uuid4()))
        except Exception as error:
            if was_unreachable(error):
                raise
            # Servers before Spark 4.1 do not clone. If this one is in trouble, the job that follows says so.
            logger.debug("Spark session %s is not cloned, and shares no code", self.session_id, exc_info=error)
            return
        # pyspark 4.2 forgets to give the clone this attribute.
        clone.release_session_on_close = True
        clone.client.set_retry_policies([self._retries])
        self.session, self.session_id = clone, clone.session_id
        first.stop()

    def interrupt(self, why: str) -> None:
        """Cancel the session's Spark jobs and release it, so that no more start; then free a caller that hangs.

        :param why: ``stopped`` or ``expired``. Only the first reason counts.
        """
        self.ended = self.ended or why
        self._patience(1)
        for _ in range(_STOP_TRIES):
            try:
                self.session.interruptAll()
                self.session.client.release_session()
                break
            except Exception as error:
                # An operation that is just starting cannot be released yet, so try again after a second.
                logger.warning("Spark session %s: could not be stopped yet: %s", self.session_id, error)
                if self._finished.wait(1):
                    break
        self.interrupted.set()
        if not self._finished.wait(_STOP_SECONDS):
            # The server does not answer. Close the channel, so that the call that waits for the server fails.
            self.session.client.close()

    def close(self) -> None:
        """Release the session, also if the server is gone: else pyspark waits for the server when Python exits."""
        self._finished.set()
        self._patience(0)
        self.session.stop()

    def _patience(self, seconds: float) -> None:
        """Set for how long a call is repeated while no server answers. It also applies to calls that repeat now.

        :param seconds: seconds from a call's first failure.
        """
        self._retries.seconds = seconds


def _encoded(remote: str) -> str:
    """Return the address with percent-encoded parameters, slashes too, because pyspark decodes them."""
    base, *parameters = remote.split(";")
    pairs = (parameter.partition("=") for parameter in parameters)
    return ";".join([base, *(f"{name}{sign}{quote(unquote(value), safe='')}" for name, sign, value in pairs)])


def _retry_policy() -> Any:
    """Return a policy that repeats a call for some ``seconds``, however long each try takes.

    pyspark's own policy counts tries, and gives up only after ten minutes.
    """
    from pyspark.sql.connect.client.retries import DefaultPolicy

    class Patience(DefaultPolicy):
        seconds = first = last = 0.0

        def can_retry(self, e: BaseException) -> bool:
            now = time.monotonic()
            if now - self.last > self.seconds + _QUIET_SECONDS:
                self.first = now
            self.last = now
            return bool(super().can_retry(e)) and now - self.first < self.seconds

    return Patience(
        max_retries=None,
        initial_backoff=_RETRY_MILLISECONDS,
        max_backoff=_RETRY_MILLISECONDS,
        backoff_multiplier=1,
        jitter=0,
        max_server_retry_delay=1000,
    )
