"""With a scope that has ended goes all that belongs to it: nothing grows with scopes that are over (rule 13)."""

import gc
import os
from collections import deque
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import MCPError

from proxy.app import Running, running
from proxy.config.load import load
from proxy.core.scope import ScopeId
from proxy.face.http import listen, serve_http
from proxy.face.sessions import Sessions
from tests.conftest import MODERN, PATIENCE, Peer, connected, write_config
from tests.relay.talk import Talk, User, answering, by_url, skill

pytestmark = pytest.mark.anyio

URI = "memo://one"
SERVERS = ("shared", "own")


@dataclass(frozen=True)
class Proxy:
    """A proxy in this process that listens on a port."""

    running: Running
    url: str
    talks: Mapping[str, Talk]

    def mentioned(self) -> set[ScopeId]:
        """Every scope that anything of the proxy knows of."""
        sessions = [each for each in gc.get_objects() if isinstance(each, Sessions)]
        return set(_scopes([self.running, *(each for each in sessions if each._on_end.__self__ is self.running)]))  # pyright: ignore[reportFunctionMemberAccess]

    async def until_mentioned(self, scopes: set[ScopeId]) -> None:
        """Wait until it knows of these and of no other."""
        with anyio.move_on_after(PATIENCE):
            while self.mentioned() != scopes:  # noqa: ASYNC110 - sweeps and tasks of the proxy
                await anyio.sleep(0.05)
        assert self.mentioned() == scopes

    async def use(self, peer: Peer) -> None:
        """Have a client leave traces everywhere: notices, evidence, levels, wishes, refusals, demands, a lost call."""
        await peer.skill("activate", "s")
        await peer.tools()
        for name, talk in self.talks.items():
            await peer.call(f"{name}__echo")
            with suppress(MCPError):
                await peer.call(f"{name}__demand", {"elicitations": [by_url("Where?", f"e-{id(peer)}")["params"]]})
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(peer.call, f"{name}__wait", {"key": f"never {id(peer)}"})
                await talk.until_received("tools/call", f"never {id(peer)}")
                tasks.cancel_scope.cancel()
        if peer.handshake:
            await peer.request("logging/setLevel", {"level": "debug"})
            with pytest.raises(MCPError):
                await peer.request("resources/subscribe", {"uri": "nothing://there"})
            await peer.request("resources/subscribe", {"uri": URI})


def _scopes(roots: Iterable[object]) -> Iterable[ScopeId]:
    """The scopes in these objects, in the containers and the objects of the proxy that they hold, and so on."""
    waiting: deque[Any] = deque(roots)
    seen = set[int]()
    while waiting:
        each = waiting.popleft()
        if isinstance(each, ScopeId):
            yield each
        elif id(each) not in seen:
            seen.add(id(each))
            if isinstance(each, dict):
                waiting += [*each.keys(), *each.values()]
            elif isinstance(each, list | tuple | set | frozenset | deque):
                waiting += each
            elif type(each).__module__.startswith("proxy."):
                waiting += vars(each).values() if hasattr(each, "__dict__") else gc.get_referents(each)


@asynccontextmanager
async def proxy(folder: Path) -> AsyncGenerator[Proxy]:
    """Sessions end when their clients say so, namespaces at once when nobody is there."""
    talks = {name: Talk(folder / f"{name}.jsonl", name) for name in SERVERS}
    servers = {
        "shared": talks["shared"].entry(era="handshake"),
        "own": talks["own"].entry(era="handshake", isolation="scope"),
    }
    settings = {"scope_idle": {"session": 1800, "namespace": 0.01}}
    loaded = load(write_config(folder / "skills.yaml", servers, {"s": skill(*SERVERS)}, proxy=settings), os.environ)
    bound, ready = listen("127.0.0.1", 0, loaded.settings), anyio.Event()
    async with running(loaded, None) as started, anyio.create_task_group() as tasks:
        tasks.start_soon(serve_http, started.http("127.0.0.1"), bound, ready.set, started.reads.give_up_all)
        await ready.wait()
        yield Proxy(started, f"http://127.0.0.1:{bound.getsockname()[1]}/mcp", talks)
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize(("where", "mode"), [("/", "legacy"), ("/", MODERN), ("", "legacy")])
async def test_nothing_is_known_of_a_scope_that_has_ended(tmp_path: Path, where: str, mode: str) -> None:
    """Neither at the face nor at the servers, whatever its clients did; another one keeps what is its own."""
    async with proxy(tmp_path) as world:
        names = [f"{world.url}{where}{name if where else ''}" for name in ("stays", "a", "b")]
        async with connected(names[0], mode) as stays, stays.hearing():
            await world.use(stays)
            before = world.mentioned()
            assert len(before) == 1
            async with AsyncExitStack() as stack:
                for name in names[1:]:
                    peer = await stack.enter_async_context(answering(name, mode, User()))
                    if mode == MODERN:
                        listening = peer.client.listen(tools_list_changed=True, resource_subscriptions=[URI])
                        await stack.enter_async_context(listening)
                    await world.use(peer)
                assert len(world.mentioned() - before) == 2
            await world.until_mentioned(before)
            assert await stays.tools() != ["SKILL", "SKILL_CALL"]
