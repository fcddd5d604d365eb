"""The end of a server's process: what tells of it, what is read before it, and how long it may take."""

import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.program.process import serving
from tests.servers.abrupt import Manner, command
from tests.upstream.bench import DEADLINE, Bench, alive, problems, text

pytestmark = pytest.mark.anyio

LONG = 600
HELD = [("stdout",), ("stderr",), ("stdout", "stderr"), ("stdout", "stderr", "session")]


def abrupt(bench: Bench, manner: Manner, **entry: object) -> None:
    """Put a server into the configuration that behaves so, and a skill for it."""
    manner.write(bench.file("a.json"))
    program, *args = command(bench.file("a.json"))
    bench.servers["a"] = {"command": program, "args": args, "timeout": LONG, "start_timeout": LONG, **entry}
    bench.skill("one", {"a": []})


def open_pipes() -> int:
    """How many pipes this process has open."""
    count = 0
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # the one that reads the folder
            count += str(descriptor.readlink()).startswith("pipe:")
    return count


@pytest.mark.parametrize("held", HELD, ids="+".join)
@pytest.mark.parametrize("how", ["exit 3", "half 3"])
async def test_a_server_that_ends_in_a_call_is_lost_whoever_holds_its_pipes(
    bench: Bench, held: tuple[str, ...], how: str
):
    """The call fails with the exit code, and the next one starts the server again; no descriptor is left."""
    abrupt(bench, Manner({"tools/call": how}, helper=held))
    before = open_pipes()
    async with bench.proxy() as proxy:
        assert not problems(await proxy.activate("one"))
        assert "exit code 3" in text(await proxy.call("a__echo"))
        Manner(helper=held).write(bench.file("a.json"))
        assert text(await proxy.call("a__echo", word="hello")) == '{"word": "hello"}'
    assert open_pipes() == before


@pytest.mark.parametrize("held", HELD, ids="+".join)
async def test_what_a_server_wrote_before_its_end_is_read(bench: Bench, held: tuple[str, ...]):
    """An answer that is followed by the end of the process is the answer."""
    abrupt(bench, Manner({"tools/call": "answer 3"}, helper=held))
    async with bench.proxy() as proxy:
        assert not problems(await proxy.activate("one"))
        for word in ("one", "two"):
            assert text(await proxy.call("a__echo", word=word)) == f'{{"word": "{word}"}}'
            await proxy.state("a", "failed")


@pytest.mark.parametrize("held", HELD, ids="+".join)
@pytest.mark.parametrize("method", ["initialize", "tools/list"])
async def test_a_server_that_ends_at_its_start_fails_whoever_holds_its_pipes(
    bench: Bench, held: tuple[str, ...], method: str
):
    """With the exit code as the reason, long before its limit."""
    abrupt(bench, Manner({method: "exit 4"}, helper=held), era="handshake")
    async with bench.proxy() as proxy:
        assert "exit code 4" in problems(await proxy.activate("one"))["a"]


async def test_a_server_has_its_stop_timeout_to_end(bench: Bench):
    """A program that needs three seconds once its input is closed is not killed before; the proxy waits for it."""
    abrupt(bench, Manner(lingers=3), stop_timeout=DEADLINE)
    bench.stdio("b", {"start": "eager"})
    bench.skill("two", {"b": []})
    began = 0.0
    async with bench.proxy() as proxy:
        assert not problems(await proxy.activate("one"))
        began = time.monotonic()
    assert 3 <= time.monotonic() - began < DEADLINE
    assert bench.events("a", "ended")
    assert bench.events("b", "eof")


async def test_a_server_that_outlasts_its_stop_timeout_is_ended(bench: Bench):
    """End of input, SIGTERM, SIGKILL: each as long after the one before as the entry says."""
    bench.stdio("a", {"stop_timeout": 0.2}, stubborn=("eof", "term"))
    bench.skill("one", {"a": []})
    began = 0.0
    async with bench.proxy() as proxy:
        assert not problems(await proxy.activate("one"))
        began = time.monotonic()
    assert time.monotonic() - began < 2
    assert bench.events("a", "eof")
    assert not any(map(alive, bench.pids("a")))


async def test_the_program_ends_when_the_slowest_of_its_servers_has(bench: Bench):
    """Also the whole program waits for a server that has the time."""
    abrupt(bench, Manner(lingers=3), stop_timeout=DEADLINE)
    async with serving(bench.write()) as program:
        await program.greet()
        await program.activate("one")
        assert program.process.stdin is not None
        await program.process.stdin.aclose()
        assert await program.ended(bench.pids("a"), within=DEADLINE) == 0
    assert bench.events("a", "ended")
