"""Who is told of a resource's updates: those who subscribed to it, for as long as they may read it."""

from collections.abc import Mapping
from typing import Any, Final

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
from proxy.ports import Caller, Notifier, Subscriber, Upstreams

LISTEN_WAIT: Final = 2.0
"""Seconds that a listen stream waits for servers to take note, before it is acknowledged."""


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
        self._wishes: dict[Subscriber, set[str]] = {}
        self._watching = False

    async def subscribe(self, caller: Caller, params: Mapping[str, Any]) -> dict[str, Any]:
        """Run `resources/subscribe` (2025-11-25, server/resources).

        Raises:
            Unknown: no such resource exists for the caller.
            Rejection: the server refuses.
        """
        uri: str = params["uri"]
        file = _file_of_a_skill(self._gate.catalogue(caller.scope), uri)
        if file is not None and self._gate.settings.publish.files:
            self._wishes.setdefault(_subscriber(caller), set()).add(uri)
            return {}
        source = await self._forwarding.source(caller.scope, uri)
        if source is None:
            raise Unknown(f"Unknown resource: {uri}", uri)
        self._wishes.setdefault(_subscriber(caller), set()).add(uri)
        refused = await self._upstreams.watch(await self._wanted(), (source.server, caller.scope))
        if source.uri in refused:
            await self._unwish(_subscriber(caller), uri)
            raise refused[source.uri]
        return {}

    async def unsubscribe(self, caller: Caller, params: Mapping[str, Any]) -> dict[str, Any]:
        """Run `resources/unsubscribe`; one that was not subscribed is as wished."""
        await self._unwish(_subscriber(caller), params["uri"])
        return {}

    async def wish(self, subscriber: Subscriber, uris: frozenset[str]) -> None:
        """Have `subscriber` hear of exactly these; of those that it cannot read, once it can."""
        if uris:
            self._wishes[subscriber] = set(uris)
        elif self._wishes.pop(subscriber, None) is None:
            return
        await self.refresh(LISTEN_WAIT)

    def forget(self, subscriber: Subscriber) -> None:
        """A subscriber is gone."""
        if self._wishes.pop(subscriber, None) is not None:
            self._tasks.start_soon(self.refresh)

    async def refresh(self, within: float = 0.0) -> None:
        """Bring the servers up to date with what is wished and may be read by now; waits at most `within` seconds."""
        if self._wishes or self._watching:
            await self._upstreams.watch(await self._wanted(), within=within)

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
        self._wishes.get(subscriber, set()).discard(uri)
        if not self._wishes.get(subscriber):
            self._wishes.pop(subscriber, None)
        await self.refresh()

    async def _tell(self, server: str, scope: ScopeId | None, params: Json) -> None:
        uri = params.get("uri")
        if not isinstance(uri, str):
            return
        names = (uri, exposed(server, uri))
        for subscriber, uris in list(self._wishes.items()):
            if scope is not None and subscriber.scope != scope:
                continue
            for wished in uris:
                told = next((each for each in names if _is_of(each, wished)), None)
                source = None if told is None else await self._source(subscriber.scope, wished)
                if source is not None and source.server == server:
                    self._notifier.updated(subscriber, {**params, "uri": told})
                    break

    async def _wanted(self) -> dict[tuple[str, ScopeId], set[str]]:
        """What is wished and may be read, by server and scope."""
        wanted: dict[tuple[str, ScopeId], set[str]] = {}
        for subscriber, uris in list(self._wishes.items()):
            for uri in list(uris):
                source = await self._source(subscriber.scope, uri)
                if source is not None:
                    wanted.setdefault((source.server, subscriber.scope), set()).add(source.uri)
        self._watching = bool(wanted)
        return wanted

    async def _source(self, scope: ScopeId, uri: str) -> Source | None:
        try:
            return await self._forwarding.source(scope, uri)
        except ProxyError:  # the scope has ended, and there is no room to begin it again
            return None


def _is_of(uri: str, subscribed: str) -> bool:
    """Whether an update of `uri` is for those who subscribed: "the URI subscribed to, or a sub-resource of it"."""
    return uri == subscribed or uri.startswith(subscribed.rstrip("/") + "/")


def _file_of_a_skill(catalogue: Catalogue, uri: str) -> Skill | None:
    """The skill that has a file at `uri`; None where there is none. It is another after every change of its files."""
    found = published(catalogue, uri)
    return found[0] if found is not None and has_file(*found) else None


def _subscriber(caller: Caller) -> Subscriber:
    return Subscriber(caller.scope, caller.era, caller.connection or "")
