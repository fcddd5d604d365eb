"""Connections that are lost, between calls and during them (rules 27 and 33)."""

import os
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import pytest
from mcp_types import CallToolResult
from structlog.testing import capture_logs

from tests.upstream.bench import Bench, Proxied, text

pytestmark = pytest.mark.anyio

TOGETHER = 5


async def together(proxy: Proxied, tool: str, **arguments: object) -> list[CallToolResult]:
    """The results of several calls at once."""
    results: list[CallToolResult] = []

    async def one() -> None:
        results.append(await proxy.call(tool, **arguments))

    async with anyio.create_task_group() as tasks:
        for _ in range(TOGETHER):
            tasks.start_soon(one)
    return results


@asynccontextmanager
async def hanging(bench: Bench, proxy: Proxied, results: list[CallToolResult]) -> AsyncGenerator[None]:
    """Calls that server `a` has in work inside; what becomes of them is in `results` afterwards."""

    async def hang() -> None:
        results.append(await proxy.call("a__hang"))

    async with anyio.create_task_group() as tasks:
        for _ in range(TOGETHER):
            tasks.start_soon(hang)
        await bench.event("a", "ran", count=TOGETHER)
        yield


def kill(bench: Bench, key: str) -> None:
    os.kill(bench.pids(key)[-1], signal.SIGKILL)


async def test_the_next_call_after_a_death_starts_the_server_again(bench: Bench):
    """A server that died between two calls costs nothing: the next call starts it once and succeeds."""
    bench.stdio("a")
    bench.skill("one", {"a": []})
    async with bench.proxy() as proxy:
        await proxy.activate("one")
        kill(bench, "a")
        await proxy.state("a", "failed")
        assert "a__echo" in await proxy.tools()
        result = await proxy.call("a__echo", word="again")
        assert not result.is_error, text(result)
        assert text(result) == '{"word": "again"}'
    assert len(bench.events("a", "spawned")) == 2
    assert len(bench.events("a", "ran")) == 1


async def test_parallel_calls_after_a_death_share_one_new_process(bench: Bench):
    """Callers that find the same connection dead wait for one new process, and all succeed."""
    bench.stdio("a")
    bench.skill("one", {"a": []})
    async with bench.proxy() as proxy:
        await proxy.activate("one")
        kill(bench, "a")
        await proxy.state("a", "failed")
        results = await together(proxy, "a__echo", word="again")
    assert [text(result) for result in results] == ['{"word": "again"}'] * TOGETHER
    assert len(bench.events("a", "spawned")) == 2


async def test_a_death_at_the_moment_of_a_call_is_no_silence(bench: Bench):
    """A call in the very moment of the death either finds a new process or says what happened."""
    bench.stdio("a")
    bench.skill("one", {"a": []})
    async with bench.proxy() as proxy:
        await proxy.activate("one")
        for _ in range(5):
            kill(bench, "a")
            result = await proxy.call("a__echo", word="now")
            assert text(result) == '{"word": "now"}' or (result.is_error and "Server a was lost" in text(result))
            assert not (await proxy.call("a__echo")).is_error


async def test_a_server_that_does_not_come_back_is_named(bench: Bench):
    """When starting again fails, each call tries once and says why; when it can start again, calls work again."""
    expired = bench.file("expired")
    bench.stdio("a", dies=True, given=str(expired), stderr="the licence has expired")
    bench.skill("one", {"a": []})
    async with bench.proxy() as proxy:
        await proxy.activate("one")
        expired.touch()
        kill(bench, "a")
        await proxy.state("a", "failed")
        for attempt in (1, 2):
            result = await proxy.call("a__echo")
            assert result.is_error
            assert "server a is not available" in text(result)
            assert "exit code 3" in text(result)
            assert "the licence" not in text(result)
            assert len(bench.events("a", "spawned")) == 1 + attempt
        assert "a__echo" in await proxy.tools()
        expired.unlink()
        assert not (await proxy.call("a__echo")).is_error


async def test_a_server_that_dies_in_a_call_gives_one_clear_error(bench: Bench):
    """The result names the server, the tool and what is known of the reason; the tool ran once; the next call works."""
    bench.stdio("a")
    bench.stdio("b")
    bench.skill("one", {"a": [], "b": []})
    async with bench.proxy() as proxy:
        await proxy.activate("one")
        result = await proxy.call("a__die", marker=str(bench.file("died")))
        assert (await proxy.call("b__echo", word="b")).is_error is not True
        assert len(bench.events("a", "ran", name="die")) == 1
        again = await proxy.call("a__echo", word="again")
    assert result.is_error
    assert "\n" not in text(result)
    assert "Server a was lost" in text(result)
    assert "a__die" in text(result)
    assert not again.is_error
    assert len(bench.events("a", "spawned")) == 2
    assert len(bench.events("b", "spawned")) == 1


async def test_a_death_in_a_call_tells_the_model_the_exit_code_and_the_log_the_last_words(bench: Bench):
    """What is known of the reason is how the process ended (rule 33); what it wrote is for who runs the proxy."""
    bench.stdio("a")
    bench.skill("one", {"a": []})
    with capture_logs() as log:
        async with bench.proxy() as proxy:
            await proxy.activate("one")
            result = await proxy.call("a__die")
            await proxy.state("a", "failed")
    assert "exit code 3; see the proxy's log" in text(result)
    assert "the disk is full" not in text(result)
    (failed,) = [event for event in log if event["event"] == "server.failed"]
    assert failed["reason"] == "it was lost: the process ended with exit code 3"
    assert failed["detail"] == "its last output: the disk is full"


async def test_a_server_that_dies_at_its_third_call_is_back_at_the_fourth(bench: Bench):
    """Two calls work, the third gives an error, the fourth runs on a new process (B20)."""
    bench.stdio("a", dies_at_call=3)
    bench.skill("one", {"a": []})
    async with bench.proxy() as proxy:
        await proxy.activate("one")
        errors = [(await proxy.call("a__echo", number=number)).is_error for number in range(4)]
    assert errors == [False, False, True, False]
    numbers = [event["arguments"]["number"] for event in bench.events("a", "ran")]
    assert numbers == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("tool", "runs"), [("die_read_only", 2), ("die_idempotent", 2), ("die_plain_hints", 1), ("die", 1)]
)
async def test_only_what_is_safe_is_run_again(bench: Bench, tool: str, runs: int):
    """A call that died with its server is repeated once when the tool says it is read-only or idempotent."""
    bench.stdio("a")
    bench.skill("one", {"a": []})
    async with bench.proxy() as proxy:
        await proxy.activate("one")
        result = await proxy.call(f"a__{tool}", marker=str(bench.file("died")))
    assert result.is_error is (runs == 1)
    assert len(bench.events("a", "ran", name=tool)) == runs


async def test_a_safe_tool_that_always_dies_is_run_twice_and_no_more(bench: Bench):
    """One repetition, then the error."""
    bench.stdio("a")
    bench.skill("one", {"a": []})
    async with bench.proxy() as proxy:
        await proxy.activate("one")
        result = await proxy.call("a__die_read_only")
    assert result.is_error
    assert "Server a was lost" in text(result)
    assert len(bench.events("a", "ran")) == 2


async def test_a_safe_call_that_cannot_be_run_again_is_not_said_to_be_unsent(bench: Bench):
    """It ran when its server died, which does not come back: the error is that of the run, not of the second try."""
    gone = bench.file("gone")
    bench.stdio("a", dies=True, given=str(gone))
    bench.skill("one", {"a": []})
    async with bench.proxy() as proxy:
        await proxy.activate("one")
        result = await proxy.call("a__die_read_only", marker=str(gone))
    assert result.is_error
    assert "Server a was lost while it ran a__die_read_only" in text(result)
    assert "not sent" not in text(result)
    assert len(bench.events("a", "ran")) == 1


async def test_all_calls_in_flight_hear_of_a_death(bench: Bench):
    """Every call that a dying server had in work gets the error, none hangs; one new process serves the next."""
    bench.stdio("a")
    bench.skill("one", {"a": []})
    results: list[CallToolResult] = []
    async with bench.proxy() as proxy:
        await proxy.activate("one")
        async with hanging(bench, proxy, results):
            kill(bench, "a")
        assert [result.is_error for result in results] == [True] * TOGETHER
        assert not (await proxy.call("a__echo")).is_error
    assert len(bench.events("a", "spawned")) == 2
    assert len(bench.events("a", "ran", name="hang")) == TOGETHER


@pytest.mark.parametrize("status", [404, 400, 401])
async def test_a_restarted_http_server_that_forgot_the_session_gets_a_new_one(bench: Bench, status: int):
    """After a restart the next call opens one new session and succeeds, whatever status says it is unknown (B21)."""
    await bench.http("a", era="handshake", lost_session=status)
    bench.skill("one", {"a": []})
    async with bench.proxy() as proxy:
        await proxy.activate("one")
        assert not (await proxy.call("a__echo")).is_error
        await bench.restart("a")
        result = await proxy.call("a__echo", word="again")
    assert not result.is_error, text(result)
    assert text(result) == '{"word": "again"}'
    assert len(bench.events("a", "request", method="initialize")) == 2


async def test_parallel_calls_after_a_restart_share_one_new_session(bench: Bench):
    """Five calls that meet a restarted server at once open one new session, and all succeed (B21)."""
    await bench.http("a", era="handshake")
    bench.skill("one", {"a": []})
    async with bench.proxy() as proxy:
        await proxy.activate("one")
        await bench.restart("a")
        results = await together(proxy, "a__echo", word="again")
    assert [text(result) for result in results] == ['{"word": "again"}'] * TOGETHER
    assert len(bench.events("a", "request", method="initialize")) == 2
    assert len(bench.events("a", "ran")) == TOGETHER


@pytest.mark.parametrize("era", ["handshake", "modern"])
async def test_calls_in_flight_at_a_restart_get_one_error_each(bench: Bench, era: str):
    """Five calls that an HTTP server had in work when it was killed are answered with an error and not repeated."""
    await bench.http("a", era=era)
    bench.skill("one", {"a": []})
    results: list[CallToolResult] = []
    async with bench.proxy() as proxy:
        await proxy.activate("one")
        async with hanging(bench, proxy, results):
            await bench.restart("a")
        assert [result.is_error for result in results] == [True] * TOGETHER
        assert all("a" in text(result) for result in results)
        again = await proxy.call("a__echo", word="again")
    assert text(again) == '{"word": "again"}'
    assert len(bench.events("a", "ran", name="hang")) == TOGETHER


@pytest.mark.parametrize("era", ["handshake", "modern"])
async def test_an_http_server_that_is_down_is_named_and_works_when_it_is_back(bench: Bench, era: str):
    """While it is down each call says so; the active skill stays, and the first call after its return succeeds."""
    await bench.http("a", era=era)
    bench.skill("one", {"a": []})
    async with bench.proxy() as proxy:
        await proxy.activate("one")
        bench.stop("a")
        for _ in range(2):
            result = await proxy.call("a__echo")
            assert result.is_error
            assert "server a is not available" in text(result)
        assert "a__echo" in await proxy.tools()
        await bench.start("a")
        back = await proxy.call("a__echo", word="back")
    assert text(back) == '{"word": "back"}'


async def test_one_lost_server_takes_no_other_down(bench: Bench):
    """While one server dies again and again, a long call on another ends undisturbed."""
    go = bench.file("go")
    bench.stdio("a")
    bench.stdio("b")
    bench.skill("one", {"a": [], "b": []})
    results: list[CallToolResult] = []
    async with bench.proxy() as proxy:
        await proxy.activate("one")
        async with anyio.create_task_group() as tasks:

            async def wait() -> None:
                results.append(await proxy.call("b__wait", until=str(go)))

            tasks.start_soon(wait)
            await bench.event("b", "ran")
            for _ in range(3):
                assert (await proxy.call("a__die")).is_error
            go.touch()
    assert [result.is_error for result in results] == [False]
    assert len(bench.events("b", "spawned")) == 1
