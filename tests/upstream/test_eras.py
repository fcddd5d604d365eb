"""Servers of both protocol eras on both transports, and odd answers to the question for the newer one (rule 32)."""

import asyncio
import json
import socket
import struct
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from structlog.testing import capture_logs

from proxy.upstream import greeting, life
from tests.servers.abrupt import Manner, command
from tests.servers.faulty import Probe
from tests.upstream.bench import Bench, problems, text, until

pytestmark = pytest.mark.anyio

PLAIN = Path(__file__).parents[1] / "servers" / "plain.py"
SHORT = 0.3
LONG = 600


async def works(bench: Bench, tool: str = "a__echo") -> None:
    async with bench.proxy() as proxy:
        assert not problems(await proxy.activate("one"))
        assert tool in await proxy.tools()
        assert "hello" in text(await proxy.call(tool, word="hello"))


def methods(bench: Bench) -> list[str]:
    return [event["method"] for event in bench.events("a", "request")]


async def serve(bench: Bench, transport: str, asked: str, **faults: object) -> None:
    if transport == "http":
        await bench.http("a", {"era": asked}, **faults)
    else:
        bench.stdio("a", {"era": asked}, **faults)
    bench.skill("one", {"a": []})


@pytest.mark.parametrize(
    ("transport", "era"),
    [
        *((transport, era) for transport in ("stdio", "http") for era in ("auto", "handshake", "modern")),
        ("sse", "auto"),
        ("sse", "handshake"),
    ],
)
async def test_a_server_of_the_sdk_lists_and_calls(bench: Bench, transport: str, era: str):
    """The SDK's own server, which speaks both eras, works in whichever the entry asks for, over every transport."""
    bench.skill("one", {"a": []})
    if transport == "stdio":
        bench.servers["a"] = {"command": sys.executable, "args": [str(PLAIN)], "era": era}
        await works(bench)
        return
    port_file = bench.file("port")
    async with await anyio.open_process([sys.executable, str(PLAIN), str(port_file), transport], stderr=None) as server:
        await until(port_file.exists)
        bench.servers["a"] = {"type": transport, "url": f"http://127.0.0.1:{port_file.read_text()}/mcp", "era": era}
        await works(bench)
        server.kill()


@pytest.mark.parametrize("transport", ["stdio", "http"])
@pytest.mark.parametrize(
    ("speaks", "era", "used"),
    [
        ("handshake", "auto", "initialize"),
        ("handshake", "handshake", "initialize"),
        ("modern", "auto", "server/discover"),
        ("modern", "modern", "server/discover"),
        ("both", "auto", "server/discover"),
        ("both", "handshake", "initialize"),
        ("both", "modern", "server/discover"),
    ],
)
async def test_a_server_of_one_era_lists_and_calls(bench: Bench, transport: str, speaks: str, era: str, used: str):
    """A server that speaks one era alone is met in it, and an entry's `era` is kept to."""
    await serve(bench, transport, era, era=speaks)
    await works(bench)
    assert used in methods(bench)
    assert methods(bench)[-2:] == ["tools/list", "tools/call"]
    if era == "handshake":
        assert "server/discover" not in methods(bench)
    if used == "server/discover":
        assert "initialize" not in methods(bench)


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_a_modern_server_met_with_the_handshake_gives_a_clear_reason(bench: Bench, transport: str):
    """`era: handshake` in front of a server without it fails with one line that says so."""
    await serve(bench, transport, "handshake", era="modern")
    async with bench.proxy() as proxy:
        reason = problems(await proxy.activate("one"))["a"]
    assert "JSON-RPC error -32022 (Unsupported protocol version)" in reason or "HTTP 400" in reason
    assert "\n" not in reason


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_a_handshake_server_met_without_it_gives_a_clear_reason(bench: Bench, transport: str):
    """`era: modern` in front of a server that only shakes hands fails with one line that says so."""
    await serve(bench, transport, "modern", era="handshake")
    async with bench.proxy() as proxy:
        reason = problems(await proxy.activate("one"))["a"]
    assert "HTTP 400" in reason if transport == "http" else "Method not found" in reason
    assert "\n" not in reason


ERROR = json.dumps({"jsonrpc": "2.0", "id": None, "error": {"code": -32601, "message": "Method not found"}})


@pytest.mark.parametrize(
    "probe",
    [
        Probe(status=400),
        Probe(status=400, body="Bad Request: No valid session ID provided", type="text/plain"),
        Probe(status=400, body=ERROR),
        Probe(status=400, body=ERROR.replace("-32601", "-32000")),
        Probe(status=404),
        Probe(status=404, body="<html>not here</html>", type="text/html"),
        Probe(status=404, body=ERROR),
        Probe(status=405),
        Probe(status=406, body=ERROR),
        Probe(status=415),
        Probe(status=200, body="<html>welcome</html>", type="text/html"),
        Probe(status=200, body=ERROR),
        Probe(status=200, body="not json"),
        Probe(status=200),
        Probe(status=202),
        Probe(status=204),
        Probe(status=500),
        Probe(status=200, body="", type="text/event-stream"),
    ],
    ids=lambda probe: f"{probe.status}-{probe.type.split('/')[1]}-{probe.body[:9]}",
)
async def test_an_odd_answer_to_the_probe_over_http_leads_to_the_handshake(
    bench: Bench, probe: Probe, monkeypatch: pytest.MonkeyPatch
):
    """Whatever an older HTTP server says to `server/discover`, it is met with the handshake (B52)."""
    monkeypatch.setattr(greeting, "PROBE_WAIT", SHORT)
    await serve(bench, "http", "auto", probe=probe, era="handshake")
    await works(bench)
    assert "initialize" in methods(bench)


@pytest.mark.parametrize(
    "answer",
    [
        {"error": {"code": -32601, "message": "Method not found"}},
        {"error": {"code": -32600, "message": "Invalid request"}},
        {"error": {"code": -32602, "message": "Invalid params"}},
        {"error": {"code": -32603, "message": "Internal error"}},
        {"error": {"code": -32000, "message": "Not initialized"}},
        {"error": {"code": 0, "message": ""}},
        {"error": {"code": -32022, "message": "Unsupported", "data": {"supported": ["2025-11-25"], "requested": "x"}}},
        {"error": {"code": -32022, "message": "Unsupported"}},
        {"result": {}},
        {"result": {"supportedVersions": ["2025-11-25"], "capabilities": {}}},
        {"result": {"supportedVersions": ["2099-01-01"], "capabilities": {}}},
    ],
    ids=lambda answer: json.dumps(answer)[:60],
)
async def test_an_odd_answer_to_the_probe_on_stdio_leads_to_the_handshake(bench: Bench, answer: dict[str, object]):
    """Whatever an older stdio server says to `server/discover`, it is met with the handshake (B52)."""
    await serve(bench, "stdio", "auto", probe=Probe(body=json.dumps(answer)), era="handshake")
    await works(bench)
    assert "initialize" in methods(bench)


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_a_probe_without_an_answer_leads_to_the_handshake(
    bench: Bench, transport: str, monkeypatch: pytest.MonkeyPatch
):
    """A server that leaves what it does not know unanswered is met with the handshake once the probe's time is over."""
    monkeypatch.setattr(greeting, "PROBE_WAIT", SHORT)
    await serve(bench, transport, "auto", ignores_probe=True, era="both")
    await works(bench)
    assert "initialize" in methods(bench)


@pytest.mark.parametrize("status", [401, 403, 500, 503])
async def test_a_server_that_refuses_everything_is_named_with_the_status(bench: Bench, status: int):
    """A server that answers each request with an HTTP error fails with that status as the reason."""
    await serve(bench, "http", "auto", status=status)
    async with bench.proxy() as proxy:
        reason = problems(await proxy.activate("one"))["a"]
    assert f"HTTP {status}" in reason


def abrupt(bench: Bench, manner: Manner, **entry: object) -> None:
    """Put a server on stdio into the configuration that behaves so, and a skill for it."""
    manner.write(bench.file("a.json"))
    program, *args = command(bench.file("a.json"))
    bench.servers["a"] = {"command": program, "args": args, **entry}
    bench.skill("one", {"a": []})


ENDS = ["exit 0", "exit 1", "kill", "close", "half 0", "half 1"]
ENDED = "it speaks the handshake only: it ends on server/discover; `era: handshake` saves the second start"
SPAWNED = "spawned"


@pytest.mark.parametrize("how", ENDS)
async def test_a_server_that_ends_on_the_probe_is_started_again_with_the_handshake(bench: Bench, how: str):
    """At once; the next start in this run of the proxy does not probe; the status says what saves the second one."""
    abrupt(bench, Manner({"server/discover": how, "tools/call after tools/call": "exit 0"}))
    async with bench.proxy() as proxy:
        assert not problems(await proxy.activate("one"))
        assert proxy.running.pool.status("a").notes == (ENDED,)
        assert methods(bench)[:3] == ["server/discover", "initialize", "tools/list"]
        for _ in range(2):
            await proxy.call("a__echo", word="hello")
        await proxy.state("a", "failed")
        assert text(await proxy.call("a__echo", word="again")) == '{"word": "again"}'
        assert proxy.running.pool.status("a").notes == ()
    assert methods(bench).count("server/discover") == 1
    assert len(bench.events("a", SPAWNED)) == 3


@pytest.mark.parametrize("how", ENDS)
async def test_a_server_that_ends_on_the_handshake_as_well_is_started_twice(
    bench: Bench, how: str, monkeypatch: pytest.MonkeyPatch
):
    """Then it fails as it always did, and is tried again after the pause of any failure."""
    monkeypatch.setattr(life, "FIRST_PAUSE", LONG)
    abrupt(bench, Manner({"server/discover": "exit 5", "initialize": how}))
    async with bench.proxy() as proxy:
        reason = problems(await proxy.activate("one"))["a"]
        assert {"kill": "SIGKILL", "close": "closed its output"}.get(how, "exit code") in reason
    assert methods(bench) == ["server/discover", "initialize"]


async def test_a_server_that_ends_before_it_reads_anything_is_started_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
):
    """Then it is not the probe that ended it."""
    monkeypatch.setattr(life, "FIRST_PAUSE", LONG)
    bench.stdio("a", dies=True)
    bench.skill("one", {"a": []})
    async with bench.proxy() as proxy:
        assert "exit code 3" in problems(await proxy.activate("one"))["a"]
    assert len(bench.events("a", SPAWNED)) == 1


@pytest.mark.parametrize("code", [-32603, -32600, -32000, -32002, 0, 7])
async def test_a_server_that_refuses_the_handshake_after_a_probe_is_started_again(bench: Bench, code: int):
    """Whatever it has against a second opening of one connection, on one of its own it takes the handshake."""
    refusal = {"error": {"code": code, "message": "Received request before initialization was complete"}}
    reactions = {"server/discover": refusal, "initialize after server/discover": refusal}
    abrupt(bench, Manner(reactions))
    async with bench.proxy() as proxy:
        assert not problems(await proxy.activate("one"))
        (note,) = proxy.running.pool.status("a").notes
    assert "it refuses initialize after server/discover; `era: handshake`" in note
    assert methods(bench) == ["server/discover", "initialize", "initialize", "tools/list"]


async def test_a_server_that_refuses_the_handshake_for_itself_gives_its_reason(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
):
    """It is asked once more on a connection of its own, and not for ever."""
    monkeypatch.setattr(life, "FIRST_PAUSE", LONG)
    refusal = {"error": {"code": -32603, "message": "no licence"}}
    abrupt(bench, Manner({"server/discover": refusal, "initialize": refusal}))
    async with bench.proxy() as proxy:
        assert "JSON-RPC error -32603" in problems(await proxy.activate("one"))["a"]
    assert len(bench.events("a", SPAWNED)) == 2


async def test_a_server_that_is_replaced_by_one_of_the_other_era_is_met_in_it(bench: Bench):
    """Whatever is remembered of the one before it, there and back again."""
    handshake = {"server/discover": "exit 1"}
    modern = {"initialize": "exit 1"}
    abrupt(bench, Manner({**modern, "tools/call": "exit 0"}))
    async with bench.proxy() as proxy:
        for reactions in (handshake, modern, handshake, {}):
            assert not problems(await proxy.activate("one"))
            Manner({**reactions, "tools/call": "exit 0"}).write(bench.file("a.json"))
            assert (await proxy.call("a__echo")).is_error
            await proxy.state("a", "failed")
        assert not problems(await proxy.activate("one"))


async def test_a_server_that_says_nothing_more_after_the_probe_is_met_with_the_handshake_next_time(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
):
    """A start that was cut off without an answer is followed by one that begins with the other request."""
    monkeypatch.setattr(greeting, "PROBE_WAIT", SHORT)
    reactions = {"server/discover": "silence", "initialize after server/discover": "silence"}
    abrupt(bench, Manner(reactions), start_timeout=2)
    async with bench.proxy() as proxy:
        assert "it did not answer within 2 s" in problems(await proxy.activate("one"))["a"]
        await proxy.state("a", "ready")
    assert methods(bench) == ["server/discover", "initialize", "initialize", "tools/list"]


UNREADABLE = "its answer is no valid JSON-RPC response"
UNNAMED = "its answer to initialize names no protocol revision"
GREETING = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "x", "version": "1"}}


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        *((result, UNREADABLE) for result in ("x", 5, [1], None)),
        ({}, UNNAMED),
        ({**GREETING, "protocolVersion": None}, UNNAMED),
        ({**GREETING, "protocolVersion": 5}, UNNAMED),
        ({**GREETING, "protocolVersion": "1.0"}, "it speaks a protocol revision that this proxy does not know"),
    ],
    ids=str,
)
async def test_a_greeting_that_is_none_fails_in_words(bench: Bench, result: object, reason: str):
    """Of the proxy's own."""
    abrupt(bench, Manner({"initialize": {"result": result}}), era="handshake")
    with capture_logs() as log:
        async with bench.proxy() as proxy:
            assert f"failed: {reason}" in problems(await proxy.activate("one"))["a"]
    assert "pydantic" not in str(log)
    assert "Traceback" not in str(log)


@pytest.mark.parametrize(
    "odd",
    [
        *({"capabilities": value} for value in ([], None, 5, {"tools": 5}, {"tools": [], "extensions": 5})),
        *({"serverInfo": value} for value in (5, None, [], "x")),
        *({"instructions": value} for value in ({}, 5, [], None)),
        {"_meta": 5},
    ],
    ids=str,
)
async def test_a_greeting_with_odd_members_is_taken_without_them(bench: Bench, odd: dict[str, object]):
    """They cost nothing but what they would have said, in either era."""
    modern = {"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
    for key, method, result in (("a", "initialize", GREETING), ("b", "server/discover", modern)):
        Manner({method: {"result": {**result, **odd}}}).write(bench.file(f"{key}.json"))
        program, *args = command(bench.file(f"{key}.json"))
        era = "handshake" if key == "a" else "modern"
        bench.servers[key] = {"command": program, "args": args, "era": era}
    bench.skill("one", {"a": [], "b": []})
    async with bench.proxy() as proxy:
        assert not problems(await proxy.activate("one"))
        assert {"a__echo", "b__echo"} <= set(await proxy.tools())


async def test_a_byte_order_mark_before_an_answer_is_skipped(bench: Bench):
    """As programs on Windows write it."""
    line = "\ufeff" + json.dumps({"jsonrpc": "2.0", "id": 1, "result": GREETING}, ensure_ascii=False)
    abrupt(bench, Manner({"initialize": {"line": line}}), era="handshake")
    async with bench.proxy() as proxy:
        assert not problems(await proxy.activate("one"))


@pytest.mark.parametrize("how", ["reset", "close", "half"])
async def test_a_server_over_http_that_breaks_off_on_the_probe_is_met_with_the_handshake(bench: Bench, how: str):
    """Over a new connection."""
    await bench.http("real", era="handshake")
    bench.skill("one", {"a": []})
    async with breaking_off(bench.ports["real"], how) as port:
        bench.servers["a"] = {"url": f"http://127.0.0.1:{port}/mcp"}
        async with bench.proxy() as proxy:
            assert not problems(await proxy.activate("one"))
            assert text(await proxy.call("a__echo", word="hello")) == '{"word": "hello"}'


@asynccontextmanager
async def breaking_off(port: int, how: str) -> AsyncGenerator[int]:
    """A way to the server at `port` that is cut on `server/discover`; its own port."""

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", port)
        async with asyncio.TaskGroup() as tasks:
            pump = tasks.create_task(copy(there, writer))
            while chunk := await reader.read(1 << 16):
                if b"server/discover" in chunk:
                    if how == "half":
                        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{"
                        writer.write(head)
                        await writer.drain()
                    if how == "reset":
                        linger = struct.pack("ii", 1, 0)
                        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                    break
                back.write(chunk)
            back.close()
            writer.close()
            pump.cancel()

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(1 << 16):
            writer.write(chunk)

    async with await asyncio.start_server(carry, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]
