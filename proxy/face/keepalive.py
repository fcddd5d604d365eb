"""Comments on event streams that are silent, so that nothing on the way takes them for dead and cuts them."""

from typing import Final

import anyio
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

COMMENT: Final = b": keep-alive\r\n\r\n"


class KeepAlive:
    """An ASGI app around another: its event streams get a comment after every `interval` seconds of silence.

    Whatever the app sends of such a stream at a time must be whole events, as all senders of the SDK do. A stream must
    have begun: the SDK's entry for 2026-07-28 begins one only with its first message, or after 15 s.
    """

    def __init__(self, app: ASGIApp, interval: float) -> None:
        self._app = app
        self._interval = interval

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        async with anyio.create_task_group() as tasks:
            sender = _Sender(send)

            async def watch(message: Message) -> None:
                await sender.send(message)
                if message["type"] == "http.response.start" and _is_event_stream(message):
                    tasks.start_soon(sender.comment, self._interval)

            await self._app(scope, receive, watch)
            tasks.cancel_scope.cancel()


class _Sender:
    """Sends one message of a response at a time, and knows when it sent the last one."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._lock = anyio.Lock()
        self._last = anyio.current_time()
        self._over = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start" and _is_event_stream(message):
            MutableHeaders(raw=message["headers"])["X-Accel-Buffering"] = "no"  # nginx would hold events back
        async with self._lock:
            await self._send(message)
            self._last = anyio.current_time()
            self._over = message["type"] == "http.response.body" and not message.get("more_body", False)

    async def comment(self, interval: float) -> None:
        while True:
            await anyio.sleep_until(self._last + interval)
            async with self._lock:
                if self._over:
                    return
                if anyio.current_time() - self._last >= interval:
                    await self._send({"type": "http.response.body", "body": COMMENT, "more_body": True})
                    self._last = anyio.current_time()


def _is_event_stream(start: Message) -> bool:
    return MutableHeaders(raw=start["headers"]).get("content-type", "").startswith("text/event-stream")
