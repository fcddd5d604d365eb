"""Skills that nobody uses for too long are offloaded by themselves (`max_active_minutes`)."""

from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from math import inf
from typing import Final

import anyio
import structlog
from anyio.lowlevel import checkpoint

from proxy.core.catalogue import Catalogue, Skill
from proxy.core.relations import expired, gone
from proxy.core.scope import ScopeId, ScopeState
from proxy.gateway.gate import Gate
from proxy.ports import Clock

log = structlog.stdlib.get_logger("proxy.gateway")

LONGEST: Final = 15.0
"""Seconds between two looks, at most: the time of a skill that a scope begins with counts from the first one."""
SHORTEST: Final = 0.05


class Idling:
    """Knows when each active skill that has a limit was last used in each scope, and offloads those over it.

    `on_gone`: called with those that were offloaded, in order of activation, and the state before.
    """

    def __init__(self, gate: Gate, clock: Clock) -> None:
        self._gate = gate
        self._clock = clock
        self._last: dict[ScopeId, dict[str, float]] = {}
        self._in_use: Counter[tuple[ScopeId, str]] = Counter()
        self._news = anyio.Event()
        self.on_gone: Callable[[ScopeId, Sequence[Skill], ScopeState], None] = lambda _scope, _skills, _before: None

    @contextmanager
    def use(self, scope: ScopeId, skills: Iterable[str]) -> Generator[None]:
        """Skills of `scope` are used inside, and were last at its end; those without a limit do not matter."""
        catalogue = self._gate.catalogue(scope)
        used = [(scope, skill) for skill in skills if skill in catalogue.limited] if catalogue.limited else ()
        self._in_use.update(used)
        try:
            yield
        finally:
            if used:
                self._in_use.subtract(used)
                self._in_use += Counter()  # without those that are at zero
                known = self._last.setdefault(scope, {})
                if any(skill not in known for _, skill in used):
                    self._news.set()
                known.update(dict.fromkeys((skill for _, skill in used), self._clock()))

    def forget(self, scope: ScopeId) -> None:
        """A scope is over."""
        self._last.pop(scope, None)

    def wake(self) -> None:
        """The limits may have changed."""
        self._news.set()

    async def run(self, announce: Callable[[ScopeId], Awaitable[None]]) -> None:
        """Offload what is over its limit, until cancelled; `announce` is called with the scopes concerned."""
        while True:
            self._news = anyio.Event()
            due = await self.sweep(announce)
            with anyio.move_on_after(max(due - self._clock(), SHORTEST)):
                await self._news.wait()

    async def sweep(self, announce: Callable[[ScopeId], Awaitable[None]]) -> float:
        """Offload what is over its limit now; the time of the clock at which to look again."""
        if not any(catalogue.limited for catalogue in self._gate.policy.catalogues):
            self._last.clear()
            return inf
        due = self._clock() + LONGEST
        scopes = frozenset(await self._gate.store.scopes())
        for ended in self._last.keys() - scopes:  # while something of it was used
            del self._last[ended]
        for scope in scopes:
            await checkpoint()  # others have their turns in between
            state = await self._gate.store.get(scope)
            if state is not None:
                over, next_due = self._look(self._gate.catalogue(scope), scope, state)
                due = min(due, next_due)
                if over:
                    await self._offload(scope)
                    await announce(scope)
        return due

    def _look(self, catalogue: Catalogue, scope: ScopeId, state: ScopeState) -> tuple[list[str], float]:
        """The skills of a scope that are over their limit, and when the next one may be."""
        now, known = self._clock(), self._last.get(scope, {})
        limited = [skill for skill in state.active if skill in catalogue.limited]
        last = {skill: now if (scope, skill) in self._in_use else known.get(skill, now) for skill in limited}
        self._last[scope] = last
        if not last:
            del self._last[scope]
        ends = {skill: used + catalogue.limited[skill] for skill, used in last.items()}
        return [s for s in ends if ends[s] <= now], min((end for end in ends.values() if end > now), default=inf)

    async def _offload(self, scope: ScopeId) -> None:
        """Offload the skills of a scope that are over their limit at the moment of the change."""

        def end(state: ScopeState) -> ScopeState:
            catalogue = self._gate.catalogue(scope)
            over, _ = self._look(catalogue, scope, state)
            return expired(catalogue, state, over)

        before, after = await self._gate.changed(scope, end)
        over = gone(self._gate.catalogue(scope), before, after)
        for skill in over:
            log.info("skill.expired", skill=skill.id, scope=str(scope))
        if over:
            self.on_gone(scope, over, before)
