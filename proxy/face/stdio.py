"""The protocol on this process's stdin and stdout, which nothing else can read or write meanwhile."""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

import structlog
from mcp import MCPError
from mcp.server.connection import Connection, NotifyOnlyOutbound
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.runner import ServerRunner, aclose_shielded, serve_one
from mcp.shared.dispatcher import DispatchContext, OnNotify, OnRequest
from mcp.shared.inbound import InboundLadderRejection, classify_inbound_request
from mcp.shared.transport_context import TransportContext
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    PROTOCOL_VERSION_META_KEY,
    UNSUPPORTED_PROTOCOL_VERSION,
)
from mcp_types.version import LATEST_MODERN_VERSION, MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from proxy.core.server import MAX_MESSAGE_SIZE
from proxy.face.early_responder import Handover
from proxy.wire.codec import dumps
from proxy.wire.dispatcher import LineDispatcher
from proxy.wire.pipes import Sink, Source
from proxy.wire.standard_streams import can_be_polled

log = structlog.stdlib.get_logger("proxy.face")

LAST_ANSWERS: Final = 1.0
"""Seconds after the end of input for answers that are still due: `printf REQUESTS | mcp-skill-proxy serve` works."""
EARLY: Final = 8
"""How many notifications before the first request are kept for it, which decides the era."""

Context: TypeAlias = DispatchContext[TransportContext]
Params: TypeAlias = Mapping[str, Any] | None


async def serve_stdio(
    server: Server[Any], opened: Handover, on_end: Callable[[], None], limit: int = MAX_MESSAGE_SIZE
) -> None:
    """Serve one client until its input ends, when `on_end` is called, or its end of our output closes.

    A message of more than `limit` bytes is refused, and costs itself alone.
    """
    told = f"The message is larger than {limit} bytes: proxy.max_message_size in the proxy's configuration"
    error = {"code": INVALID_REQUEST, "message": told}
    with _ends_of(opened) as (source, sink):
        dispatcher = LineDispatcher(
            source,
            sink,
            _noise,
            inline_methods=frozenset({"initialize"}),
            holds=True,
            grace=LAST_ANSWERS,
            answered=opened.answered,
            on_end=on_end,
            limit=limit,
            refusal=dumps({"jsonrpc": "2.0", "id": None, "error": error}) + b"\n",
        )
        async with server.lifespan(server) as state:
            eras = _Eras(server, dispatcher, state)
            try:
                await dispatcher.run(eras.on_request, eras.on_notify)
            finally:
                await aclose_shielded(eras.connection)


@contextmanager
def _ends_of(opened: Handover) -> Generator[tuple[Source, Sink]]:
    """What is read and what is written, from where `opened` says on; both are closed at the end."""
    streams = opened.streams
    source = Source(streams.stdin, polled=streams.polled and can_be_polled(streams.stdin), read=opened.read)
    sink = Sink(streams.stdout, polled=streams.polled and can_be_polled(streams.stdout), unwritten=opened.unwritten)
    try:
        yield source, sink
    finally:
        source.close()
        sink.abort()


def _noise(_: bytes, problem: str) -> None:
    log.warning("client.noise", problem=problem)


class _Eras:
    """Serves the client in the era that its first request opens, as the SDK does on its own streams.

    The era is decided once: a request with the modern envelope opens the modern era, any other the handshake's.
    `server/discover` is answered in the era that it comes in and decides nothing: some clients that did not wait for
    its answer begin the handshake on the same connection.
    """

    def __init__(self, server: Server[Any], dispatcher: LineDispatcher, state: object) -> None:
        self._server = server
        self._dispatcher = dispatcher
        self._state = state
        self._early: list[tuple[Context, str, Params]] = []
        self._served: tuple[OnRequest, OnNotify] | None = None
        self.connection = Connection.for_loop(dispatcher)
        """Of the handshake era; the modern one has one for each request."""
        self._outbound = NotifyOnlyOutbound(dispatcher)
        self._runner = ServerRunner(
            server, self.connection, state, init_options=server.create_initialization_options(NotificationOptions())
        )

    async def on_request(self, ctx: Context, method: str, params: Params) -> dict[str, Any]:
        """Answer a request; the first one decides."""
        modern = method != "initialize" and _has_envelope(params)
        if self._served is None and method == "server/discover":
            return await (self._modern if modern else self._handshake)(ctx, method, params)
        if self._served is None:
            self._dispatcher.asks = not modern  # the modern era forbids servers to ask
            self._served = (self._modern, self._modern_notice) if modern else (self._handshake, self._runner.on_notify)
            for notice in self._early:
                await self._served[1](*notice)
        return await self._served[0](ctx, method, params)

    async def on_notify(self, ctx: Context, method: str, params: Params) -> None:
        """Take a notification; before the first request it waits for it."""
        if self._served is not None:
            await self._served[1](ctx, method, params)
        elif len(self._early) < EARLY:
            self._early.append((ctx, method, params))

    async def _handshake(self, ctx: Context, method: str, params: Params) -> dict[str, Any]:
        if method != "initialize" and _has_envelope(params):
            raise MCPError(
                INVALID_REQUEST,
                "this connection serves the handshake protocol era; "
                "requests carrying the 2026-07-28 envelope are not accepted on it",
            )
        return await self._runner.on_request(ctx, method, params)

    async def _modern(self, ctx: Context, method: str, params: Params) -> dict[str, Any]:
        if method == "initialize":
            raise MCPError(
                UNSUPPORTED_PROTOCOL_VERSION,
                "connection is serving the 2026-07-28 protocol; the initialize handshake is not accepted",
                _served_versions(params),
            )
        route = classify_inbound_request({"method": method, "params": params})
        if isinstance(route, InboundLadderRejection):
            raise MCPError(route.code, route.message, route.data)
        connection = Connection.from_envelope(
            route.protocol_version, route.client_info, route.client_capabilities, outbound=self._outbound
        )
        try:
            return await serve_one(self._server, ctx, method, params, connection=connection, lifespan_state=self._state)
        except (MCPError, ValidationError):
            raise
        except Exception:  # boundary: what a handler raises is not for the client to read
            log.exception("request.failed", method=method)
            raise MCPError(INTERNAL_ERROR, "Internal server error") from None

    async def _modern_notice(self, ctx: Context, method: str, params: Params) -> None:
        connection = Connection.from_envelope(LATEST_MODERN_VERSION, None, None, outbound=self._outbound)
        try:
            await ServerRunner(self._server, connection, self._state).on_notify(ctx, method, params)
        finally:
            await aclose_shielded(connection)


def _has_envelope(params: Params) -> bool:
    """Whether a request is of the modern era: its revision alone tells, so that what else is missing is named."""
    meta = (params or {}).get("_meta")
    return isinstance(meta, Mapping) and PROTOCOL_VERSION_META_KEY in meta


def _served_versions(params: Params) -> dict[str, Any]:
    requested = (params or {}).get("protocolVersion")
    served: dict[str, Any] = {"supported": list(MODERN_PROTOCOL_VERSIONS)}
    return {**served, "requested": requested} if isinstance(requested, str) else served
