"""Who is told of a resource's updates: those who subscribed to it, for as long as they may read it."""

from collections.abc import Mapping
from typing import Any

import anyio
import structlog
from anyio.abc import TaskGroup

from proxy.core.errors import ProxyError, Rejection, Unknown
from proxy.core.inventory import Json
from proxy.core.scope import ScopeId
from proxy.gateway.forwarding import Forwarding
from proxy.ports import Caller, Notifier, Subscriber, Upstreams

log = structlog.stdlib.get_logger("proxy.gateway")


class Subscriptions:
    """What subscribers wish to hear of, and the servers kept to just that."""

    def __init__(self, forwarding: Forwarding, upstreams: Upstreams, notifier: Notifier, tasks: TaskGroup) -> None:
        self._forwarding = forwarding
        self._upstreams = upstreams
        self._notifier = notifier
        self._tasks = tasks
        self._wishes: dict[Subscriber, set[str]] = {}
        self._watching = False
        self._one_at_a_time = anyio.Lock()

    async def subscribe(self, caller: Caller, params: Mapping[str, Any]) -> dict[str, Any]:
        """Run `resources/subscribe` (2025-11-25, server/resources).

        Raises:
            Unknown: no such resource exists for the caller.
            Rejection: the server refuses.
        """
        uri: str = params["uri"]
        if await self._forwarding.owner(caller.scope, uri) is None:
            raise Unknown(f"Unknown resource: {uri}", uri)
        wishes = self._wishes.setdefault(_subscriber(caller), set())
        wishes.add(uri)
        try:
            await self._settle()
        except Rejection:
            wishes.discard(uri)
            raise
        return {}

    async def unsubscribe(self, caller: Caller, params: Mapping[str, Any]) -> dict[str, Any]:
        """Run `resources/unsubscribe`; one that was not subscribed is as wished."""
        subscriber = _subscriber(caller)
        self._wishes.get(subscriber, set()).discard(params["uri"])
        if not self._wishes.get(subscriber):
            self._wishes.pop(subscriber, None)
        await self.refresh()
        return {}

    async def wish(self, subscriber: Subscriber, uris: frozenset[str]) -> None:
        """Have `subscriber` hear of exactly these; of those that it cannot read, once it can."""
        if uris:
            self._wishes[subscriber] = set(uris)
        elif self._wishes.pop(subscriber, None) is None:
            return
        await self.refresh()

    def forget(self, subscriber: Subscriber) -> None:
        """A subscriber is gone."""
        if self._wishes.pop(subscriber, None) is not None:
            self._tasks.start_soon(self.refresh)

    async def refresh(self) -> None:
        """Bring the servers up to date with what is wished and may be read by now."""
        if not self._wishes and not self._watching:
            return
        try:
            await self._settle()
        except ProxyError as error:
            log.warning("subscription.refused", reason=str(error))

    def updated(self, server: str, scope: ScopeId | None, params: Json) -> None:
        """A server says that a resource was updated; `scope`: whose connection it is, where it belongs to one."""
        self._tasks.start_soon(self._tell, server, scope, params)

    async def _tell(self, server: str, scope: ScopeId | None, params: Json) -> None:
        uri = params.get("uri")
        if not isinstance(uri, str):
            return
        for subscriber, uris in list(self._wishes.items()):
            if scope is not None and subscriber.scope != scope:
                continue
            # "This SHOULD be the URI subscribed to, or a sub-resource of it."
            for wished in uris:
                mine = uri == wished or uri.startswith(wished.rstrip("/") + "/")
                if mine and await self._owner(subscriber.scope, wished) == server:
                    self._notifier.updated(subscriber, params)
                    break

    async def _settle(self) -> None:
        async with self._one_at_a_time:
            wanted: dict[tuple[str, ScopeId], set[str]] = {}
            for subscriber, uris in list(self._wishes.items()):
                for uri in list(uris):
                    server = await self._owner(subscriber.scope, uri)
                    if server is not None:
                        wanted.setdefault((server, subscriber.scope), set()).add(uri)
            self._watching = bool(wanted)
            await self._upstreams.watch(wanted)

    async def _owner(self, scope: ScopeId, uri: str) -> str | None:
        try:
            return await self._forwarding.owner(scope, uri)
        except ProxyError:  # the scope has ended, and there is no room to begin it again
            return None


def _subscriber(caller: Caller) -> Subscriber:
    return Subscriber(caller.scope, caller.era, caller.connection or "")
