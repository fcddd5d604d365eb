"""The HTTP sessions: the path that each was opened on, its event streams, and its end.

The SDK binds a session to its credential alone, accepts it on any path, and tells nobody of its end.
"""

import json
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final

import anyio
import structlog
from mcp.server.streamable_http import check_accept_headers
from mcp_types import INTERNAL_ERROR, INVALID_REQUEST
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from proxy.core.byte_budget import ByteBudget
from proxy.core.errors import PastLimit, TooManyScopes
from proxy.core.scope import ScopeId, ScopeKind
from proxy.core.settings import SESSIONS_IN_NAMESPACES
from proxy.face.error_response import error_response
from proxy.face.events import OF_A_REQUEST, Events
from proxy.face.identity import SESSION_HEADER, Identity, as_user, principal_of
from proxy.face.streams import OwnStream, Place, Resumable
from proxy.gateway.quotas import Quotas, Slot
from proxy.ports import Clock

log = structlog.stdlib.get_logger("proxy.face")

LARGE_BYTES: Final = 64 * 1024
"""Bytes of a request and its answer together, from which on a session does not keep them until its next request."""
LET_GO_TIMEOUT: Final = 1.0
"""Seconds that this may take; a session whose stream is not read is busy with that."""


@dataclass
class _Session:
    path: str
    scope: ScopeId
    last_used: float
    events: Events
    slot: Slot
    in_flight: int = 0
    own_stream: Place = field(default_factory=Place)


class Sessions:
    """An ASGI app around the SDK's: refuses a session on another path than its own, and notices when one is over.

    `idle`: the SDK's own idle time for sessions in seconds, after which it forgets them. `on_end` is called with the
    scope and the session's id; `on_stream` with both and True when the session's own event stream has begun, False when
    it has ended. `quotas`: how many sessions and namespaces there can be, and each principal may have; sessions that
    are scopes of their own leave those in namespaces their room. `budget`: of what they keep for clients. A new request
    for a stream ends the one before; with `Last-Event-ID` it goes on after that event.
    """

    def __init__(
        self,
        app: ASGIApp,
        identity: Identity,
        idle: float,
        clock: Clock,
        on_end: Callable[[ScopeId, str], Awaitable[None]],
        on_stream: Callable[[ScopeId, str, bool], None],
        *,
        quotas: Quotas,
        budget: ByteBudget | None = None,
    ) -> None:
        self._app = app
        self._budget = budget
        self._identity = identity
        self._idle = idle
        self._clock = clock
        self._on_end = on_end
        self._on_stream = on_stream
        self._quotas = quotas
        self._sessions: dict[str, _Session] = {}
        self._counts: Counter[ScopeKind] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["method"] == "POST" and "namespace" in scope.get("path_params", ()):
            try:
                self._quotas.check_room(self._opening(scope))
            except PastLimit as error:
                await _too_many(error)(scope, receive, send)
                return
        headers = Headers(scope=scope)
        if headers.get("mcp-protocol-version", HANDSHAKE_PROTOCOL_VERSIONS[-1]) not in HANDSHAKE_PROTOCOL_VERSIONS:
            await self._app(scope, receive, send)  # the modern era knows no sessions
            return
        session_id = headers.get(SESSION_HEADER)
        if session_id is None:
            await self._open(scope, receive, send)
            return
        session = self._sessions.get(session_id)
        request = Request(scope)
        if session is None or session.path != _path(scope) or session.scope.principal != principal_of(request):
            await _NOT_FOUND(scope, receive, send)
            return
        session.in_flight += 1
        try:
            if scope["method"] == "GET" and check_accept_headers(request)[1]:
                await self._stream(session_id, session, scope, receive, send)
                return
            response = Resumable(receive, send, session.events)
            await self._answer(session.events, scope, response)
            if scope["method"] == "POST":
                await self._let_go(session_id, session.events, scope, response)
        finally:
            session.in_flight -= 1
            session.last_used = self._clock()
        if scope["method"] == "DELETE" and response.status < HTTPStatus.MULTIPLE_CHOICES:
            await self._end(session_id)

    async def sweep(self) -> None:
        """Notice the sessions that the SDK has forgotten: idle for its idle time, with no request in work.

        Those that go on forget events that nobody has come back for.
        """
        now = self._clock()
        for session_id, session in list(self._sessions.items()):
            if not session.in_flight and now - session.last_used > self._idle:
                await self._end(session_id)
            else:
                session.events.sweep()

    async def end_sessions_of(self, principals: Collection[str | None]) -> None:
        """End the sessions of these principals now, with what is in work in them; None: those without one."""
        async with anyio.create_task_group() as tasks:
            for session_id, session in list(self._sessions.items()):
                if session.scope.principal in principals:
                    tasks.start_soon(self._delete, session_id, session)

    async def _delete(self, session_id: str, session: _Session) -> None:
        """End a session as its client would: the SDK ends what is in work in it, and forgets it."""
        principal = session.scope.principal
        user = {} if principal is None else {"user": as_user(principal)}
        headers = [(SESSION_HEADER.encode(), session_id.encode())]
        request = {"type": "http", "method": "DELETE", "path": session.path, "query_string": b"", "headers": headers}
        await self._app({**request, **user}, _receive_disconnect, _discard)
        await self._end(session_id)

    async def _stream(self, session_id: str, session: _Session, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request for an event stream: of the session, or of a request whose stream broke off."""
        last = Headers(scope=scope).get("last-event-id", "")
        stream = session.events.find(last)
        if stream is None and last.startswith(OF_A_REQUEST):
            await _GONE(scope, receive, send)
            return
        if stream is not None and not stream.own:
            await self._answer(session.events, scope, Resumable(receive, send, session.events, stream))
            return

        def on_change(begun: bool) -> None:  # noqa: FBT001 - what `on_stream` is called with
            self._on_stream(session.scope, session_id, begun)

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            with session.events.current():
                await self._app(scope, receive, send)

        wanted = _from_the_start(scope) if stream is None else scope
        await session.own_stream.serve(app, wanted, OwnStream(receive, send, on_change))

    async def _answer(self, kept: Events, scope: Scope, response: Resumable) -> None:
        """Have the app answer a request, and keep what it sends for as long as the client may have missed it."""
        try:
            with kept.current():
                await self._app(scope, response.receive, response.send)
        finally:
            response.ended()
        await response.finish()

    async def _open(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request that may open a session, where there is room for one."""
        whose = self._opening(scope)
        if (refusal := self._refusal(whose)) is not None:
            await refusal(scope, receive, send)
            return
        try:
            slot = self._quotas.take("sessions", whose)
        except PastLimit as error:
            await _too_many(error)(scope, receive, send)
            return
        kept, opened = Events(self._clock, self._budget), ""

        async def watch(message: Message) -> None:
            nonlocal opened
            if message["type"] == "http.response.start" and message["status"] < HTTPStatus.MULTIPLE_CHOICES:
                session_id = Headers(raw=message["headers"]).get(SESSION_HEADER)
                if session_id is not None:
                    own = whose._replace(name=session_id) if whose.kind == "session" else whose
                    self._sessions[session_id] = _Session(_path(scope), own, self._clock(), kept, slot)
                    self._counts[own.kind] += 1
                    opened = session_id
            await send(message)

        response = Resumable(receive, watch, kept)
        try:
            await self._answer(kept, scope, response)
        finally:
            if not opened:
                slot.give_back()
        if opened:
            await self._let_go(opened, kept, scope, response)

    async def _let_go(self, session_id: str, kept: Events, scope: Scope, done: Resumable) -> None:
        """Have a session forget a large request and its answer: the SDK's tasks hold the newest until another comes."""
        if done.size <= LARGE_BYTES:
            return
        headers = MutableHeaders(raw=[*scope["headers"]])
        headers[SESSION_HEADER] = session_id
        ping = {"jsonrpc": "2.0", "id": f"let-go-{secrets.token_urlsafe(6)}", "method": "ping"}
        messages: list[Message] = [{"type": "http.request", "body": json.dumps(ping).encode(), "more_body": False}]

        async def receive() -> Message:
            if not messages:
                await anyio.sleep_forever()
            return messages.pop()

        with anyio.move_on_after(LET_GO_TIMEOUT):
            await self._answer(kept, {**scope, "headers": headers.raw}, Resumable(receive, _discard, kept))

    def _opening(self, scope: Scope) -> ScopeId:
        """The scope of a session that a request may open; of one without a namespace, without its name."""
        return self._identity.http_scope(Request(scope), HANDSHAKE_PROTOCOL_VERSIONS[-1], "")

    def _refusal(self, whose: ScopeId) -> JSONResponse | None:
        """The answer where the proxy has no room for another session, whoever asks; None where it has."""
        own = whose.kind == "session"
        if self._counts[whose.kind] < (self._quotas.bounds.session if own else SESSIONS_IN_NAMESPACES):
            return None
        what = str(TooManyScopes(whose.kind)) if own else "Too many open sessions in namespaces"
        log.warning("session.refused", reason=what)
        return error_response(HTTPStatus.SERVICE_UNAVAILABLE, INTERNAL_ERROR, what)

    async def _end(self, session_id: str) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._counts[session.scope.kind] -= 1
            session.slot.give_back()
            session.events.close()
            await self._on_end(session.scope, session_id)


async def _receive_disconnect() -> Message:
    return {"type": "http.disconnect"}


async def _discard(_message: Message) -> None:
    """Nobody waits for the answer."""


def _from_the_start(scope: Scope) -> Scope:
    """`scope` without the event that a stream is to go on after: it is not known, and the SDK would answer nothing."""
    headers = MutableHeaders(raw=list(scope["headers"]))
    del headers["last-event-id"]
    return {**scope, "headers": headers.raw}


def _too_many(past: PastLimit) -> JSONResponse:
    """The answer to what its principal has as many of as it may (RFC 6585, section 4)."""
    error = past.as_rejection()
    retry_after = {"Retry-After": str(past.retry_after)}
    return error_response(HTTPStatus.TOO_MANY_REQUESTS, error.code, error.message, data=error.data, headers=retry_after)


def _path(scope: Scope) -> str:
    path: str = scope["path"]
    return path.rstrip("/")


_NOT_FOUND = error_response(HTTPStatus.NOT_FOUND, INVALID_REQUEST, "Session not found")
_GONE = error_response(HTTPStatus.BAD_REQUEST, INVALID_REQUEST, "No stream with this Last-Event-ID is kept: it is over")
