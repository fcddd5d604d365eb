"""Servers that send more than they may: without an end, compressed, in one event; the proxy's memory is measured."""

import gzip
import json
import sys
import threading
import zlib
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.answers import not_ready
from tests.conftest import HttpProxy, Json, Peer, connected, http_proxy, text_of, write_config
from tests.upstream.bench import until

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="there is no /proc here"),
]

LIMIT = 1024 * 1024
TOO_LARGE = f"it sent a message larger than {LIMIT} bytes (proxy.max_message_size)"
GROWTH_MIB = 120
"""What the proxy may need more for servers that send without an end: some messages of 1 MiB, and slack."""
HEALTHY = str(Path(__file__).parents[1] / "benchmarks" / "raw_server.py")
SH = "/bin/sh"


def resident(pid: int) -> float:
    """MiB of memory that a process has needed at most."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM:")).split()[1]) / 1024


@asynccontextmanager
async def proxied(
    folder: Path, servers: Mapping[str, Json], **settings: Any
) -> AsyncGenerator[tuple[HttpProxy, Peer, float]]:
    """A proxy in front of these and a healthy server, its client, and what it needed before it began with them."""
    everyone = {"healthy": {"command": sys.executable, "args": [HEALTHY, "healthy"]}, **servers}
    skills = {key: {"desc": key, "tool_list": {key: []}} for key in everyone}
    config = write_config(folder / "skills.yaml", everyone, skills, proxy={"max_message_size": LIMIT, **settings})
    with http_proxy(config) as proxy:
        async with connected(f"{proxy.url}/one", "legacy") as peer:
            assert not not_ready(await peer.skill("activate", "healthy"))
            yield proxy, peer, resident(proxy.process.pid)
            await works(peer)
    assert "Traceback" not in proxy.log.read_text(encoding="utf-8")


async def works(peer: Peer) -> None:
    """The healthy server answers."""
    tool = next(name for name in await peer.tools() if name.startswith("healthy__echo"))
    assert text_of(await peer.call(tool, {"text": "x"}))


async def test_a_server_that_sends_too_much_ends_with_that_reason(tmp_path: Path):
    """A line without an end, as of a device, costs the proxy a little memory, and others nothing."""
    zero = {"command": SH, "args": ["-c", "exec cat /dev/zero"]}
    async with proxied(tmp_path, {"zero": zero}) as (proxy, peer, before):
        assert TOO_LARGE in not_ready(await peer.skill("activate", "zero"))["zero"]
        assert {one["reason"] for one in proxy.logged("server.failed")} == {TOO_LARGE}
        assert resident(proxy.process.pid) < before + GROWTH_MIB


@pytest.mark.parametrize(
    "script",
    ["cat /dev/zero", "tr '\\0' '\\r' </dev/zero", "yes progress", "yes progress | tr '\\n' '\\r'"],
    ids=["no lines", "carriage returns", "lines", "progress bar"],
)
async def test_a_flood_on_stderr_costs_nothing(tmp_path: Path, script: str):
    """The server works meanwhile, and the log stays short."""
    loud = {"command": SH, "args": ["-c", f"({script}) >&2 & exec {sys.executable} {HEALTHY} loud"]}
    async with proxied(tmp_path, {"loud": loud}, log_level="debug") as (proxy, peer, before):
        assert not not_ready(await peer.skill("activate", "loud"))
        tool = next(name for name in await peer.tools() if name.startswith("loud__echo"))
        for _ in range(20):
            assert text_of(await peer.call(tool, {"text": "x"}))
        assert resident(proxy.process.pid) < before + GROWTH_MIB
        assert proxy.log.stat().st_size < 32 * 1024 * 1024


async def test_stderr_lines_are_cut_and_those_beyond_a_number_are_counted(tmp_path: Path):
    """What was said last is known all the same; a carriage return ends a line."""
    script = "print('x' * 200_000, file=sys.stderr)\nfor i in range(5000): print('line', i, end='\\r', file=sys.stderr)"
    last = {"command": sys.executable, "args": ["-c", f"import sys\n{script}\nsys.exit('the end')"]}
    async with proxied(tmp_path, {"last": last}, log_level="debug") as (proxy, peer, _):
        assert not_ready(await peer.skill("activate", "last"))
        assert "| the end" in proxy.logged("server.failed")[0]["detail"]
        lines = [one["line"] for one in proxy.logged("server.stderr") if one["server"] == "last"]
        assert set(lines[0][:2000]) == {"x"}
        assert len(lines[0]) < 64 * 1024
        assert lines[1:3] == ["line 0", "line 1"]
        left_out = [one["lines"] for one in proxy.logged("server.stderr_left_out")]
        assert len(lines) + sum(left_out) >= 5002
        assert sum(left_out) > 4000


# --- over HTTP -------------------------------------------------------------------------------------------------------

Body = Callable[["Handler", Json], None]
ANSWERS: Mapping[str, Json] = {
    "initialize": {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "large", "version": "1"},
    },
    "tools/list": {"tools": [{"name": "call", "inputSchema": {"type": "object"}}]},
}


class Handler(BaseHTTPRequestHandler):
    """Answers as it should, but calls as the test wants; with GET, a stream of its own without an end."""

    protocol_version = "HTTP/1.1"
    body: Body
    own: bytes
    gone: threading.Event

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if message.get("method") == "tools/call":
            self.close_connection = True
            type(self).body(self, message)
        elif result := ANSWERS.get(message.get("method", "")):
            self.reply({"jsonrpc": "2.0", "id": message["id"], "result": result})
        elif "id" in message:
            self.reply({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "no"}})
        else:
            self.head(202, "text/plain", 0)

    def do_GET(self) -> None:
        if not self.own:
            self.head(405, "text/plain", 0)
            return
        self.close_connection = True
        self.head(200, "text/event-stream")
        self.write(self.own)
        self.gone.wait(60)

    def do_DELETE(self) -> None:
        self.head(200, "text/plain", 0)

    def reply(self, message: Json) -> None:
        body = json.dumps(message).encode()
        self.head(200, "application/json", len(body))
        self.write(body)

    def head(self, status: int, kind: str, size: int | None = None, **more: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Mcp-Session-Id", "s")
        self.send_header(*("Connection", "close") if size is None else ("Content-Length", str(size)))
        for name, value in more.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()

    def write(self, data: bytes, times: int = 1) -> None:
        try:
            for _ in range(times):
                self.wfile.write(data)
        except OSError:
            self.gone.set()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name in the library
        """Nothing."""


@contextmanager
def large(body: Body, own: bytes = b"") -> Generator[str]:
    """A server over HTTP that answers calls with `body`; its address."""
    handler = type("Large", (Handler,), {"body": staticmethod(body), "own": own, "gone": threading.Event()})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/mcp"
        finally:
            handler.gone.set()
            server.shutdown()
            thread.join()


def answer_of(message: Json, size: int) -> bytes:
    """An answer to a call whose text has so many characters."""
    result = {"content": [{"type": "text", "text": "0" * size}]}
    return json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode()


def compressed(how: str, size: int, status: int = 200) -> Body:
    """A small body that becomes large."""

    def send(handler: Handler, message: Json) -> None:
        body = answer_of(message, size)
        small = gzip.compress(body) if how == "gzip" else zlib.compress(body)
        handler.head(status, "application/json", len(small), Content_Encoding=how)
        handler.write(small)

    return send


def endless(kind: str, piece: bytes, status: int = 200) -> Body:
    """A body without an end."""

    def send(handler: Handler, _message: Json) -> None:
        handler.head(status, kind)
        handler.write(piece, 4096)

    return send


def event(size: int) -> Body:
    """An answer in one event."""

    def send(handler: Handler, message: Json) -> None:
        handler.head(200, "text/event-stream")
        handler.write(b"event: message\ndata: " + answer_of(message, size) + b"\n\n")

    return send


STREAM, JSON = "text/event-stream", "application/json"


@pytest.mark.parametrize(
    "body",
    [
        compressed("gzip", 64 * LIMIT),
        compressed("deflate", 64 * LIMIT),
        endless(JSON, b" " * 65536),
        event(2 * LIMIT),
        endless(STREAM, b"data:" * 16384),
        endless(STREAM, b"data:\n" * 16384),
        endless(STREAM, b"data:ab\r" * 16384),
    ],
    ids=["gzip", "deflate", "JSON", "event", "endless line", "endless event", "lines of an event"],
)
async def test_an_answer_over_http_that_is_too_large_costs_its_call_alone(tmp_path: Path, body: Body):
    """It is counted once it is decompressed, and the caller is told."""
    with large(body) as url:
        async with proxied(tmp_path, {"large": {"url": url, "era": "handshake"}}) as (proxy, peer, before):
            assert not not_ready(await peer.skill("activate", "large"))
            for _ in range(2):
                answer = await peer.call("large__call")
                assert answer["isError"] is True
                assert TOO_LARGE in text_of(answer)
            assert "large__call" in await peer.tools()
            assert resident(proxy.process.pid) < before + GROWTH_MIB


@pytest.mark.parametrize(
    "body",
    [compressed("gzip", 64 * LIMIT, 500), endless(JSON, b" " * 65536, 500), endless("text/plain", b" " * 65536, 400)],
    ids=["gzip", "JSON", "text"],
)
async def test_the_body_of_an_error_is_bounded_as_well(tmp_path: Path, body: Body):
    """What counts is the status."""
    with large(body) as url:
        async with proxied(tmp_path, {"large": {"url": url, "era": "handshake"}}) as (proxy, peer, before):
            assert not not_ready(await peer.skill("activate", "large"))
            answer = await peer.call("large__call")
            assert answer["isError"] is True
            assert "HTTP " in text_of(answer)
            assert resident(proxy.process.pid) < before + GROWTH_MIB


@pytest.mark.parametrize("body", [compressed("gzip", LIMIT // 2), event(LIMIT // 2)], ids=["gzip", "event"])
async def test_an_answer_within_the_limit_arrives(tmp_path: Path, body: Body):
    """Compressed or as an event, and after comments."""
    with large(body, own=b": hello\n\n" * 1000) as url:
        async with proxied(tmp_path, {"large": {"url": url, "era": "handshake"}}) as (_, peer, _before):
            assert not not_ready(await peer.skill("activate", "large"))
            assert text_of(await peer.call("large__call")) == "0" * (LIMIT // 2)


async def test_a_server_whose_own_stream_is_too_large_is_lost_with_that_reason(tmp_path: Path):
    """No call is to blame for it."""
    with large(event(1), own=b"data: " + b"0" * (2 * LIMIT)) as url:
        async with proxied(tmp_path, {"large": {"url": url, "era": "handshake"}}) as (proxy, peer, _):
            await peer.skill("activate", "large")
            await until(lambda: bool(proxy.logged("server.failed")))
            assert TOO_LARGE in proxy.logged("server.failed")[0]["reason"]


class OlderHandler(Handler):
    """HTTP+SSE: all answers come on the stream that GET opens."""

    stream: "OlderHandler | None" = None

    def do_GET(self) -> None:
        type(self).stream = self
        self.close_connection = True
        self.head(200, STREAM)
        self.write(b"event: endpoint\ndata: /mcp\n\n")
        self.gone.wait(60)

    def reply(self, message: Json) -> None:
        self.head(202, "text/plain", 0)
        assert self.stream is not None
        self.stream.write(b"event: message\ndata: " + json.dumps(message).encode() + b"\n\n")


@pytest.mark.parametrize(("size", "arrives"), [(2 * LIMIT, True), (5 * LIMIT, False)])
async def test_the_limit_holds_over_http_and_sse(tmp_path: Path, size: int, arrives: bool):
    """A larger message than that ends the connection, on which all messages come."""

    def body(handler: Handler, message: Json) -> None:
        handler.reply(json.loads(answer_of(message, size)))

    OlderHandler.body, OlderHandler.own, OlderHandler.gone = staticmethod(body), b"", threading.Event()
    with ThreadingHTTPServer(("127.0.0.1", 0), OlderHandler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        entry = {"type": "sse", "url": f"http://127.0.0.1:{server.server_address[1]}/mcp", "era": "handshake"}
        try:
            async with proxied(tmp_path, {"large": entry}, max_message_size=4 * LIMIT) as (_, peer, _before):
                assert not not_ready(await peer.skill("activate", "large"))
                with anyio.fail_after(60):
                    answer = await peer.call("large__call")
                if arrives:
                    assert text_of(answer) == "0" * size
                else:
                    assert f"larger than {4 * LIMIT} bytes (proxy.max_message_size)" in text_of(answer)
        finally:
            OlderHandler.gone.set()
            server.shutdown()
            thread.join()
