"""The limit of a request, and what is said of it, seen from the connection: a server without a process (rule 33)."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import anyio
import pytest
from anyio.lowlevel import checkpoint
from mcp import MCPError
from mcp.shared.dispatcher import DispatchContext
from mcp.shared.transport_context import TransportContext
from mcp_types import CONNECTION_CLOSED

from proxy.core.byte_budget import ByteBudget
from proxy.core.errors import ProxyError, Rejection, ServerSilent
from proxy.core.inventory import Json
from proxy.core.scope import ScopeId
from proxy.core.server import StdioServer
from proxy.ports import Caller
from proxy.upstream.connection import Changes, Connection
from proxy.upstream.greeting import Greeting
from proxy.upstream.relay import Relay
from proxy.upstream.transport import Transport
from tests.conftest import HANDSHAKE, PATIENCE
from tests.gateway import world

pytestmark = pytest.mark.anyio

LIMIT = 0.4
DONE = {"content": [], "done": True}
CALL = {"name": "t", "arguments": {}}
HERE, THERE = ScopeId("namespace", "here"), ScopeId("namespace", "there")
CONTEXT = cast("DispatchContext[TransportContext]", None)
"""What came of its own accord over stdio: the relay looks at nothing of it."""

Act = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]


@dataclass
class Channel(world.Channel):
    """A client that is asked by message, and answers each when the test has it answer; what it is told is kept."""

    capabilities: Json = field(default_factory=lambda: {"elicitation": {"form": {}}})
    answers: dict[str, anyio.Event] = field(default_factory=dict[str, anyio.Event])
    logs: list[Json] = field(default_factory=list[Json])
    reports: list[Json] = field(default_factory=list[Json])

    async def ask(self, method: str, params: Json) -> dict[str, Any]:
        answered = self.answers.setdefault(params["message"], anyio.Event())
        await answered.wait()
        return {"action": "accept"}

    async def log(self, params: Json) -> None:
        self.logs.append(params)

    async def progress(self, params: Json) -> None:
        self.reports.append(params)

    async def until_asked(self, message: str) -> None:
        await until(lambda: message in self.answers)


@dataclass
class Bench:
    """A connection whose server does what `act` says with each request's parameters."""

    act: Act
    relay: Relay
    connection: Connection
    begun: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    async def ask(self, message: str) -> None:
        """The server asks the user of its owner."""
        assert await self.relay.on_request(CONTEXT, "elicitation/create", {"message": message})

    async def say(self, method: str, **params: Any) -> None:
        """The server sends a notification."""
        await self.relay.on_notify(CONTEXT, method, params)


class Dispatcher:
    """The way to a server, as far as requests go."""

    bench: Bench

    async def send_raw_request(self, method: str, params: dict[str, Any], options: object) -> dict[str, Any]:
        self.bench.begun.append(params)
        return await self.bench.act(params)


@asynccontextmanager
async def connection(act: Act, *, owner: ScopeId | None, limit: float = LIMIT) -> AsyncGenerator[Bench]:
    """A connection to a handshake-era server over stdio, which belongs to `owner`, or to all scopes."""
    changes, dispatcher = Changes(), Dispatcher()
    relay = Relay(
        "s",
        owner,
        cast("Any", SimpleNamespace(budget=ByteBudget())),
        limit=limit,
        input_wait=PATIENCE,
        on_change=changes.note,
        on_update=lambda _params: None,
    )
    way = Transport(cast("Any", dispatcher), anyio.Event())
    greeting = Greeting(HANDSHAKE, {"tools": {}}, None)
    link = Connection(StdioServer(key="s", command="s", timeout=limit), greeting, way, relay, changes)
    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            link.start(tasks)
            dispatcher.bench = Bench(act, relay, link)
            yield dispatcher.bench
            tasks.cancel_scope.cancel()


def caller(scope: ScopeId, channel: Channel) -> Caller:
    return Caller(scope, "handshake", "own", "", channel)


async def until(test: Callable[[], object]) -> None:
    """Wait until `test` holds, of what other tasks here do."""
    while not test():
        await checkpoint()


async def outcome(link: Connection, by: Caller, params: Json = CALL) -> object:
    """The result of a call, or the error in which it ends."""
    try:
        return await link.request("tools/call", params, by)
    except ProxyError as error:
        return error


async def test_the_time_does_not_count_while_any_question_of_the_call_is_open():
    """The answer to the first of two does not start it: the user thinks about the second as long as it takes."""

    async def act(_params: dict[str, Any]) -> dict[str, Any]:
        async with anyio.create_task_group() as tasks:
            for message in ("first", "second"):
                tasks.start_soon(bench.ask, message)
        return DONE

    channel, results = Channel(), list[object]()
    async with connection(act, owner=HERE) as bench, anyio.create_task_group() as tasks:

        async def call() -> None:
            results.append(await outcome(bench.connection, caller(HERE, channel)))

        tasks.start_soon(call)
        for message in ("first", "second"):
            await channel.until_asked(message)
        channel.answers["first"].set()
        await anyio.sleep(2 * LIMIT)
        assert not results
        channel.answers["second"].set()
    assert results == [DONE]


async def test_progress_during_a_question_does_not_start_the_time():
    """It is passed on, and the question stays open beyond the limit."""

    async def act(_params: dict[str, Any]) -> dict[str, Any]:
        await bench.ask("open")
        return DONE

    channel, results = Channel(), list[object]()
    async with connection(act, owner=HERE) as bench, anyio.create_task_group() as tasks:

        async def call() -> None:
            asking = {**CALL, "_meta": {"progressToken": "mine"}}
            results.append(await outcome(bench.connection, caller(HERE, channel), asking))

        tasks.start_soon(call)
        await channel.until_asked("open")
        token = bench.begun[0]["_meta"]["progressToken"]
        await bench.say("notifications/progress", progressToken=token, progress=1)
        await until(lambda: channel.reports)
        await anyio.sleep(2 * LIMIT)
        assert not results
        channel.answers["open"].set()
    assert results == [DONE]
    assert channel.reports == [{"progressToken": "mine", "progress": 1}]


async def test_the_time_counts_again_when_the_last_question_is_answered():
    """A server that then stays silent is given up."""

    async def act(_params: dict[str, Any]) -> dict[str, Any]:
        async with anyio.create_task_group() as tasks:
            for message in ("first", "second"):
                tasks.start_soon(bench.ask, message)
        await anyio.sleep_forever()
        return DONE

    channel, results = Channel(), list[object]()
    async with connection(act, owner=HERE) as bench, anyio.create_task_group() as tasks:

        async def call() -> None:
            results.append(await outcome(bench.connection, caller(HERE, channel)))

        tasks.start_soon(call)
        for message in ("first", "second"):
            await channel.until_asked(message)
            channel.answers[message].set()
    assert [type(result) for result in results] == [ServerSilent]


@pytest.mark.parametrize("ending", ["cancelled", "silent"])
async def test_what_a_call_says_that_nobody_waits_for_reaches_no_other(ending: str):
    """On a connection that scopes share: the server goes on with it, while another scope's call is the only one."""
    gates = {"here": anyio.Event(), "there": anyio.Event()}

    async def act(params: dict[str, Any]) -> dict[str, Any]:
        await gates[params["name"]].wait()
        return DONE

    here, there, results = Channel(), Channel(), list[object]()
    limit = PATIENCE if ending == "cancelled" else LIMIT
    async with connection(act, owner=None, limit=limit) as bench, anyio.create_task_group() as tasks:

        async def call(name: str, scope: ScopeId, channel: Channel) -> None:
            results.append(await outcome(bench.connection, caller(scope, channel), {**CALL, "name": name}))

        async with anyio.create_task_group() as given_up:
            given_up.start_soon(call, "here", HERE, here)
            await until(lambda: bench.begun)
            if ending == "cancelled":
                await bench.say("notifications/message", level="info", data="heard")
                await until(lambda: here.logs)
                given_up.cancel_scope.cancel()
        tasks.start_soon(call, "there", THERE, there)
        await until(lambda: len(bench.begun) == 2)
        await bench.say("notifications/message", level="info", data="secret")
        gates["there"].set()
    assert results[-1] == DONE
    assert there.logs == []
    assert [note["data"] for note in here.logs] == (["heard"] if ending == "cancelled" else [])


async def test_an_error_that_comes_before_the_limit_is_the_answer_though_its_meaning_takes_longer():
    """Whether the connection ends is waited for beyond the limit: the request has its error, its task goes on."""

    async def act(_params: dict[str, Any]) -> dict[str, Any]:
        raise MCPError(CONNECTION_CLOSED, "Connection closed")

    results: list[object] = []
    async with connection(act, owner=None, limit=LIMIT) as bench, anyio.create_task_group() as tasks:

        async def call() -> None:
            results.append(await outcome(bench.connection, caller(HERE, Channel())))
            await checkpoint()
            results.append("its task goes on")

        tasks.start_soon(call)
    assert isinstance(results[0], Rejection)
    assert results[0].code == CONNECTION_CLOSED
    assert results[1:] == ["its task goes on"]
