"""What tests share: the program as a real process, clients to drive it, and configurations for it."""

import atexit
import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any, TypeAlias

import anyio
import httpx2
import pytest
import yaml
from mcp import Client, MCPError
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp_types import Implementation

ROOT = Path(__file__).resolve().parent.parent
RECORDER = ROOT / "tests" / "servers" / "recorder.py"
PATIENCE = 20.0
"""Seconds after which a wait counts as failed."""
QUIET = "mcporter"
"""What clients call themselves where a test does not say: one that is known not to read a changed list again, so that
no result is held for it, and `SKILL_CALL` stands in its list."""
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""For clients of plain HTTP: without it each would read all certificate authorities first."""
BIG = 64 * 1024 * 1024
"""Bytes of one event that clients here accept; the SDK's own limit of 1 MiB would hide what the proxy can do."""
MODERN = "2026-07-28"
HANDSHAKE = "2025-11-25"
MODES = ("legacy", "auto", MODERN)
ERAS = ("legacy", MODERN)
"""Modes that differ on a namespace and over stdio, where `auto` comes to the modern era."""

Json: TypeAlias = dict[str, Any]

os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(prefix="skill-proxy-cache-")
"""The cache folder of every program that tests start: none looks into the user's own."""
atexit.register(shutil.rmtree, os.environ["XDG_CACHE_HOME"], ignore_errors=True)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


# --- configurations and upstreams ------------------------------------------------------------------------------------


def write_config(
    path: Path,
    servers: Mapping[str, Any],
    skills: Mapping[str, Any],
    *,
    denied: Mapping[str, Any] | None = None,
    proxy: Mapping[str, Any] | None = None,
    **more: Any,
) -> Path:
    """Write a configuration file; servers and skills stay in their order. `more`: what else it has at the top."""
    data: Json = {"servers": dict(servers), "skill_configs": dict(skills)}
    if denied:
        data["black_tool_actions"] = dict(denied)
    if proxy:
        data["proxy"] = dict(proxy)
    data |= more
    path.write_text(yaml.safe_dump(data, sort_keys=False, allow_unicode=True), encoding="utf-8")
    return path


def write_skill(folder: Path, guide: str = "", files: Mapping[str, str | bytes] | None = None, **front: Any) -> Path:
    """Write a skill's folder: its SKILL.md, with what `front` says beside name and description, and other files."""
    fields = {"name": folder.name, "description": f"What {folder.name} is for.", **front}
    written = yaml.safe_dump(fields, sort_keys=False, allow_unicode=True)
    for path, content in {"SKILL.md": f"---\n{written}---\n{guide}", **(files or {})}.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


@dataclass(frozen=True)
class Record:
    """A recorder as an upstream: its entry for the configuration, and what it has received."""

    log: Path
    name: str = "recorder"
    until: Path | None = None
    pages: bool = False

    def entry(self, **more: Any) -> Json:
        args = [str(RECORDER), "--log", str(self.log), "--name", self.name, *(["--pages"] if self.pages else [])]
        if self.until is not None:
            args += ["--until", str(self.until)]
        return {"command": sys.executable, "args": args, **more}

    def received(self, *methods: str) -> list[Json]:
        """Every message so far, of these methods or of all."""
        if not self.log.exists():
            return []
        entries = [json.loads(line) for line in self.log.read_text(encoding="utf-8").splitlines()]
        return [entry for entry in entries if not methods or entry["method"] in methods]

    def calls(self, marker: str = "") -> list[tuple[str, Any]]:
        """(original name, arguments) of the calls received, of those that hold `marker`."""
        calls = [entry["params"] for entry in self.received("tools/call")]
        return [(call["name"], call.get("arguments")) for call in calls if marker in json.dumps(call)]

    async def until_received(self, method: str, marker: str = "", times: int = 1) -> None:
        """Wait until so many messages of `method` that hold `marker` have arrived."""
        with anyio.fail_after(PATIENCE):
            while sum(marker in json.dumps(entry) for entry in self.received(method)) < times:  # noqa: ASYNC110
                await anyio.sleep(0.01)

    @asynccontextmanager
    async def over_http(self, port: int) -> AsyncGenerator[None]:
        """Run it as a Streamable HTTP server, which answers inside."""
        arguments = [str(RECORDER), "--log", str(self.log), "--name", self.name, "--http", str(port)]
        process = subprocess.Popen([sys.executable, *arguments])  # noqa: ASYNC220
        try:
            with anyio.fail_after(PATIENCE):
                while not await _answers(port):  # noqa: ASYNC110 - another process listens
                    await anyio.sleep(0.02)
            yield
        finally:
            process.terminate()
            process.wait(PATIENCE)


async def _answers(port: int) -> bool:
    try:
        async with await anyio.connect_tcp("127.0.0.1", port):
            return True
    except OSError:
        return False


def of_servers(entries: list[Json]) -> list[Json]:
    """Without what the proxy itself lists: the guides of skills, and their prompts, which have no server's prefix."""
    return [entry for entry in entries if not (entry.get("uri", "").startswith("skill://") or _is_own_prompt(entry))]


def _is_own_prompt(entry: Json) -> bool:
    return {"uri", "uriTemplate", "inputSchema"}.isdisjoint(entry) and "__" not in entry["name"]


@pytest.fixture
def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return taken.getsockname()[1]


# --- the program -----------------------------------------------------------------------------------------------------


def program(*arguments: str | Path) -> list[str]:
    """The command line of the program under the interpreter that runs the tests."""
    return [sys.executable, "-m", "proxy", *map(str, arguments)]


def stdio_program(config: Path, *arguments: str) -> StdioServerParameters:
    """The program over stdio, for the SDK's client; the measuring of coverage is passed on."""
    command, *args = program("serve", "--config", config, *arguments)
    kept = {key: value for key, value in os.environ.items() if key.startswith(("COVERAGE_", "PYTHON", "XDG_CACHE_"))}
    return StdioServerParameters(command=command, args=args, cwd=ROOT, env=kept)


@dataclass
class HttpProxy:
    """A running proxy: `url` is its `/mcp`, `log` what it says on stderr."""

    process: subprocess.Popen[bytes]
    url: str
    log: Path

    @property
    def base(self) -> str:
        """The address without a path."""
        return self.url.removesuffix("/mcp")

    def namespace(self, name: str) -> str:
        """The address of a namespace."""
        return f"{self.url}/{name}"

    def logged(self, event: str) -> list[Json]:
        """The events of this name in its log so far."""
        lines = self.log.read_text(encoding="utf-8").split("\n")[:-1]
        return [found for line in lines if (found := json.loads(line))["event"] == event]

    async def until_logged(self, event: str, times: int) -> None:
        """Wait until there are so many events of this name."""
        with anyio.fail_after(PATIENCE):
            while len(self.logged(event)) < times:  # noqa: ASYNC110 - another process writes
                await anyio.sleep(0.02)


@contextmanager
def http_proxy(
    config: Path, *arguments: str, environ: Mapping[str, str] | None = None, patience: float = PATIENCE
) -> Generator[HttpProxy]:
    """The program over HTTP on a free port; at the end it stops on SIGTERM with exit code 0, or the test fails.

    `patience`: seconds after which it counts as failed to start.
    """
    log = config.with_suffix(f".{time.monotonic_ns()}.log")
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            program("serve", "--config", config, "--transport", "http", "--port", "0", *arguments),
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            env={**os.environ, **(environ or {})},
        )
    try:
        yield HttpProxy(process, _ready_url(process, log, patience), log)
        process.terminate()
        code = process.wait(PATIENCE)
        assert code == 0, log.read_text(encoding="utf-8")
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(PATIENCE)


def _ready_url(process: subprocess.Popen[bytes], log: Path, patience: float) -> str:
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline and process.poll() is None:
        for line in log.read_text(encoding="utf-8").splitlines():
            if '"proxy.ready"' in line:
                return json.loads(line)["url"]
        time.sleep(0.02)
    raise AssertionError(f"the proxy is not ready:\n{log.read_text(encoding='utf-8')}")


Launch: TypeAlias = Callable[..., HttpProxy]


@pytest.fixture
def launch() -> Generator[Launch]:
    """Starts proxies over HTTP that end with the test: `launch(config, *arguments)`."""
    open_ones: list[Any] = []

    def start(config: Path, *arguments: str, environ: Mapping[str, str] | None = None) -> HttpProxy:
        context = http_proxy(config, *arguments, environ=environ)
        proxy = context.__enter__()
        open_ones.append(context)
        return proxy

    yield start
    for context in reversed(open_ones):
        context.__exit__(None, None, None)


@pytest.fixture
def namespace(request: pytest.FixtureRequest) -> str:
    """A namespace of this test alone: tests that share a process do not share state."""
    plain = "".join(character if character.isalnum() else "-" for character in request.node.name)
    return f"{plain[-60:]}-{time.monotonic_ns()}"


# --- clients ---------------------------------------------------------------------------------------------------------


class Wire:
    """Every message that the proxy sent to one client, as JSON and in order."""

    def __init__(self) -> None:
        self.messages: list[Json] = []
        self._news = anyio.Event()

    def note(self, item: SessionMessage | Exception) -> None:
        if isinstance(item, SessionMessage):
            self.messages.append(item.message.model_dump(mode="json", by_alias=True, exclude_unset=True))
            self._news.set()
            self._news = anyio.Event()

    def notices(self, kind: str = "tools") -> int:
        """How many `list_changed` notices of this kind came."""
        return len(self.where(lambda message: message.get("method") == f"notifications/{kind}/list_changed"))

    def where(self, test: Callable[[Json], bool]) -> list[int]:
        """The places of the messages that pass `test`."""
        return [place for place, message in enumerate(self.messages) if test(message)]

    async def until(self, test: Callable[[], bool]) -> None:
        """Wait until `test` holds; it is asked after every message."""
        with anyio.fail_after(PATIENCE):
            await self.whenever(test)

    async def whenever(self, test: Callable[[], bool]) -> None:
        """As `until`, however long that takes."""
        while not test():
            await self._news.wait()

    async def until_notices(self, count: int, kind: str = "tools", *, forever: bool = False) -> None:
        """Wait until this many notices have come; `forever`: as long as that takes."""
        with anyio.move_on_after(inf) if forever else anyio.fail_after(PATIENCE):
            while self.notices(kind) < count:
                await self._news.wait()


@dataclass
class Peer:
    """The SDK's client and what came over its wire; its requests here are raw, answers as the proxy sent them."""

    client: Client
    wire: Wire

    async def request(self, method: str, params: Mapping[str, Any] | None = None, **options: Any) -> Json:
        """Send one request with the connection's own envelope; its result as JSON."""
        session = self.client.session
        data: Json = {"method": method, "params": json.loads(json.dumps(params or {}))}
        session._stamp(data, options)  # pyright: ignore[reportPrivateUsage, reportArgumentType]
        with anyio.fail_after(PATIENCE):
            return await session._dispatcher.send_raw_request(  # pyright: ignore[reportPrivateUsage]
                data["method"],
                data["params"],
                options,  # pyright: ignore[reportArgumentType]
            )

    async def refusal(self, method: str, params: Mapping[str, Any] | None = None) -> tuple[int, str]:
        """The code and the message of the JSON-RPC error that a request is answered with."""
        with pytest.raises(MCPError) as raised:
            await self.request(method, params)
        return raised.value.error.code, raised.value.error.message

    async def call(self, name: str, arguments: Mapping[str, Any] | None = None, **params: Any) -> Json:
        """Run `tools/call`."""
        return await self.request("tools/call", {"name": name, "arguments": dict(arguments or {}), **params})

    async def skill(self, action: str, skill: str | None = None, **more: Any) -> Json:
        """Call `SKILL`."""
        named = {} if skill is None else {"skill_name": skill}
        return await self.call("SKILL", {"action": action, **named, **more})

    async def definitions(self) -> list[Json]:
        """The list of tools, in full."""
        return (await self.request("tools/list"))["tools"]

    async def tools(self) -> list[str]:
        """The names in the list of tools."""
        return [tool["name"] for tool in await self.definitions()]

    @property
    def handshake(self) -> bool:
        """Whether the connection is of the handshake era."""
        return self.client.protocol_version != MODERN

    @asynccontextmanager
    async def hearing(self) -> AsyncGenerator[None]:
        """Notices reach the wire inside: in the modern era that needs a listen stream."""
        if self.handshake:
            yield
            return
        async with self.client.listen(tools_list_changed=True, prompts_list_changed=True, resources_list_changed=True):
            yield

    @asynccontextmanager
    async def rereading(self) -> AsyncGenerator[None]:
        """Inside, the list of tools is read again whenever a notice says that it has changed, as many clients do.

        It hears of that already (`hearing`).
        """

        async def reread() -> None:
            told = self.wire.notices()

            def has_changed() -> bool:
                return self.wire.notices() > told

            while True:
                await self.wire.whenever(has_changed)
                told = self.wire.notices()
                await self.tools()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(reread)
            yield
            tasks.cancel_scope.cancel()


@asynccontextmanager
async def _tapped(transport: Any, wire: Wire) -> AsyncGenerator[Any]:
    async with transport as (read, write):
        onward, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](inf)

        async def pump() -> None:
            with suppress(anyio.BrokenResourceError):  # the client has closed before us
                async with onward:
                    async for item in read:
                        wire.note(item)
                        await onward.send(item)

        async with anyio.create_task_group() as tasks, incoming:
            tasks.start_soon(pump)
            yield incoming, write
            tasks.cancel_scope.cancel()


@asynccontextmanager
async def connected(
    target: str | StdioServerParameters,
    mode: str = "auto",
    *,
    token: str | None = None,
    name: str = QUIET,
    headers: Mapping[str, str] | None = None,
) -> AsyncGenerator[Peer]:
    """A client of the SDK at a URL or at a program over stdio."""
    wire = Wire()
    try:
        if isinstance(target, str):
            sent = {**(headers or {}), **({"Authorization": f"Bearer {token}"} if token else {})}
            async with (
                httpx2.AsyncClient(headers=sent, verify=NO_TLS, timeout=httpx2.Timeout(PATIENCE, read=60)) as http,
                _client(
                    streamable_http_client(target, http_client=http, max_sse_event_size=BIG), wire, mode, name
                ) as client,
            ):
                yield Peer(client, wire)
        else:
            with open(os.devnull, "w", encoding="utf-8") as nowhere:  # noqa: ASYNC230, PTH123
                async with _client(stdio_client(target, errlog=nowhere), wire, mode, name) as client:
                    yield Peer(client, wire)
    except BaseExceptionGroup as group:
        raise _one(group) from None


@asynccontextmanager
async def _client(transport: Any, wire: Wire, mode: str, name: str) -> AsyncGenerator[Client]:
    with anyio.move_on_after(PATIENCE) as starting:
        async with Client(
            _tapped(transport, wire), mode=mode, client_info=Implementation(name=name, version="1"), cache=None
        ) as client:
            starting.deadline = inf
            yield client
    assert not starting.cancelled_caught, "the proxy did not answer the handshake"


def _one(error: BaseException) -> BaseException:
    """The single error inside groups of one, which is what a test asserts about."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def text_of(result: Json) -> str:
    """All text of a tool result."""
    return "\n".join(block["text"] for block in result["content"] if block["type"] == "text")


# --- HTTP by hand ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Answer:
    """One HTTP response; `messages` are the JSON-RPC messages in it, from JSON or from an event stream."""

    status: int
    headers: httpx2.Headers
    text: str
    messages: Sequence[Json]

    @property
    def reply(self) -> Json:
        """The last message: the response."""
        assert self.messages, f"HTTP {self.status}: {self.text}"
        return self.messages[-1]


class Raw:
    """JSON-RPC over HTTP by hand, where a client of the SDK would be too well-behaved."""

    def __init__(self, http: httpx2.AsyncClient) -> None:
        self.http = http
        self._last_id = 0

    async def send(self, verb: str, url: str, *, headers: Mapping[str, str] | None = None, body: Any = None) -> Answer:
        sent = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json", **(headers or {})}
        content = None if body is None else json.dumps(body)  # escaped: of text that is no UTF-8, too
        response = await self.http.request(verb, url, headers=sent, content=content)
        return Answer(response.status_code, response.headers, response.text, _messages(response))

    async def post(
        self, url: str, method: str, params: Json | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """POST one request of the handshake era's shape."""
        self._last_id += 1
        body = {"jsonrpc": "2.0", "id": self._last_id, "method": method, "params": params or {}}
        return await self.send("POST", url, headers=headers, body=body)

    async def modern(
        self, url: str, method: str, params: Json | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """POST one request of revision 2026-07-28."""
        meta = {
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        full = {**(params or {}), "_meta": {**meta, **(params or {}).get("_meta", {})}}
        sent = {"MCP-Protocol-Version": MODERN, "Mcp-Method": method, **(headers or {})}
        if "name" in full:
            sent["Mcp-Name"] = full["name"]
        if method == "resources/read":
            sent["Mcp-Name"] = full["uri"]
        return await self.post(url, method, full, sent)

    async def open_answer(self, url: str, headers: Mapping[str, str] | None = None, name: str = QUIET) -> Answer:
        """The answer to `initialize`."""
        params = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": {"name": name, "version": "1"}}
        return await self.post(url, "initialize", params, headers)

    async def open(self, url: str, token: str | None = None, name: str = QUIET) -> dict[str, str]:
        """Open a session; the headers that its later requests carry."""
        own = {"Authorization": f"Bearer {token}"} if token else {}
        answer = await self.open_answer(url, own, name)
        assert answer.status == 200, answer
        headers = {**own, "Mcp-Session-Id": answer.headers["mcp-session-id"], "MCP-Protocol-Version": HANDSHAKE}
        told = await self.send(
            "POST", url, headers=headers, body={"jsonrpc": "2.0", "method": "notifications/initialized"}
        )
        assert told.status == 202, told
        return headers

    async def tools(self, url: str, headers: Mapping[str, str]) -> list[str]:
        """The names in a session's list of tools."""
        return names((await self.post(url, "tools/list", {}, headers)).reply)

    async def skill(self, url: str, headers: Mapping[str, str], action: str, skill: str) -> Json:
        """Call `SKILL` in a session."""
        params = {"name": "SKILL", "arguments": {"action": action, "skill_name": skill}}
        return (await self.post(url, "tools/call", params, headers)).reply["result"]

    @asynccontextmanager
    async def stream(self, url: str, headers: Mapping[str, str]) -> AsyncGenerator["Stream"]:
        """A session's own event stream (GET), which is open when this is entered."""
        sent = {**headers, "Accept": "text/event-stream"}
        async with self.http.stream("GET", url, headers=sent) as response, anyio.create_task_group() as tasks:
            assert response.status_code == 200, await response.aread()
            stream = Stream()
            tasks.start_soon(stream.read, response)
            yield stream
            tasks.cancel_scope.cancel()


class Stream:
    """What came on an event stream."""

    def __init__(self) -> None:
        self.messages: list[Json] = []
        self._news = anyio.Event()

    async def read(self, response: httpx2.Response) -> None:
        async for line in response.aiter_lines():
            if line.startswith("data:") and line[5:].strip():
                self.messages.append(json.loads(line[5:]))
                self._news.set()
                self._news = anyio.Event()

    def notices(self, kind: str = "tools") -> int:
        """How many notices of this kind came."""
        return sum(message.get("method") == f"notifications/{kind}/list_changed" for message in self.messages)

    async def until_notices(self, count: int, kind: str = "tools") -> None:
        """Wait until this many notices have come."""
        with anyio.fail_after(PATIENCE):
            while self.notices(kind) < count:
                await self._news.wait()


def names(reply: Json) -> list[str]:
    """The names in the reply to `tools/list`."""
    return [tool["name"] for tool in reply["result"]["tools"]]


def _messages(response: httpx2.Response) -> list[Json]:
    kind = response.headers.get("content-type", "")
    if kind.startswith("application/json") and response.content:
        return [response.json()]
    if kind.startswith("text/event-stream"):
        data = [line[5:].strip() for line in response.text.splitlines() if line.startswith("data:")]
        return [json.loads(each) for each in data if each]
    return []


@pytest.fixture
async def raw(anyio_backend: str) -> AsyncGenerator[Raw]:
    async with httpx2.AsyncClient(verify=NO_TLS, timeout=httpx2.Timeout(PATIENCE)) as http:
        yield Raw(http)
