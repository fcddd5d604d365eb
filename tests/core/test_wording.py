"""Texts that the proxy says to a model or a client, and what answers are made of (design rules 7 and 16 to 18)."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core import wording
from proxy.core.catalogue import EVERYTHING, Catalogue, Skill
from proxy.core.decision import Absence, Missing
from proxy.core.names import Naming
from proxy.core.wording import (
    Problem,
    answer,
    nearest,
    offloading,
    refusal,
    signature,
    skill_not_found,
    with_note,
    without_our_tags,
)
from tests.answers import available_skills, text_of
from tests.core.strategies import OUR_TAGS, hostile_texts, law

BROWSING = Skill("browsing", "Browser", "Web browsing", "Go there, click this.", tools={"browser": EVERYTHING})
READING = Skill("reading", "Reader", "Reads", "Read slowly.")
CATALOGUE = Catalogue(("browser",), Naming({"browser": "browser"}), (BROWSING, READING))

CLICK_SCHEMA = {"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]}


def test_a_step_is_told_of_a_tool_that_it_may_not_call_as_of_one_that_there_is_not():
    """By the server and its own name for it, as the configuration has them."""
    assert wording.not_for_step("crm", "drop") == "server crm offers no tool drop that this step may call"


# --- rule 16: the answers of SKILL -----------------------------------------------------------------------------------


def test_offloading_says_it_and_what_is_left():
    """Rule 16, to the letter."""
    result = offloading("browsing", ["reading"], exists=True, was_active=True, besides=[])

    assert result == answer("skill browsing offloaded, current skills: ['reading']")


def test_offloading_says_what_went_with_it():
    """In a line of its own."""
    result = offloading("top", ["x"], exists=True, was_active=True, besides=["base", "middle"])

    assert text_of(result) == (
        "skill top offloaded, current skills: ['x']\n"
        "Offloaded with it, since no other skill requires them: base, middle."
    )


@pytest.mark.parametrize(("exists", "said"), [(True, "is not active"), (False, "not found")])
def test_offloading_what_is_not_active_is_no_error(exists: bool, said: str):
    """Things are as wished; whether there is such a skill is said (rule 16)."""
    result = offloading("some skill", ["reading"], exists=exists, was_active=False, besides=[])

    assert text_of(result) == f"skill some skill {said}, current skills: ['reading']"
    assert "isError" not in result


def test_a_skill_that_has_gone_from_the_configuration_is_offloaded_all_the_same():
    """It was active when that was asked for."""
    result = offloading("gone", [], exists=False, was_active=True, besides=[])

    assert text_of(result) == "skill gone offloaded, current skills: []"


@pytest.mark.parametrize(
    ("wanted", "first"),
    [("brwosing", "browsing"), ("READING", "reading"), ("browser", "browsing"), ("reader", "reading")],
)
def test_an_unknown_skill_is_answered_with_what_there_is(wanted: str, first: str):
    """The nearest id or name first; an error (rule 16)."""
    result = skill_not_found(wanted, CATALOGUE)

    assert text_of(result).startswith(f"skill not found: {wanted!r}. Available skills: ['{first}', ")
    assert sorted(available_skills(result)) == ["browsing", "reading"]
    assert result["isError"] is True


def test_of_very_many_skills_the_nearest_are_named_and_how_many_more_there_are():
    """All of them would fill a model's context."""
    skills = tuple(Skill(f"skill-{number}", f"{number}", "", "") for number in range(10_000))
    result = skill_not_found("skil-9876", Catalogue((), Naming({}), skills))

    text = text_of(result)
    assert available_skills(result)[0] == "skill-9876"
    assert len(available_skills(result)) == 50
    assert text.endswith(' and 9,950 more: SKILL({"action": "list"}) shows them')
    assert len(text) < 2_000


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


def test_a_tool_is_found_by_a_part_of_its_name():
    """Those that have it first, whatever case it is in; of very many, how many more there are."""
    names = [f"do_{number}" for number in range(60)] + [f"find_{number}" for number in range(5)]

    text = text_of(wording.tool_not_in_skill(BROWSING, "FIND", names, []))

    assert text.startswith("skill browsing has no tool 'FIND'. Its tools: ['find_0', 'find_1', 'find_2', 'find_3', ")
    assert text.count("'") == 2 + 2 * 50
    assert text.endswith("] and 15 more.")


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
    assert refusal("no") == {"content": [{"type": "text", "text": "no"}], "isError": True}
    assert refusal("no") == answer("no", error=True)
    assert answer("yes") == {"content": [{"type": "text", "text": "yes"}]}


def test_a_note_is_a_paragraph_behind_what_an_answer_says():
    """All else of the answer stays, and the answer itself is not changed; without a note it is the very same."""
    told = {**refusal("no"), "_meta": {"a": 1}}
    told["content"].append({"type": "text", "text": "more"})

    assert with_note(told, "By the way.") == {
        "content": [{"type": "text", "text": "no\n\nBy the way."}, {"type": "text", "text": "more"}],
        "isError": True,
        "_meta": {"a": 1},
    }
    assert told["content"][0]["text"] == "no"
    assert with_note(told, "") is told


def test_a_tool_for_the_pages_of_its_server_says_why_it_was_not_called():
    """Where a model asks for it (MCP Apps)."""
    assert wording.for_pages_only("gh__refresh") == (
        "Tool gh__refresh can be called only by the user interface of its server. The call was not sent."
    )


# --- signatures -------------------------------------------------------------------------------------------------------


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
