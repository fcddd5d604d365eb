"""What a client sends to the proxy stays there: which headers of its requests reach which server."""

from pathlib import Path
from typing import Any

import pytest
from mcp_types import HEADER_MISMATCH

from tests.conftest import MODERN, Launch, Raw, connected, text_of, write_config
from tests.face.heard import server

pytestmark = pytest.mark.anyio

CLIENTS_OWN = {"Cookie": "client-cookie", "X-Api-Key": "client-key", "X-User-Token": "user-token"}
TOKEN = "proxy-token"


def config(folder: Path, servers: dict[str, Any], **proxy: Any) -> Path:
    skills = {key: {"usage": "u", "tool_list": {key: []}} for key in servers}
    return write_config(folder / "skills.yaml", servers, skills, proxy=proxy)


@pytest.mark.parametrize("mode", ["legacy", MODERN])
async def test_no_header_of_a_client_reaches_a_server_that_did_not_ask(
    tmp_path: Path, launch: Launch, mode: str, namespace: str
) -> None:
    """Neither its token for the proxy, nor its cookie, nor its keys; a server gets its own headers alone."""
    async with server(tmp_path, "own") as own, server(tmp_path, "bare") as bare:
        servers = {"own": {"url": own.url, "headers": {"Authorization": "Bearer own", "X-Own": "1"}}}
        servers["bare"] = {"url": bare.url}
        proxy = launch(config(tmp_path, servers, tokens={"alice": TOKEN}))
        async with connected(proxy.namespace(namespace), mode, token=TOKEN, headers=CLIENTS_OWN) as peer:
            for key in servers:
                await peer.skill("activate", key)
                assert not (await peer.call(f"{key}__echo", {"a": 1})).get("isError")
        assert own.values("authorization") == {"Bearer own"}
        assert own.values("x-own") == {"1"}
        assert len(own.requests) == sum("x-own" in headers for headers in own.requests)
        assert not {"authorization", "x-own"} & bare.names()
        for heard in (own, bare):
            assert heard.requests
            assert not {"cookie", "x-api-key", "x-user-token"} & heard.names()
            told = str(heard.requests)
            assert not [value for value in (TOKEN, *CLIENTS_OWN.values()) if value in told]


async def test_nothing_is_sent_where_a_server_redirects_to(tmp_path: Path, launch: Launch, raw: Raw) -> None:
    """Another host is not what was configured: the server does not start, and its headers stay here."""
    async with (
        server(tmp_path, "target") as target,
        server(tmp_path, "leading", leading_to=target.url.replace("127.0.0.1", "localhost")) as leading,
    ):
        servers = {"up": {"url": leading.url, "headers": {"Authorization": "Bearer own"}}}
        proxy = launch(config(tmp_path, servers))
        result = await raw.skill(proxy.url, await raw.open(proxy.url), "activate", "up")
        assert "server up failed" in text_of(result)
        assert "not followed" in text_of(result)
        assert leading.values("authorization") == {"Bearer own"}
        assert not target.requests


async def test_a_name_in_a_header_is_the_one_that_clients_see(tmp_path: Path, launch: Launch, raw: Raw) -> None:
    """In 2026-07-28: one that differs from the body is refused, and the server hears its own name for the tool."""
    async with server(tmp_path, "up") as up:
        proxy = launch(config(tmp_path, {"up": {"url": up.url}}))
        url = proxy.namespace("names")
        skill = {"name": "SKILL", "arguments": {"action": "activate", "skill_name": "up"}}
        assert not (await raw.modern(url, "tools/call", skill)).reply["result"].get("isError")
        call = {"name": "up__echo", "arguments": {}}
        assert "result" in (await raw.modern(url, "tools/call", call)).reply
        assert up.values("mcp-name") == {"echo"}
        envelope = {
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        sent = {"MCP-Protocol-Version": MODERN, "Mcp-Method": "tools/call", "Mcp-Name": "echo"}
        refused = await raw.post(url, "tools/call", {**call, "_meta": envelope}, sent)
        assert (refused.status, refused.reply["error"]["code"]) == (400, HEADER_MISMATCH)


@pytest.mark.parametrize("mode", ["legacy", MODERN])
async def test_a_declared_header_reaches_its_server_with_each_clients_own_value(
    tmp_path: Path, launch: Launch, mode: str
) -> None:
    """On a connection that both share, the one who sends none included; another server gets nothing."""
    async with server(tmp_path, "up") as up, server(tmp_path, "other") as other:
        servers = {"up": {"url": up.url, "pass_headers": ["X-User-Token"]}, "other": {"url": other.url}}
        proxy = launch(config(tmp_path, servers))
        for name, token in (("a", "token-a"), ("b", "token-b"), ("c", None)):
            headers = {"X-Api-Key": "k", **({"X-User-Token": token} if token else {})}
            async with connected(proxy.namespace(f"{mode}-{name}"), mode, headers=headers) as peer:
                await peer.skill("activate", "up")
                await peer.skill("activate", "other")
                before = len(up.requests)
                await peer.call("up__echo", {})
                calls = [heard.get("x-user-token") for heard in up.requests[before:] if "content-type" in heard]
                assert calls == [token]
                await peer.call("other__echo", {})
        assert "x-user-token" not in other.names()
        assert "x-api-key" not in up.names() | other.names()
