"""Who may use which skills: two kinds of clients side by side, by namespace or by user, and nothing shows across."""

import json
from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from mcp import MCPError

from tests.answers import available_skills, current_skills, listed_skills
from tests.conftest import (
    ERAS,
    HttpProxy,
    Json,
    Launch,
    Peer,
    Record,
    connected,
    http_proxy,
    stdio_program,
    text_of,
    write_config,
    write_skill,
)

pytestmark = pytest.mark.anyio

SIDES = ("sinister", "dexter")
OTHER = {"sinister": "dexter", "dexter": "sinister"}
TOKENS = {side: f"{side[::-1]}-token" for side in SIDES} | {"stranger": "regnarts-token"}
TEMPLATE = "skill://{skill}/{+path}"
KINDS = ("tools", "resources", "prompts")
WHERE = [(door, mode) for door in ("namespace", "token") for mode in ERAS]


@dataclass(frozen=True)
class World:
    """The same skills behind two proxies, one with profiles by namespace and one with profiles by user."""

    named: HttpProxy
    guarded: HttpProxy
    by_namespace: Path
    by_rest: Path
    records: dict[str, Record]

    @asynccontextmanager
    async def client(self, where: tuple[str, str], side: str, namespace: str) -> AsyncGenerator[Peer]:
        """A client of one side, which hears notices."""
        door, mode = where
        if door == "namespace":
            context = connected(self.named.namespace(f"{side}-{namespace}"), mode)
        else:
            context = connected(self.guarded.namespace(namespace), mode, token=TOKENS[side])
        async with context as peer, peer.hearing():
            yield peer


def skills() -> Json:
    """Of each side one skill for a tool and one for a whole server; one for both; some that few may have at a time."""
    found: Json = {}
    for side in SIDES:
        own = {"category": f"{side}-kind", "tags": [f"{side}-tag"], "tool_list": {side: ["echo"]}}
        found[f"{side}-echo"] = {"desc": f"Echoes of {side}", "usage": f"Guide of {side}", **own}
        found[f"{side}-all"] = {"desc": f"All of {side}", "usage": f"All of {side}", "tool_list": {side: []}}
    found["shared"] = {"desc": "For both", "usage": "Shared.", "tool_list": {"common": ["list_issues"]}}
    found["few-base"] = {"usage": "B"}
    found["few-top"] = {"usage": "T", "requires_skills": ["few-base"]}
    found["few-third"] = {"usage": "3"}
    return found


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Generator[World]:
    folder = tmp_path_factory.mktemp("profiles")
    for side in SIDES:
        write_skill(folder / "lib" / f"{side}-guide", f"Folder of {side}.", {f"{side}.txt": f"file of {side}"})
    records = {key: Record(folder / f"{key}.jsonl", key) for key in (*SIDES, "common")}

    def written(name: str, profiles: list[Json], **proxy: Any) -> Path:
        servers = {key: record.entry() for key, record in records.items()}
        more: Json = {"skill_paths": ["lib"], "profiles": profiles}
        return write_config(folder / name, servers, skills(), proxy={"call_route": "on", **proxy}, **more)

    allowed = {side: [f"{side}-*", "shared"] for side in SIDES}
    by_namespace = written(
        "named.yaml",
        [
            *({"namespace": f"{side}-*", "allowed_skills": allowed[side]} for side in SIDES),
            {"namespace": "two-*", "allowed_skills": ["few-*"], "max_active_skills": 2},
            {"namespace": "one-*", "allowed_skills": ["few-*"], "max_active_skills": 1},
        ],
    )
    by_principal = written(
        "guarded.yaml",
        [{"principal": side, "allowed_skills": allowed[side]} for side in SIDES],
        tokens=TOKENS,
    )
    by_rest = written(
        "rest.yaml",
        [{"namespace": "?*", "allowed_skills": ["dexter-*"]}, {"namespace": "*", "allowed_skills": ["sinister-*"]}],
    )
    with http_proxy(by_namespace) as named, http_proxy(by_principal) as guarded:
        yield World(named, guarded, by_namespace, by_rest, records)


async def introduction(peer: Peer) -> str:
    """What the proxy says of itself to a client that connects, as `initialize` or `server/discover` brings it."""
    if not peer.handshake:
        return (await peer.request("server/discover"))["instructions"]
    assert peer.client.instructions is not None
    return peer.client.instructions


async def ids(peer: Peer, **asked: Any) -> list[str]:
    """The skills that `list` shows."""
    return listed_skills(await peer.skill("list", **asked))


async def completed(peer: Peer, argument: str, value: str = "", **given: str) -> list[str]:
    """The values of an argument of the template of skills' files."""
    params: Json = {"ref": {"type": "ref/resource", "uri": TEMPLATE}, "argument": {"name": argument, "value": value}}
    if given:
        params["context"] = {"arguments": given}
    return (await peer.request("completion/complete", params))["completion"]["values"]


async def story(peer: Peer, side: str) -> None:
    """Everything that one side can do, which answers as if there was no other."""
    own = [f"{side}-echo", f"{side}-all", "shared", f"{side}-guide"]
    (skill, *_) = await peer.definitions()
    assert skill["inputSchema"]["properties"]["skill_name"]["enum"] == own
    assert await peer.tools() == ["SKILL", "SKILL_CALL"]
    assert await ids(peer) == own
    told = await introduction(peer)
    assert len(told) <= 512
    assert all(skill in told for skill in own)
    assert "the tool SKILL of this server" in told
    assert (await ids(peer, query="echoes"))[0] == f"{side}-echo"
    assert await ids(peer, category=f"{side}-kind") == [f"{side}-echo"]
    assert await ids(peer, tags=[f"{side}-tag"]) == [f"{side}-echo"]

    refused = await peer.call(f"{side}__echo", {"early": True})
    assert f"it comes with skill {side}-echo" in text_of(refused)
    assert "isError" not in await peer.skill("activate", f"{side}-all")
    await peer.wire.until_notices(1)
    assert f"{side}__echo" in await peer.tools()
    assert (await peer.call(f"{side}__echo", {"of": side}))["structuredContent"]["server"] == side
    routed = await peer.call("SKILL_CALL", {"tool": f"{side}__echo", "arguments": {"routed": side}})
    assert routed["structuredContent"]["arguments"] == {"routed": side}
    assert f"Folder of {side}." in text_of(await peer.skill("read", f"{side}-guide"))
    assert f"file of {side}" in text_of(await peer.skill("read", f"{side}-guide", path=f"{side}.txt"))

    prompts = [prompt["name"] for prompt in (await peer.request("prompts/list"))["prompts"]]
    assert prompts == [*own, f"{side}__greet"]
    assert f"Folder of {side}." in json.dumps(await peer.request("prompts/get", {"name": f"{side}-guide"}))
    greeting = await peer.request("prompts/get", {"name": f"{side}__greet", "arguments": {"who": side}})
    assert side in greeting["messages"][0]["content"]["text"]
    uris = [resource["uri"] for resource in (await peer.request("resources/list"))["resources"]]
    assert uris == [*(f"skill://{id_}/SKILL.md" for id_ in own), "memo://one", "memo://two"]
    assert side in json.dumps(await peer.request("resources/read", {"uri": "memo://one"}))
    file = f"skill://{side}-guide/{side}.txt"
    assert (await peer.request("resources/read", {"uri": file}))["contents"][0]["text"] == f"file of {side}"

    entries = (await peer.request("skills/list"))["skills"]
    assert [entry["frontmatter"]["name"] for entry in entries] == own
    assert (await peer.request("skills/get", {"uri": entries[0]["uri"]}))["skill"] == entries[0]
    children = (await peer.request("resources/directory/read", {"uri": f"skill://{side}-guide"}))["resources"]
    assert file in [child["uri"] for child in children]
    assert await completed(peer, "skill") == own
    assert await completed(peer, "path", skill=f"{side}-guide") == ["SKILL.md", f"{side}.txt"]

    lost = await peer.skill("activate", "nonsense")
    assert sorted(available_skills(lost)) == sorted(own)
    assert await peer.refusal("tools/call", {"name": "nonsense"}) == (-32602, "Unknown tool: nonsense")
    await peer.skill("offload", f"{side}-all")
    await peer.wire.until_notices(2)
    assert await peer.tools() == ["SKILL", "SKILL_CALL"]


def asking_for(name: str) -> list[tuple[str, Json]]:
    """Requests for everything that is called `name`-something."""
    calls: list[Json] = [
        *({"action": action, "skill_name": f"{name}-echo"} for action in ("activate", "offload", "read")),
        {"action": "read", "skill_name": f"{name}-guide", "path": f"{name}.txt"},
        {"action": "read", "skill_name": f"{name}-all", "tool": "echo"},
        {"action": "list", "query": f"{name}"},
        {"action": "list", "category": f"{name}-kind"},
        {"action": "list", "tags": [f"{name}-tag"]},
    ]
    completion: Json = {
        "ref": {"type": "ref/resource", "uri": TEMPLATE},
        "argument": {"name": "path", "value": ""},
        "context": {"arguments": {"skill": f"{name}-guide"}},
    }
    return [
        *(("tools/call", {"name": "SKILL", "arguments": call}) for call in calls),
        ("tools/call", {"name": f"{name}__echo", "arguments": {}}),
        ("tools/call", {"name": "SKILL_CALL", "arguments": {"tool": f"{name}__echo"}}),
        ("prompts/get", {"name": f"{name}-guide"}),
        ("prompts/get", {"name": f"{name}__greet", "arguments": {"who": "x"}}),
        ("resources/read", {"uri": f"skill://{name}-guide/SKILL.md"}),
        ("resources/read", {"uri": f"skill://{name}-guide/{name}.txt"}),
        ("skills/get", {"uri": f"skill://{name}-echo/SKILL.md"}),
        ("resources/directory/read", {"uri": f"skill://{name}-guide"}),
        ("completion/complete", completion),
        ("completion/complete", {**completion, "ref": {"type": "ref/prompt", "name": f"{name}-guide"}}),
        ("completion/complete", {**completion, "ref": {"type": "ref/prompt", "name": f"{name}__greet"}}),
    ]


async def answer(peer: Peer, method: str, params: Json) -> str:
    """What a request is answered with, result or error, as the client sees it."""
    before = len(peer.wire.messages)
    with suppress(MCPError):
        await peer.request(method, params)
    (reply,) = [message for message in peer.wire.messages[before:] if "result" in message or "error" in message]
    return json.dumps(reply.get("result", reply.get("error")), sort_keys=True)


@pytest.mark.parametrize("where", WHERE, ids="-".join)
async def test_each_side_does_its_work_and_nothing_of_the_other_shows(
    world: World, namespace: str, where: tuple[str, str]
):
    """In no answer, error, suggestion or notice, and in no message to a server."""
    async with AsyncExitStack() as stack:
        peers = {side: await stack.enter_async_context(world.client(where, side, namespace)) for side in SIDES}
        for side, peer in peers.items():
            await story(peer, side)
            if side == "sinister":
                assert [peers["dexter"].wire.notices(kind) for kind in KINDS] == [0, 0, 0]
        for side, peer in peers.items():
            assert OTHER[side] not in json.dumps(peer.wire.messages)
            assert peer.wire.notices() == 2
    for side in SIDES:
        assert OTHER[side] not in json.dumps(world.records[side].received())
        assert world.records[side].calls(f'"routed": "{side}"')
    assert world.records["common"].received("tools/call") == []


@pytest.mark.parametrize("where", WHERE, ids="-".join)
async def test_what_others_may_use_is_as_if_it_did_not_exist(world: World, namespace: str, where: tuple[str, str]):
    """Asked for by name it is refused in the very words of what does not exist, while the other side works with it."""
    async with AsyncExitStack() as stack:
        peers = {side: await stack.enter_async_context(world.client(where, side, namespace)) for side in SIDES}
        for side, peer in peers.items():
            await peer.skill("activate", f"{side}-all")
        for side, peer in peers.items():
            there, nowhere = OTHER[side], f"{OTHER[side][:-1]}x"
            for (method, params), (_, invented) in zip(asking_for(there), asking_for(nowhere), strict=True):
                real, none = await answer(peer, method, params), await answer(peer, method, invented)
                assert real == none.replace(nowhere, there), (method, params)
        for side, peer in peers.items():
            assert f"{side}__echo" in await peer.tools()


@pytest.mark.parametrize("where", WHERE, ids="-".join)
async def test_whom_no_profile_matches_gets_nothing(world: World, namespace: str, where: tuple[str, str]):
    """No tool, no word on skills, empty lists; and whatever is called is unknown."""
    async with world.client(where, "stranger", namespace) as peer:
        if peer.handshake:
            assert peer.client.instructions is None
        else:
            assert "instructions" not in await peer.request("server/discover")
        assert await peer.tools() == []
        for method, key in (
            ("resources/list", "resources"),
            ("resources/templates/list", "resourceTemplates"),
            ("prompts/list", "prompts"),
            ("skills/list", "skills"),
        ):
            assert (await peer.request(method))[key] == []
        for name in ("SKILL", "SKILL_CALL", "sinister__echo", "nonsense"):
            called = {"name": name, "arguments": {"action": "list", "tool": "sinister__echo"}}
            assert await peer.refusal("tools/call", called) == (-32602, f"Unknown tool: {name}")
        for method, params in asking_for("sinister"):
            if method not in {"tools/call", "completion/complete"}:
                await peer.refusal(method, params)
        results = [message["result"] for message in peer.wire.messages if "result" in message]
        assert any("capabilities" in result for result in results)
        assert not any("instructions" in result for result in results)
        assert "-guide" not in json.dumps(results)


async def test_a_user_alone_and_a_session_of_theirs_have_the_users_profile(world: World):
    """Without a namespace, in both eras."""
    for side in SIDES:
        for mode in ERAS:
            async with connected(world.guarded.url, mode, token=TOKENS[side]) as peer:
                assert await ids(peer) == [f"{side}-echo", f"{side}-all", "shared", f"{side}-guide"]


async def test_who_has_no_name_is_matched_by_a_star_alone(world: World, launch: Launch):
    """A session, and a client on stdio that was given no namespace; with one it is matched by that."""
    unnamed, named = (
        ["sinister-echo", "sinister-all", "sinister-guide"],
        ["dexter-echo", "dexter-all", "dexter-guide"],
    )
    async with connected(launch(world.by_rest).url, "legacy") as peer:
        assert await ids(peer) == unnamed
    for mode in ERAS:
        async with connected(stdio_program(world.by_rest), mode) as peer:
            assert await ids(peer) == unnamed
        async with connected(stdio_program(world.by_rest, "--namespace", "somebody"), mode) as peer:
            assert await ids(peer) == named


@pytest.mark.parametrize("mode", ERAS)
async def test_on_stdio_the_namespace_chooses_the_profile(world: World, mode: str):
    """Without a namespace none matches, and there is nothing; with one the whole story can be had."""
    async with connected(stdio_program(world.by_namespace), mode) as peer:
        assert await peer.tools() == []
        assert await peer.refusal("tools/call", {"name": "SKILL"}) == (-32602, "Unknown tool: SKILL")
    async with connected(stdio_program(world.by_namespace, "--namespace", "dexter-x"), mode) as peer, peer.hearing():
        await story(peer, "dexter")
        assert "sinister" not in json.dumps(peer.wire.messages)


@pytest.mark.parametrize("mode", ERAS)
async def test_only_so_many_skills_are_active_at_a_time(world: World, namespace: str, mode: str):
    """One more is refused, with a call that makes room and is not refused itself; required ones count."""
    async with connected(world.named.namespace(f"two-{namespace}"), mode) as peer:
        activated = await peer.skill("activate", "few-top")
        assert current_skills(activated) == ["few-base", "few-top"]
        refused = await peer.skill("activate", "few-third")
        assert refused["isError"]
        assert "skill few-third is one too many: at most 2 may be active" in text_of(refused)
        arguments = json.loads(text_of(refused).partition("SKILL(")[2].partition(")")[0])
        assert arguments == {"action": "offload", "skill_name": "few-top"}
        await peer.call("SKILL", arguments)
        assert not (await peer.skill("activate", "few-third")).get("isError")
        assert not (await peer.skill("activate", "few-third")).get("isError")
        refused = await peer.skill("activate", "few-top")
        assert refused["isError"]
        assert current_skills(refused) == ["few-third"]
    async with connected(world.named.namespace(f"one-{namespace}"), mode) as peer:
        refused = await peer.skill("activate", "few-top")
        assert text_of(refused) == "skill few-top is one too many: at most 1 may be active, current skills: []."


async def test_profiles_change_while_clients_work(tmp_path: Path):
    """What a client may not use any more leaves it at once, with a notice, and what it may now comes.

    A skill that is active from the start is so for those who begin after that. Others hear nothing.
    """
    record = Record(tmp_path / "log.jsonl")
    both: Json = {
        "plain": {"desc": "Plain", "usage": "P", "tool_list": {"up": ["echo"]}},
        "guarded": {"desc": "Guarded", "usage": "G", "required_capabilities": ["admin"], "tool_list": {"up": ["odd"]}},
    }

    def write(*profiles: Json) -> Path:
        return write_config(tmp_path / "skills.yaml", {"up": record.entry()}, both, profiles=list(profiles))

    staying = {"namespace": "staying"}
    with http_proxy(write({"namespace": "losing", "capabilities": ["admin"]}, staying)) as proxy:
        async with AsyncExitStack() as stack:
            peers: dict[str, list[Peer]] = {}
            for name in ("losing", "staying", "gaining"):
                peers[name] = [await stack.enter_async_context(connected(proxy.namespace(name), mode)) for mode in ERAS]
                for peer in peers[name]:
                    await stack.enter_async_context(peer.hearing())
                    await peer.tools()
            losing, staying_ones, gaining = peers["losing"], peers["staying"], peers["gaining"]
            await losing[0].skill("activate", "guarded")
            await losing[0].skill("activate", "plain")
            await staying_ones[0].skill("activate", "plain")
            for peer in losing:
                await peer.wire.until_notices(2)
                assert await peer.tools() == ["SKILL", "SKILL_CALL", "up__echo", "up__odd"]
            for peer in staying_ones:
                await peer.wire.until_notices(1)

            write({"namespace": "losing"}, staying, {"namespace": "gaining*", "active": ["plain"]})
            for peer in losing:
                await peer.wire.until_notices(3)
                await peer.wire.until_notices(1, "prompts")
                assert await peer.tools() == ["SKILL", "SKILL_CALL", "up__echo"]
                assert await peer.refusal("tools/call", {"name": "up__odd"}) == (-32602, "Unknown tool: up__odd")
                assert "guarded" not in json.dumps(await peer.request("skills/list"))
            for peer in gaining:
                await peer.wire.until_notices(1)
                assert await peer.tools() == ["SKILL", "SKILL_CALL"]
            async with connected(proxy.namespace("gaining-late")) as late:
                assert await late.tools() == ["SKILL", "SKILL_CALL", "up__echo"]
            assert [peer.wire.notices() for peer in (*losing, *gaining)] == [3, 3, 1, 1]

            write(staying, {"namespace": "gaining", "denied_skills": ["*"]})
            for peer in (*losing, *gaining):
                await peer.wire.until_notices(4 if peer in losing else 2)
                assert await peer.tools() == []
                assert await peer.refusal("tools/call", {"name": "SKILL"}) == (-32602, "Unknown tool: SKILL")
            for peer in staying_ones:
                assert [peer.wire.notices(kind) for kind in KINDS] == [1, 0, 0]
                assert await peer.tools() == ["SKILL", "SKILL_CALL", "up__echo"]
    assert "Traceback" not in proxy.log.read_text(encoding="utf-8")
