"""Skills whose steps invoke themselves, directly or through other skills."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from proxy.core.catalogue import Catalogue, Skill
from proxy.core.expressions import evaluate, faults
from proxy.core.inventory import items
from proxy.core.steps import Call, Parallel, Steps


class Invocation(NamedTuple):
    """A step that invokes a skill; `always`: whether nothing decides at run time if it does."""

    place: str
    skill: str
    always: bool


_Graph: TypeAlias = Mapping[str, Sequence[Invocation]]


class Loops:
    """What the skills of a catalogue invoke, and where that comes back to where it began."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._possible: _Graph = {
            skill.id: [one for one in invocations(skill.workflow.steps) if one.skill in catalogue.by_id]
            for skill in catalogue.skills
            if skill.workflow is not None
        }
        self._certain: _Graph = {skill: [one for one in found if one.always] for skill, found in self._possible.items()}

    def problems(self, skill: Skill) -> Iterator[str]:
        """Why a skill's steps, or hooks, would never end."""
        if way := _way_back(self._certain, skill.id):
            yield f"{way[0].place}: it invokes itself for ever: {_told(skill.id, way)}"
        for one in invocations((*skill.on_activate, *skill.on_offload)):
            if one.always and (end := self._endless(one.skill)):
                yield f"{one.place}: it invokes skill {one.skill}, which never ends: skill {end} invokes itself"

    def notes(self, skill: Skill) -> Iterator[str]:
        """Where it depends on a condition whether a skill's steps end."""
        if not _way_back(self._certain, skill.id) and (way := _way_back(self._possible, skill.id)):
            yield f"{way[0].place}: it may invoke itself, as a condition decides: {_told(skill.id, way)}"

    def start_problems(self, steps: Steps) -> Iterator[str]:
        """Why steps that belong to no skill would never end."""
        for one in invocations(steps):
            if one.always and (end := self._endless(one.skill)):
                yield f"{one.place}: it invokes skill {one.skill}, which never ends: skill {end} invokes itself"

    def _endless(self, skill: str) -> str | None:
        """The first skill that is certainly come to, and invokes itself for ever."""
        return next((one for one in _reached(self._certain, skill) if _way_back(self._certain, one)), None)


def invocations(steps: Steps) -> Iterator[Invocation]:
    """The invocations among steps, without those that are never made."""
    for step in steps:
        inner = step.steps if isinstance(step, Parallel) else (step,)
        outer = _decided(step.when) if isinstance(step, Parallel) else True
        for call in inner:
            made = (outer, _decided(call.when), _repeated(call))
            if call.skill and False not in made:
                yield Invocation(call.place, call.skill, None not in made)


def _decided(when: object) -> bool | None:
    """What a condition comes to, where that does not depend on anything."""
    if isinstance(when, bool):
        return when
    return None if any(faults(when, {})) else bool(evaluate(when, {}))


def _repeated(call: Call) -> bool | None:
    """Whether a step is done at least once, by what it is done for; None where that is not known."""
    values: object = call.for_each
    if values is None:
        return True
    return None if isinstance(values, str) else bool(items(values))


def _way_back(graph: _Graph, skill: str) -> Sequence[Invocation]:
    """The shortest chain of invocations from a skill to itself; empty where there is none."""
    ways = deque[tuple[Invocation, ...]]((one,) for one in graph.get(skill, ()))
    seen: set[str] = set()
    while ways:
        way = ways.popleft()
        last = way[-1].skill
        if last == skill:
            return way
        if last not in seen:
            seen.add(last)
            ways.extend((*way, one) for one in graph.get(last, ()))
    return ()


def _reached(graph: _Graph, skill: str) -> Iterable[str]:
    """A skill and all that it comes to."""
    found = {skill: None}
    waiting = [skill]
    while waiting:
        for one in graph.get(waiting.pop(), ()):
            if one.skill not in found:
                found[one.skill] = None
                waiting.append(one.skill)
    return found


def _told(skill: str, way: Sequence[Invocation]) -> str:
    return " -> ".join([skill, *(one.skill for one in way)])
