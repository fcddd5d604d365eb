"""What `check` finds when it holds the configuration against what the servers really offer."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from proxy.core.catalogue import Allow, Catalogue, Skill, is_pattern
from proxy.core.decision import Route, Step, clashes, decide
from proxy.core.inventory import Inventory, Offer
from proxy.core.wording import nearest


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
    view = decide(catalogue, (), inventory, Step(skill.id))
    problems = [f"server {server} does not start" for server in catalogue.servers_of([skill.id]) if server in failed]
    for server, allow in skill.tools.items():
        if server in inventory:
            names = [tool["name"] for tool in inventory[server].tools]
            problems += [_unmatched(f"server {server}", entry, "tool", names) for entry in _idle(allow, names)]
    for kind, lists in (("resource", skill.resources), ("prompt", skill.prompts)):
        for server, allow in lists.items():
            if server in inventory:
                names = _names(kind, inventory[server])
                problems += [_unmatched(f"server {server}", entry, kind, names) for entry in _idle(allow, names)]
    nothing = not (view.tools or view.resources or view.templates or view.prompts)
    if skill.servers and nothing and not problems:
        problems.append("it grants nothing: its servers offer nothing that it lists")
    if not skill.servers and not skill.usage.strip():
        problems.append("it grants nothing and has no usage guide")
    return SkillReport(
        skill, tuple(view.tools.values()), len(view.resources) + len(view.templates), len(view.prompts), tuple(problems)
    )


def _problems(catalogue: Catalogue, inventory: Inventory, failed: Mapping[str, str]) -> Iterator[str]:
    if not catalogue.skills:
        yield "no skill is enabled: clients will see no tool at all"
    for server in catalogue.servers:
        if server in failed:
            yield f"server {server} does not start: {failed[server]}"
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
    return [
        value for entry in entries for key in ("uri", "uriTemplate", "name") if isinstance(value := entry.get(key), str)
    ]


def _unmatched(where: str, entry: str, kind: str, names: list[str]) -> str:
    if is_pattern(entry):
        return f"{where}: the pattern {entry} matches no {kind}"
    close = nearest(entry, names)[:1] if names else []
    return f"{where} offers no {kind} {entry}" + (f"; the nearest is {close[0]}" if close else "")


def grants(skill: Skill) -> str:
    """A skill's tool list in one line, as it is in force after merges: `git: git_status, git_log; time: all`."""
    return "; ".join(
        f"{server}: {'all' if allow.everything else ', '.join(allow.entries)}" for server, allow in skill.tools.items()
    )
