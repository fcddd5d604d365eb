"""The end of the program while its servers are in trouble (rule 29, B23, B24)."""

import json
import os
import shlex
import signal
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import anyio
import pytest

from tests.answers import not_ready
from tests.conftest import ERAS, connected
from tests.faults.front import MOST, FaultBench, Step
from tests.program.process import Program, serving
from tests.servers.relay import relay
from tests.upstream.bench import alive

pytestmark = pytest.mark.anyio

BOUND = 15.0
"""Seconds for the end of the program and all processes: 5 by rule 29, the rest for a machine that is busy."""
STUBBORN = ("eof", "term")
BIG = "0123456789abcdef" * 200_000
Way = Callable[[Program], Awaitable[None]]


async def by_sigterm(program: Program) -> None:
    program.process.send_signal(signal.SIGTERM)


async def by_end_of_input(program: Program) -> None:
    assert program.process.stdin is not None
    await program.process.stdin.aclose()


WAYS = [by_sigterm, by_end_of_input]


def wrapped(bench: FaultBench, key: str, **faults: Any) -> None:
    """Put an unruly server into the configuration that a shell has started, and waits for."""
    bench.unruly(key, **faults)
    entry = bench.servers[key]
    line = shlex.join([entry["command"], *entry["args"]])
    bench.servers[key] = {**entry, "command": "sh", "args": ["-c", f"{line}; exit $?"]}


def pids(bench: FaultBench) -> set[int]:
    """Every process that the program has started for its servers, shells included."""
    found = {pid for key, entry in bench.servers.items() if "command" in entry for pid in bench.pids(key)}
    return found | {os.getpgid(pid) for pid in found if alive(pid)}


async def act(program: Program, key: str, *steps: Step, **more: object) -> None:
    """Have a server do these steps, and do not wait for the answer."""
    await program.ask("tools/call", name=f"{key}__act", arguments={"steps": steps, **more})


async def ends(program: Program, bench: FaultBench, way: Way) -> None:
    """It ends in this way: in time, with code 0, without a traceback, and nothing of its servers is left."""
    left = pids(bench)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(program.rest)
        await way(program)
        assert await program.ended(left, within=BOUND) == 0
    assert program.is_clean()
    assert not any(json.loads(line)["level"] == "error" for line in program.log().splitlines()), program.log()
    assert not any(map(alive, pids(bench)))


@pytest.mark.parametrize("way", WAYS)
async def test_in_the_middle_of_calls(bench: FaultBench, way: Way):
    """Half answers, pipes that are full both ways, calls that wait for their turn: nothing holds the end up."""
    for key in ("half", "deaf", "flood", "noise", "mute"):
        bench.unruly(key)
    bench.unruly("turns", {MOST: 1})
    bench.skill("all", {key: ["act"] for key in bench.servers})
    go = str(bench.file("go"))
    async with serving(bench.write()) as program:
        await program.greet()
        assert not not_ready(await program.activate("all"))
        await act(program, "half", ("half",), ("wait", go))
        await act(program, "deaf", ("close", "ears"), ("wait", go))
        await bench.event("deaf", "ran")
        await act(program, "deaf", big=BIG)
        await act(program, "flood", ("answer", "0123456789", 300_000))
        await act(program, "noise", ("write", "noise\n", 20_000), ("wait", go))
        await act(program, "mute", ("close", "stdout"), ("wait", go))
        for _ in range(3):
            await act(program, "turns", ("wait", go))
        for key in bench.servers:
            await bench.event(key, "ran")
        await ends(program, bench, way)


@pytest.mark.parametrize("way", WAYS)
async def test_while_servers_are_starting_and_coming_back(bench: FaultBench, way: Way):
    """Some crash again and again, some are slow, some do not answer, some are behind a way that is dead."""
    bench.unruly("crashing")
    bench.unruly("lost")
    bench.unruly("slow", stubborn=STUBBORN)
    bench.mood("slow", slow=60)
    bench.mood("crashing", crashes=1000)
    await bench.unruly_http("far")
    async with relay(bench.servers["far"]["url"]) as way_there:
        bench.servers["far"]["url"] = way_there.url
        bench.settings |= {"activation_wait": 1}
        bench.skill("all", {key: ["act"] for key in bench.servers})
        async with serving(bench.write()) as program:
            await program.greet()
            await program.activate("all")
            await bench.event("far", "request", method="tools/list")
            bench.mood("lost", crashes=1000)
            way_there.newcomers = "dead"
            way_there.reset()
            await act(program, "lost", ("exit", 3))
            await bench.event("lost", "ran")
            for key in ("crashing", "lost", "slow", "far"):
                await act(program, key)
            await bench.event("crashing", "spawned", count=2)
            await ends(program, bench, way)


@pytest.mark.parametrize("way", WAYS)
async def test_with_shells_around_servers(bench: FaultBench, way: Way):
    """The shell, the server and what that has left behind are gone, whatever they ignore, in a call or out of one."""
    wrapped(bench, "polite")
    wrapped(bench, "busy")
    wrapped(bench, "deaf", stubborn=("eof",))
    wrapped(bench, "stubborn", stubborn=STUBBORN)
    wrapped(bench, "parent", grandchild="stubborn", stubborn=STUBBORN)
    bench.skill("all", {key: ["act"] for key in bench.servers})
    async with serving(bench.write()) as program:
        await program.greet()
        assert not not_ready(await program.activate("all"))
        for key in ("busy", "stubborn"):
            await act(program, key, ("wait", str(bench.file("go"))))
            await bench.event(key, "ran")
        assert len(pids(bench)) == 11
        await ends(program, bench, way)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_over_http(bench: FaultBench, number: signal.Signals):
    """With clients of both eras in the middle of calls, and servers that crash, are slow or do not end."""
    wrapped(bench, "parent", grandchild="stubborn", stubborn=STUBBORN)
    bench.unruly("slow")
    bench.mood("slow", slow=60)
    bench.unruly("crashing")
    bench.mood("crashing", crashes=1000)
    bench.settings |= {"activation_wait": 1}
    bench.skill("all", {key: ["act"] for key in bench.servers})

    async def by_signal(program: Program) -> None:
        program.process.send_signal(number)

    async with serving(bench.write(), "--transport", "http", "--port", "0") as program:
        url = (await program.said("proxy.ready"))["url"]
        async with anyio.create_task_group() as tasks:
            for mode in ERAS:
                tasks.start_soon(hang, f"{url}/{mode}", mode, {"steps": [("wait", str(bench.file("go")))]})
            await bench.event("parent", "ran", count=2)
            await ends(program, bench, by_signal)
            tasks.cancel_scope.cancel()
        assert not program.lines


async def hang(url: str, mode: str, arguments: Mapping[str, object]) -> None:
    """A client that is in the middle of a call when the proxy ends, of which it may hear in any way."""
    try:
        async with connected(url, mode) as peer:
            await peer.skill("activate", "all")
            await peer.call("parent__act", arguments)
    except Exception:  # noqa: BLE001, S110 - as said above
        pass


async def test_when_it_is_killed_servers_in_shells_end_by_themselves(bench: FaultBench):
    """After `kill -9`: those that honour the end of their input, idle, in a call, or with an answer nobody takes."""
    wrapped(bench, "idle")
    wrapped(bench, "busy")
    bench.unruly("flood")
    bench.skill("all", {key: ["act"] for key in bench.servers})
    async with serving(bench.write()) as program:
        await program.greet()
        assert not not_ready(await program.activate("all"))
        await act(program, "busy", ("wait", str(bench.file("go"))))
        await act(program, "flood", ("answer", "0123456789", 300_000))
        for key in ("busy", "flood"):
            await bench.event(key, "ran")
        left = pids(bench)
        assert len(left) == 5
        os.kill(program.process.pid, signal.SIGKILL)
        assert await program.ended(left, within=BOUND) == -signal.SIGKILL
    for key in bench.servers:
        await bench.event(key, "eof")
