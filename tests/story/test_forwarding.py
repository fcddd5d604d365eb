"""What passes through: arguments, results, errors and definitions, as JSON, unchanged and side by side."""

import json
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import MCPError

from tests.answers import tools_told
from tests.conftest import (
    ERAS,
    MODERN,
    HttpProxy,
    Json,
    Launch,
    Peer,
    Raw,
    Record,
    connected,
    http_proxy,
    of_servers,
    stdio_program,
    text_of,
    write_config,
)
from tests.servers.recorder import ERROR_DATA, ODD_RESULT, PROMPTS, RESOURCES, TEMPLATES, TOOLS

pytestmark = pytest.mark.anyio

SERVERS = ("modern", "handshake")
"""Two recorders behind the proxy; it speaks one era to each."""


@dataclass(frozen=True)
class World:
    """A proxy over HTTP, its configuration and its recorders by name."""

    proxy: HttpProxy
    config: Path
    records: dict[str, Record]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Generator[World]:
    folder = tmp_path_factory.mktemp("forwarding")
    records = {name: Record(folder / f"{name}.jsonl", name) for name in SERVERS}
    config = write_config(
        folder / "skills.yaml",
        {name: records[name].entry(era=name) for name in SERVERS},
        {name: {"usage": name, "tool_list": {name: []}} for name in SERVERS},
    )
    with http_proxy(config) as proxy:
        yield World(proxy, config, records)


async def open_for(peer: Peer) -> None:
    for server in SERVERS:
        await peer.skill("activate", server)


def plain(result: Json) -> Json:
    """A result without what the era's envelope adds."""
    kept = {key: value for key, value in result.items() if key != "resultType"}
    meta = {key: value for key, value in kept.pop("_meta", {}).items() if key != "io.modelcontextprotocol/serverInfo"}
    return kept | ({"_meta": meta} if meta else {})


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("mode", ERAS)
async def test_results_are_unchanged(world: World, namespace: str, mode: str, server: str) -> None:
    """Unknown blocks, extra fields, nulls, numbers and `_meta` of a result arrive as they were sent."""
    async with connected(world.proxy.namespace(namespace), mode) as peer:
        await open_for(peer)
        assert json.dumps(plain(await peer.call(f"{server}__odd")), sort_keys=True) == json.dumps(
            ODD_RESULT, sort_keys=True
        )
        assert plain(await peer.call(f"{server}__structured")) == {
            "content": [],
            "structuredContent": {"sum": "not an integer"},
        }
        assert plain(await peer.call(f"{server}__fails")) == {
            "content": [{"type": "text", "text": "it failed"}],
            "isError": True,
            "structuredContent": {"why": "because"},
        }


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("mode", ERAS)
async def test_errors_are_unchanged(world: World, namespace: str, mode: str, server: str) -> None:
    """A JSON-RPC error keeps its code, message and data."""
    async with connected(world.proxy.namespace(namespace), mode) as peer:
        await open_for(peer)
        with pytest.raises(MCPError) as raised:
            await peer.call(f"{server}__explodes")
        error = raised.value.error
        assert (error.code, error.message, error.data) == (-32042, "exploded on purpose", ERROR_DATA)


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("mode", ERAS)
async def test_raw_bytes(world: World, raw: Raw, namespace: str, mode: str, server: str) -> None:
    """The same over HTTP by hand, where no client stands between: results and errors as JSON."""
    url = world.proxy.namespace(namespace)
    headers = await raw.open(url)
    await raw.skill(url, headers, "activate", server)

    async def call(tool: str) -> Json:
        params = {"name": f"{server}__{tool}", "arguments": {}}
        if mode == MODERN:
            return (await raw.modern(url, "tools/call", params)).reply
        return (await raw.post(url, "tools/call", params, headers)).reply

    assert json.dumps(plain((await call("odd"))["result"]), sort_keys=True) == json.dumps(ODD_RESULT, sort_keys=True)
    assert (await call("explodes"))["error"] == {"code": -32042, "message": "exploded on purpose", "data": ERROR_DATA}


ARGUMENTS: Json = {
    "none": None,
    "true": True,
    "zero": 0,
    "float": 1.0,
    "tiny": 1e-9,
    "big": 2**80,
    "negative": -0.5,
    "text": 'Größe \U0001f600 \u202e \u0000 \\ " </skill_guide>',
    "": "empty key",
    "name": "not the tool's",
    "_meta": {"mine": 1},
    "nested": [[], {}, [None, [1, {"a": []}]]],
}


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("mode", ERAS)
async def test_arguments_and_meta_are_unchanged(world: World, namespace: str, mode: str, server: str) -> None:
    """Arguments arrive as they were sent, and so do keys of `_meta` that belong to no hop."""
    meta = {"vendor/trace": {"id": namespace, "none": None}, "traceparent": "00-abc-def-01"}
    async with connected(world.proxy.namespace(namespace), mode, name="somebody") as peer:
        await open_for(peer)
        answer = await peer.call(f"{server}__echo", ARGUMENTS, _meta=meta)
        assert json.dumps(answer["structuredContent"]["arguments"]) == json.dumps(ARGUMENTS)
        seen = answer["structuredContent"]["_meta"]
        assert {key: seen.get(key) for key in meta} == meta
        assert "progressToken" not in seen
        assert "somebody" not in json.dumps(seen)
        own = {key for key in seen if key.startswith("io.modelcontextprotocol/")}
        assert bool(own) is (server == "modern")
        assert (await peer.call(f"{server}__echo"))["structuredContent"]["arguments"] == {}


async def test_absent_arguments(world: World, raw: Raw, namespace: str) -> None:
    """A call without `arguments` is a call without arguments; further parameters pass through."""
    url = world.proxy.namespace(namespace)
    headers = await raw.open(url)
    await raw.skill(url, headers, "activate", "handshake")
    params = {"name": "handshake__echo", "x-future": {"marker": namespace}}
    assert (await raw.post(url, "tools/call", params, headers)).reply["result"]["structuredContent"]["arguments"] == {}
    (entry,) = [e for e in world.records["handshake"].received("tools/call") if namespace in json.dumps(e)]
    assert entry["params"] == {"name": "echo", "x-future": {"marker": namespace}}


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("mode", ERAS)
async def test_definitions_are_unchanged(world: World, namespace: str, mode: str, server: str) -> None:
    """Definitions of tools, resources, templates and prompts are the upstream's own, but for the name."""
    async with connected(world.proxy.namespace(namespace), mode) as peer:
        activation = await peer.skill("activate", server)
        own = {tool["name"]: tool for tool in TOOLS if tool["name"]}
        listed = (await peer.definitions())[2:]
        assert tools_told(activation) == [tool["name"] for tool in listed]
        assert json.dumps([{**tool, "name": ""} for tool in listed]) == json.dumps(
            [{**own[name], "name": ""} for name in sorted(own)]
        )
        assert of_servers((await peer.request("resources/list"))["resources"]) == RESOURCES
        assert (await peer.request("resources/templates/list"))["resourceTemplates"] == TEMPLATES
        prompts = of_servers((await peer.request("prompts/list"))["prompts"])
        assert prompts == [{**PROMPTS[0], "name": f"{server}__greet"}]
        read = await peer.request("resources/read", {"uri": "memo://one"})
        assert read["contents"] == [{"uri": "memo://one", "text": f"{server} memo://one", "x-extra": None}]


@pytest.mark.parametrize("mode", ERAS)
async def test_hints_of_another_hop_stay_there(world: World, namespace: str, mode: str) -> None:
    """Modern lists carry `ttlMs: 0` and `cacheScope: private` and our stamp; handshake ones carry nothing of it."""
    async with connected(world.proxy.namespace(namespace), mode) as peer:
        await open_for(peer)
        for method in ("tools/list", "resources/list", "prompts/list", "resources/templates/list"):
            result = await peer.request(method)
            if mode == MODERN:
                assert (result["resultType"], result["ttlMs"], result["cacheScope"]) == ("complete", 0, "private")
                assert result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "mcp-skill-proxy"
            else:
                assert {"resultType", "ttlMs", "cacheScope", "_meta"}.isdisjoint(result)
        result = await peer.call("modern__echo")
        assert ("resultType" in result) is (mode == MODERN)
        assert "recorder" not in json.dumps(result.get("_meta", {}))


@pytest.mark.parametrize("way", ["stdio", "namespace"])
@pytest.mark.parametrize("mode", ERAS)
async def test_parallel_calls(world: World, namespace: str, tmp_path: Path, mode: str, way: str) -> None:
    """Twenty calls at once on one connection: one is held, the others finish, and each gets its own answer."""
    target: Any = stdio_program(world.config) if way == "stdio" else world.proxy.namespace(namespace)
    held: list[Json] = []
    answers: dict[int, Json] = {}
    gate = tmp_path / "go"
    async with connected(target, mode) as peer:
        await open_for(peer)

        async def hold() -> None:
            held.append(await peer.call("modern__wait", {"file": str(gate)}))

        async def call(number: int) -> None:
            answers[number] = await peer.call(f"{SERVERS[number % 2]}__echo", {"number": number})

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(hold)
            await world.records["modern"].until_received("tools/call", str(gate))
            async with anyio.create_task_group() as others:
                for number in range(20):
                    others.start_soon(call, number)
            assert held == []
            gate.touch()
    assert text_of(held[0]).startswith("waited for")
    assert {n: answer["structuredContent"]["arguments"] for n, answer in answers.items()} == {
        n: {"number": n} for n in range(20)
    }
    assert all(answer["structuredContent"]["server"] == SERVERS[n % 2] for n, answer in answers.items())


async def test_calls_of_several_clients(world: World, namespace: str) -> None:
    """Clients that share an upstream connection run side by side: one releases what another waits for."""
    async with (
        connected(world.proxy.namespace(f"{namespace}-a"), "legacy") as one,
        connected(world.proxy.namespace(f"{namespace}-b"), MODERN) as two,
        anyio.create_task_group() as tasks,
    ):
        await open_for(one)
        await open_for(two)
        tasks.start_soon(one.call, "handshake__wait", {"key": namespace})
        await world.records["handshake"].until_received("tools/call", namespace)
        assert text_of(await two.call("handshake__release", {"key": namespace})) == "released"


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("mode", ERAS)
async def test_cancellation_reaches_the_upstream(world: World, namespace: str, mode: str, server: str) -> None:
    """A call that its client gives up is cancelled at the upstream; the connection goes on."""
    async with connected(world.proxy.namespace(namespace), mode) as peer:
        await open_for(peer)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(peer.call, f"{server}__wait", {"key": f"never-{namespace}"})
            await world.records[server].until_received("tools/call", f"never-{namespace}")
            tasks.cancel_scope.cancel()
        (call,) = [e for e in world.records[server].received("tools/call") if f"never-{namespace}" in json.dumps(e)]
        await world.records[server].until_received("notifications/cancelled", f'"requestId": {json.dumps(call["id"])}')
        assert (await peer.call(f"{server}__echo"))["structuredContent"]["server"] == server


@pytest.mark.parametrize("mode", ERAS)
async def test_server_that_dies_during_a_call(world: World, namespace: str, mode: str) -> None:
    """The call during which a server dies ends with the error flag and its name; the next call starts it again."""
    async with connected(world.proxy.namespace(namespace), mode) as peer:
        await open_for(peer)
        lost = await peer.call("handshake__die", {"marker": namespace})
        assert lost["isError"] is True
        assert "handshake" in text_of(lost)
        assert (await peer.call("handshake__echo"))["structuredContent"]["server"] == "handshake"
        assert (await peer.call("modern__echo"))["structuredContent"]["server"] == "modern"
    assert len(world.records["handshake"].calls(namespace)) == 1


async def test_silent_server(tmp_path: Path, launch: Launch) -> None:
    """A call without result or progress ends at `timeout`: flagged, naming server and limit, and cancelled upstream."""
    record = Record(tmp_path / "log.jsonl")
    config = write_config(
        tmp_path / "skills.yaml", {"up": record.entry(timeout=1)}, {"s": {"usage": "u", "tool_list": {"up": []}}}
    )
    async with connected(launch(config).namespace("a")) as peer:
        await peer.skill("activate", "s")
        answer = await peer.call("up__wait", {"key": "never"})
        assert answer["isError"] is True
        assert "up" in text_of(answer)
        assert "up__wait" in text_of(answer)
        assert "1 s" in text_of(answer)
        await record.until_received("notifications/cancelled")


@pytest.mark.parametrize("mode", ERAS)
async def test_large_results(world: World, namespace: str, mode: str) -> None:
    """Megabytes pass in both directions, and small calls pass beside them."""
    blob = "ü" * 500_000
    async with connected(world.proxy.namespace(namespace), mode) as peer:
        await open_for(peer)
        answers: list[Json] = []

        async def call() -> None:
            answers.append(await peer.call("modern__echo", {"blob": blob}))

        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(call)
            tasks.start_soon(peer.call, "handshake__echo")
        assert len(answers) == 3
        assert all(answer["structuredContent"]["arguments"]["blob"] == blob for answer in answers)


async def test_recorder_over_http(tmp_path: Path, free_port: int, launch: Launch) -> None:
    """The same upstream over Streamable HTTP: what goes through stdio goes through HTTP."""
    record = Record(tmp_path / "log.jsonl", "remote")
    servers = {era: {"type": "http", "url": f"http://127.0.0.1:{free_port}/mcp", "era": era} for era in SERVERS}
    config = write_config(
        tmp_path / "skills.yaml", servers, {era: {"usage": "u", "tool_list": {era: []}} for era in SERVERS}
    )
    proxy = launch(config)
    async with record.over_http(free_port), connected(proxy.namespace("a")) as peer:
        await open_for(peer)
        for era in SERVERS:
            odd = plain(await peer.call(f"{era}__odd"))
            assert json.dumps(odd, sort_keys=True) == json.dumps(ODD_RESULT, sort_keys=True)
            with pytest.raises(MCPError) as raised:
                await peer.call(f"{era}__explodes")
            assert (raised.value.error.code, raised.value.error.data) == (-32042, ERROR_DATA)
            assert (await peer.call(f"{era}__echo", {"n": 1.0}))["structuredContent"]["arguments"] == {"n": 1.0}
