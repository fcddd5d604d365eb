"""The gate on the wire: what is not granted never reaches an upstream, which writes down all that it receives."""

import json
import re
import subprocess
from collections.abc import Generator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import MCPError

from tests.answers import current_skills, tools_told
from tests.conftest import (
    ERAS,
    ROOT,
    HttpProxy,
    Json,
    Launch,
    Peer,
    Raw,
    Record,
    connected,
    http_proxy,
    of_servers,
    program,
    stdio_program,
    text_of,
    write_config,
)

pytestmark = pytest.mark.anyio

UPSTREAM_METHODS = ("tools/call", "resources/read", "prompts/get", "completion/complete")


@dataclass(frozen=True)
class World:
    """A proxy over HTTP with two recorders; every test is in a namespace of its own."""

    proxy: HttpProxy
    one: Record
    two: Record


SKILLS: dict[str, Any] = {
    "narrow": {"usage": "n", "tool_list": {"one": ["echo"]}},
    "issues": {"usage": "i", "tool_list": {"one": ["list_issues", "ech*"]}},
    "all": {"usage": "a", "tool_list": {"one": []}},
    "star": {"usage": "s", "tool_list": {"one": "*"}},
    "bare": {"usage": "b", "tool_list": {"one": "echo"}},
    "empty": {"usage": "e", "tool_list": {}},
    "absent": {"usage": "no tools at all"},
    "second": {"usage": "t", "tool_list": {"two": "echo"}},
    "odd": {"usage": "o", "tool_list": {"two": ["time.get-now", "a/b", "ns:tool", "Scan file", "Größe", "SKILL"]}},
    "reading": {"usage": "r", "tool_list": {"two": ["echo"]}, "resource_list": {"two": ["memo://one"]}},
    "off": {"usage": "x", "enabled": False, "tool_list": {"two": []}},
}
DENIED = {"one": ["delete_*", "die"]}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Generator[World]:
    folder = tmp_path_factory.mktemp("gate")
    one, two = Record(folder / "one.jsonl", "one"), Record(folder / "two.jsonl", "two")
    config = write_config(
        folder / "skills.yaml",
        {"one": one.entry(), "two": two.entry(era="handshake")},
        SKILLS,
        denied=DENIED,
        proxy={"call_route": "on"},
    )
    with http_proxy(config) as proxy:
        yield World(proxy, one, two)


async def outcome(peer: Peer, name: str, marker: str) -> Json:
    """The answer to a call, or the error as JSON."""
    try:
        return await peer.call(name, {"marker": marker})
    except MCPError as error:
        return {"error": {"code": error.error.code, "message": error.error.message}}


def refused(answer: Json) -> bool:
    return answer.get("isError") is True or "error" in answer


SPELLINGS = (
    "one__echo",
    "echo",
    "one__ECHO",
    "ONE__echo",
    "one__echo ",
    " one__echo",
    "one__echo\n",
    "one__echo\u200b",
    "one_echo",
    "one.echo",
    "one/echo",
    "one:echo",
    "mcp__skills__one__echo",
    "two__one__echo",
    "one__delete_repo",
    "delete_repo",
    "one__die",
    "one__*",
    "*",
    "one__",
    "one",
    "",
    "skill",
    "SKILL ",
    "one__SKILL",
)


@pytest.mark.parametrize("when", ["before", "after", "beside"])
@pytest.mark.parametrize("mode", ERAS)
async def test_hidden_tools_never_arrive(world: World, namespace: str, mode: str, when: str) -> None:
    """Under no spelling, in no era, directly or by `SKILL_CALL`: before, after and beside an activation."""
    marker = f"hidden-{namespace}"
    async with connected(world.proxy.namespace(namespace), mode) as peer:
        if when == "after":
            await peer.skill("activate", "all")
            await peer.call("one__echo", {"marker": f"allowed-{namespace}"})
            await peer.skill("offload", "all")
        elif when == "beside":
            await peer.skill("activate", "second")
        for name in SPELLINGS:
            if when == "beside" and name == "echo":  # so the server that is granted calls its own
                continue
            assert refused(await outcome(peer, name, marker)), name
            assert refused(await through_call_route(peer, name, marker)), name
        if when == "beside":
            for answer in (
                await outcome(peer, "echo", f"own-{namespace}"),
                await through_call_route(peer, "echo", f"own-{namespace}"),
            ):
                assert answer["structuredContent"]["server"] == "two"
        await peer.skill("activate", "narrow")
        if when == "beside":  # two that are granted are called so now
            assert refused(await outcome(peer, "echo", marker))
        await peer.call("one__echo", {"marker": f"last-{namespace}"})
    assert world.one.calls(f"last-{namespace}")
    assert world.one.calls(marker) == []
    assert world.two.calls(marker) == []


async def through_call_route(peer: Peer, name: str, marker: str) -> Json:
    try:
        return await peer.call("SKILL_CALL", {"tool": name, "arguments": {"marker": marker}})
    except MCPError as error:
        return {"error": error.error.message}


async def test_denied_tools_never_arrive(world: World, namespace: str) -> None:
    """`black_tool_actions` wins over every grant; a denied tool is as unknown as one that does not exist."""
    marker = f"denied-{namespace}"
    async with connected(world.proxy.namespace(namespace)) as peer:
        await peer.skill("activate", "all")
        await peer.skill("activate", "star")
        assert not {"one__delete_repo", "one__die"} & set(await peer.tools())
        denied = await outcome(peer, "one__delete_repo", marker)
        absent = await outcome(peer, "one__no_such", marker)
        assert denied == {"error": {"code": -32602, "message": "Unknown tool: one__delete_repo"}}
        assert absent == {"error": {"code": -32602, "message": "Unknown tool: one__no_such"}}
    assert world.one.calls(marker) == []


async def test_refusals_that_help(world: World, namespace: str) -> None:
    """A tool of a skill that is not active is refused with the call that helps; once offloaded it says so."""
    async with connected(world.proxy.namespace(namespace)) as peer:
        before = await peer.call("one__echo")
        assert before["isError"] is True
        assert 'SKILL({"action": "activate", "skill_name": "narrow"})' in text_of(before)
        assert "not active" in text_of(before)
        await peer.skill("activate", "narrow")
        assert "isError" not in await peer.call("one__echo")
        await peer.skill("offload", "narrow")
        after = await peer.call("one__echo")
        assert after["isError"] is True
        assert 'SKILL({"action": "activate", "skill_name": "narrow"})' in text_of(after)
        assert "offloaded" in text_of(after)


@pytest.mark.parametrize("mode", ERAS)
async def test_other_requests_are_gated(world: World, namespace: str, mode: str) -> None:
    """Resources, prompts and completions of a server reach it only while a skill grants all its tools or lists them."""
    requests: list[tuple[str, Json]] = [
        ("resources/read", {"uri": "memo://two"}),
        ("resources/read", {"uri": "memo://by-day/monday"}),
        ("resources/read", {"uri": "memo://by-day/../one"}),
        ("prompts/get", {"name": "one__greet", "arguments": {"who": namespace}}),
        ("prompts/get", {"name": "greet", "arguments": {"who": namespace}}),
        (
            "completion/complete",
            {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "who", "value": ""}},
        ),
        ("resources/subscribe", {"uri": "memo://two"}),
    ]
    async with connected(world.proxy.namespace(namespace), mode) as peer:
        before = [len(record.received(*UPSTREAM_METHODS, "resources/subscribe")) for record in (world.one, world.two)]
        for activation in (None, "narrow", "second"):
            if activation is not None:
                await peer.skill("activate", activation)
            for key, method in (("resources", "resources/list"), ("prompts", "prompts/list")):
                assert of_servers((await peer.request(method))[key]) == []
            assert (await peer.request("resources/templates/list"))["resourceTemplates"] == []
            for method, params in requests:
                with pytest.raises(MCPError):
                    await peer.request(method, params)
        after = [len(record.received(*UPSTREAM_METHODS, "resources/subscribe")) for record in (world.one, world.two)]
        assert after == before
        await peer.skill("activate", "all")
        listed = of_servers((await peer.request("resources/list"))["resources"])
        assert [entry["uri"] for entry in listed] == ["memo://one", "memo://two"]
        listed = of_servers((await peer.request("prompts/list"))["prompts"])
        assert [entry["name"] for entry in listed] == ["one__greet"]
        for uri in ("memo://two", "memo://by-day/monday"):
            assert (await peer.request("resources/read", {"uri": uri}))["contents"][0]["text"] == f"one {uri}"
        got = await peer.request("prompts/get", {"name": "one__greet", "arguments": {"who": "x"}})
        assert got["messages"][0]["content"]["text"] == "one greet {'who': 'x'}"
        with pytest.raises(MCPError):
            await peer.request("resources/read", {"uri": "memo://nowhere"})


async def test_resources_by_their_own_list(world: World, namespace: str) -> None:
    """A `resource_list` shows what it names without granting all tools, at that server."""
    async with connected(world.proxy.namespace(namespace)) as peer:
        await peer.skill("activate", "reading")
        listed = of_servers((await peer.request("resources/list"))["resources"])
        assert [entry["uri"] for entry in listed] == ["memo://one"]
        assert of_servers((await peer.request("prompts/list"))["prompts"]) == []
        read = await peer.request("resources/read", {"uri": "memo://one"})
        assert read["contents"][0]["text"] == "two memo://one"
        with pytest.raises(MCPError):
            await peer.request("resources/read", {"uri": "memo://two"})


async def test_handed_out_resources_go_with_the_skill(world: World, namespace: str) -> None:
    """Nothing active, nothing granted: what a tool handed out is not read at a server that no active skill names."""
    uri = f"secret://{namespace}"
    async with connected(world.proxy.namespace(namespace)) as peer:
        await peer.skill("activate", "all")
        await peer.call("one__link", {"uri": uri})
        await peer.skill("offload", "all")
        with pytest.raises(MCPError):
            await peer.request("resources/read", {"uri": uri})
    assert not [entry for entry in world.one.received("resources/read") if namespace in json.dumps(entry)]


async def test_handed_out_resources(world: World, namespace: str) -> None:
    """What a tool result handed out is readable in that scope, at that server, and in no other scope."""
    uri = f"secret://{namespace}"
    async with (
        connected(world.proxy.namespace(namespace)) as peer,
        connected(world.proxy.namespace(f"{namespace}-other")) as other,
    ):
        for each in (peer, other):
            await each.skill("activate", "all")
            with pytest.raises(MCPError):
                await each.request("resources/read", {"uri": uri})
        await peer.call("one__link", {"uri": uri})
        assert (await peer.request("resources/read", {"uri": uri}))["contents"][0]["text"] == f"one {uri}"
        with pytest.raises(MCPError):
            await other.request("resources/read", {"uri": uri})


# --- what skills grant -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("skill", "granted"),
    [
        ("narrow", ["one__echo"]),
        ("bare", ["one__echo"]),
        ("issues", ["one__echo", "one__echo_other", "one__list_issues"]),
        ("empty", []),
        ("absent", []),
    ],
)
async def test_grants(world: World, namespace: str, skill: str, granted: list[str]) -> None:
    """Names, patterns, a bare string, and skills of instructions only: exactly what the list says."""
    async with connected(world.proxy.namespace(namespace)) as peer:
        result = await peer.skill("activate", skill)
        assert await peer.tools() == ["SKILL", "SKILL_CALL", *granted]
        assert tools_told(result) == granted


async def test_everything(world: World, namespace: str) -> None:
    """`[]` and `"*"` grant the same: all tools of the server but the denied and the unusable ones."""
    async with AsyncExitStack() as stack:
        lists: list[list[str]] = []
        for skill in ("all", "star"):
            peer = await stack.enter_async_context(connected(world.proxy.namespace(f"{namespace}-{skill}")))
            await peer.skill("activate", skill)
            lists.append(await peer.tools())
    assert lists[0] == lists[1]
    assert {"one__echo", "one__wait", "one__odd"} < set(lists[0])
    assert "one__" not in lists[0]


@pytest.mark.parametrize("empty", ["", " ~", " null"])
async def test_empty_grant_is_refused(tmp_path: Path, empty: str) -> None:
    """A server without a value says neither all nor none: the file is refused with its line, before anything starts."""
    file = tmp_path / "skills.yaml"
    log = tmp_path / "log.jsonl"
    entry = json.dumps(Record(log).entry())
    file.write_text(f"servers:\n  up: {entry}\nskill_configs:\n  s:\n    usage: u\n    tool_list:\n      up:{empty}\n")
    done = await anyio.run_process(program("serve", "--config", file), stdin=subprocess.DEVNULL, check=False, cwd=ROOT)
    assert done.returncode == 2
    assert done.stdout == b""
    assert f"{file}:7: skill_configs.s.tool_list.up: " in done.stderr.decode()
    assert not log.exists()


@pytest.mark.parametrize("order", list(permutations(["all", "narrow", "second"])))
async def test_union_and_order(world: World, namespace: str, order: tuple[str, ...]) -> None:
    """Every order of activation gives the same bytes; a tool stays while one active skill still grants it."""
    async with connected(world.proxy.namespace(namespace)) as peer:
        for skill in order:
            await peer.skill("activate", skill)
        listed = json.dumps(await peer.definitions())
        names = await peer.tools()
        assert names[:2] == ["SKILL", "SKILL_CALL"]
        servers = [name.split("__")[0] for name in names[2:]]
        assert servers == sorted(servers, key=["one", "two"].index)
        await peer.skill("offload", "all")
        assert await peer.tools() == ["SKILL", "SKILL_CALL", "one__echo", "two__echo"]
        await peer.skill("activate", "all")
        assert json.dumps(await peer.definitions()) == listed


async def test_list_is_the_same_after_restarts(tmp_path: Path) -> None:
    """Whichever server is ready first, over restarts: the same bytes for the same active skills."""
    seen: set[str] = set()
    servers = ("b", "a", "c")
    for order in (("a", "b", "c"), ("c", "b", "a")):
        folder = tmp_path / "-".join(order)
        folder.mkdir()
        records = {key: Record(folder / f"{key}.jsonl", key, until=folder / f"{key}.go") for key in servers}
        config = write_config(
            tmp_path / "skills.yaml",
            {key: records[key].entry() for key in servers},
            {
                "one": {"usage": "1", "tool_list": {"c": ["echo", "wait"], "a": []}},
                "two": {"usage": "2", "tool_list": {"b": ["SKILL", "a/b"]}},
            },
        )
        async with connected(stdio_program(config)) as peer, peer.hearing(), anyio.create_task_group() as tasks:
            for skill in ("one", "two") if order[0] == "a" else ("two", "one"):
                tasks.start_soon(peer.skill, "activate", skill)
            for key in order:
                (folder / f"{key}.go").touch()
                await records[key].until_received("tools/list")
            while len(await peer.tools()) < 10:  # noqa: ASYNC110 - the last server may still be on its way
                await anyio.sleep(0.01)
            seen.add(json.dumps(await peer.definitions()))
    assert len(seen) == 1


# --- names -----------------------------------------------------------------------------------------------------------


async def test_odd_names(world: World, namespace: str) -> None:
    """Every exposed name fits every client, and the call arrives under the exact original name."""
    originals = sorted(["Größe", "SKILL", "Scan file", "a/b", "ns:tool", "time.get-now"])
    async with connected(world.proxy.namespace(namespace)) as peer:
        activation = await peer.skill("activate", "odd")
        names = tools_told(activation)
        assert len(set(names)) == len(names) == len(originals)
        for original, name in zip(originals, names, strict=True):  # in the order of their own names
            assert re.fullmatch(r"[A-Za-z0-9_-]{1,48}", name), name
            answer = await peer.call(name, {"marker": namespace})
            assert answer["structuredContent"]["tool"] == original
        assert await peer.tools() == ["SKILL", "SKILL_CALL", *names]
        assert text_of(await peer.skill("list")).startswith("10 skills")
    assert sorted(name for name, _ in world.two.calls(namespace)) == originals


async def test_same_names_and_long_names(world: World, namespace: str) -> None:
    """Two servers with the same tools: both reachable, each call at its own server; 200 letters become 48."""
    async with connected(world.proxy.namespace(namespace)) as peer:
        await peer.skill("activate", "all")
        first = await peer.tools()
        await peer.skill("activate", "second")
        assert [name for name in await peer.tools() if name.startswith("one__")] == first[2:]
        for server in ("one", "two"):
            answer = await peer.call(f"{server}__echo", {"marker": namespace})
            assert answer["structuredContent"]["server"] == server
        (long,) = [name for name in first if "xxxxxxxx" in name]
        assert len(long) == 48
        assert (await peer.call(long))["structuredContent"]["tool"] == "x" * 200
    assert [name for name, _ in world.two.calls(namespace)] == ["echo"]


async def test_unprefixed_upstream_cannot_take_our_names(tmp_path: Path) -> None:
    """With `prefix: ""` an upstream's `SKILL` and `skill` get other names, and our `SKILL` stays ours."""
    record = Record(tmp_path / "log.jsonl")
    config = write_config(
        tmp_path / "skills.yaml", {"up": record.entry(prefix="")}, {"s": {"usage": "u", "tool_list": {"up": []}}}
    )
    async with connected(stdio_program(config)) as peer:
        names = tools_told(await peer.skill("activate", "s"))
        assert "echo" in names
        altered = [name for name in names if name.casefold().startswith("skill")]
        assert len(altered) == 2
        assert "skill" not in map(str.casefold, altered)
        assert (await peer.tools()).count("SKILL") == 1
        called = {(await peer.call(name))["structuredContent"]["tool"] for name in altered}
        assert called == {"SKILL", "skill"}
        assert current_skills(await peer.skill("list")) == ["s"]


# --- races -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ERAS)
async def test_calls_beside_offloads(world: World, namespace: str, mode: str) -> None:
    """Of calls and offloads sent at once, exactly those that were answered with a result have arrived."""
    answers: dict[str, Json] = {}

    async def call(peer: Peer, marker: str) -> None:
        answers[marker] = await outcome(peer, "one__echo", marker)

    async with connected(world.proxy.namespace(namespace), mode) as peer:
        for turn in range(8):
            await peer.skill("activate", "narrow")
            async with anyio.create_task_group() as tasks:
                for each in range(4):
                    tasks.start_soon(call, peer, f"race-{namespace}-{turn}-{each}-before;")
                tasks.start_soon(peer.skill, "offload", "narrow")
                for each in range(4):
                    tasks.start_soon(call, peer, f"race-{namespace}-{turn}-{each}-beside;")
            await call(peer, f"race-{namespace}-{turn}-0-after;")
    for marker, answer in answers.items():
        assert len(world.one.calls(marker)) == (0 if refused(answer) else 1), marker
        assert refused(answer) or not marker.endswith("-after;")


@pytest.mark.parametrize("mode", ERAS)
async def test_offload_while_a_call_waits_for_its_server(
    tmp_path: Path, launch: Launch, namespace: str, mode: str
) -> None:
    """Calls that wait for a server to come back are decided again: after an offload meanwhile none arrives."""
    gate = tmp_path / "go"
    gate.touch()
    record = Record(tmp_path / "log.jsonl", until=gate)
    config = write_config(
        tmp_path / "skills.yaml", {"up": record.entry()}, {"s": {"usage": "u", "tool_list": {"up": ["echo", "die"]}}}
    )
    proxy = launch(config)
    answers: dict[str, list[Json]] = {"left": [], "kept": []}

    async def call(peer: Peer, where: str) -> None:
        answers[where].append(await outcome(peer, "up__echo", f"in-{where}"))

    async with (
        connected(proxy.namespace(f"{namespace}-left"), mode) as left,
        connected(proxy.namespace(f"{namespace}-kept"), mode) as kept,
    ):
        for peer in (left, kept):
            await peer.skill("activate", "s")
        gate.unlink()
        assert (await left.call("up__die"))["isError"] is True
        async with anyio.create_task_group() as tasks:
            for _ in range(10):
                tasks.start_soon(call, left, "left")
                tasks.start_soon(call, kept, "kept")
            await until_starting(proxy)
            await left.skill("offload", "s")
            gate.touch()
    assert len(record.calls("in-kept")) == 10
    assert not any(refused(answer) for answer in answers["kept"])
    assert record.calls("in-left") == []
    for answer in answers["left"]:
        assert answer.get("isError") is True, answer
        assert "offloaded" in text_of(answer)
        assert 'SKILL({"action": "activate", "skill_name": "s"})' in text_of(answer)


async def until_starting(proxy: HttpProxy) -> None:
    """Wait until the proxy says that it starts its server for the second time."""
    with anyio.fail_after(20):
        while proxy.log.read_text(encoding="utf-8").count('"server.starting"') < 2:  # noqa: ASYNC110
            await anyio.sleep(0.01)


async def test_unknown_methods_stay_out(world: World, raw: Raw, namespace: str) -> None:
    """What the proxy does not know is refused by it; nothing is passed on unseen."""
    url = world.proxy.namespace(namespace)
    headers = await raw.open(url)
    await raw.skill(url, headers, "activate", "all")
    for method in (
        "tools/execute",
        "Tools/Call",
        "tools/call ",
        "skills/call",
        "tasks/list",
        "sampling/createMessage",
    ):
        answer = await raw.post(url, method, {"name": "one__echo", "arguments": {}, "level": "debug"}, headers)
        assert answer.reply["error"]["code"] == -32601
    known = {"initialize", "notifications/initialized", "server/discover", "ping", *UPSTREAM_METHODS}
    lists = {"tools/list", "resources/list", "resources/templates/list", "prompts/list"}
    assert {entry["method"] for entry in world.one.received()} <= known | lists | {"notifications/cancelled"}
