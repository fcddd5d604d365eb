"""Calls whose client has to come back with what their server wants to know: so many of a scope, and so many bytes."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from proxy.core.byte_budget import ByteBudget, Share
from proxy.core.scope import ScopeId

PARKED_CALLS: Final = 1000
"""Calls of one scope, the newest ones."""
PARKED_BYTES: Final = 32 * 1024 * 1024
"""Bytes of the JSON of the questions and results of one scope's calls that nobody has fetched yet."""

T = TypeVar("T")


@dataclass
class _OfScope(Generic[T]):
    share: Share
    calls: dict[str, tuple[T, int]] = field(default_factory=dict[str, tuple[T, int]])


class ParkedCalls(Generic[T]):
    """Calls by what their clients know them by; `give_up` is called with one that is forgotten for want of room."""

    def __init__(self, budget: ByteBudget, give_up: Callable[[T], None]) -> None:
        self._budget = budget
        self._give_up = give_up
        self._scopes: dict[ScopeId, _OfScope[T]] = {}

    def __len__(self) -> int:
        """How many calls wait."""
        return sum(len(of_scope.calls) for of_scope in self._scopes.values())

    def park(self, scope: ScopeId, name: str, call: T, size: int) -> None:
        """Have a call wait for its client; its questions are of `size` bytes. The oldest ones may have to go."""
        of_scope = self._scopes.setdefault(scope, _OfScope(self._budget.share(PARKED_BYTES)))
        of_scope.calls[name] = (call, size)
        of_scope.share.add(size)
        self._fit(scope, of_scope)

    def grow(self, scope: ScopeId, name: str, size: int) -> None:
        """What waits for the client of a call, if it is parked, has become more by `size` bytes."""
        of_scope = self._scopes.get(scope)
        if of_scope is not None and name in of_scope.calls:
            call, before = of_scope.calls[name]
            of_scope.calls[name] = (call, before + size)
            of_scope.share.add(size)
            self._fit(scope, of_scope)

    def take(self, scope: ScopeId, name: str) -> T | None:
        """The call, which is not parked any more; None where it is not known."""
        of_scope = self._scopes.get(scope)
        if of_scope is None or name not in of_scope.calls:
            return None
        call, size = of_scope.calls.pop(name)
        of_scope.share.add(-size)
        if not of_scope.calls:
            del self._scopes[scope]
        return call

    def forget(self, scope: ScopeId) -> None:
        """A scope is over: its calls are given up."""
        for name in list(self._scopes[scope].calls if scope in self._scopes else ()):
            if (call := self.take(scope, name)) is not None:
                self._give_up(call)

    def _fit(self, scope: ScopeId, of_scope: _OfScope[T]) -> None:
        while of_scope.calls and (len(of_scope.calls) > PARKED_CALLS or of_scope.share.exceeded):
            oldest = self.take(scope, next(iter(of_scope.calls)))
            if oldest is not None:
                self._give_up(oldest)
