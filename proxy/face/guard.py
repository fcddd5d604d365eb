"""Which HTTP requests are let in: Host and Origin on every route, bearer tokens where they are configured."""

import ipaddress
import re
import time
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase, translate
from http import HTTPStatus
from typing import Final

import anyio
import structlog
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from proxy.face.identity import as_user
from proxy.face.principals import Principals, WrongTokens
from proxy.ports import Clock

log = structlog.stdlib.get_logger("proxy.face")

_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^:\[\]@/]+)(?::\d+)?")
_IPV6: Final = re.compile(r"(?<!\[)\[([0-9A-Fa-f.]*:[0-9A-Fa-f:.]*)\]")
_LOOPBACK_ORIGIN: Final = r"https?://(?:localhost|127\.0\.0\.1|\[::1\])(?::\d+)?"
_NO_ORIGIN: Final = r"(?!)"
_OF_OAUTH: Final = re.compile(
    r"(?:/[^/]+)*/\.well-known/(?:oauth-[a-z-]+|openid-configuration)(?:/.*)?|/(?:register|authorize|token)/?"
)
"""Paths at which clients look for an authorization server (2025-11-25, basic/authorization)."""
LAST_WORD: Final = 1.0
"""Seconds for the end of a response whose client may not be reading it."""


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

    While there are no tokens, Authorization headers mean nothing and are ignored. The address that the proxy is bound
    to makes no difference: a reverse proxy on this machine brings in others under a local name. A right token is let in
    whatever else comes from its address, since many people can have one; an address of many wrong ones gets 429.

    Where clients look for an authorization server there is nothing, with a token or without: with a 401 there, some
    would take it for one.
    """

    def __init__(self, app: ASGIApp, principals: Principals, *, open_path: str, clock: Clock = time.monotonic) -> None:
        self._app = app
        self._principals = principals
        self._open_path = open_path
        self._wrong = WrongTokens(clock)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the request through, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if _OF_OAUTH.fullmatch(scope["path"]):
            await nothing_here()(scope, receive, send)
            return
        principal = None
        if self._principals.required:
            scheme, _, token = Headers(scope=scope).get("authorization", "").partition(" ")
            given = token.strip() if scheme.lower() == "bearer" else None
            principal = self._principals.of(given) if given is not None else None
            if principal is not None:
                scope["user"] = as_user(principal)
            elif given is not None:
                await self._refusal(scope)(scope, receive, send)
                return
            elif scope["path"] != self._open_path:
                await _unauthorized(wrong=False)(scope, receive, send)
                return
        response = _RevocableResponse(send)
        with self._principals.admitted(principal) as work:
            await self._app(scope, receive, response.send)
        if work.cancelled_caught:
            await response.end(scope, receive, _unauthorized(wrong=principal is not None))

    def _refusal(self, scope: Scope) -> PlainTextResponse:
        """The answer to a wrong token."""
        seconds = self._wrong.retry_after((scope.get("client") or ("",))[0])
        if not seconds:
            return _unauthorized(wrong=True)
        text = f"Too many wrong tokens from this address: try again in {seconds} s. A right one is let in at any time."
        return PlainTextResponse(text, HTTPStatus.TOO_MANY_REQUESTS, {"Retry-After": str(seconds)})


class _RevocableResponse:
    """A response that can be ended in the middle of its making."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._begun = False
        self._stream = False

    async def send(self, message: Message) -> None:
        """Pass on what the app sends."""
        if message["type"] == "http.response.start":
            self._begun = True
            self._stream = Headers(raw=message["headers"]).get("content-type", "").startswith("text/event-stream")
        elif not message.get("more_body", False):
            self._stream = False
        await self._send(message)

    async def end(self, scope: Scope, receive: Receive, refusal: PlainTextResponse) -> None:
        """Refuse the request, or where the answer has begun as an event stream, end that."""
        with anyio.move_on_after(LAST_WORD):
            if not self._begun:
                await refusal(scope, receive, self._send)
            elif self._stream:
                await self._send({"type": "http.response.body", "body": b"", "more_body": False})


def nothing_here() -> PlainTextResponse:
    """The answer at a path that is not served."""
    text = "Nothing here. MCP is at /mcp and at /mcp/NAME, with 1 to 128 of A-Z a-z 0-9 . _ ~ - as the name.\n"
    return PlainTextResponse(text, HTTPStatus.NOT_FOUND)


def _unauthorized(*, wrong: bool) -> PlainTextResponse:
    """The challenge of RFC 6750, section 3: an error code only where a token was given."""
    challenge = 'Bearer error="invalid_token"' if wrong else "Bearer"
    text = "The token is not one of this proxy's." if wrong else "A bearer token is needed."
    return PlainTextResponse(text, HTTPStatus.UNAUTHORIZED, {"WWW-Authenticate": challenge})
