"""Answers over HTTP within bounds: of their size once decompressed, and of what comes unasked on event streams."""

import re
from codecs import BOM_UTF8
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from time import perf_counter
from typing import Final

import anyio
import httpx2
from anyio.lowlevel import checkpoint

from proxy.core.errors import too_large, too_many_values
from proxy.core.json_cost import MAX_JSON_VALUES, UNCOUNTED_BYTES, has_more_values, may_have_more_values
from proxy.wire.dispatcher import MAX_NOISE_LINES
from proxy.wire.turns import Allowance, Turns

EVENT_S: Final = 0.00025
"""Seconds of work that one event is taken to cause."""
AT_ONCE_BYTES: Final = 256 * 1024
"""Bytes of a body after which others have their turns before it is read on."""
LINES_OF_EVENT_BYTES: Final = 64
"""Bytes that a line of an event counts for at least: each is a text of its own while it is read."""
_BLANK: Final = re.compile(rb"(?>\r\n|\n|\r){2}")
"""The end of an event."""
_NOT_JSON: Final = re.compile(rb"(?:^|[\r\n])data: ?(?=[^\s{\[])")
"""Data of an event that are no JSON-RPC."""


class BadAnswer(httpx2.SSEError, httpx2.StreamError):
    """An answer that is not read to its end; the SDK hands its text on, whatever kind of body it was reading."""


class Bounds:
    """The bounds of one server's answers. `limit`: bytes of a body, or of one event of a stream."""

    def __init__(self, limit: int, turns: Turns) -> None:
        self.limit = limit
        self.fault = ""
        """Why the connection was ended; empty while it was not."""
        self.on_fault: Callable[[], None] = lambda: None
        """Called when the stream that belongs to no request has broken the bounds."""
        self._turns = turns
        self._allowance = Allowance()
        self._noise = 0

    def response(self, response: httpx2.Response) -> "BoundedResponse":
        """The same answer, within these bounds."""
        return BoundedResponse(response, self)

    async def whole(self, chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
        """The pieces of a body.

        Raises:
            BadAnswer: it is larger than `limit`.
        """
        size = 0
        async for chunk in _with_pauses(chunks):
            size += len(chunk)
            if size > self.limit:
                raise BadAnswer(too_large(self.limit))
            yield chunk

    async def events(self, chunks: AsyncIterator[bytes], *, answers: bool) -> AsyncGenerator[bytes]:
        """The events of a stream, each in one piece, without comments that stand alone.

        `answers`: the first one is what a request waits for. All others come in turns once there are many.

        Raises:
            BadAnswer: one is larger than `limit`, or has too many lines or values, or too many are no JSON-RPC.
        """
        asked_for = 1 if answers else 0
        event, lines = bytearray(), 0
        async for chunk in _with_pauses(_without_mark(chunks)):
            looked_at, before = max(0, len(event) - 3), len(event)
            event += chunk
            lines += _lines(chunk)
            while (end := _BLANK.search(event, looked_at)) is not None:
                one = bytes(event[: end.end()])
                del event[: end.end()]
                looked_at = 0
                await self._check(one)
                if asked_for:
                    asked_for -= 1
                else:
                    await self._take_turn()
                if not _says_nothing(one):
                    yield one + b"\n" if one.endswith(b"\r") else one  # whoever reads it waits for what follows "\r"
            if len(event) < before + len(chunk):  # the lines of what has been taken are not those of the rest
                lines = _lines(event)
            if len(event) > self.limit or lines > self._most_lines:
                raise BadAnswer(too_large(self.limit))
        if event:
            await self._check(bytes(event))
            yield bytes(event)

    @property
    def _most_lines(self) -> int:
        return max(100, self.limit // LINES_OF_EVENT_BYTES)

    async def _check(self, event: bytes) -> None:
        if len(event) > self.limit or _lines(event) > self._most_lines:
            raise BadAnswer(too_large(self.limit))
        await _check_values(event)
        self._noise = self._noise + 1 if _NOT_JSON.search(event) else 0
        if self._noise >= MAX_NOISE_LINES:
            raise BadAnswer(f"it sent {MAX_NOISE_LINES:,} events in a row that are not JSON-RPC")

    async def _take_turn(self) -> None:
        now = perf_counter()
        self._allowance.spend(EVENT_S, now)
        if self._allowance.spent(now):
            await self._turns.wait(EVENT_S)


async def _with_pauses(chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
    """The same pieces; others have their turns in between, also while many come of little that was compressed."""
    since = 0
    async for chunk in chunks:
        since += len(chunk)
        if since > AT_ONCE_BYTES:
            since = 0
            await checkpoint()
        yield chunk


async def _without_mark(chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
    """The same pieces without a byte order mark at the beginning, which event streams may have."""
    begin: bytes | None = b""
    async for chunk in chunks:
        if begin is None:
            yield chunk
        elif len(begin := begin + chunk) >= len(BOM_UTF8) or not BOM_UTF8.startswith(begin):
            yield begin.removeprefix(BOM_UTF8)
            begin = None
    if begin:
        yield begin


async def _check_values(message: bytes) -> None:
    doubtful = len(message) > UNCOUNTED_BYTES and may_have_more_values(message, MAX_JSON_VALUES)
    if doubtful and await anyio.to_thread.run_sync(has_more_values, message, MAX_JSON_VALUES):
        raise BadAnswer(too_many_values(MAX_JSON_VALUES))


def _says_nothing(event: bytes) -> bool:
    """Whether it has no lines, or comments alone."""
    return event[:1] in b":\r\n" and all(line[:1] in (b":", b"") for line in event.splitlines())


def _lines(event: bytes | bytearray) -> int:
    return event.count(b"\n") + event.count(b"\r")


class BoundedResponse(httpx2.Response):
    """An answer whose body is read within `bounds`; whatever reads it reads it here."""

    def __init__(self, response: httpx2.Response, bounds: Bounds) -> None:
        super().__init__(
            response.status_code,
            headers=response.headers,
            stream=response.stream,
            request=response.request,
            extensions=response.extensions,
            default_encoding=response.default_encoding,
        )
        self.next_request = response.next_request
        self._bounds = bounds

    async def aiter_bytes(
        self,
        chunk_size: int | None = None,  # noqa: ARG002 - the base's
    ) -> AsyncGenerator[bytes]:
        """The body, decompressed; `chunk_size` is not heeded.

        Raises:
            BadAnswer: it breaks the bounds.
        """
        sent, kind = self.request, self.headers.get("content-type", "").lower()
        own = sent.method == "GET" and "last-event-id" not in sent.headers
        async with aclosing(super().aiter_bytes()) as chunks:
            if kind.startswith("text/event-stream") and self.is_success:
                pieces = self._bounds.events(chunks, answers=not own)
            else:
                pieces = self._bounds.whole(chunks)
            async with aclosing(pieces):
                try:
                    async for piece in pieces:
                        yield piece
                except BadAnswer as bad:
                    if own:
                        self._bounds.fault = str(bad)
                        self._bounds.on_fault()
                    raise

    async def aread(self) -> bytes:
        """The whole body.

        Raises:
            BadAnswer: it breaks the bounds, or has too many values.
        """
        body = await super().aread()
        await _check_values(body)
        return body
