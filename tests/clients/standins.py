"""Small clients that handle a changed list of tools as real ones were measured to (docs/clients.md).

Each is an agent: what its model can call is what its list had when the last result came.
"""

import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import anyio

from proxy.core.known_clients import REREADS
from tests.conftest import MODERN, Json, Peer

Connect: TypeAlias = Callable[[str, str], AbstractAsyncContextManager[Peer]]
"""Connects a client that calls itself so, in an era of the SDK's client."""
Way: TypeAlias = Literal["directly", "by SKILL_CALL", "not at all"]
"""How a model can call an activated tool with the list that its client has."""


@dataclass(frozen=True)
class Behaviour:
    """What a client does about a changed list."""

    name: str
    """What it calls itself."""

    rereads_after: float | None = None
    """Seconds from the notice until it reads the list again; None for never."""

    lists_each_turn: bool = False
    """It reads the list at the beginning of each of the user's turns."""

    listens: bool = True
    """In the modern era it opens a stream by which it is told."""

    session_each_call: bool = False
    """It connects anew for every call, and lists when it does."""

    @property
    def known(self) -> bool:
        """Whether the proxy knows by the name that it reads the list again in time."""
        return self.name in REREADS


BEHAVIOURS = {
    "rereads_at_once": Behaviour("claude-code", 0.0),
    "rereads_after_0.3_s": Behaviour("opencode", 0.3),
    "rereads_after_0.8_s": Behaviour("kilo", 0.8),
    "unknown_rereads_at_once": Behaviour("somebody", 0.0),
    "unknown_rereads_after_0.3_s": Behaviour("somebody", 0.3),
    "at_the_next_turn": Behaviour("ai-sdk-mcp-client", lists_each_turn=True, listens=False),
    "never": Behaviour("codex-mcp-client", listens=False),
    "unknown_never": Behaviour("smolagents"),
    "modern_without_a_stream": Behaviour("fastmcp", listens=False),
    "session_for_each_call": Behaviour("mcp", session_each_call=True, listens=False),
}


@dataclass
class Agent:
    """An agent that speaks to the proxy through a client of this behaviour."""

    behaviour: Behaviour
    connect: Connect
    mode: str
    listed: list[str] = field(default_factory=list[str])
    """The tools that its model can call."""

    waited: float = 0.0
    """Seconds that the last result of `SKILL` took."""

    read_before_result: bool = False
    """Whether it had read its list again by then."""

    _peer: Peer | None = None

    @asynccontextmanager
    async def running(self) -> AsyncGenerator["Agent"]:
        """The agent at work: connected, with its list."""
        async with AsyncExitStack() as stack:
            if not self.behaviour.session_each_call:
                self._peer = await stack.enter_async_context(self.connect(self.behaviour.name, self.mode))
                if self.behaviour.listens:
                    await stack.enter_async_context(self._peer.hearing())
                tasks = await stack.enter_async_context(anyio.create_task_group())
                stack.callback(tasks.cancel_scope.cancel)
                if self.behaviour.rereads_after is not None:
                    tasks.start_soon(self._reread, self._peer, self.behaviour.rereads_after)
                self.listed = await self._peer.tools()
            yield self

    async def next_turn(self) -> None:
        """The user says something."""
        if self.behaviour.lists_each_turn and self._peer is not None:
            self.listed = await self._peer.tools()

    async def skill(self, action: str, skill: str) -> Json:
        """The model calls `SKILL`; its next request is made from what is there when the result comes."""
        async with self._session() as peer:
            begun, before = time.monotonic(), self.listed
            result = await peer.skill(action, skill)
            self.waited, self.read_before_result = time.monotonic() - begun, self.listed is not before
            return result

    def way_to(self, tool: str) -> Way:
        """How the model can call `tool` now."""
        if tool in self.listed:
            return "directly"
        return "by SKILL_CALL" if "SKILL_CALL" in self.listed else "not at all"

    async def call(self, tool: str, arguments: Json) -> Json:
        """The model calls a tool as its list lets it; one that it remembers by its name."""
        async with self._session() as peer:
            if self.way_to(tool) == "by SKILL_CALL":
                return await peer.call("SKILL_CALL", {"tool": tool, "arguments": arguments})
            return await peer.call(tool, arguments)

    @asynccontextmanager
    async def _session(self) -> AsyncGenerator[Peer]:
        if self._peer is not None:
            yield self._peer
            return
        async with self.connect(self.behaviour.name, self.mode) as peer:
            self.listed = await peer.tools()
            yield peer

    async def _reread(self, peer: Peer, after: float) -> None:
        seen = 0
        while True:
            await peer.wire.until_notices(seen + 1, forever=True)
            seen = peer.wire.notices()
            await anyio.sleep(after)
            self.listed = await peer.tools()


def is_possible(behaviour: Behaviour, transport: str, mode: str) -> bool:
    """Whether such a client exists: the modern era needs no session on a namespace or over stdio."""
    if transport == "session" and (mode == MODERN or behaviour.session_each_call):
        return False
    if transport == "stdio" and behaviour.session_each_call:
        return False
    return mode == MODERN or behaviour.name != "fastmcp"
