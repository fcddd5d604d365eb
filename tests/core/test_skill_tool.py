"""The definitions of `SKILL` and `SKILL_CALL`, and the catalogue in its description (design rules 15, 17 and 18)."""

import re
from collections.abc import Collection, Iterable
from html import escape, unescape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.catalogue import Catalogue, Folder, Skill
from proxy.core.names import Naming
from proxy.core.skill_tool import (
    ALIASES,
    ALWAYS_LOAD,
    DESCRIPTION_LIMIT,
    LEAD_LIMIT,
    SKILL,
    SKILL_CALL,
    actions,
    description,
    skill_call_tool,
    skill_tool,
)
from proxy.core.texts import shortened, size
from proxy.core.wording import HOW_TO_USE, without_our_tags
from tests.core.strategies import OUR_TAGS, hostile_texts, law


def catalogue(*skills: Skill) -> Catalogue:
    return Catalogue((), Naming({}), skills)


def many(count: int, *, active: bool = False, pinned: bool = False) -> list[Skill]:
    return [
        Skill(f"skill-{number}", f"Name {number}", f"What {number} does", "", active=active, pinned=pinned)
        for number in range(count)
    ]


TAG = re.compile(rf"<\s*(/?)\s*({'|'.join(OUR_TAGS)})\b", re.IGNORECASE)
WHOLE = re.compile(
    r"<skills_guide><skill_guide>(?P<how>.*?)</skill_guide>"
    r"<skills_info>(?P<skills>.*)</skills_info></skills_guide>",
    re.DOTALL,
)
SHAPE = {
    "skills_guide": ["skill_guide", "skills_info"],
    "skills_info": ["skill"],
    "skill": ["skill_name", "skill_desc"],
}


def skills_in(text: str) -> int:
    """How many skills a description shows; our tags must nest as design rule 18 draws them."""
    assert WHOLE.fullmatch(text)
    count, path = 0, list[str]()
    for tag in TAG.finditer(re.sub(r'<skill id="[^"]*"/>', "<skill></skill>", text)):
        closing, name = tag.groups()
        if closing:
            assert path.pop() == name
        else:
            assert name in (SHAPE.get(path[-1], []) if path else ["skills_guide"])
            path.append(name)
            count += name == "skill"
    assert not path
    return count


skills = st.builds(
    Skill,
    id=st.text(min_size=1, max_size=6) | hostile_texts.filter(bool),
    name=hostile_texts,
    desc=hostile_texts | st.text(max_size=300),
    usage=st.just(""),
    active=st.booleans(),
    pinned=st.booleans(),
)
catalogues = st.lists(skills, min_size=1, max_size=60, unique_by=lambda skill: skill.id).map(lambda s: catalogue(*s))


def ids_in(text: str) -> list[str]:
    """The ids of the skills that a description shows, in order."""
    return [unescape(id_) for id_ in re.findall(r'<skill id="([^"]*)"/?>', text)]


def named_alone(text: str) -> set[str]:
    """The ids of the skills that a description shows without a description of their own."""
    return {unescape(id_) for id_ in re.findall(r'<skill id="([^"]*)"/>', text)}


def by_ids_alone(text: str, but: Collection[str] = ()) -> str:
    """A description with each of its skills left with its id, but some."""

    def alone(entry: re.Match[str]) -> str:
        return entry[0] if unescape(entry["id"]) in but else f'<skill id="{entry["id"]}"/>'

    return re.sub(r'<skill id="(?P<id>[^"]*)">.*?</skill_desc></skill>', alone, text, flags=re.DOTALL)


def shortest(text: str, skills: Iterable[Skill]) -> str:
    """A description with all of `skills` in it, each with the beginning of its description and no name."""
    parts = WHOLE.fullmatch(text)
    assert parts
    how = re.sub(r" (Of \d+ skills not all|Descriptions) are .*", "", parts["how"]) + CUT
    entries = "".join(
        f'<skill id="{escape(one.id)}"><skill_desc>{without_our_tags(shortened(one.desc, 24))}</skill_desc></skill>'
        for one in skills
    )
    return f"<skills_guide><skill_guide>{how}</skill_guide><skills_info>{entries}</skills_info></skills_guide>"


CUT = " Descriptions are cut here: action list shows them in full."
SOME = " Of {} skills not all are described here: action list shows them all."
guidances = st.none() | hostile_texts.filter(lambda text: bool(text.strip()) and size(text) <= 1000)
"""As the configuration lets them through."""


@law
@given(catalogue=catalogues, guidance=guidances, data=st.data())
def test_the_description_is_never_too_long_and_never_taken_apart(
    catalogue: Catalogue, guidance: str | None, data: st.DataObject
):
    """Whatever names, descriptions and guidance hold: within the limit in characters and bytes, our tags as they are.

    Where skills are missing or without description, that is said, and how to see them.
    """
    active = data.draw(st.sets(st.sampled_from(list(catalogue.by_id))))

    text = description(catalogue, active, guidance)

    assert len(text) <= size(text) <= DESCRIPTION_LIMIT == 2000
    assert skills_in(text) == len(ids_in(text)) <= len(catalogue.skills)
    whole = len(ids_in(text)) == len(catalogue.skills) and not named_alone(text)
    assert (SOME.format(len(catalogue.skills)) in text) is not whole


crowded = st.lists(
    st.builds(
        Skill,
        id=st.text("ab-é", min_size=1, max_size=40),
        name=st.text("abc ", max_size=30),
        desc=st.text("abc ", max_size=200),
        usage=st.just(""),
        pinned=st.booleans(),
    ),
    min_size=1,
    max_size=140,
    unique_by=lambda skill: skill.id,
).map(lambda skills: catalogue(*skills))
"""Catalogues that fit, fit cut, or do not fit."""


@law
@given(catalogue=crowded, data=st.data())
def test_as_many_skills_are_shown_and_described_as_fit(catalogue: Catalogue, data: st.DataObject):
    """None is left with its id where all fit with the beginnings of their descriptions; ids go as far as they do.

    Pinned and active ones stand first where not all fit, described if they can be, then the others, each in the order
    of the file.
    """
    skills = catalogue.skills
    active = data.draw(st.sets(st.sampled_from(list(catalogue.by_id)), max_size=5))

    text = description(catalogue, active)

    first = {skill.id for skill in skills if skill.pinned or skill.id in active}
    shown, alone = ids_in(text), named_alone(text)
    if size(shortest(text, skills)) <= DESCRIPTION_LIMIT:
        assert shown == [skill.id for skill in skills]
        assert not alone
    if shown != [skill.id for skill in skills]:
        ordered = sorted(skills, key=lambda skill: skill.id not in first)
        assert shown == [skill.id for skill in ordered if skill.id in shown]
    for skill in skills:
        if skill.id not in shown:
            needed = size(f'<skill id="{escape(skill.id)}"/>')
            assert size(by_ids_alone(text, but=first)) + needed > DESCRIPTION_LIMIT
        if skill.id in alone:
            more = size(f"><skill_desc>{shortened(skill.desc, 24)}</skill_desc></skill>") - len("/>")
            assert size(text) + more > DESCRIPTION_LIMIT


@law
@given(catalogue=crowded)
def test_the_description_begins_with_the_ids_of_the_first_skills(catalogue: Catalogue):
    """Clients that defer tools show no more than its beginning: in the order of the file, as far as 120 bytes go."""
    text = description(catalogue, [])

    lead = text.removeprefix("<skills_guide><skill_guide>").partition(": ")[0]
    named, ids = lead.split(", "), [skill.id for skill in catalogue.skills]
    if named[-1] == "…":
        named = named[:-1]
        assert size(", ".join(ids[: len(named) + 1])) > LEAD_LIMIT
    else:
        assert len(named) == len(ids)
    assert named == ids[: len(named)]
    assert size(", ".join(named)) <= LEAD_LIMIT == 120


@law
@given(catalogue=catalogues, data=st.data())
def test_the_description_does_not_depend_on_the_order_of_activation(catalogue: Catalogue, data: st.DataObject):
    """It is part of the list, which is the same to the byte (rule 8)."""
    active = data.draw(st.lists(st.sampled_from(list(catalogue.by_id)), unique=True))

    assert description(catalogue, active) == description(catalogue, active[::-1])


def test_the_description_has_the_shape_that_the_design_draws():
    """The ids and how to use it, then id, name and description of every skill (rule 18)."""
    text = description(catalogue(Skill("browsing", "Browser", "Web browsing", "secret usage")), [])

    assert text == (
        f"<skills_guide><skill_guide>browsing: {HOW_TO_USE}</skill_guide><skills_info>"
        '<skill id="browsing"><skill_name>Browser</skill_name><skill_desc>Web browsing</skill_desc></skill>'
        "</skills_info></skills_guide>"
    )


def test_markup_that_is_not_ours_stays_as_it_is():
    """Only what could be taken for our tags is made harmless; an id is an attribute."""
    text = description(catalogue(Skill('a"b', "<b>", "a < b, </skill_desc>, <Skill id=1>", "")), [])

    assert '<skill id="a&quot;b"><skill_name><b></skill_name>' in text
    assert "a < b, &lt;/skill_desc>, &lt;Skill id=1></skill_desc>" in text


def test_skills_beyond_all_measure_are_said_to_be_more():
    """Without looking at each of them: not even their ids could fit."""
    text = description(catalogue(*many(1000)), [])

    assert SOME.format(1000) in text
    assert len(text) <= DESCRIPTION_LIMIT


def test_what_does_not_fit_is_said_to_be_more():
    """Pinned and active skills described, ids of the others as far as they go, in the order of the file (rule 18)."""
    skills = [*many(100), Skill("pinned", "Pinned", "Stays", "", pinned=True)]

    text = description(catalogue(*skills), ["skill-70"])

    assert SOME.format(101) in text
    shown = ids_in(text)
    assert shown[:4] == ["skill-70", "pinned", "skill-0", "skill-1"]
    assert shown[2:] == [f"skill-{number}" for number in range(len(shown) - 2)]
    assert "<skill_desc>What 70 does</skill_desc>" in text
    assert "<skill_desc>Stays</skill_desc>" in text
    assert text.count("<skill_desc>") == 2
    assert len(text) > DESCRIPTION_LIMIT - len('<skill id="skill-99"/>')


def test_so_many_active_skills_that_not_all_are_described_keep_their_ids():
    """As far as those go."""
    skills = many(100)

    text = description(catalogue(*skills), [skill.id for skill in skills])

    described = text.count("<skill_desc>")
    assert 10 < described < 40
    assert ids_in(text)[:described] == [f"skill-{number}" for number in range(described)]
    assert len(ids_in(text)) > described or len(text) > DESCRIPTION_LIMIT - len('<skill id="skill-99"/>')


def test_a_long_name_does_not_take_the_descriptions_of_others_away():
    """It is cut, as long descriptions are."""
    text = description(catalogue(*many(10), Skill("x", "x\n" * 5000, "X does it", "")), [])

    assert all(f"<skill_desc>What {number} does</skill_desc>" in text for number in range(10))
    assert "<skill_desc>X does it</skill_desc>" in text


def test_a_skill_too_long_to_show_hides_none_of_those_behind_it():
    """Its description is cut; one whose id alone does not fit is left to the `list` action."""
    long, short = Skill("long", "Long", "x" * 3000, ""), Skill("short", "Short", "fits", "")
    endless = Skill("e" * 3000, "Endless", "", "")

    for active in ([endless.id, "long", "short"], []):
        text = description(catalogue(endless, long, short), active)

        assert ids_in(text) == ["long", "short"]
        assert f"<skill_desc>{'x' * 23}…</skill_desc>" in text
        assert "<skill_desc>fits</skill_desc>" in text
        assert "e" * 200 not in text
        assert SOME.format(3) in text


def test_no_tag_of_ours_is_made_of_the_ids_of_two_skills():
    """Where one ends as a tag begins, and the next goes on with its name."""
    text = description(catalogue(Skill("<", "", "", ""), Skill("skill", "", "", "")), [], "skill_guide> first")

    assert text.startswith("<skills_guide><skill_guide>&lt;, skill: skill_guide> first")
    assert skills_in(text) == 2


# --- the definitions -------------------------------------------------------------------------------------------------


def test_skill_takes_flat_arguments_and_says_what_it_does():
    """Rule 15: action, skill_name, tool and query; not destructive, idempotent, closed world; no output schema."""
    tool = skill_tool(catalogue(*many(2)), [])

    properties = tool["inputSchema"]["properties"]
    assert tool["name"] == SKILL == "SKILL"
    assert properties["action"]["enum"] == ["activate", "offload", "list", "read"]
    assert properties["skill_name"]["enum"] == ["skill-0", "skill-1"]
    assert set(properties) == {"action", "skill_name", "tool", "query"}
    assert tool["inputSchema"]["required"] == ["action"]
    assert "outputSchema" not in tool
    hints = tool["annotations"]
    assert (hints["destructiveHint"], hints["idempotentHint"], hints["openWorldHint"]) == (False, True, False)


def test_skill_is_harmless_only_where_its_hooks_are():
    """What skills do by themselves when they begin and end is done by activating them."""
    hints = skill_tool(catalogue(*many(2)), [], harmless=False)["annotations"]

    assert (hints["readOnlyHint"], hints["destructiveHint"]) == (False, True)
    assert (hints["idempotentHint"], hints["openWorldHint"]) == (True, True)


@pytest.mark.parametrize(
    ("skill", "more"),
    [
        (Skill("s", "", "", "", folder=Folder("/s", "SKILL.md")), "path"),
        (Skill("s", "", "", "", category="web"), "category"),
        (Skill("s", "", "", "", tags=("web",)), "tags"),
    ],
    ids=["files", "categories", "tags"],
)
def test_skill_takes_only_what_the_skills_have_a_use_for(skill: Skill, more: str):
    """Every input costs room in every client's context."""
    with_it = skill_tool(catalogue(*many(2), skill), [])["inputSchema"]["properties"]
    without = skill_tool(catalogue(*many(2)), [])["inputSchema"]["properties"]

    assert with_it.keys() - without.keys() == {more}


@pytest.mark.parametrize(("count", "paged"), [(20, False), (21, True)])
def test_a_page_can_be_asked_for_where_there_is_more_than_one(count: int, paged: bool):
    """Twenty skills stand on a page of the `list` action."""
    assert ("page" in skill_tool(catalogue(*many(count)), [])["inputSchema"]["properties"]) is paged


@pytest.mark.parametrize(("count", "is_enum"), [(50, True), (51, False)])
def test_skill_name_is_an_enum_up_to_fifty_skills(count: int, is_enum: bool):
    """Then plain text (rule 15)."""
    tool = skill_tool(catalogue(*many(count)), [])

    assert ("enum" in tool["inputSchema"]["properties"]["skill_name"]) is is_enum


def test_only_usable_actions_are_offered():
    """Where every skill is pinned there is nothing to activate or to offload (rule 15)."""
    assert actions(catalogue(*many(2, pinned=True))) == ("list", "read")
    assert actions(catalogue(*many(2, active=True))) == ("activate", "offload", "list", "read")
    assert ALIASES == {"active_skill": "activate", "offload_skill": "offload"}


def test_skill_call_is_a_tool_of_its_own_that_says_it_may_do_anything():
    """So that "always allow SKILL" approves no call (rule 17)."""
    tool = skill_call_tool()

    assert tool["name"] == SKILL_CALL == "SKILL_CALL"
    assert set(tool["inputSchema"]["properties"]) == {"tool", "arguments"}
    assert tool["inputSchema"]["required"] == ["tool"]
    assert tool["inputSchema"]["properties"]["arguments"]["type"] == "object"
    assert tool["inputSchema"]["properties"]["arguments"]["additionalProperties"] is True
    hints = tool["annotations"]
    assert (hints["destructiveHint"], hints["idempotentHint"], hints["openWorldHint"]) == (True, False, True)


def test_our_tools_ask_to_be_shown_at_once():
    """Clients that defer tools hide all others behind a search of their own (rule 18)."""
    assert skill_tool(catalogue(*many(1)), [])["_meta"] == {"anthropic/alwaysLoad": True} == ALWAYS_LOAD
    assert skill_call_tool()["_meta"] == {"anthropic/alwaysLoad": True}
