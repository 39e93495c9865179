"""A server as a process of its own session, which tests start, stop and kill."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from include.local.api import wait_for

_START_SECONDS = 120


class ServerError(RuntimeError):
    """A server did not start; the message says why and where its log is."""


class ServerProcess:
    """What is common to servers. A class of them knows its directory, log, command and environment, and when it is up."""

    state: Path
    log_file: Path
    _process: subprocess.Popen[bytes] | None = None

    def command(self) -> list[str]:
        raise NotImplementedError

    def environment(self) -> Mapping[str, str]:
        raise NotImplementedError

    def prepare(self) -> None:
        """Make what the command refers to."""
        raise NotImplementedError

    def healthy(self) -> bool:
        """Whether it takes work."""
        raise NotImplementedError

    @property
    def pid(self) -> int | None:
        """Process id, or None when it was not started here or has ended."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def start(self) -> None:
        """Start it, and wait until it takes work.

        :raises ServerError: it ended, or was not ready in time.
        :raises SetUpError: what it needs is not installed, and cannot be.
        """
        command = self.command()
        self.prepare()
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                env=dict(self.environment()),
                cwd=self.state,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # a Ctrl-C in the terminal is for its owner, who stops it in order
            )
        try:
            wait_for(lambda: self.pid is None or self.healthy(), "it", _START_SECONDS, every=0.1)
        except TimeoutError:
            self.kill()
        except BaseException:
            self.kill()
            raise
        if self.pid is None:
            said = self.log_file.read_text(errors="replace")[-2000:]
            raise ServerError(f"{command[0]} did not start. {self.log_file} says:\n{said}")

    def stop(self, how: signal.Signals = signal.SIGTERM, timeout: float = 20) -> None:
        """End it in order, by force when that takes longer than ``timeout`` seconds. No-op when it is down."""
        process, self._process = self._process, None
        if process is None:
            return
        # What it started is in its group and outlives it after a kill: Python workers of UDFs, say.
        for signum, patience in ((how, timeout), (signal.SIGKILL, 10)):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signum)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(patience)

    def kill(self) -> None:
        """End it at once, as ``kill -9`` does. No-op when it is down."""
        self.stop(signal.SIGKILL)

    def restart(self) -> None:
        """Stop it when it runs, and start it."""
        self.stop()
        self.start()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
