"""Who shares a connection: `isolation: scope` gives each scope its own; `max_concurrency` bounds the calls on one."""

import os
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.conftest import ERAS, MODERN, Json, Launch, Peer, Raw, connected, write_config
from tests.relay.conftest import World
from tests.relay.talk import SERVER_ERAS, Talk, skill, until

pytestmark = pytest.mark.anyio


def runs(pid: str) -> bool:
    with suppress(ProcessLookupError):
        os.kill(int(pid), 0)
        return True
    return False


async def place_of(peer: Peer, server: str) -> str:
    """The process, or the session over HTTP, that answers."""
    return (await peer.call(f"{server}__echo"))["structuredContent"]["connection"]


@pytest.mark.parametrize("era", SERVER_ERAS)
async def test_each_scope_has_its_own_process(tmp_path: Path, launch: Launch, era: str) -> None:
    """Two sessions and a namespace; clients of one namespace share; a session's process ends with it, and no other."""
    talk = Talk(tmp_path / "log.jsonl", "up")
    config = write_config(tmp_path / "skills.yaml", {"up": talk.entry(era=era, isolation="scope")}, {"s": skill("up")})
    proxy = launch(config)
    async with AsyncExitStack() as stack:
        peers = [await stack.enter_async_context(connected(proxy.url, "legacy"))]
        peers += [await stack.enter_async_context(connected(proxy.namespace("same"), mode)) for mode in ERAS]
        async with connected(proxy.url, "legacy") as leaving:
            for peer in (*peers[:2], leaving):
                await peer.skill("activate", "s")
            pids = [await place_of(peer, "up") for peer in (*peers, leaving)]
            assert len(set(pids)) == 3
            assert pids[1] == pids[2]

            await leaving.call("up__change", {"add": ["gained"], "remove": ["old"]})
            await leaving.wire.until_notices(2)
            assert set(await leaving.tools()) - set(await peers[0].tools()) == {"up__gained"}
            assert set(await peers[0].tools()) - set(await leaving.tools()) == {"up__old"}
            async with connected(proxy.namespace("late")) as late:
                await late.skill("activate", "s")
                for peer in (*peers, late):
                    assert "up__gained" not in await peer.tools()
            assert [peer.wire.notices() for peer in peers[:2]] == [1, 1]
        await until(lambda: not runs(pids[3]))
        assert [await place_of(peer, "up") for peer in peers] == pids[:3]


@pytest.mark.parametrize("era", SERVER_ERAS)
async def test_connection_ends_with_its_scope(tmp_path: Path, launch: Launch, raw: Raw, era: str) -> None:
    """A session's when it is deleted; a namespace's when it has been idle for `scope_idle` and nobody is there."""
    talk = Talk(tmp_path / "log.jsonl", "up")
    servers = {"up": talk.entry(era=era, isolation="scope")}
    proxy = launch(write_config(tmp_path / "skills.yaml", servers, {"s": skill("up")}, proxy={"scope_idle": 1}))
    pids: list[str] = []
    for url in (proxy.url, proxy.namespace("a")):
        headers = await raw.open(url)
        await raw.skill(url, headers, "activate", "s")
        reply = (await raw.post(url, "tools/call", {"name": "up__echo"}, headers)).reply
        pids.append(reply["result"]["structuredContent"]["connection"])
        assert (await raw.send("DELETE", url, headers=headers)).status == 200
    for pid in pids:
        await until(lambda pid=pid: not runs(pid))


@pytest.mark.parametrize("era", SERVER_ERAS)
async def test_calls_of_two_scopes_never_meet_on_one_connection(world: World, namespace: str, era: str) -> None:
    """Over HTTP each scope opens a session of its own at a handshake-era server, and ends it."""
    server = f"own-{era}"
    talk = world.talks[server]
    places: dict[str, str] = {}
    async with AsyncExitStack() as stack:
        for number, mode in enumerate(("legacy", "legacy", "legacy")):
            name = f"{namespace}-{number}"
            peer = await stack.enter_async_context(connected(world.proxy.url, mode, name=name))
            await peer.skill("activate", server)
            async with anyio.create_task_group() as tasks:
                for call in range(5):
                    tasks.start_soon(peer.call, f"{server}__echo", {"marker": f"{name} {call}"})
            places[name] = await place_of(peer, server)
        if era == "handshake":
            assert len(set(places.values())) == 3
            for name, place in places.items():
                assert talk.connections(name) == {place}
    if era == "handshake":
        await until(lambda: set(places.values()) <= {entry["connection"] for entry in talk.received("DELETE")})


# --- side by side ----------------------------------------------------------------------------------------------------

SHARED = (*SERVER_ERAS, *(f"shared-{era}" for era in SERVER_ERAS))


@pytest.mark.parametrize("server", SHARED)
@pytest.mark.parametrize("mode", ERAS)
async def test_twenty_calls_are_in_work_at_once(world: World, namespace: str, mode: str, server: str) -> None:
    """All have reached the server before the first is answered; answered the other way round, each gets its own."""
    answers: dict[int, Json] = {}
    order: list[int] = []
    async with connected(world.proxy.namespace(namespace), mode) as peer:
        await peer.skill("activate", server)

        async def call(number: int) -> None:
            answers[number] = await peer.call(f"{server}__wait", {"key": f"{namespace}-{number}-"})
            order.append(number)

        async with anyio.create_task_group() as tasks:
            for number in range(20):
                tasks.start_soon(call, number)
            await world.talks[server].until_received("tools/call", namespace, times=20)
            assert answers == {}
            assert (await peer.skill("list"))["content"]
            for number in reversed(range(20)):
                await peer.call(f"{server}__release", {"key": f"{namespace}-{number}-"})
                await until(lambda number=number: number in answers)
    assert order == list(reversed(range(20)))
    for number, answer in answers.items():
        assert answer["structuredContent"]["arguments"] == {"key": f"{namespace}-{number}-"}


@pytest.mark.parametrize("era", SERVER_ERAS)
async def test_one_call_at_a_time(world: World, namespace: str, era: str) -> None:
    """`max_concurrency: 1`: of calls by several clients one is in work, and the next begins at its end."""
    server, helper = f"one-by-one-{era}", f"shared-{era}"
    talk = world.talks[server]
    answers: list[Any] = []
    async with (
        connected(world.proxy.namespace(f"{namespace}-a"), "legacy") as one,
        connected(world.proxy.namespace(f"{namespace}-b"), MODERN) as two,
    ):
        for peer in (one, two):
            for key in (server, helper):
                await peer.skill("activate", key)

        def now() -> list[Json]:
            """The calls in work at the server."""
            done = {str(entry["params"]["arguments"]) for entry in talk.of("done", namespace)}
            begun = [entry["params"]["arguments"] for entry in talk.of("tools/call", namespace)]
            waits = [arguments for arguments in begun if "n" in arguments]
            return [arguments for arguments in waits if str(arguments) not in done]

        async def call(peer: Peer, number: int) -> None:
            arguments = {"key": f"{namespace}-{number}-", "n": number}
            answers.append((await peer.call(f"{server}__wait", arguments))["structuredContent"]["arguments"])

        async with anyio.create_task_group() as tasks:
            for number in range(6):
                tasks.start_soon(call, (one, two)[number % 2], number)
            for count in range(6):
                await until(lambda: len(now()) == 1)
                await one.tools()  # the others have had time to come, had they been let through
                assert len(now()) == 1
                assert (await two.request("resources/list"))["resources"]  # lists are no calls
                await one.call(f"{helper}__release", {"key": now()[0]["key"]})
                await until(lambda count=count: len(answers) == count + 1)
    assert sorted(answer["n"] for answer in answers) == list(range(6))


@pytest.mark.parametrize("era", SERVER_ERAS)
@pytest.mark.parametrize("mode", ERAS)
async def test_call_that_is_given_up_while_it_waits_its_turn(world: World, namespace: str, mode: str, era: str) -> None:
    """It never reaches the server, and the turn goes to the next."""
    server, helper = f"one-by-one-{era}", f"shared-{era}"
    talk = world.talks[server]
    async with (
        connected(world.proxy.namespace(f"{namespace}-a"), mode) as one,
        connected(world.proxy.namespace(f"{namespace}-b"), mode) as two,
        anyio.create_task_group() as tasks,
    ):
        for peer in (one, two):
            for key in (server, helper):
                await peer.skill("activate", key)
        tasks.start_soon(one.call, f"{server}__wait", {"key": namespace})
        await until(lambda: talk.of("tools/call", namespace))
        with anyio.move_on_after(0.1):
            await two.call(f"{server}__echo", {"marker": f"given up {namespace}"})
        await two.call(f"{helper}__release", {"key": namespace})
        answer = await two.call(f"{server}__echo", {"marker": f"next {namespace}"})
        assert answer["structuredContent"]["arguments"] == {"marker": f"next {namespace}"}
    assert not talk.of("tools/call", f"given up {namespace}")
