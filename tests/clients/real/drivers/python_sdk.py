"""The MCP Python SDK, reading the list again before the model's next request after a notice."""
# pyright: reportMissingImports=false

import asyncio

from agent_loop import ReadTools, converse
from mcp import Client, StdioServerParameters
from target import COMMAND, URL


async def main() -> None:
    """Play the story."""
    tools = ReadTools()
    target = URL or StdioServerParameters(command=COMMAND[0], args=COMMAND[1:])
    async with Client(target, message_handler=tools.on_message) as client:

        async def list_tools() -> list:
            return (await client.list_tools()).tools

        async def call_tool(name: str, arguments: dict) -> str:
            content = (await client.call_tool(name, arguments)).content[0]
            return getattr(content, "text", "")

        await converse(lambda: tools.read(list_tools), call_tool)


asyncio.run(main())
