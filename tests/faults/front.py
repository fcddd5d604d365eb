"""A proxy over HTTP in front of an unruly server `a` and a healthy one `b`, with clients of two scopes."""

import os
import subprocess
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import anyio
import structlog
from mcp import MCPError

from proxy.app import Running, running
from proxy.config.load import load
from proxy.face.http import listen, serve_http
from tests.answers import not_ready
from tests.conftest import PATIENCE, Json, Peer, connected, text_of
from tests.servers.faulty import Faults
from tests.servers.unruly import ROOT, Mood, argv
from tests.upstream.bench import Bench

SHORT = 1.0
"""Seconds of `timeout` where that is what ends a call."""
LONG = 3 * PATIENCE
"""Seconds of `timeout` where the fault has to be noticed by itself: a call that waits for it has failed the test."""

MOST = "max_concurrency"
"""The setting of a server for how many calls may be in work at it."""

Step: TypeAlias = tuple[Any, ...]


class FaultBench(Bench):
    """A bench whose servers can be unruly too."""

    def unruly(self, key: str, entry: Mapping[str, Any] | None = None, **faults: Any) -> None:
        """Put an unruly stdio server into the configuration."""
        command, *args = argv(Faults(log=str(self.log(key)), **faults))
        self.servers[key] = {"command": command, "args": args, "cwd": str(ROOT), **(entry or {})}

    async def unruly_http(self, key: str, entry: Mapping[str, Any] | None = None, **faults: Any) -> None:
        """Run an unruly HTTP server and put it into the configuration."""
        await self.http(key, entry, **faults)

    def run(self, key: str) -> None:
        """Run an unruly HTTP server; it listens a moment later."""
        command = argv(Faults(log=str(self.log(key)), port=self.ports[key], **self.faults[key]))
        self.processes[key] = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL)

    def mood(self, key: str, **mood: Any) -> None:
        """Have an unruly server be so from now on; by default it is in a good mood."""
        Mood(**mood).write(self.log(key))


@dataclass(frozen=True)
class Front:
    """A running proxy and clients of two scopes, which have all tools of `a` and `b`; `logged`: what the proxy says."""

    bench: FaultBench
    proxy: Running
    one: Peer
    two: Peer
    logged: list[Any]

    async def act(self, *steps: Step, tool: str = "act", by: Peer | None = None, **more: object) -> Json:
        """The answer to a call at `a` that does these steps; a JSON-RPC error as `{"error": ...}`."""
        try:
            return await (by or self.one).call(f"a__{tool}", {"steps": steps, **more})
        except MCPError as error:
            return {"error": error.error.message}

    @asynccontextmanager
    async def waiting(self, count: int) -> AsyncGenerator[list[Json]]:
        """So many calls of both scopes that are in work at `a` and do not end by themselves; then their answers."""
        answers: list[Json] = []

        async def wait(number: int) -> None:
            by = self.one if number % 2 else self.two
            answers.append(await self.act(("wait", str(self.bench.file("go"))), by=by, number=number))

        async with anyio.create_task_group() as tasks:
            for number in range(count):
                tasks.start_soon(wait, number)
            await self.bench.event("a", "ran", count=count)
            yield answers

    async def beside(self, *steps: Step, tool: str = "act") -> Json:
        """As `act`; as long as the call is in work, both scopes call the healthy server, and get their answers."""
        answers: list[Json] = []

        async def act() -> None:
            answers.append(await self.act(*steps, tool=tool))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(act)
            while not answers:
                await self.others_work()
        return answers[0]

    async def others_work(self) -> None:
        """Both scopes call the healthy server."""
        for peer in (self.one, self.two):
            await works(peer, "b")

    async def goes_on(self) -> None:
        """Both scopes call the unruly server, which obeys now."""
        for peer in (self.one, self.two):
            await works(peer, "a")

    async def comes_back(self) -> None:
        """The unruly server, which could not be had for a while, can be called again, now or a moment later."""
        with anyio.fail_after(LONG):
            while (answer := await self.one.call("a__echo")).get("isError"):
                complaint(answer)
        await self.goes_on()

    def runs(self, tool: str = "act") -> int:
        """How often the unruly server has run a tool."""
        return len(self.bench.events("a", "ran", name=tool))

    def warnings(self) -> list[Any]:
        """What the proxy warned of, or worse."""
        return [one for one in self.logged if one["log_level"] in ("warning", "error", "critical")]


async def works(peer: Peer, server: str) -> None:
    """A plain call at a server has its plain answer."""
    answer = await peer.call(f"{server}__echo", {"word": "again"})
    assert text_of(answer) == '{"word": "again"}', answer


def complaint(answer: Json) -> str:
    """The text of an answer that says what went wrong with `a`, in one line."""
    text = answer["error"] if "error" in answer else text_of(answer)
    assert "error" in answer or answer["isError"] is True, answer
    assert "erver a " in text, text
    assert "\n" not in text, text
    assert "Traceback" not in text, text
    return text


@asynccontextmanager
async def front(bench: FaultBench, *, mode: str = "legacy", activate: bool = True) -> AsyncGenerator[Front]:
    """The proxy by the configuration, to which `b` and a skill for all are added, and its clients."""
    bench.stdio("b")
    bench.skill("all", {"a": [], "b": []})
    loaded = load(bench.write(), os.environ)
    bound, ready = listen("127.0.0.1", 0, loaded.settings), anyio.Event()
    url = f"http://127.0.0.1:{bound.getsockname()[1]}/mcp"
    with structlog.testing.capture_logs() as logged:
        async with running(loaded, None) as proxy, anyio.create_task_group() as tasks:
            tasks.start_soon(serve_http, proxy.http("127.0.0.1"), bound, ready.set, proxy.reads.give_up_all)
            await ready.wait()
            async with connected(f"{url}/one", mode) as one, connected(f"{url}/two", mode) as two:
                if activate:
                    for peer in (one, two):
                        answer = await peer.skill("activate", "all")
                        assert not not_ready(answer), answer
                yield Front(bench, proxy, one, two, logged)
                for peer in (one, two):
                    assert_answered_once(peer)
            tasks.cancel_scope.cancel()
    assert "Traceback" not in str(logged)


def assert_answered_once(peer: Peer) -> None:
    """No request of this client has had two answers."""
    ids = [message["id"] for message in peer.wire.messages if "id" in message and "method" not in message]
    assert len(ids) == len(set(ids))
