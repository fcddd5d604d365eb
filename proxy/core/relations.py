"""Activating and offloading: what else becomes active or goes with a skill, and what stands in the way.

In a catalogue, as it is here, no skill requires itself, or two that conflict.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from proxy.core.catalogue import Catalogue, Skill
from proxy.core.scope import ScopeState


class Hindrance(Enum):
    """What stands in the way of a change."""

    PINNED = "it is pinned"
    NEEDED = "active skills require it"
    CONFLICT = "it conflicts with an active skill"
    KEPT = "it would replace a skill that has to stay"
    TOO_MANY = "as many skills are active as may be"


@dataclass(frozen=True)
class Blocked:
    """Why a change is not made: `skill` is the one in question, `by` are the active skills in its way.

    `skill` is another than the wanted one where that requires it.
    """

    why: Hindrance
    skill: str
    by: tuple[str, ...] = ()


def required(catalogue: Catalogue, skill: str) -> tuple[str, ...]:
    """The skills that `skill` requires, directly or not, each after those that it requires itself."""
    known = catalogue.by_id
    if skill not in known or not known[skill].requires:
        return ()
    found: list[str] = []
    opened = {skill}
    ways = [(skill, iter(known[skill].requires))]
    while ways:
        one, others = ways[-1]
        other = next((other for other in others if other not in opened and other in known), None)
        if other is None:
            found.append(one)
            ways.pop()
        else:
            opened.add(other)
            ways.append((other, iter(known[other].requires)))
    return tuple(found[:-1])


def activated(catalogue: Catalogue, state: ScopeState, wanted: str) -> ScopeState | Blocked:
    """The state with `wanted`, which exists, active, and what it requires; the same object when nothing changes."""
    joining = tuple(skill for skill in (*required(catalogue, wanted), wanted) if skill not in state.active)
    by_demand = (state.by_demand | {*joining}) - {wanted} - catalogue.pinned
    if not joining:
        return state if by_demand == state.by_demand else replace(state, by_demand=by_demand)
    leaving: dict[str, None] = {}
    for skill in joining:
        in_the_way = _in_conflict(catalogue, state.active, skill)
        if in_the_way and not catalogue.by_id[skill].exclusive:
            return Blocked(Hindrance.CONFLICT, skill, in_the_way)
        leaving |= dict.fromkeys(in_the_way)
    staying = tuple(skill for skill in state.active if skill not in leaving)
    active = _without_orphans(catalogue, (*staying, *joining), by_demand)
    if kept := tuple(skill for skill in leaving if _has_to_stay(catalogue, active, skill)):
        return Blocked(Hindrance.KEPT, wanted, kept)
    if not _fits(catalogue, active):
        return Blocked(Hindrance.TOO_MANY, wanted, tuple(s for s in active if s in state.active))
    gone = frozenset(state.active) - {*active}
    return replace(
        state,
        active=active,
        by_demand=by_demand & {*active},
        offloaded=(state.offloaded | gone) - {*active},
        expired=state.expired - {*active},
        due=state.due - gone,
    )


def made_room(catalogue: Catalogue, state: ScopeState, wanted: str) -> ScopeState:
    """The state without the skills in whose place `wanted` comes; the same object where it takes nobody's place.

    What only they required goes as well, unless `wanted` requires it.
    """
    after = activated(catalogue, state, wanted)
    if isinstance(after, Blocked) or {*state.active} <= {*after.active}:
        return state
    return _only(state, tuple(skill for skill in state.active if skill in after.active))


def without_orphans(catalogue: Catalogue, state: ScopeState) -> ScopeState:
    """The state without skills that were only required, and that nobody requires any more; the same without any."""
    active = _without_orphans(catalogue, state.active, state.by_demand)
    return state if active == state.active else _only(state, active)


def _only(state: ScopeState, active: tuple[str, ...]) -> ScopeState:
    """The state where of the active skills only these are left."""
    return replace(
        state,
        active=active,
        by_demand=state.by_demand & {*active},
        offloaded=state.offloaded | (frozenset(state.active) - {*active}),
        due=state.due & {*active},
    )


def offloaded(catalogue: Catalogue, state: ScopeState, wanted: str) -> ScopeState | Blocked:
    """The state with `wanted` not active, nor what nobody else requires; the same object when it was not active."""
    if wanted not in state.active:
        return state
    if wanted in catalogue.pinned:
        return Blocked(Hindrance.PINNED, wanted)
    staying = tuple(skill for skill in state.active if skill != wanted)
    if needing := tuple(skill for skill in staying if wanted in required(catalogue, skill)):
        return Blocked(Hindrance.NEEDED, wanted, needing)
    return _only(state, _without_orphans(catalogue, staying, state.by_demand))


def first_to_go(hindrance: Blocked, catalogue: Catalogue, current: Sequence[str]) -> str | None:
    """A skill of `current`, which are active, that can be offloaded and whose going helps; None where none does."""
    if hindrance.why is Hindrance.TOO_MANY:
        helping = [*current]
    else:
        helping = [skill for skill in current if not {skill, *required(catalogue, skill)}.isdisjoint(hindrance.by)]
        if not catalogue.pinned.isdisjoint(helping):
            return None
    needed = {*catalogue.pinned, *(other for skill in current for other in required(catalogue, skill))}
    return next((skill for skill in helping if skill not in needed), None)


def expired(catalogue: Catalogue, state: ScopeState, skills: Iterable[str]) -> ScopeState:
    """The state after `skills` were not used for as long as they may; those that have to stay do."""
    for skill in sorted(skills, key=lambda skill: -len(required(catalogue, skill))):  # what is required comes later
        after = offloaded(catalogue, state, skill) if skill in catalogue.by_id else state
        if isinstance(after, ScopeState) and after is not state:
            state = replace(after, expired=after.expired | (after.offloaded - state.offloaded))
    return state


def not_begun(catalogue: Catalogue, state: ScopeState, skill: str) -> ScopeState | None:
    """The state without an active `skill` that could not begin, and what goes with it; None where it has to stay."""
    leaving = {skill, *(other for other in state.active if skill in required(catalogue, other))}
    if any(other in leaving for other in _always(catalogue)):
        return None
    staying = tuple(other for other in state.active if other not in leaving)
    active = _without_orphans(catalogue, staying, state.by_demand)
    return replace(state, active=active, by_demand=state.by_demand & {*active}, due=state.due & {*active})


def told(state: ScopeState) -> ScopeState:
    """The state after the client was told which skills have expired; the same object when there are none."""
    return replace(state, expired=frozenset()) if state.expired else state


def begin(catalogue: Catalogue) -> ScopeState:
    """The state a scope begins with: the skills that are active or pinned by configuration, with what they require.

    Where they stand in each other's way, pinned ones come, then those that are first in the file.
    """
    wanted = (skill.id for skill in catalogue.skills if skill.active or skill.pinned)
    return _due(catalogue, ScopeState(), _with(catalogue, ScopeState(), wanted))


def gone(catalogue: Catalogue, before: ScopeState, after: ScopeState) -> list[Skill]:
    """The skills of `catalogue` that are not active any more, in order of activation."""
    ids = (skill for skill in before.active if skill not in after.active)
    return [catalogue.by_id[skill] for skill in ids if skill in catalogue.by_id]


def refitted(state: ScopeState, catalogue: Catalogue) -> ScopeState:
    """The state brought up to `catalogue`: what it has not is dropped, what it wants besides is added at the end.

    Where skills stand in each other's way by now, pinned ones stay, then those that were active first. The same object
    when nothing changes.
    """
    known = tuple(skill for skill in state.active if skill in catalogue.by_id)
    fresh = replace(
        state,
        active=known,
        by_demand=(state.by_demand & {*known}) - catalogue.pinned,
        offloaded=frozenset(skill for skill in state.offloaded if skill in catalogue.by_id) - {*known},
        expired=frozenset(skill for skill in state.expired if skill in catalogue.by_id) - {*known},
    )
    if not _sound(catalogue, fresh):
        wanted = [skill for skill in known if skill not in fresh.by_demand]
        wanted += [skill.id for skill in catalogue.skills if skill.pinned]
        anew = _with(catalogue, replace(fresh, active=(), by_demand=frozenset[str]()), wanted)
        if ({*anew.active}, anew.by_demand) != ({*known}, fresh.by_demand):  # else there is nothing better to be had
            fresh = replace(anew, offloaded=anew.offloaded | ({*known} - {*anew.active}))
    return state if fresh == state else _due(catalogue, state, fresh)


def _due(catalogue: Catalogue, before: ScopeState, after: ScopeState) -> ScopeState:
    """`after`, where what has become active, and has hooks, is due."""
    active = {*after.active}
    new = frozenset(skill for skill in active.difference(before.active) if catalogue.by_id[skill].hooked)
    return replace(after, due=(before.due & active) | new)


def _with(catalogue: Catalogue, state: ScopeState, skills: Iterable[str]) -> ScopeState:
    """The state with `skills` activated one after the other.

    Those are left out that are in the way of earlier ones, also where they are exclusive, or of what is always active.
    """
    always = _always(catalogue)
    for skill in skills:
        present = state.active if skill in catalogue.pinned else (*always, *state.active)
        if not any(_in_conflict(catalogue, present, one) for one in (skill, *required(catalogue, skill))):
            after = activated(catalogue, state, skill)
            state = after if isinstance(after, ScopeState) else state
    return state


def _sound(catalogue: Catalogue, state: ScopeState) -> bool:
    """Whether what is active may be so together, with all that it requires and nothing that nobody does."""
    active = state.active
    if not catalogue.pinned <= {*active} or not _fits(catalogue, active):
        return False
    if any(
        _in_conflict(catalogue, active, skill) or not {*required(catalogue, skill)} <= {*active} for skill in active
    ):
        return False
    return _without_orphans(catalogue, active, state.by_demand) == active


def _in_conflict(catalogue: Catalogue, active: Iterable[str], skill: str) -> tuple[str, ...]:
    rivals = catalogue.rivals.get(skill)
    return tuple(other for other in active if other in rivals) if rivals else ()


def _has_to_stay(catalogue: Catalogue, staying: Iterable[str], skill: str) -> bool:
    return skill in catalogue.pinned or any(skill in required(catalogue, other) for other in staying)


def _without_orphans(catalogue: Catalogue, active: tuple[str, ...], by_demand: Collection[str]) -> tuple[str, ...]:
    """What stays of `active`: all but those that were only required, and that nobody requires any more."""
    if not by_demand:
        return active
    needed = {*_needed(catalogue, (skill for skill in active if skill not in by_demand))}
    return tuple(skill for skill in active if skill not in by_demand or skill in needed or skill in catalogue.pinned)


def _needed(catalogue: Catalogue, skills: Iterable[str]) -> Iterator[str]:
    for skill in skills:
        yield from required(catalogue, skill)


def _always(catalogue: Catalogue) -> frozenset[str]:
    """The pinned skills, and what they require."""
    return catalogue.pinned.union(_needed(catalogue, catalogue.pinned))


def _fits(catalogue: Catalogue, active: Iterable[str]) -> bool:
    if catalogue.max_active is None:
        return True
    return len({*active} - _always(catalogue)) <= catalogue.max_active
