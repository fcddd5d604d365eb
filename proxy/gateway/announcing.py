"""Telling the clients of a scope that a list has changed: once per effective change, never for none (rule 17)."""

from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from anyio.abc import TaskGroup

from proxy.core.scope import Lists, ScopeId, ScopeState, announced
from proxy.core.settings import Settings
from proxy.gateway.gate import Gate
from proxy.ports import Caller, Era, ListKind, Notifier

KINDS: tuple[ListKind, ...] = ("tools", "resources", "prompts")


@dataclass(frozen=True)
class _Change:
    before: Lists
    after: Lists

    def of(self, digest: str) -> bool:
        return self.before.digests.get(digest) != self.after.digests.get(digest)


class Announcer:
    """Compares each scope's lists with what its clients were last told, and sends a notice where they differ."""

    def __init__(self, gate: Gate, notifier: Notifier, settings: Settings, tasks: TaskGroup) -> None:
        self._gate = gate
        self._notifier = notifier
        self._stable = settings.modern_listing == "stable"
        self._tasks = tasks
        self._held: Counter[ScopeId] = Counter()

    @asynccontextmanager
    async def one_change(self, caller: Caller) -> AsyncGenerator[None]:
        """What happens inside counts as one change: one notice at its end, on the caller's own stream first.

        When the request is cancelled inside, the notice goes out all the same.
        """
        self._held[caller.scope] += 1
        try:
            yield
        except BaseException:
            self._tasks.start_soon(self.announce, caller.scope)
            raise
        finally:
            self._held[caller.scope] -= 1
            if not self._held[caller.scope]:
                del self._held[caller.scope]
        await self.announce(caller.scope, caller)

    async def announce(self, scope: ScopeId, via: Caller | None = None) -> None:
        """Notify the clients of `scope` if any of its lists differs from what they know."""
        change = _Change(Lists(), Lists())

        def tell(state: ScopeState) -> ScopeState:
            nonlocal change
            change = _Change(state.lists, self._gate.sight(state.active).lists)
            return announced(state, change.after)

        if await self._gate.store.get(scope) is None:
            return
        await self._gate.change(scope, tell)
        for kind in KINDS:
            if change.of(kind):
                if via is not None:
                    await via.channel.list_changed(kind)
                self._notifier.list_changed(scope, kind, "handshake", but=via.connection if via else None)
            if change.of(self._digest(kind, "modern")):
                self._notifier.list_changed(scope, kind, "modern")

    async def run(self) -> None:
        """Announce, scope by scope, what changes of the servers' offers change, until cancelled."""
        upstreams = self._gate.upstreams
        seen = upstreams.inventory()
        while True:
            await upstreams.changed(seen)
            seen = upstreams.inventory()
            for scope in await self._gate.store.scopes():
                if scope not in self._held:
                    await self.announce(scope)

    def _digest(self, kind: ListKind, era: Era) -> str:
        return "stable" if kind == "tools" and era == "modern" and self._stable else kind
