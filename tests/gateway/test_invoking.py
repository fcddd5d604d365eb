"""Skills that are run as one call, from the use case's side: what is refused, what a run comes to, and its record."""

import json
from functools import partial
from typing import Any

import pytest

from proxy.core.errors import Rejection
from proxy.core.steps import Call, Parallel
from proxy.gateway.invoking import DEEPEST
from tests.gateway.acting import OTHER, Doing, acting, call, client, failure, settle, skill, text_of
from tests.gateway.world import SCOPE

pytestmark = pytest.mark.anyio

TEXT = {"type": "object", "properties": {"text": {"type": "string", "default": "hello"}, "times": {"type": "integer"}}}
NEEDY = {**TEXT, "required": ["times"]}


def invoking(id_: str, name: str = "", **more: Any) -> Call:
    """A step that invokes a skill."""
    return Call("", name or id_, skill=id_, **more)


# --- before anything runs --------------------------------------------------------------------------------------------


async def test_arguments_are_checked_before_anything_runs():
    """What is wrong is said, with what is expected; nothing is recorded."""
    async with acting(skill("flow", call("one"), runs={"parameters": NEEDY})) as world:
        answer = await world.invoke("flow", {"text": 5})
        told = answer["structuredContent"]
        assert answer["isError"]
        assert told["success"] is False
        assert told["expected_parameters"]["required"] == ["times"]
        assert any("times" in wrong for wrong in told["errors"])
        assert any("text" in wrong for wrong in told["errors"])
        assert (world.desk.called, world.runs) == ([], [])
        assert world.quiet


async def test_defaults_are_filled_in():
    async with acting(
        skill("flow", call("one", arguments={"all": "{{ params }}"}), runs={"parameters": TEXT})
    ) as world:
        for given in (None, {}, {"times": 2}, '{"text": "bye"}', ""):
            await world.invoke("flow", given)
        assert [arguments["all"] for _, arguments in world.desk.called] == [
            {"text": "hello"},
            {"text": "hello"},
            {"text": "hello", "times": 2},
            {"text": "bye"},
            {"text": "hello"},
        ]


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ({}, "The skill_name is missing."),
        ({"skill_name": 7}, "The skill_name is missing."),
        ({"skill_name": "flow", "text": "x"}, 'Put text inside "arguments".'),
        ({"skill_name": "flow", "arguments": [1]}, '"arguments" has to be an object'),
        ({"skill_name": "flow", "arguments": "{"}, '"arguments" has to be an object'),
        ({"skill_name": "flow", "arguments": "[" * 100_000}, '"arguments" has to be an object'),
        ({"skill_name": "flaw"}, "skill not found: 'flaw'. Skills that can be run: ['flow']."),
        ({"skill_name": "guide"}, "skill guide has no steps to run"),
    ],
)
async def test_a_call_that_cannot_be_understood_runs_nothing(arguments: Any, what: str):
    """It says how it is made."""
    async with acting(skill("flow", call("one")), skill("guide")) as world:
        answer = await world.ask("SKILL_INVOKE", arguments)
        assert answer["isError"]
        assert what in text_of(answer)
        assert (world.desk.called, world.runs) == ([], [])


async def test_a_skill_that_has_to_be_active_is_run_only_then():
    """The refusal spells the call that helps."""
    async with acting(skill("flow", call("one"), runs={"needs_activation": True})) as world:
        answer = await world.invoke("flow")
        assert 'Call SKILL({"action": "activate", "skill_name": "flow"}) first' in text_of(answer)
        assert world.desk.called == []
        await world.skill("activate", "flow")
        assert not (await world.invoke("flow")).get("isError")


async def test_a_skill_of_which_so_many_runs_are_at_work_waits_for_none():
    """Each scope has its own count; a run that is given up, fails or ends gives its place free."""
    async with acting(skill("flow", call("one"), runs={"max_runs": 2})) as world:
        go_on = world.desk.holds("one")
        first, _ = [Doing(world.tasks, partial(world.invoke, "flow")) for _ in range(2)]
        await settle()
        assert "2 runs of it may be at work at a time, and are" in text_of(await world.invoke("flow"))
        other = Doing(world.tasks, partial(world.invoke, "flow", None, client(scope=OTHER)))
        await settle()
        assert not other.done
        await first.give_up()
        for error in (Rejection(-1, "no"), None):
            if error is not None:
                world.desk.raises("one", error)
            else:
                del world.desk.does["one"]
            assert "at work at a time" not in text_of(await world.invoke("flow"))
        go_on.set()
        await settle()
        assert world.quiet
        assert sorted(run.status for run in world.runs) == [
            "cancelled",
            "completed",
            "completed",
            "completed",
            "failed",
        ]


# --- what a run comes to ---------------------------------------------------------------------------------------------


async def test_the_output_is_as_it_is_written_or_the_last_result():
    """Text and structured content are the same."""
    written = {"first": "{{ steps.a.n }}", "all": ["{{ steps.a }}", "{{ params.x }}"], "text": "{{ params.x }}!"}
    steps = (call("one", save_as="a", arguments={"n": 1}), call("two", arguments={"n": 2}))
    own = skill("own", *steps, runs={"output": written, "own_output": True})
    nothing = skill("nothing", *steps, runs={"output": None, "own_output": True})
    async with acting(own, skill("last", *steps), nothing) as world:
        answer = await world.invoke("own", {"x": 5})
        told = {
            "skill_id": "own",
            "output": {"first": 1, "all": [{"n": 1}, 5], "text": "5!"},
            "success": True,
        }
        assert (answer["structuredContent"], json.loads(text_of(answer))) == (told, told)
        assert (await world.invoke("last"))["structuredContent"]["output"] == {"n": 2}
        assert (await world.invoke("nothing"))["structuredContent"]["output"] is None
        assert [run.output_size for run in world.runs] == [len(json.dumps(told["output"])), len('{"n": 2}'), 4]


async def test_an_output_that_cannot_be_made_fails_the_run():
    """Or one that is not as its schema says."""
    bad = skill("bad", call("one"), runs={"output": "{{ steps.x.y }}", "own_output": True})
    promised = skill("promised", call("one"), runs={"output_schema": {"type": "object", "required": ["n"]}})
    async with acting(bad, promised) as world:
        error = (await world.invoke("bad"))["structuredContent"]["error"]
        assert (error["step"], error["place"]) == ("output", "output")
        assert "{{ steps.x.y }}" in error["reason"]
        answer = await world.invoke("promised")
        assert answer["structuredContent"]["error"]["place"] == "output_schema"
        assert "n" in answer["structuredContent"]["error"]["reason"]
        assert answer["structuredContent"]["done"] == [{"step": "one", "target": "desk/one", "status": "completed"}]
        assert [(run.status, run.output_size) for run in world.runs] == [("failed", 0)] * 2


async def test_a_run_takes_no_longer_than_it_may():
    """The server is told, whatever its step says of errors; the record says that it failed."""
    steps = (call("one"), call("two", on_error="continue"), call("three"))
    async with acting(skill("flow", *steps, runs={"max_seconds": 0.05})) as world:
        world.desk.holds("two")
        error = (await world.invoke("flow"))["structuredContent"]["error"]
        assert (error["step"], error["target"]) == ("two", "desk/two")
        assert error["reason"] == "all steps together have 0.05 s, and that is over (its max_execution_time_seconds)"
        assert world.desk.cancelled == ["two"]
        (run,) = world.runs
        assert run.status == "failed"
        assert [(step.name, step.status) for step in run.steps] == [
            ("one", "completed"),
            ("two", "cancelled"),
            ("three", "not_begun"),
        ]


@pytest.mark.parametrize("on_error", ["fail", "continue"])
async def test_a_run_makes_no_more_calls_than_it_may(on_error: Any):
    """Whatever its steps say of errors; the calls for values and those side by side count, too."""
    steps = (
        call("one", for_each=[1, 2]),
        Parallel("", (call("two"), call("log/two"))),
        call("three", on_error=on_error),
    )
    async with acting(skill("flow", *steps, runs={"max_calls": 4})) as world:
        error = (await world.invoke("flow"))["structuredContent"]["error"]
        assert (error["step"], error["reason"]) == (
            "three",
            "no more calls may be made in one run (its max_iterations)",
        )
        assert "three" not in world.desk.tools
        assert world.runs[0].status == "failed"
    async with acting(
        skill("flow", call("one", for_each=[1, 2, 3], on_error=on_error), runs={"max_calls": 2})
    ) as world:
        error = (await world.invoke("flow"))["structuredContent"]["error"]
        assert error["reason"] == "value 2: no more calls may be made in one run (its max_iterations)"


async def test_a_run_ends_when_its_skill_is_no_longer_active_that_has_to_be():
    """The step that is at work ends; one that needs no activation goes on."""
    needs = skill("needs", call("one"), call("two", on_error="continue"), runs={"needs_activation": True})
    async with acting(needs, skill("free", call("one"), call("two"))) as world:
        for id_, failed in (("needs", True), ("free", False)):
            await world.skill("activate", id_)
            go_on = world.desk.holds("one")
            running = Doing(world.tasks, partial(world.invoke, id_))
            await settle()
            await world.skill("offload", id_)
            go_on.set()
            answer = await running.outcome()
            assert answer.get("isError", False) is failed
            if failed:
                assert answer["structuredContent"]["error"]["reason"] == "skill needs is not active any more"
                assert "two" not in world.desk.tools
        assert "two" in world.desk.tools


async def test_a_run_that_is_given_up_stops_at_its_step():
    """Which is cancelled at its server, and so is its record; nothing comes after."""
    async with acting(skill("flow", call("one"), call("two"), call("three"))) as world:
        world.desk.holds("two")
        running = Doing(world.tasks, partial(world.invoke, "flow"))
        await settle()
        await running.give_up()
        assert (world.desk.tools, world.desk.cancelled) == (["one", "two"], ["two"])
        (run,) = world.runs
        assert (run.status, run.error, run.output_size) == ("cancelled", "", 0)
        assert [(step.name, step.status) for step in run.steps] == [
            ("one", "completed"),
            ("two", "cancelled"),
            ("three", "not_begun"),
        ]
        assert world.quiet


# --- skills that run skills ------------------------------------------------------------------------------------------


async def test_a_step_can_run_a_skill():
    """It gets arguments and gives its output; its own record names the run that it was a step of."""
    inner = skill("inner", call("one", arguments={"n": "{{ params.n }}", "event": "{{ event }}"}))
    outer = skill("outer", invoking("inner", save_as="got", arguments={"n": "{{ params.n }}"}), call("log/two"))
    async with acting(inner, outer) as world:
        world.log.fails("two", "later")
        await world.invoke("outer", {"n": 3})
        (told,) = [arguments for _, arguments in world.desk.called]
        assert told == {"n": 3, "event": {"name": "invoke", "skill": "inner", "reason": "step"}}
        of_outer, of_inner = world.runs
        assert (of_inner.skill, of_inner.status, of_inner.parent) == ("inner", "completed", of_outer.id)
        assert (of_outer.skill, of_outer.status, of_outer.parent) == ("outer", "failed", "")
        assert of_outer.steps[0].target == "skill inner"


@pytest.mark.parametrize("on_error", ["fail", "continue"])
async def test_a_skill_that_fails_fails_the_step_that_runs_it(on_error: Any):
    """Also where it has failed by its own bounds: these are not those of the other run."""
    inner = skill("inner", call("one", for_each=[1, 2]), runs={"max_calls": 1})
    async with acting(inner, skill("outer", invoking("inner", on_error=on_error), call("two"))) as world:
        answer = await world.invoke("outer")
        of_outer, of_inner = world.runs
        assert of_inner.status == "failed"
        if on_error == "fail":
            error = answer["structuredContent"]["error"]
            assert error["step"] == "inner"
            assert "step one (steps[0], desk/one) failed: value 1: no more calls" in error["reason"]
            assert of_outer.status == "failed"
        else:
            assert not answer.get("isError")
            assert of_outer.status == "completed"


@pytest.mark.parametrize(
    ("inner", "reason"),
    [
        (None, "there is no such skill that can be invoked"),
        (skill("inner"), "there is no such skill that can be invoked"),
        (skill("inner", call("one"), runs={"needs_activation": True}), "skill inner has to be active to be invoked"),
        (skill("inner", call("one"), runs={"parameters": NEEDY}), "times: is required"),
        (skill("inner", call("one"), runs={"max_runs": 0}), "skill inner runs 0 times already, as often as it may at"),
    ],
)
async def test_a_step_cannot_run_what_cannot_be_run(inner: Any, reason: str):
    """It fails by that, and nothing is recorded but its own run."""
    skills = [one for one in (inner, skill("outer", invoking("inner"))) if one is not None]
    async with acting(*skills) as world:
        error = (await world.invoke("outer"))["structuredContent"]["error"]
        assert error["target"] == "skill inner"
        assert reason in error["reason"]
        assert world.desk.called == []
        assert [run.skill for run in world.runs] == ["outer"]


async def test_a_skill_that_runs_itself_comes_to_an_end():
    """So deep, and no deeper; each run has its record, and its place is free again."""
    async with acting(skill("flow", call("one"), invoking("flow", name="again"))) as world:
        answer = await world.invoke("flow")
        assert f"skills invoke each other more than {DEEPEST} deep" in text_of(answer)
        assert len(world.desk.called) == len(world.runs) == DEEPEST
        assert [run.parent for run in world.runs] == ["", *(run.id for run in world.runs[:-1])]
        assert {run.status for run in world.runs} == {"failed"}
        assert world.quiet


async def test_a_hook_that_runs_a_skill_may_be_part_of_no_run():
    """Its record has no parent; what the skill may call is its own."""
    filing = skill("filing", call("one", arguments={"n": "{{ heap.n.n }}"}))
    steps = [call("two", save_as="n", arguments={"n": 4}), invoking("filing", save_as="filed")]
    async with acting(filing, skill("case", on_activate=steps, internal=filing.internal)) as world:
        assert not (await world.skill("activate", "case")).get("isError")
        assert (await world.state()).heap == {"n": {"n": 4}, "filed": {"n": 4}}
        (run,) = world.runs
        assert (run.skill, run.parent, run.status) == ("filing", "", "completed")


async def test_a_run_that_is_too_slow_takes_the_runs_inside_along():
    """These were cancelled, and it has failed."""
    outer = skill("outer", invoking("inner"), runs={"max_seconds": 0.05})
    async with acting(skill("inner", call("one")), outer) as world:
        world.desk.holds("one")
        await world.invoke("outer")
        assert [(run.skill, run.status) for run in world.runs] == [("outer", "failed"), ("inner", "cancelled")]
        assert world.desk.cancelled == ["one"]
        assert world.quiet


# --- records ---------------------------------------------------------------------------------------------------------


async def test_a_record_tells_when_each_step_began_and_how_long_it_took():
    """In the order of the configuration, whichever ends first."""
    side = Parallel("", (call("one"), call("log/two")))
    async with acting(skill("flow", call("three"), side), tick=1.0) as world:

        async def ends_last(arguments: Any, _caller: Any) -> Any:
            await settle()
            return arguments

        world.desk.does["one"] = ends_last
        await world.invoke("flow")
        (run,) = world.runs
        three, one, two = run.steps
        assert [three.name, one.name, two.name] == ["three", "one", "two"]
        assert 0 < three.started < three.started + three.seconds < one.started < two.started
        assert two.started + two.seconds < one.started + one.seconds < run.seconds
        assert (run.scope, run.skill) == (str(SCOPE), "flow")


async def test_a_record_holds_no_secrets():
    """Neither in parameters, nor in what servers say."""
    secret = {"type": "object", "properties": {"token": {"type": "string"}, "text": {"type": "string"}}}
    async with acting(skill("flow", call("one"), runs={"parameters": secret})) as world:
        world.wired.invoking._masker.learn(["hunter22"])
        world.desk.gives("one", failure("no hunter22 here"))
        await world.invoke("flow", {"token": "abc", "text": "hunter22"})
        (run,) = world.runs
        told = json.dumps([run.parameters, run.error, run.steps[0].error])
        assert "hunter22" not in told
        assert "abc" not in told
