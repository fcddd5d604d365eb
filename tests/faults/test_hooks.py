"""Hooks whose servers hang, die and are the proxy itself; at the start of scopes, and at the end of the proxy."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from tests.answers import current_skills
from tests.conftest import ERAS, HttpProxy, Json, Peer, Raw, connected, http_proxy, text_of
from tests.faults.stage import (
    BOUND,
    ENOUGH,
    LONG,
    Call,
    Stage,
    act,
    current,
    failure,
    invoke,
    proxy_of,
    reloaded,
    works,
)
from tests.upstream.bench import alive, until

pytestmark = pytest.mark.anyio

# --- servers that hang in hooks --------------------------------------------------------------------------------------

HOOKS = ("on_scope_start", "on_activate", "on_offload")


def with_hook(stage: Stage, hook: str, *steps: Json, timeout: float) -> Json:
    """Put the skill `case` with a hook into the configuration, or what is to be said at its top."""
    stage.acts("case", tool_list={"b": ["echo"]}, hook_timeout=timeout)
    stage.settings["hook_timeout"] = timeout
    if hook == "on_scope_start":
        return {hook: [*steps]}
    stage.skills["case"][hook] = [*steps]
    return {}


async def reach(peer: Peer, hook: str) -> Json:
    """Have a hook run; the answer to the call that does."""
    if hook == "on_scope_start":
        return await peer.skill("list")
    if hook == "on_offload":
        assert current(await peer.skill("activate", "case")) == ["case"]
    return await peer.skill(hook.removeprefix("on_"), "case")


@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.parametrize("hook", HOOKS)
async def test_a_server_hangs_in_a_hook(stage: Stage, hook: str, mode: str):
    """Until the hook's time is over: the answer says so, the server is told, and the client goes on."""
    said = with_hook(stage, hook, stage.hang(), timeout=ENOUGH)
    async with proxy_of(stage, **said) as proxy, connected(proxy.namespace("one"), mode) as one:
        answer = await reach(one, hook)
        assert f"{ENOUGH:g} s" in text_of(answer)
        assert answer.get("isError", False) is (hook != "on_offload")  # what has ended has ended
        await stage.cancelled()
        stage.file("go").touch()
        assert current(await one.skill("list")) == []
        await works(one)


@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.parametrize("hook", HOOKS)
async def test_a_client_gives_up_a_hook_that_hangs(stage: Stage, hook: str, mode: str):
    """The server is told, nothing is active, and the client goes on; meanwhile others are not disturbed."""
    said = with_hook(stage, hook, stage.hang(), timeout=LONG)
    async with proxy_of(stage, **said) as proxy, connected(proxy.namespace("one"), mode) as one:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(reach, one, hook)
            await stage.reached("")
            if hook != "on_scope_start":
                async with connected(proxy.namespace("two")) as two:
                    await works(two)
            tasks.cancel_scope.cancel()
        await stage.cancelled()
        stage.file("go").touch()
        assert current(await one.skill("list")) == []
        await works(one)


async def test_an_offloading_that_is_given_up_ends_what_it_has_taken_away(stage: Stage):
    """The hook in work is cancelled; that of the skill which goes along, and has not begun, still runs."""
    stage.acts("small", on_offload=[act(mark="small")])
    stage.acts("big", requires_skills=["small"], on_offload=[stage.hang(mark="big")])
    async with proxy_of(stage) as proxy, connected(proxy.namespace("one"), "legacy") as one:
        assert current(await one.skill("activate", "big")) == ["small", "big"]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(one.skill, "offload", "big")
            await stage.reached("big")
            tasks.cancel_scope.cancel()
        await stage.cancelled()
        await stage.reached("big", "small")
        assert current(await one.skill("list")) == []
        await works(one)


# --- servers that die ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hook", HOOKS)
async def test_a_server_dies_in_a_hook(stage: Stage, hook: str):
    """The answer names the step, the server and what it said last; the next time it is there again."""
    steps = [act(tool="b/act", mark="before"), act(("exit", 3), mark="dying")]
    said = with_hook(stage, hook, *steps, timeout=LONG)
    async with proxy_of(stage, **said) as proxy, connected(proxy.namespace("one"), "legacy") as one:
        answer = await reach(one, hook)
        assert all(word in text_of(answer) for word in ("dying", "a/act", "server a was lost", "before"))
        assert answer.get("isError", False) is (hook != "on_offload")
        if hook != "on_scope_start":
            await works(one)
        stage.skills["case"].pop(hook, None)
        await reloaded(stage, one)
        await works(one)


# --- the end, and the start ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hangs", [False, True])
async def test_the_end_of_the_proxy_with_slow_ends_of_many_skills(stage: Stage, raw: Raw, *, hangs: bool):
    """All are begun side by side, none holds the end up, and none is begun twice."""
    mark = "end of {{ scope.id }}"
    stage.acts("case", on_offload=[stage.hang(mark=mark) if hangs else act(mark=mark)])
    with http_proxy(stage.save()) as proxy:
        for number in range(50):
            name = {"name": "SKILL", "arguments": {"action": "activate", "skill_name": "case"}}
            answer = await raw.modern(proxy.namespace(f"n{number}"), "tools/call", name)
            assert not answer.reply["result"].get("isError"), answer
        sessions = [await raw.open(proxy.url) for _ in range(10)]
        for headers in sessions:
            await raw.skill(proxy.url, headers, "activate", "case")
        left = [*stage.pids("a"), *stage.pids("b")]
        proxy.process.terminate()
        await until(lambda: proxy.process.poll() is not None and not any(map(alive, left)), BOUND)
        assert proxy.process.returncode == 0
    log = proxy.log.read_text(encoding="utf-8")
    assert "Traceback" not in log
    assert not [line for line in log.splitlines() if json.loads(line)["level"] == "error"]
    assert len(stage.marks()) == len({*stage.marks()})


@pytest.mark.parametrize("mode", ERAS)
async def test_a_scope_starts_with_a_server_that_does_not(stage: Stage, mode: str):
    """Each call says why, whatever it is; lists are there; it works once the server is there."""
    stage.mood("a", crashes=1000)
    with http_proxy(stage.save(on_scope_start=[act(mark="start")])) as proxy:
        async with connected(proxy.namespace("one"), mode) as one:
            calls: list[Call] = [
                lambda: one.skill("list"),
                lambda: one.skill("activate", "healthy"),
                lambda: invoke(one, "healthy"),
                lambda: one.call("b__echo"),
            ]
            for call in calls:
                failure(await call(), "a/act", "server a is not available")
                assert "SKILL" in await one.tools()
            assert stage.marks() == stage.marks("b") == []
            stage.mood("a")
            await until_it_works(one)
            await works(one)
            assert stage.marks() == ["start"]
        assert "Traceback" not in proxy.log.read_text(encoding="utf-8")


async def until_it_works(peer: Peer) -> None:
    """A server that could not be had can be, now or a moment later."""
    with anyio.fail_after(LONG / 10):
        while (await peer.skill("list")).get("isError"):
            pass


# --- a server that is the proxy itself -------------------------------------------------------------------------------


def itself(port: int, path: str = "one", **more: Any) -> Json:
    """The entry of a server that is the proxy itself."""
    return {"type": "http", "url": f"http://127.0.0.1:{port}/mcp{path and '/'}{path}", **more}


@asynccontextmanager
async def mirrored(stage: Stage, port: int, **more: Any) -> AsyncGenerator[HttpProxy]:
    """A proxy at a port."""
    with http_proxy(stage.save(**more), "--port", str(port)) as proxy:
        yield proxy
    assert "Traceback" not in proxy.log.read_text(encoding="utf-8")


@pytest.mark.parametrize("era", ["handshake", "modern"])
@pytest.mark.parametrize("action", ["activate", "offload"])
async def test_a_hook_changes_its_own_skill_in_its_own_scope(stage: Stage, free_port: int, era: str, action: str):
    """Behind the back of the gate, by a server that is the proxy: it waits for itself, until the hook's time is over.

    What it had asked for is given up with it, and the scope goes on.
    """
    stage.servers["me"] = itself(free_port, era=era)
    change = {"tool": "me/SKILL", "arguments": {"action": action, "skill_name": "case"}}
    stage.acts("case", hook_timeout=ENOUGH, on_activate=[change])
    async with mirrored(stage, free_port) as proxy, connected(proxy.namespace("one")) as one:
        answer = failure(await one.skill("activate", "case"), "me/SKILL", f"{ENOUGH:g} s")
        assert current_skills(answer) == []
        await works(one)
        assert current(await one.skill("list")) == []
        assert len(proxy.logged("hook.failed")) == 1


async def test_a_scope_starts_by_calling_itself(stage: Stage, free_port: int):
    """It waits for its own start, until the time for that is over; what the call does is never done."""
    stage.servers["me"] = itself(free_port)
    stage.settings["hook_timeout"] = ENOUGH
    start = {"tool": "me/SKILL", "arguments": {"action": "activate", "skill_name": "healthy"}}
    async with mirrored(stage, free_port, on_scope_start=[start]) as proxy, connected(proxy.namespace("one")) as one:
        for _ in range(2):
            failure(await one.skill("list"), "me/SKILL", f"{ENOUGH:g} s")
        assert stage.marks("b") == []
        async with connected(proxy.namespace("two")) as two:  # for which that is another scope
            failure(await two.skill("list"), "me/SKILL", f"{ENOUGH:g} s")


@pytest.mark.parametrize("path", ["one", ""])
async def test_a_workflow_invokes_itself_by_a_server_that_is_the_proxy(stage: Stage, free_port: int, path: str):
    """As many of its runs are at work at a time as there may be in a scope; then it says so, and all of them end."""
    stage.servers["me"] = itself(free_port, path)
    again = {"tool": "me/SKILL_INVOKE", "arguments": {"skill_name": "loop"}}
    stage.acts("loop", steps=[again], max_concurrent_executions=3)
    async with mirrored(stage, free_port) as proxy, connected(proxy.namespace("one")) as one:
        failure(await invoke(one, "loop"), "3 runs")
        await works(one)
        runs = 3 if path else 4  # where it is another scope, beside the one of the client
        await stage.runs(("healthy", "completed"), *[("loop", "failed")] * runs)
