"""Who may use which skills: profiles in the order of the file, the first that holds for a scope."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Final

from proxy.core.catalogue import EVERYTHING, NOTHING, Allow, Catalogue, Skill
from proxy.core.limits import NOTHING_SAID, Limits
from proxy.core.relations import begin
from proxy.core.scope import ScopeId

ANYBODY: Final = "*"
"""The pattern that matches a scope without a name, too."""


@dataclass(frozen=True)
class Profile:
    """What the scopes that it holds for may use.

    `namespace`, `principal`: patterns on their names; both count where both are given. `allowed`, `denied`: skills.
    `capabilities`: what skills may require. `active`: the skills that are active at the start, None for those that say
    so themselves; pinned ones are always. `max_active`: most skills active at a time, pinned ones aside.
    """

    namespace: str | None = None
    principal: str | None = None
    allowed: Allow = EVERYTHING
    denied: Allow = NOTHING
    capabilities: Allow = NOTHING
    active: tuple[str, ...] | None = None
    max_active: int | None = None
    limits: Limits = NOTHING_SAID
    """What each principal may use within the profile; what it does not say, the settings do."""

    def holds(self, scope: ScopeId) -> bool:
        """Whether it is meant for `scope`; one without a namespace, or principal, is matched by `*` alone."""
        namespace = scope.name if scope.kind == "namespace" else None
        return _matches(self.namespace, namespace) and _matches(self.principal, scope.user)

    def may_use(self, skill: Skill) -> bool:
        """Whether `skill` is for it, by itself."""
        if not self.allowed.allows(skill.id) or self.denied.allows(skill.id):
            return False
        return all(self.capabilities.allows(capability) for capability in skill.capabilities)


EVERYBODY: Final = Profile(namespace=ANYBODY)
"""The one profile where the configuration has none."""


@dataclass(frozen=True)
class Policy:
    """The whole configuration, and what of it exists for each scope."""

    catalogue: Catalogue
    profiles: Sequence[Profile] = (EVERYBODY,)

    def of(self, scope: ScopeId) -> Catalogue:
        """The catalogue of `scope`: what its profile may not use does not exist in it. Without a profile it is empty.

        The same object for all scopes of a profile.
        """
        if self._of_all is not None:
            return self._of_all
        for profile, catalogue in zip(self.profiles, self.catalogues, strict=True):
            if profile.holds(scope):
                return catalogue
        return self._empty

    def profile_of(self, scope: ScopeId) -> Profile | None:
        """The first profile that holds for `scope`, if one does."""
        return next((profile for profile in self.profiles if profile.holds(scope)), None)

    def at_once(self, scope: ScopeId | None = None) -> list[str]:
        """The servers that `scope`, or any scope, needs before its first call, in the order of the file."""
        catalogues = self.catalogues if scope is None else (self.of(scope),)
        wanted = {server for catalogue in catalogues for server in catalogue.needed_by(begin(catalogue).active)}
        wanted.update(self.catalogue.start_tools)
        return [server for server in self.catalogue.servers if server in wanted]

    @cached_property
    def catalogues(self) -> tuple[Catalogue, ...]:
        """The catalogue of each profile."""
        return tuple(restricted(self.catalogue, profile) for profile in self.profiles)

    @cached_property
    def _of_all(self) -> Catalogue | None:
        """The catalogue of all scopes, where the first profile holds for all; every call asks."""
        first = next(iter(self.profiles), None)
        return self.catalogues[0] if first is not None and first.holds(ScopeId("process")) else None

    @cached_property
    def _empty(self) -> Catalogue:
        return replace(self.catalogue, skills=(), on_start=())


def restricted(catalogue: Catalogue, profile: Profile) -> Catalogue:
    """`catalogue` as it is for `profile`; a skill goes, too, where one goes that it requires."""
    usable = {skill.id: skill for skill in catalogue.skills if profile.may_use(skill)}
    needing: dict[str, list[str]] = {}
    for skill in usable.values():
        for other in skill.requires:
            needing.setdefault(other, []).append(skill.id)
    absent = [other for other in needing if other not in usable]
    while absent:
        lacking = [skill for skill in needing.get(absent.pop(), ()) if skill in usable]
        absent += lacking
        for skill in lacking:
            usable.pop(skill, None)
    skills = tuple(_begun(skill, profile) for skill in usable.values())
    return replace(catalogue, skills=skills, max_active=profile.max_active)


def _begun(skill: Skill, profile: Profile) -> Skill:
    """`skill`, active from the start if the profile says so; the same object where that makes no difference."""
    active = skill.active if profile.active is None else skill.id in profile.active
    return skill if skill.active == active else replace(skill, active=active)


def _matches(pattern: str | None, name: str | None) -> bool:
    if pattern is None or pattern == ANYBODY:
        return True
    return name is not None and fnmatchcase(name, pattern)
