"""Responses that can give way to a newer one, as the event stream of a session does: there is one of it at a time.

The SDK refuses a second one for as long as it holds the first, also where the first one's client is long gone.
"""

from collections.abc import Callable
from http import HTTPStatus
from typing import Final

import anyio
import anyio.lowlevel
from mcp_types import INVALID_REQUEST
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from proxy.face.error_response import error_response
from proxy.face.events import Events, Stream

PATIENCE: Final = 5.0
"""Seconds that a new stream waits for the one before to end; after that the SDK refuses it."""
IN_ONE: Final = 64 * 1024
"""Bytes of an answer that can end its response; of a larger one uvicorn tells with the next message alone whether the
client has left before it was sent."""
LAST_WORD: Final = 1.0
"""Seconds for telling the client of a replaced stream that it is over; one that is gone does not hear it."""


class Response:
    """One response, with which an app is called; the app takes giving way for a client that disconnects.

    `status`: of the response, 0 before it has begun. `size`: bytes of the request's body and of the response's so far.
    """

    def __init__(self, receive: Receive, send: Send) -> None:
        self.status = 0
        self.size = 0
        self._receive = receive
        self._send = send
        self._waiting: anyio.CancelScope | None = None
        self._over = False
        self._left = False
        self._complete = False

    async def receive(self) -> Message:
        """What the client sends; "http.disconnect" once this response has to give way."""
        if not self._over:
            with anyio.CancelScope() as self._waiting:
                message = await self._receive()
                self._left = self._left or (message["type"] == "http.disconnect" and not self._complete)
                self.size += len(message.get("body", b""))
                return message
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        """Pass on what the app sends."""
        await self._send(message)
        self.size += len(message.get("body", b""))
        if message["type"] == "http.response.start":
            self.status = message["status"]
        elif not message.get("more_body", False):
            self._complete = True

    @property
    def given_way(self) -> bool:
        """Whether a newer one has taken its place."""
        return self._over

    def give_way(self) -> None:
        """A newer one takes its place: end."""
        self._over = True
        if self._waiting is not None:
            self._waiting.cancel()

    async def finish(self) -> None:
        """Tell the client of a response that has given way that it is over."""
        if not self._over:
            return
        with anyio.move_on_after(LAST_WORD):
            if not self.status:
                await _REPLACED({"type": "http"}, self._receive, self._send)
            elif not self._complete:
                await self._send({"type": "http.response.body", "body": b"", "more_body": False})


class Resumable(Response):
    """A response that sends one of a session's event streams of requests.

    `stream`: which, where it is known; else the first event tells.
    """

    def __init__(self, receive: Receive, send: Send, events: Events, stream: Stream | None = None) -> None:
        super().__init__(receive, send)
        self._events = events
        self._stream = stream
        self._answered = 0
        if stream is not None:
            stream.take(self)

    async def send(self, message: Message) -> None:
        """Pass on what the app sends, and end with the answer: the SDK would end in one more message."""
        if self._complete:
            return
        if self._answered:  # the news that the client has left in the middle of the answer may have come by now
            await anyio.lowlevel.checkpoint()
        event_id = _event_id(message.get("body", b""))
        if event_id is not None and self._stream is None and (stream := self._events.find(event_id)) is not None:
            self._stream = stream
            stream.take(self)
        if event_id is not None and self._stream is not None and event_id == self._stream.answer:
            self._answered = len(message["body"])
            if self._answered <= IN_ONE:
                message = {**message, "more_body": False}
        await super().send(message)
        if self._answered and self._complete:
            self._release()

    def ended(self) -> None:
        """The app is done."""
        self._release()

    def _release(self) -> None:
        """The stream is no longer sent by this response, which may have sent the answer to its end."""
        stream, self._stream = self._stream, None
        if stream is not None:
            self._events.release(stream, self, sent=self._answered if self._complete and not self._left else 0)


class OwnStream(Response):
    """A response that is a session's own event stream.

    `on_change` is called with True when the stream has begun (status 200) and with False when it has ended.
    """

    def __init__(self, receive: Receive, send: Send, on_change: Callable[[bool], None]) -> None:
        super().__init__(receive, send)
        self._on_change = on_change
        self._streaming = False

    async def send(self, message: Message) -> None:
        """Pass on what the app sends."""
        await super().send(message)
        if message["type"] == "http.response.start" and self.status == HTTPStatus.OK:
            self._streaming = True
            self._on_change(True)  # noqa: FBT003 - it tells one state of two

    def ended(self) -> None:
        """The app is done."""
        if self._streaming:
            self._streaming = False
            self._on_change(False)  # noqa: FBT003 - likewise


class Place:
    """Where there is one response at a time: the one that came last."""

    def __init__(self) -> None:
        self._place = anyio.Lock()
        self._newest: Response | None = None

    async def serve(self, app: ASGIApp, scope: Scope, response: OwnStream) -> None:
        """Have `app` answer once the response before has ended, unless a newer one comes meanwhile."""
        before, self._newest = self._newest, response
        if before is not None:
            before.give_way()
        with anyio.move_on_after(PATIENCE) as waiting:
            await self._place.acquire()
        try:
            if not response.given_way:
                await app(scope, response.receive, response.send)
        finally:
            response.ended()
            if not waiting.cancelled_caught:
                self._place.release()
            if self._newest is response:
                self._newest = None
        await response.finish()


def _event_id(chunk: bytes) -> str | None:
    """The id of the event that is a part of an event stream, if it has one; the SDK puts it first."""
    return chunk[4:200].partition(b"\r\n")[0].decode() if chunk.startswith(b"id: ") else None


_REPLACED = error_response(
    HTTPStatus.CONFLICT, INVALID_REQUEST, "A newer request for this session's event stream has come"
)
