"""The reference servers from npm behind the proxy, with all that they offer; skipped where npm cannot install them."""

import base64
import json
import re
import shutil
import subprocess
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp import Client, MCPError
from mcp.client.session import ClientRequestContext
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import (
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequestParams,
    ElicitResult,
    ListRootsResult,
    Root,
    RootsListChangedNotification,
    TextContent,
)
from pydantic import FileUrl

from tests.answers import not_ready
from tests.conftest import (
    MODERN,
    NO_TLS,
    PATIENCE,
    ROOT,
    Json,
    Launch,
    Peer,
    Wire,
    _one,
    _tapped,
    of_servers,
    stdio_program,
    text_of,
    write_config,
)

pytestmark = pytest.mark.anyio

CACHE = ROOT / ".npm-servers"
SCOPE = "@modelcontextprotocol"
PACKAGES = {f"{SCOPE}/server-{name}": "2026.8.31" for name in ("everything", "filesystem", "memory")}
INSTALLING = 300.0
"""Seconds for npm."""
WAYS = [("stdio", "legacy"), ("stdio", MODERN), ("http", "legacy")]
"""How the client reaches the proxy, and its era."""
LEVEL = "io.modelcontextprotocol/logLevel"


# --- the servers -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def npm_servers() -> Path:
    """Where the packages are, installed on first use."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        pytest.skip("npm is not on PATH, which installs these servers")
    wanted = json.dumps({"private": True, "dependencies": PACKAGES})
    installed = CACHE / "installed.json"
    if not installed.is_file() or installed.read_text(encoding="utf-8") != wanted:
        CACHE.mkdir(exist_ok=True)
        (CACHE / "package.json").write_text(wanted, encoding="utf-8")
        command = [npm, "install", "--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error"]
        try:
            subprocess.run(command, cwd=CACHE, capture_output=True, timeout=INSTALLING, check=True)
        except (OSError, subprocess.SubprocessError) as error:
            pytest.skip(f"npm could not install these servers: {error}")
        installed.write_text(wanted, encoding="utf-8")
    return CACHE / "node_modules" / SCOPE


@dataclass(frozen=True)
class Place:
    """The servers' entries for the configuration, and the folders that they work in."""

    entries: Mapping[str, Json]
    files: Path
    other_files: Path

    def direct(self, name: str) -> StdioServerParameters:
        """The server itself, for a client."""
        entry = self.entries[name]
        return StdioServerParameters(command=entry["command"], args=entry["args"], env=entry.get("env"))


@pytest.fixture
def place(npm_servers: Path, tmp_path: Path) -> Place:
    files, other = (tmp_path / name for name in ("files", "other files"))
    files.mkdir()
    other.mkdir()

    def entry(name: str, *arguments: str, **more: Any) -> Json:
        script = npm_servers / f"server-{name}" / "dist" / "index.js"
        return {"command": "node", "args": [str(script), *arguments], **more}

    entries = {
        "everything": entry("everything"),
        "filesystem": entry("filesystem", str(files)),
        "memory": entry("memory", env={"MEMORY_FILE_PATH": str(tmp_path / "memory.jsonl")}),
    }
    return Place(entries, files, other)


# --- the client ------------------------------------------------------------------------------------------------------


@dataclass
class User:
    """Who answers what servers ask: `form` is what it fills in (None declines), `folder` its root."""

    folder: Path
    form: dict[str, Any] | None = None
    asked: list[str] = field(default_factory=list[str])

    async def sample(self, context: ClientRequestContext, params: CreateMessageRequestParams) -> CreateMessageResult:
        self.asked.append("sampling")
        (message,) = params.messages
        text = f"answer to {getattr(message.content, 'text', '')} within {params.max_tokens}"
        return CreateMessageResult(role="assistant", content=TextContent(type="text", text=text), model="test-model")

    async def elicit(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        self.asked.append(f"elicitation by {params.mode}")
        if params.mode == "url":
            return ElicitResult(action="accept")
        return ElicitResult(action="decline") if self.form is None else ElicitResult(action="accept", content=self.form)

    async def roots(self, context: ClientRequestContext) -> ListRootsResult:
        self.asked.append("roots")
        return ListRootsResult(roots=[Root(uri=FileUrl(self.folder.as_uri()), name="the root")])


@asynccontextmanager
async def using(target: str | StdioServerParameters, mode: str, user: User) -> AsyncGenerator[Peer]:
    """A client of the SDK that can be asked everything."""
    wire = Wire()
    try:
        async with _way(target) as way:
            with anyio.move_on_after(PATIENCE) as starting:
                async with Client(
                    _tapped(way, wire),
                    mode=mode,
                    cache=None,
                    sampling_callback=user.sample,
                    elicitation_callback=user.elicit,
                    list_roots_callback=user.roots,
                ) as client:
                    starting.deadline = inf
                    yield Peer(client, wire)
            assert not starting.cancelled_caught, "no answer to the handshake"
    except BaseExceptionGroup as group:
        raise _one(group) from None


@asynccontextmanager
async def _way(target: str | StdioServerParameters) -> AsyncGenerator[Any]:
    """The transport to a URL or a program."""
    if isinstance(target, str):
        async with httpx2.AsyncClient(verify=NO_TLS, timeout=httpx2.Timeout(PATIENCE, read=60)) as http:
            yield streamable_http_client(target, http_client=http)
    else:
        with (CACHE / "stderr.txt").open("w", encoding="utf-8") as stderr:
            yield stdio_client(target, errlog=stderr)


@dataclass(frozen=True)
class Session:
    """A client at the proxy, where all tools of one server are active."""

    peer: Peer
    server: str
    user: User

    async def call(self, tool: str, arguments: Mapping[str, Any] | None = None, **params: Any) -> Json:
        """Call a tool of the server; its result as JSON."""
        return await self.peer.call(f"{self.server}__{tool}", arguments, **params)

    async def asks(self, tool: str, arguments: Mapping[str, Any] | None = None) -> str:
        """Call a tool that asks the client something; the text of its result."""
        with anyio.fail_after(PATIENCE):
            result = await self.peer.client.call_tool(f"{self.server}__{tool}", dict(arguments or {}))
        return "\n".join(block.text for block in result.content if isinstance(block, TextContent))

    def heard(self, method: str) -> list[Json]:
        """The parameters of the notifications so far."""
        return [message["params"] for message in self.peer.wire.messages if message.get("method") == method]

    async def until_heard(self, method: str, test: Callable[[Json], bool]) -> None:
        """Wait for a notification."""
        await self.peer.wire.until(lambda: any(test(params) for params in self.heard(method)))

    @asynccontextmanager
    async def subscribed(self, uri: str) -> AsyncGenerator[None]:
        """Updates of a resource are heard inside."""
        if self.peer.handshake:
            await self.peer.request("resources/subscribe", {"uri": uri})
            yield
            await self.peer.request("resources/unsubscribe", {"uri": uri})
        else:
            async with self.peer.client.listen(resource_subscriptions=[uri]):
                yield


@pytest.fixture(params=WAYS, ids=["stdio-handshake", "stdio-modern", "http-handshake"])
def opened(request: pytest.FixtureRequest, place: Place, tmp_path: Path, launch: Launch) -> Any:
    """Opens a session with a server: `opened(name)`."""
    transport, mode = request.param
    own: Json = {"isolation": "scope"} if transport == "http" else {}
    config = write_config(
        tmp_path / "skills.yaml",
        {name: {**entry, **own} for name, entry in place.entries.items()},
        {name: {"usage": "u", "tool_list": {name: []}} for name in place.entries},
    )

    @asynccontextmanager
    async def open_one(server: str, **user: Any) -> AsyncGenerator[Session]:
        target = stdio_program(config) if transport == "stdio" else launch(config).url
        by = User(**{"folder": place.other_files, **user})
        async with using(target, mode, by) as peer:
            activated = await peer.skill("activate", server)
            assert not_ready(activated) == {}
            session = Session(peer, server, by)
            if server == "everything" and not peer.handshake:
                # It asks for the roots a moment after its start, in whichever call comes then; not once it knows them.
                await session.asks("get-roots-list")
            yield session

    return open_one


def plain(result: Json) -> Json:
    """A result without what the modern era's envelope adds, and without the time of day."""
    kept = {key: value for key, value in result.items() if key not in {"resultType", "ttlMs", "cacheScope"}}
    meta = {key: value for key, value in kept.pop("_meta", {}).items() if key != "io.modelcontextprotocol/serverInfo"}
    text = re.sub(r"\d+:\d\d:\d\d [AP]M", "TIME", json.dumps(kept | ({"_meta": meta} if meta else {})))
    return json.loads(text)


# --- what is compared with the server itself -------------------------------------------------------------------------

TASKS_ONLY = {"everything": ["simulate-research-query"], "filesystem": [], "memory": []}
"""By server: its tools that run as a task alone, which the proxy leaves out."""
LISTS = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}


async def listed(peer: Peer, method: str) -> list[Json]:
    """A list, empty where the server has none."""
    answer = await outcome(peer, method, {})
    if "error" in answer:
        assert answer["error"][0] == -32601
        return []
    return answer["result"][LISTS[method]]


@pytest.mark.parametrize("server", ["everything", "filesystem", "memory"])
async def test_definitions(place: Place, opened: Any, server: str) -> None:
    async with opened(server) as session, using(place.direct(server), "legacy", session.user) as direct:
        for method in LISTS:
            own = await listed(direct, method)
            if method in {"tools/list", "prompts/list"}:
                own = [{**one, "name": f"{server}__{one['name']}"} for one in own]
            if method == "tools/list":
                own.sort(key=lambda tool: tool["name"])
                hidden = [tool for tool in own if tool.get("execution", {}).get("taskSupport") == "required"]
                assert [tool["name"] for tool in hidden] == [f"{server}__{name}" for name in TASKS_ONLY[server]]
                own = [tool for tool in own if tool not in hidden]
            seen = await listed(session.peer, method)
            if method == "tools/list":
                ours, seen = seen[:2], seen[2:]
                assert [tool["name"] for tool in ours] == ["SKILL", "SKILL_CALL"]
            else:
                seen = of_servers(seen)
            assert json.dumps(seen) == json.dumps(own), method


SAME: list[tuple[str, Json]] = [
    ("tools/call", {"name": "echo", "arguments": {"message": "Größe \U0001f600"}}),
    ("tools/call", {"name": "get-sum", "arguments": {"a": 1.5, "b": 2}}),
    ("tools/call", {"name": "get-sum", "arguments": {"a": "no number"}}),
    ("tools/call", {"name": "get-tiny-image"}),
    ("tools/call", {"name": "get-annotated-message", "arguments": {"messageType": "error", "includeImage": True}}),
    ("tools/call", {"name": "get-structured-content", "arguments": {"location": "Chicago"}}),
    ("tools/call", {"name": "get-resource-links", "arguments": {"count": 4}}),
    ("tools/call", {"name": "get-resource-reference", "arguments": {"resourceType": "Blob", "resourceId": 2}}),
    ("prompts/get", {"name": "simple-prompt"}),
    ("prompts/get", {"name": "args-prompt", "arguments": {"city": "Oslo", "state": "none"}}),
    ("prompts/get", {"name": "args-prompt", "arguments": {}}),
    ("prompts/get", {"name": "resource-prompt", "arguments": {"resourceType": "Text", "resourceId": "3"}}),
    ("resources/read", {"uri": "demo://resource/static/document/features.md"}),
    ("resources/read", {"uri": "demo://resource/dynamic/text/7"}),
    ("resources/read", {"uri": "demo://resource/dynamic/text/none"}),
    (
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": "completable-prompt"}, "argument": {"name": "department", "value": "S"}},
    ),
    (
        "completion/complete",
        {
            "ref": {"type": "ref/prompt", "name": "completable-prompt"},
            "argument": {"name": "name", "value": ""},
            "context": {"arguments": {"department": "Sales"}},
        },
    ),
    (
        "completion/complete",
        {
            "ref": {"type": "ref/resource", "uri": "demo://resource/dynamic/text/{resourceId}"},
            "argument": {"name": "resourceId", "value": "7"},
        },
    ),
]


def exposed(params: Json) -> Json:
    """A request to `everything` with the names of the proxy."""
    named = {**params, "name": f"everything__{params['name']}"} if "name" in params else params
    if "name" in params.get("ref", {}):
        return {**named, "ref": {**params["ref"], "name": f"everything__{params['ref']['name']}"}}
    return named


async def outcome(peer: Peer, method: str, params: Json) -> Json:
    """The result or the error of a request."""
    try:
        return {"result": plain(await peer.request(method, params))}
    except MCPError as error:
        return {"error": [error.error.code, error.error.message, error.error.data]}


async def test_answers_of_everything(place: Place, opened: Any) -> None:
    """Tools, prompts, resources and completions: results, error flags and errors as the server gives them."""
    async with opened("everything") as session, using(place.direct("everything"), "legacy", session.user) as direct:
        for method, params in SAME:
            own = await outcome(direct, method, params)
            timed = "dynamic/blob" in json.dumps(own) or "/2" in json.dumps(own)
            seen = await outcome(session.peer, method, exposed(params))
            if timed:  # the time of day is inside the base64
                own, seen = _unblobbed(own), _unblobbed(seen)
            assert seen == own, (method, params)
        for tool in TASKS_ONLY["everything"]:
            called = exposed({"name": tool, "arguments": {"topic": "needs a task"}})
            seen = await outcome(session.peer, "tools/call", called)
            assert seen["error"][:2] == [-32602, f"Unknown tool: {called['name']}"]


def _unblobbed(outcome: Json) -> Json:
    def decode(found: re.Match[str]) -> str:
        text = base64.b64decode(found[1]).decode()
        return json.dumps({"decoded": re.sub(r"\d+:\d\d:\d\d [AP]M", "TIME", text)})[1:-1]

    return json.loads(re.sub(r'"blob": "([^"]*)"', decode, json.dumps(outcome)))


# --- what comes beside answers ---------------------------------------------------------------------------------------


async def test_resources_of_a_session(opened: Any) -> None:
    """A resource that a tool has made is linked, listed after a notice, and can be read."""
    async with opened("everything") as session, session.peer.hearing():
        data = "data:text/plain,hello"
        made = await session.call("gzip-file-as-resource", {"name": "hello.gz", "data": data})
        (link,) = made["content"]
        read = await session.peer.request("resources/read", {"uri": link["uri"]})
        assert base64.b64decode(read["contents"][0]["blob"])[:2] == b"\x1f\x8b"
        told = session.peer.wire.notices("resources")
        while link["uri"] not in [one["uri"] for one in await listed(session.peer, "resources/list")]:
            told += 1
            await session.peer.wire.until_notices(told, "resources")


async def test_subscriptions(opened: Any) -> None:
    """Updates of what is subscribed to, and of nothing else."""
    updated = "notifications/resources/updated"
    uri = "demo://resource/static/document/features.md"
    async with opened("everything") as session, session.subscribed(uri):
        await session.call("toggle-subscriber-updates")
        await session.until_heard(updated, lambda params: params["uri"] == uri)
        assert {params["uri"] for params in session.heard(updated)} == {uri}
        await session.call("toggle-subscriber-updates")


async def test_progress(opened: Any) -> None:
    """Each step, in order and under the client's own token, before the result; nothing where none was asked for."""
    steps = {"duration": 0.3, "steps": 3}
    async with opened("everything") as session:
        await session.call("trigger-long-running-operation", steps)
        assert session.heard("notifications/progress") == []
        result = await session.call("trigger-long-running-operation", steps, _meta={"progressToken": "mine"})
        assert "Steps: 3" in text_of(result)
        told = [{key: each[key] for key in each if key != "_meta"} for each in session.heard("notifications/progress")]
        assert told == [{"progressToken": "mine", "progress": step, "total": 3} for step in (1, 2, 3)]


async def test_log_messages(opened: Any) -> None:
    """At the client's level and above: the level of its connection, or of its request in the modern era."""
    message = "notifications/message"
    async with opened("everything") as session:
        if session.peer.handshake:
            first, second = (f"demo://resource/static/document/{name}.md" for name in ("features", "startup"))
            await session.peer.request("logging/setLevel", {"level": "error"})
            await session.call("echo", {"message": "the server has the level by now"})
            await session.peer.request("resources/subscribe", {"uri": first})
            await session.peer.request("logging/setLevel", {"level": "info"})
            await session.call("echo", {"message": "the server has the level by now"})
            await session.peer.request("resources/subscribe", {"uri": second})
            await session.until_heard(message, lambda params: second in params["data"])
            assert not any(first in params["data"] for params in session.heard(message))
        else:
            await session.call("toggle-simulated-logging", _meta={LEVEL: "debug"})
            await session.until_heard(message, lambda params: "message" in params["data"])
            await session.call("toggle-simulated-logging")


# --- what the server asks --------------------------------------------------------------------------------------------


async def test_sampling(opened: Any) -> None:
    async with opened("everything") as session:
        said = await session.asks("trigger-sampling-request", {"prompt": "the question", "maxTokens": 33})
        assert "the question within 33" in said
        assert "test-model" in said
        assert session.user.asked.count("sampling") == 1


async def test_elicitation(opened: Any) -> None:
    """By a form that is filled in, and one that is declined."""
    async with opened("everything", form={"name": "Ada", "integer": 7, "check": True}) as session:
        said = await session.asks("trigger-elicitation-request")
        assert "- Name: Ada" in said
        assert "- Favorite Integer: 7" in said
        session.user.form = None
        assert "declined" in await session.asks("trigger-elicitation-request")
        assert session.user.asked.count("elicitation by form") == 2


async def test_elicitation_by_url(opened: Any) -> None:
    """By a question, and by an error that demands it first."""
    async with opened("everything") as session:
        arguments = {"url": "https://example.com/first", "elicitationId": "e-1"}
        assert "Elicitation ID: e-1" in await session.asks("trigger-url-elicitation", arguments)
        with pytest.raises(MCPError) as raised:
            await session.call("trigger-url-elicitation", {**arguments, "errorPath": True})
        assert raised.value.error.code == -32042
        (wanted,) = raised.value.error.data["elicitations"]
        assert wanted["mode"] == "url"


async def test_roots_of_everything(opened: Any, place: Place) -> None:
    """The roots of the client, and after a notice the new ones."""
    async with opened("everything") as session:
        assert place.other_files.as_uri() in await session.asks("get-roots-list")
        if session.peer.handshake:  # the modern era has no such notice
            session.user.folder = place.files
            await session.peer.client.session.send_notification(RootsListChangedNotification())
            with anyio.fail_after(PATIENCE):
                while place.files.as_uri() not in await session.asks("get-roots-list"):
                    pass


async def test_roots_of_filesystem(opened: Any, place: Place) -> None:
    """The server asks for roots as it starts, and again after a notice; a modern client has no request to ask in."""
    async with opened("filesystem") as session:
        start = place.other_files if session.peer.handshake else place.files

        async def until_allowed(folder: Path) -> None:
            with anyio.fail_after(PATIENCE):
                while str(folder) not in text_of(await session.call("list_allowed_directories")):
                    pass

        await until_allowed(start)
        if session.peer.handshake:
            session.user.folder = place.files
            await session.peer.client.session.send_notification(RootsListChangedNotification())
            await until_allowed(place.files)


# --- work ------------------------------------------------------------------------------------------------------------


async def test_files(opened: Any, place: Place) -> None:
    """Files are written, changed, found and read; what is outside of the root is refused."""
    async with opened("filesystem", folder=place.files) as session:
        file, moved = place.files / "größe.txt", place.files / "sub" / "moved.txt"
        await session.call("write_file", {"path": str(file), "content": "one\ntwo\n\U0001f600\n"})
        assert file.read_text(encoding="utf-8") == "one\ntwo\n\U0001f600\n"
        edit = {"path": str(file), "edits": [{"oldText": "two", "newText": "2"}]}
        assert "+2" in text_of(await session.call("edit_file", edit))
        read = await session.call("read_text_file", {"path": str(file)})
        assert read["structuredContent"] == {"content": "one\n2\n\U0001f600\n"}
        await session.call("create_directory", {"path": str(moved.parent)})
        await session.call("move_file", {"source": str(file), "destination": str(moved)})
        found = await session.call("search_files", {"path": str(place.files), "pattern": "**/*.txt"})
        assert str(moved) in text_of(found)
        tree = json.loads(text_of(await session.call("directory_tree", {"path": str(place.files)})))
        assert tree == [{"name": "sub", "type": "directory", "children": [{"name": "moved.txt", "type": "file"}]}]
        picture = place.files / "dot.png"
        picture.write_bytes(base64.b64decode("iVBORw0KGgo="))
        media = await session.call("read_media_file", {"path": str(picture)})
        assert media["content"] == [{"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"}]
        refused = await session.call("read_text_file", {"path": str(place.files.parent / "skills.yaml")})
        assert refused["isError"] is True
        assert "Access denied" in text_of(refused)


async def test_memory(opened: Any) -> None:
    """A graph is built, asked and taken down; who subscribes to it hears of each change."""
    graph = "memory://knowledge-graph"
    entity = {"name": "Ada", "entityType": "person", "observations": ["first"]}
    async with opened("memory") as session, session.subscribed(graph):
        created = await session.call("create_entities", {"entities": [entity, {**entity, "name": "Bob"}]})
        assert [one["name"] for one in created["structuredContent"]["entities"]] == ["Ada", "Bob"]
        await session.until_heard("notifications/resources/updated", lambda params: params["uri"] == graph)
        relation = {"from": "Ada", "to": "Bob", "relationType": "knows"}
        await session.call("create_relations", {"relations": [relation]})
        more = {"entityName": "Ada", "contents": ["second"]}
        await session.call("add_observations", {"observations": [more]})
        found = await session.call("search_nodes", {"query": "second"})
        assert found["structuredContent"]["entities"] == [{**entity, "observations": ["first", "second"]}]
        (content,) = (await session.peer.request("resources/read", {"uri": graph}))["contents"]
        assert json.loads(content["text"])["relations"] == [relation]
        await session.call("delete_entities", {"entityNames": ["Bob"]})
        left = (await session.call("read_graph"))["structuredContent"]
        assert [one["name"] for one in left["entities"]] == ["Ada"]
        assert left["relations"] == []
