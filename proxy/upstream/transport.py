"""The ways to reach a server: a child process, Streamable HTTP, or the older HTTP+SSE."""

from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

import anyio
import anyio.abc
import httpx2
from mcp import MCPError
from mcp.shared.dispatcher import Dispatcher, OnNotify, OnNotifyIntercept, OnRequest, coerce_request_id
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.transport_context import TransportContext
from mcp_types import CONNECTION_CLOSED, ErrorData, RequestId

from proxy.core.server import Server, StdioServer
from proxy.upstream.bounds import BadAnswer, Bounds
from proxy.upstream.delivery import HttpClient
from proxy.upstream.failure import Failure
from proxy.upstream.greeting import NoAgreement, answered, closed, error_of, no_response
from proxy.upstream.http_sse import NoEndpoint, PostFailed, sse_streams
from proxy.upstream.network import NoCertificates, is_loopback, named_by_environment, trust
from proxy.upstream.process import Child, child_process
from proxy.upstream.spawn import Spawned
from proxy.upstream.streamable_http import ExchangeFailed, HttpDispatcher
from proxy.wire.dispatcher import LineDispatcher
from proxy.wire.turns import Turns

CONNECT_TIMEOUT: Final = 10.0
MAX_DETAIL_LENGTH: Final = 1000
"""Characters of what a server or a library said of a failure."""

_NOT_TRUSTED: Final = "CERTIFICATE_VERIFY_FAILED"
"""What OpenSSL says of a certificate that is not trusted."""

Streams: TypeAlias = tuple[Any, Any]
"""A transport's message streams, reading and writing; the SDK keeps their type to itself."""


class CannotStart(Exception):
    """A connection could not be made; `failure` says why."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.reason)
        self.failure = failure


class StreamDispatcher(JSONRPCDispatcher[TransportContext]):
    """The SDK's dispatcher, which also tells when its connection is over (nothing else in the SDK does)."""

    def __init__(self, streams: Streams) -> None:
        super().__init__(*streams)
        self.over = anyio.Event()
        self.on_late_answer: Callable[[object], None] = lambda _id: None
        """Called with the id of an answer that nobody waits for."""

    async def run(
        self,
        on_request: OnRequest,
        on_notify: OnNotify,
        on_notify_intercept: OnNotifyIntercept | None = None,
        *,
        task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        """Run as the base class does, and set `over` at the end."""
        try:
            await super().run(on_request, on_notify, on_notify_intercept, task_status=task_status)
        finally:
            self.over.set()

    def _fan_out_closed(self) -> None:
        """Tell those who wait, as the base class does, that the connection is over: which it then is."""
        self.over.set()
        super()._fan_out_closed()

    def _resolve_pending(self, request_id: RequestId | None, outcome: dict[str, Any] | ErrorData) -> None:
        """Settle a request as the base class does, whose only place this is where answers come by."""
        if request_id is not None and (key := coerce_request_id(request_id)) not in self._pending:
            self.on_late_answer(key)
        super()._resolve_pending(request_id, outcome)


@dataclass(frozen=True)
class Transport:
    """An open way to a server, and what it can tell when something fails; `over` is set when it is lost."""

    dispatcher: Dispatcher[TransportContext]
    over: anyio.Event
    child: Child | None = None
    http: HttpClient | None = None

    @property
    def deaf(self) -> bool:
        """Whether nothing that is sent reaches the server any more, which may still answer what it has in work."""
        return self.child is not None and self.child.dispatcher.deaf

    def on_late_answer(self, told: Callable[[object], None]) -> None:
        """Have `told` called with the id of each answer that nobody waits for any more."""
        if isinstance(self.dispatcher, LineDispatcher | StreamDispatcher):
            self.dispatcher.on_late_answer = told

    async def why(self, error: MCPError) -> Failure:
        """Why the greeting failed with `error`."""
        if self.child is not None and error.code == CONNECTION_CLOSED:
            return await self.child.last_words()
        if isinstance(error.data, PostFailed):
            return Failure(error.data.reason)
        if isinstance(error, NoAgreement):
            return Failure(error.message, error.detail)
        if isinstance(error, ExchangeFailed) and error.verdict.outcome != "error":
            return _no_result(error)
        said = f"it said: {one_line(error.message)}" if error.message else ""
        if isinstance(error, ExchangeFailed) and not error.outcome.ending.is_success:
            return Failure(answered(error.outcome.ending.status), said)
        if (why := no_response(error)) is not None:
            return Failure(why)
        if closed(error):
            return Failure("the connection closed")
        return Failure(f"it refused the connection with {error_of(error.code)}", said)

    async def how_it_ended(self) -> Failure:
        """How a lost connection ended."""
        if self.child is not None:
            return await self.child.last_words()
        fault = self.dispatcher.fault if isinstance(self.dispatcher, HttpDispatcher) else ""
        if not fault and self.http is not None:
            fault = self.http.bounds.fault
        return Failure(fault or "the connection closed")


@asynccontextmanager
async def transport(
    server: Server,
    mask: Callable[[str], str],
    start: Callable[[StdioServer], Spawned],
    *,
    turns: Turns,
    unwanted: Callable[[bytes], bool],
) -> AsyncGenerator[Transport]:
    """Open the way to `server`; `mask` takes secrets out of what it says on stderr, `start` gives its process.

    `turns`: for what servers send unasked. `unwanted`: whether a message is of no use, told by its bytes.

    Raises what the transport raises, also from inside the block; `failure_of` puts it in words.
    """
    if isinstance(server, StdioServer):
        async with child_process(server, mask, start, turns=turns, unwanted=unwanted) as child:
            yield Transport(child.dispatcher, child.dispatcher.over, child=child)
        return
    timeout, bounds = httpx2.Timeout(None, connect=CONNECT_TIMEOUT), Bounds(server.max_message_size, turns)
    try:
        trusted = trust(server.url)
    except NoCertificates as error:
        raise CannotStart(error.failure) from None
    options = {"timeout": timeout, "verify": trusted, "trust_env": not is_loopback(server.url)}
    async with HttpClient(bounds, headers=dict(server.headers), **options) as client:
        if server.transport == "sse":
            async with sse_streams(client, server.url) as streams:
                dispatcher = StreamDispatcher(streams)
                bounds.on_fault = dispatcher.over.set
                yield Transport(dispatcher, dispatcher.over, http=client)
            return
        dispatcher = HttpDispatcher(client, server.url)
        try:
            yield Transport(dispatcher, dispatcher.over, http=client)
        finally:
            await dispatcher.farewell()


def is_unreachable(error: BaseException) -> bool:
    """Whether a transport failed because nothing answers at the server's address: no request has left."""
    return any(isinstance(leaf, httpx2.ConnectError | httpx2.ConnectTimeout) for leaf in root_errors(error))


def _no_result(error: ExchangeFailed) -> Failure:
    """Why an exchange over HTTP has no result; what the server or a library said is the detail."""
    outcome = error.outcome
    if outcome.ending.arrival != "answered" and outcome.cause is not None:
        return _failure_over_http(outcome.cause)
    text = outcome.text or ("" if isinstance(outcome.cause, BadAnswer) else str(outcome.cause or ""))
    return Failure(outcome.reason, f"it said: {one_line(text)}" if text else "")


def failure_of(error: BaseException, server: Server) -> Failure:
    """Why a transport failed; the texts of libraries, which may quote the server, are the detail."""
    leaves = list(root_errors(error))
    found = next((leaf for leaf in leaves if isinstance(leaf, CannotStart)), leaves[0])
    if isinstance(found, CannotStart):
        return found.failure
    if isinstance(found, BadAnswer):
        return Failure(str(found), one_line(found.detail) if isinstance(found, NoEndpoint) else "")
    if isinstance(found, FileNotFoundError) and isinstance(server, StdioServer):
        missing = found.filename or server.command
        there = "" if not Path(missing).exists() else "the interpreter that its first line names for "
        return Failure(f"{there}{missing} does not exist")
    if isinstance(found, OSError) and isinstance(server, StdioServer):
        return Failure(f"it cannot be started: {found.strerror or type(found).__name__}", one_line(str(found)))
    return _failure_over_http(found)


def _failure_over_http(found: BaseException) -> Failure:
    text = one_line(str(found))
    if isinstance(found, httpx2.ConnectError):
        answers = text.startswith("[SSL")  # as `ssl.SSLError` begins, which is not always among the causes
        by = (
            f" by the certificates that {name} names"
            if (name := named_by_environment()) and _NOT_TRUSTED in text
            else ""
        )
        return Failure(f"no secure connection can be made{by}" if answers else "nothing answers at its address", text)
    if isinstance(found, httpx2.HTTPStatusError):
        return Failure(answered(found.response.status_code), text)
    if isinstance(found, httpx2.NetworkError | httpx2.RemoteProtocolError):  # some of them have no text
        return Failure("the connection broke off", text)
    return Failure(f"the connection failed ({type(found).__name__})", text)


def one_line(text: str) -> str:
    """`text` of others, which may be long, in one line."""
    return " ".join(text[: 2 * MAX_DETAIL_LENGTH].split())[:MAX_DETAIL_LENGTH]


def root_errors(error: BaseException) -> Iterator[BaseException]:
    """The errors that task groups have wrapped."""
    if isinstance(error, BaseExceptionGroup):
        for inner in cast("BaseExceptionGroup[BaseException]", error).exceptions:
            yield from root_errors(inner)
    else:
        yield error
