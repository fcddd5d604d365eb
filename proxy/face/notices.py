"""Notices to clients: to handshake-era connections on their own stream, to modern ones on their listen streams."""

from typing import Any, Final

import anyio
import structlog
from anyio.abc import TaskGroup
from mcp.server.context import ServerRequestContext
from mcp.server.session import ServerSession
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourcesListChanged,
    ServerEvent,
    ToolsListChanged,
)
from mcp_types import (
    PromptListChangedNotification,
    ResourceListChangedNotification,
    ServerNotification,
    SubscriptionsListenRequestParams,
    SubscriptionsListenResult,
    ToolListChangedNotification,
)

from proxy.core.scope import ScopeId
from proxy.ports import Era, ListKind

log = structlog.stdlib.get_logger("proxy.face")

SEND_TIMEOUT: Final = 5.0
"""Seconds for one notice to be taken; a client that does not read loses notices, nothing else."""

EVENTS: Final[dict[ListKind, ServerEvent]] = {
    "tools": ToolsListChanged(),
    "resources": ResourcesListChanged(),
    "prompts": PromptsListChanged(),
}


NOTIFICATIONS: Final[dict[ListKind, ServerNotification]] = {
    "tools": ToolListChangedNotification(),
    "resources": ResourceListChangedNotification(),
    "prompts": PromptListChangedNotification(),
}
"""The handshake era's notifications that a list has changed."""


class _Peer:
    """A handshake-era connection and the notices that wait to be sent on it."""

    def __init__(self, session: ServerSession) -> None:
        self.session = session
        self.waiting: dict[ListKind, None] = {}
        self.sending = False


class _Listening:
    """The listen streams of one scope."""

    def __init__(self) -> None:
        self.bus = InMemorySubscriptionBus()
        self.handler = ListenHandler(self.bus)
        self.streams = 0


class Notices:
    """A `Notifier`: knows the connections and listen streams of each scope, and never waits for any of them."""

    def __init__(self, tasks: TaskGroup) -> None:
        self._tasks = tasks
        self._peers: dict[ScopeId, dict[str, _Peer]] = {}
        self._listening: dict[ScopeId, _Listening] = {}

    def meet(self, scope: ScopeId, connection: str, session: ServerSession) -> bool:
        """Take note of a handshake-era connection; whether it is a new one. `session` is of any of its requests."""
        peers = self._peers.setdefault(scope, {})
        if connection in peers:
            return False
        peers[connection] = _Peer(session)
        return True

    def part(self, scope: ScopeId, connection: str) -> None:
        """Forget a connection that has ended."""
        peers = self._peers.get(scope, {})
        peers.pop(connection, None)
        if not peers:
            self._peers.pop(scope, None)

    def reaches(self, scope: ScopeId) -> bool:
        """Whether some handshake-era connection of `scope` is there."""
        return scope in self._peers

    async def listen(
        self, scope: ScopeId, ctx: ServerRequestContext[Any, Any], params: SubscriptionsListenRequestParams
    ) -> SubscriptionsListenResult:
        """Serve one `subscriptions/listen` stream (2026-07-28): notices of its own scope alone."""
        listening = self._listening.setdefault(scope, _Listening())
        listening.streams += 1
        try:
            return await listening.handler(ctx, params)
        finally:
            listening.streams -= 1
            if not listening.streams:
                del self._listening[scope]

    def list_changed(
        self, scope: ScopeId, kind: ListKind, era: Era, *, but: str | None = None, only: str | None = None
    ) -> None:
        """Tell every client of `scope` of that era, except the connection `but`, or `only` one; waits for none."""
        if era == "modern":
            if (listening := self._listening.get(scope)) is not None:
                self._tasks.start_soon(listening.bus.publish, EVENTS[kind])
            return
        for connection, peer in self._peers.get(scope, {}).items():
            if connection != but and only in (None, connection):
                peer.waiting[kind] = None
                if not peer.sending:
                    peer.sending = True
                    self._tasks.start_soon(self._send, peer)

    async def _send(self, peer: _Peer) -> None:
        """Send what waits for one connection; the same notice waiting twice is sent once."""
        try:
            while peer.waiting:
                kind = next(iter(peer.waiting))
                del peer.waiting[kind]
                with anyio.move_on_after(SEND_TIMEOUT) as scope:
                    await peer.session.send_notification(NOTIFICATIONS[kind])
                if scope.cancelled_caught:
                    log.warning("notice.not_taken", kind=kind)
        finally:
            peer.sending = False
