"""The protocol over Streamable HTTP: `/mcp`, `/mcp/{namespace}` and a health route behind one guard."""

import logging
import socket
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final, Protocol

import anyio
import structlog
import uvicorn
from mcp.server.streamable_http_manager import StreamableHTTPASGIApp, StreamableHTTPSessionManager
from starlette.applications import Starlette
from starlette.convertors import StringConvertor, register_url_convertor
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from proxy.core.scope import NAMESPACE
from proxy.core.settings import MIN_TOKEN_CHARACTERS, SESSIONS_IN_NAMESPACES, Settings
from proxy.face.connections import ACCEPTED_AT_ONCE, ConnectionLimiter, Limits, limits_for
from proxy.face.events import SessionEvents
from proxy.face.guard import Bearer, Guard, host_name, is_loopback, nothing_here, origin_pattern
from proxy.face.identity import principal_of
from proxy.face.keepalive import KeepAlive
from proxy.face.principals import Principals
from proxy.face.request_body import RequestBodies
from proxy.face.request_headers import RequestHeaders
from proxy.face.server import ProxyServer
from proxy.face.sessions import Sessions
from proxy.wire.descriptors import descriptor_limit

log = structlog.stdlib.get_logger("proxy.face")

HEALTH: Final = "/health"
GRACE: Final = 1
"""Seconds that open requests have to end once the proxy stops."""
RETRY: Final = 500
"""Milliseconds after which a client is asked to come back for a stream that broke off."""


class _Namespace(StringConvertor):
    """The last part of `/mcp/{namespace}`."""

    regex = NAMESPACE


register_url_convertor("namespace", _Namespace())


class CannotListen(Exception):
    """The address cannot be served on; the text says why and what to do."""


class Health(Protocol):
    """Tells how the servers stand."""

    def __call__(self, principal: str | None, *, details: bool) -> Mapping[str, Any]:
        """`status` in one word; `details`: with what concerns `principal`, None where nobody has a token."""
        ...


def listen(host: str, port: int, settings: Settings) -> socket.socket:
    """A socket bound to the address; `port` 0 takes a free one.

    Raises:
        CannotListen: others could reach it without a token or with a short one, or it cannot be bound.
    """
    if (fault := token_fault(way_in(host, settings), settings.tokens)) is not None:
        raise CannotListen(fault)
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        bound = socket.create_server((host, port), family=family)
    except OSError as error:
        raise CannotListen(f"cannot listen on {host}:{port}: {error.strerror or error}; try another --port") from None
    # asyncio sets it on sockets that it makes itself; without it an answer can wait 40 ms for a delayed ACK.
    bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return bound


def http_app(
    server: ProxyServer,
    manage: Callable[[ASGIApp], Sessions],
    settings: Settings,
    principals: Principals,
    host: str,
    health: Health,
) -> Starlette:
    """The ASGI app; `manage` puts the keeper of sessions around the SDK's app, `health` tells how servers stand."""
    manager = StreamableHTTPSessionManager(
        app=server,
        event_store=SessionEvents(),
        retry_interval=RETRY,
        session_idle_timeout=settings.scope_idle.session,
        max_sessions=settings.max_scopes.session + SESSIONS_IN_NAMESPACES,
        max_request_body_size=settings.max_request_size,
    )
    hosts = (host, *settings.allowed_hosts)
    sessions = manage(StreamableHTTPASGIApp(manager))
    bounded = RequestBodies(sessions, settings.max_request_size)
    endpoint = KeepAlive(RequestHeaders(bounded), settings.keep_alive)

    async def answer_health(request: Request) -> JSONResponse:
        principal = principal_of(request)
        return JSONResponse(health(principal, details=not principals.required or principal is not None))

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncGenerator[None]:
        async with manager.run():
            yield

    app = Starlette(
        routes=[
            Route("/mcp", endpoint=endpoint),
            Route("/mcp/", endpoint=endpoint),
            Route("/mcp/{namespace:namespace}", endpoint=endpoint),
            Route("/mcp/{namespace:namespace}/", endpoint=endpoint),
            Route(HEALTH, answer_health, methods=["GET"]),
        ],
        middleware=[
            Middleware(Guard, hosts, settings.allowed_origins, any_address=not is_loopback(host)),
            Middleware(
                _CrossOrigin,
                allow_origin_regex=origin_pattern(settings.allowed_origins),
                allow_methods=["GET", "POST", "DELETE"],
                allow_headers=["*"],
                expose_headers=["Mcp-Session-Id", "Retry-After", "WWW-Authenticate"],
            ),
            Middleware(Bearer, principals, open_path=HEALTH),
        ],
        exception_handlers={404: _nothing_here},
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False  # what is served with a slash at its end is served there
    return app


class _CrossOrigin(CORSMiddleware):
    """CORS for the routes of the protocol alone: no page of another origin can read what the health route says."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "http" and scope["path"] == HEALTH:
            await self.app(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)


async def _nothing_here(_request: Request, _error: Exception) -> PlainTextResponse:
    return nothing_here()


def way_in(host: str, settings: Settings) -> str | None:
    """What lets requests from other machines in, if anything."""
    if not is_loopback(host):
        return f"--host {host}"
    foreign = [name for name in settings.allowed_hosts if not is_loopback(host_name(name) or name)]
    return f"proxy.allowed_hosts: {foreign[0]}" if foreign else None


def token_fault(way: str | None, tokens: Mapping[str, str]) -> str | None:
    """Why the proxy must not be reached in this way (`way_in`) with these tokens, and what to do, if so."""
    if way is None:
        return None
    if not tokens:
        return (
            f"{way} lets other machines in, and everybody there could use your servers: set proxy.tokens in the "
            "configuration, or stay on loopback"
        )
    if short := [principal for principal, token in tokens.items() if len(token) < MIN_TOKEN_CHARACTERS]:
        return (
            f"{way} lets other machines in, and a short token can be guessed: in proxy.tokens, write at least "
            f"{MIN_TOKEN_CHARACTERS} characters for {', '.join(short)} (openssl rand -hex 32 makes some)"
        )
    return None


class _Uvicorn(uvicorn.Server):
    """Leaves signals to the program, which has children to end."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


async def serve_http(
    app: ASGIApp,
    bound: socket.socket,
    on_ready: Callable[[], None],
    on_stop: Callable[[], None],
    limits: Limits | None = None,
) -> None:
    """Serve `app` until cancelled, when `on_stop` is called; requests in work then have `GRACE` seconds.

    `limits`: what connections are held to, by default what fits the descriptors that this process may have open.
    """
    limiter = ConnectionLimiter(limits or limits_for(descriptor_limit()))
    config = uvicorn.Config(
        app,
        http=limiter.protocol(),
        backlog=min(ACCEPTED_AT_ONCE, limiter.limits.connections // 4 + 1),
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=GRACE,
        ws="none",
    )
    server = _Uvicorn(config)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_watch, server, on_ready, on_stop)
        with anyio.CancelScope(shield=True):
            await server.serve(sockets=[bound])
        tasks.cancel_scope.cancel()


async def _watch(server: uvicorn.Server, on_ready: Callable[[], None], on_stop: Callable[[], None]) -> None:
    try:
        while not server.started:  # noqa: ASYNC110 - as said below
            await anyio.sleep(0.01)  # uvicorn has no event for it
        on_ready()
        await anyio.sleep_forever()
    finally:
        server.should_exit = True
        on_stop()
        for name in ("uvicorn.error", "mcp"):  # that requests end with the program is no error
            logging.getLogger(name).setLevel(logging.CRITICAL)
