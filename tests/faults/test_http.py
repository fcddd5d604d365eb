"""Servers over HTTP that answer with something else than a response, or forget (B21, B55)."""

import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import anyio
import pytest

from tests.conftest import Json, text_of
from tests.faults.front import LONG, SHORT, FaultBench, complaint, front, works
from tests.upstream.bench import until

pytestmark = pytest.mark.anyio

ANSWER = ("answer",)
ERAS = ("handshake", "modern")
JSON = {"Content-Type": "application/json"}
EVENTS = {"Content-Type": "text/event-stream"}


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("status", [401, 404, 429, 500, 503])
async def test_an_http_error_for_a_while_is_told_with_its_status(bench: FaultBench, era: str, status: int):
    """Each call in that time has one answer; the next call after it succeeds, and nothing has run before."""
    await bench.unruly_http("a", {"timeout": LONG}, era=era)
    async with front(bench) as proxy:
        bench.mood("a", status=status, body="<html>down</html>", headers={"Content-Type": "text/html"})
        for _ in range(2):
            text = complaint(await proxy.beside(ANSWER))
            if status != 404 or era == "modern":  # else it is the session that is not found
                assert f"HTTP {status}" in text
                assert ("did not run" in text) is (status < 500)
        bench.mood("a")
        await (proxy.comes_back() if status == 404 else proxy.goes_on())
    assert proxy.runs() == 0


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(
    ("headers", "body"),
    [
        (JSON, "not JSON"),
        (JSON, ""),
        (JSON, "[]"),
        (JSON, '{"jsonrpc": "2.0", "id": 1, "res'),
        ({"Content-Type": "text/html"}, "<html>welcome</html>"),
        ({}, "welcome"),
        (EVENTS, "data: not JSON\n\n"),
        (EVENTS, "event: message\ndata: {}\n\n"),
        (EVENTS, ""),
    ],
    ids=["text", "nothing", "array", "half", "html", "no type", "event of text", "event of an object", "no event"],
)
async def test_a_body_that_is_no_response_is_told(bench: FaultBench, era: str, headers: dict[str, str], body: str):
    """With status 200: the call has one answer that names the server, and the next one succeeds."""
    await bench.unruly_http("a", {"timeout": LONG}, era=era)
    async with front(bench) as proxy:
        bench.mood("a", status=200, body=body, headers=headers, methods=["tools/call"])
        complaint(await proxy.beside(ANSWER))
        bench.mood("a")
        await proxy.goes_on()
    assert len(bench.events("a", "refused")) == 1


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("status", [200, 500])
@pytest.mark.parametrize("headers", [JSON, EVENTS], ids=["json", "events"])
async def test_a_body_that_stops_in_the_middle_ends_at_the_limit(
    bench: FaultBench, era: str, status: int, headers: dict[str, str]
):
    """It is not waited for longer than for any other answer."""
    await bench.unruly_http("a", {"timeout": SHORT}, era=era)
    async with front(bench) as proxy:
        bench.mood("a", status=status, body='data: {"jsonrpc"', headers=headers, missing=9, methods=["tools/call"])
        complaint(await proxy.beside(ANSWER))
        bench.mood("a")
        await proxy.goes_on()
    assert len(bench.events("a", "refused")) == 1


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(("tool", "runs"), [("act", 1), ("act_read_only", 2)])
@pytest.mark.parametrize("before", [(), (("half",),), (("write", ": hello\n\n"),)], ids=["empty", "half", "comment"])
async def test_an_event_stream_that_ends_early_is_told(
    bench: FaultBench, era: str, tool: str, runs: int, before: tuple[tuple[str]]
):
    """The call has one answer, and only what is safe has run again."""
    await bench.unruly_http("a", {"timeout": LONG}, era=era)
    async with front(bench) as proxy:
        complaint(await proxy.beside(*before, ("close", "stream"), tool=tool))
        await proxy.goes_on()
    assert proxy.runs(tool) == runs


async def test_a_cancellation_that_is_not_answered_holds_up_nobody(bench: FaultBench):
    """It goes out before whatever comes after it, but what comes after it does not wait for its answer for ever."""
    await bench.unruly_http("a", {"timeout": LONG}, era="handshake")
    async with front(bench) as proxy:
        bench.mood("a", status=-1, methods=["notifications/cancelled"])
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(proxy.act, ("wait", "/nowhere"))
            await until(lambda: bool(bench.events("a", "ran")))
            tasks.cancel_scope.cancel()
        await proxy.goes_on()
    assert len(bench.events("a", "refused")) == 1


@contextmanager
def elsewhere() -> Generator[tuple[str, list[object]]]:
    """Another host: its address, and who has sent it a request."""
    came: list[object] = []

    class Handler(BaseHTTPRequestHandler):
        def parse_request(self) -> bool:
            came.append(self.client_address)
            return False

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/mcp?api_key=hidden-1a2b", came
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("status", [302, 307, 308])
async def test_a_redirect_to_another_host_is_not_followed(bench: FaultBench, era: str, status: int):
    """Neither the call nor the server's own headers get there; the answer names the server, not the address."""
    await bench.unruly_http("a", {"timeout": LONG, "headers": {"Authorization": "Bearer ours"}}, era=era)
    with elsewhere() as (url, came):
        async with front(bench) as proxy:
            bench.mood("a", status=status, headers={"Location": url})
            text = complaint(await proxy.beside(ANSWER))
            assert "hidden-1a2b" not in text
            bench.mood("a")
            await proxy.goes_on()
    assert came == []


@pytest.mark.parametrize(
    ("status", "said"),
    [(404, ""), (400, ""), (401, ""), (404, "no"), (400, "Bad Request: No valid session ID"), (401, "Unknown session")],
)
async def test_parallel_callers_share_one_new_session(bench: FaultBench, status: int, said: str):
    """Of two scopes, after the server has forgotten the old one: all succeed, each call has run once."""
    await bench.unruly_http("a", {"timeout": LONG}, era="handshake", lost_session=status, lost_text=said)
    async with front(bench) as proxy:
        await proxy.act(("forget",), ANSWER)
        before = len(bench.events("a", "request", method="initialize"))
        async with anyio.create_task_group() as tasks:
            for peer in [proxy.one, proxy.two] * 3:
                tasks.start_soon(works, peer, "a")
    assert len(bench.events("a", "request", method="initialize")) == before + 1
    assert len(bench.events("a", "ran", name="echo")) == 6


async def test_a_session_that_is_forgotten_costs_no_call_in_work(bench: FaultBench):
    """Calls whose streams are open have their results, though a newer call had to open another session."""
    await bench.unruly_http("a", {"timeout": LONG}, era="handshake")
    go = bench.file("go")
    async with front(bench) as proxy:
        answers: list[Json] = []

        async def wait(number: int) -> None:
            answers.append(await proxy.act(("wait", str(go)), ANSWER, number=number))

        async with anyio.create_task_group() as tasks:
            for number in range(5):
                tasks.start_soon(wait, number)
            await bench.event("a", "ran", count=5)
            await proxy.act(("forget",), ANSWER, by=proxy.two)
            await proxy.goes_on()
            go.touch()
    assert [text_of(answer) for answer in answers] == ["done"] * 5
    assert proxy.runs() == 6


async def test_a_session_that_is_forgotten_again_and_again_is_renewed_each_time(bench: FaultBench):
    """Every call succeeds, and runs once."""
    await bench.unruly_http("a", {"timeout": LONG}, era="handshake")
    async with front(bench) as proxy:
        for _ in range(4):
            assert text_of(await proxy.beside(("forget",), ANSWER)) == "done"
        await proxy.goes_on()
    assert proxy.runs() == 4


@pytest.mark.parametrize("era", ERAS)
async def test_calls_in_work_at_a_restart_are_answered_and_not_repeated(bench: FaultBench, era: str):
    """Five calls of two scopes: one error each, unless they are safe; the first call afterwards succeeds."""
    await bench.unruly_http("a", {"timeout": LONG}, era=era)
    async with front(bench) as proxy:
        async with proxy.waiting(5) as answers:
            await bench.restart("a")
            await proxy.others_work()
        assert len([complaint(answer) for answer in answers]) == 5
        await proxy.goes_on()
    assert sorted(event["arguments"]["number"] for event in bench.events("a", "ran", name="act")) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("era", ERAS)
async def test_changes_are_heard_of_after_their_stream_has_ended(
    bench: FaultBench, era: str, monkeypatch: pytest.MonkeyPatch
):
    """The stream on which a server tells of changes ends early: another one is opened, and nothing is missed."""
    monkeypatch.setattr("proxy.upstream.watching.RETRY", 0.1)
    await bench.unruly_http("a", {"timeout": LONG}, era=era)
    async with front(bench) as proxy:
        opened = len(await bench.event("a", "listened to"))
        await proxy.beside(("hang_up",), ANSWER)
        await bench.event("a", "listened to", count=opened + 1)
        told = proxy.two.wire.notices()
        await proxy.act(("change", "tools", ["new"], []), ANSWER)
        await proxy.two.wire.until_notices(told + 1)
        assert "a__new" in await proxy.two.tools()
