"""Ends of skills behind nobody's request: each once, and one that goes wrong costs itself alone."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from structlog.testing import capture_logs

from proxy.core.catalogue import EVERYTHING, Catalogue, Skill
from proxy.core.inventory import Json, Offer
from proxy.core.names import Naming
from proxy.core.profiles import Policy
from proxy.core.settings import every_kind
from proxy.core.steps import Call
from proxy.gateway.gate import Gate
from proxy.ports import Caller
from proxy.store.memory import MemoryStore
from tests.core.changes import activated
from tests.gateway.wired import Wired, wired
from tests.gateway.world import SCOPE, Server, Servers

pytestmark = pytest.mark.anyio

LIMIT = 60.0


@dataclass
class Desk(Server):
    """A server whose tool `close` hangs until it is let go on, and whose tool `breaks` fails as nothing should."""

    go: anyio.Event = field(default_factory=anyio.Event)

    async def request(self, method: str, params: Json, caller: Caller | None = None) -> dict[str, Any]:
        result = await super().request(method, params, caller)
        if params["name"] == "breaks":
            raise RuntimeError("nobody has thought of this")
        await self.go.wait()
        return result

    @property
    def called(self) -> list[str]:
        return [params["name"] for _, params in self.asked]


def ending(id_: str, tool: str) -> Skill:
    """A skill that calls a tool in the end, and goes by itself after a while."""
    step = Call("on_offload[0]", tool, "desk", tool)
    return Skill(id_, "", "", "", internal={"desk": EVERYTHING}, on_offload=(step,), idle_limit=LIMIT)


class World:
    """The use cases, with a clock that stands still unless it is set."""

    def __init__(self, tasks: anyio.abc.TaskGroup) -> None:
        self.now = 1000.0
        self.desk = Desk({"content": []})
        tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("close", "breaks")]
        servers = Servers({"desk": Offer.of(tools=tools)}, {"desk": self.desk})
        catalogue = Catalogue(
            ("desk",), Naming({"desk": "desk"}), (ending("first", "close"), ending("second", "breaks"))
        )
        gate = Gate(Policy(catalogue), servers, MemoryStore(every_kind(10)))
        self.wired: Wired = wired(gate, tasks, lambda: self.now)

    async def activate(self, *skills: str) -> None:
        gate = self.wired.gate
        for one in skills:
            with self.wired.idling.use(SCOPE, [one]):
                await gate.change(SCOPE, lambda state, one=one: activated(gate.catalogue(SCOPE), state, one))

    async def until_called(self, *tools: str) -> None:
        while self.desk.called != [*tools]:
            await anyio.lowlevel.checkpoint()


@pytest.fixture
async def world() -> AsyncGenerator[World]:
    async with anyio.create_task_group() as tasks:
        yield World(tasks)
        tasks.cancel_scope.cancel()


async def test_what_the_end_of_the_proxy_ends_does_not_go_by_itself_as_well(world: World):
    """Its time may be over while its end is being run."""
    await world.activate("first")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(world.wired.hooks.shut_down)
        await world.until_called("close")
        world.now += LIMIT
        await world.wired.idling.sweep(lambda _: anyio.lowlevel.checkpoint())
        world.desk.go.set()
    assert world.desk.called == ["close"]


async def test_an_end_that_goes_wrong_in_a_way_nobody_has_thought_of(world: World):
    """Is told of in the log; the other ends are run, and whoever waits for them goes on."""
    await world.activate("first", "second")
    world.desk.go.set()
    with capture_logs() as logged:
        await world.wired.hooks.shut_down()
    assert world.desk.called == ["breaks", "close"]
    (told,) = (one for one in logged if one["event"] == "hook.broken")
    assert told["skill"] == "second"
