"""What each user may use: refused past it with the time to try again, to that user alone, and free again afterwards."""

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.conftest import (
    ERAS,
    MODERN,
    PATIENCE,
    Answer,
    Json,
    Launch,
    Peer,
    Raw,
    Record,
    connected,
    stdio_program,
    text_of,
    write_config,
)
from tests.relay.talk import Talk, User, answering, ask, form

pytestmark = pytest.mark.anyio

TOKENS = {"alice": "alice-secret", "bob": "bob-secret"}
LIMIT_REACHED = -32010
PATIENT = {"list_wait": PATIENCE, "activation_wait": PATIENCE}
"""Settings by which calls wait for servers, however busy the machine is."""
FEW = 5
"""Calls a minute."""


def bearer(user: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {TOKENS[user]}"}


def config(folder: Path, record: Record, limits: Json, *, more: Json | None = None, **top: Any) -> Path:
    skills = {"echoing": {"active": True, "tool_list": {"up": []}}}
    proxy = {"limits": limits, **PATIENT, **(more or {})}
    return write_config(folder / "proxy.yaml", {"up": record.entry()}, skills, proxy=proxy, **top)


@pytest.fixture
def record(tmp_path: Path) -> Record:
    return Record(tmp_path / "log.jsonl")


def assert_told(answer: Answer, limit: str, value: int) -> None:
    """A refusal with HTTP 429 says which limit is reached, and when to try again."""
    assert answer.status == 429, answer
    error = answer.reply["error"]
    seconds = int(answer.headers["retry-after"])
    assert seconds > 0
    setting = f"proxy.limits.{limit}"
    assert error["code"] == LIMIT_REACHED
    assert error["data"] == {"limit": limit, "value": value, "setting": setting, "retryAfter": seconds}
    assert f"{value:,} {limit.removesuffix('s')}" in error["message"]
    assert setting in error["message"]
    assert f"try again in {seconds} second" in error["message"]


# --- sessions and namespaces -----------------------------------------------------------------------------------------


async def test_sessions_of_one_user_leave_others_theirs(
    launch: Launch, tmp_path: Path, record: Record, raw: Raw
) -> None:
    """In namespaces or not, they count together; one that has ended makes room."""
    proxy = launch(config(tmp_path, record, {"sessions": 2}, more={"tokens": TOKENS}))
    first = await raw.open(proxy.url, TOKENS["alice"])
    second = await raw.open(proxy.namespace("a"), TOKENS["alice"])
    for url in (proxy.url, proxy.namespace("a"), proxy.namespace("b")):
        assert_told(await raw.open_answer(url, bearer("alice")), "sessions", 2)
    assert "up__echo" in await raw.tools(proxy.url, first)
    assert "up__echo" in await raw.tools(proxy.namespace("a"), second)
    await raw.open(proxy.url, TOKENS["bob"])
    assert (await raw.send("DELETE", proxy.url, headers=first)).status == 200
    await raw.open(proxy.url, TOKENS["alice"])
    assert_told(await raw.open_answer(proxy.url, bearer("alice")), "sessions", 2)
    await proxy.until_logged("limit.reached", 1)
    assert [entry["user"] for entry in proxy.logged("limit.reached")] == ["alice"]


async def test_requests_that_open_no_session_take_no_place(
    launch: Launch, tmp_path: Path, record: Record, raw: Raw
) -> None:
    """However many of them are refused."""
    proxy = launch(config(tmp_path, record, {"sessions": 1}))
    for _ in range(3):
        assert (await raw.post(proxy.url, "tools/list")).status == 400
        assert (await raw.send("POST", proxy.url, body="nonsense")).status == 400
    await raw.open(proxy.url)


async def test_sessions_opened_at_once_are_no_more_than_may_be(
    launch: Launch, tmp_path: Path, record: Record, raw: Raw
) -> None:
    """The place is taken before the session is opened."""
    proxy = launch(config(tmp_path, record, {"sessions": 3}))
    statuses: list[int] = []

    async def open_one() -> None:
        statuses.append((await raw.open_answer(proxy.url)).status)

    async with anyio.create_task_group() as tasks:
        for _ in range(12):
            tasks.start_soon(open_one)
    assert sorted(statuses) == [200] * 3 + [429] * 9


async def test_without_configuration_users_share_the_bound_in_equal_parts(
    launch: Launch, tmp_path: Path, record: Record, raw: Raw
) -> None:
    """A user that takes all it can leaves the other one its part."""
    more = {"tokens": TOKENS, "max_scopes": {"session": 4, "namespace": 2, "principal": 10}}
    proxy = launch(config(tmp_path, record, {}, more=more))
    for _ in range(2):
        await raw.open(proxy.url, TOKENS["alice"])
    assert_told(await raw.open_answer(proxy.url, bearer("alice")), "sessions", 2)
    for _ in range(2):
        await raw.open(proxy.url, TOKENS["bob"])
    assert (await raw.modern(proxy.namespace("a"), "tools/list", headers=bearer("alice"))).status == 200
    assert_told(await raw.modern(proxy.namespace("b"), "tools/list", headers=bearer("alice")), "namespaces", 1)
    assert (await raw.modern(proxy.namespace("b"), "tools/list", headers=bearer("bob"))).status == 200


async def test_without_tokens_all_may_be_used(launch: Launch, tmp_path: Path, record: Record, raw: Raw) -> None:
    """By everybody together; past the overall bound it is the proxy that is full."""
    proxy = launch(config(tmp_path, record, {}, more={"max_scopes": 3}))
    for _ in range(3):
        await raw.open(proxy.url)
    answer = await raw.open_answer(proxy.url)
    assert answer.status == 503
    assert "proxy.max_scopes.session" in answer.text


async def test_namespaces_of_one_user_leave_others_theirs(
    launch: Launch, tmp_path: Path, record: Record, raw: Raw
) -> None:
    """In both eras; those that live go on."""
    proxy = launch(config(tmp_path, record, {"namespaces": 2}, more={"tokens": TOKENS}))
    alice = bearer("alice")
    assert (await raw.modern(proxy.namespace("a"), "tools/list", headers=alice)).status == 200
    headers = await raw.open(proxy.namespace("b"), TOKENS["alice"])
    await raw.tools(proxy.namespace("b"), headers)  # it has begun by then
    for method in ("tools/list", "server/discover"):
        assert_told(await raw.modern(proxy.namespace("c"), method, headers=alice), "namespaces", 2)
    assert_told(await raw.open_answer(proxy.namespace("c"), alice), "namespaces", 2)
    assert "up__echo" in await raw.tools(proxy.namespace("b"), headers)
    assert (await raw.modern(proxy.namespace("a"), "tools/list", headers=alice)).status == 200
    assert (await raw.modern(proxy.url, "tools/list", headers=alice)).status == 200
    assert (await raw.modern(proxy.namespace("c"), "tools/list", headers=bearer("bob"))).status == 200


async def test_a_namespace_that_has_ended_makes_room(launch: Launch, tmp_path: Path, record: Record, raw: Raw) -> None:
    """As it does after its idle time."""
    more = {"scope_idle": {"session": 60, "namespace": 0.5, "principal": 60}, "log_level": "debug"}
    proxy = launch(config(tmp_path, record, {"namespaces": 1}, more=more))
    assert (await raw.modern(proxy.namespace("a"), "tools/list")).status == 200
    await proxy.until_logged("scope.ended", 1)
    assert (await raw.modern(proxy.namespace("b"), "tools/list")).status == 200


# --- calls -----------------------------------------------------------------------------------------------------------


async def until_refused(peer: Peer, record: Record, marker: str) -> Json:
    """Call until a call is refused, which is not sent to the server; as many as may were."""
    for made in range(3 * FEW):  # a new minute may begin meanwhile
        result = await peer.call("up__echo", {"text": marker})
        if result.get("isError"):
            assert made >= FEW
            assert len(record.calls(marker)) == made
            return result
    raise AssertionError("no call was refused")


@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.parametrize("way", ["http", "stdio"])
async def test_a_client_that_calls_in_a_loop_is_told_when_to_try_again(
    launch: Launch, tmp_path: Path, record: Record, mode: str, way: str
) -> None:
    """In a result, which models read; calls of `SKILL` count as others do, and lists are free."""
    path = config(tmp_path, record, {"calls_per_minute": FEW})
    target = stdio_program(path) if way == "stdio" else launch(path).namespace("calls")
    async with connected(target, mode) as peer:
        text = text_of(await until_refused(peer, record, "loop"))
        assert text.startswith("This call was not made. At most 5 calls may be made in a minute")
        assert "(proxy.limits.calls_per_minute): try again in " in text
        assert "up__echo" in await peer.tools()
        refused = [await peer.skill("list") for _ in range(FEW)]
        assert any(result.get("isError") for result in refused)


async def test_other_requests_that_reach_servers_count_as_calls(
    launch: Launch, tmp_path: Path, record: Record, raw: Raw
) -> None:
    """They are refused with a JSON-RPC error that holds the seconds."""
    proxy = launch(config(tmp_path, record, {"calls_per_minute": FEW}))
    url = proxy.namespace("n")
    requests = [
        ("resources/read", {"uri": "memo://nowhere"}),
        ("prompts/get", {"name": "up__nothing"}),
        ("completion/complete", {"ref": {"type": "ref/prompt", "name": "x"}, "argument": {"name": "a", "value": ""}}),
    ]
    seen: set[str] = set()
    for number in range(6 * FEW):
        method, params = requests[number % len(requests)]
        error = (await raw.modern(url, method, params)).reply["error"]
        if error["code"] == LIMIT_REACHED:
            assert number >= FEW
            assert error["data"]["limit"] == "calls_per_minute"
            assert error["data"]["retryAfter"] > 0
            seen.add(method)
    assert seen == {method for method, _ in requests}


async def test_calls_in_work_are_bounded_for_each_user(launch: Launch, tmp_path: Path, raw: Raw) -> None:
    """One that is cancelled makes room, as one that ends does; another user's calls are not concerned."""
    talk = Talk(tmp_path / "talk.jsonl")
    skills = {"talking": {"active": True, "tool_list": {"up": []}}}
    more = {"tokens": TOKENS, "limits": {"calls_in_flight": 2}, **PATIENT}
    proxy = launch(write_config(tmp_path / "proxy.yaml", {"up": talk.entry()}, skills, proxy=more))
    url = proxy.namespace("n")
    headers = await raw.open(url, TOKENS["alice"])

    async def call(tool: str, user: str = "alice", **arguments: str) -> Json:
        params = {"name": f"up__{tool}", "arguments": arguments}
        sent = headers if user == "alice" else await raw.open(url, TOKENS[user])
        return (await raw.post(url, "tools/call", params, sent)).reply

    async def wait(key: str) -> None:
        params = {"name": "up__wait", "arguments": {"key": key}}
        body = {"jsonrpc": "2.0", "id": key, "method": "tools/call", "params": params}
        await raw.send("POST", url, headers=headers, body=body)

    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait, "one")
            tasks.start_soon(wait, "two")
            await talk.until_received("tools/call", times=2)
            refused = (await call("echo"))["result"]
            assert refused["isError"]
            assert "At most 2 calls may be in work at a time" in text_of(refused)
            assert "try again in 1 second" in text_of(refused)
            assert len(talk.received("tools/call")) == 2
            assert not (await call("echo", "bob"))["result"].get("isError")
            cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "one"}}
            await raw.send("POST", url, headers=headers, body=cancel)
            while (await call("release", key="two"))["result"].get("isError"):  # noqa: ASYNC110
                await anyio.sleep(0.01)  # another process gives the place back
    assert not (await call("echo"))["result"].get("isError")


async def test_a_run_goes_on_and_later_calls_wait_for_it(launch: Launch, tmp_path: Path, record: Record) -> None:
    """The calls of its steps count for the client that has begun it."""
    step = {"tool": "up/echo", "for_each": [*range(5 * FEW)], "arguments": {"text": "step {{ item }}"}}
    skills = {"acting": {"steps": [step], "max_iterations": 1000, "tool_list": {"up": []}}}
    path = write_config(
        tmp_path / "proxy.yaml", {"up": record.entry()}, skills, proxy={"limits": {"calls_per_minute": FEW}, **PATIENT}
    )
    async with connected(launch(path).url, "legacy") as peer:
        run = await peer.call("SKILL_INVOKE", {"skill_name": "acting"})
        assert not run.get("isError"), run
        assert len(record.calls("step ")) == 5 * FEW
        refused = await peer.skill("activate", "acting")
        assert refused["isError"]
        assert "proxy.limits.calls_per_minute" in text_of(refused)


async def test_limits_of_a_profile_count_within_it(launch: Launch, tmp_path: Path, record: Record, raw: Raw) -> None:
    """The same user has another count elsewhere; what the profile does not say comes from the proxy's limits."""
    profiles = [{"namespace": "ci-*", "limits": {"calls_per_minute": FEW}}, {"namespace": "*"}]
    proxy = launch(config(tmp_path, record, {"sessions": 3}, profiles=profiles))
    async with connected(proxy.namespace("ci-1"), MODERN) as ci, connected(proxy.namespace("me"), "legacy") as me:
        result: Json = {}
        for _ in range(3 * FEW):
            result = await ci.call("up__echo", {"text": "x"})
        assert result["isError"]
        assert "(limits.calls_per_minute of the profile)" in text_of(result)
        for _ in range(3 * FEW):
            assert not (await me.call("up__echo", {"text": "x"})).get("isError")
        await raw.open(proxy.namespace("ci-2"))
        await raw.open(proxy.namespace("ci-2"))
        assert_told(await raw.open_answer(proxy.namespace("ci-2")), "sessions", 3)


async def test_a_changed_limit_counts_at_once_and_ends_nothing(
    launch: Launch, tmp_path: Path, record: Record, raw: Raw
) -> None:
    """Sessions above it stay; the calls that were made count."""
    limits: Json = {"sessions": 2, "calls_per_minute": "unlimited"}
    path = config(tmp_path, record, limits)
    proxy = launch(path)
    opened = [await raw.open(proxy.url) for _ in range(2)]
    config(tmp_path, record, {"sessions": 1, "calls_per_minute": FEW})
    await proxy.until_logged("config.reloaded", 1)
    assert not proxy.logged("config.restart_needed")
    for headers in opened:
        assert "up__echo" in await raw.tools(proxy.url, headers)
    assert_told(await raw.open_answer(proxy.url), "sessions", 1)
    call = {"name": "up__echo", "arguments": {}}
    results = [(await raw.post(proxy.url, "tools/call", call, opened[0])).reply["result"] for _ in range(3 * FEW)]
    assert any(result.get("isError") for result in results)


# --- connections and questions ---------------------------------------------------------------------------------------


def isolated(folder: Path, talk: Talk, limits: Json, **server: object) -> Path:
    skills = {"talking": {"tool_list": {"up": []}}}
    proxy = {"limits": limits, "tokens": TOKENS, **PATIENT}
    return write_config(folder / "proxy.yaml", {"up": talk.entry(isolation="scope", **server)}, skills, proxy=proxy)


@pytest.mark.parametrize(
    ("limits", "most", "why"),
    [
        ({"processes": 1}, 100, "this user has as many connections of its own as it may (1, proxy.limits.processes)"),
        ({}, 3, "this user has its part of the connections that there may be (1 of 3)"),
    ],
    ids=["configured", "by default"],
)
async def test_connections_of_one_user_leave_others_theirs(
    launch: Launch, tmp_path: Path, limits: Json, most: int, why: str
) -> None:
    """The answer to the activation says so for that server; a process that has ended makes room."""
    proxy = launch(isolated(tmp_path, Talk(tmp_path / "talk.jsonl"), limits, max_connections=most))
    alice, bob = TOKENS["alice"], TOKENS["bob"]
    async with (
        connected(proxy.namespace("a"), MODERN, token=alice) as first,
        connected(proxy.namespace("b"), MODERN, token=alice) as second,
        connected(proxy.namespace("b"), MODERN, token=bob) as other,
    ):
        await first.skill("activate", "talking")
        told = await second.skill("activate", "talking")
        assert not told.get("isError")
        assert why in text_of(told)
        assert why not in text_of(await other.skill("activate", "talking"))
        for peer in (first, other):
            assert not (await peer.call("up__echo")).get("isError")
        await first.skill("offload", "talking")
        await second.skill("activate", "talking")
        assert not (await second.call("up__echo")).get("isError")


@pytest.mark.parametrize(("mode", "era"), [("legacy", "handshake"), (MODERN, "handshake"), ("legacy", "modern")])
async def test_questions_that_wait_are_bounded_for_each_user(
    launch: Launch, tmp_path: Path, mode: str, era: str
) -> None:
    """One more is refused to the server at once; another user is asked, and so is this one when it has answered."""
    proxy = launch(isolated(tmp_path, Talk(tmp_path / "talk.jsonl"), {"held_questions": 1}, era=era))
    busy, free, other = User(hold=anyio.Event()), User(), User()
    async with AsyncExitStack() as stack:
        peers = [
            await stack.enter_async_context(answering(proxy.namespace(name), mode, user, bearer(whose)))
            for name, user, whose in (("a", busy, "alice"), ("b", free, "alice"), ("b", other, "bob"))
        ]
        for peer in peers:
            await peer.skill("activate", "talking")
        question = {"a": form("Which?")}
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, peers[0], "up__ask", question)
            await busy.until_asked()
            if era == "handshake":
                (answers,) = await ask(peers[1], "up__ask", question)
                assert answers["a"]["error"]["code"] == LIMIT_REACHED
                assert "alice" not in str(answers)
            else:
                params = {"name": "up__ask", "arguments": {"rounds": [question]}}
                code, text = await peers[1].refusal("tools/call", params)
                assert code == LIMIT_REACHED
                assert "At most 1 question may wait" in text
            assert free.asked == []
            await ask(peers[2], "up__ask", question)
            assert other.asked == ["Which?"]
            assert busy.hold is not None
            busy.hold.set()
        await ask(peers[1], "up__ask", question)
        assert free.asked == ["Which?"]
