"""Skills that come, stand in each other's way and go together, over the wire: `requires_skills`, `conflicts_with`,
`exclusive`, and `max_active_minutes`.
"""

import json
import sqlite3
from collections.abc import Generator
from contextlib import AsyncExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.answers import also_offloaded, current_skills, replaced_skills, required_skills, tools_told
from tests.conftest import (
    ERAS,
    HttpProxy,
    Json,
    Peer,
    Record,
    connected,
    http_proxy,
    text_of,
    write_config,
)

pytestmark = pytest.mark.anyio

BRIEF = 0.02
"""Minutes: 1.2 seconds."""
LONGER = 0.05
SKILLS: dict[str, Any] = {
    "fixed": {"usage": "Stays.", "pinned": True, "tool_list": {"up": ["odd"]}},
    "base": {"usage": "The base.", "tool_list": {"up": ["echo"]}},
    "middle": {"usage": "The middle.", "requires_skills": ["base"], "tool_list": {"up": ["list_issues"]}},
    "top": {"usage": "The top.", "requires_skills": ["middle"], "tool_list": {"up": ["delete_repo"]}},
    "rival": {"usage": "Against the top.", "conflicts_with": ["top"], "requires_skills": ["aide"]},
    "aide": {"usage": "Of the rival.", "tool_list": {"up": ["count"]}},
    "chief": {"usage": "Alone.", "conflicts_with": ["rival"], "exclusive": True},
    "usurper": {"usage": "Cannot.", "conflicts_with": ["fixed"], "exclusive": True},
    "brief": {"max_active_minutes": BRIEF, "requires_skills": ["base"], "tool_list": {"up": ["fails"]}},
    "working": {"max_active_minutes": LONGER, "tool_list": {"up": ["wait"]}},
    "idle": {"max_active_minutes": LONGER, "tool_list": {"up": ["count"]}},
    "held": {"max_active_minutes": BRIEF, "tool_list": {"up": ["structured"]}},
    "holder": {"requires_skills": ["held"]},
}
SHOWN = ["SKILL", "SKILL_CALL", "up__odd"]


@dataclass(frozen=True)
class World:
    """A proxy over HTTP and its recorder."""

    proxy: HttpProxy
    record: Record


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Generator[World]:
    folder = tmp_path_factory.mktemp("relations")
    record = Record(folder / "log.jsonl")
    with http_proxy(write_config(folder / "skills.yaml", {"up": record.entry()}, SKILLS)) as proxy:
        yield World(proxy, record)


async def active(peer: Peer) -> list[str]:
    """The skills that are active for a client, the pinned one aside."""
    current = current_skills(await peer.skill("list"))
    assert current[0] == "fixed"
    return current[1:]


def call_that_helps(answer: Json) -> Json:
    """The arguments of the call of `SKILL` that a refusal spells."""
    text = text_of(answer)
    return json.loads(text.partition("SKILL(")[2].partition(")")[0])


# --- requires_skills -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ERAS)
async def test_what_a_skill_requires_comes_and_goes_with_it(world: World, namespace: str, mode: str):
    """Directly or not, in one change: one notice; the answer names them and has their tools, and how to read on."""
    async with connected(world.proxy.namespace(namespace), mode) as peer, peer.hearing():
        activated = await peer.skill("activate", "top")
        assert current_skills(activated) == ["fixed", "base", "middle", "top"]
        assert required_skills(activated) == ["base", "middle"]
        assert tools_told(activated) == ["up__delete_repo", "up__echo", "up__list_issues"]
        assert "<skill_guide>The top.</skill_guide>" in text_of(activated)
        assert "The base." in text_of(await peer.call("SKILL", call_that_helps(activated)))
        assert await peer.tools() == [*SHOWN[:2], "up__delete_repo", "up__echo", "up__list_issues", "up__odd"]
        await peer.wire.until_notices(1)

        for skill, by in (("base", "middle, top"), ("middle", "top")):
            refused = await peer.skill("offload", skill)
            assert refused["isError"]
            assert f"skill {skill} stays active, since it is required by {by}," in text_of(refused)
        assert await active(peer) == ["base", "middle", "top"]

        offloaded = await peer.skill("offload", "top")
        assert current_skills(offloaded) == ["fixed"]
        assert also_offloaded(offloaded) == ["base", "middle"]
        await peer.wire.until_notices(2)
        assert await peer.tools() == SHOWN
        assert peer.wire.notices() == 2


@pytest.mark.parametrize("mode", ERAS)
async def test_what_was_wanted_for_itself_stays(world: World, namespace: str, mode: str):
    """Before or after the one that requires it; another that requires it keeps it, too."""
    async with connected(world.proxy.namespace(namespace), mode) as peer:
        await peer.skill("activate", "base")
        await peer.skill("activate", "top")
        await peer.skill("offload", "top")
        assert await active(peer) == ["base"]
        await peer.skill("offload", "base")
        await peer.skill("activate", "top")
        assert "skill middle already activated" in text_of(await peer.skill("activate", "middle"))
        await peer.skill("offload", "top")
        assert await active(peer) == ["base", "middle"]


# --- conflicts_with, exclusive ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ERAS)
async def test_skills_in_conflict_are_refused_with_the_call_that_helps(world: World, namespace: str, mode: str):
    """Whichever of them says so; a refusal changes nothing, what the refused one requires neither."""
    async with connected(world.proxy.namespace(namespace), mode) as peer, peer.hearing():
        await peer.skill("activate", "top")
        await peer.wire.until_notices(1)
        refused = await peer.skill("activate", "rival")
        assert refused["isError"]
        assert "skill rival cannot be active beside top" in text_of(refused)
        assert await active(peer) == ["base", "middle", "top"]
        assert peer.wire.notices() == 1
        await peer.call("SKILL", call_that_helps(refused))
        assert not (await peer.skill("activate", "rival")).get("isError")
        assert "skill top cannot be active beside rival" in text_of(await peer.skill("activate", "top"))
        assert await active(peer) == ["aide", "rival"]
        await peer.wire.until_notices(3)
        assert peer.wire.notices() == 3


@pytest.mark.parametrize("mode", ERAS)
async def test_an_exclusive_skill_takes_the_place_of_others(world: World, namespace: str, mode: str):
    """With what only they required, in one change, and the answer says so; not of one that has to stay."""
    async with connected(world.proxy.namespace(namespace), mode) as peer, peer.hearing():
        await peer.skill("activate", "rival")
        await peer.wire.until_notices(1)
        activated = await peer.skill("activate", "chief")
        assert current_skills(activated) == ["fixed", "chief"]
        assert set(replaced_skills(activated)) == {"rival", "aide"}
        await peer.wire.until_notices(2)
        assert await peer.tools() == SHOWN
        assert "skill rival cannot be active beside chief" in text_of(await peer.skill("activate", "rival"))
        refused = await peer.skill("activate", "usurper")
        assert refused["isError"]
        assert "would take the place of fixed, which has to stay active" in text_of(refused)
        assert await active(peer) == ["chief"]
        assert peer.wire.notices() == 2


# --- max_active_minutes ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ERAS)
async def test_a_skill_that_nobody_uses_goes_by_itself(world: World, namespace: str, mode: str):
    """With what it required, after one notice; a call is refused with the reason, and the next answer tells it once."""
    async with connected(world.proxy.namespace(namespace), mode) as peer, peer.hearing():
        await peer.skill("activate", "holder")
        activated = await peer.skill("activate", "brief")
        assert current_skills(activated) == ["fixed", "held", "holder", "base", "brief"]
        await peer.wire.until_notices(3)
        assert await peer.tools() == ["SKILL", "SKILL_CALL", "up__odd", "up__structured"]
        refused = await peer.call("up__fails")
        assert refused["isError"]
        assert "Tool up__fails was offloaded since nobody used it: it comes with skill brief." in text_of(refused)
        told = await peer.skill("read", "base")
        assert "skill brief was offloaded: it was not used for 0.02 minutes." in text_of(told)
        assert "skill base was offloaded: the skill that required it was not used for too long." in text_of(told)
        again = await peer.skill("list")
        assert "was offloaded" not in text_of(again)
        assert current_skills(again) == ["fixed", "held", "holder"]
        assert peer.wire.notices() == 3
        refused = await peer.call("up__fails")
        assert "Tool up__fails was offloaded: it comes with skill brief." in text_of(refused)
        assert "skill brief activated" in text_of(await peer.call("SKILL", call_that_helps(refused)))


async def test_a_call_in_work_keeps_its_skill_active(world: World, namespace: str, tmp_path: Path):
    """While another, activated later and with the same limit, goes; when the call has ended, its own goes too."""
    async with AsyncExitStack() as stack:
        peers = [
            await stack.enter_async_context(connected(world.proxy.namespace(f"{namespace}-{mode}"), mode))
            for mode in ERAS
        ]
        for peer in peers:
            await stack.enter_async_context(peer.hearing())
        results: list[Json] = []

        async def work(peer: Peer) -> None:
            results.append(await peer.call("up__wait", {"file": str(tmp_path / "end")}))

        async with anyio.create_task_group() as tasks:
            for peer in peers:
                await peer.skill("activate", "working")
                tasks.start_soon(work, peer)
            await world.record.until_received("tools/call", str(tmp_path), times=2)
            for peer in peers:
                await peer.skill("activate", "idle")
            for peer in peers:
                await peer.wire.until_notices(3)
                assert await active(peer) == ["working"]
            assert results == []
            (tmp_path / "end").touch()
        assert not any(result.get("isError") for result in results)
        for peer in peers:
            await peer.wire.until_notices(4)
            assert await active(peer) == []
            assert peer.wire.notices() == 4


# --- a restart -------------------------------------------------------------------------------------------------------


async def test_after_a_restart_it_is_still_known_what_was_only_required(tmp_path: Path):
    """With the state in a file: what came along goes with the one that required it, what was wanted stays."""
    record = Record(tmp_path / "log.jsonl")
    state = {"backend": "sqlite", "path": "state.db"}
    config = write_config(tmp_path / "skills.yaml", {"up": record.entry()}, SKILLS, proxy={"state": state})
    with http_proxy(config) as proxy:
        for mode in ERAS:
            async with connected(proxy.namespace(f"n-{mode}"), mode) as peer:
                await peer.skill("activate", "middle")
                await peer.skill("activate", "top")
    with closing(sqlite3.connect(tmp_path / "state.db")) as file:
        assert file.execute("SELECT count(*) FROM scope").fetchone() == (len(ERAS),)
    with http_proxy(config) as proxy:
        for mode in ERAS:
            async with connected(proxy.namespace(f"n-{mode}"), mode) as peer:
                assert await active(peer) == ["base", "middle", "top"]
                assert (await peer.skill("offload", "base"))["isError"]
                await peer.skill("offload", "top")
                assert await active(peer) == ["base", "middle"]
                await peer.skill("offload", "middle")
                assert await active(peer) == []
