"""One request of a client in work: what the client can do, and how it is reached before the result."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from mcp.server.context import ServerRequestContext
from mcp.shared.inbound import validate_mcp_param_headers
from mcp_types import CLIENT_CAPABILITIES_META_KEY, INVALID_REQUEST, LOG_LEVEL_META_KEY
from starlette.requests import Request

from proxy.core.capabilities import lacking, refusal
from proxy.core.errors import Rejection
from proxy.core.inventory import Json, members_of
from proxy.core.log_levels import LEVELS, severe_enough
from proxy.core.protocol import Era
from proxy.face import raw
from proxy.face.clients import LIST_CHANGED
from proxy.ports import ListKind

Context: TypeAlias = ServerRequestContext[Any, Any]


@dataclass(slots=True)
class RequestChannel:
    """A `Channel` over the request that is being answered.

    `log_level`: the least severe log messages that the client wants, None when it has not said. `capabilities`: what it
    declared that it can be asked.
    """

    ctx: Context
    era: Era
    log_level: str | None
    capabilities: Json

    @classmethod
    def modern(cls, ctx: Context) -> "RequestChannel":
        """The channel of a request that says by itself what its client wants and can do."""
        said = members_of((ctx.params or {}).get("_meta"))
        declared, wanted = members_of(said.get(CLIENT_CAPABILITIES_META_KEY)), said.get(LOG_LEVEL_META_KEY)
        return cls(ctx, "modern", wanted if wanted in LEVELS else None, declared)

    @property
    def headers(self) -> Mapping[str, str]:
        """The HTTP headers of the request."""
        request: Request | None = self.ctx.request
        return {} if request is None else request.headers

    def check(self, schema: object, arguments: Json) -> None:
        """Hold `Mcp-Param-*` headers against the arguments (2026-07-28, basic/transports/streamable-http).

        Raises:
            Rejection: they differ.
        """
        if self.era == "modern" and self.ctx.request is not None and schema is not None:
            rejection = validate_mcp_param_headers(schema, arguments, self.headers)
            if rejection is not None:
                raise Rejection(rejection.code, rejection.message, rejection.data)

    async def list_changed(self, kind: ListKind) -> None:
        """Send the notice on the request's own stream, which no modern request may carry."""
        if self.era == "handshake":
            await raw.notify(self.ctx.session, LIST_CHANGED[kind], {}, self.ctx.request_id)

    async def progress(self, params: Json) -> None:
        """Send progress, whose token is the client's own."""
        await raw.notify(self.ctx.session, "notifications/progress", params, self.ctx.request_id)

    async def log(self, params: Json) -> None:
        """Send a log message, if the client wants it; a modern one wants those that it asked for alone."""
        wanted = self.log_level
        if severe_enough(params.get("level"), wanted) if wanted is not None else self.era == "handshake":
            await raw.notify(self.ctx.session, "notifications/message", params, self.ctx.request_id)

    async def poll(self) -> None:
        """End this request's stream; a client that cannot resume it is left waiting there."""
        if self.ctx.close_sse_stream is not None:
            await self.ctx.close_sse_stream()

    async def ask(self, method: str, params: Json) -> dict[str, Any]:
        """Put a server's question to a handshake-era client, on the request's own stream.

        Raises:
            Rejection: it cannot answer, or answered with an error.
        """
        if (needed := lacking(self.capabilities, method, params)) is not None:
            raise refusal(needed)
        if self.era == "modern":
            raise Rejection(INVALID_REQUEST, "A client of this era is asked in results alone")
        return await raw.ask(self.ctx.session, method, params, self.ctx.request_id)


def declared_by(ctx: Context) -> Json:
    """What a handshake-era client declared when it connected."""
    declared = ctx.session.client_capabilities
    return {} if declared is None else declared.model_dump(by_alias=True, mode="json", exclude_none=True)
