"""Which path an HTTP session was opened on, and when it ends.

The SDK binds a session to its credential alone, accepts it on any path, and tells nobody of its end.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus

from mcp_types import INVALID_REQUEST
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from proxy.core.scope import ScopeId
from proxy.face.identity import SESSION_HEADER, Identity
from proxy.ports import Clock


@dataclass
class _Session:
    path: str
    scope: ScopeId
    last_used: float
    in_flight: int = 0


class Sessions:
    """An ASGI app around the SDK's: refuses a session on another path than its own, and notices when one is over.

    `idle`: the SDK's own idle time for sessions in seconds, after which it forgets them; `on_end` is called with the
    scope and the session's id.
    """

    def __init__(
        self,
        app: ASGIApp,
        identity: Identity,
        idle: float,
        clock: Clock,
        on_end: Callable[[ScopeId, str], Awaitable[None]],
    ) -> None:
        self._app = app
        self._identity = identity
        self._idle = idle
        self._clock = clock
        self._on_end = on_end
        self._sessions: dict[str, _Session] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        headers = Headers(scope=scope)
        if headers.get("mcp-protocol-version", HANDSHAKE_PROTOCOL_VERSIONS[-1]) not in HANDSHAKE_PROTOCOL_VERSIONS:
            await self._app(scope, receive, send)  # the modern era knows no sessions
            return
        session_id = headers.get(SESSION_HEADER)
        if session_id is None:
            await self._app(scope, receive, self._watching_for_a_new_one(scope, send))
            return
        session = self._sessions.get(session_id)
        if session is None or session.path != _path(scope):
            await _NOT_FOUND(scope, receive, send)
            return
        status = HTTPStatus.INTERNAL_SERVER_ERROR.value

        async def watch(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        session.in_flight += 1
        try:
            await self._app(scope, receive, watch)
        finally:
            session.in_flight -= 1
            session.last_used = self._clock()
        # Another's credential gets 404 as well, without the session being over: only its owner's DELETE ends it.
        if scope["method"] == "DELETE" and status < HTTPStatus.MULTIPLE_CHOICES:
            await self._end(session_id)

    async def sweep(self) -> None:
        """Notice the sessions that the SDK has forgotten: idle for its idle time, with no request in work."""
        now = self._clock()
        for session_id, session in list(self._sessions.items()):
            if not session.in_flight and now - session.last_used > self._idle:
                await self._end(session_id)

    def _watching_for_a_new_one(self, scope: Scope, send: Send) -> Send:
        async def watch(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] < HTTPStatus.MULTIPLE_CHOICES:
                opened = Headers(raw=message["headers"]).get(SESSION_HEADER)
                if opened is not None:
                    whose = self._identity.http_scope(Request(scope), HANDSHAKE_PROTOCOL_VERSIONS[-1], opened)
                    self._sessions[opened] = _Session(_path(scope), whose, self._clock())
            await send(message)

        return watch

    async def _end(self, session_id: str) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            await self._on_end(session.scope, session_id)


def _path(scope: Scope) -> str:
    path: str = scope["path"]
    return path.rstrip("/")


_NOT_FOUND = JSONResponse(
    {"jsonrpc": "2.0", "id": None, "error": {"code": INVALID_REQUEST, "message": "Session not found"}}, status_code=404
)
