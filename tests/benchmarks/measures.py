"""What is measured: each measure runs one contestant once and gives named numbers."""

import asyncio
import gc
import subprocess
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import IO, Any, TypeAlias

from contestants import Contestant, Servers, http_server, stdio_servers
from http_client import HttpClient
from processes import await_port, free_port, mebibytes, running
from stdio_client import StdioClient

TEXT = "x" * 100
SESSIONS = 50
READY = 60.0
"""Seconds for all tools to be there."""
ENOUGH = 2.0
"""Seconds after which what is repeated is repeated no more."""

Numbers: TypeAlias = Iterator[tuple[str, float]]
"""What a measure gives, each number as soon as it is known: what fails later does not cost it."""


@dataclass(frozen=True)
class How:
    """How thoroughly, and where contestants' errors go."""

    long: bool
    errors: IO[bytes] | int


def calls(contestant: Contestant, how: How) -> Numbers:
    """Calls on stdio with 1, 3 and 10 servers behind: in series, 64 in flight, and results of 1 MiB."""
    for count in (1, 3, 10) if contestant.many else (1,):
        with _on_stdio(contestant, stdio_servers(count, 10), how) as (client, _):
            names = _all_tools(client, count * 10)
            echo, big, sleep = (_call(names, kind) for kind in ("echo", "big", "sleep"))
            yield f"call ms {count}", _series(client, echo, 1000 if how.long else 200)
            yield f"calls/s {count}", _rate(client, echo, 5000 if how.long else 2000)
            yield f"MiB ms {count}", _series(client, big, 15 if how.long else 7)
            if how.long and count == 1:
                sleep["arguments"]["seconds"] = 0.5
                yield "sleeping s", 50 / client.pipeline(sleep, 50, 50, "slept", READY)


def lists(contestant: Contestant, how: How) -> Numbers:
    """The list of 1,000 and of 5,000 tools, once it was asked for."""
    for count in (1000, 5000):
        with _on_stdio(contestant, stdio_servers(1, count), how) as (client, _):
            _all_tools(client, count)
            # Of a list in one page our own parsing is not measured.
            once = client.tools if _paginates(client) else lambda: client.raw("tools/list", {})
            yield f"list ms {count}", _repeated(once, 15)


def http(contestant: Contestant, how: How) -> Numbers:
    """Calls over HTTP in 50 sessions at once; and calls on stdio with an HTTP server behind."""
    port = free_port()
    with _on_http(contestant, port, how):
        yield "HTTP calls/s", asyncio.run(_busy_sessions(port, 5.0 if how.long else 1.5))
    if contestant.name == "direct":
        return
    port = free_port()
    with running(http_server(port), how.errors, piped=False) as process:
        await_port(port, process)
        server = {"u0": {"url": f"http://127.0.0.1:{port}/mcp"}}
        with _on_stdio(contestant, server, how) as (client, _):
            echo = _call(_all_tools(client, 10), "echo")
            yield "to HTTP ms", _series(client, echo, 300 if how.long else 100)
            yield "to HTTP calls/s", _rate(client, echo, 1000 if how.long else 300)


def first(contestant: Contestant, how: How) -> Numbers:
    """From starting the process to the answer of `initialize`, and to the first list without an active skill."""
    for what, command in contestant.openings.items():
        begun = time.perf_counter()
        with _on_stdio(replace(contestant, command=command), stdio_servers(1, 10), how) as (client, _):
            yield f"answer s {what}", time.perf_counter() - begun
            client.raw("tools/list", {})
            yield f"first list s {what}", time.perf_counter() - begun


def start(contestant: Contestant, how: How) -> Numbers:
    """From starting the process to the first list, and to all tools of ten servers that take a second to start.

    And, where there are skills, the activation of one over ten such servers, in a process that has started.
    """
    begun = time.perf_counter()
    with _on_stdio(contestant, stdio_servers(1, 10), how) as (client, _):
        client.raw("tools/list", {})
        yield "first list s", time.perf_counter() - begun
    begun = time.perf_counter()
    count = 10 if contestant.many else 1
    with _on_stdio(contestant, stdio_servers(count, 10, 1), how) as (client, _):
        _all_tools(client, count * 10)
        yield "all tools s", time.perf_counter() - begun
    if contestant.dormant is not None:
        servers = stdio_servers(10, 10, 1)
        with _on_stdio(replace(contestant, command=contestant.dormant), servers, how) as (client, _):
            client.request("tools/call", {"name": "SKILL", "arguments": {"action": "list"}})  # now all is imported
            yield "activation s", _activation(client, servers)


def memory(contestant: Contestant, how: How) -> Numbers:
    """Memory at rest, of sessions over HTTP that are open, and of sessions that have ended."""
    with _on_stdio(contestant, stdio_servers(1, 10), how) as (client, process):
        _all_tools(client, 10)
        time.sleep(0.5)
        if (rss := mebibytes(process.pid, "Rss")) is None:  # no /proc here
            return
        yield "RSS MiB", rss
        yield "PSS MiB", mebibytes(process.pid, "Pss") or rss
    port = free_port()
    with _on_http(contestant, port, how) as process:
        session, left = asyncio.run(_weigh_sessions(port, process.pid, 3 if how.long else 1))
        yield "session KiB", session
        yield "left MiB", left


MEASURES: dict[str, Callable[[Contestant, How], Numbers]] = {
    "calls": calls,
    "list": lists,
    "http": http,
    "first": first,
    "start": start,
    "memory": memory,
}


@contextmanager
def _on_stdio(
    contestant: Contestant, servers: Servers, how: How
) -> Generator[tuple[StdioClient, subprocess.Popen[bytes]]]:
    with tempfile.TemporaryDirectory() as folder:
        command = contestant.command(servers, Path(folder) / "config.json", None)
        with running(command, how.errors, piped=True) as process:
            client = StdioClient(process)
            client.greet()
            yield client, process


@contextmanager
def _on_http(contestant: Contestant, port: int, how: How) -> Generator[subprocess.Popen[bytes]]:
    with tempfile.TemporaryDirectory() as folder:
        command = contestant.command(stdio_servers(1, 10), Path(folder) / "config.json", port)
        with running(command, how.errors, piped=False) as process:
            await_port(port, process)
            yield process


def _all_tools(client: StdioClient, count: int) -> list[str]:
    end = time.monotonic() + READY
    while len(names := client.tools()) < count:  # its own tools may come on top
        if time.monotonic() > end:
            raise TimeoutError(f"{len(names)} of {count} tools")
        client.notified(0.02)
    return names


def _activation(client: StdioClient, servers: Servers) -> float:
    """Seconds until `SKILL` says that the skill is active, with the tools of all servers."""
    begun = time.perf_counter()
    activate = {"name": "SKILL", "arguments": {"action": "activate", "skill_name": "all"}}
    told = client.request("tools/call", activate)["content"][0]["text"]
    taken = time.perf_counter() - begun
    if "Not ready:" in told or any(f" {server}__" not in told for server in servers):
        raise ValueError(f"not ready: {told[:300]}")
    return taken


def _call(names: list[str], kind: str) -> dict[str, Any]:
    name = next(name for name in names if name.endswith(f"{kind}_u0"))
    return {"name": name, "arguments": {"text": TEXT} if kind == "echo" else {}}


def _series(client: StdioClient, call: dict[str, Any], count: int) -> float:
    """Milliseconds of one call, the median of `count`."""
    client.request("tools/call", call)
    return _repeated(lambda: client.raw("tools/call", call), count)


def _repeated(once: Callable[[], object], count: int) -> float:
    taken: list[float] = []
    while len(taken) < count and sum(taken) < ENOUGH:
        begun = time.perf_counter()
        once()
        taken.append(time.perf_counter() - begun)
    return median(taken) * 1000


def _rate(client: StdioClient, call: dict[str, Any], count: int) -> float:
    client.pipeline(call, 64, 64, TEXT, ENOUGH)
    return client.pipeline(call, count, 64, TEXT, ENOUGH)


def _paginates(client: StdioClient) -> bool:
    return "nextCursor" in client.request("tools/list", {})


async def _open(port: int, count: int) -> list[HttpClient]:
    clients = [HttpClient(f"http://127.0.0.1:{port}/mcp") for _ in range(count)]
    await asyncio.gather(*(client.greet() for client in clients))
    return clients


async def _echo_over_http(port: int) -> dict[str, Any]:
    """The call of `echo`, as soon as it is there."""
    (client,) = await _open(port, 1)
    async with asyncio.timeout(READY):
        while True:
            tools = (await client.request("tools/list", {}))["tools"]
            if len(tools) >= 10:
                break
            await asyncio.sleep(0.05)
    await client.close()
    return _call([tool["name"] for tool in tools], "echo")


async def _busy_sessions(port: int, seconds: float) -> float:
    """Calls a second with one call at a time in each of the sessions."""
    echo = await _echo_over_http(port)
    clients = await _open(port, SESSIONS)
    await asyncio.gather(*(client.request("tools/call", echo) for client in clients))
    gc.collect()
    begun = time.perf_counter()
    done = 0

    async def keep_busy(client: HttpClient) -> None:
        nonlocal done
        while time.perf_counter() - begun < seconds:
            await client.request("tools/call", echo)
            done += 1

    await asyncio.gather(*(keep_busy(client) for client in clients))
    rate = done / (time.perf_counter() - begun)
    await asyncio.gather(*(client.close() for client in clients))
    return rate


async def _weigh_sessions(port: int, pid: int, thousands: int) -> tuple[float, float]:
    """KiB of an open session, from the step from 50 to 250 of them; MiB that thousands of ended ones leave behind."""
    echo = await _echo_over_http(port)

    def weight() -> float:
        return mebibytes(pid, "Rss") or 0.0

    async def come_and_go(count: int) -> float:
        for _ in range(count // 20):
            clients = await _open(port, 20)
            await asyncio.gather(*(client.request("tools/call", echo) for client in clients))
            await asyncio.gather(*(client.close() for client in clients))
        await asyncio.sleep(1)
        return weight()

    before = await come_and_go(200)
    after = await come_and_go(1000 * thousands)
    open_clients: list[HttpClient] = []
    weights: list[float] = []
    for count in (50, 200):
        for _ in range(count // 50):
            clients = await _open(port, 50)
            await asyncio.gather(*(client.request("tools/call", echo) for client in clients))
            open_clients += clients
        await asyncio.sleep(0.5)
        weights.append(weight())
    await asyncio.gather(*(client.close(politely=False) for client in open_clients))
    few, many = weights
    return (many - few) * 1024 / 200, (after - before) / thousands
