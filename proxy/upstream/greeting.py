"""Agreeing with a server on a protocol revision, and telling the SDK's own errors from the server's."""

from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, Literal, TypeAlias

import anyio
from mcp import MCPError
from mcp.shared.dispatcher import CallOptions, Outbound
from mcp.shared.inbound import MCP_METHOD_HEADER, MCP_PROTOCOL_VERSION_HEADER
from mcp_types import (
    CONNECTION_CLOSED,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    UNSUPPORTED_PROTOCOL_VERSION,
)
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_HANDSHAKE_VERSION, LATEST_MODERN_VERSION

from proxy.core.inventory import Json, is_json, items, members_of
from proxy.core.protocol import Era
from proxy.core.published import EXTENSION
from proxy.ports import LISTS, ListKind
from proxy.upstream.stamp import CLIENT_INFO, envelope
from proxy.wire.dispatcher import NO_ANSWER

Order: TypeAlias = tuple[Literal["server/discover", "initialize"], ...]
"""The requests by which a revision can be agreed on, in the order in which they are tried on one connection."""
HANDSHAKE_ONLY: Final[Order] = ("initialize",)
MODERN_ONLY: Final[Order] = ("server/discover",)
HANDSHAKE_FIRST: Final[Order] = ("initialize", "server/discover")
PROBE_FIRST: Final[Order] = ("server/discover", "initialize")

PROBE_WAIT: Final = 3.0
"""Seconds for the answer to `server/discover`; the handshake follows, which a slow server then answers as well."""
_ERROR_NAMES: Final = {
    INTERNAL_ERROR: "Internal error",
    INVALID_PARAMS: "Invalid params",
    INVALID_REQUEST: "Invalid Request",
    METHOD_NOT_FOUND: "Method not found",
    UNSUPPORTED_PROTOCOL_VERSION: "Unsupported protocol version",
}
"""What the specifications of JSON-RPC and MCP call the codes of errors."""
_SHOWN: Final = 100
"""Characters of a revision that is not known."""
_NEGOTIATION: Final[CallOptions] = {"cancel_on_abandon": False}
"""The specification forbids cancelling the requests that negotiate."""


class NoAgreement(MCPError):
    """No revision is agreed on; the message is the proxy's own, and `detail` has what the server answered instead."""

    def __init__(self, message: str, detail: str = "") -> None:
        super().__init__(INVALID_REQUEST, message)
        self.detail = detail


@dataclass(frozen=True)
class Greeting:
    """What was agreed: the revision, what the server can do, and its instructions."""

    version: str
    capabilities: Json
    instructions: str | None

    @classmethod
    def of(cls, version: str, result: Json) -> "Greeting":
        """What a server has answered to `initialize` or `server/discover`."""
        instructions = result.get("instructions")
        return cls(
            version, members_of(result.get("capabilities")), instructions if isinstance(instructions, str) else None
        )

    @property
    def declared(self) -> frozenset[ListKind]:
        """The lists that the server says it has."""
        return frozenset(kind for kind in LISTS if self.capabilities.get(kind) not in (None, False))

    @property
    def era(self) -> Era:
        """The era of the revision."""
        return "handshake" if self.version in HANDSHAKE_PROTOCOL_VERSIONS else "modern"

    @property
    def skills(self) -> Json | None:
        """The server's settings of the skills extension; None where it has not declared that."""
        extensions = self.capabilities.get("extensions")
        settings = extensions.get(EXTENSION) if is_json(extensions) else None
        return settings if is_json(settings) else None


async def greet(out: Outbound, order: Order, capabilities: Json, over: anyio.Event) -> Greeting:
    """Agree on a revision by the specification's rules for clients that speak both eras; `over`: the connection's end.

    `capabilities`: what the server may ask of clients. Whatever is no evidence of the other era is met with the next
    request of `order`.

    Raises:
        MCPError: no agreement.
    """
    if order == HANDSHAKE_FIRST:
        return await _handshake_first(out, capabilities, over)
    if order == PROBE_FIRST:
        return await _probe_first(out, capabilities, over)
    return await (_initialize if order == HANDSHAKE_ONLY else _discover)(out, capabilities)


async def _probe_first(out: Outbound, capabilities: Json, over: anyio.Event) -> Greeting:
    """Ask for the modern era, then shake hands.

    A handshake refused because a probe that seemed unanswered has settled the connection on the modern era is followed
    by another probe.
    """
    try:
        with anyio.move_on_after(PROBE_WAIT):
            return await _discover(out, capabilities)
    except MCPError as error:
        if over.is_set() or (closed(error) and await ends(over)) or _modern_only(error):
            raise
    try:
        return await _initialize(out, capabilities)
    except MCPError as error:
        if error.code != UNSUPPORTED_PROTOCOL_VERSION:
            raise
        return await _discover(out, capabilities)


async def _handshake_first(out: Outbound, capabilities: Json, over: anyio.Event) -> Greeting:
    """Shake hands; who refuses that may be of the modern era alone."""
    try:
        return await _initialize(out, capabilities)
    except MCPError as error:
        if over.is_set() or (closed(error) and await ends(over)):
            raise
        with suppress(MCPError), anyio.move_on_after(PROBE_WAIT):  # why the handshake was refused says more
            return await _discover(out, capabilities)
        raise


async def _discover(out: Outbound, capabilities: Json) -> Greeting:
    """Ask `server/discover` (2026-07-28, basic/lifecycle).

    Raises:
        MCPError: it is refused, or names no revision that we know.
    """
    version = LATEST_MODERN_VERSION
    headers = {MCP_PROTOCOL_VERSION_HEADER: version, MCP_METHOD_HEADER: "server/discover"}
    params = {"_meta": envelope(version, capabilities)}
    result = await out.send_raw_request("server/discover", params, {**_NEGOTIATION, "headers": headers})
    if version not in items(result.get("supportedVersions")):
        raise NoAgreement("it names no protocol revision that this proxy knows")
    return Greeting.of(version, result)


async def _initialize(out: Outbound, capabilities: Json) -> Greeting:
    """The handshake (2025-11-25, basic/lifecycle).

    Raises:
        MCPError: it is refused, or answered with a revision that we do not know.
    """
    params = {"protocolVersion": LATEST_HANDSHAKE_VERSION, "capabilities": capabilities, "clientInfo": CLIENT_INFO}
    result = await out.send_raw_request("initialize", params, _NEGOTIATION)
    version = result.get("protocolVersion")
    if not isinstance(version, str):
        raise NoAgreement("its answer to initialize names no protocol revision")
    if version not in HANDSHAKE_PROTOCOL_VERSIONS:
        detail = f"protocolVersion: {version[:_SHOWN]!r}"
        raise NoAgreement("it speaks a protocol revision that this proxy does not know", detail)
    await out.notify("notifications/initialized", None, {"headers": {MCP_PROTOCOL_VERSION_HEADER: version}})
    return Greeting.of(version, result)


def closed(error: MCPError) -> bool:
    """Whether the SDK says that the connection has closed, under a code that servers use for errors of their own."""
    return error.code == CONNECTION_CLOSED and error.message == "Connection closed"


def no_response(error: MCPError) -> str | None:
    """Why an answer holds no response; None for the server's own error."""
    return "its answer is no valid JSON-RPC response" if error.message == NO_ANSWER.message else None


def answered(status: int | None) -> str:
    """That a server answered with this HTTP status alone."""
    phrase = HTTPStatus(status).phrase if status in frozenset(HTTPStatus) else ""
    return f"it answered HTTP {status} {phrase}".rstrip()


def refused(status: int) -> str:
    """That a server answered with this HTTP status, which is not one of success."""
    elsewhere = HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST
    return answered(status) + (", which leads elsewhere and is not followed" if elsewhere else "")


def error_of(code: int) -> str:
    """A JSON-RPC error by its code alone, since its message is the server's."""
    return f"JSON-RPC error {code} ({_ERROR_NAMES[code]})" if code in _ERROR_NAMES else f"JSON-RPC error {code}"


async def ends(over: anyio.Event) -> bool:
    """Whether the connection ends: those that wait on it learn that a moment before `over` is set."""
    with anyio.move_on_after(1):
        await over.wait()
    return over.is_set()


def _modern_only(error: MCPError) -> bool:
    supported = items(error.data.get("supported")) if is_json(error.data) else ()
    return (
        error.code == UNSUPPORTED_PROTOCOL_VERSION
        and bool(supported)
        and not any(version in HANDSHAKE_PROTOCOL_VERSIONS for version in supported)
    )
