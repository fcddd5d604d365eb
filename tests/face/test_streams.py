"""Event streams over HTTP: kept alive, and given to the client that asks for them last."""

from collections.abc import Generator
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.conftest import MODERN, HttpProxy, Launch, Raw, Record, http_proxy, write_config
from tests.face.held import Held, held
from tests.servers.relay import relay

pytestmark = pytest.mark.anyio

KEEP_ALIVE = 0.2
IDLE = 2.0
"""Seconds without a byte after which a relay cuts: ten times as long as the proxy is silent."""
LONG = 2 * round(IDLE / KEEP_ALIVE)
"""As many comments as prove that a stream was open for longer than that."""
JSON_AND_EVENTS = {"Accept": "application/json, text/event-stream"}


def config(folder: Path, **proxy: Any) -> Path:
    skills = {name: {"tool_list": {"up": [tool]}} for name, tool in (("waiting", "wait"), ("echoing", "echo"))}
    servers = {"up": Record(folder / "log.jsonl").entry()}
    return write_config(folder / "skills.yaml", servers, skills, proxy=proxy)


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Generator[HttpProxy]:
    with http_proxy(config(tmp_path_factory.mktemp("streams"), keep_alive=KEEP_ALIVE)) as running:
        yield running


def call(tool: str, **arguments: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": "call", "method": "tools/call", "params": {"name": tool, "arguments": arguments}}


async def activate(raw: Raw, url: str, token: str | None = None) -> None:
    """Activate a skill by another client of a namespace, which the others are told of."""
    await raw.skill(url, await raw.open(url, token), "activate", "echoing")


# --- kept alive ------------------------------------------------------------------------------------------------------


async def test_an_idle_stream_outlives_a_relay_that_cuts_idle_ones(proxy: HttpProxy, raw: Raw, namespace: str) -> None:
    """A session's own stream gets comments while nothing happens, and then the notice."""
    url = proxy.namespace(namespace)
    headers = await raw.open(url)
    async with relay(url, IDLE) as way, held(way.url, headers) as stream:
        await stream.until(lambda it: it.comments >= LONG)
        await activate(raw, url)
        await stream.until(Held.notices)
        assert way.cuts == 0


async def test_a_long_call_outlives_a_relay_that_cuts_idle_connections(
    proxy: HttpProxy, raw: Raw, tmp_path: Path
) -> None:
    """The stream of a call that says nothing for long gets comments, and then the result."""
    headers = await raw.open(proxy.url)
    await raw.skill(proxy.url, headers, "activate", "waiting")
    done = tmp_path / "done"
    waiting = call("up__wait", file=str(done))
    async with (
        relay(proxy.url, IDLE) as way,
        held(way.url, {**headers, **JSON_AND_EVENTS}, "POST", waiting) as stream,
    ):
        await stream.until(lambda it: it.comments >= LONG)
        done.touch()
        await stream.until(lambda it: it.ended)
        assert stream.ended == "in order"
        (answer,) = stream.messages
        assert answer["id"] == "call"
        assert not answer["result"].get("isError")
        assert way.cuts == 0


async def test_a_modern_listen_stream_is_kept_alive_too(proxy: HttpProxy, raw: Raw, namespace: str) -> None:
    """That of 2026-07-28, with the notice after a long silence."""
    url = proxy.namespace(namespace)
    meta = {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientInfo": {"name": "held", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    params = {"notifications": {"toolsListChanged": True}, "_meta": meta}
    listen = {"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": params}
    sent = {**JSON_AND_EVENTS, "MCP-Protocol-Version": MODERN, "Mcp-Method": "subscriptions/listen"}
    async with relay(proxy.url, IDLE) as way, held(f"{way.url}/{namespace}", sent, "POST", listen) as stream:
        assert stream.response.headers["x-accel-buffering"] == "no"
        await stream.until(lambda it: it.comments >= LONG)
        await activate(raw, url)
        await stream.until(Held.notices)
        assert way.cuts == 0


async def test_no_event_stream_is_buffered_on_the_way(proxy: HttpProxy, raw: Raw) -> None:
    """Reverse proxies are told so, of a session's own stream and of that of a call; an answer in JSON is left alone."""
    headers = await raw.open(proxy.url)
    async with held(proxy.url, headers) as stream:
        assert stream.response.headers["x-accel-buffering"] == "no"
    answer = await raw.post(proxy.url, "tools/list", {}, headers)
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["x-accel-buffering"] == "no"
    assert (await raw.modern(proxy.namespace("json"), "tools/list")).headers["content-type"] == "application/json"


# --- replaced --------------------------------------------------------------------------------------------------------


async def test_a_stream_that_was_cut_is_opened_anew(tmp_path: Path, launch: Launch, raw: Raw, namespace: str) -> None:
    """Where comments are too rare for the relay, the client asks again and gets its notices there."""
    proxy = launch(config(tmp_path, keep_alive=600))
    url = proxy.namespace(namespace)
    headers = await raw.open(url)
    async with relay(url, KEEP_ALIVE) as way, held(way.url, headers) as stream:
        await stream.until(lambda it: it.ended)
        assert (stream.ended, stream.comments, way.cuts) == ("cut", 0, 1)
    async with held(url, headers) as stream:
        assert stream.response.status_code == 200
        await activate(raw, url)
        await stream.until(Held.notices)


async def test_a_new_stream_replaces_one_whose_way_is_dead(proxy: HttpProxy, raw: Raw, namespace: str) -> None:
    """Nobody has told the proxy that the first one is lost; the second is served, and hears the notices."""
    url = proxy.namespace(namespace)
    headers = await raw.open(url)
    async with relay(url) as way, held(way.url, headers) as lost:
        await lost.until(lambda it: it.comments)
        way.go_dead()
        async with held(url, headers) as stream:
            assert stream.response.status_code == 200
            await activate(raw, url)
            await stream.until(Held.notices)
        assert not lost.notices()
        assert lost.ended is None


async def test_a_replaced_stream_ends_in_order(proxy: HttpProxy, raw: Raw, namespace: str) -> None:
    """Its client, if it is still there, sees the end of the response; nothing is said twice, and no error is logged."""
    url = proxy.namespace(namespace)
    headers = await raw.open(url)
    async with held(url, headers) as first, held(url, headers) as second:
        await first.until(lambda it: it.ended)
        assert first.ended == "in order"
        await activate(raw, url)
        await second.until(Held.notices)
        assert not first.messages
    assert '"error"' not in proxy.log.read_text(encoding="utf-8")


async def test_of_many_streams_at_once_one_remains(proxy: HttpProxy, raw: Raw, namespace: str) -> None:
    """The others end, or are told that a newer one has come; nothing hangs."""
    url = proxy.namespace(namespace)
    headers = await raw.open(url)
    streams: list[Held] = []
    enough = anyio.Event()

    async def hold() -> None:
        async with held(url, headers) as stream:
            assert stream.response.status_code in {200, 409}
            streams.append(stream)
            await enough.wait()

    async with anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(hold)
        with anyio.fail_after(20):
            while len(streams) < 20 or sum(stream.ended is None for stream in streams) > 1:  # noqa: ASYNC110
                await anyio.sleep(0.01)
        (last,) = [stream for stream in streams if stream.ended is None]
        await activate(raw, url)
        await last.until(Held.notices)
        assert {stream.ended for stream in streams} == {"in order", None}
        enough.set()


async def test_a_strange_last_event_id_changes_nothing(proxy: HttpProxy, raw: Raw, namespace: str) -> None:
    """One that the session has not given: the stream begins as any other."""
    url = proxy.namespace(namespace)
    headers = await raw.open(url)
    async with held(url, {**headers, "Last-Event-ID": "7"}) as stream:
        assert stream.response.status_code == 200
        await activate(raw, url)
        await stream.until(Held.notices)


async def test_a_request_that_gets_no_stream_ends_none(proxy: HttpProxy, raw: Raw, namespace: str) -> None:
    """One that does not take events, or comes on another path than the session's."""
    url = proxy.namespace(namespace)
    headers = await raw.open(url)
    async with held(url, headers) as stream:
        assert (await raw.send("GET", url, headers={**headers, "Accept": "application/json"})).status == 406
        assert (await raw.send("GET", proxy.namespace("other"), headers=headers)).status == 404
        await activate(raw, url)
        await stream.until(Held.notices)
        assert stream.ended is None


async def test_nobody_else_can_end_a_stream(tmp_path: Path, launch: Launch, raw: Raw, namespace: str) -> None:
    """With a token of their own and the session's id they find no session, and the stream goes on."""
    proxy = launch(config(tmp_path, tokens={"alice": "a", "bob": "b"}))
    url = proxy.namespace(namespace)
    headers = await raw.open(url, "a")
    async with held(url, headers) as stream:
        assert (await raw.send("GET", url, headers={**headers, "Authorization": "Bearer b"})).status == 404
        await activate(raw, url, "a")
        await stream.until(Held.notices)
        assert stream.ended is None


async def test_a_stream_ends_with_its_session(proxy: HttpProxy, raw: Raw, namespace: str) -> None:
    """In order; and there is no new one."""
    url = proxy.namespace(namespace)
    headers = await raw.open(url)
    async with held(url, headers) as stream:
        assert (await raw.send("DELETE", url, headers=headers)).status == 200
        await stream.until(lambda it: it.ended)
        assert stream.ended == "in order"
    assert (await raw.send("GET", url, headers=headers)).status == 404
