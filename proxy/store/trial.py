"""Scope state for a trial run: begun from what is remembered, and gone with the process."""

from collections.abc import Mapping

from proxy.core.scope import ScopeId, ScopeState
from proxy.core.settings import PerKind
from proxy.store.memory import MemoryStore


class TrialStore(MemoryStore):
    """A `MemoryStore` whose scopes begin as an earlier run left them; what changes in it is written nowhere."""

    def __init__(self, limits: PerKind[int], remembered: Mapping[ScopeId, ScopeState]) -> None:
        super().__init__(limits)
        self._remembered = remembered

    async def remembered(self, scope: ScopeId) -> ScopeState | None:
        """What an earlier run knew of `scope`; None for nothing."""
        return self._remembered.get(scope)

    def keeps(self, scope: ScopeId) -> bool:
        """Whether `scope` outlives the trial: what was active before it stays so, and its skills must not end."""
        return scope in self._remembered
