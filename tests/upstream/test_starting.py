"""Servers that start late, badly or never, and what they cost: their own tools, nothing else (rules 25 and 26)."""

import asyncio
import socket
import ssl
import struct
import time
from typing import Any

import anyio
import pytest
from mcp_types import ToolListChangedNotification
from structlog.testing import capture_logs

from proxy.upstream import life
from tests.upstream.bench import DEADLINE, Bench, problems, text

pytestmark = pytest.mark.anyio

SHORT = 0.5
LONG = 60


async def test_each_broken_server_is_named_with_one_line_and_the_others_work(bench: Bench):
    """A missing binary, a closed port and an instant death cost their own tools alone."""
    bench.stdio("good")
    bench.servers["missing"] = {"command": "no-such-binary"}
    bench.stdio("dead", dies=True, stderr="Traceback (most recent call last):\n  boom\nthe licence has expired")
    bench.skill("all", {"good": [], "missing": [], "closed": [], "dead": []})
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # taken, but nobody listens
        bench.servers["closed"] = {"url": f"http://127.0.0.1:{bound.getsockname()[1]}/mcp"}
        async with bench.proxy() as proxy:
            result = await proxy.activate("all")
            echoed = await proxy.call("good__echo", word="hello")

    told = problems(result)
    assert not result.is_error
    assert list(told) == ["missing", "dead", "closed"]
    assert all(told.values()), told
    assert not any("\n" in reason for reason in told.values())
    assert "no-such-binary" in told["missing"]
    assert "nor on PATH;" in told["missing"]
    assert "exit code 3" in told["dead"]
    assert "the licence" not in text(result)
    assert told["dead"].split(" (tried")[0].endswith("; see the proxy's log")
    assert "nothing answers" in told["closed"]
    for server, reason in told.items():
        assert f"server {server} failed: " in text(result)
        assert reason in text(result)
    assert text(echoed) == '{"word": "hello"}'


async def test_a_server_that_cannot_be_trusted_is_not_taken_for_one_that_is_not_there(bench: Bench):
    """Where no secure connection comes about, something does answer: the log says what is wrong with that."""
    await bench.http("plain")
    bench.servers["plain"]["url"] = bench.servers["plain"]["url"].replace("http:", "https:")
    bench.skill("one", {"plain": []})
    with capture_logs() as log:
        async with bench.proxy() as proxy:
            why = problems(await proxy.activate("one"))["plain"]
    assert why.startswith("failed: no secure connection can be made; see the proxy's log")
    assert [event["detail"][:6] for event in log if event["event"] == "server.failed"] == ["[SSL: "]


async def test_lists_do_not_start_failed_servers_again(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    """A list waits for servers that are on their way; it does not spawn one that has just died, time after time."""
    monkeypatch.setattr(life, "FIRST_PAUSE", LONG)  # it is tried again after a pause, which is another matter
    bench.stdio("silent", silent=True)
    bench.stdio("dead", dies=True)
    bench.skill("both", {"silent": [], "dead": []}, active=True)
    async with bench.proxy() as proxy:
        assert await proxy.tools() == ["SKILL", "SKILL_CALL"]  # the first request begins the scope, which needs both
        await proxy.state("dead", "failed")
        before = len(bench.events("dead", "spawned"))
        for _ in range(5):
            assert await proxy.tools() == ["SKILL", "SKILL_CALL"]
        assert proxy.running.pool.status("silent").state == "starting"
    assert len(bench.events("dead", "spawned")) == before


async def test_an_activation_waits_no_longer_than_activation_wait(bench: Bench):
    """The result comes once `activation_wait` is over, long before the server's own limit, and says who is late."""
    bench.stdio("silent", silent=True)
    bench.settings |= {"activation_wait": SHORT}
    bench.skill("one", {"silent": []})
    async with bench.proxy() as proxy:
        began = time.monotonic()
        result = await proxy.activate("one")
        took = time.monotonic() - began
        assert proxy.running.pool.status("silent").state == "starting"
    assert took >= SHORT
    assert problems(result) == {"silent": "is starting: it has not answered yet"}


async def test_a_silent_server_fails_after_its_own_limit(bench: Bench):
    """`start_timeout` ends the start of a server that accepts and never answers, with the limit as the reason."""
    bench.stdio("silent", {"start_timeout": SHORT}, silent=True)
    bench.skill("one", {"silent": []})
    bench.settings |= {"activation_wait": LONG}
    async with bench.proxy() as proxy:
        result = await proxy.activate("one")
    assert "0.5 s" in problems(result)["silent"]


async def test_a_call_of_a_tool_of_a_failed_server_says_why(bench: Bench):
    """A granted tool whose server is down is refused as a result with the server and its reason."""
    bench.servers["missing"] = {"command": "no-such-binary"}
    bench.skill("one", {"missing": ["search"]})
    async with bench.proxy() as proxy:
        await proxy.activate("one")
        result = await proxy.call("missing__search")
    assert result.is_error
    assert "missing" in text(result)
    assert "no-such-binary" in text(result)


async def test_a_list_is_not_held_longer_than_list_wait(bench: Bench):
    """A list is answered without the tools of a server that is late; when it arrives a notice goes out."""
    go, noticed = bench.file("go"), anyio.Event()
    bench.stdio("good")
    bench.stdio("late", release=str(go))
    bench.skill("both", {"good": ["echo"], "late": ["echo"]}, active=True)
    bench.settings |= {"list_wait": SHORT}

    async def hear(message: object) -> None:
        if isinstance(message, ToolListChangedNotification) and go.exists():
            noticed.set()

    async with bench.proxy(mode="legacy", on_message=hear) as proxy:
        await proxy.state("good", "ready")
        assert await proxy.tools() == ["SKILL", "SKILL_CALL", "good__echo"]
        assert proxy.running.pool.status("late").state == "starting"
        go.touch()
        with anyio.fail_after(DEADLINE):
            await noticed.wait()
        assert await proxy.tools() == ["SKILL", "SKILL_CALL", "good__echo", "late__echo"]


async def test_a_list_waits_for_a_server_that_is_starting(bench: Bench):
    """Within `list_wait` the list holds the tools of a server that was still starting when it was asked for."""
    go = bench.file("go")
    bench.stdio("late", release=str(go))
    bench.skill("one", {"late": ["echo"]}, active=True)
    bench.settings |= {"list_wait": LONG}
    listed: list[str] = []
    async with bench.proxy() as proxy, anyio.create_task_group() as tasks:

        async def ask() -> None:
            listed.extend(await proxy.tools())

        tasks.start_soon(ask)
        await bench.event("late", "request")
        assert not listed
        go.touch()
    assert listed == ["SKILL", "SKILL_CALL", "late__echo"]


@pytest.mark.parametrize("tools", [["echo"], []], ids=["by name", "all"])
async def test_a_call_waits_for_a_server_that_is_starting(bench: Bench, tools: list[str]):
    """A tool of an active skill can be called before its server has said what it offers: the call waits for it."""
    go = bench.file("go")
    bench.stdio("late", release=str(go))
    bench.skill("one", {"late": tools}, active=True)
    bench.settings |= {"list_wait": LONG}
    answers: list[str] = []
    async with bench.proxy(mode="legacy") as proxy, anyio.create_task_group() as tasks:

        async def call() -> None:
            answers.append(text(await proxy.call("late__echo", word="hello")))

        tasks.start_soon(call)
        await bench.event("late", "request")
        assert not answers
        go.touch()
    assert answers == ['{"word": "hello"}']


async def test_our_own_handshake_waits_for_no_server(bench: Bench):
    """The proxy greets its client and answers `SKILL` while the server it needs at once has still said nothing."""
    bench.stdio("silent", silent=True)
    bench.skill("one", {"silent": []}, active=True)
    bench.settings |= {"list_wait": LONG, "activation_wait": LONG}
    for mode in ("legacy", "auto"):
        with anyio.fail_after(DEADLINE):
            async with bench.proxy(mode=mode) as proxy:
                assert proxy.client.server_info is not None
                assert proxy.client.server_info.name == "mcp-skill-proxy"
                assert proxy.running.pool.status("silent").state == "starting"


@pytest.mark.parametrize("how", ["activation", "active", "eager"])
async def test_servers_start_side_by_side(bench: Bench, how: str):
    """Three servers have all begun, and have all been asked, before any of them is released."""
    go, keys = bench.file("go"), ("a", "b", "c")
    for key in keys:
        bench.stdio(key, {"start": "eager" if how == "eager" else "lazy"}, release=str(go))
    bench.skill("all", {key: ["echo"] for key in keys}, active=how == "active")
    bench.settings |= {"activation_wait": LONG, "list_wait": LONG}
    async with bench.proxy() as proxy, anyio.create_task_group() as tasks:
        if how == "activation":
            tasks.start_soon(proxy.activate, "all")
        for key in keys:
            await bench.event(key, "request")
        go.touch()
        for key in keys:
            await proxy.state(key, "ready")
        if how == "eager":
            assert await proxy.tools() == ["SKILL", "SKILL_CALL"]


async def test_only_servers_that_a_skill_names_are_started(bench: Bench):
    """A server that no enabled skill names is never started, not even an eager one; the others on first need."""
    bench.stdio("nobodys")
    bench.stdio("nobodys_eager", {"start": "eager"})
    bench.stdio("disabled_skill", {"start": "eager"})
    bench.stdio("eager", {"start": "eager"})
    bench.stdio("lazy")
    bench.stdio("later")
    bench.skill("off", {"disabled_skill": []}, enabled=False)
    bench.skill("first", {"lazy": ["echo"]})
    bench.skill("second", {"later": ["echo"], "eager": ["echo"]})
    async with bench.proxy() as proxy:
        await proxy.state("eager", "ready")
        assert await proxy.tools() == ["SKILL", "SKILL_CALL"]
        assert not bench.events("lazy", "spawned")
        await proxy.activate("first")
        assert text(await proxy.call("lazy__echo")) == "{}"
        assert not bench.events("later", "spawned")
    spawned = {key: len(bench.events(key, "spawned")) for key in bench.servers}
    assert spawned == {"nobodys": 0, "nobodys_eager": 0, "disabled_skill": 0, "eager": 1, "lazy": 1, "later": 0}


async def test_a_server_that_failed_is_tried_again_at_the_next_activation(bench: Bench):
    """A start that failed is not remembered for ever: activating again starts the server anew."""
    bench.stdio("flaky", dies=True, once=str(bench.file("died")))
    bench.skill("one", {"flaky": ["echo"]})
    async with bench.proxy() as proxy:
        assert list(problems(await proxy.activate("one"))) == ["flaky"]
        assert not problems(await proxy.activate("one"))
        assert await proxy.tools() == ["SKILL", "SKILL_CALL", "flaky__echo"]
    assert len(bench.events("flaky", "spawned")) == 2


async def test_parallel_activations_share_one_start(bench: Bench):
    """Two skills that need the same server start it once."""
    go = bench.file("go")
    bench.stdio("shared", release=str(go))
    bench.skill("one", {"shared": ["echo"]})
    bench.skill("two", {"shared": ["wait"]})
    bench.settings |= {"activation_wait": LONG}
    async with bench.proxy() as proxy:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(proxy.activate, "one")
            tasks.start_soon(proxy.activate, "two")
            await bench.event("shared", "request")
            go.touch()
        assert await proxy.tools() == ["SKILL", "SKILL_CALL", "shared__echo", "shared__wait"]
    assert len(bench.events("shared", "spawned")) == 1


async def test_an_activation_that_is_cancelled_leaves_the_server_starting(bench: Bench):
    """Cancelling a waiting activation neither undoes it nor stops its server."""
    go = bench.file("go")
    bench.stdio("late", release=str(go))
    bench.skill("one", {"late": ["echo"]})
    bench.settings |= {"activation_wait": LONG, "list_wait": LONG}
    async with bench.proxy() as proxy:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(proxy.activate, "one")
            await bench.event("late", "request")
            tasks.cancel_scope.cancel()
        go.touch()
        assert await proxy.tools() == ["SKILL", "SKILL_CALL", "late__echo"]
    assert len(bench.events("late", "spawned")) == 1


async def test_a_server_that_hangs_up_during_its_start_is_told_in_words(bench: Bench):
    """Its machine resets the connection: the reason is no name of an exception."""

    async def reset(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.close()

    async with await asyncio.start_server(reset, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        bench.servers["a"] = {"url": f"http://127.0.0.1:{port}/mcp"}
        bench.skill("one", {"a": []})
        async with bench.proxy() as proxy:
            told = problems(await proxy.activate("one"))
    assert told["a"].startswith("failed: the connection broke off (tried again in ")


async def test_certificates_are_read_once_for_all_servers(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    """Reading them holds everything up: three servers over HTTP, one of them started twice, cost it once at most."""
    read: list[object] = []
    original = ssl.create_default_context

    def reading(*args: Any, **kwargs: Any) -> ssl.SSLContext:
        read.append(args)
        return original(*args, **kwargs)

    monkeypatch.setattr(ssl, "create_default_context", reading)
    for key in "abc":
        await bench.http(key, era="handshake")
    bench.skill("one", {"a": [], "b": [], "c": []})
    async with bench.proxy() as proxy:
        assert problems(await proxy.activate("one")) == {}
        await bench.restart("a")
        assert not (await proxy.call("a__echo")).is_error
    assert len(read) <= 1
