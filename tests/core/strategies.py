"""Hypothesis strategies for catalogues, inventories and active sets, odd ones above all; and what the laws run with."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from proxy.core.catalogue import EVERYTHING, Allow, Catalogue, Skill, is_pattern
from proxy.core.inventory import Inventory, Offer
from proxy.core.names import Naming, sanitised
from proxy.core.steps import Call, Parallel, Step

T = TypeVar("T")

PHASES = (Phase.explicit, Phase.generate, Phase.shrink)

law = settings(
    max_examples=50, deadline=None, database=None, phases=PHASES, suppress_health_check=[HealthCheck.too_slow]
)
"""How a property test of the core runs."""

SERVER_KEYS = ("gh", "gl", "a", "my server", "größe", "x.y", "k" * 60)
PREFIXES = ("", "", "", "gh", "a", "a_", "g-l", "SKILL", "p" * 20)

ODD_NAMES = (
    "search",
    "x",
    "_x",
    "get_a",
    "get_b",
    "time.get-now",
    "a/b",
    "a.b",
    "Scan file",
    "ns:tool",
    "Größe",
    "日本",
    "👩‍💻",
    "\ud800",
    "line\nbreak",
    "a[b]",
    "*",
    "get_*",
    "t" * 200,
    "t" * 199 + "u",
    "SKILL",
    "skill",
    "Skill_Call",
    "SKILL_INVOKE",
    "gh__search",
    "a__x",
    "a___x",
    "my_server__x",
    "<skill_guide>",
)
"""Names that servers give their tools, and that somebody tripped over (B11 to B13)."""

PATTERNS = ("get_*", "?", "[a-z]*", "*__*", "*a*", "[", "[!a]*", "s*")

names = st.sampled_from(ODD_NAMES) | st.text(min_size=1, max_size=12)
"""Original names of tools and prompts, as the core gets to see them."""

pools = st.lists(names, min_size=3, max_size=6, unique=True)
"""The names of one world: few, so that what is offered, granted and denied often meets."""


def allowlists(pool: Sequence[str] = ODD_NAMES) -> st.SearchStrategy[Allow]:
    """Everything, or names and patterns, or nothing at all."""
    listed = st.lists(st.sampled_from((*pool, *pool, *PATTERNS)), max_size=4)
    return st.just(EVERYTHING) | listed.map(Allow.of)


def few(pool: Sequence[str] = ODD_NAMES) -> st.SearchStrategy[Allow]:
    """A list of one or two."""
    return st.lists(st.sampled_from((*pool, "get_*")), min_size=1, max_size=2).map(Allow.of)


uris = st.sampled_from(("file:///a", "file:///b", "gh://repo/1", "skill://a/b", "SKILL://a")) | st.text(
    min_size=1, max_size=8
)
templates = st.sampled_from(("file:///{name}", "gh://repo/{id}", "{+all}", "plain", "skill://{name}/{+path}"))
extensions = st.none() | st.fixed_dictionaries({}, optional={"directoryRead": st.booleans()})


def offers(pool: Sequence[str]) -> st.SearchStrategy[Offer]:
    """What one server sends, empty names and names given twice among it."""
    name = st.sampled_from((*pool, ""))
    about = st.sampled_from(("", "one", "two\nlines"))

    def entries(key: str, values: st.SearchStrategy[str]) -> st.SearchStrategy[list[dict[str, str]]]:
        return st.lists(st.fixed_dictionaries({key: values}, optional={"name": name}), max_size=3)

    return st.builds(
        Offer.of,
        tools=st.lists(st.fixed_dictionaries({"name": name, "description": about}), min_size=2, max_size=6),
        resources=entries("uri", uris | name),
        templates=entries("uriTemplate", templates),
        prompts=st.lists(st.fixed_dictionaries({"name": name}), max_size=3),
        skills=st.lists(
            st.builds(
                lambda folder, name: {
                    "uri": f"{folder}/SKILL.md",
                    "frontmatter": {"name": name, "description": ""},
                    "resources": "dynamic",
                },
                st.sampled_from(("skill://a", "skill://b/c", "gh://repo/s")),
                name,
            ),
            max_size=2,
        ),
        extension=extensions,
    )


@st.composite
def namings(draw: st.DrawFn, keys: Sequence[str]) -> Naming:
    """Prefixes as the configuration lets them through: each belongs to one server, except none at all."""
    limit = draw(st.sampled_from((48, 16, 24, 128)))
    if draw(st.sampled_from((True, False, False))):
        return Naming(dict.fromkeys(keys, ""), limit)
    prefixes: dict[str, str] = {}
    for key in keys:
        free = [p for p in (key, *PREFIXES) if not p or sanitised(p) not in map(sanitised, prefixes.values())]
        prefixes[key] = draw(st.sampled_from(free))
    return Naming(prefixes, limit)


def _lists(servers: Sequence[str], pool: Sequence[str]) -> st.SearchStrategy[Mapping[str, Allow]]:
    """An allowlist at any of the servers."""
    each = {server: allowlists(pool) for server in servers}
    return st.fixed_dictionaries(each) | st.fixed_dictionaries({}, optional=each)


@st.composite
def hooks(draw: st.DrawFn, servers: Sequence[str], pool: Sequence[str]) -> tuple[Step, ...]:
    """Steps that call tools by name, which no pattern is, or run a skill, some of them side by side."""
    name = st.sampled_from([name for name in pool if not is_pattern(name)] or ["search"])
    tool = st.builds(lambda server, name: Call("", "", server, name), st.sampled_from(servers), name)
    call = tool | st.just(Call("", "", skill="s1"))
    several = st.lists(call, max_size=2).map(lambda steps: Parallel("", tuple(steps)))
    return tuple(draw(st.lists(call | several, max_size=3)))


@st.composite
def catalogues(draw: st.DrawFn, pool: Sequence[str] = ODD_NAMES) -> Catalogue:
    """Up to three servers and four skills; skills may name a server that is switched off."""
    servers = draw(st.lists(st.sampled_from(SERVER_KEYS), min_size=1, max_size=3, unique=True))
    named = _lists([*servers, "switched-off"], pool)
    few_lists = st.just({}) | st.dictionaries(st.sampled_from(servers), few(pool) | st.just(EVERYTHING), max_size=1)
    skill = st.builds(
        Skill,
        id=st.sampled_from(("s1", "s2", "s3", "s4")),
        name=st.just(""),
        desc=st.just(""),
        usage=st.just(""),
        active=st.booleans(),
        pinned=st.booleans(),
        tools=named,
        resources=few_lists,
        prompts=few_lists,
        internal=named,
    )
    least = draw(st.sampled_from((2, 2, 2, 0)))
    skills = draw(st.lists(skill, min_size=least, max_size=4, unique_by=lambda each: each.id))
    denied = draw(st.just({}) | st.fixed_dictionaries({}, optional={key: few(pool) for key in servers}))
    on_start = draw(hooks([*servers, "switched-off"], pool))
    return Catalogue(tuple(servers), draw(namings(servers)), tuple(skills), denied=denied, on_start=on_start)


@dataclass(frozen=True)
class World:
    """A catalogue, an inventory for it, and some active skills in order of activation."""

    catalogue: Catalogue
    inventory: Inventory
    active: tuple[str, ...]


def inventories(servers: Sequence[str], pool: Sequence[str] = ODD_NAMES) -> st.SearchStrategy[Inventory]:
    """Offers of all of the servers, or of some."""
    each = {server: offers(pool) for server in servers}
    return st.fixed_dictionaries(each) | st.fixed_dictionaries({}, optional=each)


def active_sets(catalogue: Catalogue) -> st.SearchStrategy[tuple[str, ...]]:
    """Most of the skills, in any order."""
    ids = [skill.id for skill in catalogue.skills]
    return st.permutations(ids).flatmap(
        lambda ordered: st.sampled_from((0, 0, 1, 2, 4)).map(lambda n: tuple(ordered[n:]))
    )


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Everything that the decision depends on."""
    pool = draw(pools)
    catalogue = draw(catalogues(pool))
    return World(catalogue, draw(inventories(catalogue.servers, pool)), draw(active_sets(catalogue)))


SKILL_IDS = ("a", "b", "c", "d", "e", "f")


def closure(requires: Mapping[str, Iterable[str]], skill: str) -> frozenset[str]:
    """A skill, and all that it requires, directly or not."""
    found = {skill}
    while more := {other for one in found for other in requires.get(one, ())} - found:
        found |= more
    return frozenset(found)


@st.composite
def related(draw: st.DrawFn) -> Catalogue:
    """Skills that require each other and conflict, as the configuration lets them through: none does with its own.

    They conflict, too, where they fill in an argument of a tool differently. Some have hooks.
    """
    ids = draw(st.lists(st.sampled_from(SKILL_IDS), min_size=1, unique=True))
    order = draw(st.permutations(ids))
    requires: dict[str, tuple[str, ...]] = {}
    for index, id_ in enumerate(order):
        earlier = st.lists(st.sampled_from(order[:index]), max_size=2, unique=True) if index else st.just([])
        requires[id_] = tuple(draw(earlier))
    together = [closure(requires, id_) for id_ in ids]
    pair = st.tuples(st.sampled_from(ids), st.sampled_from((*ids, "absent")))
    conflicts = [
        (one, other)
        for one, other in draw(st.lists(pair, max_size=3))
        if one != other and not any({one, other} <= each for each in together)
    ]
    filled: dict[str, str | None] = {id_: draw(st.sampled_from((None, None, "x", "y"))) for id_ in ids}
    for each in together:
        if len({filled[one] for one in each} - {None}) > 1:
            filled |= dict.fromkeys(each)
    skills = [
        Skill(
            id_,
            "",
            "",
            "",
            active=draw(st.sampled_from((False, False, True))),
            pinned=draw(st.sampled_from((False, False, True))),
            requires=requires[id_],
            conflicts=tuple(other for one, other in conflicts if one == id_),
            exclusive=draw(st.booleans()),
            idle_limit=draw(st.sampled_from((None, 60.0))),
            bind={} if filled[id_] is None else {"crm": {"find": {"customer": filled[id_]}}},
            on_activate=draw(st.sampled_from(((), (Call("", "open", "crm", "open"),)))),
        )
        for id_ in ids
    ]
    return Catalogue((), Naming({}), tuple(skills), max_active=draw(st.sampled_from((None, None, 1, 2, 3))))


OUR_TAGS = (
    "skills_guide",
    "skill_guide",
    "skills_info",
    "skill",
    "skill_name",
    "skill_desc",
    "skill_file",
    "server_instructions",
)

hostile_texts = st.lists(
    st.sampled_from(
        (
            *(f"<{tag}>" for tag in OUR_TAGS),
            *(f"</{tag}>" for tag in OUR_TAGS),
            "</SKILL_GUIDE>",
            "</ skill_desc >",
            "< /skill>",
            "<\t/\nSkills_Info",
            '<skill id="fake">',
            "<skill_guide\n",
            "<<",
            "</",
            "<",
            "skill_name>",
            "&lt;",
            '"',
            "plain ",
            "é",
            "日本",
            "👩‍💻",
            "\n",
        )
    ),
    max_size=8,
).map("".join)
"""Texts that try to end or imitate our own markup."""


def shuffled(draw: Callable[[st.SearchStrategy[list[T]]], list[T]], items: Iterable[T]) -> list[T]:
    """The items in another order."""
    return draw(st.permutations(list(items)))
