"""Activating and offloading in tests: where nothing is in the way, or whatever is."""

from collections.abc import Callable
from typing import TypeAlias

from proxy.core import relations
from proxy.core.catalogue import Catalogue, Skill
from proxy.core.names import Naming
from proxy.core.relations import Blocked
from proxy.core.scope import ScopeState

Change: TypeAlias = Callable[[Catalogue, ScopeState, str], ScopeState | Blocked]


def plain(*ids: str) -> Catalogue:
    """Skills that neither grant anything nor have to do with each other."""
    return Catalogue((), Naming({}), tuple(Skill(id_, "", "", "") for id_ in ids))


def activated(catalogue: Catalogue, state: ScopeState, skill: str) -> ScopeState:
    """The state with `skill` active, where nothing is in the way."""
    return _made(relations.activated(catalogue, state, skill))


def offloaded(catalogue: Catalogue, state: ScopeState, skill: str) -> ScopeState:
    """The state with `skill` not active, where nothing is in the way."""
    return _made(relations.offloaded(catalogue, state, skill))


def tried(change: Change, catalogue: Catalogue, state: ScopeState, skill: str) -> ScopeState:
    """The state after a change, or as it was where something is in the way."""
    after = change(catalogue, state, skill)
    return state if isinstance(after, Blocked) else after


def _made(after: ScopeState | Blocked) -> ScopeState:
    assert isinstance(after, ScopeState), after
    return after
