"""What a call of a tool comes to: our own tools and those of skills, and questions of servers in steps (both eras)."""

from dataclasses import replace
from functools import partial
from typing import Any

import anyio
import pytest

from proxy.core.catalogue import Allow
from proxy.core.errors import Rejection, Unknown
from proxy.core.inventory import Json
from proxy.core.settings import Settings
from proxy.core.steps import Parallel
from proxy.gateway.rounds import wants_input
from proxy.gateway.sealing import INVALID_PARAMS
from proxy.ports import Caller
from tests.gateway import world
from tests.gateway.acting import (
    OTHER,
    TOOLS,
    Doing,
    World,
    acting,
    call,
    client,
    failure,
    modern,
    settle,
    skill,
    steps,
    text_of,
)

pytestmark = pytest.mark.anyio

ABLE = {"elicitation": {"form": {}}}
FORM = {"mode": "form", "message": "Who?"}
ON = Settings(call_route="on")


class Channel(world.Channel):
    """A client that answers every question with its own message, in the handshake era."""

    async def ask(self, method: str, params: Json) -> dict[str, Any]:
        if not self.capabilities:
            raise Rejection(-32021, "it cannot")
        return {"said": params["message"]}


async def asks(_arguments: Json, caller: Caller) -> Json:
    """A tool that needs an answer of the client."""
    return await caller.channel.ask("elicitation/create", FORM)


def answering(result: Json, answer: Json | None = None) -> dict[str, Any]:
    """What a client brings that answers all questions of a result."""
    assert wants_input(result), result
    brought = {key: answer or {"said": one["params"]["message"]} for key, one in result["inputRequests"].items()}
    return {"requestState": result["requestState"], "inputResponses": brought}


# --- tools -----------------------------------------------------------------------------------------------------------


async def test_a_skill_that_is_a_tool_is_one_while_it_is_active():
    """Called by its own name or by `SKILL_CALL`, and checked like any other invocation."""
    own = skill("own", call("one", arguments={"n": "{{ params.n }}"}), runs={"tool": True})
    async with acting(own, skill("guide")) as here:
        name = here.gate.catalogue(client().scope).naming.tool_of("own")
        assert name not in await here.names()
        assert f"{name} is not active" in text_of(await here.ask(name, {"n": 1}))
        await here.skill("activate", "own")
        assert name in await here.names()
        for by_name in ((name, {"n": 1}), ("SKILL_CALL", {"tool": name, "arguments": '{"n": 1}'})):
            assert (await here.ask(*by_name))["structuredContent"]["output"] == {"n": 1}
        await here.skill("offload", "own")
        for by_name in ((name, {"n": 1}), ("SKILL_CALL", {"tool": name, "arguments": {}})):
            assert f"{name} was offloaded" in text_of(await here.ask(*by_name))
        assert len(here.desk.called) == 2


async def test_there_is_nothing_to_invoke_without_steps():
    async with acting(skill("guide")) as here:
        assert "SKILL_INVOKE" not in await here.names()
        with pytest.raises(Unknown):
            await here.invoke("guide")


SPELLINGS = (
    "desk__{}",
    "{}",
    "desk/{}",
    "log__{}",
    "DESK__{}",
    "desk__{} ",
    " desk__{}",
    "desk____{}",
    "SKILL_CALL__{}",
    "desk__{}\x00",
)


@pytest.mark.parametrize("spelled", SPELLINGS)
async def test_no_client_calls_what_is_internal_however_it_is_spelled(spelled: str):
    """Nor is it listed; before, while and after its skill is active, and by every route."""
    flow = skill("flow", call("one"), on_activate=[call("begin")], runs={"tool": True})
    async with acting(flow, on_start=steps("on_scope_start", call("end"))) as here:
        await here.skill("list", "")
        for change in ("list", "activate", "offload"):
            await here.skill(change, "flow")
            before = [*here.desk.called, *here.log.called]
            names = await here.names()
            for tool in TOOLS:
                if tool == "granted":
                    continue
                assert not any(name.endswith(f"__{tool}") for name in names)
                name = spelled.format(tool)
                for asked in (
                    (name, {}),
                    ("SKILL_CALL", {"tool": name}),
                    ("SKILL_CALL", {"tool": f"SKILL_CALL{name}"}),
                ):
                    try:
                        assert (await here.ask(*asked))["isError"]
                    except Unknown:
                        continue
            assert [*here.desk.called, *here.log.called] == before


@pytest.mark.parametrize("text", ["{", "[" * 100_000, "[]"])
async def test_arguments_that_are_no_object_are_refused(text: str):
    async with acting(skill("plain", active=True)) as here:
        answer = await here.ask("SKILL_CALL", {"tool": "desk__granted", "arguments": text})
        assert 'needs "arguments" to be an object' in text_of(answer)
        assert here.desk.called == []


async def test_a_first_call_by_any_route_waits_for_the_start():
    """Of a tool, of our own, or of one that does not exist."""
    start = steps("on_scope_start", call("end"))
    flow = skill("flow", call("one"), active=True)
    for asked in (("desk__granted", {}), ("SKILL_CALL", {"tool": "desk__granted"}), ("SKILL", {"action": "list"})):
        async with acting(flow, on_start=start) as here:
            await here.ask(*asked)
            await here.ask(*asked)
            assert here.desk.tools[0] == "end"
            assert here.desk.tools.count("end") == 1
    async with acting(flow, on_start=start) as here:
        with pytest.raises(Unknown):
            await here.ask("no__such")
        assert here.desk.tools == ["end"]


async def test_a_tool_that_is_denied_while_its_call_waits_is_not_reached():
    async with acting(skill("plain", active=True), settings=ON) as here:
        here.servers.there = anyio.Event()
        calling = Doing(here.tasks, partial(here.ask, "desk__granted"))
        await settle()
        await here.becomes(skill("plain", active=True), denied={"desk": Allow.of(["granted"])})
        here.servers.there.set()
        with pytest.raises(Unknown):
            await calling.outcome()
        assert here.desk.called == []


# --- questions of servers in steps -----------------------------------------------------------------------------------

CASE = skill("case", call("one"), on_activate=[call("begin")], on_offload=[call("end")], runs={"tool": True})


@pytest.fixture(params=["activate", "offload", "invoke", "start", "own tool", "SKILL_CALL"])
def occasion(request: pytest.FixtureRequest) -> str:
    return request.param


async def prepared(here: World, occasion: str) -> tuple[str, Json]:
    """The call whose step asks, and its arguments; what has to be done before is."""
    name = here.gate.catalogue(client().scope).naming.tool_of("case")
    if occasion in ("offload", "own tool", "SKILL_CALL"):
        await here.skill("activate", "case")
        here.desk.called.clear()
    tool = {"activate": "begin", "offload": "end", "start": "two"}.get(occasion, "one")
    here.desk.does[tool] = asks
    return {
        "activate": ("SKILL", {"action": "activate", "skill_name": "case"}),
        "offload": ("SKILL", {"action": "offload", "skill_name": "case"}),
        "invoke": ("SKILL_INVOKE", {"skill_name": "case"}),
        "start": ("SKILL", {"action": "list"}),
        "own tool": (name, {}),
        "SKILL_CALL": ("SKILL_CALL", {"tool": name, "arguments": {}}),
    }[occasion]


def configured(occasion: str) -> Any:
    return {"on_start": steps("on_scope_start", call("two"))} if occasion == "start" else {}


async def test_a_handshake_client_is_asked_while_it_waits(occasion: str):
    """As in a direct call; the answer is that of the step."""
    async with acting(CASE, **configured(occasion)) as here:
        asked = await prepared(here, occasion)
        answer = await here.ask(*asked, client(Channel(capabilities=ABLE)))
        assert not answer.get("isError")
        assert len(here.desk.called) == 1
        if occasion in ("invoke", "own tool", "SKILL_CALL"):
            assert answer["structuredContent"]["output"] == {"said": "Who?"}


async def test_a_modern_client_brings_the_answer_with_its_next_request(occasion: str):
    """The work goes on where it was: no step runs twice."""
    async with acting(CASE, **configured(occasion)) as here:
        name, arguments = await prepared(here, occasion)
        by = modern(Channel(capabilities=ABLE))
        first = await here.ask(name, arguments, by)
        (question,) = first["inputRequests"].values()
        assert question == {"method": "elicitation/create", "params": FORM}
        second = await here.ask(name, arguments, by, **answering(first))
        assert not second.get("isError")
        assert len(here.desk.called) == 1
        if occasion in ("invoke", "own tool", "SKILL_CALL"):
            assert second["structuredContent"]["output"] == {"said": "Who?"}
        await settle()
        assert here.quiet


@pytest.mark.parametrize("by", [client(Channel()), modern(Channel())], ids=["handshake", "modern"])
async def test_a_client_that_cannot_be_asked_is_not(by: Caller):
    """Its server hears that at once."""
    async with acting(CASE) as here:
        refusals: list[Rejection] = []

        async def wants_to_ask(_arguments: Json, caller: Caller) -> Json:
            try:
                return await caller.channel.ask("elicitation/create", FORM)
            except Rejection as error:
                refusals.append(error)
                return failure("nobody to ask")

        here.desk.does["one"] = wants_to_ask
        answer = await here.invoke("case", None, by)
        assert answer["structuredContent"]["error"]["reason"] == "nobody to ask"
        assert len(refusals) == 1


async def test_a_modern_client_is_asked_by_modern_servers_too():
    """What these want comes in a result, for the step alone."""
    async with acting(CASE) as here:
        questions = {"k": {"method": "elicitation/create", "params": FORM}}
        results: list[Json] = [{"resultType": "input_required", "requestState": "s", "inputRequests": questions}]

        async def wants_more(_arguments: Json, _caller: Caller) -> Json:
            return results.pop() if results else {"content": [], "structuredContent": {"done": True}}

        here.desk.does["one"] = wants_more
        by = modern(Channel(capabilities=ABLE))
        first = await here.invoke("case", None, by)
        second = await here.invoke("case", None, by, **answering(first))
        assert second["structuredContent"]["output"] == {"done": True}
        assert len(here.desk.called) == 2


async def test_steps_side_by_side_ask_in_one_result():
    """And each gets its own answer."""
    flow = skill("flow", Parallel("", (call("one", save_as="a"), call("log/two", save_as="b"))), call("three"))
    async with acting(flow) as here:
        here.desk.does["one"] = here.log.does["two"] = asks
        by = modern(Channel(capabilities=ABLE))
        answer = await here.invoke("flow", None, by)
        rounds = 0
        while wants_input(answer):
            rounds += 1
            answer = await here.invoke("flow", None, by, **answering(answer))
        assert rounds <= 2
        assert not answer.get("isError")
        assert (here.desk.tools, here.log.tools) == (["one", "three"], ["two"])


async def test_work_that_is_given_up_stops_at_its_step():
    """A modern client cancels while nothing is asked, or does not come back with an answer in time."""
    async with acting(CASE) as here:
        here.desk.holds("one")
        running = Doing(here.tasks, partial(here.invoke, "case", None, modern(Channel(capabilities=ABLE))))
        await settle()
        await running.give_up()
        await settle()
        assert here.desk.cancelled == ["one"]
        assert [run.status for run in here.runs] == ["cancelled"]
        assert here.quiet
    async with acting(CASE, settings=Settings(input_wait=0.05)) as here:
        here.desk.does["one"] = asks
        first = await here.invoke("case", None, modern(Channel(capabilities=ABLE)))
        assert wants_input(first)
        while here.runs[0].status == "running":
            await settle()
        assert (here.runs[0].status, here.quiet) == ("failed", True)
        assert "did not answer" in here.runs[0].error


async def test_what_was_asked_for_nothing_that_is_at_work_does_nothing():
    """A state that has been used, is another's, or was made by an earlier process is refused: it is no new call."""
    async with acting(CASE) as here:
        here.desk.does["one"] = asks
        by = modern(Channel(capabilities=ABLE))
        first = await here.invoke("case", None, by)
        brought = answering(first)
        other = by._replace(scope=OTHER)
        for who, what in ((other, brought), (by, {**brought, "requestState": "AAAA"})):
            with pytest.raises(Rejection) as raised:
                await here.invoke("case", None, who, **what)
            assert raised.value.code == INVALID_PARAMS
        assert not (await here.invoke("case", None, by, **brought)).get("isError")
        with pytest.raises(Rejection):
            await here.invoke("case", None, by, **brought)
        assert here.desk.tools == ["one"]
        assert len(here.runs) == 1


async def test_a_state_of_a_server_goes_to_that_server_also_before_the_first_call():
    """Though something of our own is done first, it is not taken for ours."""
    plain = skill("plain", call("one"), active=True)
    async with acting(plain, settings=ON) as here:
        here.desk.gives("granted", {"resultType": "input_required", "requestState": "its own"})
        by = modern(Channel(capabilities=ABLE))
        first = await here.ask("desk__granted", {}, by)
        await here.becomes(replace(plain, on_activate=steps("on_activate", call("begin")), pinned=True))
        await here.gate.change(by.scope, lambda state: replace(state, due=frozenset(["plain"])))
        del here.desk.does["granted"]
        assert not (await here.ask("desk__granted", {}, by, requestState=first["requestState"])).get("isError")
        assert here.desk.tools == ["granted", "begin", "granted"]
