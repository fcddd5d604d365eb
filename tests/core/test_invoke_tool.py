"""The definitions of what runs skills, and what they say that their steps do."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.catalogue import Catalogue, Skill
from proxy.core.inventory import Offer
from proxy.core.invoke_tool import SKILL_INVOKE, annotations, hooks_harmless, invoke_tool, skill_as_tool
from proxy.core.names import RESERVED, Naming
from proxy.core.steps import Call, Parallel, Step, Workflow
from tests.core.strategies import hostile_texts, law

READS, ADDS, SETS, SAYS_NOTHING = "reads", "adds", "sets", "says nothing"
INVENTORY = {
    "s": Offer.of(
        tools=[
            {"name": READS, "annotations": {"readOnlyHint": True, "openWorldHint": False}},
            {"name": "looks far", "annotations": {"readOnlyHint": True}},
            {"name": ADDS, "annotations": {"destructiveHint": False, "openWorldHint": False}},
            {"name": SETS, "annotations": {"idempotentHint": True, "openWorldHint": False}},
            {"name": SAYS_NOTHING},
            {"name": "odd", "annotations": ["readOnlyHint"]},
            {"name": "nearly", "annotations": {"readOnlyHint": 1, "destructiveHint": 0, "idempotentHint": "true"}},
        ]
    )
}
WORST = {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": False, "openWorldHint": True}
BEST = {"readOnlyHint": True, "destructiveHint": False, "idempotentHint": True, "openWorldHint": False}
PARAMETERS = {"type": "object", "properties": {"customer": {"type": "string"}}, "required": ["customer"]}


def call(tool: str, server: str = "s") -> Call:
    return Call("steps[0]", tool, server, tool)


def runs(skill: str) -> Call:
    return Call("steps[0]", skill, skill=skill)


def skill(id_: str, *steps: Step, desc: str = "", name: str = "", **more: Any) -> Skill:
    return Skill(id_, name, desc, "", workflow=Workflow(steps, PARAMETERS, **more))


def catalogue(*skills: Skill, **more: Any) -> Catalogue:
    return Catalogue(("s",), Naming({"s": "s"}), skills, **more)


# --- what steps do ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("steps", "differing"),
    [
        ([call(READS)], {}),
        ([], {}),
        ([call(READS), call("looks far")], {"openWorldHint": True}),
        ([call(READS), call(ADDS)], {"readOnlyHint": False, "idempotentHint": False}),
        ([call(READS), call(SETS)], {"readOnlyHint": False, "destructiveHint": True}),
        ([call(ADDS), call(SETS)], {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": False}),
        ([Parallel("steps[0]", (call(READS), call(SAYS_NOTHING)))], WORST),
        ([call(READS), call("unknown")], WORST),
        ([call(READS, server="not there")], WORST),
        ([call("odd")], WORST),
        ([call("nearly")], WORST),
        ([runs("reading")], {}),
        ([runs("deep")], WORST),
        ([runs("reading"), runs("no workflow")], WORST),
        ([runs("absent")], WORST),
        ([runs("round")], {}),
    ],
)
def test_of_all_that_steps_call_the_worst_is_said(steps: list[Step], differing: dict[str, bool]):
    """As the servers say it; what is not known, or says nothing, may do anything (MCP, tool annotations)."""
    known = catalogue(
        skill("reading", call(READS)),
        skill("deep", runs("deeper"), call(READS)),
        skill("deeper", call(SAYS_NOTHING)),
        skill("round", runs("round again"), call(READS)),
        skill("round again", runs("round")),
        Skill("no workflow", "", "", ""),
    )

    assert annotations(tuple(steps), known, INVENTORY) == {**BEST, **differing}


@pytest.mark.parametrize(("tool", "harmless"), [(READS, True), ("looks far", True), (ADDS, False), ("unknown", False)])
@pytest.mark.parametrize("where", ["on_activate", "on_offload", "on_start", "invoked"])
def test_hooks_are_harmless_only_where_all_of_them_read(where: str, tool: str, harmless: bool):
    """Those of every skill, when it begins and when it ends, and what is done when a scope starts."""
    steps = (call(READS), call(tool))
    hooks: dict[str, Any] = {} if where == "on_start" else {where: steps}
    if where == "invoked":
        hooks = {"on_activate": (runs("other"),)}
    skills = [Skill("plain", "", "", ""), Skill("hooked", "", "", "", **hooks), skill("other", *steps)]

    assert hooks_harmless(catalogue(*skills, on_start=steps if where == "on_start" else ()), INVENTORY) is harmless


def test_without_hooks_there_is_nothing_to_fear():
    """Whatever a workflow does: it is not run by activating."""
    assert hooks_harmless(catalogue(skill("one", call("unknown"))), {})


# --- the definitions -------------------------------------------------------------------------------------------------


def test_the_tool_takes_a_skill_and_its_arguments():
    """Of those that can be invoked; what it says that it does is what all of them do, destructive unless they read."""
    known = catalogue(skill("reading", call(READS)), Skill("guide", "", "", ""), skill("adding", call(ADDS)))

    tool = invoke_tool(known, INVENTORY)

    properties = tool["inputSchema"]["properties"]
    assert tool["name"] == SKILL_INVOKE == "SKILL_INVOKE"
    assert SKILL_INVOKE.casefold() in RESERVED
    assert properties["skill_name"]["enum"] == ["reading", "adding"]
    assert properties["arguments"]["type"] == "object"
    assert tool["inputSchema"]["required"] == ["skill_name"]
    hints = {**BEST, "readOnlyHint": False, "destructiveHint": True, "idempotentHint": False}
    assert tool["annotations"] == {"title": "Run a skill", **hints}


@pytest.mark.parametrize(("count", "is_enum"), [(50, True), (51, False)])
def test_skill_name_is_an_enum_up_to_fifty_skills(count: int, is_enum: bool):
    """Then plain text, as for `SKILL`."""
    tool = invoke_tool(catalogue(*(skill(f"s{number}") for number in range(count))), {})

    assert ("enum" in tool["inputSchema"]["properties"]["skill_name"]) is is_enum


def test_the_description_shows_each_skill_in_a_line():
    """How it is called and what for, and that it has to be active where it has; and where more is to be read."""
    known = catalogue(
        skill("briefing", desc="Gathers all\nthere is"),
        skill("closing", desc="Closes a case", needs_activation=True),
        Skill("guide", "", "Only a guide", ""),
    )

    text = invoke_tool(known, {})["description"]

    assert text.endswith(
        ":\n- briefing(customer: string): Gathers all there is"
        "\n- closing(customer: string) (only while active): Closes a case"
    )
    assert "SKILL with action read" in text


@law
@given(
    skills=st.lists(
        st.builds(
            lambda id_, name, desc: skill(id_, name=name, desc=desc),
            st.text(min_size=1, max_size=6) | hostile_texts.filter(bool),
            hostile_texts,
            hostile_texts | st.text(max_size=300),
        ),
        min_size=1,
        max_size=60,
        unique_by=lambda skill: skill.id,
    )
)
def test_the_description_is_never_too_long(skills: list[Skill]):
    """In bytes; each skill is one line, or it is said that there are more."""
    text = invoke_tool(catalogue(*skills), {})["description"]

    lines = text.split("\n")
    assert len(text.encode("utf-8", "replace")) <= 2000
    assert all(line.startswith("- ") for line in lines[1:])
    assert len(lines) == 1 + len(skills) or f"({len(skills)} in all, more than fit here)" in lines[0]


@pytest.mark.parametrize(
    ("count", "length", "shown"), [(10, 50, 10), (12, 5000, 12), (40, 5000, 40), (300, 10, 200), (3000, 10, 200)]
)
def test_descriptions_are_shortened_before_skills_are_left_out(count: int, length: int, shown: int):
    """First the texts, then all but the ids, then the last ones."""
    skills = [skill(f"s{number}", desc="x" * length) for number in range(count)]

    text = invoke_tool(catalogue(*skills), {})["description"]

    lines = text.split("\n")[1:]
    assert len(lines) == shown if shown == count else len(lines) >= shown
    assert all(line.startswith(f"- s{number}") for number, line in enumerate(lines))
    assert len(text.encode()) > (1900 if shown < count else 0)


def test_a_skill_is_a_tool_with_its_own_parameters_and_hints():
    """Called as it is, or as near as can be; what it says that it does is what its own steps do."""
    briefing = skill("briefing", call(READS), name="A briefing", desc="Gathers all there is")
    known = catalogue(briefing, skill("other", call(ADDS)))

    assert skill_as_tool(briefing, known, INVENTORY) == {
        "name": "briefing",
        "title": "A briefing",
        "description": "Gathers all there is",
        "inputSchema": PARAMETERS,
        "annotations": {"title": "A briefing", **BEST},
    }


def test_a_skill_without_a_name_or_a_workflow_is_shown_by_what_there_is():
    """Its id, and any object."""
    odd = Skill("s__odd", "", "", "")

    tool = skill_as_tool(odd, catalogue(odd), INVENTORY)

    assert (tool["title"], tool["inputSchema"], tool["annotations"]["readOnlyHint"]) == (
        "s__odd",
        {"type": "object"},
        True,
    )
    assert tool["name"].startswith("s_odd_")
