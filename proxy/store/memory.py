"""Scope state and records of runs in this process's memory."""

from collections import Counter
from collections.abc import AsyncGenerator, Collection
from contextlib import asynccontextmanager

from proxy.core.errors import TooManyScopes
from proxy.core.run import Run
from proxy.core.scope import ScopeId, ScopeKind, ScopeState
from proxy.core.settings import PerKind
from proxy.store.runs import MemoryRuns


class MemoryStore:
    """A `ScopeStore` that holds at most so many scopes of each kind as `limits` says, and `RunRecords`.

    `runs`: the newest of this process. There is no `await` between comparing and swapping.
    """

    def __init__(self, limits: PerKind[int]) -> None:
        self.runs = MemoryRuns()
        self._limits = limits
        self._states: dict[ScopeId, ScopeState] = {}
        self._counts: Counter[ScopeKind] = Counter()

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """State is kept inside."""
        yield

    def keep(self, scope: ScopeId, run: Run) -> None:
        """Keep the record of a run of `scope`, in place of an earlier one with its id."""
        self.runs.keep(scope, run)

    def of(self, scope: ScopeId, skill: str) -> list[Run]:
        """The runs of a skill in `scope`, those that began last first."""
        return self.runs.of(scope, skill)

    async def get(self, scope: ScopeId) -> ScopeState | None:
        """The state of `scope`, or None when it has not begun."""
        return self._states.get(scope)

    async def remembered(self, scope: ScopeId) -> ScopeState | None:  # noqa: ARG002 - the protocol's signature
        """Nothing: no earlier run is remembered."""
        return None

    async def swap(self, scope: ScopeId, old: ScopeState | None, new: ScopeState) -> bool:
        """Replace `old` by `new`; False when `old` is not the current object.

        Raises:
            TooManyScopes: `scope` would be a new one beyond the limit of its kind.
        """
        if self._states.get(scope) is not old:
            return False
        if old is None:
            limit = self._limits.of(scope.kind)
            if limit is not None and self._counts[scope.kind] >= limit:
                raise TooManyScopes(scope.kind)
            self._counts[scope.kind] += 1
        self._states[scope] = new
        return True

    async def remove(self, scope: ScopeId) -> None:
        """Forget `scope`."""
        if self._states.pop(scope, None) is not None:
            self._counts[scope.kind] -= 1

    async def scopes(self) -> Collection[ScopeId]:
        """Every scope that has state."""
        return tuple(self._states)

    def keeps(self, scope: ScopeId) -> bool:  # noqa: ARG002 - the protocol's signature
        """Whether the state of `scope` outlives the program: none does."""
        return False
