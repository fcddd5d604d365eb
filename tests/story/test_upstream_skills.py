"""Skills that servers serve themselves: seen with a grant, under their server's name, and passed on as they are."""

import json
import sys
from collections.abc import Generator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from mcp import MCPError

from tests.conftest import (
    ERAS,
    ROOT,
    HttpProxy,
    Json,
    Launch,
    Peer,
    Record,
    connected,
    http_proxy,
    text_of,
    write_config,
)

pytestmark = pytest.mark.anyio

SCRIPTED = ROOT / "tests" / "servers" / "scripted.py"
EXTENSION = "io.modelcontextprotocol/skills"
OF_SKILLS = ("skills/list", "skills/get", "resources/directory/read")
UPDATED = "notifications/resources/updated"

SERVERS = {"modern": "modern", "hand shake": "handshake"}
"""Two servers with the same answers, by key: the era that the proxy speaks to each."""
BASES = {"modern": "skill://server.modern/", "hand shake": "skill://server.hand%20shake/"}


def entry(uri: str, name: str, resources: Any = "dynamic", **more: Any) -> Json:
    return {"uri": uri, "frontmatter": {"name": name, "description": f"About {name}."}, "resources": resources, **more}


def file(uri: str) -> Json:
    return {"uri": uri, "digest": "sha256:" + "0" * 64, "size": 3, "x": {"uri": uri, "one": 1.0}}


ECHO = "skill://echo/SKILL.md"
"""Where the proxy has a skill of its own as well."""
REFUNDS = "skill://acme/refunds/SKILL.md"
FORMS = "skill://acme/refunds/references/FORMS.md"
DAILY = "skill://reports/daily/SKILL.md"
REVIEW = "github://acme/tools/review/SKILL.md"
UNLISTED = "skill://attic/SKILL.md"
ENTRIES = [
    entry(ECHO, "echo", [file(ECHO)]),
    entry(
        REFUNDS,
        "refunds",
        [file(REFUNDS), file(FORMS)],
        **{"x-future": {"none": None, "big": 10**30, "uri": REFUNDS}, "_meta": {"vendor/k": [1.0, 1e-7]}},
    ),
    entry(DAILY, "daily", metadata={"see": DAILY}),
    entry(REVIEW, "review", [file(REVIEW)]),
]
LISTED = [skill["uri"] for skill in ENTRIES]


NOT_THEIRS = (f"{BASES['modern']}given", "SKILL://server.modern/given", ECHO, "SKILL://echo/SKILL.md")
"""What a tool may hand out and its server has not got all the same."""


def read(uri: str, *more: Json) -> Json:
    content = {"x-extra": None, "uri": uri, "mimeType": "text/markdown", "text": f"See {uri}."}
    return {"contents": [content, *more], "x-future": {"uri": uri, "n": 1.0}}


ANSWERS: dict[str, Json] = {
    "tools/list": {
        "tools": [{"name": name, "inputSchema": {"type": "object"}} for name in ("link", "update", "other")]
    },
    "tools/call link": {
        "content": [
            *({"type": "resource_link", "name": "x", "uri": uri} for uri in ("skill://given/x", *NOT_THEIRS)),
            {"type": "resource", "resource": {"uri": REFUNDS, "text": "theirs"}},
        ]
    },
    "tools/call update": {"content": [], "notify": {"method": UPDATED, "params": {"uri": FORMS, "x": [1]}}},
    "resources/list": {
        "resources": [
            {"uri": "memo://one", "name": "one"},
            {"name": "Loud", "uri": "SKILL://loud", "x": {"uri": "SKILL://loud"}, "size": 1.0},
        ]
    },
    "resources/templates/list": {
        "resourceTemplates": [
            {"uriTemplate": "memo://{day}", "name": "day"},
            {"uriTemplate": "skill://notes/{+path}", "name": "notes", "x": "skill://notes/{+path}"},
            {"uriTemplate": "{+greedy}", "name": "greedy"},
        ]
    },
    "skills/list": {"skills": ENTRIES[:2], "nextCursor": "two"},
    "skills/list two": {"skills": ENTRIES[2:]},
    **{f"skills/get {skill['uri']}": {"skill": skill, "x": {"uri": skill["uri"]}} for skill in ENTRIES},
    f"skills/get {UNLISTED}": {"skill": entry(UNLISTED, "attic", [file(UNLISTED)])},
    **{f"resources/read {uri}": read(uri) for uri in (*LISTED, "SKILL://loud", "skill://given/x", "memo://one")},
    f"resources/read {FORMS}": read(FORMS, {"uri": f"{FORMS}#2", "text": ""}, {"uri": "memo://one", "text": ""}, {}),
    **{
        f"resources/read {uri}": read(uri)
        for uri in (
            UNLISTED,
            "skill://notes/a/b",
            "skill://reports/daily/today/cash.csv",
            "skill://acme/refunds/new.md",
        )
    },
    "resources/directory/read skill://acme/refunds": {
        "resources": [{"uri": REFUNDS, "name": "SKILL.md", "size": 1.0}, {"name": "no uri"}, None],
        "nextCursor": "their own",
    },
    "resources/directory/read their own": {"resources": [{"uri": "skill://acme/refunds/references", "name": "r"}]},
    "completion/complete": {"completion": {"values": ["a/b"]}},
}


@dataclass(frozen=True)
class Script(Record):
    """A scripted server as an upstream; a file beside its log says what it answers."""

    def entry(self, **more: Any) -> Json:
        args = [str(SCRIPTED), "--log", str(self.log), "--name", self.name, "--answers", str(self.answers)]
        if self.until is not None:
            args += ["--until", str(self.until)]
        return {"command": sys.executable, "args": args, **more}

    @property
    def answers(self) -> Path:
        return self.log.with_suffix(".json")

    def says(self, answers: Mapping[str, Any], extension: Any = None, **capabilities: Any) -> "Script":
        """Have it answer so from its next request on, and declare `extension` from its next start on."""
        declared = {
            "tools": {},
            "resources": {"subscribe": True, "listChanged": True},
            "completions": {},
            **capabilities,
        }
        if extension is not None:
            declared["extensions"] = {EXTENSION: extension}
        written = self.answers.with_suffix(".new")
        written.write_text(json.dumps({"capabilities": declared, "answers": answers}), encoding="utf-8")
        written.replace(self.answers)
        return self

    def asked(self, uri: str) -> list[str]:
        """The methods of the requests for `uri` so far."""
        return [each["method"] for each in self.received() if each["params"].get("uri") == uri]


@dataclass(frozen=True)
class World:
    """A proxy over HTTP and its servers, by key."""

    proxy: HttpProxy
    scripts: dict[str, Script]


def skills_for(servers: Mapping[str, Any], **lists: Any) -> Json:
    """A skill for each server with all its tools, and those that list some resources of all of them."""
    every = {f"all-{SERVERS.get(server, server)}": {"usage": "u", "tool_list": {server: []}} for server in servers}
    some = {name: {"usage": "u", "resource_list": dict.fromkeys(servers, listed)} for name, listed in lists.items()}
    return {"echo": {"desc": "Ours.", "usage": "Our own guide."}, **every, **some}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Generator[World]:
    folder = tmp_path_factory.mktemp("upstream-skills")
    scripts = {key: Script(folder / f"{era}.jsonl", era) for key, era in SERVERS.items()}
    for script in scripts.values():
        script.says(ANSWERS, {"directoryRead": True})
    skills = skills_for(scripts, refunds=["refunds"], daily=["skill://reports/*"], tool=["memo://one"])
    servers = {key: script.entry(era=SERVERS[key]) for key, script in scripts.items()}
    skills["tool"]["tool_list"] = {key: ["update", "other"] for key in scripts}
    with http_proxy(write_config(folder / "skills.yaml", servers, skills)) as proxy:
        yield World(proxy, scripts)


def plain(result: Json) -> Json:
    """A result without what the era's envelope adds."""
    kept = {key: value for key, value in result.items() if key not in {"resultType", "ttlMs", "cacheScope"}}
    meta = {key: value for key, value in kept.pop("_meta", {}).items() if key != "io.modelcontextprotocol/serverInfo"}
    return kept | ({"_meta": meta} if meta else {})


def at(server: str, uri: str) -> str:
    """The exposed URI, put together by hand."""
    scheme, rest = uri.split("://", 1)
    return BASES[server] + (rest if scheme == "skill" else f"{scheme}:/{rest}")


def passed_on(server: str, skill: Json) -> Json:
    """An entry as clients get it."""
    files = skill["resources"]
    moved = files if files == "dynamic" else [{**each, "uri": at(server, each["uri"])} for each in files]
    return {**skill, "uri": at(server, skill["uri"]), "resources": moved}


async def listed(peer: Peer) -> list[Json]:
    """All pages of `skills/list` but our own skills that need no server."""
    found: list[Json] = []
    params: Json = {}
    while True:
        page = await peer.request("skills/list", params)
        found += page["skills"]
        if "nextCursor" not in page:
            return found
        params = {"cursor": page["nextCursor"]}


async def uris(peer: Peer) -> list[str]:
    return [skill["uri"] for skill in await listed(peer)]


async def refused(peer: Peer, method: str, **params: Any) -> tuple[int, str]:
    """The code and the text of the error that a request is answered with."""
    with pytest.raises(MCPError) as raised:
        await peer.request(method, params)
    return raised.value.error.code, raised.value.error.message


def all_of(server: str) -> str:
    return f"all-{SERVERS[server]}"


# --- listing ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ERAS)
async def test_skills_of_servers_are_listed_behind_ours_while_they_are_granted(
    world: World, namespace: str, mode: str
) -> None:
    """With all tools of their server, or by a list of resources; in the order of the file, however activated."""
    async with connected(world.proxy.namespace(namespace), mode) as peer:
        ours = await uris(peer)
        assert ours[0] == ECHO
        assert not any("server." in uri for uri in ours)
        await peer.skill("activate", "refunds")
        assert await uris(peer) == [*ours, *(at(server, REFUNDS) for server in SERVERS)]
        await peer.skill("activate", all_of("hand shake"))
        every = [at("hand shake", uri) for uri in LISTED]
        assert await uris(peer) == [*ours, at("modern", REFUNDS), *every]
        await peer.skill("offload", "refunds")
        await peer.skill("activate", "tool")
        assert await uris(peer) == [*ours, *every]
        await peer.skill("offload", all_of("hand shake"))
        assert await uris(peer) == ours


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("mode", ERAS)
async def test_nothing_but_uris_of_an_entry_changes(world: World, namespace: str, mode: str, server: str) -> None:
    """Order of members, numbers as they were written, nulls, and URIs in other places; listed or asked for alone."""
    async with connected(world.proxy.namespace(namespace), mode) as peer:
        await peer.skill("activate", all_of(server))
        theirs = [skill for skill in await listed(peer) if skill["uri"].startswith(BASES[server])]
        assert json.dumps(theirs) == json.dumps([passed_on(server, skill) for skill in ENTRIES])
        for skill in ENTRIES:
            got = plain(await peer.request("skills/get", {"uri": at(server, skill["uri"])}))
            assert json.dumps(got) == json.dumps({"skill": passed_on(server, skill), "x": {"uri": skill["uri"]}})


async def test_the_skill_tool_knows_nothing_of_them(world: World, namespace: str) -> None:
    """They grant nothing, and are nothing to activate."""
    async with connected(world.proxy.namespace(namespace)) as peer:
        await peer.skill("activate", all_of("modern"))
        told = await peer.skill("list")
        assert "refunds" in text_of(told)  # ours, of that name
        assert "review" not in json.dumps([told, await peer.definitions()])
        assert (await peer.skill("activate", "review"))["isError"]


@pytest.mark.parametrize("mode", ERAS)
async def test_a_client_is_told_when_they_come_and_go(world: World, namespace: str, mode: str) -> None:
    """As of resources, which their files are."""
    async with connected(world.proxy.namespace(namespace), mode) as peer, peer.hearing():
        await peer.skill("activate", "daily")
        await peer.wire.until_notices(1, "resources")
        await peer.skill("offload", "daily")
        await peer.wire.until_notices(2, "resources")


# --- whose they are --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ERAS)
async def test_two_servers_and_we_have_one_uri_and_three_skills(world: World, namespace: str, mode: str) -> None:
    """Each is read where it is; ours is ours, whatever a server says of it."""
    before = {server: len(script.asked(ECHO)) for server, script in world.scripts.items()}
    async with connected(world.proxy.namespace(namespace), mode) as peer:
        for server in SERVERS:
            await peer.skill("activate", all_of(server))
        ours = await peer.request("resources/read", {"uri": ECHO})
        assert "Our own guide." in ours["contents"][0]["text"]
        assert (await peer.request("skills/get", {"uri": ECHO}))["skill"]["frontmatter"]["description"] == "Ours."
        for server, script in world.scripts.items():
            assert len(script.asked(ECHO)) == before[server]
            theirs = await peer.request("resources/read", {"uri": at(server, ECHO)})
            assert theirs["contents"][0]["text"] == f"See {ECHO}."
            assert script.asked(ECHO)[before[server] :] == ["resources/read"]


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("mode", ERAS)
async def test_files_are_read_under_their_own_uri_and_answered_under_ours(
    world: World, namespace: str, mode: str, server: str
) -> None:
    """And what lies beside them; all else of the answer as it came."""
    async with connected(world.proxy.namespace(namespace), mode) as peer:
        await peer.skill("activate", all_of(server))
        for uri in (REFUNDS, DAILY, REVIEW):
            expected = read(uri)
            expected["contents"][0]["uri"] = at(server, uri)
            got = plain(await peer.request("resources/read", {"uri": at(server, uri)}))
            assert json.dumps(got) == json.dumps(expected)
        got = (await peer.request("resources/read", {"uri": at(server, FORMS)}))["contents"]
        assert [content.get("uri") for content in got] == [
            at(server, FORMS),
            at(server, f"{FORMS}#2"),
            "memo://one",
            None,
        ]
    assert world.scripts[server].asked(at(server, REFUNDS)) == []


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("mode", ERAS)
async def test_folders_are_read_page_by_page(world: World, namespace: str, mode: str, server: str) -> None:
    """With the server's own cursors."""
    folder = at(server, "skill://acme/refunds")
    async with connected(world.proxy.namespace(namespace), mode) as peer:
        await peer.skill("activate", "refunds")
        first = plain(await peer.request("resources/directory/read", {"uri": folder}))
        assert first == {
            "resources": [{"uri": at(server, REFUNDS), "name": "SKILL.md", "size": 1.0}, {"name": "no uri"}, None],
            "nextCursor": "their own",
        }
        last = plain(await peer.request("resources/directory/read", {"uri": folder, "cursor": "their own"}))
        assert last == {"resources": [{"uri": at(server, "skill://acme/refunds/references"), "name": "r"}]}
    sent = world.scripts[server].received("resources/directory/read")[-1]["params"]
    assert (sent["uri"], sent["cursor"]) == ("skill://acme/refunds", "their own")


# --- what is not granted ---------------------------------------------------------------------------------------------

WAYS = (
    ("resources/read", "Unknown resource: {}"),
    ("skills/get", "No skill is served at {}"),
    ("resources/directory/read", "{} is not a directory resource"),
    ("resources/subscribe", "Unknown resource: {}"),
)


@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.parametrize("active", [(), ("echo",), ("tool",), ("daily",)])
async def test_what_is_hidden_is_unknown_and_never_asked_for(
    world: World, namespace: str, mode: str, active: tuple[str, ...]
) -> None:
    """In the words for what does not exist, for every method; the server hears nothing."""
    before = [len(script.asked(uri)) for script in world.scripts.values() for uri in (REFUNDS, FORMS, UNLISTED)]
    async with connected(world.proxy.namespace(namespace), mode) as peer:
        for one in active:
            await peer.skill("activate", one)
        for server in SERVERS:
            for uri in (REFUNDS, FORMS, UNLISTED, "skill://acme/refunds", "skill://reports/daily/../../acme/x"):
                for method, words in WAYS if peer.handshake else WAYS[:3]:
                    code, text = await refused(peer, method, uri=at(server, uri))
                    assert text == words.format(at(server, uri))
                    assert code == (-32002 if "Unknown" in words and peer.handshake else -32602)
                    nowhere = uri.replace("skill://", "skill://server.nowhere/")
                    assert await refused(peer, method, uri=nowhere) == (code, words.format(nowhere))
    assert before == [len(script.asked(uri)) for script in world.scripts.values() for uri in (REFUNDS, FORMS, UNLISTED)]


@pytest.mark.parametrize("mode", ERAS)
async def test_a_list_grants_the_files_of_the_skills_on_it(world: World, namespace: str, mode: str) -> None:
    """Those of the manifest, and all below the folder where there is none; not under any other spelling."""
    server, script = "modern", world.scripts["modern"]
    async with connected(world.proxy.namespace(namespace), mode) as peer:
        await peer.skill("activate", "refunds")
        await peer.request("resources/read", {"uri": at(server, FORMS)})
        await refused(peer, "resources/read", uri=at(server, "skill://acme/refunds/new.md"))
        await peer.skill("activate", "daily")
        await peer.request("resources/read", {"uri": at(server, "skill://reports/daily/today/cash.csv")})
        for spelling in ("%2e%2e/x", "a/..%2f../x", "../daily/SKILL.md"):
            await refused(peer, "resources/read", uri=at(server, f"skill://reports/daily/{spelling}"))
            assert script.asked(f"skill://reports/daily/{spelling}") == []
        for uri in ("skill://server.MODERN/reports/daily/SKILL.md", "SKILL://server.modern/reports/daily/SKILL.md"):
            await refused(peer, "resources/read", uri=uri)
    assert script.asked("skill://acme/refunds/new.md") == []


@pytest.mark.parametrize("mode", ERAS)
async def test_a_server_that_is_granted_whole_is_asked_for_what_it_does_not_list(
    world: World, namespace: str, mode: str
) -> None:
    """Its answer counts, and its error is passed on as it came."""
    async with connected(world.proxy.namespace(namespace), mode) as peer:
        await peer.skill("activate", all_of("modern"))
        found = await peer.request("skills/get", {"uri": at("modern", UNLISTED)})
        assert found["skill"] == passed_on("modern", entry(UNLISTED, "attic", [file(UNLISTED)]))
        got = await peer.request("resources/read", {"uri": at("modern", UNLISTED)})
        assert got["contents"][0]["uri"] == at("modern", UNLISTED)
        nothing = at("modern", "skill://nothing/SKILL.md")
        assert await refused(peer, "skills/get", uri=nothing) == (-32602, "modern has nothing for skills/get")
        await refused(peer, "skills/get", uri=at("modern", "memo://one"))
    assert "skills/get" not in world.scripts["modern"].asked("memo://one")


# --- ordinary resources in our scheme --------------------------------------------------------------------------------


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("mode", ERAS)
async def test_resources_in_our_scheme_stand_under_their_server(
    world: World, namespace: str, mode: str, server: str
) -> None:
    """And templates; of their definitions, that alone changes. All other resources are as they were sent."""
    script = world.scripts[server]
    async with connected(world.proxy.namespace(namespace), mode) as peer:
        await peer.skill("activate", all_of(server))
        resources = (await peer.request("resources/list"))["resources"]
        theirs = [
            resource for resource in resources if not resource["uri"].startswith("skill://") or "Loud" in str(resource)
        ]
        loud = ANSWERS["resources/list"]["resources"][1]
        assert json.dumps(theirs) == json.dumps(
            [ANSWERS["resources/list"]["resources"][0], {**loud, "uri": at(server, "SKILL://loud")}]
        )
        templates = (await peer.request("resources/templates/list"))["resourceTemplates"]
        day, notes, greedy = ANSWERS["resources/templates/list"]["resourceTemplates"]
        notes = {**notes, "uriTemplate": at(server, "skill://notes/{+path}")}
        assert json.dumps(templates[-3:]) == json.dumps([day, notes, greedy])
        for uri in ("SKILL://loud", "skill://notes/a/b"):
            got = await peer.request("resources/read", {"uri": at(server, uri)})
            assert got["contents"][0]["uri"] == at(server, uri)
            await refused(peer, "resources/read", uri=uri)
        assert (await peer.request("resources/read", {"uri": "memo://one"}))["contents"] == read("memo://one")[
            "contents"
        ]
        ref = {"type": "ref/resource", "uri": notes["uriTemplate"]}
        done = await peer.request("completion/complete", {"ref": ref, "argument": {"name": "path", "value": "a"}})
        assert done["completion"]["values"] == ["a/b"]
    assert script.received("completion/complete")[-1]["params"]["ref"]["uri"] == "skill://notes/{+path}"


@pytest.mark.parametrize("mode", ERAS)
async def test_what_a_tool_hands_out_is_read_as_it_was_handed_out(world: World, namespace: str, mode: str) -> None:
    """At the server that did; unless it is ours, or under the name of a server, in whatever case."""
    script = world.scripts["hand shake"]
    before = [script.asked(uri) for uri in NOT_THEIRS]
    async with connected(world.proxy.namespace(namespace), mode) as peer:
        await peer.skill("activate", all_of("hand shake"))
        given = await peer.call(await tool(peer, "link"))
        assert given["content"] == ANSWERS["tools/call link"]["content"]
        got = await peer.request("resources/read", {"uri": "skill://given/x"})
        assert json.dumps(plain(got)) == json.dumps(read("skill://given/x"))
        assert "Our own guide." in str(await peer.request("resources/read", {"uri": ECHO}))
        for uri in NOT_THEIRS:
            if uri != ECHO:
                await refused(peer, "resources/read", uri=uri)
    assert [script.asked(uri) for uri in NOT_THEIRS] == before


async def tool(peer: Peer, name: str) -> str:
    """The exposed name of a server's only tool of that name."""
    return next(each for each in await peer.tools() if f"__{name}" in each)


# --- updates ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("mode", ERAS)
async def test_updates_of_a_skills_files_come_under_the_uri_that_was_subscribed_to(
    world: World, namespace: str, mode: str, server: str
) -> None:
    """The server hears the original one."""
    script, uri = world.scripts[server], at(server, FORMS)
    async with connected(world.proxy.namespace(namespace), mode) as peer, AsyncExitStack() as stack:
        await peer.skill("activate", all_of(server))
        if peer.handshake:
            await peer.request("resources/subscribe", {"uri": uri})
        else:
            await stack.enter_async_context(peer.client.listen(resource_subscriptions=[uri]))
        await peer.call(await tool(peer, "update"))
        await peer.wire.until(lambda: bool(peer.wire.where(lambda message: message.get("method") == UPDATED)))
        (place,) = peer.wire.where(lambda message: message.get("method") == UPDATED)
        assert peer.wire.messages[place]["params"]["uri"] == uri
        if peer.handshake:
            assert peer.wire.messages[place]["params"]["x"] == [1]
    wanted = script.received("resources/subscribe", "subscriptions/listen")
    assert FORMS in json.dumps(wanted)
    assert uri not in json.dumps(wanted)


# --- servers as they come --------------------------------------------------------------------------------------------


async def alone(launch: Launch, folder: Path, script: Script, **entry: Any) -> HttpProxy:
    """A proxy in front of one server, `up`, with a skill for all of it, and one that lists its skills."""
    skills = skills_for({"up": None}, listed=["*"])
    return launch(write_config(folder / "skills.yaml", {"up": script.entry(**entry)}, skills))


ONE_TOOL = {"tools/list": {"tools": [{"name": "one", "inputSchema": {"type": "object"}}]}}


@pytest.mark.parametrize("era", ["modern", "handshake"])
@pytest.mark.parametrize("declared", [None, True, [], "yes"])
async def test_a_server_that_has_not_declared_the_extension_is_never_asked_about_skills(
    tmp_path: Path, launch: Launch, era: str, declared: object
) -> None:
    """Its resources in our scheme are ordinary ones, and still not ours."""
    answers = {**ANSWERS, "resources/list": {"resources": [{"uri": REFUNDS}]}}
    script = Script(tmp_path / "up.jsonl", "up").says(answers, declared)
    proxy = await alone(launch, tmp_path, script, era=era)
    async with connected(proxy.namespace("a")) as peer:
        await peer.skill("activate", "all-up")
        ours = await uris(peer)
        assert not any("server." in uri for uri in ours)
        assert (await peer.request("resources/read", {"uri": "skill://server.up/acme/refunds/SKILL.md"}))["contents"]
        for method in ("skills/get", "resources/directory/read"):
            await refused(peer, method, uri="skill://server.up/acme/refunds/SKILL.md")
    assert script.received(*OF_SKILLS) == []


async def test_a_server_without_folders_is_never_asked_for_one(tmp_path: Path, launch: Launch) -> None:
    """Only those that declare `directoryRead` can be."""
    script = Script(tmp_path / "up.jsonl", "up").says(ANSWERS, {})
    proxy = await alone(launch, tmp_path, script)
    async with connected(proxy.namespace("a")) as peer:
        await peer.skill("activate", "all-up")
        await refused(peer, "resources/directory/read", uri="skill://server.up/acme/refunds")
    assert script.received("resources/directory/read") == []


HUGE = "x" * 20_000_000
HOSTILE: dict[str, tuple[Any, list[str]]] = {
    "wrong types": (
        {"skills": [None, 7, "skill://a/SKILL.md", [], {}, {"uri": DAILY}, {**ENTRIES[0], "uri": 7}, ENTRIES[1]]},
        [REFUNDS],
    ),
    "no list": ({"skills": {"uri": DAILY}}, []),
    "files of every type": ({"skills": [entry(DAILY, "daily", [None, 7, {}, {"uri": []}, [[]], "x"])]}, [DAILY]),
    "twenty megabytes": ({"skills": [{**ENTRIES[1], "x": HUGE}, ENTRIES[2]]}, [DAILY]),
    "one cursor for ever": ({"skills": ENTRIES[:1], "nextCursor": "again"}, [ECHO]),
    "an error": ({"error": {"code": -32603, "message": "the disk is full"}}, []),
    "no such method": ({"error": {"code": -32601, "message": "Method not found"}}, []),
}


@pytest.mark.parametrize("case", HOSTILE)
async def test_a_list_of_skills_that_is_broken_costs_nothing_else(tmp_path: Path, launch: Launch, case: str) -> None:
    """What is sound in it is listed; tools and resources are there in any case."""
    answer, sound = HOSTILE[case]
    script = Script(tmp_path / "up.jsonl", "up").says(
        {**ANSWERS, **ONE_TOOL, "skills/list": answer, "skills/list again": answer}, {}
    )
    proxy = await alone(launch, tmp_path, script)
    async with connected(proxy.namespace("a")) as peer:
        await peer.skill("activate", "all-up")
        found = [uri for uri in await uris(peer) if "server." in uri]
        assert found == [uri.replace("skill://", "skill://server.up/") for uri in sound]
        assert "up__one" in await peer.tools()
        assert "memo://one" in str(await peer.request("resources/list"))
    assert len(script.received("skills/list")) <= 2


async def test_of_a_list_without_an_end_ten_thousand_are_kept(tmp_path: Path, launch: Launch) -> None:
    """It is read no further, and the log says so."""
    pages = [[entry(f"skill://s{page}-{n}/SKILL.md", f"s{page}-{n}") for n in range(6000)] for page in range(2)]
    listed = {
        "skills/list": {"skills": pages[0], "nextCursor": "1"},
        "skills/list 1": {"skills": pages[1], "nextCursor": "2"},
    }
    script = Script(tmp_path / "up.jsonl", "up").says({**ONE_TOOL, **listed}, {})
    proxy = await alone(launch, tmp_path, script)
    async with connected(proxy.namespace("a")) as peer:
        ours = await uris(peer)
        await peer.skill("activate", "all-up")
        last = await peer.request("skills/list", {"cursor": str(len(ours) + 9_999)})
        assert [skill["uri"] for skill in last["skills"]] == ["skill://server.up/s1-3999/SKILL.md"]
        assert "nextCursor" not in last
    assert [each["params"].get("cursor") for each in script.received("skills/list")] == [None, "1"]
    assert '"server.list_cut"' in proxy.log.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "answer", [{"skill": None}, {"skill": [7]}, {"skill": {"uri": 7, "resources": {}}}, {}, {"x": HUGE}]
)
async def test_an_entry_that_is_none_passes_as_it_came(tmp_path: Path, launch: Launch, answer: Json) -> None:
    """It is the server's answer; the client judges it."""
    odd = {"resources/directory/read": {"resources": {"uri": 7}}, "resources/read": {"contents": "none"}}
    script = Script(tmp_path / "up.jsonl", "up").says(
        {**ONE_TOOL, "skills/get": answer, **odd}, {"directoryRead": True}
    )
    proxy = await alone(launch, tmp_path, script)
    async with connected(proxy.namespace("a")) as peer:
        await peer.skill("activate", "all-up")
        uri = "skill://server.up/a/SKILL.md"
        assert plain(await peer.request("skills/get", {"uri": uri})) == answer
        for method, expected in odd.items():
            assert plain(await peer.request(method, {"uri": uri})) == expected


@pytest.mark.parametrize("era", ["modern", "handshake"])
async def test_skills_are_read_again_when_the_server_says_that_its_resources_changed(
    tmp_path: Path, launch: Launch, era: str
) -> None:
    """And the client is told; if they cannot be read then, those from before stay."""
    change = {"content": [], "notify": {"method": "notifications/resources/list_changed"}}
    answers = {**ONE_TOOL, "tools/call": change, "skills/list": {"skills": ENTRIES[:1]}}
    script = Script(tmp_path / "up.jsonl", "up").says(answers, {})
    proxy = await alone(launch, tmp_path, script, era=era)
    async with connected(proxy.namespace("a")) as peer, peer.hearing():
        await peer.skill("activate", "all-up")
        before = await uris(peer)
        told = peer.wire.notices("resources")
        script.says({**answers, "skills/list": {"skills": ENTRIES[:2]}}, {})
        await peer.call("up__one")
        await peer.wire.until_notices(told + 1, "resources")
        after = await uris(peer)
        assert after == [*before, "skill://server.up/acme/refunds/SKILL.md"]
        failing = {"error": {"code": -32603, "message": "down"}}
        script.says({**answers, "skills/list": failing, "resources/list": {"resources": [{"uri": "memo://new"}]}}, {})
        await peer.call("up__one")
        await peer.wire.until_notices(told + 2, "resources")
        assert await uris(peer) == after


async def test_a_server_that_is_not_back_yet_is_listed_with_what_it_served_last(tmp_path: Path, launch: Launch) -> None:
    """After a restart; once it is back its new word counts, also for what was asked for meanwhile."""
    script = Script(tmp_path / "up.jsonl", "up").says(ANSWERS, {"directoryRead": True})
    config = write_config(tmp_path / "skills.yaml", {"up": script.entry()}, skills_for({"up": None}))
    with http_proxy(config) as proxy:
        async with connected(proxy.namespace("a")) as peer:
            await peer.skill("activate", "all-up")
            served = await uris(peer)
    assert "skill://server.up/acme/refunds/SKILL.md" in served
    script.answers.unlink()  # without it, the server ends when it is asked anything
    asked = len(script.received())

    proxy = launch(config)
    async with connected(proxy.namespace("a")) as peer:
        await peer.skill("activate", "all-up")
        assert await uris(peer) == served
        script.says(ONE_TOOL)
        code, text = await refused(peer, "skills/get", uri="skill://server.up/acme/refunds/SKILL.md")
        assert (code, text) == (-32602, "No skill is served at skill://server.up/acme/refunds/SKILL.md")
        assert "up__one" in await peer.tools()
    later = [message["method"] for message in script.received()[asked:]]
    assert [method for method in later if method in OF_SKILLS] == []
