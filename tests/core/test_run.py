"""Records of runs: their JSON form and back, and how large they may be."""

import json
from dataclasses import fields, replace
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.run import (
    LATEST,
    PARAMETERS_LIMIT,
    TEXT_LIMIT,
    Run,
    RunStatus,
    StepRecord,
    StepStatus,
    Values,
    ValueStatus,
    interrupted,
    json_of,
    ranges,
    run_of,
    shortened,
)
from tests.core.strategies import law

STEP = StepRecord("find it", "crm/find", 0.25, 1.5, "failed", "it hung")
RUN = Run("r1", "case", "namespace a", {"customer": "c1"}, "failed", 1.7e9, 2.5, (STEP,), "find it failed", 7, "r0")

times = st.floats(min_value=0, max_value=LATEST)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
sizes = st.integers(min_value=0)
step_records = st.recursive(
    st.builds(StepRecord, st.text(), st.text(), times, times, st.sampled_from(get_args(StepStatus)), st.text()),
    lambda inner: st.builds(
        StepRecord,
        st.text(),
        st.text(),
        times,
        times,
        st.sampled_from(get_args(StepStatus)),
        st.text(),
        st.booleans(),
        sizes,
        st.lists(st.builds(Values, st.sampled_from(get_args(ValueStatus)), sizes, sizes), max_size=3).map(tuple),
        st.lists(inner, max_size=2).map(tuple),
    ),
    max_leaves=4,
)
runs = st.builds(
    Run,
    st.text(),
    st.text(),
    st.text(),
    st.dictionaries(st.text(), values, max_size=3),
    st.sampled_from(get_args(RunStatus)),
    times,
    times,
    st.lists(step_records, max_size=3).map(tuple),
    st.text(),
    st.integers(min_value=0),
    st.text(),
)


@law
@given(run=runs)
def test_a_run_is_the_same_after_it_was_json(run: Run):
    """Also with halves of characters, which only escaped JSON can hold."""
    assert run_of(json.loads(json.dumps(json_of(run)))) == run


def test_the_json_form_has_the_names_of_the_fields():
    """For who reads it without us."""
    told = json_of(RUN)
    assert set(told) == {field.name for field in fields(Run)}
    assert told["parameters"] == {"customer": "c1"}
    assert told["steps"] == [
        {
            "name": "find it",
            "target": "crm/find",
            "started": 0.25,
            "seconds": 1.5,
            "status": "failed",
            "error": "it hung",
        }
    ]


def test_what_is_more_in_a_record_does_not_count():
    """It may be from a later version."""
    later = {**json_of(RUN), "colour": "red", "steps": [{**step, "more": 1} for step in json_of(RUN)["steps"]]}
    assert run_of(later) == RUN


TEXTS = ("id", "skill", "scope", "error", "parent")
TIMES = ("began", "seconds")
NO_TIMES = (-0.5, LATEST * 2, float("nan"), float("inf"), 10**400, True, "1", None)


@pytest.mark.parametrize("value", [None, [], "text", 7, {}])
def test_what_is_no_record_is_none(value: object):
    assert run_of(value) is None


@pytest.mark.parametrize("name", [field.name for field in fields(Run) if field.name not in {"limit", "process"}])
def test_a_record_has_all_fields(name: str):
    told = {**json_of(RUN)}
    del told[name]
    assert run_of(told) is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, value) for name in TEXTS for value in (None, 7, [])),
        *((name, value) for name in TIMES for value in NO_TIMES),
        *(("parameters", value) for value in (None, [], "text")),
        *(("status", value) for value in (None, "skipped", [])),
        *(("output_size", value) for value in (None, -1, 1.5, True)),
        *(("steps", value) for value in (None, {}, "text", [None], [{}])),
    ],
)
def test_a_field_of_another_kind_is_no_records(name: str, value: object):
    assert run_of({**json_of(RUN), name: value}) is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, value) for name in ("name", "target", "error") for value in (None, 7)),
        *((name, value) for name in ("started", "seconds") for value in NO_TIMES),
        *(("status", value) for value in (None, "interrupted")),
        *(("may_have_run", value) for value in (None, 1)),
        *(("attempts", value) for value in (None, -1, "2")),
        *(("values", value) for value in (None, [1], [["completed", 0]], [["lost", 0, 1]], [["completed", 0, -1]])),
        *(("inside", value) for value in (None, [1], [{}])),
    ],
)
def test_a_step_that_is_none_makes_it_no_record(name: str, value: object):
    """Also beside good ones."""
    (step,) = json_of(RUN)["steps"]
    assert run_of({**json_of(RUN), "steps": [step, {**step, name: value}]}) is None


def test_a_record_of_an_earlier_version_lacks_what_came_later():
    """It is read all the same."""
    told = {**json_of(RUN)}
    del told["limit"], told["process"]
    assert run_of(told) == RUN


def test_values_that_came_to_the_same_are_one_range():
    assert ranges([]) == ()
    assert ranges(["completed", "completed", "failed", "completed"]) == (
        Values("completed", 0, 1),
        Values("failed", 2, 2),
        Values("completed", 3, 3),
    )


def test_a_run_whose_proxy_has_ended_is_interrupted():
    """Of a step that was running, nobody knows what became of it."""
    run = replace(RUN, status="running", error="", process=7, steps=(STEP, replace(STEP, status="running", error="")))
    ended = interrupted(run)
    assert (ended.status, ended.error, ended.process) == ("interrupted", "the proxy ended while it ran", 0)
    assert [step.status for step in ended.steps] == ["failed", "cancelled"]


def test_times_may_be_whole_numbers():
    """As other programs write them."""
    assert run_of({**json_of(RUN), "began": 5}) == replace(RUN, began=5.0)


# --- how large it may be ---------------------------------------------------------------------------------------------


@law
@given(run=runs)
def test_a_short_run_stays_as_it_is(run: Run):
    """Which is what runs are; and one that was cut is not cut again."""
    assert shortened(run) == run


def test_long_texts_are_cut():
    """Wherever they come from, however deep in parameters they are; that it goes on is seen."""
    long, cut = "x" * (TEXT_LIMIT + 1), "x" * (TEXT_LIMIT - 1) + "…"
    longest = "x" * TEXT_LIMIT
    step = replace(STEP, error=long)
    run = replace(RUN, parameters={"a": [{"b": long}, longest, 7]}, error=long, steps=(STEP, step))
    kept = shortened(run)
    assert kept == replace(
        run, parameters={"a": [{"b": cut}, longest, 7]}, error=cut, steps=(STEP, replace(STEP, error=cut))
    )
    assert shortened(kept) == kept


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth):
        value = {"deeper": value}
    return value


@pytest.mark.parametrize(
    ("parameters", "why"),
    [
        ({"list": [*range(PARAMETERS_LIMIT)]}, "left out: more than 16 KiB"),
        ({"x" * PARAMETERS_LIMIT: 1}, "left out: more than 16 KiB"),
        (nested(100_000), "left out: nested too deeply"),
    ],
    ids=["many", "a long name", "deep"],
)
def test_parameters_that_are_too_large_all_the_same_are_left_out(parameters: dict[str, Any], why: str):
    """Which the record says."""
    assert shortened(replace(RUN, parameters=parameters)) == replace(RUN, parameters={"…": why})
