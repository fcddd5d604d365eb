"""The gate at work: a scope's state, and what it may see by the one decision, remembered while nothing changes."""

import hashlib
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from proxy.core.catalogue import Catalogue
from proxy.core.decision import View, decide
from proxy.core.inventory import Inventory
from proxy.core.scope import Lists, ScopeId, ScopeState, begin
from proxy.core.skill_tool import skill_tool
from proxy.ports import ScopeStore, Upstreams

SIGHTS: Final = 256
"""How many sets of active skills are remembered with what they show."""


@dataclass(frozen=True)
class Sight:
    """What is seen with one set of active skills: the view, and its lists as clients get them.

    `tools`: without `SKILL_CALL`, which depends on the client. `digests`: of the lists, by kind.
    """

    view: View
    tools: Sequence[dict[str, Any]]
    resources: Sequence[dict[str, Any]]
    templates: Sequence[dict[str, Any]]
    prompts: Sequence[dict[str, Any]]
    digests: Mapping[str, str]


class Gate:
    """Scope states and sights, from the store and the servers' inventory."""

    def __init__(self, catalogue: Catalogue, upstreams: Upstreams, store: ScopeStore) -> None:
        self.catalogue = catalogue
        self.upstreams = upstreams
        self.store = store
        self.pinned = frozenset(skill.id for skill in catalogue.skills if skill.pinned)
        self._inventory: Inventory | None = None
        self._sights: dict[frozenset[str], Sight] = {}

    async def state(self, scope: ScopeId) -> ScopeState:
        """The state of `scope`, begun if it is new.

        Raises:
            TooManyScopes: it is new, and one too many.
        """
        return await self.change(scope, lambda state: state)

    async def change(self, scope: ScopeId, transition: Callable[[ScopeState], ScopeState]) -> ScopeState:
        """Apply `transition` to the state of `scope` and return the outcome; tried again when another got in between.

        Raises:
            TooManyScopes: `scope` is new, and one too many.
        """
        while True:
            old = await self.store.get(scope)
            current = old if old is not None else self._begin()
            new = transition(current)
            if new is old or await self.store.swap(scope, old, new):
                return new

    def sight(self, active: Collection[str]) -> Sight:
        """What is seen while the skills `active` are active."""
        inventory = self.upstreams.inventory()
        if inventory is not self._inventory:
            self._inventory = inventory
            self._sights.clear()
        key = frozenset(active)
        if key not in self._sights:
            if len(self._sights) >= SIGHTS:
                self._sights.clear()
            self._sights[key] = self._look(key, inventory)
        return self._sights[key]

    def lists(self, active: Collection[str]) -> Lists:
        """What a scope's clients see while the skills `active` are active, to compare with what they knew.

        Beside each list stands the `stable` one, of pinned skills alone (design rule 12).
        """
        sight = self.sight(active)
        stable = {f"stable {kind}": digest for kind, digest in self.sight(self.pinned).digests.items()}
        return Lists({**sight.digests, **stable}, frozenset(sight.view.tools))

    async def wait_for_servers(self, active: Collection[str], within: float) -> None:
        """Wait a little for the servers of active skills that are on their way (design rule 26)."""
        await self.upstreams.settled(self.catalogue.servers_of(active), within)

    def _begin(self) -> ScopeState:
        state = begin(self.catalogue)
        self.upstreams.need(self.catalogue.servers_of(state.active))
        return replace(state, lists=self.lists(state.active))

    def _look(self, active: frozenset[str], inventory: Inventory) -> Sight:
        view = decide(self.catalogue, active, inventory)
        own = [skill_tool(self.catalogue, active)] if self.catalogue.skills else []
        tools = own + [{**route.definition, "name": route.exposed} for route in view.tools.values()]
        resources = [dict(entry) for _, entry in view.resources]
        templates = [dict(entry) for _, entry in view.templates]
        prompts = [{**route.definition, "name": route.exposed} for route in view.prompts.values()]
        digests = {
            "tools": _digest(tools),
            "resources": _digest([resources, templates]),
            "prompts": _digest(prompts),
        }
        return Sight(view, tools, resources, templates, prompts, digests)


def _digest(listed: object) -> str:
    return hashlib.sha256(json.dumps(listed).encode()).hexdigest()
