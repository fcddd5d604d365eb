"""What a caller's lists show."""

from collections.abc import Collection, Sequence

from proxy.core.decision import Route
from proxy.core.inventory import Listed
from proxy.gateway.gate import Gate, Sight
from proxy.ports import Caller


class Listing:
    """Lists for callers, in the order of design rule 8."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    async def tools(self, caller: Caller) -> Listed:
        """The tools that `caller` sees, `SKILL` first."""
        sight = await self._sight(caller)
        return sight.with_call if self.shows_call_route(caller) else sight.tools

    async def resources(self, caller: Caller) -> Listed:
        """The resources of all servers that `caller` may see."""
        return (await self._sight(caller)).resources

    async def templates(self, caller: Caller) -> Listed:
        """The resource templates of all servers that `caller` may see."""
        return (await self._sight(caller)).templates

    async def prompts(self, caller: Caller) -> Listed:
        """The prompts of all servers that `caller` may see."""
        return (await self._sight(caller)).prompts

    async def skills(self, caller: Caller) -> Sequence[Route]:
        """The skills of all servers that `caller` may see."""
        return (await self._sight(caller)).view.skills

    def stable(self, caller: Caller) -> bool:
        """Whether the lists of `caller` stay the same whatever is activated (design rule 12)."""
        return caller.era == "modern" and self._gate.settings.modern_listing == "stable"

    def shows_call_route(self, caller: Caller) -> bool:
        """Whether `caller` has the tool `SKILL_CALL` (design rule 17)."""
        if not self._gate.catalogue(caller.scope).skills or self._gate.settings.call_route == "off":
            return False
        if self._gate.settings.call_route == "on" or self.stable(caller):
            return True
        return caller.client.startswith(self._gate.settings.call_route_clients)

    async def _sight(self, caller: Caller) -> Sight:
        """What `caller` sees, after waiting a little for servers that are on their way (design rule 26).

        Those of which it is known what they offered last are not waited for: a call of theirs is.
        """
        gate, scope = self._gate, caller.scope
        known = gate.upstreams.inventory(scope)
        active = gate.catalogue(scope).servers_of(await self._active(caller))
        unknown = [server for server in active if server not in known]
        await gate.upstreams.settled(unknown, scope, gate.settings.list_wait)
        return gate.sight(scope, await self._active(caller))

    async def _active(self, caller: Caller) -> Collection[str]:
        """The skills that the lists of `caller` go by."""
        if self.stable(caller):
            return self._gate.catalogue(caller.scope).pinned
        return (await self._gate.state(caller.scope)).active
