"""Calls that take long: the limit of a server, cancelling, and progress (rule 33)."""

import anyio
import pytest
from mcp_types import CallToolResult

from tests.upstream.bench import DEADLINE, Bench, text

pytestmark = pytest.mark.anyio

SHORT = 0.4


async def serve(bench: Bench, transport: str, key: str, limit: float, **faults: str) -> None:
    if transport == "http":
        await bench.http(key, {"timeout": limit}, **faults)
    else:
        bench.stdio(key, {"timeout": limit}, **faults)


@pytest.mark.parametrize("era", ["handshake", "modern"])
@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_a_call_ends_at_the_limit_and_the_server_is_told(bench: Bench, transport: str, era: str):
    """Without result or progress a call ends as a result naming server, tool and limit, and the server is told."""
    await serve(bench, transport, "a", SHORT, era=era)
    bench.skill("one", {"a": []})
    async with bench.proxy() as proxy:
        await proxy.activate("one")
        result = await proxy.call("a__hang")
        await bench.event("a", "cancelled")
        assert not (await proxy.call("a__echo")).is_error
    assert result.is_error
    assert "Server a " in text(result)
    assert "a__hang" in text(result)
    assert "0.4 s" in text(result)
    assert len(bench.events("a", "ran", name="hang")) == 1


@pytest.mark.parametrize("era", ["handshake", "modern"])
@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_a_call_that_the_client_cancels_is_cancelled_at_the_server(bench: Bench, transport: str, era: str):
    """Cancelling travels through to the server, whose tool stops."""
    await serve(bench, transport, "a", DEADLINE, era=era)
    bench.skill("one", {"a": []})
    async with bench.proxy() as proxy:
        await proxy.activate("one")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(proxy.call, "a__hang")
            await bench.event("a", "ran")
            tasks.cancel_scope.cancel()
        await bench.event("a", "cancelled")
        assert not (await proxy.call("a__echo")).is_error
    assert len(bench.events("a", "spawned")) == 1


@pytest.mark.parametrize(("transport", "era"), [("stdio", "handshake"), ("stdio", "modern"), ("http", "modern")])
async def test_progress_puts_the_limit_off(bench: Bench, transport: str, era: str):
    """A call that reports progress, to a client that asked for it, may last longer than the limit."""
    limit, pause = 1.5, 0.1
    await serve(bench, transport, "a", limit, era=era)
    bench.skill("one", {"a": []})
    heard: list[float] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append(progress)

    async with bench.proxy(mode="legacy") as proxy:
        await proxy.activate("one")
        with anyio.fail_after(DEADLINE):
            result = await proxy.client.call_tool(
                "a__progress", {"steps": int(limit / pause * 1.3), "pause": pause}, progress_callback=hear
            )
    assert not result.is_error, text(result)
    assert heard == list(range(int(limit / pause * 1.3)))


async def test_a_slow_call_holds_up_no_other(bench: Bench):
    """Calls on one connection run side by side: a quick one is answered while a slow one is still in work."""
    go = bench.file("go")
    bench.stdio("a")
    bench.skill("one", {"a": []})
    results: list[CallToolResult] = []
    async with bench.proxy() as proxy:
        await proxy.activate("one")
        async with anyio.create_task_group() as tasks:

            async def wait() -> None:
                results.append(await proxy.call("a__wait", until=str(go)))

            tasks.start_soon(wait)
            await bench.event("a", "ran")
            assert text(await proxy.call("a__echo", word="quick")) == '{"word": "quick"}'
            assert not results
            go.touch()
    assert [result.is_error for result in results] == [False]
