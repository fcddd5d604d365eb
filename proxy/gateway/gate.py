"""The gate at work: a scope's state, and what it may see by the one decision, remembered while nothing changes."""

import hashlib
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from proxy.core.catalogue import Catalogue, Skill
from proxy.core.decision import Start, Step, View, decide
from proxy.core.inventory import Inventory, Listed
from proxy.core.invoke_tool import hooks_harmless, invoke_tool, skill_as_tool
from proxy.core.profiles import Policy
from proxy.core.published import skill_prompts, skill_resources, skill_templates
from proxy.core.relations import begin, gone, refitted
from proxy.core.scope import Lists, ScopeId, ScopeState
from proxy.core.settings import Settings
from proxy.core.skill_tool import skill_call_tool, skill_tool
from proxy.ports import ScopeStore, Upstreams

DEFAULTS: Final = Settings()
SIGHTS: Final = 64
"""How many pairs of an inventory and a set of active skills are remembered with what they show."""


@dataclass(frozen=True)
class Sight:
    """What is seen in one catalogue with one set of active skills: the view, and its lists as clients get them.

    `with_call`: the tools with `SKILL_CALL` among them, which depends on the client. `own_tools`: the active skills
    that are tools, by exposed name. `digests`: of the lists, by kind.
    """

    catalogue: Catalogue
    inventory: Inventory
    view: View
    tools: Listed
    with_call: Listed
    own_tools: Mapping[str, str]
    resources: Listed
    templates: Listed
    prompts: Listed
    digests: Mapping[str, str]


@dataclass(frozen=True)
class _Own:
    """What the skills of a catalogue themselves are to clients, whatever is active; `digests`: of these, by kind."""

    catalogue: Catalogue
    resources: list[dict[str, Any]]
    templates: list[dict[str, Any]]
    prompts: list[dict[str, Any]]
    digests: Mapping[str, str]


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
    ) -> None:
        self.policy = self._before = policy
        self.upstreams = upstreams
        self.store = store
        self.settings = settings
        self._eager = eager
        self._sights: dict[tuple[int, int, frozenset[str]], Sight] = {}
        self._owns: dict[int, _Own] = {}
        self._step_views: dict[tuple[int, int, Step | Start], tuple[Catalogue, Inventory, View]] = {}
        self.on_gone: Callable[[ScopeId, Sequence[Skill], ScopeState], None] = lambda _scope, _skills, _before: None

    def adopt(self, policy: Policy, settings: Settings, eager: Collection[str]) -> None:
        """This is the configuration from now on: every decision goes by it at once. `refit` has to follow."""
        self._before = self.policy
        self.policy, self.settings, self._eager = policy, settings, eager
        self._sights.clear()
        self._owns.clear()
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
            TooManyScopes: it is new, and one too many.
        """
        state = await self.store.get(scope)
        return state if state is not None else await self.change(scope, lambda state: state)

    async def change(self, scope: ScopeId, transition: Callable[[ScopeState], ScopeState]) -> ScopeState:
        """Apply `transition` to the state of `scope` and return the outcome; tried again when another got in between.

        Raises:
            TooManyScopes: `scope` is new, and one too many.
        """
        return (await self.changed(scope, transition))[1]

    async def changed(
        self, scope: ScopeId, transition: Callable[[ScopeState], ScopeState]
    ) -> tuple[ScopeState, ScopeState]:
        """As `change`; the state before, and the outcome.

        Raises:
            TooManyScopes: `scope` is new, and one too many.
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

    def sight(self, scope: ScopeId, active: Collection[str]) -> Sight:
        """What is seen in `scope` while the skills `active` are active."""
        inventory, catalogue = self.upstreams.inventory(scope), self.catalogue(scope)
        key = (id(catalogue), id(inventory), frozenset(active))
        found = self._sights.get(key)
        if found is None:  # as long as it is remembered, no other inventory has this one's id
            if len(self._sights) >= SIGHTS:
                self._sights.clear()
            found = self._sights[key] = self._look(catalogue, key[2], inventory)
        return found

    def step_view(self, scope: ScopeId, actor: Step | Start, catalogue: Catalogue) -> View:
        """What a step may use in `scope`; in `catalogue`: a skill that is gone from the scope's may have yet to end."""
        inventory = self.upstreams.inventory(scope)
        key = (id(catalogue), id(inventory), actor)
        found = self._step_views.get(key)
        if found is None or found[0] is not catalogue or found[1] is not inventory:
            if len(self._step_views) >= SIGHTS:
                self._step_views.clear()
            found = self._step_views[key] = catalogue, inventory, decide(catalogue, (), inventory, actor)
        return found[2]

    def lists(self, scope: ScopeId, active: Collection[str]) -> Lists:
        """What a scope's clients see while the skills `active` are active, to compare with what they knew.

        Beside each list stands the one of modern clients, which may be of pinned skills alone (design rule 12).
        """
        sight, stable = self.sight(scope, active), self.settings.modern_listing == "stable"
        modern = self.sight(scope, self.catalogue(scope).pinned) if stable else sight
        digests = {**sight.digests, **{f"modern {kind}": digest for kind, digest in modern.digests.items()}}
        digests["tools"] += _call_route(self.settings, stable=False)
        digests["modern tools"] += _call_route(self.settings, stable=stable)
        return Lists(digests, frozenset((*sight.own_tools, *sight.view.tools)))

    def _hold(self, scope: ScopeId, state: ScopeState) -> None:
        catalogue = self.catalogue(scope)
        eager = (server for server in catalogue.needed if server in self._eager)
        self.upstreams.hold(scope, {*catalogue.needed_by(state.active), *eager})

    def _refitted(self, scope: ScopeId, state: ScopeState) -> ScopeState:
        return refitted(state, self.catalogue(scope))

    async def _begin(self, scope: ScopeId) -> None:
        """Begin `scope`, with the skills that it had in an earlier run; another may have got in between and done it."""
        remembered = await self.store.remembered(scope)
        state = begin(self.catalogue(scope)) if remembered is None else self._refitted(scope, remembered)
        if await self.store.swap(scope, None, replace(state, lists=self.lists(scope, state.active))):
            self._hold(scope, state)  # not before it has begun: a scope that is refused starts nothing

    def _look(self, catalogue: Catalogue, active: frozenset[str], inventory: Inventory) -> Sight:
        view = decide(catalogue, active, inventory)
        ours = self._own(catalogue)
        harmless = hooks_harmless(catalogue, inventory)
        own = [skill_tool(catalogue, active, self.settings.guidance, harmless=harmless)] if catalogue.skills else []
        as_tools = [skill for skill in catalogue.skills if skill.id in active and skill.id in catalogue.naming.tools]
        tools = [invoke_tool(catalogue, inventory)] if catalogue.invocable else []
        tools += [skill_as_tool(skill, catalogue, inventory) for skill in as_tools]
        tools += [{**route.definition, "name": route.exposed} for route in view.tools.values()]
        resources = [{**route.definition, "uri": route.exposed} for route in view.resources]
        templates = [{**route.definition, "uriTemplate": route.exposed} for route in view.templates]
        prompts = [{**route.definition, "name": route.exposed} for route in view.prompts.values()]
        skills = [[skill.exposed, skill.definition] for skill in view.skills]
        digests = {
            "tools": _digest([*own, *tools]),
            "resources": _digest([ours.digests["resources"], resources, templates, skills]),
            "prompts": _digest([ours.digests["prompts"], prompts]),
        }
        return Sight(
            catalogue=catalogue,
            inventory=inventory,
            view=view,
            tools=Listed([*own, *tools]),
            with_call=Listed([*own, skill_call_tool(), *tools]),
            own_tools={catalogue.naming.tool_of(skill.id): skill.id for skill in as_tools},
            resources=Listed([*ours.resources, *resources]),
            templates=Listed([*ours.templates, *templates]),
            prompts=Listed([*ours.prompts, *prompts]),
            digests=digests,
        )

    def _own(self, catalogue: Catalogue) -> _Own:
        """What is the same for all active sets, made once: of very many skills it takes a while."""
        found = self._owns.get(id(catalogue))
        if found is None:  # as long as it is remembered, no other catalogue has this one's id
            resources, templates = skill_resources(catalogue), skill_templates(catalogue)
            prompts = skill_prompts(catalogue)
            digests = {"resources": _digest([resources, templates]), "prompts": _digest(prompts)}
            found = self._owns[id(catalogue)] = _Own(catalogue, resources, templates, prompts, digests)
        return found


def _call_route(settings: Settings, *, stable: bool) -> str:
    """Who sees `SKILL_CALL`, in a text that is another when that changes (design rule 17)."""
    if settings.call_route != "auto":
        return settings.call_route
    return "on" if stable else f"auto {' '.join(settings.call_route_clients)}"


def _digest(listed: object) -> str:
    return hashlib.sha256(json.dumps(listed).encode()).hexdigest()
