"""What the processes of a race run; a module of its own, because a spawned process imports it."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any

from airflow_provider_onelake.exceptions import ObjectExistsError, OneLakeError
from airflow_provider_onelake.log.actions import version_path
from airflow_provider_onelake.storage.addresses import TableAddress
from airflow_provider_onelake.storage.stores import open_store


def claim_versions(path: str, name: str, versions: int, lined_up: Any, won: Any) -> None:
    """Create one version after another, each lined up with the rival; says which ones it won."""
    store = open_store(TableAddress.parse(path))
    mine = []
    for version in range(versions):
        lined_up.wait(timeout=60)
        try:
            store.create(version_path(version), f'{{"{name}": {version}}}'.encode())
        except ObjectExistsError:
            continue
        mine.append(version)
    won.put((name, mine))


def write_where_files_may_not_grow(path: str, limit: int, said: Any) -> None:
    """Put and create an object larger than this process may write; says the errors."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    store = open_store(TableAddress.parse(path))
    for write in (store.create, store.put):
        try:
            write("a/b", b"x" * (limit + 1))
        except OneLakeError as error:
            said.put((type(error).__name__, str(error)))
        else:
            said.put(("nothing", ""))


def publish_where_files_may_not_grow(path: str, buffer: str, limit: int, said: Any) -> None:
    """Publish a buffer whose log entry is larger than this process may write; says the error."""
    from airflow_provider_onelake.buffers.buffer import read_buffer
    from airflow_provider_onelake.writes.publish import Committer
    from tests.support.tables import local_log

    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    log = local_log(Path(path))
    try:
        Committer(log).publish([read_buffer(log.store, buffer)])
    except OneLakeError as error:
        said.put((type(error).__name__, str(error)))
    else:
        said.put(("nothing", ""))


def race_commits(lake: Any, number: int, rounds: int, begun: Any, put: Any, said: Any) -> None:
    """Commit one row a round, each time lined up with the rival before the put; says version and lost races of each."""
    from airflow_provider_onelake.writes.publish import Committer
    from tests.support.stores import PassingOn, through
    from tests.support.tables import stage, writer_spec

    class LinedUp(PassingOn):
        waits = False

        def create(self, path: str, data: bytes) -> None:
            if self.waits and path.startswith("_delta_log/"):
                self.waits = False
                put.wait(timeout=60)
            super().create(path, data)

    log = lake.log()
    store = LinedUp(log.store)
    outcomes = []
    for index in range(rounds):
        buffer = stage(log, writer_spec(f"{number}-{index}"), {f"2019-0{number + 1}": [10 * index + number]})
        begun.wait(timeout=60)
        store.waits = True
        publication = Committer(through(store, log)).publish([buffer])
        outcomes.append((publication.version, publication.tally.lost_races))
    said.put((number, outcomes))
