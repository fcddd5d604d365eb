"""Event streams that broke off and are resumed (2025-11-25, resumability): what was missed comes, once and in order."""

import json
import subprocess
import sys
import time
import weakref
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import httpx2
import pytest
from mcp.server.lowlevel import Server
from mcp.server.streamable_http import GET_STREAM_KEY, EventMessage
from mcp.server.streamable_http_manager import StreamableHTTPASGIApp, StreamableHTTPSessionManager
from mcp_types import CallToolResult, ErrorData, JSONRPCError, JSONRPCNotification, JSONRPCResponse, TextContent
from starlette.types import Message

from proxy.core.byte_budget import GUARANTEED_BYTES, ByteBudget
from proxy.core.catalogue import Catalogue
from proxy.core.names import Naming
from proxy.core.profiles import Policy
from proxy.core.scope import ScopeId
from proxy.core.settings import Settings
from proxy.face.events import EVENTS, KEPT, KEPT_BYTES, SENT, SENT_BYTES, STREAMS, Events, SessionEvents
from proxy.face.identity import Identity
from proxy.face.sessions import Sessions
from proxy.face.streams import Resumable
from proxy.gateway.quotas import Quotas
from tests.conftest import (
    HANDSHAKE,
    PATIENCE,
    ROOT,
    HttpProxy,
    Launch,
    Raw,
    Record,
    connected,
    http_proxy,
    text_of,
    write_config,
)
from tests.face.held import Held, held
from tests.servers.relay import Relay, relay
from tests.upstream.bench import until

pytestmark = pytest.mark.anyio

BOTH = {"Accept": "application/json, text/event-stream"}
POLLING = ROOT / "tests" / "conformance" / "upstream.py"


def config(folder: Path, record: Record) -> Path:
    skills = {"waiting": {"tool_list": {"up": ["wait"]}, "active": True}, "echoing": {"tool_list": {"up": ["echo"]}}}
    settings = {"keep_alive": 0.2, "max_message_size": "64MiB"}
    return write_config(folder / "skills.yaml", {"up": record.entry()}, skills, proxy=settings)


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Record:
    return Record(tmp_path_factory.mktemp("record") / "log.jsonl")


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory, record: Record) -> Generator[HttpProxy]:
    with http_proxy(config(tmp_path_factory.mktemp("resuming"), record)) as running:
        yield running


def call(tool: str, arguments: dict[str, Any], request_id: str | int = 7) -> dict[str, Any]:
    params = {"name": tool, "arguments": arguments}
    return {"jsonrpc": "2.0", "id": request_id, "method": "tools/call", "params": params}


def waiting(file: Path, request_id: str | int = 7) -> dict[str, Any]:
    return call("up__wait", {"file": str(file)}, request_id)


def after(event_id: str, headers: dict[str, str]) -> dict[str, str]:
    return {**headers, "Last-Event-ID": event_id}


async def broken_off(url: str, headers: dict[str, str], body: dict[str, Any]) -> str:
    """Make a call and lose its connection once its stream has begun; the id of the last event."""
    async with held(url, {**headers, **BOTH}, "POST", body) as stream:
        await stream.until(lambda it: it.ids)
        assert not stream.messages
        return stream.ids[-1]


@asynccontextmanager
async def on_a_dead_way(url: str, headers: dict[str, str], body: dict[str, Any]) -> AsyncGenerator[tuple[Relay, Held]]:
    """Make a call whose connection passes nothing on any more, and stays open: the way, and what came before."""
    async with relay(url) as way, held(way.url, {**headers, **BOTH}, "POST", body) as lost:
        await lost.until(lambda it: it.ids and it.comments)
        way.go_dead()
        yield way, lost


# --- calls -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("done", ["before", "after"])
async def test_a_call_whose_connection_breaks_off_is_resumed(
    proxy: HttpProxy, raw: Raw, record: Record, namespace: str, tmp_path: Path, done: str
) -> None:
    """Its result comes once, wherever the client was when the server gave it; and again if it asks again."""
    url, file = proxy.namespace(namespace), tmp_path / "done"
    headers = await raw.open(url)
    last = await broken_off(url, headers, waiting(file))
    await record.until_received("tools/call", str(file))
    if done == "before":
        file.touch()
    async with held(url, after(last, headers)) as stream:
        assert stream.response.status_code == 200
        file.touch()
        await stream.until(lambda it: it.ended)
        assert stream.ended == "in order"
        (answer,) = stream.messages
        assert answer["id"] == 7
        assert str(file) in text_of(answer["result"])
    assert len(record.calls(str(file))) == 1
    again = await raw.send("GET", url, headers=after(last, headers))
    assert again.messages == [answer]
    assert len(record.calls(str(file))) == 1


async def test_a_result_is_kept_until_it_has_been_fetched(
    proxy: HttpProxy, raw: Raw, record: Record, namespace: str, tmp_path: Path
) -> None:
    """Also when the stream that resumes breaks off as well."""
    url, file = proxy.namespace(namespace), tmp_path / "done"
    headers = await raw.open(url)
    last = await broken_off(url, headers, waiting(file))
    await record.until_received("tools/call", str(file))
    for _ in range(3):
        async with held(url, after(last, headers)) as stream:
            await stream.until(lambda it: it.comments)
    file.touch()
    answer = await raw.send("GET", url, headers=after(last, headers))
    assert [message["id"] for message in answer.messages] == [7]


async def test_a_result_that_broke_off_in_the_middle_is_sent_again(proxy: HttpProxy, raw: Raw, namespace: str) -> None:
    """One that is larger than what the proxy and the network hold."""
    url, text = proxy.namespace(namespace), "x" * 12_000_000
    headers = await raw.open(url)
    await raw.skill(url, headers, "activate", "echoing")
    body = json.dumps(call("up__echo", {"text": text})).encode()
    parts = urlsplit(url)
    sent = {**headers, **BOTH, "Host": parts.netloc, "Content-Type": "application/json", "Content-Length": len(body)}
    head = "\r\n".join([f"POST {parts.path} HTTP/1.1", *(f"{name}: {value}" for name, value in sent.items()), "", ""])
    got = b""
    async with await anyio.connect_tcp("127.0.0.1", parts.port or 0) as line:
        await line.send(head.encode() + body)
        with anyio.fail_after(PATIENCE):
            while b".2\r\n" not in got:
                got += await line.receive()
    assert len(got) < len(text)
    first = got.split(b"\r\nid: ")[1].split(b"\r\n")[0].decode()
    answer = await raw.send("GET", url, headers=after(first, headers))
    assert "result" in answer.reply, answer
    assert answer.reply["result"]["structuredContent"]["arguments"]["text"].count("x") == len(text)
    assert len(answer.messages) == 1
    assert (await raw.send("GET", url, headers=after(first, headers))).status == 400


async def test_a_call_on_a_dead_way_is_taken_over(
    proxy: HttpProxy, raw: Raw, record: Record, namespace: str, tmp_path: Path
) -> None:
    """The proxy has not noticed that the first connection is lost; the new one gets the result."""
    url, file = proxy.namespace(namespace), tmp_path / "done"
    headers = await raw.open(url)
    async with on_a_dead_way(url, headers, waiting(file)) as (_, lost):
        async with held(url, after(lost.ids[-1], headers)) as stream:
            await record.until_received("tools/call", str(file))
            file.touch()
            await stream.until(lambda it: it.ended)
            assert [message["id"] for message in stream.messages] == [7]
        assert (lost.messages, lost.ended) == ([], None)


async def test_a_result_that_was_sent_on_a_dead_way_is_not_lost(
    proxy: HttpProxy, raw: Raw, record: Record, namespace: str, tmp_path: Path
) -> None:
    """The proxy has sent it and cannot know that it has not arrived; the client comes back later."""
    url, file = proxy.namespace(namespace), tmp_path / "done"
    headers = await raw.open(url)
    async with on_a_dead_way(url, headers, waiting(file)) as (way, lost):
        await record.until_received("tools/call", str(file))
        file.touch()
        await until(lambda: str(file).encode() in way.lost)
        assert (lost.messages, lost.ended) == ([], None)
    answer = await raw.send("GET", url, headers=after(lost.ids[-1], headers))
    assert [message["id"] for message in answer.messages] == [7]
    assert len(record.calls(str(file))) == 1


async def test_a_stream_that_is_resumed_elsewhere_ends_in_order(
    proxy: HttpProxy, raw: Raw, record: Record, namespace: str, tmp_path: Path
) -> None:
    """Of several connections that ask for the same stream the last one has it."""
    url, file = proxy.namespace(namespace), tmp_path / "done"
    headers = await raw.open(url)
    async with held(url, {**headers, **BOTH}, "POST", waiting(file)) as first:
        await first.until(lambda it: it.ids)
        await record.until_received("tools/call", str(file))
        last = after(first.ids[-1], headers)
        async with held(url, last) as second, held(url, last) as third:
            for over in (first, second):
                await over.until(lambda it: it.ended)
                assert (over.ended, over.messages) == ("in order", [])
            file.touch()
            await third.until(lambda it: it.ended)
            assert [message["id"] for message in third.messages] == [7]


async def test_a_resumed_call_leaves_the_stream_of_the_session_alone(
    proxy: HttpProxy, raw: Raw, record: Record, namespace: str, tmp_path: Path
) -> None:
    """Both are open at once, and each brings its own."""
    url, file = proxy.namespace(namespace), tmp_path / "done"
    headers = await raw.open(url)
    async with held(url, headers) as own:
        last = await broken_off(url, headers, waiting(file))
        await record.until_received("tools/call", str(file))
        async with held(url, after(last, headers)) as stream:
            await raw.skill(url, await raw.open(url), "activate", "echoing")
            await own.until(Held.notices)
            file.touch()
            await stream.until(lambda it: it.ended)
            assert [message.get("id") for message in stream.messages] == [7]
        assert own.ended is None


async def test_a_stream_that_is_being_resumed_ends_with_its_session(
    proxy: HttpProxy, raw: Raw, namespace: str, tmp_path: Path
) -> None:
    """In order."""
    url = proxy.namespace(namespace)
    headers = await raw.open(url)
    last = await broken_off(url, headers, waiting(tmp_path / "never"))
    async with held(url, after(last, headers)) as stream:
        assert (await raw.send("DELETE", url, headers=headers)).status == 200
        await stream.until(lambda it: it.ended)
        assert (stream.ended, stream.messages) == ("in order", [])
    assert (await raw.send("GET", url, headers=after(last, headers))).status == 404


async def test_the_sdk_client_resumes_by_itself(
    proxy: HttpProxy, record: Record, namespace: str, tmp_path: Path
) -> None:
    """All its connections are cut while a call is in work."""
    file = tmp_path / "done"
    async with relay(proxy.url) as way, connected(f"{way.url}/{namespace}", "legacy") as peer:
        results: list[Any] = []
        begun = anyio.Event()

        async def note(_event_id: str) -> None:
            begun.set()

        async def wait() -> None:
            params = {"name": "up__wait", "arguments": {"file": str(file)}}
            results.append(await peer.request("tools/call", params, on_resumption_token=note))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await record.until_received("tools/call", str(file))
            await begun.wait()
            way.cut()
            file.touch()
        assert str(file) in text_of(results[0])
        assert len(peer.wire.where(lambda message: str(file) in json.dumps(message.get("result")))) == 1
        assert await peer.tools()


async def test_older_clients_get_no_event_without_a_message(proxy: HttpProxy, raw: Raw, namespace: str) -> None:
    """Before 2025-11-25 they need not expect one; their events have ids."""
    url = proxy.namespace(namespace)
    headers = {**await raw.open(url), **BOTH, "MCP-Protocol-Version": "2025-06-18"}
    listing = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    for version, events in (("2025-06-18", 1), (HANDSHAKE, 2)):
        async with held(url, {**headers, "MCP-Protocol-Version": version}, "POST", listing) as stream:
            await stream.until(lambda it: it.ended)
            assert (len(stream.ids), len(stream.messages)) == (events, 1)


# --- other sessions, unknown ids -------------------------------------------------------------------------------------


async def test_sessions_with_equal_request_ids_never_see_each_others_events(
    proxy: HttpProxy, raw: Raw, record: Record, namespace: str, tmp_path: Path
) -> None:
    """Each gets its own result; the other's event ids lead nowhere."""
    url = proxy.namespace(namespace)
    sessions = [await raw.open(url), await raw.open(url)]
    files = [tmp_path / "one", tmp_path / "two"]
    lasts = [await broken_off(url, *pair) for pair in zip(sessions, map(waiting, files), strict=True)]
    for file in files:
        await record.until_received("tools/call", str(file))
        file.touch()
    for headers, last in zip(sessions, reversed(lasts), strict=True):
        answer = await raw.send("GET", url, headers=after(last, headers))
        assert (answer.status, len(answer.messages)) == (400, 1)
    for headers, last, file in zip(sessions, lasts, files, strict=True):
        answer = await raw.send("GET", url, headers=after(last, headers))
        assert str(file) in text_of(answer.reply["result"])
        assert len(answer.messages) == 1


async def test_another_sessions_notices_are_not_sent_again(proxy: HttpProxy, raw: Raw, namespace: str) -> None:
    """With an event id of its stream the stream of a session begins as any other."""
    url = proxy.namespace(namespace)
    theirs = await raw.open(url)
    async with held(url, theirs) as stream:
        await raw.skill(url, await raw.open(url), "activate", "echoing")
        await stream.until(Held.notices)
        (heard,) = stream.ids
    ours = await raw.open(url)
    before = heard.rpartition(".")[0] + ".0"
    async with held(url, after(before, ours)) as stream:
        assert stream.response.status_code == 200
        await stream.until(lambda it: it.comments)
        assert not stream.messages


@pytest.mark.parametrize("strange", ["request-1-nobody.1", "request-", "request-1-nobody.x"])
async def test_an_unknown_stream_of_a_call_is_refused(proxy: HttpProxy, raw: Raw, namespace: str, strange: str) -> None:
    """The client learns that it need not wait, and the session goes on."""
    url = proxy.namespace(namespace)
    headers = await raw.open(url)
    answer = await raw.send("GET", url, headers=after(strange, headers))
    assert (answer.status, answer.reply["error"]["message"]) == (
        400,
        "No stream with this Last-Event-ID is kept: it is over",
    )
    assert await raw.tools(url, headers)


@pytest.mark.parametrize("number", ["", "x", "-1", "9" * 5000, "²"])
async def test_a_spoilt_event_id_does_no_harm(
    proxy: HttpProxy, raw: Raw, namespace: str, tmp_path: Path, number: str
) -> None:
    """One whose stream is known; it is an answer without events, and the stream can still be resumed."""
    url, file = proxy.namespace(namespace), tmp_path / "done"
    headers = await raw.open(url)
    last = await broken_off(url, headers, waiting(file))
    spoilt = (last.rpartition(".")[0] + f".{number}").encode("latin-1")
    sent = [(name.encode(), value.encode()) for name, value in {**headers, **BOTH}.items()]
    answer = await raw.http.get(url, headers=[*sent, (b"Last-Event-ID", spoilt)])
    assert (answer.status_code, answer.text) == (200, "")
    file.touch()
    assert len((await raw.send("GET", url, headers=after(last, headers))).messages) == 1


# --- a session's own stream ------------------------------------------------------------------------------------------


async def test_notices_that_were_missed_come_on_resuming(proxy: HttpProxy, raw: Raw, namespace: str) -> None:
    """They were sent on a way that was dead; the resumed stream takes the place of the lost one and goes on."""
    url = proxy.namespace(namespace)
    headers, other = await raw.open(url), await raw.open(url)
    async with relay(url) as way, held(way.url, headers) as lost:
        await raw.skill(url, other, "activate", "echoing")
        await lost.until(Held.notices)
        way.go_dead()
        await raw.skill(url, other, "offload", "echoing")
        async with held(url, after(lost.ids[-1], headers)) as stream:
            await stream.until(Held.notices)
            missed = stream.ids[0]
            assert missed.rpartition(".")[0] == lost.ids[-1].rpartition(".")[0]
            count = stream.notices()
            await raw.skill(url, other, "activate", "echoing")
            await stream.until(lambda it: it.notices() > count)
            async with held(url, headers) as newer:
                await stream.until(lambda it: it.ended)
                assert stream.ended == "in order"
                await raw.skill(url, other, "offload", "echoing")
                await newer.until(Held.notices)
            numbers = [int(event_id.rpartition(".")[2]) for event_id in lost.ids + stream.ids]
            assert numbers == list(range(1, len(numbers) + 1))


# --- polling ---------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def polling_server(log: Path) -> AsyncGenerator[str]:
    """A server that ends the stream of a call of `test_reconnection` and wants to be polled; its URL."""
    command = [sys.executable, str(POLLING), "--transport", "http", "--era", "handshake"]
    with log.open("wb") as said:
        process = subprocess.Popen(command, cwd=ROOT, stderr=said)  # noqa: ASYNC220 - as quick as can be
    try:
        with anyio.fail_after(PATIENCE):
            while not (url := _ready(log)):  # noqa: ASYNC110 - another process says it
                await anyio.sleep(0.02)
        yield url
    finally:
        process.terminate()
        process.wait(PATIENCE)


def _ready(log: Path) -> str | None:
    lines = log.read_text(encoding="utf-8").splitlines()
    return next((line.removeprefix("ready ") for line in lines if line.startswith("ready ")), None)


async def test_a_server_that_wants_to_be_polled_is_polled_by_the_client(
    tmp_path: Path, launch: Launch, raw: Raw
) -> None:
    """The client's stream ends before the result, with a hint when to come back, and goes on where it ended."""
    async with polling_server(tmp_path / "upstream.log") as upstream:
        skill = {"active": True, "tool_list": {"up": []}}
        servers = {"up": {"url": upstream, "isolation": "scope"}}
        proxy = launch(write_config(tmp_path / "skills.yaml", servers, {"polling": skill}))
        headers = await raw.open(proxy.url)
        await raw.tools(proxy.url, headers)
        answer = await raw.send("POST", proxy.url, headers=headers, body=call("up__test_reconnection", {}))
        assert "\r\nretry: 500\r\n" in answer.text
        last = [line[3:].strip() for line in answer.text.splitlines() if line.startswith("id:")][-1]
        rest = await raw.send("GET", proxy.url, headers=after(last, headers))
        *notes, result = [*answer.messages, *rest.messages]
        said = ["Before the stream is closed", "After the stream was closed"]
        assert [note["params"]["data"] for note in notes] == said
        assert result in rest.messages
        assert text_of(result["result"]) == "Done."
        async with connected(proxy.url, "legacy") as peer:
            assert text_of(await peer.call("up__test_reconnection")) == "Done."
            notes = [message for message in peer.wire.messages if message.get("method") == "notifications/message"]
            assert [note["params"]["data"] for note in notes] == said


# --- what is kept ----------------------------------------------------------------------------------------------------


def answer_to(request_id: int) -> JSONRPCResponse:
    return JSONRPCResponse(jsonrpc="2.0", id=request_id, result={"to": request_id})


def note(number: int) -> JSONRPCNotification:
    return JSONRPCNotification(jsonrpc="2.0", method="notifications/message", params={"data": number})


async def missed(events: Events, event_id: str, count: int) -> list[Any]:
    """The next messages on a stream, as many as are asked for."""
    found: list[Any] = []
    with anyio.fail_after(PATIENCE), anyio.CancelScope() as enough:

        async def send(event: EventMessage) -> None:
            found.append(event.message)
            if len(found) == count:
                enough.cancel()
                await anyio.lowlevel.checkpoint()

        await events.send_after(event_id, send)
    return found


async def nothing(_message: Message) -> None: ...


async def leave() -> Message:
    return {"type": "http.disconnect"}


class Client:
    """One that is there, and what it was sent."""

    def __init__(self, events: Events) -> None:
        self.sent: list[Message] = []
        self.response = Resumable(leave, self._keep, events)

    async def _keep(self, message: Message) -> None:
        self.sent.append(message)

    async def event(self, event_id: str, padding: int = 0) -> None:
        body = f"id: {event_id}\r\ndata: {'x' * padding}\r\n\r\n".encode()
        await self.response.send({"type": "http.response.body", "body": body, "more_body": True})


async def test_an_answer_that_was_sent_is_the_last_part_of_its_response() -> None:
    """Whatever the app sends after it; it is kept for a while, as it may not have arrived."""
    now = 0.0
    events = Events(lambda: now)
    client = Client(events)
    await client.event(events.store("1", None))
    await client.event(events.store("1", note(1)))
    answer = answer_to(1)
    await client.event(events.store("1", answer))
    await client.response.send({"type": "http.response.body", "body": b""})
    client.response.ended()
    assert [message.get("more_body", False) for message in client.sent] == [True, True, False]
    assert len(events) == 1
    now += KEPT + 1
    events.sweep()
    assert len(events) == 0
    gone, answer = weakref.ref(answer), None
    assert gone() is None


async def test_the_newest_answers_that_were_sent_are_kept() -> None:
    """So many, of so many bytes in all, and no large one; not one that is being fetched."""
    events = Events(lambda: 0.0)

    async def sent(number: int, padding: int = 0) -> str:
        client, key = Client(events), str(number)
        last = events.store(key, None)
        await client.event(last)
        await client.event(events.store(key, answer_to(number)), padding)
        await client.response.send({"type": "http.response.body", "body": b""})
        client.response.ended()
        return last

    lasts = [await sent(number) for number in range(SENT)]
    Resumable(leave, nothing, events, events.find(lasts[0]))
    lasts += [await sent(number) for number in range(SENT, SENT + 2)]
    assert [events.find(last) is not None for last in lasts[:3]] == [True, False, True]
    assert len(events) == SENT + 1
    large = await sent(1000, SENT_BYTES)
    assert (events.find(large), len(events)) == (None, SENT + 1)
    last = await sent(1001, SENT_BYTES - 100)
    assert events.find(lasts[2]) is None
    assert await missed(events, last, 1) == [answer_to(1001)]


async def test_an_answer_that_was_not_sent_is_kept() -> None:
    """The response was ended before it, as a server that wants to be polled does."""
    events = Events(lambda: 0.0)
    client = Client(events)
    last = events.store("1", None)
    await client.event(last)
    events.store("1", answer_to(1))
    await client.response.send({"type": "http.response.body", "body": b""})
    client.response.ended()
    assert await missed(events, last, 1) == [answer_to(1)]


async def test_an_answer_to_a_client_that_had_left_is_kept() -> None:
    """The app may have sent it into the void."""
    events = Events(lambda: 0.0)
    client = Client(events)
    last = events.store("1", None)
    await client.event(last)
    await client.response.receive()
    await client.event(events.store("1", answer_to(1)))
    client.response.ended()
    assert await missed(events, last, 1) == [answer_to(1)]


async def test_streams_that_nobody_comes_back_for_are_forgotten() -> None:
    """After a while, and the oldest where there are many; one that has no answer yet stays."""
    now = 0.0
    events = Events(lambda: now)
    unanswered = events.store("0", None)
    lasts: list[str] = []
    for number in range(1, STREAMS + 11):
        now += 0.001
        lasts.append(events.store(str(number), None))
        events.store(str(number), answer_to(number))
    assert len(events) == STREAMS + 1
    assert [events.find(last) is not None for last in (lasts[9], lasts[10])] == [False, True]
    now += KEPT + 1
    events.sweep()
    assert len(events) == 1
    events.store("0", answer_to(0))
    assert await missed(events, unanswered, 1) == [answer_to(0)]


async def test_the_newest_events_of_a_stream_are_kept() -> None:
    """Of a call's, which may report much, and of a session's own; of that one for a while."""
    now = 0.0
    events = Events(lambda: now)
    first = [events.store(key, note(0)) for key in ("1", GET_STREAM_KEY)]
    for number in range(1, EVENTS + 11):
        for key in ("1", GET_STREAM_KEY):
            events.store(key, note(number))
    newest = [note(number) for number in range(11, EVENTS + 11)]
    assert [await missed(events, last, EVENTS) for last in first] == [newest, newest]
    now += KEPT + 1
    events.store(GET_STREAM_KEY, note(-1))
    assert await missed(events, first[1], 1) == [note(-1)]
    assert await missed(events, first[0], EVENTS) == newest


def large_answer(request_id: int, size: int) -> JSONRPCResponse:
    return JSONRPCResponse(jsonrpc="2.0", id=request_id, result={"text": "x" * size})


async def test_answers_that_nobody_fetches_are_kept_up_to_so_many_bytes_the_newest() -> None:
    """The oldest are forgotten first, and answered as what is over; one that is too large by itself is not kept."""
    budget, now = ByteBudget(), 0.0
    events = Events(lambda: now, budget)
    lasts: list[str] = []
    for number in range(6):
        now += 0.001
        lasts.append(events.store(str(number), None))
        events.store(str(number), large_answer(number, KEPT_BYTES // 4))
    assert [events.find(last) is not None for last in lasts] == [False, False, False, True, True, True]
    assert budget.used <= KEPT_BYTES
    assert await missed(events, lasts[-1], 1) == [large_answer(5, KEPT_BYTES // 4)]
    huge = events.store("7", None)
    events.store("7", large_answer(7, KEPT_BYTES))
    assert (events.find(huge), len(events)) == (None, 0)
    events.close()
    assert budget.used == 0


async def test_of_a_call_in_work_the_oldest_events_go_and_the_answer_stays() -> None:
    """It reports more than is kept; who fetches it gets the newest, and the answer."""
    budget = ByteBudget()
    events = Events(lambda: 0.0, budget)
    last = events.store("1", None)
    reports = [
        JSONRPCNotification(jsonrpc="2.0", method="notifications/message", params={"data": f"{n}" * (KEPT_BYTES // 4)})
        for n in range(6)
    ]
    for report in reports:
        events.store("1", report)
    assert budget.used <= KEPT_BYTES
    assert await missed(events, last, 3) == reports[3:]
    events.store("1", answer_to(1))
    assert await missed(events, last, 4) == [*reports[3:], answer_to(1)]


async def test_an_answer_that_is_being_sent_is_not_given_up() -> None:
    """However large it is; once its response has ended without it, it is."""
    budget = ByteBudget()
    events, client = Events(lambda: 0.0, budget), None
    last = events.store("1", None)
    client = Client(events)
    await client.event(last)
    events.store("1", large_answer(1, KEPT_BYTES))
    assert events.find(last) is not None
    client.response.ended()
    assert events.find(last) is None
    assert budget.used == 0


async def test_where_all_sessions_keep_too_much_each_keeps_little() -> None:
    """And the first to feel it are those that keep much."""
    budget = ByteBudget(4 * GUARANTEED_BYTES)
    greedy, modest = Events(lambda: 0.0, budget), Events(lambda: 0.0, budget)
    for number in range(20):
        greedy.store(str(number), None)
        greedy.store(str(number), large_answer(number, GUARANTEED_BYTES // 2))
    last = modest.store("1", None)
    modest.store("1", answer_to(1))
    assert await missed(modest, last, 1) == [answer_to(1)]
    assert budget.used < 5 * GUARANTEED_BYTES


async def test_errors_and_long_request_ids_count_as_well() -> None:
    """All that is kept of a stream does."""
    budget = ByteBudget()
    events = Events(lambda: 0.0, budget)
    key = "x" * 1000
    events.store(key, None)
    error = ErrorData(code=-1, message="y" * 1000, data={"z": "z" * 1000})
    events.store(key, JSONRPCError(jsonrpc="2.0", id=key, error=error))
    assert 3000 < budget.used < 3100


async def test_a_request_id_that_comes_again_begins_a_new_stream() -> None:
    """What the first one had is not mixed up with it."""
    events = Events(lambda: 0.0)
    events.store("1", None)
    events.store("1", answer_to(1))
    again = events.store("1", None)
    events.store("1", note(2))
    events.store("1", answer_to(1))
    assert await missed(events, again, 2) == [note(2), answer_to(1)]
    assert len(events) == 1


async def test_what_comes_while_events_are_sent_again_is_sent_too() -> None:
    """Nothing is lost between what was kept and what comes, and the stream ends after the answer."""
    events = Events(lambda: 0.0)
    last = events.store("1", None)
    events.store("1", note(0))
    found: list[Any] = []

    async def send(event: EventMessage) -> None:
        found.append(event.message)
        if len(found) <= 3:
            events.store("1", note(len(found)))
        elif len(found) == 4:
            events.store("1", answer_to(1))

    with anyio.fail_after(PATIENCE):
        await events.send_after(last, send)
    assert found == [note(0), note(1), note(2), note(3), answer_to(1)]


async def test_a_session_keeps_few_results_that_were_sent() -> None:
    """With the SDK's own server around it; its tasks keep events of each session with that session."""
    server = Server[Any]("counted", on_call_tool=_answer_at_once)
    manager = StreamableHTTPSessionManager(server, event_store=SessionEvents(), session_idle_timeout=60)
    sessions = Sessions(
        StreamableHTTPASGIApp(manager),
        Identity(ScopeId("process")),
        60,
        time.monotonic,
        _ended,
        lambda *_: None,
        quotas=Quotas(Policy(Catalogue((), Naming({}))), Settings()),
    )
    transport = httpx2.ASGITransport(sessions)
    async with manager.run(), httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1/mcp") as http:
        raw = Raw(http)
        url = "http://127.0.0.1/mcp"
        opened = [await raw.open(url) for _ in range(3)]
        for _ in range(SENT + 5):
            for headers in opened:
                answer = await raw.post(url, "tools/call", {"name": "any"}, headers)
                assert text_of(answer.reply["result"]) == "at once"
        assert [len(session.events) for session in sessions._sessions.values()] == [SENT] * 3


async def _answer_at_once(_ctx: Any, _params: Any) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text="at once")])


async def _ended(_scope: ScopeId, _session_id: str) -> None: ...
