"""One SKILL.md of the Agent Skills standard: its front matter as a skill of the configuration, and its guide."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import lru_cache
from itertools import islice
from typing import Final, NamedTuple, cast

from proxy.config import core_schema
from proxy.config.allowed_tools import granted, united
from proxy.config.checks import check_references
from proxy.config.document import Plain, decoded, parse_text
from proxy.config.foreign_requires import requires_in
from proxy.config.front_matter import FrontMatter, Unreadable, as_text, read_front_matter
from proxy.config.models import ACTING, ALLOWLISTS, BIND, HOOKS, INTERNAL, SERVERS, SKILLS, STEPS, SkillEntry
from proxy.config.notations import MCP_CONFIGS, TOOL_LIST, UNUSED, Origins, both, parsed, value_in_our_words
from proxy.config.problems import Findings, Place, Problem, Refused
from proxy.config.validation import kind_of, valid_skill, without_nulls

LARGEST: Final = 1024 * 1024
"""Bytes of a SKILL.md."""
LARGEST_FRONT_MATTER: Final = 64 * 1024
"""Bytes of its front matter."""
MOST_VALUES: Final = 2_000
"""Values in a front matter once its aliases are expanded."""

NAME: Final = "name"
DESCRIPTION: Final = "description"
METADATA: Final = "metadata"
ALLOWED_TOOLS: Final = "allowed-tools"

_REQUIRES = "requires"
_MAPPINGS = (*ALLOWLISTS, _REQUIRES, BIND, "parameters", "output_schema")
_LISTS = ("required_capabilities", "requires_skills", "conflicts_with")
_LISTS_OF_STEPS = (*HOOKS, STEPS)
_OUTPUT = "output"
GRANTING: Final = (
    *(key for key in ALLOWLISTS if key != INTERNAL),
    *("active", "pinned", *_LISTS[1:], "exclusive", "max_active_minutes"),
    *ACTING,
)
"""What a skill may say of itself only where it is trusted."""
_STRICT = (*GRANTING, "enabled", _LISTS[0], _REQUIRES)
"""What the gate and the catalogue go by: nothing of it is guessed."""
_PLACE: Place = (SKILLS, "")
"""Where a skill stands whose values are checked as those of `skill_configs` are."""
_NOTHING = SkillEntry()
_TEXTS = ("category", "version", "author")
_READ_AS_TEXT = frozenset({NAME, DESCRIPTION, "license", "compatibility", *_TEXTS, "tags"})
"""Keys that are text as their line has it where that is not valid YAML."""
_RESTRICTING: Final = frozenset({"required_capabilities"})
"""What narrows who may use a skill, whether it is trusted or not."""
_SAID_ELSEWHERE = {"desc": f"write {DESCRIPTION} instead", "usage": "the guide is the text below the front matter"}
"""Keys of `skill_configs` for which a SKILL.md has another place."""
_MCP_SERVERS = SERVERS[2]
_FOREIGN: Mapping[str, str] = {
    **UNUSED,
    **dict.fromkeys(MCP_CONFIGS, "not used: write these servers into the configuration, under servers"),
    "required_tools": "not used: write tool_list: {SERVER: [TOOL]}",
}
"""Keys that other systems have, and what to say of them."""

_MOST_KEYS, _LONGEST_KEY, _MOST_UNKNOWN = 100, 40, 20
"""How many other keys, how long ones, and how many servers are held against those that there are: it takes its time."""
_LONGEST = {NAME: 64, DESCRIPTION: 1024, "compatibility": 500}
_A_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_BEGINNING = re.compile(r"---[ \t]*\r?\n")
_END = re.compile(r"^---[ \t]*\r?$", re.MULTILINE)
_ONLY = "may only hold a-z, 0-9 and single hyphens between them"
_NO_TEXT = "a number or true or false"
_NO_MAPPING = "the front matter must be a mapping with keys such as name and description"
_MARKS = re.compile(r"[\[\]{}\"'`]")


class Parts(NamedTuple):
    """A SKILL.md taken apart. `offset`: how many lines of the file are above the front matter."""

    front_matter: str
    body: str
    offset: int


@dataclass(frozen=True)
class SkillMd:
    """What a SKILL.md says.

    `entry`: the same in `skill_configs`, the guide left out; what allowed-tools grants is in its `tool_list`. `name`:
    empty where there is none. `trusting`: the keys, as written, whose values hold only where the skill is trusted.
    `unknown`: what it grants at servers that there are not. `notes`: what is not as the standard wants it, but can be
    lived with. `unserved`: why clients that know skills cannot be served it as the standard wants, empty where they
    can. `lines`: those of what it does by itself, by place.
    """

    entry: SkillEntry
    name: str
    license: str
    compatibility: str
    trusting: tuple[str, ...] = ()
    unknown: tuple[Problem, ...] = ()
    notes: tuple[Problem, ...] = ()
    unserved: str = ""
    lines: Mapping[Place, int] = field(default_factory=dict[Place, int])


def split(content: bytes, file: str) -> Parts:
    """The front matter and the body of `content`, the bytes of the file called `file`.

    Raises `Refused` for what is not UTF-8 (a byte order mark is fine), is too large, or has no front matter between
    two lines of `---`.
    """
    if len(content) > LARGEST:
        raise _refused(file, 0, f"larger than {LARGEST // 1024**2} MiB: move what is not needed at once to other files")
    text = decoded(content, file)
    if not (beginning := _BEGINNING.match(text)):
        what = 'the first line must be "---": the front matter with name and description begins there'
        raise _refused(file, 1, what)
    if not (end := _END.search(text, beginning.end())):
        raise _refused(file, 1, 'the front matter that begins here does not end: write a line "---" below it')
    front_matter = text[beginning.end() : end.start()]
    if len(front_matter.encode()) > LARGEST_FRONT_MATTER:
        what = f"the front matter is larger than {LARGEST_FRONT_MATTER // 1024} KiB: move text below it"
        raise _refused(file, 1, what)
    return Parts(front_matter, text[end.end() + 1 :], 1)


def body(content: bytes, file: str) -> str:
    """The guide: what is below the front matter, without blank lines around it. Raises `Refused` as `split`."""
    return split(content, file).body.strip("\r\n")


def front_matter(content: bytes, file: str) -> dict[str, core_schema.Json]:
    """The front matter as it is written, with the types of YAML's core schema, for clients that read it themselves.

    Raises `Refused` as `split`, and where it is not a mapping or not YAML that all readers take for the same.
    """
    value = core_schema.of_text(_in_place(split(content, file)), file, MOST_VALUES)
    if not isinstance(value, dict):
        raise _refused(file, 2, _NO_MAPPING)
    return value


def key_of(written: str) -> str:
    """The key of `skill_configs` that says the same as one of `SkillMd.trusting`."""
    return ALLOWLISTS[0] if written == ALLOWED_TOOLS else written.removeprefix(f"{METADATA}.")


def read(content: bytes, file: str, servers: Collection[str], *, trusted: bool = True) -> SkillMd:
    """What `content`, the bytes of the file called `file`, says; `servers`: the keys of those in the configuration.

    A key that cannot be read, or is not as `skill_configs` would have it, is ignored with a note where nothing depends
    on it: other programs use it, or the folder is not `trusted`.

    Raises `Refused`, with every problem, as `split`, where there is no description, and where what decides on tools
    or on being offered is not as `skill_configs` would have it.
    """
    text = _in_place(split(content, file))
    found = read_front_matter(text, file, _NO_MAPPING, MOST_VALUES, _READ_AS_TEXT, METADATA)
    try:
        return _Reader(content, file, servers, found, trusted=trusted).read()
    except Refused:
        if found.fault is None or DESCRIPTION in found.document.data:
            raise
        raise Refused([found.fault]) from None


def _refused(file: str, line: int, what: str) -> Refused:
    return Refused([Problem(file, line, "", what)])


def _in_place(parts: Parts) -> str:
    """The front matter on the lines that it has in the file."""
    return "\n" * parts.offset + parts.front_matter


class _Reader:
    """Reads one front matter, and collects what is wrong with it."""

    def __init__(
        self, content: bytes, file: str, servers: Collection[str], found: FrontMatter, *, trusted: bool
    ) -> None:
        self._content = content
        self._file = file
        self._servers = servers
        self._found = found
        self._deciding = frozenset(_STRICT) if trusted else _RESTRICTING
        """The keys that must be right."""

        self._trusted = trusted
        self._document = document = found.document
        self._top = document.data
        self._places: dict[str, Place] = {}
        self._origins = Origins()
        wrong = [unreadable.problem for unreadable in found.unreadable if self._matters(unreadable)]
        self._findings = Findings(file, document.line, wrong, self._written)
        self._notes: list[Problem] = []
        self._unserved: list[str] = []

    def read(self) -> SkillMd:
        if self._found.fault:
            self._unserved.append(f"the front matter is not valid YAML: {self._found.fault.what}")
        for problem in self._found.quoted:
            self._notes.append(replace(problem, what=f"{problem.what}: read as if the text were in quotes"))
        for unreadable in self._found.unreadable:
            if unreadable.problem not in self._findings.problems:
                self._note_ignored(unreadable.problem)
        metadata = self._metadata()
        self._note_near_misses(self._top, ())
        self._note_near_misses(metadata, (METADATA,))
        for key in _SAID_ELSEWHERE.keys() & self._top.keys():
            self._findings.note((key,), f"ignored: {_SAID_ELSEWHERE[key]}")
        for above, mapping in ((), self._top), ((METADATA,), metadata):
            for key in [key for key in _FOREIGN if key in mapping]:
                self._findings.note((*above, key), _FOREIGN[key])
        description = self._description()
        name = self._name()
        license_, compatibility = self._text("license"), self._text("compatibility")
        strict = self._strict(metadata)
        written: dict[str, Plain] = {**strict, **self._lenient(metadata)}
        if name:
            written[NAME] = name
        entry = self._entry(written)
        allowed = self._granted()
        if self._findings.problems or entry is None:
            raise Refused(self._findings.problems)
        said = [key for key in GRANTING if key in entry.model_fields_set]
        trusting = [self._shown(key) for key in said if getattr(entry, key) != getattr(_NOTHING, key)]
        return SkillMd(
            entry=entry.model_copy(update={"desc": description, "tool_list": united(entry.tool_list, allowed)}),
            name=name,
            license=license_,
            compatibility=compatibility,
            trusting=(*trusting, ALLOWED_TOOLS) if allowed else tuple(trusting),
            unknown=self._unknown(entry),
            notes=(*self._notes, *self._findings.noted),
            unserved="; ".join(self._unserved),
            lines=self._lines(entry),
        )

    def _matters(self, unreadable: Unreadable) -> bool:
        """Whether it must not be guessed what a key says that cannot be read."""
        key = str(unreadable.place[-1])
        if key in (NAME, DESCRIPTION, *self._deciding):
            return len(unreadable.place) == 1 or key in self._deciding
        if key == ALLOWED_TOOLS:
            text = _MARKS.sub(" ", unreadable.text)
            return self._trusted and ("mcp__" in text or bool(granted([text], self._servers)))
        if key == METADATA and any(word in unreadable.text for word in self._deciding):
            return True
        return unreadable.is_open and any(
            line > unreadable.problem.line
            and (place[-1] in self._deciding or (self._trusted and ALLOWED_TOOLS in place))
            for place, line in self._document.lines.items()
            if len(place) == 1 or place[0] == METADATA
        )

    def _entry(self, written: dict[str, Plain]) -> SkillEntry | None:
        """The skill, as one of `skill_configs`; None where that is wrong which must be right."""
        if not self._trusted and self._problems(written):
            written = {
                key: kept for key, value in written.items() if (kept := self._without_force(key, value)) is not None
            }
        return valid_skill(_without_nulls(written, self._findings), _PLACE, self._findings)

    def _without_force(self, key: str, value: Plain) -> Plain:
        """What is right of the value of a key in an untrusted folder; None where nothing is, or it says nothing."""
        if key in self._deciding or not (problems := self._problems({key: value})):
            return value
        self._note_ignored(problems[0])
        if key != _REQUIRES or not isinstance(value, dict):
            return None
        return {inner: each for inner, each in value.items() if not self._problems({key: {inner: each}})}

    def _problems(self, written: dict[str, Plain]) -> tuple[Problem, ...]:
        """What is wrong with these keys."""
        findings = Findings(self._file, self._document.line, (), self._written)
        valid_skill(_without_nulls(written, findings), _PLACE, findings)
        return findings.problems

    def _note_ignored(self, problem: Problem) -> None:
        self._notes.append(replace(problem, what=f"ignored: {problem.what}"))

    def _lines(self, entry: SkillEntry) -> Mapping[Place, int]:
        """Those of what a skill does by itself."""
        acting = entry.model_fields_set.intersection(ACTING)
        if not acting:
            return {}
        tops = {self._places.get(key, (key,)) for key in acting}
        return {at: line for at, line in self._document.lines.items() if at[:1] in tops or at[:2] in tops}

    def _written(self, place: Place) -> Place:
        """Where in the front matter a place stands that is named as one of `skill_configs`."""
        place = self._origins.written(place)
        if place[: len(_PLACE)] != _PLACE:
            return place
        key = place[2:3]
        return (*self._places.get(str(key[0]), key), *place[3:]) if key else ()

    def _shown(self, key: str) -> str:
        return ".".join(map(str, self._places.get(key, (key,))))

    def _metadata(self) -> Mapping[str, Plain]:
        metadata = parsed(self._top.get(METADATA))
        if metadata is None or isinstance(metadata, dict):
            return metadata or {}
        self._findings.note((METADATA,), f"ignored: must be a mapping, not {kind_of(metadata)}")
        return {}

    def _note_near_misses(self, mapping: Iterable[str], place: Place) -> None:
        for key in islice(mapping, _MOST_KEYS):
            if len(key) <= _LONGEST_KEY and (nearest := _near_miss(key)):
                self._findings.note((*place, key), f"unknown key, ignored: did you mean {nearest!r}?")

    def _description(self) -> str:
        text = self._top.get(DESCRIPTION)
        if isinstance(text, dict) and (lines := self._lines_of_description()):
            text = lines
        if text is None or (isinstance(text, str) and not text.strip()):
            slip = (
                None if DESCRIPTION in self._top else next(filter(_like_description, [*self._top][:_MOST_KEYS]), None)
            )
            what = "is missing: write one line by which a model can choose the skill"
            self._findings.problem((slip or DESCRIPTION,), f"write {DESCRIPTION} instead" if slip else what)
            return ""
        if not isinstance(text, str) or not self._is_text(DESCRIPTION):
            kind = kind_of(text) if not isinstance(text, str) else _NO_TEXT
            self._findings.problem((DESCRIPTION,), f"must be text, not {kind}: put it in quotes")
            return ""
        self._check_length(DESCRIPTION, text)
        return text.strip()

    def _lines_of_description(self) -> str | None:
        """The text of a description below its key, which ": " in it makes a mapping; None where it is one in braces."""
        text = as_text(_in_place(split(self._content, self._file)), DESCRIPTION, self._file)
        if text is None or text.startswith("{"):
            return None
        self._findings.note((DESCRIPTION,), 'text with ": " in it needs quotes: read as if the text were in quotes')
        self._unserved.append("its description is no text")
        return text

    def _name(self) -> str:
        name = self._text(NAME)
        if not name:
            self._unserved.append("it has no name")
        elif not _A_NAME.fullmatch(name):
            self._findings.note((NAME,), _ONLY)
            self._unserved.append(f"its name {_ONLY}")
        elif len(name) > _LONGEST[NAME]:
            self._unserved.append(f"its name is longer than {_LONGEST[NAME]} characters")
        elif not self._is_text(NAME):
            self._unserved.append("its name is no text")
        return name

    def _text(self, key: str) -> str:
        """A text that the skill can do without."""
        text = self._top.get(key)
        if text is None:
            return ""
        if not isinstance(text, str):
            self._findings.note((key,), f"ignored: must be text, not {kind_of(text)}")
            return ""
        if not self._is_text(key):
            self._findings.note((key,), f"must be text, not {_NO_TEXT}: taken as text, put it in quotes")
        self._check_length(key, text)
        return text.strip()

    def _is_text(self, key: str) -> bool:
        """Whether a text is one for those too that read the front matter with types."""
        text = self._top[key]
        if not isinstance(text, str) or isinstance(core_schema.of_plain(text), str):
            return True
        try:
            return isinstance(front_matter(self._content, self._file).get(key), str)
        except Refused:  # it is not valid YAML, and was mended by quotes
            return True

    def _check_length(self, key: str, text: str) -> None:
        if key in _LONGEST and len(text) > _LONGEST[key]:
            self._findings.note((key,), f"is longer than {_LONGEST[key]} characters")

    def _strict(self, metadata: Mapping[str, Plain]) -> dict[str, Plain]:
        """What is said of the keys that nothing is guessed of, as one of `skill_configs` says it."""
        found: dict[str, Plain] = {}
        for key in _STRICT:
            if key in self._top:
                found[key] = self._top[key]
            elif key in metadata:
                self._places[key] = (METADATA, key)
                found[key] = self._unpacked(key, metadata[key])
        if TOOL_LIST not in found and (servers := self._named_servers()):
            self._places[TOOL_LIST] = (_MCP_SERVERS,)
            found[TOOL_LIST] = {server: list[Plain]() for server in servers}
        if requires := requires_in(dict(metadata), (METADATA,), self._findings):
            if "requires" not in found:
                self._places["requires"] = (METADATA,)
            found["requires"] = both(requires, found.get("requires", {}))
        return {
            key: value_in_our_words(key, value, (*_PLACE, key), self._servers, self._findings, self._origins)
            for key, value in found.items()
        }

    def _named_servers(self) -> list[str]:
        """The servers that are named as a whole, as AWorld has them beside or instead of a tool_list."""
        named = self._top.get(_MCP_SERVERS)
        names = [named] if isinstance(named, str) else named if isinstance(named, list) else []
        return [name for name in names if isinstance(name, str) and name]

    def _unpacked(self, key: str, value: Plain) -> Plain:
        """A value under `metadata`, where other programs want text: it may be YAML in a text."""
        if not isinstance(value, str):
            return value
        if key in (*_MAPPINGS, *_LISTS_OF_STEPS) and value.strip():
            return self._inner(key, value)
        if key == _OUTPUT and not value.lstrip().startswith("{{"):  # an expression needs no quotes of its own
            return self._inner(key, value)
        if key in _LISTS:
            return self._inner(key, value) if value.lstrip().startswith(("[", "- ")) else [*_words(value)] or value
        return value

    def _inner(self, key: str, text: str) -> Plain:
        """The YAML that a text is; its own words where it is a text again."""
        try:
            document = parse_text(f"{key}:\n{_indented(text)}", self._file, "", MOST_VALUES)
        except Refused as refused:
            problems = refused.problems
        else:
            problems = document.problems
            if not problems:
                return document.data[key]
        for problem in problems:
            what = f"holds YAML that is wrong: {problem.what}"
            if key in self._deciding:
                self._findings.problem((METADATA, key), what)
            else:
                self._findings.note((METADATA, key), f"ignored: {what}")
        return [] if key in (*_LISTS, *_LISTS_OF_STEPS) else {}

    def _lenient(self, metadata: Mapping[str, Plain]) -> dict[str, Plain]:
        """What only people look at: ignored where it is not right."""
        found: dict[str, Plain] = {}
        for key in (*_TEXTS, "tags"):
            place: Place = (key,) if key in self._top else (METADATA, key)
            value = self._top[key] if key in self._top else metadata.get(key)
            if value is None:
                continue
            if isinstance(value, str):
                found[key] = [*_words(value.strip("[]"))] if key == "tags" else value.strip()
            elif key == "tags" and isinstance(value, list) and all(isinstance(tag, str) for tag in value):
                found[key] = [word for tag in value for word in _words(cast("str", tag))]
            else:
                wanted = "a list of words" if key == "tags" else f"text, not {kind_of(value)}"
                self._findings.note(place, f"ignored: must be {wanted}")
        return found

    def _granted(self) -> Mapping[str, tuple[str, ...]]:
        """By server, the tools that allowed-tools names."""
        value = self._top.get(ALLOWED_TOOLS)
        texts: list[str] = []
        for text in value if isinstance(value, list) else [] if value is None else [value]:
            if isinstance(text, str):
                texts.append(text)
            elif text is not None:
                self._findings.note((ALLOWED_TOOLS,), f"ignored: must be text or a list of texts, not {kind_of(text)}")
        return granted(texts, self._servers)

    def _unknown(self, entry: SkillEntry) -> tuple[Problem, ...]:
        """What is granted at servers that there are not; where it requires them, it is not offered anyway."""
        known = dict.fromkeys([*self._servers, *entry.requires.servers])
        named = {kind: list[str](getattr(entry, kind)) for kind in ALLOWLISTS}
        unknown = [server for servers in named.values() for server in servers if server not in known][:_MOST_UNKNOWN]
        if not unknown:
            return ()
        lists: dict[str, Plain] = {
            kind: {server: [] for server in servers if server in unknown} for kind, servers in named.items()
        }
        findings = Findings(self._file, self._document.line, (), self._written)
        check_references({SERVERS[0]: dict(known), SKILLS: {"": lists}}, findings)
        return findings.problems


def _without_nulls(written: dict[str, Plain], findings: Findings) -> Plain:
    kept = without_nulls({SKILLS: {"": written}}, findings)[SKILLS]
    return kept[""] if isinstance(kept, dict) else kept


def _words(text: str) -> Iterator[str]:
    return filter(None, (word.strip().strip("\"'") for word in text.split(",")))


def _indented(text: str) -> str:
    return "".join(f"  {line}" for line in text.splitlines(keepends=True))


def _like_description(key: str) -> bool:
    """Whether a key was probably to be `description`."""
    return len(key) <= _LONGEST_KEY and bool(get_close_matches(key.casefold(), (DESCRIPTION, "desc"), cutoff=0.8))


@lru_cache(maxsize=1024)  # many skills have the same other keys
def _near_miss(key: str) -> str | None:
    """The key of ours that matters for the gate and that `key` was probably to be."""
    known = (*_STRICT, ALLOWED_TOOLS)
    if key in known:
        return None
    close = get_close_matches(key.casefold(), known, n=1, cutoff=0.8)
    return close[0] if close else None
