"""An HTTP client that knows what became of each request: whether it was delivered, and how it was answered.

The SDK's transport tells neither, and without them nobody can say whether a request may be sent again.
"""

from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import httpx2

from proxy.core.server import HttpServer


@dataclass(eq=False)
class Delivery:
    """What became of one request's POST: the status of its answer, or that it never left."""

    status: int | None = None
    refused: bool = False

    async def poll(self) -> None:
        """The server has ended the stream of the answer before the answer, which is fetched on another."""


delivery: ContextVar[Delivery | None] = ContextVar("delivery", default=None)
"""Set by who makes a request; the SDK sends each message, and handles what comes on its stream, in that context."""


class HttpClient(httpx2.AsyncClient):
    """The client for one server; `status` is that of the newest answer to a POST."""

    session_id: str | None = None
    status: int | None = None

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:  # noqa: ANN401 - the base's own
        """Send as the base class does, and note what became of it."""
        noted = delivery.get()
        if noted is not None and request.method == "GET" and "last-event-id" in request.headers:
            await noted.poll()
        try:
            response = await super().send(request, **options)
        except (httpx2.ConnectError, httpx2.ConnectTimeout):
            if noted is not None:
                noted.refused = True
            raise
        self.session_id = response.headers.get("mcp-session-id", self.session_id)
        if request.method == "POST":
            self.status = response.status_code
            if noted is not None:
                noted.status = response.status_code
        return response

    async def farewell(self, server: HttpServer) -> None:
        """End the session that the server opened, if any (2025-11-25, session management)."""
        if self.session_id is not None:
            with suppress(httpx2.HTTPError):
                await self.delete(server.url, headers={"mcp-session-id": self.session_id})
