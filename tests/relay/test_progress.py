"""Progress reaches the call that asked for it, under the client's own token, as the server wrote it."""

import json
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.conftest import ERAS, ROOT, Json, Launch, Peer, Raw, connected, stdio_program, write_config
from tests.relay.conftest import World
from tests.relay.talk import SERVER_ERAS, Talk, skill, until

pytestmark = pytest.mark.anyio

SERVERS = (*SERVER_ERAS, *(f"shared-{era}" for era in SERVER_ERAS), *(f"own-{era}" for era in SERVER_ERAS))
NOTES: list[Json] = [
    {"progress": 0, "total": 3, "message": "begun"},
    {"progress": 1, "x-vendor": {"none": None, "list": [1, 1.0]}},
    {"progress": 1.5, "total": 3.0},
    {"progress": 3, "message": "Größe \U0001f600"},
]


def heard(peer: Peer) -> list[Json]:
    return [message["params"] for message in peer.wire.messages if message.get("method") == "notifications/progress"]


def place_of_result(peer: Peer, marker: str) -> int:
    (place,) = peer.wire.where(lambda message: marker in json.dumps(message.get("result")))
    return place


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("mode", ERAS)
async def test_progress_over_http(world: World, namespace: str, mode: str, server: str) -> None:
    """All of it, with the token's value and type, values as they were written, in order, before the result."""
    async with connected(world.proxy.namespace(namespace), mode) as peer:
        await peer.skill("activate", server)
        for token in ("t-1", 7, 0, ""):
            await progress_comes(peer, server, f"{namespace}-{token}-", token)
            peer.wire.messages.clear()


@pytest.mark.parametrize("mode", ERAS)
async def test_progress_over_stdio(stdio_config: tuple[Path, dict[str, Talk]], namespace: str, mode: str) -> None:
    async with connected(stdio_program(stdio_config[0]), mode) as peer:
        for server in SERVER_ERAS:
            await progress_comes(peer, server, f"{namespace}-{server}", 7)
            peer.wire.messages.clear()


async def progress_comes(peer: Peer, server: str, marker: str, token: str | int) -> None:
    arguments = {"notes": NOTES, "marker": marker}
    await peer.call(f"{server}__progress", arguments, _meta={"progressToken": token, "vendor/k": 1})
    assert json.dumps(heard(peer)) == json.dumps([{"progressToken": token, **note} for note in NOTES])
    last = peer.wire.where(lambda message: message.get("method") == "notifications/progress")[-1]
    assert last < place_of_result(peer, marker)


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("mode", ERAS)
async def test_no_progress_without_a_token(world: World, namespace: str, mode: str, server: str) -> None:
    """The server is not asked for any."""
    async with connected(world.proxy.namespace(namespace), mode) as peer:
        await peer.skill("activate", server)
        await peer.call(f"{server}__progress", {"notes": NOTES, "marker": namespace}, _meta={"vendor/k": 1})
        assert heard(peer) == []
    (call,) = world.talks[server].of("tools/call", namespace)
    assert "progressToken" not in call["params"]["_meta"]


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("mode", ERAS)
async def test_progress_under_a_token_that_nobody_gave(world: World, namespace: str, mode: str, server: str) -> None:
    """It reaches no client, and does no harm."""
    async with connected(world.proxy.namespace(namespace), mode) as peer:
        await peer.skill("activate", server)
        notes = [{"progress": 1, "progressToken": token} for token in ("t-1", 7, 10_000, None, 1.5)]
        notes.append({"progress": 2})
        await peer.call(f"{server}__progress", {"notes": notes}, _meta={"progressToken": "t-1"})
        assert heard(peer) == [{"progressToken": "t-1", "progress": 2}]


@pytest.mark.parametrize("server", SERVERS)
async def test_two_clients_with_the_same_token(world: World, namespace: str, server: str) -> None:
    """Of two calls at once at a shared server each hears its own progress."""
    async with (
        connected(world.proxy.namespace(f"{namespace}-a"), "legacy") as one,
        connected(world.proxy.namespace(f"{namespace}-b"), ERAS[1]) as two,
    ):
        peers = {"a": one, "b": two}
        talk = world.talks[server]
        async with anyio.create_task_group() as tasks:
            for name, peer in peers.items():
                await peer.skill("activate", server)
                notes = [{"progress": step, "message": f"{name} {step}"} for step in range(1, 4)]
                arguments: Any = {"notes": notes, "wait": namespace}
                tasks.start_soon(
                    lambda p, a: p.call(f"{server}__progress", a, _meta={"progressToken": 7}), peer, arguments
                )
            await until(lambda: len(talk.of("tools/call", namespace)) == 2)
            for peer in peers.values():
                await peer.wire.until(lambda peer=peer: len(heard(peer)) == 3)
            for peer in peers.values():  # over HTTP each may have a server's gate of its own
                await peer.call(f"{server}__release", {"key": namespace})
        for name, peer in peers.items():
            assert [(note["progressToken"], note["message"]) for note in heard(peer)] == [
                (7, f"{name} {step}") for step in range(1, 4)
            ]


async def test_a_token_that_the_server_writes_in_another_way_is_known(tmp_path: Path, launch: Launch, raw: Raw) -> None:
    """The client gets its own, as it sent it."""
    server = {"command": sys.executable, "args": [str(ROOT / "tests" / "servers" / "late.py")], "era": "handshake"}
    proxy = launch(write_config(tmp_path / "skills.yaml", {"late": server}, {"late": skill("late")}))
    headers = await raw.open(proxy.url)
    await raw.skill(proxy.url, headers, "activate", "late")
    for token in ("mine", 7, "7"):
        params = {"name": "late__progress", "arguments": {}, "_meta": {"progressToken": token}}
        answer = await raw.post(proxy.url, "tools/call", params, headers)
        told = [one["params"] for one in answer.messages if one.get("method") == "notifications/progress"]
        assert told == [{"progressToken": token, "progress": number} for number in (0, 1)]
