"""Tools that are called as their server calls them, and tools that are for the pages of their server (MCP Apps)."""

from functools import partial
from typing import Literal

import anyio
import pytest

from proxy.core.catalogue import Allow, Skill
from proxy.core.errors import Unknown
from proxy.core.inventory import Offer
from proxy.core.profiles import Policy
from proxy.core.settings import Settings
from proxy.ports import Caller
from tests.gateway.acting import Doing, World, acting, call, catalogue_of, client, modern, settle, skill, text_of
from tests.gateway.world import SCOPE

pytestmark = pytest.mark.anyio

DESK, LOG = (Skill(key, "", "", "Do it.", tools={key: Allow.of(["one", "two"])}) for key in ("desk", "log"))


async def test_a_call_by_its_own_name_is_sent_as_any_other():
    """With its arguments and all else."""
    async with acting(DESK, LOG) as world:
        with pytest.raises(Unknown, match=r"^Unknown tool: one$"):
            await world.ask("one", {"n": 1})
        await world.skill("activate", "desk")

        assert (await world.ask("one", {"n": 1}))["structuredContent"] == {"n": 1}
        assert (await world.ask("SKILL_CALL", {"tool": "one", "arguments": {"n": 2}}))["structuredContent"] == {"n": 2}

        assert world.desk.called == [("one", {"n": 1}), ("one", {"n": 2})]
        await world.skill("offload", "desk")
        with pytest.raises(Unknown, match=r"^Unknown tool: one$"):
            await world.ask("one")


@pytest.mark.parametrize("by_skill_call", [False, True])
async def test_a_name_that_two_tools_come_to_have_while_a_call_waits_reaches_neither(by_skill_call: bool):
    """It was asked for when it meant one of them."""
    async with acting(DESK, LOG) as world:
        await world.skill("activate", "desk")
        world.servers.there = anyio.Event()
        asked = ("SKILL_CALL", {"tool": "two"}) if by_skill_call else ("two", {})
        doing = Doing(world.tasks, partial(world.ask, *asked))
        await settle()
        await world.skill("activate", "log")
        world.servers.there.set()
        with pytest.raises(Unknown, match=r"^Unknown tool: two$"):
            await doing.outcome()
        assert (world.desk.called, world.log.called) == ([], [])


async def test_a_name_that_comes_to_mean_another_tool_while_a_call_waits_reaches_that_one_alone():
    """By the decision at the moment when it is sent."""
    async with acting(DESK, LOG) as world:
        await world.skill("activate", "desk")
        world.servers.there = anyio.Event()
        doing = Doing(world.tasks, partial(world.ask, "two"))
        await settle()
        await world.skill("offload", "desk")
        await world.skill("activate", "log")
        world.servers.there.set()
        await doing.outcome()
        assert (world.desk.called, world.log.called) == ([], [("two", {})])


async def test_what_is_denied_meanwhile_is_not_reached_by_its_own_name():
    """Nor by any other."""
    async with acting(DESK) as world:
        await world.skill("activate", "desk")
        world.servers.there = anyio.Event()
        doing = Doing(world.tasks, partial(world.ask, "one"))
        await settle()
        world.gate.adopt(Policy(catalogue_of([DESK], denied={"desk": Allow.of(["one"])})), world.gate.settings, ())
        world.servers.there.set()
        with pytest.raises(Unknown, match=r"^Unknown tool: one$"):
            await doing.outcome()
        assert world.desk.called == []


@pytest.mark.parametrize("call_route", ["on", "off"])
async def test_a_tool_that_a_server_calls_as_we_call_ours_is_not_reached_by_that(call_route: Literal["on", "off"]):
    """Not even by a client that is not shown our own."""
    every = Skill("desk", "", "", "Do it.", tools={"desk": Allow.of(["*"])})
    async with acting(every, settings=Settings(call_route=call_route)) as world:
        world.servers.offers = {"desk": Offer.of(tools=[{"name": "SKILL_CALL"}, {"name": "SKILL"}, {"name": "other"}])}
        await world.skill("activate", "desk")
        named = "SKILL_CALL" if call_route == "on" else "other"
        with pytest.raises(Unknown, match=r"^Unknown tool: SKILL_CALL$"):
            await world.ask("SKILL_CALL", {"tool": named})
        assert "1 skill" in text_of(await world.ask("SKILL", {"action": "list"}))
        assert world.desk.called == []
        await world.ask("other")
        assert world.desk.tools == ["other"]


async def test_steps_know_their_tools_by_server_alone():
    """An own name that is somebody's else is none for them."""
    flow = skill("flow", call("one"), runs={"tool": True})
    async with acting(flow, LOG) as world:
        await world.skill("activate", "log")
        await world.invoke("flow")
        assert (world.desk.called, world.log.called) == ([("one", {})], [])


FOR_PAGES = {"_meta": {"ui": {"visibility": ["app"], "resourceUri": "ui://desk/page"}}}


def with_pages(world: World) -> None:
    """The desk has a tool for its pages, and another with a page."""
    shown = {"name": "two", "_meta": {"ui": {"resourceUri": "ui://desk/two"}}}
    world.servers.offers = {"desk": Offer.of(tools=[{"name": "one", **FOR_PAGES}, shown, {"name": "three"}])}


@pytest.mark.parametrize("by", [client(), modern()], ids=["handshake", "modern"])
async def test_a_tool_for_pages_is_called_directly_alone(by: Caller):
    """Its page calls it under either name; a model, which has another way, is told why not."""
    async with acting(DESK) as world:
        with_pages(world)
        await world.skill("activate", "desk", by)
        for name in ("desk__one", "one"):
            refused = await world.ask("SKILL_CALL", {"tool": name}, by)
            assert refused["isError"] is True
            assert "can be called only by the user interface of its server" in text_of(refused)
        assert world.desk.called == []
        for name in ("desk__one", "one"):
            await world.ask(name, {}, by)
        await world.ask("SKILL_CALL", {"tool": "two"}, by)
        assert world.desk.tools == ["one", "one", "two"]
        assert [name for name in await world.names(by) if "__" in name] == ["desk__one", "desk__two"]


async def test_a_hidden_tool_for_pages_is_refused_like_any_other():
    """What it is for is not told to who may not use it."""
    async with acting(DESK, Skill("three", "", "", "", tools={"desk": Allow.of(["three"])})) as world:
        with_pages(world)
        await world.skill("activate", "three")
        refused = await world.ask("SKILL_CALL", {"tool": "desk__one"})
        assert "is not active: it comes with skill desk" in text_of(refused)
        with pytest.raises(Unknown):
            await world.ask("SKILL_CALL", {"tool": "one"})
        assert world.gate.sight(SCOPE, ["three"]).view.page_owner("ui://desk/two") is None
