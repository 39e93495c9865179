"""Livy's batches as processes: each is a ``spark-submit`` on this machine.

A batch lives as long as the server does: it is not kept, and when the server ends, every batch is ended with it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import attrs

_TERM_SECONDS = 5.0
_POLL_SECONDS = 0.05
_JAVA_OPTIONS = ("spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions")

NOT_STARTED, RUNNING, SUCCESS, DEAD, KILLED = "not_started", "running", "success", "dead", "killed"


@attrs.frozen
class Submission:
    """What a batch is to run.

    :param name: of the application.
    :param file: its address, as Spark reads it.
    :param args: of the program.
    :param py_files: addresses of further Python files.
    :param jars: addresses of JARs.
    :param conf: Spark's settings.
    """

    name: str
    file: str
    args: Sequence[str] = ()
    py_files: Sequence[str] = ()
    jars: Sequence[str] = ()
    conf: Mapping[str, str] = attrs.field(factory=dict)


@attrs.define(eq=False)
class Batch:
    """A batch that was taken.

    :param id: its GUID.
    :param item: the GUID of the lakehouse.
    :param owner: the identity that made it.
    :param submission: what it runs.
    :param home: the directory with its log.
    :param refused: why the capacity did not start it; ``None`` if it did.
    """

    id: str
    item: str
    owner: str
    submission: Submission
    home: Path
    refused: str | None = None
    process: subprocess.Popen[bytes] | None = None
    killed: bool = False

    @property
    def state(self) -> str:
        """How far it is, as Livy names it. A batch counts as running from its process's first moment."""
        if self.killed:
            return KILLED
        if self.process is None:
            return NOT_STARTED
        code = self.process.poll()
        return RUNNING if code is None else SUCCESS if code == 0 else DEAD

    def log(self) -> list[str]:
        """Return the lines that it has printed."""
        file = self.home / "log"
        return file.read_text(errors="replace").splitlines() if file.exists() else []


@attrs.define
class Batches:
    """All batches of a server.

    :param directory: where each has a directory of its own, which others cannot read.
    :param spark_submit: the path of the script.
    :param settings: returns Spark's settings for a token, by which the batch signs in. They count before its own.
    :param environment: variables of its process. Default: this process's own.
    """

    directory: Path
    spark_submit: str
    settings: Callable[[str], Mapping[str, str]]
    environment: Mapping[str, str] | None = attrs.field(default=None, repr=False)
    _all: dict[str, Batch] = attrs.field(factory=dict, init=False)
    _turn: threading.Lock = attrs.field(factory=threading.Lock, init=False)
    _closed: bool = attrs.field(default=False, init=False)

    def of(self, item: str) -> list[Batch]:
        """Return the batches of a lakehouse, the newest first.

        :param item: its GUID.
        """
        with self._turn:
            return [batch for batch in reversed(self._all.values()) if batch.item == item]

    def start(self, item: str, owner: str, token: str, submission: Submission, refused: str | None = None) -> Batch:
        """Start a batch.

        :param item: the GUID of the lakehouse.
        :param owner: the identity that asks.
        :param token: the secret of the identity, which its Spark signs in by.
        :param submission: what is to run.
        :param refused: why it is taken, but never started. Default: it is started.
        :raises OSError: the script cannot be started.
        """
        made = str(uuid.uuid4())
        home = self.directory / made
        home.mkdir(parents=True, mode=0o700)
        batch = Batch(made, item, owner, submission, home, refused)
        with self._turn:
            if refused is None and not self._closed:
                batch.process = self._run(batch, token)
            self._all[made] = batch
        return batch

    def kill(self, batch: Batch) -> None:
        """End a batch with all its processes, if it has not ended. It is over when this returns."""
        if batch.state in (NOT_STARTED, RUNNING):
            batch.killed = True
            if batch.process is not None:
                _end(batch.process)

    def close(self) -> None:
        """End every batch, and start none any more."""
        with self._turn:
            self._closed = True
            batches = list(self._all.values())
        for batch in batches:
            self.kill(batch)
        shutil.rmtree(self.directory, ignore_errors=True)

    def _run(self, batch: Batch, token: str) -> subprocess.Popen[bytes]:
        said = batch.submission
        settings = joined(self.settings(token), said.conf)
        # A file and not the command line, which everybody on the machine can read: the settings hold the token.
        properties = batch.home / "spark.properties"
        with os.fdopen(os.open(properties, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
            out.writelines(f"{_escaped(name)}={_escaped(value)}\n" for name, value in settings.items())
        command = [self.spark_submit, "--properties-file", str(properties), "--name", said.name]
        for option, values in (("--py-files", said.py_files), ("--jars", said.jars)):
            command += [option, ",".join(values)] if values else []
        with (batch.home / "log").open("wb") as log:
            return subprocess.Popen(
                [*command, said.file, *said.args],
                cwd=batch.home,
                env=None if self.environment is None else dict(self.environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )


def joined(settings: Mapping[str, str], others: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of both. The first count where both have one; options of Java are put together.

    :param settings: without which a Spark would not reach this server.
    :param others: what somebody wishes.
    """
    found = {**others, **settings}
    for name in _JAVA_OPTIONS:
        if name in settings and name in others:
            found[name] = f"{others[name]} {settings[name]}"
    return found


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and its children: first asked, then by force."""
    until = time.monotonic() + _TERM_SECONDS
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
        while time.monotonic() < until:
            process.poll()
            os.killpg(process.pid, 0)
            time.sleep(_POLL_SECONDS)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _escaped(text: str) -> str:
    """Return a text as Java reads it in a file of properties."""
    special = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "=": "\\=", ":": "\\:", " ": "\\ ", "#": "\\#", "!": "\\!"}
    return "".join(special.get(character, character) for character in text)
