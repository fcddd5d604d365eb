"""Other systems' notations of servers and skills, put into the words of this configuration.

What is clear is read as it was meant. Of what is not, a problem or a note says what to write instead. What each system
has is in docs/coming-from.md.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from proxy.config.allowed_tools import tool_named, united
from proxy.config.document import Bare, Plain, parse_text
from proxy.config.foreign_requires import requires_in
from proxy.config.models import INTERNAL, SERVERS, SKILLS
from proxy.config.problems import Findings, Place, Refused, did_you_mean, shown
from proxy.config.triple_quotes import unquoted

MCP_CONFIG: Final = "mcp_config"
MCP_CONFIGS: Final = (MCP_CONFIG, "mcpConfig")
TOOL_LIST: Final = "tool_list"
ALIASES: Final[Mapping[str, str]] = {"description": "desc", "required_tools": TOOL_LIST, "requiredTools": TOOL_LIST}
"""Other names of keys of a skill."""
UNUSED: Final[Mapping[str, str]] = {
    "skill_type": "not used: every skill is a guide, with the tools that it grants",
    "entry_points": "not used: these scripts become no tools; the model can read them as files of the skill's folder, "
    "and tools come from a server that tool_list names",
}
"""Keys of a skill that other systems have, and what to say of them."""
UNUSED_IN_ENTRIES: Final[Mapping[str, str]] = {
    **UNUSED,
    "type": UNUSED["skill_type"],
    "is_builtin": "not used: no skill is built in",
    "skill_path": "not used: folders with skills stand in skill_paths",
}
PLUGIN: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("init_skills", "initSkills"),
        "no skill runs by being named here: write active: true at a skill whose guide and tools are to be there from "
        "the start, or on_scope_start: [{skill: ID}] to run the steps of one before a client's first call",
    ),
    **dict.fromkeys(
        ("finalization_skills", "finalizationSkills"),
        "no skill runs by being named here: write on_offload at a skill, whose steps are done when it is offloaded and "
        "when the client's state ends",
    ),
}
"""Keys of a plugin of an agent framework, at the top, and what to write instead."""

_TEXTS: Final = ("usage", "desc")
_OTHER_TOOL_LISTS: Final = tuple(alias for alias, key in ALIASES.items() if key == TOOL_LIST)
_LISTS_OF_TOOLS: Final = (TOOL_LIST, INTERNAL)
_NAMED_PARAMETERS: Final = ("parameters", "output_schema")
_STARTS: Final = ("command", "url", "httpUrl", "serverUrl")
_TRUE: Final = Bare("true")
_WRITE_SERVERS: Final = "write mcp_config: {mcpServers: {NAME: {command: PROGRAM}}}, or better servers: at the top"


class Origins:
    """Where in a file stands what other places here name."""

    def __init__(self) -> None:
        self._origins: dict[Place, Place] = {}

    def note(self, place: Place, origin: Place) -> None:
        """What is at `place` here is written at `origin`."""
        if place != origin:
            self._origins[place] = origin

    def written(self, place: Place) -> Place:
        """Where `place` is written."""
        for end in range(len(place), 0, -1):
            if (origin := self._origins.get(place[:end])) is not None:
                return (*origin, *place[end:])
        return place


def in_our_words(data: Mapping[str, Plain], findings: Findings, origins: Origins) -> dict[str, Plain]:
    """The file `data` as it would stand in the words of this configuration; `origins` gets what was moved.

    What cannot be is named in `findings`, by its place in the file, and left out.
    """
    reading = _File(dict(data), findings, origins)
    reading.read()
    return reading.data


class _File:
    """Reads one file. `data`: what it says, in our words as far as it was read."""

    def __init__(self, data: dict[str, Plain], findings: Findings, origins: Origins) -> None:
        self.data = data
        self._findings = findings
        self._origins = origins

    def read(self) -> None:
        for key in [key for key in self.data if key in PLUGIN]:
            self._findings.problem((key,), PLUGIN[key])
            del self.data[key]
        for key in MCP_CONFIGS:
            if key in self.data:
                self._servers_of_file(key, self.data.pop(key))
        skills = self._skills()
        for id_, (at, entry) in skills.items():
            self._servers_of_skill(id_, at, entry)
        known = [key for part in SERVERS for key in _mapping(self.data.get(part))]
        for id_, (at, entry) in skills.items():
            place = (SKILLS, id_)
            self._origins.note(place, at)
            words = skill_in_our_words(id_, entry, at, known, self._findings, self._origins)
            _mapping(self.data[SKILLS])[id_] = words

    def _servers_of_file(self, key: str, value: Plain) -> None:
        if value is None or (found := self._servers_in(value, (key,))) is None:
            return
        servers, origin = found
        if present := next((part for part in SERVERS if part in self.data), None):
            first = self._findings.line((present,))
            what = f"servers are given twice, here and on line {first}: put all under one key"
            self._findings.problem((key,), what)
            return
        self.data[SERVERS[1]] = servers
        self._origins.note((SERVERS[1],), origin)

    def _servers_in(self, config: Plain, at: Place) -> tuple[dict[str, Plain], Place] | None:
        """The servers of a `mcp_config` at `at`, and where they stand; None where that is a problem."""
        mapping = _mapping(parsed(config))
        for key in SERVERS:
            if isinstance(servers := mapping.get(key), dict):
                for other in mapping.keys() - {key}:
                    self._findings.note((*at, other), "not used: only the servers are taken from here")
                return servers, (*at, key)
        entries = all(
            isinstance(entry, dict) and any(start in entry for start in _STARTS) for entry in mapping.values()
        )
        if entries and (mapping or config == {}):
            return mapping, at
        self._findings.problem(at, f"holds no servers: {_WRITE_SERVERS}")
        return None

    def _skills(self) -> dict[str, tuple[Place, dict[str, Plain]]]:
        """The skills that are mappings, by id, each with its place in the file."""
        skills = self.data.get(SKILLS)
        if isinstance(skills, list) and skills and all(isinstance(entry, dict) for entry in skills):
            found = self._by_id(skills)
            self.data[SKILLS] = {id_: entry for id_, (_, entry) in found.items()}
            return found
        if not isinstance(skills, dict):
            return {}
        found: dict[str, tuple[Place, dict[str, Plain]]]
        found = {id_: ((SKILLS, id_), dict(entry)) for id_, entry in skills.items() if isinstance(entry, dict)}
        self.data[SKILLS] = {**skills, **{id_: entry for id_, (_, entry) in found.items()}}
        return found

    def _by_id(self, skills: list[Plain]) -> dict[str, tuple[Place, dict[str, Plain]]]:
        found: dict[str, tuple[Place, dict[str, Plain]]] = {}
        for index, entry in enumerate(map(_mapping, skills)):
            id_ = entry.get("id") or entry.get("name")
            if not isinstance(id_, str):
                self._findings.problem((SKILLS, index), "has no id: write the skills as a mapping, each under its id")
            elif id_ in found:
                self._findings.problem((SKILLS, index), f"there is a skill {id_!r} above: each needs an id of its own")
            else:
                found[id_] = ((SKILLS, index), {key: value for key, value in entry.items() if key != "id"})
        return found

    def _servers_of_skill(self, id_: str, at: Place, entry: dict[str, Plain]) -> None:
        """Take the servers that a skill's entry defines to the others; it keeps their names, if it grants nothing."""
        for key in (*MCP_CONFIGS, *SERVERS):
            value = entry.get(key)
            if key in MCP_CONFIGS:
                entry.pop(key, None)
                found = self._servers_in(value, (*at, key)) if value is not None else None
            else:
                found = (value, (*at, key)) if isinstance(value, dict) else None
            if found is None:
                continue
            servers, origin = found
            entry.pop(key, None)
            self._add_servers(servers, origin)
            if servers and entry.keys().isdisjoint((*SERVERS, TOOL_LIST, *_OTHER_TOOL_LISTS)):
                entry[SERVERS[2]] = [*servers]
                self._origins.note((SKILLS, id_, SERVERS[2]), origin)

    def _add_servers(self, servers: Mapping[str, Plain], at: Place) -> None:
        part = next((part for part in SERVERS if part in self.data), SERVERS[0])
        all_of_them = self.data.get(part, {})
        if not isinstance(all_of_them, dict):
            return
        self.data[part] = all_of_them = dict(all_of_them)
        for name, entry in servers.items():
            if name not in all_of_them:
                all_of_them[name] = entry
                self._origins.note((part, name), (*at, name))
            elif all_of_them[name] != entry:
                told = shown(self._origins.written((part, name)))
                self._findings.problem((*at, name), f"says otherwise than {told}: keep one of them")


def skill_in_our_words(
    id_: str, entry: Mapping[str, Plain], at: Place, servers: Collection[str], findings: Findings, origins: Origins
) -> dict[str, Plain]:
    """The entry of the skill `id_`, which is written at `at`, in the words of `skill_configs`.

    `servers`: the keys that there are. What cannot be is named in `findings`, and left out.
    """
    words = dict(entry)
    ours: Place = (SKILLS, id_)
    if (own := words.pop("id", None)) is not None and own != id_:
        findings.problem((*at, "id"), f"the id of a skill is the key of its entry, here {id_!r}: write it there")
    for key in [key for key in words if key in UNUSED_IN_ENTRIES]:
        findings.note((*at, key), UNUSED_IN_ENTRIES[key])
        del words[key]
    _take_aliases(words, at, ours, findings, origins)
    for key in _TEXTS:
        if isinstance(text := words.get(key), str):
            words[key] = unquoted(text)
    for key in (*_LISTS_OF_TOOLS, *_NAMED_PARAMETERS):
        if key in words:
            place = (*ours, key)
            words[key] = value_in_our_words(key, words[key], place, servers, findings, origins)
    _take_servers(words, at, ours, findings, origins)
    _take_requires(words, at, ours, findings, origins)
    return words


def value_in_our_words(
    key: str, value: Plain, place: Place, servers: Collection[str], findings: Findings, origins: Origins
) -> Plain:
    """The value of one key of a skill, which stands at `place` here, in our words where it is understood."""
    at = origins.written(place)
    if key in _LISTS_OF_TOOLS:
        value = parsed(value)
        if isinstance(value, list) and value:
            return _of_list(value, at, place, servers, findings, origins)
        if isinstance(value, dict):
            return {server: _listed_tools(server, tools, place, origins) for server, tools in value.items()}
    if key in _NAMED_PARAMETERS and isinstance(value, list):
        return _parameters(value, at, place, findings, origins)
    return value


def _take_aliases(words: dict[str, Plain], at: Place, ours: Place, findings: Findings, origins: Origins) -> None:
    for alias, key in ALIASES.items():
        if alias not in words:
            continue
        value = words.pop(alias)
        if key not in words:
            words[key] = value
            origins.note((*ours, key), (*at, alias))
        elif words[key] != value:
            findings.problem((*at, alias), f"is another name of {key}, and says otherwise: keep one of them")


def _take_requires(words: dict[str, Plain], at: Place, ours: Place, findings: Findings, origins: Origins) -> None:
    """What a skill requires, also where its `metadata` says so; nothing else of that is used."""
    place = (*at, "metadata")
    if requires := requires_in(words.pop("metadata", None), place, findings):
        if "requires" not in words:
            origins.note((*ours, "requires"), place)
        words["requires"] = both(requires, words.get("requires", {}))
    if isinstance(own := words.get("requires"), dict) and "anyBins" in own:
        words["requires"] = {"any_bins" if key == "anyBins" else key: value for key, value in own.items()}


def _take_servers(words: dict[str, Plain], at: Place, ours: Place, findings: Findings, origins: Origins) -> None:
    """The servers that a skill names as a whole: all their tools, where nothing chooses among these."""
    for key in SERVERS:
        if key not in words:
            continue
        written = origins.written((*ours, key)) if key == SERVERS[2] else (*at, key)
        value = words.pop(key)
        names = [value] if isinstance(value, str) else value
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            findings.problem(written, "must be a list of names of servers: write tool_list: {SERVER: []}")
            continue
        servers = [name for name in names if isinstance(name, str)]
        if TOOL_LIST not in words:
            if servers:
                words[TOOL_LIST] = {server: list[Plain]() for server in servers}
                origins.note((*ours, TOOL_LIST), written)
                granted = ", ".join(f"{shown((server,))}: []" for server in servers)
                findings.note(written, f"read as tool_list: {{{granted}}}, all tools of these servers")
            continue
        listed = words[TOOL_LIST]
        if isinstance(listed, dict) and {*listed} != {*servers}:
            what = "names other servers than tool_list: take it out, since tool_list says which tools are granted"
            findings.problem(written, what)


def _listed_tools(server: str, tools: Plain, place: Place, origins: Origins) -> Plain:
    """The tools of one server, which may stand under a key of their own."""
    if isinstance(tools, dict) and tools.keys() == {"tools"}:
        origins.note((*place, server), (*origins.written((*place, server)), "tools"))
        return tools["tools"]
    return tools


def _of_list(
    items: list[Plain], at: Place, place: Place, servers: Collection[str], findings: Findings, origins: Origins
) -> Plain:
    """A list of tools by server, as other systems write one: `[{server, tools}]`, or names of tools with their server.

    Where all are bare names, it is left as it is.
    """
    if all(isinstance(item, str) and not _has_mark(item) for item in items):
        return items
    tools: dict[str, tuple[str, ...]] = {}
    odd: dict[str, Plain] = {}
    for index, item in enumerate(items):
        for server, granted, where in _of_item(item, (*at, index), servers, findings):
            origins.note((*place, server), where)
            names = _names(granted)
            if all(isinstance(tool, str) for tool in names):
                tools = united(tools, {server: () if "*" in names else tuple(map(str, names))})
            else:
                odd[server] = granted
    return {**{server: list[Plain](names) for server, names in tools.items()}, **odd}


def _of_item(
    item: Plain, at: Place, servers: Collection[str], findings: Findings
) -> Iterator[tuple[str, Plain, Place]]:
    """What one item grants: a server, its tools, and where they stand."""
    if isinstance(item, dict):
        name = next((key for key in ("server", "server_name", "mcp_server") if isinstance(item.get(key), str)), "")
        if not name:
            yield from ((server, tools, (*at, server)) for server, tools in item.items())
        elif tools := next((key for key in ("tools", "tool_names", TOOL_LIST) if item.get(key) is not None), ""):
            yield str(item[name]), item[tools], (*at, tools)
        else:
            findings.problem(at, f"says no tools: write tool_list: {{{shown((str(item[name]),))}: []}} for all of them")
    elif isinstance(item, str) and (named := tool_named(item, servers)):
        yield named[0], [named[1]], at
    elif isinstance(item, str) and item in servers:
        findings.problem(at, f"names a server and no tool: write tool_list: {{{shown((item,))}: []}} for all of them")
    elif isinstance(item, str):
        server = next((item.partition(mark)[0] for mark in ("/", "__", ".", ":") if mark in item), "")
        unknown = f"unknown server {server!r}: {did_you_mean(server, servers)}; " if server else "names no server: "
        findings.problem(at, f"{unknown}write tool_list: {{SERVER: [TOOL]}}")
    else:
        findings.problem(at, "names no tool: write tool_list: {SERVER: [TOOL]}")


def _has_mark(text: str) -> bool:
    return any(mark in text for mark in ("/", "__", ".", ":"))


def _parameters(items: list[Plain], at: Place, place: Place, findings: Findings, origins: Origins) -> Plain:
    """Parameters as a list: each says its name, and is required unless it says otherwise."""
    named: dict[str, Plain] = {}
    for index, item in enumerate(map(_mapping, items)):
        name = item.get("name")
        if not isinstance(name, str) or not name:
            what = "has no name: write {name: NAME, type: string}, or all by name, NAME: {type: string}"
            findings.problem((*at, index), what)
        elif name in named:
            findings.problem((*at, index), f"there is a {name!r} above: each needs a name of its own")
        else:
            told: dict[str, Plain] = {key: value for key, value in item.items() if key != "name"}
            named[name] = {"required": _TRUE, **told} if "default" not in told else told
            origins.note((*place, name), (*at, index))
    return named


def both(one: Mapping[str, Plain], other: Plain) -> Plain:
    """What both say is required."""
    if not isinstance(other, dict):
        return other
    both: dict[str, Plain] = {**one, **other}
    for key in one.keys() & other.keys():
        first, second = _names(one[key]), _names(other[key])
        both[key] = [*dict.fromkeys([*first, *second])]
    return both


def _names(value: Plain) -> list[Plain]:
    return value if isinstance(value, list) else [value]


def _mapping(value: Plain) -> dict[str, Plain]:
    return value if isinstance(value, dict) else {}


def parsed(value: Plain) -> Plain:
    """What a text holds that is JSON itself, as some systems write it; any other value as it is."""
    if not isinstance(value, str) or not value.lstrip().startswith(("{", "[")):
        return value
    try:
        return parse_text(f"value: {value.strip()}", "", "").data["value"]
    except Refused:
        return value
