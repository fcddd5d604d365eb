"""Requests, answers and notifications over lines, both ways."""

import json
import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

import anyio
import anyio.lowlevel
import pytest
from mcp import ClientSession, MCPError
from mcp.server.connection import Connection
from mcp.server.lowlevel import Server
from mcp.server.runner import serve_connection
from mcp.shared.dispatcher import CallOptions, Dispatcher, Outbound
from mcp.shared.exceptions import NoBackChannelError
from mcp_types import CONNECTION_CLOSED, REQUEST_TIMEOUT, CallToolResult

from proxy.wire.dispatcher import STOPPED, LineDispatcher
from proxy.wire.pipes import Sink, Source
from tests.wire.peer import DEADLINE, Peer, ignore, running

pytestmark = pytest.mark.anyio

Params = Mapping[str, Any] | None
LARGE = "x" * 300_000
"""More than waits to be taken without anybody waiting."""


class Asked:
    """A request that a task makes, with these options: its result or its error, once there is one."""

    def __init__(self, **options: Any) -> None:
        self.options = cast("CallOptions", options)
        self.result: dict[str, Any] | None = None
        self.error: MCPError | None = None
        self.scope = anyio.CancelScope()
        self.done = anyio.Event()

    async def __call__(self, peer: Peer, method: str = "x", params: Params = None) -> None:
        try:
            with self.scope:
                self.result = await peer.dispatcher.send_raw_request(method, params, self.options)
        except MCPError as error:
            self.error = error
        finally:
            self.done.set()


class Held:
    """A handler whose requests stay in work until `release`, or until they are cancelled."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.cancelled: list[str] = []
        self.release = anyio.Event()

    async def __call__(self, ctx: Any, method: str, params: Params) -> dict[str, Any]:
        if method == "ping":
            return {}
        self.started.append(method)
        try:
            await self.release.wait()
        except BaseException:
            self.cancelled.append(method)
            raise
        return {"method": method}


async def until(test: Callable[[], bool]) -> None:
    """Wait until the loop has come so far."""
    with anyio.fail_after(DEADLINE):
        while not test():  # noqa: ASYNC110 - there is no event for it
            await anyio.sleep(0.002)


# --- the SDK's seams -------------------------------------------------------------------------------------------------


async def test_it_is_what_the_sdk_takes_for_a_dispatcher():
    """The protocol's methods are all there are to implement: a release that adds one shows here."""
    members = {name for protocol in (Dispatcher, Outbound) for name in vars(protocol) if not name.startswith("_")}
    assert members == {"run", "send_raw_request", "notify"}
    assert set(CallOptions.__annotations__) == {
        "request_id",
        "timeout",
        "cancel_on_abandon",
        "on_progress",
        "resumption_token",
        "on_resumption_token",
        "headers",
    }
    assert Dispatcher in LineDispatcher.__mro__


async def test_the_sdk_serves_and_calls_over_it():
    """A server and a client session of the SDK meet over two of them."""
    theirs, ours = os.pipe(), os.pipe()
    noise: list[object] = []

    def told(*what: object) -> None:
        noise.append(what)

    async def call(ctx: Any, params: Any) -> CallToolResult:
        await ctx.session.report_progress(1, 2, "half")
        await ctx.session.send_ping()
        return CallToolResult(content=[], structured_content={"asked": True})

    heard: list[object] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, total, message))

    options: CallOptions = {"on_progress": note}
    server = Server("lines", version="1", on_call_tool=call)
    ends = Source(theirs[0]), Sink(ours[1]), Source(ours[0]), Sink(theirs[1])
    serving = LineDispatcher(ends[0], ends[1], told, inline_methods=frozenset({"initialize"}), holds=True)
    calling = LineDispatcher(ends[2], ends[3], told)
    with anyio.fail_after(DEADLINE):
        async with anyio.create_task_group() as tasks:

            async def serve() -> None:
                await serve_connection(server, serving, connection=Connection.for_loop(serving), lifespan_state={})

            tasks.start_soon(serve)
            async with ClientSession(dispatcher=calling) as session:
                assert (await session.initialize()).server_info.name == "lines"
                result = await calling.send_raw_request("tools/call", {"name": "any"}, options)
                assert result["structuredContent"] == {"asked": True}
                await until(lambda: heard == [(1.0, 2.0, "half")])
            ends[3].close()
    for end in ends:
        end.close()
    await anyio.lowlevel.checkpoint()
    assert not noise


# --- requests of the peer --------------------------------------------------------------------------------------------


async def test_a_request_is_answered_with_its_own_id():
    """Text stays text, fields that nobody knows stay, numbers and strings arrive as they were."""
    async with running() as peer:
        params = {"big": 10**40, "half": "\ud800", "x-extra": None, "_meta": {"progressToken": "t"}}
        await peer.say({"id": "7", "method": "a", "params": params})
        await peer.say({"id": 7, "method": "b"})
        assert [await peer.hear(), await peer.hear()] == [
            {"jsonrpc": "2.0", "id": "7", "result": {"method": "a", "params": params}},
            {"jsonrpc": "2.0", "id": 7, "result": {"method": "b", "params": None}},
        ]


async def test_requests_are_in_work_side_by_side():
    """A slow one holds up no other."""
    held = Held()
    async with running(held) as peer:
        await peer.say({"id": 1, "method": "slow"}, {"id": 2, "method": "ping"})
        assert (await peer.hear())["id"] == 2
        held.release.set()
        assert (await peer.hear())["id"] == 1


@pytest.mark.parametrize(
    ("raised", "error"),
    [
        (MCPError(-5, "no", {"why": [1]}), {"code": -5, "message": "no", "data": {"why": [1]}}),
        (MCPError(-5, "no"), {"code": -5, "message": "no"}),
        (KeyError("x"), {"code": 0, "message": "'x'"}),
        (ExceptionGroup("several", [ValueError("a")]), {"code": 0, "message": "several (1 sub-exception)"}),
    ],
)
async def test_what_a_handler_raises_is_the_answer(raised: Exception, error: dict[str, Any]):
    """And costs nothing else."""

    async def fail(ctx: object, method: str, params: Params) -> dict[str, Any]:
        if method == "ping":
            return {}
        raise raised

    async with running(fail) as peer:
        await peer.say({"id": 1, "method": "a"})
        assert (await peer.hear())["error"] == error
        assert await peer.quiet()


async def test_an_answer_that_json_cannot_say_is_an_error():
    """Not silence."""

    async def odd(ctx: object, method: str, params: Params) -> dict[str, Any]:
        return {"it": object()}

    async with running(odd) as peer:
        await peer.say({"id": 1, "method": "a"})
        assert (await peer.hear())["error"]["code"] == 0


async def test_a_cancelled_request_is_stopped_and_never_answered():
    """By an id as text or number, before or after it has begun; an unknown id does nothing."""
    held = Held()
    async with running(held) as peer:
        await peer.say({"id": 1, "method": "begun"}, {"id": "2", "method": "begun too"})
        await until(lambda: len(held.started) == 2)
        cancel = "notifications/cancelled"
        await peer.say(*({"method": cancel, "params": {"requestId": number}} for number in ("1", 2, 3, None)))
        await peer.say({"id": 4, "method": "not begun"}, {"method": cancel, "params": {"requestId": 4}})
        assert await peer.quiet()
        assert held.cancelled == ["begun", "begun too"]


async def test_a_handler_can_see_that_it_was_cancelled():
    """Also one that asks for the first time when it was."""
    seen: list[bool] = []

    async def watch(ctx: Any, method: str, params: Params) -> dict[str, Any]:
        if method == "early":
            assert not ctx.cancel_requested.is_set()
        try:
            await anyio.sleep_forever()
        finally:
            seen.append(ctx.cancel_requested.is_set())
        return {}

    async with running(watch) as peer:
        await peer.say({"id": 1, "method": "early"}, {"id": 2, "method": "late"})
        await until(lambda: len(peer.dispatcher._in_work) == 2)
        await anyio.lowlevel.checkpoint()
        await peer.say(*({"method": "notifications/cancelled", "params": {"requestId": n}} for n in (1, 2)))
        await until(lambda: seen == [True, True])


async def test_what_comes_behind_an_inline_request_waits_for_it():
    """In one piece with it or later, and the end of the input too."""
    order: list[str] = []
    go = anyio.Event()

    async def note(ctx: object, method: str, params: Params) -> dict[str, Any]:
        order.append(method)
        if method == "initialize":
            await go.wait()
            order.append("done")
        return {}

    async with running(note, inline_methods=frozenset({"initialize"}), grace=DEADLINE) as peer:
        await peer.say({"id": 1, "method": "initialize"}, {"id": 2, "method": "a"})
        await until(lambda: order == ["initialize"])
        await peer.say({"id": 3, "method": "initialize"}, {"id": 4, "method": "b"})
        peer.leave()
        go.set()
        assert [(await peer.hear())["id"] for _ in range(4)] == [1, 2, 3, 4]
    assert order == ["initialize", "done", "a", "initialize", "done", "b"]


async def test_a_handler_can_ask_and_tell_while_it_is_in_work_and_not_later():
    """What it asks is answered by the peer; afterwards asking fails and telling is for nothing."""
    kept: list[Any] = []

    async def ask(ctx: Any, method: str, params: Params) -> dict[str, Any]:
        if method == "ping":
            return {}
        kept.append(ctx)
        await ctx.progress(0.5, None, "half")
        return await ctx.send_raw_request("roots/list", None)

    async with running(ask) as peer:
        await peer.say({"id": 1, "method": "a", "params": {"_meta": {"progressToken": 9}}})
        told = {"progressToken": 9, "progress": 0.5, "message": "half"}
        assert await peer.hear() == {"jsonrpc": "2.0", "method": "notifications/progress", "params": told}
        assert await peer.hear() == {"jsonrpc": "2.0", "id": 1, "method": "roots/list"}
        await peer.say({"id": 1, "result": {"roots": []}})
        assert (await peer.hear())["result"] == {"roots": []}
        (ctx,) = kept
        assert (ctx.transport.kind, ctx.message_metadata, ctx.request_id) == ("jsonrpc", None, 1)
        assert not ctx.can_send_request
        await ctx.notify("late", {})
        with pytest.raises(NoBackChannelError):
            await ctx.send_raw_request("late", None)
        assert await peer.quiet()


async def test_where_asking_is_forbidden_nothing_is_asked():
    """`asks` holds for the whole connection."""

    async def ask(ctx: Any, method: str, params: Params) -> dict[str, Any]:
        assert not ctx.transport.can_send_request
        return await ctx.send_raw_request("roots/list", None)

    async with running(ask) as peer:
        peer.dispatcher.asks = False
        await peer.say({"id": 1, "method": "a"})
        assert "back-channel" in (await peer.hear())["error"]["message"]


# --- notifications of the peer ---------------------------------------------------------------------------------------


async def test_notifications_are_seen_in_order_before_anything_later_is_handled():
    """The intercept runs as they are read; what it takes reaches no handler, what it raises harms nothing."""
    order: list[str] = []

    def intercept(method: str, params: Params) -> bool:
        order.append(f"seen {method}")
        if method == "bad":
            raise ValueError(method)
        return method == "taken"

    async def note(ctx: Any, method: str, params: Params) -> None:
        order.append(method)
        if method == "slow":
            await anyio.sleep_forever()
        if method == "worse":
            raise ValueError(method)

    async def handle(ctx: object, method: str, params: Params) -> dict[str, Any]:
        order.append(method)
        return {}

    async with running(handle, note, intercept) as peer:
        methods = ["slow", "taken", "bad", "worse"]
        await peer.say(*({"method": method} for method in methods), {"id": 1, "method": "request"})
        assert (await peer.hear())["id"] == 1
    assert order == [*(f"seen {method}" for method in methods), "slow", "bad", "worse", "request"]


# --- our own requests ------------------------------------------------------------------------------------------------


async def test_answers_find_their_requests_in_any_order():
    """An id that comes back as text is the same; unknown and late ones harm nothing."""
    first, second = Asked(), Asked(request_id="mine")
    async with running() as peer, anyio.create_task_group() as tasks:
        tasks.start_soon(first, peer, "a", {"n": 10**30, "_meta": {"x": 1}})
        assert await peer.hear() == {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "a",
            "params": {"n": 10**30, "_meta": {"x": 1}},
        }
        tasks.start_soon(second, peer, "b", {})
        assert await peer.hear() == {"jsonrpc": "2.0", "id": "mine", "method": "b"}
        await peer.say({"id": 5, "result": {}}, {"id": "mine", "result": {"x": "\ud800"}}, {"id": "1", "result": {}})
        await second.done.wait()
        await first.done.wait()
        await peer.say({"id": 1, "result": {"again": True}})
        assert await peer.quiet()
    assert (first.result, second.result) == ({}, {"x": "\ud800"})


async def test_an_id_in_use_is_refused_and_never_chosen():
    """The caller who chose it hears of it; the next number steps aside."""
    first, second = Asked(request_id="1"), Asked()
    async with running() as peer, anyio.create_task_group() as tasks:
        tasks.start_soon(first, peer, "a")
        assert (await peer.hear())["id"] == "1"
        with pytest.raises(ValueError, match="in flight"):
            await peer.dispatcher.send_raw_request("b", None, {"request_id": 1})
        tasks.start_soon(second, peer)
        assert (await peer.hear())["id"] == 2
        tasks.cancel_scope.cancel()


async def test_an_error_of_the_peer_is_raised_as_it_came():
    """Code, text and data."""
    asked = Asked()
    async with running() as peer, anyio.create_task_group() as tasks:
        tasks.start_soon(asked, peer)
        await peer.hear()
        await peer.say({"id": 1, "error": {"code": -3, "message": "no", "data": {"n": [10**30]}}})
        await asked.done.wait()
    assert asked.error is not None
    assert (asked.error.code, asked.error.message, asked.error.data) == (-3, "no", {"n": [10**30]})


async def test_progress_reaches_who_asked_for_it():
    """By the id of the request; what is no number is none, and what the callback raises harms nothing."""
    heard: list[object] = []

    async def note(*what: object) -> None:
        heard.append(what)
        raise ValueError

    asked = Asked(on_progress=note)
    async with running() as peer, anyio.create_task_group() as tasks:
        tasks.start_soon(asked, peer, "a", {"_meta": {"x": 1}})
        assert (await peer.hear())["params"] == {"_meta": {"x": 1, "progressToken": 1}}
        for params in ({"progressToken": 1, "progress": 1, "total": True}, {"progressToken": 1, "progress": "x"}, {}):
            await peer.say({"method": "notifications/progress", "params": params})
        await peer.say({"id": 1, "result": {}})
        await asked.done.wait()
        assert await peer.quiet()
    assert heard == [(1.0, None, None)]


@pytest.mark.parametrize("options", [{}, {"cancel_on_abandon": False}], ids=str)
async def test_a_request_that_is_given_up_is_cancelled_at_the_peer(options: dict[str, Any]):
    """Under its own id, unless it must not be."""
    asked = Asked(request_id="mine", **options)
    async with running() as peer, anyio.create_task_group() as tasks:
        tasks.start_soon(asked, peer, "a")
        await peer.hear()
        asked.scope.cancel()
        await asked.done.wait()
        if not options:
            said = await peer.hear()
            assert said["method"] == "notifications/cancelled"
            assert said["params"]["requestId"] == "mine"
        assert await peer.quiet()


async def test_a_request_that_takes_too_long_is_cancelled_at_the_peer():
    """And raises."""
    asked = Asked(timeout=0.01)
    async with running() as peer, anyio.create_task_group() as tasks:
        tasks.start_soon(asked, peer, "a")
        await peer.hear()
        assert (await peer.hear())["method"] == "notifications/cancelled"
        await asked.done.wait()
    assert asked.error is not None
    assert asked.error.code == REQUEST_TIMEOUT


async def test_before_it_runs_nothing_can_be_asked():
    """As with the SDK's own."""
    peer = Peer()
    with pytest.raises(RuntimeError):
        await peer.dispatcher.send_raw_request("a", None)
    for close in (peer.leave, peer.close, peer.source.close, peer.sink.close):
        close()


# --- the flow --------------------------------------------------------------------------------------------------------


async def test_who_sends_waits_while_nobody_reads():
    """What is given up meanwhile is never written, and nothing is said of it; the rest goes out in order."""
    asked = [Asked() for _ in range(9)]
    async with running() as peer, anyio.create_task_group() as tasks:
        for number, each in enumerate(asked):
            tasks.start_soon(each, peer, f"m{number}", {"text": LARGE})
        await until(lambda: peer.sink.full and peer.sink._waiting > 2)
        asked[-2].scope.cancel()
        await asked[-2].done.wait()
        methods = [(await peer.hear())["method"] for _ in range(8)]
        assert methods == ["m0", "m1", "m2", "m3", "m4", "m5", "m6", "m8"]
        assert await peer.quiet()
        tasks.cancel_scope.cancel()


async def test_giving_up_waits_for_nobody():
    """A request that was written is given up at once, also while the peer takes nothing."""
    asked = Asked()
    async with running() as peer, anyio.create_task_group() as tasks:
        tasks.start_soon(asked, peer, "a", {"text": LARGE * 5})
        await until(lambda: peer.sink.full)
        asked.scope.cancel()
        await asked.done.wait()
        assert peer.sink.full
        assert (await peer.hear())["method"] == "a"
        assert (await peer.hear())["method"] == "notifications/cancelled"


async def test_what_comes_in_is_not_read_while_what_goes_out_is_not_taken():
    """`holds`: a peer that only writes is stopped by its own pipe, and served to the last request once it reads."""
    served = 0
    count = 2000

    async def serve(ctx: object, method: str, params: Params) -> dict[str, Any]:
        nonlocal served
        served += 1
        return {"text": "x" * 10_000}

    async with running(serve, holds=True) as peer, anyio.create_task_group() as tasks:

        async def ask() -> None:
            for number in range(count):
                await peer.say({"id": number, "method": "a", "params": {"text": "x" * 1000}})

        tasks.start_soon(ask)
        await until(lambda: peer.sink.full)
        for _ in range(1000):
            await anyio.lowlevel.checkpoint()
        assert served < count / 2
        assert {(await peer.hear())["id"] for _ in range(count)} == set(range(count))


async def test_without_holding_reading_never_stops():
    """Answers and the end are seen although the peer takes nothing."""
    asked, blocked = Asked(), Asked()
    async with running() as peer, anyio.create_task_group() as tasks:
        tasks.start_soon(asked, peer)
        await peer.hear()
        tasks.start_soon(blocked, peer, "b", {"text": LARGE * 5})
        await until(lambda: peer.sink.full)
        await peer.say({"id": 1, "result": {}})
        await asked.done.wait()
        peer.leave()
        await blocked.done.wait()
    assert asked.result == {}
    assert blocked.error is not None
    assert blocked.error.code == CONNECTION_CLOSED


async def test_a_long_line_is_one_message_however_many_pieces_it_comes_in():
    """Both ways."""
    text = "\u00e9\n" * 3_000_000
    async with running() as peer, anyio.create_task_group() as tasks:
        tasks.start_soon(peer.say, {"id": 1, "method": "a", "params": {"text": text}})
        assert (await peer.hear())["result"]["params"]["text"] == text


# --- noise -----------------------------------------------------------------------------------------------------------

NOISE: list[bytes] = [
    b"log line",
    b"[1, 2]",
    b"{",
    b"{}",
    b"\xff\xfe",
    b'{"jsonrpc": "1.0", "id": 1, "method": "a"}',
    b'{"jsonrpc": "2.0", "id": 1}',
    b'{"jsonrpc": "2.0", "id": 1, "result": 3}',
    b'{"jsonrpc": "2.0", "id": 1, "error": {"code": "x"}}',
    b'{"jsonrpc": "2.0", "id": true, "method": "a"}',
    b'{"jsonrpc": "2.0", "id": 1.5, "method": "a"}',
    b'{"jsonrpc": "2.0", "id": 1, "method": 3}',
    b'{"jsonrpc": "2.0", "id": 1, "method": "a", "params": [1]}',
    b"[" * 100_000,
]


async def test_what_is_no_message_is_told_and_skipped():
    """With the line and a reason; blank lines are nothing at all."""
    async with running() as peer:
        for line in NOISE:
            await peer.say(line + b"\n", b"\n", b" \r\n")
        assert await peer.quiet()
        assert [line for line, _ in peer.noise] == NOISE
        assert all(problem for _, problem in peer.noise)


async def test_an_answer_behind_one_that_broke_off_is_taken():
    """Who waits for the one has an error, who waits for the other its result; what is neither stays noise."""
    broken, whole = Asked(), Asked()
    async with running() as peer, anyio.create_task_group() as tasks:
        tasks.start_soon(broken, peer)
        await peer.hear()
        tasks.start_soon(whole, peer)
        await peer.hear()
        await peer.say(b'{"jsonrpc": "2.0", "id": 1, "result": {"te', {"id": 2, "result": {"it": "is whole"}})
        await broken.done.wait()
        await whole.done.wait()
        await peer.say(b'{"jsonrpc": "2.0", "id": 1, "result": {"inside": {"jsonrpc": "2.0", "id": 2}\n')
        assert await peer.quiet()
        assert len(peer.noise) == 2
    assert broken.error is not None
    assert "no valid JSON-RPC response" in broken.error.message
    assert whole.result == {"it": "is whole"}


async def test_odd_messages_are_messages():
    """A byte that is no UTF-8, a byte order mark, an end of line as on Windows, the end of the input for one."""
    async with running(grace=DEADLINE) as peer:
        await peer.say(b'\xef\xbb\xbf{"jsonrpc": "2.0", "id": 1, "method": "caf\xe9"}\r\n')
        assert (await peer.hear())["result"]["method"] == "caf\ufffd"
        await peer.say(json.dumps({"jsonrpc": "2.0", "id": 2, "method": "last"}).encode())
        peer.leave()
        assert (await peer.hear())["id"] == 2


# --- the end ---------------------------------------------------------------------------------------------------------

Way = Callable[[Peer], Awaitable[None]]


async def by_its_end(peer: Peer) -> None:
    peer.leave()


async def by_not_reading(peer: Peer) -> None:
    peer.close()


@pytest.mark.parametrize("way", [by_its_end, by_not_reading])
async def test_at_the_end_who_waits_is_told(way: Way):
    """`over` is set, requests in the air and new ones get "Connection closed", and handlers are stopped."""
    asked, held = Asked(), Held()
    async with running(held, holds=True) as peer, anyio.create_task_group() as tasks:
        tasks.start_soon(asked, peer)
        await peer.hear()
        await peer.say({"id": 1, "method": "slow"})
        await until(lambda: held.started == ["slow"])
        await way(peer)
        await asked.done.wait()
        assert peer.dispatcher.over.is_set()
        assert asked.error is not None
        assert (asked.error.code, asked.error.message) == (CONNECTION_CLOSED, "Connection closed")
        await until(lambda: held.cancelled == ["slow"])
        with pytest.raises(MCPError, match="Connection closed"):
            await peer.dispatcher.send_raw_request("late", None)
        await peer.dispatcher.notify("late", None)


async def test_an_answer_that_breaks_off_with_the_input_is_none():
    """Who waits for it hears of the end."""
    asked = Asked()
    async with running() as peer, anyio.create_task_group() as tasks:
        tasks.start_soon(asked, peer)
        await peer.hear()
        await peer.say(b'{"jsonrpc": "2.0", "id": 1, "result": {"te')
        peer.leave()
        await asked.done.wait()
    assert asked.error is not None
    assert asked.error.message == "Connection closed"


async def test_where_reading_counts_a_peer_that_reads_no_more_may_still_answer():
    """Its answer arrives; only writing to it ends the connection."""
    asked = Asked()
    async with running() as peer, anyio.create_task_group() as tasks:
        tasks.start_soon(asked, peer)
        await peer.hear()
        peer.close()
        await until(lambda: peer.sink.lost)
        assert peer.dispatcher.deaf
        await peer.say({"id": 1, "result": {"still": "there"}})
        await asked.done.wait()
        assert not peer.dispatcher.over.is_set()
        with pytest.raises(MCPError, match="Connection closed"):
            await peer.dispatcher.send_raw_request("late", None)
        assert peer.dispatcher.over.is_set()
    assert asked.result == {"still": "there"}


async def test_what_is_due_at_the_end_of_the_input_is_answered():
    """All of it, however much; what was cancelled is not waited for, nor what is answered at its end alone."""
    held = Held()
    async with running(held, holds=True, grace=DEADLINE) as peer:
        await peer.say({"id": 1, "method": "slow"}, {"id": 2, "method": "subscriptions/listen"})
        await peer.say({"id": 3, "method": "given up"})
        await until(lambda: len(held.started) == 3)
        await peer.say({"method": "notifications/cancelled", "params": {"requestId": 3}})
        peer.leave()
        await until(lambda: "given up" in held.cancelled)
        assert not peer.dispatcher.over.is_set()
        held.release.set()
        assert (await peer.hear())["id"] == 1
        await peer.dispatcher.over.wait()


async def test_the_end_of_the_input_is_told_while_answers_are_due():
    """At once, so that nothing that waits for more of it keeps them; once, and also where no answer is waited for."""
    held, ends = Held(), list[bool]()
    async with running(held, grace=DEADLINE, on_end=lambda: ends.append(held.release.is_set())) as peer:
        await peer.say({"id": 1, "method": "slow"})
        await until(lambda: held.started == ["slow"])
        peer.leave()
        await until(lambda: bool(ends))
        assert not peer.dispatcher.over.is_set()
        held.release.set()
        assert (await peer.hear())["id"] == 1
        await peer.dispatcher.over.wait()
    async with running(on_end=lambda: ends.append(True)) as peer:
        peer.leave()
        await peer.dispatcher.over.wait()
    assert ends == [False, True]


async def test_what_was_answered_already_is_handled_and_not_answered_again():
    """Once, by an id as text or number; what fails or is stopped there is not answered either."""
    held = Held()
    async with running(held, answered=[1, "2", 3, 4]) as peer:
        await peer.say(*({"id": number, "method": f"m{number}"} for number in ("1", 2, 3)))
        await until(lambda: held.started == ["m1", "m2", "m3"])
        await peer.say({"method": "notifications/cancelled", "params": {"requestId": 3}})
        held.release.set()
        await until(lambda: not peer.dispatcher._in_work)
        assert await peer.quiet()
        await peer.say({"id": 1, "method": "again"})
        assert await peer.hear() == {"jsonrpc": "2.0", "id": 1, "result": {"method": "again"}}


async def test_an_error_that_was_told_already_is_not_told_again():
    """Whoever answered before us may have found it, too."""

    async def fail(ctx: object, method: str, params: Params) -> dict[str, Any]:
        if method == "ping":
            return {}
        raise MCPError(-5, "no")

    async with running(fail, answered=[1]) as peer:
        await peer.say({"id": 1, "method": "a"})
        await until(lambda: not peer.dispatcher._in_work)
        assert await peer.quiet()


async def test_who_stops_it_answers_nothing_a_second_time():
    """What is in work then, and was answered already, ends in silence."""
    held, peer = Held(), Peer(answered=[1])
    async with anyio.create_task_group() as tasks:
        await tasks.start(peer.dispatcher.run, held, ignore)
        await peer.say({"id": 1, "method": "slow"}, {"id": 2, "method": "slow"})
        await until(lambda: held.started == ["slow", "slow"])
        tasks.cancel_scope.cancel()
    assert (await peer.hear())["id"] == 2
    for close in (peer.leave, peer.close, peer.source.close, peer.sink.abort):
        close()
    await anyio.lowlevel.checkpoint()


async def test_a_large_last_answer_is_written_to_its_end():
    """As long as the peer takes some of it, the end waits."""

    async def large(ctx: object, method: str, params: Params) -> dict[str, Any]:
        return {"text": LARGE * 10}

    async with running(large, holds=True, grace=DEADLINE) as peer:
        await peer.say({"id": 1, "method": "a"})
        peer.leave()
        await until(lambda: peer.sink.full)
        assert len((await peer.hear())["result"]["text"]) == len(LARGE * 10)
        await peer.dispatcher.over.wait()


async def test_who_stops_it_answers_what_is_in_work_with_an_error():
    """A peer that is still there is not left waiting."""
    held = Held()
    peer = Peer()
    async with anyio.create_task_group() as tasks:
        await tasks.start(peer.dispatcher.run, held, ignore)
        await peer.say({"id": 1, "method": "slow"})
        await until(lambda: held.started == ["slow"])
        tasks.cancel_scope.cancel()
    error = (await peer.hear())["error"]
    assert (error["code"], error["message"]) == (CONNECTION_CLOSED, STOPPED.message)
    for close in (peer.leave, peer.close, peer.source.close, peer.sink.abort):
        close()
    await anyio.lowlevel.checkpoint()


async def test_while_it_is_being_stopped_it_is_over_for_who_asks():
    """That is no error of the program: what is in work then may take its time to end."""
    started, ending, end = anyio.Event(), anyio.Event(), anyio.Event()

    async def slow(ctx: object, method: str, params: Params) -> dict[str, Any]:
        started.set()
        try:
            await anyio.sleep_forever()
        finally:
            ending.set()
            with anyio.CancelScope(shield=True):
                await end.wait()
        return {}

    peer, stop = Peer(), anyio.CancelScope()

    async def run() -> None:
        with stop:
            await peer.dispatcher.run(slow, ignore)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        await peer.say({"id": 1, "method": "slow"})
        await started.wait()
        stop.cancel()
        await ending.wait()
        try:
            with pytest.raises(MCPError, match="Connection closed"):
                await peer.dispatcher.send_raw_request("a", None)
        finally:
            end.set()
    for close in (peer.leave, peer.close, peer.source.close, peer.sink.abort):
        close()
    await anyio.lowlevel.checkpoint()
