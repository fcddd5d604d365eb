"""How long scopes live: while they are used, while a connection or listen stream is there, and idle for a while."""

from collections.abc import Awaitable, Callable

import anyio
import structlog

from proxy.core.scope import ScopeId, ScopeState
from proxy.core.settings import PerKind
from proxy.ports import Clock, ScopeStore

log = structlog.stdlib.get_logger("proxy.face")


class Lifetimes:
    """Ends scopes that nobody uses (design rule 13).

    `idle`: seconds without a request after which a scope of each kind ends, unless `reaches(scope)`. `on_end`: called
    with each that has ended, and its last state, None for a scope that was refused.
    """

    def __init__(
        self,
        store: ScopeStore,
        idle: PerKind[float],
        clock: Clock,
        reaches: Callable[[ScopeId], bool],
        on_end: Callable[[ScopeId, ScopeState | None], None] = lambda _scope, _state: None,
    ) -> None:
        self._store = store
        self._idle = idle
        self._clock = clock
        self._reaches = reaches
        self._on_end = on_end
        self._in_use: dict[ScopeId, int] = {}
        self._last_used: dict[ScopeId, float] = {}

    def begun(self, scope: ScopeId) -> None:
        """A use of `scope` begins, which keeps it alive until the matching `ended`."""
        self._in_use[scope] = self._in_use.get(scope, 0) + 1

    async def ended(self, scope: ScopeId) -> None:
        """A use ends; a scope that was refused leaves nothing behind."""
        if self._in_use[scope] == 1:
            del self._in_use[scope]
        else:
            self._in_use[scope] -= 1
        if scope not in self._last_used:
            with anyio.CancelScope(shield=True):
                if await self._store.get(scope) is None:
                    if scope not in self._in_use:
                        self._on_end(scope, None)
                    return
        self._last_used[scope] = self._clock()

    async def end(self, scope: ScopeId) -> None:
        """End `scope` now."""
        self._last_used.pop(scope, None)
        state = await self._store.get(scope)
        await self._store.remove(scope)
        self._on_end(scope, state)
        log.debug("scope.ended", scope=str(scope))

    async def sweep(self) -> None:
        """End the scopes whose idle time is over."""
        now = self._clock()
        for scope, used in list(self._last_used.items()):
            idle = self._idle.of(scope.kind)
            over = idle is not None and now - used >= idle
            if over and scope not in self._in_use and not self._reaches(scope):
                await self.end(scope)

    async def run(self, *also: Callable[[], Awaitable[None]]) -> None:
        """Sweep now and then, and call each of `also` as often, until cancelled."""
        shortest = min(self._idle.session, self._idle.namespace, self._idle.principal)
        while True:
            await anyio.sleep(max(1.0, shortest / 20))
            await self.sweep()
            for sweep in also:
                await sweep()
