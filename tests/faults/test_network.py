"""The way to a server over HTTP: cut, dead, reset, refused (B20, B50)."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import pytest

from tests.conftest import Json, text_of
from tests.faults.front import LONG, SHORT, FaultBench, Front, complaint, front
from tests.servers.relay import Fate, Relay, relay

pytestmark = pytest.mark.anyio

ANSWER = ("answer",)
ERAS = ("handshake", "modern")


@asynccontextmanager
async def behind(bench: FaultBench, era: str, limit: float) -> AsyncGenerator[tuple[Front, Relay]]:
    """A proxy that reaches `a` through a relay."""
    await bench.unruly_http("a", {"timeout": limit}, era=era)
    async with relay(bench.servers["a"]["url"]) as way:
        bench.servers["a"]["url"] = way.url
        async with front(bench) as proxy:
            yield proxy, way


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("how", ["cut", "reset"])
@pytest.mark.parametrize("during", [False, True], ids=["before", "during"])
@pytest.mark.parametrize(("tool", "runs"), [("act", 1), ("act_read_only", 2)])
async def test_a_way_that_breaks_in_a_call_is_told(
    bench: FaultBench, era: str, how: str, during: bool, tool: str, runs: int
):
    """The call is answered at once; only what is safe has run again; the next call finds a new way."""
    go = bench.file("go")
    async with behind(bench, era, LONG) as (proxy, way), anyio.create_task_group() as tasks:

        async def breaks() -> None:
            await bench.event("a", "ran")
            await proxy.others_work()
            go.touch() if runs == 2 else None
            way.cut() if how == "cut" else way.reset()

        tasks.start_soon(breaks)
        steps = [("half",), ("wait", str(go)), ("rest",)] if during else [("wait", str(go)), ANSWER]
        answer = await proxy.act(*steps, tool=tool)
        assert complaint(answer) if runs == 1 else text_of(answer) == ("half and half" if during else "done")
        await proxy.goes_on()
    assert proxy.runs(tool) == runs


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("how", ["cut", "reset"])
async def test_a_way_that_breaks_between_calls_costs_nothing(bench: FaultBench, era: str, how: str):
    """The next call finds a new one."""
    async with behind(bench, era, LONG) as (proxy, way):
        for _ in range(3):
            way.cut() if how == "cut" else way.reset()
            await proxy.goes_on()


@pytest.mark.parametrize("era", ERAS)
async def test_a_way_that_goes_dead_in_a_call_ends_it_at_the_limit(bench: FaultBench, era: str):
    """Nothing tells of it but the time; the next call takes a new way."""
    go = bench.file("go")
    async with behind(bench, era, SHORT) as (proxy, way), anyio.create_task_group() as tasks:

        async def dies() -> None:
            await bench.event("a", "ran")
            way.go_dead()
            go.touch()

        tasks.start_soon(dies)
        assert "within 1 s" in complaint(await proxy.beside(("wait", str(go)), ANSWER))
        await proxy.goes_on()
    assert proxy.runs() == 1


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("fate", ["cut", "reset", "dead"])
async def test_a_way_that_cannot_be_had_for_a_while_is_told(bench: FaultBench, era: str, fate: Fate):
    """Every connection ends, or passes nothing on, as soon as it is made: each call is answered, later ones succeed."""
    async with behind(bench, era, SHORT if fate == "dead" else LONG) as (proxy, way):
        way.newcomers = fate
        way.cut()
        for _ in range(2):
            complaint(await proxy.beside(ANSWER))
        way.newcomers = "passed on"
        way.cut()
        await proxy.comes_back()
    assert proxy.runs() == 0


@pytest.mark.parametrize("era", ERAS)
async def test_a_server_that_refuses_connections_for_a_while_is_told(bench: FaultBench, era: str):
    """Each call in that time says so, nothing has run; the tools stay listed, and later calls succeed."""
    async with behind(bench, era, LONG) as (proxy, way):
        async with way.refusing():
            way.cut()
            for _ in range(2):
                complaint(await proxy.beside(ANSWER))
            for peer in (proxy.one, proxy.two):
                assert "a__echo" in await peer.tools()
        await proxy.comes_back()
    assert proxy.runs() == 0


@pytest.mark.parametrize("era", ERAS)
async def test_parallel_callers_share_one_new_connection(bench: FaultBench, era: str):
    """After the way broke with calls in work, six callers of two scopes meet the server once more."""
    go = bench.file("go")
    method = "initialize" if era == "handshake" else "server/discover"
    async with behind(bench, era, LONG) as (proxy, way):
        answers: list[Json] = []
        before = len(bench.events("a", "request", method=method))

        async def wait() -> None:
            answers.append(await proxy.act(("wait", str(go))))

        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(wait)
            await bench.event("a", "ran", count=3)
            way.reset()
        assert len([complaint(answer) for answer in answers]) == 3
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(proxy.goes_on)
    assert len(bench.events("a", "request", method=method)) <= before + 1
    assert proxy.runs() == 3
