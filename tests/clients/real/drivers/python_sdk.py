"""The MCP Python SDK, reading the list again before the model's next request after a notice."""
# pyright: reportMissingImports=false

import asyncio

from agent_loop import converse
from mcp import Client, StdioServerParameters
from target import COMMAND, URL


async def main() -> None:
    """Play the story."""
    tools = []
    stale = True

    async def on_message(message: object) -> None:
        nonlocal stale
        stale = stale or getattr(message, "method", "") == "notifications/tools/list_changed"

    target = URL or StdioServerParameters(command=COMMAND[0], args=COMMAND[1:])
    async with Client(target, message_handler=on_message) as client:

        async def list_tools() -> list:
            nonlocal tools, stale
            if stale:
                stale = False
                tools = (await client.list_tools()).tools
            return tools

        async def call_tool(name: str, arguments: dict) -> str:
            content = (await client.call_tool(name, arguments)).content[0]
            return getattr(content, "text", "")

        await converse(list_tools, call_tool)


asyncio.run(main())
