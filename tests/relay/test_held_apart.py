"""What one scope, server or request is denied, or waits for, is no matter of any other."""

import json
import os
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp import MCPError

from proxy.app import Running, running
from proxy.config.load import load
from tests.conftest import (
    ERAS,
    MODERN,
    PATIENCE,
    ROOT,
    HttpProxy,
    Json,
    Launch,
    Peer,
    Raw,
    connected,
    http_proxy,
    text_of,
    write_config,
)
from tests.relay.conftest import World
from tests.relay.talk import Talk, User, answering, form, skill
from tests.servers.picky import REFUSAL

pytestmark = pytest.mark.anyio

UPDATED = "notifications/resources/updated"


# --- scopes beyond the limit -----------------------------------------------------------------------------------------


def started(proxy: HttpProxy) -> list[str]:
    """The scopes for which the proxy says that it has begun to start a server of their own."""
    lines = [json.loads(line) for line in proxy.log.read_text(encoding="utf-8").splitlines() if line.startswith("{")]
    return [line["scope"] for line in lines if line.get("event") == "server.starting"]


@pytest.mark.parametrize("mode", ERAS)
async def test_a_scope_that_is_refused_starts_no_server(tmp_path: Path, launch: Launch, mode: str) -> None:
    """Not for any name, however often it comes back, though the skill is active from the start."""
    talk = Talk(tmp_path / "log.jsonl", "up")
    servers = {"up": talk.entry(isolation="scope")}
    active = {"s": skill("up") | {"active": True}}
    proxy = launch(write_config(tmp_path / "skills.yaml", servers, active, proxy={"max_scopes": 1}))
    async with connected(proxy.namespace("let-in"), mode) as peer:
        await peer.call("up__echo")
        for name in ("late", "later", "late"):
            with pytest.raises(MCPError, match="max_scopes"):
                async with connected(proxy.namespace(name), mode) as refused:
                    await refused.tools()
        await peer.call("up__echo")
        assert started(proxy) == ["namespace let-in"]
    assert len({entry["connection"] for entry in talk.received() if "connection" in entry}) == 1


@asynccontextmanager
async def in_process(config: Path) -> AsyncGenerator[tuple[Running, Raw]]:
    """A proxy in this process, and requests to it over HTTP without a socket."""
    async with running(load(config, os.environ), None) as proxy:
        app = proxy.http("127.0.0.1")
        async with (
            app.router.lifespan_context(app),
            httpx2.AsyncClient(transport=httpx2.ASGITransport(app), timeout=PATIENCE) as http,
        ):
            yield proxy, Raw(http)


@pytest.mark.parametrize("method", ["server/discover", "tools/list"])
async def test_names_without_state_leave_nothing_behind(tmp_path: Path, method: str) -> None:
    """Neither those that were only asked about nor those that were refused; the one with state is remembered."""
    config = write_config(
        tmp_path / "skills.yaml",
        {"up": Talk(tmp_path / "log.jsonl", "up").entry()},
        {"s": skill("up")},
        proxy={"max_scopes": 1},
    )
    async with in_process(config) as (proxy, raw):
        base = "http://127.0.0.1/mcp"
        assert "result" in (await raw.modern(f"{base}/kept", "tools/list")).reply
        for number in range(20):
            answer = await raw.modern(f"{base}/passing-{number}", method)
            assert ("result" in answer.reply) == (method == "server/discover"), answer
        assert {scope.name for scope in proxy.clients._declared} == {"kept"}
        assert {scope.name for scope in proxy.lifetimes._last_used} == {"kept"}
        assert not proxy.lifetimes._in_use
        assert {scope.name for scope in await proxy.gate.store.scopes()} == {"kept"}


# --- subscriptions at several servers --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Place:
    """A proxy with three shared servers, each with a skill of its name."""

    proxy: HttpProxy
    talks: dict[str, Talk]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Generator[Place]:
    folder = tmp_path_factory.mktemp("apart")
    talks = {key: Talk(folder / f"{key}.jsonl", key) for key in ("picky", "unsubscribable", "healthy")}

    def picky(key: str, *options: str) -> Json:
        arguments = ["-m", "tests.servers.picky", "--log", str(talks[key].log), "--name", key, *options]
        return {"command": sys.executable, "args": arguments, "cwd": str(ROOT), "era": "handshake"}

    servers = {
        "picky": picky("picky"),
        "unsubscribable": picky("unsubscribable", "--unsubscribable"),
        "healthy": talks["healthy"].entry(era="handshake"),
    }
    config = write_config(folder / "skills.yaml", servers, {key: skill(key) for key in servers})
    with http_proxy(config) as proxy:
        yield Place(proxy, talks)


def heard(peer: Peer) -> list[str]:
    """The resources of the updates that came."""
    return [message["params"]["uri"] for message in peer.wire.messages if message.get("method") == UPDATED]


async def until_heard(peer: Peer, uri: str) -> None:
    await peer.wire.until(lambda: uri in heard(peer))


async def ready(stack: AsyncExitStack, place: Place, name: str, mode: str, server: str) -> Peer:
    """A client with the skill of this server."""
    peer = await stack.enter_async_context(connected(place.proxy.namespace(name), mode))
    await peer.skill("activate", server)
    return peer


async def subscribe(peer: Peer, uri: str) -> None:
    assert set(await peer.request("resources/subscribe", {"uri": uri})) <= {"_meta"}


async def test_a_wish_that_stays_refused_costs_no_other(place: Place, namespace: str) -> None:
    """A modern client listens on: its good resource is subscribed all the same, and so are those of others.

    The server's own words reach who asks for what it refuses, and nobody else.
    """
    refused, good = f"memo://refused/{namespace}", f"memo://seen/{namespace}"
    later = f"memo://seen/later-{namespace}"
    async with AsyncExitStack() as stack:
        listening = await ready(stack, place, f"{namespace}-1", MODERN, "picky")
        same = await ready(stack, place, f"{namespace}-2", "legacy", "picky")
        other = await ready(stack, place, f"{namespace}-3", "legacy", "healthy")
        await stack.enter_async_context(listening.client.listen(resource_subscriptions=[refused, good]))
        for peer in (same, other):
            await subscribe(peer, later)
        with pytest.raises(MCPError, match=REFUSAL):
            await subscribe(same, refused)
        await same.call("picky__update", {"uri": good})
        await until_heard(listening, good)
        for uri in (refused, later):
            await same.call("picky__update", {"uri": uri})
        await other.call("healthy__update", {"uri": later})
        for peer in (same, other):
            await until_heard(peer, later)
            assert heard(peer) == [later]
    asked = [entry["params"]["uri"] for entry in place.talks["picky"].of("resources/subscribe", namespace)]
    assert set(asked) == {refused, good, later}


@pytest.mark.parametrize("mode", ERAS)
async def test_a_server_that_cannot_be_subscribed_to(place: Place, namespace: str, mode: str) -> None:
    """It is not asked, its client gets no error, and another scope's subscription elsewhere works."""
    uri = f"memo://a/{namespace}"
    async with AsyncExitStack() as stack:
        one = await ready(stack, place, f"{namespace}-1", mode, "unsubscribable")
        other = await ready(stack, place, f"{namespace}-2", "legacy", "healthy")
        if one.handshake:
            await subscribe(one, uri)
        else:
            await stack.enter_async_context(one.client.listen(resource_subscriptions=[uri]))
        await subscribe(other, uri)
        await other.call("healthy__update", {"uri": uri})
        await until_heard(other, uri)
        await one.call("unsubscribable__echo")
        assert heard(one) == []
    assert place.talks["unsubscribable"].of("resources/subscribe") == []


@pytest.mark.parametrize("mode", ERAS)
async def test_a_server_that_never_answers_holds_up_nobody(place: Place, namespace: str, mode: str) -> None:
    """Neither subscriptions at another server nor notices of changed lists, of one change after the other."""
    ignored, uri = f"memo://ignored/{namespace}", f"memo://b/{namespace}"
    async with AsyncExitStack() as stack:
        waiting = await ready(stack, place, f"{namespace}-1", "legacy", "picky")
        other = await ready(stack, place, f"{namespace}-2", mode, "healthy")
        await stack.enter_async_context(other.hearing())
        tasks = await stack.enter_async_context(anyio.create_task_group())
        tasks.start_soon(subscribe, waiting, ignored)
        await place.talks["picky"].until_received("resources/subscribe", ignored)
        if other.handshake:
            await subscribe(other, uri)
        else:
            await stack.enter_async_context(other.client.listen(resource_subscriptions=[uri]))
        await other.call("healthy__update", {"uri": uri})
        await until_heard(other, uri)
        for number in range(3):
            before = other.wire.notices()
            name = f"new-{number}-{mode}"
            await other.call("healthy__change", {"add": [name]})
            await other.wire.until_notices(before + 1)
            assert f"healthy__{name}" in await other.tools()
        tasks.cancel_scope.cancel()


# --- questions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("server", ["modern", "shared-modern", "own-modern"])
async def test_what_was_offloaded_while_the_user_thought_is_not_sent(world: World, namespace: str, server: str) -> None:
    """The answer to the server's question would go with a second call, which the session has no right to any more."""
    user = User(hold=anyio.Event())
    results: list[Json] = []
    arguments: dict[str, Any] = {"rounds": [{"k": form("Shall I?")}], "marker": namespace}
    async with answering(world.proxy.namespace(namespace), "legacy", user) as peer:
        await peer.skill("activate", server)

        async def call() -> None:
            results.append(await peer.call(f"{server}__ask", arguments))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await user.until_asked()
            await peer.skill("offload", server)
            assert not results
            assert user.hold is not None
            user.hold.set()
        (result,) = results
        assert result.get("isError")
        assert f"{server}__ask was offloaded" in text_of(result)
    assert len(world.talks[server].of("tools/call", namespace)) == 1
