"""Servers whose configuration changes while they run: ended when their calls are done, begun anew, or left alone."""

import os
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio
import pytest
from mcp import MCPError
from mcp_types import CallToolResult, ToolListChangedNotification
from structlog.testing import capture_logs

from proxy.config.load import load
from proxy.core.scope import ScopeId
from proxy.core.server import Server
from proxy.store.offers import OfferFiles
from proxy.upstream import life, pool
from tests.upstream.bench import DEADLINE, Bench, Proxied, alive, problems, read_events, text, until

pytestmark = pytest.mark.anyio

OTHER = ScopeId("namespace", "other")


async def reload(bench: Bench, proxy: Proxied, *, full: bool = True) -> None:
    """Put what the bench says by now into effect."""
    await proxy.running.reload(load(bench.write(), os.environ), full=full)


def change(bench: Bench, key: str, **entry: Any) -> None:
    """A server's entry is another from now on."""
    if "args" not in entry and "command" in bench.servers[key]:
        entry["args"] = [*bench.servers[key]["args"], "--changed"]
    bench.servers[key] |= entry


@asynccontextmanager
async def running(bench: Bench, proxy: Proxied, tool: str, **arguments: object) -> AsyncGenerator[list[CallToolResult]]:
    """A call that a server has in work inside, and is over at the end; its result is in what this gives."""
    server, _, name = tool.partition("__")
    results: list[CallToolResult] = []

    async def call() -> None:
        results.append(await proxy.call(tool, **arguments))

    async with anyio.create_task_group() as tasks:
        before = len(bench.events(server, "ran", name=name))
        tasks.start_soon(call)
        await bench.event(server, "ran", count=before + 1, name=name)
        yield results


def lives(bench: Bench, key: str) -> list[str]:
    """The beginnings and ends of a server's processes, in order."""
    return [event["event"] for event in read_events(bench.log(key)) if event["event"] in ("spawned", "eof")]


async def test_a_changed_server_is_replaced_when_its_calls_are_done_and_no_other(bench: Bench):
    """A running call ends well; new ones go to the new process, which begins when the old one has ended (B60)."""
    go = bench.file("go")
    for key in ("a", "b", "c"):
        bench.stdio(key)
        bench.skill(key, {key: []})
    async with bench.proxy() as proxy:
        for key in ("a", "b"):
            await proxy.activate(key)
        late: list[CallToolResult] = []

        async def call() -> None:
            late.append(await proxy.call("a__echo", word="new"))

        async with anyio.create_task_group() as tasks:
            async with running(bench, proxy, "a__wait", until=str(go)) as results:
                change(bench, "a")
                await reload(bench, proxy)
                tasks.start_soon(call)
                assert "a__echo" in await proxy.tools()
                assert not (await proxy.call("b__echo")).is_error
                await proxy.activate("c")  # as long as it takes to start a process
                assert lives(bench, "a") == ["spawned"]
                go.touch()
            assert [result.is_error for result in results] == [False]
        assert [text(result) for result in late] == ['{"word": "new"}']
        assert lives(bench, "a") == ["spawned", "eof", "spawned"]
        first, second = bench.pids("a")
        assert [event["pid"] for event in bench.events("a", "ran")] == [first, second]
        assert bench.events("a", "spawned", argv=["--changed"])
    assert len(bench.events("b", "spawned")) == 1


async def test_calls_that_wait_for_their_turn_at_a_changed_server_run_at_the_new_one(bench: Bench):
    """They have not begun: they are neither lost nor said to have perhaps run."""
    go = bench.file("go")
    bench.stdio("a", {"max_concurrency": 1})
    bench.skill("one", {"a": []})
    async with bench.proxy() as proxy:
        await proxy.activate("one")
        waiting: list[CallToolResult] = []

        async def call(word: str) -> None:
            waiting.append(await proxy.call("a__echo", word=word))

        async with anyio.create_task_group() as tasks:
            async with running(bench, proxy, "a__wait", until=str(go)) as results:
                for word in ("one", "two"):
                    tasks.start_soon(call, word)
                await anyio.wait_all_tasks_blocked()
                change(bench, "a")
                await reload(bench, proxy)
                go.touch()
            assert [result.is_error for result in results] == [False]
        assert [text(result) for result in waiting] == ['{"word": "one"}', '{"word": "two"}']
        first, second = bench.pids("a")
        assert [event["pid"] for event in bench.events("a", "ran")] == [first, second, second]


async def test_a_changed_server_over_http_is_reached_anew_at_once(bench: Bench):
    """There is nothing that two connections could not share; the call on the old one ends well."""
    go = bench.file("go")
    await bench.http("a", era="handshake")
    bench.skill("one", {"a": []})
    async with bench.proxy() as proxy:
        await proxy.activate("one")
        async with running(bench, proxy, "a__wait", until=str(go)) as results:
            change(bench, "a", headers={"X-Tenant": "two"})
            await reload(bench, proxy)
            assert not (await proxy.call("a__echo")).is_error
            assert not results
            assert not bench.events("a", "farewell")
            go.touch()
        assert [result.is_error for result in results] == [False]
        await bench.event("a", "farewell")
    assert len(bench.events("a", "request", method="initialize")) == 2


async def test_a_call_that_does_not_end_holds_the_new_server_up_for_a_time(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
):
    """When that is over it is answered that its server is gone, and the new one works."""
    monkeypatch.setattr(pool, "REPLACE_WITHIN", 0.2)
    bench.stdio("a")
    bench.skill("one", {"a": []})
    async with bench.proxy() as proxy:
        await proxy.activate("one")
        async with running(bench, proxy, "a__hang") as results:
            change(bench, "a")
            await reload(bench, proxy)
            assert text(await proxy.call("a__echo", word="new")) == '{"word": "new"}'
        assert [result.is_error for result in results] == [True]
        assert "a__hang" in text(results[0])
        assert "Server a was lost" in text(results[0])


async def test_a_call_that_waits_for_the_start_of_the_old_server_gets_the_new_one(bench: Bench):
    """It is not lost, and the one that never answered has ended."""
    bench.stdio("a", silent=True)
    bench.settings["activation_wait"] = 0.1
    bench.skill("one", {"a": ["echo"]})
    results: list[CallToolResult] = []
    async with bench.proxy() as proxy:
        await proxy.activate("one")

        async def call() -> None:
            results.append(await proxy.call("a__echo", word="patient"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await until(lambda: proxy.running.pool.status("a").state == "starting")
            await bench.event("a", "request")
            bench.stdio("a")
            await reload(bench, proxy)
        assert [text(result) for result in results] == ['{"word": "patient"}']
        assert not alive(bench.pids("a")[0])
    assert lives(bench, "a")[:3] == ["spawned", "eof", "spawned"]


async def test_a_removed_server_ends_when_its_calls_are_done(bench: Bench):
    """Its tools are unknown at once; what it says of its lists meanwhile concerns nobody."""
    first, then = bench.file("first"), bench.file("then")
    bench.stdio("a", era="handshake")
    bench.stdio("b")
    bench.skill("one", {"a": ["*"], "b": ["echo"]})
    async with bench.proxy() as proxy:
        await proxy.activate("one")
        async with running(bench, proxy, "a__wait", until=str(first), then=str(then)) as results:
            del bench.servers["a"]
            bench.skill("one", {"b": ["echo"]})
            await reload(bench, proxy, full=False)
            assert await proxy.tools() == ["SKILL", "SKILL_CALL", "b__echo"]
            with pytest.raises(MCPError, match="Unknown tool: a__echo"):
                await proxy.call("a__echo")
            first.touch()
            await bench.event("a", "request", method="tools/list", count=2)
            assert not bench.events("a", "eof")
            then.touch()
        assert [result.is_error for result in results] == [False]
        await bench.event("a", "eof")
        assert proxy.running.pool.status("a").state == "idle"
        assert await proxy.tools() == ["SKILL", "SKILL_CALL", "b__echo"]
    assert len(bench.events("b", "spawned")) == 1


async def test_a_removed_server_is_not_tried_again(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    """While another is, again and again."""
    monkeypatch.setattr(life, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(life, "LONGEST_PAUSE", 0.02)
    for key in ("a", "b"):
        bench.stdio(key, dies=True)
        bench.skill(key, {key: []})
    with capture_logs() as log:
        async with bench.proxy() as proxy:
            for key in ("a", "b"):
                await proxy.activate(key)
                await bench.event(key, "spawned", count=2)
            del bench.servers["a"], bench.skills["a"]
            await reload(bench, proxy, full=False)
            before = len(log)
            await bench.event("b", "spawned", count=len(bench.events("b", "spawned")) + 5)
            started = [event["server"] for event in log[before:] if event["event"] == "server.starting"]
            assert set(started) == {"b"}
        assert not any(map(alive, bench.pids("a")))


async def test_a_failed_server_that_is_put_right_starts_at_once(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    """However long the next attempt is away; whoever needs it is told."""
    monkeypatch.setattr(life, "FIRST_PAUSE", 1000.0)
    monkeypatch.setattr(life, "LONGEST_PAUSE", 1000.0)
    notices = 0

    async def hear(message: object) -> None:
        nonlocal notices
        notices += isinstance(message, ToolListChangedNotification)

    bench.servers["a"] = {"command": "no-such-program"}
    bench.skill("one", {"a": ["echo"]})
    async with bench.proxy(mode="legacy", on_message=hear) as proxy:
        assert "no-such-program" in problems(await proxy.activate("one"))["a"]
        bench.stdio("a")
        await reload(bench, proxy)
        await until(lambda: notices > 0)
        assert await proxy.tools() == ["SKILL", "SKILL_CALL", "a__echo"]
        assert notices == 1


async def test_a_server_that_all_shared_is_given_to_each_and_back(bench: Bench):
    """By a change of `isolation`; whoever needs it gets what it offers, and nothing of the old is left."""
    bench.stdio("a")
    bench.skill("one", {"a": ["echo"]}, active=True)
    async with bench.proxy() as proxy:
        await proxy.tools()
        await proxy.running.gate.state(OTHER)
        await proxy.state("a", "ready")
        assert len(bench.events("a", "spawned")) == 1

        change(bench, "a", isolation="scope")
        await reload(bench, proxy)
        await bench.event("a", "spawned", count=3)
        await bench.event("a", "eof", count=1)
        assert not (await proxy.call("a__echo")).is_error

        change(bench, "a", isolation="shared")
        await reload(bench, proxy)
        await bench.event("a", "spawned", count=4)
        await bench.event("a", "eof", count=3)
        assert not (await proxy.call("a__echo")).is_error
        *old, new = bench.pids("a")
        assert alive(new)
        await until(lambda: not any(map(alive, old)))
    assert len(bench.events("a", "spawned")) == 4


async def test_a_server_that_becomes_eager_starts_for_nobody(bench: Bench):
    """As it does with the program; one that no skill names does not."""
    bench.stdio("a", {"start": "eager"})
    bench.stdio("b", {"start": "eager"})
    bench.skill("one", {"a": ["echo"]})
    a = bench.servers.pop("a")
    b = bench.servers.pop("b")
    bench.skills.clear()
    bench.skill("none", {})
    async with bench.proxy() as proxy:
        await proxy.tools()
        bench.servers |= {"a": a, "b": b}
        bench.skill("one", {"a": ["echo"]})
        await reload(bench, proxy)
        await proxy.state("a", "ready")
        assert proxy.running.pool.status("b").state == "idle"
    assert not bench.log("b").exists()


async def test_nothing_restarts_when_nothing_of_a_server_changed(bench: Bench):
    """Whatever else does: skills, what is denied, settings, the order of the file."""
    for key in ("a", "b"):
        bench.stdio(key)
    bench.skill("one", {"a": ["echo"], "b": ["echo"]})
    async with bench.proxy() as proxy:
        await proxy.activate("one")
        bench.servers = dict(reversed(bench.servers.items()))
        bench.skill("one", {"a": [], "b": ["echo", "wait"]}, pinned=True)
        bench.skill("two", {"a": []}, active=True)
        bench.settings |= {"list_wait": 0.2, "call_route": "on"}
        for full in (False, True):
            await reload(bench, proxy, full=full)
        tools = await proxy.tools()
        assert tools[:4] == ["SKILL", "SKILL_CALL", "b__echo", "b__wait"]
        assert "a__hang" in tools
        for key in ("a", "b"):
            assert not (await proxy.call(f"{key}__echo")).is_error
            assert lives(bench, key) == ["spawned"]


async def test_reading_what_a_changed_server_offered_holds_nobody_up(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    """The cache folder may be slow, or what was kept may be large."""
    for key in ("a", "b"):
        bench.stdio(key)
        bench.skill(key, {key: ["echo"]})
    called = threading.Event()

    def slow(_files: OfferFiles, _server: Server) -> None:
        assert called.wait(DEADLINE)

    async with bench.proxy() as proxy:
        for key in ("a", "b"):
            await proxy.activate(key)
        monkeypatch.setattr(OfferFiles, "read", slow)
        change(bench, "a")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(reload, bench, proxy, full=True))
            assert not (await proxy.call("b__echo")).is_error
            called.set()
        assert not (await proxy.call("a__echo")).is_error
