"""The older HTTP+SSE transport (2024-11-05): one event stream for what the server says, a POST for each message to it.

The SDK's own refuses events over 1 MiB.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Final, TypeAlias

import anyio
import httpx2
import structlog
from anyio.abc import TaskStatus
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

log = structlog.stdlib.get_logger("proxy.upstream")

_HEADERS: Final = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
MOST_REDIRECTS: Final = 5
Streams: TypeAlias = tuple[Any, Any]


@asynccontextmanager
async def sse_streams(client: httpx2.AsyncClient, url: str) -> AsyncGenerator[Streams]:
    """The message streams, reading and writing, of a connection to `url`, for a dispatcher of the SDK.

    The reading one ends with the server's event stream, and when a POST is refused.

    Raises:
        httpx2.HTTPError: it cannot be opened, or breaks off.
    """
    write_in, read_out = anyio.create_memory_object_stream[SessionMessage | Exception]()
    write_out, read_in = anyio.create_memory_object_stream[SessionMessage]()
    response = await _send(client, client.build_request("GET", url, headers=_HEADERS))
    try:
        response.raise_for_status()
        async with write_in, read_out, write_out, read_in, anyio.create_task_group() as tasks:

            async def read(*, task_status: TaskStatus[httpx2.URL]) -> None:
                async with write_in:
                    async for event in httpx2.EventSource(response, max_event_size=None):
                        if event.event == "endpoint":
                            task_status.started(_endpoint(response.url, event.data))
                        elif event.event == "message" and event.data:
                            await write_in.send(_message(event.data))

            async def write(endpoint: httpx2.URL) -> None:
                async for message in read_in:
                    content = message.message.model_dump(by_alias=True, mode="json", exclude_unset=True)
                    answer = await _send(client, client.build_request("POST", endpoint, json=content))
                    await answer.aclose()
                    answer.raise_for_status()

            tasks.start_soon(write, await tasks.start(read))
            yield read_out, write_out
            tasks.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            await response.aclose()


async def _send(client: httpx2.AsyncClient, request: httpx2.Request) -> httpx2.Response:
    """Send, following redirects to the same origin that keep the method."""
    for _ in range(MOST_REDIRECTS):
        response = await client.send(request, stream=True, follow_redirects=False)
        following = response.next_request
        if following is None or following.method != request.method or not _same_origin(request.url, following.url):
            return response
        await response.aclose()
        request = following
    raise httpx2.TooManyRedirects("too many redirects", request=request)


def _endpoint(url: httpx2.URL, data: str) -> httpx2.URL:
    """Where messages are posted.

    Raises:
        ValueError: at another origin.
    """
    endpoint = url.join(data)
    if not _same_origin(url, endpoint):
        raise ValueError("the address for its messages is on another host")
    return endpoint


def _same_origin(one: httpx2.URL, other: httpx2.URL) -> bool:
    return (one.scheme, one.host, one.port) == (other.scheme, other.host, other.port)


def _message(data: str) -> SessionMessage | Exception:
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(data, by_name=False))
    except ValueError as error:
        return error
