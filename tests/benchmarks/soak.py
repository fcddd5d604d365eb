"""What thousands of clients leave behind that come over HTTP, activate a skill, and vanish without a word.

    python tests/benchmarks/soak.py [--sessions 5000] [--idle 5] [--mode sessions|namespaces]

One server is shared; every 50th client activates one that it has to itself, a process each. Some open an event stream,
which breaks off with them. Nobody ends a session. With `namespaces` each has its own path, in both eras in turn. The
same crowd comes twice: a warm allocator keeps what the first has needed, a leak grows with the second. It needs /proc.
The exit code is 1 when processes are left, or when it grew.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import aclosing
from dataclasses import dataclass, field, fields
from pathlib import Path

from contestants import stdio_servers
from http_client import HttpClient
from processes import PROC, Vitals, await_port, free_port, running, vitals

AT_ONCE = 50
EVERY_OWN = 50
"""Every so many-th client activates the server that is not shared."""
EVERY_STREAM = 5
"""Every so many-th opens an event stream, where its era has sessions."""
WARM_UP = 200
GROWTH = 3.0
"""MiB that the second crowd may add. The allocator takes memory by 1 MiB and gives back only what is wholly empty, so
that one or two of these are chance; 5,000 clients that leave but 1 KiB each are 5."""
SWEEPING = 5.0
"""Seconds beyond the idle time in which all that has idled is swept away."""
PATIENCE = 60.0
LOOK = 0.5


@dataclass
class Soak:
    """A proxy, and what was seen of it. `namespaces`: whether clients have a path each.

    `idle`: seconds that it keeps what nobody uses.
    """

    port: int
    pid: int
    namespaces: bool
    idle: float
    seen: list[Vitals] = field(default_factory=list[Vitals])

    async def crowd(self, name: str, count: int) -> Vitals:
        """Have so many clients come and vanish; the most that the proxy held meanwhile."""
        self.seen.clear()
        numbers = iter(range(count))
        async with asyncio.TaskGroup() as tasks:
            looking = tasks.create_task(self._look())
            async with asyncio.TaskGroup() as visitors:
                for _ in range(AT_ONCE):
                    visitors.create_task(self._visit_each(name, numbers))
            looking.cancel()
        return Vitals(*(max(getattr(at, each.name) for at in self.seen) for each in fields(Vitals)))

    async def forgotten(self) -> Vitals:
        """Wait until the idle life of all is over; what the proxy holds then."""
        await asyncio.sleep(self.idle + SWEEPING)
        return vitals(self.pid)

    async def gone(self, before: Vitals) -> bool:
        """Wait until no more processes and open files are there than before; False when that does not come."""
        end = time.monotonic() + PATIENCE
        while (now := vitals(self.pid)).children > before.children or now.files > before.files:
            if time.monotonic() > end:
                return False
            await asyncio.sleep(LOOK)
        return True

    async def _look(self) -> None:
        while True:
            self.seen.append(vitals(self.pid))
            await asyncio.sleep(LOOK)

    async def _visit_each(self, name: str, numbers: Iterator[int]) -> None:
        for number in numbers:
            await self._visit(f"{name}-{number}", number)

    async def _visit(self, name: str, number: int) -> None:
        """One client, from its handshake to its disappearance."""
        modern = self.namespaces and number % 2 == 1
        http = HttpClient(f"http://127.0.0.1:{self.port}/mcp" + self.namespaces * f"/{name}", modern=modern)
        if not modern:
            await http.greet()
        skill = "shared" if number % EVERY_OWN else "own"
        activate = {"action": "activate", "skill_name": skill}
        told = (await http.request("tools/call", {"name": "SKILL", "arguments": activate}))["content"][0]["text"]
        if not told.startswith(f"skill {skill} activated, current skills: ['{skill}']") or "Not ready:" in told:
            raise ValueError(told)
        tools = [tool["name"] for tool in (await http.request("tools/list", {}))["tools"]]
        echo = next(tool for tool in tools if tool.startswith(f"{skill}__echo"))
        await http.request("tools/call", {"name": echo, "arguments": {"text": name}})
        if not modern and number % EVERY_STREAM == 0:
            async with http.another() as other, aclosing(other.stream()) as events:
                await anext(events)
        http.cut()


async def soak(port: int, pid: int, given: argparse.Namespace) -> bool:
    """Whether nothing is left of two crowds."""
    work = Soak(port, pid, given.mode == "namespaces", given.idle)
    await work.crowd("warm", WARM_UP)
    before = await work.forgotten()
    print(f"before: {before}", flush=True)
    afters: list[Vitals] = []
    good = True
    for turn in ("first", "second"):
        begun = time.monotonic()
        peak = await work.crowd(turn, given.sessions)
        each = (peak.rss - before.rss) * 1024 / given.sessions
        print(f"{turn} crowd of {given.sessions:,}, {time.monotonic() - begun:.0f} s")
        print(f"  peak:  {peak} ({each:.1f} KiB of RSS a client, though many are forgotten by then)", flush=True)
        await work.forgotten()
        good = await work.gone(before) and good
        afters.append(vitals(pid))
        print(f"  after: {afters[-1]}", flush=True)
    growth = afters[1].rss - afters[0].rss
    each = growth * 1024 / given.sessions
    print(f"growth by the second: {growth:.2f} MiB, {each:.2f} KiB a client (at most {GROWTH:g} MiB in all)")
    if not good:
        print(f"more processes or open files than before are left, for {PATIENCE:g} s after all should be over")
    return good and growth <= GROWTH


def arguments() -> argparse.Namespace:
    """The command line."""
    grammar = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    grammar.add_argument("--sessions", type=int, default=5000, help="clients in each of the two crowds (default: 5000)")
    grammar.add_argument("--idle", type=float, default=5, help="seconds that one lives unused (default: 5)")
    grammar.add_argument("--mode", choices=("sessions", "namespaces"), default="sessions")
    grammar.add_argument("--errors", type=Path, metavar="FILE", help="keep what the proxy says on stderr")
    return grammar.parse_args()


def main() -> None:
    """Run, and print what was seen."""
    given = arguments()
    if not PROC.exists():
        sys.exit("there is no /proc here")
    servers = dict(zip(("shared", "own"), stdio_servers(2, 10).values(), strict=True))
    servers["own"]["isolation"] = "scope"
    skills = {key: {"desc": f"Tools of {key}.", "tool_list": {key: []}} for key in servers}
    settings = {"scope_idle": given.idle, "max_scopes": 10_000 + given.sessions}
    settings["limits"] = {"calls_per_minute": "unlimited", "calls_in_flight": "unlimited"}
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "skills.yaml"
        config.write_text(json.dumps({"servers": servers, "skill_configs": skills, "proxy": settings}))
        command = [sys.executable, "-m", "proxy", "serve", "--config", str(config)]
        command += ["--transport", "http", "--port", str(port)]
        errors = given.errors.open("wb") if given.errors else subprocess.DEVNULL
        with running(command, errors, piped=False) as proxy:
            await_port(port, proxy)
            good = asyncio.run(soak(port, proxy.pid, given))
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
