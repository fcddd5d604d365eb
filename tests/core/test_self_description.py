"""What the proxy says of itself to a client that connects: capabilities, and instructions (design rule 18)."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS

from proxy import __version__
from proxy.core.catalogue import EVERYTHING, Catalogue, Skill
from proxy.core.names import Naming
from proxy.core.protocol import HANDSHAKE_VERSIONS, MODERN_VERSIONS, negotiated
from proxy.core.self_description import (
    INSTRUCTIONS_LIMIT,
    capabilities,
    discover_result,
    initialize_result,
    instructions,
)
from proxy.core.settings import Publish
from tests.core.strategies import OUR_TAGS, hostile_texts, law


def catalogue(*skills: Skill) -> Catalogue:
    return Catalogue(("gh",), Naming({"gh": "gh"}), skills)


def many(count: int) -> list[Skill]:
    return [Skill(f"skill-{number}", f"Name {number}", f"What {number} does", "") for number in range(count)]


BROWSING = Skill("browsing", "Browser", "Web browsing and automation", "", tools={"gh": EVERYTHING})
ALL = catalogue(BROWSING, *many(2))
HOW = (
    "Tools here come in skills. Call the tool SKILL of this server with action activate and a skill_name to get that "
    "skill's guide and tools, and with action offload when done. Skills: "
)
TAG = re.compile(rf"<\s*(/?)\s*({'|'.join(OUR_TAGS)})\b", re.IGNORECASE)

# --- instructions ----------------------------------------------------------------------------------------------------


def test_instructions_say_how_to_get_tools_and_name_the_skills():
    """Clients have a `Skill` of their own, so it is the tool of this server; each skill with what it is for."""
    assert instructions(ALL) == (
        f"{HOW}browsing (Web browsing and automation); skill-0 (What 0 does); skill-1 (What 1 does)."
    )


def test_what_skills_are_for_is_shortened_step_by_step_until_all_fit():
    """Then there are the ids alone, and at last as many ids as fit and how many there are."""

    def told(count: int) -> str:
        text = instructions(catalogue(*(Skill(f"s{number}", "", "x" * 500, "") for number in range(count))))
        assert text is not None
        return text.removeprefix(HOW)

    assert told(2) == f"s0 ({'x' * 59}…); s1 ({'x' * 59}…)."
    assert told(5) == "; ".join(f"s{number} ({'x' * 39}…)" for number in range(5)) + "."
    assert told(8) == "; ".join(f"s{number} ({'x' * 23}…)" for number in range(8)) + "."
    assert told(20) == "; ".join(f"s{number}" for number in range(20)) + "."
    ids = [f"s{number}" for number in range(100)]
    assert told(10_000) == ", ".join([*ids[: told(10_000).count(", s") + 1], "… (10,000 in all)."])
    assert len(HOW + told(10_000)) > INSTRUCTIONS_LIMIT - len("s100, ")


def test_a_skill_without_a_description_is_named_with_its_name():
    """Once, where that is its id."""
    skills = (Skill("a", "Alpha", "", ""), Skill("b", "b", "", ""), Skill("c", "", " \n", ""))

    assert instructions(catalogue(*skills)) == f"{HOW}a (Alpha); b; c."


def test_without_a_skill_there_are_no_instructions():
    """There is no tool SKILL to be used."""
    assert instructions(catalogue()) is None
    assert "instructions" not in initialize_result("2025-11-25", catalogue(), ALL, Publish())
    assert "instructions" not in discover_result(catalogue(), ALL, Publish())


skills = st.builds(
    Skill,
    id=st.text(min_size=1, max_size=6) | hostile_texts.filter(bool) | st.text("ab", min_size=100, max_size=3000),
    name=hostile_texts,
    desc=hostile_texts | st.text(max_size=300),
    usage=st.just(""),
)


@law
@given(st.lists(skills, min_size=1, max_size=200, unique_by=lambda skill: skill.id))
def test_instructions_are_never_longer_than_clients_keep(skills: list[Skill]):
    """Whatever skills there are; one line, and none of our tags."""
    text = instructions(catalogue(*skills))

    assert text is not None
    assert len(text) <= INSTRUCTIONS_LIMIT == 512
    assert text.startswith(HOW)
    assert len(text.splitlines()) == 1
    assert not TAG.search(text)


@law
@given(
    st.lists(st.text("abc-", min_size=1, max_size=30), min_size=1, max_size=200, unique=True),
    st.text("x ", max_size=90),
)
def test_every_skill_is_named_where_all_ids_fit(ids: list[str], desc: str):
    """Else as many as do, in the order of the file, and how many there are."""
    told = (instructions(catalogue(*(Skill(id_, "", desc, "") for id_ in ids))) or "").removeprefix(HOW)

    if len(HOW + "; ".join(ids) + ".") <= INSTRUCTIONS_LIMIT and len(ids) < 170:
        assert [one.partition(" (")[0] for one in told.removesuffix(".").split("; ")] == ids
    else:
        named = told.split(", ")
        assert named[:-1] == ids[: len(named) - 1]
        assert named[-1] == f"… ({len(ids):,} in all)."
        more = f"{', '.join(ids[: len(named)])}, {named[-1]}"
        assert len(HOW + more) > INSTRUCTIONS_LIMIT


# --- capabilities ----------------------------------------------------------------------------------------------------

EVERYTHING_DECLARED: dict[str, Any] = {
    "tools": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
    "prompts": {"listChanged": True},
    "completions": {},
    "logging": {},
    "extensions": {"io.modelcontextprotocol/skills": {"directoryRead": True}},
}


def test_what_something_behind_the_proxy_can_answer_is_declared():
    """Every list says that it changes, or clients would not read it again."""
    assert capabilities(ALL, Publish()) == EVERYTHING_DECLARED


def test_without_a_server_there_is_no_log():
    """Guides alone send none."""
    declared = capabilities(catalogue(*many(1)), Publish())

    assert declared == {key: value for key, value in EVERYTHING_DECLARED.items() if key != "logging"}


def test_without_a_skill_there_are_tools_alone():
    """None at the moment; a changed configuration may bring some."""
    assert capabilities(catalogue(), Publish()) == {"tools": {"listChanged": True}}


@pytest.mark.parametrize(
    "publish", [Publish(extension=False), Publish(prompts=False, resources=False, extension=False)]
)
def test_the_extension_is_declared_where_it_is_served(publish: Publish):
    """Lists of prompts and resources stay: those of servers are in them."""
    declared = capabilities(ALL, publish)

    assert declared == {key: value for key, value in EVERYTHING_DECLARED.items() if key != "extensions"}
    assert capabilities(ALL, Publish(prompts=False, resources=False)) == EVERYTHING_DECLARED


def test_capabilities_are_those_of_everybody_and_instructions_those_of_the_client():
    """Skills that are not for it are not named."""
    own = catalogue(*many(1))

    handshake, modern = initialize_result("2025-06-18", own, ALL, Publish()), discover_result(own, ALL, Publish())

    for told in (handshake, modern):
        assert told["capabilities"] == EVERYTHING_DECLARED
        assert told["instructions"] == instructions(own)
        assert "browsing" not in told["instructions"]
    assert handshake == {
        "protocolVersion": "2025-06-18",
        "capabilities": EVERYTHING_DECLARED,
        "serverInfo": {"name": "mcp-skill-proxy", "version": __version__},
        "instructions": instructions(own),
    }
    assert modern == {
        "supportedVersions": ["2026-07-28"],
        "capabilities": EVERYTHING_DECLARED,
        "instructions": instructions(own),
    }


# --- revisions -------------------------------------------------------------------------------------------------------


def test_the_revisions_are_those_that_the_sdk_speaks():
    """They are written out, since the SDK is not there yet when a client on stdio is answered."""
    assert tuple(HANDSHAKE_PROTOCOL_VERSIONS) == HANDSHAKE_VERSIONS
    assert tuple(MODERN_PROTOCOL_VERSIONS) == MODERN_VERSIONS


@pytest.mark.parametrize(
    ("requested", "agreed"),
    [
        ("2024-11-05", "2024-11-05"),
        ("2025-11-25", "2025-11-25"),
        ("2026-07-28", "2025-11-25"),
        ("1999-01-01", "2025-11-25"),
        ("", "2025-11-25"),
    ],
)
def test_a_handshake_agrees_on_what_was_asked_for_or_the_newest(requested: str, agreed: str):
    """The modern revision has none."""
    assert negotiated(requested) == agreed
