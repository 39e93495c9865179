"""One ``spark-submit`` as a child of the task: started by the Spark provider's hook, stopped with all its children."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_provider_onelake.engines.submit.settings import child_environment
from airflow_provider_onelake.exceptions import SparkSetUpError

if TYPE_CHECKING:
    from airflow_provider_onelake.engines.submit.hook import SubmitHook

log = logging.getLogger(__name__)

_TERM_SECONDS = 5
_KILL_SECONDS = 3
_START_SECONDS = 30
_POLL_SECONDS = 0.05
_TAIL = "Last spark-submit output:\n"
_LONGEST = 3000


class SubmitProcess:
    """A ``spark-submit`` in a process group of its own.

    :param hook: with the job's settings.
    """

    driver: str | None = None
    """On a standalone cluster in cluster mode, which driver it became, once :meth:`run` has returned."""

    def __init__(self, hook: SubmitHook) -> None:
        self.hook = hook
        self.ended = threading.Event()
        self._stopping = threading.Event()

    def run(self, application: str, environment: Mapping[str, str]) -> str | None:
        """Run it to its end; its output goes to the task's log.

        :param application: script or JAR.
        :param environment: further variables of the process.
        :returns: the last of its output where it failed, else ``None``.
        :raises SparkSetUpError: it cannot be started.
        """
        from airflow.providers.common.compat.sdk import AirflowException

        env = child_environment(self.hook.binary, environment)
        popen: dict[str, Any] = {"env": env, "start_new_session": True, "stdin": subprocess.DEVNULL}
        try:
            self.driver = self.hook.submit(application, **popen)
        except (AirflowException, RuntimeError) as error:
            said = str(error)
            return (said.partition(_TAIL)[2] or said)[-_LONGEST:]
        except OSError as error:
            raise SparkSetUpError(f"spark-submit cannot be started: {error}. Nothing was staged.") from error
        finally:
            self.ended.set()
        return None

    def stop(self) -> None:
        """Stop it, if need be by force. Returns within about eight seconds, from a signal handler too."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        # In a thread, as a signal handler may have interrupted the main thread where it starts the process.
        stopped = threading.Event()
        threading.Thread(target=self._stop, args=(stopped,), name="stop-spark", daemon=True).start()
        stopped.wait(_TERM_SECONDS + _KILL_SECONDS)

    def _stop(self, stopped: threading.Event) -> None:
        process = self._process(_START_SECONDS)
        if process is not None:
            # Not the script's pid alone: the JVM and its Python are in its group.
            for how, seconds in ((signal.SIGTERM, _TERM_SECONDS), (signal.SIGKILL, _KILL_SECONDS)):
                if not _signal_group(process.pid, how) or self._gone(process, seconds):
                    break
        stopped.set()

    def _process(self, seconds: float) -> Any:
        """Return the process, which may only be starting, ``None`` where there is none any more."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not self.ended.is_set():
            # Not by the hook's own way to kill, which leaves the script's children alive.
            if self.hook.process is not None:
                return self.hook.process
            time.sleep(_POLL_SECONDS)
        return None

    @staticmethod
    def _gone(process: Any, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            process.poll()
            if not _signal_group(process.pid, 0):
                return True
            time.sleep(_POLL_SECONDS)
        return False


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep a file locked for as long as this process lives and the block lasts.

    :param path: of the file, which is made.
    """
    with path.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _signal_group(pid: int, what: int) -> bool:
    try:
        os.killpg(pid, what)
    except ProcessLookupError:
        return False
    return True
