"""What the configuration offers: the servers in their order, the skills, and what each skill grants."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import combinations, product
from typing import Any, NamedTuple
from unicodedata import normalize

from proxy.core.names import Naming
from proxy.core.steps import HOOK_TIMEOUT, Bindings, Steps, Workflow, calls

PATTERN_CHARACTERS = frozenset("*?[")


def is_pattern(entry: str) -> bool:
    """Whether an allowlist entry is a shell-style pattern rather than a literal name."""
    return not PATTERN_CHARACTERS.isdisjoint(entry)


@dataclass(frozen=True)
class Allow:
    """One server's allowlist (design rule 4): everything, or the entries: literal names and shell-style patterns."""

    everything: bool = False
    entries: tuple[str, ...] = ()

    @classmethod
    def of(cls, entries: Iterable[str]) -> "Allow":
        """The allowlist of these entries; a bare `*` among them means everything."""
        listed = tuple(dict.fromkeys(entries))
        return cls(everything=True) if "*" in listed else cls(entries=listed)

    def allows(self, name: str) -> bool:
        """Whether `name` is on the list."""
        return self.everything or any(name == entry or fnmatchcase(name, entry) for entry in self.entries)

    @property
    def literals(self) -> tuple[str, ...]:
        """The entries that are names as they stand."""
        return tuple(entry for entry in self.entries if not is_pattern(entry))


EVERYTHING = Allow(everything=True)
NOTHING = Allow()


class SkillFile(NamedTuple):
    """A file of a skill: its path below the skill's folder, with `/` between the parts, and its size in bytes.

    `version`: what differs after every change of it.
    """

    path: str
    size: int
    version: tuple[int, ...] = ()


@dataclass(frozen=True)
class Folder:
    """Where a skill's files are: the folder's absolute path, in which no part is a link, and all below it, by path.

    `document`: the path of its SKILL.md, as the file system spells it. `verbatim`: whether that is the skill's text as
    it stands; else the configuration says some of it in other words. `unserved`: why clients that know skills cannot be
    served it as the standard wants, empty where they can.
    """

    path: str
    document: str
    files: tuple[SkillFile, ...] = ()
    verbatim: bool = True
    unserved: str = ""
    trusted: bool = True
    """Whether what it says of tools counts, and its guide is taken for the user's own."""

    @cached_property
    def by_path(self) -> Mapping[str, SkillFile]:
        """The files by path."""
        return {file.path: file for file in self.files}

    def file(self, path: str) -> SkillFile | None:
        """The file at `path`; where there is none, the one whose path differs only in how Unicode composes it.

        Some file systems take names apart (NFD) that are put together (NFC) where they are asked for.
        """
        return self.by_path.get(path) or self._by_composed_path.get(normalize("NFC", path))

    @cached_property
    def _by_composed_path(self) -> Mapping[str, SkillFile]:
        return {normalize("NFC", file.path): file for file in self.files}


@dataclass(frozen=True)
class Skill:
    """One skill: texts for the model and, by server, what it grants.

    `usage`: its guide; None where that is the text of its folder's SKILL.md, which is read when it is needed. `tools`,
    `resources` and `prompts` map a server's key to its allowlist. `capabilities`: what a profile must have for it.
    `requires`: skills that are active while it is. `conflicts`: skills that cannot be active beside it; an `exclusive`
    one takes their place. `idle_limit`: seconds without use after which it is offloaded.

    `on_activate`, `on_offload`: its hooks, each of which may take `hook_timeout` seconds. `internal`: by server, tools
    that its steps may call beside those that it grants. `bind`: arguments that are filled in for clients while it is
    active. `workflow`: what it runs when it is invoked, None where it cannot be.
    """

    id: str
    name: str
    desc: str
    usage: str | None
    active: bool = False
    pinned: bool = False
    tools: Mapping[str, Allow] = field(default_factory=dict[str, Allow])
    resources: Mapping[str, Allow] = field(default_factory=dict[str, Allow])
    prompts: Mapping[str, Allow] = field(default_factory=dict[str, Allow])
    category: str = ""
    tags: tuple[str, ...] = ()
    version: str = ""
    author: str = ""
    capabilities: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    exclusive: bool = False
    idle_limit: float | None = None
    folder: Folder | None = None
    on_activate: Steps = ()
    on_offload: Steps = ()
    hook_timeout: float = HOOK_TIMEOUT
    internal: Mapping[str, Allow] = field(default_factory=dict[str, Allow])
    bind: Bindings = field(default_factory=dict[str, Mapping[str, Mapping[str, Any]]])
    workflow: Workflow | None = None

    @cached_property
    def servers(self) -> frozenset[str]:
        """Keys of the servers of which it grants something."""
        return frozenset({*self.tools, *self.resources, *self.prompts})

    @cached_property
    def needs(self) -> frozenset[str]:
        """Keys of the servers that it needs: those, and what its steps call."""
        return self.servers | {*self.internal}

    @property
    def has_foreign_guide(self) -> bool:
        """Whether its guide is the text of a folder that is not trusted."""
        return self.usage is None and self.folder is not None and not self.folder.trusted

    @property
    def hooked(self) -> bool:
        """Whether something is done when it begins or ends."""
        return bool(self.on_activate or self.on_offload)


@dataclass(frozen=True)
class Catalogue:
    """The configuration as the gate sees it.

    `servers`: keys in the order of the file, those that are switched off left out. `skills`: in the order of the
    file, only enabled ones. `denied`: tools that no skill grants, by server. `max_active`: most skills active at a
    time, pinned ones aside. `on_start`: what is done before the first call of a scope, within `start_timeout` seconds.
    """

    servers: tuple[str, ...]
    naming: Naming
    skills: tuple[Skill, ...] = ()
    denied: Mapping[str, Allow] = field(default_factory=dict[str, Allow])
    max_active: int | None = None
    on_start: Steps = ()
    start_timeout: float = HOOK_TIMEOUT

    @cached_property
    def by_id(self) -> Mapping[str, Skill]:
        """The skills by id."""
        return {skill.id: skill for skill in self.skills}

    def find(self, id_: str) -> Skill | None:
        """The skill with an id as a client writes it: of two that differ in their Unicode form alone, the exact one."""
        return self.by_id.get(id_) or self._by_composed_id.get(normalize("NFC", id_))

    @cached_property
    def _by_composed_id(self) -> Mapping[str, Skill]:
        return {normalize("NFC", skill.id): skill for skill in self.skills}

    @cached_property
    def literals(self) -> Mapping[str, frozenset[str]]:
        """By server, the names of tools that some skill's list spells."""
        named: dict[str, set[str]] = {}
        for skill in self.skills:
            for server, allow in skill.tools.items():
                named.setdefault(server, set()).update(allow.literals)
        return {server: frozenset(names) for server, names in named.items()}

    @cached_property
    def pinned(self) -> frozenset[str]:
        """The skills that are always active."""
        return frozenset(skill.id for skill in self.skills if skill.pinned)

    @cached_property
    def by_prompt(self) -> Mapping[str, Skill]:
        """The skills by the name of the prompt that each of them is."""
        return {self.naming.prompt_of(skill.id): skill for skill in self.skills}

    @cached_property
    def rivals(self) -> Mapping[str, frozenset[str]]:
        """By skill, those that cannot be active beside it, where there are any.

        One of two has to say so, or they bind an argument of a tool to different values.
        """
        pairs = [(skill.id, other) for skill in self.skills for other in skill.conflicts if other in self.by_id]
        pairs += differing(self.skills)
        both: dict[str, set[str]] = {}
        for one, other in (*pairs, *((other, one) for one, other in pairs)):
            if one != other:
                both.setdefault(one, set()).add(other)
        return {skill: frozenset(others) for skill, others in both.items()}

    @cached_property
    def limited(self) -> Mapping[str, float]:
        """The skills that are offloaded when they are not used, with the seconds until then."""
        return {s.id: s.idle_limit for s in self.skills if s.idle_limit is not None and not s.pinned}

    @cached_property
    def invocable(self) -> tuple[Skill, ...]:
        """The skills that can be invoked."""
        return tuple(skill for skill in self.skills if skill.workflow is not None)

    @cached_property
    def start_tools(self) -> Mapping[str, Allow]:
        """By server, the tools that are called when a scope starts."""
        named: dict[str, list[str]] = {}
        for call in calls(self.on_start):
            if call.server:
                named.setdefault(call.server, []).append(call.tool)
        return {server: Allow(entries=tuple(tools)) for server, tools in named.items()}

    @cached_property
    def needed(self) -> tuple[str, ...]:
        """The servers that something names, in the order of the file; no other is ever started (design rule 25)."""
        wanted = {*self.start_tools, *(server for skill in self.skills for server in skill.needs)}
        return tuple(server for server in self.servers if server in wanted)

    def denies(self, server: str, tool: str) -> bool:
        """Whether `black_tool_actions` takes this tool from every skill (design rule 5)."""
        return self.denied.get(server, NOTHING).allows(tool)

    def servers_of(self, skills: Iterable[str]) -> tuple[str, ...]:
        """The servers of which these skills grant something, in the order of the file."""
        wanted = {server for skill in skills if skill in self.by_id for server in self.by_id[skill].servers}
        return tuple(server for server in self.servers if server in wanted)

    def needed_by(self, skills: Iterable[str]) -> tuple[str, ...]:
        """The servers that these skills need, in the order of the file."""
        wanted = {server for skill in skills if skill in self.by_id for server in self.by_id[skill].needs}
        return tuple(server for server in self.servers if server in wanted)


def differing(skills: Iterable[Skill]) -> Iterator[tuple[str, str]]:
    """Every two skills that bind the same argument of a tool to different values."""
    bound: dict[tuple[str, str, str], dict[str, list[str]]] = {}
    for skill in skills:
        for server, tools in skill.bind.items():
            for tool, arguments in tools.items():
                for argument, value in arguments.items():
                    same = bound.setdefault((server, tool, argument), {})
                    same.setdefault(json.dumps(value, sort_keys=True), []).append(skill.id)
    for groups in bound.values():
        for one, other in combinations(groups.values(), 2):
            yield from product(one, other)
