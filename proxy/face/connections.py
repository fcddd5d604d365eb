"""The HTTP connections: how many there may be, and how long one may take to say what it wants.

uvicorn bounds neither, and takes a body that is framed in two ways (RFC 9112, section 6.1) for one that is chunked.
"""

import asyncio
from collections import Counter
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Any, Final, Literal, TypeAlias, cast

import h11
import structlog
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.server import ServerState

from proxy.face.addresses import network_of

log = structlog.stdlib.get_logger("proxy.face")

MAX_CONNECTIONS: Final = 20_000
"""The most connections, however many descriptors there may be."""
MAX_HEADER_BYTES: Final = 16 * 1024
"""The longest head of a request."""
ACCEPTED_AT_ONCE: Final = 256
"""Connections that wait to be accepted, and that are accepted in one turn of the loop, before any is counted."""

_Phase: TypeAlias = Literal["", "idle", "head", "body", "work"]
"""What a connection waits for: a next request, the rest of a request's head, of its body, or our answer."""


@dataclass(frozen=True)
class Limits:
    """What connections are held to; times in seconds."""

    connections: int
    """The most of them at a time."""

    head_within: float = 10.0
    """For all headers of a request, from its first byte, or from the beginning of the connection."""

    body_within: float = 30.0
    """For a request's body, to which each `body_rate` bytes that have come add a second."""

    body_rate: int = 16 * 1024
    """Bytes in a second."""


def limits_for(descriptors: int) -> Limits:
    """What a process can do that may have so many open: the rest is for the pipes and sockets of its servers."""
    return Limits(connections=max(1, min(MAX_CONNECTIONS, descriptors * 5 // 8)))


class ConnectionLimiter:
    """The connections of one server, and which of them has to go where there are too many.

    Where they are full, one that has no whole request in work makes room, the one that has waited longest; where all
    have, a new one is refused. Three quarters full, an address that has half of all places gets no more than it has, so
    that the last quarter is for others.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._count = 0
        self._by_address: Counter[str] = Counter()
        self._waiting: dict[str, dict[Connection, None]] = {}
        self._oldest: dict[Connection, None] = {}

    def admit(self, connection: "Connection") -> bool:
        """Count a new connection; False where it has to be refused."""
        address, most = connection.address, self.limits.connections
        self._count += 1
        self._by_address[address] += 1
        if self._count > most * 3 // 4 and self._by_address[address] > most // 2:
            return self._make_room(self._waiting.get(address, {}))
        return self._count <= most or self._make_room(self._oldest)

    def release(self, connection: "Connection") -> None:
        """A connection is over."""
        self.set_waiting(connection, waiting=False)
        self._count -= 1
        self._by_address[connection.address] -= 1
        if not self._by_address[connection.address]:
            del self._by_address[connection.address]

    def set_waiting(self, connection: "Connection", *, waiting: bool) -> None:
        """Whether a connection has no whole request in work, from now on."""
        own = self._waiting.setdefault(connection.address, {})
        for each in (own, self._oldest):
            each.pop(connection, None)
            if waiting:
                each[connection] = None
        if not own:
            del self._waiting[connection.address]

    def _make_room(self, waiting: "dict[Connection, None]") -> bool:
        oldest = next(iter(waiting), None)
        if oldest is None:
            return False
        oldest.evict()
        return True

    def protocol(self) -> "type[asyncio.Protocol]":
        """What uvicorn makes a connection with."""
        return cast("type[asyncio.Protocol]", partial(Connection, self))


class Connection(H11Protocol):
    """One connection, which `limiter` has let in, or not."""

    def __init__(
        self,
        limiter: ConnectionLimiter,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.conn = _StrictConnection(h11.SERVER, MAX_HEADER_BYTES)
        self.address = ""
        self._limiter = limiter
        self._phase: _Phase = ""
        self._since = 0.0
        self._received = 0
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Admit the connection, or refuse it where the limits are reached."""
        super().connection_made(transport)
        self.address = network_of(self.client[0]) if self.client else ""
        if self._limiter.admit(self):
            self._update_phase()
        else:
            log.warning("connection.refused", address=self.address, reason="there are as many as there may be")
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE)

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over."""
        self._stop_timer()
        self._limiter.release(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Something of a request has come."""
        super().data_received(data)
        self._update_phase()
        self._received += len(data)

    def on_response_complete(self) -> None:
        """An answer has been given."""
        super().on_response_complete()
        self._update_phase()

    def evict(self) -> None:
        """Make room for another connection, at once."""
        self._limiter.set_waiting(self, waiting=False)
        self._disconnect_app()
        self.transport.abort()

    def _update_phase(self) -> None:
        """See what it waits for by now, and how long it may."""
        phase = "idle" if self.transport.is_closing() else self._current_phase()
        if phase == self._phase:
            return
        self._phase, self._since, self._received = phase, self.loop.time(), 0
        self._limiter.set_waiting(self, waiting=phase != "work")
        self._stop_timer()
        within = {"head": self._limiter.limits.head_within, "body": self._limiter.limits.body_within}.get(phase)
        if within is not None:
            self._timer = self.loop.call_later(within, self._timed_out)

    def _current_phase(self) -> _Phase:
        if self.conn.their_state is h11.SEND_BODY:
            return "body"
        if self.conn.their_state is not h11.IDLE:
            return "work"
        return "head" if self.timeout_keep_alive_task is None else "idle"  # uvicorn has a timer for those

    def _timed_out(self) -> None:
        limits, now = self._limiter.limits, self.loop.time()
        if self._phase == "body":
            if self.flow.read_paused:  # it is us who do not read
                self._since = now
            left = self._since + limits.body_within + self._received / limits.body_rate - now
            if left > 0:
                self._timer = self.loop.call_later(left, self._timed_out)
                return
        if not self._received:  # opened to be used later, as browsers do
            self.transport.close()
            return
        log.warning("connection.refused", address=self.address, reason=f"the {self._phase} of its request is late")
        self._refuse(HTTPStatus.REQUEST_TIMEOUT)

    def _refuse(self, status: HTTPStatus) -> None:
        """Close it, with a status where no answer has begun."""
        answer = self._answer
        if answer is None or answer.response_complete or not answer.response_started:
            head = f"HTTP/1.1 {status.value} {status.phrase}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
            self.transport.write(head.encode())
        self._disconnect_app()
        self.transport.close()
        if self.transport.get_write_buffer_size():  # whoever does not read either gets no more
            self.transport.abort()

    def _disconnect_app(self) -> None:
        """Tell the app that its client is gone, so that it sends nothing more."""
        answer = self._answer
        if answer is not None and not answer.response_complete:
            answer.disconnected = True
            answer.message_event.set()

    @property
    def _answer(self) -> RequestResponseCycle | None:
        """To the newest request, if there was one."""
        return self.cycle

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class _StrictConnection(h11.Connection):
    """Refuses what h11 lets pass, and what two programs in a row may take for different requests.

    A request with both Content-Length and Transfer-Encoding, and one of HTTP/1.0 with the latter. h11 itself refuses
    one with two different lengths.
    """

    def next_event(self) -> Any:  # noqa: ANN401 - h11's own type names no public class
        """What has come.

        Raises:
            h11.RemoteProtocolError: the request is not to be served.
        """
        event = super().next_event()
        if isinstance(event, h11.Request):
            names = {name for name, _ in event.headers}
            if b"transfer-encoding" in names and (b"content-length" in names or event.http_version < b"1.1"):
                raise h11.RemoteProtocolError("a body that is framed in two ways")
        return event
