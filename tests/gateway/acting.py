"""Skills that act, over servers that do what a test says: what the tests of hooks, runs and calls share."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup

from proxy.core.catalogue import Allow, Catalogue, Skill
from proxy.core.inventory import Json, Offer
from proxy.core.names import Naming
from proxy.core.profiles import Policy
from proxy.core.run import Run
from proxy.core.scope import ScopeId, ScopeState
from proxy.core.settings import Settings, every_kind
from proxy.core.steps import Call, Parallel, Steps, Workflow
from proxy.gateway.gate import Gate
from proxy.ports import Caller, Notifier
from proxy.store.memory import MemoryStore
from tests.conftest import PATIENCE, QUIET
from tests.gateway.wired import Wired, wired
from tests.gateway.world import SCOPE, Channel, Server, Servers

Deed: TypeAlias = Callable[[Json, Caller], Awaitable[Any]]
"""What a tool does with its arguments, for whom; it gives a result, or what is its structured content."""

TOOLS = ("one", "two", "three", "begin", "end", "granted", "secret")
EVERY = Allow.of(TOOLS)
OTHER = ScopeId("namespace", "b")


def failure(text: str = "") -> Json:
    """The result of a tool that fails."""
    return {"content": [{"type": "text", "text": text}] if text else [], "isError": True}


@dataclass
class Obedient(Server):
    """A server whose tools give their arguments back, unless `does` says otherwise.

    `called`: what it was called with, by tool. `cancelled`: the tools whose calls were. `arrived`: set by each call.
    """

    result: dict[str, Any] = field(default_factory=dict[str, Any])
    does: dict[str, Deed] = field(default_factory=dict[str, Deed])
    called: list[tuple[str, Any]] = field(default_factory=list[tuple[str, Any]])
    cancelled: list[str] = field(default_factory=list[str])

    async def request(self, method: str, params: Json, caller: Caller | None = None) -> dict[str, Any]:
        assert method == "tools/call"
        assert caller is not None
        name, arguments = params["name"], params.get("arguments", {})
        self.called.append((name, arguments))
        try:
            given = await self.does[name](arguments, caller) if name in self.does else arguments
        except anyio.get_cancelled_exc_class():
            self.cancelled.append(name)
            raise
        return given if {"content", "resultType"} & {*given} else {"content": [], "structuredContent": given}

    @property
    def tools(self) -> list[str]:
        """The tools that were called, in order."""
        return [name for name, _ in self.called]

    def fails(self, tool: str, text: str = "it is broken") -> None:
        """A tool fails from now on."""
        self.does[tool] = _gives(failure(text))

    def gives(self, tool: str, result: Any) -> None:
        """A tool gives this from now on."""
        self.does[tool] = _gives(result)

    def raises(self, tool: str, error: Exception) -> None:
        """No result comes of a tool from now on."""

        async def do(_arguments: Json, _caller: Caller) -> Any:
            raise error

        self.does[tool] = do

    def holds(self, tool: str) -> anyio.Event:
        """Calls of a tool wait from now on until the event is set."""
        let_go = anyio.Event()

        async def do(arguments: Json, _caller: Caller) -> Any:
            await let_go.wait()
            return arguments

        self.does[tool] = do
        return let_go


def _gives(result: Any) -> Deed:
    async def do(_arguments: Json, _caller: Caller) -> Any:
        return result

    return do


class Reachable(Servers):
    """Servers to which there is a connection at once, or once `there` is set; `cut`: no request reaches them."""

    def __init__(self, links: dict[str, Obedient]) -> None:
        tools = [{"name": tool, "inputSchema": {"type": "object"}} for tool in TOOLS]
        super().__init__({key: Offer.of(tools=tools) for key in links}, dict(links))
        self.there = anyio.Event()
        self.there.set()

    async def connected(self, server: str, scope: ScopeId) -> Server:
        await self.there.wait()
        return await super().connected(server, scope)


def call(tool: str, place: str = "steps[0]", **more: Any) -> Call:
    """A step that calls a tool of `desk`, or of the server before its slash."""
    server, _, name = tool.rpartition("/")
    return Call(place, more.pop("name", name), server=server or "desk", tool=name, **more)


def steps(event: str, *given: Call | Parallel) -> Steps:
    """Steps with their places."""
    placed = [replace(one, place=f"{event}[{index}]") for index, one in enumerate(given)]
    return tuple(
        replace(one, steps=tuple(replace(each, place=f"{one.place}.parallel[{n}]") for n, each in enumerate(one.steps)))
        if isinstance(one, Parallel)
        else one
        for one in placed
    )


def skill(id_: str, *workflow: Call | Parallel, **more: Any) -> Skill:
    """A skill that grants `granted`, has all else as internal tools, and runs these steps when it is invoked.

    What is said of its workflow besides is in `runs`.
    """
    runs = more.pop("runs", {})
    if workflow:
        more["workflow"] = Workflow(
            steps("steps", *workflow), **{"parameters": {"type": "object"}, "max_calls": 100, **runs}
        )
    for event in ("on_activate", "on_offload"):
        if event in more:
            more[event] = steps(event, *more[event])
    granted, internal = {"desk": Allow.of(["granted"])}, {"desk": EVERY, "log": EVERY}
    return Skill(id_, "", "", "", **{"tools": granted, "internal": internal, **more})


@dataclass
class World:
    """The use cases over the servers `desk` and `log`, and a clock that stands still unless it is set."""

    gate: Gate
    wired: Wired
    servers: Reachable
    desk: Obedient
    log: Obedient
    tasks: TaskGroup
    now: list[float]

    async def ask(self, name: str, arguments: Json | None = None, by: Caller | None = None, **more: Any) -> Any:
        """The result of a call of a tool."""
        params = {"name": name, "arguments": arguments or {}, **more}
        return await self.wired.calling.call(by or client(), params)

    async def skill(self, action: str, id_: str, by: Caller | None = None, **more: Any) -> Any:
        """The result of a call of `SKILL`."""
        return await self.ask("SKILL", {"action": action, "skill_name": id_}, by, **more)

    async def invoke(self, id_: str, arguments: Any = None, by: Caller | None = None, **more: Any) -> Any:
        """The result of a call of `SKILL_INVOKE`."""
        given = {} if arguments is None else {"arguments": arguments}
        return await self.ask("SKILL_INVOKE", {"skill_name": id_, **given}, by, **more)

    async def names(self, by: Caller | None = None) -> list[str]:
        """The names in a client's list of tools."""
        return [tool["name"] for tool in await self.wired.listing.tools(by or client())]

    async def state(self, scope: ScopeId = SCOPE) -> ScopeState:
        return await self.gate.state(scope)

    async def active(self, scope: ScopeId = SCOPE) -> tuple[str, ...]:
        return (await self.state(scope)).active

    async def becomes(self, *skills: Skill, **more: Any) -> None:
        """The configuration has these skills from now on."""
        self.gate.adopt(Policy(catalogue_of(skills, **more)), self.gate.settings, ())
        await self.gate.refit()

    async def ends(self, scope: ScopeId = SCOPE) -> list[str]:
        """A scope is over; the list has an entry once its servers may be let go."""
        state = await self.gate.store.get(scope)
        await self.gate.store.remove(scope)
        released: list[str] = []
        self.wired.idling.forget(scope)
        self.wired.hooks.scope_ended(scope, state, lambda: released.append("released"))
        return released

    @property
    def runs(self) -> list[Run]:
        """The records of runs, in the order in which they began."""
        return self.wired.runs.newest(100)[::-1]

    @property
    def quiet(self) -> bool:
        """Whether nothing is kept of changes and runs that are over."""
        return not (self.wired.hooks._turns or self.wired.hooks._ending or self.wired.invoking._running)


def client(channel: Channel | None = None, scope: ScopeId = SCOPE, **more: Any) -> Caller:
    """A handshake-era client, which never reads its list again."""
    return Caller(scope, "handshake", "own", QUIET, channel or Channel())._replace(**more)


def modern(channel: Channel | None = None) -> Caller:
    """A modern client."""
    return client(channel, era="modern", connection=None)


def catalogue_of(skills: Sequence[Skill], **more: Any) -> Catalogue:
    tools = frozenset(one.id for one in skills if one.workflow is not None and one.workflow.tool)
    return Catalogue(("desk", "log"), Naming({"desk": "desk", "log": "log"}, tools=tools), tuple(skills), **more)


@asynccontextmanager
async def acting(
    *skills: Skill,
    settings: Settings | None = None,
    tick: float = 0.0,
    notifier: Notifier | None = None,
    **more: Any,
) -> AsyncGenerator[World]:
    """The world with these skills; nothing in the block may take for ever.

    `tick`: seconds that pass whenever somebody looks at the clock. `more`: what else the configuration has.
    """
    now, desk, log = [0.0], Obedient(), Obedient()

    def clock() -> float:
        now[0] += tick
        return now[0]

    servers = Reachable({"desk": desk, "log": log})
    policy = Policy(catalogue_of(skills, **more))
    gate = Gate(policy, servers, MemoryStore(every_kind(10)), settings or Settings(call_route="on"))
    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            yield World(gate, wired(gate, tasks, clock, notifier=notifier), servers, desk, log, tasks, now)
            tasks.cancel_scope.cancel()


async def settle() -> None:
    """Let everybody do what can be done without anything more."""
    for _ in range(50):
        await anyio.lowlevel.checkpoint()


class Doing:
    """Something that is done meanwhile: its result, once it has one; and it can be given up."""

    def __init__(self, tasks: TaskGroup, work: Callable[[], Awaitable[Any]]) -> None:
        self.result: Any = None
        self.error: Exception | None = None
        self.scope = anyio.CancelScope()
        self._over = anyio.Event()
        tasks.start_soon(self._run, work)

    async def _run(self, work: Callable[[], Awaitable[Any]]) -> None:
        try:
            with self.scope:
                self.result = await work()
        except Exception as error:  # noqa: BLE001 - the test looks at it
            self.error = error
        finally:
            self._over.set()

    @property
    def done(self) -> bool:
        """Whether it is over."""
        return self._over.is_set()

    async def outcome(self) -> Any:
        """Its result, when it has one."""
        await self._over.wait()
        if self.error is not None:
            raise self.error
        return self.result

    async def give_up(self) -> None:
        """Cancel it, and wait until it is over."""
        self.scope.cancel()
        await self._over.wait()


def text_of(result: Json) -> str:
    return result["content"][0]["text"]
