"""Every kind of client uses what it activates, in the same turn, on every transport and in both eras."""

from collections.abc import AsyncGenerator, Generator, Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path

import pytest

from proxy.core.known_clients import HOLD_FOR_KNOWN_S
from tests.clients.standins import BEHAVIOURS, Agent, Behaviour, Connect, is_possible
from tests.conftest import (
    ERAS,
    HttpProxy,
    Peer,
    Record,
    connected,
    http_proxy,
    stdio_program,
    text_of,
    write_config,
)

pytestmark = pytest.mark.anyio

TRANSPORTS = ("stdio", "session", "namespace")
TOOL = "up__echo"
SKILLS = {
    "weather": {"desc": "The weather.", "usage": "Guide of weather.", "tool_list": {"up": ["echo"]}},
    "issues": {"desc": "Issues.", "usage": "U", "tool_list": {"up": ["list_issues"]}},
}


@dataclass(frozen=True)
class World:
    config: Path
    http: HttpProxy
    record: Record


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Generator[World]:
    folder = tmp_path_factory.mktemp("clients")
    record = Record(folder / "log.jsonl")
    config = write_config(folder / "c.yaml", {"up": record.entry()}, SKILLS)
    with http_proxy(config) as http:
        yield World(config, http, record)


def cases(behaviours: Iterable[str]) -> dict[str, tuple[Behaviour, str, str]]:
    """Clients that behave so, on every transport and in every era in which there are such."""
    return {
        f"{name}-{transport}-{mode}": (BEHAVIOURS[name], transport, mode)
        for name in behaviours
        for transport in TRANSPORTS
        for mode in ERAS
        if is_possible(BEHAVIOURS[name], transport, mode)
    }


ALL = cases(BEHAVIOURS)
KNOWN_TO_REREAD = cases(name for name, behaviour in BEHAVIOURS.items() if behaviour.known)


@pytest.fixture
async def agent(request: pytest.FixtureRequest, world: World, namespace: str) -> AsyncGenerator[Agent]:
    behaviour, transport, mode = request.param
    async with Agent(behaviour, connecting(world, transport, namespace), mode).running() as agent:
        yield agent


def connecting(world: World, transport: str, namespace: str) -> Connect:
    def connect(name: str, mode: str) -> AbstractAsyncContextManager[Peer]:
        if transport == "stdio":
            return connected(stdio_program(world.config), mode, name=name)
        url = world.http.url if transport == "session" else world.http.namespace(namespace)
        return connected(url, mode, name=name)

    return connect


@pytest.mark.parametrize("agent", ALL.values(), ids=ALL, indirect=True)
async def test_a_client_uses_what_it_activates_in_the_same_turn(agent: Agent, world: World, namespace: str):
    """Directly where its list has the tool by then, else by SKILL_CALL; and no more once it is offloaded."""
    activated = text_of(await agent.skill("activate", "weather"))
    assert activated.startswith("skill weather activated, current skills: ['weather']")
    assert "Guide of weather." in activated
    assert TOOL in activated
    way = agent.way_to(TOOL)
    assert way != "not at all"
    if way == "by SKILL_CALL":
        assert "input schema" in activated
    await agent.call(TOOL, {"marker": namespace})
    assert world.record.calls(namespace) == [("echo", {"marker": namespace})]

    await agent.skill("offload", "weather")
    refused = await agent.call(TOOL, {"marker": f"late-{namespace}"})
    assert refused["isError"]
    assert "was offloaded" in text_of(refused)
    assert not world.record.calls(f"late-{namespace}")


@pytest.mark.parametrize("agent", KNOWN_TO_REREAD.values(), ids=KNOWN_TO_REREAD, indirect=True)
async def test_a_client_that_is_known_to_reread_has_its_list_when_the_result_comes(agent: Agent):
    """Or the result has waited as long as it may; then, and only then, it has the schemas."""
    for action, there in (("activate", True), ("offload", False)):
        text = text_of(await agent.skill(action, "weather"))
        if agent.read_before_result:
            assert (TOOL in agent.listed) == there
            assert "input schema" not in text
        else:
            assert agent.waited >= HOLD_FOR_KNOWN_S


@pytest.mark.parametrize("agent", ALL.values(), ids=ALL, indirect=True)
async def test_a_second_way_is_shown_from_the_first_list_on_or_never(agent: Agent):
    """To all but those that are known to read their list again, if something tells them of changes."""
    shown = ["SKILL_CALL" in agent.listed]
    for action in ("activate", "offload"):
        await agent.skill(action, "weather")
        await agent.next_turn()
        shown.append("SKILL_CALL" in agent.listed)
    if agent.behaviour.session_each_call:
        shown = shown[1:]
    assert {*shown} == {not agent.behaviour.known}
