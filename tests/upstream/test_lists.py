"""What servers list and how they write it: pages, cursors, noise and bytes that are no text."""

import sys

import anyio
import pytest
import structlog

from proxy.core.inventory import MAX_LIST_ENTRIES
from proxy.upstream import life, lists
from tests.upstream.bench import Bench, problems, text, until

pytestmark = pytest.mark.anyio

CHANGING = """
import json, sys

def say(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

info = {"capabilities": {"tools": {"listChanged": True}}, "serverInfo": {"name": "a", "version": "1"}}
results = {
    "initialize": {"protocolVersion": "2025-11-25", **info},
    "tools/list": {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]},
}
for message in map(json.loads, sys.stdin):
    if "id" in message:
        say(id=message["id"], result=results.get(message["method"], {"content": []}))
    if message["method"] == "tools/list":
        say(method="notifications/tools/list_changed")
"""
"""A server whose list has changed whenever it was read."""


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_all_pages_are_read(bench: Bench, transport: str):
    """Of 101 tools, 50 on a page, the one on page 3 is listed and can be called (B36)."""
    if transport == "http":
        await bench.http("a", tools=101, page=50)
    else:
        bench.stdio("a", tools=101, page=50)
    bench.skill("last", {"a": ["tool_100"]})
    bench.skill("all", {"a": []})
    async with bench.proxy() as proxy:
        await proxy.activate("last")
        assert await proxy.tools() == ["SKILL", "SKILL_CALL", "a__tool_100"]
        assert text(await proxy.call("a__tool_100", word="last")) == '{"word": "last"}'
        await proxy.activate("all")
        assert await proxy.tools() == ["SKILL", "SKILL_CALL", *(f"a__tool_{number:03}" for number in range(101))]
    assert [event["params"].get("cursor") for event in bench.events("a", "request", method="tools/list")] == [
        None,
        "50",
        "100",
    ]


@pytest.mark.parametrize("cursors", ["repeated", "endless"])
async def test_a_list_without_an_end_is_ended(bench: Bench, cursors: str):
    """A cursor that comes again, and cursors that never end, cost neither the server's tools nor the proxy."""
    bench.stdio("a", tools=4, page=2, cursors=cursors)
    bench.skill("one", {"a": []})
    async with bench.proxy() as proxy:
        assert not problems(await proxy.activate("one"))
        assert await proxy.tools() == ["SKILL", "SKILL_CALL", *(f"a__tool_{number:03}" for number in range(4))]
        assert text(await proxy.call("a__tool_003", word="x")) == '{"word": "x"}'
    asked = len(bench.events("a", "request", method="tools/list"))
    assert asked == 2 if cursors == "repeated" else 2 < asked <= 1000


@pytest.mark.parametrize("page", [0, 1999], ids=["one page", "pages"])
async def test_of_a_long_list_the_beginning_is_read(bench: Bench, page: int):
    """The rest is left out, which the log says once; what was read can be called."""
    bench.stdio("a", tools=MAX_LIST_ENTRIES + 100, page=page)
    bench.skill("one", {"a": []})
    with structlog.testing.capture_logs() as logged:
        async with bench.proxy() as proxy:
            assert not problems(await proxy.activate("one"))
            own = ["SKILL", "SKILL_CALL"]
            assert await proxy.tools() == [*own, *sorted(f"a__tool_{number:03}" for number in range(MAX_LIST_ENTRIES))]
            assert text(await proxy.call("a__tool_4999", word="x")) == '{"word": "x"}'
    told = {"server": "a", "method": "tools/list", "entries": MAX_LIST_ENTRIES, "left_out": 100}
    assert [one for one in logged if one["event"] == "server.list_cut"] == [
        {"event": "server.list_cut", "log_level": "warning", **told}
    ]


async def test_of_a_large_list_as_much_is_read_as_fits(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    """In bytes of JSON."""
    monkeypatch.setattr(lists, "MAX_LIST_BYTES", 300)
    bench.stdio("a", tools=10)
    bench.skill("one", {"a": []})
    async with bench.proxy() as proxy:
        assert not problems(await proxy.activate("one"))
        assert await proxy.tools() == ["SKILL", "SKILL_CALL", *(f"a__tool_{number:03}" for number in range(3))]


async def test_a_list_of_resources_that_fails_costs_itself_alone(bench: Bench):
    """The server's tools are there all the same."""
    bench.stdio("a", fails="resources/list")
    bench.skill("one", {"a": []})
    async with bench.proxy() as proxy:
        assert not problems(await proxy.activate("one"))
        assert text(await proxy.call("a__echo", word="x")) == '{"word": "x"}'


async def test_a_list_of_tools_that_fails_is_the_reason(bench: Bench):
    """The server has failed, and why is said in our words; the log has the server's."""
    bench.stdio("a", fails="tools/list")
    bench.skill("one", {"a": []})
    with structlog.testing.capture_logs() as log:
        async with bench.proxy() as proxy:
            told = problems(await proxy.activate("one"))
    assert told["a"].startswith("failed: its list of tools could not be read: it answered with JSON-RPC error ")
    assert "the database" not in told["a"]
    assert [event["detail"] for event in log if event["event"] == "server.failed"] == ["it said: the database is down"]


async def test_a_changed_list_that_cannot_be_read_is_read_again(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    """By itself, until it can be; what was there stays meanwhile."""
    monkeypatch.setattr("proxy.upstream.life.FIRST_PAUSE", 0.01)
    down = bench.file("down")
    bench.stdio("a", fails="tools/list", given=str(down))
    bench.skill("one", {"a": []})
    async with bench.proxy() as proxy:
        await proxy.activate("one")
        down.touch()
        await proxy.call("a__wait", until=str(down), then=str(down))
        await bench.event("a", "request", method="tools/list", count=4)
        assert "a__echo" in await proxy.tools()
        down.unlink()
        read = len(bench.events("a", "request", method="tools/list"))
        await bench.event("a", "request", method="tools/list", count=read + 1)
        assert "a__echo" in await proxy.tools()


NOISE = (
    "Server started\n",
    "\n",
    '{"jsonrpc": "2.0", "id": \n',
    "\ufeff",
    "[1, 2]\n",
    '{"jsonrpc": "2.0", "id": 123456, "result": {}}\n',
    "log line\n" * 900,
)


async def test_noise_on_stdout_breaks_nothing(bench: Bench):
    """Banners, blank and half lines, a BOM, an array, a flood and unknown ids around replies are skipped (B44)."""
    bench.stdio("a", noise=NOISE)
    bench.skill("one", {"a": []})
    async with bench.proxy() as proxy:
        assert not problems(await proxy.activate("one"))
        for number in range(3):
            assert text(await proxy.call("a__echo", number=number)) == f'{{"number": {number}}}'
    assert len(bench.events("a", "spawned")) == 1


async def test_a_byte_that_is_no_utf_8_costs_at_most_that_byte(bench: Bench):
    """A reply with the single byte 0xE9 arrives with a replacement, and the connection goes on (B45)."""
    bench.stdio("a")
    bench.skill("one", {"a": []})
    async with bench.proxy() as proxy:
        await proxy.activate("one")
        assert text(await proxy.call("a__latin")) == "caf\ufffd"
        assert text(await proxy.call("a__echo", word="näher 👍")) == '{"word": "n\\u00e4her \\ud83d\\udc4d"}'
    assert len(bench.events("a", "spawned")) == 1


async def test_a_list_that_changes_all_the_time_is_read_less_and_less_often(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
):
    """It waits longer from one reading to the next, up to a limit."""
    begun: list[float] = []
    read = lists.Lists.read

    async def noted(self: lists.Lists, method: str, name: str, most: int = MAX_LIST_ENTRIES) -> list[object]:
        begun.append(anyio.current_time())
        return await read(self, method, name, most)

    monkeypatch.setattr(lists.Lists, "read", noted)
    for name, value in {"COALESCE": 0.02, "OFTEN": 2, "SLOWEST_REREAD": 0.5}.items():
        monkeypatch.setattr(life, name, value)
    bench.servers["a"] = {"command": sys.executable, "args": ["-c", CHANGING], "era": "handshake"}
    bench.skill("one", {"a": []})
    async with bench.proxy() as proxy:
        assert not problems(await proxy.activate("one"))
        await until(lambda: len(begun) >= 12)
        assert not (await proxy.call("a__echo")).is_error
    assert begun[11] - begun[10] >= 0.5
