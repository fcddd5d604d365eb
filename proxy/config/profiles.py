"""The profiles of a configuration, and what is wrong or worth saying about them."""

from collections.abc import Collection, Mapping
from fnmatch import fnmatchcase
from typing import Final

from proxy.config.models import PROFILES, LimitsBlock, ProfileEntry, ProxyBlock
from proxy.config.problems import Findings, Place, did_you_mean
from proxy.config.skills import Offered
from proxy.config.validation import Parts
from proxy.core.catalogue import Allow, Catalogue, Skill, is_pattern
from proxy.core.names import Naming
from proxy.core.profiles import ANYBODY, EVERYBODY, Profile, restricted
from proxy.core.relations import Blocked, Hindrance, activated, begin

SHOWN: Final = 5
"""Skills of which the same is said that are named."""


def profiles_of(parts: Parts, offer: Offered, findings: Findings) -> tuple[Profile, ...]:
    """Who may use which of the skills on offer: what the file says, else the same for everybody."""
    _check_limits(parts.proxy.limits, ("proxy", "limits"), parts.proxy, findings)
    if parts.profiles is None:
        _note_capabilities(offer.skills, (), findings)
        return (EVERYBODY,)
    if not parts.profiles:
        findings.problem((PROFILES,), "is empty: nobody would get anything; write a profile, or leave it out")
    known = {skill.id: skill for skill in offer.skills}
    left_out = {each.id for each in offer.left_out}
    asked_for = {capability: None for skill in offer.skills for capability in skill.capabilities}
    catalogue = Catalogue((), Naming({}), offer.skills)
    profiles: list[Profile] = []
    for index, entry in enumerate(parts.profiles):
        place: Place = (PROFILES, index)
        profile = _profile(entry)
        _check_match(entry, place, profiles, parts, findings)
        for key, names in (("allowed_skills", entry.allowed_skills), ("denied_skills", entry.denied_skills)):
            _check_skills(names, (*place, key), known, left_out, findings)
        _check_skills(entry.active or (), (*place, "active"), known, left_out, findings, patterns=False)
        _check_capabilities(entry, place, asked_for, findings)
        _check_limits(entry.limits, (*place, "limits"), parts.proxy, findings)
        _check_start(restricted(catalogue, profile), profile, place, known, findings)
        profiles.append(profile)
    _note_capabilities(offer.skills, profiles, findings)
    return tuple(profiles)


def _profile(entry: ProfileEntry) -> Profile:
    return Profile(
        namespace=entry.namespace,
        principal=entry.principal,
        allowed=Allow.of(entry.allowed_skills),
        denied=Allow.of(entry.denied_skills),
        capabilities=Allow.of(entry.capabilities),
        active=entry.active,
        max_active=entry.max_active_skills,
        limits=entry.limits.limits,
    )


def _check_limits(limits: LimitsBlock, place: Place, proxy: ProxyBlock, findings: Findings) -> None:
    """Name limits by which one user of several could take what is another's."""
    users = len(proxy.tokens)
    bounds = {"sessions": proxy.max_scopes.session, "namespaces": proxy.max_scopes.namespace}
    for limit, bound in bounds.items():
        most = getattr(limits, limit)
        if users > 1 and most is not None and most * users > bound:
            setting = f"proxy.max_scopes.{limit.removesuffix('s')}"
            findings.note(
                (*place, limit), f"users can take all that others may have: {users} share {bound:,} ({setting})"
            )


def _check_match(
    entry: ProfileEntry, place: Place, earlier: Collection[Profile], parts: Parts, findings: Findings
) -> None:
    """Name a profile that holds for nobody."""
    if entry.namespace is None and entry.principal is None:
        what = 'names nobody: write namespace: or principal: with a name or pattern ("*" for everybody)'
        findings.problem(place, what)
    for profile in earlier:
        if _covers(profile.namespace, entry.namespace) and _covers(profile.principal, entry.principal):
            findings.note(place, "never holds: an earlier profile matches all that this one does")
            break
    name = entry.principal
    if name is not None and not is_pattern(name) and name not in parts.proxy.tokens:
        what = f"no user {name!r} has a token in proxy.tokens: {did_you_mean(name, parts.proxy.tokens)}"
        findings.note((*place, "principal"), what)


def _covers(pattern: str | None, other: str | None) -> bool:
    """Whether `pattern` matches all that `other` does, as far as that is plain."""
    if pattern is None or pattern in {ANYBODY, other}:
        return True
    return other is not None and not is_pattern(other) and fnmatchcase(other, pattern)


def _check_skills(
    names: Collection[str],
    place: Place,
    known: Mapping[str, Skill],
    left_out: Collection[str],
    findings: Findings,
    *,
    patterns: bool = True,
) -> None:
    """Name the skills that there are not."""
    for index, name in enumerate(names):
        if patterns and is_pattern(name):
            if name != ANYBODY and not any(map(Allow.of([name]).allows, known)):
                findings.note((*place, index), f"the pattern {name} matches no skill")
        elif name in left_out:
            findings.note((*place, index), f"the skill {name} is not offered")
        elif name not in known:
            findings.unknown_skill((*place, index), name, known)


def _check_capabilities(entry: ProfileEntry, place: Place, asked_for: Collection[str], findings: Findings) -> None:
    """Name the capabilities that no skill requires, by a slip perhaps."""
    for index, name in enumerate(entry.capabilities):
        if name != ANYBODY and not any(map(Allow.of([name]).allows, asked_for)):
            nearest = "" if is_pattern(name) or not asked_for else f": {did_you_mean(name, asked_for)}"
            findings.note((*place, "capabilities", index), f"no skill requires the capability {name}{nearest}")


def _check_start(
    catalogue: Catalogue, profile: Profile, place: Place, known: Collection[str], findings: Findings
) -> None:
    """Name what a profile starts with that it may not, or cannot; `catalogue`: what it may use, of `known`."""
    chosen = profile.active or ()
    for index, name in enumerate(chosen):
        if name in known and name not in catalogue.by_id:
            findings.note((*place, "active", index), f"the skill {name} is not among those that this profile may use")
    started = begin(catalogue)
    hindered: dict[str, list[str]] = {}
    for skill in catalogue.skills:
        if skill.active and skill.id not in started.active:
            after = activated(catalogue, started, skill.id)
            why = (after.why if isinstance(after, Blocked) else Hindrance.CONFLICT).value
            if skill.id in chosen:
                what = f"the skill {skill.id} cannot be active from the start: {why}"
                findings.problem((*place, "active", chosen.index(skill.id)), what)
            else:
                hindered.setdefault(why, []).append(skill.id)
    for why, skills in hindered.items():
        findings.note(place, f"{_listed(skills)} cannot be active from the start: {why}")
    if not catalogue.skills:
        findings.note(place, "nobody with this profile may use any skill")


def _note_capabilities(skills: Collection[Skill], profiles: Collection[Profile], findings: Findings) -> None:
    """Say which skills nobody can use, since no profile has what they require."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for skill in skills:
        alike.setdefault(skill.capabilities, []).append(skill.id)
    for capabilities, ids in alike.items():
        if any(all(map(profile.capabilities.allows, capabilities)) for profile in profiles):
            continue
        lacking = [c for c in capabilities if not any(profile.capabilities.allows(c) for profile in profiles)]
        if lacking:
            findings.note((PROFILES,), f"nobody may use {_listed(ids)}: no profile has the capability {lacking[0]}")
        elif capabilities:
            together = " and ".join(capabilities)
            findings.note((PROFILES,), f"nobody may use {_listed(ids)}: no profile has the capabilities {together}")


def _listed(skills: list[str]) -> str:
    """`the skill a`, `the skills a, b`, `the skills a, b, … (7 in all)`."""
    if len(skills) == 1:
        return f"the skill {skills[0]}"
    more = f", … ({len(skills):,} in all)" if len(skills) > SHOWN else ""
    return f"the skills {', '.join(skills[:SHOWN])}{more}"
