"""Why a client sees a tool or does not: the chain from its server to its name, and what would change the outcome.

The verdict is the decision's own (`decide`), and a way to see a tool is one that was tried through it.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import islice
from typing import Final, NamedTuple

from proxy.core.catalogue import EVERYTHING, NOTHING, Allow, Catalogue, Skill
from proxy.core.decision import decide
from proxy.core.foreign_text import one_line
from proxy.core.inventory import Inventory, Json, Offer
from proxy.core.mcp_apps import is_for_pages_only
from proxy.core.profiles import ANYBODY, EVERYBODY, Policy, Profile
from proxy.core.relations import Blocked, Hindrance, activated, first_to_go, offloaded, required
from proxy.core.scope import ScopeState
from proxy.core.settings import Settings
from proxy.core.texts import NAME_LIMIT, fitting
from proxy.core.wording import alike, skill_call

MAX_WAYS: Final = 10
"""Ways to see a tool that are told, those by the first skills in the file."""
MAX_WAYS_BYTES: Final = 1_000
"""The longest list of ways to see a tool in an answer to a model."""


class ToolId(NamedTuple):
    """A tool by its server's key and its original name."""

    server: str
    tool: str

    def __str__(self) -> str:
        return f"{one_line(self.server, NAME_LIMIT)}/{one_line(self.tool, NAME_LIMIT)}"


class Verdict(Enum):
    """What the decision comes to."""

    VISIBLE = "visible now"
    ACTIVATABLE = "visible after activating a skill"
    NEVER = "never visible"


@dataclass(frozen=True)
class Way:
    """Calls of `SKILL` after which a tool is visible."""

    skill: str
    """The skill to activate."""

    first: tuple[str, ...]
    """The skills to offload before, in this order."""

    active: tuple[str, ...]
    """The skills that are active afterwards, in order of activation."""

    def __str__(self) -> str:
        calls = [*(skill_call("offload", skill) for skill in self.first), skill_call("activate", self.skill)]
        return f"Visible when skill {self.skill} is active: {', then '.join(calls)}"


class Obstacle(NamedTuple):
    """A reason why no activation makes a tool visible."""

    because: str
    unless: str
    """What would remove it: a clause in the past subjunctive."""


@dataclass(frozen=True)
class Surroundings:
    """What is known beside the catalogue of the client."""

    policy: Policy | None = None
    """The whole configuration with its profiles; None where the client's catalogue is all that may be told."""

    not_ready: Mapping[str, str] = field(default_factory=dict[str, str])
    """By server that offers nothing now, one line of reason."""

    held: Mapping[ToolId, tuple[str, ...]] = field(default_factory=dict[ToolId, tuple[str, ...]])
    """The tools that are withheld since their definition changed, with the parts that differ."""

    settings: Settings = field(default_factory=Settings)


@dataclass(frozen=True)
class Explanation:
    """What is to be said of one tool, to one client."""

    tool: ToolId
    verdict: Verdict
    chain: tuple[str, ...]
    """The links in order, one line each."""

    granting: tuple[str, ...]
    """The skills of the client that grant it, in the order of the file."""

    active: tuple[str, ...]
    """Those of them that are active now."""

    ways: tuple[Way, ...]
    """How it becomes visible, each by another skill, at most `MAX_WAYS`; empty unless the verdict is `ACTIVATABLE`."""

    obstacles: tuple[Obstacle, ...]
    """Why it is never visible; empty unless the verdict is `NEVER`."""

    @property
    def outcome(self) -> tuple[str, ...]:
        """The verdict in words, and what would change it, one line each."""
        if self.verdict is Verdict.VISIBLE:
            return (f"Visible now: {_skills(self.active)} active.",)
        if self.verdict is Verdict.ACTIVATABLE:
            return tuple(map(str, self.ways))
        because = "; ".join(obstacle.because for obstacle in self.obstacles)
        unless = " and ".join(obstacle.unless for obstacle in self.obstacles)
        return (f"Never visible: because {because}; it would be if {unless}.",)


class Match(NamedTuple):
    """The tools that a name means, or else the known names that are most like it."""

    tools: tuple[ToolId, ...]
    nearest: tuple[str, ...]


def matching(catalogue: Catalogue, inventory: Inventory, wanted: str, withheld: Collection[ToolId] = ()) -> Match:
    """The tools that `wanted` means: by exposed name, `server/tool`, `server.tool` or original name.

    Known are those that are offered or withheld, and those that the configuration spells. At a server that offers
    nothing now, every tool that is named together with it counts.
    """
    servers = list(dict.fromkeys([*catalogue.servers, *(s for skill in catalogue.skills for s in skill.needs)]))
    known = [ToolId(server, tool) for server in servers for tool in _known(catalogue, inventory, server)]
    known += [tool for tool in withheld if tool not in known]
    found = [tool for tool in known if wanted in _names(catalogue, tool)]
    for server in servers:
        if server not in inventory:
            named = (ToolId(server, rest) for rest in _rests(catalogue, server, wanted))
            found += [tool for tool in named if tool not in found and wanted in _names(catalogue, tool)[:-1]]
    if found:
        return Match(tuple(found), ())
    return Match((), tuple(alike(wanted, dict.fromkeys(name for tool in known for name in _names(catalogue, tool)))))


def explain(
    catalogue: Catalogue,
    state: ScopeState,
    inventory: Inventory,
    tool: ToolId,
    around: Surroundings | None = None,
) -> Explanation:
    """Why a client with this catalogue, in this state, sees the tool or does not.

    `inventory`: what the servers offer, without what is withheld.
    """
    around = around or Surroundings()
    granting = [skill for skill in catalogue.skills if skill.tools.get(tool.server, NOTHING).allows(tool.tool)]
    ends = [_way(catalogue, state, skill.id) for skill in granting]
    ways: tuple[Way, ...] = ()
    obstacles: tuple[Obstacle, ...] = ()
    same_name = _same_name(catalogue, inventory, tool)
    if _is_visible(catalogue, state.active, same_name, tool):
        verdict = Verdict.VISIBLE
    else:
        good = (w for w in ends if isinstance(w, Way) and _is_visible(catalogue, w.active, same_name, tool))
        ways = tuple(islice(good, MAX_WAYS))
        verdict = Verdict.ACTIVATABLE if ways else Verdict.NEVER
        blocked = {skill.id: end for skill, end in zip(granting, ends, strict=True) if isinstance(end, Blocked)}
        if not ways:
            obstacles = tuple(_obstacles(catalogue, inventory, tool, around, granting, blocked))
    return Explanation(
        tool=tool,
        verdict=verdict,
        chain=tuple(_chain(catalogue, state, inventory, tool, around, granting)),
        granting=tuple(skill.id for skill in granting),
        active=tuple(skill.id for skill in granting if skill.id in state.active),
        ways=ways,
        obstacles=obstacles,
    )


def told_to_model(explanation: Explanation) -> str:
    """What a model is told of a tool that its own catalogue grants: by which skills, and the outcome."""
    outcome = fitting(list(explanation.outcome), MAX_WAYS_BYTES)
    granted = fitting([f"{skill}, " for skill in explanation.granting], MAX_WAYS_BYTES)
    left = len(explanation.granting) - len(granted)
    more = f" and {left:,} more" if left else ""
    return "\n".join(
        [f"Granted by {_plural('skill', len(explanation.granting))} {''.join(granted)[:-2]}{more}.", *outcome]
    )


def _is_visible(catalogue: Catalogue, active: Collection[str], inventory: Inventory, tool: ToolId) -> bool:
    return decide(catalogue, active, inventory).tool_of(*tool) is not None


def _same_name(catalogue: Catalogue, inventory: Inventory, tool: ToolId) -> Inventory:
    """What the servers offer of the tools that go by the exposed name of `tool`: all that the decision on it needs."""
    exposed = _exposed(catalogue, tool)
    return {
        server: Offer.of(
            tools=[each for each in inventory[server].tools if catalogue.naming.expose(server, each["name"]) == exposed]
        )
        for server in catalogue.servers
        if server in inventory
    }


def _way(catalogue: Catalogue, state: ScopeState, skill: str) -> Way | Blocked:
    """How `skill` becomes active, or what keeps it from that whatever is offloaded before."""
    first: list[str] = []
    while isinstance(after := activated(catalogue, state, skill), Blocked):
        going = first_to_go(after, catalogue, state.active)
        if going is None or isinstance(without := offloaded(catalogue, state, going), Blocked):
            return after
        first.append(going)
        state = without
    return Way(skill, tuple(first), after.active)


# --- names -----------------------------------------------------------------------------------------------------------


def _known(catalogue: Catalogue, inventory: Inventory, server: str) -> list[str]:
    """The names of tools of a server that are offered, or spelled in some list."""
    lists = [catalogue.denied, *(each for skill in catalogue.skills for each in (skill.tools, skill.internal))]
    spelled = (name for each in lists for name in each.get(server, NOTHING).literals)
    return list(dict.fromkeys([*_offered(inventory, server), *spelled]))


def _offered(inventory: Inventory, server: str) -> dict[str, Json]:
    return {tool["name"]: tool for tool in inventory.get(server, Offer()).tools}


def _exposed(catalogue: Catalogue, tool: ToolId) -> str | None:
    """The name that clients see; None where the server is switched off."""
    return catalogue.naming.expose(*tool) if tool.server in catalogue.servers else None


def _names(catalogue: Catalogue, tool: ToolId) -> list[str]:
    """How a person may name a tool, the original name last."""
    exposed = _exposed(catalogue, tool)
    spelled = [f"{tool.server}/{tool.tool}", f"{tool.server}.{tool.tool}", tool.tool]
    return spelled if exposed is None else [exposed, *spelled]


def _rests(catalogue: Catalogue, server: str, wanted: str) -> Iterator[str]:
    """What `wanted` may name at a server if it names it together with the server."""
    prefix = catalogue.naming.prefixes.get(server)
    for start in (f"{server}/", f"{server}.", *([f"{prefix}__"] if prefix else ())):
        if wanted.startswith(start) and wanted != start:
            yield wanted.removeprefix(start)


# --- the chain -------------------------------------------------------------------------------------------------------


def _chain(
    catalogue: Catalogue,
    state: ScopeState,
    inventory: Inventory,
    tool: ToolId,
    around: Surroundings,
    granting: Sequence[Skill],
) -> Iterator[str]:
    whole = catalogue if around.policy is None else around.policy.catalogue
    yield _server_line(catalogue, inventory, tool.server, around)
    yield _definition_line(inventory, tool, around)
    yield from _grant_lines(whole, tool)
    yield _deny_line(catalogue, tool)
    if around.policy is not None:
        yield from _profile_lines(around.policy, tool)
    for skill in granting:
        yield _relation_line(catalogue, state, skill)
    exposed = _exposed(catalogue, tool)
    if exposed is not None:
        yield f"name: {_name(catalogue, inventory, tool, exposed)}"
        yield f"client: {_client(_offered(inventory, tool.server).get(tool.tool, {}), exposed, around.settings)}"


def _server_line(catalogue: Catalogue, inventory: Inventory, server: str, around: Surroundings) -> str:
    key = one_line(server, NAME_LIMIT)
    if server not in catalogue.servers:
        return f"server: {key} is switched off"
    if server in inventory and server not in around.not_ready:
        count = len(inventory[server].tools)
        return f"server: {key} offers {count:,} {_plural('tool', count)}"
    return f"server: {key}: {one_line(around.not_ready.get(server, 'it has not been asked'))}"


def _definition_line(inventory: Inventory, tool: ToolId, around: Surroundings) -> str:
    if tool in around.held:
        return f"definition: withheld, since it has changed ({', '.join(around.held[tool])})"
    offered = tool.tool in _offered(inventory, tool.server)
    return f"definition: {'offered' if offered else 'not offered'} as {one_line(tool.tool, NAME_LIMIT)}"


def _grant_lines(catalogue: Catalogue, tool: ToolId) -> list[str]:
    """The skills on whose lists a tool stands, for clients or for steps."""
    lines: list[str] = []
    for skill in catalogue.skills:
        if how := _entry(skill.tools.get(tool.server, NOTHING), tool):
            lines.append(f"list: skill {skill.id} grants it ({how})")
        if how := _entry(skill.internal.get(tool.server, NOTHING), tool):
            lines.append(f"list: skill {skill.id} may call it in its steps ({how} of internal_tools)")
    return lines or ["list: no skill names it"]


def _entry(allow: Allow, tool: ToolId) -> str:
    """What of a list allows a tool; empty where nothing does."""
    if allow.everything:
        return f"all tools of {one_line(tool.server, NAME_LIMIT)}"
    if tool.tool in allow.entries:
        return "its name"
    return next((f"pattern {entry}" for entry in allow.entries if Allow(entries=(entry,)).allows(tool.tool)), "")


def _deny_line(catalogue: Catalogue, tool: ToolId) -> str:
    how = _entry(catalogue.denied.get(tool.server, NOTHING), tool)
    return f"deny: black_tool_actions takes it from every skill ({how})" if how else "deny: nothing denies it"


def _profile_lines(policy: Policy, tool: ToolId) -> Iterator[str]:
    """Which profiles may use the skills that grant a tool; nothing where everybody may use every one."""
    granting = [s for s in policy.catalogue.skills if s.tools.get(tool.server, NOTHING).allows(tool.tool)]
    for number, (profile, usable) in enumerate(zip(policy.profiles, policy.catalogues, strict=True), start=1):
        may = [skill.id for skill in granting if skill.id in usable.by_id]
        may_not = [skill.id + _lacking(profile, skill) for skill in granting if skill.id not in usable.by_id]
        if profile == EVERYBODY and not may_not:
            continue
        said = [f"may use {', '.join(may)}"] if may else []
        said += [f"may not use {', '.join(may_not)}"] if may_not else []
        yield f"profile: {number} ({_meant_for(profile)}) {'; '.join(said) or 'has no skill that grants it'}"


def _lacking(profile: Profile, skill: Skill) -> str:
    """The capabilities of a skill that a profile has not, in brackets; empty where it has all."""
    lacking = [capability for capability in skill.capabilities if not profile.capabilities.allows(capability)]
    return f" (lacks capability {', '.join(lacking)})" if lacking else ""


def _meant_for(profile: Profile) -> str:
    patterns = (("namespace", profile.namespace), ("principal", profile.principal))
    named = [f"{what} {pattern}" for what, pattern in patterns if pattern not in (None, ANYBODY)]
    return ", ".join(named) or "everybody"


def _relation_line(catalogue: Catalogue, state: ScopeState, skill: Skill) -> str:
    said = ["pinned" if skill.pinned else "active" if skill.id in state.active else "not active"]
    if others := required(catalogue, skill.id):
        said.append(f"requires {', '.join(others)}")
    if rivals := catalogue.rivals.get(skill.id):
        how = "takes the place of" if skill.exclusive else "cannot be active beside"
        said.append(f"{how} {', '.join(sorted(rivals))}")
    return f"relation: skill {skill.id}: {'; '.join(said)}"


def _name(catalogue: Catalogue, inventory: Inventory, tool: ToolId, exposed: str) -> str:
    if twins := _twins(catalogue, inventory, tool):
        return f"{exposed} is left out: {', '.join(map(str, twins))} would have it too"
    if catalogue.naming.altered(*tool):
        return f"{exposed}, which is altered and ends in a hash of the original"
    prefix = catalogue.naming.prefixes[tool.server]
    return f"{exposed}, the prefix {prefix} before its own name" if prefix else f"{exposed}, its own name"


def _twins(catalogue: Catalogue, inventory: Inventory, tool: ToolId) -> list[ToolId]:
    """The other tools with the exposed name of one that is offered and not denied, so that none of them is exposed.

    By the decision: a client that is granted all tools of its server would not see it.
    """
    exposed = _exposed(catalogue, tool)
    if exposed is None or catalogue.denies(*tool) or tool.tool not in _offered(inventory, tool.server):
        return []
    probe = Skill("", "", "", "", tools={tool.server: EVERYTHING})
    offers = _same_name(catalogue, inventory, tool)
    if _is_visible(replace(catalogue, skills=(probe,)), ("",), offers, tool):
        return []
    same = [
        ToolId(server, other["name"])
        for server, offer in offers.items()
        for other in offer.tools
        if not catalogue.denies(server, other["name"])
    ]
    same.remove(tool)
    return same


def _client(definition: Json, exposed: str, settings: Settings) -> str:
    """How clients come to it once it is visible, by the settings of lists and of `SKILL_CALL`."""
    if is_for_pages_only(definition):
        return f"listed as {exposed} for the pages of its server's app alone, not for models (_meta.ui.visibility)"
    routes = {
        "on": f"every client can call it through SKILL_CALL as {exposed}",
        "auto": f"clients that may not read a changed list in time call it through SKILL_CALL as {exposed}",
        "off": "SKILL_CALL is off, so that a client has to read its changed list",
    }
    stable = "; lists never change, and have it only where a pinned skill grants it"
    return routes[settings.call_route] + (stable if settings.listing == "stable" else "")


# --- obstacles -------------------------------------------------------------------------------------------------------


def _obstacles(
    catalogue: Catalogue,
    inventory: Inventory,
    tool: ToolId,
    around: Surroundings,
    granting: Sequence[Skill],
    blocked: Mapping[str, Blocked],
) -> Iterator[Obstacle]:
    """Everything that has to change before the tool can be visible."""
    if tool.server not in catalogue.servers or tool.tool not in _offered(inventory, tool.server):
        yield _not_offered(catalogue, inventory, tool, around)
    if catalogue.denies(*tool):
        yield Obstacle("black_tool_actions denies it", "black_tool_actions did not")
    if not granting:
        yield _not_granted(catalogue, tool, around)
    if twins := _twins(catalogue, inventory, tool):
        yield Obstacle(
            f"{', '.join(map(str, twins))} would have the same name",
            f"server {one_line(tool.server, NAME_LIMIT)} had a prefix of its own",
        )
    if len(blocked) == len(granting):
        yield from (_blocked(skill, hindrance) for skill, hindrance in blocked.items())


def _not_offered(catalogue: Catalogue, inventory: Inventory, tool: ToolId, around: Surroundings) -> Obstacle:
    server = one_line(tool.server, NAME_LIMIT)
    if tool.server not in catalogue.servers:
        return Obstacle(f"server {server} is switched off", "it were switched on")
    if tool in around.held:
        return Obstacle("its definition has changed", f"`mcp-skill-proxy pins approve {tool}` approved that")
    if tool.server not in inventory:
        why = one_line(around.not_ready.get(tool.server, "it has not been asked"))
        return Obstacle(f"server {server} offers nothing now ({why})", f"server {server} ran and offered it")
    close = alike(tool.tool, _offered(inventory, tool.server))
    nearest = f" (the nearest is {one_line(close[0], NAME_LIMIT)})" if close else ""
    return Obstacle(f"server {server} offers no tool of that name{nearest}", f"server {server} offered it")


def _not_granted(catalogue: Catalogue, tool: ToolId, around: Surroundings) -> Obstacle:
    whole = catalogue if around.policy is None else around.policy.catalogue
    others = [skill.id for skill in whole.skills if skill.tools.get(tool.server, NOTHING).allows(tool.tool)]
    if others:
        return Obstacle(f"its profile may not use {_named(others)}", f"the profile had {_named(others)}")
    return Obstacle("no skill grants it", f"the tool_list of a skill had {tool}")


def _blocked(skill: str, hindrance: Blocked) -> Obstacle:
    by = f" ({', '.join(hindrance.by)})" if hindrance.by else ""
    because = f"skill {skill} cannot be activated: {hindrance.why.value}{by}"
    if hindrance.why is Hindrance.TOO_MANY:
        return Obstacle(because, "max_active_skills allowed more")
    return Obstacle(because, f"{_named(hindrance.by)} did not have to stay active")


def _named(skills: Collection[str]) -> str:
    return f"{_plural('skill', len(skills))} {', '.join(skills)}"


def _skills(skills: Collection[str]) -> str:
    return f"{_named(skills)} {'is' if len(skills) == 1 else 'are'}"


def _plural(what: str, number: int) -> str:
    return what if number == 1 else f"{what}s"
