"""Skills that can never be as they are to be: in circles, or with conflicts among what is active together."""

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

SHOWN: Final = 8
"""Skills of a circle that are named."""


@dataclass(frozen=True)
class Relations:
    """What is said of the skills that there are.

    `requires`: for each, in order, those that it requires. `conflicts`: those that cannot be active beside it, where
    there are any. `begin`: those that are to be active from the start; where two of them conflict, the first stays.
    """

    requires: Mapping[str, Sequence[str]]
    conflicts: Mapping[str, Collection[str]]
    begin: Sequence[str]

    @property
    def pairs(self) -> Iterator[tuple[str, str]]:
        """Every two that conflict, once, in order."""
        places = {skill: place for place, skill in enumerate(self.requires)}
        both = {
            (min(places[skill], places[other]), max(places[skill], places[other]))
            for skill, others in self.conflicts.items()
            for other in others
            if other != skill
        }
        skills = tuple(self.requires)
        return ((skills[one], skills[other]) for one, other in sorted(both))

    def above(self, skill: str) -> set[str]:
        """The skill, and all that require it, directly or not."""
        return {*_reached(skill, lambda one: self.needing.get(one, ())), skill}

    @cached_property
    def needing(self) -> Mapping[str, Sequence[str]]:
        """By skill, those that require it."""
        needing: dict[str, list[str]] = {}
        for skill, required in self.requires.items():
            for other in required:
                needing.setdefault(other, []).append(skill)
        return needing


def circles(relations: Relations) -> Iterator[tuple[str, ...]]:
    """Circles of skills, each of which requires the next one; whoever is in any is in one of these."""
    settled: set[str] = set()
    for skill in _unending(relations):
        if skill not in settled and (circle := _circle(relations, skill)):
            settled.update(circle)
            yield circle


def described(circle: Sequence[str], skill: str) -> str:
    """What is wrong with a skill of a circle, in words."""
    at = circle.index(skill)
    turned = [*circle[at:], *circle[:at]]
    shown = turned if len(turned) <= SHOWN else [*turned[: SHOWN - 1], "…"]
    return f"it requires itself: {' -> '.join([*shown, skill])}"


def impossible(relations: Relations) -> Mapping[str, str]:
    """The skills that require what conflicts, each with the reason."""
    reasons: dict[str, str] = {}
    for one, other in relations.pairs:
        for skill in relations.above(one) & relations.above(other):
            if skill in {one, other}:
                why = f"it requires {other if skill == one else one}, which conflicts with it"
            else:
                why = f"it requires {one} and {other}, which conflict"
            reasons.setdefault(skill, why)
    return {skill: reasons[skill] for skill in relations.requires if skill in reasons}


def clashing(relations: Relations) -> Mapping[str, str]:
    """The skills that cannot be active from the start, since earlier ones are, with the reason."""
    order = {skill: place for place, skill in enumerate(relations.begin)}
    faults: list[tuple[int, int, str]] = []
    for pair in relations.pairs:
        sides = [relations.above(skill) & order.keys() for skill in pair]
        first = min(sides[0] | sides[1], key=order.__getitem__, default=None)
        if first is None or sides[0] & sides[1]:
            continue
        against = sides[1] if first in sides[0] else sides[0]
        faults += [(order[skill], order[first], _beside(skill, first, pair)) for skill in against]
    reasons: dict[str, str] = {}
    for later, earlier, why in sorted(faults):
        if relations.begin[earlier] not in reasons:
            reasons.setdefault(relations.begin[later], why)
    return reasons


def _beside(later: str, earlier: str, pair: tuple[str, str]) -> str:
    if {later, earlier} == {*pair}:
        return f"it is active from the start, and so is {earlier}, with which it conflicts"
    return f"it is active from the start, and so is {earlier}: that takes {pair[0]} and {pair[1]}, which conflict"


def _unending(relations: Relations) -> list[str]:
    """The skills from which a way through those that are required has no end."""
    left = {skill: len(required) for skill, required in relations.requires.items()}
    ended = [skill for skill, count in left.items() if not count]
    while ended:
        skill = ended.pop()
        del left[skill]
        for other in relations.needing.get(skill, ()):
            left[other] -= 1
            if not left[other]:
                ended.append(other)
    return [*left]


def _circle(relations: Relations, skill: str) -> tuple[str, ...]:
    """The shortest way from a skill through those that are required back to it; empty where there is none."""
    before = _reached(skill, relations.requires.__getitem__)
    if skill not in before:
        return ()
    way = [before[skill]]
    while way[-1] != skill:
        way.append(before[way[-1]])
    return tuple(reversed(way))


def _reached(skill: str, ways: Callable[[str], Sequence[str]]) -> dict[str, str]:
    """All that a skill leads to, each with the one before it on the shortest way."""
    before: dict[str, str] = {}
    waiting = deque([skill])
    while waiting:
        one = waiting.popleft()
        for other in ways(one):
            if other not in before:
                before[other] = one
                if other != skill:
                    waiting.append(other)
    return before
