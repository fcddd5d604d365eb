"""Every protocol revision that a client may speak, in front of every kind of server: lists and calls."""

from collections.abc import Awaitable, Callable, Generator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from tests.answers import not_ready, tools_told
from tests.conftest import MODERN, HttpProxy, Json, Raw, connected, http_proxy, of_servers, stdio_program, write_config
from tests.relay.talk import Talk, served, skill

pytestmark = pytest.mark.anyio

REVISIONS = (*HANDSHAKE_PROTOCOL_VERSIONS, MODERN)
SERVERS = {
    "stdio-handshake": ("stdio", "handshake"),
    "stdio-modern": ("stdio", "modern"),
    "stdio": ("stdio", "auto"),
    "http-stateful": ("http", "handshake"),
    "http-stateless": ("stateless", "handshake"),
    "http-modern": ("http", "modern"),
    "http": ("stateless", "auto"),
    "sse": ("sse", "auto"),
    "sse-handshake": ("sse", "handshake"),
}
ENVELOPE = "io.modelcontextprotocol/"

Send = Callable[[str, Json], Awaitable[Json]]


@dataclass(frozen=True)
class World:
    """A proxy in front of one server of each kind; each is a skill's, by the same name."""

    proxy: HttpProxy
    talks: dict[str, Talk]
    config: Path


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Generator[World]:
    folder = tmp_path_factory.mktemp("revisions")
    with ExitStack() as stack:
        remote = {kind: stack.enter_context(served(folder, kind, kind)) for kind in ("http", "stateless", "sse")}
        talks = {key: remote.get(kind) or Talk(folder / f"{key}.jsonl", key) for key, (kind, _) in SERVERS.items()}
        servers = {key: talks[key].entry(era=era) for key, (_, era) in SERVERS.items()}
        config = write_config(folder / "skills.yaml", servers, {key: skill(key) for key in servers})
        proxy = stack.enter_context(http_proxy(config))
        yield World(proxy, talks, config)


async def client(raw: Raw, url: str, revision: str) -> Send:
    """A client that speaks just this revision, by hand: sends a request and returns the result."""
    if revision == MODERN:

        async def modern(method: str, params: Json) -> Json:
            return (await raw.modern(url, method, params)).reply["result"]

        return modern
    params = {"protocolVersion": revision, "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}
    opened = await raw.post(url, "initialize", params)
    assert opened.reply["result"]["protocolVersion"] == revision
    headers = {"Mcp-Session-Id": opened.headers["mcp-session-id"]}
    if revision >= "2025-06-18":  # which has brought the header
        headers["MCP-Protocol-Version"] = revision
    told = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    assert (await raw.send("POST", url, headers=headers, body=told)).status == 202

    async def handshake(method: str, params: Json) -> Json:
        return (await raw.post(url, method, params, headers)).reply["result"]

    return handshake


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("revision", REVISIONS)
async def test_lists_and_calls(world: World, raw: Raw, namespace: str, revision: str, server: str) -> None:
    """Everything is there, and what one era adds to results or requests stays out of the other."""
    send = await client(raw, world.proxy.namespace(namespace), revision)
    activated = await send("tools/call", {"name": "SKILL", "arguments": {"action": "activate", "skill_name": server}})
    assert not_ready(activated) == {}
    assert f"{server}__echo" in tools_told(activated)
    results = {
        method: await send(method, {})
        for method in ("tools/list", "resources/list", "resources/templates/list", "prompts/list")
    }
    assert f"{server}__echo" in [tool["name"] for tool in results["tools/list"]["tools"]]
    resources = of_servers(results["resources/list"]["resources"])
    assert [resource["uri"] for resource in resources] == ["memo://one", "memo://two"]
    assert results["resources/templates/list"]["resourceTemplates"][0]["uriTemplate"] == "memo://{kind}/{key}"
    assert f"{server}__greet" in [prompt["name"] for prompt in results["prompts/list"]["prompts"]]
    call = {"name": f"{server}__echo", "arguments": {"marker": namespace}}
    results["tools/call"] = await send("tools/call", call)
    assert results["tools/call"]["structuredContent"]["arguments"] == {"marker": namespace}
    results["resources/read"] = await send("resources/read", {"uri": "memo://one"})
    assert results["resources/read"]["contents"][0]["text"] == f"{world.talks[server].name} read"
    results["prompts/get"] = await send("prompts/get", {"name": f"{server}__greet"})
    assert results["prompts/get"]["messages"][0]["content"]["text"] == f"{world.talks[server].name} got"
    for method, result in results.items():
        check_envelope(revision, method, result)
    (sent,) = world.talks[server].of("tools/call", namespace)
    own = {key for key in sent["params"].get("_meta", {}) if key.startswith(ENVELOPE)}
    assert bool(own) is (sent["era"] == "modern")
    assert sent["era"] == SERVERS[server][1].replace("auto", "modern")


def check_envelope(revision: str, method: str, result: Json) -> None:
    extras = {"resultType", "ttlMs", "cacheScope"} & set(result)
    stamp = [key for key in result.get("_meta", {}) if key.startswith(ENVELOPE)]
    if revision != MODERN:
        assert (extras, stamp) == (set(), []), method
        return
    assert result["resultType"] == "complete"
    assert result["_meta"][f"{ENVELOPE}serverInfo"]["name"] == "mcp-skill-proxy"
    if method in {"tools/call", "prompts/get"}:
        assert extras == {"resultType"}, method
    else:
        assert (result["ttlMs"], result["cacheScope"]) == (0, "private"), method


@pytest.mark.parametrize("mode", ["legacy", MODERN])
async def test_lists_and_calls_over_stdio(world: World, mode: str) -> None:
    async with connected(stdio_program(world.config), mode) as peer:
        for server in SERVERS:
            await peer.skill("activate", server)
        listed = await peer.tools()
        for server in SERVERS:
            assert f"{server}__echo" in listed
            answer: Any = await peer.call(f"{server}__echo", {"marker": mode})
            assert answer["structuredContent"]["arguments"] == {"marker": mode}
