"""`SKILL` and `SKILL_CALL` over the wire: what they say, when a notice goes out, and which clients get what."""

import json
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import MCPError

from tests.answers import (
    available_skills,
    current_skills,
    guide_told,
    not_ready,
    schemas_told,
    tools_told,
)
from tests.conftest import (
    ERAS,
    MODERN,
    PATIENCE,
    QUIET,
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
SHOWN = ["SKILL", "SKILL_CALL", "up__wait"]


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
    """The first activation tells it all, as text alone."""
    async with connected(world.proxy.namespace(namespace)) as peer:
        result = await peer.skill("activate", "echoing")
        text = text_of(result)
        assert text.startswith(
            f"skill echoing activated, current skills: ['always', 'echoing']\n\n<skill_guide>{GUIDE}</skill_guide>\n\n"
        )
        said = "<server_instructions>\n| These are the instructions of up-server.\n</server_instructions>"
        assert said in text
        assert tools_told(text) == ["up__echo", "up__odd"]
        assert schemas_told(text).keys() == {"up__echo", "up__odd"}
        assert not_ready(text) == {}
        assert [block["type"] for block in result["content"]] == ["text"]
        assert "structuredContent" not in result
        assert not result.get("isError")


async def test_activate_again_and_offload(world: World, namespace: str) -> None:
    """Again: "already activated", in short, with the same tools; offloading what is not active is no error."""
    async with connected(world.proxy.namespace(namespace)) as peer:
        first = await peer.skill("activate", "echoing")
        await peer.skill("activate", "issues")
        again = await peer.skill("activate", "echoing")
        assert text_of(again).startswith(
            "skill echoing already activated, current skills: ['always', 'echoing', 'issues']\n\n"
            "Tools you can use now: up__echo, up__odd\n\n"
        )
        assert text_of(again).endswith('SKILL({"action": "read", "skill_name": "echoing"}) shows its guide.')
        assert tools_told(again) == tools_told(first)
        assert guide_told(again) is None
        offloaded = await peer.skill("offload", "echoing")
        assert text_of(offloaded) == "skill echoing offloaded, current skills: ['always', 'issues']"
        for name, said in (("echoing", "is not active"), ("nonsense", "not found")):
            missing = await peer.skill("offload", name)
            assert text_of(missing) == f"skill {name} {said}, current skills: ['always', 'issues']"
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
        assert guide_told(result) == SKILLS["notes"]["usage"].replace("</", "&lt;/")
        assert tools_told(result) == []
        assert await peer.tools() == SHOWN


async def test_problems(world: World, namespace: str) -> None:
    """A server that cannot start costs its own tools alone, and is named with one line of reason."""
    async with connected(world.proxy.namespace(namespace)) as peer:
        result = await peer.skill("activate", "broken")
        assert not result.get("isError")
        problems = not_ready(result)
        assert problems.keys() == {"nowhere"}
        assert problems["nowhere"].startswith("failed: ")
        assert "no-such-binary-here" in problems["nowhere"]
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
            assert available_skills(result)[0] == nearest
            assert set(available_skills(result)) == set(SKILLS)


async def test_list_and_read(world: World, namespace: str) -> None:
    """`list` and `read` tell without activating; `read` with a tool gives its schema, by either name."""
    async with connected(world.proxy.namespace(namespace)) as peer, peer.hearing():
        listed = await peer.skill("list")
        for skill, entry in SKILLS.items():
            assert skill in text_of(listed)
            assert entry["desc"] in text_of(listed)
        assert "\n- always (pinned): Stays" in text_of(listed)
        assert "\n- echoing: Echoes: Says it again\n" in text_of(listed)
        assert current_skills(listed) == ["always"]
        read = await peer.skill("read", "echoing")
        assert f"<skill_guide>{GUIDE}</skill_guide>" in text_of(read)
        for tool in ("up__odd", "odd"):
            schema = await peer.skill("read", "echoing", tool=tool)
            assert schemas_told(schema)["up__odd"]["properties"] == {"p": {"$ref": "#/$defs/u"}}
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


@pytest.mark.parametrize("name", ["claude-code", "some-agent", QUIET])
@pytest.mark.parametrize("mode", ERAS)
async def test_the_notice_comes_before_the_result(world: World, mode: str, name: str) -> None:
    """In both eras, and whatever is known of the client: its model's next request is made when the result is there."""
    async with connected(stdio_program(world.config), mode, name=name) as peer, peer.hearing():
        await peer.call("up__wait", {"file": str(world.config)})  # the server of the pinned skill has arrived
        await peer.tools()
        for action, said in (("activate", "skill echoing activated"), ("offload", "skill echoing offloaded")):
            told = peer.wire.notices()
            await peer.skill(action, "echoing")
            assert peer.wire.notices() == told + 1
            notices = peer.wire.where(lambda message: message.get("method") == "notifications/tools/list_changed")
            (result,) = peer.wire.where(lambda message, said=said: said in json.dumps(message.get("result")))
            assert notices[-1] < result


async def test_notices_by_kind(world: World, namespace: str) -> None:
    """A skill that brings resources and prompts is told of once for each list."""
    async with connected(world.proxy.namespace(namespace), "legacy") as peer:
        for count, action in enumerate(("activate", "offload"), start=1):
            await peer.skill(action, "everything")
            assert [peer.wire.notices(kind) for kind in ("tools", "resources", "prompts")] == [count] * 3


# --- clients that do not re-read -------------------------------------------------------------------------------------


def with_schemas(result: Json) -> list[bool]:
    """Of each tool that an activation names, whether it is told with its schema."""
    return [tool in schemas_told(result) for tool in tools_told(result)]


@pytest.mark.parametrize("mode", ERAS)
async def test_a_client_that_has_not_read_its_list_since_is_told_schemas(
    world: World, namespace: str, mode: str
) -> None:
    """Whatever it has read and called before."""
    async with connected(world.proxy.namespace(namespace), mode) as peer:
        for skill, count in (("echoing", 2), ("issues", 1), ("broken", 1)):
            await peer.tools()
            assert with_schemas(await peer.skill("activate", skill)) == [True] * count
            await peer.call("up__echo")


async def test_an_activation_of_many_tools_keeps_to_what_clients_hand_on(world: World, namespace: str) -> None:
    """At most 10,000 bytes, all tools by name, and what each takes as the list has it."""
    async with connected(world.proxy.namespace(namespace)) as peer:
        result = await peer.skill("activate", "everything")
        listed = [name for name in await peer.tools() if name.startswith("up__")]
        assert tools_told(result) == listed
        assert len(text_of(result).encode()) <= 10_000
        by_name = {tool["name"]: tool["inputSchema"] for tool in await peer.definitions()}
        assert schemas_told(result) == {name: by_name[name] for name in listed}


@pytest.mark.parametrize("name", ["claude-ai", "some-agent"])
@pytest.mark.parametrize("mode", ERAS)
async def test_a_client_gets_by_without_listing_again(world: World, namespace: str, mode: str, name: str) -> None:
    """One that drops list changes, and one of which nothing is known: both have `SKILL_CALL` from the start."""
    async with connected(world.proxy.namespace(namespace), mode, name=name) as peer:
        own = (await peer.definitions())[:2]
        assert [tool["name"] for tool in own] == ["SKILL", "SKILL_CALL"]
        assert [tool["_meta"] for tool in own] == [{"anthropic/alwaysLoad": True}] * 2
        hints = own[1]["annotations"]
        assert (hints["readOnlyHint"], hints["destructiveHint"], hints["openWorldHint"]) == (False, True, True)
        assert own[1]["inputSchema"]["properties"]["arguments"]["additionalProperties"] is True
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
        assert with_schemas(await peer.skill("activate", "issues")) == [True]
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


@pytest.mark.parametrize("name", ["claude-code", "claude-code (via mcp-remote 0.1.37)"])
async def test_call_route_is_not_for_clients_that_read_again(world: World, namespace: str, name: str) -> None:
    """Those known to do so in time do not see `SKILL_CALL`, and for them it does not exist."""
    async with connected(world.proxy.namespace(namespace), "legacy", name=name) as peer:
        assert await peer.tools() == ["SKILL", "up__wait"]
        with pytest.raises(MCPError) as refused:
            await peer.call("SKILL_CALL", {"tool": "up__wait"})
        assert refused.value.error.message == "Unknown tool: SKILL_CALL"


async def test_a_modern_client_has_the_call_route_unless_it_listens(world: World, namespace: str) -> None:
    """Without a stream it is told of nothing, however it is called; once shown to it, the tool stays."""
    url = world.proxy.namespace(namespace)
    async with connected(url, MODERN, name="claude-code") as peer:
        assert await peer.tools() == SHOWN
        async with peer.hearing():
            assert await peer.tools() == SHOWN
        call = {"tool": "up__wait", "arguments": {"file": str(world.config)}}
        assert not (await peer.call("SKILL_CALL", call)).get("isError")
    async with connected(url, MODERN, name="opencode") as listening, listening.hearing():
        assert await listening.tools() == ["SKILL", "up__wait"]


@pytest.mark.parametrize("listens_to", [{"prompts_list_changed": True}, {"resources_list_changed": True}])
async def test_a_stream_for_other_lists_tells_of_no_tools(
    world: World, namespace: str, listens_to: dict[str, bool]
) -> None:
    """Its client is told of no change of the list of tools."""
    async with (
        connected(world.proxy.namespace(namespace), MODERN, name="claude-code") as peer,
        peer.client.listen(**listens_to),  # pyright: ignore[reportArgumentType]
    ):
        assert await peer.tools() == SHOWN


@pytest.mark.parametrize("setting", ["on", "off"])
@pytest.mark.parametrize("client", ["anybody", "claude-ai", "claude-code"])
async def test_call_route_setting(world: World, tmp_path: Path, setting: str, client: str) -> None:
    """`call_route` on shows `SKILL_CALL` to all, off to none."""
    config = write_config(tmp_path / "skills.yaml", servers(world.record), SKILLS, proxy={"call_route": setting})
    async with connected(stdio_program(config), name=client) as peer:
        assert ("SKILL_CALL" in await peer.tools()) is (setting == "on")


@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.parametrize("way", ["stdio", "namespace", "older name"])
async def test_stable_listing(
    world: World, tmp_path: Path, launch: Launch, namespace: str, mode: str, way: str
) -> None:
    """`listing: stable`: no list ever changes, no notice goes out, and activated tools work by `SKILL_CALL`."""
    skills = {**SKILLS, "always": {**SKILLS["always"], "active": True}}
    setting = {"modern_listing" if way == "older name" else "listing": "stable"}
    config = write_config(tmp_path / "skills.yaml", servers(world.record), skills, proxy=setting)
    target = stdio_program(config) if way == "stdio" else launch(config).namespace(namespace)
    async with connected(target, mode, name="claude-code") as peer, peer.hearing():
        await peer.call("up__wait", {"file": str(config)})  # the server of the pinned skill has arrived
        kinds = {"tools": "tools", "resources": "resources", "resources/templates": "resourceTemplates"}
        kinds["prompts"] = "prompts"

        async def lists() -> str:
            return json.dumps([(await peer.request(f"{kind}/list"))[key] for kind, key in kinds.items()])

        before, notices = await lists(), peer.wire.notices()
        assert await peer.tools() == ["SKILL", "SKILL_CALL", "up__wait"]
        activated = await peer.skill("activate", "everything")
        assert schemas_told(activated)
        assert "SKILL_CALL(" in text_of(activated)
        called = await peer.call("SKILL_CALL", {"tool": "up__echo", "arguments": {"a": 1}})
        assert called["structuredContent"]["arguments"] == {"a": 1}
        assert (await peer.call("up__echo"))["structuredContent"]["arguments"] == {}  # under its own name, too
        assert await lists() == before
        await peer.skill("offload", "everything")
        assert (await peer.call("SKILL_CALL", {"tool": "up__echo"}))["isError"] is True
        assert await lists() == before
        assert [peer.wire.notices(kind) for kind in ("tools", "resources", "prompts")] == [notices, 0, 0]


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
        while not_ready(await peer.skill("activate", "warm")):
            pass  # each waits for a second
        await peer.skill("offload", "warm")
        assert await peer.tools() == ["SKILL", "SKILL_CALL"]
        await late_server(peer, slow)


async def late_server(peer: Peer, slow: Slow) -> None:
    """Activate a skill of two servers, one of which is late; then let it come."""
    heard = peer.wire.notices()
    async with peer.hearing():
        with anyio.fail_after(10):
            result = await peer.skill("activate", "both")
        assert not_ready(result) == {"late": "is starting: it has not answered yet"}
        assert tools_told(result) == ["quick__echo"]
        await peer.wire.until_notices(heard + 1)
        assert await peer.tools() == ["SKILL", "SKILL_CALL", "quick__echo"]
        assert (await peer.call("quick__echo"))["structuredContent"]["tool"] == "echo"
        answers: list[Json] = []

        async def call() -> None:
            answers.append(await peer.call("late__echo"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            assert await peer.tools() == ["SKILL", "SKILL_CALL", "quick__echo"]
            assert not answers  # the call waits for its server
            assert peer.wire.notices() == heard + 1
            slow.open()
        assert answers[0]["structuredContent"]["tool"] == "echo"
        await peer.wire.until_notices(heard + 2)
        assert await peer.tools() == ["SKILL", "SKILL_CALL", "quick__echo", "late__echo"]
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
        assert current_skills(await peer.skill("list")) == ["s"]
        assert await peer.tools() == ["SKILL", "SKILL_CALL"]
        assert peer.wire.notices() == 0
        slow.open()
        # On HTTP, a handshake-era client's own stream may have opened too late for the notice: its list tells too.
        while await peer.tools() != ["SKILL", "SKILL_CALL", "late__echo"]:  # noqa: ASYNC110
            await anyio.sleep(0.01)
        if way == "stdio" or mode == MODERN:
            await peer.wire.until_notices(1)
            assert peer.wire.notices() == 1


async def until_active(peer: Peer, skill: str) -> None:
    with anyio.fail_after(PATIENCE):
        while current_skills(await peer.skill("list")) != [skill]:
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
        assert current_skills(await peer.skill("list")) == ["always", "echoing"]
        assert peer.wire.notices() == 1
