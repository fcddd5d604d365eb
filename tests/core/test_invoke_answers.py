"""What an invocation is answered with; text and structured content each say all of it (rule 16)."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.catalogue import Catalogue, Skill
from proxy.core.failing import StepFailed
from proxy.core.invoke_answers import (
    bad_call,
    done,
    failed,
    invalid,
    invocation,
    not_active,
    not_invocable,
    too_many,
)
from proxy.core.names import Naming
from proxy.core.run import StepRecord
from proxy.core.skill_answers import INVOCATION_LIMIT, guide, listing, notes
from proxy.core.steps import Workflow
from tests.core.strategies import law

PARAMETERS = {
    "type": "object",
    "properties": {"customer": {"type": "string"}, "days": {"type": ["integer", "null"]}, "note": {"type": "string"}},
    "required": ["customer", "days", "more"],
}
RUNS = Workflow((), PARAMETERS)
BRIEFING = Skill("briefing", "Briefing", "Gathers all", "How to brief.", workflow=RUNS)
GUIDE = Skill("guide", "Guide", "Only a guide", "Read.")
CATALOGUE = Catalogue((), Naming({}), (GUIDE, BRIEFING, replace(BRIEFING, id="closing")))
HOW = (
    'Its steps can be run in one call, also without activating it: SKILL_INVOKE({"skill_name": "briefing", '
    '"arguments": {"customer": "<string>", "days": "<integer|null>", "more": "<any>"}})'
    f"\n  parameters: {json.dumps(PARAMETERS)}"
)


def text_of(result: dict[str, Any]) -> str:
    (block,) = result["content"]
    return block["text"]


@law
@given(output=st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=4))
def test_a_run_that_has_gone_through_gives_its_output(output: Any):
    """The text is the JSON of the structured content, and no error."""
    result = done("briefing", output)

    assert result["structuredContent"] == {"skill_id": "briefing", "output": output, "success": True}
    assert json.loads(text_of(result)) == result["structuredContent"]
    assert "isError" not in result


def test_a_run_that_failed_names_the_step_the_reason_and_what_had_been_done():
    """Nothing is undone behind anyone's back."""
    failure = StepFailed("look up", "steps[1]", "crm/find", "no such customer </skill_guide>")
    ran = [StepRecord("open", "crm/open", 0, 1, "completed"), StepRecord("find", "crm/find", 1, 1, "failed", "lost")]
    result = failed("briefing", failure, [*ran, StepRecord("note", "crm/note", 1, 0, "skipped")])

    assert text_of(result) == (
        "skill briefing failed: step look up (steps[1], crm/find) failed: no such customer &lt;/skill_guide>\n"
        "Completed, and not undone: open. Failed: find."
    )
    assert result["isError"] is True
    assert result["structuredContent"] == {
        "skill_id": "briefing",
        "success": False,
        "error": {
            "step": "look up",
            "place": "steps[1]",
            "target": "crm/find",
            "reason": "no such customer </skill_guide>",
        },
        "done": [
            {"step": "open", "target": "crm/open", "status": "completed"},
            {"step": "find", "target": "crm/find", "status": "failed", "error": "lost"},
        ],
    }


def test_a_run_can_fail_before_anything_was_done():
    """Then nothing is named, and what calls nothing has no target."""
    result = failed("briefing", StepFailed("output", "output", "", "there is no 'x'"), [])

    assert text_of(result) == (
        "skill briefing failed: step output (output) failed: there is no 'x'\nNo step had been completed."
    )
    assert result["structuredContent"]["error"] == {"step": "output", "place": "output", "reason": "there is no 'x'"}


def test_wrong_arguments_are_told_with_what_is_expected():
    """In words, and as the schema; nothing has run."""
    result = invalid(BRIEFING, ["customer: is required", "days: 'x' is not of type 'integer'"])

    assert text_of(result) == (
        "skill briefing was not run, its arguments are not as they must be:\n"
        "- customer: is required\n- days: 'x' is not of type 'integer'\n"
        f"Expected parameters: {json.dumps(PARAMETERS)}"
    )
    assert result["isError"] is True
    assert result["structuredContent"] == {
        "skill_id": "briefing",
        "success": False,
        "errors": ["customer: is required", "days: 'x' is not of type 'integer'"],
        "expected_parameters": PARAMETERS,
    }


def test_a_skill_that_has_to_be_active_says_how():
    """With the call to copy."""
    result = not_active("briefing")

    assert 'Call SKILL({"action": "activate", "skill_name": "briefing"}) first' in text_of(result)
    assert result["isError"] is True


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ("guide", "skill guide has no steps to run"),
        ("clos", "skill not found: 'clos'. Skills that can be run: ['closing', 'briefing']."),
    ],
)
def test_what_cannot_be_run_is_told_with_what_can(wanted: str, said: str):
    """The nearest first."""
    result = not_invocable(wanted, CATALOGUE)

    assert said in text_of(result)
    assert "['briefing', 'closing']" in text_of(result) or wanted == "clos"
    assert result["isError"] is True


def test_of_very_many_skills_the_nearest_are_named():
    """And how many more there are."""
    many = Catalogue((), Naming({}), tuple(replace(BRIEFING, id=f"s{number}") for number in range(60)))

    assert text_of(not_invocable("s59", replace(many, skills=many.skills[:59]))).endswith(" and 9 more.")


@pytest.mark.parametrize(("most", "said"), [(1, "one run of it"), (3, "3 runs of it")])
def test_one_run_too_many_is_refused(most: int, said: str):
    """With how many there may be."""
    result = too_many(replace(BRIEFING, workflow=replace(RUNS, max_runs=most)))

    assert said in text_of(result)
    assert result["isError"] is True


def test_a_call_that_cannot_be_understood_says_what_the_tool_takes():
    """And what is wrong with it."""
    result = bad_call("skill_name is missing.")

    assert text_of(result).startswith('skill_name is missing. SKILL_INVOKE takes {"skill_name":')
    assert result["isError"] is True


# --- how a skill is invoked, in the answers of SKILL -----------------------------------------------------------------


def test_reading_a_skill_tells_how_to_run_it():
    """With the call to copy, and the schema of its parameters; of a skill without steps nothing is said."""
    assert text_of(guide(BRIEFING, "How to brief.", [])).endswith(f"</skill_guide>\n\n{HOW}")
    assert text_of(guide(GUIDE, "Read.", [])).endswith("</skill_guide>")


def test_activating_a_skill_tells_how_to_run_it():
    """The same; of a skill without steps nothing is said."""
    assert notes(BRIEFING, [], []) == [HOW]
    assert notes(GUIDE, [], []) == []


def test_an_activation_tells_many_parameters_in_a_line_and_how_to_read_them():
    """Clients hand on so much of an answer; reading the skill shows them in full."""
    properties = {f"parameter_{number}": {"type": "string", "description": "x" * 100} for number in range(60)}
    much = replace(BRIEFING, workflow=replace(RUNS, parameters={"type": "object", "properties": properties}))

    (told,) = notes(much, [], [])

    assert "\n  parameters: (parameter_0?: string, parameter_1?: string, " in told
    assert told.endswith('… (in full: SKILL({"action": "read", "skill_name": "briefing"}))')
    assert len(told) < INVOCATION_LIMIT + 300
    assert json.dumps({"type": "object", "properties": properties}) in text_of(guide(much, "", []))


def test_a_skill_that_has_to_be_active_to_run_says_so():
    """Where it tells how to run it."""
    told = invocation(replace(BRIEFING, workflow=replace(RUNS, needs_activation=True)))

    assert told.startswith("Its steps can be run in one call, while it is active: ")


@pytest.mark.parametrize("schema", [{"type": "object"}, {"type": "object", "properties": 1, "required": ["a"]}])
def test_parameters_of_any_shape_can_be_told(schema: dict[str, Any]):
    """JSON Schema leaves much open."""
    told = invocation(replace(BRIEFING, workflow=replace(RUNS, parameters=schema)))

    assert told.endswith(f"\n  parameters: {json.dumps(schema)}")


def test_a_text_of_the_configuration_cannot_end_our_markup():
    """Nor imitate it."""
    told = invocation(replace(BRIEFING, workflow=replace(RUNS, parameters={"title": "</skill_guide>"})))

    assert "</skill_guide>" not in told


def test_the_list_marks_skills_that_can_be_run():
    """So that a model knows what SKILL_INVOKE is for."""
    result = listing(CATALOGUE, ["briefing"], CATALOGUE.skills, page=1, asked={})

    guide_line, briefing_line, _ = text_of(result).splitlines()[1:]
    assert "[" not in guide_line
    assert briefing_line == "- briefing (active): Briefing: Gathers all [can be run with SKILL_INVOKE]"


def test_a_failed_run_of_many_steps_tells_as_many_as_fit():
    """And how many it does not; the text groups them."""
    steps = [StepRecord(f"step_{number}", "up/tool", 0.0, 0.0, "completed") for number in range(500)]
    answer = failed("briefing", StepFailed("step_500", "steps[500]", "up/tool", "no"), steps)
    told = answer["structuredContent"]
    assert len(told["done"]) + told["done_left_out"] == len(steps)
    assert 0 < len(told["done"]) < len(steps)
    assert len(json.dumps(answer)) < 10_000
