"""A TCP relay before a server, as routers, tunnels and load balancers are: it cuts, goes dead, resets and refuses."""

import socket
import struct
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from math import inf
from typing import Final, Literal, TypeAlias
from urllib.parse import urlsplit, urlunsplit

import anyio
from anyio.abc import TaskGroup

CHUNK: Final = 64 * 1024
RESET: Final = struct.pack("ii", 1, 0)
"""For SO_LINGER: closing drops what was not sent yet, and the other side sees a reset instead of an end."""

Fate: TypeAlias = Literal["passed on", "dead", "cut", "reset"]
"""What becomes of a connection: a `dead` one passes nothing on and stays open."""


class _Line:
    """One connection through the relay; `dead`: it passes nothing on."""

    def __init__(self, client: socket.socket, idle: float) -> None:
        self.scope = anyio.CancelScope(deadline=anyio.current_time() + idle)
        self.dead = False
        self.ends = [client]

    def cut(self) -> None:
        """End it."""
        self.scope.cancel()

    def reset(self) -> None:
        """Break it off."""
        for end in self.ends:
            end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self.scope.cancel()


class Relay:
    """Passes bytes on both ways.

    `url`: where it listens. `idle`: seconds after which it cuts a connection on which nothing was sent. `cuts`: how
    often it has done so. `newcomers`: what becomes of connections that are made from now on. `lost`: what dead
    connections have not passed on.
    """

    def __init__(self, url: str, target: int, idle: float, listener: socket.socket, tasks: TaskGroup) -> None:
        self.url = url
        self.cuts = 0
        self.newcomers: Fate = "passed on"
        self.lost = bytearray()
        self._address = listener.getsockname()
        self._target = target
        self._idle = idle
        self._tasks = tasks
        self._lines: set[_Line] = set()
        self._listen(listener)

    def go_dead(self) -> None:
        """From now on pass nothing on of the connections that there are, and do not close them either."""
        for line in self._lines:
            line.dead = True

    def cut(self) -> None:
        """Cut the connections that there are."""
        for line in self._lines:
            line.cut()

    def reset(self) -> None:
        """Break off the connections that there are."""
        for line in self._lines:
            line.reset()

    @asynccontextmanager
    async def refusing(self) -> AsyncGenerator[None]:
        """New connections are refused inside; those that there are stay."""
        self._listening.cancel()
        await self._closed.wait()
        yield
        self._listen(socket.create_server(self._address))

    def _listen(self, listener: socket.socket) -> None:
        listener.setblocking(False)
        self._listening, self._closed = anyio.CancelScope(), anyio.Event()
        self._tasks.start_soon(self._accept, listener, self._listening, self._closed)

    async def _accept(self, listener: socket.socket, scope: anyio.CancelScope, closed: anyio.Event) -> None:
        try:
            with listener, scope:
                while True:
                    await anyio.wait_readable(listener)
                    client, _ = listener.accept()
                    self._tasks.start_soon(self._pass_on, client)
        finally:
            closed.set()

    async def _pass_on(self, client: socket.socket) -> None:
        line = _Line(client, self._idle)
        line.dead = self.newcomers == "dead"
        with client, socket.socket() as server, line.scope:
            for end in (client, server):
                end.setblocking(False)
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            line.ends.append(server)
            self._lines.add(line)
            if self.newcomers == "cut":
                line.cut()
            elif self.newcomers == "reset":
                line.reset()
            with suppress(OSError):
                await _connect(server, self._target)
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._pump, client, server, line)
                    tasks.start_soon(self._pump, server, client, line)
        self._lines.discard(line)
        self.cuts += line.scope.cancelled_caught and anyio.current_time() >= line.scope.deadline

    async def _pump(self, source: socket.socket, sink: socket.socket, line: _Line) -> None:
        with suppress(OSError):
            while chunk := await _receive(source):
                if line.dead:
                    self.lost += chunk
                else:
                    line.scope.deadline = anyio.current_time() + self._idle
                    await _send(sink, chunk)
        if not line.dead:
            line.scope.deadline = inf
            line.cut()


async def _connect(server: socket.socket, port: int) -> None:
    with suppress(BlockingIOError):
        server.connect(("127.0.0.1", port))
    await anyio.wait_writable(server)


async def _receive(source: socket.socket) -> bytes:
    await anyio.wait_readable(source)
    return source.recv(CHUNK)


async def _send(sink: socket.socket, data: bytes) -> None:
    while data:
        await anyio.wait_writable(sink)
        data = data[sink.send(data) :]


@asynccontextmanager
async def relay(url: str, idle: float = inf) -> AsyncGenerator[Relay]:
    """A relay in front of what listens at `url`."""
    parts = urlsplit(url)
    assert parts.port is not None
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    async with anyio.create_task_group() as tasks:
        yield Relay(urlunsplit(parts._replace(netloc=f"127.0.0.1:{port}")), parts.port, idle, listener, tasks)
        tasks.cancel_scope.cancel()
