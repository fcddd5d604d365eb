"""Arguments that skills fill in for clients: hidden, set on every call, and refused from the client."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass, replace
from typing import Any

import anyio
import pytest

from proxy.core.catalogue import EVERYTHING, Catalogue, Skill
from proxy.core.errors import Rejection
from proxy.core.inventory import Json, Offer
from proxy.core.names import Naming
from proxy.core.profiles import Policy
from proxy.core.scope import ScopeState, put
from proxy.core.settings import Settings, every_kind
from proxy.gateway.calling import Calling
from proxy.gateway.gate import Gate
from proxy.gateway.listing import Listing
from proxy.store.memory import MemoryStore
from tests.gateway.wired import wired
from tests.gateway.world import SCOPE, Channel, Server, Servers, caller

pytestmark = pytest.mark.anyio

FIND = {
    "name": "find",
    "inputSchema": {
        "type": "object",
        "properties": {"customer": {"type": "string"}, "query": {"type": "string"}},
        "required": ["customer", "query"],
    },
}
TOOLS = {"crm": EVERYTHING}
SKILLS = (
    Skill("reading", "", "", "", tools=TOOLS, active=True),
    Skill("fixed", "", "", "", bind={"crm": {"find": {"customer": "c-7", "limit": {"most": [5]}}}}),
    Skill("worked-out", "", "", "", bind={"crm": {"find": {"customer": "{{ heap.customer.id }}"}}}),
    Skill(
        "scoped",
        "",
        "",
        "",
        bind={"crm": {"find": {"by": "{{ scope.namespace }} {{ scope.client }} {{ env.REGION }}"}}},
    ),
)


@dataclass
class World:
    gate: Gate
    calling: Calling
    listing: Listing
    crm: Server

    async def activate(self, *skills: str, heap: Json | None = None) -> None:
        """Make skills active, as they are after their hooks, which have put this on the heap."""

        def active(state: ScopeState) -> ScopeState:
            return replace(state, active=(*state.active, *skills), heap=heap or {})

        await self.gate.change(SCOPE, active)

    async def find(self, arguments: Any = None, *, channel: Channel | None = None, **more: Any) -> str:
        """Call the tool directly; the text of its result."""
        params = {"name": "crm__find", **({} if arguments is None else {"arguments": arguments}), **more}
        by = caller(channel)._replace(client="desk", version="1.2")
        return text_of(await self.calling.call(by, params))

    @property
    def sent(self) -> list[Any]:
        """The arguments of the calls that the server got."""
        return [params.get("arguments") for method, params in self.crm.asked if method == "tools/call"]


def text_of(result: dict[str, Any]) -> str:
    assert result.get("isError", False) is ("done" not in result["content"][0]["text"])
    return result["content"][0]["text"]


@pytest.fixture
async def world() -> AsyncGenerator[World]:
    crm = Server({"content": [{"type": "text", "text": "done"}]})
    servers = Servers({"crm": Offer.of(tools=[FIND])}, {"crm": crm})
    settings = Settings(expression_env={"REGION": "eu"}, call_route="on")
    catalogue = Catalogue(("crm",), Naming({"crm": "crm"}), SKILLS)
    gate = Gate(Policy(catalogue), servers, MemoryStore(every_kind(10)), settings)
    async with anyio.create_task_group() as tasks:
        together = wired(gate, tasks)
        yield World(gate, together.calling, together.listing, crm)
        tasks.cancel_scope.cancel()


async def test_a_bound_argument_is_filled_in_whoever_grants_the_tool(world: World):
    """With whatever JSON it is set to; what the client gives goes with it, and all else of its call."""
    await world.activate("fixed")

    await world.find({"query": "x"}, _meta={"a": 1})
    await world.find()

    filled = {"customer": "c-7", "limit": {"most": [5]}}
    assert world.sent == [{"query": "x", **filled}, filled]
    assert world.crm.asked[0][1]["_meta"] == {"a": 1}
    assert world.crm.asked[0][1]["name"] == "find"


async def test_the_list_shows_the_tool_without_it(world: World):
    """Neither as a property nor as required; without the skill it is there as ever."""
    plain = {tool["name"]: tool for tool in await world.listing.tools(caller())}["crm__find"]
    await world.activate("fixed")
    bound = {tool["name"]: tool for tool in await world.listing.tools(caller())}["crm__find"]

    assert plain["inputSchema"] == FIND["inputSchema"]
    assert bound["inputSchema"] == {
        "type": "object",
        "properties": {"query": {"type": "string"}},
        "required": ["query"],
    }


@pytest.mark.parametrize("value", ["c-8", "c-7", None])
async def test_a_client_that_sends_it_is_refused(world: World, value: object):
    """Whatever it sends, also the very value; the text says who sets it, and the server hears nothing."""
    await world.activate("fixed")

    said = await world.find({"query": "x", "customer": value})

    assert said == (
        "Tool crm__find was not called: argument customer is set by skill fixed. "
        "Leave it out, and call crm__find again."
    )
    assert world.sent == []


async def test_every_argument_that_is_too_much_is_named(world: World):
    """So that the next call is right."""
    await world.activate("fixed")

    said = await world.find({"customer": "a", "limit": 1})

    assert "argument customer is set by skill fixed, and argument limit is set by skill fixed. Leave them out" in said


@pytest.mark.parametrize("arguments", [{"query": "x"}, '{"query": "x"}'])
async def test_it_is_filled_in_through_the_other_route_too(world: World, arguments: object):
    """With arguments as an object or as JSON text of one; and refused there alike."""
    await world.activate("fixed")

    async def call(given: object) -> str:
        outer = {"name": "SKILL_CALL", "arguments": {"tool": "crm__find", "arguments": given}}
        return text_of(await world.calling.call(caller(), outer))

    assert await call(arguments) == "done"
    assert "argument customer is set by skill fixed" in await call('{"customer": "c-7"}')
    assert world.sent == [{"query": "x", "customer": "c-7", "limit": {"most": [5]}}]


@pytest.mark.parametrize("arguments", ["[" * 100_000, "{", "[]", 1, None])
async def test_what_is_no_object_is_refused_there_in_words(world: World, arguments: object):
    """Nor is JSON that is nested too deeply."""
    await world.activate("fixed")

    outer = {"name": "SKILL_CALL", "arguments": {"tool": "crm__find", "arguments": arguments}}
    said = text_of(await world.calling.call(caller(), outer))

    assert said == 'SKILL_CALL needs "arguments" to be an object (or a JSON text of one).'
    assert world.sent == []


async def test_an_expression_is_worked_out_on_each_call(world: World):
    """From what the heap holds by then; it keeps its type."""
    await world.activate("worked-out", heap={"customer": {"id": 7}})
    await world.find({"query": "x"})
    await world.gate.change(SCOPE, lambda state: put(state, "customer", {"id": [8]}) or state)
    await world.find({"query": "x"})

    assert world.sent == [{"query": "x", "customer": 7}, {"query": "x", "customer": [8]}]


async def test_an_expression_reads_the_scope_its_client_and_the_environment(world: World):
    """The client by name and version, and of the environment what the configuration lists."""
    await world.activate("scoped")

    await world.find({})

    assert world.sent == [{"by": 'a {"name": "desk", "version": "1.2"} eu'}]


async def test_what_cannot_be_worked_out_is_a_refusal(world: World):
    """It names skill, argument, expression and reason, and the server hears nothing."""
    await world.activate("worked-out")

    said = await world.find({"query": "x"})

    assert said.startswith("Tool crm__find cannot be called: skill worked-out sets its argument customer")
    assert "{{ heap.customer.id }}" in said
    assert said.endswith("The call was not sent.")
    assert world.sent == []


async def test_headers_are_held_against_what_the_client_sends(world: World):
    """By the schema that it sees, which has no bound argument; that it fills in goes by no header of the client's."""
    await world.activate("fixed")
    checked: list[tuple[object, Json]] = []

    class Checking(Channel):
        def check(self, schema: object, arguments: Json) -> None:
            checked.append((schema, arguments))
            raise Rejection(-32602, "they differ")

    with pytest.raises(Rejection, match="they differ"):
        await world.find({"query": "x"}, channel=Checking())

    ((schema, arguments),) = checked
    assert schema == {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
    assert arguments == {"query": "x"}
    assert world.sent == []


async def test_what_is_bound_no_more_is_the_clients_again(world: World):
    """As soon as the skill is offloaded."""
    await world.activate("fixed")
    await world.gate.change(SCOPE, lambda state: replace(state, active=("reading",)))

    await world.find({"query": "x", "customer": "mine"})

    assert world.sent == [{"query": "x", "customer": "mine"}]
