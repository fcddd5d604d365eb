"""Runs and hooks whose clients vanish, whose servers die, and whose configuration changes meanwhile."""

import json
import signal
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio
import pytest

from tests.conftest import ERAS, HttpProxy, Json, Peer, Raw, connected
from tests.faults.stage import BOUND, Stage, act, aside, current, failure, invoke, proxy_of, reloaded, works
from tests.program.process import serving

pytestmark = pytest.mark.anyio

# --- servers that die, and clients that go ---------------------------------------------------------------------------


def running(stage: Stage, **more: Any) -> None:
    """A skill whose run hangs in its second step."""
    steps = [act(mark="first"), stage.hang(mark="second"), act(mark="third")]
    stage.acts("long", tool_list={"a": ["echo"]}, steps=steps, **more)


@asynccontextmanager
async def in_work(stage: Stage, peer: Peer) -> AsyncGenerator[list[Json]]:
    """A run that hangs; at the end it is let go on. Its answer is there afterwards."""
    answers: list[Json] = []
    async with anyio.create_task_group() as tasks:
        aside(tasks, partial(invoke, peer, "long"), answers)
        await stage.reached("first", "second")
        yield answers
        stage.file("go").touch()


@pytest.mark.parametrize("mode", ERAS)
async def test_a_run_is_cancelled(stage: Stage, mode: str):
    """At its server too; its record says so."""
    running(stage)
    async with proxy_of(stage) as proxy, connected(proxy.namespace("one"), mode) as one:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(invoke, one, "long")
            await stage.reached("first", "second")
            tasks.cancel_scope.cancel()
        await stage.cancelled()
        await works(one)
        _, run = await stage.runs(("healthy", "completed"), ("long", "cancelled"))
        assert [step["status"] for step in run["steps"]] == ["completed", "cancelled", "not_begun"]
        assert stage.marks() == ["first", "second"]


@pytest.mark.parametrize("mode", ERAS)
async def test_a_skill_that_is_offloaded_runs_on_where_it_need_not_be_active(stage: Stage, mode: str):
    running(stage)
    async with proxy_of(stage) as proxy, connected(proxy.namespace("one"), mode) as one:
        await one.skill("activate", "long")
        async with in_work(stage, one) as answers:
            assert current(await one.skill("offload", "long")) == []
        assert answers[0]["structuredContent"]["success"] is True
        await stage.runs(("long", "completed"))


async def test_a_client_on_stdio_is_killed_during_a_run(stage: Stage):
    """The proxy ends with all processes; the record is there, and says that the run was cancelled."""
    running(stage)
    async with serving(stage.save()) as program:
        await program.greet()
        await program.ask("tools/call", name="SKILL_INVOKE", arguments={"skill_name": "long"})
        await stage.reached("first", "second")
        assert program.process.stdin is not None
        await program.process.stdin.aclose()
        program.close_stdout()
        assert await program.ended([*stage.pids("a"), *stage.pids("b")], within=BOUND) == 0
        assert "Traceback" not in program.log()
    (run,) = await stage.runs(("long", "cancelled"))
    assert [step["status"] for step in run["steps"]] == ["completed", "cancelled", "not_begun"]


RUN = {"name": "SKILL_INVOKE", "arguments": {"skill_name": "long"}}


async def test_a_connection_of_the_modern_era_ends_during_a_run(stage: Stage, raw: Raw):
    """That is how a client cancels there: the run ends with it, and others go on; it began before theirs."""
    running(stage)
    async with proxy_of(stage) as proxy, connected(proxy.namespace("two")) as two:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(raw.modern, proxy.namespace("one"), "tools/call", RUN)
            await stage.reached("first", "second")
            await works(two)
            tasks.cancel_scope.cancel()
        await stage.cancelled()
        await works(two)
        *_, run = await stage.runs(("healthy", "completed"), ("healthy", "completed"), ("long", "cancelled"))
        assert [step["status"] for step in run["steps"]] == ["completed", "cancelled", "not_begun"]


async def test_a_connection_of_the_handshake_era_ends_during_a_run(stage: Stage, raw: Raw):
    """There a client may come back for the result: the run goes on, with its record in the end."""
    running(stage)
    async with proxy_of(stage) as proxy:
        headers = await raw.open(proxy.url)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(raw.post, proxy.url, "tools/call", RUN, headers)
            await stage.reached("first", "second")
            tasks.cancel_scope.cancel()
        stage.file("go").touch()
        await stage.reached("first", "second", "third")
        await stage.runs(("long", "completed"))


async def test_a_session_is_deleted_during_a_run(stage: Stage, raw: Raw):
    """The run ends with it, as its record says; nothing of it goes on."""
    running(stage)
    async with proxy_of(stage) as proxy, connected(proxy.namespace("two")) as two:
        headers = await raw.open(proxy.url)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(raw.post, proxy.url, "tools/call", RUN, headers)
            await stage.reached("first", "second")
            assert (await raw.send("DELETE", proxy.url, headers=headers)).status == 200
            await stage.cancelled()
            tasks.cancel_scope.cancel()
        await works(two)
        await stage.runs(("healthy", "completed"), ("long", "cancelled"))


@pytest.mark.parametrize("hook", ["on_activate", "on_offload"])
async def test_a_session_is_deleted_during_a_hook(stage: Stage, raw: Raw, hook: str):
    """The hook ends with it; what had been active before is ended in good order."""
    stage.acts("before", on_offload=[act(mark="end of before")])
    stage.acts("case", **{hook: [stage.hang(mark="hook")]})
    async with proxy_of(stage) as proxy, connected(proxy.namespace("two")) as two:
        headers = await raw.open(proxy.url)
        await raw.skill(proxy.url, headers, "activate", "before")
        if hook == "on_offload":
            await raw.skill(proxy.url, headers, "activate", "case")
        async with anyio.create_task_group() as tasks:
            change = {"action": hook.removeprefix("on_"), "skill_name": "case"}
            tasks.start_soon(raw.post, proxy.url, "tools/call", {"name": "SKILL", "arguments": change}, headers)
            await stage.reached("hook")
            assert (await raw.send("DELETE", proxy.url, headers=headers)).status == 200
            await stage.cancelled()
            tasks.cancel_scope.cancel()
        await stage.reached("hook", "end of before")
        await works(two)


async def test_a_server_dies_in_a_run(stage: Stage):
    """The run fails, as its record says; the next one has a server again."""
    stage.acts("dying", steps=[act(tool="b/act", mark="before"), act(("exit", 3), mark="dying"), act(mark="after")])
    stage.acts("later", steps=[act(mark="later")])
    async with proxy_of(stage) as proxy, connected(proxy.namespace("one")) as one:
        failure(await invoke(one, "dying"), "a/act", "lost", "before")
        assert (await invoke(one, "later"))["structuredContent"]["output"] == "done"
        assert stage.marks() == ["dying", "later"]
        _, run = await stage.runs(("later", "completed"), ("dying", "failed"))
        assert [step["status"] for step in run["steps"]] == ["completed", "failed", "not_begun"]


# --- another configuration meanwhile ---------------------------------------------------------------------------------


def without_skill(stage: Stage) -> Json:
    del stage.skills["long"]
    return {}


def without_tool(stage: Stage) -> Json:
    stage.acts("long", steps=[act(tool="b/act")])
    return {"denied": {"a": ["act"]}}


def without_server(stage: Stage) -> Json:
    del stage.servers["a"], stage.skills["long"]
    for skill in stage.skills.values():
        skill.get("internal_tools", {}).pop("a", None)
    return {}


TAKEN = [without_skill, without_tool, without_server]


async def taken(stage: Stage, proxy: HttpProxy, peer: Peer, take: Callable[[Stage], Json]) -> None:
    """Have something taken away, servers as well."""
    await reloaded(stage, peer, **take(stage))
    proxy.process.send_signal(signal.SIGHUP)
    await proxy.until_logged("config.reloaded", 2)


@pytest.mark.parametrize("take", TAKEN)
async def test_a_run_loses_what_it_uses(stage: Stage, take: Callable[[Stage], Json]):
    """It calls no more, and its answer says where it ended; the client goes on."""
    running(stage)
    async with proxy_of(stage) as proxy, connected(proxy.namespace("one"), "legacy") as one:
        async with in_work(stage, one) as answers:
            await taken(stage, proxy, one, take)
        answer = failure(answers[0], "long", "a/act", "first")
        assert answer["structuredContent"]["success"] is False
        assert stage.marks() == ["first", "second"]
        await works(one)
        await stage.runs(("healthy", "completed"), ("long", "failed"))


@pytest.mark.parametrize("take", TAKEN)
@pytest.mark.parametrize("hook", ["on_activate", "on_offload"])
async def test_a_hook_loses_what_it_uses(stage: Stage, hook: str, take: Callable[[Stage], Json]):
    """It calls no more where that is denied; the skill is not active, and the client goes on."""
    hooks = {hook: [stage.hang(mark="hook"), act(mark="more")]}
    stage.acts("long", **hooks)
    answers: list[Json] = []
    async with proxy_of(stage) as proxy, connected(proxy.namespace("one"), "legacy") as one:
        if hook == "on_offload":
            await one.skill("activate", "long")
        async with anyio.create_task_group() as tasks:
            aside(tasks, lambda: one.skill(hook.removeprefix("on_"), "long"), answers)
            await stage.reached("hook")
            await taken(stage, proxy, one, take)
            stage.file("go").touch()
        assert "Traceback" not in json.dumps(answers)
        ends = hook == "on_offload" and take is without_skill  # what has begun is ended by what it was
        assert stage.marks() == ["hook", *(["more"] if ends else [])]
        assert current(await one.skill("list")) == []
        await works(one)


async def test_an_activation_begins_what_its_skill_has_come_to_require_meanwhile(stage: Stage):
    """Nothing is active that has not begun."""
    stage.acts("case", on_activate=[stage.hang(mark="case")])
    stage.acts("late", on_activate=[act(mark="late")], on_offload=[act(mark="end of late")])
    answers: list[Json] = []
    async with proxy_of(stage) as proxy, connected(proxy.namespace("one"), "legacy") as one:
        async with anyio.create_task_group() as tasks:
            aside(tasks, lambda: one.skill("activate", "case"), answers)
            await stage.reached("case")
            stage.skills["case"]["requires_skills"] = ["late"]
            await reloaded(stage, one)
            stage.file("go").touch()
        assert sorted(current(answers[0])) == ["case", "late"]
        assert stage.marks() == ["case", "late"]
        await one.skill("offload", "case")
        assert stage.marks() == ["case", "late", "end of late"]
