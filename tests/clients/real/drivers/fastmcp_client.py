"""The client of FastMCP, reading the list again before the model's next request after a notice."""
# pyright: reportMissingImports=false

import asyncio

from agent_loop import converse
from fastmcp import Client
from fastmcp.client.transports import StdioTransport
from target import COMMAND, URL


async def main() -> None:
    """Play the story."""
    tools = []
    stale = True

    async def on_message(message: object) -> None:
        nonlocal stale
        inner = getattr(message, "root", message)
        stale = stale or getattr(inner, "method", "") == "notifications/tools/list_changed"

    target = URL or StdioTransport(command=COMMAND[0], args=COMMAND[1:])
    async with Client(target, message_handler=on_message) as client:

        async def list_tools() -> list:
            nonlocal tools, stale
            if stale:
                stale = False
                tools = await client.list_tools()
            return tools

        async def call_tool(name: str, arguments: dict) -> str:
            return (await client.call_tool(name, arguments, raise_on_error=False)).content[0].text

        await converse(list_tools, call_tool)


asyncio.run(main())
