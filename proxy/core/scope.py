"""Whose skill state it is, and that state: frozen records with the transitions between them (design section 4)."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from proxy.core.inventory import Json
from proxy.core.texts import size

SESSION_SHOWN = 8
NAMESPACE = r"(?!\.+$)[A-Za-z0-9._~-]{1,128}"
"""The names that a namespace can have, as a regular expression: what stands in a URL as it is, but not dots alone."""
HANDED_OUT_LIMIT = 1000
"""How many resource URIs from tool results a scope remembers, the newest ones."""
HEAP_LIMIT: Final = 256 * 1024
"""Bytes of the JSON of all that a scope's heap holds."""


ScopeKind: TypeAlias = Literal["process", "namespace", "session", "principal"]
LASTING: Final[frozenset[ScopeKind]] = frozenset({"namespace", "principal"})
"""The kinds of scopes that a client can come back to after the proxy was started anew."""


class ScopeId(NamedTuple):
    """The key of a scope: its kind, the name within that kind, and the principal it belongs to, if any."""

    kind: ScopeKind
    name: str = ""
    principal: str | None = None

    def __str__(self) -> str:
        """How logs name it; of a session, whose id is as good as a key, only the beginning."""
        name = f"{self.name[:SESSION_SHOWN]}…" if self.kind == "session" else self.name
        owner = f" of {self.principal}" if self.principal is not None and self.kind != "principal" else ""
        return f"{self.kind} {name}".strip() + owner


@dataclass(frozen=True)
class Evidence:
    """What one handshake-era connection has shown of its handling of list changes (design rule 17).

    `before`: exposed names that were listed when it came. `announced`: names that first appeared after a notice to it.
    `relists`: it has directly called one of those, so it reads the list again after notices.
    """

    before: frozenset[str] = frozenset()
    announced: frozenset[str] = frozenset()
    relists: bool = False


@dataclass(frozen=True)
class Lists:
    """The lists of a scope as its clients last knew or were told of them.

    `digests`: by list (`tools`, `resources`, `prompts`, and each as `modern …` for clients of that era), equal exactly
    when the list is equal byte for byte.
    `tools`: the exposed names of the tools.
    """

    digests: Mapping[str, str] = field(default_factory=dict[str, str])
    tools: frozenset[str] = frozenset()


@dataclass(frozen=True)
class ScopeState:
    """One scope's state.

    `active`: skill ids in order of activation. `by_demand`: those that are active because another one requires them,
    and for no other reason. `offloaded`: skills that were active here and no longer are; `expired`: those of them that
    were not used for too long, of which the client has not been told yet. `lists`: what its clients were last told of.
    `evidence`: by connection. `handed_out`: resource URI -> server whose tool result handed it out, oldest first.
    `started`: whether what has to be done before the first call is done. `due`: active skills that have not begun yet:
    they do before the next call. `heap`: what steps have put there, by name, JSON.
    """

    active: tuple[str, ...] = ()
    by_demand: frozenset[str] = frozenset()
    offloaded: frozenset[str] = frozenset()
    expired: frozenset[str] = frozenset()
    lists: Lists = Lists()
    evidence: Mapping[str, Evidence] = field(default_factory=dict[str, Evidence])
    handed_out: Mapping[str, str] = field(default_factory=dict[str, str])
    started: bool = False
    due: frozenset[str] = frozenset()
    heap: Json = field(default_factory=dict[str, Any])


def connected(state: ScopeState, connection: str) -> ScopeState:
    """The state with `connection` known, so that what is announced from now on counts for it."""
    if connection in state.evidence:
        return state
    return replace(state, evidence={**state.evidence, connection: Evidence(before=state.lists.tools)})


def disconnected(state: ScopeState, connection: str) -> ScopeState:
    """The state without what was known of `connection`."""
    if connection not in state.evidence:
        return state
    return replace(state, evidence={key: value for key, value in state.evidence.items() if key != connection})


def announced(state: ScopeState, lists: Lists) -> ScopeState:
    """The state after every known connection was told of `lists`; the same object when they are what it knew."""
    if lists == state.lists:
        return state
    evidence = {
        key: replace(known, announced=known.announced | (lists.tools - known.before))
        for key, known in state.evidence.items()
    }
    return replace(state, lists=lists, evidence=evidence)


def called(state: ScopeState, connection: str | None, name: str) -> ScopeState:
    """The state after `connection` has called `name` directly."""
    known = state.evidence.get(connection) if connection is not None else None
    if connection is None or known is None or known.relists or name not in known.announced:
        return state
    return replace(state, evidence={**state.evidence, connection: Evidence(relists=True)})


def relists(state: ScopeState, connection: str | None) -> bool:
    """Whether `connection` has shown that it reads the list again after a notice."""
    known = state.evidence.get(connection) if connection is not None else None
    return known is not None and known.relists


def handed_out(state: ScopeState, server: str, uris: Iterable[str]) -> ScopeState:
    """The state after a tool result of `server` handed out `uris`; the oldest beyond the limit are forgotten."""
    fresh = dict.fromkeys(uris, server)
    kept = [(uri, owner) for uri, owner in state.handed_out.items() if uri not in fresh]
    remembered = [*kept, *fresh.items()][-HANDED_OUT_LIMIT:]
    return state if remembered == list(state.handed_out.items()) else replace(state, handed_out=dict(remembered))


def begun(state: ScopeState, skills: Iterable[str]) -> ScopeState:
    """The state after active skills have begun; the same object when none of them was due."""
    due = state.due.difference(skills)
    return state if due == state.due else replace(state, due=due)


def started(state: ScopeState) -> ScopeState:
    """The state after what has to be done before the first call is done."""
    return replace(state, started=True)


def put(state: ScopeState, name: str, value: Any) -> ScopeState | None:  # noqa: ANN401 - any JSON value
    """The state with a JSON value on its heap; None where the heap cannot hold that much."""
    heap = {**state.heap, name: value}
    return replace(state, heap=heap) if size(json.dumps(heap, ensure_ascii=False)) <= HEAP_LIMIT else None
