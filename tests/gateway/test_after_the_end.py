"""What skills do when they end, and what runs for a scope that is over, seen from the use cases."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint
from structlog.testing import capture_logs

from proxy.core.catalogue import EVERYTHING, Catalogue, Skill
from proxy.core.errors import Rejection
from proxy.core.inventory import Json, Offer
from proxy.core.names import Naming
from proxy.core.profiles import Policy
from proxy.core.settings import Settings, every_kind
from proxy.core.steps import Call, Steps, Workflow
from proxy.gateway.gate import Gate
from proxy.ports import Caller
from proxy.store.memory import MemoryStore
from tests.conftest import PATIENCE
from tests.gateway.wired import Wired, wired
from tests.gateway.world import SCOPE, Channel, Server, Servers, caller

pytestmark = pytest.mark.anyio

DONE = {"content": [{"type": "text", "text": "done"}]}
NO_PARAMETERS = {"type": "object", "properties": {}}
DESK = {"desk": EVERYTHING}


def step(tool: str, **more: Any) -> Call:
    return Call("steps[0]", tool, "desk", tool, **more)


def runs(skill: str, **more: Any) -> Call:
    return Call("steps[0]", skill, skill=skill, **more)


def skill(id_: str, *, begins: Steps = (), ends: Steps = (), steps: Steps = (), **more: Any) -> Skill:
    """A skill whose steps may call every tool of the desk; with `steps`, it can be invoked."""
    workflow = Workflow(steps, NO_PARAMETERS, needs_activation=more.pop("needs_activation", False)) if steps else None
    return Skill(id_, "", "", "", internal=DESK, on_activate=begins, on_offload=ends, workflow=workflow, **more)


@dataclass
class Desk(Server):
    """A server whose tools in `slow` answer when they are let go, and whose `broken` ones show a mistake of ours."""

    slow: dict[str, anyio.Event] = field(default_factory=dict)
    came: dict[str, anyio.Event] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)

    def holds(self, tool: str) -> None:
        """The tool does not answer until it is let go."""
        self.slow[tool], self.came[tool] = anyio.Event(), anyio.Event()

    async def request(self, method: str, params: Json, caller: Caller | None = None) -> dict[str, Any]:
        tool = params["name"]
        self.asked.append((tool, params["arguments"]))
        if tool in self.broken:
            raise ZeroDivisionError
        if tool in self.slow:
            self.came[tool].set()
            await self.slow[tool].wait()
        return self.result

    @property
    def called(self) -> list[str]:
        return [tool for tool, _ in self.asked]


@dataclass
class World:
    wired: Wired
    desk: Desk

    @property
    def gate(self) -> Gate:
        return self.wired.gate

    async def skill(self, action: str, wanted: str) -> dict[str, Any]:
        arguments = {"action": action, "skill_name": wanted}
        return await self.wired.calling.call(caller(), {"name": "SKILL", "arguments": arguments})

    async def over(self, then: Callable[[], None] = lambda: None) -> None:
        """The scope is over, as it is for `Lifetimes`."""
        state = await self.gate.store.get(SCOPE)
        await self.gate.store.remove(SCOPE)
        self.wired.hooks.scope_ended(SCOPE, state, then)

    async def ended(self) -> None:
        """All that has to end has."""
        with anyio.fail_after(PATIENCE):
            while self.wired.hooks._ending:
                await checkpoint()

    async def is_over(self) -> bool:
        return await self.gate.store.get(SCOPE) is None


Make = Callable[..., Awaitable[World]]


@pytest.fixture
async def make() -> AsyncGenerator[Make]:
    async with anyio.create_task_group() as tasks:

        async def world(*skills: Skill, **more: Any) -> World:
            names = ("open", "close", "note", "last", "find")
            desk = Desk(DONE)
            servers = Servers({"desk": Offer.of(tools=[{"name": name} for name in names])}, {"desk": desk})
            catalogue = Catalogue(("desk",), Naming({"desk": "desk"}), skills, **more)
            gate = Gate(Policy(catalogue), servers, MemoryStore(every_kind(10)), Settings())
            return World(wired(gate, tasks), desk)

        yield world
        tasks.cancel_scope.cancel()


# --- a scope that is over --------------------------------------------------------------------------------------------


async def test_what_ends_a_skill_does_not_begin_its_scope_again(make: Make):
    """Also where some skill goes by itself when it is not used."""
    world = await make(
        skill("case", ends=(step("close"),)),
        skill("limited", tools=DESK, idle_limit=60.0),
    )
    await world.skill("activate", "limited")
    await world.skill("activate", "case")

    await world.over()
    await world.ended()

    assert world.desk.called == ["close"]
    assert await world.is_over()


@pytest.mark.parametrize(("needs_activation", "called"), [(False, ["note"]), (True, [])])
async def test_a_skill_that_is_invoked_then_does_not_begin_it_either(
    make: Make, needs_activation: bool, called: list[str]
):
    """It finds the heap as it was; where it can be invoked only while it is active, it is not."""
    told = step("note", arguments={"case": "{{ heap.case }}"})
    world = await make(
        skill("case", begins=(step("open", save_as="case"),), ends=(runs("telling"),)),
        skill("telling", steps=(told,), needs_activation=needs_activation),
    )
    await world.skill("activate", "case")

    await world.over()
    await world.ended()

    assert world.desk.called == ["open", *called]
    assert all(arguments == {"case": "done"} for tool, arguments in world.desk.asked if tool == "note")
    assert await world.is_over()


async def test_a_skill_that_was_taken_out_of_the_configuration_can_still_invoke_itself(make: Make):
    """What it does at its end is done as it was promised, whoever calls the tool."""
    case = skill("case", ends=(runs("case"),), steps=(step("close"),))
    world = await make(case)
    await world.skill("activate", "case")

    catalogue = world.gate.catalogue(SCOPE)
    world.gate.adopt(Policy(replace(catalogue, skills=(skill("other"),))), world.gate.settings, ())
    await world.gate.refit()
    await world.ended()

    assert world.desk.called == ["close"]


async def test_the_servers_of_a_scope_stay_until_all_that_ends_in_it_has(make: Make):
    """Also what began to end before the scope did, which goes on with the heap as it was; then they go, once."""
    world = await make(
        skill(
            "case",
            begins=(step("open", save_as="case"),),
            ends=(step("close"), step("last", arguments={"case": "{{ heap.case }}"})),
        )
    )
    await world.skill("activate", "case")
    world.desk.holds("close")
    state = await world.gate.state(SCOPE)
    await world.gate.change(SCOPE, lambda state: replace(state, active=()))
    world.wired.hooks.ended(SCOPE, world.gate.catalogue(SCOPE).skills, state, "idle")
    released: list[bool] = []

    await world.over(then=lambda: released.append("last" in world.desk.called))
    world.wired.hooks.scope_ended(SCOPE, None, lambda: released.append("last" in world.desk.called))
    await checkpoint()
    assert released == []
    world.desk.slow["close"].set()
    await world.ended()

    assert world.desk.asked[-1] == ("last", {"case": "done"})
    assert released == [True]


async def test_whatever_goes_wrong_with_an_end_the_others_go_on(make: Make):
    """Also where it is a mistake of the program, which the log then shows."""
    world = await make(skill("first", ends=(step("last"),)), skill("case", ends=(step("close"),)))
    await world.skill("activate", "first")
    await world.skill("activate", "case")
    world.desk.broken.add("close")

    with capture_logs() as logs:
        await world.over()
        await world.ended()

    assert world.desk.called == ["close", "last"]
    assert [(entry["skill"], entry["log_level"]) for entry in logs if entry["event"] == "hook.broken"] == [
        ("case", "error")
    ]


async def test_what_ends_with_the_proxy_does_so_once(make: Make):
    """Also where its clients go meanwhile, and their scopes with them."""
    world = await make(
        skill(
            "case", begins=(step("open", save_as="case"),), ends=(step("close", arguments={"it": "{{ heap.case }}"}),)
        )
    )
    await world.skill("activate", "case")
    world.desk.holds("close")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(world.wired.hooks.shut_down)
        await world.desk.came["close"].wait()
        await world.over()
        world.desk.slow["close"].set()
    await world.ended()

    assert world.desk.asked[1:] == [("close", {"it": "done"})]


# --- changes ---------------------------------------------------------------------------------------------------------


async def test_a_request_that_is_cancelled_leaves_no_skill_without_its_end(make: Make):
    """The hook that was at work is cancelled with it; those of the others run all the same."""
    world = await make(
        skill("base", ends=(step("last"),)),
        skill("case", ends=(step("close"),), requires=("base",)),
    )
    await world.skill("activate", "case")
    world.desk.holds("close")

    async with anyio.create_task_group() as request:
        request.start_soon(world.skill, "offload", "case")
        await world.desk.came["close"].wait()
        request.cancel_scope.cancel()
    await world.ended()

    assert world.desk.called == ["close", "last"]


async def test_what_a_skill_requires_begins_even_if_it_ended_while_that_was_beginning(make: Make):
    """Its end has been done, so it begins once more, before both are active."""
    world = await make(
        skill("base", begins=(step("open"),), ends=(step("close"),)),
        skill("case", begins=(step("note"),), requires=("base",)),
    )
    await world.skill("activate", "base")
    world.desk.holds("note")

    async with anyio.create_task_group() as request:
        request.start_soon(world.skill, "activate", "case")
        await world.desk.came["note"].wait()
        before, _ = await world.gate.changed(SCOPE, lambda state: replace(state, active=()))
        world.wired.hooks.ended(SCOPE, [world.gate.catalogue(SCOPE).by_id["base"]], before, "idle")
        await world.ended()
        world.desk.slow["note"].set()

    assert (await world.gate.state(SCOPE)).active == ("base", "case")
    assert world.desk.called == ["open", "note", "close", "open"]


async def test_a_skill_that_has_not_begun_cannot_be_invoked_where_that_needs_activation(make: Make):
    """Not by its own beginning either, whether a client activates it or it is active from the start."""
    begins = (replace(runs("case"), on_error="continue"),)
    world = await make(skill("case", begins=begins, steps=(step("find"),), needs_activation=True, active=True))

    await world.skill("list", "")

    assert (await world.gate.state(SCOPE)).due == frozenset()
    assert world.desk.called == []


# --- bounds ----------------------------------------------------------------------------------------------------------


async def test_the_bound_on_calls_ends_a_run_whose_step_lets_others_go_on(make: Make):
    """Also inside of `for_each`, where a failing value alone would not."""
    many = step("find", for_each=list(range(5)), on_error="continue")
    world = await make(
        Skill("search", "", "", "", internal=DESK, workflow=Workflow((many,), NO_PARAMETERS, max_calls=3))
    )

    arguments = {"skill_name": "search", "arguments": {}}
    result = await world.wired.calling.call(caller(), {"name": "SKILL_INVOKE", "arguments": arguments})

    assert result["isError"] is True
    assert (
        result["structuredContent"]["error"]["reason"]
        == "value 3: no more calls may be made in one run (its max_iterations)"
    )
    assert world.desk.called == ["find"] * 3


@pytest.mark.parametrize(("save_as", "calls"), [("found", 3), ("", 5)])
async def test_results_that_are_too_large_together_are_not_gathered(make: Make, save_as: str, calls: int):
    """As soon as they are, a step that is to keep them fails; one that is not goes on without them."""
    many = step("find", for_each=list(range(5)), save_as=save_as)
    world = await make(Skill("search", "", "", "", internal=DESK, workflow=Workflow((many,), NO_PARAMETERS)))
    world.desk.result = {"content": [{"type": "text", "text": "x" * 500_000}]}

    call = {"name": "SKILL_INVOKE", "arguments": {"skill_name": "search"}}
    told = (await world.wired.calling.call(caller(), call))["structuredContent"]

    assert world.desk.called == ["find"] * calls
    assert told["success"] is (not save_as)
    assert told.get("output") is None
    assert not save_as or "and at most 1,048,576 can be kept" in told["error"]["reason"]


async def test_headers_are_held_against_the_arguments_of_a_first_call_too(make: Make):
    """Of a modern client that can be asked something, whose call waits for what is done before it."""

    class Checking(Channel):
        def check(self, schema: object, arguments: Json) -> None:
            raise Rejection(-32001, f"they differ from {arguments}")

    world = await make(skill("reading", tools=DESK, active=True), on_start=(step("open"),))
    modern = Caller(SCOPE, "modern", None, "", Checking(capabilities={"elicitation": {"form": {}}}))

    with pytest.raises(Rejection, match=r"they differ from {'q': 1}"):
        await world.wired.calling.call(modern, {"name": "desk__find", "arguments": {"q": 1}})

    assert world.desk.called == ["open"]
