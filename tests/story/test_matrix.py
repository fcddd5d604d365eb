"""One story over every way in and both eras, with the real process and the real servers of PyPI behind it."""

import re
import subprocess
from collections.abc import Generator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.client.stdio import StdioServerParameters

from tests.conftest import (
    MODERN,
    MODES,
    PATIENCE,
    HttpProxy,
    Peer,
    Raw,
    connected,
    http_proxy,
    stdio_program,
    write_config,
)

pytestmark = pytest.mark.anyio

WAYS = ("stdio", "/mcp", "/mcp/{namespace}", "/mcp with token")
TOOLS = ["time__get_current_time", "git__git_log", "git__git_status"]
ALICE, BOB = "alice-secret", "bob-secret"


@dataclass(frozen=True)
class World:
    """A proxy over HTTP without tokens and one with, the configuration, and a git repository to look at."""

    config: Path
    proxy: HttpProxy
    guarded: HttpProxy
    repository: Path


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Generator[World]:
    folder = tmp_path_factory.mktemp("matrix")
    repository = folder / "repository"
    subprocess.run(["git", "init", "-q", "-b", "story-branch", str(repository)], check=True)
    parts: tuple[dict[str, Any], dict[str, Any]] = (
        {"time": {"command": "mcp-server-time"}, "git": {"command": "mcp-server-git"}},
        {
            "clock": {"desc": "The time", "usage": "Ask for the time.", "tool_list": {"time": []}},
            "repo": {
                "desc": "A repository",
                "usage": "Look at a repository.",
                "tool_list": {"git": ["git_status", "git_log"], "time": ["get_current_time"]},
            },
        },
    )
    config = write_config(folder / "skills.yaml", *parts)
    guarded = write_config(folder / "guarded.yaml", *parts, proxy={"tokens": {"alice": ALICE, "bob": BOB}})
    with http_proxy(config) as proxy, http_proxy(guarded) as with_tokens:
        yield World(config, proxy, with_tokens, repository)


def way_in(world: World, way: str, namespace: str, whose: str) -> tuple[str | StdioServerParameters, str | None]:
    """Where the client `whose` ("first" or "second") connects, and with which token."""
    match way:
        case "stdio":
            return stdio_program(world.config), None
        case "/mcp":
            return world.proxy.url, None
        case "/mcp/{namespace}":
            return world.proxy.namespace(f"{namespace}-{whose}"), None
        case _:
            return world.guarded.url, ALICE if whose == "first" else BOB


def is_modern(way: str, mode: str) -> bool:
    return mode == MODERN or (mode == "auto" and way != "/mcp")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("way", WAYS)
async def test_story(world: World, namespace: str, way: str, mode: str) -> None:
    """One tool at first; a skill brings exactly its tools, to its client alone, and takes them away again."""
    if way == "/mcp" and mode == MODERN:
        await refused_on_mcp(world)
        return
    async with AsyncExitStack() as stack:
        target, token = way_in(world, way, namespace, "first")
        first = await stack.enter_async_context(connected(target, mode, token=token))
        target, token = way_in(world, way, namespace, "second")
        second = await stack.enter_async_context(connected(target, mode, token=token))
        for peer in (first, second):
            await stack.enter_async_context(peer.hearing())
            assert peer.handshake is not is_modern(way, mode)

        assert await listed(first) == ["SKILL", "SKILL_CALL"]
        await activate(first)
        assert await listed(first) == ["SKILL", "SKILL_CALL", *TOOLS]

        now = await first.client.call_tool("time__get_current_time", {"timezone": "Etc/UTC"})
        assert not now.is_error
        assert '"timezone"' in str(now.content)
        status = await first.client.call_tool("git__git_status", {"repo_path": str(world.repository)})
        assert not status.is_error
        assert "story-branch" in str(status.content)

        assert await listed(second) == ["SKILL", "SKILL_CALL"]
        assert second.wire.notices() == 0
        kept_out = await second.call("git__git_status", {"repo_path": str(world.repository)})
        assert kept_out["isError"] is True
        assert "repo" in str(kept_out["content"])

        offloaded = await first.client.call_tool("SKILL", {"action": "offload", "skill_name": "repo"})
        assert "skill repo offloaded, current skills: []" in str(offloaded.content)
        await first.wire.until_notices(2)
        assert await listed(first) == ["SKILL", "SKILL_CALL"]
        refused = await first.client.call_tool("git__git_status", {"repo_path": str(world.repository)})
        assert refused.is_error
        assert re.search(
            r'SKILL\(\{\\?"action\\?": \\?"activate\\?", \\?"skill_name\\?": \\?"repo\\?"\}\)', str(refused.content)
        )
        assert first.wire.notices() == 2
        assert second.wire.notices() == 0


async def listed(peer: Peer) -> list[str]:
    with anyio.fail_after(PATIENCE):
        return [tool.name for tool in (await peer.client.list_tools()).tools]


async def activate(peer: Peer) -> None:
    """Activate `repo`; one notice comes, in the handshake era before the result."""
    result = await peer.client.call_tool("SKILL", {"action": "activate", "skill_name": "repo"})
    text = "skill repo activated, current skills: ['repo']\n\n<skill_guide>Look at a repository.</skill_guide>"
    assert str(getattr(result.content[0], "text", "")).startswith(text)
    await peer.wire.until_notices(1)
    assert peer.wire.notices() == 1
    (notice,) = peer.wire.where(lambda message: message.get("method") == "notifications/tools/list_changed")
    (answer,) = peer.wire.where(lambda message: "skill repo activated" in str(message.get("result")))
    assert not peer.handshake or notice < answer


async def refused_on_mcp(world: World) -> None:
    async with connected(world.proxy.url, MODERN) as peer:
        code, message = await peer.refusal("tools/list")
        assert code == -32022
        assert "/mcp/{namespace}" in message
        assert await peer.refusal("server/discover") == (-32601, "Method not found")


@pytest.mark.parametrize("method", ["tools/list", "tools/call", "ping", "subscriptions/listen", "no/such"])
async def test_modern_request_without_a_scope(world: World, raw: Raw, method: str) -> None:
    """`/mcp` refuses them without a token: HTTP 400, -32022, the handshake versions, and the way out."""
    params = {"name": "SKILL", "arguments": {"action": "list"}} if method == "tools/call" else {}
    answer = await raw.modern(
        world.proxy.url, method, {**params, **({"notifications": {}} if "listen" in method else {})}
    )
    assert answer.status == 400
    error = answer.reply["error"]
    assert error["code"] == -32022
    assert "/mcp/{namespace}" in error["message"]
    assert error["data"]["requested"] == MODERN
    assert "2025-11-25" in error["data"]["supported"]
    assert MODERN not in error["data"]["supported"]


@pytest.mark.parametrize("name", ["mcporter", "claude-code"])
async def test_discovering_without_a_scope_leads_to_the_handshake(world: World, raw: Raw, name: str) -> None:
    """`/mcp` answers it as a server of sessions does, HTTP 404 and -32601: to some clients -32022 there is fatal.

    The client shakes hands then, and its session sees what any other does; with a token there is a scope to discover.
    """
    answer = await raw.modern(world.proxy.url, "server/discover")
    assert answer.status == 404
    assert answer.reply["error"]["code"] == -32601
    headers = await raw.open(world.proxy.url, name=name)
    assert (await raw.tools(world.proxy.url, headers))[0] == "SKILL"
    guarded = await raw.modern(world.guarded.url, "server/discover", headers={"Authorization": f"Bearer {ALICE}"})
    assert guarded.status == 200
    assert guarded.reply["result"]["supportedVersions"] == [MODERN]
    named = await raw.modern(world.proxy.namespace("discovered"), "server/discover")
    assert named.reply["result"]["supportedVersions"] == [MODERN]
