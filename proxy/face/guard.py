"""Which HTTP requests are let in: Host and Origin on every route, bearer tokens where they are configured."""

import hashlib
import hmac
import ipaddress
import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase, translate
from typing import Final

import structlog
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from starlette.datastructures import Headers
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

log = structlog.stdlib.get_logger("proxy.face")

LOOPBACK_HOSTS: Final = ("localhost", "127.0.0.1", "::1")
LOOPBACK_ORIGINS: Final = tuple(
    f"{scheme}://{host}{port}"
    for scheme in ("http", "https")
    for host in ("localhost", "127.0.0.1", "[[]::1]")
    for port in ("", ":*")
)


def is_loopback(host: str) -> bool:
    """Whether a host to bind to, or a name to be reached by, is this machine alone."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def origin_pattern(allowed: Iterable[str]) -> str:
    """One regular expression for origins: loopback ones and the patterns in `allowed`."""
    return "|".join(f"(?:{translate(pattern)})" for pattern in (*LOOPBACK_ORIGINS, *allowed))


class Guard:
    """Refuses requests under a foreign Host (421) or from a foreign Origin (403), against DNS rebinding.

    `any_address`: whether a Host that is an IP address is let in, which no rebinding can forge. See 2025-11-25,
    basic/transports, security warning.
    """

    def __init__(self, app: ASGIApp, hosts: Iterable[str], origins: Iterable[str], *, any_address: bool) -> None:
        self._app = app
        self._hosts = (*LOOPBACK_HOSTS, *hosts)
        self._origins = re.compile(origin_pattern(origins))
        self._any_address = any_address

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the request through, or refuse it."""
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            host, origin = headers.get("host", ""), headers.get("origin")
            if not self._knows(host):
                log.warning("http.refused", host=host, setting="proxy.allowed_hosts")
                text = f"Host {host!r} is not allowed; add it to proxy.allowed_hosts to reach the proxy under it"
                await PlainTextResponse(text, status_code=421)(scope, receive, send)
                return
            if origin is not None and not self._origins.fullmatch(origin):
                log.warning("http.refused", origin=origin, setting="proxy.allowed_origins")
                text = f"Origin {origin!r} is not allowed; add it to proxy.allowed_origins to let its pages in"
                await PlainTextResponse(text, status_code=403)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _knows(self, host: str) -> bool:
        name = re.sub(r":\d+$", "", host).strip("[]").lower() if not host.count(":") > 1 or "]" in host else host
        if any(
            fnmatchcase(name, pattern.lower()) or fnmatchcase(host.lower(), pattern.lower()) for pattern in self._hosts
        ):
            return True
        if not self._any_address:
            return False
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


class Bearer:
    """Recognises principals by their bearer tokens; a wrong token is refused, none is where `required` (401).

    `tokens`: principal -> token. Without any, Authorization headers mean nothing and are ignored.
    """

    def __init__(self, app: ASGIApp, tokens: Mapping[str, str], *, required: bool, but: str) -> None:
        self._app = app
        self._digests = {principal: _digest(token) for principal, token in tokens.items()}
        self._required = required
        self._but = but

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the request through, or refuse it."""
        if scope["type"] == "http" and self._digests:
            scheme, _, token = Headers(scope=scope).get("authorization", "").partition(" ")
            if scheme.lower() == "bearer":
                principal = self._principal(token.strip())
                if principal is None:
                    await _unauthorized("the token is not one of this proxy's")(scope, receive, send)
                    return
                scope["user"] = AuthenticatedUser(AccessToken(token="", client_id=principal, scopes=[]))
            elif self._required and scope["path"] != self._but:
                await _unauthorized("a bearer token is needed")(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _principal(self, token: str) -> str | None:
        """Whose token it is; takes as long for any token."""
        given, found = _digest(token), None
        for principal, digest in self._digests.items():
            if hmac.compare_digest(given, digest):
                found = principal
        return found


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def _unauthorized(why: str) -> JSONResponse:
    body = {"error": "invalid_token", "error_description": why}
    challenge = f'Bearer error="invalid_token", error_description="{why}"'
    return JSONResponse(body, status_code=401, headers={"WWW-Authenticate": challenge})
