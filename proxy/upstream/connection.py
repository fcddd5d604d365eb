"""One connection to one server: transport, negotiation of the era, and requests as parsed JSON."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, TypeAlias, cast

import anyio
import anyio.abc
import httpx2
from mcp import ClientSession, MCPError
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.dispatcher import OnNotify, OnNotifyIntercept, OnRequest
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.transport_context import TransportContext
from mcp_types import (
    CONNECTION_CLOSED,
    METHOD_NOT_FOUND,
    UNSUPPORTED_PROTOCOL_VERSION,
    Implementation,
    ServerCapabilities,
)
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from pydantic import ValidationError

from proxy import __version__
from proxy.core.errors import NotDelivered, Rejection, ServerLost, ServerSilent
from proxy.core.inventory import Offer, is_json
from proxy.core.server import HttpServer, Server, StdioServer
from proxy.ports import OnProgress
from proxy.upstream.process import Child, child_process
from proxy.upstream.stamp import Stamp, wants_progress

CLIENT_INFO: Final = Implementation(name="mcp-skill-proxy", version=__version__)
SSE_EVENT_LIMIT: Final = 64 * 1024 * 1024
"""Bytes of one event of a response stream; the SDK's own limit of 1 MiB loses larger results."""
CONNECT_TIMEOUT: Final = 10.0
SSE_READ_TIMEOUT: Final = 24 * 3600.0
"""Seconds without an event on an HTTP+SSE stream; how long a call may be silent is each server's `timeout`."""
PAGE_LIMIT: Final = 1000
_PHRASES: Final = frozenset(HTTPStatus)
FAREWELL: Final = 1.5
"""Seconds for telling a server that the session is over."""


Streams: TypeAlias = tuple[Any, Any]
"""A transport's message streams, reading and writing; the SDK keeps their type to itself."""


class CannotStart(Exception):
    """A connection could not be made; the text says why in one line."""


@dataclass
class _Delivery:
    """What became of one request's POST: the status of its answer, or that it never left."""

    status: int | None = None
    refused: bool = False


_delivery: ContextVar[_Delivery | None] = ContextVar("delivery", default=None)


class _Dispatcher(JSONRPCDispatcher[TransportContext]):
    """The SDK's dispatcher, which also tells when its connection is over (nothing else in the SDK does)."""

    def __init__(self, streams: Streams) -> None:
        super().__init__(*streams)
        self.over = anyio.Event()

    async def run(
        self,
        on_request: OnRequest,
        on_notify: OnNotify,
        on_notify_intercept: OnNotifyIntercept | None = None,
        *,
        task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        try:
            await super().run(on_request, on_notify, on_notify_intercept, task_status=task_status)
        finally:
            self.over.set()


class _HttpClient(httpx2.AsyncClient):
    """An HTTP client that notes, for the request in whose context it sends, what became of it."""

    session_id: str | None = None
    status: int | None = None
    """Of the newest answer to a POST."""

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:  # noqa: ANN401 - the client's own
        delivery = _delivery.get()
        try:
            response = await super().send(request, **options)
        except (httpx2.ConnectError, httpx2.ConnectTimeout):
            if delivery is not None:
                delivery.refused = True
            raise
        self.session_id = response.headers.get("mcp-session-id", self.session_id)
        if request.method == "POST":
            self.status = response.status_code
            if delivery is not None:
                delivery.status = response.status_code
        return response

    async def farewell(self, server: HttpServer) -> None:
        """End the session that the server opened, if any (2025-11-25, session management)."""
        if self.session_id is not None:
            with suppress(httpx2.HTTPError):
                await self.delete(server.url, headers={"mcp-session-id": self.session_id})


class Connection:
    """A `Link` to a server that has been greeted."""

    def __init__(self, server: Server, session: ClientSession, dispatcher: _Dispatcher) -> None:
        self._server = server
        self._dispatcher = dispatcher
        self._stamp = Stamp(session.protocol_version or "", CLIENT_INFO)
        self.capabilities = session.server_capabilities or ServerCapabilities()
        self.instructions = session.instructions

    @property
    def over(self) -> anyio.Event:
        """Set when the connection is lost."""
        return self._dispatcher.over

    async def request(
        self, method: str, params: Mapping[str, Any], on_progress: OnProgress | None = None
    ) -> dict[str, Any]:
        """Send one request and return its result as it came; see `Link`."""
        key, limit = self._server.key, self._server.timeout
        if self.over.is_set():
            raise NotDelivered(key, "the connection is closed")
        stamped, options = self._stamp.request(method, params)
        delivery = _Delivery()
        token = _delivery.set(delivery)
        try:
            with anyio.move_on_after(limit) as scope:
                if on_progress is not None and wants_progress(params):
                    options["on_progress"] = _extending(scope, limit, on_progress)
                return await self._dispatcher.send_raw_request(method, stamped, options)
        except MCPError as error:
            if error.code == CONNECTION_CLOSED and await self._is_over():
                if delivery.refused:
                    raise NotDelivered(key, "it refuses connections") from None
                raise ServerLost(key, "the connection closed") from None
            if delivery.status == HTTPStatus.NOT_FOUND and self._stamp.handshake:
                self.over.set()
                raise NotDelivered(key, "it no longer knows this session") from None
            raise Rejection(error.code, error.message, error.data) from None
        finally:
            _delivery.reset(token)
        raise ServerSilent(key, limit)

    async def offer(self) -> Offer:
        """Everything the server offers, all pages of each list.

        Raises:
            Rejection, ServerLost, ServerSilent: a list that it declares could not be read.
        """
        has = self.capabilities
        offer = Offer.of(
            tools=await self._pages("tools/list", "tools"),
            resources=await self._pages("resources/list", "resources") if has.resources else (),
            templates=await self._pages("resources/templates/list", "resourceTemplates") if has.resources else (),
            prompts=await self._pages("prompts/list", "prompts") if has.prompts else (),
            instructions=self.instructions,
        )
        self._stamp.learn(offer.tools)
        return offer

    async def _pages(self, method: str, key: str) -> list[object]:
        """Every page of a list; a cursor that comes twice, or too many pages, end it."""
        found: list[object] = []
        cursors: set[str] = set()
        params: dict[str, Any] = {}
        while len(cursors) < PAGE_LIMIT:
            try:
                page = await self.request(method, params)
            except Rejection as error:
                if error.code == METHOD_NOT_FOUND:
                    break
                raise
            listed = page.get(key)
            found += listed if isinstance(listed, list) else []
            cursor = page.get("nextCursor")
            if not isinstance(cursor, str) or not cursor or cursor in cursors:
                break
            cursors.add(cursor)
            params = {"cursor": cursor}
        return found

    async def _is_over(self) -> bool:
        """Whether the connection is lost; those that wait learn it a moment before the dispatcher ends."""
        with anyio.move_on_after(1):
            await self.over.wait()
        return self.over.is_set()


def _extending(scope: anyio.CancelScope, limit: float, on_progress: OnProgress) -> OnProgress:
    """`on_progress`, with the deadline of `scope` put off by each notification (design rule 33)."""

    async def extend(progress: float, total: float | None, message: str | None) -> None:
        scope.deadline = anyio.current_time() + limit
        await on_progress(progress, total, message)

    return extend


@asynccontextmanager
async def connect(server: Server) -> AsyncGenerator[Connection]:
    """A greeted connection to `server`, open inside the block, which has to stay in one task.

    Raises:
        CannotStart: with the reason in one line.
    """
    child: list[Child] = []
    http: list[_HttpClient] = []
    ready = False
    try:
        async with _streams(server, child, http) as streams:
            dispatcher = _Dispatcher(streams)
            async with ClientSession(dispatcher=dispatcher, client_info=CLIENT_INFO) as session:
                try:
                    await _greet(session, server.era)
                    connection = Connection(server, session, dispatcher)
                except MCPError as error:
                    raise CannotStart(await _why(error, child, http)) from None
                ready = True
                yield connection
    except CannotStart:
        raise
    except Exception as error:  # boundary: whatever a transport raises ends this connection, and only it
        if ready:
            raise
        raise CannotStart(reason(error, server)) from None


async def _why(error: MCPError, child: list[Child], http: list[_HttpClient]) -> str:
    if child and error.code == CONNECTION_CLOSED:
        return await child[0].last_words()
    status = http[0].status if http else None
    if status is not None and status >= HTTPStatus.BAD_REQUEST:
        return f"it answered HTTP {status} {HTTPStatus(status).phrase if status in _PHRASES else ''}".rstrip()
    return f"it refused the connection: {error.message}"


def reason(error: BaseException, server: Server) -> str:
    """Why a connection failed, in one line."""
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return reason(group.exceptions[0], server)
    if isinstance(error, CannotStart):
        return str(error)
    if isinstance(error, FileNotFoundError) and isinstance(server, StdioServer):
        return f"{error.filename or server.command} does not exist"
    if isinstance(error, httpx2.ConnectError):
        return f"nothing answers at its address: {error}"
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


async def _greet(session: ClientSession, era: str) -> None:
    """Agree on a protocol revision, by the specification's rules for clients that speak both eras.

    Whatever is no evidence of a modern server is met with the handshake. A handshake refused because a probe that
    seemed unanswered has settled the connection on the modern era is followed by another probe.
    """
    if era == "modern":
        await session.discover()
        return
    if era == "auto":
        try:
            await session.discover()
        except MCPError as error:
            if error.code == CONNECTION_CLOSED or _modern_only(error):
                raise
        except (ValidationError, RuntimeError):
            pass
        else:
            return
    try:
        await session.initialize()
    except MCPError as error:
        if era != "auto" or error.code != UNSUPPORTED_PROTOCOL_VERSION:
            raise
        await session.discover()


def _modern_only(error: MCPError) -> bool:
    supported = error.data.get("supported") if is_json(error.data) else None
    return (
        error.code == UNSUPPORTED_PROTOCOL_VERSION
        and isinstance(supported, list)
        and HANDSHAKE_PROTOCOL_VERSIONS[-1] not in supported
    )


@asynccontextmanager
async def _streams(server: Server, child: list[Child], http: list[_HttpClient]) -> AsyncGenerator[Streams]:
    """The message streams of the server's transport; what carries them is left in `child` or `http`."""
    if isinstance(server, StdioServer):
        async with child_process(server) as process:
            child.append(process)
            yield process.read, process.write
    elif server.transport == "sse":
        async with sse_client(server.url, headers=dict(server.headers), sse_read_timeout=SSE_READ_TIMEOUT) as streams:
            yield streams
    else:
        timeout = httpx2.Timeout(None, connect=CONNECT_TIMEOUT)
        async with _HttpClient(headers=dict(server.headers), timeout=timeout) as client:
            http.append(client)
            try:
                async with streamable_http_client(
                    server.url, http_client=client, terminate_on_close=False, max_sse_event_size=SSE_EVENT_LIMIT
                ) as streams:
                    yield streams
            finally:
                with anyio.move_on_after(FAREWELL, shield=True):
                    await client.farewell(server)
