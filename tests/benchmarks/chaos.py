"""The proxy over HTTP with many clients that never stop calling, while its servers are killed all the time.

    python tests/benchmarks/chaos.py [--minutes 10] [--servers 10] [--scopes 50] [--seed N]
    python tests/benchmarks/chaos.py --floods [KIND ...]

Every server gets SIGKILL at random moments; those over HTTP are started again after a while. Half of the scopes are
sessions, the others namespaces in both eras; their clients call, cancel, break off, activate and offload. It needs
/proc. The report says what became of every call; the exit code is 1 when anything is not 0 that must be.

With `--floods` nothing is killed: one server floods the proxy, and the rate of a client's calls to another is measured
with and without that, over stdio and HTTP. The exit code is 1 when less than half of it is left, or a call took 0.5 s.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flooding_server import FLOODS
from floods import all_floods
from http_client import HttpClient
from ledger import MUST_BE_NONE, Ledger
from processes import HERE, PROC, ROOT, await_port, descendants, free_port, running_with, vitals

SERVER = str(HERE / "fragile_server.py")
TIMEOUT = 10.0
"""The servers' `timeout` and `start_timeout`."""
LIMIT = 3 * TIMEOUT
"""Seconds after which a call without an answer is lost: a start, a try, and slack for a busy machine."""
LIFE, PAUSE = 6.0, 2.0
"""Mean seconds that a server lives, and that one over HTTP stays away."""
CALLERS = 3
SETTLING = 5
"""Seconds in which the proxy may let go of what clients have left."""
ENDING = 20.0
"""Seconds for the proxy to end."""


@dataclass
class World:
    """What a run is made of. `http`: the ports of the servers over HTTP.

    `begun`: set once all clients are there, and servers may die. `over`: set when they shall call no more.
    """

    folder: Path
    servers: list[str]
    http: dict[str, int]
    port: int
    seed: int
    ledger: Ledger = field(default_factory=Ledger)
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    over: asyncio.Event = field(default_factory=asyncio.Event)
    kills: int = 0

    def record(self, server: str) -> Path:
        """Where a server writes down what it runs."""
        return self.folder / f"{server}.record"

    def rng(self, what: str) -> random.Random:
        """The dice of one part of the run: the same for the same seed."""
        return random.Random(f"{self.seed} {what}")  # noqa: S311 - these are dice

    async def pause(self, seconds: float) -> None:
        """Wait for so long, or until it is over."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.over.wait()


class Client:
    """A scope and its clients: `home` are the servers whose skills it keeps, `other` is activated now and then."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.name = f"c{number}"
        self.rng = world.rng(self.name)
        self.modern = number % 4 == 1
        url = f"http://127.0.0.1:{world.port}/mcp" + (f"/{self.name}" if number % 2 else "")
        self.http = HttpClient(url, modern=self.modern)
        *self.home, self.other = self.rng.sample(world.servers, min(4, len(world.servers)))
        self._calls = 0

    async def begin(self) -> None:
        """Open the session, and activate."""
        if not self.modern:
            await self.http.greet()
        for server in self.home:
            await self.skill("activate", server)

    async def skill(self, action: str, server: str) -> str:
        """What `SKILL` says."""
        arguments = {"action": action, "skill_name": server}
        async with asyncio.timeout(LIMIT), self.http.another() as http:
            told = await http.request("tools/call", {"name": "SKILL", "arguments": arguments})
        return told["content"][0]["text"]

    async def call(self, http: HttpClient, *, often_cancelled: bool) -> None:
        """One call to a server of an active skill, some of which are cancelled or broken off."""
        server, tool = self.rng.choice(self.home), self.rng.choice(("do", "look"))
        marker, call = self._new(server, tool)
        if often_cancelled and self.rng.random() < 0.2:
            await self._cancelled(http, marker, server, call)
        else:
            await self._answered(http, marker, server, call)

    async def turn(self) -> None:
        """Activate the other skill, use it, offload it, and find that its tool is gone."""
        await self.skill("activate", self.other)
        for active in (True, False):
            marker, call = self._new(self.other, "do")
            async with self.http.another() as http:
                await self._answered(http, marker, self.other, call, refused=not active)
            if active:
                await self.skill("offload", self.other)

    async def end(self) -> None:
        """Find the skills as they were left, and end the session."""
        told = (await self.skill("list", "")).splitlines()[0]
        current = [server for server in self.world.servers if f"'{server}'" in told]
        if sorted(current) != sorted(self.home):
            self.world.ledger.offend("scopes whose active skills are not theirs", f"{self.name}: {current}")
        async with self.http.another() as last:
            await last.close()

    def _new(self, server: str, tool: str) -> tuple[str, dict[str, Any]]:
        self._calls += 1
        marker = f"{self.name}.{self._calls}"
        self.world.ledger.made.add(marker)
        arguments = {"marker": marker, "seconds": round(self.rng.uniform(0, 0.6), 3)}
        return marker, {"name": f"{server}__{tool}", "arguments": arguments}

    async def _answered(
        self, http: HttpClient, marker: str, server: str, call: dict[str, Any], *, refused: bool = False
    ) -> None:
        begun = time.monotonic()
        answers = await self._ask(http, http.number(), marker, call)
        if answers is not None:
            self.world.ledger.judge(marker, server, answers, time.monotonic() - begun, refused=refused)

    async def _cancelled(self, http: HttpClient, marker: str, server: str, call: dict[str, Any]) -> None:
        """A call that its client gives up: by a notification, or by breaking off the connection."""
        ledger, number = self.world.ledger, http.number()
        begun = time.monotonic()
        async with asyncio.TaskGroup() as tasks:
            under_way = tasks.create_task(self._ask(http, number, marker, call))
            await asyncio.wait([under_way], timeout=self.rng.uniform(0, 0.4))
            told = not (under_way.done() or self.modern or self.rng.random() < 0.3)
            if told:
                async with self.http.another() as other:
                    await other.notify("notifications/cancelled", {"requestId": number})
            elif not under_way.done():
                under_way.cancel()
        if under_way.cancelled():
            http.cut()
            ledger.outcomes["broken off by the client"] += 1
        elif (answers := under_way.result()) and not told:
            ledger.judge(marker, server, answers, time.monotonic() - begun)
        elif answers is not None:
            ledger.judge_cancelled(marker, answers)

    async def _ask(
        self, http: HttpClient, number: int, marker: str, call: dict[str, Any]
    ) -> list[dict[str, Any]] | None:
        """All answers to one call; None when it is lost."""
        try:
            async with asyncio.timeout(LIMIT):
                return await http.answers(number, "tools/call", call)
        except (TimeoutError, OSError, EOFError) as error:
            self.world.ledger.offend("lost", f"{marker}: {type(error).__name__}: {error}")
        http.cut()
        await self.world.pause(1)
        return None


async def live(client: Client) -> None:
    """All clients of one scope until it is over."""
    try:
        async with asyncio.TaskGroup() as tasks:
            listening = None if client.modern else tasks.create_task(listen(client))
            async with asyncio.TaskGroup() as callers:
                for place in range(CALLERS):
                    callers.create_task(keep_calling(client, often_cancelled=place == 0))
                callers.create_task(keep_turning(client))
            await client.end()
            if listening is not None:
                listening.cancel()
    except* (OSError, EOFError, ValueError, LookupError) as errors:
        client.world.ledger.offend("clients that failed", f"{client.name}: {errors.exceptions!r}")


async def keep_calling(client: Client, *, often_cancelled: bool) -> None:
    """One call after the other, on one connection."""
    async with client.http.another() as http:
        while not client.world.over.is_set():
            await client.call(http, often_cancelled=often_cancelled)


async def keep_turning(client: Client) -> None:
    """A skill comes and goes."""
    while not client.world.over.is_set():
        await client.turn()
        await client.world.pause(client.rng.uniform(0, 4))


async def listen(client: Client) -> None:
    """Hear the session's own stream, where no answer has any business."""
    with suppress(OSError, EOFError):
        async with client.http.another() as http:
            async for messages in http.stream():
                for message in messages:
                    if "method" not in message:
                        client.world.ledger.offend("answered twice", f"{client.name}, on its own stream: {message}")


async def kill_child(world: World, server: str, proxy: int) -> None:
    """Kill a server that the proxy has started, again and again."""
    rng = world.rng(f"kill {server}")
    mark = str(world.record(server))
    while not world.over.is_set():
        await world.pause(rng.expovariate(1 / LIFE))
        for pid in set(running_with(mark)) & set(descendants(proxy)):
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
                world.kills += 1


async def keep_http(world: World, server: str) -> None:
    """Run a server over HTTP, killed and started again and again; it lives when it is over, until this is cancelled."""
    rng = world.rng(f"kill {server}")
    command = [sys.executable, SERVER, server, str(world.record(server)), str(world.http[server])]
    while True:
        process = await asyncio.create_subprocess_exec(*command, start_new_session=True)
        try:
            await world.begun.wait()
            await world.pause(rng.expovariate(1 / LIFE))
            if world.over.is_set():
                await process.wait()
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        world.kills += 1
        await world.pause(rng.expovariate(1 / PAUSE))


async def all_listen(world: World) -> None:
    """Wait until every server over HTTP can be reached."""
    for port in world.http.values():
        for _ in range(int(TIMEOUT * 10)):
            with suppress(OSError):
                (await asyncio.open_connection("127.0.0.1", port))[1].close()
                break
            await asyncio.sleep(0.1)


async def tell(world: World, proxy: subprocess.Popen[bytes], seconds: float) -> None:
    """Say on stderr how it goes, and end it when the time is over or the proxy has died."""
    begun = time.monotonic()
    while (passed := time.monotonic() - begun) < seconds and proxy.poll() is None:
        await world.pause(min(10.0, seconds - passed))
        offences = sum(map(len, world.ledger.offences.values()))
        made = len(world.ledger.made)
        said = f"{time.monotonic() - begun:.0f} s: {made:,} calls, {world.kills} kills, {offences} offences"
        if proxy.poll() is None:
            said += f"; {vitals(proxy.pid)}"
        print(said, file=sys.stderr, flush=True)
    world.over.set()


async def drive(world: World, proxy: subprocess.Popen[bytes], scopes: int, minutes: float) -> None:
    """The whole run on a proxy that serves."""
    async with asyncio.TaskGroup() as keeping:
        keepers = [keeping.create_task(keep_http(world, server)) for server in world.http]
        await all_listen(world)
        clients = [Client(world, number) for number in range(scopes)]
        for client in clients:
            await client.begin()
        print(f"before: {vitals(proxy.pid)}", flush=True)
        world.begun.set()
        async with asyncio.TaskGroup() as tasks:
            for server in world.servers:
                if server not in world.http:
                    tasks.create_task(kill_child(world, server, proxy.pid))
            for client in clients:
                tasks.create_task(live(client))
            tasks.create_task(tell(world, proxy, minutes * 60))
        await asyncio.sleep(SETTLING)
        if proxy.poll() is None:
            print(f"after:  {vitals(proxy.pid)}")
        stop(world, proxy)
        for keeper in keepers:
            keeper.cancel()


def stop(world: World, proxy: subprocess.Popen[bytes]) -> None:
    """End the proxy by SIGTERM, and see what is left of it."""
    begun = time.monotonic()
    proxy.terminate()
    try:
        code = proxy.wait(ENDING)
    except subprocess.TimeoutExpired:
        code = None
    print(f"stopped within {time.monotonic() - begun:.2f} s, exit code {code}")
    if code != 0:
        world.ledger.offend("bad exit", str(code))
    for server in world.servers:
        if server not in world.http:
            for pid in running_with(str(world.record(server))):
                world.ledger.offend("processes left", f"{server}: {pid}")
                os.kill(pid, signal.SIGKILL)


def configuration(world: World) -> dict[str, Any]:
    """One skill for each server."""
    limits = {"timeout": TIMEOUT, "start_timeout": TIMEOUT}
    entries: dict[str, dict[str, Any]] = {}
    for server in world.servers:
        if server in world.http:
            entries[server] = {"type": "http", "url": f"http://127.0.0.1:{world.http[server]}/mcp", **limits}
        else:
            arguments = [SERVER, server, str(world.record(server))]
            entries[server] = {"command": sys.executable, "args": arguments, **limits}
    skills = {server: {"desc": f"Work with {server}.", "tool_list": {server: []}} for server in world.servers}
    unlimited = {"calls_per_minute": "unlimited", "calls_in_flight": "unlimited"}  # the clients here never rest
    return {"servers": entries, "skill_configs": skills, "proxy": {"limits": unlimited}}


def low_port(taken: set[int]) -> int:
    """A port that no outgoing connection is given meanwhile: below the range that systems give those from."""
    for port in random.sample(range(20_000, 32_000), 1000):
        if port not in taken:
            with suppress(OSError), socket.create_server(("127.0.0.1", port)):
                taken.add(port)
                return port
    raise OSError("no free port")


def arguments() -> argparse.Namespace:
    """The command line."""
    grammar = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    grammar.add_argument("--minutes", type=float, default=10)
    grammar.add_argument("--servers", type=int, default=10)
    grammar.add_argument("--scopes", type=int, default=50)
    transports = ("mixed", "stdio-upstreams")
    grammar.add_argument("--transport", choices=transports, default="mixed", help="of the servers (default: mixed)")
    grammar.add_argument("--seed", type=int, default=int(time.time()))
    grammar.add_argument("--errors", type=Path, metavar="FILE", help="keep what the proxy says on stderr")
    grammar.add_argument("--floods", nargs="*", choices=FLOODS, metavar="KIND", help=f"of {', '.join(FLOODS)}")
    return grammar.parse_args()


def main() -> None:
    """Run, and print the report."""
    given = arguments()
    if not PROC.exists():
        sys.exit("there is no /proc here")
    if given.floods is not None:
        sys.exit(0 if all_floods(given.floods) else 1)
    print(f"seed {given.seed}", flush=True)
    servers = [f"s{number}" for number in range(given.servers)]
    taken: set[int] = set()
    http = {server: low_port(taken) for server in servers[1::2]} if given.transport == "mixed" else {}
    with tempfile.TemporaryDirectory() as name:
        world = World(Path(name), servers, http, free_port(), given.seed)
        config, said = world.folder / "skills.yaml", given.errors or world.folder / "stderr"
        config.write_text(json.dumps(configuration(world)), encoding="utf-8")
        command = [sys.executable, "-m", "proxy", "serve", "--config", str(config)]
        command += ["--transport", "http", "--port", str(world.port)]
        with said.open("wb") as errors:
            proxy = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stderr=errors)
        try:
            await_port(world.port, proxy)
            asyncio.run(drive(world, proxy, given.scopes, given.minutes))
        finally:
            proxy.kill()
            proxy.wait()
        text = said.read_text(encoding="utf-8", errors="replace")
        for place in text.split("Traceback (most recent call last)")[1:]:
            world.ledger.offend("tracebacks", place[:1000])
        world.ledger.compare(world.record(server) for server in servers)
    print(f"servers killed: {world.kills}")
    print("\n".join(world.ledger.lines()))
    sys.exit(1 if any(world.ledger.offences.get(what) for what in MUST_BE_NONE) else 0)


if __name__ == "__main__":
    main()
