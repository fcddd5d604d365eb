"""The SDK's low-level server with one tool: on stdio, or `plain.py PORT_FILE [http|sse]` on a free port."""

import socket
import sys
from pathlib import Path
from typing import Any

import anyio
import uvicorn
from mcp.server.lowlevel import Server
from mcp.server.sse import SseServerTransport
from mcp.server.stdio import stdio_server
from mcp_types import CallToolResult, ListToolsResult, TextContent, Tool
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route


async def list_tools(_ctx: Any, _params: Any) -> ListToolsResult:
    return ListToolsResult(tools=[Tool(name="echo", input_schema={"type": "object"})])


async def call_tool(_ctx: Any, params: Any) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=str(params.arguments))])


server = Server[Any]("plain", on_list_tools=list_tools, on_call_tool=call_tool)


async def serve_stdio() -> None:
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


def sse_app() -> Starlette:
    """The older HTTP+SSE transport."""
    transport = SseServerTransport("/messages/")

    async def serve(request: Request) -> Response:
        async with transport.connect_sse(request.scope, request.receive, request._send) as (read, write):
            await server.run(read, write, server.create_initialization_options())
        return Response()

    return Starlette(routes=[Route("/mcp", serve), Mount("/messages/", app=transport.handle_post_message)])


def serve_http(port_file: Path, app: Starlette) -> None:
    bound = socket.create_server(("127.0.0.1", 0))
    part = port_file.with_suffix(".part")
    part.write_text(str(bound.getsockname()[1]))
    part.rename(port_file)  # the connection waits in the socket until uvicorn is up
    config = uvicorn.Config(app, log_level="warning")
    uvicorn.Server(config).run(sockets=[bound])


if __name__ == "__main__":
    if len(sys.argv) > 1:
        serve_http(Path(sys.argv[1]), sse_app() if "sse" in sys.argv else server.streamable_http_app())
    else:
        anyio.run(serve_stdio)
