"""What `check` finds when it holds the configuration against what the servers really offer."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import Any

from proxy.core.catalogue import NOTHING, Allow, Catalogue, Skill, is_pattern
from proxy.core.decision import Route, View, clashes, decide, union
from proxy.core.expressions import holds_expressions
from proxy.core.foreign_text import one_line
from proxy.core.guide_names import is_unmistakable, names_in
from proxy.core.inventory import (
    MAX_LIST_BYTES,
    MAX_LIST_ENTRIES,
    SKILLS_LIMIT,
    Inventory,
    Json,
    Offer,
    is_json,
    items,
    members_of,
    template_matches,
)
from proxy.core.invocation_loops import Loops
from proxy.core.invoke_tool import is_repeatable
from proxy.core.mcp_apps import declared_page, is_for_pages_only, page_of
from proxy.core.parameters import invalid_constants
from proxy.core.relations import required
from proxy.core.skill_tool import actions
from proxy.core.steps import Call, Parallel, Steps, calls
from proxy.core.texts import NAME_LIMIT

_WORD = re.compile(r"[^\W\d_a-z]?[a-z]+|[^\W\d_a-z]+(?![a-z])|\d+")
"""A word of a name such as `get_time`, `getTime` or `git-log2`."""
_ELSEWHERE = frozenset(
    {"patternProperties", "$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "if", "dependentSchemas"}
)
"""Keys of a schema by which other arguments may be allowed than its properties have."""
_ALIKE = 0.6
"""How like a misspelled name must be at least to the one that is suggested."""
_WHERE_READ = (
    "at the one whose tool has handed it out to the client, else at the first of them, in this order, for which an "
    "active skill grants it"
)
"""Which of several servers is meant (design rule 6)."""


@dataclass(frozen=True)
class SkillReport:
    """What one skill grants, what is wrong with it, and what is only worth knowing."""

    skill: Skill
    tools: tuple[Route, ...]
    resources: int
    prompts: int
    problems: tuple[str, ...]
    notes: tuple[str, ...] = ()


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


def report(
    catalogue: Catalogue,
    inventory: Inventory,
    failed: Mapping[str, str],
    guides: Mapping[str, str] | None = None,
) -> Report:
    """Hold `catalogue` against the servers' offers.

    `failed`: the reason for each server that did not start. `guides`: by skill, the text of its guide where the skill
    itself does not have it.
    """
    loops = Loops(catalogue)
    texts = guides or {}
    skills = tuple(
        _with_loops(_skill(catalogue, skill, inventory, failed, texts.get(skill.id, "")), loops)
        for skill in catalogue.skills
    )
    start = _Acting(inventory, catalogue)
    start.check_steps(catalogue.on_start)
    problems = (
        *start.problems,
        *loops.start_problems(catalogue.on_start),
        *_problems(catalogue, inventory, failed),
    )
    return Report(skills, problems, (*start.notes, *_notes(catalogue, inventory, skills)))


def _stands_in(text: str, name: str) -> bool:
    """Whether a name stands in a text, and not as a part of another."""
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text) is not None


def _with_loops(found: SkillReport, loops: Loops) -> SkillReport:
    """The report of a skill with what is to be said of its invoking itself."""
    problems, notes = loops.problems(found.skill), loops.notes(found.skill)
    return replace(found, problems=(*found.problems, *problems), notes=(*found.notes, *notes))


def _skill(
    catalogue: Catalogue, skill: Skill, inventory: Inventory, failed: Mapping[str, str], guide: str
) -> SkillReport:
    view = decide(catalogue, (skill.id,), inventory)
    problems = [f"server {server} failed" for server in catalogue.needed_by([skill.id]) if server in failed]
    for server in skill.servers:
        if server in inventory:
            problems += unmatched(skill, server, inventory[server])
    for server, allow in skill.internal.items():
        if server in inventory:
            names = _tools(inventory[server])
            problems += [
                f"internal_tools: {_unmatched(f'server {server}', e, 'tool', names)}" for e in _idle(allow, names)
            ]
    acting = _Acting(inventory, catalogue)
    acting.check(skill)
    problems += acting.problems
    problems += _pages(view)
    nothing = not (view.tools or view.resources or view.templates or view.skills or view.prompts)
    if catalogue.servers_of([skill.id]) and nothing and not problems:
        problems.append("it grants nothing: its servers offer nothing that it lists")
    if not skill.servers and not acts(skill) and skill.usage is not None and not skill.usage.strip():
        problems.append("it grants nothing and has no usage guide")
    resources = len(view.resources) + len(view.templates) + len(view.skills)
    notes = (*acting.notes, *_page_notes(view, inventory), *_bare_names(catalogue, skill, inventory, guide))
    return SkillReport(skill, tuple(view.tools.values()), resources, len(view.prompts), tuple(problems), notes)


def _pages(view: View) -> Iterator[str]:
    """Pages of granted tools that the skill does not grant: only those that are not `ui://` are not granted with it."""
    for route in view.tools.values():
        page = declared_page(route.definition)
        if page is not None and not (view.page_owner(page) or view.lister_of(page) or view.template_of(page)):
            yield (
                f"tool {route.exposed} is shown with the page {page}, which the skill does not grant: it is no ui:// "
                f"URI, so that resource_list of server {route.server} has to name it"
            )


def _page_notes(view: View, inventory: Inventory) -> Iterator[str]:
    """Pages that their server does not list, and tools for a page alone that go without it."""
    for route in view.tools.values():
        offer = inventory[route.server]
        if (page := page_of(route.definition)) is None:
            continue
        listed = any(entry["uri"] == page for entry in offer.resources)
        if not listed and not any(template_matches(entry["uriTemplate"], page) for entry in offer.templates):
            yield f"tool {route.exposed} is shown with the page {page}, which server {route.server} does not list"
        for tool in offer.tools:
            if is_for_pages_only(tool) and view.tool_of(route.server, tool["name"]) is None:
                yield (
                    f"tool {route.exposed} is shown with a page, and the skill does not grant {tool['name']}, a tool "
                    "of that server for its pages alone"
                )


def _bare_names(catalogue: Catalogue, skill: Skill, inventory: Inventory, guide: str) -> Iterator[str]:
    """Tools that the guide names otherwise than clients see them: a model would call what the guide says."""
    text = guide if skill.usage is None else skill.usage
    view = decide(catalogue, (*required(catalogue, skill.id), skill.id), inventory)
    written: dict[str, list[tuple[str, str]]] = {}
    arguments: set[str] = set(catalogue.by_id)
    for server in catalogue.servers_of([skill.id]):
        for tool in inventory.get(server, Offer()).tools:
            name = tool["name"]
            arguments.update(members_of(members_of(tool.get("inputSchema")).get("properties")))
            qualified = (f"{server}{mark}{name}" for mark in "/.:")
            for spelling in (name, *qualified, f"mcp__{server}__{name}"):
                written.setdefault(spelling, []).append((server, name))
    known = {spelling for spelling in written if spelling not in view.tools}
    for named in names_in(text, known, {*arguments, *actions(catalogue)}).values():
        places = written[named.name]
        shown = [route.exposed for place in places if (route := view.tool_of(*place)) is not None]
        if shown and not any(_stands_in(text, name) for name in shown):
            yield f"its guide, line {named.line}, names {named.name}: clients see that tool as {' and '.join(shown)}"
        elif not shown and is_unmistakable(named.name):
            server = places[0][0]
            yield f"its guide, line {named.line}, names {named.name} of server {server}, which the skill does not grant"


def unmatched(skill: Skill, server: str, offer: Offer) -> list[str]:
    """What a skill lists of a server's tools, resources and prompts that is not in its offer, a line each."""
    return [_unmatched(f"server {server}", *one) for one in _not_offered(skill, server, offer)]


def unmatched_denials(catalogue: Catalogue, server: str, offer: Offer) -> list[str]:
    """What `black_tool_actions` has of a server's tools that is not in its offer, a line each."""
    names = _tools(offer)
    idle = _idle(catalogue.denied.get(server, NOTHING), names)
    return [f"black_tool_actions: {_unmatched(f'server {server}', entry, 'tool', names)}" for entry in idle]


def not_granted(skill: Skill, server: str, offer: Offer, besides: Collection[str] = ()) -> list[str]:
    """As `unmatched`, for a model: what is listed alone, as names of other tools are not for it.

    `besides`: tools that are only withheld.
    """
    told: list[str] = []
    for entry, kind, _ in _not_offered(skill, server, offer):
        if kind == "tool" and any(Allow.of([entry]).allows(name) for name in besides):
            continue
        told.append(one_line(entry if kind == "tool" else f"{kind} {entry}", NAME_LIMIT))
    return told


def _not_offered(skill: Skill, server: str, offer: Offer) -> Iterator[tuple[str, str, list[str]]]:
    """The entries of a skill's lists that match nothing: each with its kind, and the names that there are."""
    for kind, lists in (("tool", skill.tools), ("resource", skill.resources), ("prompt", skill.prompts)):
        names = _names(kind, offer)
        for entry in _idle(lists.get(server, NOTHING), names):
            yield entry, kind, names


def _problems(catalogue: Catalogue, inventory: Inventory, failed: Mapping[str, str]) -> Iterator[str]:
    if not catalogue.skills:
        yield "no skill is enabled: clients will see no tool at all"
    for server in catalogue.servers:
        if server in failed:
            yield f"server {server} failed: {failed[server]}"
    for name in sorted(clashes(catalogue, inventory)):
        yield f"more than one tool, or prompt, would be shown as {name}: none of them is; set a prefix"
    for server in catalogue.denied:
        if server in inventory:
            yield from unmatched_denials(catalogue, server, inventory[server])


def _notes(catalogue: Catalogue, inventory: Inventory, skills: tuple[SkillReport, ...]) -> Iterator[str]:
    shown = {(route.server, route.original) for skill in skills for route in skill.tools}
    called = [catalogue.start_tools, *(skill.internal for skill in catalogue.skills)]
    for skill in skills:
        yield from (f"skill {skill.skill.id}: {note}" for note in skill.notes)
    yield from _shared_uris(catalogue, inventory)
    for server in catalogue.servers:
        offer = inventory.get(server, Offer())
        for name, number in offer.left_out.items():
            most = SKILLS_LIMIT if name == "skills" else MAX_LIST_ENTRIES
            yield (
                f"server {server}: at least {number:,} entries of its list of {name} are left out: {most:,} of a list "
                f"are read, and {MAX_LIST_BYTES // 1024**2} MiB"
            )
        yield from (f"server {server}: {fault}" for faults in offer.faults.values() for fault in faults)
        names = _tools(offer)
        allow = union(lists.get(server, NOTHING) for lists in called)
        reached = [name for name in names if (server, name) in shown or allow.allows(name)]
        if unreached := [name for name in names if name not in reached and not catalogue.denies(server, name)]:
            yield f"server {server}: no skill reaches {', '.join(unreached)}"
        if denied := [name for name in names if catalogue.denies(server, name)]:
            yield f"server {server}: denied to every skill: {', '.join(denied)}"
        for name in names:
            if (server, name) in shown and catalogue.naming.altered(server, name):
                yield f"server {server}: tool {name} is shown as {catalogue.naming.expose(server, name)}"


def _shared_uris(catalogue: Catalogue, inventory: Inventory) -> Iterator[str]:
    """URIs of resources, templates, and pages of tools that skills grant at more than one server."""
    view = decide(catalogue, [skill.id for skill in catalogue.skills], inventory)
    pages = [(page, route.server) for route in view.tools.values() if (page := page_of(route.definition)) is not None]
    for servers, uri in _shared([*pages, *((route.exposed, route.server) for route in view.resources)]):
        yield f"servers {servers} offer the same resource URI, {uri}: it is read {_WHERE_READ}"
    for servers, template in _shared((route.exposed, route.server) for route in view.templates):
        yield f"servers {servers} offer the same resource template, {template}: what fits it is read {_WHERE_READ}"


def _shared(offered: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """The servers that offer the same, where there are several, and what; `offered`: what, each with its server."""
    owners: dict[str, dict[str, None]] = {}
    for what, server in offered:
        owners.setdefault(what, {})[server] = None
    for what, servers in owners.items():
        if len(servers) > 1:
            yield ", ".join(servers), what


class _Acting:
    """What is wrong with steps and bindings, held against what servers offer; and what is only worth knowing."""

    def __init__(self, inventory: Inventory, catalogue: Catalogue) -> None:
        self.problems: list[str] = []
        self.notes: list[str] = []
        self._inventory = inventory
        self._catalogue = catalogue

    def check(self, skill: Skill) -> None:
        """Hold all that a skill does against the offers."""
        for steps in (skill.on_activate, skill.on_offload, skill.workflow.steps if skill.workflow else ()):
            self.check_steps(steps)
        for server, tools in skill.bind.items():
            for tool, arguments in tools.items():
                where = f"bind {server}/{tool}"
                if (schema := self._schema_of(server, tool, where)) is None:
                    continue
                if _tells_all(schema):
                    unknown = (name for name in arguments if name not in schema["properties"])
                    self.problems += [f"{where}: {_no_argument(name, schema)}" for name in unknown]
                    schema = _without(schema, "additionalProperties")
                self._check_constants(where, arguments, schema, partial=True)

    def check_steps(self, steps: Steps) -> None:
        """Hold what a list of steps calls against the offers."""
        for call in calls(steps):
            if call.server and (schema := self._schema_of(call.server, call.tool, call.place)) is not None:
                self._check_arguments(call, schema)
            if call.retries and (call.skill or call.server in self._inventory):
                self._check_retry(call)

    def _check_retry(self, call: Call) -> None:
        if not is_repeatable(call, self._catalogue, self._inventory):
            self.notes.append(
                f"{call.place}: retry is not used: {call.target} does not say by readOnlyHint or idempotentHint that "
                "it does no harm twice; write idempotent: true where it does none"
            )

    def _check_arguments(self, call: Call, schema: Json) -> None:
        where = f"{call.place}: {call.target}"
        if not _tells_all(schema):
            self._check_constants(where, call.arguments, schema)
            return
        others = schema.get("additionalProperties")
        for name in call.arguments:
            if name not in schema["properties"] and others in {None, False}:
                told = self.notes if others is None else self.problems
                told.append(f"{call.place}: {call.target}: {_no_argument(name, schema)}")
        for name in items(schema.get("required")):
            if name not in call.arguments:
                self.problems.append(f"{call.place}: {call.target} needs the argument {name}")
        self._check_constants(where, call.arguments, _without(schema, "required", "additionalProperties"))

    def _check_constants(
        self, where: str, arguments: Mapping[str, Any], schema: Json, *, partial: bool = False
    ) -> None:
        """Name what is wrong whatever the expressions among the arguments come to."""
        faults = invalid_constants(schema, {**arguments}, holds_expressions, partial=partial)
        self.problems += [f"{where}: {fault}" for fault in faults]

    def _schema_of(self, server: str, tool: str, where: str) -> Json | None:
        """The schema of what a tool takes, None where it has none; a tool that is not offered is named."""
        if server not in self._inventory:
            return None
        offer = self._inventory[server]
        definition = next((each for each in offer.tools if each["name"] == tool), None)
        if definition is None:
            self.problems.append(f"{where}: {_unmatched(f'server {server}', tool, 'tool', _tools(offer))}")
            return None
        schema = definition.get("inputSchema")
        return schema if is_json(schema) else None


def _tells_all(schema: Json) -> bool:
    """Whether the properties of a schema tell all arguments that there are."""
    return is_json(schema.get("properties")) and _ELSEWHERE.isdisjoint(schema)


def _without(schema: Json, *keys: str) -> Json:
    return {key: value for key, value in schema.items() if key not in keys}


def _no_argument(name: str, schema: Json) -> str:
    close = _nearest(name, list(schema["properties"]))
    return f"there is no argument {name}" + (f"; the nearest is {close}" if close else "")


def _tools(offer: Offer) -> list[str]:
    return [tool["name"] for tool in offer.tools]


def _idle(allow: Allow, names: list[str]) -> list[str]:
    """The entries of an allowlist that no name is on account of."""
    return [entry for entry in allow.entries if not any(Allow.of([entry]).allows(name) for name in names)]


def _names(kind: str, offer: Offer) -> list[str]:
    if kind == "tool":
        return _tools(offer)
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


def acts(skill: Skill) -> bool:
    """Whether a skill does something by itself."""
    return bool(skill.hooked or skill.internal or skill.bind or skill.workflow)


def deeds(skill: Skill) -> Iterator[str]:
    """What a skill does by itself, a line each: hooks, what it runs when it is invoked, internal tools, bindings."""
    for when, steps in (("on activation", skill.on_activate), ("on offloading", skill.on_offload)):
        if steps:
            yield f"{when} calls {in_order(steps)}"
    if skill.workflow is not None:
        given = ", ".join(_parameters(skill.workflow.parameters))
        yield f"invoked with {given or 'nothing'} calls {in_order(skill.workflow.steps)}"
    for server, allow in skill.internal.items():
        yield f"internal tools of {server}: {'all' if allow.everything else ', '.join(allow.entries)}"
    for server, tools in skill.bind.items():
        for tool, arguments in tools.items():
            yield f"fills in {server}/{tool}: {', '.join(arguments)}"


def in_order(steps: Steps) -> str:
    """What steps call, one after the other, those side by side joined by `|`."""
    return ", ".join(
        " | ".join(call.target for call in step.steps) if isinstance(step, Parallel) else step.target for step in steps
    )


def _parameters(schema: Json) -> Iterator[str]:
    properties, required = schema.get("properties"), items(schema.get("required"))
    for name in properties if is_json(properties) else ():
        yield name if name in required else f"{name} (optional)"
