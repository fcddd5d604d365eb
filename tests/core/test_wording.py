"""Every text that the proxy says to a model (design rules 7, 16, 17 and 18)."""

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core import wording
from proxy.core.catalogue import EVERYTHING, Catalogue, Skill
from proxy.core.decision import Absence, Missing, Route
from proxy.core.names import Naming
from proxy.core.steps import Workflow
from proxy.core.wording import (
    SCHEMA_BUDGET,
    Brought,
    Instructions,
    Problem,
    activation,
    described,
    nearest,
    offloading,
    signature,
    skill_not_found,
    without_our_tags,
)
from tests.core.strategies import OUR_TAGS, hostile_texts, law

BROWSING = Skill("browsing", "Browser", "Web browsing", "Go there, click this.", tools={"browser": EVERYTHING})
READING = Skill("reading", "Reader", "Reads", "Read slowly.")
CATALOGUE = Catalogue(("browser",), Naming({"browser": "browser"}), (BROWSING, READING))

CLICK_SCHEMA = {"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]}


def route(name: str, schema: Any = None, description: Any = "") -> Route:
    definition = {"name": name, "description": description}
    return Route(
        f"browser__{name}", "browser", name, definition if schema is None else definition | {"inputSchema": schema}
    )


PLAIN: dict[str, Any] = {"with_schemas": True, "call_route": False}
CLICK = route("click", CLICK_SCHEMA, "Clicks.\nOn things.")


def text_of(result: dict[str, Any]) -> str:
    (block,) = result["content"]
    assert block["type"] == "text"
    return block["text"]


GUIDE = "Go there, click this."


def activated(again: bool = False, call_route: bool = False, with_schemas: bool = True, **more: Any) -> dict[str, Any]:
    """The answer to an activation that brings the guide, one tool, and `more`, the parts of `Brought`."""
    brought = Brought(**{"guide": GUIDE, "tools": [CLICK], **more})
    return activation(BROWSING, brought, ["browsing"], again=again, with_schemas=with_schemas, call_route=call_route)


def test_a_step_is_told_of_a_tool_that_it_may_not_call_as_of_one_that_there_is_not():
    """By the server and its own name for it, as the configuration has them."""
    assert wording.not_for_step("crm", "drop") == "server crm offers no tool drop that this step may call"


# --- rule 16: the answers of SKILL -----------------------------------------------------------------------------------


def test_activating_says_it_gives_the_guide_and_the_tools():
    """The whole text of a plain activation."""
    assert text_of(activated()) == (
        "skill browsing activated, current skills: ['browsing']\n"
        "\n"
        "<skill_guide>Go there, click this.</skill_guide>\n"
        "\n"
        "Tools you can use now:\n"
        "- browser__click: Clicks.\n"
        "On things.\n"
        '  input schema: {"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]}'
    )


def test_activating_again_says_so_and_gives_the_same():
    """A model that lost its context needs the guide a second time."""
    first, second = text_of(activated()), text_of(activated(again=True))

    assert second == first.replace("skill browsing activated", "skill browsing already activated")


def test_current_skills_stand_in_the_order_of_activation():
    """Not of the file, not of the alphabet."""
    result = activation(READING, Brought(""), ["z", "a", "reading"], again=False, **PLAIN)

    assert text_of(result).startswith("skill reading activated, current skills: ['z', 'a', 'reading']\n\n")
    assert result["structuredContent"]["current_skills"] == ["z", "a", "reading"]


def test_activating_passes_on_what_servers_say_and_what_is_not_ready():
    """The servers' own words are labelled as theirs; a server that is on its way or failed has one line."""
    result = activated(
        instructions=[Instructions("browser", "Be gentle.")],
        problems=[Problem("tracker", "failed", "no such file"), Problem("mail", "starting", "it is still starting")],
    )

    text = text_of(result)
    assert (
        "What server browser itself says about its tools:\n"
        "<server_instructions>Be gentle.</server_instructions>" in text.split("\n\n")
    )
    assert text.endswith(
        "Not ready:\n- server tracker failed: no such file\n- server mail is starting: it is still starting"
    )


def test_text_and_structured_content_each_carry_everything():
    """Some clients pass only one of the two."""
    result = activated(
        instructions=[Instructions("browser", "Be gentle.")], problems=[Problem("tracker", "failed", "no such file")]
    )

    assert result["structuredContent"] == {
        **result["structuredContent"],
        "action": "activate",
        "skill": "browsing",
        "current_skills": ["browsing"],
        "guide": "Go there, click this.",
        "tools": [
            {
                "name": "browser__click",
                "server": "browser",
                "tool": "click",
                "description": "Clicks.\nOn things.",
                "inputSchema": CLICK_SCHEMA,
            }
        ],
        "problems": [{"server": "tracker", "state": "failed", "reason": "no such file"}],
        "server_instructions": {"browser": "Be gentle."},
    }
    facts = ("browsing", "Go there, click this.", "browser__click", "Clicks.", json.dumps(CLICK_SCHEMA), "Be gentle.")
    assert all(fact in text_of(result) for fact in (*facts, "tracker", "failed", "no such file"))
    assert "isError" not in result


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (activated(again=False), activated(again=True)),
        (offloading("x", [], was_active=True, besides=[]), offloading("x", [], was_active=False, besides=[])),
    ],
    ids=["activated or already activated", "offloaded or not found"],
)
def test_what_happened_stands_in_the_structured_content_too(one: dict[str, Any], other: dict[str, Any]):
    """A client that passes only that must not leave the model in doubt."""
    assert text_of(one) != text_of(other)
    assert one["structuredContent"] != other["structuredContent"]


def test_the_way_by_skill_call_stands_in_both():
    """It is for clients of which some pass only the structured content (rule 17)."""
    result = activated(call_route=True)

    assert 'SKILL_CALL({"tool": NAME, "arguments": {...}})' in text_of(result)
    assert "SKILL_CALL" in json.dumps(result["structuredContent"])
    assert "SKILL_CALL" not in json.dumps(activated(call_route=False))


@pytest.mark.parametrize(
    ("skill", "said"),
    [(READING, "This skill brings a guide and no tools."), (BROWSING, "No tools are available.")],
)
def test_an_activation_without_tools_says_so(skill: Skill, said: str):
    """A model must not look for what is not there."""
    result = activation(skill, Brought(""), [skill.id], again=False, **{**PLAIN, "call_route": True})

    assert text_of(result).endswith(f"</skill_guide>\n\n{said}")
    assert result["structuredContent"]["tools"] == []


def test_an_activation_of_what_can_be_run_does_not_say_that_it_brings_nothing():
    """How it is run is said already; only tools that it should have are missed."""
    runs = replace(READING, workflow=Workflow((), {}))
    brought = Brought("", besides={"invoke": ("Run it.", {})})

    told = [
        text_of(activation(one, brought, [one.id], again=False, **PLAIN))
        for one in (runs, replace(runs, tools={"s": EVERYTHING}))
    ]

    assert [text.rpartition("\n\n")[2] for text in told] == ["Run it.", "No tools are available."]


def test_an_activation_whose_only_server_failed_says_that_alone():
    """The reason is the answer to where the tools are."""
    result = activated(tools=[], problems=[Problem("browser", "failed", "no such file")])

    assert text_of(result).endswith("</skill_guide>\n\nNot ready:\n- server browser failed: no such file")


def test_offloading_says_it_and_what_is_left():
    """Rule 16, to the letter."""
    result = offloading("browsing", ["reading"], was_active=True, besides=[])

    assert text_of(result) == "skill browsing offloaded, current skills: ['reading']"
    assert result["structuredContent"] == {
        **result["structuredContent"],
        "action": "offload",
        "skill": "browsing",
        "current_skills": ["reading"],
    }


def test_offloading_says_what_went_with_it():
    """In both forms."""
    result = offloading("top", ["x"], was_active=True, besides=["base", "middle"])

    assert text_of(result) == (
        "skill top offloaded, current skills: ['x']\n"
        "Offloaded with it, since no other skill requires them: base, middle."
    )
    assert result["structuredContent"]["also_offloaded"] == ["base", "middle"]


def test_an_activation_says_what_else_there_is_to_say():
    """Behind the guide; as structured content by its key."""
    result = activated(besides={"more": ("There is more.", [1, 2])})

    assert text_of(result).split("\n\n")[1:3] == [f"<skill_guide>{GUIDE}</skill_guide>", "There is more."]
    assert result["structuredContent"]["more"] == [1, 2]


def test_offloading_what_is_not_active_is_no_error():
    """Things are as wished (rule 16)."""
    result = offloading("no such skill", ["reading"], was_active=False, besides=[])

    assert text_of(result) == "skill no such skill not found, current skills: ['reading']"
    assert "isError" not in result


@pytest.mark.parametrize(
    ("wanted", "first"),
    [("brwosing", "browsing"), ("READING", "reading"), ("browser", "browsing"), ("reader", "reading")],
)
def test_an_unknown_skill_is_answered_with_what_there_is(wanted: str, first: str):
    """The nearest id or name first; an error (rule 16)."""
    result = skill_not_found("activate", wanted, CATALOGUE, ["reading"])

    text, structured = text_of(result), result["structuredContent"]
    assert text.startswith(f"skill not found: {wanted!r}. Available skills: ['{first}', ")
    assert structured["available_skills"][0] == first
    assert sorted(structured["available_skills"]) == ["browsing", "reading"]
    assert (structured["action"], structured["skill"], structured["current_skills"]) == (
        "activate",
        wanted,
        ["reading"],
    )
    assert result["isError"] is True


def test_of_very_many_skills_the_nearest_are_named_and_how_many_more_there_are():
    """All of them would fill a model's context."""
    skills = tuple(Skill(f"skill-{number}", f"{number}", "", "") for number in range(10_000))
    result = skill_not_found("read", "skil-9876", Catalogue((), Naming({}), skills), [])

    text, structured = text_of(result), result["structuredContent"]
    assert structured["available_skills"][0] == "skill-9876"
    assert (len(structured["available_skills"]), structured["total"]) == (50, 10_000)
    assert text.endswith(' and 9,950 more: SKILL({"action": "list"}) shows them')
    assert len(text) < 2_000


def test_one_tool_can_be_read_whatever_its_size():
    """No budget holds there (rule 15)."""
    schema = {"type": "object", "description": "x" * 3 * SCHEMA_BUDGET}
    result = wording.tool_schema(BROWSING, ["browsing"], route("big", schema))

    assert text_of(result).startswith("skill browsing, tool browser__big:\n- browser__big\n  input schema: {")
    assert result["structuredContent"]["tool"]["inputSchema"] == schema
    assert json.dumps(schema) in text_of(result)


def test_a_tool_that_a_skill_does_not_have_is_answered_with_those_it_has():
    """The nearest first, and what is not ready."""
    result = wording.tool_not_in_skill(
        BROWSING, "clik", ["open", "click"], [Problem("browser", "starting", "be patient")]
    )

    assert text_of(result) == (
        "skill browsing has no tool 'clik'. Its tools: ['click', 'open']. "
        "Not ready: server browser is starting: be patient."
    )
    assert result["isError"] is True


def test_arguments_that_make_no_sense_are_answered_with_those_that_do():
    """An error that the model can put right."""
    result = wording.bad_arguments("The action is missing.", ("list", "read"))

    assert text_of(result) == (
        "The action is missing. SKILL takes {\"action\": one of ['list', 'read'], \"skill_name\": the id of a skill}."
    )
    assert result["isError"] is True


# --- rule 7: refusals ------------------------------------------------------------------------------------------------


def test_the_refusal_of_an_inactive_tool_spells_the_call_that_helps():
    """Complete, to be copied."""
    text = wording.not_active("gh__search", Missing(Absence.INACTIVE, "issues", "gh"))

    assert text == (
        "Tool gh__search is not active: it comes with skill issues. "
        'Call SKILL({"action": "activate", "skill_name": "issues"}) first, then call gh__search again.'
    )


def test_the_refusal_of_an_offloaded_tool_says_that_it_was():
    """And is the same otherwise."""
    inactive, gone = (wording.not_active("t", Missing(why, "s", "gh")) for why in (Absence.INACTIVE, Absence.OFFLOADED))

    assert gone == inactive.replace("is not active", "was offloaded")


def test_the_refusal_of_a_tool_whose_skill_went_by_itself_says_so():
    """A model has not done it, and may wonder."""
    inactive, gone = (wording.not_active("t", Missing(why, "s", "gh")) for why in (Absence.INACTIVE, Absence.EXPIRED))

    assert gone == inactive.replace("is not active", "was offloaded since nobody used it")


@law
@given(skill=st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_the_spelled_call_is_json_whatever_the_skill_is_called(skill: str):
    """A model that copies it activates that skill."""
    call = re.fullmatch(r"SKILL\((.*)\)", wording.skill_call("activate", skill), re.DOTALL)

    assert call
    assert json.loads(call[1]) == {"action": "activate", "skill_name": skill}


def test_what_may_not_be_known_and_what_does_not_exist_have_one_wording():
    """That of JSON-RPC -32602."""
    assert wording.unknown_tool("gh__x") == "Unknown tool: gh__x"


def test_failures_of_servers_name_tool_server_and_reason():
    """And whether the call may have run (rules 7 and 33)."""
    assert wording.not_available("t", "gh", "no such file") == (
        "Tool t cannot be called: server gh is not available (no such file). The call was not sent."
    )
    lost = wording.call_lost("t", "gh", "exit code 1")
    assert all(part in lost for part in ("Server gh", " t ", "(exit code 1)", "unknown whether the call took effect"))
    ran = wording.call_unanswered("t", "gh", "it answered HTTP 503", ran=True)
    assert all(part in ran for part in ("Server gh", " t ", "(it answered HTTP 503)", "unknown whether the call took"))
    assert "It did not run." in wording.call_unanswered("t", "gh", "it answered HTTP 429", ran=False)
    late = wording.call_timed_out("t", "gh", 0.5)
    assert all(part in late for part in ("Server gh", "for t within 0.5 s", "cancelled", "`timeout`"))


def test_arguments_that_skills_fill_in_are_told_with_the_skill():
    """What the client has to leave out; and why one that cannot be worked out keeps a call from being sent."""
    assert wording.bound_arguments("t", {"a": "one"}) == (
        "Tool t was not called: argument a is set by skill one. Leave it out, and call t again."
    )
    assert "a is set by skill one, and argument b is set by skill two. Leave them out" in wording.bound_arguments(
        "t", {"a": "one", "b": "two"}
    )
    assert wording.unfilled("t", "one", "a", "heap.x is not there") == (
        "Tool t cannot be called: skill one sets its argument a, and that failed (heap.x is not there). "
        "The call was not sent."
    )


def test_a_refusal_is_a_result_with_the_error_flag():
    """Models read results, not JSON-RPC errors."""
    assert wording.refusal("no") == {"content": [{"type": "text", "text": "no"}], "isError": True}


# --- rule 17: schemas and signatures ---------------------------------------------------------------------------------


def schema_of(size: int) -> dict[str, Any]:
    """A schema of about that many bytes, and one property."""
    return {"properties": {"p": {"type": "string", "description": "x" * size}}}


def test_schemas_come_first_and_signatures_when_the_budget_is_spent():
    """Once one did not fit, all that follow are signatures, so that no model takes a gap for the end."""
    tools = [route("a", schema_of(3000)), route("b", schema_of(3000)), route("c", schema_of(3000), "Does c.\nMore.")]

    a, b, c, small = described([*tools, route("small", CLICK_SCHEMA)], with_schemas=True)

    assert "inputSchema" in a
    assert "inputSchema" in b
    assert c == {
        "name": "browser__c",
        "server": "browser",
        "tool": "c",
        "description": "Does c.",
        "signature": "(p?: string)",
    }
    assert small["signature"] == "(at: string)"


@law
@given(st.lists(st.tuples(st.integers(0, 5000), st.text("aé日", max_size=40)), max_size=8))
def test_the_schemas_of_one_activation_never_exceed_the_budget(sizes: list[tuple[int, str]]):
    """In bytes; every tool has a schema or a signature, never both."""
    tools = described([route("t", schema_of(size), text) for size, text in sizes], with_schemas=True)

    schemas = [json.dumps(tool["inputSchema"], ensure_ascii=False) for tool in tools if "inputSchema" in tool]
    assert sum(len(schema.encode()) for schema in schemas) <= SCHEMA_BUDGET == 8192
    assert all(("inputSchema" in tool) is not ("signature" in tool) for tool in tools)


def test_a_client_that_lists_again_gets_names_and_first_lines_alone():
    """It has the schemas already (rule 17)."""
    result = activated(with_schemas=False)

    assert text_of(result).endswith("Tools you can use now:\n- browser__click: Clicks.")
    assert result["structuredContent"]["tools"] == [
        {"name": "browser__click", "server": "browser", "tool": "click", "description": "Clicks."}
    ]


@pytest.mark.parametrize(
    ("schema", "line"),
    [
        (CLICK_SCHEMA, "(at: string)"),
        (
            {"properties": {"a": {"type": ["string", "null"]}, "b": {}, "c": True}},
            "(a?: string|null, b?: any, c?: any)",
        ),
        ({"properties": {"a": {"type": 7}}, "required": "a"}, "(a?: any)"),
        ({"properties": {}}, "()"),
        ({"type": "object"}, "(...)"),
        ({"properties": []}, "(...)"),
        (None, "(...)"),
        ([], "(...)"),
    ],
)
def test_a_signature_tells_names_types_and_what_is_optional(schema: object, line: str):
    """Whatever a server sends as a schema."""
    assert signature(schema) == line


@law
@given(name=hostile_texts | st.text(), kind=hostile_texts | st.text())
def test_a_signature_is_one_line(name: str, kind: str):
    """Whatever a server calls its properties and types."""
    assert len(signature({"properties": {name: {"type": kind}}}).splitlines()) == 1


@pytest.mark.parametrize(
    ("description", "line"),
    [
        ("one\ntwo", "one"),
        ("  \n one ", "one"),
        ("x" * 120, "x" * 120),
        ("x" * 121, "x" * 119 + "…"),
        (" \n ", ""),
    ],
)
def test_a_short_description_is_its_first_line(description: str, line: str):
    """At most 120 characters of it."""
    (tool,) = described([route("t", {}, description)], with_schemas=False)

    assert tool["description"] == line


@pytest.mark.parametrize("description", [None, "", 7, ["text"]])
def test_a_description_that_is_none_is_left_out(description: object):
    """Servers send all kinds of things."""
    (tool,) = described([route("t", {}, description)], with_schemas=True)

    assert "description" not in tool


def test_a_tool_without_a_schema_has_an_empty_one():
    """The key is missing in some servers' lists."""
    (tool,) = described([route("t")], with_schemas=True)

    assert tool["inputSchema"] == {}


# --- rule 18: texts of others are data -------------------------------------------------------------------------------

TAG = re.compile(rf"<\s*(/?)\s*({'|'.join(OUR_TAGS)})\b", re.IGNORECASE)


@law
@given(hostile_texts)
def test_no_tag_of_ours_is_left_in_a_text_of_others(text: str):
    """In any case and spacing; the rest stays, and doing it twice is doing it once."""
    harmless = without_our_tags(text)

    assert not TAG.search(harmless)
    assert without_our_tags(harmless) == harmless
    assert harmless.replace("&lt;", "<") == text.replace("&lt;", "<")


@pytest.mark.parametrize(
    "tag",
    [
        *("<skill_guide>", "</SKILL_GUIDE>", "</ skill_guide >", "< /skill_guide>", "<\n/\tskill_guide>"),
        *('<skill id="x">', "<\u200b/\u200bskill_guide>", "<\0skill_file>", "<//skill_guide>"),
    ],
)
def test_our_tags_are_made_harmless_however_they_are_written(tag: str):
    """A model reads sloppy markup as if it were right."""
    assert without_our_tags(f"a{tag}b") == f"a&lt;{tag[1:]}b"


@pytest.mark.parametrize("text", ["", "a < b", "<b>", "<skills>", "<skill_x>", "skill_guide>", "&lt;skill>", "<<>"])
def test_other_markup_stays_as_it_is(text: str):
    """Guides may hold any."""
    assert without_our_tags(text) == text


def test_a_text_of_much_space_is_looked_through_once():
    """However long: there is no place from which the search begins anew."""
    text = f"<{' ' * 1_000_000}"

    assert without_our_tags(text) == text
    assert without_our_tags(text + "skill>") == f"&lt;{text[1:]}skill>"


@law
@given(texts=st.lists(hostile_texts, min_size=6, max_size=6), with_schemas=st.booleans())
def test_an_activation_keeps_its_shape_whatever_others_write(texts: list[str], with_schemas: bool):
    """One guide, one frame for each server's words, and no other tag of ours from guide, server, tool or reason."""
    usage, told, about, property_, kind, reason = texts
    schema = {"properties": {property_: {"type": kind, "description": about}}}
    brought = Brought(
        usage,
        tools=[route("t", schema, about), route("big", schema | {"x": "y" * SCHEMA_BUDGET}, about)],
        instructions=[Instructions("gh", told)],
        problems=[Problem("gl", "failed", reason)],
    )
    result = activation(
        Skill("s", "S", "", usage), brought, ["s"], again=False, with_schemas=with_schemas, call_route=True
    )

    tags = ["".join(tag.groups()) for tag in TAG.finditer(text_of(result))]
    assert tags == ["skill_guide", "/skill_guide", "server_instructions", "/server_instructions"]


@law
@given(reason=hostile_texts)
def test_refusals_hold_no_tag_of_ours(reason: str):
    """Whatever reasons servers give."""
    said = (
        text_of(wording.tool_not_in_skill(READING, "t", [], [Problem("gh", "failed", reason)])),
        wording.not_available("t", "gh", reason),
        wording.call_lost("t", "gh", reason),
        wording.unfilled("t", "s", "a", reason),
    )

    assert not any(TAG.search(text) for text in said)


def test_the_instructions_are_short_and_point_to_the_tool():
    """At most 512 characters (rule 18)."""
    assert len(wording.INSTRUCTIONS) <= 512
    assert "SKILL" in wording.INSTRUCTIONS


# --- nearest ---------------------------------------------------------------------------------------------------------


@law
@given(wanted=st.text("abC", max_size=5), known=st.lists(st.text("abC", max_size=5), unique=True))
def test_nearest_names_are_all_names_each_once(wanted: str, known: list[str]):
    """The wanted one first if it is there, or one that differs in case alone."""
    found = nearest(wanted, known)

    assert sorted(found) == sorted(known)
    if wanted.casefold() in map(str.casefold, known):
        assert found[0].casefold() == wanted.casefold()


def test_names_that_are_not_near_stay_in_their_order():
    """Nothing is made up."""
    assert nearest("serch", ["zebra", "search", "apple"]) == ["search", "zebra", "apple"]
    assert nearest("q", ["zebra", "apple"]) == ["zebra", "apple"]
    assert nearest("q", []) == []


def test_names_of_any_length_are_taken_apart_from_near_ones():
    """To compare long ones takes the square of their lengths, for each of them."""
    long = ["ab" * 100_000 + str(number) for number in range(50)]

    assert nearest("serch", [*long, "search"]) == ["search", *long]
    assert nearest(long[1] + "x", long) == long


def test_the_nearest_of_very_many_names_is_found():
    """One that differs in case alone above all."""
    names = [f"{first}{second}{third}" for first in "abcdefgh" for second in "ijklmnop" for third in "qrstuvwx"]

    assert nearest("HPX", names)[0] == "hpx"
    assert nearest("a", [*names, "A"])[0] == "A"
