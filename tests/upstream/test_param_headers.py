"""Headers that repeat a call's name and arguments (2026-07-28, `x-mcp-header`): right on both sides of the proxy."""

import base64
import json
import sys
import threading
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp_types import HEADER_MISMATCH, Implementation

from proxy.app import running
from proxy.config.load import load
from proxy.core.scope import ScopeId
from tests.conftest import MODERN, PATIENCE, Answer, Json, Launch, Raw, names, text_of, write_config
from tests.servers import mirror
from tests.upstream.bench import until

pytestmark = pytest.mark.anyio

META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


def annotated(name: str, **properties: tuple[str, str]) -> Json:
    """A tool whose arguments are of these types and go into these headers."""
    schema = {key: {"type": kind, "x-mcp-header": header} for key, (kind, header) in properties.items()}
    return {"name": name, "inputSchema": {"type": "object", "properties": {**schema, "body": {"type": "string"}}}}


ECHO = annotated("echo", owner=("string", "Owner"), page=("integer", "Page"))
ODD = annotated("größe/say", owner=("string", "Owner"))
BAD = annotated("bad", weight=("number", "Weight"))
PLAIN = {"name": "plain", "inputSchema": {"type": "object"}}
LISTS = {"name": "lists", "inputSchema": {"type": "object"}}
TOOLS = (ECHO, BAD, ODD, PLAIN, LISTS)
SAID = '{"result": {"content": [], "resultType": "complete"}}'


def pages(*tools: Json) -> dict[str, dict[str, str]]:
    """What the mirror's lists answer when it has these tools."""
    return {"tools/list": {"": json.dumps({"result": {"tools": tools}})}}


class Upstream(ThreadingHTTPServer):
    """A mirror over HTTP that keeps the headers of every request; unless it is `open`, it answers none."""

    daemon_threads = True

    def __init__(self) -> None:
        self.requests: list[dict[str, str]] = []
        self.open = True
        upstream = self

        class Handler(mirror.Handler):
            def do_POST(self) -> None:  # noqa: N802 - the base's own
                upstream.requests.append({name.lower(): value for name, value in self.headers.items()})
                if upstream.open:
                    super().do_POST()
                else:
                    self.close_connection = True
                    self._reply(503, "text/plain", b"")

        Handler.mirror = mirror.Mirror(pages(*TOOLS))
        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/mcp"

    @property
    def calls(self) -> list[dict[str, str]]:
        """The headers of the calls so far: those that speak of the call."""
        kept = ("mcp-name", "mcp-param-owner", "mcp-param-page")
        calls = [headers for headers in self.requests if headers.get("mcp-method") == "tools/call"]
        return [{name: headers[name] for name in kept if name in headers} for headers in calls]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing: clients leave as they like."""


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    server = Upstream()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def config(folder: Path, entry: Json) -> Path:
    """The server is `up`, its one skill is active, and clients can call its tools through `SKILL_CALL` too."""
    skills = {"all": {"usage": "u", "active": True, "tool_list": {"up": ["*"]}}}
    return write_config(folder / "skills.yaml", {"up": entry}, skills, proxy={"call_route": "on"})


def over_stdio(folder: Path) -> Json:
    """The entry of the same server as a process."""
    told = folder / "pages.json"
    told.write_text(json.dumps(pages(*TOOLS)), encoding="utf-8")
    return {"command": sys.executable, "args": ["-S", "-E", mirror.__file__, "stdio", str(told)]}


async def call(raw: Raw, url: str, name: str, arguments: Json, headers: Json) -> Answer:
    """Call a tool as a modern client, with these headers and no other `Mcp-Name` or `Mcp-Param-*`."""
    sent = {"MCP-Protocol-Version": MODERN, "Mcp-Method": "tools/call", **headers}
    return await raw.post(url, "tools/call", {"name": name, "arguments": arguments, "_meta": META}, sent)


def encoded(text: str) -> str:
    """A text as a header carries it that cannot hold it plainly (2026-07-28, basic/transports)."""
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="


def heard(answer: Answer) -> Json:
    """The parameters that the server got, from the answer of its `echo`."""
    assert answer.status == 200, answer.text
    return json.loads(answer.reply["result"]["content"][0]["text"])["params"]


async def test_a_server_gets_headers_of_its_own_names_and_values(
    tmp_path: Path, launch: Launch, raw: Raw, upstream: Upstream, namespace: str
) -> None:
    """In the names that it knows, whatever the proxy calls its tools; no client here has ever listed them."""
    url = launch(config(tmp_path, {"url": upstream.url})).namespace(namespace)
    arguments = {"owner": "octo", "page": 3}
    own = {"mcp-name": "echo", "mcp-param-owner": "octo", "mcp-param-page": "3"}

    modern = {"Mcp-Name": "up__echo", "Mcp-Param-Owner": "octo", "Mcp-Param-Page": "3"}
    assert heard(await call(raw, url, "up__echo", arguments, modern))["arguments"] == arguments
    assert upstream.calls == [own]

    handshake = await raw.open(url)
    params = {"name": "up__echo", "arguments": arguments}
    assert heard(await raw.post(url, "tools/call", params, handshake))["arguments"] == arguments
    assert upstream.calls == [own, own]

    routed = {"name": "SKILL_CALL", "arguments": {"tool": "up__echo", "arguments": arguments}}
    assert heard(await raw.modern(url, "tools/call", routed))["arguments"] == arguments
    assert upstream.calls == [own, own, own]


async def test_a_header_tells_what_the_arguments_tell(
    tmp_path: Path, launch: Launch, raw: Raw, upstream: Upstream, namespace: str
) -> None:
    """What no header can hold goes out encoded, and what is not there goes out in none, whatever a client sends."""
    url = launch(config(tmp_path, {"url": upstream.url})).namespace(namespace)
    handshake = {**await raw.open(url), "Mcp-Param-Owner": "forged", "Mcp-Name": "forged"}
    exposed = next(name for name in await raw.tools(url, handshake) if name.startswith("up__gr"))
    for arguments in ({"owner": "Zoë\n", "body": SAID}, {"owner": None, "body": SAID}, {"body": SAID}):
        answer = await raw.post(url, "tools/call", {"name": exposed, "arguments": arguments}, handshake)
        assert "result" in answer.reply, answer
    name = {"mcp-name": encoded("größe/say")}
    assert upstream.calls == [{**name, "mcp-param-owner": encoded("Zoë\n")}, name, name]


async def test_headers_follow_a_list_that_has_changed(
    tmp_path: Path, launch: Launch, raw: Raw, upstream: Upstream, namespace: str
) -> None:
    """An annotation that has gone is sent no more, and the one that came instead is."""
    url = launch(config(tmp_path, {"url": upstream.url})).namespace(namespace)
    handshake = await raw.open(url)
    changed = pages(annotated("echo", page=("string", "Owner")), LISTS)
    await raw.post(url, "tools/call", {"name": "up__lists", "arguments": changed}, handshake)
    with anyio.fail_after(PATIENCE):
        while "up__plain" in await raw.tools(url, handshake):  # noqa: ASYNC110 - a notice may be of an older change
            await anyio.sleep(0.01)
    arguments = {"owner": "octo", "page": "three"}
    answer = await raw.post(url, "tools/call", {"name": "up__echo", "arguments": arguments}, handshake)
    assert heard(answer)["arguments"] == arguments
    assert upstream.calls[1:] == [{"mcp-name": "echo", "mcp-param-owner": "three"}]


@pytest.mark.parametrize("way", ["http", "stdio"])
async def test_a_tool_whose_annotation_is_invalid_is_left_out_over_http_alone(
    tmp_path: Path, launch: Launch, raw: Raw, upstream: Upstream, namespace: str, way: str
) -> None:
    """The log tells which and why; the other tools are there and work. Over stdio there are no headers to be wrong."""
    proxy = launch(config(tmp_path, {"url": upstream.url} if way == "http" else over_stdio(tmp_path)))
    url = proxy.namespace(namespace)
    handshake = await raw.open(url)

    tools = await raw.tools(url, handshake)
    plain = await raw.post(url, "tools/call", {"name": "up__plain", "arguments": {"body": SAID}}, handshake)
    bad = await raw.post(url, "tools/call", {"name": "up__bad", "arguments": {"body": SAID}}, handshake)

    said = [json.loads(line) for line in proxy.log.read_text(encoding="utf-8").splitlines()]
    left_out = [(line["server"], line["tool"]) for line in said if line["event"] == "server.tool_left_out"]
    assert {"up__echo", "up__plain"} <= set(tools)
    assert "result" in plain.reply
    assert ("up__bad" in tools) == ("result" in bad.reply) == (way == "stdio")
    assert left_out == ([("up", "bad")] if way == "http" else [])
    assert all("'weight'" in line["reason"] for line in said if line["event"] == "server.tool_left_out")
    assert names((await raw.modern(url, "tools/list")).reply) == tools


WRONG = {
    "another name": {"Mcp-Name": "up__plain", "Mcp-Param-Owner": "octo"},
    "the server's name": {"Mcp-Name": "echo", "Mcp-Param-Owner": "octo"},
    "no name": {"Mcp-Param-Owner": "octo"},
    "no owner": {"Mcp-Name": "up__echo"},
    "another owner": {"Mcp-Name": "up__echo", "Mcp-Param-Owner": "cat"},
    "a value for what is not there": {"Mcp-Name": "up__echo", "Mcp-Param-Owner": "octo", "Mcp-Param-Page": "3"},
    "what cannot be decoded": {"Mcp-Name": "up__echo", "Mcp-Param-Owner": "=?base64?b2N0b!?="},
}
RIGHT = {
    "plain": {"Mcp-Name": "up__echo", "Mcp-Param-Owner": "octo"},
    "in lower case": {"mcp-name": "up__echo", "mcp-param-owner": "octo"},
    "encoded": {"Mcp-Name": encoded("up__echo"), "Mcp-Param-Owner": encoded("octo")},
    "with one that no argument has": {"Mcp-Name": "up__echo", "Mcp-Param-Owner": "octo", "Mcp-Param-Other": "x"},
}


async def test_a_modern_client_whose_headers_and_body_differ_is_refused(
    tmp_path: Path, launch: Launch, raw: Raw, upstream: Upstream, namespace: str
) -> None:
    """Under the names that it sees: with HTTP 400 and the specification's code, and the server hears nothing of it."""
    url = launch(config(tmp_path, {"url": upstream.url})).namespace(namespace)
    assert "up__echo" in names((await raw.modern(url, "tools/list")).reply)
    told = {what: await call(raw, url, "up__echo", {"owner": "octo"}, headers) for what, headers in WRONG.items()}
    assert {what: (answer.status, answer.reply["error"]["code"]) for what, answer in told.items()} == dict.fromkeys(
        WRONG, (400, HEADER_MISMATCH)
    )
    assert not upstream.calls

    for headers in RIGHT.values():
        assert heard(await call(raw, url, "up__echo", {"owner": "octo"}, headers))["arguments"] == {"owner": "octo"}
    assert upstream.calls == [{"mcp-name": "echo", "mcp-param-owner": "octo"}] * len(RIGHT)


async def test_a_server_without_headers_does_not_free_clients_from_theirs(
    tmp_path: Path, launch: Launch, raw: Raw, namespace: str
) -> None:
    """Over HTTP a client sees the annotation, whatever way the server is reached; one that is invalid asks nothing."""
    url = launch(config(tmp_path, over_stdio(tmp_path))).namespace(namespace)
    assert {"up__echo", "up__bad"} <= set(names((await raw.modern(url, "tools/list")).reply))
    refused = await call(raw, url, "up__echo", {"owner": "octo"}, WRONG["no owner"])
    passed = await call(raw, url, "up__echo", {"owner": "octo"}, RIGHT["plain"])
    invalid = await call(raw, url, "up__bad", {"weight": 1.5, "body": SAID}, {"Mcp-Name": "up__bad"})
    assert (refused.status, refused.reply["error"]["code"]) == (400, HEADER_MISMATCH)
    assert heard(passed)["arguments"] == {"owner": "octo"}
    assert invalid.reply["result"]["content"] == []


async def test_headers_count_also_where_the_call_itself_brings_the_server(
    tmp_path: Path, launch: Launch, raw: Raw, upstream: Upstream, namespace: str
) -> None:
    """The annotations are known only once the server is there: still nothing that differs reaches it."""
    upstream.open = False
    proxy = launch(config(tmp_path, {"url": upstream.url}))
    url = proxy.namespace(namespace)
    await until(lambda: '"server.failed"' in proxy.log.read_text(encoding="utf-8"))
    upstream.open = True

    refused = await call(raw, url, "up__echo", {"owner": "octo"}, WRONG["another owner"])

    assert not upstream.calls
    assert (refused.status, refused.reply["error"]["code"]) == (400, HEADER_MISMATCH)


@asynccontextmanager
async def binding(folder: Path, entry: Json, bound: Json, mode: str = "auto") -> AsyncGenerator[Client]:
    """A client of a proxy whose one skill fills in these arguments of `echo`."""
    loaded = load(config(folder, entry), {})
    (skill,) = loaded.catalogue.skills
    catalogue = replace(loaded.catalogue, skills=(replace(skill, bind={"up": {"echo": bound}}),))
    info = Implementation(name="desk", version="1.2")
    async with (
        running(replace(loaded, catalogue=catalogue), ScopeId("process")) as proxy,
        Client(proxy.server, mode=mode, client_info=info, cache=None) as client,
    ):
        yield client


@pytest.mark.parametrize("mode", ["legacy", "auto"])
@pytest.mark.parametrize("era", ["handshake", "modern"])
async def test_an_argument_that_a_skill_fills_in_arrives_as_one_of_the_clients_own(
    tmp_path: Path, upstream: Upstream, mode: str, era: str
) -> None:
    """In its header where the server's era has those; it may say which client of which version calls."""
    bound = {"owner": "{{ scope.client.name }}/{{ scope.client.version }}"}
    with anyio.fail_after(PATIENCE):
        async with binding(tmp_path, {"url": upstream.url, "era": era}, bound, mode) as client:
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            result = await client.call_tool("up__echo", {"page": 3})

    assert set(tools["up__echo"].input_schema["properties"]) == {"page", "body"}
    assert json.loads(text_of(result.model_dump()))["params"]["arguments"] == {"page": 3, "owner": "desk/1.2"}
    headers = {"mcp-name": "echo", "mcp-param-owner": "desk/1.2", "mcp-param-page": "3"}
    assert upstream.calls == ([headers] if era == "modern" else [])
