"""What the use cases need of the world, as protocols; the rooms around them implement these."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

from proxy.core.inventory import Inventory
from proxy.core.scope import ScopeId, ScopeState

ServerState: TypeAlias = Literal["idle", "starting", "ready", "failed", "stopped"]
Era: TypeAlias = Literal["handshake", "modern"]
"""Protocol revisions up to 2025-11-25, or 2026-07-28."""

ListKind: TypeAlias = Literal["tools", "resources", "prompts"]
"""The lists that can change; each has a `notifications/{kind}/list_changed` of its own."""


@dataclass(frozen=True)
class Status:
    """Where a server stands; `reason` is one masked line when it has failed."""

    state: ServerState
    reason: str = ""


class OnProgress(Protocol):
    """Called for each progress notification of a request, in order."""

    async def __call__(self, progress: float, total: float | None, message: str | None) -> None:
        """Take one notification's values."""
        ...


class Link(Protocol):
    """A live connection to a server."""

    async def request(
        self, method: str, params: Mapping[str, Any], on_progress: OnProgress | None = None
    ) -> dict[str, Any]:
        """Send one request and return its result as it came.

        Raises:
            Rejection: the server answered with a JSON-RPC error.
            NotDelivered: the connection turned out to be dead; the server did not run it.
            ServerLost: the connection broke; it may have run.
            ServerSilent: the server's `timeout` passed without result or progress; a cancel was sent.
        """
        ...


class Upstreams(Protocol):
    """The servers behind the proxy."""

    def inventory(self) -> Inventory:
        """What they offer; a new object after every change."""
        ...

    async def changed(self, since: Inventory) -> None:
        """Wait until the inventory is another than `since`."""
        ...

    def status(self, server: str) -> Status:
        """Where `server` stands."""
        ...

    def need(self, servers: Iterable[str]) -> None:
        """Begin to start those that are not running; returns at once."""
        ...

    async def settled(self, servers: Iterable[str], within: float) -> None:
        """Wait until none of them is starting; for each at most until `within` seconds after its start began."""
        ...

    async def connected(self, server: str) -> Link:
        """A live connection, made if there is none; callers share one attempt.

        Raises:
            ServerUnavailable: it could not be had.
        """
        ...


class ScopeStore(Protocol):
    """Where scope state is kept: compare-and-swap on frozen records (design rule 13)."""

    async def get(self, scope: ScopeId) -> ScopeState | None:
        """The state of `scope`, or None when it has not begun."""
        ...

    async def swap(self, scope: ScopeId, old: ScopeState | None, new: ScopeState) -> bool:
        """Replace `old`, the very object that `get` returned, by `new`; False when it is no longer the current one.

        Raises:
            TooManyScopes: `scope` would be a new one beyond the bound.
        """
        ...

    async def remove(self, scope: ScopeId) -> None:
        """Forget `scope`."""
        ...

    async def scopes(self) -> Collection[ScopeId]:
        """Every scope that has state."""
        ...


class Channel(Protocol):
    """One request in work: how to reach its client before the result."""

    async def list_changed(self, kind: ListKind) -> None:
        """Send the notice on this request's own stream; does nothing where the era has none there."""
        ...

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        """Send progress with the client's own token; does nothing when it gave none."""
        ...


@dataclass(frozen=True)
class Caller:
    """Who makes a request: its scope, and what the transport knows of the client.

    `connection`: the handshake-era connection it came on, None in the modern era. `client`: what the client calls
    itself, empty when it does not say.
    """

    scope: ScopeId
    era: Era
    connection: str | None
    client: str
    channel: Channel


class Notifier(Protocol):
    """Sends list-changed notices to the clients of a scope."""

    def list_changed(
        self, scope: ScopeId, kind: ListKind, era: Era, *, but: str | None = None, only: str | None = None
    ) -> None:
        """Tell every client of `scope` of that era, except the connection `but`, or `only` one; waits for none."""
        ...


Clock: TypeAlias = Callable[[], float]
"""Monotonic seconds."""
