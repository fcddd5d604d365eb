"""Whose request it is: the one place that reads paths, tokens and session ids (design rule 9)."""

from typing import Any

from mcp import MCPError
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.context import ServerRequestContext
from mcp_types import METHOD_NOT_FOUND, UNSUPPORTED_PROTOCOL_VERSION
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.requests import Request

from proxy.core.protocol import Era
from proxy.core.scope import ScopeId

SESSION_HEADER = "mcp-session-id"
STDIO_CONNECTION = "stdio"


def era_of(version: str) -> Era:
    """The era of a protocol revision."""
    return "handshake" if version in HANDSHAKE_PROTOCOL_VERSIONS else "modern"


def principal_of(request: Request) -> str | None:
    """The principal whose valid bearer token the request carries, if any."""
    user = request.scope.get("user")
    return user.display_name if user is not None and user.is_authenticated else None


def as_user(principal: str) -> AuthenticatedUser:
    """What a request whose token is that of `principal` carries as its user."""
    return AuthenticatedUser(AccessToken(token="", client_id=principal, scopes=[]))


class Identity:
    """Turns requests into scopes by the table of design section 4; `own`: that of a stdio process, if it is one."""

    def __init__(self, own: ScopeId | None) -> None:
        self._own = own

    def scope(self, ctx: ServerRequestContext[Any, Any]) -> ScopeId:
        """The scope of a request.

        Raises:
            MCPError: for a modern request that carries nothing to keep state by. -32022 has the handshake versions as
                `supported`, by which clients of both eras choose the handshake. `server/discover` is refused as an
                unknown method (-32601), as a server of sessions does: some clients take -32022 there as fatal.
        """
        request: Request | None = ctx.request
        if request is None:
            if self._own is None:
                raise RuntimeError("a request without HTTP where HTTP alone is served")
            return self._own
        try:
            return self.http_scope(request, ctx.protocol_version, request.headers.get(SESSION_HEADER))
        except MCPError:
            if ctx.method == "server/discover":
                raise MCPError(METHOD_NOT_FOUND, "Method not found", ctx.method) from None
            raise

    def opening(self, ctx: ServerRequestContext[Any, Any]) -> ScopeId:
        """The scope that an `initialize` opens; of a session, which has no id yet, without its name."""
        request: Request | None = ctx.request
        if request is None or "namespace" in request.path_params:
            return self.scope(ctx)
        return ScopeId("session", principal=principal_of(request))

    def http_scope(self, request: Request, version: str, session_id: str | None) -> ScopeId:
        """The scope of an HTTP request at protocol revision `version`; `session_id` counts in the handshake era alone.

        Raises:
            MCPError: as `scope`.
        """
        principal = principal_of(request)
        if (namespace := request.path_params.get("namespace")) is not None:
            return ScopeId("namespace", namespace, principal)
        if era_of(version) == "handshake" and session_id is not None:
            # The SDK's session manager has checked it against its live sessions and their owners.
            return ScopeId("session", session_id, principal)
        if principal is not None:
            return ScopeId("principal", principal, principal)
        raise MCPError(
            UNSUPPORTED_PROTOCOL_VERSION,
            f"{version} requests carry no session to keep active skills by: use /mcp/{{namespace}} "
            "(any name), a bearer token, or the initialize handshake",
            {"supported": list(HANDSHAKE_PROTOCOL_VERSIONS), "requested": version},
        )

    def connection(self, ctx: ServerRequestContext[Any, Any]) -> str | None:
        """The handshake-era connection that a request came on; None in the modern era."""
        if era_of(ctx.protocol_version) == "modern":
            return None
        request: Request | None = ctx.request
        return STDIO_CONNECTION if request is None else request.headers.get(SESSION_HEADER)
