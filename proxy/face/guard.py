"""Which HTTP requests are let in: Host and Origin on every route, bearer tokens where they are configured."""

import hashlib
import hmac
import ipaddress
import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase, translate
from typing import Final

import structlog
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

log = structlog.stdlib.get_logger("proxy.face")

_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^:\[\]@/]+)(?::\d+)?")
_IPV6: Final = re.compile(r"(?<!\[)\[([0-9A-Fa-f.]*:[0-9A-Fa-f:.]*)\]")
_LOOPBACK_ORIGIN: Final = r"https?://(?:localhost|127\.0\.0\.1|\[::1\])(?::\d+)?"
_NO_ORIGIN: Final = r"(?!)"


def host_name(host: str) -> str | None:
    """The name or address in a Host header, without port and brackets; None when it is no host."""
    found = _HOST.fullmatch(host)
    return found.group(1).strip("[]").lower() if found else None


def is_loopback(name: str) -> bool:
    """Whether a name or address is that of this machine alone."""
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"


def origin_pattern(allowed: Sequence[str] | None) -> str:
    """One regular expression for origins: loopback ones and those in `allowed`, as patterns; none where it is empty."""
    if allowed is not None and not allowed:
        return _NO_ORIGIN
    return "|".join((_LOOPBACK_ORIGIN, *(f"(?:{translate(_pattern(origin))})" for origin in allowed or ())))


def _pattern(written: str) -> str:
    """A pattern of the configuration, in which an IPv6 address in brackets is no set of characters."""
    return _IPV6.sub(r"[[]\1]", written)


class Guard:
    """Refuses requests under a foreign Host (421) or from a foreign Origin (403), against DNS rebinding.

    `any_address`: whether a Host that is an IP address is let in, which no rebinding can forge. See 2025-11-25,
    basic/transports, security warning.
    """

    def __init__(self, app: ASGIApp, hosts: Iterable[str], origins: Sequence[str] | None, *, any_address: bool) -> None:
        self._app = app
        self._hosts = tuple(_pattern(host.lower()) for host in hosts)
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
        name = host_name(host)
        if name is None:
            return False
        spellings = (name, f"[{name}]", host.lower())  # in brackets, as IPv6 is written
        if is_loopback(name) or any(fnmatchcase(spelt, p) for p in self._hosts for spelt in spellings):
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return self._any_address


class Bearer:
    """Recognises principals by their bearer tokens; nobody else is let in (401), except to `open_path`.

    `tokens`: principal -> token. Without any, Authorization headers mean nothing and are ignored. The address that
    the proxy is bound to makes no difference: a reverse proxy on this machine brings in others under a local name.
    """

    def __init__(self, app: ASGIApp, tokens: Mapping[str, str], *, open_path: str) -> None:
        self._app = app
        self._digests = {principal: _digest(token) for principal, token in tokens.items()}
        self._open_path = open_path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the request through, or refuse it."""
        if scope["type"] == "http" and self._digests:
            scheme, _, token = Headers(scope=scope).get("authorization", "").partition(" ")
            given = token.strip() if scheme.lower() == "bearer" else None
            principal = self._principal(given) if given is not None else None
            if principal is not None:
                scope["user"] = AuthenticatedUser(AccessToken(token="", client_id=principal, scopes=[]))
            elif given is not None or scope["path"] != self._open_path:
                await _unauthorized(wrong=given is not None)(scope, receive, send)
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


def _unauthorized(*, wrong: bool) -> PlainTextResponse:
    """The challenge of RFC 6750, section 3: an error code only where a token was given."""
    challenge = 'Bearer error="invalid_token"' if wrong else "Bearer"
    text = "The token is not one of this proxy's." if wrong else "A bearer token is needed."
    return PlainTextResponse(text, status_code=401, headers={"WWW-Authenticate": challenge})
