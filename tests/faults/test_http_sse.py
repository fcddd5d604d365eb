"""The older HTTP+SSE transport: refused and open POSTs, the end of the event stream, where messages are posted."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from mcp import MCPError

from tests.answers import not_ready
from tests.conftest import HttpProxy, Json, Peer, connected, http_proxy, text_of, write_config
from tests.servers.older import Kept, Older, Post, older
from tests.upstream.bench import until

pytestmark = pytest.mark.anyio

TIMEOUT = 600.0
"""Seconds of the server's `timeout`, and what a call that waits for it needs: nothing here does."""
PATIENCE = 30.0


@asynccontextmanager
async def proxied(folder: Path, kept: Kept, **entry: object) -> AsyncGenerator[tuple[HttpProxy, Peer]]:
    """A proxy in front of the server `a`, and its client, which has activated the skill."""
    server = {"type": "sse", "url": kept.url, "timeout": TIMEOUT, "era": "handshake", **entry}
    config = write_config(folder / "skills.yaml", {"a": server}, {"a": {"desc": "a", "tool_list": {"a": []}}})
    with http_proxy(config) as proxy:
        async with connected(f"{proxy.url}/one", "legacy") as peer:
            yield proxy, peer
    assert "Traceback" not in proxy.log.read_text(encoding="utf-8")


async def told(peer: Peer, tool: str = "a__call") -> str:
    """What a client is told of a call, within a time far below `timeout`."""
    with anyio.fail_after(PATIENCE):
        try:
            text = text_of(await peer.call(tool))
        except MCPError as error:
            text = f"{error.error.code} {error.error.message}"
    assert "-32000" not in text
    assert "Connection closed" not in text
    return text


def refused_once(refuse: Post) -> Post:
    """Refuse the first call, and answer the later ones."""

    def post(handler: Older, message: Json) -> None:
        if len(handler.kept.calls()) == 1:
            refuse(handler, message)
        else:
            handler.plain(message)

    return post


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (400, "HTTP 400 Bad Request"),
        (401, "HTTP 401 Unauthorized"),
        (403, "HTTP 403 Forbidden"),
        (413, "HTTP 413"),
        (418, "HTTP 418"),
        (429, "HTTP 429 Too Many Requests"),
        (500, "HTTP 500 Internal Server Error"),
        (502, "HTTP 502 Bad Gateway"),
        (503, "HTTP 503 Service Unavailable"),
        (599, "HTTP 599"),
        (302, "HTTP 302 Found, which leads elsewhere and is not followed"),
        (307, "HTTP 307 Temporary Redirect, which leads elsewhere and is not followed"),
    ],
)
async def test_a_refused_post_costs_its_call_alone(tmp_path: Path, status: int, words: str):
    """It is told at once with the status, was sent once, and the connection goes on."""

    def refuse(handler: Older, _message: Json) -> None:
        location = {"Location": "http://elsewhere.invalid/messages"} if status < 400 else {}
        handler.status(status, b"no", **location)

    with older(refused_once(refuse)) as kept:
        async with proxied(tmp_path, kept) as (_, peer):
            assert not not_ready(await peer.skill("activate", "a"))
            assert words in await told(peer)
            assert await told(peer) == "done"
        assert len(kept.streams) == 1
        assert len(kept.calls()) == 2


@pytest.mark.parametrize("status", [200, 400, 401, 404, 410, 500])
async def test_a_server_s_own_error_in_the_answer_to_a_post_is_the_call_s(tmp_path: Path, status: int):
    """Whatever the status, it is passed on, and the call was sent once; nobody takes it for a lost session."""

    def refuse(handler: Older, message: Json) -> None:
        error = {"code": -32055, "message": "No open browser session", "data": {"n": 1}}
        body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}).encode()
        handler.status(status, body, "application/json")

    with older(refused_once(refuse)) as kept:
        async with proxied(tmp_path, kept) as (_, peer):
            await peer.skill("activate", "a")
            assert await told(peer) == "-32055 No open browser session"
            assert await told(peer) == "done"
        assert len(kept.streams) == 1
        assert len(kept.calls()) == 2


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (404, b""),
        (404, b"Could not find session"),
        (404, b'{"jsonrpc": "2.0", "id": null, "error": {"code": -32001, "message": "Session not found"}}'),
        (410, b"gone"),
        (400, b"No transport found for sessionId"),
        (401, b'{"error": "Invalid SESSION"}'),
    ],
)
async def test_a_session_that_is_not_known_any_more_is_opened_again(tmp_path: Path, status: int, body: bytes):
    """The call has not run, and is sent again on the new connection."""
    with older(refused_once(lambda handler, _: handler.status(status, body))) as kept:
        async with proxied(tmp_path, kept) as (_, peer):
            await peer.skill("activate", "a")
            assert await told(peer) == "done"
        assert len(kept.streams) == 2
        assert len(kept.calls()) == 2


@pytest.mark.parametrize(("tool", "runs"), [("call", 1), ("safe", 2)])
async def test_a_post_whose_connection_breaks_costs_its_call_alone(tmp_path: Path, tool: str, runs: int):
    """It may have run, so that only what is safe is sent again; the event stream goes on."""
    with older(refused_once(lambda handler, _: handler.reset())) as kept:
        async with proxied(tmp_path, kept) as (_, peer):
            await peer.skill("activate", "a")
            said = await told(peer, f"a__{tool}")
            assert said == "done" if runs == 2 else "broke off" in said
            assert len(kept.calls()) == runs
            assert await told(peer) == "done"
        assert len(kept.streams) == 1


async def test_posts_that_stay_open_block_nobody(tmp_path: Path):
    """Neither other calls, nor what is told besides; their own answers come on the event stream all the same."""

    def stay(handler: Older, message: Json) -> None:
        if message["params"]["arguments"].get("stays"):
            handler.kept.go.wait(60)
        handler.plain(message)

    answers: list[str] = []
    with older(stay) as kept:
        async with proxied(tmp_path, kept) as (_, peer), anyio.create_task_group() as tasks:
            await peer.skill("activate", "a")

            async def stays() -> None:
                answers.append(text_of(await peer.call("a__call", {"stays": True})))

            for _ in range(12):
                tasks.start_soon(stays)
            await until(lambda: len(kept.calls()) == 12)
            for _ in range(3):
                assert await told(peer) == "done"
            assert answers == []
            kept.go.set()
        assert answers == ["done"] * 12


async def test_answered_posts_that_stay_open_do_not_add_up(tmp_path: Path):
    """Where the server answers on the event stream and never ends the POST, there is room for more calls than POSTs."""

    def stay(handler: Older, message: Json) -> None:
        handler.say({"jsonrpc": "2.0", "id": message["id"], "result": {"content": [{"type": "text", "text": "done"}]}})
        handler.kept.go.wait(60)

    with older(stay) as kept:
        async with proxied(tmp_path, kept) as (_, peer):
            await peer.skill("activate", "a")
            for _ in range(150):
                assert await told(peer) == "done"


async def test_what_is_told_comes_in_order(tmp_path: Path):
    """`notifications/initialized` is answered before the first request; a cancellation comes after its request."""
    with older(lambda handler, _: handler.status(202)) as kept:
        async with proxied(tmp_path, kept, timeout=1) as (_, peer):
            await peer.skill("activate", "a")
            assert "within 1 s" in await told(peer)
            await until(lambda: kept.messages[-1]["method"] == "notifications/cancelled")
        methods = [message["method"] for message in kept.messages]
        assert methods[:3] == ["initialize", "notifications/initialized", "tools/list"]
        assert methods[-2:] == ["tools/call", "notifications/cancelled"]
        assert kept.messages[-1]["params"]["requestId"] == kept.calls()[-1]["id"]
        answered = [message["method"] for message in kept.answered]
        assert answered.index("notifications/initialized") < answered.index("tools/list")


async def test_an_event_stream_that_ends_in_calls_ends_them(tmp_path: Path):
    """They fail at once; what is safe runs again on a new connection, which the next call finds too."""

    def silent(handler: Older, message: Json) -> None:
        if len(handler.kept.streams) == 1:
            handler.status(202)
        else:
            handler.plain(message)

    with older(silent) as kept:
        async with proxied(tmp_path, kept) as (_, peer):
            await peer.skill("activate", "a")
            answers: dict[str, str] = {}

            async def call(tool: str) -> None:
                answers[tool] = await told(peer, f"a__{tool}")

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(call, "call")
                tasks.start_soon(call, "safe")
                await until(lambda: len(kept.calls()) == 2)
                kept.cut()
            assert "the connection closed" in answers["call"]
            assert answers["safe"] == "done"
            assert await told(peer) == "done"
        assert len(kept.streams) == 2


@pytest.mark.parametrize("status", [400, 404, 500])
async def test_a_refused_probe_is_followed_by_the_handshake(tmp_path: Path, status: int):
    """On the same event stream."""
    with older() as kept:
        kept.refused = {"server/discover": status}
        async with proxied(tmp_path, kept, era="auto") as (_, peer):
            assert not not_ready(await peer.skill("activate", "a"))
            assert await told(peer) == "done"
        assert len(kept.streams) == 1


@pytest.mark.parametrize("status", [400, 500])
async def test_a_notification_that_is_refused_costs_nothing(tmp_path: Path, status: int):
    with older() as kept:
        kept.refused = {"notifications/initialized": status}
        async with proxied(tmp_path, kept) as (_, peer):
            assert not not_ready(await peer.skill("activate", "a"))
            assert await told(peer) == "done"


@pytest.mark.parametrize(
    ("opening", "reason"),
    [
        (b"event: endpoint\ndata: http://elsewhere.invalid/messages\n\n", "names an address at another origin"),
        (b"event: endpoint\ndata: //elsewhere.invalid/messages\n\n", "names an address at another origin"),
        (b"event: endpoint\ndata: https://127.0.0.1/messages\n\n", "names an address at another origin"),
        (b"event: endpoint\ndata: http://127.0.0.1:1/messages\n\n", "names an address at another origin"),
        (b"event: endpoint\ndata: file:///etc/passwd\n\n", "has no usable address"),
        (b"event: endpoint\ndata: http://[::1/messages\n\n", "has no usable address"),
        (b"event: endpoint\ndata:\n\n", "has no usable address"),
        (b"event: endpoint\ndata: /a\n\nevent: endpoint\ndata: /b\n\n", "named a second address"),
        (b"event: ping\ndata: x\n\n", "sent no `endpoint` event within 10 s"),
        (b"", "sent no `endpoint` event within 10 s"),
    ],
)
async def test_a_server_that_names_no_address_for_messages_fails_with_that_reason(
    tmp_path: Path, opening: bytes, reason: str
):
    """Not after the whole time that it has to start; nothing is sent anywhere."""
    with older(opening=opening) as kept:
        async with proxied(tmp_path, kept, start_timeout=TIMEOUT) as (proxy, peer):
            with anyio.fail_after(PATIENCE):
                await peer.skill("activate", "a")
                await until(lambda: bool(proxy.logged("server.failed")))
            assert reason in proxy.logged("server.failed")[0]["reason"]
        assert not kept.calls()


async def test_an_event_stream_that_ends_without_an_address_says_so(tmp_path: Path):
    """At once."""
    with older(opening=b"event: ping\ndata: x\n\n") as kept:
        async with proxied(tmp_path, kept, start_timeout=TIMEOUT) as (proxy, peer), anyio.create_task_group() as tasks:
            tasks.start_soon(peer.skill, "activate", "a")
            await until(lambda: bool(kept.streams))
            kept.cut()
            await until(lambda: bool(proxy.logged("server.failed")))
            assert "ended without an `endpoint` event" in proxy.logged("server.failed")[0]["reason"]


@pytest.mark.parametrize(
    "opening",
    [
        b"event: endpoint\r\ndata: /messages\r\n\r\n",
        b"event: endpoint\rdata: /messages\r\r",
        b"\xef\xbb\xbfevent: endpoint\ndata: /messages\n\n",
        b": hello\n\nevent:endpoint\ndata:/messages\n\n",
        b"event: endpoint\ndata: /messages\n\nevent: endpoint\ndata: /messages\n\n",
        b"event: endpoint\ndata: messages\n\ndata: rubbish\n\ndata: [1]\n\ndata: 7\n\nevent: x\ndata: {}\n\n",
        b'event: endpoint\ndata: messages\n\ndata: {"jsonrpc": "2.0"}\n\ndata: [[]]\n\ndata: null\n\n',
        b"retry: 10\nid: 1\nevent: endpoint\ndata:   /messages?a=b#c  \n\n",
    ],
)
async def test_event_streams_are_read_however_they_are_written(tmp_path: Path, opening: bytes):
    """What is not a message costs itself alone."""
    with older(opening=opening) as kept:
        async with proxied(tmp_path, kept) as (_, peer):
            assert not not_ready(await peer.skill("activate", "a"))
            assert await told(peer) == "done"


@pytest.mark.parametrize(
    "event",
    [
        '\ufeff{"jsonrpc": "2.0", "id": ID, "result": {"content": []}}',
        '{"jsonrpc": "2.0", "id": ID.0, "result": {"content": []}}',
        '{"jsonrpc": "2.0", "id": "ID", "result": {"content": []}}',
        '[{"jsonrpc": "2.0", "method": "notifications/x"}, {"jsonrpc": "2.0", "id": ID, "result": {"content": []}}]',
        '{"jsonrpc": "2.0", "id": ID, "result": "text"}',
        '{"jsonrpc": "2.0", "id": ID}',
    ],
)
async def test_an_answer_that_is_written_strangely_reaches_its_call(tmp_path: Path, event: str):
    """And one that holds no result is told as such, instead of being waited for."""

    def post(handler: Older, message: Json) -> None:
        handler.status(202)
        written = event.replace("ID", str(message["id"]))
        handler.kept.streams[-1].write(f"data: {written}\n\n".encode())

    with older(post) as kept:
        async with proxied(tmp_path, kept) as (_, peer):
            await peer.skill("activate", "a")
            said = await told(peer)
            assert said == "" if "[]" in event else "no valid JSON-RPC response" in said


@pytest.mark.parametrize("status", [307, 308])
async def test_a_redirect_on_the_same_origin_is_followed_with_the_message(tmp_path: Path, status: int):
    def post(handler: Older, message: Json) -> None:
        if handler.path.startswith("/messages"):
            handler.status(status, Location="/elsewhere?n=1")
        else:
            handler.plain(message)

    with older(post) as kept:
        async with proxied(tmp_path, kept) as (_, peer):
            await peer.skill("activate", "a")
            assert await told(peer) == "done"
        assert len(kept.streams) == 1
