"""The skills that are offered: those of the file laid over those of folders, without what cannot be here."""

import os
import shutil
import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from proxy.config.acting import NO_ACTS, Acts, Invoked, Nameable, Spot, acts, note_absent
from proxy.config.contradictions import Relations, circles, clashing, described, impossible
from proxy.config.library import FolderSkill, LeftOut, Library, alike, one_line, printable
from proxy.config.models import ACTING, BIND, HOOKS, SKILLS, STEPS, SkillEntry
from proxy.config.problems import Findings, Place
from proxy.config.skill_md import METADATA
from proxy.core.catalogue import EVERYTHING, Allow, Skill, differing
from proxy.core.steps import HOOK_TIMEOUT

SYSTEMS = {"linux": "linux", "darwin": "macos", "win32": "windows"}
"""How we call the systems that Python calls so."""
REQUIRES, CONFLICTS = "requires_skills", "conflicts_with"
_KNOWN_AS = {"darwin": "macos", "mac": "macos", "osx": "macos", "win32": "windows", "win": "windows"}
_HIDING = ("enabled", "requires", "required_capabilities")
"""What a skill can be hidden by."""
_MOST_NAMED = 8


@dataclass(frozen=True)
class Offered:
    """The skills of a configuration, in order; those that are not offered, each with one line of reason.

    `nameable`: what steps may name. `notes`: what is worth saying of skills of folders, as lines of text.
    """

    skills: tuple[Skill, ...]
    left_out: tuple[LeftOut, ...]
    nameable: Nameable
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Candidate:
    """A skill before it is known whether it can be offered.

    `found`: the folder that it is from. `place`: where the file has it, None where it has not; `over`: what that says.
    `own`: what is found about what its folder says. `acts`: what it does by itself.
    """

    id: str
    entry: SkillEntry
    found: FolderSkill | None
    place: Place | None = None
    over: frozenset[str] = frozenset()
    own: Findings | None = None
    acts: Acts = NO_ACTS

    @property
    def where(self) -> str:
        """Its SKILL.md as shown, empty where it has none."""
        return self.found.shown if self.found is not None else ""

    def by_file(self, key: str) -> bool:
        """Whether it is the file that says what is under `key`, not a folder."""
        return self.found is None or key in self.over

    def spot(self, key: str, findings: Findings) -> Spot:
        """Where what is under `key` is written; `findings`: those of the file."""
        if self.own is not None and not self.by_file(key):
            return Spot(self.own, of_folder=True)
        return Spot(findings, (SKILLS, self.id))


def offered(
    entries: Mapping[str, SkillEntry],
    library: Library,
    nameable: Nameable,
    environ: Mapping[str, str],
    findings: Findings,
    hook_timeout: float,
) -> Offered:
    """The skills of the file, `entries` by id, and of `library`.

    `nameable`: what steps may name, skills aside. What the file itself has wrong goes to `findings`; what a folder has
    wrong costs that skill alone. `hook_timeout`: seconds that hooks may take which do not say otherwise.
    """
    candidates, left_out = _merged(entries, library, findings)
    known = dict.fromkeys([*entries, *(one.id for one in (*library.skills, *library.left_out))])
    _check_names(candidates, known, findings)
    nameable = replace(nameable, skills={id_: _as_invoked(candidates.get(id_)) for id_ in known})
    for id_, one in candidates.items():
        if not one.entry.model_fields_set.isdisjoint(ACTING):
            candidates[id_] = _with_acts(one, nameable, findings)

    def leave_out(reasons: Mapping[str, str]) -> None:
        left_out.extend(LeftOut(id_, candidates.pop(id_).where, one_line(why)) for id_, why in reasons.items())

    required = [one.entry.requires for one in candidates.values()]
    absent = _absent({name for each in required for name in (*each.bins, *each.any_bins)}, environ)
    leave_out(
        {id_: why for id_, one in candidates.items() if (why := _ineligible(one, nameable.servers, environ, absent))}
    )
    wrong = {id_: one.own.problems for id_, one in candidates.items() if one.own is not None and one.own.problems}
    left_out += [LeftOut.of(id_, printable(problems)) for id_, problems in wrong.items()]
    candidates = {id_: one for id_, one in candidates.items() if id_ not in wrong}
    leave_out(_lacking(candidates))
    _check_relations(candidates, findings)
    while reasons := _contradictory(candidates):
        leave_out(reasons)
        leave_out(_lacking(candidates))
    skills = tuple(_skill(one, hook_timeout) for one in candidates.values())
    _note_rivals(candidates, skills, findings)
    for one in candidates.values():
        for key in (*HOOKS, STEPS):
            note_absent(getattr(one.entry, key), (key,), one.spot(key, findings), nameable, candidates)
    own = [str(note) for one in candidates.values() if one.own is not None for note in printable(one.own.noted)]
    return Offered(skills, tuple(left_out), nameable, tuple(own))


def _merged(
    entries: Mapping[str, SkillEntry], library: Library, findings: Findings
) -> tuple[dict[str, _Candidate], list[LeftOut]]:
    """The skills of the file, laid over those of folders, then the other ones of these; and those left out so far."""
    folders = {found.id: found for found in library.skills}
    unusable = {left.id: left for left in library.left_out if left.id in entries}
    merged: dict[str, _Candidate] = {}
    for id_, entry in entries.items():
        found, place = folders.get(id_), (SKILLS, id_)
        if found is None:
            if left := unusable.get(id_):
                findings.note(place, f"stands alone, as {left.file} cannot be used: {left.why}")
            merged[id_] = _Candidate(id_, entry, None, place)
            continue
        over = {name: getattr(entry, name) for name in entry.model_fields_set}
        named = ", ".join(name for name in SkillEntry.model_fields if name in over)
        findings.note(place, f"laid over {found.shown}: {named}" if over else f"adds nothing to {found.shown}")
        # An untrusted folder must not hide what the file offers: there it gives texts alone.
        update = over if found.trusted else {key: getattr(entry, key) for key in _HIDING} | over
        merged[id_] = _Candidate(id_, found.entry.model_copy(update=update), found, place, frozenset(over))
    twins = {alike(id_): id_ for id_ in reversed([*entries])}
    for id_, found in folders.items():
        twin = twins.get(alike(id_))
        if twin is None:
            merged[id_] = _Candidate(id_, found.entry, found)
        elif id_ not in entries:
            findings.note((SKILLS, twin), f"{found.shown} is not used: {id_} is the same id but for its spelling")
    return merged, [left for left in library.left_out if left.id not in unusable]


def _as_invoked(one: _Candidate | None) -> Invoked | None:
    if one is None:
        return None
    return Invoked(bool(one.entry.steps), one.entry.parameters, one.found is not None)


def _with_acts(one: _Candidate, nameable: Nameable, findings: Findings) -> _Candidate:
    own = replace(one, own=one.found.findings()) if one.found is not None else one
    return replace(own, acts=acts(own.entry, nameable, lambda key: own.spot(key, findings)))


def _note_rivals(candidates: Mapping[str, _Candidate], skills: Iterable[Skill], findings: Findings) -> None:
    """Note which skills cannot be active beside earlier ones for what they bind, unless they say so themselves."""
    order = {id_: place for place, id_ in enumerate(candidates)}
    rivals: dict[str, dict[str, None]] = {}
    for pair in differing(skills):
        earlier, later = sorted(pair, key=order.__getitem__)
        if (
            later not in candidates[earlier].entry.conflicts_with
            and earlier not in candidates[later].entry.conflicts_with
        ):
            rivals.setdefault(later, {})[earlier] = None
    for id_, others in rivals.items():
        what = f"binds arguments to other values than {_named(others)}: they cannot be active together"
        candidates[id_].spot(BIND, findings).note((BIND,), what)


def _named(skills: Collection[str]) -> str:
    """Names of skills, the first few."""
    names = list(skills)
    return ", ".join(names[:_MOST_NAMED]) + (f", … ({len(names):,} in all)" if len(names) > _MOST_NAMED else "")


def _ineligible(
    one: _Candidate, servers: Mapping[str, bool], environ: Mapping[str, str], absent: Collection[str]
) -> str:
    """Why a skill cannot be offered here, empty where it can; `absent`: the programs that are not here."""
    if not one.entry.enabled:
        return "it is switched off: enabled: false"
    requires = one.entry.requires
    here = SYSTEMS.get(sys.platform, sys.platform)
    missing = [f"the program {name} is not on PATH" for name in requires.bins if name in absent]
    if requires.any_bins and not set(requires.any_bins) - set(absent):
        missing.append(f"none of the programs {', '.join(requires.any_bins)} is on PATH")
    missing += [f"the variable {name} is not set" for name in requires.env if not environ.get(name)]
    if requires.os and here not in {_KNOWN_AS.get(name.lower(), name.lower()) for name in requires.os}:
        missing.append(f"it is for {', '.join(requires.os)}, and this is {here}")
    for problem in one.found.unknown if one.found is not None else ():
        if not one.by_file(problem.path.removeprefix(f"{METADATA}.").partition(".")[0]):
            missing.append(f"{problem.path}: {problem.what}")
    for name in requires.servers:
        if name not in servers:
            missing.append(f"there is no server {name} in the configuration")
        elif not servers[name]:
            missing.append(f"the server {name} is switched off")
    return "; ".join(missing)


def _absent(programs: Iterable[str], environ: Mapping[str, str]) -> frozenset[str]:
    """Those that are neither beside the running interpreter nor on PATH."""
    search = (str(Path(sys.executable).parent), environ.get("PATH", os.defpath))
    return frozenset(name for name in programs if not any(shutil.which(name, path=path) for path in search))


def _check_names(candidates: Mapping[str, _Candidate], known: Collection[str], findings: Findings) -> None:
    """Name the skills that the file speaks of and that there are not; folders may speak of what is not here."""
    for one in candidates.values():
        for relation in (REQUIRES, CONFLICTS):
            others: tuple[str, ...] = getattr(one.entry, relation) if one.by_file(relation) else ()
            for index, other in enumerate(others):
                if other not in known:
                    findings.unknown_skill((SKILLS, one.id, relation, index), other, known)


def _lacking(candidates: Mapping[str, _Candidate]) -> Mapping[str, str]:
    """The skills that cannot be offered for want of one that they require, directly or not, with the reason."""
    needing: dict[str, list[str]] = {}
    for id_, one in candidates.items():
        for other in one.entry.requires_skills:
            needing.setdefault(other, []).append(id_)
    absent = [other for other in needing if other not in candidates]
    reasons: dict[str, str] = {}
    for other in absent:
        new = [id_ for id_ in needing.get(other, ()) if id_ not in reasons]
        reasons |= dict.fromkeys(new, f"it requires the skill {other}, which is not offered")
        absent += new
    return {id_: reasons[id_] for id_ in candidates if id_ in reasons}


def _relations(candidates: Mapping[str, _Candidate], *, of_file: bool) -> Relations:
    """What is said of the skills that are there; only what the file itself says, where `of_file`."""

    def said(key: str) -> dict[str, tuple[str, ...]]:
        return {
            id_: tuple(other for other in getattr(one.entry, key) if other in candidates)
            for id_, one in candidates.items()
            if not of_file or one.by_file(key)
        }

    binding = [one for one in candidates.values() if one.acts.bind and (not of_file or one.by_file(BIND))]
    conflicts = said(CONFLICTS)
    for one, other in differing(_skill(one) for one in binding):
        conflicts[one] = (*conflicts.get(one, ()), other)
    begin = [one for one in candidates.values() if (key := _at_once(one)) and (not of_file or one.by_file(key))]
    if not of_file:
        begin.sort(key=lambda one: not one.by_file(_at_once(one)))
    return Relations(dict.fromkeys(candidates, ()) | said(REQUIRES), conflicts, [one.id for one in begin])


def _at_once(one: _Candidate) -> str:
    """The key that makes a skill active from the start, empty where it is not."""
    return "pinned" if one.entry.pinned else "active" if one.entry.active else ""


def _check_relations(candidates: Mapping[str, _Candidate], findings: Findings) -> None:
    """Name what can never be as the file says; what is so only with what folders say costs skills of theirs."""
    relations = _relations(candidates, of_file=True)
    for circle in circles(relations):
        for id_ in circle:
            findings.problem((SKILLS, id_, REQUIRES), described(circle, id_))
    for id_, why in impossible(relations).items():
        findings.problem((SKILLS, id_, REQUIRES), why)
    for id_, why in clashing(relations).items():
        findings.problem((SKILLS, id_, _at_once(candidates[id_])), why)


def _contradictory(candidates: Mapping[str, _Candidate]) -> Mapping[str, str]:
    """The skills that can never be as they are to be, with the reason; of circles those that a folder has closed."""
    relations = _relations(candidates, of_file=False)
    reasons: dict[str, str] = {}
    for circle in circles(relations):
        guilty = [id_ for id_ in circle if not candidates[id_].by_file(REQUIRES)] or circle
        reasons |= {id_: described(circle, id_) for id_ in guilty}
    return reasons or impossible(relations) or clashing(relations)


def _skill(one: _Candidate, hook_timeout: float = HOOK_TIMEOUT) -> Skill:
    """A skill as the gate sees it; `hook_timeout`: seconds that its hooks may take if it does not say otherwise."""
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
        on_activate=one.acts.on_activate,
        on_offload=one.acts.on_offload,
        hook_timeout=hook_timeout if entry.hook_timeout is None else entry.hook_timeout,
        internal=granted(entry.internal_tools),
        bind=one.acts.bind,
        workflow=one.acts.workflow,
    )
