"""Who is told of a resource's updates: those who subscribed to it, for as long as they may read it."""

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from anyio.abc import TaskGroup

from proxy.core.catalogue import Catalogue, Skill
from proxy.core.errors import ProxyError, Unknown
from proxy.core.inventory import Json
from proxy.core.namespaced import Source, exposed
from proxy.core.profiles import Policy
from proxy.core.published import has_file, published
from proxy.core.scope import ScopeId
from proxy.gateway.forwarding import Forwarding
from proxy.gateway.gate import Gate
from proxy.gateway.wishes import Wishes
from proxy.ports import Caller, Notifier, Subscriber, Upstreams

Place: TypeAlias = tuple[str, ScopeId]
"""A server, and one of the scopes that it serves."""

LISTEN_WAIT: Final = 2.0
"""Seconds that a listen stream waits for servers to take note, before it is acknowledged."""

MAX_UPDATE_CHARACTERS: Final = 4096
"""Of the URI of an update that is passed on: a listen stream lets 1,024 of them wait for its client."""


class Subscriptions:
    """What subscribers wish to hear of, and the servers kept to just that."""

    def __init__(
        self, gate: Gate, forwarding: Forwarding, upstreams: Upstreams, notifier: Notifier, tasks: TaskGroup
    ) -> None:
        self._gate = gate
        self._forwarding = forwarding
        self._upstreams = upstreams
        self._notifier = notifier
        self._tasks = tasks
        self._wishes = Wishes()
        self._wanted: dict[ScopeId, dict[Place, set[str]]] = {}

    async def subscribe(self, caller: Caller, params: Mapping[str, Any]) -> dict[str, Any]:
        """Run `resources/subscribe` (2025-11-25, server/resources).

        Raises:
            Unknown: no such resource exists for the caller.
            Rejection: the server refuses; or the caller has subscribed to too many.
        """
        uri: str = params["uri"]
        file = _file_of_a_skill(self._gate.catalogue(caller.scope), uri)
        if file is not None and self._gate.settings.publish.files:
            self._wishes.add(_subscriber(caller), uri)
            return {}
        source = await self._forwarding.awaited_source(caller, uri)
        if source is None:
            raise Unknown(f"Unknown resource: {uri}", uri)
        self._wishes.add(_subscriber(caller), uri)
        await self._look_again(caller.scope)
        refused = await self._upstreams.watch(self._wanted_by_place(), (source.server, caller.scope))
        if source.uri in refused:
            await self._unwish(_subscriber(caller), uri)
            raise refused[source.uri]
        return {}

    async def unsubscribe(self, caller: Caller, params: Mapping[str, Any]) -> dict[str, Any]:
        """Run `resources/unsubscribe`; one that was not subscribed is as wished."""
        await self._unwish(_subscriber(caller), params["uri"])
        return {}

    async def wish(self, subscriber: Subscriber, uris: frozenset[str]) -> None:
        """Have `subscriber` hear of exactly these; of those that it cannot read, once it can.

        Raises:
            Rejection: they are too many.
        """
        if not uris and not self._wishes.forget(subscriber):
            return
        self._wishes.set(subscriber, uris)
        await self.refresh(LISTEN_WAIT, subscriber.scope)

    def forget(self, subscriber: Subscriber) -> None:
        """A subscriber is gone."""
        if self._wishes.forget(subscriber):
            self._tasks.start_soon(self.refresh, 0.0, subscriber.scope)

    async def refresh(self, within: float = 0.0, scope: ScopeId | None = None) -> None:
        """Bring the servers up to date with what is wished and may be read by now; waits at most `within` seconds.

        `scope`: the only one for which something has changed.
        """
        if self._wishes or self._wanted:
            scopes = {*self._wishes.scopes(), *self._wanted} if scope is None else {scope}
            for each in scopes:
                await self._look_again(each)
            await self._upstreams.watch(self._wanted_by_place(), within=within)

    def updated(self, server: str, scope: ScopeId | None, params: Json) -> None:
        """A server says that a resource was updated; `scope`: whose connection it is, where it belongs to one."""
        self._tasks.start_soon(self._tell, server, scope, params)

    def skills_changed(self, before: Policy) -> None:
        """Tell those who wish to hear of a skill's files that the skill is not what it was in `before`, or gone."""
        for subscriber, uris in self._wishes.items():
            was, now = before.of(subscriber.scope), self._gate.catalogue(subscriber.scope)
            same: dict[str, bool] = {}  # a skill may have thousands of files, and as many wishes
            for uri in uris:
                skill = _file_of_a_skill(was, uri)
                if skill is None:
                    continue
                if skill.id not in same:
                    same[skill.id] = skill == now.by_id.get(skill.id)
                if not same[skill.id]:
                    self._notifier.updated(subscriber, {"uri": uri})

    async def _unwish(self, subscriber: Subscriber, uri: str) -> None:
        self._wishes.discard(subscriber, uri)
        await self.refresh(scope=subscriber.scope)

    async def _tell(self, server: str, scope: ScopeId | None, params: Json) -> None:
        uri = params.get("uri")
        if not isinstance(uri, str) or len(uri) > MAX_UPDATE_CHARACTERS:
            return
        told: set[Subscriber] = set()
        for name in (uri, exposed(server, uri)):
            for subscriber, wished in [*self._wishes.hearing_of(name)]:
                if subscriber in told or (scope is not None and subscriber.scope != scope):
                    continue
                source = await self._source(subscriber.scope, wished)
                if source is not None and source.server == server:
                    told.add(subscriber)
                    self._notifier.updated(subscriber, {**params, "uri": name})

    async def _look_again(self, scope: ScopeId) -> None:
        """Find out what of a scope's wishes may be read by now, by server."""
        while True:
            wanted: dict[Place, set[str]] = {}
            wished = self._wishes.of(scope)
            for uri in wished:
                source = await self._source(scope, uri)
                if source is not None:
                    wanted.setdefault((source.server, scope), set()).add(source.uri)
            if wished == self._wishes.of(scope):  # else they have changed meanwhile
                break
        if wanted:
            self._wanted[scope] = wanted
        else:
            self._wanted.pop(scope, None)

    def _wanted_by_place(self) -> dict[Place, set[str]]:
        return {place: uris for wanted in self._wanted.values() for place, uris in wanted.items()}

    async def _source(self, scope: ScopeId, uri: str) -> Source | None:
        try:
            return await self._forwarding.source(scope, uri)
        except ProxyError:  # the scope has ended, and there is no room to begin it again
            return None


def _file_of_a_skill(catalogue: Catalogue, uri: str) -> Skill | None:
    """The skill that has a file at `uri`; None where there is none. It is another after every change of its files."""
    found = published(catalogue, uri)
    return found[0] if found is not None and has_file(*found) else None


def _subscriber(caller: Caller) -> Subscriber:
    return Subscriber(caller.scope, caller.era, caller.connection or "")
