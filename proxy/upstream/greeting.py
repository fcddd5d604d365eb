"""Agreeing with a server on a protocol revision, and telling the SDK's own errors from the server's."""

from typing import Final

import anyio
from mcp import ClientSession, MCPError
from mcp_types import CONNECTION_CLOSED, UNSUPPORTED_PROTOCOL_VERSION
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from pydantic import ValidationError

from proxy.core.inventory import is_json, items
from proxy.core.server import EraChoice

PROBE_WAIT: Final = 3.0
"""Seconds for the answer to `server/discover`; the handshake follows, which a slow server then answers as well."""


async def greet(session: ClientSession, era: EraChoice, over: anyio.Event) -> None:
    """Agree on a revision by the specification's rules for clients that speak both eras; `over`: the connection's end.

    Whatever is no evidence of a modern server is met with the handshake. A handshake refused because a probe that
    seemed unanswered has settled the connection on the modern era is followed by another probe.

    Raises:
        MCPError: no agreement.
    """
    if era == "modern":
        await session.discover()
        return
    if era == "auto":
        try:
            with anyio.move_on_after(PROBE_WAIT):
                await session.discover()
        except MCPError as error:
            if (closed(error) and await ends(over)) or _modern_only(error):
                raise
        except (ValidationError, RuntimeError):
            pass
        if session.discover_result is not None:
            return
    try:
        await session.initialize()
    except MCPError as error:
        if era != "auto" or error.code != UNSUPPORTED_PROTOCOL_VERSION:
            raise
        await session.discover()


def closed(error: MCPError) -> bool:
    """Whether the SDK says that the connection has closed, under a code that servers use for errors of their own."""
    return error.code == CONNECTION_CLOSED and error.message == "Connection closed"


def cut_off(error: MCPError) -> bool:
    """Whether the SDK says that a response stream ended without the response."""
    return error.code == CONNECTION_CLOSED and error.message.startswith(("SSE stream ended", "SSE stream failed"))


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
