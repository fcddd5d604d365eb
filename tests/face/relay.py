"""A TCP relay before the proxy, as routers, tunnels and load balancers are: it cuts idle connections, or goes dead."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from math import inf
from urllib.parse import urlsplit, urlunsplit

import anyio
from anyio.abc import SocketAttribute, SocketStream


class Relay:
    """Passes bytes on both ways.

    `url`: where it listens. `idle`: seconds after which it cuts a connection on which nothing was sent. `cuts`: how
    often it has done so.
    """

    def __init__(self, url: str, target: int, idle: float) -> None:
        self.url = url
        self.cuts = 0
        self._target = target
        self._idle = idle
        self._dead: set[anyio.CancelScope] = set()
        self._lines: set[anyio.CancelScope] = set()

    def go_dead(self) -> None:
        """From now on pass nothing on of the connections that there are, and do not close them either."""
        self._dead |= self._lines

    def cut(self) -> None:
        """Cut the connections that there are."""
        for line in self._lines:
            line.cancel()

    async def pass_on(self, client: SocketStream) -> None:
        async with client, await anyio.connect_tcp("127.0.0.1", self._target) as server:
            with anyio.CancelScope(deadline=anyio.current_time() + self._idle) as line:
                self._lines.add(line)
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._pump, client, server, line)
                    tasks.start_soon(self._pump, server, client, line)
            self._lines.discard(line)
            self.cuts += line.cancelled_caught and anyio.current_time() >= line.deadline

    async def _pump(self, source: SocketStream, sink: SocketStream, line: anyio.CancelScope) -> None:
        try:
            async for chunk in source:
                if line not in self._dead:
                    line.deadline = anyio.current_time() + self._idle
                    await sink.send(chunk)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass
        if line not in self._dead:
            line.deadline = inf
            line.cancel()


@asynccontextmanager
async def relay(url: str, idle: float = inf) -> AsyncGenerator[Relay]:
    """A relay in front of what listens at `url`."""
    parts = urlsplit(url)
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(SocketAttribute.local_port)  # noqa: S610 - no Django here
    assert parts.port is not None
    made = Relay(urlunsplit(parts._replace(netloc=f"127.0.0.1:{port}")), parts.port, idle)
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, made.pass_on)
        yield made
        tasks.cancel_scope.cancel()
