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
MODERN_CLIENTS_LIMIT: Final = 100
"""Clients of the modern era of which a scope remembers what they have shown, the newest ones."""
_MODERN: Final = "modern "
"""The prefix of the keys of modern clients, which have no connection; no session id begins with it."""


ScopeKind: TypeAlias = Literal["process", "namespace", "session", "principal"]
LASTING: Final[frozenset[ScopeKind]] = frozenset({"namespace", "principal"})
"""The kinds of scopes that a client can come back to after the proxy was started anew."""


class ScopeId(NamedTuple):
    """The key of a scope: its kind, the name within that kind, and the principal it belongs to, if any."""

    kind: ScopeKind
    name: str = ""
    principal: str | None = None

    @property
    def user(self) -> str | None:
        """The principal that it belongs to, or is; None for those without a token."""
        return self.name if self.kind == "principal" else self.principal

    def __str__(self) -> str:
        """How logs name it; of a session, whose id is as good as a key, only the beginning."""
        name = f"{self.name[:SESSION_SHOWN]}…" if self.kind == "session" else self.name
        owner = f" of {self.principal}" if self.principal is not None and self.kind != "principal" else ""
        return f"{self.kind} {name}".strip() + owner


def client_scope(namespace: str | None, principal: str | None) -> ScopeId:
    """The scope of a client that names a namespace, or as a principal alone, or neither: then it has the process."""
    if namespace is not None:
        return ScopeId("namespace", namespace, principal)
    return ScopeId("process") if principal is None else ScopeId("principal", principal, principal)


@dataclass(frozen=True)
class Evidence:
    """What one client of a scope has shown of its handling of changed lists."""

    rereads_in_time: bool = False
    """It has read its list again while a result was held for that."""

    rereads_after_result: bool = False
    """The last time that it did not, it has read its list right after the result."""

    missed_reads: int = 0
    """Results in a row that were held for it, without a read of its list meanwhile."""

    sees_call_route: bool = False
    """A list that it was given contained `SKILL_CALL`, which stays there from then on."""


_NOTHING_SHOWN: Final = Evidence()

Lists: TypeAlias = Mapping[str, str]
"""By list (`tools`, `resources`, `prompts`) a digest, equal exactly when the list is equal byte for byte."""


@dataclass(frozen=True)
class ScopeState:
    """One scope's state.

    `active`: skill ids in order of activation. `by_demand`: those that are active because another one requires them,
    and for no other reason. `offloaded`: skills that were active here and no longer are; `expired`: those of them that
    were not used for too long, of which the client has not been told yet. `lists`: as its clients last knew or were
    told of them.
    `tools_version`: how often that has changed their list of tools. `evidence`: by client (`client_key`).
    `handed_out`: resource URI -> server whose tool result handed it out, oldest first.
    `started`: whether what has to be done before the first call is done. `due`: active skills that have not begun yet:
    they do before the next call. `heap`: what steps have put there, by name, JSON.
    """

    active: tuple[str, ...] = ()
    by_demand: frozenset[str] = frozenset()
    offloaded: frozenset[str] = frozenset()
    expired: frozenset[str] = frozenset()
    lists: Lists = field(default_factory=dict[str, str])
    tools_version: int = 0
    evidence: Mapping[str, Evidence] = field(default_factory=dict[str, Evidence])
    handed_out: Mapping[str, str] = field(default_factory=dict[str, str])
    started: bool = False
    due: frozenset[str] = frozenset()
    heap: Json = field(default_factory=dict[str, Any])
    instructed: frozenset[str] = frozenset()
    """The servers whose own instructions its clients have been given."""


def client_key(connection: str | None, client: str, version: str) -> str:
    """What tells the clients of a scope apart: the connection, in the modern era name and version of the client."""
    return connection if connection is not None else f"{_MODERN}{client}/{version}"


def connected(state: ScopeState, connection: str) -> ScopeState:
    """The state with `connection` known, so that evidence of its client can be kept."""
    if connection in state.evidence:
        return state
    return replace(state, evidence={**state.evidence, connection: _NOTHING_SHOWN})


def disconnected(state: ScopeState, connection: str) -> ScopeState:
    """The state without what was known of `connection`."""
    if connection not in state.evidence:
        return state
    return replace(state, evidence={key: value for key, value in state.evidence.items() if key != connection})


def announced(state: ScopeState, lists: Lists) -> ScopeState:
    """The state after its clients were told of `lists`; the same object when they are what these knew."""
    if lists == state.lists:
        return state
    changed = lists.get("tools") != state.lists.get("tools")
    return replace(state, lists=lists, tools_version=state.tools_version + changed)


def evidence_of(state: ScopeState, client: str) -> Evidence:
    """What a client (`client_key`) has shown; nothing of one that is not known."""
    return state.evidence.get(client, _NOTHING_SHOWN)


def reread_in_time(state: ScopeState, client: str) -> ScopeState:
    """The state after a client (`client_key`) has read its list again while a result was held for that."""
    known = evidence_of(state, client)
    return _with_evidence(
        state, client, replace(known, rereads_in_time=True, rereads_after_result=False, missed_reads=0)
    )


def missed_read(state: ScopeState, client: str) -> ScopeState:
    """The state after a result was held for a client, which has not read its list again meanwhile."""
    known = evidence_of(state, client)
    return _with_evidence(state, client, replace(known, missed_reads=known.missed_reads + 1))


def observed_after_result(state: ScopeState, client: str, *, read: bool) -> ScopeState:
    """The state after a client that missed a read has got the result, and `read` its list right then, or did not."""
    return _with_evidence(state, client, replace(evidence_of(state, client), rereads_after_result=read))


def saw_call_route(state: ScopeState, client: str) -> ScopeState:
    """The state after a client was given a list with `SKILL_CALL`."""
    known = evidence_of(state, client)
    return state if known.sees_call_route else _with_evidence(state, client, replace(known, sees_call_route=True))


def _with_evidence(state: ScopeState, client: str, evidence: Evidence) -> ScopeState:
    """The state with this evidence; the same object where nothing changes, or the connection has ended."""
    known = state.evidence.get(client)
    if known == evidence or (known is None and not client.startswith(_MODERN)):
        return state
    kept = dict(state.evidence)
    if known is None:
        modern = [key for key in kept if key.startswith(_MODERN)]
        if len(modern) >= MODERN_CLIENTS_LIMIT:
            del kept[modern[0]]
    return replace(state, evidence={**kept, client: evidence})


def handed_out(state: ScopeState, server: str, uris: Iterable[str]) -> ScopeState:
    """The state after a tool result of `server` handed out `uris`; the oldest beyond the limit are forgotten."""
    fresh = dict.fromkeys(uris, server)
    kept = [(uri, owner) for uri, owner in state.handed_out.items() if uri not in fresh]
    remembered = [*kept, *fresh.items()][-HANDED_OUT_LIMIT:]
    return state if remembered == list(state.handed_out.items()) else replace(state, handed_out=dict(remembered))


def instructed(state: ScopeState, servers: Iterable[str], known: Iterable[str]) -> ScopeState:
    """The state after its clients were given the instructions of `servers`; the same object where they had them.

    `known`: the servers of other active skills, whose instructions are still of use; given before, the others count as
    not given any more.
    """
    given = state.instructed.intersection(known).union(servers)
    return state if given == state.instructed else replace(state, instructed=given)


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
