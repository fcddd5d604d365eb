"""How long scopes live: while they are used, while a connection or listen stream is there, and idle for a while."""

from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio
import structlog

from proxy.core.scope import ScopeId
from proxy.ports import Clock, ScopeStore

log = structlog.stdlib.get_logger("proxy.face")


class Lifetimes:
    """Ends scopes that nobody uses (design rule 13).

    `idle`: seconds without a request after which a scope ends, unless `reaches(scope)`.
    """

    def __init__(self, store: ScopeStore, idle: float, clock: Clock, reaches: Callable[[ScopeId], bool]) -> None:
        self._store = store
        self._idle = idle
        self._clock = clock
        self._reaches = reaches
        self._in_use: Counter[ScopeId] = Counter()
        self._last_used: dict[ScopeId, float] = {}

    @asynccontextmanager
    async def use(self, scope: ScopeId) -> AsyncGenerator[None]:
        """Keep `scope` alive inside the block."""
        self._in_use[scope] += 1
        try:
            yield
        finally:
            self._in_use[scope] -= 1
            if not self._in_use[scope]:
                del self._in_use[scope]
            with anyio.CancelScope(shield=True):  # a refused scope leaves nothing behind
                if await self._store.get(scope) is not None:
                    self._last_used[scope] = self._clock()

    async def end(self, scope: ScopeId) -> None:
        """End `scope` now."""
        self._last_used.pop(scope, None)
        await self._store.remove(scope)
        log.debug("scope.ended", scope=str(scope))

    async def sweep(self) -> None:
        """End the scopes whose idle time is over."""
        now = self._clock()
        for scope, used in list(self._last_used.items()):
            if now - used >= self._idle and scope not in self._in_use and not self._reaches(scope):
                await self.end(scope)

    async def run(self, *also: Callable[[], Awaitable[None]]) -> None:
        """Sweep now and then, and call each of `also` as often, until cancelled."""
        while True:
            await anyio.sleep(max(1.0, self._idle / 20))
            await self.sweep()
            for sweep in also:
                await sweep()
