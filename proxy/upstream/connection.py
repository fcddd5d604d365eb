"""One connection to one server: requests go out and results come back as parsed JSON."""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any, Final

import anyio
import anyio.abc
import structlog
from mcp import ClientSession, MCPError
from mcp.shared.dispatcher import OnNotify, OnNotifyIntercept, OnRequest
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.transport_context import TransportContext
from mcp_types import METHOD_NOT_FOUND, Implementation, ServerCapabilities

from proxy import __version__
from proxy.core.errors import NotDelivered, ProxyError, Rejection, ServerLost, ServerSilent
from proxy.core.inventory import Offer, items
from proxy.core.server import Server
from proxy.ports import OnProgress
from proxy.upstream.delivery import Delivery, delivery
from proxy.upstream.greeting import closed, cut_off, ends, greet
from proxy.upstream.stamp import Stamp, wants_progress
from proxy.upstream.transport import CannotStart, Streams, Transport, reason, transport

log = structlog.stdlib.get_logger("proxy.upstream")

CLIENT_INFO: Final = Implementation(name="mcp-skill-proxy", version=__version__)
PAGE_LIMIT: Final = 1000


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


class Connection:
    """A `Link` to a server that has been greeted; `over` is set when it is lost."""

    def __init__(self, server: Server, session: ClientSession, dispatcher: _Dispatcher, way: Transport) -> None:
        self._server = server
        self._dispatcher = dispatcher
        self._way = way
        self._stamp = Stamp(session.protocol_version or "", CLIENT_INFO)
        self._capabilities = session.server_capabilities or ServerCapabilities()
        self._instructions = session.instructions
        self._in_work = 0
        self._idle = anyio.Event()
        self.over = dispatcher.over

    async def request(
        self, method: str, params: Mapping[str, Any], on_progress: OnProgress | None = None
    ) -> dict[str, Any]:
        """Send one request and return its result as it came; see `Link`."""
        key, limit = self._server.key, self._server.timeout
        if self.over.is_set():
            raise NotDelivered(key, "the connection is closed")
        stamped, options = self._stamp.request(method, params)
        noted = Delivery()
        token = delivery.set(noted)
        self._in_work += 1
        try:
            with anyio.move_on_after(limit) as scope:
                if on_progress is not None and wants_progress(params):
                    options["on_progress"] = _extending(scope, limit, on_progress)
                return await self._dispatcher.send_raw_request(method, stamped, options)
        except MCPError as error:
            raise await self._meaning(error, noted) from None
        finally:
            delivery.reset(token)
            self._in_work -= 1
            if not self._in_work:
                self._idle.set()
                self._idle = anyio.Event()
        raise ServerSilent(key, limit)

    async def offer(self) -> Offer:
        """Everything the server offers, all pages of each list; of resources and prompts what can be read.

        Raises:
            CannotStart: its list of tools could not be read.
        """
        has = self._capabilities
        try:
            tools = await self._pages("tools/list", "tools")
        except ProxyError as error:
            raise CannotStart(f"its list of tools could not be read: {error}") from None
        offer = Offer.of(
            tools=tools,
            resources=await self._besides("resources/list", "resources") if has.resources else (),
            templates=await self._besides("resources/templates/list", "resourceTemplates") if has.resources else (),
            prompts=await self._besides("prompts/list", "prompts") if has.prompts else (),
            instructions=self._instructions,
        )
        self._stamp.learn(offer.tools)
        return offer

    async def drained(self, within: float) -> None:
        """Wait until no request is in work, at most `within` seconds."""
        with anyio.move_on_after(within):
            while self._in_work:
                await self._idle.wait()

    async def _meaning(self, error: MCPError, noted: Delivery) -> Exception:
        """What an error that the dispatcher raised means for the request."""
        key = self._server.key
        if closed(error) and await ends(self.over):
            if noted.refused:
                return NotDelivered(key, "it refuses connections")
            return ServerLost(key, await self._way.how_it_ended())
        if cut_off(error):
            return ServerLost(key, "the answer broke off")
        if self._stamp.handshake and _session_unknown(error, noted.status):
            self.over.set()
            return NotDelivered(key, "it no longer knows this session")
        return Rejection(error.code, error.message, error.data)

    async def _besides(self, method: str, key: str) -> list[object]:
        """A list whose failure costs itself alone."""
        try:
            return await self._pages(method, key)
        except ProxyError as error:
            log.warning("server.list_failed", server=self._server.key, method=method, reason=str(error))
            return []

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
            found += items(page.get(key))
            cursor = page.get("nextCursor")
            if not isinstance(cursor, str) or not cursor or cursor in cursors:
                break
            cursors.add(cursor)
            params = {"cursor": cursor}
        return found


@asynccontextmanager
async def connect(server: Server, mask: Callable[[str], str]) -> AsyncGenerator[Connection]:
    """A greeted connection to `server`, open inside the block, which has to stay in one task.

    `mask` takes secrets out of what the server says on stderr.

    Raises:
        CannotStart: with the reason in one line.
    """
    ready = False
    try:
        async with transport(server, mask) as way:
            dispatcher = _Dispatcher(way.streams)
            async with ClientSession(dispatcher=dispatcher, client_info=CLIENT_INFO) as session:
                try:
                    await greet(session, server.era, dispatcher.over)
                except MCPError as error:
                    raise CannotStart(await way.why(error)) from None
                ready = True
                yield Connection(server, session, dispatcher, way)
    except Exception as error:  # boundary: whatever a transport raises ends this connection, and only it
        if ready:
            raise
        raise CannotStart(reason(error, server)) from None


def _session_unknown(error: MCPError, status: int | None) -> bool:
    """Whether the server has forgotten the session: 404 by the specification, with some 400 or 401 and a text."""
    if status == HTTPStatus.NOT_FOUND:
        return True
    return status in (HTTPStatus.BAD_REQUEST, HTTPStatus.UNAUTHORIZED) and "session" in error.message.lower()


def _extending(scope: anyio.CancelScope, limit: float, on_progress: OnProgress) -> OnProgress:
    """`on_progress`, with the deadline of `scope` put off by each notification (design rule 33)."""

    async def extend(progress: float, total: float | None, message: str | None) -> None:
        scope.deadline = anyio.current_time() + limit
        await on_progress(progress, total, message)

    return extend
