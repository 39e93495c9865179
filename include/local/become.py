"""What supervisord starts for each process of a stack: it ends what the last run left behind, then becomes the process.

As few imports as can be: it runs at every start.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Iterable

# Every process of a stack carries this variable; its value is the stack's state directory.
MARK = "LOCAL_STACK"


def end(processes: Iterable[psutil.Process], grace: float) -> None:
    """End processes: politely, and by force after a while.

    :param processes: which ones.
    :param grace: seconds until SIGKILL.
    """
    left = list(processes)
    for how, patience in ((signal.SIGTERM, grace), (signal.SIGKILL, 10)):
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(how)
        _, left = psutil.wait_procs(left, timeout=patience)


def orphans() -> list[psutil.Process]:
    """Return the processes of this session that do not descend from supervisord: whoever started them has died.

    They hold the ports and the memory that the next run needs.
    """
    supervisord = psutil.Process(os.getppid())
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if os.getsid(process.pid) == os.getsid(0) and supervisord not in (process, *process.parents()):
                found.append(process)
    return found


def become(file: Path) -> None:
    """Become a process.

    :param file: its command, as ``processes.launch`` has written it.
    """
    command = json.loads(file.read_text())
    end(orphans(), grace=2)
    if command["user"] is not None:
        os.setgroups([])
        os.setuid(command["user"])
    os.chdir(command["cwd"])
    os.execvpe(command["argv"][0], command["argv"], {**command["env"], MARK: os.environ[MARK]})  # noqa: S606


if __name__ == "__main__":
    become(Path(sys.argv[1]))
