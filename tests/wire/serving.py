"""A small server of the SDK on this process's stdin and stdout, which prints what it should not."""

import sys
from typing import Any

import anyio
import structlog
from mcp.server.lowlevel import Server
from mcp_types import CallToolResult, NotificationParams, TextContent

from proxy.face.early_responder import Handover
from proxy.face.stdio import serve_stdio
from proxy.wire.standard_streams import claim

told: list[str] = []


async def note(ctx: Any, params: NotificationParams) -> None:
    """Keep what was told, for `call`."""
    told.append(ctx.method)


async def call(ctx: Any, params: Any) -> CallToolResult:
    """`fail`: raise; `ask`: ask the client; anything else: say what was told so far."""
    print("a stray line")
    if params.name == "fail":
        raise KeyError("a secret")
    if params.name == "ask":
        await ctx.session.send_ping()
    return CallToolResult(content=[TextContent(text=" ".join(told))])


async def main() -> None:
    """Serve until the client has gone."""
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    server = Server[Any]("small", version="1", on_call_tool=call)
    server.add_notification_handler("x/told", NotificationParams, note)
    await serve_stdio(server, Handover(claim()), lambda: print("the input has ended", file=sys.stderr))


if __name__ == "__main__":
    anyio.run(main)
