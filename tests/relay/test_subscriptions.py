"""Who subscribes to a resource hears of its updates, for as long as it may read it; nobody else does."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from mcp import MCPError
from mcp.shared.subscriptions import SUBSCRIPTION_ID_META_KEY

from tests.conftest import ERAS, MODERN, Peer, connected, stdio_program
from tests.relay.conftest import World
from tests.relay.talk import SERVER_ERAS, Talk, until

pytestmark = pytest.mark.anyio

SERVERS = (*SERVER_ERAS, *(f"shared-{era}" for era in SERVER_ERAS))
UPDATED = "notifications/resources/updated"


def heard(peer: Peer) -> list[str]:
    """The resources of the updates that came, which carry nothing that belongs to the server's hop."""
    updates = [message["params"] for message in peer.wire.messages if message.get("method") == UPDATED]
    if peer.handshake:
        assert [update for update in updates if SUBSCRIPTION_ID_META_KEY in update.get("_meta", {})] == []
    return [update["uri"] for update in updates]


@asynccontextmanager
async def subscribed(peer: Peer, *uris: str) -> AsyncGenerator[None]:
    """Subscribed to these inside."""
    if not peer.handshake:
        async with peer.client.listen(resource_subscriptions=uris):
            yield
        return
    for uri in uris:
        assert set(await peer.request("resources/subscribe", {"uri": uri})) <= {"_meta"}
    yield
    for uri in uris:
        assert set(await peer.request("resources/unsubscribe", {"uri": uri})) <= {"_meta"}


class Watched:
    """What a server was asked of one resource."""

    def __init__(self, talk: Talk, uri: str) -> None:
        self._talk = talk
        self._uri = uri

    def asked(self) -> list[str]:
        """`+` for each subscription or listen stream, `-` for each end of one."""
        done: list[str] = []
        listening: set[str] = set()
        for entry in self._talk.received():
            before = bool(listening)
            if entry["method"] == "resources/subscribe" and entry["params"]["uri"] == self._uri:
                done.append("+")
            if entry["method"] == "resources/unsubscribe" and entry["params"]["uri"] == self._uri:
                done.append("-")
            if entry["method"] == "gone":
                listening.discard(entry["id"])
            if entry["method"] == "subscriptions/listen" and self._uri in str(entry["params"]["notifications"]):
                listening.add(entry["id"])
            if before != bool(listening):
                done.append("-" if before else "+")
        return done


async def update(peer: Peer, server: str, *uris: str) -> None:
    for uri in uris:
        await peer.call(f"{server}__update", {"uri": uri})


async def until_heard(peer: Peer, uri: str, times: int = 1) -> None:
    await peer.wire.until(lambda: heard(peer).count(uri) >= times)


async def ready(stack: AsyncExitStack, world: World, place: str, mode: str, *skills: str) -> Peer:
    """A client with these skills active."""
    peer = await stack.enter_async_context(connected(world.proxy.namespace(place), mode))
    for one in skills:
        await peer.skill("activate", one)
    return peer


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("mode", ERAS)
async def test_subscribers_alone_hear_of_updates(world: World, namespace: str, mode: str, server: str) -> None:
    """Not another session with the same skill, not of another resource, and not after the end of the subscription."""
    uri, sign = f"memo://note/{namespace}", f"memo://sign/{namespace}"
    async with AsyncExitStack() as stack:
        peer = await ready(stack, world, f"{namespace}-a", mode, server)
        others = [await ready(stack, world, f"{namespace}-{n}", one, server) for n, one in enumerate(ERAS)]
        for other in others:
            await stack.enter_async_context(subscribed(other, sign))
        async with subscribed(peer, uri):
            await update(peer, server, uri)
            await until_heard(peer, uri)
            await update(peer, server, sign)
            for other in others:
                await until_heard(other, sign)
        for other in others:
            assert heard(other) == [sign]
        assert heard(peer) == [uri]
        await until(lambda: Watched(world.talks[server], uri).asked() == ["+", "-"])
        await update(peer, server, uri, sign)
        for other in others:
            await until_heard(other, sign, 2)
        await peer.tools()
        assert heard(peer) == [uri]


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("modes", [("legacy", "legacy"), (MODERN, MODERN), ("legacy", MODERN), (MODERN, "legacy")])
@pytest.mark.parametrize("leaving", ["unsubscribing", "gone"])
async def test_server_is_asked_once_and_told_when_the_last_leaves(
    world: World, namespace: str, modes: tuple[str, str], server: str, leaving: str
) -> None:
    """Two subscribers are one subscription at the server; it ends with the second, also when the session just ends."""
    uri = f"memo://note/{namespace}"
    watched = Watched(world.talks[server], uri)
    async with AsyncExitStack() as stack:
        publisher = await ready(stack, world, f"{namespace}-p", "legacy", server)
        ends: list[AsyncExitStack] = []
        peers: list[Peer] = []
        for number, mode in enumerate(modes):
            ends.append(await stack.enter_async_context(AsyncExitStack()))
            peers.append(await ready(ends[-1], world, f"{namespace}-{number}", mode, server))
            if leaving == "unsubscribing" or mode == MODERN:
                await ends[-1].enter_async_context(subscribed(peers[-1], uri))
            else:
                await peers[-1].request("resources/subscribe", {"uri": uri})
        await update(publisher, server, uri)
        for peer in peers:
            await until_heard(peer, uri)
        assert watched.asked() == ["+"]
        await ends[1].aclose()
        await update(publisher, server, uri)
        await until_heard(peers[0], uri, 2)
        assert watched.asked() == ["+"]
        await ends[0].aclose()
        await until(lambda: watched.asked() == ["+", "-"])


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("mode", ERAS)
async def test_no_updates_while_the_skill_is_not_active(world: World, namespace: str, mode: str, server: str) -> None:
    """The server is told too; activated anew, the subscription holds again."""
    uri, sign = f"memo://note/{namespace}", f"memo://sign/{namespace}"
    watched = Watched(world.talks[server], uri)
    async with AsyncExitStack() as stack:
        other = await ready(stack, world, f"{namespace}-other", "legacy", server)
        peer = await ready(stack, world, namespace, mode, server)
        await stack.enter_async_context(subscribed(other, sign))
        await stack.enter_async_context(subscribed(peer, uri))
        await until(lambda: watched.asked() == ["+"])
        await peer.skill("offload", server)
        await until(lambda: watched.asked() == ["+", "-"])
        await update(other, server, uri, sign)
        await until_heard(other, sign)
        assert heard(peer) == []
        await peer.skill("activate", server)
        await until(lambda: watched.asked() == ["+", "-", "+"])
        await update(other, server, uri)
        await until_heard(peer, uri)
        assert heard(peer) == [uri]


@pytest.mark.parametrize("mode", ERAS)
async def test_subscriptions_over_stdio(stdio_config: tuple[Path, dict[str, Talk]], namespace: str, mode: str) -> None:
    """The first of two servers with the same template is the one that is asked."""
    config, talks = stdio_config
    uri = f"memo://note/{namespace}"
    async with connected(stdio_program(config), mode) as peer:
        await peer.tools()
        async with subscribed(peer, uri):
            await update(peer, "handshake", uri)
            await until_heard(peer, uri)
        await until(lambda: Watched(talks["handshake"], uri).asked() == ["+", "-"])
        assert Watched(talks["modern"], uri).asked() == []


@pytest.mark.parametrize("era", SERVER_ERAS)
@pytest.mark.parametrize("mode", ERAS)
async def test_subscriptions_at_a_connection_of_ones_own(world: World, namespace: str, mode: str, era: str) -> None:
    """Under `isolation: scope` a subscription is a matter of each scope's own connection."""
    uri, sign = f"memo://note/{namespace}", f"memo://sign/{namespace}"
    server = f"own-{era}"
    async with AsyncExitStack() as stack:
        one = await ready(stack, world, f"{namespace}-a", mode, server)
        two = await ready(stack, world, f"{namespace}-b", mode, server)
        await stack.enter_async_context(subscribed(one, uri))
        await stack.enter_async_context(subscribed(two, sign))
        await update(one, server, uri)
        await update(two, server, uri, sign)
        await until_heard(one, uri)
        await until_heard(two, sign)
        assert heard(two) == [sign]
        assert set(heard(one)) == {uri}


@pytest.mark.parametrize("server", SERVERS)
async def test_sub_resources(world: World, namespace: str, server: str) -> None:
    """A server may name a part of what was subscribed to; what only begins alike is another resource."""
    uri = f"memo://note/{namespace}"
    async with AsyncExitStack() as stack:
        peer = await ready(stack, world, namespace, "legacy", server)
        await stack.enter_async_context(subscribed(peer, uri))
        await update(peer, server, f"{uri}-2", uri)
        await until_heard(peer, uri)
        assert heard(peer) == [uri]
        if "handshake" in server:
            await update(peer, server, f"{uri}/part")
            await until_heard(peer, f"{uri}/part")


@pytest.mark.parametrize("mode", ["legacy"])
async def test_unknown_resource(world: World, namespace: str, mode: str) -> None:
    """Refused as reading it would be, and no server hears of it; so is one of a skill that is not active."""
    async with connected(world.proxy.namespace(namespace), mode) as peer:
        for uri in (f"memo://note/{namespace}", f"file:///{namespace}"):
            with pytest.raises(MCPError) as raised:
                await peer.request("resources/subscribe", {"uri": uri})
            assert raised.value.error.code == -32002
            assert await peer.request("resources/unsubscribe", {"uri": uri}) == {}
            await peer.skill("activate", "handshake")
            if uri.startswith("memo"):
                await peer.request("resources/subscribe", {"uri": uri})
                await peer.request("resources/unsubscribe", {"uri": uri})
                await peer.skill("offload", "handshake")
    every = [entry for entry in world.talks["handshake"].received("resources/subscribe") if namespace in str(entry)]
    assert len(every) == 1


async def test_listening_for_what_cannot_be_read_yet(world: World, namespace: str) -> None:
    """A modern client may listen before it activates the skill; from then on it hears."""
    uri = f"memo://note/{namespace}"
    watched = Watched(world.talks["handshake"], uri)
    async with AsyncExitStack() as stack:
        peer = await ready(stack, world, namespace, MODERN)
        await stack.enter_async_context(subscribed(peer, uri))
        assert watched.asked() == []
        await peer.skill("activate", "handshake")
        await until(lambda: watched.asked() == ["+"])
        await update(peer, "handshake", uri)
        await until_heard(peer, uri)


@pytest.mark.parametrize("server", SERVERS)
async def test_modern_streams_of_one_client(world: World, namespace: str, server: str) -> None:
    """Each of two streams has its own resources; one that ends takes only its own with it."""
    uris = [f"memo://note/{namespace}-{number}" for number in (1, 2)]
    async with AsyncExitStack() as stack:
        peer = await ready(stack, world, namespace, MODERN, server)
        await stack.enter_async_context(subscribed(peer, uris[0]))
        async with subscribed(peer, uris[1]):
            await update(peer, server, *uris)
            for uri in uris:
                await until_heard(peer, uri)
        await until(lambda: Watched(world.talks[server], uris[1]).asked() == ["+", "-"])
        await update(peer, server, *reversed(uris))
        await until_heard(peer, uris[0], 2)
        assert heard(peer).count(uris[1]) == 1  # of the other, one may come on the server's old stream and on its new
