"""The skills that are offered: those of the file laid over those of folders, without what cannot be here."""

import os
import shutil
import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path

from proxy.config.library import FolderSkill, LeftOut, Library
from proxy.config.models import SKILLS, SkillEntry
from proxy.config.problems import Findings, Place
from proxy.core.catalogue import EVERYTHING, Allow, Catalogue, Skill
from proxy.core.names import Naming
from proxy.core.relations import conflict, required

SYSTEMS = {"linux": "linux", "darwin": "macos", "win32": "windows"}
"""How we call the systems that Python calls so."""
_KNOWN_AS = {"darwin": "macos", "mac": "macos", "osx": "macos", "win32": "windows", "win": "windows"}


@dataclass(frozen=True)
class Offered:
    """The skills of a configuration, in order; those that are not offered, each with one line of reason."""

    skills: tuple[Skill, ...]
    left_out: tuple[LeftOut, ...]


@dataclass(frozen=True)
class _Candidate:
    """A skill before it is known whether it can be offered.

    `found`: the folder that it is from. `place`: where the file has it, None where it has not; `over`: what that says.
    """

    id: str
    entry: SkillEntry
    found: FolderSkill | None
    place: Place | None = None
    over: frozenset[str] = frozenset()

    @property
    def where(self) -> str:
        return self.found.shown if self.found is not None else ""


def offered(
    entries: Mapping[str, SkillEntry],
    library: Library,
    servers: Mapping[str, bool],
    environ: Mapping[str, str],
    findings: Findings,
) -> Offered:
    """The skills of the file, `entries` by id, and of `library`.

    `servers`: whether each server of the file is on. What the file itself has wrong goes to `findings`; what a folder
    has wrong costs that skill alone.
    """
    candidates = _merged(entries, library, findings)
    _check_names(candidates, {*entries, *(one.id for one in (*library.skills, *library.left_out))}, findings)
    left_out = [*library.left_out]

    def leave_out(reasons: Mapping[str, str]) -> None:
        left_out.extend(LeftOut(id_, candidates.pop(id_).where, why) for id_, why in reasons.items())

    leave_out({id_: why for id_, one in candidates.items() if (why := _ineligible(one, servers, environ))})
    while reasons := _lacking(candidates) or _contradictory(candidates, findings):
        leave_out(reasons)
    return Offered(tuple(_skill(one) for one in candidates.values()), tuple(left_out))


def _merged(entries: Mapping[str, SkillEntry], library: Library, findings: Findings) -> dict[str, _Candidate]:
    """The skills of the file, over those of folders where both have them; then the other ones of folders."""
    folders = {found.id: found for found in library.skills}
    folded = {id_.casefold(): id_ for id_ in entries}
    merged: dict[str, _Candidate] = {}
    for id_, entry in entries.items():
        found, place = folders.get(id_), (SKILLS, id_)
        if found is None:
            merged[id_] = _Candidate(id_, entry, None, place)
            continue
        over = {name: getattr(entry, name) for name in entry.model_fields_set}
        findings.note(
            place, f"laid over {found.shown}: {', '.join(over)}" if over else f"adds nothing to {found.shown}"
        )
        merged[id_] = _Candidate(id_, found.entry.model_copy(update=over), found, place, frozenset(over))
    for id_, found in folders.items():
        twin = folded.get(id_.casefold())
        if twin is None:
            merged[id_] = _Candidate(id_, found.entry, found)
        elif twin != id_:
            findings.note((SKILLS, twin), f"{found.shown} is left out: its name differs from this one in case alone")
    return merged


def _ineligible(one: _Candidate, servers: Mapping[str, bool], environ: Mapping[str, str]) -> str:
    """Why a skill cannot be offered here, empty where it can."""
    if not one.entry.enabled:
        return "it is switched off: enabled: false"
    requires = one.entry.requires
    here = SYSTEMS.get(sys.platform, sys.platform)
    missing = [f"the program {name} is not on PATH" for name in requires.bins if not _on_path(name, environ)]
    missing += [f"the variable {name} is not set" for name in requires.env if not environ.get(name)]
    if requires.os and here not in {_KNOWN_AS.get(name.lower(), name.lower()) for name in requires.os}:
        missing.append(f"it is for {', '.join(requires.os)}, and this is {here}")
    unknown = [] if one.found is None else [p for p in one.found.unknown if not p.path.startswith(tuple(one.over))]
    missing += [f"{problem.path}: {problem.what}" for problem in unknown]
    for name in requires.servers:
        if name not in servers:
            missing.append(f"there is no server {name} in the configuration")
        elif not servers[name]:
            missing.append(f"the server {name} is switched off")
    return "; ".join(missing)


def _on_path(name: str, environ: Mapping[str, str]) -> bool:
    beside = str(Path(sys.executable).parent)
    return any(shutil.which(name, path=path) for path in (beside, environ.get("PATH", os.defpath)))


def _check_names(candidates: Mapping[str, _Candidate], known: Collection[str], findings: Findings) -> None:
    """Name the skills that the file speaks of and that there are not; folders may speak of what is not here."""
    for one in candidates.values():
        for relation in ("requires_skills", "conflicts_with"):
            for index, other in enumerate(
                getattr(one.entry, relation) if relation in one.over or not one.found else ()
            ):
                if other not in known:
                    findings.unknown_skill((SKILLS, one.id, relation, index), other, known)


def _lacking(candidates: Mapping[str, _Candidate]) -> Mapping[str, str]:
    """The skills that cannot be offered for want of one that they require, with the reason."""
    reasons: dict[str, str] = {}
    for id_, one in candidates.items():
        if absent := [other for other in one.entry.requires_skills if other not in candidates]:
            reasons[id_] = f"it requires the skill {absent[0]}, which is not offered"
    return reasons


def _contradictory(candidates: Mapping[str, _Candidate], findings: Findings) -> Mapping[str, str]:
    """The skills of folders that can never be as they are to be, with the reason; those of the file are problems."""
    catalogue = Catalogue((), Naming({}), tuple(_skill(one) for one in candidates.values()))
    faults = [(id_, why) for id_ in candidates if (why := _contradiction(catalogue, id_))]
    faults += _clashing_from_the_start(catalogue)
    for id_, why in faults:
        if (place := candidates[id_].place) is not None:
            findings.problem(place, why)
    return {id_: why for id_, why in faults if candidates[id_].place is None}


def _contradiction(catalogue: Catalogue, id_: str) -> str:
    """What stands against a skill ever being active, empty where nothing does."""
    if circle := _circle(catalogue, id_):
        return f"it requires itself: {' -> '.join(circle)}"
    together = [id_, *required(catalogue, id_)]
    for first, second in combinations(together, 2):
        if conflict(catalogue.by_id[first], catalogue.by_id[second]):
            return f"it requires {second}, which conflicts with {'it' if first == id_ else first}"
    return ""


def _circle(catalogue: Catalogue, id_: str) -> list[str]:
    """The way from a skill through those that are required back to it; empty where there is none."""
    ways = [[id_]]
    seen: set[str] = set()
    while ways:
        way = ways.pop()
        for other in catalogue.by_id[way[-1]].requires:
            if other == id_:
                return [*way, id_]
            if other in catalogue.by_id and other not in seen:
                seen.add(other)
                ways.append([*way, other])
    return []


def _clashing_from_the_start(catalogue: Catalogue) -> Iterator[tuple[str, str]]:
    """The skills that are to be active from the start beside earlier ones with which they conflict, and the reason.

    What a skill requires counts with it.
    """
    bringers: dict[str, list[str]] = {}
    for skill in catalogue.skills:
        if skill.active or skill.pinned:
            for one in (skill.id, *required(catalogue, skill.id)):
                bringers.setdefault(one, []).append(skill.id)
    order = {skill.id: index for index, skill in enumerate(catalogue.skills)}
    for one in bringers:
        for other in catalogue.by_id[one].conflicts:
            if other in bringers and other != one:
                pair = bringers[one][0], bringers[other][0]
                earlier, later = sorted(pair, key=order.__getitem__)
                what = f"{earlier}, with which it conflicts"
                if {one, other} != {earlier, later}:
                    what = f"{earlier}, and with them {one} and {other}, which conflict"
                yield later, f"it is active from the start, and so is {what}"


def _skill(one: _Candidate) -> Skill:
    """A skill as the gate sees it."""
    entry, found = one.entry, one.found

    def granted(lists: Mapping[str, tuple[str, ...]]) -> Mapping[str, Allow]:
        return {server: Allow.of(entries) if entries else EVERYTHING for server, entries in lists.items()}

    texts = one.over & {"name", "desc", "usage"}
    own_guide = found is None or "usage" in texts
    return Skill(
        id=one.id,
        name=one.id if entry.name is None else entry.name,
        desc=entry.desc,
        usage=entry.usage if own_guide else None,
        active=entry.active,
        pinned=entry.pinned,
        tools=granted(entry.tool_list),
        resources=granted(entry.resource_list),
        prompts=granted(entry.prompt_list),
        category=entry.category,
        tags=entry.tags,
        version=entry.version,
        author=entry.author,
        capabilities=entry.required_capabilities,
        requires=entry.requires_skills,
        conflicts=entry.conflicts_with,
        exclusive=entry.exclusive,
        idle_limit=None if entry.max_active_minutes is None else entry.max_active_minutes * 60,
        folder=replace(found.folder, verbatim=not texts) if found is not None else None,
    )
