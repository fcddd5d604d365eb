"""The gate at work: a scope's state, and what it may see by the one decision, remembered while nothing changes."""

import hashlib
import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final

from proxy.core.catalogue import Catalogue
from proxy.core.decision import View, decide
from proxy.core.inventory import Inventory, Listed
from proxy.core.scope import Lists, ScopeId, ScopeState, begin
from proxy.core.skill_tool import skill_call_tool, skill_tool
from proxy.ports import ScopeStore, Upstreams

SIGHTS: Final = 256
"""How many pairs of an inventory and a set of active skills are remembered with what they show."""


@dataclass(frozen=True)
class Sight:
    """What is seen with one set of active skills: the view, and its lists as clients get them.

    `with_call`: the tools with `SKILL_CALL` among them, which depends on the client. `digests`: of the lists, by kind.
    """

    inventory: Inventory
    view: View
    tools: Listed
    with_call: Listed
    resources: Listed
    templates: Listed
    prompts: Listed
    digests: Mapping[str, str]


class Gate:
    """Scope states and sights, from the store and the servers' inventory.

    `eager`: the servers that are started with a scope, whatever is active in it.
    """

    def __init__(
        self, catalogue: Catalogue, upstreams: Upstreams, store: ScopeStore, eager: Collection[str] = ()
    ) -> None:
        self._eager = eager
        self.catalogue = catalogue
        self.upstreams = upstreams
        self.store = store
        self.pinned = frozenset(skill.id for skill in catalogue.skills if skill.pinned)
        self._sights: dict[tuple[int, frozenset[str]], Sight] = {}

    async def state(self, scope: ScopeId) -> ScopeState:
        """The state of `scope`, begun if it is new.

        Raises:
            TooManyScopes: it is new, and one too many.
        """
        state = await self.store.get(scope)
        return state if state is not None else await self.change(scope, lambda state: state)

    async def change(self, scope: ScopeId, transition: Callable[[ScopeState], ScopeState]) -> ScopeState:
        """Apply `transition` to the state of `scope` and return the outcome; tried again when another got in between.

        Raises:
            TooManyScopes: `scope` is new, and one too many.
        """
        while True:
            old = await self.store.get(scope)
            new = transition(old if old is not None else self._begin(scope))
            if new is old:
                return new
            if await self.store.swap(scope, old, new):
                if old is None:  # not before it has begun: a scope that is refused starts nothing
                    self.upstreams.need({*self.catalogue.servers_of(begin(self.catalogue).active), *self._eager}, scope)
                return new

    def sight(self, scope: ScopeId, active: Collection[str]) -> Sight:
        """What is seen in `scope` while the skills `active` are active."""
        inventory = self.upstreams.inventory(scope)
        key = (id(inventory), frozenset(active))
        found = self._sights.get(key)
        if found is None:  # as long as it is remembered, no other inventory has this one's id
            if len(self._sights) >= SIGHTS:
                self._sights.clear()
            found = self._sights[key] = self._look(key[1], inventory)
        return found

    def lists(self, scope: ScopeId, active: Collection[str]) -> Lists:
        """What a scope's clients see while the skills `active` are active, to compare with what they knew.

        Beside each list stands the `stable` one, of pinned skills alone (design rule 12).
        """
        sight = self.sight(scope, active)
        stable = {f"stable {kind}": digest for kind, digest in self.sight(scope, self.pinned).digests.items()}
        return Lists({**sight.digests, **stable}, frozenset(sight.view.tools))

    async def wait_for_servers(self, scope: ScopeId, active: Collection[str], within: float) -> None:
        """Wait a little for the servers of active skills that are on their way (design rule 26)."""
        await self.upstreams.settled(self.catalogue.servers_of(active), scope, within)

    def _begin(self, scope: ScopeId) -> ScopeState:
        state = begin(self.catalogue)
        return replace(state, lists=self.lists(scope, state.active))

    def _look(self, active: frozenset[str], inventory: Inventory) -> Sight:
        view = decide(self.catalogue, active, inventory)
        own = [skill_tool(self.catalogue, active)] if self.catalogue.skills else []
        tools = [{**route.definition, "name": route.exposed} for route in view.tools.values()]
        resources = [dict(entry) for _, entry in view.resources]
        templates = [dict(entry) for _, entry in view.templates]
        prompts = [{**route.definition, "name": route.exposed} for route in view.prompts.values()]
        digests = {
            "tools": _digest([*own, *tools]),
            "resources": _digest([resources, templates]),
            "prompts": _digest(prompts),
        }
        return Sight(
            inventory=inventory,
            view=view,
            tools=Listed([*own, *tools]),
            with_call=Listed([*own, skill_call_tool(), *tools]),
            resources=Listed(resources),
            templates=Listed(templates),
            prompts=Listed(prompts),
            digests=digests,
        )


def _digest(listed: object) -> str:
    return hashlib.sha256(json.dumps(listed).encode()).hexdigest()
