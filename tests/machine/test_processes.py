"""Real processes that are killed, held up and made to fail while two scopes use them: the laws of `test_lives`."""

import json
import os
import random
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import anyio
import pytest

from proxy.app import Running, running
from proxy.config.load import load
from proxy.upstream import life
from tests.machine.clients import Call, Client
from tests.upstream.bench import DEADLINE, Bench, alive, until

pytestmark = pytest.mark.anyio

STEPS = 60
SKILLS = {"one": ["shared"], "two": ["shared", "own"], "three": ["slow"]}
SERVERS = ("shared", "own", "slow")
TOOLS = ("echo", "wait", "die")
STEP = ("activate", "activate", "offload", "call", "call", "call", "kill", "turn", "wait", "wait")


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """`shared` by all scopes, one `own` for each, and `slow`, which answers nothing before it is allowed to."""
    bench = Bench(tmp_path, settings={"list_wait": 0.1, "keep_inventories": False})
    for key in SERVERS:
        release = str(bench.file("slow may start")) if key == "slow" else ""
        isolation = "scope" if key == "own" else "shared"
        bench.stdio(key, {"isolation": isolation}, dies=True, given=str(bench.file(f"{key} fails")), release=release)
    for skill, servers in SKILLS.items():
        bench.skill(skill, dict.fromkeys(servers, TOOLS))
    yield bench
    bench.close()


class Walk:
    """A walk of random steps, and what it has led to so far."""

    def __init__(self, bench: Bench, proxy: Running, clients: list[Client], seed: int) -> None:
        self.clients = clients
        self.granted: dict[str, Call] = {}
        self.refused: dict[str, Call] = {}
        self._bench = bench
        self._proxy = proxy
        self._random = random.Random(seed)  # noqa: S311 - no secret
        self._active: dict[str, set[str]] = {client.session: set() for client in clients}

    async def step(self) -> None:
        """Do something; what it leads to may still be under way at the next step."""
        client, skill = self._random.choice(self.clients), self._random.choice(list(SKILLS))
        match self._random.choice(STEP):
            case "wait":
                await self._proxy.pool.settled(SERVERS, client.scope, 0.5)
            case "activate":
                self._active[client.session].add(skill)
                await self._skill("activate", client, skill)
            case "offload":
                self._active[client.session].discard(skill)
                await self._skill("offload", client, skill)
            case "call":
                self._call(client, self._random.choice(SERVERS), self._random.choice(TOOLS))
            case "kill":
                self._kill()
            case _:
                self._turn(self._bench.file(f"{self._random.choice(SERVERS)} fails"))

    async def _skill(self, action: str, client: Client, skill: str) -> None:
        client.call("SKILL", {"action": action, "skill_name": skill})
        store = self._proxy.gate.store
        with anyio.fail_after(DEADLINE):
            while set((await store.get(client.scope)).active) != self._active[client.session]:  # pyright: ignore[reportOptionalMemberAccess]  # noqa: ASYNC110 - nothing tells of it
                await anyio.sleep(0.001)

    def _call(self, client: Client, server: str, tool: str) -> None:
        marker = f"{client.session}, call {len(client.calls)}"
        call = client.call(f"{server}__{tool}", {"marker_of": marker, "until": str(self._bench.file("go on"))})
        granted = any(server in SKILLS[skill] for skill in self._active[client.session])
        (self.granted if granted else self.refused)[marker] = call

    def _kill(self) -> None:
        pids = [pid for key in SERVERS for pid in self._bench.pids(key) if alive(pid)]
        if pids:
            with suppress(ProcessLookupError):
                os.kill(self._random.choice(pids), signal.SIGKILL)

    def _turn(self, fails: Path) -> None:
        """Make a server fail when it starts, or start again."""
        if fails.exists():
            fails.unlink()
        else:
            fails.touch()

    async def mend(self) -> None:
        """Nothing is in the way of anything any more, and both clients have everything active."""
        for key in SERVERS:
            self._bench.file(f"{key} fails").unlink(missing_ok=True)
        self._bench.file("slow may start").touch()
        self._bench.file("go on").touch()
        for client in self.clients:
            for skill in SKILLS:
                self._active[client.session].add(skill)
                await self._skill("activate", client, skill)

    def all_answered(self) -> bool:
        """Whether every call, of our own tools too, has its answer."""
        for client in self.clients:
            client.hear()
        return all(call.answers for client in self.clients for call in client.calls.values())

    def all_back(self) -> bool:
        """Whether every server is there, in as many processes as it has places; one that died unnoticed is missed."""
        living = sum(alive(pid) for key in SERVERS for pid in self._bench.pids(key))
        states = [self._proxy.pool.status(key, client.scope).state for client in self.clients for key in SERVERS]
        return living == len(SERVERS) - 1 + len(self.clients) and set(states) == {"ready"}

    def call_everything(self) -> list[Call]:
        """A call of each server by each client."""
        for client in self.clients:
            for server in SERVERS:
                self._call(client, server, "echo")
        return list(self.granted.values())[-len(SERVERS) * len(self.clients) :]

    def check(self) -> None:
        """Each has its own answer, and what was not granted has reached no server."""
        ran = [event["arguments"] for key in SERVERS for event in self._bench.events(key, "ran")]
        for marker, call in self.granted.items():
            told = call.answers[0]["result"]["content"][0]["text"]
            if call.answers[0]["result"].get("isError"):
                assert call.tool.partition("__")[0] in told
            else:
                assert json.loads(told)["marker_of"] == marker
            assert sum(arguments["marker_of"] == marker for arguments in ran) <= 1
        for marker, call in self.refused.items():
            assert call.answers[0]["result"]["isError"]
            assert marker not in [arguments["marker_of"] for arguments in ran]


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_every_call_is_answered_and_every_server_comes_back(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, seed: int
):
    """However the steps fall; and no process outlives the proxy."""
    monkeypatch.setattr(life, "FIRST_PAUSE", 0.02)
    monkeypatch.setattr(life, "LONGEST_PAUSE", 0.2)
    async with running(load(bench.write(), os.environ), None) as proxy, anyio.create_task_group() as tasks:
        clients = [Client("a", None), Client("b", None)]
        for client in clients:
            tasks.start_soon(client.run, proxy, proxy._session_ended)
            about = {"capabilities": {}, "clientInfo": {"name": "client", "version": "1"}}
            number = client.request("initialize", {"protocolVersion": "2025-11-25", **about})
            await until(lambda client=client, number=number: client.hear() or bool(client.others[number]))
            client.tell("notifications/initialized", {})
            await until(lambda client=client: proxy.clients.reaches(client.scope))
        walk = Walk(bench, proxy, clients, seed)
        for _ in range(STEPS):
            await walk.step()
        await walk.mend()
        await until(walk.all_answered)
        await until(walk.all_back)
        calls = walk.call_everything()
        await until(walk.all_answered)
        assert not [call for call in calls if call.answers[0]["result"].get("isError")]
        walk.check()
        for client in clients:
            client.leave()
        await until(lambda: not any(client.scope in proxy.pool._held for client in clients))
        await until(lambda: not any(place[1] for place in proxy.pool._lives))
    assert not [pid for key in SERVERS for pid in bench.pids(key) if alive(pid)]
