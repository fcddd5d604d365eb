"""The MCP server that clients see: each request is checked, given to the gateway, and answered as it came back.

Answers are parsed JSON and skip the SDK's result models, which would drop what they do not know (design rule 30).
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

import structlog
from mcp import MCPError
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import NotificationOptions, Server
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    SERVER_INFO_META_KEY,
    ServerCapabilities,
    SubscriptionsListenRequestParams,
    SubscriptionsListenResult,
)
from mcp_types.methods import CACHEABLE_METHODS, CLIENT_REQUESTS, validate_client_request
from starlette.requests import Request

from proxy import __version__
from proxy.core import wording
from proxy.core.capabilities import ANYTHING
from proxy.core.errors import PastLimit, ProxyError, Rejection, Unknown, unknown_cursor
from proxy.core.foreign_text import one_line
from proxy.core.inventory import Json, is_json, members_of, without_lone_surrogates
from proxy.core.scope import ScopeId, connected
from proxy.core.self_description import NAME, capabilities, discover_result, initialize_result
from proxy.face.channel import RequestChannel, declared_by
from proxy.face.clients import ClientRegistry
from proxy.face.identity import SESSION_HEADER, Identity, era_of
from proxy.face.introductions import bound_introduction, check_capabilities, name_of, without_request
from proxy.face.lifetimes import Lifetimes
from proxy.gateway.calling import Calling
from proxy.gateway.gate import Gate
from proxy.gateway.listing import Listing
from proxy.gateway.publishing import Publishing
from proxy.gateway.subscriptions import Subscriptions
from proxy.ports import Caller

log = structlog.stdlib.get_logger("proxy.face")

RESOURCE_NOT_FOUND = -32002
"""The handshake era's code for a resource that does not exist (2025-11-25, server/resources)."""

MAX_URI_CHARACTERS = 64 * 1024
"""Of a URI in a client's request."""

OF_SKILLS = frozenset({"skills/list", "skills/get", "resources/directory/read"})
"""The methods of the skills extension, which every era can have (SEP-2640)."""

_HOP_KEYS = frozenset({"ttlMs", "cacheScope", "resultType", "_meta"})
"""What of a result may belong to the hop that it came by."""

Context: TypeAlias = ServerRequestContext[Any, Any]
Answer: TypeAlias = Callable[[Caller, Mapping[str, Any]], Awaitable[dict[str, Any]]]


class ProxyServer(Server[dict[str, Any]]):
    """The SDK's server with our answers in front of its handlers."""

    def __init__(
        self,
        *,
        identity: Identity,
        gate: Gate,
        listing: Listing,
        calling: Calling,
        publishing: Publishing,
        subscriptions: Subscriptions,
        clients: ClientRegistry,
        lifetimes: Lifetimes,
    ) -> None:
        super().__init__(
            NAME,
            version=__version__,
            get_tool_input_schema=_no_schema,
            on_subscriptions_listen=self._listen,
        )
        self._identity = identity
        self._gate = gate
        self._clients = clients
        self._lifetimes = lifetimes
        self._answers: dict[str, Answer] = {
            "server/discover": self._discover,
            "tools/list": _list("tools", listing.tools),
            "tools/call": _refused_in_results(self._counted(calling.call)),
            "resources/list": _list("resources", listing.resources),
            "resources/templates/list": _list("resourceTemplates", listing.templates),
            "resources/read": self._counted(publishing.read_resource),
            "resources/subscribe": self._counted(subscriptions.subscribe),
            "resources/unsubscribe": self._counted(subscriptions.unsubscribe),
            "prompts/list": _list("prompts", listing.prompts),
            "prompts/get": self._counted(publishing.get_prompt),
            "completion/complete": self._counted(publishing.complete),
            "logging/setLevel": self._set_level,
            "skills/list": publishing.skills,
            "skills/get": self._counted(publishing.skill),
            "resources/directory/read": self._counted(publishing.directory),
        }
        self.middleware[:] = [self._answer]  # without the SDK's spans, which cost each call more than all of our own

    def get_capabilities(
        self,
        notification_options: NotificationOptions | None = None,  # noqa: ARG002 - the SDK's signature, here and below
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,  # noqa: ARG002
        extensions: dict[str, dict[str, Any]] | None = None,  # noqa: ARG002
        *,
        protocol_version: str | None = None,  # noqa: ARG002
    ) -> ServerCapabilities:
        """What something behind us can answer."""
        return ServerCapabilities.model_validate(capabilities(self._gate.policy.catalogue, self._gate.settings.publish))

    async def _answer(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """The middleware: our own methods are answered here, the rest by the SDK."""
        if ctx.method == "initialize":
            return await self._initialize(ctx, call_next)
        if not _has_session(ctx):
            return await call_next(ctx)
        scope = self._identity.scope(ctx)
        self._lifetimes.begun(scope)
        try:
            if _too_early(ctx):
                return await call_next(ctx)
            channel = await self._meet(scope, ctx)
            answer = self._answers.get(ctx.method)
            if answer is None or ctx.request_id is None or not _exists(ctx):
                if ctx.method == "notifications/roots/list_changed":
                    self._gate.upstreams.roots_changed(scope)
                return await call_next(ctx)
            params: Json = ctx.params or {}
            _check_uris(params)
            if ctx.method not in OF_SKILLS and not _is_plain_call(ctx.method, params):
                validate_client_request(ctx.method, ctx.protocol_version, params)
            caller = self._caller(scope, ctx, channel)
            result = self._envelope(ctx, await answer(caller, params))
            # The SDK writes this era's event streams as UTF-8, and loses what it cannot write.
            streamed = ctx.request is not None and channel.era == "handshake"
            return without_lone_surrogates(result) if streamed else result
        except ProxyError as error:
            if ctx.request_id is None:  # nobody waits for an answer to a notification
                return None
            raise _wire_error(error, ctx) from None
        finally:
            await self._lifetimes.ended(scope)

    async def _initialize(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Answer `initialize` once the SDK has negotiated the revision.

        On stdio, servers of skills that are active from the start begin now, told what this client can be asked.
        """
        if isinstance(ctx.params, dict):
            bound_introduction(ctx.params)
        result = await call_next(ctx)
        scope = self._identity.opening(ctx)
        if ctx.request is None:
            await self._greet(scope, members_of((ctx.params or {}).get("capabilities")))
        if not is_json(result):
            return result
        catalogue, whole = self._gate.catalogue(scope), self._gate.policy.catalogue
        return initialize_result(result["protocolVersion"], catalogue, whole, self._gate.settings.publish)

    async def _discover(self, caller: Caller, _params: Mapping[str, Any]) -> dict[str, Any]:
        catalogue, whole = self._gate.catalogue(caller.scope), self._gate.policy.catalogue
        return discover_result(catalogue, whole, self._gate.settings.publish)

    async def _greet(self, scope: ScopeId, capabilities: Json) -> None:
        if self._clients.declare(scope, capabilities, "handshake"):  # what came before was a question alone
            self._gate.upstreams.follow_client(scope)
        await self._gate.state(scope)

    async def _meet(self, scope: ScopeId, ctx: Context) -> RequestChannel:
        """Take note of the client that a request comes from.

        Raises:
            TooManyScopes, PastLimit: its scope is one too many.
        """
        connection = self._identity.connection(ctx)
        if connection is None:
            channel = RequestChannel.modern(ctx)
            check_capabilities(channel.capabilities)
            # Each request may come from another client: what one of them cannot answer is refused when it is asked.
            self._clients.declare(scope, channel.capabilities if ctx.request is None else ANYTHING, "modern")
            if ctx.method == "server/discover" and ctx.request is None:
                await self._gate.state(scope)
            return channel
        known = self._clients.wants(scope, connection)
        if known is None:
            known = None, declared_by(ctx)
            session = without_request(ctx.session)
            self._clients.meet(scope, connection, session, known[1], stream=ctx.request is None)
            try:
                await self._gate.change(scope, lambda state: connected(state, connection))
            except ProxyError as error:
                self._clients.part(scope, connection)
                log.warning("scope.refused", scope=str(scope), reason=str(error))
                raise
        return RequestChannel(ctx, "handshake", *known)

    def _caller(self, scope: ScopeId, ctx: Context, channel: RequestChannel) -> Caller:
        client, version = name_of(ctx)
        return Caller(
            scope=scope,
            era=channel.era,
            connection=self._identity.connection(ctx),
            client=client,
            channel=channel,
            version=version,
        )

    def _counted(self, answer: Answer) -> Answer:
        """`answer` for requests that may go on to a server, within the limits of the caller's principal."""

        async def counted(caller: Caller, params: Mapping[str, Any]) -> dict[str, Any]:
            with self._gate.quotas.call(caller.scope):
                return await answer(caller, params)

        return counted

    async def _set_level(self, caller: Caller, params: Mapping[str, Any]) -> dict[str, Any]:
        self._clients.set_level(caller.scope, caller.connection or "", params["level"])
        self._gate.upstreams.set_levels()
        return {}

    async def _listen(self, ctx: Context, params: SubscriptionsListenRequestParams) -> SubscriptionsListenResult:
        scope = self._identity.scope(ctx)
        await self._gate.state(scope)
        return await self._clients.listen(scope, ctx, params)

    def _envelope(self, ctx: Context, result: Mapping[str, Any]) -> dict[str, Any]:
        """A result in the caller's era: what belongs to the other hop alone is taken off, ours is put on."""
        modern = era_of(ctx.protocol_version) == "modern"
        if not modern and _HOP_KEYS.isdisjoint(result):
            return dict(result)
        out = {key: value for key, value in result.items() if key not in _HOP_KEYS}
        meta = result.get("_meta")
        kept = {key: value for key, value in members_of(meta).items() if key != SERVER_INFO_META_KEY}
        if modern:
            out["resultType"] = result.get("resultType", "complete")
            if ctx.method in CACHEABLE_METHODS or ctx.method in OF_SKILLS:
                out |= {"ttlMs": 0, "cacheScope": "private"}
            kept[SERVER_INFO_META_KEY] = self.server_info_stamp
        if kept or meta == {}:
            out["_meta"] = kept
        elif "_meta" in result and not is_json(meta):
            out["_meta"] = meta
        return out


def _list(key: str, listed: Callable[[Caller], Awaitable[Any]]) -> Answer:
    async def answer(caller: Caller, params: Mapping[str, Any]) -> dict[str, Any]:
        if (cursor := params.get("cursor")) is not None:  # the list is one page, so that no cursor was ever given
            raise unknown_cursor(cursor)
        return {key: await listed(caller)}

    return answer


def _refused_in_results(answer: Answer) -> Answer:
    """`answer` where what is past a limit is told in a result: models read those, and not errors."""

    async def told(caller: Caller, params: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return await answer(caller, params)
        except PastLimit as error:
            return wording.refusal(f"This call was not made. {error}.")

    return told


def _no_schema(_name: str) -> None:
    """No schema to check `Mcp-Param-*` headers by: without this the SDK would list all tools on every call."""


def _is_plain_call(method: str, params: Json) -> bool:
    """Whether a request is a tool call of nothing but a name and arguments, which need no model to be checked."""
    return (
        method == "tools/call"
        and len(params) == 2  # noqa: PLR2004 - the two
        and isinstance(params.get("name"), str)
        and isinstance(params.get("arguments"), dict)
    )


def _check_uris(params: Json) -> None:
    """Refuse a URI that would take long to compare with templates, and that no resource has.

    Raises:
        Rejection: there is one.
    """
    for uri in (params.get("uri"), members_of(params.get("ref")).get("uri")):
        if isinstance(uri, str) and len(uri) > MAX_URI_CHARACTERS:
            raise Rejection(INVALID_PARAMS, f"A URI has no more than {MAX_URI_CHARACTERS} characters")


def _exists(ctx: Context) -> bool:
    """Whether the revision that the client speaks has the method; the SDK refuses it otherwise."""
    return ctx.method in OF_SKILLS or (ctx.method, ctx.protocol_version) in CLIENT_REQUESTS


def _too_early(ctx: Context) -> bool:
    """Whether the handshake is not done yet; the SDK then refuses the request."""
    return era_of(ctx.protocol_version) == "handshake" and ctx.session.client_params is None


def _has_session(ctx: Context) -> bool:
    """Whether a request is past the opening of a session, where its era has them over HTTP."""
    request: Request | None = ctx.request
    return request is None or era_of(ctx.protocol_version) == "modern" or SESSION_HEADER in request.headers


def _wire_error(error: ProxyError, ctx: Context) -> MCPError:
    """An error in the words of the client's era, which have another code for a resource that does not exist."""
    reads = ctx.method.startswith("resources/")
    modern = era_of(ctx.protocol_version) == "modern"
    if isinstance(error, PastLimit):
        error = error.as_rejection()
    if isinstance(error, Rejection):
        code = INVALID_PARAMS if reads and modern and error.code == RESOURCE_NOT_FOUND else error.code
        return MCPError(code, error.message, error.data)
    if isinstance(error, Unknown):
        code = RESOURCE_NOT_FOUND if reads and not modern else INVALID_PARAMS
        return MCPError(code, str(error), {"uri": error.uri} if error.uri is not None else None)
    return MCPError(INTERNAL_ERROR, one_line(str(error)))
