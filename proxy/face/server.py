"""The MCP server that clients see: each request is checked, given to the gateway, and answered as it came back.

Answers are parsed JSON and skip the SDK's result models, which would drop what they do not know (design rule 30).
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import structlog
from mcp import MCPError
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import NotificationOptions, Server
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    SERVER_INFO_META_KEY,
    PromptsCapability,
    ResourcesCapability,
    ServerCapabilities,
    SubscriptionsListenRequestParams,
    SubscriptionsListenResult,
    ToolsCapability,
)
from mcp_types.methods import CACHEABLE_METHODS, validate_client_request
from starlette.requests import Request

from proxy import __version__
from proxy.core.catalogue import Catalogue
from proxy.core.errors import ProxyError, Rejection, Unknown
from proxy.core.inventory import is_json
from proxy.core.scope import ScopeId, connected
from proxy.core.wording import INSTRUCTIONS
from proxy.face.identity import SESSION_HEADER, Identity, era_of
from proxy.face.lifetimes import Lifetimes
from proxy.face.notices import NOTIFICATIONS, Notices
from proxy.gateway.forwarding import Forwarding
from proxy.gateway.gate import Gate
from proxy.gateway.listing import Listing
from proxy.gateway.skills import Skills
from proxy.ports import Caller, ListKind

log = structlog.stdlib.get_logger("proxy.face")

NAME = "mcp-skill-proxy"
RESOURCE_NOT_FOUND = -32002
"""The handshake era's code for a resource that does not exist (2025-11-25, server/resources)."""

Context: TypeAlias = ServerRequestContext[Any, Any]
Answer: TypeAlias = Callable[[Caller, Mapping[str, Any]], Awaitable[dict[str, Any]]]


@dataclass(frozen=True)
class RequestChannel:
    """A `Channel` over the request that is being answered."""

    ctx: Context

    async def list_changed(self, kind: ListKind) -> None:
        """Send the notice on the request's own stream, which no modern request may carry."""
        if era_of(self.ctx.protocol_version) == "handshake":
            await self.ctx.session.send_notification(NOTIFICATIONS[kind], related_request_id=self.ctx.request_id)

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        """Send progress with the client's own token."""
        await self.ctx.session.report_progress(progress, total, message)


class ProxyServer(Server[dict[str, Any]]):
    """The SDK's server with our answers in front of its handlers."""

    def __init__(
        self,
        *,
        identity: Identity,
        gate: Gate,
        listing: Listing,
        forwarding: Forwarding,
        skills: Skills,
        notices: Notices,
        lifetimes: Lifetimes,
    ) -> None:
        super().__init__(
            NAME,
            version=__version__,
            instructions=INSTRUCTIONS if gate.catalogue.skills else None,
            get_tool_input_schema=_no_schema,
            on_subscriptions_listen=self._listen,
        )
        self._identity = identity
        self._gate = gate
        self._notices = notices
        self._lifetimes = lifetimes
        self._answers: dict[str, Answer] = {
            "tools/list": _list("tools", listing.tools),
            "tools/call": skills.call,
            "resources/list": _list("resources", listing.resources),
            "resources/templates/list": _list("resourceTemplates", listing.templates),
            "resources/read": forwarding.read_resource,
            "prompts/list": _list("prompts", listing.prompts),
            "prompts/get": forwarding.get_prompt,
        }
        for kind in ("resources", "prompts"):
            if not _can_show(gate.catalogue, kind):
                for method in [name for name in self._answers if name.startswith(kind)]:
                    del self._answers[method]
        self.middleware.append(self._answer)

    def get_capabilities(
        self,
        notification_options: NotificationOptions | None = None,  # noqa: ARG002 - the SDK's signature, here and below
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,  # noqa: ARG002
        extensions: dict[str, dict[str, Any]] | None = None,  # noqa: ARG002
        *,
        protocol_version: str | None = None,  # noqa: ARG002
    ) -> ServerCapabilities:
        """What some skill can make visible; every list says that it changes, or clients would not read it again."""
        return ServerCapabilities(
            tools=ToolsCapability(list_changed=True),
            resources=ResourcesCapability(list_changed=True) if "resources/list" in self._answers else None,
            prompts=PromptsCapability(list_changed=True) if "prompts/list" in self._answers else None,
        )

    async def _answer(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """The middleware: our own methods are answered here, the rest by the SDK."""
        if ctx.method == "initialize" or not _has_session(ctx):
            return await call_next(ctx)
        scope = self._identity.scope(ctx)
        try:
            async with self._lifetimes.use(scope):
                await self._meet(scope, ctx)
                answer = self._answers.get(ctx.method)
                if answer is None or ctx.request_id is None or _too_early(ctx):
                    return await call_next(ctx)
                validate_client_request(ctx.method, ctx.protocol_version, ctx.params)
                return self._envelope(ctx, await answer(self._caller(scope, ctx), ctx.params or {}))
        except ProxyError as error:
            if ctx.request_id is None:  # nobody waits for an answer to a notification
                return None
            raise _wire_error(error, ctx) from None

    async def _meet(self, scope: ScopeId, ctx: Context) -> None:
        """Take note of the connection that a request came on.

        Raises:
            TooManyScopes: its scope is one too many.
        """
        connection = self._identity.connection(ctx)
        if connection is None or _too_early(ctx) or not self._notices.meet(scope, connection, ctx.session):
            return
        try:
            await self._gate.change(scope, lambda state: connected(state, connection))
        except ProxyError as error:
            self._notices.part(scope, connection)
            log.warning("scope.refused", scope=str(scope), reason=str(error))
            raise

    def _caller(self, scope: ScopeId, ctx: Context) -> Caller:
        client = ctx.session.client_params
        return Caller(
            scope=scope,
            era=era_of(ctx.protocol_version),
            connection=self._identity.connection(ctx),
            client=client.client_info.name if client is not None else "",
            channel=RequestChannel(ctx),
        )

    async def _listen(self, ctx: Context, params: SubscriptionsListenRequestParams) -> SubscriptionsListenResult:
        scope = self._identity.scope(ctx)
        await self._gate.state(scope)
        return await self._notices.listen(scope, ctx, params)

    def _envelope(self, ctx: Context, result: Mapping[str, Any]) -> dict[str, Any]:
        """A result in the caller's era: what belongs to the other hop alone is taken off, ours is put on."""
        out = {key: value for key, value in result.items() if key not in ("ttlMs", "cacheScope", "resultType")}
        meta = out.pop("_meta", None)
        kept = {key: value for key, value in meta.items() if key != SERVER_INFO_META_KEY} if is_json(meta) else {}
        if era_of(ctx.protocol_version) == "modern":
            out["resultType"] = result.get("resultType", "complete")
            if ctx.method in CACHEABLE_METHODS:
                out |= {"ttlMs": 0, "cacheScope": "private"}
            kept[SERVER_INFO_META_KEY] = self.server_info_stamp
        if kept or meta == {}:
            out["_meta"] = kept
        return out


def _list(key: str, listed: Callable[[Caller], Awaitable[Any]]) -> Answer:
    async def answer(caller: Caller, _params: Mapping[str, Any]) -> dict[str, Any]:
        return {key: await listed(caller)}

    return answer


def _can_show(catalogue: Catalogue, kind: str) -> bool:
    """Whether some skill can make resources, or prompts, visible (design rule 6)."""
    return any(allow.everything for skill in catalogue.skills for allow in skill.tools.values()) or any(
        skill.resources if kind == "resources" else skill.prompts for skill in catalogue.skills
    )


def _no_schema(_name: str) -> None:
    """No schema to check `Mcp-Param-*` headers by: without this the SDK would list all tools on every call."""


def _too_early(ctx: Context) -> bool:
    """Whether the handshake is not done yet; the SDK then refuses the request."""
    return era_of(ctx.protocol_version) == "handshake" and ctx.session.client_params is None


def _has_session(ctx: Context) -> bool:
    """Whether a request is past the opening of a session, where its era has them over HTTP."""
    request: Request | None = ctx.request
    return request is None or era_of(ctx.protocol_version) == "modern" or SESSION_HEADER in request.headers


def _wire_error(error: ProxyError, ctx: Context) -> MCPError:
    if isinstance(error, Rejection):
        return MCPError(error.code, error.message, error.data)
    if isinstance(error, Unknown):
        legacy_resource = ctx.method == "resources/read" and era_of(ctx.protocol_version) == "handshake"
        return MCPError(RESOURCE_NOT_FOUND if legacy_resource else INVALID_PARAMS, str(error))
    return MCPError(INTERNAL_ERROR, str(error))
