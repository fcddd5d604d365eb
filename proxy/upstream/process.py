"""A server as a child process: JSON-RPC lines on its pipes, its stderr kept off the protocol, its end bounded."""

import os
import signal
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import ExitStack, asynccontextmanager
from typing import Final

import anyio
import anyio.lowlevel
import structlog

from proxy.core.server import StdioServer
from proxy.upstream.failure import Failure
from proxy.upstream.spawn import Spawned
from proxy.upstream.stderr import TAIL_WIDTH, Stderr
from proxy.wire.dispatcher import LineDispatcher
from proxy.wire.pipes import Sink, Source
from proxy.wire.standard_streams import widen
from proxy.wire.turns import Turns

log = structlog.stdlib.get_logger("proxy.upstream")

LAST_WORDS: Final = 0.8
"""Seconds that a child has to end whose output has closed: who waits for an answer hears of it within one."""
REAP: Final = 1.0
"""Seconds to see the end of a child that was killed."""
POLL: Final = 0.01
WATCH_POLL: Final = 0.25
"""Seconds from one look at a process that runs to the next, where the system does not tell of its end."""
DRAIN: Final = 2.0
"""Seconds to read what a process has written before its end, where others that hold its pipes write on and on."""
MAX_NOISE_READ: Final = 16 * 1024
"""Bytes of a line that are looked at for secrets before it is cut to what the log has of it."""


class Child:
    """A running server: `dispatcher` speaks with it, and `stderr` has what it last said there."""

    def __init__(
        self,
        server: StdioServer,
        spawned: Spawned,
        source: Source,
        sink: Sink,
        stderr: Stderr,
        *,
        mask: Callable[[str], str],
        turns: Turns,
        unwanted: Callable[[bytes], bool],
    ) -> None:
        self._key = server.key
        self._mask = mask
        self._spawned = spawned
        self._sink = sink
        self._noise = 0
        self._stderr = stderr
        self.dispatcher = LineDispatcher(
            source, sink, self._hear_noise, limit=server.max_message_size, turns=turns, unwanted=unwanted
        )

    @property
    def unheard(self) -> bool:
        """Whether it has ended, or closed its input, without having read anything."""
        return self._sink.unread

    async def last_words(self) -> Failure:
        """How it ended, with its last lines of stderr as the detail; waits a moment for both.

        Where the proxy has ended the connection, it is why.
        """
        if self.dispatcher.fault:
            return Failure(self.dispatcher.fault)
        with anyio.move_on_after(LAST_WORDS):
            await _ended(self._spawned)
            await self._stderr.ended.wait()
        code = self._spawned.process.returncode
        if code is None:
            how = "it closed its output"
        elif code < 0:
            how = f"the process was ended by {_signal_name(-code)}"
        else:
            how = f"the process ended with exit code {code}"
        said = self._stderr.tail()
        return Failure(how, f"its last output: {said}" if said else "")

    def _hear_noise(self, line: bytes, _: str) -> None:
        """Noise on stdout is counted and named, and stops nothing."""
        self._noise += 1
        if self._noise & (self._noise - 1) == 0:  # the 1st, 2nd, 4th, 8th …: a flood stays readable
            text = self._mask(line[:MAX_NOISE_READ].decode("utf-8", "replace"))[:TAIL_WIDTH]
            log.warning("server.noise", server=self._key, lines=self._noise, line=text)


@asynccontextmanager
async def child_process(
    server: StdioServer,
    mask: Callable[[str], str],
    start: Callable[[StdioServer], Spawned],
    *,
    turns: Turns,
    unwanted: Callable[[bytes], bool],
) -> AsyncGenerator[Child]:
    """A process of `server` that `start` gives, in a group of its own.

    The process is the server: with its end the connection ends, whoever else holds its pipes. On leaving, the whole
    group ends within twice `stop_timeout` and a second.

    `mask` takes secrets out of what the child says on stderr. `turns`: for what it sends unasked, `unwanted`: whether
    a line of it is of no use.

    Raises:
        OSError: it cannot be started.
    """
    spawned = start(server)
    # No await from here to the block: a cancellation in between would leave the process behind.
    with ExitStack() as ends:
        sink, source, stderr = Sink(spawned.stdin), Source(spawned.stdout), Source(spawned.stderr)
        for end in (sink, source, stderr):
            ends.callback(end.close)
        widen(spawned.stdin)
        widen(spawned.stdout)
        try:
            said = Stderr(server.key, stderr, mask, turns)
            await said.start()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_close_at_end, spawned, source, stderr)
                yield Child(server, spawned, source, sink, said, mask=mask, turns=turns, unwanted=unwanted)
                tasks.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                await _stop(spawned, sink, server.stop_timeout)
                sink.abort()
                ends.close()
                await anyio.lowlevel.checkpoint()  # the pipes close a turn of the loop later


async def _close_at_end(spawned: Spawned, *outputs: Source) -> None:
    """Close `outputs` when the process has ended and what it had written is read: others may hold them for ever."""
    await _ended(spawned, WATCH_POLL)
    with anyio.move_on_after(DRAIN):
        while any(output.has_more for output in outputs):  # noqa: ASYNC110 - nothing tells that a pipe is empty
            await anyio.sleep(POLL)
    for output in outputs:
        output.close()


async def _stop(spawned: Spawned, stdin: Sink, patience: float) -> None:
    """End of input, then SIGTERM to the group, then SIGKILL, each `patience` seconds after the one before.

    Children that the process leaves behind get the signals too.
    """
    stdin.close()
    with anyio.move_on_after(patience):
        await _ended(spawned)
    if spawned.process.returncode is not None and not spawned.group_lives():
        return
    spawned.signal(signal.SIGTERM)
    with anyio.move_on_after(patience):
        await _ended(spawned)
        while spawned.group_lives():  # noqa: ASYNC110 - nothing tells of the end of a group
            await anyio.sleep(POLL)
        return
    spawned.signal(signal.SIGKILL if sys.platform != "win32" else signal.SIGTERM)
    with anyio.move_on_after(REAP):
        await _ended(spawned)


async def _ended(spawned: Spawned, poll: float = POLL) -> None:
    """Wait for the end of the process: told by the system on Linux, else by a look every `poll` seconds."""
    if sys.platform == "linux" and spawned.process.poll() is None:
        try:
            descriptor = os.pidfd_open(spawned.process.pid)
        except OSError:  # not in every sandbox, nor with every number of open files
            pass
        else:
            try:
                await anyio.wait_readable(descriptor)
            finally:
                os.close(descriptor)
    while spawned.process.poll() is None:  # noqa: ASYNC110 - as said
        await anyio.sleep(poll)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
