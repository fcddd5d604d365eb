"""What a client hears while steps run: how far they are, under its own token, and what their servers send and ask."""

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.errors import Rejection
from proxy.core.inventory import Json
from proxy.core.steps import Call, Parallel
from proxy.gateway.stages import Nobody, Stages, StepChannel, nobody
from proxy.ports import Caller
from tests.core.strategies import law
from tests.gateway import world
from tests.gateway.acting import acting, call, client, failure, settle, skill, steps
from tests.gateway.world import SCOPE

pytestmark = pytest.mark.anyio

TOKEN: Json = {"_meta": {"progressToken": "mine"}}


@dataclass
class Channel(world.Channel):
    """A client that notes what it hears."""

    told: list[Json] = field(default_factory=list[Json])
    logs: list[Json] = field(default_factory=list[Json])
    polls: int = 0

    async def progress(self, params: Json) -> None:
        self.told.append(params)

    async def log(self, params: Json) -> None:
        self.logs.append(params)

    async def poll(self) -> None:
        self.polls += 1

    async def ask(self, method: str, params: Json) -> dict[str, Any]:
        return {"answer to": params["message"]}

    @property
    def stages(self) -> list[tuple[str, str]]:
        """The stages that it has heard of, in order."""
        return [(one["_meta"]["stage"]["name"], one["_meta"]["stage"]["status"]) for one in self.told if "_meta" in one]


def grows(told: list[Json]) -> bool:
    numbers = [one["progress"] for one in told]
    return numbers == sorted(set(numbers))


@law
@given(events=st.lists(st.booleans(), max_size=200), token=st.text() | st.integers())
async def test_numbers_always_grow_and_the_token_is_kept(events: list[bool], token: str | int):
    """Whatever comes of steps and of their servers, in any order."""
    channel = Channel()
    stages = Stages(channel, {"_meta": {"progressToken": token}})
    for number, event in enumerate(events):
        if event:
            await stages.tell(f"step {number}", "running")
        else:
            await stages.sign_of_life("step", {"progress": number})
    assert len(channel.told) == len(events)
    assert grows(channel.told)
    assert all(one["progressToken"] == token for one in channel.told)


@pytest.mark.parametrize("params", [{}, {"_meta": {}}, {"_meta": None}, {"_meta": {"progressToken": [1]}}])
async def test_a_client_that_wants_no_progress_hears_none(params: Json):
    channel = Channel()
    stages = Stages(channel, params)
    await stages.tell("step", "running")
    await stages.sign_of_life("step", {"progress": 1})
    assert channel.told == []


@pytest.fixture
def channel() -> Channel:
    return Channel()


async def test_a_client_hears_each_step_begin_and_end(channel: Channel):
    """By its name; of those that are left out it hears nothing."""
    flow = skill("flow", call("one", name="look"), call("two", when=False), call("three", on_error="continue"))
    async with acting(flow) as here:
        here.desk.fails("three")
        await here.invoke("flow", None, client(channel), **TOKEN)
        steps = [("look", "running"), ("look", "completed"), ("three", "running"), ("three", "failed")]
        expected = [("flow", "running"), *steps, ("flow", "completed")]
        assert channel.stages == expected
        assert [one["message"] for one in channel.told] == [f"{name}: {status}" for name, status in expected]
        assert {one["progressToken"] for one in channel.told} == {"mine"}
        assert grows(channel.told)


async def test_a_step_for_many_values_is_one(channel: Channel):
    async with acting(skill("flow", call("one", for_each=[1, 2, 3]))) as here:
        await here.invoke("flow", None, client(channel), **TOKEN)
        assert channel.stages == [
            ("flow", "running"),
            ("one", "running"),
            ("one", "completed"),
            ("flow", "completed"),
        ]


async def test_steps_of_skills_that_steps_run_are_told_after_the_names_of_these(channel: Channel):
    """However deep."""
    deep = skill("deep", call("one"))
    inner = skill("inner", Call("", "dig", skill="deep"))
    async with acting(deep, inner, skill("outer", Call("", "begin", skill="inner"))) as here:
        await here.invoke("outer", None, client(channel), **TOKEN)
        names = ("outer", "begin", "begin / dig", "begin / dig / one")
        assert channel.stages == [(one, "running") for one in names] + [(one, "completed") for one in names[::-1]]
        assert grows(channel.told)


async def test_hooks_are_told_like_the_steps_of_runs(channel: Channel):
    """In one growing number for all that one call makes happen: the start of the scope, what begins, and what ends."""
    case = skill("case", on_activate=[call("begin")], on_offload=[call("end")])
    rival = skill("rival", conflicts=("case",), exclusive=True, on_activate=[call("two")])
    async with acting(case, rival, on_start=steps("on_scope_start", call("one"))) as here:
        await here.skill("activate", "case", client(channel), **TOKEN)
        assert channel.stages == [(name, at) for name in ("one", "begin") for at in ("running", "completed")]
        assert grows(channel.told)
        channel.told.clear()
        await here.skill("activate", "rival", client(channel), **TOKEN)
        assert channel.stages == [(name, at) for name in ("end", "two") for at in ("running", "completed")]
        assert grows(channel.told)


async def test_the_progress_of_a_server_is_that_of_its_step(channel: Channel):
    """Under the client's token and with growing numbers, whatever the servers of steps side by side count."""
    async with acting(skill("flow", Parallel("", (call("one"), call("log/two"))))) as here:

        async def goes_on(numbers: list[float], arguments: Json, caller: Caller) -> Json:
            for number in numbers:
                await caller.channel.progress({"progressToken": 0, "progress": number, "message": f"no. {number}"})
                await caller.channel.progress({"progressToken": 0, "progress": number, "total": 9})
                await settle()
            return arguments

        here.desk.does["one"] = partial(goes_on, [5, 6])
        here.log.does["two"] = partial(goes_on, [1, 2])
        await here.invoke("flow", None, client(channel), **TOKEN)
        assert grows(channel.told)
        assert {one["progressToken"] for one in channel.told} == {"mine"}
        words = [one["message"] for one in channel.told if "_meta" not in one]
        assert sorted(words) == sorted(
            [*["one: running"] * 2, *["two: running"] * 2, "one: no. 5", "one: no. 6", "two: no. 1", "two: no. 2"]
        )


async def test_log_messages_and_questions_of_a_server_go_to_the_client(channel: Channel):
    """As they come; notices of lists, wishes to be polled and headers are not about a step."""
    channel.capabilities, channel.log_level, channel.headers = {"sampling": {}}, "info", {"a": "b"}
    seen: list[Any] = []
    async with acting(skill("flow", call("one"))) as here:

        async def asks(_arguments: Json, caller: Caller) -> Json:
            mine = caller.channel
            seen.extend([mine.capabilities, mine.log_level, mine.headers])
            await mine.log({"level": "info", "data": "x"})
            await mine.list_changed("tools")
            await mine.poll()
            mine.check({"type": "object"}, {})
            return await mine.ask("sampling/createMessage", {"message": "why?"})

        here.desk.does["one"] = asks
        answer = await here.invoke("flow", None, client(channel))
        assert answer["structuredContent"]["output"] == {"answer to": "why?"}
        assert seen == [{"sampling": {}}, "info", {"a": "b"}]
        assert channel.logs == [{"level": "info", "data": "x"}]
        assert (channel.sent, channel.polls) == ([], 0)


async def test_a_step_is_not_held_against_the_headers_of_the_request(channel: Channel):
    class Strict(Channel):
        def check(self, schema: object, arguments: Json) -> None:
            raise Rejection(-1, "they differ")

    StepChannel(Strict(), Stages(channel, {}), "step").check({}, {})


async def test_nobody_hears_nothing_and_answers_no_question():
    """A server that asks while a skill ends by itself is told that nobody can answer."""
    silent = Nobody()
    await silent.progress({})
    await silent.log({})
    await silent.list_changed("tools")
    await silent.poll()
    silent.check({}, {})
    for method in ("elicitation/create", "sampling/createMessage", "roots/list"):
        with pytest.raises(Rejection):
            await nobody(SCOPE).channel.ask(method, {})


async def test_a_question_while_a_skill_ends_by_itself_fails_its_step():
    """It waits for nobody."""
    case = skill("case", on_offload=[call("end"), call("two")])
    async with acting(case) as here:
        await here.skill("activate", "case")
        asked: list[Rejection] = []

        async def asks(_arguments: Json, caller: Caller) -> Json:
            try:
                await caller.channel.ask("roots/list", {})
            except Rejection as error:
                asked.append(error)
            return failure("nobody answers")

        here.desk.does["end"] = asks
        await here.ends()
        await settle()
        assert len(asked) == 1
        assert here.desk.tools == ["end"]
        assert here.quiet
