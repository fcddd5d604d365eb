"""A request that its client gives up is cancelled at the server, under the server's own number for it."""

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.conftest import ERAS, Json, Peer, Raw, connected, stdio_program
from tests.relay.conftest import World
from tests.relay.talk import SERVER_ERAS, Talk, until

pytestmark = pytest.mark.anyio

SERVERS = (*SERVER_ERAS, *(f"shared-{era}" for era in SERVER_ERAS))


@pytest.fixture
def world(own_world: World) -> World:
    return own_world


def waiting(server: str, kind: str, key: str) -> tuple[str, Json]:
    """A request that the server answers when `release` is called with this key."""
    return {
        "tool": ("tools/call", {"name": f"{server}__wait", "arguments": {"key": key}}),
        "resource": ("resources/read", {"uri": f"memo://wait/{key}"}),
        "prompt": ("prompts/get", {"name": f"{server}__wait", "arguments": {"key": key}}),
    }[kind]


def cancelled(talk: Talk, call: Json) -> bool:
    """Whether the server knows that this request is cancelled, and by its own number."""
    same = [
        gone for gone in talk.received("gone") if (gone["id"], gone["connection"]) == (call["id"], call["connection"])
    ]
    told = [entry["params"]["requestId"] for entry in talk.received("notifications/cancelled")]
    http = talk.url is not None and call["era"] == "modern"  # there the closing of the stream says it
    return bool(same) and (http or call["id"] in told)


async def give_up(peer: Peer, talk: Talk, method: str, params: Json, key: str) -> Json:
    """Send a request as `mine`, give it up once the server has it, and wait until the server knows; what it got."""
    async with anyio.create_task_group() as tasks:

        async def send() -> None:
            await peer.request(method, params, request_id="mine")

        tasks.start_soon(send)
        await until(lambda: talk.of(method, key))
        tasks.cancel_scope.cancel()
    (call,) = talk.of(method, key)
    await until(lambda: cancelled(talk, call))
    return call


@pytest.mark.parametrize("kind", ["tool", "resource", "prompt"])
@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("mode", ERAS)
async def test_request_over_http(world: World, namespace: str, mode: str, server: str, kind: str) -> None:
    """By a notification in the handshake era, by the closing of its stream in the modern one."""
    async with connected(world.proxy.namespace(namespace), mode) as peer:
        await peer.skill("activate", server)
        await give_up(peer, world.talks[server], *waiting(server, kind, namespace), namespace)
        await no_result(peer, server, namespace)


@pytest.mark.parametrize("mode", ERAS)
async def test_request_over_stdio(stdio_config: tuple[Path, dict[str, Talk]], namespace: str, mode: str) -> None:
    config, talks = stdio_config
    async with connected(stdio_program(config), mode) as peer:
        for server in SERVER_ERAS:
            for kind in ("tool", "resource", "prompt"):
                if (server, kind) == ("modern", "resource"):
                    continue  # both servers have it: it is read at the first
                key = f"{kind}-{namespace}-{server}"
                await give_up(peer, talks[server], *waiting(server, kind, key), key)
                await no_result(peer, server, key)
                assert not [message for message in peer.wire.messages if message.get("id") == "mine"]


async def no_result(peer: Peer, server: str, key: str) -> None:
    """The server may end what was cancelled; no result comes to it, and others do.

    Over HTTP the stream of a cancelled handshake-era request ends with an error that says so.
    """
    await peer.call(f"{server}__release", {"key": key})
    assert (await peer.call(f"{server}__echo", {"marker": key}))["structuredContent"]["arguments"] == {"marker": key}
    ended = [message for message in peer.wire.messages if message.get("id") == "mine"]
    assert [message["error"]["code"] for message in ended] in ([], [-32800])


@pytest.mark.parametrize("server", SERVERS)
async def test_notification_by_hand(world: World, raw: Raw, namespace: str, server: str) -> None:
    """Over HTTP the request's stream ends without an answer."""
    url, talk = world.proxy.namespace(namespace), world.talks[server]
    headers = await raw.open(url)
    await raw.skill(url, headers, "activate", server)
    method, params = waiting(server, "tool", namespace)
    answers: list[Any] = []

    async def send() -> None:
        body = {"jsonrpc": "2.0", "id": "by-hand", "method": method, "params": params}
        answers.append(await raw.send("POST", url, headers=headers, body=body))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(send)
        await until(lambda: talk.of(method, namespace))
        notice = {"method": "notifications/cancelled", "params": {"requestId": "by-hand", "reason": "no more"}}
        told = await raw.send("POST", url, headers=headers, body={"jsonrpc": "2.0", **notice})
        assert told.status == 202
        (call,) = talk.of(method, namespace)
        await until(lambda: cancelled(talk, call))
        await until(lambda: answers)
    assert not [message for message in answers[0].messages if "result" in message], answers


@pytest.mark.parametrize("server", SERVERS)
async def test_unknown_number(world: World, raw: Raw, namespace: str, server: str) -> None:
    """A cancellation of what is not in work is ignored; also one with the server's number for another client's call."""
    url, talk = world.proxy.namespace(namespace), world.talks[server]
    headers = await raw.open(url)
    await raw.skill(url, headers, "activate", server)
    async with connected(world.proxy.namespace(f"{namespace}-other"), "legacy") as other:
        await other.skill("activate", server)
        answers: list[Json] = []

        async def run() -> None:
            answers.append(await other.call(f"{server}__wait", {"key": namespace}))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await until(lambda: talk.of("tools/call", namespace))
            (call,) = talk.of("tools/call", namespace)
            for number in (call["id"], 99_999, "nothing", 1):
                notice = {"method": "notifications/cancelled", "params": {"requestId": number}}
                told = await raw.send("POST", url, headers=headers, body={"jsonrpc": "2.0", **notice})
                assert told.status == 202
            params = {"name": f"{server}__release", "arguments": {"key": namespace}}
            assert "result" in (await raw.post(url, "tools/call", params, headers)).reply
        assert answers[0]["structuredContent"]["tool"] == "wait"


@pytest.mark.parametrize("server", SERVERS)
async def test_closing_of_a_modern_stream_by_hand(world: World, raw: Raw, namespace: str, server: str) -> None:
    url, talk = world.proxy.namespace(namespace), world.talks[server]
    await raw.modern(url, "tools/call", {"name": "SKILL", "arguments": {"action": "activate", "skill_name": server}})
    method, params = waiting(server, "tool", namespace)

    async def send() -> None:
        await raw.modern(url, method, params)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(send)
        await until(lambda: talk.of(method, namespace))
        tasks.cancel_scope.cancel()
    (call,) = talk.of(method, namespace)
    await until(lambda: cancelled(talk, call))
    assert "result" in (await raw.modern(url, "tools/list")).reply


@pytest.mark.parametrize("server", SERVERS)
async def test_result_that_crosses_the_cancellation(world: World, namespace: str, server: str) -> None:
    """A cancellation of what is done already does no harm."""
    async with connected(world.proxy.namespace(namespace), "legacy") as peer:
        await peer.skill("activate", server)
        await peer.request("tools/call", {"name": f"{server}__echo", "arguments": {}}, request_id="done")
        session = peer.client.session
        await session._dispatcher.notify("notifications/cancelled", {"requestId": "done"})
        assert json.dumps((await peer.call(f"{server}__echo"))["structuredContent"]["tool"]) == '"echo"'
