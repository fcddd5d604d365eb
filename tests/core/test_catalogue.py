"""Allowlists and the catalogue (design rules 4, 5 and 25)."""

import pytest
from hypothesis import given

from proxy.core.catalogue import EVERYTHING, NOTHING, Allow, Catalogue, Skill
from proxy.core.names import Naming
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
