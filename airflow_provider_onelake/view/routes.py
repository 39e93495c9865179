"""What the page asks for: tables of a lakehouse, and what stands in a table's log. Nothing can be changed here.

Whoever may see assets may see the tables of those connections that ``[onelake] view_connections`` names, but for tables
of DAGs that are not theirs. A store that does not answer is given up after a few seconds. All of the API server shares
its threads, so the routes have eight of their own: a read that never ends, as of a mount that hangs, keeps one of them,
and whoever asks is answered after a minute in any case. No route reads a data file, and each says in its description
what it costs.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import copy_context
from functools import cache, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.core_api.security import get_user, requires_access_asset
from fastapi import Depends, FastAPI, HTTPException, Query, Request, Response
from fastapi.responses import FileResponse

from airflow_provider_onelake.links.view import shown_connections
from airflow_provider_onelake.view.permissions import may_see, reads_every_dag

if TYPE_CHECKING:
    from airflow_provider_onelake.hooks.onelake import OneLakeHook
    from airflow_provider_onelake.storage.addresses import TableAddress
    from airflow_provider_onelake.table import Table

logger = logging.getLogger(__name__)

PREFIX = "/onelake"
_PATIENCE = 5.0
# Fabric's REST is asked about each folder on the way to a table, and a path below Files may have any number of them.
_DEEPEST = 8
_MOST_AT_ONCE = 8
# Seconds until whoever asks is told that there is no answer.
_LONGEST = 60.0
_free = threading.Semaphore(_MOST_AT_ONCE)
_STATIC = Path(__file__).parent / "static"

# Airflow gives a mounted app no dependency of its own: without get_user here, every route would be open to anybody.
app = FastAPI(title="Lakehouse", dependencies=[Depends(get_user)], docs_url=None, redoc_url=None, openapi_url=None)

_MAY_SEE_TABLES = [Depends(requires_access_asset("GET"))]
TablePath = Annotated[str, Query(alias="table", description="a path in the connection's lakehouse")]
User = Annotated[BaseUser, Depends(get_user)]


@app.middleware("http")
async def _never_guessed(request: Request, answer: Callable[[Request], Awaitable[Response]]) -> Response:
    """Have no browser guess that an answer is of another type than it says, such as a script."""
    given = await answer(request)
    given.headers["X-Content-Type-Options"] = "nosniff"
    return given


def _bounded(answer: Callable[..., Any]) -> Callable[..., Coroutine[Any, Any, Any]]:
    """Run a route in a thread of its own, of eight at once, and answer in time whatever the thread does."""

    @wraps(answer)
    async def bounded(**asked: Any) -> Any:
        if not _free.acquire(blocking=False):
            raise HTTPException(
                503, f"The page Lakehouse is busy with {_MOST_AT_ONCE} other questions, and asks again by itself."
            )
        found: Future[Any] = Future()
        found.set_running_or_notify_cancel()

        def ask() -> None:
            try:
                told, failed = answer(**asked), None
            except BaseException as error:
                told, failed = None, error
            _free.release()
            if failed is None:
                found.set_result(told)
            else:
                found.set_exception(failed)

        # The API server can stop although such a thread hangs, in contrast to one of a pool.
        threading.Thread(target=copy_context().run, args=(ask,), name="lakehouse", daemon=True).start()
        try:
            return await asyncio.wait_for(asyncio.wrap_future(found), _LONGEST)
        except TimeoutError:
            # The page does not repeat this by itself, as another question might take another thread for good.
            raise HTTPException(
                500,
                f"There was no answer within {_LONGEST:.0f} s. Nothing was changed: the store or a mount hangs, or the "
                "table is too large for the page: use the command `onelake`.",
            ) from None

    return bounded


@app.get("/static/{name}", include_in_schema=False)
def static(name: str) -> FileResponse:
    """Return a file of the page.

    :param name: of the file.
    """
    known = {path.name: path for path in _STATIC.iterdir()}
    if name not in known:
        raise HTTPException(404, f"The page has no file {name}.")
    kind = "text/javascript" if name.endswith(".js") else "text/plain"
    return FileResponse(known[name], media_type=kind, headers={"Cache-Control": "no-cache"})


@app.get("/lakehouses", dependencies=_MAY_SEE_TABLES)
@_bounded
def lakehouses() -> list[dict[str, Any]]:
    """Return the connections that the page may show, each with its lakehouse, or with the reason why it has none."""
    found: list[dict[str, Any]] = []
    for connection in shown_connections():
        try:
            with _errors_as_http():
                root = _lakehouse(_hook(connection))
                known = {"lakehouse": str(root), "in_onelake": root.kind.in_fabric, "error": None}
        except HTTPException as error:
            known = {"lakehouse": None, "in_onelake": False, "error": error.detail}
        found.append({"connection": connection, **known})
    return found


@app.get("/lakehouses/{connection}/tables", dependencies=_MAY_SEE_TABLES)
@_bounded
def tables(connection: str, user: User, find: str = "", page: int = 0) -> dict[str, Any]:
    """Return a page of a lakehouse's tables, what was changed last first. Directories are listed three levels deep.

    The newest version of 300 tables at most is read, by three requests each, and 50 of these are summed up as far as
    that is cheap. For somebody who may not read every DAG, each table is opened as well, to see whose it is.

    :param connection: the connection's id.
    :param user: who asks.
    :param find: part of the tables' paths, in small or in capital letters.
    :param page: the number of the page, from 0.
    """
    from airflow_provider_onelake.maintenance.overview import tables_below
    from airflow_provider_onelake.storage.concurrent import map_concurrently
    from airflow_provider_onelake.storage.stores import open_store
    from airflow_provider_onelake.table import Table
    from airflow_provider_onelake.view.tables import MOST_TABLES, page_of_tables

    with _errors_as_http():
        hook = _hook(connection)
        root = _lakehouse(hook)
        root.kind.check_is_there(root)
        store = open_store(root, hook.credentials(root), hook.patience)

        @cache
        def opened(path: str) -> Table:
            # Through a shortcut, OneLake reads by itself, so nobody asks where it leads.
            address = hook.address(path)
            return Table(address, hook.credentials(address), hook.patience, name=path)

        named = [path for path in tables_below(store) if path and find.lower() in path.lower()]
        found = named[:MOST_TABLES]
        if not reads_every_dag(user):
            seen = map_concurrently(store, lambda path: may_see(user, opened(path), hook.namespace), found)
            found = [path for path, shown in zip(found, seen, strict=True) if shown]
        shown = page_of_tables(store, found, lambda path: opened(path).log, page)
        return {**shown, "whole": len(named) <= MOST_TABLES}


@app.get("/lakehouses/{connection}/commits", dependencies=_MAY_SEE_TABLES)
@_bounded
def commits(
    connection: str,
    user: User,
    path: TablePath,
    before: int | None = None,
    limit: int = 50,
    dag: str = "",
    writer: str = "",
    operation: str = "",
    conflicts: bool = False,
    since: str | None = None,
    until: str | None = None,
) -> dict[str, Any]:
    """Return a page of a table's versions: one listing of the log's newest part, and one request a version.

    Of the versions that are looked at, those are returned that meet all conditions. An end that is a time costs a
    binary search more.

    :param connection: the connection's id.
    :param user: who asks.
    :param path: of the table.
    :param before: the version behind the page. Default: the page of the newest.
    :param limit: how many versions are looked at, at most 200.
    :param dag: part of the id of the DAG whose load made the version.
    :param writer: part of the key of a writer.
    :param operation: part of the operation's name.
    :param conflicts: whether only versions are returned that settled conflicts.
    :param since: the first version, or a time in ISO 8601, UTC by default.
    :param until: the last version, or a time.
    """
    from airflow_provider_onelake.view.commits import Wanted, bound, page_of_commits

    with _errors_as_http():
        wanted = Wanted(dag, writer, operation, conflicts, bound("since", since), bound("until", until))
        return page_of_commits(_table(connection, path, user)[1].log, before, limit, wanted)


@app.get("/lakehouses/{connection}/commits/{version}", dependencies=_MAY_SEE_TABLES)
@_bounded
def commit(connection: str, user: User, path: TablePath, version: int) -> dict[str, Any]:
    """Return all that is known of a version: one request, and two for each writer, of 50 at most.

    They are for the writer's claim, and for what its checks say. What is in the table now costs the newest snapshot,
    and a request for each version since, of 200.

    :param connection: the connection's id.
    :param user: who asks.
    :param path: of the table.
    :param version: of the table.
    """
    from airflow_provider_onelake.view.commits import checks_of, commit_in_full, task_of, tasks_of

    with _errors_as_http():
        hook, table = _table(connection, path, user)
        whole = commit_in_full(table.log, version)
        entry = table.log.commit(version)
        writers = entry.writers if entry else ()
        return {
            **whole,
            "task": task_of(entry, hook.namespace) if entry else None,
            "tasks": tasks_of(table.log, writers, hook.namespace),
            "checks": checks_of(table.log, writers),
        }


@app.get("/lakehouses/{connection}/now", dependencies=_MAY_SEE_TABLES)
@_bounded
def now(
    connection: str, user: User, path: TablePath, version: Annotated[list[int] | None, Query()] = None
) -> dict[int, list[dict[str, Any]]]:
    """Return what is in the table now of the rows of some versions: the newest snapshot, and 200 versions at most.

    :param connection: the connection's id.
    :param user: who asks.
    :param path: of the table.
    :param version: of the table; there may be several. Default: none.
    """
    from airflow_provider_onelake.view.commits import versions_now

    with _errors_as_http():
        return versions_now(_table(connection, path, user)[1].log, version or ())


@app.get("/lakehouses/{connection}/partitions", dependencies=_MAY_SEE_TABLES)
@_bounded
def partitions(connection: str, user: User, path: TablePath) -> dict[str, Any]:
    """Return the largest partitions of a table: the newest checkpoint and the entries after it are read.

    :param connection: the connection's id.
    :param user: who asks.
    :param path: of the table.
    """
    from airflow_provider_onelake.view.partitions import partitions_of

    with _errors_as_http():
        return partitions_of(_table(connection, path, user)[1].log)


@app.get("/lakehouses/{connection}/staged", dependencies=_MAY_SEE_TABLES)
@_bounded
def staged(connection: str, user: User, path: TablePath) -> dict[str, Any]:
    """Return what waits below a table's ``staged`` directory, by one listing of its first 20,000 objects.

    Versions that are kept readable cost a listing, and a request for each.

    :param connection: the connection's id.
    :param user: who asks.
    :param path: of the table.
    """
    from airflow_provider_onelake.view.staged import page_of_staged

    with _errors_as_http():
        hook, table = _table(connection, path, user)
        return page_of_staged(table.log, namespace=hook.namespace)


@app.get("/lakehouses/{connection}/health", dependencies=_MAY_SEE_TABLES)
@_bounded
def health(connection: str, user: User, path: TablePath) -> dict[str, Any]:
    """Return what is wrong with a table and what to do. It lists the whole table, so the page asks only on a click.

    :param connection: the connection's id.
    :param user: who asks.
    :param path: of the table.
    """
    from airflow_provider_onelake.maintenance.health import examine

    with _errors_as_http():
        return examine(_table(connection, path, user)[1].log).to_json()


@app.get("/lakehouses/{connection}/access", dependencies=_MAY_SEE_TABLES)
@_bounded
def access(connection: str, user: User, path: TablePath) -> dict[str, Any]:
    """Return what the connection's identity may do with a table, by reading alone, so the page asks only on a click.

    It costs one request to the store, or two through a shortcut. In OneLake, Fabric's REST is asked too: by one request
    for each folder of the path, and by four on each side of a shortcut.

    :param connection: the connection's id.
    :param user: who asks.
    :param path: of the table.
    """
    from airflow_provider_onelake.hooks.fabric import FabricHook
    from airflow_provider_onelake.view.access import page_of_access

    with _errors_as_http():
        address = _hook(connection).address(path)
        if address.kind.in_fabric and address.path.count("/") > _DEEPEST:
            said = f"Fabric is asked about each of its folders, and about {_DEEPEST} at most"
            raise HTTPException(409, f"{path} lies too deep: {said}.")
        hook, _ = _table(connection, path, user)
        return page_of_access(FabricHook(lakehouse=hook).look_up_access(path), connection, path)


def _hook(connection: str) -> OneLakeHook:
    """Return the hook of a connection that the page may show."""
    from airflow_provider_onelake.hooks.onelake import OneLakeHook

    if connection not in shown_connections():
        raise HTTPException(
            404, f"The page shows no connection {connection!r}: name it in [onelake] view_connections of airflow.cfg."
        )
    return OneLakeHook(connection, most_patience=_PATIENCE)


def _lakehouse(hook: OneLakeHook) -> TableAddress:
    """Return the directory that all tables of a connection lie in. Without one, a path could lead anywhere."""
    from airflow_provider_onelake.storage.addresses import TableAddress

    if hook.lakehouse is None:
        raise HTTPException(409, f"The connection {hook.onelake_conn_id!r} has no lakehouse, so there is none to show.")
    return TableAddress.parse_root(hook.lakehouse)


def _table(connection: str, path: str, user: BaseUser) -> tuple[OneLakeHook, Table]:
    """Return the hook and a table of its lakehouse, if the user may see it."""
    hook = _hook(connection)
    _lakehouse(hook)
    table = hook.table(path)
    # Opening a local store makes its directory, and looking at a table must not.
    table.address.kind.check_is_there(table.address)
    if not reads_every_dag(user) and not may_see(user, table, hook.namespace):
        raise HTTPException(403, f"{path} is written by DAGs that you may not read, so you may not see it either.")
    return hook, table


@contextmanager
def _errors_as_http() -> Iterator[None]:
    """Say errors as HTTP does, with their message: what is not there, what is not allowed, what does not answer.

    An error that nobody foresaw is in the API server's log. The page says no more of it than its type, as its message
    may hold anything.
    """
    from airflow.providers.common.compat.sdk import AirflowNotFoundException

    from airflow_provider_onelake._airflow import AirflowSecretsBackendAccessDenied
    from airflow_provider_onelake.exceptions import OneLakeError, TableNotFoundError, TransientError, with_page

    try:
        yield
    except HTTPException:
        raise
    except AirflowNotFoundException as error:
        # Airflow says the same of a connection that it cannot read.
        more = "or it cannot be read: its Fernet key is another one, or its secrets backend does not answer."
        raise HTTPException(404, f"{error}, {more}") from error
    except AirflowSecretsBackendAccessDenied as error:
        raise HTTPException(403, "Airflow's secrets backend refuses the connection to the API server.") from error
    except TableNotFoundError as error:
        raise HTTPException(404, with_page(error)) from error
    except TransientError as error:
        raise HTTPException(503, with_page(error)) from error
    except OneLakeError as error:
        raise HTTPException(409, with_page(error)) from error
    except Exception as error:
        logger.exception("The page Lakehouse could not be answered")
        said = f"Airflow's API server met an error that was not expected: {type(error).__name__}. Its log says more."
        raise HTTPException(500, said) from error
