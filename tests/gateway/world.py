"""Stand-ins for the world around the use cases: servers that are there for good, and a caller."""

import errno
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import anyio

from proxy.core.catalogue import Skill
from proxy.core.definitions import Change, Grant
from proxy.core.errors import Rejection, Unreadable
from proxy.core.inventory import Inventory, Json
from proxy.core.scope import ScopeId
from proxy.ports import Caller, ListKind, Manifest, Status
from tests.conftest import QUIET

SCOPE = ScopeId("namespace", "a")


@dataclass
class Server:
    """A link that remembers what it was asked, and answers with `result`."""

    result: dict[str, Any]
    asked: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)
    asks: bool = False

    def turn(self, method: str, caller: Caller) -> AbstractAsyncContextManager[object]:
        return nullcontext()

    async def request(self, method: str, params: Json, caller: Caller | None = None) -> dict[str, Any]:
        self.asked.append((method, params))
        return self.result


@dataclass
class Servers:
    """Upstreams that are always ready and offer one thing for good."""

    offers: Inventory
    links: dict[str, Server] = field(default_factory=dict)

    def inventory(self, scope: ScopeId) -> Inventory:
        return self.offers

    async def changed(self, since: int) -> int:
        await anyio.sleep_forever()
        return since

    def status(self, server: str, scope: ScopeId) -> Status:
        return Status("ready")

    def need(self, servers: Iterable[str], scope: ScopeId) -> None: ...

    def hold(self, scope: ScopeId, servers: Mapping[str, Grant]) -> None: ...

    def withheld(self, scope: ScopeId) -> Sequence[Change]:
        return ()

    def untold_changes(self, scope: ScopeId) -> Sequence[Change]:
        return ()

    async def settled(self, servers: Iterable[str], scope: ScopeId, within: float) -> None: ...

    async def connected(self, server: str, scope: ScopeId) -> Server:
        return self.links[server]

    def set_levels(self) -> None: ...

    def roots_changed(self, scope: ScopeId) -> None: ...

    def follow_client(self, scope: ScopeId) -> None: ...

    async def watch(
        self,
        uris: Mapping[tuple[str, ScopeId], Collection[str]],
        wait_for: tuple[str, ScopeId] | None = None,
        within: float = 0.0,
    ) -> Mapping[str, Rejection]:
        return {}


@dataclass
class Files:
    """The files of skills, by the skill's id and the path; a skill whose id is in `broken` cannot be read."""

    contents: dict[tuple[str, str], bytes] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)

    def guide(self, skill: Skill) -> str:
        if skill.id in self.broken:
            raise OSError(errno.ENOENT, "it is gone")
        return f"The guide of {skill.id}."

    async def read(self, skill: Skill, path: str) -> bytes:
        if skill.id in self.broken or (skill.id, path) not in self.contents:
            raise Unreadable(skill.id, path, "it is gone")
        return self.contents[skill.id, path]

    async def manifest(self, skill: Skill) -> Manifest:
        if skill.id in self.broken:
            raise Unreadable(skill.id, "SKILL.md", "it is gone")
        files = {path: (len(content), "00ff") for (id_, path), content in self.contents.items() if id_ == skill.id}
        return Manifest({"name": skill.id}, files)


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

    capabilities: Json = field(default_factory=dict)
    log_level: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def check(self, schema: object, arguments: Json) -> None: ...

    async def progress(self, params: Json) -> None: ...

    async def log(self, params: Json) -> None: ...

    async def poll(self) -> None: ...

    async def ask(self, method: str, params: Json) -> dict[str, Any]:
        raise NotImplementedError


def caller(channel: Channel | None = None) -> Caller:
    """A handshake-era client of `SCOPE`, which never reads its list again."""
    return Caller(SCOPE, "handshake", "own", QUIET, channel or Channel())
