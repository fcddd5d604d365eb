"""Servers behind the proxy that live in this process and do what a test says, down to each line of their output."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import anyio

from proxy.core.server import Server, StdioServer
from proxy.upstream.failure import Failure
from proxy.upstream.transport import CannotStart, Transport
from proxy.wire.dispatcher import LineDispatcher

Json: TypeAlias = dict[str, Any]
Opening: TypeAlias = Literal["works", "fails", "hangs"]


@dataclass
class Double:
    """One server of the configuration, in however many processes it runs.

    `opening`: what comes of starting it. `lingers`: seconds that a process takes to end. `tools`: what it offers by
    now. `running`: its processes. `on_call`: told of each call that arrives, by tool and arguments.
    """

    key: str
    on_call: Callable[[str, str, Json], None]
    opening: Opening = "works"
    lingers: float = 0.0
    tools: tuple[str, ...] = ("read", "write")
    running: list["Process"] = field(default_factory=list["Process"])
    most: int = 0

    @asynccontextmanager
    async def transport(self, server: Server) -> AsyncGenerator[Transport]:
        """A way to a new process."""
        if self.opening == "fails":
            raise CannotStart(Failure("it is broken"))
        process = Process(self)
        self.running.append(process)
        alone = isinstance(server, StdioServer) and server.isolation == "shared"
        self.most = max(self.most, len(self.running) if alone else 0)
        try:
            yield Transport(process.dispatcher, process.dispatcher.over)
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(self.lingers)
            self.running.remove(process)

    def offer(self, tools: tuple[str, ...]) -> None:
        """Offer these tools from now on, and say so."""
        self.tools = tools
        for process in self.running:
            process.offer(tools)


class Process:
    """One process of a server, as seen from the other ends of its pipes; `waiting`: the calls that it works on."""

    def __init__(self, double: Double) -> None:
        self.double = double
        self.tools = double.tools
        self.waiting: dict[int, Json] = {}
        self.greeting: Json | None = None
        self.gone = False
        self._loop = asyncio.get_running_loop()
        self._hear: Callable[[bytes], None] = lambda _line: None
        self._end: Callable[[], None] = lambda: None
        output: Any = _Output(self)
        input_: Any = _Input(self)
        self.dispatcher = LineDispatcher(output, input_, lambda *_: None)

    def connect(self, hear: Callable[[bytes], None], end: Callable[[], None]) -> None:
        """Be heard by the proxy."""
        self._hear, self._end = hear, end

    def say(self, message: Mapping[str, Any]) -> None:
        """Write a line; it arrives a moment later."""
        if not self.gone:
            line = json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"
            self._loop.call_soon(self._hear, line)

    def die(self) -> None:
        """End, without an answer to anybody."""
        self.gone = True
        self.waiting.clear()
        self._loop.call_soon(self._end)

    def take(self, line: bytes) -> None:
        """Read a line of the proxy."""
        message = json.loads(line)
        method, params = message.get("method"), message.get("params") or {}
        if method == "notifications/cancelled":
            self.waiting.pop(params["requestId"], None)
        elif method == "initialize":
            self.greeting = message
            if self.double.opening != "hangs":
                self.greet()
        elif method == "tools/list":
            tools = [{"name": name, "inputSchema": {"type": "object"}} for name in self.tools]
            self.say({"id": message["id"], "result": {"tools": tools}})
        elif method == "tools/call":
            self.double.on_call(self.double.key, params["name"], params["arguments"])
            self.waiting[message["id"]] = params
            if not params["arguments"]["takes_time"]:
                self.answer(message["id"])

    def offer(self, tools: tuple[str, ...]) -> None:
        """Offer these tools from now on, and say so."""
        self.tools = tools
        self.say({"method": "notifications/tools/list_changed"})

    def greet(self) -> None:
        """Answer the handshake, if there is one to be answered."""
        if self.greeting is not None:
            about = {"capabilities": {"tools": {"listChanged": True}}, "serverInfo": {"name": "double", "version": "1"}}
            self.say({"id": self.greeting["id"], "result": {"protocolVersion": "2025-11-25", **about}})
            self.greeting = None

    def answer(self, call: int) -> None:
        """Answer a call with what it was called with."""
        told = json.dumps(self.waiting.pop(call)["arguments"])
        self.say({"id": call, "result": {"content": [{"type": "text", "text": told}]}})

    def refuse(self, call: int) -> None:
        """Answer a call with an error, whose data are what it was called with."""
        self.say({"id": call, "error": {"code": -32050, "message": "no", "data": self.waiting.pop(call)["arguments"]}})

    def progress(self, call: int) -> None:
        """Report progress of a call, with what it was called with."""
        params = self.waiting[call]
        told = {"progressToken": params["_meta"]["progressToken"], "progress": 1, "message": params["arguments"]["who"]}
        self.say({"method": "notifications/progress", "params": told})


@dataclass
class _Output:
    """The pipe that the dispatcher reads, which is never paused."""

    process: Process

    async def start(self, hear: Callable[[bytes], None], end: Callable[[], None]) -> None:
        self.process.connect(hear, end)

    def pause(self) -> None: ...

    def resume(self) -> None: ...


@dataclass
class _Input:
    """The pipe that the dispatcher writes, which is never full."""

    process: Process
    crowded: bool = False
    full: bool = False

    @property
    def lost(self) -> bool:
        return self.process.gone

    async def start(self, on_lost: Callable[[Exception | None], None], on_full: Callable[[], None]) -> None: ...

    def write(self, line: bytes, *, more: bool = False) -> None:
        self.process.take(line)
