"""`requestState`: what a modern client brings back counts where it was given alone, and while the call waits."""

from contextlib import suppress
from typing import Any

import anyio
import pytest
from mcp import MCPError

from tests.conftest import MODERN, Json, Launch, Peer, text_of, write_config
from tests.relay.conftest import World
from tests.relay.talk import Talk, User, answering, form, sample, skill, until

pytestmark = pytest.mark.anyio

ASKING = ("own-handshake", "modern")
"""A server whose call is held while its question is open, and one that answers `input_required` itself."""
ANSWER = {"action": "accept", "content": {"by": "alice"}}


async def begin(peer: Peer, server: str, marker: str, *rounds: Json, **arguments: Any) -> tuple[Json, Json]:
    """Call a tool that asks; its arguments, and the result by which the client is asked."""
    given = {"rounds": list(rounds) or [{"a": form("Which?")}], "marker": marker, **arguments}
    result = await peer.call(f"{server}__ask", given)
    assert result["resultType"] == "input_required", result
    return given, result


def brought(result: Json) -> Json:
    """The parameters by which a client answers all questions of a result."""
    return {
        "inputResponses": dict.fromkeys(result["inputRequests"], ANSWER),
        "requestState": result["requestState"],
    }


async def refused(peer: Peer, method: str, params: Json) -> None:
    with pytest.raises(MCPError) as raised:
        await peer.request(method, params)
    assert raised.value.error.code == -32602


def calls(world: World, server: str, marker: str) -> int:
    """How many requests of any kind with this marker have reached the server."""
    methods = ("tools/call", "prompts/get", "resources/read")
    return sum(len(world.talks[server].of(method, marker)) for method in methods)


@pytest.mark.parametrize("server", ASKING)
async def test_questions_come_in_results_and_the_answers_with_the_repeated_call(
    world: World, namespace: str, server: str
) -> None:
    """What the server asks stands in the result as it asked it, round by round; the last result is plain."""
    rounds = [{"a": form("One?"), "b": sample("Two?")}, {"c": form("Three?")}]
    async with answering(world.proxy.namespace(namespace), MODERN, User()) as peer:
        await peer.skill("activate", server)
        given, result = await begin(peer, server, namespace, *rounds)
        asked: list[Json] = []
        while result["resultType"] == "input_required":
            asked += result["inputRequests"].values()
            result = await peer.call(f"{server}__ask", given, **brought(result))
        assert asked == [question for questions in rounds for question in questions.values()]
        assert result["structuredContent"]["answers"] == [dict.fromkeys(one, ANSWER) for one in rounds]
        assert {"requestState", "inputRequests"}.isdisjoint(result)


@pytest.mark.parametrize("server", ASKING)
async def test_state_for_anything_else(world: World, namespace: str, server: str) -> None:
    """Another tool, another server's tool, a prompt, a resource, another namespace: refused, and nothing is sent."""
    other = "own-modern" if server == "modern" else "modern"
    async with (
        answering(world.proxy.namespace(f"{namespace}-a"), MODERN, User()) as peer,
        answering(world.proxy.namespace(f"{namespace}-b"), MODERN, User()) as stranger,
    ):
        for one in (peer, stranger):
            for key in (server, other):
                await one.skill("activate", key)
        given, result = await begin(peer, server, namespace)
        before = [calls(world, key, namespace) for key in (server, other)]
        for tool in (f"{server}__echo", f"{other}__ask", f"{other}__echo"):
            await refused(peer, "tools/call", {"name": tool, "arguments": given, **brought(result)})
        for key in (server, other):
            prompt = {"name": f"{key}__ask", "arguments": {"marker": namespace}}
            await refused(peer, "prompts/get", {**prompt, **brought(result)})
        await refused(peer, "resources/read", {"uri": f"memo://ask/{namespace}", **brought(result)})
        await refused(stranger, "tools/call", {"name": f"{server}__ask", "arguments": given, **brought(result)})
        assert [calls(world, key, namespace) for key in (server, other)] == before
        last = await peer.call(f"{server}__ask", given, **brought(result))
        assert last["structuredContent"]["answers"] == [{"a": ANSWER}]


@pytest.mark.parametrize("server", ASKING)
async def test_state_of_another_principal(tmp_path: Any, launch: Launch, remote: Talk, server: str) -> None:
    """The state of one token's owner is nothing in the hands of another, in a namespace of the same name too."""
    servers = {"own-handshake": remote.entry(era="handshake", isolation="scope"), "modern": remote.entry(era="modern")}
    skills = {key: skill(key) | {"active": True} for key in servers}
    tokens = {"alice": "alice-token", "bob": "bob-token"}
    proxy = launch(write_config(tmp_path / "skills.yaml", servers, skills, proxy={"tokens": tokens}))
    bearer = {name: {"Authorization": f"Bearer {token}"} for name, token in tokens.items()}
    for url in (proxy.url, proxy.namespace("same")):
        async with (
            answering(url, MODERN, User(), bearer["alice"]) as alice,
            answering(url, MODERN, User(), bearer["bob"]) as bob,
        ):
            given, result = await begin(alice, server, "marker")
            await refused(bob, "tools/call", {"name": f"{server}__ask", "arguments": given, **brought(result)})
            assert (await alice.call(f"{server}__ask", given, **brought(result)))["structuredContent"]


@pytest.mark.parametrize("server", ASKING)
async def test_state_that_was_tampered_with(world: World, namespace: str, server: str) -> None:
    async with answering(world.proxy.namespace(namespace), MODERN, User()) as peer:
        await peer.skill("activate", server)
        given, result = await begin(peer, server, namespace)
        before, state = calls(world, server, namespace), result["requestState"]
        middle = len(state) // 2
        forged = ["", "x", "[]", "ü", state[1:], state[:-4], state + "AAAA", state[:middle] + state[middle + 4 :]]
        forged += [
            state[:place] + ("A" if state[place] != "A" else "B") + state[place + 1 :] for place in (0, middle, 60)
        ]
        for text in forged:
            params = {**brought(result), "requestState": text}
            await refused(peer, "tools/call", {"name": f"{server}__ask", "arguments": given, **params})
        assert calls(world, server, namespace) == before


async def test_state_of_a_held_call_counts_once(world: World, namespace: str) -> None:
    """The answers are the server's by then; a repetition must not run anything again."""
    async with answering(world.proxy.namespace(namespace), MODERN, User()) as peer:
        await peer.skill("activate", "own-handshake")
        given, result = await begin(peer, "own-handshake", namespace)
        assert (await peer.call("own-handshake__ask", given, **brought(result)))["structuredContent"]
        await refused(peer, "tools/call", {"name": "own-handshake__ask", "arguments": given, **brought(result)})
        assert calls(world, "own-handshake", namespace) == 1


async def test_question_that_a_client_leaves_out(world: World, namespace: str) -> None:
    """The server is told at once that there is no answer to it; the others arrive."""
    async with answering(world.proxy.namespace(namespace), MODERN, User()) as peer:
        await peer.skill("activate", "own-handshake")
        given, result = await begin(peer, "own-handshake", namespace, {"a": form("One?")}, {"b": form("Two?")})
        result = await peer.call("own-handshake__ask", given, inputResponses={}, requestState=result["requestState"])
        assert [question["params"]["message"] for question in result["inputRequests"].values()] == ["Two?"]
        last = await peer.call("own-handshake__ask", given, **brought(result))
        first, second = last["structuredContent"]["answers"]
        assert first["a"]["error"]["code"] == -32602
        assert second == {"b": ANSWER}


async def test_client_that_never_comes_back(tmp_path: Any, launch: Launch, remote: Talk) -> None:
    """After `input_wait` the server is refused; who is late gets at most the outcome, once."""
    servers = {"up": remote.entry(era="handshake", isolation="scope")}
    skills = {"s": skill("up") | {"active": True}}
    proxy = launch(write_config(tmp_path / "skills.yaml", servers, skills, proxy={"input_wait": 0.2}))
    marker = str(tmp_path)
    async with answering(proxy.namespace("a"), MODERN, User()) as peer:
        given, result = await begin(peer, "up", marker, {"a": form(marker)})
        await until(lambda: remote.of("refused", marker))
        await until(lambda: remote.of("done", marker))
        with suppress(MCPError):
            await peer.call("up__ask", given, **brought(result))
        await refused(peer, "tools/call", {"name": "up__ask", "arguments": given, **brought(result)})
        assert len(remote.of("tools/call", marker)) == 1
        assert (await peer.call("up__echo"))["structuredContent"]["server"] == "remote"


@pytest.mark.parametrize("era", ["handshake", "modern"])
async def test_handshake_client_that_never_answers(tmp_path: Any, launch: Launch, remote: Talk, era: str) -> None:
    """After `input_wait` a handshake-era server is refused, and a call at a modern one fails."""
    servers = {"up": remote.entry(era=era, isolation="scope")}
    skills = {"s": skill("up") | {"active": True}}
    proxy = launch(write_config(tmp_path / "skills.yaml", servers, skills, proxy={"input_wait": 0.2}))
    marker = str(tmp_path)
    async with answering(proxy.url, "legacy", User(hold=anyio.Event())) as peer:
        arguments = {"rounds": [{"a": form(marker)}]}
        if era == "handshake":
            result = await peer.call("up__ask", arguments)
            assert "did not answer" in result["structuredContent"]["answers"][0]["a"]["error"]["message"]
        else:
            with pytest.raises(MCPError, match="did not answer"):
                await peer.call("up__ask", arguments)
        assert (await peer.call("up__echo"))["structuredContent"]["server"] == "remote"
    assert len(remote.of("tools/call", marker)) == 1


@pytest.mark.parametrize("server", ASKING)
async def test_skill_that_was_offloaded_meanwhile(world: World, namespace: str, server: str) -> None:
    """The repeated call is refused as any call is, and nothing new reaches the server."""
    async with answering(world.proxy.namespace(namespace), MODERN, User()) as peer:
        await peer.skill("activate", server)
        given, result = await begin(peer, server, namespace, {"a": form("One?")}, {"b": form("Two?")})
        await peer.skill("offload", server)
        before = len(world.talks[server].of("tools/call", namespace)), len(world.talks[server].of("done", namespace))
        answer = await peer.call(f"{server}__ask", given, **brought(result))
        assert answer["isError"] is True
        assert "activate" in text_of(answer)
        assert before == (
            len(world.talks[server].of("tools/call", namespace)),
            len(world.talks[server].of("done", namespace)),
        )


@pytest.mark.parametrize("mode", ["legacy", MODERN])
async def test_cancelling_while_the_server_waits_for_an_answer(world: World, namespace: str, mode: str) -> None:
    """A client that gives up a call with a question in it: the server's call is cancelled, and the session goes on."""
    user = User(hold=anyio.Event())
    talk = world.talks["own-handshake"]
    async with answering(world.proxy.namespace(namespace), mode, user) as peer:
        await peer.skill("activate", "own-handshake")
        async with anyio.create_task_group() as tasks:
            if mode == MODERN:  # the call is in work between its last answer and its result
                given, result = await begin(peer, "own-handshake", namespace, wait=f"never {namespace}")
                params = {"name": "own-handshake__ask", "arguments": given, **brought(result)}
            else:
                params = {"name": "own-handshake__ask", "arguments": {"rounds": [{"a": form("?")}], "key": namespace}}
            tasks.start_soon(peer.request, "tools/call", params)
            if mode == MODERN:
                await until(lambda: not talk.of("refused", namespace))
                await peer.call("own-handshake__echo")
            else:
                await user.until_asked()
            tasks.cancel_scope.cancel()
        (call,) = talk.of("tools/call", namespace)
        await until(lambda: [gone for gone in talk.received("gone") if gone["id"] == call["id"]])
        assert (await peer.call("own-handshake__echo"))["structuredContent"]["tool"] == "echo"
    assert talk.of("done", namespace) == []


async def test_client_that_leaves_with_a_question_open(world: World, namespace: str) -> None:
    """When a session ends, the call that waits for its user ends at the server."""
    user = User(hold=anyio.Event())
    talk = world.talks["own-handshake"]
    begun: list[Json] = []

    def heard() -> list[str]:
        entries = [entry for entry in talk.received() if entry.get("connection") == begun[0]["connection"]]
        return [entry["method"] for entry in entries]

    async with answering(world.proxy.url, "legacy", user) as peer, anyio.create_task_group() as tasks:
        await peer.skill("activate", "own-handshake")
        tasks.start_soon(peer.call, "own-handshake__ask", {"rounds": [{"a": form("?")}], "key": namespace})
        await user.until_asked()
        begun += talk.of("tools/call", namespace)
        assert "gone" not in heard()
        tasks.cancel_scope.cancel()
    await until(lambda: {"gone", "DELETE"} <= set(heard()))
    assert heard().index("notifications/cancelled") < heard().index("DELETE")
    assert talk.of("done", namespace) == []
