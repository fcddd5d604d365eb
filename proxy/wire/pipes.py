"""Descriptors as the ends of asyncio transports: reading that can be paused, writing that can be waited for."""

import asyncio
import os
import queue
import struct
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final, cast

import anyio

from proxy.wire.standard_streams import PIPE_SIZE

if sys.platform != "win32":
    import fcntl
    import termios

CHUNK: Final = 64 * 1024
ROOM: Final = 256 * 1024
"""Bytes that may wait to be taken before who writes has to wait."""

bytes(4 * PIPE_SIZE)
# glibc takes the largest block that was given back as the measure of what to keep: without this, each message of 1 MiB
# costs a thousand page faults, which is half its time.


class Source(asyncio.Protocol):
    """The end of `fd` that is read, which it owns.

    `polled`: see `standard_streams.can_be_polled`. `read`: what somebody has read from it before, which comes first.
    """

    def __init__(self, fd: int, *, polled: bool = True, read: bytes = b"") -> None:
        self._fd = fd
        self._polled = polled
        self._read = read
        self._paused = False
        self._transport: asyncio.ReadTransport | None = None
        self._on_data: Callable[[bytes], None]
        self._on_end: Callable[[], None]

    async def start(self, on_data: Callable[[bytes], None], on_end: Callable[[], None]) -> None:
        """Read: `on_data` gets each chunk, and `on_end` is called once after the last."""
        self._on_data, self._on_end = on_data, on_end
        if self._read:
            on_data(self._read)
            self._read = b""
        fd, self._fd = self._fd, -1
        if self._polled:
            await asyncio.get_running_loop().connect_read_pipe(lambda: self, os.fdopen(fd, "rb", buffering=0))
        else:
            self._transport = _ThreadReader(fd, self)
        if self._paused:  # by what `read` has caused
            self.pause()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.ReadTransport", transport)

    def data_received(self, data: bytes) -> None:
        """Pass the chunk on."""
        self._on_data(data)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        """Pass the end on."""
        self._on_end()

    @property
    def has_more(self) -> bool:
        """Whether something has been written to it that was not read yet."""
        transport = self._transport
        pipe = None if transport is None or transport.is_closing() else transport.get_extra_info("pipe")
        return pipe is not None and _bytes_in_pipe(pipe.fileno()) > 0

    def pause(self) -> None:
        """Read no more for now; what has been read already may still come."""
        self._paused = True
        if self._transport is not None:
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read again."""
        self._paused = False
        if self._transport is not None:
            self._transport.resume_reading()

    def close(self) -> None:
        """Read no more; the descriptor is closed a turn of the loop later."""
        if self._transport is not None:
            self._transport.close()
        elif self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class Sink(asyncio.BaseProtocol):
    """The end of `fd` that is written, which it owns; `polled`: see `standard_streams.can_be_polled`.

    `unwritten`: what has to be written before all else. `lost`: nobody reads at the other end any more; `full`: what
    was written waits to be taken. `unread`: whether it was lost before anybody had read anything, where that is known.
    """

    def __init__(self, fd: int, *, polled: bool = True, unwritten: bytes = b"") -> None:
        self._fd = fd
        self._polled = polled
        self._unwritten = unwritten
        self._transport: asyncio.WriteTransport | None = None
        self._on_lost: Callable[[Exception | None], None]
        self._on_full: Callable[[], None]
        self._turn = asyncio.Lock()
        self._together: list[bytes] = []
        self._size = 0
        self._waiting = 0
        self._taken = asyncio.Event()
        self._closing = False
        self._written = 0
        self.lost = False
        self.full = False
        self.unread = False

    async def start(self, on_lost: Callable[[Exception | None], None], on_full: Callable[[], None]) -> None:
        """Make ready to write: `on_lost` is told of the loss, with an error when it cost something that was written.

        `on_full` is called when `full` has changed.
        """
        self._on_lost, self._on_full = on_lost, on_full
        fd, self._fd = self._fd, -1
        if self._polled:
            await asyncio.get_running_loop().connect_write_pipe(lambda: self, os.fdopen(fd, "wb", buffering=0))
        else:
            self.connection_made(_ThreadWriter(fd, self))
        self.write(self._unwritten)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.WriteTransport", transport)
        self._transport.set_write_buffer_limits(high=ROOM)

    def connection_lost(self, exc: Exception | None) -> None:
        """Let nobody wait any more."""
        self.lost = True
        pipe = None if self._transport is None else self._transport.get_extra_info("pipe")
        if pipe is not None:
            self.unread = isinstance(exc, BrokenPipeError) or 0 < self._written == _bytes_in_pipe(pipe.fileno())
        self.resume_writing()
        self._on_lost(exc)

    def pause_writing(self) -> None:
        """Let who writes wait."""
        self.full = True
        self._taken.clear()
        self._on_full()

    def resume_writing(self) -> None:
        """Let who waits write."""
        self.full = False
        self._taken.set()
        self._on_full()

    def write(self, data: bytes, *, more: bool = False) -> None:
        """Write now or as soon as it is taken, without waiting; into nothing when the other end is lost.

        `more`: something else is likely to follow in the same turn of the loop, and goes out in the same write.
        """
        if self._transport is None or self.lost or not data:
            return
        self._written += len(data)
        if not self._together and not more:
            self._transport.write(data)
            return
        if not self._together:
            asyncio.get_running_loop().call_soon(self._flush)
        self._together.append(data)
        self._size += len(data)
        if self._size > CHUNK:
            self._flush()

    def _flush(self) -> None:
        together, self._together, self._size = self._together, [], 0
        if together and self._transport is not None and not self.lost:
            self._transport.write(b"".join(together))

    async def room(self) -> None:
        """Wait, in the order of coming, until it is not `full`; to be asked for only where `crowded` says so."""
        self._waiting += 1
        try:
            async with self._turn:
                while self.full:
                    await self._taken.wait()
        finally:
            self._waiting -= 1

    @property
    def crowded(self) -> bool:
        """Whether who writes has to wait for `room`."""
        return self.full or self._waiting > 0

    async def drained(self, patience: float) -> None:
        """Wait until all is taken; not when nothing is taken for `patience` seconds."""
        self._flush()
        if self._transport is None or self.lost:
            return
        self._transport.set_write_buffer_limits(high=0)
        while self.full:
            left = self._transport.get_write_buffer_size()
            with anyio.move_on_after(patience):
                await self.room()
            if self._transport.get_write_buffer_size() >= left:
                return

    def close(self) -> None:
        """Write no more; the descriptor is closed once all is taken, a turn of the loop later at the earliest."""
        self._closing = True
        self._flush()
        if self._transport is not None:
            self._transport.close()
        elif self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def abort(self) -> None:
        """As `close`, but what is not taken yet is dropped."""
        if self._transport is None or self.lost:
            self.close()
        elif not self._closing or self._transport.get_write_buffer_size():  # else it closes by now: once is enough
            self._transport.abort()


def _bytes_in_pipe(fd: int) -> int:
    """How much has been written to a pipe that nobody has read yet; 0 where the system does not tell."""
    if sys.platform == "win32":
        return 0
    try:
        return struct.unpack("i", fcntl.ioctl(fd, termios.FIONREAD, bytes(4)))[0]
    except OSError:
        return 0


class _ThreadReader(asyncio.ReadTransport):
    """Reads `fd` in a thread that does not keep the process alive, one chunk ahead of `protocol`."""

    def __init__(self, fd: int, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self._fd = fd
        self._protocol = protocol
        self._loop = asyncio.get_running_loop()
        self._paused = False
        self._closed = False
        self._go = threading.Event()
        self._go.set()
        threading.Thread(target=self._pump, name="stdin", daemon=True).start()

    def _pump(self) -> None:
        with suppress(RuntimeError):  # the loop has ended
            with suppress(OSError):
                while chunk := os.read(self._fd, CHUNK):
                    self._go.wait()
                    self._go.clear()
                    self._loop.call_soon_threadsafe(self._arrived, chunk)
            self._loop.call_soon_threadsafe(self._end)

    def _arrived(self, chunk: bytes) -> None:
        if not self._closed:
            self._protocol.data_received(chunk)
        if not self._paused:
            self._go.set()

    def _end(self) -> None:
        if not self._closed:
            self._closed = True
            self._protocol.connection_lost(None)

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        self._paused = False
        self._go.set()

    def close(self) -> None:
        self._closed = True  # the descriptor stays open: the thread may be reading it until the process ends


class _ThreadWriter(asyncio.WriteTransport):
    """Writes to `fd` in a thread that does not keep the process alive."""

    def __init__(self, fd: int, protocol: asyncio.BaseProtocol) -> None:
        super().__init__()
        self._fd = fd
        self._protocol = protocol
        self._loop = asyncio.get_running_loop()
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._size = 0
        self._high = 0
        self._paused = False
        threading.Thread(target=self._pump, name="stdout", daemon=True).start()

    def _pump(self) -> None:
        problem: OSError | None = None
        with suppress(RuntimeError):  # the loop has ended
            try:
                while (data := self._lines.get()) is not None:
                    view = memoryview(data)
                    while view:
                        count = os.write(self._fd, view[:CHUNK])
                        view = view[count:]
                        self._loop.call_soon_threadsafe(self._taken, count)
            except OSError as error:
                problem = error
            self._loop.call_soon_threadsafe(self._protocol.connection_lost, problem)
        os.close(self._fd)

    def _taken(self, count: int) -> None:
        self._size -= count
        if self._paused and self._size <= self._high // 4:
            self._paused = False
            self._protocol.resume_writing()

    def _pause(self) -> None:
        if self._size > self._high and not self._paused:
            self._paused = True
            self._protocol.pause_writing()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:  # noqa: ARG002 - base's
        self._high = high or 0
        self._pause()

    def get_write_buffer_size(self) -> int:
        return self._size

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._size += len(data)
        self._lines.put(bytes(data))
        self._pause()

    def close(self) -> None:
        self._lines.put(None)

    abort = close
