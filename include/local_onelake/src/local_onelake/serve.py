"""The server: one port, one process, one directory."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

import uvicorn
from starlette.types import Scope

from local_onelake.app import OneLakeApp, Watch, is_ours, unwatched
from local_onelake.front import FrontServer
from local_onelake.lake import Lake

HOST = "127.0.0.1"
_STARTING = 30
"""Seconds that a server may take to start or to end."""


class _Connections:
    """The connections of a server, closed without an answer where one is to be lost."""

    def __init__(self) -> None:
        self.server: uvicorn.Server | None = None

    def hang_up(self, scope: Scope) -> None:
        """Close the connection that a request came by."""
        assert self.server is not None
        for connection in list(self.server.server_state.connections):
            transport: asyncio.Transport | None = getattr(connection, "transport", None)
            if transport is not None and transport.get_extra_info("peername") == tuple(scope["client"]):
                transport.abort()


def listen(port: int = 0, host: str = HOST) -> socket.socket:
    """Return a socket that listens.

    :param port: of it. Default: any that is free.
    :param host: an IPv4 address or a name of this machine; ``0.0.0.0`` is every address that it has. Default: this
        machine only.
    :raises OSError: the port is taken, or the host is not this machine.
    """
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((host, port))
        made.listen(256)
    except OSError:
        made.close()
        raise
    return made


def serve(lake: Lake, at: socket.socket, context: ssl.SSLContext | None = None) -> None:
    """Serve until the process is told to stop.

    :param lake: to be served.
    :param at: that listens.
    :param context: with which TLS is answered, beside plain HTTP. Default: there is no TLS.
    """
    _server(lake, context).run([at])


@contextmanager
def running(
    lake: Lake, watch: Watch = unwatched, port: int = 0, context: ssl.SSLContext | None = None
) -> Iterator[str]:
    """Serve in a thread of this process, and yield the address; what is asked when it ends is answered first.

    :param lake: to be served; it stays open.
    :param watch: see :class:`OneLakeApp`. Default: nobody.
    :param port: Default: any that is free.
    :param context: see :func:`serve`.
    """
    with closing(listen(port)) as at:
        server = _server(lake, context, watch)
        thread = threading.Thread(target=server.run, args=([at],), name="onelake", daemon=True)
        thread.start()
        try:
            # Requests wait in the socket until the server takes them, so nobody waits for it here.
            yield f"http://{HOST}:{at.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(_STARTING)


def _server(lake: Lake, context: ssl.SSLContext | None, watch: Watch = unwatched) -> uvicorn.Server:
    connections = _Connections()
    app = OneLakeApp(lake, connections.hang_up, watch)
    # Of uvicorn's two, h11 alone leaves the names of headers as they are spelled.
    config = uvicorn.Config(
        app, http="h11", lifespan="off", log_level="warning", access_log=False, timeout_keep_alive=75
    )
    connections.server = uvicorn.Server(config) if context is None else FrontServer(config, context, is_ours)
    return connections.server
