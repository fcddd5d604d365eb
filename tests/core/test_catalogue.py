"""Allowlists and the catalogue (design rules 4, 5 and 25)."""

from dataclasses import replace

import pytest
from hypothesis import given

from proxy.core.catalogue import EVERYTHING, NOTHING, Allow, Catalogue, Skill, differing
from proxy.core.names import Naming
from proxy.core.steps import Call, Parallel, Workflow
from tests.core.strategies import allowlists, law, names


@pytest.mark.parametrize(
    ("entries", "allowed", "refused"),
    [
        (["a", "b"], ["a", "b"], ["A", "ab", "", "a "]),
        (["get_*"], ["get_", "get_a", "get_a\nb"], ["Get_a", "forget_a"]),
        (["?"], ["a", "ß"], ["", "ab"]),
        (["[ab]x"], ["ax", "bx", "[ab]x"], ["cx"]),
        (["["], ["["], ["a"]),
        ([], [], ["a", ""]),
        (["a", "*"], ["a", "anything"], []),
    ],
)
def test_an_allowlist_holds_names_and_shell_patterns(entries: list[str], allowed: list[str], refused: list[str]):
    """Case counts; a tool whose name looks like a pattern is still meant by its own name."""
    allow = Allow.of(entries)

    assert [name for name in (*allowed, *refused) if allow.allows(name)] == allowed


def test_a_star_among_the_entries_means_everything():
    """It is the same as everything, so that resources and prompts come with it."""
    assert Allow.of(["a", "*"]) == EVERYTHING
    assert Allow.of(iter(["a"])) != EVERYTHING


def test_an_entry_given_twice_stands_once():
    """The order of the file stays."""
    assert Allow.of(["b", "a", "b"]).entries == ("b", "a")


def test_literals_are_the_entries_that_are_names():
    """A refusal may promise only what is certain to be meant."""
    assert Allow.of(["get_*", "a", "b?", "[c]", "d"]).literals == ("a", "d")


@law
@given(allow=allowlists(), name=names)
def test_literals_are_allowed_and_nothing_allows_nothing(allow: Allow, name: str):
    """Every literal is on its list; the empty list has no name on it."""
    assert all(allow.allows(literal) for literal in allow.literals)
    assert not NOTHING.allows(name)
    assert EVERYTHING.allows(name)


SKILLS = (
    Skill("one", "One", "", "", tools={"b": EVERYTHING}, prompts={"a": EVERYTHING}),
    Skill("two", "Two", "", "", resources={"off": EVERYTHING}),
)
CATALOGUE = Catalogue(
    servers=("a", "b", "c"),
    naming=Naming({"a": "a", "b": "b", "c": "c"}),
    skills=SKILLS,
    denied={"a": Allow.of(["rm*", "drop"])},
)


def test_only_servers_that_a_skill_names_are_needed():
    """Also those of which it wants prompts or resources alone; none that is switched off."""
    assert CATALOGUE.needed == ("a", "b")


def test_servers_of_skills_come_in_the_order_of_the_file():
    """Unknown skills and servers that are switched off count for nothing."""
    assert CATALOGUE.servers_of(["two", "one", "no such skill"]) == ("a", "b")
    assert CATALOGUE.servers_of([]) == ()


def test_a_skill_needs_the_servers_that_its_steps_call_besides():
    """Which it does not grant; what a scope's start calls is needed, too."""
    acting = Skill("acting", "", "", "", tools={"b": EVERYTHING}, internal={"a": Allow.of(["open"]), "off": EVERYTHING})
    start = (
        Call("on_scope_start[0]", "find", "c", "find"),
        Parallel("on_scope_start[1]", (Call("", "find", "c", "list"), Call("", "run", skill="acting"))),
    )
    catalogue = replace(CATALOGUE, skills=(*SKILLS, acting), on_start=start)

    assert catalogue.servers_of(["acting"]) == ("b",)
    assert catalogue.needed_by(["acting"]) == catalogue.needed_by(["acting", "no such skill"]) == ("a", "b")
    assert catalogue.needed_by([]) == ()
    assert catalogue.start_tools == {"c": Allow.of(["find", "list"])}
    assert catalogue.needed == ("a", "b", "c")
    assert CATALOGUE.start_tools == {}


def test_skills_with_hooks_do_something_when_they_begin_or_end():
    """One is enough; steps that are run when they are invoked do not count, but make them invocable."""
    steps = (Call("steps[0]", "find", "c", "find"),)
    skills = (
        Skill("begins", "", "", "", on_activate=steps),
        Skill("ends", "", "", "", on_offload=steps),
        Skill("runs", "", "", "", workflow=Workflow(steps, {})),
    )

    assert [skill.hooked for skill in skills] == [True, True, False]
    assert replace(CATALOGUE, skills=skills).invocable == skills[2:]


def test_skills_that_fill_in_an_argument_differently_are_rivals():
    """Each with each, for one argument of one tool of one server; the same value, to the order of its keys, is not."""

    def binding(id_: str, value: object, server: str = "a", argument: str = "customer") -> Skill:
        return Skill(id_, "", "", "", bind={server: {"find": {argument: value}}})

    skills = (
        binding("one", {"id": 1, "of": "x"}),
        binding("same", {"of": "x", "id": 1}),
        binding("true", True),
        binding("number", 1),
        binding("elsewhere", 2, server="b"),
        binding("another argument", 3, argument="limit"),
        *SKILLS,
    )

    pairs = {frozenset(pair) for pair in differing(skills)}

    groups = ({"one", "same"}, {"true"}, {"number"})
    assert pairs == {
        frozenset({one, other})
        for group in groups
        for one in group
        for rest in groups
        if rest != group
        for other in rest
    }
    rivals = replace(CATALOGUE, skills=skills).rivals
    assert rivals == {
        "one": {"true", "number"},
        "same": {"true", "number"},
        "true": {"one", "same", "number"},
        "number": {"one", "same", "true"},
    }


def test_pinned_are_the_skills_that_are_always_active():
    """Not those that only begin active."""
    skills = (Skill("begins", "", "", "", active=True), Skill("stays", "", "", "", pinned=True), *SKILLS)

    assert Catalogue((), Naming({}), skills).pinned == {"stays"}
    assert CATALOGUE.pinned == frozenset()


def test_limited_are_the_skills_that_are_offloaded_by_themselves():
    """With the seconds that they may be idle; what is pinned stays in any case."""
    skills = (
        Skill("short", "", "", "", idle_limit=60.0),
        Skill("stays", "", "", "", idle_limit=60.0, pinned=True),
        *SKILLS,
    )

    assert Catalogue((), Naming({}), skills).limited == {"short": 60.0}


def test_each_skill_is_found_by_the_name_of_its_prompt():
    """In the order of the file."""
    skills = (*SKILLS, Skill("my skill", "", "", ""))
    found = Catalogue((), Naming({}), skills).by_prompt

    assert list(found.values()) == list(skills)
    assert list(found) == [Naming({}).prompt_of(skill.id) for skill in skills]


def test_denied_tools_are_denied_at_their_server_alone():
    """Literal names and patterns."""
    assert [CATALOGUE.denies("a", tool) for tool in ("rm", "rmdir", "drop", "ls")] == [True, True, True, False]
    assert not CATALOGUE.denies("b", "rm")


def test_skills_are_found_by_id():
    """In the order of the file."""
    assert list(CATALOGUE.by_id) == ["one", "two"]
    assert CATALOGUE.by_id["two"] is SKILLS[1]
