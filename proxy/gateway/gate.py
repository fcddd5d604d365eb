"""The gate at work: a scope's state, and what it may see by the one decision, remembered while nothing changes."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, TypeAlias

from proxy.core.call_route import call_route_digest
from proxy.core.catalogue import Catalogue, Skill
from proxy.core.decision import Start, Step, View, decide
from proxy.core.definitions import NO_GRANT, grants
from proxy.core.inventory import Inventory
from proxy.core.profiles import Policy
from proxy.core.relations import begin, gone, refitted
from proxy.core.scope import Lists, ScopeId, ScopeState
from proxy.core.settings import Settings
from proxy.gateway.quotas import Quotas
from proxy.gateway.scope_view import ScopeView, SkillLists, scope_view, skill_lists
from proxy.ports import ScopeStore, Upstreams

_StepView: TypeAlias = tuple[Catalogue, Inventory, View]

DEFAULTS: Final = Settings()
VIEWS_LIMIT: Final = 64
"""How many pairs of an inventory and a set of active skills are remembered with what they show."""


class Gate:
    """Scope states and sights, from the configuration in force, the store and the servers' inventory.

    `eager`: the servers that are started with a scope, whatever is active in it. `on_gone`: called with skills that a
    change of the configuration has ended in a scope, in order of activation, and the state before.
    """

    def __init__(
        self,
        policy: Policy,
        upstreams: Upstreams,
        store: ScopeStore,
        settings: Settings = DEFAULTS,
        eager: Collection[str] = (),
        quotas: Quotas | None = None,
    ) -> None:
        self.policy = self._before = policy
        self.upstreams = upstreams
        self.store = store
        self.settings = settings
        self.quotas = quotas or Quotas(policy, settings)
        self._eager = eager
        self._sights: dict[tuple[int, int, frozenset[str]], ScopeView] = {}
        self._lists_of_skills: dict[int, SkillLists] = {}
        self._step_views: dict[tuple[int, int, Step | Start], _StepView] = {}
        self.on_gone: Callable[[ScopeId, Sequence[Skill], ScopeState], None] = lambda _scope, _skills, _before: None

    def adopt(self, policy: Policy, settings: Settings, eager: Collection[str]) -> None:
        """This is the configuration from now on: every decision goes by it at once. `refit` has to follow."""
        self._before = self.policy
        self.policy, self.settings, self._eager = policy, settings, eager
        self.quotas.adopt(policy, settings)
        self._sights.clear()
        self._lists_of_skills.clear()
        self._step_views.clear()

    def catalogue(self, scope: ScopeId) -> Catalogue:
        """What of the configuration exists for `scope`; nothing else does, for any use."""
        return self.policy.of(scope)

    async def refit(self) -> None:
        """Bring every scope up to the configuration: what is active in it exists, and its servers are held."""
        for scope in await self.store.scopes():
            if await self.store.get(scope) is not None:
                before, state = await self.changed(scope, partial(self._refitted, scope))
                self._hold(scope, state)
                if ended := gone(self._before.of(scope), before, state):
                    self.on_gone(scope, ended, before)

    async def state(self, scope: ScopeId) -> ScopeState:
        """The state of `scope`, begun if it is new.

        Raises:
            TooManyScopes, PastLimit: it is new, and one too many.
        """
        state = await self.store.get(scope)
        return state if state is not None else await self.change(scope, lambda state: state)

    async def change(self, scope: ScopeId, transition: Callable[[ScopeState], ScopeState]) -> ScopeState:
        """Apply `transition` to the state of `scope` and return the outcome; tried again when another got in between.

        Raises:
            TooManyScopes, PastLimit: `scope` is new, and one too many.
        """
        return (await self.changed(scope, transition))[1]

    async def changed(
        self, scope: ScopeId, transition: Callable[[ScopeState], ScopeState]
    ) -> tuple[ScopeState, ScopeState]:
        """As `change`; the state before, and the outcome.

        Raises:
            TooManyScopes, PastLimit: `scope` is new, and one too many.
        """
        while True:
            old = await self.store.get(scope)
            if old is None:
                await self._begin(scope)
                continue
            new = transition(old)
            if new is old:
                return old, new
            if await self.store.swap(scope, old, new):
                if new.active != old.active:
                    self._hold(scope, new)
                return old, new

    def sight(self, scope: ScopeId, active: Collection[str]) -> ScopeView:
        """What is seen in `scope` while the skills `active` are active."""
        inventory, catalogue = self.upstreams.inventory(scope), self.catalogue(scope)
        key = (id(catalogue), id(inventory), frozenset(active))
        found = self._sights.get(key)
        if found is None:  # as long as it is remembered, no other inventory has this one's id
            if len(self._sights) >= VIEWS_LIMIT:
                self._sights.clear()
            found = self._sights[key] = scope_view(self._skill_lists(catalogue), key[2], inventory, self.settings)
        return found

    def step_view(self, scope: ScopeId, actor: Step | Start, catalogue: Catalogue) -> View:
        """What a step may use in `scope`; in `catalogue`: a skill that is gone from the scope's may have yet to end."""
        inventory = self.upstreams.inventory(scope)
        key = (id(catalogue), id(inventory), actor)
        found = self._step_views.get(key)
        if found is None or found[0] is not catalogue or found[1] is not inventory:
            if len(self._step_views) >= VIEWS_LIMIT:
                self._step_views.clear()
            found = self._step_views[key] = catalogue, inventory, decide(catalogue, (), inventory, actor)
        return found[2]

    def shown_skills(self, scope: ScopeId, active: Collection[str]) -> Collection[str]:
        """Of the skills that are `active`, those whose lists are shown: the pinned ones, where lists never change."""
        return self.catalogue(scope).pinned if self.settings.listing == "stable" else active

    def shown(self, scope: ScopeId, active: Collection[str]) -> ScopeView:
        """What the lists of a scope show while the skills `active` are active."""
        return self.sight(scope, self.shown_skills(scope, active))

    def lists(self, scope: ScopeId, active: Collection[str]) -> Lists:
        """What a scope's clients see while the skills `active` are active, to compare with what they knew."""
        shown = self.shown(scope, active)
        return {**shown.digests, "tools": shown.digests["tools"] + call_route_digest(self.settings)}

    def _hold(self, scope: ScopeId, state: ScopeState) -> None:
        catalogue = self.catalogue(scope)
        eager = (server for server in catalogue.needed if server in self._eager)
        granted = grants(catalogue, state.active)
        needed = dict.fromkeys([*catalogue.needed_by(state.active), *eager])
        self.upstreams.hold(scope, {server: granted.get(server, NO_GRANT) for server in needed})

    def _refitted(self, scope: ScopeId, state: ScopeState) -> ScopeState:
        return refitted(state, self.catalogue(scope))

    async def _begin(self, scope: ScopeId) -> None:
        """Begin `scope`, with the skills that it had in an earlier run; another may have got in between and done it."""
        remembered = await self.store.remembered(scope)
        state = begin(self.catalogue(scope)) if remembered is None else self._refitted(scope, remembered)
        taken = self.quotas.begin(scope)
        try:
            begun = await self.store.swap(scope, None, replace(state, lists=self.lists(scope, state.active)))
        except BaseException:  # it is one too many, or the request was cancelled
            if taken:
                self.quotas.end(scope)
            raise
        if begun:
            self._hold(scope, state)  # not before it has begun: a scope that is refused starts nothing

    def _skill_lists(self, catalogue: Catalogue) -> SkillLists:
        """What is the same for all active sets, made once."""
        found = self._lists_of_skills.get(id(catalogue))
        if found is None:  # as long as it is remembered, no other catalogue has this one's id
            found = self._lists_of_skills[id(catalogue)] = skill_lists(catalogue, self.settings.publish)
        return found
