"""The clients of each scope, and what is sent to them without a request of theirs.

To handshake-era connections it goes on their own stream, to modern clients on their listen streams.
"""

from collections.abc import Callable, Coroutine, Mapping
from itertools import count
from typing import Any, Final, NamedTuple

import anyio
import structlog
from anyio.abc import TaskGroup
from mcp.server.context import ServerRequestContext
from mcp.server.session import ServerSession
from mcp.server.subscriptions import (
    ListenHandler,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
)
from mcp_types import SubscriptionsListenRequestParams, SubscriptionsListenResult

from proxy.core.byte_budget import ByteBudget
from proxy.core.capabilities import lacking, refusal
from proxy.core.inventory import Json
from proxy.core.log_levels import severe_enough
from proxy.core.protocol import Era
from proxy.core.scope import ScopeId, client_key
from proxy.core.waiting_messages import LOG_MESSAGE, WaitingMessages
from proxy.face import raw
from proxy.face.introductions import name_of
from proxy.ports import Caller, ListKind, Subscriber

log = structlog.stdlib.get_logger("proxy.face")

SEND_TIMEOUT: Final = 5.0
"""Seconds for one message to be taken; a client that does not read loses messages, nothing else."""
WAITING: Final = 1000
"""How many messages wait for one connection, the newest ones."""
WAITING_BYTES: Final = 4 * 1024 * 1024
"""How many bytes of them."""

EVENTS: Final[Mapping[ListKind, ServerEvent]] = {
    "tools": ToolsListChanged(),
    "resources": ResourcesListChanged(),
    "prompts": PromptsListChanged(),
}
LIST_CHANGED: Final[Mapping[ListKind, str]] = {kind: f"notifications/{kind}/list_changed" for kind in EVENTS}
"""The handshake era's notifications that a list has changed."""


class _Peer:
    """A handshake-era connection.

    `waiting`: what has to be sent on it, by what makes one replace another. `open`: whether it has a stream to be sent
    on. `told`: the notices that went out on the stream that is, or was, open.
    """

    def __init__(self, session: ServerSession, capabilities: Json, waiting: WaitingMessages, *, stream: bool) -> None:
        self.session = session
        self.capabilities = capabilities
        self.level: str | None = None
        self.waiting = waiting
        self.open = stream
        self.told: set[str] = set()
        self.sending = False

    def wants(self, log_message: Json) -> bool:
        """Whether a log message is severe enough for it."""
        return self.level is None or severe_enough(log_message.get("level"), self.level)


class _Bus:
    """The SDK's `SubscriptionBus` of one scope, which hands events over at once."""

    def __init__(self) -> None:
        self._listeners: dict[object, Callable[[ServerEvent], None]] = {}

    def deliver(self, event: ServerEvent) -> None:
        """Give an event to every stream, each of which writes it in its own task."""
        for listener in list(self._listeners.values()):
            listener(event)

    async def publish(self, event: ServerEvent) -> None:
        """Give an event to every stream."""
        self.deliver(event)

    def subscribe(self, listener: Callable[[ServerEvent], None]) -> Callable[[], None]:
        """Have `listener` called with each event; what is returned ends that."""
        token = object()
        self._listeners[token] = listener

        def unsubscribe() -> None:
            self._listeners.pop(token, None)

        return unsubscribe


class _ListenStream(NamedTuple):
    """What one listen stream is for: whose it is (`client_key`), and what it wants to hear of."""

    client: str
    tools: bool
    uris: frozenset[str]


class _Listening:
    """The listen streams of one scope."""

    def __init__(self) -> None:
        self.bus = _Bus()
        self.handler = ListenHandler(self.bus)
        self.streams: dict[object, _ListenStream] = {}

    @property
    def uris(self) -> frozenset[str]:
        return frozenset(uri for stream in self.streams.values() for uri in stream.uris)


class ClientRegistry:
    """The `Clients` and the `Notifier`: knows the connections and listen streams of each scope; waits for none of them.

    `on_wish`: called with a scope and the resources that its listen streams subscribe to by now. `on_part`: called when
    a connection is forgotten.
    """

    def __init__(self, tasks: TaskGroup, budget: ByteBudget | None = None) -> None:
        self.budget = budget or ByteBudget()
        self._tasks = tasks
        self._peers: dict[ScopeId, dict[str, _Peer]] = {}
        self._listening: dict[ScopeId, _Listening] = {}
        self._streams: set[tuple[ScopeId, str]] = set()
        self._declared: dict[ScopeId, Json] = {}
        self._eras: dict[ScopeId, Era] = {}
        self._numbers = count()
        self.on_wish: Callable[[ScopeId, frozenset[str]], Coroutine[Any, Any, None]] = _nothing
        self.on_part: Callable[[ScopeId, str], None] = lambda _scope, _connection: None

    def declare(self, scope: ScopeId, capabilities: Json, era: Era) -> bool:
        """Take note of what the newest client of `scope` declared that it can be asked, and of the era that it speaks.

        Whether the client before it spoke another era.
        """
        self._declared[scope] = capabilities
        before = self._eras.get(scope, era)
        self._eras[scope] = era
        return before != era

    def meet(
        self, scope: ScopeId, connection: str, session: ServerSession, capabilities: Json, *, stream: bool
    ) -> None:
        """Take note of a new handshake-era connection.

        `session` keeps nothing of any request. `capabilities`: what its client declared that it can be asked. `stream`:
        whether what no request has caused goes out on the stream that its requests come on.
        """
        has_stream = stream or (scope, connection) in self._streams
        waiting = WaitingMessages(self.budget.share(WAITING_BYTES), WAITING)
        self._peers.setdefault(scope, {})[connection] = _Peer(session, capabilities, waiting, stream=has_stream)
        self.declare(scope, capabilities, "handshake")

    def part(self, scope: ScopeId, connection: str) -> None:
        """Forget a connection that has ended."""
        self._streams.discard((scope, connection))
        peers = self._peers.get(scope, {})
        if (peer := peers.pop(connection, None)) is not None:
            peer.open = False
            peer.waiting.clear()
            self.on_part(scope, connection)
        if not peers:
            self._peers.pop(scope, None)

    def forget(self, scope: ScopeId) -> None:
        """Forget a scope that has ended."""
        self._declared.pop(scope, None)
        self._eras.pop(scope, None)

    def streaming(self, scope: ScopeId, connection: str, open_now: bool) -> None:  # noqa: FBT001 - a callback's value
        """A connection's own stream has begun, or ended.

        What went out on the one before may never have arrived, so notices are sent again on the next.
        """
        (self._streams.add if open_now else self._streams.discard)((scope, connection))
        peer = self._peers.get(scope, {}).get(connection)
        if peer is None:  # its stream may begin before its first message, and end after its last
            return
        peer.open = open_now
        if open_now:
            for method in sorted(peer.told, reverse=True):
                peer.waiting.put_first(method, method, {})
            peer.told.clear()
            self._hurry(peer)

    def reaches(self, scope: ScopeId) -> bool:
        """Whether some handshake-era connection of `scope` is there."""
        return scope in self._peers

    def set_level(self, scope: ScopeId, connection: str, level: str) -> None:
        """Take note of the least severe log messages that a connection wants."""
        self._peers[scope][connection].level = level

    def wants(self, scope: ScopeId, connection: str) -> tuple[str | None, Json] | None:
        """The least severe log messages that a connection wants, if it has said, and what it can be asked.

        None for a connection that is not known yet.
        """
        peer = self._peers.get(scope, {}).get(connection)
        return None if peer is None else (peer.level, peer.capabilities)

    async def listen(
        self, scope: ScopeId, ctx: ServerRequestContext[Any, Any], params: SubscriptionsListenRequestParams
    ) -> SubscriptionsListenResult:
        """Serve one `subscriptions/listen` stream (2026-07-28): news of its own scope alone."""
        listening = self._listening.setdefault(scope, _Listening())
        stream, wanted = object(), params.notifications
        uris = frozenset(wanted.resource_subscriptions or ())
        listening.streams[stream] = _ListenStream(
            client_key(None, *name_of(ctx)), bool(wanted.tools_list_changed), uris
        )
        try:
            await self.on_wish(scope, listening.uris)
            return await listening.handler(ctx, params)
        finally:
            del listening.streams[stream]
            if not listening.streams:
                del self._listening[scope]
            self._tasks.start_soon(self._wish_again, scope)

    async def _wish_again(self, scope: ScopeId) -> None:
        listening = self._listening.get(scope)
        await self.on_wish(scope, frozenset() if listening is None else listening.uris)

    def list_changed(
        self, scope: ScopeId, kind: ListKind, era: Era, *, but: str | None = None, only: str | None = None
    ) -> None:
        """Tell every client of `scope` of that era, except the connection `but`, or `only` one; waits for none."""
        if era == "modern":
            self._publish(scope, EVENTS[kind])
            return
        for connection, peer in self._peers.get(scope, {}).items():
            if connection != but and only in (None, connection):
                self._post(peer, LIST_CHANGED[kind], LIST_CHANGED[kind], {})

    def hears_of_tools(self, caller: Caller) -> bool:
        """Whether `caller` is told of changes of its list of tools: in the modern era, by a stream that it opened."""
        if caller.era == "handshake":
            return True
        listening = self._listening.get(caller.scope)
        return listening is not None and any(
            stream.tools and stream.client == caller.key for stream in listening.streams.values()
        )

    def updated(self, subscriber: Subscriber, params: Json) -> None:
        """Tell one subscriber that a resource was updated."""
        if subscriber.era == "modern":
            self._publish(subscriber.scope, ResourceUpdated(uri=params["uri"]))
            return
        peer = self._peers.get(subscriber.scope, {}).get(subscriber.name)
        if peer is not None:
            self._post(peer, f"updated {params['uri']}", "notifications/resources/updated", params)

    def capabilities(self, scope: ScopeId) -> Json:
        """What the newest client of `scope` declared that it can be asked."""
        return self._declared.get(scope, {})

    def era(self, scope: ScopeId) -> Era | None:
        """The era that the newest client of `scope` speaks; None where none has come yet."""
        return self._eras.get(scope)

    def levels(self, scope: ScopeId | None) -> frozenset[str]:
        """The log levels that clients have set: those of `scope`, or all."""
        scopes = self._peers.values() if scope is None else [self._peers.get(scope, {})]
        return frozenset(peer.level for peers in scopes for peer in peers.values() if peer.level is not None)

    def log(self, scope: ScopeId, params: Json) -> None:
        """Send a log message that no request caused to the clients of `scope` that want it; waits for none."""
        for peer in self._peers.get(scope, {}).values():
            if peer.wants(params):
                self._post(peer, f"log {next(self._numbers)}", LOG_MESSAGE, params)

    def tell(self, scope: ScopeId, method: str, params: Json) -> None:
        """Send a notification to every handshake-era client of `scope`; waits for none."""
        for peer in self._peers.get(scope, {}).values():
            self._post(peer, f"other {next(self._numbers)}", method, params)

    async def ask(self, scope: ScopeId, method: str, params: Json) -> dict[str, Any]:
        """Put a question that no request caused to a client of `scope`, the newest one that can answer it.

        Raises:
            Rejection: none can, or it answered with a JSON-RPC error.
        """
        for peer in reversed(self._peers.get(scope, {}).values()):
            if peer.open and lacking(peer.capabilities, method, params) is None:
                return await raw.ask(peer.session, method, params)
        raise refusal(lacking({}, method, params) or {})

    def _publish(self, scope: ScopeId, event: ServerEvent) -> None:
        if (listening := self._listening.get(scope)) is not None:
            listening.bus.deliver(event)

    def _post(self, peer: _Peer, key: str, method: str, params: Json) -> None:
        """Have a message sent; one that waits under the same key is replaced."""
        peer.waiting.put(key, method, params)
        self._hurry(peer)

    def _hurry(self, peer: _Peer) -> None:
        if peer.waiting and peer.open and not peer.sending:
            peer.sending = True
            self._tasks.start_soon(self._send, peer)

    async def _send(self, peer: _Peer) -> None:
        """Send what waits for one connection."""
        try:
            while peer.waiting and peer.open:
                method, params = peer.waiting.take()
                if method == LOG_MESSAGE and not peer.wants(params):
                    continue
                if method in LIST_CHANGED.values():
                    peer.told.add(method)
                with anyio.move_on_after(SEND_TIMEOUT) as scope:
                    await raw.notify(peer.session, method, params)
                if scope.cancelled_caught:
                    log.warning("message.not_taken", method=method)
        except Exception as error:  # noqa: BLE001 - boundary: one client that cannot be told disturbs no other
            log.debug("client.not_told", reason=str(error))
        finally:
            peer.sending = False


async def _nothing(_scope: ScopeId, _uris: frozenset[str]) -> None:
    """Nobody wants to know."""
