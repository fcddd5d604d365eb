"""An HTTP client for one server: what it answers is read within bounds, and a dead connection is noticed."""

import socket
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any, Final

import httpx2

from proxy.upstream.bounds import Bounds

MAX_REDIRECTS: Final = 5
_TIMES: Final = {"TCP_KEEPIDLE": 30, "TCP_KEEPALIVE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
"""Seconds of silence until the first question and between two, and how many stay unanswered, as systems name them."""
KEEP_ALIVE: Final = [
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    *((socket.IPPROTO_TCP, getattr(socket, name), value) for name, value in _TIMES.items() if hasattr(socket, name)),
]


class Delivery:
    """A request that is under way, as the transport sees it."""

    async def poll(self) -> None:
        """The server has ended the stream of the answer before the answer, which is fetched on another."""


delivery: ContextVar[Delivery | None] = ContextVar("delivery", default=None)
"""Set by who makes a request; what comes on the stream of its answer is handled in that context."""


class HttpClient(httpx2.AsyncClient):
    """The client for one server; `bounds` hold for every answer."""

    def __init__(self, bounds: Bounds, **options: Any) -> None:  # noqa: ANN401 - the base's
        super().__init__(**options)
        self.bounds = bounds

    async def send(
        self,
        request: httpx2.Request,
        *,
        stream: bool = False,
        **options: Any,  # noqa: ANN401 - the base's own
    ) -> httpx2.Response:
        """Send as the base class does; the answer is read within the bounds."""
        response = self.bounds.response(await super().send(request, stream=True, **options))
        _keep_alive(response)
        if not stream:
            try:
                await response.aread()
            finally:
                await response.aclose()
        return response

    async def open(
        self, method: str, url: httpx2.URL | str, headers: Mapping[str, str], content: bytes | None = None
    ) -> httpx2.Response:
        """Send, and follow redirects that keep the method and lead to the same origin; the answer is to be closed.

        Raises:
            httpx2.TransportError: there is no answer.
        """
        followed = 0
        while True:
            request = self.build_request(method, url, headers=headers, content=content)
            response = await self.send(request, stream=True, follow_redirects=False)
            following = response.next_request
            if following is None or followed == MAX_REDIRECTS or not _may_follow(request, following):
                return response
            await response.aclose()
            url, followed = following.url, followed + 1


def same_origin(one: httpx2.URL, other: httpx2.URL) -> bool:
    """Whether two URLs are of one origin (RFC 6454)."""
    return (one.scheme, one.host, one.port) == (other.scheme, other.host, other.port)


def _may_follow(sent: httpx2.Request, following: httpx2.Request) -> bool:
    """Whether a redirect keeps the method and leads to the same origin, without credentials of its own."""
    return (
        sent.method == following.method
        and same_origin(sent.url, following.url)
        and following.url.userinfo in (b"", sent.url.userinfo)
    )


def _keep_alive(response: httpx2.Response) -> None:
    """Have the system ask a silent peer for a sign of life: a connection that was cut off without a word then ends."""
    stream = response.extensions.get("network_stream")
    connection = stream.get_extra_info("socket") if stream is not None else None
    if connection is not None and connection.family in (socket.AF_INET, socket.AF_INET6):
        for level, option, value in KEEP_ALIVE:
            connection.setsockopt(level, option, value)
