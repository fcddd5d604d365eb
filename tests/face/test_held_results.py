"""Results that are held until their client has read its list again, over HTTP and with clients of the SDK (rule 17a).

The proxy runs in this process, and holds a result for an hour, so that nothing but a read, or the end of its client,
lets a result go in time.
"""

import json
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import anyio
import httpx2
import pytest

from proxy.app import Running, running
from proxy.config.load import load
from proxy.core import known_clients
from proxy.face.http import listen, serve_http
from tests.answers import current_skills, schemas_told, text_of, tools_told
from tests.conftest import ERAS, MODERN, PATIENCE, Json, Peer, Raw, Record, connected, write_config

pytestmark = pytest.mark.anyio

HOUR = 3600.0
REREADS, UNKNOWN = "claude-code", "some-agent"
SKILLS = {
    "echoing": {"usage": "Echo.", "tool_list": {"up": ["echo"]}},
    "issues": {"usage": "List.", "tool_list": {"up": ["list_issues"]}},
    "guide": {"usage": "Words alone."},
}


@dataclass(frozen=True)
class Proxy:
    """A proxy in this process that listens on a port."""

    running: Running
    url: str

    def at(self, way: str) -> str:
        """The address of `/mcp`, or of a namespace."""
        return self.url if way == "session" else f"{self.url}/{way}"

    async def until_forgotten(self) -> None:
        """Wait until nothing is expected of any client any more."""
        with anyio.fail_after(PATIENCE):
            while self.running.reads._expected:  # noqa: ASYNC110 - a request ends in its own time
                await anyio.sleep(0.01)
        assert not self.running.announcer._in_change


@pytest.fixture
async def proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Proxy]:
    monkeypatch.setattr(known_clients, "HOLD_FOR_KNOWN_S", HOUR)
    monkeypatch.setattr(known_clients, "HOLD_FOR_OTHERS_S", HOUR)
    record = Record(tmp_path / "log.jsonl")
    loaded = load(write_config(tmp_path / "skills.yaml", {"up": record.entry()}, SKILLS), os.environ)
    bound, ready = listen("127.0.0.1", 0, loaded.settings), anyio.Event()
    async with running(loaded, None) as proxy, anyio.create_task_group() as tasks:
        tasks.start_soon(serve_http, proxy.http("127.0.0.1"), bound, ready.set, proxy.reads.give_up_all)
        await ready.wait()
        yield Proxy(proxy, f"http://127.0.0.1:{bound.getsockname()[1]}/mcp")
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def holding(peer: Peer, skill: str, action: str = "activate") -> AsyncGenerator[list[Json]]:
    """A change that is held inside, once its notice has come; the answer, when it has."""
    answers: list[Json] = []

    async def change() -> None:
        answers.append(await peer.skill(action, skill))

    told = peer.wire.notices()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(change)
        await peer.wire.until_notices(told + 1)
        assert not answers
        yield answers


WAYS = [("session", "legacy"), ("a", "legacy"), ("a", MODERN)]


@pytest.mark.parametrize("name", [REREADS, UNKNOWN])
@pytest.mark.parametrize(("way", "mode"), WAYS)
async def test_a_client_that_reads_its_list_again_has_the_tool_when_the_result_comes(
    proxy: Proxy, way: str, mode: str, name: str
):
    """On its own stream or on its listen stream, known by name or not; the result needs no schema then."""
    async with connected(proxy.at(way), mode, name=name) as peer, peer.hearing(), peer.rereading():
        for number, (action, skill) in enumerate((("activate", "echoing"), ("activate", "issues")), start=1):
            told = await peer.skill(action, skill)
            assert len(tools_told(told)) == 1
            assert schemas_told(told) == {}
            assert "SKILL_CALL" not in text_of(told)
            assert peer.wire.notices() == number
        (listed,) = [
            len(message["result"]["tools"])
            for message in peer.wire.messages
            if "tools" in message.get("result", {}) and "up__list_issues" in json.dumps(message)
        ][:1]
        assert listed >= 3
        await peer.skill("offload", "issues")
    await proxy.until_forgotten()


@pytest.mark.parametrize(("way", "mode"), WAYS)
async def test_the_notice_comes_before_a_result_that_is_held(proxy: Proxy, way: str, mode: str):
    """The list it is about can be read then, and the tool called, before there is a result."""
    async with connected(proxy.at(way), mode, name=REREADS) as peer, peer.hearing():
        async with holding(peer, "echoing") as answers:
            assert current_skills(await peer.skill("list")) == ["echoing"]
            assert (await peer.call("up__echo"))["structuredContent"]["tool"] == "echo"
            assert not answers
            assert "up__echo" in await peer.tools()
        assert tools_told(answers[0]) == ["up__echo"]


@pytest.mark.parametrize(("way", "mode"), WAYS)
async def test_a_change_that_is_given_up_while_it_is_held_stands(proxy: Proxy, way: str, mode: str):
    """Nothing is kept of the request, and the next change is held like any other."""
    async with connected(proxy.at(way), mode, name=REREADS) as peer, peer.hearing():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(peer.skill, "activate", "echoing")
            await peer.wire.until_notices(1)
            tasks.cancel_scope.cancel()
        await proxy.until_forgotten()
        assert current_skills(await peer.skill("list")) == ["echoing"]
        assert peer.wire.notices() == 1
        async with holding(peer, "issues") as answers:
            await peer.tools()
        assert tools_told(answers[0]) == ["up__list_issues"]


async def test_a_session_that_ends_while_a_result_is_held_is_waited_for_no_more(proxy: Proxy, raw: Raw):
    """Whoever closes it has its request answered, or cut off; nothing of it is left."""
    headers = await raw.open(proxy.url, name=REREADS)
    call = {"name": "SKILL", "arguments": {"action": "activate", "skill_name": "echoing"}}

    async def activate() -> None:
        with suppress(httpx2.TransportError):  # it may be cut off
            await raw.post(proxy.url, "tools/call", call, headers)

    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(activate)
            while "echoing" not in await active(raw, proxy, headers):  # noqa: ASYNC110 - a request of its own each time
                await anyio.sleep(0.01)
            gone = await raw.send("DELETE", proxy.url, headers=headers)
            assert gone.status == 200
    await proxy.until_forgotten()


async def active(raw: Raw, proxy: Proxy, headers: dict[str, str]) -> list[str]:
    listing = {"name": "SKILL", "arguments": {"action": "list"}}
    return current_skills((await raw.post(proxy.url, "tools/call", listing, headers)).reply["result"])


@pytest.mark.parametrize("mode", ERAS)
async def test_nobody_else_waits_for_a_client_that_does_not_read(proxy: Proxy, mode: str):
    """Neither another client of its namespace, nor anybody in another one."""
    async with (
        connected(proxy.at("a"), mode, name=REREADS) as peer,
        peer.hearing(),
        connected(proxy.at("a"), mode) as beside,
        connected(proxy.at("b"), mode) as apart,
    ):
        async with holding(peer, "echoing") as answers:
            for other in (beside, apart):
                assert "skill issues activated" in text_of(await other.skill("activate", "issues"))
                assert "up__list_issues" in await other.tools()
                assert (await other.call("up__list_issues"))["content"]
            assert not answers
            await peer.tools()
        assert tools_told(answers[0]) == ["up__echo"]


@pytest.mark.parametrize("listens_to", [None, {"prompts_list_changed": True}])
async def test_a_modern_client_without_a_stream_for_tools_is_not_held(proxy: Proxy, listens_to: dict[str, bool] | None):
    """Whatever it is called, and whoever else listens in its namespace."""
    async with (
        connected(proxy.at("a"), MODERN, name="other-agent") as listening,
        listening.hearing(),
        connected(proxy.at("a"), MODERN, name=REREADS) as peer,
    ):
        if listens_to is None:
            told = await peer.skill("activate", "echoing")
        else:
            async with peer.client.listen(**listens_to):  # pyright: ignore[reportArgumentType]
                told = await peer.skill("activate", "echoing")
        assert schemas_told(told).keys() == {"up__echo"}
        assert "SKILL_CALL(" in text_of(told)
        assert (await peer.tools())[:2] == ["SKILL", "SKILL_CALL"]


async def test_a_modern_client_whose_stream_has_ended_is_not_held(proxy: Proxy):
    """It hears of nothing any more."""
    async with connected(proxy.at("a"), MODERN, name=REREADS) as peer:
        async with peer.hearing(), holding(peer, "echoing"):
            await peer.tools()
        with anyio.fail_after(PATIENCE):
            while proxy.running.clients._listening:  # noqa: ASYNC110 - the proxy notices it a moment later
                await anyio.sleep(0.01)
        assert schemas_told(await peer.skill("activate", "issues")).keys() == {"up__list_issues"}


@pytest.mark.parametrize(("way", "mode"), WAYS)
async def test_what_changes_no_list_of_tools_is_not_held(proxy: Proxy, way: str, mode: str):
    """A second activation, a skill without tools, one that there is not, and one that is not active."""
    async with connected(proxy.at(way), mode, name=REREADS) as peer, peer.hearing():
        async with holding(peer, "echoing"):
            await peer.tools()
        for action, skill in (
            ("activate", "echoing"),
            ("activate", "guide"),
            ("activate", "nonsense"),
            ("offload", "issues"),
        ):
            assert "skill" in text_of(await peer.skill(action, skill))
        assert peer.wire.notices() == 1
