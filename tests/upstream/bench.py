"""A place to set up faulty servers in front of a proxy, and to watch what happens to them."""

import json
import os
import signal
import socket
import subprocess
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
from mcp import Client
from mcp_types import CallToolResult, Implementation, TextContent

from proxy.app import Running, running
from proxy.config.load import load
from proxy.core.scope import ScopeId
from tests.answers import not_ready
from tests.conftest import QUIET
from tests.servers.faulty import Faults

DEADLINE = 20.0
"""Seconds after which a wait has failed; nothing that works comes near."""
POLL = 0.01
ME = Implementation(name=QUIET, version="1")


@dataclass
class Bench:
    """A folder with a configuration, the logs of its servers, and the processes that a test started."""

    folder: Path
    servers: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    skills: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    settings: dict[str, Any] = field(default_factory=lambda: {"list_wait": 0.1})
    """The SDK's client lists by itself around some calls: that has to be quick where a server is late."""
    denied: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    ports: dict[str, int] = field(default_factory=dict[str, int])
    faults: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict[str, subprocess.Popen[bytes]])

    def stdio(self, key: str, entry: Mapping[str, Any] | None = None, **faults: Any) -> None:
        """Put a faulty stdio server into the configuration, with the keys of `entry` besides."""
        command, *args = Faults(log=str(self.log(key)), **faults).argv()
        self.servers[key] = {"command": command, "args": args, **(entry or {})}

    async def http(self, key: str, entry: Mapping[str, Any] | None = None, **faults: Any) -> None:
        """Run a faulty HTTP server and put it into the configuration."""
        self.ports[key] = free_port()
        self.faults[key] = faults
        self.servers[key] = {"url": f"http://127.0.0.1:{self.ports[key]}/mcp", **(entry or {})}
        await self.start(key)

    async def start(self, key: str) -> None:
        """Start an HTTP server, again on its own port."""
        before = len(self.events(key, "listening"))
        self.run(key)
        await self.event(key, "listening", count=before + 1)

    def run(self, key: str) -> None:
        """Run an HTTP server; it listens a moment later."""
        argv = Faults(log=str(self.log(key)), port=self.ports[key], **self.faults[key]).argv()
        self.processes[key] = subprocess.Popen(argv, stderr=subprocess.DEVNULL)

    def stop(self, key: str) -> None:
        """Kill an HTTP server."""
        process = self.processes.pop(key)
        process.kill()
        process.wait()

    async def restart(self, key: str) -> None:
        """Kill an HTTP server and start it again on its port: it has forgotten every session."""
        self.stop(key)
        await self.start(key)

    def close(self) -> None:
        """End whatever is left, also servers that a proxy should have ended."""
        for key in list(self.processes):
            self.stop(key)
        for log in self.folder.glob("*.log"):
            for pid in pids(read_events(log)):
                if alive(pid):
                    with suppress(OSError):
                        os.kill(pid, signal.SIGKILL)

    def skill(self, key: str, tools: Mapping[str, object], **entry: Any) -> None:
        """Put a skill into the configuration."""
        self.skills[key] = {"desc": key, "usage": f"How to use {key}.", "tool_list": tools, **entry}

    def write(self) -> Path:
        """The configuration, as a file."""
        path = self.folder / "skills.yaml"
        data: dict[str, Any] = {"servers": self.servers, "skill_configs": self.skills, "proxy": self.settings}
        if self.denied:
            data["black_tool_actions"] = self.denied
        path.write_text(json.dumps(data, indent=1))
        return path

    def file(self, name: str) -> Path:
        """A path for a file that does not exist yet."""
        return self.folder / name

    def log(self, key: str) -> Path:
        """Where a server notes what happens to it."""
        return self.folder / f"{key}.log"

    def events(self, key: str, event: str, **details: object) -> list[dict[str, Any]]:
        """What happened to a server so far: events of this name with these details."""
        wanted = {"event": event, **details}
        return [found for found in read_events(self.log(key)) if wanted.items() <= found.items()]

    async def event(self, key: str, event: str, *, count: int = 1, **details: object) -> list[dict[str, Any]]:
        """Wait until it has happened `count` times to a server."""
        await until(lambda: len(self.events(key, event, **details)) >= count)
        return self.events(key, event, **details)

    def pids(self, key: str) -> list[int]:
        """Every process that ran as this server, and those that they left behind."""
        return pids(read_events(self.log(key)))

    @asynccontextmanager
    async def proxy(
        self, *, mode: str = "auto", environ: Mapping[str, str] | None = None, on_message: Any = None
    ) -> AsyncGenerator["Proxied"]:
        """A proxy in this process, by the configuration, and a client that is connected to it."""
        loaded = load(self.write(), os.environ if environ is None else environ)
        async with (
            running(loaded, ScopeId("process")) as proxy,
            Client(proxy.server, mode=mode, message_handler=on_message, cache=None, client_info=ME) as client,
        ):
            yield Proxied(proxy, client)


@dataclass(frozen=True)
class Proxied:
    """A running proxy and its client."""

    running: Running
    client: Client

    async def activate(self, skill: str) -> CallToolResult:
        """Activate a skill."""
        return await self.call("SKILL", action="activate", skill_name=skill)

    async def call(self, name: str, **arguments: Any) -> CallToolResult:
        """Call a tool; it has to answer at all."""
        with anyio.fail_after(DEADLINE):
            return await self.client.call_tool(name, arguments)

    async def tools(self) -> list[str]:
        """The names that the client sees now."""
        with anyio.fail_after(DEADLINE):
            return [tool.name for tool in (await self.client.list_tools()).tools]

    async def state(self, server: str, wanted: str) -> str:
        """Wait until a server stands so; the reason it gives."""
        await until(lambda: self.running.pool.status(server).state == wanted)
        return self.running.pool.status(server).reason


async def until(holds: Callable[[], bool], within: float = DEADLINE) -> None:
    """Wait until something holds of files or processes, which can only be asked again and again."""
    with anyio.fail_after(within):
        while not holds():  # noqa: ASYNC110 - as above
            await anyio.sleep(POLL)


def text(result: CallToolResult) -> str:
    """The text of a result."""
    return "\n".join(block.text for block in result.content if isinstance(block, TextContent))


def problems(result: CallToolResult) -> dict[str, str]:
    """How servers stand that are not ready after an activation, and why."""
    assert result.structured_content is None
    return not_ready(text(result))


def read_events(log: Path) -> list[dict[str, Any]]:
    """The events in a log; a line that is being written does not count yet."""
    if not log.exists():
        return []
    lines = log.read_text().split("\n")[:-1]
    return [json.loads(line) for line in lines]


def pids(events: Iterable[Mapping[str, Any]]) -> list[int]:
    """The processes that events speak of."""
    return [event["pid"] for event in events if event["event"] == "spawned"] + [
        event["child"] for event in events if event["event"] == "grandchild"
    ]


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and that nobody has waited for does not."""
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].strip()
    except OSError:
        asked = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
        state = asked.stdout.strip()
    return bool(state) and not state.startswith("Z")


def free_port() -> int:
    """A port of the loopback interface that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]
