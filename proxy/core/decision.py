"""The gate: one pure function from (catalogue, active skills, inventory, actor) to what is exposed.

Listing shows a view and calling looks up in a view; there is no other way to an upstream (design rule 1).
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TypeAlias

from proxy.core.bindings import Bound, bound, without
from proxy.core.catalogue import EVERYTHING, NOTHING, Allow, Catalogue, Skill
from proxy.core.inventory import Inventory, Json, Offer, template_matches
from proxy.core.mcp_apps import SCHEME, page_of
from proxy.core.names import RESERVED
from proxy.core.namespaced import Source, exposed, in_our_scheme, is_file_of, is_folder_of, shown
from proxy.core.published import DOCUMENT
from proxy.core.scope import ScopeState


@dataclass(frozen=True)
class Client:
    """The client of a scope: granted what the scope's active skills grant."""


@dataclass(frozen=True)
class Step:
    """A step of a skill: granted the tools that the skill grants, active or not, and its internal ones."""

    skill: str


@dataclass(frozen=True)
class Start:
    """A step of what is done when a scope starts: granted the tools that these steps name."""


Actor: TypeAlias = Client | Step | Start
"""Who wants something."""

CLIENT = Client()


@dataclass(frozen=True)
class Route:
    """One exposed name and what it leads to: the server's key, the original name, the definition as it came.

    A resource, or a skill that a server serves, has its URI for a name, and a template itself. `bound`: arguments that
    are filled in for the client; the definition of a tool has none of these.
    """

    exposed: str
    server: str
    original: str
    definition: Json
    bound: Mapping[str, Bound] = field(default_factory=dict[str, Bound])


@dataclass(frozen=True)
class View:
    """What an actor can see, in order, and therefore use.

    `tools`, `prompts`: by exposed name. `whole`: of the servers that serve skills, those with all tools granted: what
    they list is not all they serve. `with_folders`: those that can be asked what is in a folder.
    """

    tools: Mapping[str, Route]
    prompts: Mapping[str, Route]
    resources: tuple[Route, ...]
    templates: tuple[Route, ...]
    skills: tuple[Route, ...] = ()
    whole: frozenset[str] = frozenset()
    with_folders: frozenset[str] = frozenset()
    by_own_name: Mapping[str, Route] = field(default_factory=dict[str, Route])
    """Tools by their server's own name, where it is unique and not an exposed name: pages of MCP Apps call them so."""

    def tool(self, name: str) -> Route | None:
        """The route of the tool that a client calls `name`: by exposed name, or else by its server's own."""
        return self.tools.get(name) or self.by_own_name.get(name)

    def page_owner(self, uri: str, giver: str | None = None) -> str | None:
        """The server, one of whose tools here is shown with the page `uri`; of several as `lister_of`.

        To be granted a tool is to be granted its page (MCP Apps, SEP-1865), and nothing else.
        """
        if not uri.startswith(SCHEME):
            return None
        return _chosen((route.server for route in self.tools.values() if page_of(route.definition) == uri), giver)

    def tool_of(self, server: str, tool: str) -> Route | None:
        """The route of a tool by its server and its original name."""
        return next((r for r in self.tools.values() if r.server == server and r.original == tool), None)

    def lister_of(self, uri: str, giver: str | None = None) -> str | None:
        """The server at which the resource `uri` is listed.

        Of several, the one that has handed it out, `giver`, else the first in the order of the file.
        """
        return _chosen((route.server for route in self.resources if route.exposed == uri), giver)

    def has_template(self, template: str) -> Source | None:
        """The first server, in the order of the file, that lists `template` itself, and how it is written there."""
        return next(
            (Source(route.server, route.original) for route in self.templates if route.exposed == template), None
        )

    def template_of(self, uri: str) -> str | None:
        """The first server, in the order of the file, one of whose templates `uri` matches; none has one for ours."""
        if in_our_scheme(uri):
            return None
        return next((route.server for route in self.templates if template_matches(route.original, uri)), None)

    def shows(self, source: Source) -> bool:
        """Whether a resource can be read under its server's name: listed so, or a file of a skill that is visible.

        What else a server serves as skills, it alone knows: where all its tools are granted, it is asked.
        """
        server, uri = source
        return (
            server in self.whole
            or self.lister_of(exposed(*source)) is not None
            or any(is_file_of(skill.definition, uri) for skill in self._skills_of(server))
            or any(template_matches(t.original, uri) for t in self.templates if _is_under(t, server))
        )

    def shows_skill(self, source: Source) -> bool:
        """Whether there is, or at a server with all tools granted may be, a skill with its SKILL.md there."""
        server, uri = source
        if server in self.whole:
            return uri.endswith(f"/{DOCUMENT}")
        return any(skill.original == uri for skill in self._skills_of(server))

    def shows_folder(self, source: Source) -> bool:
        """Whether the server can be asked what is in that folder, which is of a skill that is visible."""
        server, uri = source
        return server in self.with_folders and (
            server in self.whole or any(is_folder_of(skill.original, uri) for skill in self._skills_of(server))
        )

    def _skills_of(self, server: str) -> Iterator[Route]:
        return (skill for skill in self.skills if skill.server == server)


def _chosen(servers: Iterable[str], giver: str | None) -> str | None:
    """`giver`, if it is one of `servers`, else the first of them."""
    found = list(servers)
    return giver if giver in found else next(iter(found), None)


class Absence(Enum):
    """Why a name that some skill of the caller grants is not exposed to it now."""

    INACTIVE = "not active"
    OFFLOADED = "offloaded"
    EXPIRED = "offloaded by itself"
    UNAVAILABLE = "its server is not available"


@dataclass(frozen=True)
class Missing:
    """A name that is not exposed but that `skill` grants, at `server`; that is empty where the skill is the tool."""

    why: Absence
    skill: str
    server: str


def union(lists: Iterable[Allow]) -> Allow:
    """The union of allowlists: "everything" wins over any specific list (design rule 3)."""
    entries: list[str] = []
    for allow in lists:
        if allow.everything:
            return allow
        entries.extend(allow.entries)
    return Allow(entries=tuple(dict.fromkeys(entries)))


def decide(catalogue: Catalogue, active: Collection[str], inventory: Inventory, actor: Actor = CLIENT) -> View:
    """What `actor` may see and use while the skills `active` are active."""
    skills = [skill for skill in catalogue.skills if skill.id in active] if isinstance(actor, Client) else []
    tools: list[Route] = []
    prompts: list[Route] = []
    resources: list[Route] = []
    templates: list[Route] = []
    served: list[Route] = []
    whole: set[str] = set()
    with_folders: set[str] = set()
    for server, offer in _offers(catalogue, inventory):
        allow = union(lists.get(server, NOTHING) for lists in _grants(catalogue, skills, actor))
        tools += [_filled(r, skills) for r in _tools(catalogue, server, offer) if allow.allows(r.original)]
        if not skills:  # steps call tools, and nothing else
            continue
        # Rule 6: resources and prompts follow a grant of all tools, or a list of their own.
        listed = EVERYTHING if allow.everything else union(skill.resources.get(server, NOTHING) for skill in skills)
        resources += _listed(listed, server, offer.resources, "uri")
        templates += _listed(listed, server, offer.templates, "uriTemplate")
        visible = _skills(listed, server, offer)
        served += visible
        if allow.everything and offer.extension is not None:
            whole.add(server)
        if (visible or server in whole) and _has_folders(offer):
            with_folders.add(server)
        named = EVERYTHING if allow.everything else union(skill.prompts.get(server, NOTHING) for skill in skills)
        prompts += [route for route in _prompts(catalogue, server, offer) if named.allows(route.original)]
    two_tools, two_prompts = _met(catalogue, inventory, _tools), _met(catalogue, inventory, _prompts)
    shown = {route.exposed: route for route in tools if route.exposed not in two_tools}
    return View(
        tools=shown,
        prompts={route.exposed: route for route in prompts if route.exposed not in two_prompts},
        resources=tuple(resources),
        templates=tuple(templates),
        skills=tuple(served),
        whole=frozenset(whole),
        with_folders=frozenset(with_folders),
        by_own_name=_by_own_name(catalogue, inventory, shown) if isinstance(actor, Client) else {},
    )


def _by_own_name(catalogue: Catalogue, inventory: Inventory, shown: Mapping[str, Route]) -> dict[str, Route]:
    """The tools that are shown, by their server's own name for them.

    Not where two have it, nor where it is the name of any other tool, shown or not: that always means that tool. Ours,
    and those that skills are, count among these.
    """
    found: dict[str, Route] = {}
    several: set[str] = set()
    for route in shown.values():
        if found.setdefault(route.original, route) is not route:
            several.add(route.original)
    if not found:
        return found
    naming = catalogue.naming
    taken = {naming.tool_of(skill) for skill in naming.tools} | {
        naming.expose(server, original)
        for server in catalogue.servers
        for original in _known(catalogue, server, inventory.get(server, Offer()))
    }
    return {
        name: route
        for name, route in found.items()
        if name not in several and name not in taken and name.casefold() not in RESERVED
    }


def _grants(catalogue: Catalogue, skills: Iterable[Skill], actor: Actor) -> list[Mapping[str, Allow]]:
    """The tools that `actor` is granted, by server; `skills`: the active ones of a client."""
    if isinstance(actor, Client):
        return [skill.tools for skill in skills]
    if isinstance(actor, Start):
        return [catalogue.start_tools]
    one = catalogue.by_id.get(actor.skill)
    return [] if one is None else [one.tools, one.internal]


def _filled(route: Route, skills: Iterable[Skill]) -> Route:
    """The route without the arguments that the client's active skills fill in; the same object where there are none."""
    arguments = bound(skills, route.server, route.original)
    return replace(route, definition=without(route.definition, arguments), bound=arguments) if arguments else route


def clashes(catalogue: Catalogue, inventory: Inventory) -> frozenset[str]:
    """Exposed names that two tools, or two prompts, would have: none of those is exposed (design rule 19)."""
    return _met(catalogue, inventory, _tools) | _met(catalogue, inventory, _prompts)


def _met(
    catalogue: Catalogue, inventory: Inventory, routes: Callable[[Catalogue, str, Offer], list[Route]]
) -> frozenset[str]:
    """Names that two routes have; all offers count, active or not, so that no name leads to this now and that later."""
    found: set[str] = set()
    seen: set[str] = set()
    for server, offer in _offers(catalogue, inventory):
        for route in routes(catalogue, server, offer):
            (found if route.exposed in seen else seen).add(route.exposed)
    return frozenset(found)


def missing(catalogue: Catalogue, state: ScopeState, inventory: Inventory, name: str) -> Missing | None:
    """Why the tool `name` is not exposed, where a skill grants it by literal name or by inventory (design rule 7).

    An active one of them counts, else the first in the file. None: the caller may not know of the name, or nothing
    has it.
    """
    if name in _met(catalogue, inventory, _tools) or name in decide(catalogue, state.active, inventory).tools:
        return None
    naming = catalogue.naming
    for skill in catalogue.skills if naming.tools else ():
        if skill.id in naming.tools and naming.tool_of(skill.id) == name:  # nothing else has the name
            return None if skill.id in state.active else Missing(_absence(state, [skill.id]), skill.id, "")
    known = [
        (server, original)
        for server in catalogue.servers
        for original in _known(catalogue, server, inventory.get(server, Offer()))
        if naming.expose(server, original) == name
    ]
    found = [
        (skill.id, server)
        for skill in catalogue.skills
        for server, original in known
        if skill.tools.get(server, NOTHING).allows(original)
    ]
    if not found:
        return None
    for skill, server in found:
        if skill in state.active:
            return Missing(Absence.UNAVAILABLE, skill, server)
    return Missing(_absence(state, [skill for skill, _ in found]), *found[0])


def _absence(state: ScopeState, skills: Collection[str]) -> Absence:
    """Why none of these skills is active."""
    if not state.expired.isdisjoint(skills):
        return Absence.EXPIRED
    return Absence.INACTIVE if state.offloaded.isdisjoint(skills) else Absence.OFFLOADED


def _known(catalogue: Catalogue, server: str, offer: Offer) -> frozenset[str]:
    """Names of tools at `server` that are known: offered, or literally in some skill's list; denied ones left out."""
    names = catalogue.literals.get(server, frozenset()) | {tool["name"] for tool in offer.tools}
    return frozenset(name for name in names if not catalogue.denies(server, name))


def _offers(catalogue: Catalogue, inventory: Inventory) -> Iterator[tuple[str, Offer]]:
    return ((server, inventory[server]) for server in catalogue.servers if server in inventory)


def _tools(catalogue: Catalogue, server: str, offer: Offer) -> list[Route]:
    """Every tool of `server` that is not denied, by original name."""
    routes = [
        Route(catalogue.naming.expose(server, tool["name"]), server, tool["name"], tool)
        for tool in offer.tools
        if not catalogue.denies(server, tool["name"])
    ]
    return sorted(routes, key=lambda route: route.original)


def _prompts(catalogue: Catalogue, server: str, offer: Offer) -> list[Route]:
    return [
        Route(catalogue.naming.expose_prompt(server, prompt["name"]), server, prompt["name"], prompt)
        for prompt in offer.prompts
    ]


def _listed(allow: Allow, server: str, entries: Iterable[Json], key: str) -> Iterator[Route]:
    """The resources or templates that are on the list, by what stands at `key` or by name (design rule 6)."""
    for entry in entries:
        if allow.allows(entry[key]) or (isinstance(name := entry.get("name"), str) and allow.allows(name)):
            yield Route(shown(server, entry[key]), server, entry[key], entry)


def _skills(allow: Allow, server: str, offer: Offer) -> list[Route]:
    """The skills that are on the list, by the URI of their SKILL.md or by name."""
    return [
        Route(exposed(server, entry["uri"]), server, entry["uri"], entry)
        for entry in offer.skills
        if allow.allows(entry["uri"]) or allow.allows(entry["frontmatter"]["name"])
    ]


def _is_under(route: Route, server: str) -> bool:
    """Whether a resource or template is shown under the name of this server."""
    return route.server == server and route.exposed != route.original


def _has_folders(offer: Offer) -> bool:
    return offer.extension is not None and offer.extension.get("directoryRead") is True
