"""Messages that go out in one write: their order, and that who writes has to wait as ever."""

import os
from collections.abc import Iterator

import anyio
import anyio.to_thread
import pytest
from anyio.lowlevel import checkpoint

from proxy.wire.pipes import CHUNK, ROOM, Sink
from tests.wire.peer import DEADLINE

pytestmark = pytest.mark.anyio

both = pytest.mark.parametrize("polled", [True, False])


class Pipe:
    """A pipe whose writing end a `Sink` owns."""

    def __init__(self) -> None:
        self.end, self.writing = os.pipe()

    def read(self, size: int) -> bytes:
        """Exactly so many bytes, or what there is until the end."""
        got = bytearray()
        while len(got) < size and (chunk := os.read(self.end, size - len(got))):
            got += chunk
        return bytes(got)


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    pipe = Pipe()
    yield pipe
    os.close(pipe.end)


async def started(pipe: Pipe, *, polled: bool) -> Sink:
    sink = Sink(pipe.writing, polled=polled)
    await sink.start(lambda _: None, lambda: None)
    return sink


async def read(pipe: Pipe, size: int) -> bytes:
    with anyio.fail_after(DEADLINE):
        return await anyio.to_thread.run_sync(pipe.read, size, abandon_on_cancel=True)


@both
async def test_what_goes_out_together_keeps_its_order(pipe: Pipe, polled: bool):
    """Also beside what does not wait for more, and beside what is too large to wait."""
    sink = await started(pipe, polled=polled)
    lines = [f"{number}\n".encode() for number in range(40)]
    lines[7], lines[20] = b"x" * CHUNK + b"\n", b"y" * (CHUNK + 1) + b"\n"
    for number, line in enumerate(lines):
        sink.write(line, more=number % 3 != 2)
        if number % 10 == 9:
            await checkpoint()
    expected = b"".join(lines)
    assert await read(pipe, len(expected)) == expected
    sink.close()
    assert await read(pipe, 1) == b""


async def test_what_goes_out_together_is_one_write_a_turn_later(pipe: Pipe):
    """What waits for nothing more goes out at once, if nothing waits before it."""
    sink = await started(pipe, polled=True)
    os.set_blocking(pipe.end, False)
    sink.write(b"at once ")
    assert os.read(pipe.end, CHUNK) == b"at once "
    sink.write(b"one ", more=True)
    sink.write(b"two ", more=True)
    sink.write(b"three")
    with pytest.raises(BlockingIOError):
        os.read(pipe.end, CHUNK)
    await checkpoint()
    assert os.read(pipe.end, CHUNK) == b"one two three"
    sink.close()
    await checkpoint()


@both
@pytest.mark.parametrize("ending", ["close", "drained"])
async def test_what_waits_for_more_is_not_lost_at_the_end(pipe: Pipe, polled: bool, ending: str):
    """It goes out before the end."""
    sink = await started(pipe, polled=polled)
    sink.write(b"one ", more=True)
    sink.write(b"two", more=True)
    if ending == "drained":
        await sink.drained(DEADLINE)
    sink.close()
    assert await read(pipe, 100) == b"one two"


@both
async def test_who_writes_together_has_to_wait_as_ever(pipe: Pipe, polled: bool):
    """No more than `ROOM`, what a pipe holds and what one turn collects are ahead of the reader."""
    sink = await started(pipe, polled=polled)
    line = b"z" * 1000 + b"\n"
    count = 8 * ROOM // len(line)
    written = 0

    async def write() -> None:
        nonlocal written
        for _ in range(count):
            if sink.crowded:
                await sink.room()
            sink.write(line, more=True)
            written += 1

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(write)
        with anyio.fail_after(DEADLINE):
            while not sink.crowded:
                await checkpoint()
        assert written < count
        assert await read(pipe, count * len(line)) == line * count
    assert written == count
    sink.close()
    await checkpoint()
