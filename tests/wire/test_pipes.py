"""The ends of descriptors, also of those that need a thread: both kinds behave alike."""

import asyncio
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from proxy.wire.pipes import Sink, Source
from proxy.wire.standard_streams import can_be_polled
from tests.wire.peer import DEADLINE

pytestmark = pytest.mark.anyio

LARGE = b"x" * 3_000_000
both = pytest.mark.parametrize("polled", [True, False])


@pytest.fixture
def pipe() -> Iterator[list[int]]:
    """The reading and the writing end; what a test has taken it sets to -1."""
    ends = list(os.pipe())
    yield ends
    for end in ends:
        if end >= 0:
            os.close(end)


def taken(pipe: list[int], end: int) -> int:
    fd, pipe[end] = pipe[end], -1
    return fd


async def until(test: Callable[[], bool]) -> None:
    with anyio.fail_after(DEADLINE):
        while not test():  # noqa: ASYNC110 - there is no event for it
            await anyio.sleep(0.002)


def nothing(*_: object) -> None:
    """Nobody has to be told."""


async def closed(end: Source | Sink) -> None:
    end.close()
    await anyio.lowlevel.checkpoint()


def test_pipes_can_be_polled_and_files_cannot(pipe: list[int], tmp_path: Path):
    """Nor can /dev/null."""
    assert can_be_polled(pipe[0])
    assert can_be_polled(pipe[1])
    for path in (tmp_path / "file", Path(os.devnull)):
        with path.open("w") as file:
            assert not can_be_polled(file.fileno())


@both
async def test_everything_is_read_and_then_the_end(pipe: list[int], polled: bool):
    """While it is paused at most what was read already comes."""
    chunks: list[bytes] = []
    ended: list[bool] = []
    source = Source(taken(pipe, 0), polled=polled)
    await source.start(chunks.append, lambda: ended.append(True))
    os.write(pipe[1], b"one")
    await until(lambda: chunks == [b"one"])
    source.pause()
    os.write(pipe[1], b"two")
    if not polled:
        await until(lambda: chunks == [b"one", b"two"])
    os.write(pipe[1], b"three")
    for _ in range(100):
        await anyio.lowlevel.checkpoint()
    assert b"three" not in b"".join(chunks)
    source.resume()
    os.close(taken(pipe, 1))
    await until(lambda: ended == [True])
    assert b"".join(chunks) == b"onetwothree"
    await closed(source)


@both
async def test_what_was_read_before_can_pause_what_follows(pipe: list[int], polled: bool):
    """As soon as it is passed on, which is before anything is read here."""
    chunks: list[bytes] = []
    source = Source(taken(pipe, 0), polled=polled, read=b"one")

    def pausing(chunk: bytes) -> None:
        chunks.append(chunk)
        source.pause()

    os.write(pipe[1], b"two")
    await source.start(pausing, nothing)
    if not polled:  # a thread is one chunk ahead
        await until(lambda: chunks == [b"one", b"two"])
    for _ in range(100):
        await anyio.lowlevel.checkpoint()
    assert b"".join(chunks) == (b"one" if polled else b"onetwo")
    os.write(pipe[1], b"three")
    for _ in range(100):
        await anyio.lowlevel.checkpoint()
    assert b"three" not in b"".join(chunks)
    source.resume()
    await until(lambda: b"".join(chunks).startswith(b"onetwo"))
    source.resume()
    await until(lambda: b"".join(chunks) == b"onetwothree")
    await closed(source)


@both
@pytest.mark.parametrize("waiting", [b"", LARGE], ids=["nothing", "much"])
async def test_what_is_closed_and_given_up_at_once_is_closed_once(pipe: list[int], polled: bool, waiting: bytes):
    """Whether something waits to be taken or not; nothing goes wrong in the loop later."""
    troubles: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, trouble: troubles.append(trouble))
    fd = taken(pipe, 1)
    sink = Sink(fd, polled=polled)
    await sink.start(nothing, nothing)
    sink.write(waiting)
    sink.close()
    sink.abort()
    os.close(taken(pipe, 0))
    await until(lambda: not is_open(fd))
    assert troubles == []


def is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


@both
async def test_who_writes_can_wait_until_it_is_taken(pipe: list[int], polled: bool):
    """`full` while much waits; those that wait go on in their order once it is taken."""
    order: list[int] = []
    sink = Sink(taken(pipe, 1), polled=polled)
    await sink.start(nothing, nothing)
    sink.write(LARGE)
    await until(lambda: sink.full)

    async def write(number: int) -> None:
        await sink.room()
        order.append(number)
        sink.write(LARGE)

    async def read() -> None:
        got = 0
        while got < 4 * len(LARGE):
            got += len(await anyio.to_thread.run_sync(os.read, pipe[0], 1 << 20))

    with anyio.fail_after(DEADLINE):
        async with anyio.create_task_group() as tasks:
            for number in range(3):
                tasks.start_soon(write, number)
            await until(lambda: sink._waiting == 3)
            assert sink.crowded
            tasks.start_soon(read)
        assert order == [0, 1, 2]
        await sink.drained(DEADLINE)
    await closed(sink)


@both
async def test_what_nobody_takes_is_not_waited_for_without_end(pipe: list[int], polled: bool):
    """A peer that takes nothing for so long takes nothing."""
    sink = Sink(taken(pipe, 1), polled=polled)
    await sink.start(nothing, nothing)
    sink.write(LARGE)
    with anyio.fail_after(DEADLINE):
        await until(lambda: sink.full)
        await sink.drained(0.2)
    assert sink.full
    sink.abort()
    os.close(taken(pipe, 0))
    await anyio.lowlevel.checkpoint()


@both
async def test_a_reader_that_leaves_is_noticed(pipe: list[int], polled: bool):
    """What is written then goes nowhere, and nobody waits."""
    lost: list[Exception | None] = []
    sink = Sink(taken(pipe, 1), polled=polled)
    await sink.start(lost.append, nothing)
    os.close(taken(pipe, 0))
    sink.write(LARGE)
    await until(lambda: sink.lost)
    sink.write(LARGE)
    await sink.room()
    await sink.drained(DEADLINE)
    assert len(lost) == 1
    assert isinstance(lost[0], BrokenPipeError)
    await closed(sink)


async def test_ends_that_were_never_used_are_closed(pipe: list[int]):
    """At once, and once."""
    sink, source = Sink(taken(pipe, 1)), Source(taken(pipe, 0))
    for end in (sink, source, sink, source):
        end.close()
    sink.abort()
