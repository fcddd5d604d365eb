"""The older HTTP+SSE transport (2024-11-05): one event stream for what the server says, a POST for each message to it.

The SDK's own refuses events over 1 MiB, and ends for good with the first POST that is refused.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import anyio
import httpx2
import structlog
from anyio.abc import TaskGroup, TaskStatus
from mcp.shared.message import SessionMessage
from mcp_types import (
    INTERNAL_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
)

from proxy.core.exchange import NOT_RUN, Ending, Verdict, judge
from proxy.upstream.bounds import BadAnswer
from proxy.upstream.delivery import HttpClient, same_origin
from proxy.upstream.greeting import refused
from proxy.wire.codec import dumps
from proxy.wire.messages import message_of, messages_in

log = structlog.stdlib.get_logger("proxy.upstream")

_GET_HEADERS: Final = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
_POST_HEADERS: Final = {"Content-Type": "application/json"}
ENDPOINT_WAIT_S: Final = 10.0
"""Seconds for the `endpoint` event, once the event stream is open."""
ORDER_WAIT_S: Final = 1.0
"""Seconds that a message waits for the POST that has to be over before its own, and that a POST goes on whose request
is over."""
BODY_WAIT_S: Final = 1.0
"""Seconds for the body of an answer that refuses a message."""
MAX_POSTS: Final = 64
"""POSTs that are open at a time; the HTTP client has 100 connections, and needs one for the event stream."""
MAX_DETAIL_LENGTH: Final = 200
"""Characters of an address that a server names."""
Streams: TypeAlias = tuple[Any, Any]


class NoEndpoint(BadAnswer):
    """The server does not say where messages are posted; `detail` has what it says instead."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(reason)
        self.detail = detail[:MAX_DETAIL_LENGTH]


@dataclass(frozen=True)
class PostFailed:
    """Why the POST of a request failed: the `data` of the error that its caller gets, which no server can send."""

    reason: str
    verdict: Verdict


@asynccontextmanager
async def sse_streams(client: HttpClient, url: str) -> AsyncGenerator[Streams]:
    """The message streams, reading and writing, of a connection to `url`, for a dispatcher of the SDK.

    The reading one ends with the server's event stream. A request whose POST fails is answered there with an error
    that has `PostFailed` as its data, unless the server has answered it with an error of its own.

    Raises:
        BadAnswer: the server does not say where messages are posted, or not in the same place twice.
        httpx2.HTTPError: it cannot be opened.
    """
    write_in, read_out = anyio.create_memory_object_stream[SessionMessage | Exception]()
    write_out, read_in = anyio.create_memory_object_stream[SessionMessage]()
    response = await client.open("GET", url, _GET_HEADERS)
    try:
        _check_stream(response)
        async with write_in, read_out, write_out, read_in, anyio.create_task_group() as tasks:
            posts = _Posts(client, tasks, write_in.send)

            async def read(*, task_status: TaskStatus[httpx2.URL]) -> None:
                async with write_in:
                    try:
                        await _read(response, task_status.started, posts, write_in.send)
                    except NoEndpoint as fault:
                        client.bounds.fault = str(fault)
                        raise
                    except httpx2.TransportError as error:  # the end of the stream, as any other
                        log.debug("server.stream_ended", reason=str(error) or type(error).__name__)

            async def write(endpoint: httpx2.URL) -> None:
                async for message in read_in:
                    await posts.send(endpoint, message.message)

            try:
                with anyio.fail_after(ENDPOINT_WAIT_S):
                    endpoint = await tasks.start(read)
            except TimeoutError:
                raise NoEndpoint(f"it sent no `endpoint` event within {ENDPOINT_WAIT_S:g} s") from None
            tasks.start_soon(write, endpoint)
            yield read_out, write_out
            tasks.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            await response.aclose()


async def _read(
    response: httpx2.Response,
    started: Callable[[httpx2.URL], None],
    posts: "_Posts",
    take: Callable[[SessionMessage], Awaitable[None]],
) -> None:
    """Read the event stream to its end; `started` gets the address that messages are posted to, `take` what they say.

    Raises:
        NoEndpoint: there is no such address, or another one comes.
        httpx2.TransportError: the stream breaks off.
    """
    endpoint: httpx2.URL | None = None
    try:
        async for event in httpx2.EventSource(response, max_event_size=None):
            if event.event == "endpoint":
                named = _endpoint(response.url, event.data)
                _check_same(endpoint, named)
                if endpoint is None:
                    started(named)
                endpoint = named
            elif event.event == "message" and endpoint is not None:
                for message in messages_in(event.data):
                    posts.heard(message)
                    await take(SessionMessage(message))
    except httpx2.TransportError as error:
        if endpoint is None and not isinstance(error, BadAnswer):
            raise NoEndpoint("its event stream broke off before the `endpoint` event", str(error)) from None
        raise
    if endpoint is None:
        raise NoEndpoint("its event stream ended without an `endpoint` event")


@dataclass(eq=False)
class _Post:
    """A POST that is open."""

    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    over: anyio.Event = field(default_factory=anyio.Event)

    def end_soon(self) -> None:
        """Nobody waits for it any more; most servers have answered it by now."""
        self.scope.deadline = min(self.scope.deadline, anyio.current_time() + ORDER_WAIT_S)


class _Posts:
    """The messages to the server, each in a POST of its own, side by side; `answer` takes the errors of failed ones."""

    def __init__(
        self, client: HttpClient, tasks: TaskGroup, answer: Callable[[SessionMessage], Awaitable[None]]
    ) -> None:
        self._client = client
        self._tasks = tasks
        self._answer = answer
        self._limiter = anyio.CapacityLimiter(MAX_POSTS)
        self._open: dict[RequestId, _Post] = {}

    async def send(self, endpoint: httpx2.URL, message: JSONRPCMessage) -> None:
        """Begin to post a message; what comes after a notification waits for its answer a moment."""
        post = _Post()
        match message:
            case JSONRPCRequest():
                self._open[message.id] = post
                self._tasks.start_soon(self._run, endpoint, message, post)
            case JSONRPCNotification(method="notifications/cancelled"):
                before = self._open.get((message.params or {}).get("requestId", ""))
                if before is not None:
                    before.end_soon()
                self._tasks.start_soon(self._run, endpoint, message, post, before)
            case JSONRPCNotification():
                self._tasks.start_soon(self._run, endpoint, message, post)
                with anyio.move_on_after(ORDER_WAIT_S):
                    await post.over.wait()
            case _:
                self._tasks.start_soon(self._run, endpoint, message, post)

    def heard(self, message: JSONRPCMessage) -> None:
        """The server has said something: the POST of a request that it answers may end."""
        if isinstance(message, JSONRPCResponse | JSONRPCError) and message.id is not None:
            post = self._open.get(message.id)
            if post is not None:
                post.end_soon()

    async def _run(
        self, endpoint: httpx2.URL, message: JSONRPCMessage, post: _Post, before: _Post | None = None
    ) -> None:
        """Post a message, once the POST `before` is over."""
        answer: JSONRPCMessage | None = None
        try:
            if before is not None:
                await before.over.wait()
            with post.scope:
                async with self._limiter:
                    answer = await self._post(endpoint, message)
        finally:
            post.over.set()
            if isinstance(message, JSONRPCRequest) and self._open.get(message.id) is post:
                del self._open[message.id]
        if answer is not None:
            with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):  # who waited has been told
                await self._answer(SessionMessage(answer))

    async def _post(self, endpoint: httpx2.URL, message: JSONRPCMessage) -> JSONRPCMessage | None:
        """Post a message; what the request in it is answered with, where that does not come on the event stream."""
        request_id = message.id if isinstance(message, JSONRPCRequest) else None
        try:
            content = dumps(message.model_dump(by_alias=True, exclude_unset=True))
            response = await self._client.open("POST", endpoint, _POST_HEADERS, content)
        except httpx2.TransportError as error:
            if isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout):
                failed = PostFailed("it refuses connections", judge(Ending(kind="post", arrival="not sent")))
            else:
                broken = judge(Ending(kind="post", arrival="broken"))
                failed = PostFailed("the connection for the request broke off", broken)
        except (httpx2.HTTPError, ValueError) as error:
            failed = PostFailed(f"the request cannot be sent ({type(error).__name__})", NOT_RUN)
        else:
            body = await _body(response)
            own = message_of(body)
            if isinstance(own, JSONRPCResponse | JSONRPCError) and own.id == request_id and request_id is not None:
                return own
            if response.is_success:
                return None
            failed = _refusal(response.status_code, body)
        if request_id is None:
            log.debug("server.message_refused", method=getattr(message, "method", None), reason=failed.reason)
            return None
        error = ErrorData(code=INTERNAL_ERROR, message=failed.reason, data=failed)
        return JSONRPCError(jsonrpc="2.0", id=request_id, error=error)


def _refusal(status: int, body: bytes) -> PostFailed:
    """What an answer that is neither a success nor a response of JSON-RPC means."""
    verdict = judge(Ending(kind="post", status=status, names_session=b"session" in body.lower()))
    return PostFailed("it no longer knows this session" if verdict.ends_connection else refused(status), verdict)


async def _body(response: httpx2.Response) -> bytes:
    """What an answer to a POST says, where it may be a refusal or a response of JSON-RPC."""
    body = b""
    try:
        if not response.is_success or response.headers.get("content-type", "").lower().startswith("application/json"):
            with anyio.move_on_after(BODY_WAIT_S), suppress(httpx2.HTTPError, httpx2.StreamError):
                body = await response.aread()
    finally:
        await response.aclose()
    return body


def _check_stream(response: httpx2.Response) -> None:
    """Raise unless an answer is an event stream.

    Raises:
        NoEndpoint: it is something else.
    """
    if not response.is_success:
        raise NoEndpoint(refused(response.status_code))
    if not response.headers.get("content-type", "").lower().startswith("text/event-stream"):
        raise NoEndpoint("its answer is not an event stream: the server may be one of `type: http`")


def _endpoint(url: httpx2.URL, data: str) -> httpx2.URL:
    """Where messages are posted; credentials are those of `url`, whatever the server names.

    Raises:
        NoEndpoint: it is not an address, or one at another origin.
    """
    refusal = NoEndpoint("its `endpoint` event has no usable address", f"it said: {data!r}")
    try:
        endpoint = url.join(data.strip())
    except (httpx2.InvalidURL, ValueError):
        raise refusal from None
    if not data.strip() or endpoint.scheme not in ("http", "https") or not endpoint.host:
        raise refusal
    if not same_origin(url, endpoint):
        origin = f"{endpoint.scheme}://{endpoint.netloc.decode('ascii', 'replace')}"
        raise NoEndpoint("its `endpoint` event names an address at another origin", f"it said: {origin}")
    return endpoint.copy_with(userinfo=url.userinfo, fragment=None)


def _check_same(before: httpx2.URL | None, named: httpx2.URL) -> None:
    """Raise where messages are to be posted to another address from now on.

    Raises:
        NoEndpoint: they are.
    """
    if before is not None and named != before:
        raise NoEndpoint("it named a second address for its messages")
