"""Scope state in this process's memory."""

from collections.abc import Collection

from proxy.core.errors import TooManyScopes
from proxy.core.scope import ScopeId, ScopeState


class MemoryStore:
    """A `ScopeStore` that holds at most `limit` scopes; there is no `await` between comparing and swapping."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._states: dict[ScopeId, ScopeState] = {}

    async def get(self, scope: ScopeId) -> ScopeState | None:
        """The state of `scope`, or None when it has not begun."""
        return self._states.get(scope)

    async def swap(self, scope: ScopeId, old: ScopeState | None, new: ScopeState) -> bool:
        """Replace `old` by `new`; False when `old` is not the current object.

        Raises:
            TooManyScopes: `scope` would be a new one beyond the limit.
        """
        if self._states.get(scope) is not old:
            return False
        if old is None and len(self._states) >= self._limit:
            raise TooManyScopes
        self._states[scope] = new
        return True

    async def remove(self, scope: ScopeId) -> None:
        """Forget `scope`."""
        self._states.pop(scope, None)

    async def scopes(self) -> Collection[ScopeId]:
        """Every scope that has state."""
        return tuple(self._states)
