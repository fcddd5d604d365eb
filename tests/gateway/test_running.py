"""Steps of runs, from the use case's side: in order and side by side, what they save, and how they fail."""

from functools import partial
from typing import Any

import anyio
import pytest

from proxy.core.catalogue import Allow, Skill
from proxy.core.errors import NotDelivered, Rejection, ServerLost
from proxy.core.run import StepRecord
from proxy.core.scope import HEAP_LIMIT
from proxy.core.steps import Call, Parallel
from proxy.gateway.running import LARGEST_RESULT, MOST_ITEMS, MOST_RECORDED
from tests.gateway.acting import OTHER, Doing, World, acting, call, client, failure, settle, skill, text_of

pytestmark = pytest.mark.anyio

ALL = {"name": "{{ params.name }}", "number": "{{ params.number }}", "text": "no. {{ params.number }}"}


def flow(*steps: Call | Parallel, **more: Any) -> Skill:
    """The skill that is run in these tests."""
    return skill("flow", *steps, **more)


def told(record: StepRecord) -> tuple[str, str, str]:
    return record.name, record.status, record.error


async def output(world: World, arguments: Any = None) -> Any:
    """What the run comes to, which goes through."""
    answer = await world.invoke("flow", arguments)
    assert not answer.get("isError"), answer
    return answer["structuredContent"]["output"]


async def error(world: World, arguments: Any = None) -> dict[str, Any]:
    """How the run fails."""
    answer = await world.invoke("flow", arguments)
    assert answer["isError"], answer
    assert answer["structuredContent"]["success"] is False
    return answer["structuredContent"]["error"]


async def test_steps_run_in_order_and_know_what_came_before():
    """A value that is one expression keeps its type; the text of a result counts where it has no structure."""
    one = call("one", save_as="first", arguments=ALL)
    two = call("log/two", save_as="second")
    three = call("three", arguments={"first": "{{ steps.first }}", "words": "{{ steps.second }}"})
    async with acting(flow(one, two, three)) as world:
        words = [{"type": "text", "text": "a"}, {"type": "image", "data": ""}, {"type": "text", "text": "b"}]
        world.log.gives("two", {"content": words})
        first = {"name": "x", "number": 5, "text": "no. 5"}
        assert await output(world, {"name": "x", "number": 5}) == {"first": first, "words": "a\nb"}
        assert world.desk.called == [("one", first), ("three", {"first": first, "words": "a\nb"})]
        assert [told(step) for step in world.runs[0].steps] == [
            ("one", "completed", ""),
            ("two", "completed", ""),
            ("three", "completed", ""),
        ]


async def test_steps_know_whose_they_are():
    """The scope, what its client calls itself, and the occasion; two scopes have ids and heaps of their own."""
    knows = {"scope": "{{ scope }}", "event": "{{ event }}", "heap": "{{ heap }}", "mine": "{{ scope.namespace }}"}
    async with acting(flow(call("one", arguments=knows, save_as="heap.seen"))) as world:
        for scope in (client().scope, OTHER, client().scope):
            await world.invoke("flow", None, client(scope=scope, client="agent", version="3"))
        first, other, again = (arguments for _, arguments in world.desk.called)
        assert first["scope"]["client"] == {"name": "agent", "version": "3"}
        assert (first["mine"], other["mine"]) == ("a", "b")
        assert first["event"] == {"name": "invoke", "skill": "flow", "reason": "client"}
        assert (first["heap"], other["heap"]) == ({}, {})
        assert again["heap"]["seen"] == first
        assert first["scope"]["id"] == again["scope"]["id"] != other["scope"]["id"]


async def test_steps_side_by_side_are_at_work_at_the_same_time():
    """Each of the two ends only once the other one has arrived; the next step begins when both have ended."""
    side = Parallel("", (call("one", save_as="a", arguments={"n": 1}), call("log/two", save_as="b")))
    last = call("three", arguments={"a": "{{ steps.a }}", "b": "{{ steps.b }}"})
    async with acting(flow(side, last)) as world:
        arrived = {"one": anyio.Event(), "two": anyio.Event()}

        async def meets(mine: str, other: str, _arguments: Any, _caller: Any) -> Any:
            arrived[mine].set()
            await arrived[other].wait()
            return {"met": other}

        world.desk.does["one"] = partial(meets, "one", "two")
        world.log.does["two"] = partial(meets, "two", "one")
        assert await output(world) == {"a": {"met": "two"}, "b": {"met": "one"}}


async def test_one_that_fails_takes_those_beside_it_along():
    """They are cancelled at their servers, and nothing comes after."""
    side = Parallel("", (call("one"), call("log/two")))
    async with acting(flow(side, call("three"))) as world:

        async def fails_later(_arguments: Any, _caller: Any) -> Any:
            await settle()
            return failure("too late")

        world.desk.does["one"] = fails_later
        world.log.holds("two")
        answer = await world.invoke("flow")
        assert answer["structuredContent"]["error"]["reason"] == "too late"
        assert world.log.cancelled == ["two"]
        assert "three" not in world.desk.tools
        assert sorted(told(step) for step in world.runs[0].steps) == [
            ("one", "failed", "too late"),
            ("three", "not_begun", ""),
            ("two", "cancelled", ""),
        ]
        assert text_of(answer).endswith("No step had been completed. Failed: one. May have run: two. Not begun: three.")


async def test_one_that_may_fail_leaves_those_beside_it_alone():
    side = Parallel("", (call("one", on_error="continue"), call("log/two", save_as="b")))
    async with acting(flow(side, call("three", arguments={"b": "{{ steps.b }}"}))) as world:
        world.desk.fails("one")
        world.log.gives("two", {"n": 2})
        assert await output(world) == {"b": {"n": 2}}


async def test_steps_are_left_out_where_they_are_not_wanted():
    """One, or all side by side; what they would have saved is not there."""
    wanted = "{{ params.wanted }}"
    side = Parallel("", (call("two"), call("log/two")), when=wanted)
    last = call("three", arguments={"saved": "{{ steps.a is defined }}"})
    async with acting(flow(call("one", save_as="a", when=wanted), side, last)) as world:
        assert await output(world, {"wanted": False}) == {"saved": False}
        assert (world.desk.tools, world.log.tools) == (["three"], [])
        assert [told(step) for step in world.runs[0].steps] == [
            ("one", "skipped", ""),
            ("two", "skipped", ""),
            ("two", "skipped", ""),
            ("three", "completed", ""),
        ]
        assert await output(world, {"wanted": True}) == {"saved": True}
        assert (sorted(world.desk.tools[1:]), world.log.tools) == (["one", "three", "two"], ["two"])


async def test_a_step_is_done_for_each_value_in_order():
    """It knows value and place, and those that are not wanted are left out."""
    each = call(
        "one",
        for_each="{{ params.values }}",
        arguments={"value": "{{ item }}", "at": "{{ index }}"},
        when="{{ item != 'b' }}",
    )
    async with acting(flow(each)) as world:
        assert await output(world, {"values": ["a", "b", "c"]}) == [
            {"value": "a", "at": 0},
            {"value": "c", "at": 2},
        ]
        assert await output(world, {"values": []}) == []


@pytest.mark.parametrize("on_error", ["fail", "continue"])
async def test_one_of_many_values_fails(on_error: Any):
    """It has no result, where the step lets the others go on; else it is said which."""
    each = call("one", for_each=["a", "b", "c"], arguments={"value": "{{ item }}"}, on_error=on_error)
    async with acting(flow(each)) as world:

        async def does_not_like_b(arguments: Any, _caller: Any) -> Any:
            return failure("not b") if arguments["value"] == "b" else arguments

        world.desk.does["one"] = does_not_like_b
        if on_error == "continue":
            assert await output(world) == [{"value": "a"}, None, {"value": "c"}]
        else:
            assert (await error(world))["reason"] == "value 1: not b"
            assert len(world.desk.called) == 2


async def test_values_are_a_list_of_so_many():
    """What is none, or has more, is refused before anything is called."""
    async with acting(flow(call("one", for_each="{{ params.values }}"), runs={"max_calls": 10_000})) as world:
        assert (await error(world, {"values": {"a": 1}}))["reason"] == "for_each is no list, but a mapping"
        many = await error(world, {"values": [0] * (MOST_ITEMS + 1)})
        assert many["reason"] == "for_each has 1,001 values, and may have 1,000"
        assert world.desk.called == []
        assert len(await output(world, {"values": [0] * MOST_ITEMS})) == MOST_ITEMS


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (failure("the pen is\nempty"), "the pen is\nempty"),
        (failure(), "the tool says that it has failed, and not why"),
        (Rejection(-32602, "no such pen"), "no such pen"),
        (ServerLost("desk", "it has died"), "server desk was lost during the request: it has died"),
    ],
)
async def test_a_failing_step_says_which_it_is_where_and_why(result: Any, reason: str):
    """And what had been done; nothing runs after it."""
    async with acting(flow(call("one", name="take it"), call("two", name="write it"), call("three"))) as world:
        if isinstance(result, Exception):
            world.desk.raises("two", result)
        else:
            world.desk.gives("two", result)
        answer = await world.invoke("flow")
        assert answer["isError"]
        structured = answer["structuredContent"]
        assert structured["error"] == {
            "step": "write it",
            "place": "steps[1]",
            "target": "desk/two",
            "reason": reason,
        }
        assert structured["done"][0] == {"step": "take it", "target": "desk/one", "status": "completed"}
        assert "step write it (steps[1], desk/two) failed: " + reason.replace("\n", " ") in text_of(answer)
        assert "Completed, and not undone: take it." in text_of(answer)
        assert "three" not in world.desk.tools
        (run,) = world.runs
        assert (run.status, [told(step) for step in run.steps]) == (
            "failed",
            [("take it", "completed", ""), ("write it", "failed", reason), ("three", "not_begun", "")],
        )


async def test_a_step_that_may_fail_lets_the_run_go_on():
    """What it would have saved is not there, and its record says why."""
    last = call("two", arguments={"saved": "{{ steps.a is defined }}"})
    async with acting(flow(call("one", save_as="a", on_error="continue"), last)) as world:
        world.desk.fails("one", "never mind")
        assert await output(world) == {"saved": False}
        (run,) = world.runs
        assert run.status == "completed"
        assert told(run.steps[0]) == ("one", "failed", "never mind")


async def test_an_expression_without_a_value_fails_its_step():
    """The answer has the step, the place in it, and the expression."""
    async with acting(flow(call("one", arguments={"deep": ["{{ params.nothing.there }}"]}))) as world:
        failed = await error(world, {})
        assert failed["step"] == "one"
        assert failed["reason"].startswith("arguments.deep[0]: {{ params.nothing.there }}: ")
        assert world.desk.called == []
    async with acting(flow(Parallel("", (call("one"),), when="{{ params.nothing.there }}"))) as world:
        failed = await error(world, {})
        assert (failed["step"], failed["place"]) == ("steps[0]", "steps[0]")
        assert failed["reason"].startswith("when: ")


@pytest.mark.parametrize("on_error", ["fail", "continue"])
async def test_a_step_that_takes_too_long_is_cancelled_at_its_server(on_error: Any):
    """The run goes on, where the step lets it."""
    async with acting(flow(call("one", timeout=0.05, on_error=on_error), call("two"))) as world:
        world.desk.holds("one")
        if on_error == "continue":
            await output(world)
        else:
            assert (await error(world))["reason"] == "it took longer than its timeout of 0.05 s"
        assert world.desk.cancelled == ["one"]
        assert world.desk.tools == (["one"] if on_error == "fail" else ["one", "two"])


async def test_a_server_that_does_not_come_up_counts_for_the_time_of_a_step():
    async with acting(flow(call("one", timeout=0.05))) as world:
        world.servers.there = anyio.Event()
        assert (await error(world))["reason"] == "it took longer than its timeout of 0.05 s"


async def test_steps_save_for_the_run_and_on_the_heap_where_they_say_so():
    """A run keeps what it saves to itself; the heap is there for the next one."""
    steps = (
        call("one", save_as="own", arguments={"n": 1}),
        call("two", save_as="heap.shared", arguments={"n": 2}),
        call("three", arguments={"steps": "{{ steps }}", "heap": "{{ heap }}"}),
    )
    async with acting(flow(*steps)) as world:
        assert await output(world) == {"steps": {"own": {"n": 1}}, "heap": {"shared": {"n": 2}}}
        assert (await world.state()).heap == {"shared": {"n": 2}}


@pytest.mark.parametrize("save_as", ["", "kept", "heap.kept"])
async def test_a_result_that_is_too_large_is_not_kept(save_as: str):
    """The step fails where it should be, and goes through where nobody wants it."""
    async with acting(flow(call("one", save_as=save_as))) as world:
        world.desk.gives("one", {"text": "ü" * (LARGEST_RESULT // 2)})
        if save_as:
            assert "bytes, and at most 1,048,576 can be kept" in (await error(world))["reason"]
        else:
            assert await output(world) is None


async def test_a_heap_holds_so_much():
    """What does not fit fails its step, and leaves the heap as it was."""
    async with acting(flow(call("one", save_as="heap.small"), call("two", save_as="heap.large"))) as world:
        world.desk.gives("two", {"text": "x" * HEAP_LIMIT})
        assert (await error(world))["reason"] == "the heap of this client is full: large does not fit on it"
        assert (await world.state()).heap == {"small": {}}


@pytest.mark.parametrize("way", ["neither granted nor internal", "denied"])
async def test_a_step_reaches_what_it_may_alone(way: str):
    """Whoever else may, and whatever is active."""
    other = skill("other", tools={"desk": Allow.of(["two"])}, active=True)
    narrow = flow(call("one"), call("two"), internal={"desk": Allow.of(["one"])})
    denied = {"desk": Allow.of(["two"])} if way == "denied" else {}
    async with acting(flow(call("one"), call("two")) if denied else narrow, other, denied=denied) as world:
        assert (await error(world))["reason"] == "server desk offers no tool two that this step may call"
        assert world.desk.tools == ["one"]


@pytest.mark.parametrize("moment", ["before the step", "while its server comes up"])
async def test_what_is_denied_meanwhile_is_not_called_any_more(moment: str):
    """The configuration changes while the run is at work."""
    async with acting(flow(call("one"), call("two"))) as world:
        go_on = world.desk.holds("one")
        running = Doing(world.tasks, partial(world.invoke, "flow"))
        await settle()
        if moment == "while its server comes up":
            world.servers.there = anyio.Event()
            go_on.set()
            await settle()
        await world.becomes(flow(call("one"), call("two")), denied={"desk": Allow.of(["two"])})
        world.servers.there.set()
        go_on.set()
        answer = await running.outcome()
        assert answer["structuredContent"]["error"]["reason"] == (
            "server desk offers no tool two that this step may call"
        )
        assert world.desk.tools == ["one"]


async def test_so_many_steps_of_a_run_are_recorded():
    """The first ones; a step that is done for many values is one."""
    steps = [call("one")] * (MOST_RECORDED + 1)
    async with acting(flow(*steps, runs={"max_calls": 10_000})) as world:
        await output(world)
        assert len(world.runs[0].steps) == MOST_RECORDED
        assert len(world.desk.called) == MOST_RECORDED + 1


async def test_a_server_that_does_not_get_a_step_gets_it_once_more():
    """Its connection turned out to be dead; the second time, the step fails."""
    async with acting(flow(call("one"))) as world:
        world.desk.raises("one", NotDelivered("desk", "it is dead"))
        assert (await error(world))["reason"] == "server desk is not available: it is dead"
        assert world.desk.tools == ["one", "one"]
