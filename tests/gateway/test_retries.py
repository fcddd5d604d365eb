"""Steps that are tried again: which, when, how often, and what is told of it."""

from functools import partial
from typing import Any

import anyio
import pytest

from proxy.core.catalogue import Allow
from proxy.core.errors import ProxyError, Rejection, ServerLost, ServerUnavailable
from proxy.core.inventory import Json, Offer
from proxy.core.steps import Call, Parallel
from proxy.gateway.running import NOT_TRIED_AGAIN
from tests.gateway.acting import TOOLS, Doing, World, acting, call, client, failure, settle, skill, text_of
from tests.gateway.test_stages import TOKEN, Channel

pytestmark = pytest.mark.anyio

AGAIN: Json = {"retries": 2, "retry_delay": 0.001}
LOST = ServerLost("desk", "it died")


def fails_first(world: World, times: int, how: Any = None) -> None:
    """The tool `one` fails so many times, and gives its arguments after that."""
    left = [times]

    async def does(arguments: Json, _caller: object) -> Any:
        left[0] -= 1
        if left[0] < 0:
            return arguments
        if isinstance(how, Exception):
            raise how
        return failure("busy") if how is None else how

    world.desk.does["one"] = does


def says(world: World, **annotations: bool) -> None:
    """The tools of `desk` have these annotations."""
    tools = [{"name": tool, "inputSchema": {"type": "object"}, "annotations": annotations} for tool in TOOLS]
    world.servers.offers = {**world.servers.offers, "desk": Offer.of(tools=tools)}


@pytest.mark.parametrize(
    "how", [None, LOST, ServerUnavailable("desk", "it is down"), Rejection(-32603, "oops")], ids=str
)
async def test_a_step_that_does_no_harm_twice_is_tried_again(how: Any):
    """Until it goes through; its record says how often it was tried."""
    async with acting(skill("flow", call("one", **AGAIN, idempotent=True, arguments={"n": 1}))) as world:
        fails_first(world, 2, how)
        answer = await world.invoke("flow")
        assert answer["structuredContent"]["output"] == {"n": 1}
        assert world.runs[0].steps[0].attempts == 3


@pytest.mark.parametrize("hint", ["readOnlyHint", "idempotentHint"])
async def test_the_annotations_of_a_tool_say_that_it_does_no_harm_twice(hint: str):
    async with acting(skill("flow", call("one", **AGAIN))) as world:
        says(world, **{hint: True})
        fails_first(world, 1)
        assert not (await world.invoke("flow")).get("isError")


async def test_a_tool_that_may_do_harm_twice_is_called_once():
    """The answer says so, and what would help."""
    async with acting(skill("flow", call("one", **AGAIN))) as world:
        says(world, destructiveHint=False)
        fails_first(world, 1)
        answer = await world.invoke("flow")
        assert answer["structuredContent"]["error"]["reason"] == f"busy{NOT_TRIED_AGAIN}"
        assert world.desk.tools == ["one"]


async def test_a_step_is_tried_no_more_often_than_it_says():
    """The answer says how often; that a call may have run is not forgotten over later attempts that did not."""
    async with acting(skill("flow", call("one", **AGAIN, idempotent=True))) as world:
        errors: list[ProxyError] = [LOST, ServerUnavailable("desk", "down"), ServerUnavailable("desk", "gone")]

        async def does(_arguments: Json, _caller: object) -> Any:
            raise errors.pop(0)

        world.desk.does["one"] = does
        answer = await world.invoke("flow")
        assert answer["structuredContent"]["error"]["reason"] == (
            "after 3 attempts: server desk is not available: gone"
        )
        assert text_of(answer).endswith("May have run: one (3 attempts).")
        assert errors == []


@pytest.mark.parametrize("what", ["a server's refusal", "the gate", "an expression"])
async def test_what_would_fail_again_is_not_tried_again(what: str):
    """Not even where it does no harm."""
    more: Json = {"arguments": {"n": "{{ params.none.there }}"}} if what == "an expression" else {}
    denied = {"desk": Allow.of(["one"])} if what == "the gate" else {}
    async with acting(skill("flow", call("one", **AGAIN, idempotent=True, **more)), denied=denied) as world:
        fails_first(world, 5, Rejection(-32602, "no such argument"))
        answer = await world.invoke("flow")
        assert answer["isError"]
        assert "attempts" not in text_of(answer)
        assert len(world.desk.called) == (1 if what == "a server's refusal" else 0)


async def test_each_attempt_counts_as_a_call():
    """A run that may make two makes two."""
    async with acting(skill("flow", call("one", **AGAIN, idempotent=True), runs={"max_calls": 2})) as world:
        fails_first(world, 5)
        answer = await world.invoke("flow")
        assert "no more calls may be made in one run" in text_of(answer)
        assert world.desk.tools == ["one", "one"]


async def test_the_time_of_a_run_ends_a_pause_between_attempts():
    """And so does a client that gives up."""
    patient = call("one", retries=1, retry_delay=300.0, idempotent=True)
    async with acting(skill("flow", patient, runs={"max_seconds": 0.05}), skill("slow", patient)) as world:
        fails_first(world, 5)
        answer = await world.invoke("flow")
        assert "all steps together have 0.05 s" in text_of(answer)
        running = Doing(world.tasks, partial(world.invoke, "slow"))
        await settle()
        await running.give_up()
        assert world.desk.tools == ["one", "one"]
        assert world.quiet


async def test_a_timeout_holds_for_each_attempt():
    async with acting(skill("flow", call("one", **AGAIN, timeout=0.02, idempotent=True))) as world:
        world.desk.holds("one")
        answer = await world.invoke("flow")
        reason = answer["structuredContent"]["error"]["reason"]
        assert reason == "after 3 attempts: it took longer than its timeout of 0.02 s"
        assert world.desk.cancelled == ["one"] * 3


async def test_a_client_hears_of_each_attempt():
    """As the same stage, with its number."""
    channel = Channel()
    async with acting(skill("flow", call("one", **AGAIN, idempotent=True))) as world:
        fails_first(world, 1)
        await world.invoke("flow", None, client(channel), **TOKEN)
        stages = [one["_meta"]["stage"] for one in channel.told if one["_meta"]["stage"]["name"] == "one"]
        assert stages == [
            {"name": "one", "status": "running"},
            {"name": "one", "status": "running", "attempt": 2},
            {"name": "one", "status": "completed"},
        ]


@pytest.mark.parametrize("where", ["for_each", "parallel", "hook", "skill"])
async def test_steps_are_tried_again_wherever_they_stand(where: str):
    """A skill that a step invokes is tried again as a whole, where nothing that it calls does harm twice."""
    one = call("one", **({} if where == "skill" else AGAIN), idempotent=True)
    inner = skill("inner", one)
    outer = skill("outer", Call("", "inner", skill="inner", retries=2, retry_delay=0.001))
    each = skill("each", call("one", **AGAIN, idempotent=True, for_each=[1, 2]))
    case = skill("case", on_activate=[one])
    async with acting(inner, outer, each, skill("side", Parallel("", (one, call("log/two")))), case) as world:
        fails_first(world, 2)
        if where == "hook":
            answer = await world.skill("activate", "case")
        else:
            answer = await world.invoke({"for_each": "each", "parallel": "side", "skill": "outer"}[where])
        assert not answer.get("isError"), answer
        assert len(world.desk.called) == (4 if where == "for_each" else 3)


async def test_the_pause_between_attempts_is_as_long_as_the_step_says():
    """Meanwhile others go on."""
    async with acting(skill("flow", call("one", retries=1, retry_delay=0.05, idempotent=True))) as world:
        fails_first(world, 1)
        before = anyio.current_time()
        await world.invoke("flow")
        assert anyio.current_time() - before >= 0.05
