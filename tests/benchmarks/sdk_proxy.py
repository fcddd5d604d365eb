"""A plain aggregating proxy on the official SDK: its server in front, its typed client session behind.

python sdk_proxy.py CONFIG [PORT]
"""

import json
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import uvicorn
from mcp import ClientSession
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp_types import CallToolResult, ListToolsResult, Tool


class Proxy:
    """Tools of all servers under `{server}_{tool}`."""

    def __init__(self) -> None:
        self.tools: dict[str, tuple[ClientSession, str, Tool]] = {}
        self.server: Server[Any] = Server("proxy", on_list_tools=self._list, on_call_tool=self._call)

    async def keep(self, key: str, entry: dict[str, Any], *, task_status: anyio.abc.TaskStatus[None]) -> None:
        """Connect to one server, and stay connected."""
        async with AsyncExitStack() as stack:
            if "url" in entry:
                way = streamable_http_client(entry["url"], max_sse_event_size=None)
            else:
                way = stdio_client(StdioServerParameters(command=entry["command"], args=entry["args"]))
            streams = await stack.enter_async_context(way)
            session = await stack.enter_async_context(ClientSession(streams[0], streams[1]))
            await session.initialize()
            for tool in (await session.list_tools()).tools:
                name = f"{key}_{tool.name}"
                self.tools[name] = session, tool.name, tool.model_copy(update={"name": name})
            task_status.started()
            await anyio.sleep_forever()

    async def _list(self, _ctx: Any, _params: Any) -> ListToolsResult:
        return ListToolsResult(tools=[tool for _, _, tool in self.tools.values()])

    async def _call(self, _ctx: Any, params: Any) -> CallToolResult:
        session, name, _ = self.tools[params.name]
        return await session.call_tool(name, params.arguments)


async def main(entries: dict[str, Any]) -> None:
    """Connect to all servers side by side, then serve one client on stdio, or any number on a port."""
    proxy = Proxy()
    async with anyio.create_task_group() as connections:
        async with anyio.create_task_group() as starting:
            for key, entry in entries.items():
                starting.start_soon(connections.start, proxy.keep, key, entry)
        if len(sys.argv) > 2:
            app = proxy.server.streamable_http_app(max_sessions=None)
            config = uvicorn.Config(app, port=int(sys.argv[2]), log_level="error", access_log=False)
            await uvicorn.Server(config).serve()
        else:
            async with stdio_server() as (read, write):
                await proxy.server.run(read, write, proxy.server.create_initialization_options())
        connections.cancel_scope.cancel()


anyio.run(main, json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))["mcpServers"])
