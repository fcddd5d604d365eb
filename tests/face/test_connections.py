"""What the proxy takes from connections: how many there may be, and how long one may take to say what it wants."""

import logging
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from math import inf
from pathlib import Path
from typing import Any

import anyio
import pytest

from proxy.face.connections import MAX_CONNECTIONS, Limits, limits_for
from proxy.face.http import serve_http
from tests import conftest
from tests.conftest import PATIENCE, ROOT, Launch, Raw, Record, write_config

pytestmark = pytest.mark.anyio

HEAD = b"POST / HTTP/1.1\r\nHost: localhost\r\n"
WHOLE = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
HELD = b"GET /held HTTP/1.1\r\nHost: localhost\r\n\r\n"
many_addresses = pytest.mark.skipif(sys.platform != "linux", reason="loopback has one address here")
PLENTY = 1 << 30
"""Bytes in a second that nobody sends."""


class App:
    """Answers with the length of what it was sent; at `/held` in pieces, the last one when `go` is set."""

    def __init__(self) -> None:
        self.go = anyio.Event()
        self.bodies: list[bytes] = []
        self.held = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        assert scope["type"] == "http"
        body = b""
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message.get("body", b"")
            if not message.get("more_body", False):
                break
        self.bodies.append(body)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
        if scope["path"] == "/held":
            await send({"type": "http.response.body", "body": b"wait", "more_body": True})
            self.held += 1
            await self.go.wait()
        await send({"type": "http.response.body", "body": f"got {len(body)}".encode()})


class Server:
    def __init__(self, app: App, port: int) -> None:
        self.app = app
        self.port = port
        self.connected: list[Connected] = []

    async def connect(self, address: str = "127.0.0.1") -> "Connected":
        """A connection from an address of this machine."""
        stream = await anyio.connect_tcp("127.0.0.1", self.port, local_host=address)
        self.connected.append(Connected(stream))
        return self.connected[-1]

    async def answer(self, address: str = "127.0.0.1") -> bytes:
        """What a good request from there is answered with."""
        connected = await self.connect(address)
        await connected.send(WHOLE)
        return await connected.until(b"got 0")


class Connected:
    """A connection and all that came on it."""

    def __init__(self, stream: anyio.abc.SocketStream) -> None:
        self.stream = stream
        self.came = b""

    async def send(self, data: bytes) -> None:
        await self.stream.send(data)

    async def until(self, wanted: bytes) -> bytes:
        """Read until this has come, or the end."""
        with anyio.fail_after(PATIENCE):
            while wanted not in self.came and await self._read():
                pass
        return self.came

    async def rest(self) -> bytes:
        """Read to the end."""
        return await self.until(b"\0")

    async def _read(self) -> bool:
        try:
            self.came += await self.stream.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            return False
        return True


@asynccontextmanager
async def serving(**limits: Any) -> AsyncGenerator[Server]:
    """A server of `App` with these limits."""
    app = App()
    bound = socket.create_server(("127.0.0.1", 0))
    ready = anyio.Event()
    held = Limits(**{"connections": 100, "head_within": inf, "body_within": inf, **limits})
    async with anyio.create_task_group() as tasks:

        async def serve() -> None:
            await serve_http(app, bound, ready.set, app.go.set, held)

        tasks.start_soon(serve)
        with anyio.fail_after(PATIENCE):
            await ready.wait()
        server = Server(app, bound.getsockname()[1])
        yield server
        for connected in server.connected:
            await connected.stream.aclose()
        tasks.cancel_scope.cancel()


@pytest.fixture(autouse=True)
def _levels() -> Generator[None]:
    """Loggers as they were: at its end the server silences some."""
    loggers = [logging.getLogger(name) for name in ("uvicorn.error", "mcp")]
    before = [logger.level for logger in loggers]
    yield
    for logger, level in zip(loggers, before, strict=True):
        logger.setLevel(level)


# --- time ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sent", [b"P", HEAD, HEAD + b"X-Long: " + b"x" * 5000])
async def test_a_connection_that_does_not_say_what_it_wants_is_closed(sent: bytes) -> None:
    """However much of the head of a request has come, and without a word where nothing has; others are served."""
    async with serving(head_within=0.2) as server:
        connected, silent = await server.connect(), await server.connect()
        await connected.send(sent)
        assert (await server.answer()).startswith(b"HTTP/1.1 200")
        assert await silent.rest() == b""
        assert (await connected.rest()).startswith(b"HTTP/1.1 408 Request Timeout\r\nConnection: close")
        assert server.app.bodies == [b""]


async def test_a_head_that_comes_bit_by_bit_has_no_more_time() -> None:
    """Nor has one of a later request on the connection."""
    async with serving(head_within=0.3) as server:
        connected = await server.connect()
        await connected.send(WHOLE)
        assert (await connected.until(b"got 0")).endswith(b"got 0\r\n0\r\n\r\n")
        connected.came = b""
        await connected.send(HEAD)
        async with anyio.create_task_group() as tasks:

            async def drip() -> None:
                with anyio.move_on_after(PATIENCE):
                    while True:
                        await connected.send(b"X: y\r\n")
                        await anyio.sleep(0.02)

            async def until_closed() -> None:
                await connected.rest()
                tasks.cancel_scope.cancel()

            tasks.start_soon(until_closed)
            try:
                await drip()
            except (anyio.BrokenResourceError, OSError):
                await connected.rest()
        assert b"408" in connected.came or connected.came == b""  # a reset may overtake the answer


@pytest.mark.parametrize("framing", [b"Content-Length: 1000\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n"])
async def test_a_body_that_does_not_come_is_given_up(framing: bytes) -> None:
    """However it is framed, and although the app waits for it."""
    async with serving(body_within=0.2, body_rate=PLENTY) as server:
        connected = await server.connect()
        await connected.send(HEAD + framing + b"3\r\nabc\r\n")
        assert (await connected.rest()).startswith(b"HTTP/1.1 408 Request Timeout\r\n")
        assert server.app.bodies == []
        assert (await server.answer()).startswith(b"HTTP/1.1 200")


async def test_a_body_that_comes_at_a_fair_rate_has_the_time_it_takes() -> None:
    """What has come of it counts."""
    async with serving(body_within=0.1, body_rate=1) as server:
        connected = await server.connect()
        await connected.send(HEAD + b"Content-Length: 110\r\n\r\n" + b"x" * 100)
        await anyio.sleep(0.5)
        await connected.send(b"y" * 10)
        assert b"got 110" in await connected.until(b"got 110")


async def test_an_answer_may_take_as_long_as_it_takes() -> None:
    """With event streams and calls that take long: the client has said what it wants."""
    async with serving(head_within=0.1, body_within=0.1) as server:
        connected = await server.connect()
        await connected.send(HELD)
        await connected.until(b"wait")
        await anyio.sleep(0.5)
        server.app.go.set()
        assert (await connected.until(b"got 0")).startswith(b"HTTP/1.1 200")


# --- framing ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "request_",
    [
        HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
        HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
        HEAD + b"Content-Length: 5, 6\r\n\r\nhello!",
        HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        HEAD.replace(b"1.1", b"1.0") + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ],
)
async def test_a_body_that_could_be_read_in_two_ways_is_refused(request_: bytes) -> None:
    """And the connection is closed, on which nobody knows where the next request begins; the app sees nothing."""
    async with serving() as server:
        connected = await server.connect()
        await connected.send(request_ + WHOLE)
        came = await connected.rest()
        assert came.startswith((b"HTTP/1.1 400", b"HTTP/1.1 501")), came
        assert came.count(b"HTTP/1.1 ") == 1
        assert b"connection: close" in came.lower()
        assert server.app.bodies == []


# --- how many --------------------------------------------------------------------------------------------------------


@many_addresses
@pytest.mark.parametrize("sent", [b"", HEAD, HEAD + b"Content-Length: 9\r\n\r\nx", WHOLE])
async def test_where_there_are_too_many_those_that_want_nothing_make_room(sent: bytes) -> None:
    """Those that have sent nothing, half a request, or are idle after one, the oldest first; not those in work."""
    async with serving(connections=8) as server:
        working = await server.connect()
        await working.send(HELD)
        await working.until(b"wait")
        waiting = [await server.connect() for _ in range(3)]
        for connected in waiting:
            if sent:
                await connected.send(sent)
            if sent == WHOLE:
                await connected.until(b"got 0")
        for number in range(20):
            assert (await server.answer(f"127.0.1.{number + 1}")).startswith(b"HTTP/1.1 200")
        for connected in waiting:
            await connected.rest()
        server.app.go.set()
        assert b"got 0" in await working.until(b"got 0")


@many_addresses
async def test_where_all_are_at_work_another_is_told_to_come_later() -> None:
    """At once, and it is let in when there is room again."""
    async with serving(connections=8) as server:
        for number in range(8):
            connected = await server.connect(f"127.0.0.{number % 2 + 2}")
            await connected.send(HELD)
            await connected.until(b"wait")
        for address in ("127.0.0.1", "127.0.0.2"):
            refused = await server.connect(address)
            assert (await refused.rest()).startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
        assert server.app.held == 8
        await server.connected[0].stream.aclose()
        with anyio.fail_after(PATIENCE):
            while not (await server.answer()).startswith(b"HTTP/1.1 200"):  # noqa: ASYNC110 - the server is told of it
                await anyio.sleep(0.01)


@many_addresses
async def test_one_address_cannot_have_all_of_them() -> None:
    """A quarter is left to others, whatever it does with its own."""
    async with serving(connections=8) as server:
        for _ in range(6):
            connected = await server.connect()
            await connected.send(HELD)
            await connected.until(b"wait")
        for _ in range(5):
            assert b"200" not in await server.answer()
        for _ in range(2):
            assert (await server.answer("127.0.0.2")).startswith(b"HTTP/1.1 200")
        assert server.app.held == 6


@pytest.mark.parametrize(("descriptors", "connections"), [(1, 1), (256, 160), (20_000, 12_500), (1 << 30, 20_000)])
def test_there_are_fewer_connections_than_descriptors(descriptors: int, connections: int) -> None:
    """The rest is for what servers need."""
    assert limits_for(descriptors).connections == connections <= MAX_CONNECTIONS


# --- descriptors -----------------------------------------------------------------------------------------------------


def limited(monkeypatch: pytest.MonkeyPatch, soft: int, hard: int) -> None:
    """Have the program started with these limits of descriptors."""
    original = conftest.program

    def program(*arguments: str | Path) -> list[str]:
        shell = f'ulimit -Sn {soft} && ulimit -Hn {hard} && exec "$@"'
        return ["sh", "-c", shell, "sh", *original(*arguments)]

    monkeypatch.setattr(conftest, "program", program)


async def test_a_flood_of_half_sent_requests_leaves_descriptors_for_others(
    tmp_path: Path, launch: Launch, raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More connections than the program may have open: clients are served, servers start, and little is logged."""
    limited(monkeypatch, 100, 300)
    servers = {"up": Record(tmp_path / "log.jsonl").entry()}
    proxy = launch(write_config(tmp_path / "skills.yaml", servers, {"echoing": {"tool_list": {"up": ["echo"]}}}))
    port = int(proxy.base.rpartition(":")[2])
    half: list[socket.socket] = []
    try:
        for _ in range(600):
            half.append(socket.create_connection(("127.0.0.1", port), timeout=PATIENCE))
            half[-1].sendall(HEAD)
        session = await raw.open(proxy.url)
        assert "activated" in str(await raw.skill(proxy.url, session, "activate", "echoing"))
        assert await raw.tools(proxy.url, session) == ["SKILL", "SKILL_CALL", "up__echo"]
    finally:
        for each in half:
            each.close()
    log = proxy.log.read_text(encoding="utf-8")
    assert "Too many open files" not in log
    assert "out of system resource" not in log


def test_servers_get_the_limit_that_the_program_was_started_with(tmp_path: Path) -> None:
    """The program raises its own alone: one that waits with select() breaks with large numbers."""
    child = "import resource; print(*resource.getrlimit(resource.RLIMIT_NOFILE), flush=True)"
    code = f"""
import os
from proxy.core.server import StdioServer
from proxy.upstream.spawn import spawn
from proxy.wire.descriptors import descriptor_limit, raise_limit
raise_limit()
server = StdioServer(key="a", command={sys.executable!r}, args=("-c", {child!r}), env={{}}, cwd={str(tmp_path)!r})
print(descriptor_limit(), os.read(spawn(server).stdout, 100).decode())
"""
    shell = f"ulimit -Sn 300 && ulimit -Hn 400 && exec '{sys.executable}' -c \"$0\""
    done = subprocess.run(["sh", "-c", shell, code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["400", "300", "400"]
