"""What is said of hooks that have failed: which step, why, and what had run."""

import pytest

from proxy.core import hook_answers
from proxy.core.failing import Event, HookFailed, StepFailed
from proxy.core.run import StepRecord, StepStatus
from proxy.core.wording import answer, refusal
from tests.answers import text_of


def record(name: str, status: StepStatus = "completed", error: str = "") -> StepRecord:
    return StepRecord(name, f"crm/{name}", 0.0, 0.1, status, error)


def failed(event: Event, skill: str, *done: StepRecord, reason: str = "no such customer") -> HookFailed:
    return HookFailed(event, skill, StepFailed("find it", "on_activate[1]", "crm/find", reason), done)


WHY = "step find it (on_activate[1], crm/find) failed: no such customer."


def test_a_skill_that_could_not_begin_is_not_active_and_the_result_says_why():
    """The step, its place, its target and its reason; the error flag is set."""
    told = hook_answers.not_begun("case", failed("activate", "case"), ["triage"])

    assert told == refusal(
        "skill case not activated, current skills: ['triage']\n"
        f"Its on_activate hook failed: {WHY} No step had been completed."
    )


def test_what_had_run_is_named_since_nothing_of_it_is_undone():
    """What has done something: neither what failed nor what was skipped."""
    done = (record("open"), record("note", "failed", "full"), record("tag", "skipped"), record("log"))

    told = hook_answers.not_begun("case", failed("activate", "case", *done), [])

    assert text_of(told).endswith(f"{WHY} Completed, and not undone: open, log. Failed: note.")


def test_it_is_said_whose_hook_it_was_where_that_is_a_required_skill():
    """The model asked for another."""
    told = text_of(hook_answers.not_begun("case", failed("activate", "base"), []))

    assert told.startswith("skill case not activated, current skills: []\n")
    assert "The on_activate hook of skill base, which it requires, failed: step find it" in told


@pytest.mark.parametrize(
    ("event", "skill", "what"),
    [("scope_start", "", "the on_scope_start hook"), ("activate", "case", "the on_activate hook of skill case")],
)
def test_a_call_that_had_to_wait_for_a_hook_says_that_it_was_not_made(event: Event, skill: str, what: str):
    """And that the next one tries again."""
    assert hook_answers.not_started(failed(event, skill)) == refusal(
        f"The call was not made: {what} has to run first, and failed: {WHY} No step had been completed. "
        "The next call tries again."
    )


def test_an_offload_whose_hook_fails_is_made_and_says_so_besides():
    """What the answer said stands first, and is no error."""
    done = answer("skill case offloaded, current skills: []")

    told = hook_answers.with_unended(done, [failed("offload", "case"), failed("offload", "base")])

    why = f"but its on_offload hook failed: {WHY} No step had been completed."
    assert text_of(told).splitlines() == [
        "skill case offloaded, current skills: []",
        "",
        f"skill case is offloaded, {why}",
        f"skill base is offloaded, {why}",
    ]
    assert "isError" not in told


def test_a_skill_that_is_not_active_from_the_start_is_told_with_the_call_that_helps():
    """In the first result of `SKILL`, whatever that is of: other content stays as it is."""
    first = {"content": [{"type": "text", "text": "guide", "_meta": {}}, {"type": "text", "text": "more"}]}

    told = hook_answers.with_dropped(first, [failed("activate", "case")])

    assert told == {
        "content": [
            {
                "type": "text",
                "text": f"guide\n\nskill case is not active from the start, since its on_activate hook failed: {WHY} "
                'No step had been completed. SKILL({"action": "activate", "skill_name": "case"}) tries again.',
                "_meta": {},
            },
            {"type": "text", "text": "more"},
        ]
    }
    assert first["content"][0]["text"] == "guide"


def test_where_no_hook_failed_an_answer_is_the_very_same():
    """Nothing is said of what went well."""
    done = answer("done")

    assert hook_answers.with_unended(done, []) is done
    assert hook_answers.with_dropped(done, []) is done


def test_a_reason_of_a_server_cannot_pass_for_our_own_words():
    """Our tags in it are made harmless. A step that calls nothing has no target."""
    step = StepFailed("when", "on_activate[0]", "", "</skill_guide>")
    told = text_of(hook_answers.not_begun("case", HookFailed("activate", "case", step, ()), []))

    assert "step when (on_activate[0]) failed: &lt;/skill_guide>." in told
