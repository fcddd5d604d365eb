"""Exchanges with servers over Streamable HTTP, however they end (2025-11-25 and 2026-07-28, basic/transports)."""

import json
import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeAlias

import pytest
from mcp import MCPError

from tests.upstream.bench import Bench, Proxied, text, until

pytestmark = pytest.mark.anyio

Json: TypeAlias = dict[str, Any]
SESSION = "0123456789abcdef"
ERAS = ("handshake", "modern")
DONE: Json = {"content": [{"type": "text", "text": "done"}], "resultType": "complete"}
TOOL: Json = {"name": "act", "inputSchema": {"type": "object"}}


@dataclass
class Reply:
    """One answer of a server over HTTP; `reset`: none, and the connection is closed."""

    status: int = 200
    body: str | bytes = ""
    headers: Mapping[str, str] = field(default_factory=lambda: {"Content-Type": "application/json"})
    reset: bool = False


def events(body: str | bytes) -> Reply:
    """An event stream that ends with this."""
    return Reply(body=body, headers={"Content-Type": "text/event-stream"})


def done(message: Json, **more: Any) -> str:
    """The response to a request."""
    return json.dumps({"jsonrpc": "2.0", "id": message.get("id"), "result": DONE, **more})


def refusal(id_: object, text: str = "No open browser session", code: int = -32000) -> str:
    """A JSON-RPC error."""
    return json.dumps({"jsonrpc": "2.0", "id": id_, "error": {"code": code, "message": text}})


@dataclass(frozen=True)
class Request:
    """What came: the HTTP method, the path, headers in small letters, and the message, if any."""

    verb: str
    path: str
    headers: Mapping[str, str]
    message: Json

    @property
    def method(self) -> str:
        """The method of JSON-RPC, else that of HTTP."""
        return self.message.get("method", self.verb)


@dataclass
class Web:
    """A server over HTTP that greets in one era, and else answers each method as `on` says."""

    era: str
    session: bool = True
    url: str = ""
    came: list[Request] = field(default_factory=list[Request])
    on: dict[str, Callable[[Request], Reply]] = field(default_factory=dict[str, Callable[[Request], Reply]])

    def count(self, method: str) -> int:
        """How many requests came."""
        return sum(request.method == method for request in self.came)

    def answer(self, request: Request) -> Reply:
        """The answer to a request."""
        if request.method in self.on:
            return self.on[request.method](request)
        told = {"capabilities": {"tools": {}}, "serverInfo": {"name": "web", "version": "1"}}
        results: dict[str, Json] = {"tools/list": {"tools": [TOOL], "resultType": "complete"}, "tools/call": DONE}
        if self.era == "handshake":
            results["initialize"] = {"protocolVersion": "2025-11-25", **told}
        else:
            results["server/discover"] = {"resultType": "complete", "supportedVersions": ["2026-07-28"], **told}
        if request.verb == "GET":
            return Reply(405)
        if "id" not in request.message:
            return Reply(202)
        if request.method not in results:
            return Reply(404, refusal(request.message["id"], "Method not found", -32601))
        headers = {"Content-Type": "application/json"}
        if request.method == "initialize" and self.session:
            headers["Mcp-Session-Id"] = SESSION
        return Reply(body=done(request.message, result=results[request.method]), headers=headers)


@contextmanager
def serving(era: str, *, session: bool = True) -> Generator[Web]:
    """A server that runs inside."""
    web = Web(era, session)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's
            """Nothing."""

        def handle_one(self) -> None:
            content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            request = Request(self.command, self.path, headers, json.loads(content or b"{}"))
            web.came.append(request)
            reply = web.answer(request)
            if reply.reset:
                self.close_connection = True
                return
            body = reply.body.encode() if isinstance(reply.body, str) else reply.body
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            if reply.status not in (204, 304):
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            with suppress(OSError):
                self.wfile.write(body)

        do_POST = do_GET = do_DELETE = handle_one  # noqa: N815 - the names in the library

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        web.url = f"http://127.0.0.1:{server.server_address[1]}/mcp"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield web
        finally:
            server.shutdown()
            thread.join()


def behind(bench: Bench, web: Web, **entry: Any) -> None:
    """Put a server behind the proxy."""
    bench.servers["a"] = {"url": web.url, "era": web.era, "timeout": 60, **entry}
    bench.skill("one", {"a": []})


async def told(proxy: Proxied, **arguments: object) -> str:
    """What the client of a call is told: the text of its result, or of the JSON-RPC error."""
    try:
        return text(await proxy.call("a__act", **arguments))
    except MCPError as error:
        return f"{error.error.code} {error.error.message}"


# --- the server's own errors


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("session", [False, True], ids=["no session", "session"])
@pytest.mark.parametrize("status", [200, 400, 401, 403, 404, 409, 429, 500, 503])
async def test_an_error_under_the_id_of_the_call_is_the_server_s_own(
    bench: Bench, era: str, status: int, *, session: bool
):
    """The client gets it, the call was sent once, and the connection stays, whatever the status is."""
    with serving(era, session=session) as web:
        behind(bench, web)
        async with bench.proxy() as proxy:
            await proxy.activate("one")
            for said in ("No open browser session", "session_id is required"):
                web.on["tools/call"] = lambda request, said=said: Reply(status, refusal(request.message["id"], said))
                assert await told(proxy) == f"-32000 {said}"
            assert web.count("tools/call") == 2
            del web.on["tools/call"]
            assert await told(proxy) == "done"
        assert web.count("initialize") == (era == "handshake")


@pytest.mark.parametrize(
    "lost",
    [
        Reply(404, refusal(None, "Session not found", -32001)),
        Reply(404, refusal("server-error", "Session not found", -32600)),
        Reply(404, "gone", {"Content-Type": "text/plain"}),
        Reply(404),
        Reply(400, refusal(None, "Bad Request: No valid session ID provided")),
        Reply(401, '{"error": "unknown session"}'),
    ],
    ids=["typescript", "python", "text", "nothing", "400", "401"],
)
async def test_a_lost_session_is_renewed_and_the_call_sent_once_more(bench: Bench, lost: Reply):
    """Each form in which servers say so: the call succeeds, in a new session."""
    with serving("handshake") as web:
        behind(bench, web)
        async with bench.proxy() as proxy:
            await proxy.activate("one")
            web.on["tools/call"] = lambda request: (
                lost if web.count("initialize") == 1 else Reply(body=done(request.message))
            )
            assert await told(proxy) == "done"
        assert web.count("initialize") == 2


@pytest.mark.parametrize("status", [400, 401, 404])
async def test_without_an_issued_session_none_can_be_lost(bench: Bench, status: int):
    """The call has one answer, and the connection stays."""
    with serving("handshake", session=False) as web:
        behind(bench, web)
        async with bench.proxy() as proxy:
            await proxy.activate("one")
            web.on["tools/call"] = lambda _: Reply(status, "no such session", {"Content-Type": "text/plain"})
            said = await told(proxy)
            assert f"HTTP {status}" in said
            assert "did not run" in said
        assert (web.count("tools/call"), web.count("initialize")) == (1, 1)


# --- answers that are not responses


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("status", [200, 400, 403, 500])
@pytest.mark.parametrize(
    "body",
    ['{"error": "hidden"}', '{"detail": "hidden"}', "<html>hidden</html>", '{"title": "hidden", "status": 400}', "[1]"],
)
async def test_what_is_no_json_rpc_is_told_in_our_words(bench: Bench, era: str, status: int, body: str):
    """With the status, without the server's text."""
    with serving(era) as web:
        behind(bench, web)
        async with bench.proxy() as proxy:
            await proxy.activate("one")
            web.on["tools/call"] = lambda _: Reply(status, body)
            said = await told(proxy)
        assert "erver a gave no response" in said
        assert (f"HTTP {status}" if status != 200 else "no valid JSON-RPC response") in said
        assert "hidden" not in said
        assert web.count("tools/call") == 1


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(
    "greeting",
    [
        Reply(body="hello"),
        Reply(body="[1]"),
        Reply(body="null"),
        Reply(),
        Reply(202),
        Reply(204),
        Reply(body="hello", headers={}),
        events("data: hello\n\n"),
        events(""),
    ],
    ids=["text", "array", "null", "empty", "202", "204", "no type", "event of text", "no event"],
)
async def test_a_greeting_that_is_no_response_is_told_in_our_words(bench: Bench, era: str, greeting: Reply):
    """No text of a library, and no link."""
    with serving(era) as web:
        web.on["initialize" if era == "handshake" else "server/discover"] = lambda _: greeting
        behind(bench, web)
        async with bench.proxy() as proxy:
            await proxy.activate("one")
            reason = await proxy.state("a", "failed")
    assert any(known in reason for known in ("no valid JSON-RPC", "without a response", "broke off")), reason
    assert "pydantic" not in reason
    assert "http" not in reason.replace("HTTP", "")


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("kind", ["Application/JSON; charset=utf-8", "application/json", "text/plain", ""])
@pytest.mark.parametrize("mark", ["", "\ufeff"], ids=["plain", "byte order mark"])
async def test_json_is_read_under_any_content_type_and_after_a_byte_order_mark(
    bench: Bench, era: str, kind: str, mark: str
):
    """From the greeting on."""
    with serving(era) as web:
        usual = web.answer

        def marked(request: Request) -> Reply:
            reply = usual(request)
            if reply.status == 200:
                headers = {**reply.headers, "Content-Type": kind}
                return Reply(body=mark + str(reply.body), headers=headers if kind else {})
            return reply

        web.session = bool(kind)
        web.answer = marked
        behind(bench, web)
        async with bench.proxy() as proxy:
            await proxy.activate("one")
            assert await told(proxy) == "done"


@pytest.mark.parametrize("written", ["1.0", '"1"'])
async def test_an_id_that_comes_back_in_another_form_is_the_same(bench: Bench, written: str):
    """As a decimal fraction, or as text."""
    with serving("handshake") as web:
        form = (lambda id_: f"{id_}.0") if written == "1.0" else (lambda id_: f'"{id_}"')
        web.on["tools/call"] = lambda request: Reply(
            body=f'{{"jsonrpc": "2.0", "id": {form(request.message["id"])}, "result": {json.dumps(DONE)}}}'
        )
        behind(bench, web)
        async with bench.proxy() as proxy:
            await proxy.activate("one")
            assert await told(proxy) == "done"


# --- event streams


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(
    "write",
    [
        lambda one: f"data: {one}",
        lambda one: f"data: {one}\n",
        lambda one: f"data:{one}\r\n\r\n",
        lambda one: f"event: message\rdata: {one}\r\r",
        lambda one: f"\ufeffdata: {one}\n\n",
        lambda one: f": hello\n\nevent: ping\ndata: {{}}\n\ndata: hello\n\ndata: {one}\n\n",
        lambda one: f"id: a\0b\nretry: abc\nretry: 1.5\nretry: -5\nretry\nmore: x\ndata: {one}\n\n",
        lambda one: "".join(f"data: {part}\n" for part in one.replace(", ", ",\n").split("\n")) + "\n",
    ],
    ids=["no end", "one line end", "crlf", "cr", "mark", "noise before", "odd fields", "many lines"],
)
async def test_every_form_of_an_event_is_read(bench: Bench, era: str, write: Callable[[str], str]):
    """As the HTML standard has it; the last event may lack the blank line behind it."""
    with serving(era) as web:
        web.on["tools/call"] = lambda request: events(write(done(request.message)))
        behind(bench, web)
        async with bench.proxy() as proxy:
            await proxy.activate("one")
            assert await told(proxy) == "done"


# --- redirects


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("status", [307, 308])
@pytest.mark.parametrize("hops", [1, 3])
async def test_a_redirect_to_the_same_origin_is_followed_with_method_and_body(
    bench: Bench, era: str, status: int, hops: int
):
    """POST, GET and DELETE alike, for each request anew."""
    with serving(era) as web:
        usual = web.answer

        def moved(request: Request) -> Reply:
            goal = "/mcp" + "/" * hops
            return usual(request) if request.path == goal else Reply(status, headers={"Location": request.path + "/"})

        web.answer = moved
        behind(bench, web, headers={"Authorization": "Bearer ours"})
        async with bench.proxy() as proxy:
            await proxy.activate("one")
            assert await told(proxy) == "done"
            assert await told(proxy) == "done"
        arrived = [request for request in web.came if request.path == "/mcp" + "/" * hops]
        assert {request.headers["authorization"] for request in web.came} == {"Bearer ours"}
        verbs = {"POST", "GET", "DELETE"} if era == "handshake" else {"POST"}
        assert {request.verb for request in arrived} == verbs


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(
    ("status", "location"),
    [
        (301, "/mcp/"),
        (302, "/mcp/"),
        (303, "/mcp/"),
        (307, "http://localhost:1/mcp"),
        (308, "https://127.0.0.1/mcp"),
        (307, "http://user:word@{here}/mcp/"),
        (308, "/mcp?key=hidden"),
    ],
    ids=["301", "302", "303", "host", "scheme", "credentials", "circle"],
)
async def test_a_redirect_that_changes_the_method_or_the_origin_is_refused(
    bench: Bench, era: str, status: int, location: str
):
    """So is one that leads in a circle; the reason names the status, and no address."""
    with serving(era) as web:
        behind(bench, web)
        to = location.format(here=web.url.split("/")[2])
        async with bench.proxy() as proxy:
            await proxy.activate("one")
            web.on["tools/call"] = lambda _: Reply(status, headers={"Location": to})
            said = await told(proxy)
            assert f"HTTP {status}" in said
            assert "not followed" in said
            assert "did not run" in said
            assert "mcp" not in said
            del web.on["tools/call"]
            assert await told(proxy) == "done"


# --- connections that break off


@pytest.mark.parametrize("era", ["auto", "handshake"])
async def test_a_server_that_resets_the_probe_is_greeted_with_the_handshake(bench: Bench, era: str):
    """The probe costs nothing but itself."""
    with serving("handshake") as web:
        web.on["server/discover"] = lambda _: Reply(reset=True)
        behind(bench, web, era=era)
        async with bench.proxy() as proxy:
            await proxy.activate("one")
            assert await told(proxy) == "done"


@pytest.mark.parametrize("era", ERAS)
async def test_a_connection_that_breaks_off_costs_its_call_alone(bench: Bench, era: str):
    """It may have run, so that it is not sent again; the next call goes on as if nothing had been."""
    with serving(era) as web:
        behind(bench, web)
        async with bench.proxy() as proxy:
            await proxy.activate("one")
            web.on["tools/call"] = lambda _: Reply(reset=True)
            assert "the connection broke off" in await told(proxy)
            assert web.count("tools/call") == 1
            del web.on["tools/call"]
            assert await told(proxy) == "done"
        assert web.count("initialize") == (era == "handshake")


# --- polling, and the server's own stream


async def test_a_call_that_is_polled_a_thousand_times_ends_with_its_result(bench: Bench):
    """Each stream ends after an event, and says after how long it may be opened again."""
    polls = 1000
    with serving("handshake") as web:
        asked: list[Json] = []

        def begin(request: Request) -> Reply:
            asked.append(request.message)
            return events("id: 0\nretry: 1\ndata:\n\n")

        def go_on(request: Request) -> Reply:
            last = request.headers.get("last-event-id")
            if last is None:
                return Reply(405)
            if int(last) < polls:
                return events(f"id: {int(last) + 1}\nretry: 1\ndata:\n\n")
            return events(f"id: {polls + 1}\ndata: {done(asked[0])}\n\n")

        web.on["tools/call"], web.on["GET"] = begin, go_on
        behind(bench, web)
        async with bench.proxy() as proxy:
            await proxy.activate("one")
            assert text(await proxy.client.call_tool("a__act", {})) == "done"
            assert web.count("tools/call") == 1
            del web.on["tools/call"]
            assert await told(proxy) == "done"


@pytest.mark.parametrize("retry", ["retry: -5", "retry: 1.5", "retry: abc", "retry:", "retry: ٣", "note: none"])
async def test_a_retry_that_is_no_number_is_ignored(bench: Bench, retry: str):
    """The rest of the answer is fetched a second later."""
    with serving("handshake") as web:
        asked: list[Json] = []

        def begin(request: Request) -> Reply:
            asked.append(request.message)
            return events(f"id: 0\n{retry}\ndata:\n\n")

        web.on["tools/call"] = begin
        web.on["GET"] = lambda request: (
            events(f"data: {done(asked[0])}\n\n") if "last-event-id" in request.headers else Reply(405)
        )
        behind(bench, web)
        async with bench.proxy() as proxy:
            await proxy.activate("one")
            assert await told(proxy) == "done"
        assert web.count("tools/call") == 1


async def test_a_server_that_wants_to_be_polled_at_once_is_polled_at_a_bearable_pace(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
):
    """`retry: 0` with nothing to fetch: no pause is shorter than a second, and they grow."""
    pauses = watched_pauses(monkeypatch, "poll_pause")
    with serving("handshake") as web:
        asked: list[Json] = []

        def begin(request: Request) -> Reply:
            asked.append(request.message)
            return events("id: 0\nretry: 0\ndata:\n\n")

        def go_on(request: Request) -> Reply:
            if "last-event-id" not in request.headers:
                return Reply(405)
            return events(f"data: {done(asked[0])}\n\n" if len(pauses) > 3 else "retry: 0\n\n")

        web.on["tools/call"], web.on["GET"] = begin, go_on
        behind(bench, web)
        async with bench.proxy() as proxy:
            await proxy.activate("one")
            assert await told(proxy) == "done"
    assert pauses == [1.0, 1.0, 2.0, 4.0]


@pytest.mark.parametrize(
    "refused", [Reply(503), Reply(409), Reply(429), Reply(500), Reply(reset=True), events("retry: 0\n\n")]
)
async def test_the_server_s_own_stream_is_tried_again_until_it_opens(
    bench: Bench, refused: Reply, monkeypatch: pytest.MonkeyPatch
):
    """However often it was refused; the pauses grow, and calls are not disturbed."""
    pauses = watched_pauses(monkeypatch, "stream_pause")
    with serving("handshake") as web:
        web.on["GET"] = lambda _: refused if len(pauses) < 8 else Reply(405)
        behind(bench, web)
        async with bench.proxy() as proxy:
            await proxy.activate("one")
            await until(lambda: web.count("GET") == 9)
            assert await told(proxy) == "done"
            assert proxy.running.pool.status("a").state == "ready"
        assert web.count("initialize") == 1
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]


def watched_pauses(monkeypatch: pytest.MonkeyPatch, name: str) -> list[float]:
    """The pauses that are made from now on, without waiting for them."""
    from proxy.upstream import streamable_http  # noqa: PLC0415 - what is replaced

    pauses, usual = list[float](), getattr(streamable_http, name)

    def pause(asked: float | None, fruitless: int) -> float:
        pauses.append(usual(asked, fruitless))
        return 0.0

    monkeypatch.setattr(streamable_http, name, pause)
    return pauses


async def test_a_server_without_a_stream_of_its_own_is_not_asked_again(bench: Bench):
    """405 says so."""
    with serving("handshake") as web:
        behind(bench, web)
        async with bench.proxy() as proxy:
            await proxy.activate("one")
            for _ in range(3):
                assert await told(proxy) == "done"
        assert web.count("GET") == 1


@pytest.mark.parametrize("status", [400, 404, 500])
async def test_a_refused_notification_harms_nobody(bench: Bench, status: int):
    """Also with the status of a lost session."""
    with serving("handshake") as web:
        web.on["notifications/initialized"] = lambda _: Reply(status, "no such session")
        behind(bench, web)
        async with bench.proxy() as proxy:
            await proxy.activate("one")
            assert await told(proxy) == "done"
        assert web.count("initialize") == 1


async def test_a_notification_that_is_not_answered_holds_up_nothing_for_long(bench: Bench):
    """What comes after it goes out all the same."""
    with serving("handshake") as web:
        over = threading.Event()

        def wait(_request: Request) -> Reply:
            over.wait(30)
            return Reply(202)

        web.on["notifications/initialized"] = wait
        behind(bench, web)
        begun = time.monotonic()
        async with bench.proxy() as proxy:
            await proxy.activate("one")
            assert await told(proxy) == "done"
            assert time.monotonic() - begun < 20
            over.set()
