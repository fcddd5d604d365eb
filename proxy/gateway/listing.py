"""What a caller's lists show."""

from collections.abc import Sequence

from proxy.core.call_route import has_seen_call_route, shows_call_route
from proxy.core.decision import Route
from proxy.core.inventory import Listed
from proxy.core.scope import ScopeState, evidence_of, saw_call_route
from proxy.gateway.announcing import Announcer
from proxy.gateway.gate import Gate
from proxy.gateway.list_reads import ListReads
from proxy.gateway.scope_view import ScopeView
from proxy.ports import Caller


class Listing:
    """Lists for callers, in the order of design rule 8."""

    def __init__(self, gate: Gate, announcer: Announcer, reads: ListReads) -> None:
        self._gate = gate
        self._announcer = announcer
        self._reads = reads

    async def tools(self, caller: Caller) -> Listed:
        """The tools that `caller` sees, `SKILL` first."""
        state, view = await self._shown(caller)
        self._reads.note(caller, state.tools_version)
        if not self._shows_call_route(caller, state):
            return view.tools
        await self._gate.change(caller.scope, lambda state: saw_call_route(state, caller.key))
        return view.with_call

    async def resources(self, caller: Caller) -> Listed:
        """The resources of all servers that `caller` may see."""
        return (await self._shown(caller))[1].resources

    async def templates(self, caller: Caller) -> Listed:
        """The resource templates of all servers that `caller` may see."""
        return (await self._shown(caller))[1].templates

    async def prompts(self, caller: Caller) -> Listed:
        """The prompts of all servers that `caller` may see."""
        return (await self._shown(caller))[1].prompts

    async def skills(self, caller: Caller) -> Sequence[Route]:
        """The skills of all servers that `caller` may see."""
        return (await self._shown(caller))[1].view.skills

    async def shows_call_route(self, caller: Caller) -> bool:
        """Whether the tool `SKILL_CALL` is in the list of `caller`, and can be called by it."""
        return self._shows_call_route(caller, await self._gate.state(caller.scope))

    async def has_call_route(self, caller: Caller) -> bool:
        """Whether the list that `caller` has got contains it by now."""
        state = await self._gate.state(caller.scope)
        expected = self._announcer.expected_of(caller, state)
        seen = has_seen_call_route(evidence_of(state, caller.key), expected)
        return seen and self._shows_call_route(caller, state)

    def _shows_call_route(self, caller: Caller, state: ScopeState) -> bool:
        catalogue, settings = self._gate.catalogue(caller.scope), self._gate.settings
        evidence, expected = evidence_of(state, caller.key), self._announcer.expected_of(caller, state)
        return shows_call_route(catalogue, settings, evidence, expected)

    async def _shown(self, caller: Caller) -> tuple[ScopeState, ScopeView]:
        """What `caller` sees, after waiting a little for servers that are on their way, and the state that is of.

        Those of which it is known what they offered last are not waited for: a call of theirs is (design rule 26).
        """
        gate, scope = self._gate, caller.scope
        known = gate.upstreams.inventory(scope)
        servers = gate.catalogue(scope).servers_of(gate.shown_skills(scope, (await gate.state(scope)).active))
        unknown = [server for server in servers if server not in known]
        await gate.upstreams.settled(unknown, scope, gate.settings.list_wait)
        state = await gate.state(scope)
        return state, gate.shown(scope, state.active)
