"""Streamable HTTP towards a server (2025-11-25 and 2026-07-28, basic/transports): one request is one exchange.

An exchange runs in the task of who makes the request, and ends with an `Ending`; `core.exchange` says what that means.
"""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast

import anyio
import anyio.abc
import httpx2
import structlog
from mcp import MCPError
from mcp.shared.dispatcher import (
    CallOptions,
    DispatchContext,
    Dispatcher,
    OnNotify,
    OnNotifyIntercept,
    OnRequest,
    coerce_request_id,
    run_notify_intercept,
)
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from mcp.shared.jsonrpc_dispatcher import cancelled_request_id_from_params, handler_exception_to_error_data
from mcp.shared.transport_context import TransportContext
from mcp_types import INTERNAL_ERROR, METHOD_NOT_FOUND, ErrorData, RequestId
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from proxy.core.exchange import (
    MAX_ASKED_PAUSE_S,
    MAX_FAILED_POLLS,
    Arrival,
    Body,
    Ending,
    Kind,
    Verdict,
    judge,
    poll_pause,
    stream_pause,
)
from proxy.core.inventory import Json, is_json
from proxy.upstream.bounds import BadAnswer
from proxy.upstream.delivery import HttpClient, delivery
from proxy.upstream.events import EventStream
from proxy.upstream.greeting import answered, refused
from proxy.wire.codec import dumps, loads, result_line
from proxy.wire.dispatcher import CLOSED, MAX_BATCH_MESSAGES, MAX_REQUESTS_IN_WORK, TOO_MANY
from proxy.wire.ids import id_of, with_integer_ids

log = structlog.stdlib.get_logger("proxy.upstream")

TELL_WAIT_S: Final = 1.5
"""Seconds for the server to take a message that it answers nothing to, before whatever comes after it goes out."""
LONG_STREAM_S: Final = 10.0
"""Seconds after which the server's own stream has been worth opening, also where it has said nothing."""
MAX_TEXT_BYTES: Final = 64 * 1024
"""Bytes of an answer that is read for what it says."""
_ACCEPT: Final = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
_ACCEPT_EVENTS: Final = {"accept": "text/event-stream", "cache-control": "no-store"}
_SESSION_HEADER: Final = "mcp-session-id"
_NOT_SENT: Final = (
    httpx2.ConnectError,
    httpx2.ConnectTimeout,
    httpx2.LocalProtocolError,
    httpx2.ProxyError,
    httpx2.UnsupportedProtocol,
)
"""Failures before anything has reached the server."""
_CONTEXT: Final = cast("DispatchContext[TransportContext]", None)
"""What the relay is given with each message of the server: it looks at nothing of it."""


@dataclass(frozen=True)
class Outcome:
    """How one exchange ended, and what came of it."""

    ending: Ending
    result: dict[str, Any] = field(default_factory=dict[str, Any])
    error: ErrorData | None = None
    text: str = ""
    """What the server has answered instead of a response."""
    cause: Exception | None = None
    """Why the answer was not read, or did not come."""

    @property
    def reason(self) -> str:
        """Why there is no response, in the proxy's own words."""
        ending = self.ending
        if ending.arrival != "answered":
            return "it refuses connections" if ending.arrival == "not sent" else "the connection broke off"
        if not ending.is_success and judge(ending).ends_connection:
            return "it no longer knows this session"
        if not ending.is_success:
            return refused(ending.status)
        if ending.body == "past bounds":
            return str(self.cause)
        if ending.body == "broken off":
            return "the answer broke off"
        if ending.body == "empty":
            return f"{answered(ending.status)} without a response"
        return "its answer is no valid JSON-RPC response"


class ExchangeFailed(MCPError):
    """An exchange without a result: the server's own error, where `verdict` says so, else what stands for it."""

    def __init__(self, outcome: Outcome) -> None:
        error = outcome.error
        if error is None:
            unknown = outcome.ending.status == 404  # noqa: PLR2004 - HTTP's own
            error = ErrorData(code=METHOD_NOT_FOUND if unknown else INTERNAL_ERROR, message=outcome.reason)
        super().__init__(error.code, error.message, error.data)
        self.outcome = outcome
        self.verdict: Verdict = judge(outcome.ending)


@dataclass
class _Asked:
    """A message that was sent, and for a request, what has been heard of its response."""

    request_id: RequestId | None = None
    modern: bool = False
    in_session: bool = False
    events: EventStream = field(default_factory=EventStream)
    noise: bool = False
    """Something was heard that is not JSON-RPC."""

    def ending(self, kind: Kind = "request", **members: Any) -> Ending:  # noqa: ANN401 - those of `Ending`
        return Ending(kind=kind, in_session=self.in_session, **members)


class HttpDispatcher(Dispatcher[TransportContext]):
    """Requests to the server at `url` by way of `client`, and what it says of its own accord.

    `over` is set when the connection is of no use any more; `fault` says why.
    """

    def __init__(self, client: HttpClient, url: str) -> None:
        self.over = anyio.Event()
        self.fault = ""
        self._client = client
        self._url = url
        self._ids = itertools.count(1)
        self._session_id: str | None = None
        self._version: str | None = None
        self._in_work: set[anyio.CancelScope] = set()
        self._serving: dict[RequestId, anyio.CancelScope] = {}
        self._tasks: anyio.abc.TaskGroup | None = None
        self._on_request: OnRequest
        self._on_notify: OnNotify
        self._on_notify_intercept: OnNotifyIntercept | None = None

    async def run(
        self,
        on_request: OnRequest,
        on_notify: OnNotify,
        on_notify_intercept: OnNotifyIntercept | None = None,
        *,
        task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        """Handle what the server sends until cancelled, which ends the requests that are in work; once."""
        self._on_request, self._on_notify, self._on_notify_intercept = on_request, on_notify, on_notify_intercept
        try:
            async with anyio.create_task_group() as self._tasks:
                task_status.started()
                await anyio.sleep_forever()
        finally:
            self._tasks = None
            self.over.set()
            for scope in self._in_work:
                scope.cancel()

    # --- out

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        """Send a request and return its result as it came; of `opts`, ids, headers and `cancel_on_abandon` count.

        Raises:
            ExchangeFailed: there is no result.
            MCPError: CONNECTION_CLOSED: `run` has ended, or has not begun.
            ValueError: `params` are not JSON.
        """
        if self._tasks is None:
            raise MCPError.from_error_data(CLOSED)
        options = opts or CallOptions()
        asked = self._asked(method, options.get("headers"), options.get("request_id"))
        message = _message(method, params, asked.request_id)
        outcome: Outcome | None = None
        scope = anyio.CancelScope()
        self._in_work.add(scope)
        try:
            with scope:
                outcome = await self._exchange(asked, method, message, options.get("headers"))
        except anyio.get_cancelled_exc_class():
            if not asked.modern and options.get("cancel_on_abandon", True):
                self._abandon(asked)
            raise
        finally:
            self._in_work.discard(scope)
        if outcome is None:
            raise MCPError.from_error_data(CLOSED)
        if judge(outcome.ending).outcome == "result":
            return outcome.result
        failed = ExchangeFailed(outcome)
        if failed.verdict.ends_connection:
            self._end(outcome.reason)
        raise failed

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None) -> None:
        """Send a notification; what the server answers is of no matter, and not waited for long.

        Raises:
            ValueError: `params` are not JSON.
        """
        headers = (opts or CallOptions()).get("headers")
        self._asked(method, headers, None)
        message, told = _message(method, params), anyio.Event()
        if self._tasks is None:
            return

        async def tell() -> None:
            try:
                await self._tell(message, headers)
            finally:
                told.set()

        self._tasks.start_soon(tell)
        with anyio.move_on_after(TELL_WAIT_S):
            await told.wait()
        if method == "notifications/initialized" and self._session_id is not None:
            self._tasks.start_soon(self._listen)

    async def farewell(self) -> None:
        """End the session that the server opened, if any (2025-11-25, session management)."""
        if self._session_id is not None:
            with anyio.move_on_after(TELL_WAIT_S, shield=True):
                try:
                    response = await self._open("DELETE", {})
                    await response.aclose()
                except httpx2.HTTPError as error:
                    log.debug("server.session_not_ended", reason=type(error).__name__)

    def _asked(self, method: str, headers: Mapping[str, str] | None, request_id: RequestId | None) -> _Asked:
        """Take note of what is about to be sent: the revision that it speaks holds for what carries none."""
        if method == "initialize":
            self._version = None
        elif headers is not None:
            self._version = headers.get(MCP_PROTOCOL_VERSION_HEADER, self._version)
        modern = self._version in MODERN_PROTOCOL_VERSIONS
        in_session = self._session_id is not None and not modern
        return _Asked(next(self._ids) if request_id is None else request_id, modern, in_session)

    def _abandon(self, asked: _Asked) -> None:
        """Tell the server that nobody waits for a response any more (closing its stream says nothing before 2026)."""
        if self._tasks is not None:
            params = {"requestId": asked.request_id, "reason": "caller cancelled"}
            self._tasks.start_soon(self._tell_in_any_case, _message("notifications/cancelled", params))

    async def _tell_in_any_case(self, message: bytes) -> None:
        """Send what the server has to hear although the connection may be ending."""
        with anyio.move_on_after(TELL_WAIT_S, shield=True):
            await self._tell(message)

    async def _tell(self, message: bytes, headers: Mapping[str, str] | None = None) -> None:
        """Send a message that no response comes to; that it is refused harms nobody."""
        try:
            response = await self._open("POST", {**_ACCEPT, **(headers or {})}, message)
            try:
                if not response.is_success:
                    log.debug("server.message_refused", status=response.status_code)
                elif not _is_event_stream(response):
                    await response.aread()
            finally:
                await response.aclose()
        except (httpx2.HTTPError, httpx2.StreamError) as error:
            log.debug("server.message_not_sent", reason=type(error).__name__)

    async def _open(self, method: str, headers: Mapping[str, str], content: bytes | None = None) -> httpx2.Response:
        """Send with the headers of the session and the revision; as `HttpClient.open`."""
        sent = dict(headers)
        if self._session_id is not None and self._version not in MODERN_PROTOCOL_VERSIONS:
            sent[_SESSION_HEADER] = self._session_id
        if self._version is not None:
            sent.setdefault(MCP_PROTOCOL_VERSION_HEADER, self._version)
        return await self._client.open(method, self._url, sent, content)

    # --- one exchange

    async def _exchange(self, asked: _Asked, method: str, message: bytes, headers: Mapping[str, str] | None) -> Outcome:
        try:
            response = await self._open("POST", {**_ACCEPT, **(headers or {})}, message)
        except httpx2.TransportError as error:
            return Outcome(asked.ending(arrival=_arrival(error)), cause=error)
        try:
            if method == "initialize" and response.is_success:
                self._session_id = response.headers.get(_SESSION_HEADER)
            if not (response.is_success and _is_event_stream(response)):
                return await self._whole(asked, response)
            outcome = await self._events(asked, response)
        finally:
            await response.aclose()
        if outcome.ending.body != "broken off" or asked.modern or not asked.events.last_id:
            return outcome
        return await self._poll(asked)

    async def _whole(self, asked: _Asked, response: httpx2.Response, kind: Kind = "request") -> Outcome:
        """Read a response that is a body."""
        status = response.status_code
        try:
            content = await response.aread()
        except BadAnswer as error:
            return Outcome(asked.ending(kind, status=status, body="past bounds"), cause=error)
        except httpx2.DecodingError as error:
            return Outcome(asked.ending(kind, status=status, body="other"), cause=error)
        except httpx2.TransportError as error:
            return Outcome(asked.ending(kind, status=status, body="broken off"), cause=error)
        outcome = await self._heard(asked, content, kind, status)
        if outcome is not None:
            return outcome
        body: Body = "other" if content.strip() else "empty"
        text = content[:MAX_TEXT_BYTES].decode("utf-8", "replace")
        names_session = "session" in text.lower()
        return Outcome(asked.ending(kind, status=status, body=body, names_session=names_session), text=text)

    async def _events(self, asked: _Asked, response: httpx2.Response, kind: Kind = "request") -> Outcome:
        """Read an event stream until the response has come, or to its end; always to its end where none is due."""
        status, event = response.status_code, b""
        body: Body = "broken off"
        try:
            async for event in response.aiter_bytes():
                data = asked.events.take(event)
                outcome = None if not data else await self._heard(asked, data, kind, status)
                if outcome is not None:
                    return outcome
            if asked.noise and not asked.events.last_id and event.endswith((b"\n", b"\r")):
                body = "other"
        except BadAnswer as error:
            return Outcome(asked.ending(kind, status=status, body="past bounds"), cause=error)
        except (httpx2.TransportError, httpx2.DecodingError) as error:
            return Outcome(asked.ending(kind, status=status, body="broken off"), cause=error)
        return Outcome(asked.ending(kind, status=status, body=body))

    async def _poll(self, asked: _Asked) -> Outcome:
        """Fetch the rest of a response whose stream has ended before it (2025-11-25, resumability)."""
        fruitless, failed, after = 0, 0, 0.0
        while True:
            call = delivery.get()
            if call is not None:
                await call.poll()
            await anyio.sleep(max(after, poll_pause(asked.events.retry, fruitless)))
            before = asked.events.last_id
            outcome, after = await self._get(asked, "poll")
            verdict = judge(outcome.ending)
            if verdict.again and outcome.ending.body == "broken off":
                failed, fruitless = 0, fruitless + 1 if asked.events.last_id == before else 0
            elif verdict.again and failed < MAX_FAILED_POLLS:
                failed, fruitless = failed + 1, fruitless + 1
            elif verdict.again:
                return Outcome(asked.ending(status=200, body="broken off"), cause=outcome.cause)
            else:
                return outcome

    async def _get(self, asked: _Asked, kind: Kind) -> tuple[Outcome, float]:
        """One GET for an event stream, read to its end, and the seconds that the server wants it left alone."""
        last_id = asked.events.last_id
        headers: dict[str, Any] = {**_ACCEPT_EVENTS, **({"last-event-id": last_id} if last_id else {})}
        try:
            response = await self._open("GET", headers)
        except httpx2.TransportError as error:
            return Outcome(asked.ending(kind, arrival=_arrival(error)), cause=error), 0.0
        try:
            after = _retry_after(response)
            if response.is_success and _is_event_stream(response):
                return await self._events(asked, response, kind), after
            return await self._whole(asked, response, kind), after
        finally:
            await response.aclose()

    # --- in

    async def _heard(self, asked: _Asked, data: bytes, kind: Kind, status: int) -> Outcome | None:
        """Handle the message, or the batch of them (2025-03-26), that came; the response that is waited for, if any."""
        try:
            said = loads(data)
        except ValueError:
            asked.noise = True
            return None
        found: Outcome | None = None
        for message in cast("list[Any]", said)[:MAX_BATCH_MESSAGES] if isinstance(said, list) else [said]:
            if not is_json(message) or message.get("jsonrpc") != "2.0":
                asked.noise = True
            elif "method" in message:
                await self._take(with_integer_ids(cast("dict[str, Any]", message)))
            elif asked.request_id is not None and kind != "stream":
                found = found or self._response(asked, message, kind, status)
        return found

    def _response(self, asked: _Asked, message: Json, kind: Kind, status: int) -> Outcome | None:
        """A response as the outcome of the exchange; None for one to another request."""
        error, text = _error_of(message.get("error")), ""
        own, body = _is_id(message.get("id"), asked.request_id), cast("Body", "other")
        if own and is_json(message.get("result")):
            body = "result"
        elif error is not None:
            body, text = "error" if own else "foreign error", error.message
            if not own and message.get("id") is not None and status in range(200, 300):
                asked.noise = True
                return None
        elif not own:
            asked.noise = True
            return None
        names_session = "session" in text.lower()
        ending = asked.ending(kind, status=status, body=body, names_session=names_session)
        return Outcome(ending, cast("dict[str, Any]", message.get("result") or {}), error, text)

    async def _take(self, message: Json) -> None:
        """A request or notification of the server."""
        method, params, request_id = message.get("method"), message.get("params"), message.get("id")
        if not isinstance(method, str) or not (params is None or is_json(params)):
            return
        if request_id is None:
            if method == "notifications/cancelled":
                cancelled = cancelled_request_id_from_params(params)
                scope = None if cancelled is None else self._serving.get(coerce_request_id(cancelled))
                if scope is not None:
                    scope.cancel()
            if not run_notify_intercept(self._on_notify_intercept, method, params):
                await self._on_notify(_CONTEXT, method, params)
        elif isinstance(request_id, str | int) and self._tasks is not None:
            if len(self._serving) >= MAX_REQUESTS_IN_WORK:
                self._tasks.start_soon(self._tell, _error_message(request_id, TOO_MANY))
            else:
                self._tasks.start_soon(self._serve, request_id, method, params)

    async def _serve(self, request_id: RequestId, method: str, params: Json | None) -> None:
        """Answer a request of the server, unless it is cancelled."""
        key = coerce_request_id(request_id)
        with anyio.CancelScope() as scope:
            self._serving[key] = scope
            try:
                answer = await self._answer(request_id, method, params)
            finally:
                if self._serving.get(key) is scope:
                    del self._serving[key]
            await self._tell(answer)

    async def _answer(self, request_id: RequestId, method: str, params: Json | None) -> bytes:
        try:
            return result_line(request_id, await self._on_request(_CONTEXT, method, params))
        except Exception as problem:  # boundary: whatever a handler raises is an answer
            error = handler_exception_to_error_data(problem)
            if error is None:
                log.exception("request.failed", method=method)
                error = ErrorData(code=INTERNAL_ERROR, message="Internal error")
            return _error_message(request_id, error)

    async def _listen(self) -> None:
        """Keep the server's own stream open, for as long as it has one (2025-11-25, listening for messages)."""
        asked = _Asked(in_session=True)
        was_open, fruitless = False, 0
        while True:
            begun, before = anyio.current_time(), asked.events.last_id
            outcome, after = await self._get(asked, "stream")
            was_open = was_open or (outcome.ending.is_success and outcome.ending.body == "broken off")
            outcome = replace(outcome, ending=replace(outcome.ending, was_open=was_open))
            verdict = judge(outcome.ending)
            if verdict.ends_connection:
                self._end(outcome.reason)
            if not verdict.again:
                return
            worth = asked.events.last_id != before or anyio.current_time() - begun >= LONG_STREAM_S
            fruitless = 0 if worth else fruitless + 1
            await anyio.sleep(max(after, stream_pause(asked.events.retry, fruitless)))

    def _end(self, fault: str) -> None:
        """The connection is of no use any more."""
        self.fault = self.fault or fault
        self.over.set()


def _message(method: str, params: Mapping[str, Any] | None, request_id: RequestId | None = None) -> bytes:
    message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
    if request_id is not None:
        message["id"] = request_id
    if params:
        message["params"] = params
    return dumps(message)


def _error_message(request_id: RequestId, error: ErrorData) -> bytes:
    return dumps({"jsonrpc": "2.0", "id": request_id, "error": error.model_dump(exclude_none=True)})


def _error_of(error: object) -> ErrorData | None:
    """The `error` member of a response; None where it is not one of JSON-RPC."""
    if not is_json(error):
        return None
    code, message = error.get("code"), error.get("message")
    if not isinstance(code, int) or isinstance(code, bool) or not isinstance(message, str):
        return None
    return ErrorData(code=code, message=message, data=error.get("data"))


def _is_id(said: object, sent: RequestId | None) -> bool:
    """Whether a server means the id that was sent: some write 1 as text."""
    meant = id_of(said)
    return meant is not None and sent is not None and coerce_request_id(meant) == coerce_request_id(sent)


def _arrival(error: Exception) -> Arrival:
    return "not sent" if isinstance(error, _NOT_SENT) else "broken"


def _is_event_stream(response: httpx2.Response) -> bool:
    kind = response.headers.get("content-type", "").partition(";")[0]
    return kind.strip().lower() == "text/event-stream"


def _retry_after(response: httpx2.Response) -> float:
    """Seconds that an answer wants the server left alone, within bounds; a date counts for nothing."""
    seconds = response.headers.get("retry-after", "").strip()
    if not (seconds.isascii() and seconds.isdigit()):
        return 0.0
    return min(float(seconds), MAX_ASKED_PAUSE_S)
