"""A server as a child process: JSON-RPC lines on its pipes, its stderr kept off the protocol, its end bounded."""

import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from math import inf
from typing import Final

import anyio
import anyio.lowlevel
import structlog
from anyio.abc import ByteReceiveStream, ByteSendStream, Process
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter
from pydantic import ValidationError

from proxy.core.lines import LineBuffer
from proxy.core.server import StdioServer

log = structlog.stdlib.get_logger("proxy.upstream")

GRACE: Final = 1.2
"""Seconds a child has to end by itself once its input has ended, and again once it was asked by SIGTERM."""
REAP: Final = 1.0
"""Seconds to see the end of a child that was killed."""
TAIL_LINES: Final = 5
TAIL_WIDTH: Final = 300

_GONE = (anyio.ClosedResourceError, anyio.BrokenResourceError, anyio.EndOfStream, OSError)


class Child:
    """A running server: the streams of the session, and what it last said on stderr."""

    def __init__(
        self,
        process: Process,
        read: MemoryObjectReceiveStream[SessionMessage | Exception],
        write: MemoryObjectSendStream[SessionMessage],
    ) -> None:
        self._process = process
        self.read = read
        self.write = write
        self.tail: deque[str] = deque(maxlen=TAIL_LINES)
        self.stderr_ended = anyio.Event()

    async def last_words(self) -> str:
        """How it ended and its last lines of stderr, in one line; waits a moment for both."""
        with anyio.move_on_after(GRACE):
            await _ended(self._process)
            await self.stderr_ended.wait()
        code = self._process.returncode
        if code is None:
            how = "it closed its output"
        elif code < 0:
            how = f"the process was ended by {_signal_name(-code)}"
        else:
            how = f"the process ended with exit code {code}"
        said = " | ".join(line[:TAIL_WIDTH] for line in self.tail)
        return f"{how}; its last output: {said}" if said else how


@asynccontextmanager
async def child_process(server: StdioServer, mask: Callable[[str], str]) -> AsyncGenerator[Child]:
    """Run `server` in a process group of its own; on leaving, the whole group ends within about 4 s.

    `mask` takes secrets out of what the child says on stderr.

    Raises:
        OSError: it cannot be started.
    """
    process = await anyio.open_process(
        [server.command, *server.args],
        env=server.env,
        cwd=server.cwd,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    # No await from here to the task group: a cancellation in between would leave the process behind.
    incoming, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    # Without bound: cancelling a call must not wait for a child that has stopped reading.
    write, outgoing = anyio.create_memory_object_stream[SessionMessage](inf)
    child = Child(process, read, write)
    stdin, stdout, stderr = process.stdin, process.stdout, process.stderr
    if stdin is None or stdout is None or stderr is None:
        raise AssertionError
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_read_messages, server.key, stdout, incoming)
        tasks.start_soon(_write_messages, stdin, outgoing, incoming)
        tasks.start_soon(_read_stderr, server.key, stderr, child, mask)
        try:
            yield child
        finally:
            with anyio.CancelScope(shield=True):
                read.close()
                write.close()
                await _stop(process)
                tasks.cancel_scope.cancel()
                await _close_pipes(process)


async def _read_messages(
    key: str, stdout: ByteReceiveStream, incoming: MemoryObjectSendStream[SessionMessage | Exception]
) -> None:
    """Pass on each line that is a JSON-RPC message; noise on stdout is counted and named, and stops nothing."""
    noise = 0
    with incoming:
        async for line in _lines(stdout):
            if not line.strip():
                continue
            try:
                message = jsonrpc_message_adapter.validate_json(line, by_name=False)
            except ValidationError:
                noise += 1
                if noise & (noise - 1) == 0:  # the 1st, 2nd, 4th, 8th …: a flood stays readable
                    log.warning("server.noise", server=key, lines=noise, line=line[:TAIL_WIDTH])
                continue
            with suppress(*_GONE):  # nobody listens any more: go on reading, so that the child can end
                await incoming.send(SessionMessage(message))


async def _write_messages(
    stdin: ByteSendStream,
    outgoing: MemoryObjectReceiveStream[SessionMessage],
    incoming: MemoryObjectSendStream[SessionMessage | Exception],
) -> None:
    with outgoing:
        async for item in outgoing:
            line = item.message.model_dump_json(by_alias=True, exclude_unset=True)
            try:
                await stdin.send(line.encode() + b"\n")
            except _GONE:
                incoming.close()  # the session sees the end of the connection
                return


async def _read_stderr(key: str, stderr: ByteReceiveStream, child: Child, mask: Callable[[str], str]) -> None:
    try:
        async for line in _lines(stderr):
            if text := mask(line.strip()):
                child.tail.append(text)
                log.debug("server.stderr", server=key, line=text)
    finally:
        child.stderr_ended.set()


async def _lines(stream: ByteReceiveStream) -> AsyncGenerator[str]:
    """The lines of a byte stream until it ends."""
    buffer = LineBuffer()
    with suppress(*_GONE):
        while True:
            for line in buffer.feed(await stream.receive()):
                yield line
    if rest := buffer.rest():
        yield rest


async def _stop(process: Process) -> None:
    """End of input, then SIGTERM to the group, then SIGKILL; children it leaves behind get the signals too."""
    if process.stdin is not None:
        with suppress(*_GONE):
            await process.stdin.aclose()
    with anyio.move_on_after(GRACE):
        await _ended(process)
    if process.returncode is not None and not _group_lives(process):
        return
    _signal_group(process, signal.SIGTERM)
    with anyio.move_on_after(GRACE):
        await _ended(process, whole_group=True)
        return
    _signal_group(process, signal.SIGKILL if sys.platform != "win32" else signal.SIGTERM)
    with anyio.move_on_after(REAP):
        await _ended(process)


async def _ended(process: Process, *, whole_group: bool = False) -> None:
    while process.returncode is None or (whole_group and _group_lives(process)):  # noqa: ASYNC110 - see below
        # Waiting for the process waits for its pipes too, and a grandchild may hold them.
        await anyio.sleep(0.01)


def _group_lives(process: Process) -> bool:
    if sys.platform == "win32":
        return False
    try:
        os.killpg(process.pid, 0)
    except OSError:
        return False
    return True


def _signal_group(process: Process, number: signal.Signals) -> None:
    with suppress(OSError):
        if sys.platform == "win32":
            process.kill()
        else:
            os.killpg(process.pid, number)


async def _close_pipes(process: Process) -> None:
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            with suppress(*_GONE):
                await pipe.aclose()
    # What a grandchild still holds stays open all the same; nothing public closes it, here as in the SDK.
    transport = getattr(getattr(process, "_process", None), "_transport", None)
    if transport is not None:
        transport.close()
        await anyio.lowlevel.checkpoint()


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
