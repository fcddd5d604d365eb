"""The same tools on the official SDK's server, over Streamable HTTP with its defaults, or without a port over stdio.

python sdk_server.py NAME TOOLS [PORT]
"""

import sys
from typing import Any

import anyio
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp_types import CallToolResult, ListToolsResult, TextContent, Tool
from tool_texts import text_of, tools


def server(name: str, count: int) -> Server[Any]:
    """A server with `count` tools."""
    listed = ListToolsResult(tools=[Tool.model_validate(tool) for tool in tools(count, name)])

    async def on_list_tools(_ctx: Any, _params: Any) -> ListToolsResult:
        return listed

    async def on_call_tool(_ctx: Any, params: Any) -> CallToolResult:
        if params.name.startswith("sleep_"):
            await anyio.sleep(params.arguments["seconds"])
        return CallToolResult(content=[TextContent(type="text", text=text_of(params.name, params.arguments or {}))])

    return Server(name, on_list_tools=on_list_tools, on_call_tool=on_call_tool)


async def over_stdio(served: Server[Any]) -> None:
    """Serve one client until its input ends."""
    async with stdio_server() as (read, write):
        await served.run(read, write, served.create_initialization_options())


def main() -> None:
    """Serve until asked to end."""
    name, count, *port = sys.argv[1], int(sys.argv[2]), *sys.argv[3:]
    served = server(name, count)
    if not port:
        anyio.run(over_stdio, served)
        return
    import uvicorn  # noqa: PLC0415 - over stdio it would only make the start longer

    app = served.streamable_http_app(max_sessions=None)
    uvicorn.run(app, host="127.0.0.1", port=int(port[0]), log_level="error", access_log=False)


if __name__ == "__main__":
    main()
