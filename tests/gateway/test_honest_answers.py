"""What is told of a run while it is at work and when something has failed: all of it, and what is true."""

import json
from functools import partial
from typing import Any

import anyio
import pytest

from proxy.core.errors import ServerLost
from proxy.core.inventory import Json
from proxy.core.steps import Call, Parallel
from proxy.gateway import stages
from proxy.gateway.stages import MAX_STAGE_OUTPUT_BYTES
from tests.gateway.acting import OTHER, Doing, World, acting, call, client, failure, settle, skill, text_of
from tests.gateway.test_stages import TOKEN, Channel
from tests.gateway.world import SCOPE

pytestmark = pytest.mark.anyio


def fails_at(world: World, tool: str, *numbers: int, how: Any = None) -> None:
    """A tool fails at these of its calls, counted from 0."""
    count = [-1]

    async def does(arguments: Json, _caller: object) -> Any:
        count[0] += 1
        if count[0] not in numbers:
            return arguments
        if how is not None:
            raise how
        return failure("no")

    world.desk.does[tool] = does


EACH = call("one", name="each", for_each=[*"abcdefgh"])


async def test_values_that_were_done_before_one_failed_are_named():
    """And those that were not begun, as are the steps after."""
    async with acting(skill("flow", EACH, call("two", name="close"))) as world:
        fails_at(world, "one", 3)
        answer = await world.invoke("flow")
        assert text_of(answer).splitlines()[-1] == (
            "Completed, and not undone: each (values 0 to 2). Failed: each (value 3). "
            "Not begun: each (values 4 to 7), close."
        )
        assert answer["structuredContent"]["done"][0]["values"] == {
            "completed": "0 to 2",
            "failed": "3",
            "not_begun": "4 to 7",
        }


async def test_a_value_whose_call_may_have_run_is_told_as_such():
    async with acting(skill("flow", EACH)) as world:
        fails_at(world, "one", 1, how=ServerLost("desk", "it died"))
        assert "each (value 0). May have run: each (value 1). Not begun" in text_of(await world.invoke("flow"))


async def test_values_that_failed_and_let_the_others_go_on_are_named_when_a_later_step_fails():
    each = call("one", name="each", for_each=[1, 2, 3, 4], on_error="continue", when="{{ item != 2 }}")
    async with acting(skill("flow", each, call("two", name="close"))) as world:
        fails_at(world, "one", 1)
        world.desk.fails("two")
        assert text_of(await world.invoke("flow")).splitlines()[-1] == (
            "Completed, and not undone: each (values 0, 3). Failed: each (value 2), close."
        )


async def test_a_value_for_which_an_expression_fails_has_failed():
    """What was called for those before it is told."""
    each = call("one", name="each", for_each=[{"n": 1}, {}], when="{{ item.n == 1 }}", arguments={"n": "{{ item.n }}"})
    async with acting(skill("flow", each)) as world:
        assert "Completed, and not undone: each (value 0). Failed: each (value 1)." in text_of(
            await world.invoke("flow")
        )


async def test_calls_beyond_what_a_run_may_make_are_not_begun():
    async with acting(skill("flow", EACH, runs={"max_calls": 3})) as world:
        told = text_of(await world.invoke("flow")).splitlines()[-1]
        assert told == (
            "Completed, and not undone: each (values 0 to 2). Failed: each. Not begun: each (values 3 to 7)."
        )


async def test_steps_of_skills_that_steps_invoke_are_named():
    """However deep, and for each value."""
    inner = skill("inner", call("one"), call("two"), call("three"))
    outer = skill("outer", Call("", "work", skill="inner", for_each=[1, 2, 3]))
    async with acting(inner, outer) as world:
        fails_at(world, "two", 1)
        assert text_of(await world.invoke("outer")).splitlines()[-1] == (
            "Completed, and not undone: work (value 0), work / value 1 / one. "
            "Failed: work (value 1), work / value 1 / two. Not begun: work (value 2), work / value 1 / three."
        )


async def test_branches_that_were_cancelled_may_have_run():
    side = Parallel("", (call("one"), call("two"), call("three")))
    async with acting(skill("flow", side, call("log/two", name="close"))) as world:
        world.desk.holds("three")

        async def fails(_arguments: Json, _caller: object) -> Any:
            await settle()
            return failure("no")

        world.desk.does["two"] = fails
        assert text_of(await world.invoke("flow")).splitlines()[-1] == (
            "Completed, and not undone: one. Failed: two. May have run: three. Not begun: close."
        )


async def test_hooks_say_it_in_the_same_words():
    """Of an activation, and of an offload."""
    case = skill("case", on_activate=[EACH], on_offload=[call("begin"), call("end")])
    async with acting(case) as world:
        fails_at(world, "one", 1)
        told = "Completed, and not undone: each (value 0). Failed: each (value 1). Not begun: each (values 2 to 7)."
        assert text_of(await world.skill("activate", "case")).endswith(told)
        del world.desk.does["one"]
        await world.skill("activate", "case")
        world.desk.fails("begin")
        assert text_of(await world.skill("offload", "case")).endswith(
            "No step had been completed. Failed: begin. Not begun: end."
        )


# --- stages ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["the time of the run", "of the step", "the client", "an error of ours", "the bound"])
async def test_whatever_ends_a_run_no_stage_stays_running(end: str):
    """Neither of a step, nor of the skill, nor of skills inside."""
    inner = skill("inner", call("one", timeout=0.03 if end == "of the step" else None), runs={"max_calls": 9})
    bounds = {"max_seconds": 0.05} if end == "the time of the run" else {}
    outer = skill("outer", call("two"), Call("", "inner", skill="inner"), runs=bounds)
    channel = Channel()
    async with acting(inner, outer) as world:
        if end == "an error of ours":
            world.desk.raises("one", RuntimeError("broken"))
        elif end == "the bound":
            await world.becomes(inner, skill("outer", call("two"), call("three"), runs={"max_calls": 1}))
        else:
            world.desk.holds("one")
        running = Doing(world.tasks, partial(world.invoke, "outer", None, client(channel), **TOKEN))
        if end == "the client":
            await settle()
            await running.give_up()
        elif end == "an error of ours":
            with pytest.raises(RuntimeError):
                await running.outcome()
        else:
            await running.outcome()
        last = dict(channel.stages)
        assert last["two"] == "completed"
        assert last["outer"] == ("cancelled" if end == "the client" else "failed")
        assert "running" not in last.values()
        assert all(run.status != "running" for run in world.runs)
        assert all(step.status != "running" for run in world.runs for step in run.steps)
        assert world.quiet


async def test_a_client_that_hears_nothing_any_more_holds_up_no_end(monkeypatch: pytest.MonkeyPatch):
    """What cannot be told of stages is given up after a while, once for all of them."""
    monkeypatch.setattr(stages, "CLOSE_WAIT_S", 0.05)

    class Deaf(Channel):
        deaf = False

        async def progress(self, params: Json) -> None:
            await super().progress(params)
            if self.deaf:
                await anyio.sleep_forever()

    channel = Deaf()
    async with acting(skill("flow", call("one"))) as world:
        world.desk.holds("one")
        running = Doing(world.tasks, partial(world.invoke, "flow", None, client(channel), **TOKEN))
        await settle()
        channel.deaf = True
        told = len(channel.told)
        await running.give_up()
        assert len(channel.told) == told + 1
        assert [run.status for run in world.runs] == ["cancelled"]


async def test_a_skill_is_a_stage_with_its_output():
    """Also one that a step invokes; of what is too large, the size is told."""
    inner = skill("inner", call("one", arguments={"n": 1}))
    large = skill("large", call("two"))
    outer = skill("outer", Call("", "inner", skill="inner"), runs={"output": {"x": 2}, "own_output": True})
    channel = Channel()
    async with acting(inner, outer, large) as world:
        await world.invoke("outer", None, client(channel), **TOKEN)
        ends = {one["_meta"]["stage"]["name"]: one["_meta"]["stage"] for one in channel.told}
        assert ends["outer"] == {"name": "outer", "status": "completed", "output": {"x": 2}}
        assert ends["inner"] == {"name": "inner", "status": "completed", "output": {"n": 1}}
        world.desk.gives("two", {"text": "x" * MAX_STAGE_OUTPUT_BYTES})
        await world.invoke("large", None, client(channel), **TOKEN)
        assert channel.told[-1]["_meta"]["stage"]["outputSize"] > MAX_STAGE_OUTPUT_BYTES
        assert "output" not in channel.told[-1]["_meta"]["stage"]


# --- records of what runs --------------------------------------------------------------------------------------------


async def read(world: World, path: str, **more: Any) -> Any:
    return (
        await world.skill("read", "flow", **more)
        if not path
        else await world.ask("SKILL", {"action": "read", "skill_name": "flow", "path": path}, **more)
    )


async def test_a_run_can_be_read_while_it_is_at_work():
    """By the clients of its scope alone, with the step that runs and what has been done."""
    async with acting(skill("flow", call("three"), EACH)) as world:
        go_on = world.desk.holds("one")
        running = Doing(world.tasks, partial(world.invoke, "flow", {"token": "x"}))
        await settle()
        (told,) = json.loads(text_of(await read(world, ".runs")))["runs"]
        assert (told["status"], told["running"]) == ("running", ["each"])
        assert told["told"] == (
            "Completed, and not undone: three. May have run: each (value 0). Not begun: each (values 1 to 7)."
        )
        whole = json.loads(text_of(await read(world, f".runs/{told['id']}")))
        assert [step["status"] for step in whole["steps"]] == ["completed", "running"]
        assert "scope" not in whole

        stranger = client(scope=OTHER)
        assert json.loads(text_of(await read(world, ".runs", by=stranger)))["runs"] == []
        assert "has no run at" in text_of(await read(world, f".runs/{told['id']}", by=stranger))
        go_on.set()
        await running.outcome()
        (told,) = json.loads(text_of(await read(world, ".runs")))["runs"]
        assert (told["status"], "running" in told) == ("completed", False)
        assert world.wired.runs.of(SCOPE, "flow")[0].status == "completed"


async def test_a_skill_without_steps_has_no_runs_to_read():
    async with acting(skill("flow"), skill("other", call("one"))) as world:
        assert (await read(world, ".runs"))["isError"]


async def test_an_error_of_ours_leaves_a_record_that_says_so():
    async with acting(skill("flow", call("one"))) as world:
        world.desk.raises("one", RuntimeError("broken"))
        with pytest.raises(RuntimeError):
            await world.invoke("flow")
        (run,) = world.runs
        assert (run.status, run.steps[0].status, run.steps[0].error) == (
            "failed",
            "failed",
            "the proxy has failed, see its log",
        )


async def test_a_record_takes_no_more_room_than_it_should():
    """However long what it was given, and what a server says, is."""
    async with acting(skill("flow", call("one"))) as world:
        world.desk.fails("one", "y" * 100_000)
        await world.invoke("flow", {"text": "x" * 100_000})
        assert len(json.dumps([world.runs[0].parameters, world.runs[0].steps[0].error, world.runs[0].error])) < 10_000
