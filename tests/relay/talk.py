"""Talkers as servers, and clients that answer what they are asked."""

import json
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any, Literal, Self, TypeAlias

import anyio
import httpx2
from mcp import Client
from mcp.client.session import ClientRequestContext
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequestParams,
    ElicitResult,
    ErrorData,
    Implementation,
    ListRootsResult,
    Root,
    SamplingCapability,
    SamplingToolsCapability,
    TextContent,
)

from tests.conftest import NO_TLS, PATIENCE, ROOT, Json, Peer, Record, Wire, _one, _tapped

TALKER = ROOT / "tests" / "servers" / "talker.py"
SERVER_ERAS = ("handshake", "modern")
LEVEL_KEY = "io.modelcontextprotocol/logLevel"
EVERYTHING: Json = {
    "elicitation": {"form": {}, "url": {}},
    "roots": {"listChanged": True},
    "sampling": {"tools": {}},
}
"""What a client here declares unless told otherwise."""

Target: TypeAlias = str | StdioServerParameters


# --- servers ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Talk(Record):
    """A talker as an upstream, over stdio or where `served` has put it."""

    url: str | None = None
    kind: str = "http"
    options: tuple[str, ...] = ()
    read: list[tuple[bytes, Json]] = field(default_factory=list[tuple[bytes, Json]], compare=False, repr=False)
    """Every line of the log that was read before, and what it says."""

    def entry(self, **more: Any) -> Json:
        if self.url is not None:
            return {"type": self.kind, "url": self.url, **more}
        args = [str(TALKER), "--log", str(self.log), "--name", self.name, *self.options]
        return {"command": sys.executable, "args": args, **more}

    def received(self, *methods: str) -> list[Json]:
        """Every message so far, of these methods or of all; what was read before is not read again."""
        return [entry for _, entry in self._lines() if not methods or entry["method"] in methods]

    def of(self, method: str, marker: str = "") -> list[Json]:
        """The messages of `method` that hold `marker`."""
        lines = self._lines()
        return [entry for line, entry in lines if entry["method"] == method and marker.encode() in line]

    def _lines(self) -> list[tuple[bytes, Json]]:
        if self.log.exists():
            with self.log.open("rb") as log:
                log.seek(sum(len(line) for line, _ in self.read))
                for line in log:
                    if not line.endswith(b"\n"):  # it is being written
                        break
                    self.read.append((line, json.loads(line)))
        return self.read

    def connections(self, marker: str) -> set[str]:
        """The connections that calls which hold `marker` have come on."""
        return {entry["connection"] for entry in self.of("tools/call", marker)}


@contextmanager
def served(folder: Path, name: str, transport: str = "http", *options: str) -> Generator[Talk]:
    """A talker over Streamable HTTP (`http`, `stateless`) or HTTP+SSE (`sse`)."""
    port, log = folder / f"{name}.port", folder / f"{name}.jsonl"
    arguments = ["--log", str(log), "--name", name, "--transport", transport, "--port-file", str(port), *options]
    process = subprocess.Popen([sys.executable, str(TALKER), *arguments])
    try:
        anyio.run(_exists, port)
        path = "sse" if transport == "sse" else "mcp"
        yield Talk(
            log,
            name,
            url=f"http://127.0.0.1:{port.read_text(encoding='utf-8')}/{path}",
            kind="sse" if transport == "sse" else "http",
        )
    finally:
        process.kill()
        process.wait(PATIENCE)


async def _exists(path: Path) -> None:
    await until(path.exists)


async def until(test: Callable[[], Any]) -> None:
    """Wait until `test` holds, of what other processes do."""
    with anyio.fail_after(PATIENCE):
        while not test():  # noqa: ASYNC110 - other processes tell nobody
            await anyio.sleep(0.01)


def skill(*tools: str, **servers: Any) -> Json:
    """A skill that grants all tools of the servers named, or those given by keyword."""
    return {"usage": "u", "tool_list": {**{tool: [] for tool in tools}, **servers}}


# --- questions -------------------------------------------------------------------------------------------------------


def form(message: str) -> Json:
    """A question to the user by a form."""
    schema = {"type": "object", "properties": {"by": {"type": "string"}}}
    return {"method": "elicitation/create", "params": {"message": message, "requestedSchema": schema}}


def by_url(message: str, elicitation: str) -> Json:
    """A question that is answered at a URL."""
    params = {"mode": "url", "message": message, "url": "https://ask.example/", "elicitationId": elicitation}
    return {"method": "elicitation/create", "params": params}


def sample(message: str, **more: Any) -> Json:
    """A question to the model."""
    messages = [{"role": "user", "content": {"type": "text", "text": message}}]
    return {"method": "sampling/createMessage", "params": {"messages": messages, "maxTokens": 10, **more}}


TOOLS: Json = {"tools": [{"name": "t", "inputSchema": {"type": "object"}}]}
"""What makes a question to the model one with tools."""
ROOTS: Json = {"method": "roots/list", "params": {}}


@dataclass
class User:
    """Who sits at a client, and answers under a name of its own.

    `declares`: the capabilities that the client is said to have. `action`: what it does with a form. `error`: what it
    answers to a form instead. `asked`: what it was asked so far. `hold`: answers wait for it.
    """

    name: str = "user"
    declares: Json | None = None
    action: Literal["accept", "decline", "cancel"] = "accept"
    error: ErrorData | None = None
    hold: anyio.Event | None = None
    asked: list[str] = field(default_factory=list[str])

    async def elicit(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult | ErrorData:
        await self._hear(params.message)
        if self.error is not None:
            return self.error
        if params.mode == "url" or self.action != "accept":
            return ElicitResult(action=self.action)
        return ElicitResult(action="accept", content={"by": self.name, "to": params.message})

    async def sample(self, context: ClientRequestContext, params: CreateMessageRequestParams) -> CreateMessageResult:
        text = getattr(params.messages[0].content, "text", "")
        await self._hear(text)
        return CreateMessageResult(
            role="assistant", content=TextContent(type="text", text=f"{self.name} to {text}"), model="m"
        )

    async def roots(self, context: ClientRequestContext) -> ListRootsResult:
        await self._hear("roots")
        return ListRootsResult(roots=[Root(uri=f"file:///{self.name}")])  # pyright: ignore[reportArgumentType]

    async def until_asked(self, times: int = 1) -> None:
        """Wait until so many questions have come."""
        await until(lambda: len(self.asked) >= times)

    async def _hear(self, message: str) -> None:
        self.asked.append(message)
        if self.hold is not None:
            await self.hold.wait()

    def answers(self, question: Json) -> Json:
        """What the server gets for a question, in its smallest form."""
        params = question["params"]
        match question["method"]:
            case "elicitation/create" if params.get("mode") == "url":
                return {"action": "accept"}
            case "elicitation/create":
                return {"action": "accept", "content": {"by": self.name, "to": params["message"]}}
            case "sampling/createMessage":
                text = f"{self.name} to {params['messages'][0]['content']['text']}"
                return {"role": "assistant", "content": {"type": "text", "text": text}, "model": "m"}
            case _:
                return {"roots": [{"uri": f"file:///{self.name}"}]}


class _Declaring:
    """A way out on which a client declares other capabilities than the SDK would."""

    def __init__(self, out: Any, capabilities: Json) -> None:
        self._out = out
        self._capabilities = capabilities

    async def send(self, item: SessionMessage) -> None:
        params = getattr(item.message, "params", None) or {}
        if getattr(item.message, "method", "") == "initialize":
            params["capabilities"] = self._capabilities
        if CLIENT_CAPABILITIES_META_KEY in (params.get("_meta") or {}):
            params["_meta"][CLIENT_CAPABILITIES_META_KEY] = self._capabilities
        await self._out.send(item)

    async def aclose(self) -> None:
        await self._out.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.aclose()


@asynccontextmanager
async def _transport(target: Target, wire: Wire, user: User, headers: Mapping[str, str]) -> AsyncGenerator[Any]:
    async with AsyncExitStack() as stack:
        if isinstance(target, str):
            timeout = httpx2.Timeout(PATIENCE, read=60)
            http = await stack.enter_async_context(
                httpx2.AsyncClient(headers=dict(headers), verify=NO_TLS, timeout=timeout)
            )
            transport: Any = streamable_http_client(target, http_client=http)
        else:
            nowhere = stack.enter_context(open(os.devnull, "w", encoding="utf-8"))  # noqa: ASYNC230, PTH123, SIM115
            transport = stdio_client(target, errlog=nowhere)
        read, write = await stack.enter_async_context(_tapped(transport, wire))
        yield read, write if user.declares is None else _Declaring(write, user.declares)


@asynccontextmanager
async def answering(
    target: Target, mode: str, user: User | None = None, headers: Mapping[str, str] | None = None
) -> AsyncGenerator[Peer]:
    """A client of the SDK that answers questions as `user` does; without one it declares that it answers none."""
    wire = Wire()
    by = user or User(declares={})
    try:
        with anyio.move_on_after(PATIENCE) as starting:
            async with Client(
                _transport(target, wire, by, headers or {}),
                mode=mode,
                client_info=Implementation(name="asked", version="1"),
                cache=None,
                elicitation_callback=by.elicit,
                sampling_callback=by.sample,
                sampling_capabilities=SamplingCapability(tools=SamplingToolsCapability()),
                list_roots_callback=by.roots,
            ) as client:
                starting.deadline = inf
                yield Peer(client, wire)
        assert not starting.cancelled_caught, "the proxy did not answer the handshake"
    except BaseExceptionGroup as group:
        raise _one(group) from None


async def ask(peer: Peer, tool: str, *rounds: Json, marker: str = "", **params: Any) -> Any:
    """Call a tool that asks these rounds of questions, as the SDK's client does; what the server was answered."""
    with anyio.fail_after(PATIENCE):
        result = await peer.client.call_tool(tool, {"rounds": list(rounds), "marker": marker}, **params)
    assert not result.is_error, result
    assert result.structured_content is not None
    return result.structured_content["answers"]
