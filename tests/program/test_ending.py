"""How the program and the servers it started end (rule 29)."""

import os
import signal
import subprocess
from collections.abc import Awaitable, Callable

import anyio
import pytest
from mcp import Client

from tests.answers import not_ready
from tests.program.process import BOUND, Program, serving
from tests.upstream.bench import Bench, alive

pytestmark = pytest.mark.anyio

STUBBORN = ("eof", "term")


async def by_sigterm(program: Program) -> None:
    program.process.send_signal(signal.SIGTERM)


async def by_sigint(program: Program) -> None:
    program.process.send_signal(signal.SIGINT)


async def by_end_of_input(program: Program) -> None:
    assert program.process.stdin is not None
    await program.process.stdin.aclose()


async def by_closed_output(program: Program) -> None:
    program.close_stdout()


async def by_closed_output_and_a_request(program: Program) -> None:
    program.close_stdout()
    await program.ask("ping")


WAYS = [by_sigterm, by_sigint, by_end_of_input, by_closed_output]
Way = Callable[[Program], Awaitable[None]]


def all_pids(bench: Bench) -> list[int]:
    return [pid for key in bench.servers for pid in bench.pids(key)]


@pytest.mark.parametrize("way", [*WAYS, by_closed_output_and_a_request])
async def test_it_ends_with_idle_servers(bench: Bench, way: Way):
    """A signal, the end of input or a closed output ends the program with code 0, and its servers with it."""
    bench.stdio("a")
    bench.stdio("b")
    bench.skill("all", {"a": [], "b": []})
    async with serving(bench.write()) as program:
        await program.greet()
        await program.activate("all")
        pids = all_pids(bench)
        assert len(pids) == 2
        await way(program)
        assert await program.ended(pids) == 0
        await program.rest()
        assert program.is_clean()
    assert bench.events("a", "eof")
    assert bench.events("b", "eof")


@pytest.mark.parametrize("way", [by_sigterm, by_end_of_input])
async def test_it_ends_in_time_whatever_its_servers_do(bench: Bench, way: Way):
    """Servers that are idle, busy, deaf to end of input and SIGTERM, or that leave children behind: all are gone."""
    bench.stdio("idle")
    bench.stdio("busy")
    bench.stdio("deaf", stubborn=("eof",))
    bench.stdio("stubborn", stubborn=STUBBORN)
    bench.stdio("parent", grandchild="polite")
    bench.stdio("bad_parent", grandchild="stubborn", stubborn=STUBBORN)
    bench.skill("all", {key: [] for key in bench.servers})
    async with serving(bench.write()) as program:
        await program.greet()
        assert not not_ready(await program.activate("all"))
        await program.ask("tools/call", name="busy__hang", arguments={})
        await bench.event("busy", "ran")
        pids = all_pids(bench)
        assert len(pids) == 8
        await way(program)
        assert await program.ended(pids) == 0
        await program.rest()
        assert program.is_clean()


async def test_stubborn_servers_end_side_by_side(bench: Bench):
    """Five servers that ignore end of input and SIGTERM take no longer than one (B24)."""
    for number in range(5):
        bench.stdio(f"s{number}", stubborn=STUBBORN)
    bench.skill("all", {key: ["echo"] for key in bench.servers})
    async with serving(bench.write()) as program:
        await program.greet()
        assert not not_ready(await program.activate("all"))
        program.process.terminate()
        assert await program.ended(all_pids(bench)) == 0
        assert program.is_clean()


async def test_a_grandchild_of_a_server_that_ends_politely_ends_too(bench: Bench):
    """A process that a server left behind when it ended at the end of its input is ended as well."""
    bench.stdio("parent", grandchild="stubborn")
    bench.skill("one", {"parent": ["echo"]})
    async with serving(bench.write()) as program:
        await program.greet()
        await program.activate("one")
        pids = bench.pids("parent")
        assert len(pids) == 2
        await by_end_of_input(program)
        assert await program.ended(pids) == 0
        assert program.is_clean()


@pytest.mark.parametrize("way", [by_sigterm, by_end_of_input])
async def test_it_ends_while_servers_are_starting(bench: Bench, way: Way):
    """Servers that have not answered yet, one of them deaf to the end of its input, end with the program."""
    bench.stdio("silent", silent=True)
    bench.stdio("deaf", silent=True, stubborn=("eof",))
    bench.skill("all", {"silent": [], "deaf": []}, active=True)
    async with serving(bench.write()) as program:
        await program.greet()
        await program.ask("tools/list")
        await bench.event("silent", "request")
        await bench.event("deaf", "request")
        await way(program)
        assert await program.ended(all_pids(bench)) == 0
        await program.rest()
        assert program.is_clean()


async def test_without_input_it_ends_at_once(bench: Bench):
    """`</dev/null` is the end of input: code 0, nothing on stdout, no server left."""
    bench.stdio("a")
    bench.skill("one", {"a": []}, active=True)
    async with serving(bench.write(), stdin=subprocess.DEVNULL) as program:
        await program.rest()
        assert await program.ended(all_pids(bench), within=BOUND + 8) == 0
        assert not program.lines
        assert program.is_clean()
    assert not any(alive(pid) for pid in all_pids(bench))


async def test_requests_before_the_end_of_input_leave_no_half_lines(bench: Bench):
    """Whatever was asked just before the input ended, stdout holds whole messages only."""
    bench.stdio("a")
    bench.skill("one", {"a": []})
    async with serving(bench.write()) as program:
        await program.greet()
        for _ in range(20):
            await program.ask("tools/list")
        await by_end_of_input(program)
        await program.rest()
        assert await program.ended() == 0
        assert program.is_clean()


async def test_a_call_in_work_at_the_end_of_input_gets_no_answer(bench: Bench):
    """Nothing is said on stdout to somebody who has left (B23)."""
    bench.stdio("a")
    bench.skill("one", {"a": []})
    async with serving(bench.write()) as program:
        await program.greet()
        await program.activate("one")
        await program.ask("tools/call", name="a__hang", arguments={})
        await bench.event("a", "request", method="tools/call")
        said = len(program.lines)
        await by_end_of_input(program)
        await program.rest()
        assert await program.ended() == 0
        assert len(program.lines) == said
        assert program.is_clean()


async def test_requests_before_the_end_of_input_are_answered(bench: Bench):
    """`printf REQUESTS | mcp-skill-proxy serve` prints every answer that comes in time."""
    bench.stdio("a")
    bench.skill("one", {"a": []})
    async with serving(bench.write()) as program:
        await program.greet()
        asked = [await program.ask("tools/list") for _ in range(20)]
        await by_end_of_input(program)
        for number in asked:
            assert "result" in await program.response(number)
        await program.rest()
        assert await program.ended() == 0


@pytest.mark.parametrize("way", [by_sigterm, by_sigint])
async def test_over_http_it_ends_in_time_whatever_its_servers_do(bench: Bench, way: Way):
    """A signal ends the HTTP program with a client connected and a call in work: code 0, no server left."""
    bench.stdio("busy")
    if way is by_sigint:
        bench.stdio("bad_parent", grandchild="stubborn", stubborn=STUBBORN)
    else:
        bench.stdio("bad_parent", grandchild="polite")
    await bench.http("far")
    bench.skill("all", {key: [] for key in bench.servers})
    async with serving(bench.write(), "--transport", "http", "--port", "0") as program:
        url = (await program.said("proxy.ready"))["url"]
        async with anyio.create_task_group() as tasks:

            async def hang() -> None:
                with anyio.move_on_after(BOUND):
                    try:
                        async with Client(url, mode="legacy") as client:
                            await client.call_tool("SKILL", {"action": "activate", "skill_name": "all"})
                            await client.call_tool("busy__hang", {})
                    except Exception:  # noqa: BLE001, S110 - the client may hear of the end in any way
                        pass

            tasks.start_soon(hang)
            await bench.event("busy", "ran")
            pids = [*bench.pids("busy"), *bench.pids("bad_parent")]
            assert len(pids) == 3
            await way(program)
            assert await program.ended(pids) == 0
            tasks.cancel_scope.cancel()
        await program.rest()
        assert not program.lines
        assert program.is_clean()
    assert len(bench.events("far", "farewell")) <= 1


async def test_when_it_is_killed_its_servers_see_the_end_of_their_input(bench: Bench):
    """After `kill -9` the servers that end at the end of their input are gone too."""
    bench.stdio("a")
    bench.stdio("b")
    bench.skill("all", {"a": [], "b": []})
    async with serving(bench.write()) as program:
        await program.greet()
        await program.activate("all")
        pids = all_pids(bench)
        os.kill(program.process.pid, signal.SIGKILL)
        assert await program.ended(pids) == -signal.SIGKILL
    assert bench.events("a", "eof")
    assert bench.events("b", "eof")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_second_signal_does_no_harm(bench: Bench, number: signal.Signals):
    """An impatient second signal while a slow server ends changes neither the code nor that they end."""
    bench.stdio("deaf", stubborn=("eof",))
    bench.skill("one", {"deaf": []})
    async with serving(bench.write()) as program:
        await program.greet()
        await program.activate("one")
        program.process.send_signal(number)
        await program.said("proxy.stopping")
        program.process.send_signal(number)
        assert await program.ended(all_pids(bench)) == 0
        assert program.is_clean()
