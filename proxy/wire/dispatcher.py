"""The SDK's `Dispatcher` on lines of JSON-RPC: requests and their answers find each other, both ways."""

import asyncio
import itertools
import re
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from math import inf
from time import perf_counter
from typing import Any, Final, TypeAlias, cast

import anyio
import anyio.abc
import structlog
from mcp import MCPError
from mcp.shared.dispatcher import (
    CallOptions,
    Dispatcher,
    OnNotify,
    OnNotifyIntercept,
    OnRequest,
    ProgressFnT,
    coerce_request_id,
    run_notify_intercept,
)
from mcp.shared.exceptions import NoBackChannelError
from mcp.shared.jsonrpc_dispatcher import (
    cancelled_request_id_from_params,
    handler_exception_to_error_data,
    progress_token_from_params,
)
from mcp.shared.message import MessageMetadata
from mcp.shared.transport_context import TransportContext
from mcp_types import (
    CONNECTION_CLOSED,
    INTERNAL_ERROR,
    INVALID_REQUEST,
    REQUEST_TIMEOUT,
    ErrorData,
    ProgressToken,
    RequestId,
)
from pydantic import ValidationError

from proxy.core.errors import too_large, too_many_values
from proxy.core.json_cost import MAX_JSON_VALUES, UNCOUNTED_BYTES, has_more_values, may_have_more_values
from proxy.wire.codec import dumps, loads, result_line
from proxy.wire.ids import NO_BATCHES, id_fault, id_of, with_integer_ids
from proxy.wire.lines import LineBuffer
from proxy.wire.pipes import Sink, Source
from proxy.wire.turns import TURN_S, Allowance, Turns

log = structlog.stdlib.get_logger("proxy.wire")

Json: TypeAlias = dict[str, Any]
OnNoise: TypeAlias = Callable[[bytes, str], None]
"""Told of each line that is no message of JSON-RPC, and why."""

ASKING: Final = TransportContext(kind="jsonrpc", can_send_request=True)
TELLING: Final = TransportContext(kind="jsonrpc", can_send_request=False)
CLOSED: Final = ErrorData(code=CONNECTION_CLOSED, message="Connection closed")
STOPPED: Final = ErrorData(code=CONNECTION_CLOSED, message="mcp-skill-proxy stopped before this request was answered")
"""What a peer is told whose request is in work when the connection is ended here."""
NO_ANSWER: Final = ErrorData(code=INTERNAL_ERROR, message="What the server answered is no valid JSON-RPC response")
_ANSWER: Final = re.compile(
    rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*"id"\s*:\s*(\d{1,18})|"id"\s*:\s*(\d{1,18}))\s*,'
)
"""The beginning of a response, also of one that cannot be read: who waits for it is told."""
_NEXT: Final = re.compile(rb'\{\s*"jsonrpc"\s*:')
"""The beginning of a message, behind one that broke off before its end of line."""
MAX_REQUESTS_IN_WORK: Final = 1000
"""Requests of one server that are in work at a time; others are refused."""
TOO_MANY: Final = ErrorData(code=INTERNAL_ERROR, message="Too many requests at a time")
MAX_BATCH_MESSAGES: Final = 1000
"""Messages of a batch; a larger one is refused as a whole."""
MAX_NOISE_LINES: Final = 1000
"""Lines in a row that are not JSON-RPC after which a server is taken for something else."""
ENDLESS: Final = frozenset({"subscriptions/listen"})
"""Requests that are answered when they end: at the end of the input no answer is due."""


class _Over(Exception):
    """Ends the tasks of a connection that is over."""


class LineContext:
    """One message of the peer: what the SDK calls its dispatch context."""

    __slots__ = ("_dispatcher", "_token", "_wanted", "answered", "cancelled", "closed", "method", "request_id", "task")

    def __init__(
        self, dispatcher: "LineDispatcher", method: str, request_id: RequestId | None, token: ProgressToken | None
    ) -> None:
        self._dispatcher = dispatcher
        self._token = token
        self._wanted: anyio.Event | None = None
        self.method = method
        self.request_id = request_id
        self.answered = False
        self.cancelled = False
        self.closed = False
        self.task: asyncio.Task[None] | None = None

    @property
    def message_metadata(self) -> MessageMetadata:
        """Nothing: lines carry none."""
        return None

    @property
    def transport(self) -> TransportContext:
        """What the connection can do."""
        return ASKING if self._dispatcher.asks else TELLING

    @property
    def can_send_request(self) -> bool:
        """Whether the peer can be asked something while this is in work."""
        return self._dispatcher.asks and not self.closed

    @property
    def cancel_requested(self) -> anyio.Event:
        """Set when the peer cancels this request."""
        if self._wanted is None:
            self._wanted = anyio.Event()
            if self.cancelled:
                self._wanted.set()
        return self._wanted

    def cancel(self) -> None:
        """The peer wants no answer any more."""
        self.cancelled = True
        if self._wanted is not None:
            self._wanted.set()
        if self.task is not None:
            self.task.cancel()

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> Json:
        """Ask the peer; see `LineDispatcher.send_raw_request`.

        Raises:
            NoBackChannelError: (besides) nothing can be asked, or no longer.
        """
        if not self.can_send_request:
            raise NoBackChannelError(method)
        return await self._dispatcher.send_raw_request(method, params, opts)

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None) -> None:
        """Tell the peer, as long as this is in work."""
        if not self.closed:
            await self._dispatcher.notify(method, params, opts)

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Tell the peer how far its request is, if it has asked to be told."""
        if self._token is not None:
            known = {"total": total, "message": message}
            told = {name: value for name, value in known.items() if value is not None}
            await self.notify("notifications/progress", {"progressToken": self._token, "progress": progress, **told})


class _Pending:
    """A request to the peer that waits for its answer; `written`: the peer may know of it."""

    __slots__ = ("answer", "on_progress", "written")

    def __init__(self, on_progress: ProgressFnT | None) -> None:
        self.answer: asyncio.Future[Json | ErrorData] = asyncio.get_running_loop().create_future()
        self.on_progress = on_progress
        self.written = False

    def settle(self, outcome: Json | ErrorData) -> None:
        """Wake who waits."""
        if not self.answer.done():
            self.answer.set_result(outcome)


class LineDispatcher(Dispatcher[TransportContext]):
    """Reads messages from `source` and writes them to `sink`, which stay the owner's to close.

    `over` is set when the connection is over. What the other fields say:

    * `asks`: the peer may be asked something while its own request is in work.
    * `inline_methods`: while a request of these is in work, nothing that came after it is looked at.
    * `holds`: nothing is read while the peer does not take what is written, and when it never will again the
      connection is over. Without it reading never stops, and ends the connection alone.
    * `grace`: seconds after the end of the input for answers that are due.
    * `answered`: the ids of requests at the beginning of the input that have been answered already: they are handled
      here as well, so that what follows finds everything as it should be, but their answers are not sent.
    * `on_end`: called when the input has ended.
    * `limit`: most bytes of one line.
    * `refusal`: what is answered to a longer line, the rest of which is skipped. Without it such a line ends the
      connection, as do one with too many values and `MAX_NOISE_LINES` in a row that are not JSON-RPC; `fault` says so.
    * `turns`: shared with the peers that it takes turns with, for what none of its requests has asked for.
    * `unwanted`: whether a line need not be parsed; asked while the peer sends more than its allowance.
    """

    def __init__(  # noqa: PLR0913 - clients and servers differ in each
        self,
        source: Source,
        sink: Sink,
        on_noise: OnNoise,
        *,
        inline_methods: frozenset[str] = frozenset(),
        holds: bool = False,
        grace: float = 0.0,
        answered: Iterable[RequestId] = (),
        on_end: Callable[[], None] = lambda: None,
        limit: float = inf,
        refusal: bytes = b"",
        turns: Turns | None = None,
        unwanted: Callable[[bytes], bool] = lambda _line: False,
    ) -> None:
        self.over = anyio.Event()
        self.asks = True
        self.fault = ""
        self.on_late_answer: Callable[[RequestId], None] = lambda _id: None
        """Called with the id of an answer that nobody waits for: that to a request that was given up."""
        self._source = source
        self._sink = sink
        self._on_noise = on_noise
        self._inline_methods = inline_methods
        self._holds = holds
        self._grace = grace
        self._answered = [coerce_request_id(request_id) for request_id in answered]
        self._on_end = on_end
        self._limit = limit
        self._refusal = refusal
        self._turns = turns
        self._unwanted = unwanted
        self._allowance = Allowance()
        self._buffer = LineBuffer(limit)
        self._untaken: deque[bytes] = deque()
        self._parked = False
        self._queued = False
        self._asked_for = False
        self._noise_lines = 0
        self._input_over = False
        self._ids = itertools.count(1)
        self._pending: dict[RequestId, _Pending] = {}
        self._in_work: dict[RequestId, LineContext] = {}
        self._settled: asyncio.Event | None = None
        self._ended = asyncio.Event()
        self._tasks: asyncio.TaskGroup
        self._running = False
        self._on_request: OnRequest
        self._on_notify: OnNotify
        self._on_notify_intercept: OnNotifyIntercept | None = None

    @property
    def deaf(self) -> bool:
        """Whether the peer reads no more; it may still write."""
        return self._sink.lost

    async def run(
        self,
        on_request: OnRequest,
        on_notify: OnNotify,
        on_notify_intercept: OnNotifyIntercept | None = None,
        *,
        task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        """Handle what the peer sends until the connection is over; once."""
        self._on_request, self._on_notify, self._on_notify_intercept = on_request, on_notify, on_notify_intercept
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks, self._running = tasks, True
                try:
                    await self._sink.start(self._output_lost, self._regulate)
                    await self._source.start(self._feed, self._input_ended)
                    task_status.started()
                    await self._ended.wait()
                    await self._last_answers()
                    self._close()
                finally:
                    self._running = False
                    self._ended.set()
                raise _Over  # noqa: TRY301 - a task group ends its tasks when something is raised, and no other way
        except* _Over:
            pass
        finally:
            self._close()

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> Json:
        """Send a request and return its result as it came; waits while the peer does not take what is written.

        Given up before it is written, it is never written; afterwards the peer is told, which waits for nothing.

        Raises:
            MCPError: the peer's error; REQUEST_TIMEOUT; CONNECTION_CLOSED when the connection is over.
            RuntimeError: before `run`.
            ValueError: `params` are no JSON, or the request id of `opts` is in use.
        """
        if self.over.is_set() or (self._ended.is_set() and not self._running):
            raise MCPError.from_error_data(CLOSED)
        if not self._running:
            raise RuntimeError("LineDispatcher.send_raw_request called before run()")
        options = opts or CallOptions()
        timeout, pending = options.get("timeout"), _Pending(options.get("on_progress"))
        request_id = self._new_id(options.get("request_id"))
        if pending.on_progress is not None:
            params = dict(params or {})
            params["_meta"] = {**(params.get("_meta") or {}), "progressToken": request_id}
        line = _line("method", method, params or None, request_id)
        key = coerce_request_id(request_id)
        self._pending[key] = pending
        try:
            if timeout is None:
                outcome = await self._exchange(line, pending)
            else:
                with anyio.fail_after(timeout):
                    outcome = await self._exchange(line, pending)
        except asyncio.CancelledError:
            self._abandon(request_id, pending, options, "caller cancelled")
            raise
        except TimeoutError:
            self._abandon(request_id, pending, options, f"timed out after {timeout}s")
            raise MCPError(REQUEST_TIMEOUT, f"Request {method!r} timed out") from None
        finally:
            del self._pending[key]
        if isinstance(outcome, ErrorData):
            raise MCPError.from_error_data(outcome)
        return outcome

    async def notify(
        self,
        method: str,
        params: Mapping[str, Any] | None,
        opts: CallOptions | None = None,  # noqa: ARG002 - the protocol's: nothing of it concerns lines
    ) -> None:
        """Send a notification; into nothing when the connection is over.

        Raises:
            ValueError: `params` are no JSON.
        """
        await self._send(_line("method", method, params))

    # --- out

    def _new_id(self, wanted: RequestId | None) -> RequestId:
        if wanted is None:
            return next(number for number in self._ids if number not in self._pending)
        if coerce_request_id(wanted) in self._pending:
            raise ValueError(f"request id {wanted!r} is already in flight")
        return wanted

    async def _exchange(self, line: bytes, pending: _Pending) -> Json | ErrorData:
        if self._sink.crowded:
            await self._sink.room()
        pending.written = True
        self._write(line)
        return await pending.answer

    def _abandon(self, request_id: RequestId, pending: _Pending, options: CallOptions, reason: str) -> None:
        answered = pending.answer.done() and not pending.answer.cancelled()  # a cancelled waiter cancels it
        if pending.written and not answered and options.get("cancel_on_abandon", True):
            self._write(_line("method", "notifications/cancelled", {"requestId": request_id, "reason": reason}))

    async def _send(self, line: bytes) -> None:
        if self._sink.crowded:
            await self._sink.room()
        self._write(line)

    def _write(self, line: bytes) -> None:
        """Write now, whatever waits; finding nobody there is the end."""
        if self._sink.lost:
            self._end()
        elif not self.over.is_set():
            self._sink.write(line, more=len(self._in_work) + len(self._pending) > 1)

    # --- in

    def _feed(self, data: bytes) -> None:
        if self._running and not self.fault:  # or else a peer that ends may still say what it likes
            begun = 0.0 if self._turns is None else perf_counter()
            lines = self._buffer.feed(data)
            if begun and len(lines) > 1:
                self._charge(begun)
            self._untaken += lines
            if not self._parked and not self._queued:
                self._take_lines()

    def _take_lines(self, until: float = 0.0) -> None:
        """Take what there is; a peer that has spent its allowance waits for its next turn once `until` has passed."""
        while self._untaken and not self._parked and not self._queued:
            if self._turns is None:
                self._take_line(self._untaken.popleft())
                continue
            begun = perf_counter()
            spent = self._allowance.spent(begun)
            if spent and begun >= until and not self._answers(self._untaken[0]):
                self._queue()
                return
            line = self._untaken.popleft()
            self._asked_for = False
            if not spent or not self._unwanted(line):
                self._take_line(line)
            if not self._asked_for:
                self._charge(begun)

    def _charge(self, begun: float) -> None:
        """What was done since `begun` was not asked for."""
        now = perf_counter()
        self._allowance.spend(now - begun, now)

    def _queue(self) -> None:
        """Wait for a turn."""
        if self._turns is not None:
            self._queued = True
            self._regulate()
            self._turns.ask(self._take_turn)

    def _take_turn(self) -> None:
        self._queued = False
        if self._running:
            self._take_lines(perf_counter() + TURN_S)
        if not self._queued:
            self._regulate()
            if self._input_over:
                self._input_done()

    def _answers(self, line: bytes) -> bool:
        """Whether a line begins as the answer to a request that waits for it."""
        answered = _ANSWER.match(line)
        return answered is not None and int(answered[1] or answered[2]) in self._pending

    def _take_line(self, line: bytes) -> None:
        if len(line) > self._limit:
            self._take_too_long(line)
            return
        if not self._refusal and len(line) > UNCOUNTED_BYTES and may_have_more_values(line, MAX_JSON_VALUES):
            self._queued = True
            self._regulate()
            self._tasks.create_task(self._look_closer(line))
            return
        self._take_sound(line)

    async def _look_closer(self, line: bytes) -> None:
        """Take a line that may have too many values, once they are counted; those behind it wait."""
        if await anyio.to_thread.run_sync(has_more_values, line, MAX_JSON_VALUES, abandon_on_cancel=True):
            self._fail(too_many_values(MAX_JSON_VALUES))
        else:
            begun, self._asked_for = perf_counter(), False
            self._take_sound(line)
            if not self._asked_for:
                self._charge(begun)
        self._take_turn()

    def _take_sound(self, line: bytes) -> None:
        try:
            self._take_message(loads(line))
            self._noise_lines = 0
        except ValueError as problem:
            self._take_noise(line, str(problem))

    def _take_too_long(self, line: bytes) -> None:
        if self._refusal:
            self._on_noise(line[:80], "it is longer than a message may be")
            self._write(self._refusal)
        else:
            self._fail(too_large(int(self._limit)))

    def _take_noise(self, line: bytes, problem: str) -> None:
        if line.strip():
            self._on_noise(line, problem)
        if (answered := _ANSWER.match(line)) is not None:
            pending = self._pending.get(int(answered[1] or answered[2]))
            if pending is not None and not self._input_over:  # else how it ended says more
                pending.settle(NO_ANSWER)
            if (behind := _NEXT.search(line, answered.end())) is not None:
                with suppress(ValueError):
                    self._take_message(loads(line[behind.start() :]))
        self._noise_lines += 1
        if self._noise_lines >= MAX_NOISE_LINES and not self._refusal:
            self._fail(f"it wrote {MAX_NOISE_LINES:,} lines in a row that are not JSON-RPC")

    def _fail(self, fault: str) -> None:
        """End a connection on which nothing sensible is to be expected any more."""
        self.fault = fault
        self._untaken.clear()
        self._source.pause()
        self._end()

    def _take_message(self, said: object) -> None:
        if isinstance(said, list):
            self._take_batch(cast("list[object]", said))
            return
        if not isinstance(said, dict):
            raise ValueError("it is no object")  # noqa: TRY004 - as whatever else is no message
        message = with_integer_ids(cast("Json", said))
        if fault := _fault_of(message):
            if self._refusal and "method" in message and "id" in message:
                self._refuse(id_of(message["id"]), fault)
            raise ValueError(fault)
        method, request_id = message.get("method"), id_of(message.get("id"))
        if method is None:
            self._take_answer(message)
        elif request_id is None:
            self._take_notification(method, message.get("params"))
        else:
            self._take_request(request_id, method, message.get("params"))

    def _take_batch(self, messages: list[object]) -> None:
        """Take what a server sends in a batch (2025-03-26) one by one; a client is told that each is to come alone."""
        if self._refusal:
            each = [cast("Json", one) for one in messages if isinstance(one, dict)]
            ids = [request_id for one in each if "method" in one and (request_id := id_of(one.get("id"))) is not None]
            for request_id in ids if 0 < len(ids) <= MAX_BATCH_MESSAGES else [None]:
                self._refuse(request_id, NO_BATCHES)
            raise ValueError("it is a batch")
        if len(messages) > MAX_BATCH_MESSAGES:
            raise ValueError(f"it is a batch of more than {MAX_BATCH_MESSAGES} messages")
        taken = 0
        for one in messages:
            with suppress(ValueError):  # what is no message costs itself alone
                self._take_message(None if isinstance(one, list) else one)  # there is no batch in a batch
                taken += 1
        if not taken:
            raise ValueError("it is a batch without a message")

    def _refuse(self, request_id: RequestId | None, fault: str) -> None:
        """Tell a client that what it has sent is not a request; without an id where it cannot be told of which."""
        error = {"code": INVALID_REQUEST, "message": fault}
        self._write(dumps({"jsonrpc": "2.0", "id": request_id, "error": error}) + b"\n")

    def _take_answer(self, message: Json) -> None:
        result, request_id = message.get("result"), id_of(message.get("id"))
        pending = None if request_id is None else self._pending.get(coerce_request_id(request_id))
        if isinstance(result, dict):
            outcome = cast("Json", result)
        elif (refusal := _refusal(message.get("error"))) is not None:
            outcome = refusal
        elif pending is not None:
            outcome = NO_ANSWER
        else:
            raise ValueError("it has neither a method nor a result nor an error")
        if pending is not None:
            self._asked_for = True
            pending.settle(outcome)
        elif request_id is not None:
            self.on_late_answer(coerce_request_id(request_id))

    def _take_request(self, request_id: RequestId, method: str, params: Json | None) -> None:
        if len(self._in_work) >= MAX_REQUESTS_IN_WORK and not self._refusal:
            if not self._sink.full:  # else it does not read its answers either
                self._write(_line("error", _error(TOO_MANY), request_id=request_id))
            return
        context = LineContext(self, method, request_id, progress_token_from_params(params))
        key = coerce_request_id(request_id)
        if key in self._answered:
            self._answered.remove(key)
            context.answered = True
        context.task = self._tasks.create_task(self._serve(context, params))
        self._in_work[key] = context
        if method in self._inline_methods:
            self._parked = True
            self._regulate()

    def _take_notification(self, method: str, params: Json | None) -> None:
        if method == "notifications/cancelled":
            self._take_cancellation(params)
        elif method == "notifications/progress" and params is not None:
            self._take_progress(params)
        if not run_notify_intercept(self._on_notify_intercept, method, params):
            context = LineContext(self, method, None, None)
            self._tasks.create_task(_contained(self._on_notify(context, method, params), method))

    def _take_cancellation(self, params: Json | None) -> None:
        request_id = cancelled_request_id_from_params(params)
        context = None if request_id is None else self._in_work.pop(coerce_request_id(request_id), None)
        if context is not None:
            context.cancel()
            self._settle()

    def _take_progress(self, params: Json) -> None:
        token, progress = id_of(params.get("progressToken")), _number(params.get("progress"))
        pending = None if token is None else self._pending.get(coerce_request_id(token))
        if progress is not None and pending is not None and pending.on_progress is not None:
            total, message = _number(params.get("total")), params.get("message")
            told = pending.on_progress(progress, total, message if isinstance(message, str) else None)
            self._tasks.create_task(_contained(told, "notifications/progress"))

    async def _serve(self, context: LineContext, params: Json | None) -> None:
        try:
            line = await self._answer(context, params)
            context.closed = True
            if not context.cancelled and not context.answered:
                await self._send(line)
        except asyncio.CancelledError:
            context.closed = True
            if not context.cancelled:
                if not context.answered:
                    self._write(_line("error", _error(STOPPED), request_id=context.request_id))
                raise
        finally:
            key = coerce_request_id(cast("RequestId", context.request_id))
            if self._in_work.get(key) is context:  # a peer may have used the id again
                del self._in_work[key]
            if self._parked and context.method in self._inline_methods:
                self._unpark()
            self._settle()

    async def _answer(self, context: LineContext, params: Json | None) -> bytes:
        try:
            result = await self._on_request(context, context.method, params)
            return result_line(context.request_id, result)
        except Exception as problem:  # boundary: whatever a handler raises is an answer
            error = handler_exception_to_error_data(problem)
            if error is None:
                log.exception("request.failed", method=context.method)
                error = ErrorData(code=0, message=str(problem))
            return _line("error", _error(error), request_id=context.request_id)

    # --- the flow, and the end

    def _regulate(self) -> None:
        """Read or do not read, by what there is to wait for."""
        if self._parked or self._queued or self.fault or (self._holds and self._sink.full):
            self._source.pause()
        else:
            self._source.resume()

    def _unpark(self) -> None:
        self._parked = False
        if self._running:
            self._take_lines()
        self._regulate()

    def _settle(self) -> None:
        if self._settled is not None:
            self._settled.set()

    def _input_ended(self) -> None:
        self._input_over = True
        self._feed(b"\n")  # the end of the input ends the last line
        self._on_end()
        if not self._queued:
            self._input_done()

    def _input_done(self) -> None:
        """All lines of an input that has ended were taken."""
        self._ended.set()
        if not self._grace:
            self._close()

    def _output_lost(self, problem: Exception | None) -> None:
        if self._holds or problem is not None:
            self._end()

    def _end(self) -> None:
        self._ended.set()
        self._close()
        self._settle()

    async def _last_answers(self) -> None:
        """Wait for what is due; what the peer is still taking is waited for as long as it takes some."""
        with anyio.move_on_after(self._grace):
            while not self.over.is_set() and any(context.method not in ENDLESS for context in self._in_work.values()):
                self._settled = asyncio.Event()
                await self._settled.wait()
        if self._grace:
            await self._sink.drained(self._grace)

    def _close(self) -> None:
        self.over.set()
        for pending in self._pending.values():
            pending.settle(CLOSED)


def _fault_of(message: Json) -> str:
    """Why an object is not a message of JSON-RPC; empty where it is one, or an answer that has its own place."""
    if message.get("jsonrpc") != "2.0":
        return 'It has no "jsonrpc": "2.0"'
    if message.get("method") is None:
        return ""
    if not isinstance(message["method"], str) or not isinstance(message.get("params"), dict | None):
        return "Its method is not text, or its params are not an object"
    return id_fault(message)


def _line(kind: str, content: object, params: object = None, request_id: RequestId | None = None) -> bytes:
    """One message: a `method` with its params, or an `error`."""
    message: Json = {"jsonrpc": "2.0"}
    if request_id is not None:
        message["id"] = request_id
    message[kind] = content
    if params is not None:
        message["params"] = params
    return dumps(message) + b"\n"


def _error(error: ErrorData) -> Json:
    known = {"code": error.code, "message": error.message}
    return known if error.data is None else {**known, "data": error.data}


def _refusal(error: object) -> ErrorData | None:
    try:
        return ErrorData.model_validate(error)
    except ValidationError:
        return None


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


async def _contained(work: Awaitable[None], method: str) -> None:
    """Keep what a handler of notifications raises from the others."""
    try:
        await work
    except Exception:  # boundary: a notification that cannot be handled costs itself alone
        log.exception("notification.failed", method=method)
