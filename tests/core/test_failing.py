"""What is told of steps when something has failed: each outcome under its heading, in bounded length."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.errors import (
    LIMIT_REACHED,
    NotDelivered,
    ProxyError,
    Rejection,
    ServerLost,
    ServerSilent,
    ServerUnavailable,
    Unanswered,
    Unknown,
)
from proxy.core.failing import STEPS_LIMIT, is_transient, may_have_run, steps_told, what_ran
from proxy.core.run import StepRecord, StepStatus, Values
from tests.core.strategies import law


def step(name: str, status: StepStatus, **more: object) -> StepRecord:
    return StepRecord(name, f"crm/{name}", 0.0, 0.1, status, **more)  # type: ignore[arg-type]


def test_each_outcome_has_its_heading():
    """What was skipped is not told."""
    steps = [
        step("open", "completed"),
        step("tag", "skipped"),
        step("note", "failed"),
        step("send", "failed", may_have_run=True),
        step("wait", "cancelled"),
        step("look", "running"),
        step("close", "not_begun"),
    ]
    assert what_ran(steps) == (
        "Completed, and not undone: open. Failed: note. May have run: send, wait, look. Not begun: close."
    )
    assert what_ran([]) == "No step had been completed."


def test_values_are_told_by_their_numbers():
    """Those of one outcome together."""
    values = (
        Values("completed", 0, 2),
        Values("may_have_run", 3, 3),
        Values("skipped", 4, 4),
        Values("completed", 5, 5),
        Values("not_begun", 6, 8),
    )
    assert what_ran([step("each", "failed", values=values)]) == (
        "Completed, and not undone: each (values 0 to 2, 5). May have run: each (value 3). "
        "Not begun: each (values 6 to 8)."
    )


def test_a_step_that_fails_after_all_that_it_called_went_well_is_told_as_failed():
    """As with a result that is too large to be kept."""
    assert what_ran([step("each", "failed", values=(Values("completed", 0, 1),))]) == (
        "Completed, and not undone: each (values 0 to 1). Failed: each."
    )


def test_steps_of_an_invoked_skill_are_told_after_its_name():
    inside = (step("open", "completed"), step("find", "failed", attempts=3), step("close", "not_begun"))
    assert what_ran([step("case", "failed", inside=inside)]) == (
        "Completed, and not undone: case / open. Failed: case / find (3 attempts). Not begun: case / close."
    )


@law
@given(number=st.integers(1, 2000), name=st.text(min_size=1, max_size=300))
def test_however_many_steps_there_are_the_answer_is_bounded(number: int, name: str):
    """It says how many more there are, in words and as structured content."""
    inside = tuple(step(name, "failed", error="x" * 5000) for _ in range(5))
    steps = [step(f"{name}{index}", "failed", error="y" * 5000, inside=inside) for index in range(number)]
    told, left_out = steps_told(steps)
    assert len(what_ran(steps).encode()) < 4_000
    assert len(json.dumps(told, ensure_ascii=False).encode(errors="replace")) <= STEPS_LIMIT + 2 * number
    assert len(told) + left_out == number


def test_structured_content_says_what_the_text_says():
    values = (Values("completed", 0, 2), Values("failed", 3, 3), Values("completed", 4, 4))
    inside = (step("open", "cancelled"), step("tag", "skipped"))
    told, left_out = steps_told(
        [step("each", "failed", error="no", values=values, attempts=2), step("case", "failed", inside=inside)]
    )
    assert left_out == 0
    assert told == [
        {
            "step": "each",
            "target": "crm/each",
            "status": "failed",
            "error": "no",
            "attempts": 2,
            "values": {"completed": "0 to 2, 4", "failed": "3"},
        },
        {
            "step": "case",
            "target": "crm/case",
            "status": "failed",
            "steps": [{"step": "open", "target": "crm/open", "status": "cancelled", "may_have_run": True}],
        },
    ]


def unanswered(status: int | None, *, ran: bool) -> Unanswered:
    return Unanswered(-32603, "no", server="crm", reason="no", ran=ran, status=status)


@pytest.mark.parametrize(
    ("error", "passes", "unclear"),
    [
        (ServerUnavailable("crm", "it is down"), True, False),
        (ServerLost("crm", "it died"), True, True),
        (ServerSilent("crm", 5), True, True),
        (unanswered(503, ran=True), True, True),
        (unanswered(429, ran=False), True, False),
        (unanswered(None, ran=True), True, True),
        (unanswered(403, ran=False), False, False),
        (Rejection(-32603, "oops"), True, False),
        (Rejection(-32602, "no such argument"), False, False),
        (Rejection(LIMIT_REACHED, "too many"), False, False),
        (Unknown("no such tool"), False, False),
        (NotDelivered("crm", "it is closed"), False, False),
    ],
)
def test_what_may_pass_and_what_may_have_run(error: ProxyError, passes: bool, unclear: bool):
    """What the proxy refuses never passes by being tried again."""
    assert (is_transient(error), may_have_run(error)) == (passes, unclear)
