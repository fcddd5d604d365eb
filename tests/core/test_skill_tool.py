"""The definitions of `SKILL` and `SKILL_CALL`, and the catalogue in its description (design rules 15, 17 and 18)."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.catalogue import Catalogue, Folder, Skill
from proxy.core.names import Naming
from proxy.core.skill_tool import (
    ALIASES,
    DESCRIPTION_LIMIT,
    SKILL,
    SKILL_CALL,
    actions,
    description,
    skill_call_tool,
    skill_tool,
)
from proxy.core.wording import HOW_TO_USE
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
    r"<skills_guide><skill_guide>(?P<how>[^<]*)</skill_guide>"
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


@law
@given(catalogue=catalogues, data=st.data())
def test_the_description_is_never_too_long_and_never_taken_apart(catalogue: Catalogue, data: st.DataObject):
    """Whatever names and descriptions hold: within the limit in characters and bytes, our tags as they should be."""
    active = data.draw(st.sets(st.sampled_from(list(catalogue.by_id))))

    text = description(catalogue, active)

    assert len(text) <= len(text.encode("utf-8", "replace")) <= DESCRIPTION_LIMIT == 2000
    assert skills_in(text) <= len(catalogue.skills)
    assert skills_in(text) == len(catalogue.skills) or "use action list" in text


@law
@given(catalogue=catalogues, data=st.data())
def test_the_description_does_not_depend_on_the_order_of_activation(catalogue: Catalogue, data: st.DataObject):
    """It is part of the list, which is the same to the byte (rule 8)."""
    active = data.draw(st.lists(st.sampled_from(list(catalogue.by_id)), unique=True))

    assert description(catalogue, active) == description(catalogue, active[::-1])


def test_the_description_has_the_shape_that_the_design_draws():
    """How to use it, then id, name and description of every skill (rule 18)."""
    text = description(catalogue(Skill("browsing", "Browser", "Web browsing", "secret usage")), [])

    assert text == (
        f"<skills_guide><skill_guide>{HOW_TO_USE}</skill_guide><skills_info>"
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

    assert "There are 1000 skills, more than fit here" in text
    assert len(text) <= DESCRIPTION_LIMIT


def test_what_does_not_fit_is_said_to_be_more():
    """Pinned and active skills whole, ids of the others as far as they go, in the order of the file (rule 18)."""
    skills = [*many(100), Skill("pinned", "Pinned", "Stays", "", pinned=True)]

    text = description(catalogue(*skills), ["skill-70"])

    assert "There are 101 skills, more than fit here: use action list to see them all." in text
    shown = re.findall(r'<skill id="([^"]*)"', text)
    assert shown[:4] == ["skill-70", "pinned", "skill-0", "skill-1"]
    assert shown[2:] == [f"skill-{number}" for number in range(len(shown) - 2)]
    assert "<skill_desc>What 70 does</skill_desc>" in text
    assert "<skill_desc>Stays</skill_desc>" in text
    assert "What 0 does" not in text
    assert len(text) > DESCRIPTION_LIMIT - len('<skill id="skill-99"/>')


def test_a_long_name_does_not_take_the_descriptions_of_others_away():
    """It is cut, as long descriptions are."""
    text = description(catalogue(*many(10), Skill("x", "x\n" * 5000, "X does it", "")), [])

    assert all(f"<skill_desc>What {number} does</skill_desc>" in text for number in range(10))
    assert "<skill_desc>X does it</skill_desc>" in text


def test_an_active_skill_too_long_to_show_is_named_and_does_not_hide_the_next():
    """The long one by its id alone; one whose id does not fit is left to the `list` action."""
    long, short = Skill("long", "Long", "x" * 3000, ""), Skill("short", "Short", "fits", "")
    endless = Skill("e" * 3000, "Endless", "", "")

    text = description(catalogue(endless, long, short), [endless.id, "long", "short"])

    assert '<skill id="long"/>' in text
    assert "<skill_desc>fits</skill_desc>" in text
    assert "eee" not in text


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
    hints = tool["annotations"]
    assert (hints["destructiveHint"], hints["idempotentHint"], hints["openWorldHint"]) == (True, False, True)
