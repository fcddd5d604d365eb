"""`SKILL` and `SKILL_CALL` over the wire: what they say, when a notice goes out, and which clients get what."""

import json
from collections.abc import Generator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import MCPError

from tests.conftest import (
    ERAS,
    MODERN,
    PATIENCE,
    HttpProxy,
    Json,
    Launch,
    Peer,
    Raw,
    Record,
    connected,
    http_proxy,
    stdio_program,
    text_of,
    write_config,
)

pytestmark = pytest.mark.anyio

GUIDE = "Echo with care.\nSecond line."
SKILLS: dict[str, Any] = {
    "echoing": {"name": "Echoes", "desc": "Says it again", "usage": GUIDE, "tool_list": {"up": ["echo", "odd"]}},
    "issues": {"desc": "Lists issues", "usage": "List them.", "tool_list": {"up": ["list_issues", "no_such_tool"]}},
    "everything": {"desc": "All of it", "usage": "Anything.", "tool_list": {"up": []}},
    "notes": {"desc": "Words alone", "usage": "Only words, </skill_guide> and <b>."},
    "broken": {"desc": "Half works", "usage": "b", "tool_list": {"nowhere": [], "up": ["echo"]}},
    "always": {"desc": "Stays", "usage": "Stays.", "pinned": True, "tool_list": {"up": ["wait"]}},
}
SHOWN = ["SKILL", "up__wait"]


@dataclass(frozen=True)
class World:
    """A proxy over HTTP, its configuration and its recorder."""

    proxy: HttpProxy
    config: Path
    record: Record


def servers(record: Record) -> dict[str, Any]:
    return {"up": record.entry(), "nowhere": {"command": "no-such-binary-here"}}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Generator[World]:
    folder = tmp_path_factory.mktemp("skill-tool")
    record = Record(folder / "log.jsonl", "up-server")
    config = write_config(folder / "skills.yaml", servers(record), SKILLS)
    with http_proxy(config) as proxy:
        yield World(proxy, config, record)


# --- what it says ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ERAS)
async def test_definition(world: World, namespace: str, mode: str) -> None:
    """`SKILL` comes first, with the catalogue, the usable actions, the ids, and no `outputSchema`."""
    async with connected(world.proxy.namespace(namespace), mode) as peer:
        skill = (await peer.definitions())[0]
        assert skill["name"] == "SKILL"
        assert len(skill["description"]) <= 2000
        info = '<skill id="echoing"><skill_name>Echoes</skill_name><skill_desc>Says it again</skill_desc></skill>'
        assert info in skill["description"]
        assert skill["description"].startswith("<skills_guide><skill_guide>")
        assert skill["description"].endswith("</skills_info></skills_guide>")
        assert skill["inputSchema"]["properties"]["action"]["enum"] == ["activate", "offload", "list", "read"]
        assert skill["inputSchema"]["properties"]["skill_name"]["enum"] == list(SKILLS)
        assert "outputSchema" not in skill
        hints = skill["annotations"]
        assert (hints["destructiveHint"], hints["idempotentHint"], hints["openWorldHint"]) == (False, True, False)


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_instructions_and_capabilities(world: World, mode: str) -> None:
    """A client that asks learns of `SKILL` in at most 512 characters, and that lists change."""
    async with connected(stdio_program(world.config), mode) as peer:
        assert peer.client.instructions is not None
        assert "SKILL" in peer.client.instructions
        assert len(peer.client.instructions) <= 512
        capabilities = peer.client.server_capabilities
        assert capabilities.tools is not None
        assert capabilities.tools.list_changed is True
        assert await peer.tools() == SHOWN


async def test_activate(world: World, namespace: str) -> None:
    """The first activation tells it all, as text and as structured content alike."""
    async with connected(world.proxy.namespace(namespace)) as peer:
        result = await peer.skill("activate", "echoing")
        text = text_of(result)
        assert text.startswith(
            f"skill echoing activated, current skills: ['always', 'echoing']\n\n<skill_guide>{GUIDE}</skill_guide>\n\n"
        )
        assert "These are the instructions of up-server." in text
        assert "up__echo" in text
        assert "up__odd" in text
        structured = result["structuredContent"]
        assert structured["action"] == "activate"
        assert structured["skill"] == "echoing"
        assert structured["current_skills"] == ["always", "echoing"]
        assert structured["guide"] == GUIDE
        assert [tool["name"] for tool in structured["tools"]] == ["up__echo", "up__odd"]
        assert structured["problems"] == []
        assert not result.get("isError")


async def test_activate_again_and_offload(world: World, namespace: str) -> None:
    """Again: "already activated" with the same guide and tools; offloading what is not active is no error."""
    async with connected(world.proxy.namespace(namespace)) as peer:
        first = await peer.skill("activate", "echoing")
        await peer.skill("activate", "issues")
        again = await peer.skill("activate", "echoing")
        assert text_of(again).startswith(
            "skill echoing already activated, current skills: ['always', 'echoing', 'issues']\n\n"
            f"<skill_guide>{GUIDE}</skill_guide>"
        )
        assert again["structuredContent"]["tools"] == first["structuredContent"]["tools"]
        offloaded = await peer.skill("offload", "echoing")
        assert text_of(offloaded) == "skill echoing offloaded, current skills: ['always', 'issues']"
        assert offloaded["structuredContent"]["current_skills"] == ["always", "issues"]
        for name in ("echoing", "nonsense"):
            missing = await peer.skill("offload", name)
            assert text_of(missing) == f"skill {name} not found, current skills: ['always', 'issues']"
            assert not missing.get("isError")


async def test_aliases(world: World, namespace: str) -> None:
    """`active_skill` and `offload_skill` are accepted."""
    async with connected(world.proxy.namespace(namespace)) as peer:
        assert text_of(await peer.skill("active_skill", "notes")).startswith("skill notes activated")
        assert text_of(await peer.skill("offload_skill", "notes")).startswith("skill notes offloaded")


async def test_instructions_only_skill(world: World, namespace: str) -> None:
    """A skill without tools gives its guide, whose text cannot end our own tags, and changes no list."""
    async with connected(world.proxy.namespace(namespace)) as peer, peer.hearing():
        result = await peer.skill("activate", "notes")
        assert text_of(result).count("</skill_guide>") == 1
        assert "<b>" in text_of(result)
        assert result["structuredContent"]["guide"] == SKILLS["notes"]["usage"]
        assert result["structuredContent"]["tools"] == []
        assert await peer.tools() == SHOWN


async def test_problems(world: World, namespace: str) -> None:
    """A server that cannot start costs its own tools alone, and is named with one line of reason."""
    async with connected(world.proxy.namespace(namespace)) as peer:
        result = await peer.skill("activate", "broken")
        assert not result.get("isError")
        (problem,) = result["structuredContent"]["problems"]
        assert problem["server"] == "nowhere"
        assert "no-such-binary-here" in problem["reason"]
        assert "\n" not in problem["reason"]
        assert f"server nowhere failed: {problem['reason']}" in text_of(result)
        assert (await peer.call("up__echo"))["structuredContent"]["tool"] == "echo"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({}, "action"),
        ({"action": "dance"}, "dance"),
        ({"action": 7}, "7"),
        ({"action": None}, "action"),
        ({"action": ["activate"]}, "action"),
        ({"action": "ACTIVATE ", "skill_name": "echoing"}, "action"),
        ({"action": "activate"}, "skill_name"),
        ({"action": "activate", "skill_name": None}, "skill_name"),
        ({"action": "activate", "skill_name": ["echoing"]}, "skill_name"),
        ({"action": "activate", "skill_name": {"id": "echoing"}}, "skill_name"),
        ({"action": "offload", "skill_name": 1}, "skill_name"),
        ({"action": "read"}, "skill_name"),
        ({"action": "activate", "skill_name": ""}, "skill_name"),
    ],
)
async def test_bad_input(world: World, namespace: str, arguments: Json, says: str) -> None:
    """What cannot be understood is a result with the error flag that says what is wrong and how to call it."""
    async with connected(world.proxy.namespace(namespace)) as peer:
        result = await peer.call("SKILL", arguments)
        assert result["isError"] is True
        assert says in text_of(result)
        assert "activate" in text_of(result)
        assert await peer.tools() == SHOWN


async def test_unknown_skill(world: World, namespace: str) -> None:
    """An unknown skill is answered with what there is, the nearest name first."""
    async with connected(world.proxy.namespace(namespace)) as peer:
        for wanted, nearest in (("echoin", "echoing"), ("Echoes", "echoing"), ("ISSUES", "issues")):
            result = await peer.skill("activate", wanted)
            assert result["isError"] is True
            assert text_of(result).startswith("skill not found")
            assert result["structuredContent"]["available_skills"][0] == nearest
            assert set(result["structuredContent"]["available_skills"]) == set(SKILLS)


async def test_list_and_read(world: World, namespace: str) -> None:
    """`list` and `read` tell without activating; `read` with a tool gives its schema, by either name."""
    async with connected(world.proxy.namespace(namespace)) as peer, peer.hearing():
        listed = await peer.skill("list")
        for skill, entry in SKILLS.items():
            assert skill in text_of(listed)
            assert entry["desc"] in text_of(listed)
        by_id = {skill["id"]: skill for skill in listed["structuredContent"]["skills"]}
        assert by_id["always"]["active"] is by_id["always"]["pinned"] is True
        assert by_id["echoing"]["active"] is False
        read = await peer.skill("read", "echoing")
        assert f"<skill_guide>{GUIDE}</skill_guide>" in text_of(read)
        assert read["structuredContent"]["guide"] == GUIDE
        for tool in ("up__odd", "odd"):
            schema = await peer.skill("read", "echoing", tool=tool)
            assert schema["structuredContent"]["tool"]["inputSchema"]["properties"] == {"p": {"$ref": "#/$defs/u"}}
            assert '"$ref": "#/$defs/u"' in text_of(schema)
        for tool in ("up__delete_repo", "delete_repo", "nonsense"):
            assert (await peer.skill("read", "echoing", tool=tool))["isError"] is True
        assert (await peer.skill("read", "nonsense"))["isError"] is True
        assert await peer.tools() == SHOWN
        assert peer.wire.notices() == 0


async def test_pinned(world: World, namespace: str) -> None:
    """A pinned skill is active from the start and cannot be offloaded."""
    async with connected(world.proxy.namespace(namespace)) as peer:
        result = await peer.skill("offload", "always")
        assert result["isError"] is True
        assert "pinned" in text_of(result)
        assert await peer.tools() == SHOWN


async def test_no_usable_skill(tmp_path: Path) -> None:
    """Without an enabled skill there is no `SKILL` tool, calls of it are unknown, and the log says so loudly."""
    record = Record(tmp_path / "log.jsonl")
    config = write_config(
        tmp_path / "skills.yaml",
        {"up": record.entry()},
        {"s": {"usage": "u", "enabled": False, "tool_list": {"up": []}}},
    )
    async with connected(stdio_program(config)) as peer:
        assert await peer.tools() == []
        for name in ("SKILL", "SKILL_CALL", "up__echo"):
            with pytest.raises(MCPError) as refused:
                await peer.call(name, {"action": "list"})
            assert (refused.value.error.code, refused.value.error.message) == (-32602, f"Unknown tool: {name}")
    assert record.received() == []


# --- notices ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["stdio", "namespace"])
@pytest.mark.parametrize("mode", ERAS)
async def test_one_notice_per_change(world: World, tmp_path: Path, namespace: str, mode: str, way: str) -> None:
    """Each change is told once, before its result in the handshake era; what changes nothing is not told."""
    target: Any = world.proxy.namespace(namespace)
    if way == "stdio":  # with nothing active at first, whose server would be on its way at the beginning
        skills = SKILLS | {"always": {"usage": "", "pinned": True}}
        target = stdio_program(write_config(tmp_path / "skills.yaml", servers(world.record), skills))
    async with connected(target, mode) as peer, peer.hearing():
        await peer.tools()
        steps = [
            ("activate", "echoing", 1),
            ("activate", "echoing", 0),
            ("read", "issues", 0),
            ("activate", "notes", 0),
            ("activate", "nonsense", 0),
            ("activate", "issues", 1),
            ("offload", "nonsense", 0),
            ("offload", "notes", 0),
            ("offload", "issues", 1),
            ("offload", "issues", 0),
            ("offload", "always", 0),
            ("activate", "broken", 0),  # what it brings is there already
            ("offload", "echoing", 1),  # `odd` goes, `echo` stays
            ("offload", "broken", 1),
        ]
        expected = 0
        for action, skill, notices in steps:
            expected += notices
            await peer.skill(action, skill)
            if peer.handshake:
                assert peer.wire.notices() == expected, (action, skill)
            await peer.wire.until_notices(expected)
            assert peer.wire.notices() == expected, (action, skill)
        await peer.request("tools/list")
        assert peer.wire.notices() == expected
        assert (peer.wire.notices("resources"), peer.wire.notices("prompts")) == (0, 0)


async def test_notices_by_kind(world: World, namespace: str) -> None:
    """A skill that brings resources and prompts is told of once for each list."""
    async with connected(world.proxy.namespace(namespace), "legacy") as peer:
        for count, action in enumerate(("activate", "offload"), start=1):
            await peer.skill(action, "everything")
            assert [peer.wire.notices(kind) for kind in ("tools", "resources", "prompts")] == [count] * 3


# --- clients that do not re-read -------------------------------------------------------------------------------------


def with_schemas(result: Json) -> list[bool]:
    return ["inputSchema" in tool for tool in result["structuredContent"]["tools"]]


async def test_schemas_until_the_connection_relists(world: World, namespace: str) -> None:
    """Results carry schemas until this connection has directly called a tool that came with a notice."""
    url = world.proxy.namespace(namespace)
    async with connected(url, "legacy") as peer, connected(url, "legacy") as other:
        await other.tools()
        assert with_schemas(await peer.skill("activate", "echoing")) == [True, True]
        await peer.call("up__wait", {"file": str(world.config)})  # was there before any notice: shows nothing
        assert with_schemas(await peer.skill("activate", "issues")) == [True]
        await peer.call("up__echo")
        again = await peer.skill("activate", "echoing")
        assert with_schemas(again) == [False, False]
        assert "input schema" not in text_of(again)
        assert "up__echo" in text_of(again)
        assert with_schemas(await other.skill("activate", "echoing")) == [True, True]


async def test_schemas_always_in_the_modern_era(world: World, namespace: str) -> None:
    """A modern client has no connection to learn from: its results always carry schemas."""
    async with connected(world.proxy.namespace(namespace), MODERN) as peer:
        await peer.skill("activate", "echoing")
        await peer.call("up__echo")
        assert with_schemas(await peer.skill("activate", "echoing")) == [True, True]


async def test_schema_budget(world: World, namespace: str) -> None:
    """Schemas and signatures together stay readable: beyond 8 KB of schemas, tools come in one line."""
    async with connected(world.proxy.namespace(namespace)) as peer:
        tools = (await peer.skill("activate", "everything"))["structuredContent"]["tools"]
        assert sum(len(json.dumps(tool["inputSchema"])) for tool in tools if "inputSchema" in tool) <= 8 * 1024
        assert all("inputSchema" in tool or "signature" in tool for tool in tools)


@pytest.mark.parametrize("mode", ERAS)
async def test_client_that_drops_lists(world: World, namespace: str, mode: str) -> None:
    """A client known to drop list changes also gets `SKILL_CALL`, and works with it without listing again."""
    async with connected(world.proxy.namespace(namespace), mode, name="claude-ai") as peer:
        own = (await peer.definitions())[:2]
        assert [tool["name"] for tool in own] == ["SKILL", "SKILL_CALL"]
        hints = own[1]["annotations"]
        assert (hints["readOnlyHint"], hints["destructiveHint"], hints["openWorldHint"]) == (False, True, True)
        closed = await peer.call("SKILL_CALL", {"tool": "up__echo", "arguments": {"marker": namespace}})
        assert closed["isError"] is True
        assert 'SKILL({"action": "activate", "skill_name": "echoing"})' in text_of(closed)
        assert "SKILL_CALL(" in text_of(await peer.skill("activate", "echoing"))
        for number, arguments in enumerate(({"marker": f"{namespace}-0"}, json.dumps({"marker": f"{namespace}-1"}))):
            answer = await peer.call("SKILL_CALL", {"tool": "up__echo", "arguments": arguments})
            assert answer["structuredContent"]["arguments"] == {"marker": f"{namespace}-{number}"}
        for empty in (
            {"tool": "up__echo"},
            {"tool": "up__echo", "arguments": ""},
            {"tool": "up__echo", "arguments": {}},
        ):
            assert (await peer.call("SKILL_CALL", empty))["structuredContent"]["arguments"] == {}
        # It has shown nothing about re-reading lists: results go on carrying schemas.
        assert with_schemas(await peer.skill("activate", "echoing")) == [True, True]
    assert [arguments for _, arguments in world.record.calls(namespace)] == [
        {"marker": f"{namespace}-{n}"} for n in (0, 1)
    ]


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"tool": ""},
        {"tool": 7},
        {"tool": ["up__wait"]},
        {"tool": "up__wait", "arguments": "[]"},
        {"tool": "up__wait", "arguments": "{"},
        {"tool": "up__wait", "arguments": [1]},
        {"tool": "up__wait", "arguments": 5},
        {"tool": "SKILL", "arguments": {"action": "list"}},
        {"tool": "SKILL_CALL", "arguments": {"tool": "up__wait"}},
    ],
)
async def test_bad_skill_call(world: World, namespace: str, arguments: Json) -> None:
    """`SKILL_CALL` with what it cannot use is refused, reaches no upstream and is no way around itself."""
    before = len(world.record.calls())
    async with connected(world.proxy.namespace(namespace), name="claude-ai") as peer:
        if str(arguments.get("tool")).startswith("SKILL"):
            with pytest.raises(MCPError) as refused:
                await peer.call("SKILL_CALL", arguments)
            assert refused.value.error.code == -32602
        else:
            assert (await peer.call("SKILL_CALL", arguments))["isError"] is True
    assert len(world.record.calls()) == before


async def test_call_route_is_not_for_everybody(world: World, namespace: str) -> None:
    """Other clients do not see `SKILL_CALL`, and for them it does not exist."""
    async with connected(world.proxy.namespace(namespace), name="claude-code") as peer:
        assert await peer.tools() == SHOWN
        with pytest.raises(MCPError) as refused:
            await peer.call("SKILL_CALL", {"tool": "up__wait"})
        assert refused.value.error.message == "Unknown tool: SKILL_CALL"


@pytest.mark.parametrize(("setting", "client", "shown"), [("on", "anybody", True), ("off", "claude-ai", False)])
async def test_call_route_setting(world: World, tmp_path: Path, setting: str, client: str, shown: bool) -> None:
    """`call_route` on shows `SKILL_CALL` to all, off to none."""
    config = write_config(tmp_path / "skills.yaml", servers(world.record), SKILLS, proxy={"call_route": setting})
    async with connected(stdio_program(config), name=client) as peer:
        assert ("SKILL_CALL" in await peer.tools()) is shown


async def test_stable_listing(world: World, tmp_path: Path, launch: Launch, namespace: str) -> None:
    """`modern_listing: stable`: modern lists never change, activated tools work all the same; handshake lists live."""
    config = write_config(tmp_path / "skills.yaml", servers(world.record), SKILLS, proxy={"modern_listing": "stable"})
    url = launch(config).namespace(namespace)
    async with AsyncExitStack() as stack:
        handshake = await stack.enter_async_context(connected(url, "legacy"))
        await handshake.call("up__wait", {"file": str(config)})  # the server of the pinned skill has arrived
        assert await handshake.tools() == SHOWN
        modern = await stack.enter_async_context(connected(url, MODERN))
        await stack.enter_async_context(modern.hearing())
        before = json.dumps(await modern.definitions())
        assert await modern.tools() == ["SKILL", "SKILL_CALL", "up__wait"]
        await modern.skill("activate", "echoing")
        assert json.dumps(await modern.definitions()) == before
        called = await modern.call("SKILL_CALL", {"tool": "up__echo", "arguments": {"a": 1}})
        assert called["structuredContent"]["arguments"] == {"a": 1}
        assert await handshake.tools() == ["SKILL", "up__echo", "up__odd", "up__wait"]
        await handshake.skill("offload", "echoing")
        assert json.dumps(await modern.definitions()) == before
        assert await handshake.tools() == SHOWN
        assert modern.wire.notices() == 0


# --- time ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.parametrize("token", [7, "seven"])
async def test_progress(world: World, namespace: str, raw: Raw, mode: str, token: int | str) -> None:
    """Progress of an upstream comes in order, before the result, under the token that the client chose."""
    url = world.proxy.namespace(namespace)
    params = {"name": "up__count", "arguments": {"n": 3}, "_meta": {"progressToken": token}}
    if mode == MODERN:
        activate = {"name": "SKILL", "arguments": {"action": "activate", "skill_name": "everything"}}
        await raw.modern(url, "tools/call", activate)
        messages = (await raw.modern(url, "tools/call", params)).messages
        without = (await raw.modern(url, "tools/call", {**params, "_meta": {}})).messages
    else:
        headers = await raw.open(url)
        await raw.skill(url, headers, "activate", "everything")
        messages = (await raw.post(url, "tools/call", params, headers)).messages
        without = (await raw.post(url, "tools/call", {**params, "_meta": {}}, headers)).messages
    assert [message.get("method", "result") for message in messages] == ["notifications/progress"] * 3 + ["result"]
    told = [(m["params"]["progressToken"], m["params"]["progress"], m["params"]["message"]) for m in messages[:3]]
    assert told == [(token, 1, "step 1"), (token, 2, "step 2"), (token, 3, "step 3")]
    assert len(without) == 1


@dataclass(frozen=True)
class Slow:
    """A proxy with a quick server and one that starts only when its gate is opened."""

    config: Path
    gate: Path
    record: Record

    def open(self) -> None:
        self.gate.touch()


@pytest.fixture
def slow(tmp_path: Path) -> Slow:
    gate = tmp_path / "go"
    quick, late = Record(tmp_path / "quick.jsonl"), Record(tmp_path / "late.jsonl", until=gate)
    config = write_config(
        tmp_path / "skills.yaml",
        {"quick": quick.entry(), "late": late.entry()},
        {
            "warm": {"usage": "w", "tool_list": {"quick": []}},
            "both": {"usage": "b", "tool_list": {"quick": ["echo"], "late": ["echo"]}},
        },
        proxy={"activation_wait": 1, "list_wait": "0.2"},
    )
    return Slow(config, gate, late)


@pytest.mark.parametrize("mode", ERAS)
async def test_slow_server(slow: Slow, mode: str) -> None:
    """Activation returns within `activation_wait` and names who is late; the others work; a notice follows."""
    async with connected(stdio_program(slow.config), mode) as peer:
        while (await peer.skill("activate", "warm"))["structuredContent"]["problems"]:
            pass  # each waits for a second
        await peer.skill("offload", "warm")
        assert await peer.tools() == ["SKILL"]
        await late_server(peer, slow)


async def late_server(peer: Peer, slow: Slow) -> None:
    """Activate a skill of two servers, one of which is late; then let it come."""
    heard = peer.wire.notices()
    async with peer.hearing():
        with anyio.fail_after(10):
            result = await peer.skill("activate", "both")
        (problem,) = result["structuredContent"]["problems"]
        assert (problem["server"], problem["state"]) == ("late", "starting")
        assert problem["reason"]
        assert "late" in text_of(result)
        assert [tool["name"] for tool in result["structuredContent"]["tools"]] == ["quick__echo"]
        await peer.wire.until_notices(heard + 1)
        assert await peer.tools() == ["SKILL", "quick__echo"]
        assert (await peer.call("quick__echo"))["structuredContent"]["tool"] == "echo"
        answers: list[Json] = []

        async def call() -> None:
            answers.append(await peer.call("late__echo"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            assert await peer.tools() == ["SKILL", "quick__echo"]
            assert not answers  # the call waits for its server
            assert peer.wire.notices() == heard + 1
            slow.open()
        assert answers[0]["structuredContent"]["tool"] == "echo"
        await peer.wire.until_notices(heard + 2)
        assert await peer.tools() == ["SKILL", "quick__echo", "late__echo"]
        assert (await peer.call("late__echo"))["structuredContent"]["tool"] == "echo"
        assert peer.wire.notices() == heard + 2


@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.parametrize("way", ["stdio", "namespace"])
async def test_cancelled_activation(slow: Slow, launch: Launch, namespace: str, mode: str, way: str) -> None:
    """Cancelling the request that activates does not undo it: the skill is active, and its tools come with a notice."""
    config = write_config(
        slow.config,
        {"late": slow.record.entry()},
        {"s": {"usage": "b", "tool_list": {"late": ["echo"]}}},
        proxy={"activation_wait": 60, "list_wait": "0.2"},
    )
    target = stdio_program(config) if way == "stdio" else launch(config).namespace(namespace)
    async with connected(target, mode) as peer, peer.hearing():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(peer.skill, "activate", "s")
            await until_active(peer, "s")
            tasks.cancel_scope.cancel()
        assert (await peer.skill("list"))["structuredContent"]["current_skills"] == ["s"]
        assert await peer.tools() == ["SKILL"]
        assert peer.wire.notices() == 0
        slow.open()
        # On HTTP, a handshake-era client's own stream may have opened too late for the notice: its list tells too.
        while await peer.tools() != ["SKILL", "late__echo"]:  # noqa: ASYNC110
            await anyio.sleep(0.01)
        if way == "stdio" or mode == MODERN:
            await peer.wire.until_notices(1)
            assert peer.wire.notices() == 1


async def until_active(peer: Peer, skill: str) -> None:
    with anyio.fail_after(PATIENCE):
        while (await peer.skill("list"))["structuredContent"]["current_skills"] != [skill]:
            pass


async def test_concurrent_activations(world: World, namespace: str) -> None:
    """Twenty activations of one skill at once: one says "activated", one notice goes out, one entry is active."""
    async with connected(world.proxy.namespace(namespace), "legacy") as peer:
        await peer.tools()
        texts: list[str] = []

        async def activate() -> None:
            texts.append(text_of(await peer.skill("activate", "echoing")))

        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(activate)
        assert sum(text.startswith("skill echoing activated") for text in texts) == 1
        assert sum(text.startswith("skill echoing already activated") for text in texts) == 19
        assert (await peer.skill("list"))["structuredContent"]["current_skills"] == ["always", "echoing"]
        assert peer.wire.notices() == 1
