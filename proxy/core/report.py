"""What `check` finds when it holds the configuration against what the servers really offer."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from proxy.core.catalogue import Allow, Catalogue, Skill, is_pattern
from proxy.core.decision import Route, clashes, decide
from proxy.core.inventory import Inventory, Offer

_WORD = re.compile(r"[^\W\d_a-z]?[a-z]+|[^\W\d_a-z]+(?![a-z])|\d+")
"""A word of a name such as `get_time`, `getTime` or `git-log2`."""
_ALIKE = 0.6
"""How like a misspelled name must be at least to the one that is suggested."""


@dataclass(frozen=True)
class SkillReport:
    """What one skill grants, and what is wrong with it."""

    skill: Skill
    tools: tuple[Route, ...]
    resources: int
    prompts: int
    problems: tuple[str, ...]


@dataclass(frozen=True)
class Report:
    """All skills, the problems that concern no single skill, and what is only worth knowing."""

    skills: tuple[SkillReport, ...]
    problems: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def good(self) -> bool:
        """Whether no problem was found."""
        return not self.problems and not any(skill.problems for skill in self.skills)


def report(catalogue: Catalogue, inventory: Inventory, failed: Mapping[str, str]) -> Report:
    """Hold `catalogue` against the servers' offers; `failed`: the reason for each server that did not start."""
    skills = tuple(_skill(catalogue, skill, inventory, failed) for skill in catalogue.skills)
    return Report(skills, tuple(_problems(catalogue, inventory, failed)), tuple(_notes(catalogue, inventory, skills)))


def _skill(catalogue: Catalogue, skill: Skill, inventory: Inventory, failed: Mapping[str, str]) -> SkillReport:
    view = decide(catalogue, (skill.id,), inventory)
    problems = [f"server {server} failed" for server in catalogue.servers_of([skill.id]) if server in failed]
    for server, allow in skill.tools.items():
        if server in inventory:
            names = [tool["name"] for tool in inventory[server].tools]
            problems += [_unmatched(f"server {server}", entry, "tool", names) for entry in _idle(allow, names)]
    for kind, lists in (("resource", skill.resources), ("prompt", skill.prompts)):
        for server, allow in lists.items():
            if server in inventory:
                names = _names(kind, inventory[server])
                problems += [_unmatched(f"server {server}", entry, kind, names) for entry in _idle(allow, names)]
    nothing = not (view.tools or view.resources or view.templates or view.skills or view.prompts)
    if catalogue.servers_of([skill.id]) and nothing and not problems:
        problems.append("it grants nothing: its servers offer nothing that it lists")
    if not skill.servers and skill.usage is not None and not skill.usage.strip():
        problems.append("it grants nothing and has no usage guide")
    resources = len(view.resources) + len(view.templates) + len(view.skills)
    return SkillReport(skill, tuple(view.tools.values()), resources, len(view.prompts), tuple(problems))


def _problems(catalogue: Catalogue, inventory: Inventory, failed: Mapping[str, str]) -> Iterator[str]:
    if not catalogue.skills:
        yield "no skill is enabled: clients will see no tool at all"
    for server in catalogue.servers:
        if server in failed:
            yield f"server {server} failed: {failed[server]}"
    for name in sorted(clashes(catalogue, inventory)):
        yield f"more than one tool, or prompt, would be shown as {name}: none of them is; set a prefix"
    for server, allow in catalogue.denied.items():
        if server in inventory:
            names = [tool["name"] for tool in inventory[server].tools]
            for entry in _idle(allow, names):
                yield "black_tool_actions: " + _unmatched(f"server {server}", entry, "tool", names)


def _notes(catalogue: Catalogue, inventory: Inventory, skills: tuple[SkillReport, ...]) -> Iterator[str]:
    reached = {(route.server, route.original) for skill in skills for route in skill.tools}
    for server in catalogue.servers:
        offer = inventory.get(server, Offer())
        names = [tool["name"] for tool in offer.tools]
        unreached = [name for name in names if (server, name) not in reached and not catalogue.denies(server, name)]
        if unreached:
            yield f"server {server}: no skill reaches {', '.join(unreached)}"
        if denied := [name for name in names if catalogue.denies(server, name)]:
            yield f"server {server}: denied to every skill: {', '.join(denied)}"
        for name in names:
            if (server, name) in reached and catalogue.naming.altered(server, name):
                yield f"server {server}: tool {name} is shown as {catalogue.naming.expose(server, name)}"


def _idle(allow: Allow, names: list[str]) -> list[str]:
    """The entries of an allowlist that no name is on account of."""
    return [entry for entry in allow.entries if not any(Allow.of([entry]).allows(name) for name in names)]


def _names(kind: str, offer: Offer) -> list[str]:
    if kind == "prompt":
        return [prompt["name"] for prompt in offer.prompts]
    entries = (*offer.resources, *offer.templates)
    named = [
        value for entry in entries for key in ("uri", "uriTemplate", "name") if isinstance(value := entry.get(key), str)
    ]
    return [*named, *(name for skill in offer.skills for name in (skill["uri"], skill["frontmatter"]["name"]))]


def _unmatched(where: str, entry: str, kind: str, names: list[str]) -> str:
    if is_pattern(entry):
        return f"{where}: the pattern {entry} matches no {kind}"
    close = _nearest(entry, names)
    return f"{where} offers no {kind} {entry}" + (f"; the nearest is {close}" if close else "")


def _nearest(wanted: str, names: Sequence[str]) -> str | None:
    """The name that `wanted` may stand for: it has all its words, or is alike where their words differ."""
    words = _words(wanted)
    containing = [name for name in names if words and words <= _words(name)]
    if containing:
        return min(containing, key=lambda name: len(_words(name)))
    likeness = {name: _likeness(words, _words(name)) for name in names}
    best = max(names, key=lambda name: likeness[name], default=None)
    return best if best is not None and likeness[best] >= _ALIKE else None


def _words(name: str) -> frozenset[str]:
    return frozenset(word.casefold() for word in _WORD.findall(name))


def _likeness(wanted: frozenset[str], offered: frozenset[str]) -> float:
    """From 0 to 1, how like the words are that only one of the two has: `git_log` is not like `git_add` for its git."""
    if offered <= wanted:
        return len(offered) / len(wanted) if wanted else 0.0
    here, there = (" ".join(sorted(words)) for words in (wanted - offered, offered - wanted))
    return SequenceMatcher(None, here, there).ratio()


def grants(skill: Skill) -> Iterator[str]:
    """A skill's tool list as it is in force after merges, by server: `git: git_status, git_log`, `time: all`."""
    for server, allow in skill.tools.items():
        yield f"{server}: {'all' if allow.everything else ', '.join(allow.entries)}"
