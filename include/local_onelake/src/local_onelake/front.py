"""One port for plain HTTP, for TLS, and for the tunnels of clients that take the server for their proxy.

Clients that insist on TLS also insist on OneLake's own hosts. With ``HTTPS_PROXY`` they ask a proxy for a tunnel to
such a host (``CONNECT host:443``), and speak TLS in it. Here the tunnel ends at this server itself. A tunnel to any
other host is refused, so nothing leaves this machine by it.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Coroutine
from typing import Any

import uvicorn

logger = logging.getLogger(__name__)

_HANDSHAKE = 0x16
"""The first byte of a client that speaks TLS."""
_CONNECT = b"CONNECT "
_LONGEST_HEAD = 16 << 10
_GRANTED = b"HTTP/1.1 200 Connection established\r\n\r\n"
_NOT_OURS = b"HTTP/1.1 403 This local OneLake is the proxy of no such host\r\nContent-Length: 0\r\n\r\n"
_PATIENCE = 75
"""Seconds for which a client may say nothing."""
_GOODBYE = 1.0
"""Seconds in which a client may answer the end of a TLS connection."""


class FrontServer(uvicorn.Server):
    """A server whose sockets take plain HTTP, TLS and tunnels.

    :param config: of uvicorn, without TLS.
    :param context: with which TLS is answered.
    :param is_ours: says whether a tunnel to a host ends here.
    """

    def __init__(self, config: uvicorn.Config, context: ssl.SSLContext, is_ours: Callable[[str], bool]) -> None:
        super().__init__(config)
        self._context = context
        self._is_ours = is_ours
        self._tasks: set[asyncio.Task[None]] = set()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen: see :class:`uvicorn.Server`."""
        await super().startup(sockets=[])
        for each in sockets or []:
            each.setblocking(False)
            self._begin(self._accept(each))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take no more connections, and end: see :class:`uvicorn.Server`."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await super().shutdown(sockets)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self, at: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                client, _ = await loop.sock_accept(at)
            except OSError as error:
                # Too many connections: those that end make room.
                logger.warning("A connection was not taken: %s", error)
                await asyncio.sleep(0.1)
                continue
            self._begin(self._take(client))

    async def _take(self, client: socket.socket) -> None:
        """Hand a connection over to whoever speaks what it speaks."""
        handed_over = False
        try:
            async with asyncio.timeout(_PATIENCE):
                first = await _peek(client)
                if first == _CONNECT[:1]:
                    # No other method begins with this letter.
                    first = await _peek(client) if await self._open_tunnel(client) else b""
                if not first:
                    return
                context = self._context if first[0] == _HANDSHAKE else None
                # The transport closes it from here on.
                handed_over = True
                # A client that is idle need not hear of the end for the server to end.
                more = {} if context is None else {"ssl_shutdown_timeout": _GOODBYE}
                loop = asyncio.get_running_loop()
                await loop.connect_accepted_socket(self._protocol, client, ssl=context, **more)
        except (OSError, TimeoutError) as error:
            # A client that does not trust the certificate, or that has gone.
            logger.info("A connection came to nothing: %s", error)
        finally:
            if not handed_over:
                client.close()

    async def _open_tunnel(self, client: socket.socket) -> bool:
        """Answer a client that asks its proxy for a tunnel. Without one, the connection is of no further use."""
        loop, head = asyncio.get_running_loop(), b""
        # The client says nothing further before it is answered.
        while not head.endswith(b"\r\n\r\n"):
            more = await loop.sock_recv(client, _LONGEST_HEAD)
            head += more
            if not more or len(head) > _LONGEST_HEAD:
                return False
        host = head.removeprefix(_CONNECT).split(b":", 1)[0].decode(errors="replace")
        ours = head.startswith(_CONNECT) and self._is_ours(host)
        # An answer to CONNECT that grants it has no body, and so no length of one.
        await loop.sock_sendall(client, _GRANTED if ours else _NOT_OURS)
        return ours

    def _protocol(self) -> asyncio.Protocol:
        make: Any = self.config.http_protocol_class
        made: asyncio.Protocol = make(config=self.config, server_state=self.server_state, app_state=self.lifespan.state)
        return made


async def _peek(client: socket.socket) -> bytes:
    """Return the first byte that a client has sent, and leave it there; nothing if the client has gone."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(client, lambda: None if ready.done() else ready.set_result(None))
    try:
        await ready
    finally:
        loop.remove_reader(client)
    return client.recv(1, socket.MSG_PEEK)
