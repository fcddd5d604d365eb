"""Stand-ins for the world around the use cases: servers that are there for good, and a caller."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import anyio

from proxy.core.inventory import Inventory
from proxy.core.scope import ScopeId
from proxy.ports import Caller, ListKind, OnProgress, Status

SCOPE = ScopeId("namespace", "a")


@dataclass
class Server:
    """A link that remembers what it was asked, and answers with `result`."""

    result: dict[str, Any]
    asked: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)

    async def request(
        self, method: str, params: Mapping[str, Any], on_progress: OnProgress | None = None
    ) -> dict[str, Any]:
        self.asked.append((method, params))
        return self.result


@dataclass
class Servers:
    """Upstreams that are always ready and offer one thing for good."""

    offers: Inventory
    links: dict[str, Server] = field(default_factory=dict)

    def inventory(self) -> Inventory:
        return self.offers

    async def changed(self, since: Inventory) -> None:
        await anyio.sleep_forever()

    def status(self, server: str) -> Status:
        return Status("ready")

    def need(self, servers: Iterable[str]) -> None: ...

    async def settled(self, servers: Iterable[str], within: float) -> None: ...

    async def connected(self, server: str) -> Server:
        return self.links[server]


@dataclass
class Channel:
    """A request's own stream; the client reads from it, or it does not."""

    reads: bool = True
    sent: list[ListKind] = field(default_factory=list)
    asked: anyio.Event = field(default_factory=anyio.Event)

    async def list_changed(self, kind: ListKind) -> None:
        self.asked.set()
        if not self.reads:
            await anyio.sleep_forever()
        self.sent.append(kind)

    async def progress(self, progress: float, total: float | None, message: str | None) -> None: ...


def caller(channel: Channel | None = None) -> Caller:
    """A handshake-era client of `SCOPE`."""
    return Caller(SCOPE, "handshake", "own", "", channel or Channel())
