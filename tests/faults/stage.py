"""A proxy over HTTP with skills that act in front of an unruly server `a` and a healthy one `b`."""

import json
import subprocess
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import anyio
from anyio.abc import TaskGroup

from tests.answers import current_skills
from tests.conftest import ROOT, HttpProxy, Json, Peer, http_proxy, program, text_of, write_config
from tests.faults.front import FaultBench
from tests.upstream.bench import alive, until

BOUND = 15.0
"""Seconds for the end of the program and all processes: 5 by rule 29, the rest for a machine that is busy."""
ENOUGH = 3.0
"""Seconds of a hook where they are to be over, and enough to reach the server."""
LONG = 600.0
"""Seconds of a hook, and of a server, where something else has to end the call."""
ANSWER = ("answer", "done")
Call: TypeAlias = Callable[[], Awaitable[Json]]


def act(*commands: Any, tool: str = "a/act", mark: str = "", **more: Any) -> Json:
    """A step that has an unruly server obey commands. `mark`: its name, also in the server's log."""
    arguments = {"steps": [[*one] for one in commands or [ANSWER]], "mark": mark}
    return {"name": mark or tool, "tool": tool, "arguments": arguments, **more}


class Stage(FaultBench):
    """A folder with an unruly server `a` and a healthy one `b`; calls that hang do so until there is the file `go`."""

    def acts(self, key: str, **entry: Any) -> None:
        """Put a skill into the configuration whose steps may call all tools."""
        tools = {server: [] for server in self.servers}
        self.skills[key] = {"desc": key, "internal_tools": tools, "hook_timeout": LONG, **entry}

    def save(self, **more: Any) -> Path:
        """The configuration, as a file; `more`: what it has at the top. Runs are kept in a file."""
        settings = {"state": {"backend": "sqlite", "path": "state.db"}, "hook_timeout": LONG, **self.settings}
        part = write_config(self.folder / "part.yaml", self.servers, self.skills, proxy=settings, **more)
        return part.rename(self.folder / "skills.yaml")

    def hang(self, **more: Any) -> Json:
        """A step that hangs."""
        return act(("wait", str(self.file("go"))), ANSWER, **more)

    def marks(self, key: str = "a") -> list[str]:
        """Which calls of `act` have reached a server, in order."""
        return [one["arguments"]["mark"] for one in self.events(key, "ran", name="act")]

    async def reached(self, *marks: str) -> None:
        """Wait until these calls have reached `a`, and no others."""
        await until(lambda: self.marks() == [*marks])

    async def cancelled(self) -> None:
        """Wait until a call that hangs at `a` has been cancelled there."""
        await self.event("a", "cancelled", name="act")

    async def runs(self, *outcomes: tuple[str, str]) -> list[Json]:
        """The records in the file, once there are as many as (skill, status) here, those that began last first."""
        found: list[Json] = []

        def are_there() -> bool:
            arguments = ("runs", "list", "--json", "--config", self.folder / "skills.yaml")
            done = subprocess.run(program(*arguments), cwd=ROOT, capture_output=True, check=True)
            found[:] = [json.loads(line) for line in done.stdout.splitlines()]
            return len(found) >= len(outcomes) and all(run["status"] != "running" for run in found)

        await until(are_there)
        assert [(run["skill"], run["status"]) for run in found] == [*outcomes]
        return found


@asynccontextmanager
async def proxy_of(stage: Stage, **more: Any) -> AsyncGenerator[HttpProxy]:
    """A proxy over HTTP by the configuration, whose servers are ready; it ends in good order."""
    with http_proxy(stage.save(**more)) as proxy:
        await until(lambda: "a" in [one["server"] for one in proxy.logged("server.ready")])
        yield proxy
    assert "Traceback" not in proxy.log.read_text(encoding="utf-8")
    assert not any(map(alive, [pid for key in ("a", "b") for pid in stage.pids(key)]))


def failure(answer: Json, *words: str) -> Json:
    """The answer, which is an error that says all of this."""
    assert answer.get("isError") is True, answer
    assert "Traceback" not in json.dumps(answer)
    assert all(word in text_of(answer) for word in words), (words, text_of(answer))
    return answer


def current(answer: Json) -> list[str]:
    assert not answer.get("isError"), answer
    return current_skills(answer)


async def invoke(peer: Peer, skill: str) -> Json:
    return await peer.call("SKILL_INVOKE", {"skill_name": skill})


async def works(peer: Peer) -> None:
    """A client can do all that there is to do."""
    assert "healthy" in current(await peer.skill("activate", "healthy"))
    assert text_of(await peer.call("b__echo", {"w": 1})) == '{"w": 1}'
    assert (await invoke(peer, "healthy"))["structuredContent"]["success"] is True
    assert "healthy" not in current(await peer.skill("offload", "healthy"))


def aside(tasks: TaskGroup, call: Call, answers: list[Json]) -> None:
    """Make a call beside what goes on."""

    async def run() -> None:
        answers.append(await call())

    tasks.start_soon(run)


async def reloaded(stage: Stage, peer: Peer, **more: Any) -> None:
    """Save the configuration, and wait until it is in force; that of its servers waits."""
    stage.acts("news")
    stage.save(**more)
    with anyio.fail_after(LONG):
        while "news" not in json.dumps(await peer.definitions()):  # noqa: ASYNC110 - what it tells may come on no stream here
            await anyio.sleep(0.01)
