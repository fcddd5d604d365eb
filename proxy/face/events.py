"""What was sent on the event streams of a session, kept while its client may have missed it (2025-11-25, resumability).

The SDK has one store for all sessions, and numbers their streams by request ids, which are not unique across sessions.
"""

import secrets
from collections import deque
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, NamedTuple, Protocol

import anyio
from mcp.server.streamable_http import GET_STREAM_KEY, EventCallback, EventMessage, EventStore
from mcp_types import JSONRPCError, JSONRPCMessage, JSONRPCResponse

from proxy.core.byte_budget import ByteBudget, Share, message_size
from proxy.ports import Clock

EVENTS: Final = 100
"""How many events of one stream are kept, the newest ones."""
STREAMS: Final = 100
"""How many streams of one session are kept that broke off and have their answer, the newest ones."""
SENT: Final = 16
SENT_BYTES: Final = 64 * 1024
"""How many answers that were sent, and bytes of them, one session keeps all the same, the newest ones: what was sent on
a connection that is lost without a word has not arrived, and nobody knows."""
KEPT_BYTES: Final = 32 * 1024 * 1024
"""Bytes of JSON of all events that one session keeps. Where it has more, the oldest streams that have their answer are
forgotten, and a client that comes back for one is told that it is over; then the oldest events of the others."""
KEPT: Final = 60.0
"""Seconds that a client has to come back: after the answer or the break, whichever was later, or after a notice."""
DIGITS: Final = 12
"""Of the number of an event, at most."""
OF_A_REQUEST: Final = "request-"
"""How the ids of events begin that are not of a session's own stream."""


class Sender(Protocol):
    """A response that sends a stream."""

    def give_way(self) -> None:
        """Another one does so from now on: end."""
        ...


class _Event(NamedTuple):
    number: int
    came: float
    size: int
    message: JSONRPCMessage


class Stream:
    """One stream: that of a request, which ends with the answer, or a session's own, which does not end.

    `key`: what the SDK calls it. `answer`: the id of the event with the answer, once there is one. `since`: when the
    newest event came, or when the response that sent the stream ended, whichever was later, in the clock's seconds.
    `share`: of the bytes that its session keeps.
    """

    def __init__(self, key: str, name: str, now: float, share: Share) -> None:
        self.key = key
        self.name = name
        self.answer: str | None = None
        self.since = now
        self._events: deque[_Event] = deque()
        self._share = share
        self._number = 0
        self._sender: Sender | None = None
        self._news: anyio.Event | None = None
        self._closed = False

    @property
    def own(self) -> bool:
        """Whether it is the session's own."""
        return self.key == GET_STREAM_KEY

    @property
    def broken_off(self) -> bool:
        """Whether it has its answer, and nobody sends it."""
        return self.answer is not None and self._sender is None

    def add(self, message: JSONRPCMessage | None, now: float) -> str:
        """Keep an event, None for one that has nothing but an id; its id."""
        self._number += 1
        self.since = now
        event_id = self._id(self._number)
        if message is not None:
            size = _size(message) + len(self.key)
            self._share.add(size)
            self._events.append(_Event(self._number, now, size, message))
            if len(self._events) > EVENTS:
                self._forget_oldest()
            if not self.own and isinstance(message, JSONRPCResponse | JSONRPCError):
                self.answer = event_id
            self._tell()
        return event_id

    def take(self, sender: Sender) -> None:
        """This response sends it from now on; the one before is told to give way."""
        before, self._sender = self._sender, sender
        if before is not None and before is not sender:
            before.give_way()

    def release(self, sender: Sender, now: float) -> bool:
        """This response has ended; whether it was the one that sends the stream."""
        if self._sender is not sender:
            return False
        self._sender = None
        self.since = now
        return True

    def drop(self, before: float) -> None:
        """Forget the events that came before that time."""
        while self._events and self._events[0].came < before:
            self._forget_oldest()

    def give_up_oldest(self) -> bool:
        """Forget the oldest event, unless it is the answer; whether there was one."""
        if not self._events or self._id(self._events[0].number) == self.answer:
            return False
        self._forget_oldest()
        return True

    def close(self) -> None:
        """Nothing comes any more, and nothing is kept."""
        self._closed = True
        while self._events:
            self._forget_oldest()
        self._tell()

    async def send_after(self, number: int, send: EventCallback) -> None:
        """Send what followed the event of that number, and what comes, until the answer has been sent."""
        while not self._closed:
            if missed := [event for event in self._events if event.number > number]:
                for event in missed:
                    await send(EventMessage(event.message, self._id(event.number)))
                number = missed[-1].number
            elif self.answer is not None:
                return
            else:
                self._news = self._news or anyio.Event()
                await self._news.wait()

    def _forget_oldest(self) -> None:
        self._share.add(-self._events.popleft().size)

    def _id(self, number: int) -> str:
        return f"{self.name}.{number}"

    def _tell(self) -> None:
        if self._news is not None:
            self._news.set()
            self._news = None


class Events:
    """The streams of one session; the ids of their events mean nothing in another."""

    def __init__(self, clock: Clock, budget: ByteBudget | None = None) -> None:
        self._clock = clock
        self._share = (budget or ByteBudget()).share(KEPT_BYTES)
        self._secret = secrets.token_urlsafe(12)
        self._numbers = 0
        self._by_name: dict[str, Stream] = {}
        self._newest: dict[str, Stream] = {}
        self._sent: deque[tuple[Stream, int]] = deque()
        self._sent_bytes = 0

    def __len__(self) -> int:
        """How many streams are known."""
        return len(self._by_name)

    @contextmanager
    def current(self) -> Generator[None]:
        """Those that the SDK's store means inside, and in tasks that are started inside."""
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)

    def store(self, key: str, message: JSONRPCMessage | None) -> str:
        """Keep an event of the stream that the SDK calls `key`, None for the first one of a request's; its id."""
        now = self._clock()
        stream = self._newest.get(key)
        if stream is None or stream.answer is not None or message is None:
            stream = self._begin(key, now)
        event_id = stream.add(message, now)
        if stream.own:
            stream.drop(now - KEPT)
        elif stream.broken_off:
            self.sweep()
        self._fit()
        return event_id

    def find(self, event_id: str) -> Stream | None:
        """The stream of an event, if it is known."""
        return self._by_name.get(event_id.rpartition(".")[0])

    async def send_after(self, event_id: str, send: EventCallback) -> None:
        """Send what followed an event on its stream, and what comes; nothing where the stream is not known."""
        stream, number = self.find(event_id), event_id.rpartition(".")[2]
        if stream is not None and number.isdecimal() and len(number) <= DIGITS:
            await stream.send_after(int(number), send)

    def release(self, stream: Stream, sender: Sender, *, sent: int) -> None:
        """A response has ended, if it still was the one that sends the stream; `sent`: bytes of the answer, if it has.

        A large answer that was sent is not kept.
        """
        if not stream.release(sender, self._clock()):
            return
        if sent > SENT_BYTES:
            self._forget(stream)
        elif sent:
            self._sent.append((stream, sent))
            self._sent_bytes += sent
            while len(self._sent) > SENT or self._sent_bytes > SENT_BYTES:
                oldest, size = self._sent.popleft()
                self._sent_bytes -= size
                if oldest.broken_off:  # else somebody fetches it just now
                    self._forget(oldest)
        elif stream.broken_off:
            self.sweep()
        self._fit()

    def sweep(self) -> None:
        """Forget what has been kept for long enough, and the oldest of too many."""
        before = self._clock() - KEPT
        broken: list[Stream] = []
        for stream in list(self._by_name.values()):
            if stream.own:
                stream.drop(before)
            elif stream.broken_off and stream.since < before:
                self._forget(stream)
            elif stream.broken_off:
                broken.append(stream)
        for stream in sorted(broken, key=lambda stream: stream.since)[:-STREAMS]:
            self._forget(stream)

    def close(self) -> None:
        """The session is over: streams that are being resumed end, and nothing is kept."""
        for stream in self._by_name.values():
            stream.close()
        self._by_name.clear()
        self._newest.clear()
        self._sent.clear()

    def _begin(self, key: str, now: float) -> Stream:
        if (before := self._newest.get(key)) is not None:
            self._forget(before)
        self._numbers += 1
        kind = "own-" if key == GET_STREAM_KEY else OF_A_REQUEST
        stream = Stream(key, f"{kind}{self._numbers}-{self._secret}", now, self._share)
        self._newest[key] = self._by_name[stream.name] = stream
        return stream

    def _fit(self) -> None:
        """Forget what is too many bytes, the oldest first."""
        if not self._share.exceeded:
            return
        streams = sorted(self._by_name.values(), key=lambda stream: stream.since)
        for stream in streams:
            if stream.broken_off and self._share.exceeded:
                self._forget(stream)
        for stream in streams:
            while self._share.exceeded and stream.give_up_oldest():
                pass

    def _forget(self, stream: Stream) -> None:
        stream.close()
        self._by_name.pop(stream.name, None)
        if self._newest.get(stream.key) is stream:
            del self._newest[stream.key]


def _size(message: JSONRPCMessage) -> int:
    match message:
        case JSONRPCResponse():
            return message_size(message.result)
        case JSONRPCError():
            return message_size([message.error.message, message.error.data])
        case _:
            return message_size(message.params)


_current: ContextVar[Events] = ContextVar("events")
"""Those of the session that a request is for; the request that opens a session starts the SDK's tasks for it."""


class SessionEvents(EventStore):
    """The SDK's store for all sessions: each has its own, the current one."""

    async def store_event(self, stream_id: str, message: JSONRPCMessage | None) -> str:
        """Keep an event; its id."""
        return _current.get().store(stream_id, message)

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> None:
        """Send what followed an event on its stream, and what comes, to the end of the stream.

        The SDK would go on by itself after what has been kept, but not with what comes between the two.
        """
        await _current.get().send_after(last_event_id, send_callback)
