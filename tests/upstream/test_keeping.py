"""Servers that are kept alive while somebody needs them, and end when nobody does (rules 27 and 28, B18, B20, B24)."""

import json
import os
import re
import signal
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest
from mcp_types import CallToolResult, ToolListChangedNotification
from structlog.testing import capture_logs

from proxy.core.scope import ScopeId
from proxy.upstream import life
from tests.answers import not_ready
from tests.conftest import Launch, Raw, connected, text_of
from tests.core.changes import activated, offloaded
from tests.program.process import Program, serving
from tests.upstream.bench import Bench, Proxied, alive, problems, read_events, text, until

pytestmark = pytest.mark.anyio

SOON, NEVER = 0.01, 1000.0
"""Seconds until a new attempt: it comes in the time of a test, or it does not."""
OTHERS = [ScopeId("namespace", str(number)) for number in range(1000)]


class Heard:
    """The notices that a client gets."""

    def __init__(self) -> None:
        self.notices = 0

    async def hear(self, message: object) -> None:
        self.notices += isinstance(message, ToolListChangedNotification)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> Callable[[float, float], None]:
    """Sets the first pause and the longest one."""

    def pauses(first: float, longest: float) -> None:
        monkeypatch.setattr(life, "FIRST_PAUSE", first)
        monkeypatch.setattr(life, "LONGEST_PAUSE", longest)

    return pauses


@pytest.fixture
def never(pauses: Callable[[float, float], None]) -> None:
    """No new attempt comes by itself in the time of a test."""
    pauses(NEVER, 100 * NEVER)


@pytest.fixture
def soon(pauses: Callable[[float, float], None]) -> None:
    """New attempts come as fast as they can."""
    pauses(SOON, 2 * SOON)


def kill(bench: Bench, key: str) -> None:
    os.kill(bench.pids(key)[-1], signal.SIGKILL)


def next_try(proxy: Proxied, server: str) -> float | None:
    return proxy.running.pool.status(server).next_try


def changes(log: list[Any], server: str) -> list[str]:
    """Each change of state of a server that was logged, in order."""
    return [event["event"] for event in log if event["event"].startswith("server.") and event.get("server") == server]


async def together(proxy: Proxied, tool: str, count: int = 5) -> list[CallToolResult]:
    """The results of several calls at once."""
    results: list[CallToolResult] = []

    async def one() -> None:
        results.append(await proxy.call(tool))

    async with anyio.create_task_group() as tasks:
        for _ in range(count):
            tasks.start_soon(one)
    return results


# --- tried again -----------------------------------------------------------------------------------------------------


async def test_a_server_that_fails_is_tried_again_by_itself_until_it_comes(bench: Bench, soon: None):
    """Far more often than the pauses grow; then the scope has its tools, and one notice says so (B20)."""
    broken, heard = bench.file("broken"), Heard()
    broken.touch()
    bench.stdio("a", dies=True, given=str(broken))
    bench.skill("one", {"a": ["echo"]})
    with capture_logs() as log:
        async with bench.proxy(mode="legacy", on_message=heard.hear) as proxy:
            told = problems(await proxy.activate("one"))
            await bench.event("a", "spawned", count=13)
            assert await proxy.tools() == ["SKILL", "SKILL_CALL"]
            assert heard.notices == 0
            broken.unlink()
            await proxy.state("a", "ready")
            await until(lambda: heard.notices > 0)
            assert await proxy.tools() == ["SKILL", "SKILL_CALL", "a__echo"]
            assert not (await proxy.call("a__echo")).is_error
            assert heard.notices == 1
            assert next_try(proxy, "a") is None
    assert "exit code 3" in told["a"]
    told_of = changes(log, "a")
    assert told_of[:-3] == ["server.starting", "server.failed"] * ((len(told_of) - 3) // 2)
    assert told_of[-3:] == ["server.starting", "server.ready", "server.stopped"]


async def test_the_pauses_grow_up_to_the_longest_and_differ(bench: Bench, pauses: Callable[[float, float], None]):
    """Twice as long each time at most, never less than half of that, and not the same for all (B20)."""
    pauses(NEVER, 10 * NEVER)
    bench.stdio("a", dies=True)
    bench.skill("one", {"a": ["echo"]})
    with capture_logs() as log:
        async with bench.proxy() as proxy:
            await proxy.activate("one")
            for _ in range(11):  # each call tries at once
                assert (await proxy.call("a__echo")).is_error
    waits = [event["next_try"] for event in log if event["event"] == "server.failed"]
    longest = [min(10, 2**attempt) * NEVER for attempt in range(12)]
    assert len(waits) == len(longest)
    assert all(most / 2 <= wait <= most for wait, most in zip(waits, longest, strict=True)), waits
    assert len({wait / most for wait, most in zip(waits, longest, strict=True)}) > 6


async def test_an_activation_says_when_a_failed_server_is_tried_again(bench: Bench, never: None):
    """In whole seconds; the log says it too."""
    bench.stdio("a", dies=True, stderr="the licence has expired")
    bench.skill("one", {"a": []})
    with capture_logs() as log:
        async with bench.proxy() as proxy:
            result = await proxy.activate("one")
    problem = problems(result)["a"]
    assert problem.startswith("failed: ")
    assert "the licence" not in problem
    tried_again = re.search(r" \(tried again in (\d+) s\)$", problem)
    assert tried_again
    assert NEVER / 2 - 60 < int(tried_again[1]) <= NEVER
    (failed,) = [event for event in log if event["event"] == "server.failed"]
    assert failed["server"] == "a"
    assert failed["log_level"] == "warning"
    assert failed["reason"] == "the process ended with exit code 3"
    assert failed["detail"] == "its last output: the licence has expired"
    assert NEVER / 2 <= failed["next_try"] <= NEVER


async def test_a_server_that_does_not_answer_in_time_is_ended_and_tried_again(bench: Bench, soon: None):
    """`start_timeout` is the reason; one process has ended when the next begins (B18)."""
    bench.stdio("a", {"start_timeout": 0.3}, silent=True)
    bench.settings["activation_wait"] = 60
    bench.skill("one", {"a": []})
    async with bench.proxy() as proxy:
        assert "it did not answer within 0.3 s" in problems(await proxy.activate("one"))["a"]
        await bench.event("a", "spawned", count=3)
    lives = [event["event"] for event in read_events(bench.log("a")) if event["event"] in ("spawned", "eof")]
    assert lives[:5] == ["spawned", "eof"] * 2 + ["spawned"]


async def test_a_server_that_is_slower_than_the_activation_goes_on_starting(bench: Bench, never: None):
    """The result says so after `activation_wait`; when it is there a notice comes, from the first start (B18)."""
    go, heard = bench.file("go"), Heard()
    bench.stdio("a", release=str(go))
    bench.settings["activation_wait"] = 0.1
    bench.skill("one", {"a": ["echo"]})
    async with bench.proxy(mode="legacy", on_message=heard.hear) as proxy:
        result = await proxy.activate("one")
        assert problems(result) == {"a": "is starting: it has not answered yet"}
        assert heard.notices == 0
        go.touch()
        await until(lambda: heard.notices > 0)
        assert await proxy.tools() == ["SKILL", "SKILL_CALL", "a__echo"]
        assert heard.notices == 1
    assert len(bench.events("a", "spawned")) == 1


# --- lost ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_a_process_that_dies_is_back_without_any_call(bench: Bench, soon: None, mode: str):
    """Its end is noticed, and it is started again; what it offers is as before, so no list changes."""
    heard = Heard()
    bench.stdio("a")
    bench.skill("one", {"a": ["echo"]})
    with capture_logs() as log:
        async with bench.proxy(mode=mode, on_message=heard.hear) as proxy:
            await proxy.activate("one")
            before = heard.notices
            for count in (2, 3):
                kill(bench, "a")
                await bench.event("a", "spawned", count=count)
                await proxy.state("a", "ready")
            assert await proxy.tools() == ["SKILL", "SKILL_CALL", "a__echo"]
            assert heard.notices == before
    once = ["server.starting", "server.ready", "server.failed"]
    assert changes(log, "a") == [*once, *once, "server.starting", "server.ready", "server.stopped"]
    lost = [event["reason"] for event in log if event["event"] == "server.failed"]
    assert all(reason.startswith("it was lost: ") for reason in lost), lost


async def test_a_loss_is_known_before_anybody_calls(bench: Bench, never: None):
    """The state, the reason and the next attempt; a call does not wait for that, and parallel ones share a start."""
    bench.stdio("a")
    bench.skill("one", {"a": ["echo"]})
    async with bench.proxy() as proxy:
        await proxy.activate("one")
        kill(bench, "a")
        assert "SIGKILL" in await proxy.state("a", "failed")
        wait = next_try(proxy, "a")
        assert wait is not None
        assert 0 < wait <= NEVER
        assert not any(result.is_error for result in await together(proxy, "a__echo"))
        assert proxy.running.pool.status("a").state == "ready"
    assert len(bench.events("a", "spawned")) == 2


@pytest.mark.parametrize(("steady", "most"), [(0.0, NEVER), (60.0, 8 * NEVER)])
async def test_after_a_good_life_the_pause_is_short_again(
    bench: Bench, never: None, monkeypatch: pytest.MonkeyPatch, steady: float, most: float
):
    """A server that comes and is lost at once has not had one: its pauses go on growing."""
    monkeypatch.setattr(life, "STEADY", steady)
    broken = bench.file("broken")
    broken.touch()
    bench.stdio("a", dies=True, given=str(broken))
    bench.skill("one", {"a": ["echo"]})
    async with bench.proxy() as proxy:
        for _ in range(3):
            await proxy.activate("one")
        broken.unlink()
        await proxy.activate("one")
        await proxy.state("a", "ready")
        kill(bench, "a")
        await proxy.state("a", "failed")
        wait = next_try(proxy, "a")
    assert wait is not None
    assert most / 2 - 60 < wait <= most


# --- for whom --------------------------------------------------------------------------------------------------------


async def test_a_failed_server_that_nobody_needs_any_more_is_left_alone(bench: Bench, soon: None):
    """While another is still tried, again and again."""
    for key in ("a", "b"):
        bench.stdio(key, dies=True)
        bench.skill(key, {key: []})
    async with bench.proxy() as proxy:
        for key in ("a", "b"):
            await proxy.activate(key)
            await bench.event(key, "spawned", count=3)
        result = await proxy.call("SKILL", action="offload", skill_name="a")
        assert "skill a offloaded" in text(result)
        await until(lambda: proxy.running.pool.status("a").state != "starting")
        assert next_try(proxy, "a") is None
        before = len(bench.events("a", "spawned"))
        await bench.event("b", "spawned", count=len(bench.events("b", "spawned")) + 5)
        assert len(bench.events("a", "spawned")) == before
        assert proxy.running.pool.status("a").state == "failed"


async def test_a_pause_ends_with_the_last_scope_that_needs_the_server(bench: Bench, never: None):
    """Nothing is due any more; activated again, it is tried at once."""
    bench.stdio("a", dies=True)
    bench.skill("one", {"a": []})
    async with bench.proxy() as proxy:
        await proxy.activate("one")
        assert next_try(proxy, "a") is not None
        await proxy.call("SKILL", action="offload", skill_name="one")
        assert next_try(proxy, "a") is None
        assert "exit code 3" in proxy.running.pool.status("a").reason
        await proxy.activate("one")
        assert next_try(proxy, "a") is not None
    assert len(bench.events("a", "spawned")) == 2


async def test_scopes_that_begin_during_a_pause_do_not_hurry_it_but_an_activation_does(bench: Bench, never: None):
    """A thousand scopes with a skill that is active from the start make one attempt."""
    bench.stdio("a", dies=True)
    bench.skill("one", {"a": []}, active=True)
    async with bench.proxy() as proxy:
        await proxy.tools()
        await proxy.state("a", "failed")
        due = next_try(proxy, "a")
        for scope in OTHERS:
            assert (await proxy.running.gate.state(scope)).active == ("one",)
        still_due = next_try(proxy, "a")
        assert due is not None
        assert still_due is not None
        assert 0 < still_due <= due
        assert len(bench.events("a", "spawned")) == 1
        await proxy.activate("one")
        assert len(bench.events("a", "spawned")) == 2


async def test_a_loss_is_told_and_made_good_for_every_scope_by_one_attempt(bench: Bench, never: None):
    """Also with a thousand of them; it is tried as long as one is left."""
    bench.stdio("a")
    bench.skill("one", {"a": []})
    async with bench.proxy() as proxy:
        gate = proxy.running.gate
        for scope in OTHERS:
            await gate.change(scope, lambda state, scope=scope: activated(gate.catalogue(scope), state, "one"))
        await proxy.state("a", "ready")
        kill(bench, "a")
        await proxy.state("a", "failed")
        for scope in OTHERS[1:]:
            await gate.change(scope, lambda state, scope=scope: offloaded(gate.catalogue(scope), state, "one"))
        assert next_try(proxy, "a") is not None
        assert not (await proxy.activate("one")).is_error
        for scope in OTHERS[:1]:
            await gate.change(scope, lambda state, scope=scope: offloaded(gate.catalogue(scope), state, "one"))
        await proxy.call("SKILL", action="offload", skill_name="one")
        kill(bench, "a")
        await proxy.state("a", "idle")
        assert next_try(proxy, "a") is None
    assert len(bench.events("a", "spawned")) == 2


async def test_health_tells_the_state_the_reason_and_the_next_attempt(bench: Bench, launch: Launch, raw: Raw):
    """For scopes apart too: each is told of the return of what it needs by one notice, and the other of nothing."""
    broken = bench.file("broken")
    broken.touch()
    bench.stdio("a", dies=True, given=str(broken), stderr="the licence has expired")
    bench.stdio("b")
    bench.skill("one", {"a": ["echo"]})
    bench.skill("two", {"b": ["echo"]})
    proxy = launch(bench.write())

    async def health() -> Any:
        return json.loads((await raw.send("GET", f"{proxy.base}/health")).text)

    assert await health() == {"status": "ok", "servers": {"a": {"state": "idle"}, "b": {"state": "idle"}}}
    async with (
        connected(proxy.url, "legacy") as first,
        connected(proxy.namespace("n"), "legacy") as second,
        connected(proxy.namespace("m"), "legacy") as other,
    ):
        for peer, skill in ((first, "one"), (second, "one"), (other, "two")):
            await peer.skill("activate", skill)
        seen: list[Any] = []
        while not seen or seen[-1]["servers"]["a"]["state"] != "failed":  # it may be starting just now
            seen.append(await health())
        told = seen[-1]
        assert told["status"] == "degraded"
        assert told["servers"]["b"] == {"state": "ready"}
        assert told["servers"]["a"]["reason"] == "the process ended with exit code 3; see the proxy's log"
        assert 0 <= told["servers"]["a"]["next_try"] <= 60
        broken.unlink()
        for peer in (first, second):
            await peer.wire.until_notices(1)
            assert await peer.tools() == ["SKILL", "SKILL_CALL", "a__echo"]
            assert peer.wire.notices() == 1
        assert await other.tools() == ["SKILL", "SKILL_CALL", "b__echo"]
        assert other.wire.notices() == 1  # of its own activation
        assert await health() == {"status": "ok", "servers": {"a": {"state": "ready"}, "b": {"state": "ready"}}}


# --- idle ------------------------------------------------------------------------------------------------------------

MOMENT, LATER = 0.05, 0.5
"""Seconds of `idle_stop`: where one with the longer has ended, one with the shorter would have ended too."""


async def test_without_idle_stop_a_server_stays(bench: Bench):
    """Nobody needs either; the one that has it ends, and starts again when it is needed."""
    bench.stdio("stays")
    bench.stdio("ends", {"idle_stop": MOMENT})
    bench.skill("all", {"stays": ["echo"], "ends": ["echo"]})
    async with bench.proxy() as proxy:
        await proxy.activate("all")
        await proxy.call("SKILL", action="offload", skill_name="all")
        await bench.event("ends", "eof")
        assert await proxy.state("ends", "stopped") == ""
        assert proxy.running.pool.status("stays").state == "ready"
        assert not bench.events("stays", "eof")

        assert problems(await proxy.activate("all")) == {}
        for key in ("stays", "ends"):
            assert not (await proxy.call(f"{key}__echo")).is_error
        assert next_try(proxy, "ends") is None
    assert len(bench.events("stays", "spawned")) == 1
    assert len(bench.events("ends", "spawned")) == 2


async def test_an_idle_server_that_is_needed_in_time_goes_on(bench: Bench):
    """Offloaded and activated again, it is no longer about to end."""
    bench.stdio("a", {"idle_stop": LATER})
    bench.stdio("b", {"idle_stop": LATER})
    for key in ("a", "b"):
        bench.skill(key, {key: ["echo"]})
    async with bench.proxy() as proxy:
        for action, skill in [("activate", "a"), ("activate", "b"), ("offload", "a"), ("activate", "a")]:
            await proxy.call("SKILL", action=action, skill_name=skill)
        await proxy.call("SKILL", action="offload", skill_name="b")
        await bench.event("b", "eof")
        assert not bench.events("a", "eof")
        assert not (await proxy.call("a__echo")).is_error
    assert len(bench.events("a", "spawned")) == 1


async def test_a_call_in_work_is_not_cut_off_by_idleness(bench: Bench):
    """The skill is offloaded while its tool still runs: the server ends when that has ended."""
    go = bench.file("go")
    bench.stdio("a", {"idle_stop": MOMENT})
    bench.stdio("b", {"idle_stop": LATER})
    bench.skill("all", {"a": [], "b": []})
    results: list[CallToolResult] = []
    async with bench.proxy() as proxy:
        await proxy.activate("all")

        async def wait() -> None:
            results.append(await proxy.call("a__wait", until=str(go)))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await bench.event("a", "ran")
            await proxy.call("SKILL", action="offload", skill_name="all")
            await bench.event("b", "eof")
            assert not bench.events("a", "eof")
            go.touch()
        assert [result.is_error for result in results] == [False]
        await bench.event("a", "eof")


async def test_a_server_ends_when_the_last_scope_that_holds_it_has_gone(bench: Bench, launch: Launch, raw: Raw):
    """One offloads and another's session ends: not before both; a server that one still holds stays."""
    bench.stdio("a", {"idle_stop": MOMENT})
    bench.stdio("b", {"idle_stop": LATER})
    for key in ("a", "b"):
        bench.skill(key, {key: ["echo"]})
    proxy = launch(bench.write())
    one, two = [await raw.open(proxy.url) for _ in "12"]
    for headers in (one, two):
        await raw.skill(proxy.url, headers, "activate", "a")
    await raw.skill(proxy.url, one, "activate", "b")
    for key in ("a", "b"):
        await raw.skill(proxy.url, one, "offload", key)
    await bench.event("b", "eof")
    assert not bench.events("a", "eof")
    assert await raw.tools(proxy.url, two) == ["SKILL", "SKILL_CALL", "a__echo"]

    assert (await raw.send("DELETE", proxy.url, headers=two)).status == 200
    await bench.event("a", "eof")
    await raw.skill(proxy.url, one, "activate", "a")
    assert await raw.tools(proxy.url, one) == ["SKILL", "SKILL_CALL", "a__echo"]
    assert len(bench.events("a", "spawned")) == 2


async def test_a_server_that_was_started_for_nobody_ends_too(bench: Bench):
    """Its skill was offloaded before it was there."""
    go = bench.file("go")
    bench.stdio("a", {"idle_stop": MOMENT}, release=str(go))
    bench.skill("one", {"a": []})
    bench.settings["activation_wait"] = MOMENT
    async with bench.proxy() as proxy:
        await proxy.activate("one")
        await proxy.call("SKILL", action="offload", skill_name="one")
        go.touch()
        await bench.event("a", "eof")
        await proxy.state("a", "stopped")


# --- one for each ----------------------------------------------------------------------------------------------------


async def test_the_limit_on_connections_is_named_and_the_next_gets_in_when_one_leaves(
    bench: Bench, launch: Launch, raw: Raw
):
    """An activation and a call say which setting it is; nobody has to try again by hand."""
    bench.stdio("a", {"isolation": "scope", "max_connections": 2})
    bench.skill("one", {"a": ["echo"]})
    proxy = launch(bench.write())
    holders = [await raw.open(proxy.url) for _ in "12"]
    for headers in holders:
        assert not_ready(await raw.skill(proxy.url, headers, "activate", "one")) == {}
    async with connected(proxy.url, "legacy") as third:
        result = await third.skill("activate", "one")
        problem = not_ready(result)["a"]
        assert problem.startswith("failed: ")
        assert "(2, its max_connections)" in problem
        tried_again = re.search(r" \(tried again in (\d+) s\)$", problem)
        assert tried_again
        assert int(tried_again[1]) <= 60
        refused = await third.call("a__echo")
        assert refused["isError"]
        assert "(2, its max_connections)" in text_of(refused)
        before = third.wire.notices()
        assert len(bench.events("a", "spawned")) == 2

        await raw.send("DELETE", proxy.url, headers=holders[0])
        await until(lambda: len(bench.events("a", "spawned")) == 3)
        assert not (await third.call("a__echo", {"word": "in"})).get("isError")
        assert await third.tools() == ["SKILL", "SKILL_CALL", "a__echo"]
        await third.wire.until_notices(before + 1)
    assert "Traceback" not in proxy.log.read_text()


async def test_a_client_that_needs_it_no_more_makes_room(bench: Bench, launch: Launch, raw: Raw):
    """Also where nothing stops its connection by itself; it has one again when it needs it and there is room."""
    bench.stdio("a", {"isolation": "scope", "max_connections": 1})
    bench.skill("one", {"a": ["echo"]})
    proxy = launch(bench.write())
    first, second = [await raw.open(proxy.url) for _ in "12"]
    for comes, goes in ((first, None), (second, first), (first, second)):
        if goes is not None:
            await raw.skill(proxy.url, goes, "offload", "one")
        assert not_ready(await raw.skill(proxy.url, comes, "activate", "one")) == {}
    assert len(bench.events("a", "spawned")) == 3


# --- the end of the proxy --------------------------------------------------------------------------------------------


async def while_starting(bench: Bench, program: Program) -> None:
    await bench.event("silent", "request")


async def in_a_pause(bench: Bench, program: Program) -> None:
    assert (await program.said("server.failed"))["server"] == "dead"


async def idle_with_a_call_in_work(bench: Bench, program: Program) -> None:
    await program.ask("tools/call", name="idle__hang", arguments={})
    await bench.event("idle", "ran")
    await program.call("SKILL", action="offload", skill_name="all")
    await until(lambda: '"skill.offloaded"' in program.log())


async def replaced_with_a_call_in_work(bench: Bench, program: Program) -> None:
    await program.ask("tools/call", name="idle__hang", arguments={})
    await bench.event("idle", "ran")
    bench.stdio("idle", {"idle_stop": 0.1}, stderr="another")
    bench.write()
    program.process.send_signal(signal.SIGHUP)
    await program.said("config.reloaded")


async def lost_with_a_call_in_work(bench: Bench, program: Program) -> None:
    await program.ask("tools/call", name="idle__hang", arguments={})
    await bench.event("idle", "ran")
    kill(bench, "idle")


@pytest.mark.parametrize(
    "moment",
    [
        while_starting,
        in_a_pause,
        idle_with_a_call_in_work,
        replaced_with_a_call_in_work,
        lost_with_a_call_in_work,
    ],
)
async def test_the_proxy_ends_at_any_moment_of_its_servers(
    bench: Bench, moment: Callable[[Bench, Program], Awaitable[None]]
):
    """Within the bound of rule 29, without a traceback, and nothing of them is left."""
    bench.stdio("silent", silent=True)
    bench.stdio("dead", dies=True)
    bench.stdio("idle", {"idle_stop": 0.1})
    bench.settings["activation_wait"] = 0.5
    bench.skill("all", {"silent": [], "dead": [], "idle": ["*"]})
    async with serving(bench.write()) as program:
        await program.greet()
        await program.activate("all")
        await bench.event("idle", "request", method="tools/list")
        await moment(bench, program)
        program.process.terminate()
        assert await program.ended() == 0
        pids = [pid for key in bench.servers for pid in bench.pids(key)]
        assert not any(map(alive, pids))
        await program.rest()
        assert program.is_clean()
