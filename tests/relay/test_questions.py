"""What a server asks during a call reaches the client whose call has caused it, in every pairing of eras."""

from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import MCPError
from mcp_types import ErrorData

from tests.conftest import ERAS, MODERN, Json, Launch, stdio_program, write_config
from tests.relay.conftest import World
from tests.relay.talk import (
    EVERYTHING,
    ROOTS,
    SERVER_ERAS,
    TOOLS,
    Talk,
    User,
    answering,
    ask,
    by_url,
    form,
    sample,
    skill,
)

pytestmark = pytest.mark.anyio

KINDS = {"form": form("Which?"), "url": by_url("Where?", "e-1"), "sampling": sample("What?"), "roots": ROOTS}
KINDS["sampling with tools"] = sample("How?", **TOOLS)


def answered(user: User, *rounds: Json) -> list[Json]:
    return [{key: user.answers(question) for key, question in questions.items()} for questions in rounds]


@pytest.mark.parametrize("server", SERVER_ERAS)
@pytest.mark.parametrize("mode", ERAS)
async def test_every_kind_of_question_over_stdio(
    stdio_config: tuple[Path, dict[str, Talk]], mode: str, server: str
) -> None:
    """Two rounds in one call, several questions at once, two calls in a row: each question comes once."""
    config, _ = stdio_config
    user = User("alice")
    async with answering(stdio_program(config), mode, user) as peer:
        each = [{"only": question} for question in KINDS.values()]
        assert await ask(peer, f"{server}__ask", *each) == answered(user, *each)
        assert user.asked == ["Which?", "Where?", "What?", "roots", "How?"]
        assert await ask(peer, f"{server}__ask", KINDS) == answered(user, KINDS)
        assert sorted(user.asked[5:]) == sorted(user.asked[:5])
        assert await ask(peer, f"{server}__ask", {"a": form("Again?")}) == answered(user, {"a": form("Again?")})
        assert len(user.asked) == 11


@pytest.mark.parametrize("server", SERVER_ERAS)
@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.parametrize("way", ["prompt", "resource"])
async def test_questions_of_prompts_and_resources(
    world: World, namespace: str, mode: str, server: str, way: str
) -> None:
    """What is asked while a prompt is got or a resource is read comes to the client as well."""
    user = User("alice")
    async with answering(world.proxy.namespace(namespace), mode, user) as peer:
        await peer.skill("activate", f"own-{server}")
        got: Any = (
            await peer.client.get_prompt(f"own-{server}__ask")
            if way == "prompt"
            else await peer.client.read_resource(f"memo://ask/{namespace}")
        )
        assert "alice" in got.model_dump_json()
        assert user.asked == ["Which?"]


@pytest.mark.parametrize("server", ["own-handshake", "own-modern", "modern", "shared-modern"])
@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.parametrize("way", ["namespaces", "sessions"])
async def test_two_clients_at_once_over_http(world: World, namespace: str, mode: str, server: str, way: str) -> None:
    """While both have a question open, each has its own, and each answer comes to the call that wanted it."""
    if way == "sessions" and mode == MODERN:
        mode = "auto"  # it chooses the handshake where there is no namespace
    users = [User(name, hold=anyio.Event()) for name in ("alice", "bob")]
    got: dict[str, Any] = {}
    places = [
        world.proxy.namespace(f"{namespace}-{user.name}") if way == "namespaces" else world.proxy.url for user in users
    ]
    async with answering(places[0], mode, users[0]) as one, answering(places[1], mode, users[1]) as two:

        async def run(user: User, peer: Any) -> None:
            questions = [{"a": form(f"{user.name}, {number}?")} for number in (1, 2)]
            got[user.name] = await ask(peer, f"{server}__ask", *questions)
            got[user.name] += await ask(peer, f"{server}__ask", {"b": sample(f"{user.name}, 3?")})

        for peer in (one, two):
            await peer.skill("activate", server)
        async with anyio.create_task_group() as tasks:
            for user, peer in zip(users, (one, two), strict=True):
                tasks.start_soon(run, user, peer)
            for user in users:
                await user.until_asked()
            for user in reversed(users):
                assert user.hold is not None
                user.hold.set()
    for user in users:
        assert user.asked == [f"{user.name}, {number}?" for number in (1, 2, 3)]
        wanted = [{"a": form(f"{user.name}, {number}?")} for number in (1, 2)] + [{"b": sample(f"{user.name}, 3?")}]
        assert got[user.name] == answered(user, *wanted)


@pytest.mark.parametrize("server", ["handshake", "shared-handshake"])
@pytest.mark.parametrize("mode", ERAS)
async def test_handshake_server_of_several_clients(world: World, namespace: str, mode: str, server: str) -> None:
    """Over HTTP it is offered no capabilities on a shared connection; what it asks all the same is refused at once."""
    user = User()
    async with answering(world.proxy.namespace(namespace), mode, user) as peer:
        await peer.skill("activate", server)
        answers = await ask(peer, f"{server}__ask", KINDS)
        assert {key: answer["error"]["code"] for key, answer in answers[0].items()} == dict.fromkeys(KINDS, -32601)
    assert user.asked == []
    opened = [entry["params"]["capabilities"] for entry in world.talks[server].received("initialize")]
    assert {} in opened


@pytest.mark.parametrize("mode", ERAS)
async def test_question_that_comes_apart_from_its_call(world: World, namespace: str, mode: str) -> None:
    """A question on the stream of a whole connection belongs to the one call that is in work there."""
    user = User("alice")
    async with answering(world.proxy.namespace(namespace), mode, user) as peer:
        await peer.skill("activate", "own-handshake")
        question = form("Apart?")
        assert await ask(peer, "own-handshake__ask_apart", question) == [user.answers(question)]
    assert user.asked == ["Apart?"]


@pytest.mark.parametrize("way", ["namespace", "stdio"])
async def test_completed_elicitation(
    world: World, stdio_config: tuple[Path, dict[str, Talk]], namespace: str, way: str
) -> None:
    """`notifications/elicitation/complete` reaches the client that was sent to the URL, and no other."""
    server = "handshake" if way == "stdio" else "own-handshake"
    target = stdio_program(stdio_config[0]) if way == "stdio" else world.proxy.namespace(namespace)
    elicitation = f"e-{namespace}"
    async with (
        answering(target, "legacy", User()) as peer,
        answering(world.proxy.namespace(f"{namespace}-other"), "legacy", User()) as other,
    ):
        await other.skill("activate", "own-handshake")
        if way == "namespace":
            await peer.skill("activate", server)
        await ask(peer, f"{server}__ask", {"a": by_url("Where?", elicitation)})
        await peer.call(f"{server}__elicited", {"id": "another"})
        await peer.call(f"{server}__elicited", {"id": elicitation})
        await peer.wire.until(lambda: bool(completed(peer)))
        assert completed(peer) == [{"elicitationId": elicitation}]
        await other.tools()
        assert completed(other) == []


async def test_demanded_elicitation_on_a_shared_connection(world: World, namespace: str) -> None:
    """An error that demands an elicitation passes unchanged, and its completion reaches who was told, and no other."""
    elicitation = by_url("Where?", f"e-{namespace}")["params"]
    async with (
        answering(world.proxy.namespace(f"{namespace}-a"), "legacy", User()) as one,
        answering(world.proxy.namespace(f"{namespace}-b"), "legacy", User()) as two,
    ):
        for peer in (one, two):
            await peer.skill("activate", "handshake")
        with pytest.raises(MCPError) as raised:
            await one.call("handshake__demand", {"elicitations": [elicitation]})
        assert raised.value.error.code == -32042
        assert raised.value.error.data == {"elicitations": [elicitation]}
        await two.call("handshake__elicited", {"id": elicitation["elicitationId"]})
        await one.wire.until(lambda: bool(completed(one)))
        assert completed(one) == [{"elicitationId": elicitation["elicitationId"]}]
        await two.tools()
        assert completed(two) == []


def completed(peer: Any) -> list[Json]:
    method = "notifications/elicitation/complete"
    return [message["params"] for message in peer.wire.messages if message.get("method") == method]


# --- what a client can do --------------------------------------------------------------------------------------------

DECLARED: list[Json] = [
    {},
    {"elicitation": {}},
    {"elicitation": {"url": {}}, "roots": {}},
    {"sampling": {}, "experimental": {"x": {}}},
    EVERYTHING,
]


UNDERSTOOD: Json = {"extensions": {"io.modelcontextprotocol/skills": {}}}
"""What the proxy says of itself to servers of 2026-07-28; in revisions before, clients have no extensions."""


def offered(declared: Json) -> Json:
    return {key: value for key, value in declared.items() if key != "experimental"}


@pytest.mark.parametrize("declared", DECLARED, ids=str)
async def test_server_with_one_client_sees_what_the_client_declared(
    world: World, namespace: str, declared: Json
) -> None:
    """A session over HTTP has its own connection under `isolation: scope`."""
    async with answering(world.proxy.url, "legacy", User(declares=declared)) as peer:
        await peer.skill("activate", "own-handshake")
        echo = (await peer.call("own-handshake__echo", {"marker": namespace}))["structuredContent"]
        asked = [entry["params"]["capabilities"] for entry in world.talks["own-handshake"].received("initialize")]
        assert asked[-1] == offered(declared)
        assert echo["arguments"] == {"marker": namespace}


@pytest.mark.parametrize("mode", ERAS)
async def test_servers_behind_stdio_see_what_the_client_declared(
    stdio_config: tuple[Path, dict[str, Talk]], mode: str
) -> None:
    config, talks = stdio_config
    declared = DECLARED[2]
    async with answering(stdio_program(config), mode, User(declares=declared)) as peer:
        for era in SERVER_ERAS:
            await peer.call(f"{era}__echo")
    assert talks["handshake"].received("initialize")[-1]["params"]["capabilities"] == declared
    meta = talks["modern"].received("tools/call")[-1]["params"]["_meta"]
    assert meta["io.modelcontextprotocol/clientCapabilities"] == {**declared, **UNDERSTOOD}


@pytest.mark.parametrize("server", ["modern", "shared-modern", "own-modern"])
@pytest.mark.parametrize("mode", ERAS)
async def test_modern_server_sees_what_the_client_of_each_request_declared(
    world: World, namespace: str, mode: str, server: str
) -> None:
    for number, declared in enumerate(DECLARED):
        async with answering(world.proxy.namespace(f"{namespace}-{number}"), mode, User(declares=declared)) as peer:
            await peer.skill("activate", server)
            await peer.call(f"{server}__echo", {"marker": f"{namespace}-{number}"})
        (call,) = world.talks[server].of("tools/call", f"{namespace}-{number}")
        told = call["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"]
        assert told == {**offered(declared), **UNDERSTOOD}


UNABLE: list[tuple[Json, str, Json]] = [
    ({}, "form", {"elicitation": {"form": {}}}),
    ({"elicitation": {"url": {}}}, "form", {"elicitation": {"form": {}}}),
    ({"elicitation": {}}, "url", {"elicitation": {"url": {}}}),
    ({"elicitation": {"form": {}}}, "url", {"elicitation": {"url": {}}}),
    ({"roots": {}}, "sampling", {"sampling": {}}),
    ({"sampling": {}}, "sampling with tools", {"sampling": {"tools": {}}}),
    ({"sampling": {}}, "roots", {"roots": {}}),
]


@pytest.mark.parametrize(("declared", "kind", "needed"), UNABLE, ids=str)
@pytest.mark.parametrize("mode", ERAS)
async def test_handshake_server_is_told_at_once_that_a_client_cannot_answer(
    world: World, namespace: str, mode: str, declared: Json, kind: str, needed: Json
) -> None:
    user = User(declares=declared)
    async with answering(world.proxy.namespace(namespace), mode, user) as peer:
        await peer.skill("activate", "own-handshake")
        ((answers,)) = await ask(peer, "own-handshake__ask", {"a": KINDS[kind]})
        assert answers["a"]["error"]["code"] == -32021
        assert answers["a"]["error"]["data"] == {"requiredCapabilities": needed}
    assert user.asked == []


@pytest.mark.parametrize(("declared", "kind", "needed"), UNABLE, ids=str)
@pytest.mark.parametrize("mode", ERAS)
async def test_client_is_told_what_a_modern_server_needs(
    world: World, namespace: str, mode: str, declared: Json, kind: str, needed: Json
) -> None:
    user = User(declares=declared)
    async with answering(world.proxy.namespace(namespace), mode, user) as peer:
        await peer.skill("activate", "modern")
        with pytest.raises(MCPError) as raised:
            await peer.call("modern__ask", {"rounds": [{"a": KINDS[kind], "b": KINDS[kind]}]})
        assert raised.value.error.code == -32021
        assert raised.value.error.data == {"requiredCapabilities": needed}
        assert (await peer.call("modern__echo"))["structuredContent"]["server"] == "modern"
    assert user.asked == []


ABLE = [("form", {"elicitation": {}}), ("form", {"elicitation": {"form": {}}}), ("url", {"elicitation": {"url": {}}})]
ABLE += [("sampling with tools", {"sampling": {"tools": {}}}), ("sampling", {"sampling": {}}), ("roots", {"roots": {}})]


@pytest.mark.parametrize("server", ["own-handshake", "modern"])
@pytest.mark.parametrize("mode", ERAS)
async def test_one_capability_is_enough_for_its_question(world: World, namespace: str, mode: str, server: str) -> None:
    for number, (kind, declared) in enumerate(ABLE):
        user = User("alice", declares=declared)
        async with answering(world.proxy.namespace(f"{namespace}-{number}"), mode, user) as peer:
            await peer.skill("activate", server)
            assert await ask(peer, f"{server}__ask", {"a": KINDS[kind]}) == answered(user, {"a": KINDS[kind]})


@pytest.mark.parametrize("server", ["own-handshake", "modern"])
@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_user_may_decline(world: World, namespace: str, mode: str, server: str, action: Any) -> None:
    user = User(action=action)
    async with answering(world.proxy.namespace(namespace), mode, user) as peer:
        await peer.skill("activate", server)
        assert await ask(peer, f"{server}__ask", {"a": form("Which?")}) == [{"a": {"action": action}}]


async def test_error_of_a_client_is_the_servers(world: World, namespace: str) -> None:
    """A handshake-era client's error arrives at a handshake-era server with its code, message and data."""
    user = User(error=ErrorData(code=-1, message="The user said no", data={"why": [1, None]}))
    async with answering(world.proxy.namespace(namespace), "legacy", user) as peer:
        await peer.skill("activate", "own-handshake")
        ((answers,)) = await ask(peer, "own-handshake__ask", {"a": form("Which?")})
        assert answers["a"] == {"error": {"code": -1, "message": "The user said no", "data": {"why": [1, None]}}}


@pytest.mark.parametrize("mode", ERAS)
async def test_time_to_think_does_not_count(tmp_path: Path, launch: Launch, remote: Talk, mode: str) -> None:
    """A call goes on when its user has thought for longer than the server's `timeout`."""
    servers = {"up": remote.entry(era="handshake", isolation="scope", timeout=0.5)}
    proxy = launch(write_config(tmp_path / "skills.yaml", servers, {"s": skill("up") | {"active": True}}))
    user = User("alice", hold=anyio.Event())
    got: list[Any] = []
    async with answering(proxy.namespace("a"), mode, user) as peer, anyio.create_task_group() as tasks:

        async def run() -> None:
            got.extend(await ask(peer, "up__ask", {"a": form("Which?")}))

        tasks.start_soon(run)
        await user.until_asked()
        await anyio.sleep(0.7)
        assert user.hold is not None
        user.hold.set()
    assert got == answered(user, {"a": form("Which?")})
