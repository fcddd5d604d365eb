"""What a client's calls to one server cost while another server floods the proxy."""

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from flooding_server import FLOODS
from http_client import HttpClient
from processes import HERE, Vitals, await_port, free_port, running, vitals

FLOODING = str(HERE / "flooding_server.py")
RAW = str(HERE / "raw_server.py")
LEAST_SHARE = 0.5
"""Part of the rate without a flood that has to be left with one."""
LONGEST_S = 0.5
TURNS = 5
"""Times that each is measured, without the flood and with it in turn: the machine has other work, too."""
SECONDS = 1.5
"""Seconds of each measurement."""
SETTLING = 0.5


@dataclass(frozen=True)
class Rate:
    """Calls a second, and the longest time that one took."""

    calls: float
    longest: float


@dataclass(frozen=True)
class Flood:
    """How one flood went, without it and with it; `most`: when the proxy held the most memory."""

    name: str
    without: list[Rate]
    during: list[Rate]
    most: Vitals

    @property
    def share(self) -> float:
        """The part of the rate that was left: the median of the pairs."""
        return median(one.calls / other.calls for one, other in zip(self.during, self.without, strict=True))

    @property
    def longest(self) -> float:
        """The longest time that a call took during the flood."""
        return max(one.longest for one in self.during)

    @property
    def good(self) -> bool:
        """Whether others were left enough."""
        return self.share >= LEAST_SHARE and self.longest <= LONGEST_S

    def __str__(self) -> str:
        without, during = (median(one.calls for one in rates) for rates in (self.without, self.during))
        usual = max(one.longest for one in self.without)
        return (
            f"{self.name:22} {without:5.0f} -> {during:5.0f} calls/s, {self.share:4.0%} left; "
            f"longest {self.longest:.3f} s (without {usual:.3f} s); RSS {self.most.rss:.0f} MiB"
            + ("" if self.good else "  <- too much")
        )


async def measure(client: HttpClient, tool: str, pid: int, seen: list[Vitals]) -> Rate:
    """Call one after the other for a while."""
    begun = time.monotonic()
    calls, longest = 0, 0.0
    seen.append(vitals(pid))
    while (now := time.monotonic()) < begun + SECONDS:
        await client.request("tools/call", {"name": tool, "arguments": {"text": "x"}})
        calls, longest = calls + 1, max(longest, time.monotonic() - now)
    seen.append(vitals(pid))
    return Rate(calls / SECONDS, longest)


@asynccontextmanager
async def client_of(url: str, *skills: str) -> AsyncGenerator[HttpClient]:
    """A client with these skills active."""
    client = HttpClient(url)
    await client.greet()
    for skill in skills:
        await client.request("tools/call", {"name": "SKILL", "arguments": {"action": "activate", "skill_name": skill}})
    try:
        yield client
    finally:
        client.cut()


async def endure(name: str, url: str, flag: Path, pid: int) -> Flood:
    """One flood, and what it leaves to the client of another server."""
    seen: list[Vitals] = []
    without: list[Rate] = []
    during: list[Rate] = []
    async with client_of(url, "loud"), client_of(url, "quiet") as client:
        tools = [tool["name"] for tool in (await client.request("tools/list", {}))["tools"]]
        tool = next(tool for tool in tools if tool.startswith("quiet__echo"))
        await measure(client, tool, pid, [])
        for _ in range(TURNS):
            without.append(await measure(client, tool, pid, seen))
            await asyncio.to_thread(flag.touch)
            await asyncio.sleep(SETTLING)
            during.append(await measure(client, tool, pid, seen))
            await asyncio.to_thread(flag.unlink)
            await asyncio.sleep(SETTLING)
    return Flood(name, without, during, max(seen, key=lambda one: one.rss))


def run(kind: str, transport: str) -> Flood:
    """One flood at a proxy of its own."""
    port, its_port = free_port(), free_port()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        flag, config = folder / "flood", folder / "skills.yaml"
        arguments = [FLOODING, kind, str(flag)]
        loud: dict[str, Any] = {"command": sys.executable, "args": arguments}
        server: subprocess.Popen[bytes] | None = None
        if transport == "http":
            server = subprocess.Popen([sys.executable, *arguments, str(its_port)])
            await_port(its_port, server)
            loud = {"type": "http", "url": f"http://127.0.0.1:{its_port}/mcp"}
        quiet = {"command": sys.executable, "args": [RAW, "quiet"]}
        skills = {key: {"desc": key, "tool_list": {key: []}} for key in ("loud", "quiet")}
        config.write_text(json.dumps({"servers": {"loud": loud, "quiet": quiet}, "skill_configs": skills}))
        command = [sys.executable, "-m", "proxy", "serve", "--config", str(config)]
        command += ["--transport", "http", "--port", str(port)]
        try:
            with running(command, subprocess.DEVNULL, piped=False) as proxy:
                await_port(port, proxy)
                return asyncio.run(endure(f"{kind} ({transport})", f"http://127.0.0.1:{port}/mcp", flag, proxy.pid))
        finally:
            if server is not None:
                server.kill()
                server.wait()


def all_floods(kinds: list[str]) -> bool:
    """Run the floods, over stdio and HTTP, and print how each went; whether all left enough."""
    good = True
    for transport in ("stdio", "http"):
        for kind in kinds or FLOODS:
            flood = run(kind, transport)
            print(flood, flush=True)
            good = good and flood.good
    return good
