"""A ``spark-submit`` process of the task. The Spark provider's hook starts it; we stop it with all its children."""

from __future__ import annotations

import contextlib
import fcntl
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

_TERM_SECONDS = 5
_KILL_SECONDS = 3
_START_SECONDS = 30
_POLL_SECONDS = 0.05
_TAIL = "Last spark-submit output:\n"
_LONGEST = 3000


class SubmitProcess:
    """A ``spark-submit`` in its own process group."""

    driver: str | None = None
    """The driver's id once :meth:`run` has returned, on a standalone cluster in cluster mode."""

    def __init__(self, hook: SubmitHook) -> None:
        self.hook = hook
        self.ended = threading.Event()
        self._stopping = threading.Event()

    def run(self, application: str, environment: Mapping[str, str]) -> str | None:
        """Run the process to its end. Its output goes to the task's log.

        :param application: script or JAR.
        :param environment: further variables of the process.
        :returns: the end of the output if the process failed, else ``None``.
        :raises SparkSetUpError: the process cannot be started.
        """
        from airflow.providers.common.compat.sdk import AirflowException

        env = child_environment(self.hook.resolved["spark_binary"], environment)
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
        """Stop the process, if needed by force. This returns within about eight seconds, also in a signal handler."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        # Use a thread: this may be a signal handler that interrupted the main thread while it started the process.
        stopped = threading.Event()
        threading.Thread(target=self._stop, args=(stopped,), name="stop-spark", daemon=True).start()
        stopped.wait(_TERM_SECONDS + _KILL_SECONDS)

    def _stop(self, stopped: threading.Event) -> None:
        process = self._process(_START_SECONDS)
        if process is not None:
            # Signal the process group: the JVM and its Python belong to it.
            for how, seconds in ((signal.SIGTERM, _TERM_SECONDS), (signal.SIGKILL, _KILL_SECONDS)):
                if not _signal_group(process.pid, how) or self._gone(process, seconds):
                    break
        stopped.set()

    def _process(self, seconds: float) -> Any:
        """Return the process, and wait for it if it is just starting; ``None`` if it has ended."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not self.ended.is_set():
            # Do not use the hook's own way to kill the process: it leaves the script's children alive.
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
    """Create a file and keep it locked until the block ends or this process dies."""
    with path.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _signal_group(pid: int, what: int) -> bool:
    try:
        os.killpg(pid, what)
    except ProcessLookupError:
        return False
    return True
