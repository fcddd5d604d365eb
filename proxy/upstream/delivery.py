"""An HTTP client that knows what became of each request, and notices that its server is gone.

The SDK's transport tells neither whether a request was delivered nor how it was answered, and without that nobody can
say whether it may be sent again.
"""

import socket
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

import anyio
import httpx2

from proxy.core.server import HttpServer
from proxy.upstream.bounds import Bounds

_TIMES: Final = {"TCP_KEEPIDLE": 30, "TCP_KEEPALIVE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
"""Seconds of silence until the first question and between two, and how many stay unanswered, as systems name them."""
KEEP_ALIVE: Final = [
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    *((socket.IPPROTO_TCP, getattr(socket, name), value) for name, value in _TIMES.items() if hasattr(socket, name)),
]


GIVEN_UP: Final = 2
"""Refusals in a row after which the SDK does not ask for the server's own stream any more."""
UNCLEAR: Final = (HTTPStatus.BAD_REQUEST, HTTPStatus.UNAUTHORIZED)
"""With which some servers refuse a session that they do not know; the specification has 404 for that."""
SHORT: Final = 64 * 1024
"""Bytes of an answer that is read for what it says."""
FAREWELL: Final = 1.5
"""Seconds for telling a server that a request, or the session, is given up."""
_CANCELLED: Final = b'{"jsonrpc":"2.0","method":"notifications/cancelled"'
"""How the SDK's `notifications/cancelled` begins."""


@dataclass(eq=False)
class Delivery:
    """What became of one request's POST: the status of its answer, or that it never left.

    `why`: what the answer says, where its status alone does not tell whether the session is not known.
    """

    status: int | None = None
    refused: bool = False
    why: str = ""

    async def poll(self) -> None:
        """The server has ended the stream of the answer before the answer, which is fetched on another."""


delivery: ContextVar[Delivery | None] = ContextVar("delivery", default=None)
"""Set by who makes a request; the SDK sends each message, and handles what comes on its stream, in that context."""


class HttpClient(httpx2.AsyncClient):
    """The client for one server; `status` is that of the newest answer to a POST, `bounds` hold for every answer.

    `on_gone`: called when it turns out without a request of ours that the server is not there any more, or does not
    know the session: when its own event stream broke off and cannot be opened again.
    """

    def __init__(self, bounds: Bounds, **options: Any) -> None:  # noqa: ANN401 - the base's
        super().__init__(**options)
        self.bounds = bounds

    session_id: str | None = None
    status: int | None = None
    on_gone: Callable[[], None] | None = None
    _has_stream = False
    _failures = 0

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:  # noqa: ANN401 - the base's own
        """Send as the base class does, and note what became of it."""
        if request.content.startswith(_CANCELLED):
            return await self._tell(request, **options)
        noted = delivery.get()
        if noted is not None and request.method == "GET" and "last-event-id" in request.headers:
            await noted.poll()
        try:
            response = await self._within_bounds(request, **options)
        except httpx2.TransportError as error:
            if noted is not None and isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout):
                noted.refused = True
            if request.method == "GET":
                self._stream(failures=GIVEN_UP)
            raise
        _keep_alive(response)
        self.session_id = response.headers.get("mcp-session-id", self.session_id)
        if request.method == "POST":
            self.status = response.status_code
            if noted is not None:
                noted.status = response.status_code
                if noted.status in UNCLEAR and 0 < int(response.headers.get("content-length", 0)) < SHORT:
                    with suppress(httpx2.StreamError):
                        noted.why = (await response.aread())[:SHORT].decode("utf-8", "replace")
        elif request.method == "GET":
            unknown = response.status_code == HTTPStatus.NOT_FOUND
            self._stream(failures=0 if response.is_success else GIVEN_UP if unknown else 1)
        return response

    async def _within_bounds(
        self,
        request: httpx2.Request,
        *,
        stream: bool = False,
        **options: Any,  # noqa: ANN401 - as `send`
    ) -> httpx2.Response:
        response = self.bounds.response(await super().send(request, stream=True, **options))
        if not stream:
            try:
                await response.aread()
            finally:
                await response.aclose()
        return response

    async def _tell(self, request: httpx2.Request, **options: Any) -> httpx2.Response:  # noqa: ANN401 - as `send`
        """Send what the server has to hear although the connection may be ending; nothing waits for its answer long."""
        with anyio.move_on_after(FAREWELL, shield=True):
            return await self._within_bounds(request, **options)
        return httpx2.Response(HTTPStatus.ACCEPTED, request=request)

    def _stream(self, *, failures: int) -> None:
        """The server's own stream could be opened, or could not, which tells something where it was open before."""
        self._failures = self._failures + failures if failures else 0
        if self._failures >= GIVEN_UP and self._has_stream and self.on_gone is not None:
            self.on_gone()
        self._has_stream = self._has_stream or not failures

    async def farewell(self, server: HttpServer) -> None:
        """End the session that the server opened, if any (2025-11-25, session management)."""
        if self.session_id is not None:
            with anyio.move_on_after(FAREWELL, shield=True), suppress(httpx2.HTTPError):
                await self.delete(server.url, headers={"mcp-session-id": self.session_id})


def _keep_alive(response: httpx2.Response) -> None:
    """Have the system ask a silent peer for a sign of life: a connection that was cut off without a word then ends."""
    stream = response.extensions.get("network_stream")
    connection = stream.get_extra_info("socket") if stream is not None else None
    if connection is not None and connection.family in (socket.AF_INET, socket.AF_INET6):
        for level, option, value in KEEP_ALIVE:
            connection.setsockopt(level, option, value)
