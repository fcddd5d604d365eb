"""Servers whose tools have pages of a user interface (MCP Apps, SEP-1865): what a client sees, reads and calls."""

import subprocess
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from mcp import MCPError

from tests.answers import schemas_told, text_of, tools_told
from tests.conftest import (
    ERAS,
    QUIET,
    HttpProxy,
    Json,
    Peer,
    Raw,
    Record,
    connected,
    http_proxy,
    program,
    write_config,
)
from tests.program.process import serving
from tests.servers.recorder import with_pages

pytestmark = pytest.mark.anyio

UI = "io.modelcontextprotocol/ui"
SHOWS: Json = {"mimeTypes": ["text/html;profile=mcp-app"]}
SKILLS: dict[str, Any] = {
    "boards": {"usage": "Boards.", "tool_list": {"board": ["show", "refresh"]}},
    "charts": {"usage": "Charts.", "tool_list": {"chart": ["show"]}},
    "both": {"usage": "Both.", "tool_list": {"board": ["shared"], "chart": ["shared"]}},
    "pages": {"usage": "Nothing for models.", "tool_list": {"board": ["refresh"]}},
}


@dataclass(frozen=True)
class World:
    """A proxy over HTTP before two servers with pages."""

    proxy: HttpProxy
    config: Path
    board: Record
    chart: Record


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Generator[World]:
    folder = tmp_path_factory.mktemp("apps")
    board, chart = (Record(folder / f"{name}.jsonl", name, pages=True) for name in ("board", "chart"))
    config = write_config(folder / "skills.yaml", {"board": board.entry(), "chart": chart.entry()}, SKILLS)
    with http_proxy(config) as proxy:
        yield World(proxy, config, board, chart)


async def page(peer: Peer, uri: str) -> str | None:
    """What is read at a URI, or how that is refused; None where it is unknown."""
    try:
        (content,) = (await peer.request("resources/read", {"uri": uri}))["contents"]
    except MCPError as error:
        return None if error.error.message == f"Unknown resource: {uri}" else error.error.message
    return content["text"]


@pytest.mark.parametrize("mode", ERAS)
async def test_a_tool_comes_with_its_page_and_nothing_else_of_its_server(world: World, namespace: str, mode: str):
    """While it is granted; neither listed, nor with pages of tools that are not."""
    shown = ["ui://board/show"]
    hidden = ["ui://board/hide", "ui://board/", "ui://chart/show", "ui://shared/page", "memo://one", "UI://board/show"]
    async with connected(world.proxy.namespace(namespace), mode) as peer:
        assert [await page(peer, uri) for uri in (*shown, *hidden)] == [None] * 7
        await peer.skill("activate", "boards")
        assert [await page(peer, uri) for uri in shown] == ["board ui://board/show"]
        assert [await page(peer, uri) for uri in hidden] == [None] * 6
        assert not [one for one in (await peer.request("resources/list"))["resources"] if "ui://" in one["uri"]]
        await peer.skill("offload", "boards")
        assert [await page(peer, uri) for uri in shown] == [None]
    asked = {entry["params"]["uri"] for entry in world.board.received("resources/read")}
    assert asked <= {"ui://board/show", "ui://shared/page"}


@pytest.mark.parametrize("mode", ERAS)
async def test_what_a_tool_says_of_its_page_arrives_as_it_was_sent(world: World, namespace: str, mode: str):
    """Clients that show pages go by it."""
    own = {f"board__{tool['name']}": tool for tool in with_pages("board")}
    async with connected(world.proxy.namespace(namespace), mode) as peer:
        await peer.skill("activate", "boards")
        for tool in (await peer.definitions())[2:]:
            assert tool == {**own[tool["name"]], "name": tool["name"]}


@pytest.mark.parametrize("mode", ERAS)
async def test_a_page_that_two_servers_have_is_that_of_the_first(world: World, namespace: str, mode: str):
    """In the order of the file; `check` notes it."""
    async with connected(world.proxy.namespace(namespace), mode) as peer:
        await peer.skill("activate", "both")
        assert await page(peer, "ui://shared/page") == "board ui://shared/page"


@pytest.mark.parametrize("mode", ERAS)
async def test_a_page_calls_the_tools_of_its_server_by_their_own_names(world: World, namespace: str, mode: str):
    """As long as no other tool that is granted has that name; and none that is not granted."""
    async with connected(world.proxy.namespace(namespace), mode) as peer:
        for name in ("show", "refresh", "hide", "echo"):
            assert (await peer.refusal("tools/call", {"name": name}))[0] == -32602
        await peer.skill("activate", "boards")
        for name in ("show", "refresh"):
            answer = await peer.call(name, {"marker": namespace})
            assert answer["structuredContent"] == {**answer["structuredContent"], "server": "board", "tool": name}
        for name in ("hide", "echo", "Show", "show ", "board/show"):
            assert (await peer.refusal("tools/call", {"name": name})) == (-32602, f"Unknown tool: {name}")
        await peer.skill("activate", "charts")
        assert (await peer.refusal("tools/call", {"name": "show"})) == (-32602, "Unknown tool: show")
        for server in ("board", "chart"):
            assert (await peer.call(f"{server}__show"))["structuredContent"]["server"] == server
        assert (await peer.call("refresh"))["structuredContent"]["server"] == "board"
        await peer.skill("offload", "boards")
        assert (await peer.call("show"))["structuredContent"]["server"] == "chart"
    assert world.board.calls(namespace) == [("show", {"marker": namespace}), ("refresh", {"marker": namespace})]


@pytest.mark.parametrize("mode", ERAS)
async def test_tools_for_pages_are_kept_from_models(world: World, namespace: str, mode: str):
    """They are in the list, for the client's pages; no text of `SKILL` names them, and `SKILL_CALL` calls none."""
    async with connected(world.proxy.namespace(namespace), mode) as peer:
        activated = await peer.skill("activate", "boards")
        assert tools_told(activated) == ["board__show"]
        assert schemas_told(activated).keys() == {"board__show"}
        again = await peer.skill("activate", "boards")
        read = [await peer.skill("read", "boards", tool=name) for name in ("board__refresh", "refresh")]
        assert [answer["isError"] for answer in read] == [True, True]
        assert "Its tools: ['board__show']." in text_of(read[0])
        assert "refresh" not in text_of(activated) + text_of(again)
        assert await peer.tools() == ["SKILL", "SKILL_CALL", "board__refresh", "board__show"]
        for name in ("board__refresh", "refresh"):
            refused = await peer.call("SKILL_CALL", {"tool": name, "arguments": {"marker": namespace}})
            assert refused["isError"] is True
            assert f"Tool {name} can be called only by the user interface of its server" in text_of(refused)
        assert world.board.calls(namespace) == []
        assert (await peer.call("SKILL_CALL", {"tool": "show"}))["structuredContent"]["tool"] == "show"
        assert (await peer.call("board__refresh"))["structuredContent"]["tool"] == "refresh"


async def test_a_skill_with_tools_for_pages_alone_has_none_for_models(world: World, namespace: str):
    """And says so."""
    async with connected(world.proxy.namespace(namespace)) as peer:
        assert text_of(await peer.skill("activate", "pages")).endswith("\n\nNo tools are available.")
        assert await peer.tools() == ["SKILL", "SKILL_CALL", "board__refresh"]


async def test_a_modern_server_is_told_of_a_client_that_shows_pages(world: World, raw: Raw, namespace: str):
    """With the request of that client, and with no other's."""
    url = world.proxy.namespace(namespace)
    await raw.modern(url, "tools/call", {"name": "SKILL", "arguments": {"action": "activate", "skill_name": "boards"}})
    capabilities = {"extensions": {UI: SHOWS, "vendor/other": {}}, "roots": {}}
    for declared, seen in ((capabilities, {UI: SHOWS}), ({}, {})):
        call = {
            "name": "board__show",
            "arguments": {},
            "_meta": {"io.modelcontextprotocol/clientCapabilities": declared},
        }
        answer = (await raw.modern(url, "tools/call", call)).reply["result"]["structuredContent"]
        got = answer["_meta"]["io.modelcontextprotocol/clientCapabilities"]
        assert got["extensions"] == {"io.modelcontextprotocol/skills": {}, **seen}
        assert got.get("roots") == declared.get("roots")


async def test_a_server_of_one_client_is_told_at_the_handshake_that_it_shows_pages(tmp_path: Path):
    """Where the proxy is on pipes; a client that shows none is told of as before."""
    record = Record(tmp_path / "log.jsonl", pages=True)
    skills = {"boards": {"usage": "B", "tool_list": {"board": ["show"]}}}
    config = write_config(tmp_path / "skills.yaml", {"board": record.entry(era="handshake")}, skills)
    for capabilities, seen in (({"extensions": {UI: SHOWS}, "tasks": {}}, {"extensions": {UI: SHOWS}}), ({}, {})):
        record.log.unlink(missing_ok=True)
        async with serving(config) as process:
            await process.request(
                "initialize",
                protocolVersion="2025-11-25",
                capabilities=capabilities,
                clientInfo={"name": QUIET, "version": "1"},
            )
            await process.send({"method": "notifications/initialized"})
            assert tools_told(await process.activate("boards")) == ["board__show"]
        (greeting,) = record.received("initialize")
        assert greeting["params"]["capabilities"] == seen


def test_check_notes_a_page_that_two_servers_have(world: World):
    """Somebody may wonder whose is shown."""
    done = subprocess.run(
        program("check", "--config", world.config), capture_output=True, text=True, timeout=60, check=False
    )
    expected = "servers board, chart offer the same resource URI, ui://shared/page: it is read at the one whose tool"
    assert expected in " ".join(done.stdout.split())
