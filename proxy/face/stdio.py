"""The protocol on this process's stdin and stdout, which nothing else can read or write meanwhile."""

import asyncio
import os
import stat
import sys
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, cast

import anyio
import structlog
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCMessage, JSONRPCNotification, JSONRPCRequest, RequestId, jsonrpc_message_adapter
from pydantic import ValidationError

from proxy.core.lines import LineBuffer

log = structlog.stdlib.get_logger("proxy.face")

CHUNK: Final = 64 * 1024
LAST_ANSWERS: Final = 1.0
"""Seconds after the end of input for answers that are still due: `printf REQUESTS | mcp-skill-proxy serve` works."""


async def serve_stdio(server: Server[Any]) -> None:
    """Serve one client until its input ends or its end of our output closes."""
    async with _wire() as (read, write):
        await server.run(read, write, server.create_initialization_options(NotificationOptions()))


@asynccontextmanager
async def _wire() -> AsyncGenerator[
    tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]
]:
    """Claim stdin and stdout: whatever else reads finds the end of input, whatever else writes lands on stderr.

    The SDK's transport reads in a thread that cannot be cancelled, which keeps the process alive after SIGTERM.
    """
    source, sink = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    incoming, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
    chunks = asyncio.StreamReader()
    out = await _output(sink, polled=_can_be_polled(sink, source))
    async with anyio.create_task_group() as tasks:
        await _input(source, chunks, polled=_can_be_polled(source, sink))
        due = _Due()
        tasks.start_soon(_read, chunks, incoming, due)
        tasks.start_soon(_write, outgoing, out, incoming, due)
        tasks.start_soon(_watch, out, incoming)
        yield read, write
        tasks.cancel_scope.cancel()


class _Due:
    """The requests that came and are not answered yet; `closed`: nobody waits for an answer any more."""

    closed = False

    def __init__(self) -> None:
        self._ids: set[RequestId] = set()
        self._none = anyio.Event()

    def note(self, message: JSONRPCMessage) -> None:
        """Take note of a request that came, or was cancelled, and of an answer that went out."""
        if isinstance(message, JSONRPCRequest):
            if message.method != "subscriptions/listen":  # answered at its end alone
                self._ids.add(message.id)
            return
        if isinstance(message, JSONRPCNotification):
            over = (message.params or {}).get("requestId") if message.method == "notifications/cancelled" else None
        else:
            over = message.id
        if isinstance(over, str | int):
            self._ids.discard(over)
        if not self._ids:
            self._none.set()
            self._none = anyio.Event()

    async def answered(self) -> None:
        """Wait until nothing is due."""
        while self._ids:
            await self._none.wait()


async def _read(
    chunks: asyncio.StreamReader, incoming: MemoryObjectSendStream[SessionMessage | Exception], due: _Due
) -> None:
    buffer = LineBuffer()
    with incoming, suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
        more = True
        while more:
            chunk = await chunks.read(CHUNK)
            more = bool(chunk)
            for line in buffer.feed(chunk or b"\n"):  # the end of input ends the last line
                if not line.strip():
                    continue
                try:
                    message = jsonrpc_message_adapter.validate_json(line, by_name=False)
                except ValidationError as error:
                    log.warning("client.noise", problem=error.errors(include_url=False, include_input=False)[0]["msg"])
                    continue
                due.note(message)
                await incoming.send(SessionMessage(message))
        with anyio.move_on_after(LAST_ANSWERS):
            await due.answered()
        due.closed = True


async def _write(
    outgoing: MemoryObjectReceiveStream[SessionMessage],
    out: "_Output",
    incoming: MemoryObjectSendStream[SessionMessage | Exception],
    due: _Due,
) -> None:
    with outgoing:
        async for item in outgoing:
            if due.closed:  # what is left are errors, for requests that end with us
                continue
            try:
                await out.send(item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
            except OSError:
                incoming.close()  # nobody reads us: the same as the end of input
                return
            due.note(item.message)


async def _watch(out: "_Output", incoming: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
    """Nobody reads us any more: the same as the end of input."""
    await out.lost.wait()
    incoming.close()


class _Output(asyncio.Protocol):
    """The writing end: `send` waits while the reader does not keep up.

    Raises:
        OSError: (from `send`) the reader is gone.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._transport: asyncio.WriteTransport | None = None
        self._writable = anyio.Event()
        self._writable.set()
        self.lost = anyio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.WriteTransport", transport)
        self._transport.set_write_buffer_limits(high=0)  # `send` returns when all is written: the program may end then

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        self.lost.set()
        self._writable.set()

    def pause_writing(self) -> None:
        self._writable = anyio.Event()

    def resume_writing(self) -> None:
        self._writable.set()

    async def send(self, data: bytes) -> None:
        if self._transport is None:
            await anyio.to_thread.run_sync(_write_all, self._fd, data, abandon_on_cancel=True)
            return
        await self._writable.wait()
        if self.lost.is_set():
            raise BrokenPipeError
        self._transport.write(data)
        await self._writable.wait()


async def _output(fd: int, *, polled: bool) -> _Output:
    out = _Output(fd)
    if polled:
        await asyncio.get_running_loop().connect_write_pipe(lambda: out, os.fdopen(fd, "wb", buffering=0))
    return out


async def _input(fd: int, chunks: asyncio.StreamReader, *, polled: bool) -> None:
    loop = asyncio.get_running_loop()
    if polled:
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(chunks), os.fdopen(fd, "rb", buffering=0))
        return

    def pump() -> None:
        # A file, a terminal, /dev/null: reading blocks, in a thread that does not keep the process alive.
        with suppress(RuntimeError):  # the loop has ended
            while chunk := os.read(fd, CHUNK):
                loop.call_soon_threadsafe(chunks.feed_data, chunk)
            loop.call_soon_threadsafe(chunks.feed_eof)

    threading.Thread(target=pump, name="stdin", daemon=True).start()


def _can_be_polled(fd: int, other: int) -> bool:
    """Whether asyncio can wait for `fd`: on a socket for both ways it would take what comes in for our reader's end."""
    mode = os.fstat(fd).st_mode
    return (
        not os.path.sameopenfile(fd, other) and sys.platform != "win32" and (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode))
    )


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
