"""Log messages reach the client whose call caused them, as severe as that client wants them."""

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from mcp import MCPError

from tests.conftest import ERAS, MODERN, ROOT, Json, Peer, Raw, connected, http_proxy, stdio_program, write_config
from tests.relay.conftest import World
from tests.relay.talk import LEVEL_KEY, SERVER_ERAS, Talk, skill, until
from tests.servers.talker import LEVELS

pytestmark = pytest.mark.anyio

LATE = ROOT / "tests" / "servers" / "late.py"
SERVERS = (*SERVER_ERAS, *(f"shared-{era}" for era in SERVER_ERAS), *(f"own-{era}" for era in SERVER_ERAS))


def notes(marker: str) -> list[Json]:
    """One message of each level."""
    return [{"level": level, "logger": "talker", "data": {"marker": marker, "n": 1.0}} for level in LEVELS]


def heard(peer: Peer) -> list[Json]:
    return [message["params"] for message in peer.wire.messages if message.get("method") == "notifications/message"]


def levels(peer: Peer) -> list[str]:
    return [message["level"] for message in heard(peer)]


async def wish(peer: Peer, level: str) -> Json:
    """Say which level is wanted from now on, where the era has that; the parameters of each request that say it."""
    if not peer.handshake:
        return {"_meta": {LEVEL_KEY: level}}
    await peer.request("logging/setLevel", {"level": level})
    return {}


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("mode", ERAS)
async def test_messages_as_severe_as_wanted(world: World, namespace: str, mode: str, server: str) -> None:
    """They come as the server wrote them, in order, before the result; the level may change at any time."""
    async with connected(world.proxy.namespace(namespace), mode) as peer:
        await peer.skill("activate", server)
        for level in ("debug", "warning", "emergency", "info"):
            peer.wire.messages.clear()
            wanted = await wish(peer, level)
            await until_level(world, server, peer, level)
            await peer.call(f"{server}__log", {"notes": notes(namespace)}, **wanted)
            assert heard(peer) == notes(namespace)[LEVELS.index(level) :]
            (result,) = peer.wire.where(lambda message: '"tool": "log"' in str(message.get("result")))
            assert peer.wire.where(lambda message: message.get("method") == "notifications/message")[-1] < result


async def until_level(world: World, server: str, peer: Peer, level: str) -> None:
    """The proxy passes a level on without waiting: wait until the server has it, or a lower one, on this connection."""
    if server.endswith("modern") or not peer.handshake:
        return
    connection = (await peer.call(f"{server}__echo"))["structuredContent"]["connection"]

    def has_it() -> bool:
        levels = told(world.talks[server], connection)
        return bool(levels) and LEVELS.index(levels[-1]) <= LEVELS.index(level)

    await until(has_it)


def told(talk: Talk, connection: str = "") -> list[str]:
    """The levels that a server was told, on one connection or all."""
    entries = talk.received("logging/setLevel")
    return [entry["params"]["level"] for entry in entries if connection in ("", entry["connection"])]


@pytest.mark.parametrize("mode", ERAS)
async def test_levels_over_stdio(stdio_config: tuple[Path, dict[str, Talk]], mode: str) -> None:
    config, talks = stdio_config
    before = len(told(talks["handshake"]))
    async with connected(stdio_program(config), mode) as peer:
        for server in SERVER_ERAS:
            await peer.call(f"{server}__echo")
        wanted = await wish(peer, "error")
        if mode != MODERN:
            await until(lambda: told(talks["handshake"])[before:])
        for server in SERVER_ERAS:
            await peer.call(f"{server}__log", {"notes": notes(server)}, **wanted)
        assert heard(peer) == [note for server in SERVER_ERAS for note in notes(server)[LEVELS.index("error") :]]
    assert told(talks["handshake"])[before:] == ["error"]


@pytest.mark.parametrize("server", SERVERS)
async def test_modern_client_that_did_not_ask(world: World, namespace: str, server: str) -> None:
    """It gets none: not for a call without a level, nor while another client of the server wants them."""
    async with (
        connected(world.proxy.namespace(f"{namespace}-a"), MODERN) as peer,
        connected(world.proxy.namespace(f"{namespace}-b"), "legacy") as other,
    ):
        for one in (peer, other):
            await one.skill("activate", server)
        await wish(other, "debug")
        await peer.call(f"{server}__log", {"notes": notes(namespace)})
        assert heard(peer) == []
        await peer.call(f"{server}__log", {"notes": notes(namespace)}, _meta={LEVEL_KEY: "alert"})
        assert levels(peer) == ["alert", "emergency"]


@pytest.mark.parametrize("server", SERVERS)
async def test_clients_with_different_levels(world: World, namespace: str, server: str) -> None:
    """On a shared server too each client has its own level, and hears of its own calls alone."""
    wanted = {"a": ("legacy", "info"), "b": ("legacy", "error"), "c": (MODERN, "debug"), "d": (MODERN, "critical")}
    peers: dict[str, Peer] = {}
    async with anyio.create_task_group() as tasks:
        done = anyio.Event()

        async def keep(name: str, mode: str) -> None:
            async with connected(world.proxy.namespace(f"{namespace}-{name}"), mode) as peer:
                await peer.skill("activate", server)
                peers[name] = peer
                await done.wait()

        for name, (mode, _) in wanted.items():
            tasks.start_soon(keep, name, mode)
        await until(lambda: len(peers) == len(wanted))
        params = {name: await wish(peers[name], level) for name, (_, level) in wanted.items()}
        await until_level(world, server, peers["a"], "info")
        for name, peer in peers.items():
            await peer.call(f"{server}__log", {"notes": notes(name)}, **params[name])
        for name, (_, level) in wanted.items():
            assert heard(peers[name]) == notes(name)[LEVELS.index(level) :], name
        done.set()


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("mode", ERAS)
async def test_nobody_hears_of_another_clients_call(world: World, namespace: str, mode: str, server: str) -> None:
    """While both have a call in work at a shared server, a client hears of its own or of none."""
    async with (
        connected(world.proxy.namespace(f"{namespace}-a"), mode) as one,
        connected(world.proxy.namespace(f"{namespace}-b"), mode) as two,
        anyio.create_task_group() as tasks,
    ):
        wanted: Json = {}
        for peer in (one, two):
            await peer.skill("activate", server)
            wanted = await wish(peer, "debug")
        tasks.start_soon(one.call, f"{server}__wait", {"key": namespace})
        await until(lambda: world.talks[server].of("tools/call", namespace))
        await two.call(f"{server}__log", {"notes": notes("two")}, **wanted)
        await two.call(f"{server}__release", {"key": namespace})
        assert heard(one) == []
        assert heard(two) in ([], notes("two"))


@asynccontextmanager
async def one_gave_up(folder: Path, limit: float) -> AsyncGenerator[Peer]:
    """A client of a shared server on stdio, at which another one has given up a call; its session goes on."""
    server = {"command": sys.executable, "args": [str(LATE)], "era": "handshake", "timeout": limit}
    with http_proxy(write_config(folder / "skills.yaml", {"late": server}, {"late": skill("late")})) as proxy:
        async with (
            connected(proxy.namespace("one"), "legacy") as one,
            connected(proxy.namespace("two"), "legacy") as two,
        ):
            for peer in (one, two):
                await peer.skill("activate", "late")
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(one.call, "late__keep", {"mark": str(folder / "kept")})
                await until((folder / "kept").exists)
                tasks.cancel_scope.cancel()
            yield two
            assert heard(one) == []


async def test_a_call_that_was_given_up_silences_its_server_until_its_late_answer(tmp_path: Path) -> None:
    """Until then nobody can tell whose message it is; afterwards it is that of who alone has a call there."""
    async with one_gave_up(tmp_path, limit=600) as two:
        await two.call("late__say", {"text": "a"})
        assert heard(two) == []
        await two.call("late__release")
        await two.call("late__say", {"text": "b"})
        assert [note["data"] for note in heard(two)] == ["b"]


async def test_a_call_that_was_given_up_silences_its_server_for_its_timeout(tmp_path: Path) -> None:
    """Also where the server never answers it; the session that gave it up lives on."""
    async with one_gave_up(tmp_path, limit=2) as two:
        with anyio.fail_after(30):
            while not heard(two):
                await two.call("late__say", {"text": "a"})


async def test_answer_to_set_level(world: World, raw: Raw, namespace: str) -> None:
    """`{}` exactly, with or without active skills; a level that does not exist is refused."""
    url = world.proxy.namespace(namespace)
    headers = await raw.open(url)
    for _ in range(2):
        for level in LEVELS:
            reply = (await raw.post(url, "logging/setLevel", {"level": level}, headers)).reply
            assert reply["result"] == {}
        await raw.skill(url, headers, "activate", "bare")
    refused = (await raw.post(url, "logging/setLevel", {"level": "loud"}, headers)).reply
    assert refused["error"]["code"] == -32602


async def test_server_without_logs(world: World, namespace: str) -> None:
    """It is not told any level, and works on."""
    async with connected(world.proxy.namespace(namespace), "legacy") as peer:
        await peer.skill("activate", "bare")
        await wish(peer, "debug")
        await peer.call("bare__echo")
        assert told(world.talks["bare"]) == []
    async with connected(world.proxy.namespace(namespace), MODERN) as peer:
        await peer.call("bare__log", {"notes": notes("bare")}, _meta={LEVEL_KEY: "debug"})
        assert told(world.talks["bare"]) == []


async def test_server_that_connects_later(world: World, namespace: str) -> None:
    """It is told the level that was set before it came, and sends by it from the first call on."""
    talk = world.talks["own-handshake"]
    async with connected(world.proxy.namespace(namespace), "legacy") as peer:
        await wish(peer, "error")
        await peer.skill("activate", "own-handshake")
        connection = (await peer.call("own-handshake__echo"))["structuredContent"]["connection"]
        await until(lambda: told(talk, connection))
        assert told(talk, connection) == ["error"]
        await peer.call("own-handshake__log", {"notes": notes(namespace)})
        assert heard(peer) == notes(namespace)[LEVELS.index("error") :]


async def test_level_that_does_not_exist(world: World, namespace: str) -> None:
    async with connected(world.proxy.namespace(namespace), MODERN) as peer:
        await peer.skill("activate", "modern")
        with pytest.raises(MCPError) as raised:
            await peer.call("modern__log", {"notes": []}, _meta={LEVEL_KEY: "loud"})
        assert raised.value.error.code == -32602


async def test_set_level_belongs_to_the_handshake_era(world: World, namespace: str) -> None:
    async with connected(world.proxy.namespace(namespace), MODERN) as peer:
        with pytest.raises(MCPError) as raised:
            await peer.request("logging/setLevel", {"level": "debug"})
        assert raised.value.error.code == -32601
