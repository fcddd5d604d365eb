"""Completions come from the server of the prompt or resource, under the server's own names."""

import pytest
from mcp import MCPError

from tests.conftest import ERAS, Json, Peer, connected
from tests.relay.conftest import World
from tests.relay.talk import SERVER_ERAS

pytestmark = pytest.mark.anyio

SERVERS = (*SERVER_ERAS, *(f"shared-{era}" for era in SERVER_ERAS))
TEMPLATE = "memo://{kind}/{key}"


def prompt(name: str) -> Json:
    return {"type": "ref/prompt", "name": name}


def resource(uri: str) -> Json:
    return {"type": "ref/resource", "uri": uri}


async def complete(peer: Peer, ref: Json, marker: str = "pa") -> list[str]:
    argument = {"name": "who", "value": marker}
    return (await peer.request("completion/complete", {"ref": ref, "argument": argument}))["completion"]["values"]


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("mode", ERAS)
async def test_completions_over_http(world: World, namespace: str, mode: str, server: str) -> None:
    """Of a prompt the server is asked under its own name for it; of a template and a resource as they stand."""
    async with connected(world.proxy.namespace(namespace), mode) as peer:
        await peer.skill("activate", server)
        name = world.talks[server].name
        assert await complete(peer, prompt(f"{server}__greet"), namespace) == [name, "greet", namespace]
        for uri in (TEMPLATE, "memo://one"):
            assert await complete(peer, resource(uri), namespace) == [name, uri, namespace]
        assert len(world.talks[server].of("completion/complete", namespace)) == 3


@pytest.mark.parametrize("mode", ERAS)
async def test_what_is_unknown(world: World, namespace: str, mode: str) -> None:
    """-32602, without a word to the server: by its own name, of a skill that is not active, or not at all there."""
    async with connected(world.proxy.namespace(namespace), mode) as peer:
        await peer.skill("activate", "handshake")
        refs = [prompt("greet"), prompt("modern__greet"), prompt("no-such"), prompt("handshake__no-such")]
        refs += [resource("memo://{other}"), resource("file:///etc/passwd")]
        for ref in refs:
            with pytest.raises(MCPError) as raised:
                await complete(peer, ref, namespace)
            assert raised.value.error.code == -32602
        await peer.skill("offload", "handshake")
        for ref in (prompt("handshake__greet"), resource(TEMPLATE)):
            with pytest.raises(MCPError) as raised:
                await complete(peer, ref, namespace)
            assert raised.value.error.code == -32602
    assert not [talk for talk in world.talks.values() if talk.of("completion/complete", namespace)]


@pytest.mark.parametrize("mode", ERAS)
async def test_server_without_completions(world: World, namespace: str, mode: str) -> None:
    """No values, and no error: the client was told that there are completions."""
    async with connected(world.proxy.namespace(namespace), mode) as peer:
        await peer.skill("activate", "bare")
        assert await complete(peer, prompt("bare__greet")) == []
        assert await complete(peer, resource(TEMPLATE)) == []
